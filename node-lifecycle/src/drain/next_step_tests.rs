//! The steps of one leaving node.

use k8s_openapi::api::core::v1::{PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::assess::node_states::Cordon;
use crate::testing::{at, pod, pod_of, shared};

/// The next step for a process that has observed the node from the start, but not its pods.
fn next(
    leaving: Leaving,
    pods: Option<&[Pod]>,
    timeout: Option<SignedDuration>,
    now: Timestamp,
) -> NodeAction {
    of_pods(leaving, pods, forced(timeout), now, &PodTimes::default())
}

/// The next step of a node with these pods.
fn of_pods(
    leaving: Leaving,
    pods: Option<&[Pod]>,
    limits: DrainLimits,
    now: Timestamp,
    times: &PodTimes,
) -> NodeAction {
    let pods = pods.map(|pods| shared(pods.to_vec()));
    super::next(leaving, pods.as_deref(), limits, now, times)
}

fn forced(timeout: Option<SignedDuration>) -> DrainLimits {
    DrainLimits { timeout, ..DrainLimits::default() }
}

const CORDONED: Leaving = Leaving {
    deleting: false,
    drain_started: Some(Timestamp::UNIX_EPOCH),
    cordon: Cordon::Cordoned,
    kubelet: KubeletState::MayAnswer,
    was_ready: true,
    observed: SignedDuration::MAX,
};

const MINUTE: Option<SignedDuration> = Some(SignedDuration::from_secs(60));

fn evicted(action: &NodeAction) -> Vec<&str> {
    match action {
        NodeAction::Drain(DrainStep { evict, .. }) => {
            evict.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_is_cordoned_and_annotated_before_any_pod_is_evicted() {
    for leaving in [
        Leaving { cordon: Cordon::Open, ..CORDONED },
        Leaving { drain_started: None, ..CORDONED },
        Leaving { deleting: true, drain_started: None, cordon: Cordon::Open, ..CORDONED },
    ] {
        assert_eq!(next(leaving, Some(&[pod("web")]), None, at(0)), NodeAction::Cordon);
    }
}

#[test]
fn a_node_whose_pods_are_not_known_is_not_removed() {
    let unread = DrainStep::waits(Blocker::Unread("pods"), false);
    assert_eq!(next(CORDONED, None, MINUTE, at(1000)), NodeAction::Drain(unread));
}

#[test]
fn daemon_set_mirror_and_finished_pods_do_not_block_removal() {
    let daemon = pod_of("DaemonSet", "agent");
    let mut mirror = pod("static");
    mirror.metadata.annotations = Some([("kubernetes.io/config.mirror".to_owned(), "x".to_owned())].into());
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
            [(12, 2, false), (99, 90, false), (500, 89, false), (100, 90, true)]
        {
            let times = PodTimes([("uid-db".to_owned(), SignedDuration::from_secs(seen_ending))].into());
            let action =
                of_pods(CORDONED, Some(&[ended.clone()]), DrainLimits::default(), at(second), &times);
            assert_eq!(action == NodeAction::Remove, goes, "{phase} at {second} after {seen_ending} s");
            assert!(goes || evicted(&action).is_empty());
        }
    }
}

#[test]
fn a_terminating_pod_is_waited_for_and_not_evicted_again() {
    let mut ending = pod("ending");
    // Deleted at second 10, with 20 s of grace.
    ending.metadata.deletion_timestamp = Some(Time(at(30)));
    ending.metadata.deletion_grace_period_seconds = Some(20);
    let pods = [ending, pod("web"), pod_of("ReplicaSet", "api")];
    let action = next(CORDONED, Some(&pods), None, at(10));
    assert_eq!(evicted(&action), ["web", "api"]);
    for (second, seen_ending, is_overdue) in
        [(10, 0, false), (39, 500, false), (500, 29, false), (40, 30, true)]
    {
        let times = PodTimes([("uid-ending".to_owned(), SignedDuration::from_secs(seen_ending))].into());
        let action = of_pods(CORDONED, Some(&pods), DrainLimits::default(), at(second), &times);
        let NodeAction::Drain(step) = action else { panic!("{action:?}") };
        let overdue = is_overdue.then(|| Blocker::Overdue(PodName::of(&pods[0])));
        assert_eq!(step.blockers, overdue.into_iter().collect::<Vec<_>>(), "at {second}");
    }
}

#[test]
fn a_clock_that_was_set_back_neither_prolongs_the_wait_for_a_pod_nor_ends_it() {
    let mut ending = pod("db");
    // Deleted at second 3670, with 30 s of grace, before the clock was set back by an hour.
    ending.metadata.deletion_timestamp = Some(Time(at(3700)));
    ending.metadata.deletion_grace_period_seconds = Some(30);
    for (seen_ending, is_overdue, goes) in
        [(39, false, false), (40, true, false), (89, true, false), (90, true, true)]
    {
        let times = PodTimes([("uid-db".to_owned(), SignedDuration::from_secs(seen_ending))].into());
        let action = of_pods(CORDONED, Some(&[ending.clone()]), DrainLimits::default(), at(100), &times);
        assert_eq!(action == NodeAction::Remove, goes, "after {seen_ending} s");
        if let NodeAction::Drain(step) = action {
            assert_eq!(!step.blockers.is_empty(), is_overdue, "after {seen_ending} s");
        }
    }
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
        let later = next(CORDONED, Some(&[born(61, &tolerant)]), None, at(100));
        assert_eq!(later, NodeAction::Remove, "{tolerant:?}");
    }
}

#[test]
fn a_pod_that_was_there_before_the_drain_is_not_taken_for_a_later_one_by_a_clock_that_lags() {
    let tolerant = [toleration("", "Exists", "", "")];
    // The drain began at second 0 by the clock of this process, which was second 60 of the API server: pods were there by then.
    for created in [1, 50, 60] {
        let pods = [born(created, &tolerant)];
        assert_eq!(evicted(&next(CORDONED, Some(&pods), None, at(10))), ["late"], "of second {created}");
    }
}

#[test]
fn a_later_pod_is_evicted_once_more_and_not_for_ever_by_a_clock_that_is_ahead() {
    let tolerant = [toleration("", "Exists", "", "")];
    // The drain began at second 0 by the clock of this process, which was second -60 of the API server: a pod of before that has to
    // leave, and so has one that came later, until as much time has passed by the clock of the API server.
    for (created, is_evicted) in [(-90, true), (-30, true), (60, true), (61, false)] {
        let pods = [born(created, &tolerant)];
        let action = next(CORDONED, Some(&pods), None, at(200));
        assert_eq!(action == NodeAction::Remove, !is_evicted, "of second {created}");
        assert!(!is_evicted || evicted(&action) == ["late"], "of second {created}");
    }
}

#[test]
fn a_pod_that_tolerates_the_cordon_alone_is_evicted_from_a_node_with_the_taint_of_a_drain() {
    let tainted = Leaving { cordon: Cordon::CordonedAndTainted, ..CORDONED };
    let cordon = toleration(CORDON_TAINT, "Exists", "", "NoSchedule");
    let pods = [born(70, std::slice::from_ref(&cordon))];
    assert_eq!(next(CORDONED, Some(&pods), None, at(100)), NodeAction::Remove, "the taint was removed");
    assert_eq!(evicted(&next(tainted, Some(&pods), None, at(100))), ["late"]);
    let both = [born(70, &[cordon, toleration(names::DRAINING_TAINT, "Exists", "", "")])];
    assert_eq!(next(tainted, Some(&both), None, at(100)), NodeAction::Remove);
}

#[test]
fn a_later_pod_that_does_not_tolerate_the_cordon_is_evicted() {
    for other in [
        vec![],
        vec![toleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute")],
        vec![toleration(CORDON_TAINT, "Exists", "", "NoExecute")],
        vec![toleration(CORDON_TAINT, "Equal", "x", "NoSchedule")],
    ] {
        assert_eq!(evicted(&next(CORDONED, Some(&[born(50, &other)]), None, at(100))), ["late"], "{other:?}");
    }
}

#[test]
fn a_cordoned_node_stays_long_enough_to_show_a_pod_that_was_being_bound() {
    let waits = NodeAction::Drain(DrainStep::default());
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
        NodeAction::Drain(DrainStep { delete, .. }) => {
            delete.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pod_that_asks_to_be_left_alone_stays_until_its_grace_is_all_that_is_left_or_its_node_is_deleted() {
    let limits = DrainLimits { timeout: MINUTE, holds_protected: true, ..DrainLimits::default() };
    let mut protected = pod("job");
    protected.metadata.annotations =
        Some([(protection::SAFE_TO_EVICT.to_owned(), "on-completion".to_owned())].into());
    let pods = [protected, pod("web")];
    let action =
        |leaving, limits, second| of_pods(leaving, Some(&pods), limits, at(second), &PodTimes::default());
    let NodeAction::Drain(DrainStep { evict, blockers, .. }) = action(CORDONED, limits, 10) else { panic!() };
    assert_eq!(evict.len(), 1);
    assert!(
        matches!(&blockers[..], [Blocker::Pod(pod, why)] if pod.name == "job" && why.contains("on-completion"))
    );
    assert_eq!(deleted(&action(CORDONED, limits, 30)), ["job", "web"]);
    let without = DrainLimits { holds_protected: false, ..limits };
    assert_eq!(evicted(&action(CORDONED, without, 10)), ["job", "web"]);
    assert_eq!(evicted(&action(Leaving { deleting: true, ..CORDONED }, limits, 10)), ["job", "web"]);
}

/// A pod whose grace period is that many seconds.
fn with_grace(name: &str, seconds: i64) -> Pod {
    let mut pod = pod(name);
    pod.spec = Some(PodSpec { termination_grace_period_seconds: Some(seconds), ..PodSpec::default() });
    pod
}

#[test]
fn a_pod_is_deleted_when_no_more_than_its_grace_period_is_left() {
    let pods = [with_grace("quick", 0), with_grace("slow", 40), with_grace("slower", 90), pod("default")];
    for (second, still_evicted) in [
        (2, vec!["quick", "slow", "default"]),
        (19, vec!["quick", "slow", "default"]),
        (20, vec!["quick", "default"]),
        (30, vec!["quick"]),
        (59, vec!["quick"]),
        (60, vec![]),
    ] {
        let action = next(CORDONED, Some(&pods), MINUTE, at(second));
        assert_eq!(evicted(&action), still_evicted, "at {second}");
        assert_eq!(deleted(&action).len(), pods.len() - still_evicted.len(), "at {second}");
    }
    let without_a_timeout = next(CORDONED, Some(&pods), None, at(1_000_000));
    assert_eq!((evicted(&without_a_timeout).len(), deleted(&without_a_timeout).len()), (4, 0));
}

#[test]
fn a_clock_that_jumps_ahead_ends_no_drain() {
    let pods = [pod("web")];
    let seen_for = |seconds| Leaving { observed: SignedDuration::from_secs(seconds), ..CORDONED };
    assert_eq!(evicted(&next(seen_for(29), Some(&pods), MINUTE, at(600))), ["web"]);
    assert_eq!(deleted(&next(seen_for(30), Some(&pods), MINUTE, at(600))), ["web"]);
    // The margin before an empty node is removed is handled the same way.
    assert_eq!(evicted(&next(seen_for(1), Some(&[]), None, at(600))), Vec::<&str>::new());
    assert_eq!(next(seen_for(2), Some(&[]), None, at(600)), NodeAction::Remove);
}

#[test]
fn a_pod_holds_its_node_for_its_grace_and_until_no_kubelet_can_be_expected_to_confirm_its_end() {
    let mut ending = pod("db");
    // Deleted at second 70, with 30 s of grace.
    ending.metadata.deletion_timestamp = Some(Time(at(100)));
    ending.metadata.deletion_grace_period_seconds = Some(30);
    let action = |timeout, second, seen_ending| {
        let seen = SignedDuration::from_secs(seen_ending);
        let times = PodTimes([("uid-db".to_owned(), seen)].into());
        of_pods(CORDONED, Some(&[ending.clone()]), forced(timeout), at(second), &times)
    };
    let of_hours = Some(SignedDuration::from_hours(3));
    for (timeout, second, seen_ending, goes) in [
        (MINUTE, 71, 1, false),
        (MINUTE, 109, 60, false),
        (MINUTE, 500, 39, false),
        (MINUTE, 110, 40, true),
        (None, 159, 500, false),
        (None, 5000, 89, false),
        (None, 160, 90, true),
        (of_hours, 159, 90, false),
        (of_hours, 160, 90, true),
    ] {
        let action = action(timeout, second, seen_ending);
        let case = format!("at {second} after {seen_ending} s, {timeout:?}");
        assert_eq!(action == NodeAction::Remove, goes, "{case}");
        if !goes {
            assert_eq!((evicted(&action), deleted(&action)), (vec![], vec![]), "{case}");
        }
    }
}

#[test]
fn critical_pods_leave_after_all_others_have_ended() {
    let critical = |name: &str, priority| {
        let mut pod = pod(name);
        pod.spec = Some(PodSpec { priority: Some(priority), ..PodSpec::default() });
        pod
    };
    let (dns, database) = (critical("dns", 2_000_000_000), critical("database", 1_000_000_000));
    let mut ending = pod("web");
    ending.metadata.deletion_timestamp = Some(Time(at(30)));
    let first = [dns.clone(), database, ending.clone()];
    assert_eq!(evicted(&next(CORDONED, Some(&first), None, at(10))), ["database"]);
    assert!(evicted(&next(CORDONED, Some(&[dns.clone(), ending]), None, at(10))).is_empty());
    assert_eq!(evicted(&next(CORDONED, Some(std::slice::from_ref(&dns)), None, at(10))), ["dns"]);
    assert_eq!(deleted(&next(CORDONED, Some(&first[..2]), MINUTE, at(30))), ["dns", "database"]);
}

#[test]
fn a_drain_that_takes_too_long_is_given_back_unless_its_pods_end_or_its_node_is_deleted() {
    let limits =
        DrainLimits { timeout: MINUTE, on_timeout: DrainTimeoutAction::GiveBack, ..DrainLimits::default() };
    let action = |leaving, pods: &[Pod], second| {
        of_pods(leaving, Some(pods), limits, at(second), &PodTimes::default())
    };
    let pods = [pod("web")];
    assert_eq!(evicted(&action(CORDONED, &pods, 59)), ["web"]);
    assert_eq!(action(CORDONED, &pods, 60), NodeAction::GiveBack);
    let seen_briefly = Leaving { observed: SignedDuration::from_secs(59), ..CORDONED };
    assert_eq!(evicted(&action(seen_briefly, &pods, 600)), ["web"], "the clock has jumped");
    assert_eq!(evicted(&action(Leaving { deleting: true, ..CORDONED }, &pods, 600)), ["web"]);
    let mut ending = pod("web");
    ending.metadata.deletion_timestamp = Some(Time(at(600)));
    assert!(evicted(&action(CORDONED, &[ending], 60)).is_empty());
    assert_eq!(action(CORDONED, &[], 600), NodeAction::Remove);
}
