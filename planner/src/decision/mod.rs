//! The planner's output: what it decided about every pool, pod and node, and how a decision is told from another.

pub mod conclude;
pub mod rejections;
pub mod summary;
pub mod unplanned;

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use shared_crds::NodePool;
use shared_crds::v1alpha1::UnneededNode;

use crate::limits::behavior::{BehaviorLimits, Limit};
use crate::limits::bounds::BoundsConflict;
use crate::reasons::{NodeReason, PoolReason};

/// What a pass decided. Lists are in the order of namespaces and names.
#[derive(Clone, Debug)]
pub struct ScalingPlan {
    /// Every pool.
    pub pools: Vec<PoolDecision>,
    /// Every pending pod.
    pub pods: Vec<PodDecision>,
    /// Every node.
    pub nodes: Vec<NodeDecision>,
    /// What could not be read and was left out, for people.
    pub warnings: Vec<String>,
    /// When to plan again if nothing else happens.
    pub next: Option<Timestamp>,
}

/// What was decided about a pool.
#[derive(Clone, Debug)]
pub struct PoolDecision {
    /// The pool it was decided from.
    pub object: Arc<NodePool>,
    /// The autoscaler that plans it, if one does.
    pub autoscaler: Option<String>,
    /// Whether the decision is to be written: the autoscaler is in mode `Auto`.
    pub acts: bool,
    /// The autoscalers that select it, where that is why it is not planned.
    pub contenders: Vec<String>,
    /// `spec.replicas`; where it is not set, the nodes that are there, within the bounds.
    pub current: i32,
    /// How many nodes it should have.
    pub desired: i32,
    /// Why.
    pub reason: PoolReason,
    /// Why, for people.
    pub message: String,
    /// Whether a bound or a rate policy cut the number of nodes that pods asked for.
    pub limited: bool,
    /// How many nodes it would have without the limits that time lifts.
    pub wanted: i32,
    /// The limit that keeps it from more nodes, or from fewer.
    pub cut: Option<Limit>,
    /// What of its schedules cannot be followed as it stands.
    pub clash: Option<BoundsConflict>,
    /// How far it may go in this pass, and what is remembered for the next ones.
    pub limits: BehaviorLimits,
    /// The nodes that go, in the order of names.
    pub victims: Vec<String>,
    /// Nodes that a decision before has named, and that the `NodePool` operator has not marked yet: they are named again with
    /// whatever number of nodes is decided now, or that operator would choose others in their stead.
    pub condemned: Vec<String>,
    /// Nodes of the pool that are on their way out, whoever decided that.
    pub leaving: Vec<String>,
    /// Nodes that nothing needs, and since when.
    pub unneeded: Vec<UnneededNode>,
    /// Pending pods that make it grow.
    pub triggering_pods: usize,
    /// Tells this decision from others: equal inputs give equal IDs.
    pub id: String,
}

impl PoolDecision {
    /// Whether the pool is planned by an autoscaler in this pass, paused or not.
    pub const fn is_planned(&self) -> bool {
        self.autoscaler.is_some()
    }

    /// This decision, with at most `limit` victims: a status can name only so many. The others go with the decisions
    /// that follow.
    #[must_use]
    pub fn limited_to(mut self, limit: usize) -> Self {
        let limit = limit.saturating_sub(self.condemned.len());
        let spared = self.victims.len().saturating_sub(limit);
        if spared > 0 {
            self.victims.truncate(limit);
            let most = self.current.min(self.object.spec.max_replicas).max(self.desired);
            self.desired = self.desired.saturating_add(super::numbers::replicas(spared)).min(most);
            self.id = decision_id(&self.object, self.desired, &self.victims);
        }
        self
    }

    /// Whether `spec.replicas` has to be written. Where it is unset and the number of nodes stays, that is left to the
    /// `NodePool` operator, which fills it with just that number: two writers of it would only get in each other's way.
    pub fn changes_replicas(&self) -> bool {
        let is_met = match self.object.spec.replicas {
            Some(replicas) => replicas == self.desired,
            None => self.current == self.desired,
        };
        self.is_planned() && !matches!(self.reason, PoolReason::Paused | PoolReason::Deleting) && !is_met
    }
}

/// What becomes of a pending pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDecision {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What becomes of it.
    pub fate: SchedulingResult,
}

/// What becomes of a pending pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchedulingResult {
    /// A node that is there or on its way takes it.
    Fits {
        /// The node's pool, as `namespace/name`; empty for a node outside pools.
        pool: String,
        /// The node's name; empty when the node does not exist yet.
        node: String,
    },
    /// A new node of this pool takes it.
    TriggersScaleUp {
        /// The pool, as `namespace/name`.
        pool: String,
    },
    /// Nothing takes it.
    Unschedulable {
        /// Why not, for each selected pool; shared by like pods.
        reasons: Arc<[PoolRejection]>,
    },
}

/// Why a pool does not take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRejection {
    /// The pool, as `namespace/name`.
    pub pool: String,
    /// Name of the reason.
    pub reason: &'static str,
    /// The reason in a sentence.
    pub message: String,
}

/// Whether a node could go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDecision {
    /// Its name.
    pub name: String,
    /// Why, or why not.
    pub reason: NodeReason,
    /// Why, for people.
    pub message: String,
}

/// A decision's ID: a hash (64-bit FNV-1a, in hexadecimal digits) over what was decided and over the ID of the decision
/// before it. The same pass over the same objects gives the same ID, also after a restart in the middle of it.
pub fn decision_id(pool: &NodePool, desired: i32, victims: &[String]) -> String {
    let previous =
        pool.status.as_ref().and_then(|s| s.autoscaling.as_ref()).and_then(|a| a.last_decision.as_ref());
    let replicas = pool.spec.replicas.map(|r| r.to_string()).unwrap_or_default();
    let desired = desired.to_string();
    let uid = pool.metadata.uid.as_deref().or(pool.metadata.name.as_deref()).unwrap_or_default();
    let head = [uid, previous.map_or("", |d| d.id.as_str()), &replicas, &desired];
    let hash = head.into_iter().chain(victims.iter().map(String::as_str)).fold(FNV_OFFSET, |hash, part| {
        // The zero byte keeps ("ab", "c") apart from ("a", "bc").
        part.bytes().chain([0]).fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME))
    });
    format!("{hash:016x}")
}

/// <https://datatracker.ietf.org/doc/html/draft-eastlake-fnv>: offset basis and prime for 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

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
