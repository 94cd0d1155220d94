//! What a provider does by itself, and the operator leaves to it: it ends machines and drains their nodes, and replaces those that are
//! unhealthy.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use serde_json::json;
use shared_crds::names;

use super::*;
use crate::input::supply::{MachineState, NodeSource, ProviderDuties, Size};
use crate::testing::writes::patched;
use crate::testing::{
    SOON, actions, annotate, at, done, draining, facts_after, machine, node, nodes, observed, plan,
    plan_with, pod, pods, pool, with_action,
};

/// A pool that wants three nodes and has these, of which the provider is ending the machine of the first, and drains it. It makes another
/// one by itself.
fn ending(nodes: Vec<Node>) -> Observed {
    let mut observed = observed(pool(3), nodes);
    observed.supply.source = Ok(NodeSource::Kubelet);
    observed.supply.size = Some(Size { replicas: 3, generation: 1 });
    observed.supply.machines = vec![
        machine("n-000", MachineState::Deleting),
        machine("n-001", MachineState::Running),
        machine("n-002", MachineState::Running),
        machine("next", SOON),
    ];
    observed.supply.duties.drains = ["n-000".to_owned()].into();
    observed
}

fn left_alone() -> NodeAction {
    NodeAction::Drain(DrainStep::waits(Blocker::LeftToProvider, true))
}

#[test]
fn a_node_whose_provider_ends_its_machine_and_drains_it_is_left_to_it() {
    let mut cordoned = node(0);
    cordoned.spec.get_or_insert_default().unschedulable = Some(true);
    for first in [node(0), cordoned, draining(0, 10)] {
        let seen = ending(vec![first, node(1), node(2)]);
        let plan = plan_with(&seen, &pods([("n-000", vec![pod("p")])]));
        assert_eq!(with_action(&plan, &left_alone()), ["n-000"]);
        assert_eq!(actions(&plan).len(), 1, "the others stay as they are: {:?}", plan.nodes);
        assert!(plan.request.is_empty() && plan.withdraw.is_empty(), "its successor is on the way: {plan:?}");
    }
}

#[test]
fn a_node_that_leaves_so_is_in_the_account_and_not_among_those_that_stay() {
    let mut seen = ending(nodes(3));
    let limited = json!({ "budgets": [{ "nodes": 1 }] });
    let mut smaller = pool(1);
    smaller.spec.disruption = Some(serde_json::from_value(limited).unwrap());
    seen.pool = Some(Arc::new(smaller));
    seen.supply.machines.pop();
    let plan = plan(&seen);
    assert_eq!(
        with_action(&plan, &NodeAction::Cordon).len(),
        0,
        "the budget of one is taken: {:?}",
        plan.nodes
    );
    let facts = facts_after(&seen, &plan, &done(&plan));
    assert_eq!((facts.leaving, facts.staying, facts.ready), (1, 2, 2), "{facts:?}");
}

#[test]
fn a_node_whose_node_object_is_deleted_is_kept_by_the_finalizer_until_nothing_runs_there() {
    let mut deleted = draining(0, 10);
    deleted.metadata.deletion_timestamp = Some(Time(at(20)));
    let seen = ending(vec![deleted, node(1), node(2)]);
    assert_eq!(with_action(&plan_with(&seen, &pods([("n-000", vec![])])), &NodeAction::Remove), ["n-000"]);
}

#[test]
fn what_a_node_waited_for_that_stays_after_all_is_taken_off_it_once_the_provider_says_so() {
    let mut noted = node(0);
    annotate(&mut noted, names::DRAINED_BY_PROVIDER_ANNOTATION, "true");
    let mut seen = ending(vec![noted.clone(), node(1), node(2)]);
    assert_eq!(with_action(&plan(&seen), &left_alone()), ["n-000"]);
    seen.supply.duties = ProviderDuties::default();
    seen.supply.machines = (0..3).map(|it| machine(&format!("n-00{it}"), MachineState::Running)).collect();
    assert_eq!(with_action(&plan(&seen), &NodeAction::Tidy), ["n-000"]);
    let tidied = patched(&noted, &patches::uncordon(&noted)).unwrap();
    assert!(!tidied.metadata.annotations.unwrap().contains_key(names::DRAINED_BY_PROVIDER_ANNOTATION));
    seen.supply.is_unknown = true;
    assert!(actions(&plan(&seen)).is_empty(), "without a list nothing is known");
}

/// The list of the provider that made the nodes failed.
fn unlisted(mut seen: Observed) -> Observed {
    let why = "no route to host".to_owned();
    let made_by = seen.nodes[0].metadata.labels.as_ref().unwrap()[names::PROVIDER_LABEL].clone();
    seen.supply.duties = ProviderDuties::default();
    seen.supply.machines.clear();
    seen.supply.is_unknown = true;
    seen.supply.removals_wait = Some(why.clone());
    seen.supply.unlisted.insert(made_by, why);
    seen
}

#[test]
fn what_was_left_to_a_provider_that_does_not_answer_is_neither_drained_here_nor_called_off() {
    let pods = pods([("n-000", vec![pod("p")])]);
    for first in [node(0), draining(0, 10)] {
        let mut noted = first.clone();
        annotate(&mut noted, names::DRAINED_BY_PROVIDER_ANNOTATION, "true");
        let seen = unlisted(ending(vec![noted, node(1), node(2)]));
        let plan = plan_with(&seen, &pods);
        assert_eq!(with_action(&plan, &left_alone()), ["n-000"]);
        assert!(actions(&plan).len() == 1 && plan.request.is_empty(), "{plan:?}");
        // Another one is as it would be without this.
        let other = unlisted(ending(vec![first, node(1), node(2)]));
        assert!(with_action(&plan_with(&other, &pods), &left_alone()).is_empty());
    }
}

#[test]
fn a_machine_that_its_provider_does_not_drain_is_drained_here() {
    let mut seen = ending(nodes(3));
    seen.supply.duties = ProviderDuties::default();
    assert_eq!(with_action(&plan(&seen), &NodeAction::ReplaceLost), ["n-000"]);
}

#[test]
fn a_successor_that_comes_only_when_the_machine_is_gone_is_not_given_up() {
    let mut seen = ending(nodes(3));
    seen.supply.machines.push(machine("late", SOON));
    for name in ["next", "late"] {
        seen.machine_times.0.insert(name.to_owned(), SignedDuration::from_hours(24));
    }
    seen.supply.duties.awaits = ["next".to_owned()].into();
    assert_eq!(plan(&seen).timed_out, ["late"]);
    seen.supply.duties.awaits.clear();
    assert_eq!(plan(&seen).timed_out.len(), 2);
}
