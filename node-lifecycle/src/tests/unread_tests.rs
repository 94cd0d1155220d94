//! How unreadable nodes change a decision: only their existence is known.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use shared_crds::v1alpha1::RolloutSpec;

use crate::NodeAction;
use crate::input::supply::MachineState;
use crate::testing::{actions, machine, plan, pool_with, slot, with_action};

#[test]
fn unreadable_nodes_are_not_created_a_second_time() {
    for (wanted, readable, unreadable, requested) in
        [(3, 0, 3, vec![]), (3, 2, 1, vec![]), (3, 1, 1, vec![slot(1)]), (1, 0, 3, vec![])]
    {
        let plan = plan(&pool_with(Some(wanted), readable, unreadable));
        assert_eq!(plan.request, requested, "{wanted} wanted, {readable} readable, {unreadable} not");
        assert!(actions(&plan).is_empty());
    }
}

#[test]
fn no_node_is_removed_because_others_are_unreadable() {
    for replicas in [Some(2), None] {
        let mut observed = pool_with(replicas, 2, 2);
        // A machine whose node already exists does not count as another machine.
        observed.supply.machines = vec![machine(&slot(0), MachineState::Running)];
        let plan = plan(&observed);
        assert_eq!((actions(&plan), plan.withdraw, plan.register), (vec![], vec![], vec![]), "{replicas:?}");
    }
}

#[test]
fn an_unset_count_is_not_filled_in_while_nodes_are_unreadable() {
    let plan = plan(&pool_with(None, 1, 2));
    assert_eq!((plan.fill, plan.request, plan.wanted), (None, vec![], 3));
}

#[test]
fn no_node_is_replaced_before_an_unset_count_is_filled_in() {
    for (replicas, surge, expected) in
        [(Some(3), 1, (1, 1)), (None, 1, (0, 0)), (Some(3), 0, (0, 1)), (None, 0, (0, 0))]
    {
        let mut observed = pool_with(replicas, 2, 1);
        let pool = Arc::make_mut(observed.pool.as_mut().unwrap());
        pool.spec.template.spec.capacity.insert("cpu".into(), Quantity("8".into()));
        pool.spec.rollout = Some(RolloutSpec {
            max_surge: IntOrString::Int(surge),
            max_unavailable: IntOrString::Int(2),
            ..RolloutSpec::default()
        });
        let plan = plan(&observed);
        let found = (plan.request.len(), with_action(&plan, &NodeAction::Cordon).len());
        assert_eq!(found, expected, "{replicas:?} replicas, a surge of {surge}");
    }
}

#[test]
fn a_foreign_node_in_a_slot_does_not_count_whether_it_is_readable_or_not() {
    let mut observed = pool_with(Some(1), 0, 1);
    observed.supply.taken = observed.unreadable.clone();
    assert_eq!(plan(&observed).request, [slot(1)]);
}
