//! Machines that their provider would make from something else now.

use k8s_openapi::api::core::v1::Node;

use super::*;
use crate::input::supply::MachineState;
use crate::outcome::AppliedAction;
use crate::testing::{annotate, draining, facts, machine, node, observed, plan, pool, with_action};

/// A pool that wants two nodes and has these, where the provider says so of the `outdated` machines.
fn seen(nodes: Vec<Node>, outdated: &[&str]) -> Observed {
    let mut observed = observed(pool(2), nodes);
    let names = observed.nodes.iter().filter_map(|node| node.metadata.name.clone());
    let machines = names.map(|name| {
        let is_outdated = outdated.contains(&&*name);
        crate::input::supply::Machine { is_outdated, ..machine(&name, MachineState::Running) }
    });
    observed.supply.machines = machines.collect();
    observed
}

#[test]
fn a_node_whose_machine_is_of_another_revision_is_replaced_like_one_of_another_template() {
    let first = plan(&seen(vec![node(0), node(1)], &["n-000"]));
    assert_eq!((first.request.len(), with_action(&first, &NodeAction::Cordon).len()), (1, 0));
    let second = plan(&seen(vec![node(0), node(1), node(2)], &["n-000"]));
    assert_eq!(with_action(&second, &NodeAction::Cordon), ["n-000"]);
    assert_eq!(second.nodes[0].cause, Some(DisruptionReason::Rollout));
    let settled = plan(&seen(vec![node(0), node(1)], &[]));
    assert_eq!((settled.request.len(), with_action(&settled, &NodeAction::Cordon).len()), (0, 0));
}

#[test]
fn a_node_that_a_user_wants_replaced_goes_for_that_also_where_its_machine_is_of_another_revision() {
    let mut asked = node(0);
    annotate(&mut asked, names::REPLACE_ANNOTATION, "true");
    let plan = plan(&seen(vec![asked, node(1), node(2)], &["n-000"]));
    let step = plan.nodes.iter().find(|step| step.action == NodeAction::Cordon).unwrap();
    assert_eq!((step.member.name(), AppliedAction::of(step)), ("n-000", Some(AppliedAction::DrainAsked)));
}

#[test]
fn its_drain_is_not_called_off_while_the_provider_says_nothing() {
    let mut going = draining(0, 90);
    annotate(&mut going, names::DISRUPTION_REASON_ANNOTATION, DisruptionReason::Rollout.as_str());
    let mut observed = seen(vec![going, node(1)], &[]);
    assert_eq!(
        with_action(&plan(&observed), &NodeAction::Uncordon),
        ["n-000"],
        "the revision is the old one again"
    );
    observed.supply.machines.clear();
    observed.supply.is_unknown = true;
    assert!(with_action(&plan(&observed), &NodeAction::Uncordon).is_empty());
}

#[test]
fn while_the_provider_says_nothing_the_rollout_is_not_over() {
    let mut observed = seen(vec![node(0), node(1)], &["n-000"]);
    let outdated = |observed: &Observed| facts(observed).rollout.map(|rollout| rollout.outdated);
    assert_eq!(outdated(&observed), Some(1));
    observed.supply.machines.clear();
    observed.supply.is_unknown = true;
    observed.supply.outdated_before = ["n-000".to_owned()].into();
    assert_eq!((outdated(&observed), facts(&observed).up_to_date), (Some(1), 1));
    let waits = plan(&observed);
    assert_eq!((waits.request.len(), with_action(&waits, &NodeAction::Cordon).len()), (0, 0));
}
