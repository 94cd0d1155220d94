//! Which unhealthy nodes are replaced, and how they go.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::SignedDuration;
use shared_crds::v1alpha1::{
    ConditionStatus, DisruptionBudget, DisruptionEffect, DrainSpec, DrainTimeoutAction, NodePoolStatus,
    ProvisioningStatus, RepairCondition, RepairSpec,
};

use super::*;
use crate::input::observed_time::ConditionTimes;
use crate::input::supply::{MachineState, ProvisioningFailure};
use crate::testing::{
    SOON, actions, annotate, at, deleted, draining, facts, machine, node, nodes, observed, plan, plan_with,
    pod, pods, pool, protect_pod, set_ready, slot, with_action,
};

/// A node whose condition `Ready` has had `status` since second 0.
fn unhealthy_node(index: usize, status: &str) -> Node {
    let mut node = node(index);
    set_ready(&mut node, status);
    node.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].last_transition_time = Some(Time(at(0)));
    node
}

/// A pool of `nodes` at second `now`, watched for `watched` seconds.
fn seen(nodes: Vec<Node>, now: i64, watched: i64) -> Observed {
    let mut observed = observed(pool(i32::try_from(nodes.len()).unwrap()), nodes);
    observed.now = at(now);
    let watched = SignedDuration::from_secs(watched);
    let times = [ConditionStatus::False, ConditionStatus::Unknown]
        .map(|status| (("Ready".to_owned(), status), watched));
    let of_node = |node: &Arc<Node>| (node.metadata.uid.clone().unwrap(), times.clone().into());
    observed.condition_times = ConditionTimes(observed.nodes.iter().map(of_node).collect());
    observed
}

#[test]
fn a_node_is_replaced_after_its_condition_has_lasted_by_both_clocks() {
    for (status, action) in [("False", NodeAction::Cordon), ("Unknown", NodeAction::Repair)] {
        for (now, watched, is_replaced) in
            [(599, 599, false), (600, 600, true), (9000, 599, false), (599, 9000, false)]
        {
            let observed = seen(vec![unhealthy_node(0, status), node(1)], now, watched);
            let plan = plan(&observed);
            let replaced = with_action(&plan, &action);
            assert_eq!(replaced == ["n-000"], is_replaced, "{status} at {now} after {watched} s");
            assert_eq!(plan.nodes[0].cause, is_replaced.then_some(DisruptionReason::Repair));
            assert_eq!(plan.request.len(), usize::from(is_replaced));
            assert_eq!(plan.repair_waits.is_some(), !is_replaced, "it is said when");
            assert_eq!(plan.requeue_at.is_some_and(|next| next > at(now)), !is_replaced);
        }
    }
}

#[test]
fn one_that_its_provider_repairs_is_left_to_it() {
    for status in ["False", "Unknown"] {
        let mut observed = seen(vec![unhealthy_node(0, status), node(1)], 600, 600);
        observed.supply.duties.repairs = ["n-000".to_owned()].into();
        let plan = plan(&observed);
        assert!(actions(&plan).is_empty() && plan.request.is_empty(), "{status}: {:?}", plan.nodes);
        assert!(says(&plan, "unhealthy node n-000 is left to its provider, which replaces it"), "{status}");
    }
}

#[test]
fn none_is_replaced_where_more_nodes_are_unhealthy_than_may_be() {
    let many = |unhealthy_nodes: usize| {
        let all =
            (0..10).map(
                |index| if index < unhealthy_nodes { unhealthy_node(index, "Unknown") } else { node(index) },
            );
        seen(all.collect(), 700, 700)
    };
    assert_eq!(with_action(&plan(&many(2)), &NodeAction::Repair).len(), 2);
    let held = plan(&many(3));
    assert!(with_action(&held, &NodeAction::Repair).is_empty());
    assert!(says(&held, "3 nodes are unhealthy, and with 10 nodes wanted spec.repair.maxUnhealthy allows 2"));
    assert_eq!(held.requeue_at, Some(at(730)), "no event says when that is over");
    // Those that go already count.
    let mut one_goes = many(3);
    one_goes.nodes[0] = Arc::new(deleted(unhealthy_node(0, "Unknown")));
    assert!(with_action(&plan(&one_goes), &NodeAction::Repair).is_empty());
    let mut allowed = many(3);
    let repair = RepairSpec { max_unhealthy: IntOrString::Int(3), ..RepairSpec::default() };
    Arc::make_mut(allowed.pool.as_mut().unwrap()).spec.repair = Some(repair);
    assert_eq!(with_action(&plan(&allowed), &NodeAction::Repair).len(), 3);
    // Many pools of one node each: the control plane sees none of them.
    let mut alone = seen(vec![unhealthy_node(0, "Unknown")], 700, 700);
    assert_eq!(with_action(&plan(&alone), &NodeAction::Repair), ["n-000"]);
    alone.cluster_readiness = ClusterReadiness { not_ready: 12, all: 20 };
    let blind = plan(&alone);
    assert!(with_action(&blind, &NodeAction::Repair).is_empty());
    assert!(
        says(&blind, "12 of 20 nodes of all pools are not Ready, so none is replaced")
            && blind.requeue_at == Some(at(730))
    );
    alone.cluster_readiness = ClusterReadiness { not_ready: 11, all: 20 };
    assert_eq!(with_action(&plan(&alone), &NodeAction::Repair), ["n-000"]);
}

/// Whether the plan says so of nodes that stay.
fn says(plan: &Plan, text: &str) -> bool {
    matches!(&plan.repair_waits, Some(RepairWait::Held(why)) if why.contains(text))
}

/// Ten nodes at second 700: the machines of so many have not been listed for `seconds`, so many others have been unhealthy for long.
fn failed(lost: usize, seconds: i64, unhealthy: usize) -> Observed {
    let all = (0..10)
        .map(|index| if index < lost + unhealthy { unhealthy_node(index, "Unknown") } else { node(index) });
    let mut observed = seen(all.collect(), 700, 700);
    for node in &observed.nodes[..lost] {
        let time = observed.times.0.get_mut(node.metadata.uid.as_ref().unwrap()).unwrap();
        time.lost = Some(SignedDuration::from_secs(seconds));
        observed.condition_times.0.remove(node.metadata.uid.as_ref().unwrap());
    }
    observed
}

fn replaced(plan: &Plan) -> [usize; 2] {
    [&NodeAction::ReplaceLost, &NodeAction::Repair].map(|action| with_action(plan, action).len())
}

#[test]
fn lost_and_unhealthy_nodes_are_replaced_within_one_bound() {
    for (lost, unhealthy, expected) in [
        (1, 0, [1, 0]),
        (2, 0, [2, 0]),
        (1, 1, [1, 1]),
        (0, 2, [0, 2]),
        (3, 0, [0, 0]),
        (1, 2, [0, 0]),
        (6, 0, [0, 0]),
    ] {
        let plan = plan(&failed(lost, 60, unhealthy));
        assert_eq!(replaced(&plan), expected, "{lost} lost, {unhealthy} unhealthy");
        let is_held = expected == [0, 0];
        assert_eq!(says(&plan, "maxUnhealthy allows 2"), is_held, "{:?}", plan.repair_waits);
        assert_eq!(plan.requeue_at == Some(at(730)), is_held, "no event says when that is over");
    }
    let held = plan(&failed(6, 60, 0));
    assert!(says(
        &held,
        "the machines of 6 nodes are not listed any more, and with 10 nodes wanted spec.repair.maxUnhealthy allows 2, so \
         none is replaced; delete the Nodes whose machines are known to be gone"
    ));
    assert!(says(
        &plan(&failed(1, 60, 2)),
        "of 1 node is not listed any more and 2 other nodes are unhealthy, and"
    ));
    // A list that is wrong for a moment counts as well.
    assert_eq!(replaced(&plan(&failed(1, 5, 2))), [0, 0]);
    assert_eq!(replaced(&plan(&failed(1, 59, 0))), [0, 0]);
}

#[test]
fn the_bound_holds_for_lost_nodes_where_no_condition_makes_a_node_unhealthy() {
    let without = |lost| {
        let mut observed = failed(lost, 60, 0);
        let repair = RepairSpec { conditions: vec![], ..RepairSpec::default() };
        Arc::make_mut(observed.pool.as_mut().unwrap()).spec.repair = Some(repair);
        replaced(&plan(&observed))
    };
    assert_eq!([without(2), without(3)], [[2, 0], [0, 0]]);
}

#[test]
fn no_lost_node_is_replaced_while_too_many_nodes_of_all_pools_are_not_ready() {
    let mut observed = failed(1, 60, 0);
    observed.cluster_readiness = ClusterReadiness { not_ready: 12, all: 20 };
    assert_eq!(replaced(&plan(&observed)), [0, 0]);
    assert!(says(&plan(&observed), "12 of 20 nodes of all pools are not Ready, so none is replaced"));
    observed.cluster_readiness = ClusterReadiness { not_ready: 11, all: 20 };
    assert_eq!(replaced(&plan(&observed)), [1, 0]);
}

#[test]
fn a_lost_node_goes_although_no_new_one_can_be_made_and_is_in_no_budget() {
    let mut observed = failed(1, 60, 1);
    let retry_at = at(900);
    observed.supply.failure =
        Some(ProvisioningFailure { reason: Reason::ProviderUnreachable, message: String::new(), retry_at });
    assert_eq!(replaced(&plan(&observed)), [1, 0]);
    assert!(says(&plan(&observed), "while no new nodes can be made"));
    let mut observed = failed(1, 60, 1);
    let none = DisruptionBudget {
        nodes: IntOrString::Int(0),
        reasons: vec![],
        effect: DisruptionEffect::Limit,
        schedule: None,
        time_zone: None,
        duration_seconds: None,
    };
    Arc::make_mut(observed.pool.as_mut().unwrap()).spec.disruption.get_or_insert_default().budgets =
        vec![none];
    assert_eq!(replaced(&plan(&observed)), [1, 0]);
}

#[test]
fn nodes_whose_machines_their_provider_ends_go_whatever_the_bound() {
    let mut observed = failed(0, 0, 0);
    observed.supply.machines =
        (0..6).map(|index| machine(&format!("n-{index:03}"), MachineState::Deleting)).collect();
    assert_eq!(replaced(&plan(&observed)), [6, 0]);
}

#[test]
fn every_lost_node_of_a_deleted_pool_goes() {
    let mut observed = failed(6, 60, 0);
    Arc::make_mut(observed.pool.as_mut().unwrap()).metadata.deletion_timestamp = Some(Time(at(600)));
    assert_eq!(replaced(&plan(&observed)), [6, 0]);
}

/// Adds a condition that node-problem-detector sets.
fn deadlocked(mut node: Node) -> Node {
    let condition =
        NodeCondition { type_: "KernelDeadlock".into(), status: "True".into(), ..NodeCondition::default() };
    node.status.as_mut().unwrap().conditions.as_mut().unwrap().push(condition);
    node
}

fn of_agent() -> RepairCondition {
    RepairCondition { type_: "KernelDeadlock".into(), status: ConditionStatus::True, seconds: 60 }
}

#[test]
fn conditions_of_other_agents_count_where_they_are_named_and_no_condition_replaces_nothing() {
    let mut observed = seen(vec![deadlocked(node(0)), unhealthy_node(1, "Unknown")], 700, 700);
    for times in observed.condition_times.0.values_mut() {
        times.insert(health::key(&of_agent()), SignedDuration::from_secs(60));
    }
    let with = |conditions: Vec<RepairCondition>| {
        let mut observed = observed.clone();
        let repair = RepairSpec { conditions, ..RepairSpec::default() };
        Arc::make_mut(observed.pool.as_mut().unwrap()).spec.repair = Some(repair);
        let plan = plan(&observed);
        assert!(with_action(&plan, &NodeAction::Repair).is_empty(), "its kubelet answers");
        with_action(&plan, &NodeAction::Cordon)
    };
    assert_eq!(with(vec![of_agent()]), ["n-000"]);
    assert!(with(vec![]).is_empty());
}

#[test]
fn the_drain_of_an_unhealthy_node_is_cancelled_last() {
    // Their drains began after that of the healthy node.
    let mut nodes = vec![draining(0, 10), deadlocked(draining(1, 20)), draining(2, 30)];
    set_ready(&mut nodes[2], "False");
    let cancelled = |replicas: i32, conditions: Vec<RepairCondition>| {
        let mut observed = seen(nodes.clone(), 100, 100);
        let mut pool = pool(replicas);
        pool.spec.repair = Some(RepairSpec { conditions, ..RepairSpec::default() });
        observed.pool = Some(Arc::new(pool));
        with_action(&plan(&observed), &NodeAction::Uncordon)
    };
    assert_eq!(cancelled(1, vec![of_agent()]), ["n-000"]);
    assert_eq!(cancelled(1, vec![]), ["n-001"], "spec.repair does not say that this is unhealthy");
    assert_eq!(cancelled(3, vec![of_agent()]), ["n-000", "n-001", "n-002"]);
}

/// `node` while it is drained for this reason.
fn leaving(mut node: Node, reason: DisruptionReason) -> Node {
    annotate(&mut node, names::DRAIN_STARTED_ANNOTATION, &at(10).to_string());
    annotate(&mut node, names::DISRUPTION_REASON_ANNOTATION, reason.as_str());
    node.spec.as_mut().unwrap().unschedulable = Some(true);
    node
}

#[test]
fn a_draining_node_is_repaired_when_its_kubelet_has_been_silent_for_long() {
    let one = |status: &str| leaving(unhealthy_node(0, status), DisruptionReason::ScaleDown);
    for (status, now, is_repaired) in
        [("Unknown", 599, false), ("Unknown", 600, true), ("False", 9000, false)]
    {
        let mut observed = seen(vec![one(status), node(1)], now, now);
        observed.pool = Some(Arc::new(pool(1)));
        let plan = plan_with(&observed, &pods([("n-000", vec![pod("db")])]));
        let step = &plan.nodes[0];
        assert_eq!(step.action == NodeAction::Repair, is_repaired, "{status} at {now}: {:?}", step.action);
        let is_drained = matches!(&step.action, NodeAction::Drain(step) if step.evict.len() == 1);
        assert_eq!(is_drained, !is_repaired, "{status} at {now}");
        assert_eq!(step.cause, None, "it keeps the reason that it was let go for");
        if now == 599 {
            assert_eq!(plan.requeue_at, Some(at(600)));
            assert!(
                says(&plan, "node n-000 is unhealthy (Ready is Unknown since"),
                "{:?}",
                plan.repair_waits
            );
        }
    }
    // No drain is cancelled in the place of a new node where the node is gone.
    let plan = plan(&seen(vec![one("Unknown"), node(1)], 600, 600));
    assert_eq!(with_action(&plan, &NodeAction::Repair), ["n-000"]);
    assert_eq!(plan.request.len(), 1);
}

#[test]
fn draining_nodes_that_die_count_against_the_bound_and_go_also_while_no_new_one_can_be_made() {
    let dead = |count: usize| {
        let one = |index| leaving(unhealthy_node(index, "Unknown"), DisruptionReason::ScaleDown);
        let all = (0..10).map(|index| if index < count { one(index) } else { node(index) });
        let mut observed = seen(all.collect(), 700, 700);
        observed.pool = Some(Arc::new(pool(i32::try_from(10 - count).unwrap())));
        observed
    };
    let repaired = |observed: &Observed| with_action(&plan(observed), &NodeAction::Repair).len();
    assert_eq!(repaired(&dead(2)), 2);
    assert_eq!(repaired(&dead(3)), 0);
    assert!(says(&plan(&dead(3)), "3 nodes are unhealthy, and with 7 nodes wanted"));
    let mut failing = dead(2);
    failing.supply.failure = Some(ProvisioningFailure {
        reason: Reason::ProviderUnreachable,
        message: String::new(),
        retry_at: at(900),
    });
    assert_eq!(repaired(&failing), 2);
}

/// The node `n-000`, which is drained because it was unhealthy, and others of a pool of two nodes, at second 700.
fn drained(node: Node, others: impl IntoIterator<Item = Node>) -> Observed {
    let node = leaving(node, DisruptionReason::Repair);
    let mut observed = seen([node].into_iter().chain(others).collect(), 700, 700);
    observed.pool = Some(Arc::new(pool(2)));
    observed
}

#[test]
fn one_whose_machine_its_provider_ends_is_not_uncordoned_when_it_is_well_again() {
    let mut observed = drained(node(0), [node(1), node(2)]);
    assert_eq!(with_action(&plan(&observed), &NodeAction::Uncordon), ["n-000"]);
    observed.supply.duties.drains = ["n-000".to_owned()].into();
    assert!(with_action(&plan(&observed), &NodeAction::Uncordon).is_empty());
}

/// What happens to `n-000` with these pods.
fn action(observed: &Observed, of_node: Vec<Pod>) -> NodeAction {
    plan_with(observed, &pods([("n-000", of_node)])).nodes.remove(0).action
}

#[test]
fn a_node_whose_kubelet_answers_is_drained_and_goes_if_it_stays_unhealthy() {
    let begins = plan(&seen(vec![unhealthy_node(0, "False"), node(1)], 700, 700));
    assert_eq!(with_action(&begins, &NodeAction::Cordon), ["n-000"]);
    assert_eq!(begins.nodes[0].cause, Some(DisruptionReason::Repair));
    assert_eq!(begins.request.len(), 1, "its successor is not waited for");

    let goes_on = drained(unhealthy_node(0, "False"), [node(1), node(2)]);
    let mut asks = pod("db");
    protect_pod(&mut asks);
    let evicts = action(&goes_on, vec![asks]);
    assert!(matches!(&evicts, NodeAction::Drain(step) if step.evict.len() == 1), "{evicts:?}");
    assert_eq!(action(&goes_on, vec![]), NodeAction::Remove);
    // It is no use as the one that is missing.
    let mut failing = drained(unhealthy_node(0, "False"), [node(1)]);
    let retry_at = at(900);
    failing.supply.failure =
        Some(ProvisioningFailure { reason: Reason::ProviderUnreachable, message: String::new(), retry_at });
    assert!(with_action(&plan(&failing), &NodeAction::Uncordon).is_empty());
    // When its kubelet falls silent, too, it goes at once.
    assert_eq!(
        action(&drained(unhealthy_node(0, "Unknown"), [node(1), node(2)]), vec![pod("db")]),
        NodeAction::Repair
    );
}

#[test]
fn the_drain_of_an_unhealthy_node_ends_when_it_recovers_or_a_user_keeps_it() {
    let uncordoned = |observed: &Observed| {
        let plan = plan(observed);
        assert!(plan.request.is_empty(), "{:?}", plan.request);
        with_action(&plan, &NodeAction::Uncordon)
    };
    // Whether or not its successor is there.
    assert_eq!(uncordoned(&drained(node(0), [node(1)])), ["n-000"]);
    assert_eq!(uncordoned(&drained(node(0), [node(1), node(2)])), ["n-000"]);
    let mut kept = unhealthy_node(0, "False");
    annotate(&mut kept, names::SKIP_REPAIR_ANNOTATION, "true");
    assert_eq!(uncordoned(&drained(kept, [node(1), node(2)])), ["n-000"]);
    let mut off = drained(unhealthy_node(0, "False"), [node(1), node(2)]);
    let repair = RepairSpec { conditions: vec![], ..RepairSpec::default() };
    Arc::make_mut(off.pool.as_mut().unwrap()).spec.repair = Some(repair);
    assert_eq!(uncordoned(&off), ["n-000"], "nothing makes a node unhealthy any more");

    assert!(uncordoned(&drained(unhealthy_node(0, "False"), [node(1), node(2)])).is_empty());
    assert!(uncordoned(&drained(deleted(node(0)), [node(1), node(2)])).is_empty(), "it cannot come back");
    let mut unwanted = drained(node(0), [node(1)]);
    Arc::make_mut(unwanted.pool.as_mut().unwrap()).metadata.deletion_timestamp = Some(Time(at(600)));
    assert!(uncordoned(&unwanted).is_empty());
}

#[test]
fn machines_in_the_place_of_nodes_that_recover_were_asked_for_also_where_their_return_is_not_recorded() {
    // Of four nodes three are drained, and three machines are made.
    let with = |nodes: Vec<Node>, machines: Option<i32>| {
        let mut observed = seen(nodes, 600, 600);
        observed.supply.machines = (0..3).map(|number| machine(&slot(number), SOON)).collect();
        let provisioning = ProvisioningStatus { machines, ..ProvisioningStatus::default() };
        let status = NodePoolStatus { provisioning: Some(provisioning), ..NodePoolStatus::default() };
        Arc::make_mut(observed.pool.as_mut().unwrap()).status = Some(status);
        observed
    };
    let drained = (0..3).map(|index| leaving(unhealthy_node(index, "False"), DisruptionReason::Repair));
    let before = with(drained.chain([node(3)]).collect(), Some(4));
    let recorded = facts(&before).remembered(before.pool.as_deref().unwrap()).unwrap().machines;
    assert_eq!(recorded, Some(7));
    // They are back, and the pass that let them come could not write the status.
    let after = plan(&with(nodes(4), recorded));
    assert_eq!((after.stalled, after.withdraw.len()), (None, 3));
    // Those that are deleted do not come back.
    let gone = (0..3).map(|index| deleted(leaving(unhealthy_node(index, "False"), DisruptionReason::Repair)));
    let gone = with(gone.chain([node(3)]).collect(), Some(4));
    assert_eq!(facts(&gone).remembered(gone.pool.as_deref().unwrap()).unwrap().machines, Some(4));
}

#[test]
fn a_node_that_falls_silent_while_it_is_repaired_does_not_come_back_whatever_the_spec_names() {
    let not_ready = RepairCondition { type_: "Ready".into(), status: ConditionStatus::False, seconds: 300 };
    for named in [not_ready, of_agent()] {
        let mut silent = drained(unhealthy_node(0, "Unknown"), [node(1), node(2)]);
        let repair = RepairSpec { conditions: vec![named], ..RepairSpec::default() };
        Arc::make_mut(silent.pool.as_mut().unwrap()).spec.repair = Some(repair);
        assert!(with_action(&plan(&silent), &NodeAction::Uncordon).is_empty());
        assert_eq!(action(&silent, vec![pod("db")]), NodeAction::Repair, "no kubelet ends its pods");
    }
}

#[test]
fn the_drain_of_an_unhealthy_node_has_the_time_of_every_drain_and_is_not_repeated_at_once() {
    let with = |mut observed: Observed, on_timeout: DrainTimeoutAction| {
        let drain = DrainSpec { timeout_seconds: Some(60), on_timeout, ..DrainSpec::default() };
        Arc::make_mut(observed.pool.as_mut().unwrap()).spec.drain = Some(drain);
        observed
    };
    let late = || drained(unhealthy_node(0, "False"), [node(1), node(2)]);
    let forced = action(&with(late(), DrainTimeoutAction::Force), vec![pod("db")]);
    assert!(matches!(&forced, NodeAction::Drain(step) if step.delete.len() == 1), "{forced:?}");
    let given_back = action(&with(late(), DrainTimeoutAction::GiveBack), vec![pod("db")]);
    assert_eq!(given_back, NodeAction::GiveBack);

    let mut rests = unhealthy_node(0, "False");
    annotate(&mut rests, names::GIVEN_BACK_ANNOTATION, &at(690).to_string());
    let at_second = |now| {
        let seen = seen(vec![rests.clone(), node(1)], now, now);
        plan(&with(seen, DrainTimeoutAction::GiveBack))
    };
    let early = at_second(749);
    assert_eq!(early.nodes[0].action, NodeAction::Keep, "it is noted how long it rests");
    assert!(says(&early, "unhealthy node n-000 is not drained again yet"), "{:?}", early.repair_waits);
    assert_eq!(early.requeue_at, Some(at(750)));
    assert_eq!(with_action(&at_second(750), &NodeAction::Cordon), ["n-000"]);
}

#[test]
fn a_node_that_a_user_keeps_is_not_repaired_and_counts_as_unhealthy() {
    let kept = || {
        let mut node = unhealthy_node(0, "Unknown");
        annotate(&mut node, names::SKIP_REPAIR_ANNOTATION, "true");
        node
    };
    let many = |failing: usize| {
        let others =
            (1..10).map(|index| if index < failing { unhealthy_node(index, "Unknown") } else { node(index) });
        plan(&seen([kept()].into_iter().chain(others).collect(), 700, 700))
    };
    let alone = many(1);
    assert!(with_action(&alone, &NodeAction::Repair).is_empty() && alone.request.is_empty());
    assert!(says(
        &alone,
        "unhealthy node n-000 is not replaced: it has the annotation tandem.dev/skip-repair"
    ));
    assert_eq!(with_action(&many(2), &NodeAction::Repair), ["n-001"]);
    assert!(with_action(&many(3), &NodeAction::Repair).is_empty());
    assert!(says(&many(3), "3 nodes are unhealthy"), "what keeps the others comes first");
    // Also while it leaves.
    let mut leaves = seen(vec![leaving(kept(), DisruptionReason::ScaleDown)], 700, 700);
    leaves.pool = Some(Arc::new(pool(0)));
    let step = plan_with(&leaves, &pods([("n-000", vec![pod("db")])])).nodes.remove(0).action;
    assert!(matches!(&step, NodeAction::Drain(step) if step.evict.len() == 1), "{step:?}");
}

#[test]
fn a_deleted_node_whose_kubelet_is_silent_goes_when_its_machine_is_off() {
    let mut node = deleted(draining(0, 10));
    set_ready(&mut node, "Unknown");
    node.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].last_transition_time = Some(Time(at(0)));
    let of_node = pods([("n-000", vec![pod("db")])]);
    let action =
        |node: &Node, now| plan_with(&seen(vec![node.clone()], now, now), &of_node).nodes.remove(0).action;
    let when_unwanted = |node: &Node, now| {
        let mut observed = seen(vec![node.clone()], now, now);
        observed.pool = Some(Arc::new(pool(0)));
        plan_with(&observed, &of_node).nodes.remove(0).action
    };
    assert!(matches!(action(&node, 599), NodeAction::Drain(DrainStep { evict, .. }) if evict.len() == 1));
    assert_eq!(action(&node, 600), NodeAction::EndMachine);
    // Where most nodes of the cluster are not Ready, it is the control plane that does not hear them.
    let mut outage = seen(vec![node.clone()], 600, 600);
    outage.cluster_readiness = ClusterReadiness { not_ready: 12, all: 20 };
    let step = plan_with(&outage, &of_node).nodes.remove(0).action;
    assert!(matches!(&step, NodeAction::Drain(DrainStep { evict, .. }) if evict.len() == 1), "{step:?}");
    // Nothing runs there any more, so no budget is asked.
    let taint = Taint { key: names::OUT_OF_SERVICE_TAINT.into(), ..Taint::default() };
    node.spec.as_mut().unwrap().taints = Some(vec![taint]);
    assert!(matches!(action(&node, 600), NodeAction::Drain(DrainStep { delete, .. }) if delete.len() == 1));
    // A node that only leaves can still come back until then, and nothing is known of the machine of one that was not made for the pool.
    let mut leaving = draining(0, 10);
    leaving.status.clone_from(&node.status);
    assert!(
        matches!(when_unwanted(&leaving, 599), NodeAction::Drain(DrainStep { evict, .. }) if evict.len() == 1)
    );
    assert_eq!(when_unwanted(&leaving, 600), NodeAction::Repair);
    node.spec.as_mut().unwrap().taints = None;
    node.metadata.annotations.as_mut().unwrap().remove(names::TEMPLATE_HASH_ANNOTATION);
    assert!(matches!(action(&node, 600), NodeAction::Drain(DrainStep { evict, .. }) if evict.len() == 1));
}
