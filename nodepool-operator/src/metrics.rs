//! The operator's Prometheus metrics. No label holds an object's name, so the number of series is fixed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use machine_providers::calls::{CallObserver, EndedCall};
use node_lifecycle::outcome::{Applied, AppliedAction};
use node_lifecycle::{Blocker, NodeAction, NodeStep, PoolKey};
use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts};
use shared_crds::conditions::Reason;
use shared_runtime::metrics::{Metrics, MetricsError};

/// Duration of a call to a provider, in seconds: from one that a cache answers to a program's process that is killed after it has
/// waited for its turn.
const CALL_SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 90.0];

/// The operator's own counters; the shared runtime counts reconciles, writes and conflicts.
#[derive(Clone, Debug)]
pub(crate) struct NodePoolMetrics {
    nodes: IntCounterVec,
    draining: IntGaugeVec,
    /// The draining nodes of each pool, by what they wait for.
    of_pools: Arc<Mutex<HashMap<PoolKey, Draining>>>,
    evictions: IntCounterVec,
    deleted_pods: IntCounter,
    failures: IntCounterVec,
    unread: IntCounterVec,
    attachments_unread: IntCounterVec,
    calls: IntCounterVec,
    call_seconds: HistogramVec,
}

/// Number of draining nodes by what they wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Draining {
    /// A pod that stays, because its eviction is refused or it asks for that.
    pods: usize,
    /// A pod that has exceeded its grace period.
    overdue: usize,
    /// A volume that is not detached.
    volumes: usize,
    /// A machine that has not ended.
    machines: usize,
    /// A finalizer of another controller.
    finalizers: usize,
    /// A list that fails.
    lists: usize,
    /// A place among those that are drained.
    places: usize,
    /// Nothing but the ordinary course.
    other: usize,
}

impl Draining {
    fn count(nodes: &[NodeStep], applied: &Applied) -> Self {
        // Of several blockers of a node the least, which is the one that stands on it.
        let mut blockers: BTreeMap<&str, &Blocker> = BTreeMap::new();
        for (node, by) in applied.blocked() {
            let least = blockers.entry(node).or_insert(by);
            *least = by.min(*least);
        }
        let removed: BTreeSet<&str> = applied.names(|action| action == AppliedAction::Remove).collect();
        let mut all = Self::default();
        let is_leaving = |step: &&NodeStep| match &step.action {
            NodeAction::Drain(_) | NodeAction::EndMachine => true,
            NodeAction::Remove => !removed.contains(step.member.name()),
            _ => false,
        };
        for step in nodes.iter().filter(is_leaving) {
            if matches!(&step.action, NodeAction::Drain(step) if step.waits_for_place()) {
                all.places += 1;
                continue;
            }
            let count = match blockers.get(step.member.name()) {
                Some(Blocker::Pod(..)) => &mut all.pods,
                Some(Blocker::Overdue(_)) => &mut all.overdue,
                Some(Blocker::Volumes(_)) => &mut all.volumes,
                Some(Blocker::Machine) => &mut all.machines,
                Some(Blocker::Finalizers(_)) => &mut all.finalizers,
                Some(Blocker::Unread(_)) => &mut all.lists,
                Some(
                    Blocker::Provider(_) | Blocker::LeftToProvider | Blocker::LoadBalancers | Blocker::Place,
                )
                | None => &mut all.other,
            };
            *count += 1;
        }
        all
    }
}

impl NodePoolMetrics {
    /// Creates and registers the metrics.
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let name = |name: &str| format!("tandem_nodepool_{name}");
        let all = Self {
            nodes: IntCounterVec::new(
                Opts::new(
                    name("nodes_total"),
                    "Nodes by what was done to them: created, joined, drained, rescued, given_back, removed, released, replaced, repaired.",
                ),
                &["action"],
            )?,
            draining: IntGaugeVec::new(
                Opts::new(
                    name("draining_nodes"),
                    "Nodes that are drained now, by what they wait for: a blocked pod, an overdue pod, a volume that is not \
                     detached, a machine that does not end, a finalizer of another controller, a list that fails, a place (--max-parallel-drains), or nothing \
                     unusual.",
                ),
                &["waits_for"],
            )?,
            of_pools: Arc::default(),
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
            attachments_unread: IntCounterVec::new(
                Opts::new(
                    name("volume_attachment_list_failures_total"),
                    "Lists of the volume attachments that failed, by category of error; nodes that are drained wait.",
                ),
                &["category"],
            )?,
            calls: IntCounterVec::new(
                Opts::new(
                    name("provider_calls_total"),
                    "Calls to providers, by kind of provider, what was asked for, and its result: ok, or the category of the error.",
                ),
                &["provider", "call", "result"],
            )?,
            call_seconds: HistogramVec::new(
                HistogramOpts::new(
                    name("provider_call_duration_seconds"),
                    "Time until a provider answered, or was no longer waited for, by kind of provider and what was asked for.",
                )
                .buckets(CALL_SECONDS.to_vec()),
                &["provider", "call"],
            )?,
        };
        all.register(metrics)?;
        Ok(all)
    }

    fn register(&self, metrics: &Metrics) -> Result<(), MetricsError> {
        metrics.register(self.nodes.clone())?;
        metrics.register(self.draining.clone())?;
        metrics.register(self.evictions.clone())?;
        metrics.register(self.deleted_pods.clone())?;
        metrics.register(self.failures.clone())?;
        metrics.register(self.unread.clone())?;
        metrics.register(self.attachments_unread.clone())?;
        metrics.register(self.calls.clone())?;
        metrics.register(self.call_seconds.clone())
    }

    /// Counts the result of a plan.
    pub(crate) fn applied(&self, applied: &Applied) {
        for entry in applied.entries.iter().filter(|entry| entry.outcome.is_accepted()) {
            for &label in entry.action.labels() {
                self.nodes.with_label_values(&[label]).inc();
            }
        }
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let evictions = [("accepted", applied.count(AppliedAction::Evict)), ("blocked", applied.refused())];
        // A label without a count has no series.
        for (label, count) in evictions.into_iter().filter(|(_, count)| *count > 0) {
            self.evictions.with_label_values(&[label]).inc_by(number(count));
        }
        self.deleted_pods.inc_by(number(applied.count(AppliedAction::DeletePod)));
    }

    /// Records the draining nodes of a pool after a pass.
    pub(crate) fn draining(&self, key: &PoolKey, nodes: &[NodeStep], applied: &Applied) {
        let of_pool = Draining::count(nodes, applied);
        let mut of_pools = self.of_pools.lock().unwrap_or_else(PoisonError::into_inner);
        if of_pool == Draining::default() {
            of_pools.remove(key);
        } else {
            of_pools.insert(key.clone(), of_pool);
        }
        let set = |waits_for: &str, count: fn(&Draining) -> usize| {
            let sum: usize = of_pools.values().map(count).sum();
            self.draining.with_label_values(&[waits_for]).set(i64::try_from(sum).unwrap_or(i64::MAX));
        };
        set("blocked_pod", |of| of.pods);
        set("overdue_pod", |of| of.overdue);
        set("volume", |of| of.volumes);
        set("machine", |of| of.machines);
        set("finalizer", |of| of.finalizers);
        set("list", |of| of.lists);
        set("place", |of| of.places);
        set("nothing", |of| of.other);
    }

    /// Counts a failed list of one node's pods.
    pub(crate) fn pods_unread(&self, category: &str) {
        self.unread.with_label_values(&[category]).inc();
    }

    /// Counts a failed list of the volume attachments.
    pub(crate) fn attachments_unread(&self, category: &str) {
        self.attachments_unread.with_label_values(&[category]).inc();
    }

    /// Counts nodes that were not made.
    pub(crate) fn failed(&self, reason: Reason) {
        self.failures.with_label_values(&[reason.as_str()]).inc();
    }
}

impl CallObserver for NodePoolMetrics {
    fn ended(&self, call: &EndedCall<'_>) {
        let EndedCall { provider, call, result, took } = *call;
        self.calls.with_label_values(&[provider, call.label(), result]).inc();
        self.call_seconds.with_label_values(&[provider, call.label()]).observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use machine_providers::calls::Call;
    use node_lifecycle::outcome::Blocked;
    use node_lifecycle::testing::{blocked_by, draining, key, pod, step};
    use node_lifecycle::{DrainStep, PodName};
    use shared_crds::names::NODEPOOL_OPERATOR;

    use super::*;

    #[test]
    fn draining_nodes_are_counted_by_what_they_wait_for_over_all_pools_and_no_longer_than_they_drain() {
        let metrics = Metrics::new(NODEPOOL_OPERATOR, "0").unwrap();
        let own = NodePoolMetrics::new(&metrics).unwrap();
        let drain = || NodeAction::Drain(DrainStep::default());
        let nodes = [drain(), drain(), drain(), drain(), drain(), NodeAction::Wait];
        let nodes: Vec<NodeStep> =
            nodes.into_iter().enumerate().map(|(index, action)| step(draining(index, 5), action)).collect();
        let pod = PodName::of(&pod("p"));
        let blocked = [
            ("n-000", Blocker::Overdue(pod.clone())),
            ("n-000", Blocker::Pod(pod.clone(), "a budget".into())),
            ("n-001", Blocker::Overdue(pod)),
            ("n-002", Blocker::Volumes(vec!["pv".into()])),
            ("n-003", Blocker::Unread("pods")),
        ];
        let blocked = blocked.map(|(node, by)| Blocked { node: node.into(), by });
        let applied = blocked_by(blocked);
        let seen = || {
            ["blocked_pod", "overdue_pod", "volume", "list", "nothing"]
                .map(|label| own.draining.with_label_values(&[label]).get())
        };
        own.draining(&key(), &nodes, &applied);
        assert_eq!(seen(), [1, 1, 1, 1, 1]);
        let other = PoolKey { namespace: "other".into(), name: "p".into() };
        own.draining(&other, &nodes, &Applied::default());
        assert_eq!(seen(), [1, 1, 1, 1, 6]);
        own.draining(&key(), &[], &Applied::default());
        own.draining(&other, &[], &Applied::default());
        assert_eq!(seen(), [0; 5]);
    }

    #[test]
    fn calls_to_providers_are_counted_by_kind_of_provider_call_and_result_with_their_time() {
        let metrics = Metrics::new(NODEPOOL_OPERATOR, "0").unwrap();
        let own = NodePoolMetrics::new(&metrics).unwrap();
        let took = std::time::Duration::from_millis(300);
        for result in ["ok", "ok", "unreachable"] {
            own.ended(&EndedCall { provider: "exec", call: Call::List, result, took });
        }
        let count = |result| own.calls.with_label_values(&["exec", "list", result]).get();
        assert_eq!((count("ok"), count("unreachable")), (2, 1));
        let seconds = own.call_seconds.with_label_values(&["exec", "list"]);
        assert_eq!(seconds.get_sample_count(), 3);
        assert!((seconds.get_sample_sum() - 0.9).abs() < 1e-9);
    }
}
