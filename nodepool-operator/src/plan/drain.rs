//! The next step of a node that is on its way out: close it, move its pods, delete it, let go of it.
//!
//! Each step is decided from the Node and its pods as they are, so that a drain goes on after a restart where it was.

use k8s_openapi::{
    api::core::v1::Pod,
    jiff::{SignedDuration, Timestamp},
};

use super::{Fate, PodName, membership::Leaving};

/// A pod made so soon after the node was closed may have been placed by a scheduler that did not know yet; it is evicted.
const CLOSING_MARGIN: SignedDuration = SignedDuration::from_secs(5);

/// The next step of a leaving node. `pods` is what a live LIST showed after the node was closed; `None` when there was
/// none. `timeout` is `spec.drain.timeoutSeconds`, `None` for as long as it takes.
pub fn next(leaving: Leaving, pods: Option<&[Pod]>, timeout: Option<SignedDuration>, now: Timestamp) -> Fate {
    let Some(started) = leaving.drain_started.filter(|_| leaving.cordoned) else {
        return Fate::Close;
    };
    let Some(pods) = pods else {
        return Fate::Drain { evict: Vec::new(), overdue: None };
    };
    let holding: Vec<&Pod> =
        pods.iter().filter(|pod| holds_the_node(pod) && !came_later(pod, started)).collect();
    if holding.is_empty() {
        return Fate::Remove { delete_pods: Vec::new() };
    }
    let (ending, evict): (Vec<&Pod>, Vec<&Pod>) =
        holding.into_iter().partition(|pod| pod.metadata.deletion_timestamp.is_some());
    if deadline(started, timeout).is_some_and(|deadline| deadline <= now) {
        return Fate::Remove { delete_pods: evict.into_iter().cloned().collect() };
    }
    Fate::Drain {
        evict: evict.into_iter().cloned().collect(),
        overdue: ending.into_iter().filter(|pod| is_overdue(pod, now)).map(PodName::of).min(),
    }
}

/// Whether the pod was made when the node had long been closed, which means that it tolerates that. Evicting it would
/// only bring its successor, for ever; `kubectl drain` does not wait for such pods either. They go with the node.
fn came_later(pod: &Pod, started: Timestamp) -> bool {
    let closed = started.checked_add(CLOSING_MARGIN).unwrap_or(Timestamp::MAX);
    pod.metadata.creation_timestamp.as_ref().is_some_and(|created| created.0 > closed)
}

/// When a drain that began at `started` stops asking.
pub fn deadline(started: Timestamp, timeout: Option<SignedDuration>) -> Option<Timestamp> {
    timeout.map(|timeout| started.checked_add(timeout).unwrap_or(Timestamp::MAX))
}

/// Whether the pod has outlived the grace period it was given: its deletion time lies at the end of it.
fn is_overdue(pod: &Pod, now: Timestamp) -> bool {
    pod.metadata.deletion_timestamp.as_ref().is_some_and(|end| end.0 < now)
}

/// Whether the node must wait for this pod to go. `DaemonSet` pods would come back, mirror pods only mirror what the
/// kubelet runs from a file, and finished pods run nothing.
pub fn holds_the_node(pod: &Pod) -> bool {
    let of_daemon_set = pod
        .metadata
        .owner_references
        .iter()
        .flatten()
        .any(|owner| owner.controller == Some(true) && owner.kind == "DaemonSet");
    let mirror =
        pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key("kubernetes.io/config.mirror"));
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let finished = matches!(phase, Some("Succeeded" | "Failed"));
    !of_daemon_set && !mirror && !finished
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::core::v1::PodStatus, apimachinery::pkg::apis::meta::v1::Time};

    use super::*;
    use crate::plan::testing::{at, pod, pod_of};

    const CLOSED: Leaving =
        Leaving { deleting: false, drain_started: Some(Timestamp::UNIX_EPOCH), cordoned: true };

    const MINUTE: Option<SignedDuration> = Some(SignedDuration::from_secs(60));

    fn evicted(fate: &Fate) -> Vec<&str> {
        match fate {
            Fate::Drain { evict, .. } => {
                evict.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_node_is_closed_and_marked_before_any_pod_is_asked_to_go() {
        for leaving in [
            Leaving { cordoned: false, ..CLOSED },
            Leaving { drain_started: None, ..CLOSED },
            Leaving { deleting: true, drain_started: None, cordoned: false },
        ] {
            assert_eq!(next(leaving, Some(&[pod("web")]), None, at(0)), Fate::Close);
        }
    }

    #[test]
    fn a_node_whose_pods_are_not_known_is_not_removed() {
        assert_eq!(next(CLOSED, None, MINUTE, at(1000)), Fate::Drain { evict: vec![], overdue: None });
    }

    #[test]
    fn daemon_set_mirror_and_finished_pods_hold_no_node() {
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
        assert_eq!(next(CLOSED, Some(&pods), None, at(0)), Fate::Remove { delete_pods: vec![] });
    }

    #[test]
    fn a_pod_that_is_ending_is_waited_for_and_not_evicted_again() {
        let mut ending = pod("ending");
        ending.metadata.deletion_timestamp = Some(Time(at(30)));
        let pods = [ending, pod("web"), pod_of("ReplicaSet", "api")];
        let fate = next(CLOSED, Some(&pods), None, at(10));
        assert_eq!(evicted(&fate), ["web", "api"]);
        assert!(matches!(fate, Fate::Drain { overdue: None, .. }));
        let Fate::Drain { overdue, .. } = next(CLOSED, Some(&pods), None, at(31)) else { panic!() };
        assert_eq!(overdue.map(|pod| pod.name).as_deref(), Some("ending"));
    }

    #[test]
    fn a_pod_that_chose_a_closed_node_is_not_evicted_over_and_over() {
        let born = |second| {
            let mut pod = pod("tolerant");
            pod.metadata.creation_timestamp = Some(Time(at(second)));
            pod
        };
        assert_eq!(evicted(&next(CLOSED, Some(&[born(5)]), None, at(100))), ["tolerant"]);
        let later = next(CLOSED, Some(&[born(6)]), None, at(100));
        assert_eq!(later, Fate::Remove { delete_pods: vec![] });
    }

    #[test]
    fn after_the_timeout_the_node_goes_and_takes_its_pods_with_it() {
        let pods = [pod("web")];
        assert_eq!(evicted(&next(CLOSED, Some(&pods), MINUTE, at(59))), ["web"]);
        let Fate::Remove { delete_pods } = next(CLOSED, Some(&pods), MINUTE, at(60)) else { panic!() };
        assert_eq!(delete_pods.len(), 1);
        assert_eq!(
            evicted(&next(CLOSED, Some(&pods), None, at(1_000_000))),
            ["web"],
            "without a timeout it waits"
        );
    }
}
