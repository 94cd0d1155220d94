//! The next step of a leaving node: cordon it, evict its pods, delete it, remove its finalizer.
//!
//! Each step is decided from the current Node and its pods, so that a drain continues after a restart where it stopped.

use k8s_openapi::api::core::v1::{Pod, Toleration};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::NodePool;

use super::membership::{Leaving, Member};
use super::observed_time::{PodTimes, due};
use super::{NodeAction, ObservedPods, PodName, pods};

/// Minimum time between cordon and removal of a node. The scheduler binds pods in the background, so a pod that it
/// placed just before it saw the cordon shows up on the node a little later. Cluster Autoscaler waits 5 s after its
/// taint for the same reason; bindings take milliseconds.
const CORDON_MARGIN: SignedDuration = SignedDuration::from_secs(2);
/// The taint that represents `spec.unschedulable`. Its value is empty and its effect is `NoSchedule`.
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";
/// How long after the end of its grace period a pod still counts as running without a confirmation of its end. A
/// working kubelet kills at that time and reports within seconds, unless it is very busy.
const CONFIRMATION_MARGIN: SignedDuration = SignedDuration::from_secs(30);

/// `spec.drain.timeoutSeconds`: how long pods are evicted before they are deleted; `None` for no limit.
pub(crate) fn timeout(pool: &NodePool) -> Option<SignedDuration> {
    let timeout = pool.spec.drain.as_ref().and_then(|drain| drain.timeout_seconds);
    timeout.filter(|timeout| *timeout > 0).map(|timeout| SignedDuration::from_secs(i64::from(timeout)))
}

/// The next step of a leaving node. A deleted node without the operator's finalizer is only drained: the owners of its
/// other finalizers decide when it goes.
pub(crate) fn leave(
    member: &Member,
    pods: &ObservedPods,
    timeout: Option<SignedDuration>,
    now: Timestamp,
) -> NodeAction {
    let Some(leaving) = member.leaving else {
        return NodeAction::Keep;
    };
    match next(leaving, pods.of(member.name()), timeout, now, &pods.times) {
        NodeAction::Remove if leaving.deleting && !member.has_finalizer => NodeAction::Wait,
        action => action,
    }
}

/// The next step of a leaving node, whatever its finalizers. `pods` are from a list after the node was cordoned; `None`
/// when there was none. `timeout` is `spec.drain.timeoutSeconds`, `None` for no limit: after it, pods are deleted
/// instead of evicted. The node still waits until they have ended.
fn next(
    leaving: Leaving,
    pods: Option<&[Pod]>,
    timeout: Option<SignedDuration>,
    now: Timestamp,
    times: &PodTimes,
) -> NodeAction {
    let Some(started) = leaving.draining_since() else {
        return NodeAction::Cordon;
    };
    let Some(pods) = pods else {
        return NodeAction::Drain { evict: Vec::new(), delete: Vec::new(), overdue: None };
    };
    let may_go = margin_end(leaving, now).is_none_or(|end| end <= now);
    let timed_out = timeout.is_some_and(|timeout| due(started, timeout, leaving.observed, now) <= now);
    let holds = |pod: &&Pod| {
        let given_up = is_given_up(pod, now, times);
        // Its containers have ended and its kubelet has not deleted it yet, which it does after it has unmounted its volumes.
        let is_torn_down = pods::is_finished_and_ending(pod) && !given_up;
        let blocks = pods::blocks_removal(pod) && !came_later(pod, started);
        is_torn_down || (blocks && !(timed_out && given_up))
    };
    let holding: Vec<&Pod> = pods.iter().filter(holds).collect();
    if holding.is_empty() && may_go {
        return NodeAction::Remove;
    }
    let (ending, staying): (Vec<&Pod>, Vec<&Pod>) =
        holding.into_iter().partition(|pod| pod.metadata.deletion_timestamp.is_some());
    let staying = staying.into_iter().cloned().collect();
    let (evict, delete) = if timed_out && may_go { (Vec::new(), staying) } else { (staying, Vec::new()) };
    let overdue = ending.into_iter().filter(|pod| is_overdue(pod, now)).map(PodName::of).min();
    NodeAction::Drain { evict, delete, overdue }
}

/// A cordoned node is not removed before this time although it looks empty; `None` when it may be removed at once,
/// because it was never Ready, so that no kubelet can have accepted a pod.
pub(crate) fn margin_end(leaving: Leaving, now: Timestamp) -> Option<Timestamp> {
    let started = leaving.draining_since().filter(|_| leaving.was_ready)?;
    Some(due(started, CORDON_MARGIN, leaving.observed, now))
}

/// Whether the pod was created after the cordon and tolerates it. Eviction would only bring its successor to the same
/// node, forever; `kubectl drain` does not wait for such pods either. They end with the node. A pod that does not
/// tolerate the cordon was placed before the scheduler saw it, and its successor will be scheduled elsewhere.
fn came_later(pod: &Pod, started: Timestamp) -> bool {
    pod.metadata.creation_timestamp.as_ref().is_some_and(|created| created.0 > started)
        && pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten()).any(tolerates_cordon)
}

/// Whether the toleration covers the cordon taint: absent fields match any effect and any key, and mean the operator
/// `Equal`.
fn tolerates_cordon(toleration: &Toleration) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (key, value) = (text(&toleration.key), text(&toleration.value));
    let exists = toleration.operator.as_deref() == Some("Exists");
    let equal = matches!(toleration.operator.as_deref(), None | Some("" | "Equal"));
    let effect = text(&toleration.effect);
    let same_key = key == CORDON_TAINT || (key.is_empty() && exists);
    same_key && (exists || (equal && value.is_empty())) && (effect.is_empty() || effect == "NoSchedule")
}

/// Whether the pod has exceeded its grace period: its deletion timestamp is the end of it.
fn is_overdue(pod: &Pod, now: Timestamp) -> bool {
    pod.metadata.deletion_timestamp.as_ref().is_some_and(|end| end.0 < now)
}

/// Whether no kubelet will confirm the end of the pod any more: its deletion was so long ago that a working kubelet
/// would have killed and reported it. Its deletion timestamp is the end of its grace period.
fn is_given_up(pod: &Pod, now: Timestamp, times: &PodTimes) -> bool {
    let grace =
        SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or_default().max(0));
    let patience = grace.checked_add(CONFIRMATION_MARGIN).unwrap_or(SignedDuration::MAX);
    pod.metadata.deletion_timestamp.as_ref().is_some_and(|end| {
        let margin_is_over = end.0.checked_add(CONFIRMATION_MARGIN).is_ok_and(|end| end <= now);
        margin_is_over && times.of_pod(pod) >= patience
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PodSpec, PodStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::plan::testing::{at, pod, pod_of};

    /// The next step for a process that has observed the node from the start, but not its pods.
    fn next(
        leaving: Leaving,
        pods: Option<&[Pod]>,
        timeout: Option<SignedDuration>,
        now: Timestamp,
    ) -> NodeAction {
        super::next(leaving, pods, timeout, now, &PodTimes::default())
    }

    const CORDONED: Leaving = Leaving {
        deleting: false,
        drain_started: Some(Timestamp::UNIX_EPOCH),
        cordoned: true,
        was_ready: true,
        observed: SignedDuration::MAX,
    };

    const MINUTE: Option<SignedDuration> = Some(SignedDuration::from_secs(60));

    fn evicted(action: &NodeAction) -> Vec<&str> {
        match action {
            NodeAction::Drain { evict, .. } => {
                evict.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_node_is_cordoned_and_annotated_before_any_pod_is_evicted() {
        for leaving in [
            Leaving { cordoned: false, ..CORDONED },
            Leaving { drain_started: None, ..CORDONED },
            Leaving { deleting: true, drain_started: None, cordoned: false, ..CORDONED },
        ] {
            assert_eq!(next(leaving, Some(&[pod("web")]), None, at(0)), NodeAction::Cordon);
        }
    }

    #[test]
    fn a_node_whose_pods_are_not_known_is_not_removed() {
        assert_eq!(
            next(CORDONED, None, MINUTE, at(1000)),
            NodeAction::Drain { evict: vec![], delete: vec![], overdue: None }
        );
    }

    #[test]
    fn daemon_set_mirror_and_finished_pods_do_not_block_removal() {
        let daemon = pod_of("DaemonSet", "agent");
        let mut mirror = pod("static");
        mirror.metadata.annotations =
            Some([("kubernetes.io/config.mirror".to_owned(), "x".to_owned())].into());
        let finished = |phase: &str| {
            let mut pod = pod(phase);
            pod.status = Some(PodStatus { phase: Some(phase.into()), ..PodStatus::default() });
            pod
        };
        let pods = [daemon, mirror, finished("Succeeded"), finished("Failed")];
        assert_eq!(next(CORDONED, Some(&pods), None, at(2)), NodeAction::Remove);
    }

    #[test]
    fn a_pod_whose_containers_have_ended_holds_its_node_until_its_kubelet_has_deleted_it_or_is_overdue() {
        for phase in ["Succeeded", "Failed"] {
            let mut ended = pod("db");
            ended.status = Some(PodStatus { phase: Some(phase.into()), ..PodStatus::default() });
            ended.metadata.deletion_timestamp = Some(Time(at(40)));
            ended.metadata.deletion_grace_period_seconds = Some(30);
            for (second, seen_ending, goes) in
                [(12, 2, false), (69, 60, false), (500, 59, false), (70, 60, true)]
            {
                let times = PodTimes([("uid-db".to_owned(), SignedDuration::from_secs(seen_ending))].into());
                let action = super::next(CORDONED, Some(&[ended.clone()]), None, at(second), &times);
                assert_eq!(action == NodeAction::Remove, goes, "{phase} at {second} after {seen_ending} s");
                assert!(goes || evicted(&action).is_empty());
            }
        }
    }

    #[test]
    fn a_terminating_pod_is_waited_for_and_not_evicted_again() {
        let mut ending = pod("ending");
        ending.metadata.deletion_timestamp = Some(Time(at(30)));
        let pods = [ending, pod("web"), pod_of("ReplicaSet", "api")];
        let action = next(CORDONED, Some(&pods), None, at(10));
        assert_eq!(evicted(&action), ["web", "api"]);
        assert!(matches!(action, NodeAction::Drain { overdue: None, .. }));
        let NodeAction::Drain { overdue, .. } = next(CORDONED, Some(&pods), None, at(31)) else { panic!() };
        assert_eq!(overdue.map(|pod| pod.name).as_deref(), Some("ending"));
    }

    /// A pod that was created at second `second` with these tolerations.
    fn born(second: i64, tolerations: &[Toleration]) -> Pod {
        let mut pod = pod("late");
        pod.metadata.creation_timestamp = Some(Time(at(second)));
        pod.spec = Some(PodSpec { tolerations: Some(tolerations.to_vec()), ..PodSpec::default() });
        pod
    }

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Toleration {
            key: text(key),
            operator: text(operator),
            value: text(value),
            effect: text(effect),
            ..Toleration::default()
        }
    }

    #[test]
    fn a_pod_that_tolerates_the_cordon_is_not_evicted_over_and_over() {
        for tolerant in [
            toleration(CORDON_TAINT, "Exists", "", "NoSchedule"),
            toleration(CORDON_TAINT, "Exists", "", ""),
            toleration(CORDON_TAINT, "", "", ""),
            toleration("", "Exists", "", ""),
        ] {
            let tolerant = [tolerant];
            assert_eq!(evicted(&next(CORDONED, Some(&[born(0, &tolerant)]), None, at(100))), ["late"]);
            let later = next(CORDONED, Some(&[born(1, &tolerant)]), None, at(100));
            assert_eq!(later, NodeAction::Remove, "{tolerant:?}");
        }
    }

    #[test]
    fn a_later_pod_that_does_not_tolerate_the_cordon_is_evicted() {
        for other in [
            vec![],
            vec![toleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute")],
            vec![toleration(CORDON_TAINT, "Exists", "", "NoExecute")],
            vec![toleration(CORDON_TAINT, "Equal", "x", "NoSchedule")],
        ] {
            assert_eq!(
                evicted(&next(CORDONED, Some(&[born(50, &other)]), None, at(100))),
                ["late"],
                "{other:?}"
            );
        }
    }

    #[test]
    fn a_cordoned_node_stays_long_enough_to_show_a_pod_that_was_being_bound() {
        let waits = NodeAction::Drain { evict: vec![], delete: vec![], overdue: None };
        let soon = Some(SignedDuration::from_secs(1));
        assert_eq!(next(CORDONED, Some(&[]), None, at(1)), waits);
        assert_eq!(evicted(&next(CORDONED, Some(&[pod("bound")]), soon, at(1))), ["bound"]);
        assert_eq!(next(CORDONED, Some(&[]), None, at(2)), NodeAction::Remove);
        let unused = Leaving { was_ready: false, ..CORDONED };
        assert_eq!(next(unused, Some(&[]), None, at(0)), NodeAction::Remove);
    }

    /// The names of the pods that are deleted.
    fn deleted(action: &NodeAction) -> Vec<&str> {
        match action {
            NodeAction::Drain { delete, .. } => {
                delete.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn after_the_timeout_pods_are_deleted_and_the_node_stays_for_them() {
        let pods = [pod("web")];
        assert_eq!(evicted(&next(CORDONED, Some(&pods), MINUTE, at(59))), ["web"]);
        let action = next(CORDONED, Some(&pods), MINUTE, at(60));
        assert_eq!((evicted(&action), deleted(&action)), (vec![], vec!["web"]));
        assert_eq!(
            evicted(&next(CORDONED, Some(&pods), None, at(1_000_000))),
            ["web"],
            "without a timeout it waits"
        );
    }

    #[test]
    fn a_clock_that_jumps_ahead_ends_no_drain() {
        let pods = [pod("web")];
        let seen_for = |seconds| Leaving { observed: SignedDuration::from_secs(seconds), ..CORDONED };
        assert_eq!(evicted(&next(seen_for(5), Some(&pods), MINUTE, at(600))), ["web"]);
        assert_eq!(deleted(&next(seen_for(60), Some(&pods), MINUTE, at(600))), ["web"]);
        // The margin before an empty node is removed is handled the same way.
        assert_eq!(evicted(&next(seen_for(1), Some(&[]), None, at(600))), Vec::<&str>::new());
        assert_eq!(next(seen_for(2), Some(&[]), None, at(600)), NodeAction::Remove);
    }

    #[test]
    fn a_pod_blocks_removal_for_its_grace_and_until_no_kubelet_can_be_expected_to_confirm_its_end() {
        let mut ending = pod("db");
        // Deleted at second 70, with 30 s of grace.
        ending.metadata.deletion_timestamp = Some(Time(at(100)));
        ending.metadata.deletion_grace_period_seconds = Some(30);
        let action = |timeout, second, seen_ending| {
            let seen = SignedDuration::from_secs(seen_ending);
            let times = PodTimes([("uid-db".to_owned(), seen)].into());
            super::next(CORDONED, Some(&[ending.clone()]), timeout, at(second), &times)
        };
        for (second, seen_ending) in [(71, 1), (100, 30), (129, 60), (500, 59)] {
            let waits = action(MINUTE, second, seen_ending);
            assert_eq!(
                (evicted(&waits), deleted(&waits)),
                (vec![], vec![]),
                "at {second} after {seen_ending} s"
            );
        }
        assert_eq!(action(MINUTE, 130, 60), NodeAction::Remove);
        assert!(
            matches!(action(None, 5000, 5000), NodeAction::Drain { overdue: Some(_), .. }),
            "without a timeout it waits"
        );
    }
}
