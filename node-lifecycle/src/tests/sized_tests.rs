//! Providers that keep a number of machines: what waits while they may remove none, and which marks are taken off.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use shared_crds::v1alpha1::{ClusterApiProvider, ProviderSpec};

use super::*;
use crate::input::observed_time::MachineTimes;
use crate::input::supply::{MachineState, NodeSource, Size};
use crate::testing::{
    SOON, actions, annotate, at, draining, facts, machine, node, observed, plan, plan_with, pods, pool,
    with_action,
};

const ROLLING: &str = "it rolls out";

/// A pool of `replicas` with `nodes`, and these machines without Nodes.
fn sized(replicas: i32, nodes: Vec<Node>, machines: &[&str]) -> Observed {
    let mut observed = observed(pool(replicas), nodes);
    observed.supply.source = Ok(NodeSource::Kubelet);
    observed.supply.size = Some(Size { replicas, generation: 1 });
    observed.supply.machines = machines.iter().map(|name| machine(name, SOON)).collect();
    observed
}

fn rolling(observed: &Observed) -> Observed {
    let mut observed = observed.clone();
    observed.supply.removals_wait = Some(ROLLING.to_owned());
    observed
}

#[test]
fn nothing_begins_to_leave_while_no_machine_may_be_removed() {
    let mut too_many = sized(1, vec![node(0), node(1)], &["m"]);
    too_many.machine_times = MachineTimes([("m".to_owned(), SignedDuration::from_hours(24))].into());
    let calm = plan(&too_many);
    assert_eq!(calm.timed_out, ["m"]);
    assert_eq!(with_action(&calm, &NodeAction::Cordon).len(), 1);
    let waiting = plan(&rolling(&too_many));
    assert!(waiting.withdraw.is_empty() && waiting.timed_out.is_empty());
    assert_eq!(actions(&waiting), []);
    assert_eq!(waiting.requeue_at, Some(at(105)), "no event says when that is over");

    // It may grow meanwhile.
    let too_few = rolling(&sized(3, vec![node(0)], &["m"]));
    assert_eq!(plan(&too_few).request.len(), 1);
}

#[test]
fn a_drained_node_is_not_deleted_while_no_machine_may_be_removed_and_its_drain_can_be_cancelled() {
    let drained = sized(0, vec![draining(0, 0)], &[]);
    let empty = pods([("n-000", vec![])]);
    assert_eq!(with_action(&plan_with(&drained, &empty), &NodeAction::Remove), ["n-000"]);
    let waiting = plan_with(&rolling(&drained), &empty);
    let held = NodeAction::Drain(DrainStep::waits(Blocker::Provider(ROLLING.to_owned()), true));
    assert_eq!(with_action(&waiting, &held), ["n-000"]);
    let mut wanted = rolling(&drained);
    wanted.pool = Some(Arc::new(pool(1)));
    assert_eq!(with_action(&plan_with(&wanted, &empty), &NodeAction::Uncordon), ["n-000"]);

    // A Node that is being deleted cannot come back: its machine is told to go when that is possible.
    let mut deleted = draining(0, 0);
    deleted.metadata.deletion_timestamp = Some(Time(at(50)));
    let deleted = rolling(&sized(0, vec![deleted], &[]));
    assert_eq!(with_action(&plan_with(&deleted, &empty), &NodeAction::Remove), ["n-000"]);
}

#[test]
fn a_mark_is_taken_off_a_machine_that_neither_goes_now_nor_has_a_node_that_does() {
    let mut leaving = draining(1, 0);
    leaving.metadata.deletion_timestamp = Some(Time(at(50)));
    annotate(&mut leaving, "note", "x");
    let mut observed = sized(1, vec![node(0), leaving], &["n-000", "n-001", "m"]);
    for machine in &mut observed.supply.machines {
        machine.is_marked = true;
    }
    let plan = plan(&observed);
    assert_eq!((plan.withdraw, plan.unmark), (vec!["m".to_owned()], vec!["n-000".to_owned()]));
}

#[test]
fn a_node_whose_machine_another_client_deletes_is_drained_at_once() {
    let mut observed = sized(2, vec![node(0), node(1)], &["n-000", "n-001"]);
    assert_eq!(actions(&plan(&observed)), []);
    observed.supply.machines[1].state = MachineState::Deleting;
    assert_eq!(with_action(&plan(&observed), &NodeAction::ReplaceLost), ["n-001"]);
    assert_eq!(plan(&observed).request.len(), 1);
    // Also while no machine may be removed: this one is.
    assert_eq!(with_action(&plan(&rolling(&observed)), &NodeAction::ReplaceLost), ["n-001"]);
    // It does not count any more, so no other node goes in its place.
    let mut lowered = observed.clone();
    lowered.pool = Some(Arc::new(pool(1)));
    assert_eq!(actions(&plan(&lowered)), [("n-001".to_owned(), NodeAction::ReplaceLost)]);
}

#[test]
fn what_a_user_wants_replaced_is_said_where_only_the_provider_replaces_it() {
    let cluster_api =
        ProviderSpec { cluster_api: Some(ClusterApiProvider::default()), ..ProviderSpec::default() };
    let left = |provider: &ProviderSpec, rollout: RolloutSpec, asks: bool| {
        let mut nodes = vec![node(0), node(1)];
        for node in &mut nodes {
            let labels = node.metadata.labels.get_or_insert_default();
            labels.insert(names::PROVIDER_LABEL.to_owned(), provider.reference().unwrap());
        }
        if asks {
            annotate(&mut nodes[1], names::REPLACE_ANNOTATION, "true");
        }
        let mut observed = sized(2, nodes, &[]);
        let spec = &mut Arc::make_mut(observed.pool.as_mut().unwrap()).spec;
        spec.provider = provider.clone();
        spec.rollout = Some(rollout);
        (facts(&observed).left_to_provider, with_action(&plan(&observed), &NodeAction::Cordon).len())
    };
    let aged = |hard_max_age_seconds: i32| RolloutSpec {
        hard_max_age_seconds: Some(hard_max_age_seconds),
        ..RolloutSpec::default()
    };
    assert_eq!(left(&cluster_api, RolloutSpec::default(), false).0, Vec::<String>::new());
    assert_eq!(left(&cluster_api, RolloutSpec::default(), true), (vec!["n-001".to_owned()], 0));
    assert_eq!(left(&cluster_api, aged(101), false).0, Vec::<String>::new());
    assert_eq!(left(&cluster_api, aged(100), false), (vec!["n-000".to_owned(), "n-001".to_owned()], 0));
    let simulated = pool(2).spec.provider;
    assert_eq!(left(&simulated, aged(100), true).0, Vec::<String>::new(), "it goes");
}
