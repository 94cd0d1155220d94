//! Which pods must not be evicted for a scale-down: the rules of Cluster Autoscaler's defaults and Karpenter's
//! annotation, one function each, and one rule of the planner's own: what is not planned is not moved.
//!
//! Only called for pods that keep a node: those of a `DaemonSet`, mirror pods, finished pods and those that should have
//! terminated long ago never block.

mod blockers;
mod local_storage;
#[cfg(test)]
mod tests;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::protection::{self, DO_NOT_DISRUPT, SAFE_TO_EVICT};

pub(crate) use self::blockers::{Blocker, BlockingPodReason};

use super::budgets::{Budgets, EvictionCost};
use crate::input::pod_info::PodInfo;
use crate::input::pods;
use crate::input::unplanned;

/// The namespace of the pods that the cluster itself needs.
const SYSTEM_NAMESPACE: &str = "kube-system";

/// What prevents the eviction of `pod`, which keeps its node, at `now`. The first rule that applies is named.
pub(crate) fn blocker(pod: &PodInfo, budgets: &Budgets, now: Timestamp) -> Option<Blocker> {
    let overridden = pod.annotation(SAFE_TO_EVICT) == Some("true");
    let mut blocker = not_planned(pod)
        .or_else(|| own(pod, budgets, now).filter(|_| !overridden))
        .or_else(|| budget(pod, budgets))?;
    // A pod that is being deleted stops keeping its node in the end, whatever its annotations.
    let over = pods::keeps_until(pod).map(|last| {
        // At that very moment it still does.
        last.checked_add(SignedDuration::from_millis(1)).unwrap_or(last)
    });
    blocker.until = [blocker.until, over].into_iter().flatten().min();
    Some(blocker)
}

/// Whether another node could take the pod is not known. It comes first, because no annotation and no budget changes that.
fn not_planned(pod: &PodInfo) -> Option<Blocker> {
    let what = unplanned::obstacle(pod.shape().pod()).filter(|_| pods::needs_place(pod))?;
    let why = format!(
        "has {what}, which this version does not plan with: whether another node could take it is not known"
    );
    Some(Blocker::lasting(BlockingPodReason::NotPlanned, why))
}

/// The rules that `safe-to-evict: "true"` overrides, in Cluster Autoscaler's order.
fn own(pod: &PodInfo, budgets: &Budgets, now: Timestamp) -> Option<Blocker> {
    on_completion(pod)
        .or_else(|| not_replicated(pod))
        .or_else(|| system(pod, budgets))
        .or_else(|| not_safe(pod))
        .or_else(|| local_storage::blocker(pod))
        .or_else(|| do_not_disrupt(pod, now))
}

fn on_completion(pod: &PodInfo) -> Option<Blocker> {
    let asked = protection::on_completion(pod.annotation(SAFE_TO_EVICT))?;
    Some(Blocker::asked(BlockingPodReason::NotSafeToEvictAnnotation, asked))
}

fn not_replicated(pod: &PodInfo) -> Option<Blocker> {
    let why = "has no controller that would make it again";
    pods::controller(pod).is_none().then(|| Blocker::lasting(BlockingPodReason::NotReplicated, why))
}

fn system(pod: &PodInfo, budgets: &Budgets) -> Option<Blocker> {
    let unprotected = pod.key().0 == SYSTEM_NAMESPACE && !budgets.protects(pod);
    let why = "runs in kube-system without a PodDisruptionBudget";
    unprotected.then(|| Blocker::lasting(BlockingPodReason::UnmovableKubeSystemPod, why))
}

fn not_safe(pod: &PodInfo) -> Option<Blocker> {
    let asked = protection::not_safe_to_evict(pod.annotation(SAFE_TO_EVICT))?;
    Some(Blocker::asked(BlockingPodReason::NotSafeToEvictAnnotation, asked))
}

/// For a pod that is being deleted the annotation is ignored.
fn do_not_disrupt(pod: &PodInfo, now: Timestamp) -> Option<Blocker> {
    let value = pod.annotation(DO_NOT_DISRUPT).filter(|_| pod.deleted().is_none());
    let asked = protection::do_not_disrupt(value, pod.started(), now)?;
    Some(Blocker::asked(BlockingPodReason::DoNotDisruptAnnotation, asked))
}

/// Whether the Eviction API would refuse to evict the pod now.
pub(crate) fn is_refused(pod: &PodInfo, budgets: &Budgets) -> bool {
    budget(pod, budgets).is_some()
}

/// What the Eviction API would answer.
fn budget(pod: &PodInfo, budgets: &Budgets) -> Option<Blocker> {
    match budgets.eviction_cost(pod) {
        EvictionCost::One(id) if budgets.allowed(id) == 0 => {
            let why =
                format!("is under PodDisruptionBudget {}, which allows no disruption now", budgets.name(id));
            Some(Blocker::lasting(BlockingPodReason::NotEnoughPdb, why))
        }
        EvictionCost::Refused(one, other) => {
            let (one, other) = (budgets.name(one), budgets.name(other));
            let why = format!(
                "is under two PodDisruptionBudgets, {one} and {other}, and the API evicts no such pod; change one of their selectors"
            );
            Some(Blocker::lasting(BlockingPodReason::NotEnoughPdb, why))
        }
        EvictionCost::One(_) | EvictionCost::Nothing => None,
    }
}
