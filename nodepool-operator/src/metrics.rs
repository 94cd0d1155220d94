//! The operator's Prometheus metrics. No label holds an object's name, so the number of series is fixed.

use prometheus::{IntCounter, IntCounterVec, Opts};
use shared_crds::conditions::Reason;
use shared_runtime::metrics::{Metrics, MetricsError};

use crate::outcome::Applied;

/// The operator's own counters; the shared runtime counts reconciles, writes and conflicts.
#[derive(Clone, Debug)]
pub(crate) struct NodePoolMetrics {
    nodes: IntCounterVec,
    evictions: IntCounterVec,
    deleted_pods: IntCounter,
    failures: IntCounterVec,
    unread: IntCounterVec,
}

impl NodePoolMetrics {
    /// Creates and registers the metrics.
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let name = |name: &str| format!("tandem_nodepool_{name}");
        let all = Self {
            nodes: IntCounterVec::new(
                Opts::new(
                    name("nodes_total"),
                    "Nodes by what was done to them: created, joined, drained, rescued, removed, replaced.",
                ),
                &["action"],
            )?,
            evictions: IntCounterVec::new(
                Opts::new(
                    name("evictions_total"),
                    "Evictions by result: accepted, or blocked, by a disruption budget as a rule.",
                ),
                &["result"],
            )?,
            deleted_pods: IntCounter::new(
                name("drain_timeout_pods_total"),
                "Pods deleted because the drain of their node took longer than spec.drain.timeoutSeconds.",
            )?,
            failures: IntCounterVec::new(
                Opts::new(
                    name("provisioning_failures_total"),
                    "Nodes that were not made or did not become Ready, by reason.",
                ),
                &["reason"],
            )?,
            unread: IntCounterVec::new(
                Opts::new(
                    name("pod_list_failures_total"),
                    "Lists of the pods of one node that failed, by category of error; the node waits.",
                ),
                &["category"],
            )?,
        };
        metrics.register(all.nodes.clone())?;
        metrics.register(all.evictions.clone())?;
        metrics.register(all.deleted_pods.clone())?;
        metrics.register(all.failures.clone())?;
        metrics.register(all.unread.clone())?;
        Ok(all)
    }

    /// Counts the result of a plan.
    pub(crate) fn applied(&self, applied: &Applied) {
        let count = |counter: &IntCounterVec, label: &str, by: usize| {
            if by > 0 {
                counter.with_label_values(&[label]).inc_by(u64::try_from(by).unwrap_or(u64::MAX));
            }
        };
        // The labels are an interface: queries name them, so they stay although the fields have other names.
        count(&self.nodes, "created", applied.created.len());
        count(&self.nodes, "joined", applied.joined.len());
        count(&self.nodes, "drained", applied.cordoned.len());
        count(&self.nodes, "rescued", applied.uncordoned.len());
        count(&self.nodes, "removed", applied.removed.len());
        count(&self.nodes, "replaced", applied.replaced.len() + applied.lost.len());
        count(&self.evictions, "accepted", applied.evicted);
        count(&self.evictions, "blocked", applied.refused);
        self.deleted_pods.inc_by(u64::try_from(applied.deleted_pods).unwrap_or(u64::MAX));
    }

    /// Counts a failed list of one node's pods.
    pub(crate) fn pods_unread(&self, category: &str) {
        self.unread.with_label_values(&[category]).inc();
    }

    /// Counts nodes that were not made.
    pub(crate) fn failed(&self, reason: Reason) {
        self.failures.with_label_values(&[reason.as_str()]).inc();
    }
}
