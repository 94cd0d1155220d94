//! The next step of a leaving node: cordon it, evict its pods, delete it, remove its finalizer; or give it back.
//!
//! Each step is decided from the current Node and its pods, so that a drain continues after a restart where it stopped.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Toleration};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::v1alpha1::{DisruptionReason, DrainTimeoutAction};
use shared_crds::{names, protection};

use crate::assess::drain_limits::DrainLimits;
use crate::assess::membership::{CLOCK_SKEW, Leaving, Member};
use crate::assess::node_states::{KubeletState, NodeReadiness, ProviderDuty};
use crate::drain::attached;
use crate::input::observed_time::{PodTimes, due};
use crate::input::pods;
use crate::{Blocker, DrainStep, NodeAction, ObservedPods, PodName};

/// Minimum time between cordon and removal of a node. The scheduler binds pods in the background, so a pod that it
/// placed just before it saw the cordon shows up on the node a little later. Cluster Autoscaler waits 5 s after its
/// taint for the same reason; bindings take milliseconds.
const CORDON_MARGIN: SignedDuration = SignedDuration::from_secs(2);
/// The taint that represents `spec.unschedulable`. Its value is empty and its effect is `NoSchedule`.
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";
/// How long after the end of its grace period a pod still holds its node without a confirmation of its end. A working
/// kubelet kills at that time and reports within seconds; the machine ends before its Node goes. Karpenter waits as long.
const OVERDUE_MARGIN: SignedDuration = SignedDuration::from_secs(60);
/// The same after `spec.drain.timeoutSeconds`: long enough for the report of a kubelet that works. Before that, a pod
/// counts as overdue from then on.
const CONFIRMATION_MARGIN: SignedDuration = SignedDuration::from_secs(10);
/// The grace period of a pod that names none: Kubernetes' default.
const DEFAULT_GRACE_SECONDS: i64 = 30;
/// From this priority on a pod is critical to the node or to the cluster: Kubernetes' `SystemCriticalPriority`, twice the
/// highest that users may define.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// The next step of a leaving node: what its pods allow, and then its volumes.
pub(crate) fn leave(member: &Member, pods: &ObservedPods, limits: DrainLimits, now: Timestamp) -> NodeAction {
    match without_volumes(member, pods, limits, now) {
        NodeAction::Remove => {
            attached::hold(member, &pods.attached, limits, now).map_or(NodeAction::Remove, NodeAction::Drain)
        }
        action => action,
    }
}

/// The same if no volume was attached to it. A deleted node without the operator's finalizer is only drained: the owners of
/// its other finalizers decide when it goes.
pub(crate) fn without_volumes(
    member: &Member,
    pods: &ObservedPods,
    limits: DrainLimits,
    now: Timestamp,
) -> NodeAction {
    let Some(leaving) = member.leaving else {
        return NodeAction::Keep;
    };
    if member.provider_duty == ProviderDuty::Drains {
        return NodeAction::Drain(DrainStep::waits(Blocker::LeftToProvider, true));
    }
    // A Node that is being deleted cannot come back. Its pods wait for a kubelet that is dead or may be, and a budget has nothing
    // to keep: Kubernetes counts pods on such a node as not ready, and deletes them after a time without asking budgets.
    if leaving.deleting && leaving.kubelet == KubeletState::Unreachable && member.has_finalizer {
        return NodeAction::EndMachine;
    }
    // What asks to be left alone does not hold up a repair, and no node for ever that has a hard age.
    let is_urgent =
        member.cause.reason() == Some(DisruptionReason::Repair) || member.outdated.is_past_hard_age();
    let holds_protected = limits.holds_protected && !is_urgent;
    let limits = DrainLimits { holds_protected, ..limits };
    let known = pods.of(member.name());
    if known.is_none() && leaving.draining_since().is_some() {
        if pods.waiting.contains(member.name()) {
            return NodeAction::Drain(DrainStep::waits(Blocker::Place, true));
        }
        if pods.deferred.contains(member.name()) {
            return NodeAction::Wait;
        }
    }
    match next(leaving, known, limits, now, &pods.times) {
        NodeAction::Remove if leaving.deleting && !member.has_finalizer => {
            for_finalizers(member, leaving.observed, now)
        }
        NodeAction::Remove if let_go_at(member, limits, now).is_some_and(|at| at > now) => {
            NodeAction::Drain(DrainStep::waits(Blocker::LoadBalancers, true))
        }
        action => action,
    }
}

/// When external load balancers have had the time of `spec.drain.loadBalancerDrainSeconds`, so that a node that no pod keeps may be
/// removed; `None` where they are not waited for. A node that is not Ready has no connections that could end in order.
pub(crate) fn let_go_at(member: &Member, limits: DrainLimits, now: Timestamp) -> Option<Timestamp> {
    let leaving = member.leaving.filter(|leaving| !leaving.is_out_of_service())?;
    let is_asked = !limits.load_balancers.is_zero() && member.readiness == NodeReadiness::Ready;
    let started = leaving.draining_since().filter(|_| is_asked)?;
    Some(due(started, limits.load_balancers, leaving.observed, now))
}

/// The step of a deleted node that others keep. This process has `observed` its drain for so long.
fn for_finalizers(member: &Member, observed: SignedDuration, now: Timestamp) -> NodeAction {
    let metadata = &member.node.metadata;
    let late = metadata.deletion_timestamp.as_ref().map(|at| due(at.0, OVERDUE_MARGIN, observed, now));
    let names = metadata.finalizers.clone().unwrap_or_default();
    NodeAction::Drain(DrainStep::waits(Blocker::Finalizers(names), late.is_none_or(|late| now < late)))
}

/// The next step of a leaving node, whatever its finalizers. `pods` are from a list after the node was cordoned; `None`
/// when there was none.
fn next(
    leaving: Leaving,
    pods: Option<&[Arc<Pod>]>,
    limits: DrainLimits,
    now: Timestamp,
    times: &PodTimes,
) -> NodeAction {
    let Some(started) = leaving.draining_since() else {
        return NodeAction::Cordon;
    };
    let Some(pods) = pods else {
        return NodeAction::Drain(DrainStep::waits(Blocker::Unread("pods"), false));
    };
    let may_go = margin_end(leaving, now).is_none_or(|end| end <= now);
    let has_left_less = |rest| limits.has_left_less(rest, started, leaving.observed, now);
    let timed_out = has_left_less(SignedDuration::ZERO);
    let margin = if timed_out { CONFIRMATION_MARGIN } else { OVERDUE_MARGIN };
    let holds = |pod: &&Arc<Pod>| {
        // Where its containers have ended, its kubelet has not deleted it yet, which it does after it has unmounted its volumes.
        let is_torn_down = pods::is_finished_and_ending(pod);
        let blocks = pods::blocks_removal(pod) && !came_later(pod, leaving, started);
        (is_torn_down || blocks) && !is_given_up(pod, margin, now, times)
    };
    let holding: Vec<&Arc<Pod>> = pods.iter().filter(holds).collect();
    if holding.is_empty() && may_go {
        return NodeAction::Remove;
    }
    let is_critical_turn = holding.iter().all(|pod| is_critical(pod));
    let (ending, staying): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
        holding.into_iter().partition(|pod| pod.metadata.deletion_timestamp.is_some());
    // A deleted Node cannot be given back, and pods that end anyway gain nothing by it.
    let gives_back = limits.rest().is_some() && !leaving.deleting;
    if timed_out && gives_back && !staying.is_empty() {
        return NodeAction::GiveBack;
    }
    let is_forced = limits.on_timeout == DrainTimeoutAction::Force && may_go;
    let (delete, evict): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) = staying
        .into_iter()
        .partition(|pod| leaving.is_out_of_service() || (is_forced && has_left_less(grace(pod))));
    let evict = evict.into_iter().filter(|pod| is_critical_turn || !is_critical(pod));
    let holds_protected = limits.holds_protected && !leaving.deleting;
    let asked = |pod: &Pod| protection::of_pod(pod, now).filter(|_| holds_protected);
    let (protected, evict): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) = evict.partition(|pod| asked(pod).is_some());
    let protected =
        protected.into_iter().filter_map(|pod| Some(Blocker::Pod(PodName::of(pod), asked(pod)?.why)));
    let is_overdue = |pod: &&Arc<Pod>| is_given_up(pod, CONFIRMATION_MARGIN, now, times);
    let overdue = ending.into_iter().filter(is_overdue).map(|pod| Blocker::Overdue(PodName::of(pod)));
    NodeAction::Drain(DrainStep {
        evict: evict.into_iter().cloned().collect(),
        delete: delete.into_iter().cloned().collect(),
        blockers: protected.chain(overdue).collect(),
        awaited: None,
    })
}

/// A cordoned node is not removed before this time although it looks empty; `None` when it may be removed at once,
/// because it was never Ready, so that no kubelet can have accepted a pod.
pub(crate) fn margin_end(leaving: Leaving, now: Timestamp) -> Option<Timestamp> {
    let started = leaving.draining_since().filter(|_| leaving.was_ready)?;
    Some(due(started, CORDON_MARGIN, leaving.observed, now))
}

/// Whether the node or the cluster itself needs the pod. Such pods, DNS for one, leave after the others, which may need
/// them to end well.
fn is_critical(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.priority).is_some_and(|priority| priority >= CRITICAL_PRIORITY)
}

/// The grace period of a pod that is not terminating.
fn grace(pod: &Pod) -> SignedDuration {
    let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    SignedDuration::from_secs(own.unwrap_or(DEFAULT_GRACE_SECONDS).max(0))
}

/// Whether the pod was created after the drain began and tolerates its taints. Eviction would only bring its successor
/// to the same node, forever; `kubectl drain` does not wait for such pods either. They end with the node. A pod that
/// does not tolerate them was placed before the scheduler saw them, and its successor will be scheduled elsewhere.
///
/// The drain began by this process' clock and the pod by the API server's: one that may have been there before counts as if it
/// was. It is evicted once more than needed, rather than ended with its node.
fn came_later(pod: &Pod, leaving: Leaving, started: Timestamp) -> bool {
    let tolerations = || pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    let tolerates = |taint: &str| tolerations().any(|toleration| tolerates(toleration, taint));
    let surely = started.checked_add(CLOCK_SKEW).unwrap_or(Timestamp::MAX);
    pod.metadata.creation_timestamp.as_ref().is_some_and(|created| created.0 > surely)
        && tolerates(CORDON_TAINT)
        && (!leaving.cordon.has_drain_taint() || tolerates(names::DRAINING_TAINT))
}

/// Whether the toleration covers a taint of this key without a value, whose effect is `NoSchedule`: absent fields match
/// any effect and any key, and mean the operator `Equal`.
fn tolerates(toleration: &Toleration, taint: &str) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (key, value) = (text(&toleration.key), text(&toleration.value));
    let exists = toleration.operator.as_deref() == Some("Exists");
    let equal = matches!(toleration.operator.as_deref(), None | Some("" | "Equal"));
    let effect = text(&toleration.effect);
    let same_key = key == taint || (key.is_empty() && exists);
    same_key && (exists || (equal && value.is_empty())) && (effect.is_empty() || effect == "NoSchedule")
}

/// Whether no kubelet will confirm the end of the pod any more: its grace period, which its deletion timestamp ends, was
/// over `margin` ago, by the clock and by what this process has seen. A deletion that is still to come does not count, as in every
/// limit: see [`due`].
fn is_given_up(pod: &Pod, margin: SignedDuration, now: Timestamp, times: &PodTimes) -> bool {
    let grace =
        SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or_default().max(0));
    let patience = grace.checked_add(margin).unwrap_or(SignedDuration::MAX);
    pod.metadata.deletion_timestamp.as_ref().is_some_and(|end| {
        let deleted = end.0.checked_sub(grace).unwrap_or(end.0);
        due(deleted, patience, times.of_pod(pod), now) <= now
    })
}

#[cfg(test)]
#[path = "next_step_tests.rs"]
mod tests;
