//! The planner's output: the decision about every pool, pod and node, and how decisions are told apart.

pub(crate) mod conclude;
pub(crate) mod rejections;
pub(crate) mod summary;

use std::hash::Hasher as _;
use std::sync::Arc;

use fnv::FnvHasher;
use k8s_openapi::jiff::Timestamp;
use shared_crds::NodePool;
use shared_crds::v1alpha1::{DiscoveredResources, OnContested, UnneededNode};

use crate::input::pod_info::PodInfo;
use crate::limits::behavior::{BehaviorLimits, Limit};
use crate::limits::bounds::BoundsConflict;
use crate::reasons::{NodeReason, PoolReason};

/// The result of a pass. Lists are sorted by namespace and name.
#[derive(Clone, Debug)]
pub struct ScalingPlan {
    /// The decision about every pool.
    pub pools: Vec<PoolDecision>,
    /// The decision about every pending pod.
    pub pods: Vec<PodDecision>,
    /// The decision about every node.
    pub nodes: Vec<NodeDecision>,
    /// What could not be read and was ignored, as messages for users.
    pub warnings: Vec<String>,
    /// When to plan again if nothing changes before.
    pub next: Option<Timestamp>,
}

/// The decision about a pool.
#[derive(Clone, Debug)]
pub struct PoolDecision {
    /// The pool as it was when the decision was made.
    pub object: Arc<NodePool>,
    /// The autoscaler that plans the pool; `None` if there is none.
    pub autoscaler: Option<String>,
    /// Whether the decision is written to the pool: the autoscaler is in mode `Auto`.
    pub acts: bool,
    /// What happens to the numbers of other writers; `None` where the decision is not written.
    pub on_contested: Option<OnContested>,
    /// The autoscalers that select the pool, if that is the reason why it is not planned.
    pub contenders: Vec<String>,
    /// `spec.replicas`; if it is unset, the number of existing nodes, within the bounds.
    pub current: i32,
    /// The number of nodes the pool should have.
    pub desired: i32,
    /// The reason for `desired`.
    pub reason: PoolReason,
    /// The reason as a message for users.
    pub message: String,
    /// Whether a bound or a rate policy cut the number of nodes that pending pods need.
    pub limited: bool,
    /// The number of nodes the pool would have without the temporary limits.
    pub wanted: i32,
    /// The limit that prevents more nodes, or fewer; `None` if no limit does.
    pub cut: Option<Limit>,
    /// Which part of the active schedules cannot be followed; `None` if all of it can.
    pub conflict: Option<BoundsConflict>,
    /// How far the pool may scale in this pass, and what is remembered for the next passes.
    pub limits: BehaviorLimits,
    /// What the pool's nodes have shown, where its template does not say so; remembered for the next passes.
    pub discovered: Option<DiscoveredResources>,
    /// The nodes to remove, sorted by name.
    pub victims: Vec<String>,
    /// Nodes that an earlier decision named as victims and that the `NodePool` operator has not marked yet. They are
    /// named again with whatever number of nodes is decided now; otherwise that operator would choose other nodes
    /// instead.
    pub pending_removal: Vec<String>,
    /// Nodes of the pool that are being removed, whichever writer decided that.
    pub leaving: Vec<String>,
    /// Unneeded nodes, and since when they are unneeded.
    pub unneeded: Vec<UnneededNode>,
    /// Number of pending pods that trigger the pool's scale-up.
    pub triggering_pods: usize,
    /// Identifies the decision: equal inputs give equal IDs.
    pub id: String,
}

impl PoolDecision {
    /// Whether an autoscaler plans the pool in this pass, paused or not.
    pub const fn is_planned(&self) -> bool {
        self.autoscaler.is_some()
    }

    /// This decision, with at most `limit` victims, because a status can hold only so many. The other nodes go with
    /// later decisions.
    #[must_use]
    pub(crate) fn limited_to(mut self, limit: usize) -> Self {
        let limit = limit.saturating_sub(self.pending_removal.len());
        let spared = self.victims.len().saturating_sub(limit);
        if spared > 0 {
            self.victims.truncate(limit);
            let most = self.current.min(self.object.spec.max_replicas).max(self.desired);
            self.desired = self.desired.saturating_add(super::numbers::replicas(spared)).min(most);
            self.id = decision_id(&self.object, self.desired, &self.victims);
        }
        self
    }

    /// Whether `spec.replicas` has to be written. If it is unset and the number of nodes stays the same, writing is
    /// left to the `NodePool` operator, which fills in that very number: a second writer would only cause conflicts.
    pub fn changes_replicas(&self) -> bool {
        let is_met = match self.object.spec.replicas {
            Some(replicas) => replicas == self.desired,
            None => self.current == self.desired,
        };
        self.is_planned() && !matches!(self.reason, PoolReason::Paused | PoolReason::Deleting) && !is_met
    }
}

/// The decision about a pending pod.
#[derive(Clone, Debug)]
pub struct PodDecision {
    /// The pod.
    pub object: Arc<PodInfo>,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// The outcome for the pod.
    pub result: SchedulingResult,
}

/// The outcome for a pending pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchedulingResult {
    /// It fits an existing or upcoming node.
    Fits {
        /// The node's pool, as `namespace/name`; empty for a node outside pools.
        pool: String,
        /// The node's name; empty if the node does not exist yet.
        node: String,
    },
    /// It fits a new node of this pool.
    TriggersScaleUp {
        /// The pool, as `namespace/name`.
        pool: String,
    },
    /// It fits no node.
    Unschedulable {
        /// Why not, for each selected pool; shared by similar pods.
        reasons: Arc<[PoolRejection]>,
    },
}

/// Why a pool cannot take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRejection {
    /// The pool, as `namespace/name`.
    pub pool: String,
    /// The machine-readable reason.
    pub reason: &'static str,
    /// The reason as a sentence.
    pub message: String,
    /// Whether the pool may well be able to take the pod and does not grow for it, because of the pod itself.
    pub keeps_waiting: bool,
}

/// Whether a node could be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDecision {
    /// Name of the node.
    pub name: String,
    /// Why it can be removed, or why not.
    pub reason: NodeReason,
    /// The reason as a message for users.
    pub message: String,
}

/// A decision's ID: a hash (64-bit FNV-1a, in hexadecimal digits) over the decision and the ID of the previous
/// decision. The same pass over the same objects gives the same ID, also after a restart in the middle of the pass.
pub(crate) fn decision_id(pool: &NodePool, desired: i32, victims: &[String]) -> String {
    let previous =
        pool.status.as_ref().and_then(|s| s.autoscaling.as_ref()).and_then(|a| a.last_decision.as_ref());
    let replicas = pool.spec.replicas.map(|r| r.to_string()).unwrap_or_default();
    let desired = desired.to_string();
    let uid = pool.metadata.uid.as_deref().or(pool.metadata.name.as_deref()).unwrap_or_default();
    let head = [uid, previous.map_or("", |d| d.id.as_str()), &replicas, &desired];
    let mut hasher = FnvHasher::default();
    for part in head.into_iter().chain(victims.iter().map(String::as_str)) {
        hasher.write(part.as_bytes());
        // Keeps ("ab", "c") apart from ("a", "bc").
        hasher.write_u8(0);
    }
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use shared_crds::v1alpha1::{AutoscalingStatus, Decision, NodePoolStatus};

    use super::*;

    #[test]
    fn equal_decisions_have_equal_ids_and_the_one_before_matters() {
        let mut pool = NodePool::default();
        pool.metadata.uid = Some("u".to_owned());
        let first = decision_id(&pool, 3, &[]);
        assert_eq!(first, decision_id(&pool, 3, &[]));
        assert_eq!(first.len(), 16);
        assert_ne!(first, decision_id(&pool, 4, &[]));
        assert_ne!(
            decision_id(&pool, 3, &["ab".into(), "c".into()]),
            decision_id(&pool, 3, &["a".into(), "bc".into()])
        );
        let last = Decision {
            id: first.clone(),
            from_replicas: 0,
            to_replicas: 3,
            reason: String::new(),
            message: String::new(),
            time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH),
        };
        let autoscaling = AutoscalingStatus { last_decision: Some(last), ..AutoscalingStatus::default() };
        pool.status = Some(NodePoolStatus { autoscaling: Some(autoscaling), ..NodePoolStatus::default() });
        assert_ne!(first, decision_id(&pool, 3, &[]));
    }
}
