//! For which nodes that are out of date others are made: for those whose pods were read and ask for nothing.

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use proptest::collection::vec;
use proptest::prelude::*;
use shared_crds::protection::DO_NOT_DISRUPT;
use shared_crds::v1alpha1::{DrainSpec, ProtectedNodes};

use super::disturbance::rollout;
use super::invariant_tests::{MANY_PASSES, is_of_first_template, pass_with_ready_nodes, run_until_idle};
use super::model_cluster::ModelCluster;
use super::rollout_tests::{changed, new, surge};
use super::*;
use crate::testing::{
    SOON, at, done, facts_after, machine, node, nodes, observed, plan_with, pod, pods, protect_pod, shared,
    starting,
};

/// As many nodes more as there are.
fn all_at_once() -> RolloutSpec {
    RolloutSpec { max_surge: IntOrString::String("100%".to_owned()), ..surge(0, 0) }
}

/// A changed pool that may have three times as many nodes.
fn roomy(replicas: i32, spec: RolloutSpec) -> NodePool {
    let mut pool = changed(replicas, spec);
    pool.spec.max_replicas = replicas * 3;
    pool
}

/// One pod, which may ask to be left alone.
fn one_pod(asks: bool) -> Vec<Pod> {
    let mut pod = pod("a");
    if asks {
        protect_pod(&mut pod);
    }
    vec![pod]
}

/// The plan when all the pods are read that it asks for: those of the nodes for which `asks` says so ask to be left alone.
fn read(seen: &Observed, asks: impl Fn(&str) -> bool) -> Plan {
    let undecided = classify(seen).reads.undecided;
    let by_node = undecided.iter().map(|node| (node.clone(), shared(one_pod(asks(node))))).collect();
    plan_with(seen, &ObservedPods { by_node, ..ObservedPods::default() })
}

/// What a pass does and finds.
#[derive(Debug, PartialEq, Eq)]
struct Pass {
    listed: usize,
    requested: usize,
    /// In how many seconds the next pass is due.
    next: Option<i64>,
}

/// Passes until one lists no pods and requests nothing, as the operator remembers what they find. No machine becomes a node.
fn passes(seen: &mut Observed, asks: impl Fn(&str) -> bool) -> Vec<Pass> {
    let mut passes = Vec::new();
    for _ in 0..50 {
        let listed = classify(seen).reads.undecided.len();
        let plan = read(seen, &asks);
        let next = plan.requeue_at.map(|next| next.as_second() - seen.now.as_second());
        passes.push(Pass { listed, requested: plan.request.len(), next });
        if listed == 0 && plan.request.is_empty() {
            return passes;
        }
        seen.protected.extend(plan.protected);
        seen.unprotected.extend(plan.unprotected);
        seen.supply.machines.extend(plan.request.iter().map(|name| machine(name, SOON)));
    }
    panic!("it goes on: {passes:?}");
}

fn requested(passes: &[Pass]) -> usize {
    passes.iter().map(|pass| pass.requested).sum()
}

#[test]
fn none_is_made_before_the_pods_are_read_and_then_one_for_each_node_that_asks_for_nothing() {
    let seen = observed(changed(2, surge(2, 0)), nodes(2));
    assert_eq!(Vec::from_iter(classify(&seen).reads.undecided), ["n-000", "n-001"]);
    let unread = plan_with(&seen, &ObservedPods::default());
    assert_eq!((unread.request.len(), unread.requeue_at), (0, Some(at(115))));
    for (what, asking, expected) in [
        ("both are free", &[][..], (2, 0, 2)),
        ("one asks", &["n-000"][..], (1, 1, 1)),
        ("the other one asks", &["n-001"][..], (1, 1, 1)),
        ("both ask", &["n-000", "n-001"][..], (0, 2, 0)),
    ] {
        let plan = read(&seen, |node| asking.contains(&node));
        let found = (plan.request.len(), plan.protected.len(), plan.unprotected.len());
        assert_eq!(found, expected, "{what}");
    }
    // Some of them are read later.
    let one = plan_with(&seen, &pods([("n-001", one_pod(false))]));
    assert_eq!(one.request.len(), 1);
}

#[test]
fn whatever_a_pod_asks_with_none_is_made_for_its_node() {
    let soft = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    for (annotation, value) in [(DO_NOT_DISRUPT, "true"), (soft, "false")] {
        let mut asking = pod("a");
        asking.metadata.annotations = Some([(annotation.to_owned(), value.to_owned())].into());
        let seen = observed(roomy(10, all_at_once()), nodes(10));
        let undecided = classify(&seen).reads.undecided;
        assert_eq!(undecided.len(), 10);
        let by_node = undecided.into_iter().map(|node| (node, shared(vec![asking.clone()]))).collect();
        let plan = plan_with(&seen, &ObservedPods { by_node, ..ObservedPods::default() });
        assert_eq!((plan.request.len(), plan.protected.len()), (0, 10), "{annotation}");
    }
}

#[test]
fn what_was_found_a_moment_ago_is_not_read_again_and_nodes_that_ask_are_visited_slowly() {
    let mut seen = observed(changed(2, surge(2, 0)), nodes(2));
    let pass = |listed, requested, next| Pass { listed, requested, next };
    assert_eq!(passes(&mut seen.clone(), |_| true), [pass(2, 0, Some(15)), pass(0, 0, Some(15))]);
    seen.unprotected = ["n-000".to_owned(), "n-001".to_owned()].into();
    assert!(classify(&seen).reads.undecided.is_empty());
    assert_eq!(plan_with(&seen, &ObservedPods::default()).request.len(), 2);
    // What is read now counts more than what was found before.
    let pods = pods([("n-000", one_pod(true)), ("n-001", one_pod(false))]);
    assert_eq!(plan_with(&seen, &pods).request.len(), 1);
}

#[test]
fn what_was_found_some_time_ago_counts_until_the_node_is_read_again() {
    let mut seen = observed(changed(2, surge(2, 0)), nodes(2));
    let asks = |node: &str| (node.to_owned(), "asks".to_owned());
    seen.protected = [asks("n-000"), asks("n-001")].into();
    assert!(classify(&seen).reads.undecided.is_empty());
    seen.stale = ["n-001".to_owned()].into();
    assert_eq!(Vec::from_iter(classify(&seen).reads.undecided), ["n-001"]);
    let reason = |plan: &Plan| {
        let rollout = facts_after(&seen, plan, &done(plan)).rollout.unwrap();
        rollout.waits.map(|waits| waits.reason)
    };
    let unread = plan_with(&seen, &ObservedPods::default());
    assert_eq!((unread.request.len(), unread.protected.len(), unread.unread.len()), (0, 0, 1));
    assert_eq!((reason(&unread), unread.requeue_at), (Some(Reason::WaitsForProtected), Some(at(115))));
    let still = read(&seen, |_| true);
    assert_eq!((reason(&still), still.protected.len()), (Some(Reason::WaitsForProtected), 1));
    let free = read(&seen, |_| false);
    assert_eq!((reason(&free), free.request.len(), free.unprotected.len()), (None, 1, 1));
}

#[test]
fn nodes_whose_lists_have_failed_come_after_the_others() {
    let mut seen = observed(roomy(30, surge(1, 0)), nodes(30));
    let name = |index: usize| format!("n-{index:03}");
    let listed = |seen: &Observed| Vec::from_iter(classify(seen).reads.undecided);
    assert_eq!(listed(&seen), (20..30).map(name).collect::<Vec<_>>());
    seen.failed_lists = (20..30).map(name).collect();
    assert_eq!(listed(&seen), (10..20).map(name).collect::<Vec<_>>());
    seen.failed_lists = (0..30).rev().map(name).collect();
    assert_eq!(listed(&seen), (20..30).map(name).collect::<Vec<_>>(), "the first that failed");
}

#[test]
fn those_that_never_ran_pods_or_go_whatever_they_ask_for_are_not_read() {
    let unread = |pool: NodePool, nodes: Vec<Node>| {
        let seen = observed(pool, nodes);
        let plan = plan_with(&seen, &ObservedPods::default());
        (classify(&seen).reads.undecided.len(), plan.request.len())
    };
    let mut last = changed(2, surge(2, 0));
    last.spec.drain = Some(DrainSpec { protected_nodes: ProtectedNodes::Last, ..DrainSpec::default() });
    assert_eq!(unread(last, nodes(2)), (0, 2));
    let aged = RolloutSpec { hard_max_age_seconds: Some(90), ..surge(2, 0) };
    assert_eq!(unread(changed(2, aged), nodes(2)), (0, 2));
    assert_eq!(unread(changed(1, surge(1, 0)), vec![starting(0)]).1, 1);
}

#[test]
fn what_was_made_stays_when_pods_ask_later() {
    let mut seen = observed(changed(2, surge(2, 0)), nodes(2));
    seen.supply.machines = vec![machine("n-002", SOON)];
    let all_ask = read(&seen, |_| true);
    assert!(all_ask.request.is_empty() && all_ask.withdraw.is_empty());
    let with_node = observed(changed(2, surge(2, 0)), [node(0), node(1), new(starting(2))]);
    let all_ask = read(&with_node, |_| true);
    assert!(all_ask.request.is_empty() && testing::actions(&all_ask).is_empty(), "{all_ask:?}");
    // One that is free has its successor already.
    assert_eq!(read(&seen, |node| node == "n-001").request.len(), 0);
}

#[test]
fn the_pods_of_many_nodes_are_read_some_at_a_time() {
    let free = passes(&mut observed(roomy(120, all_at_once()), nodes(120)), |_| false);
    assert_eq!((requested(&free), free.len()), (120, 4), "{free:?}");
    let asking = passes(&mut observed(roomy(120, all_at_once()), nodes(120)), |_| true);
    assert_eq!((requested(&asking), asking.len()), (0, 4), "{asking:?}");
    assert!(free.iter().chain(&asking).all(|pass| pass.listed <= 50), "{free:?} {asking:?}");
    assert_eq!(asking[0].next, Some(0), "there are others to look at");
    assert_eq!(asking[3].next, Some(15), "and then it waits");
}

#[test]
fn one_more_is_made_as_soon_as_one_node_is_free() {
    let two = |asking: &'static str| {
        let all = passes(&mut observed(changed(2, surge(1, 0)), nodes(2)), |node| node == asking);
        (requested(&all), all.len())
    };
    assert_eq!((two("n-000"), two("n-001")), ((1, 2), (1, 2)), "whichever is looked at first");
    let all = passes(&mut observed(roomy(120, surge(1, 0)), nodes(120)), |node| node != "n-000");
    assert!(requested(&all) == 1 && all.len() <= 13, "{all:?}");
    let few = passes(&mut observed(roomy(120, surge(1, 0)), nodes(120)), |_| false);
    assert_eq!((requested(&few), few[0].listed, few.len()), (1, 10, 2), "no more are read than needed");
}

#[test]
fn nothing_is_read_for_a_node_that_cannot_be_made() {
    let mut seen = observed(changed(2, surge(2, 0)), nodes(2));
    seen.supply.machines = vec![machine("n-002", SOON), machine("n-003", SOON)];
    assert!(classify(&seen).reads.undecided.is_empty(), "all are on their way");
    let mut seen = observed(changed(2, surge(2, 0)), nodes(2));
    let (reason, message) = (Reason::ProviderUnreachable, String::new());
    seen.supply.failure =
        Some(crate::input::supply::ProvisioningFailure { reason, message, retry_at: at(500) });
    assert!(classify(&seen).reads.undecided.is_empty(), "the provider is left alone");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn there_are_never_more_nodes_than_wanted_and_one_for_each_that_may_go(
        asks in vec(any::<bool>(), 1..9),
        surge in 1..9_i32,
        forgets in any::<bool>(),
        registers_itself in any::<bool>(),
    ) {
        let mut cluster = ModelCluster::new(registers_itself);
        cluster.pool.spec.replicas = Some(i32::try_from(asks.len()).unwrap());
        cluster.pool.spec.max_replicas = 20;
        cluster.pool.spec.rollout = Some(rollout(surge, 0));
        prop_assert!(run_until_idle(&mut cluster) < MANY_PASSES);
        let first: Vec<String> = cluster.nodes.keys().cloned().collect();
        for (name, asks) in first.iter().zip(&asks) {
            cluster.protect(name, false, *asks);
        }
        let free: Vec<&String> = first.iter().zip(&asks).filter(|(_, asks)| !**asks).map(|(name, _)| name).collect();
        cluster.change_template(8, 0);
        for _ in 0..MANY_PASSES / 2 {
            if forgets {
                cluster.found.clear();
                cluster.free.clear();
            }
            pass_with_ready_nodes(&mut cluster);
            let is_old = |name: &&&String| cluster.nodes.get(**name).is_some_and(is_of_first_template);
            let may_go = free.iter().filter(is_old).count();
            let most = asks.len() + may_go;
            prop_assert!(cluster.promised() <= most, "{} of {most}", cluster.promised());
        }
        let old = cluster.nodes.values().filter(|node| is_of_first_template(node)).count();
        prop_assert_eq!((cluster.nodes.len(), old), (asks.len(), asks.len() - free.len()));
    }
}
