//! The state of each node of the pool. It is derived from the Node object, so that a restart loses nothing, and from
//! what this process has observed, where the object alone could mislead.
//!
//! Nothing is decided here; `sizing`, `removal_order` and `drain` do that.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::v1alpha1::DisruptionReason;
use shared_crds::{NodePool, names};

use crate::assess::drain_limits::DrainLimits;
use crate::assess::node_states::{
    Cordon, KubeletState, NodeHealth, NodeReadiness, Outdatedness, ProviderDuty, RecordedCause,
    ReplacementRequest,
};
use crate::input::observed_time::{NodeTime, due};
use crate::input::pods;
use crate::input::ready::{is_ready, is_silent};

/// How long a node has to be not Ready, and its machine not listed, before the machine counts as gone. Lists of real providers
/// lag behind by seconds, and a node is not Ready 50 s after its last heartbeat.
const LOST_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// How far two clocks of a cluster may be apart: that of a node, or of this process, and the API server's.
pub(crate) const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(60);

/// The state of a leaving node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The Node object is being deleted, which cannot be undone.
    pub deleting: bool,
    /// When its drain started; `None` until the operator has annotated it.
    pub drain_started: Option<Timestamp>,
    /// Whether it is closed to new pods.
    pub cordon: Cordon,
    /// Whether a kubelet will confirm the end of its pods.
    pub kubelet: KubeletState,
    /// It was Ready at some time, so pods may have been bound to it.
    pub was_ready: bool,
    /// For how long this process has observed it draining.
    pub observed: SignedDuration,
}

impl Leaving {
    /// When the drain started of a node that is cordoned; `None` when it has to be cordoned first.
    pub fn draining_since(&self) -> Option<Timestamp> {
        self.drain_started.filter(|_| self.cordon.is_unschedulable())
    }

    /// Whether its machine is off.
    pub fn is_out_of_service(&self) -> bool {
        self.kubelet == KubeletState::OutOfService
    }

    /// Takes in that no kubelet will answer for it. That its machine is off says more.
    pub(crate) fn lose_kubelet(&mut self) {
        if self.kubelet == KubeletState::MayAnswer {
            self.kubelet = KubeletState::Unreachable;
        }
    }
}

/// One node of the pool.
#[derive(Clone, Debug)]
pub struct Member {
    /// The Node object.
    pub node: Arc<Node>,
    /// The node's readiness.
    pub readiness: NodeReadiness,
    /// Set when the node is leaving; such a node does not count.
    pub leaving: Option<Leaving>,
    /// Hash of the template it was made from; `None` on nodes that this operator did not make.
    pub template_hash: Option<String>,
    /// Why it leaves, as its annotations said when it was read.
    pub cause: RecordedCause,
    /// Whether it is closed to new pods.
    pub cordon: Cordon,
    /// Whether it carries the operator's finalizer.
    pub has_finalizer: bool,
    /// When the Node object was created.
    pub created: Timestamp,
    /// When its last drain took too long and was cancelled, and for how long this process has observed that; `None` when
    /// none did.
    pub given_back: Option<(Timestamp, SignedDuration)>,
    /// Whether it is out of date. `OutdatedCriteria::assess` finds it out from the pool.
    pub outdated: Outdatedness,
    /// What asks that it is replaced. That its provider does, `classify` finds out from what the provider says.
    pub replacement_request: ReplacementRequest,
    /// How well it is. Which conditions are ones of `spec.repair`, `classify` finds out from the pool; none is before.
    pub health: NodeHealth,
    /// What its provider does with it by itself. `provider_duty` finds it out from what the provider says.
    pub provider_duty: ProviderDuty,
    /// Whether a user keeps it from being repaired.
    pub skips_repair: bool,
    /// For how long this process has observed it not Ready.
    pub not_ready: SignedDuration,
    /// For how long this process has observed it not Ready and its machine not listed; `None` when that is not so now.
    pub lost: Option<SignedDuration>,
}

impl Member {
    /// Derives the state of `node`. A Node without a creation time (which the API server never serves) counts as
    /// created at `now`.
    ///
    /// A node counts as never Ready only where neither its annotation nor `time` shows otherwise.
    pub fn read(node: &Arc<Node>, now: Timestamp, time: NodeTime) -> Self {
        let metadata = &node.metadata;
        let annotation = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key));
        let readiness = match (is_ready(node), has_ready_mark(node) || time.was_ready) {
            (true, _) => NodeReadiness::Ready,
            (false, true) => NodeReadiness::NotReady,
            (false, false) => NodeReadiness::Starting,
        };
        let drain = annotation(names::DRAIN_STARTED_ANNOTATION);
        let template_hash = annotation(names::TEMPLATE_HASH_ANNOTATION).cloned();
        let spec = node.spec.as_ref();
        let has_taint = |key: &str| {
            let mut taints = spec.iter().flat_map(|spec| spec.taints.iter().flatten());
            taints.any(|taint| taint.key == key)
        };
        let is_unschedulable = spec.and_then(|spec| spec.unschedulable) == Some(true);
        let cordon = Cordon::of(is_unschedulable, has_taint(names::DRAINING_TAINT));
        let deleting = metadata.deletion_timestamp.is_some();
        let leaving = (deleting || drain.is_some()).then(|| Leaving {
            deleting,
            drain_started: drain.and_then(|time| time.parse().ok()),
            cordon,
            kubelet: if has_taint(names::OUT_OF_SERVICE_TAINT) {
                KubeletState::OutOfService
            } else {
                KubeletState::MayAnswer
            },
            was_ready: was_ready(readiness, template_hash.as_deref()),
            observed: time.draining,
        });
        Self {
            node: Arc::clone(node),
            readiness,
            leaving,
            template_hash,
            cause: recorded_cause(node, leaving.is_some()),
            cordon,
            has_finalizer: metadata.finalizers.iter().flatten().any(|name| name == names::NODE_FINALIZER),
            given_back: annotation(names::GIVEN_BACK_ANNOTATION)
                .map(|at| (at.parse().unwrap_or(Timestamp::UNIX_EPOCH), time.given_back)),
            created: metadata.creation_timestamp.as_ref().map_or(now, |time| time.0),
            outdated: Outdatedness::Current,
            replacement_request: if names::asks_for(names::REPLACE_ANNOTATION, metadata) {
                ReplacementRequest::User
            } else {
                ReplacementRequest::None
            },
            health: NodeHealth::of(false, is_silent(node)),
            provider_duty: ProviderDuty::None,
            skips_repair: names::asks_for(names::SKIP_REPAIR_ANNOTATION, metadata),
            not_ready: time.not_ready,
            lost: time.lost,
        }
    }

    /// Takes in what the node's pods show: one that ran shows that the node was Ready, although it lacks the annotation.
    pub fn learn_from(&mut self, pods: &[Arc<Pod>]) {
        let shows = |pod: &Arc<Pod>| shows_a_ready_node(&self.node, pod);
        if self.readiness == NodeReadiness::Starting && pods.iter().any(shows) {
            self.readiness = NodeReadiness::NotReady;
            if let Some(leaving) = &mut self.leaving {
                leaving.was_ready = true;
            }
        }
    }

    /// Takes in that its provider is ending its machine and drains it. Once the Node is being deleted, the operator's finalizer keeps it
    /// until nothing runs there.
    pub(crate) fn leave_to_provider(&mut self) {
        if self.leaving.is_some_and(|leaving| leaving.deleting) {
            return;
        }
        self.provider_duty = ProviderDuty::Drains;
        self.leaving.get_or_insert(Leaving {
            deleting: false,
            drain_started: None,
            cordon: self.cordon,
            kubelet: KubeletState::MayAnswer,
            was_ready: was_ready(self.readiness, self.template_hash.as_deref()),
            observed: SignedDuration::ZERO,
        });
    }

    /// The Node's name.
    pub fn name(&self) -> &str {
        self.node.metadata.name.as_deref().unwrap_or_default()
    }

    /// The reference of the provider that made its machine, if that is recorded.
    pub fn made_by(&self) -> Option<&str> {
        let labels = self.node.metadata.labels.as_ref()?;
        labels.get(names::PROVIDER_LABEL).map(String::as_str)
    }

    /// Whether the node counts as a replica, that is, is not leaving.
    pub const fn stays(&self) -> bool {
        self.leaving.is_none()
    }

    /// Whether it has been Ready and does not have the annotation yet.
    pub fn lacks_mark(&self) -> bool {
        self.readiness != NodeReadiness::Starting && !has_ready_mark(&self.node)
    }

    /// When a node that the operator made is considered failed to start: not after `now` when it already is. `None` for
    /// a node that another writer created and labelled: the operator must not delete a machine for what happened before
    /// it managed it.
    pub fn start_deadline(&self, timeout: SignedDuration, now: Timestamp) -> Option<Timestamp> {
        (self.readiness == NodeReadiness::Starting && self.template_hash.is_some())
            .then(|| due(self.created, timeout, self.not_ready, now))
    }

    /// Whether its machine has gone behind the operator's back.
    pub fn is_lost(&self) -> bool {
        self.stays() && self.has_finalizer && self.lost.is_some_and(|lost| lost >= LOST_AFTER)
    }

    /// When it counts as lost unless its machine comes back; `None` when it is not missed.
    pub fn lost_at(&self, now: Timestamp) -> Option<Timestamp> {
        now.checked_add(LOST_AFTER.checked_sub(self.lost?)?).ok()
    }

    /// Until when it is not drained again because its last drain took too long; `None` when it may be.
    pub(crate) fn rests_until(&self, limits: DrainLimits, now: Timestamp) -> Option<Timestamp> {
        let ((since, observed), rest) = (self.given_back?, limits.rest()?);
        Some(due(since, rest, observed, now)).filter(|end| self.stays() && *end > now)
    }

    /// Whether it has taken longer than `timeout` to start, unless its pods show that it did.
    pub fn has_timed_out(&self, timeout: Option<SignedDuration>, now: Timestamp) -> bool {
        let start_deadline = timeout.and_then(|timeout| self.start_deadline(timeout, now));
        self.stays() && start_deadline.is_some_and(|at| at <= now)
    }
}

/// Whether the Node has the annotation that it was Ready once.
fn has_ready_mark(node: &Node) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(names::READY_TIME_ANNOTATION))
}

/// Whether pods may have been bound to the node. The history of a foreign one before its adoption is not known.
fn was_ready(readiness: NodeReadiness, template_hash: Option<&str>) -> bool {
    readiness != NodeReadiness::Starting || template_hash.is_none()
}

/// What the annotations of the node say about why it `leaves`, or would.
fn recorded_cause(node: &Node, leaves: bool) -> RecordedCause {
    let annotation = |key: &str| node.metadata.annotations.as_ref().and_then(|all| all.get(key));
    let noted = annotation(names::DISRUPTION_REASON_ANNOTATION);
    if leaves {
        return noted.and_then(|it| reason_of(it)).map_or(RecordedCause::None, RecordedCause::Leaves);
    }
    let is_stale = noted.is_some()
        || annotation(names::DRAIN_WAITS_ANNOTATION).is_some()
        || annotation(names::DRAINED_BY_PROVIDER_ANNOTATION).is_some();
    if is_stale { RecordedCause::Stale } else { RecordedCause::None }
}

/// The reason that the annotation says; `None` for one that this version does not know.
fn reason_of(annotation: &str) -> Option<DisruptionReason> {
    DisruptionReason::ALL.into_iter().find(|reason| reason.as_str() == annotation)
}

/// How long a node may take until it is Ready; `None` for a pool that is being deleted, which needs none.
pub(crate) fn start_timeout(pool: &NodePool) -> Option<SignedDuration> {
    let deleting = pool.metadata.deletion_timestamp.is_some();
    (!deleting).then(|| SignedDuration::from_secs(i64::from(pool.spec.provisioning_timeout_seconds)))
}

/// Whether the pod shows that `node` was Ready at some time: the node's kubelet has started the pod, and it is not one
/// of those that run on a node before it is Ready, such as the network's `DaemonSet`. A pod that was started long
/// before the node was created belonged to an earlier node of the same name.
pub(crate) fn shows_a_ready_node(node: &Node, pod: &Pod) -> bool {
    let created = node.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let begins = created.map(|time| time.checked_sub(CLOCK_SKEW).unwrap_or(Timestamp::MIN));
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    started.is_some_and(|started| begins.is_none_or(|begins| begins <= started.0))
        && !pods::is_bound_to_its_node(pod)
}
