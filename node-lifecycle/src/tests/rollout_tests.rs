//! Which nodes go in a rollout, and how many.

use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use shared_crds::names;
use shared_crds::v1alpha1::{
    ClusterApiProvider, DrainSpec, DrainTimeoutAction, NodeTaint, ProtectedNodes, ProviderSpec, TaintEffect,
};

use super::*;
use crate::testing::{
    ALWAYS, SOON, actions, annotate, at, draining, facts, machine, node, observed, plan, plan_with, pod,
    pods, pool, protect_pod, set_ready, starting, with_action,
};
use crate::{NodeAction, Plan};

/// A pool whose template has changed since [`node`] was made, and is followed by `spec`.
pub(super) fn changed(replicas: i32, spec: RolloutSpec) -> NodePool {
    let mut pool = pool(replicas);
    pool.spec.rollout = Some(spec);
    pool.spec.template.spec.capacity.insert("cpu".into(), Quantity("8".into()));
    pool
}

pub(super) fn surge(surge: i32, unavailable: i32) -> RolloutSpec {
    RolloutSpec {
        max_surge: IntOrString::Int(surge),
        max_unavailable: IntOrString::Int(unavailable),
        ..RolloutSpec::default()
    }
}

/// `node` as one of the changed template.
pub(super) fn new(mut node: Node) -> Node {
    let hash = changed(1, RolloutSpec::default()).spec.template_hash().unwrap();
    annotate(&mut node, names::TEMPLATE_HASH_ANNOTATION, &hash);
    node
}

pub(super) fn leaves(mut node: Node, cause: DisruptionReason) -> Node {
    annotate(&mut node, names::DISRUPTION_REASON_ANNOTATION, cause.as_str());
    node
}

pub(super) fn cordoned(plan: &Plan) -> usize {
    with_action(plan, &NodeAction::Cordon).len()
}

/// Requests and cordons of a plan for these nodes.
fn step(pool: NodePool, nodes: Vec<Node>) -> (usize, usize) {
    let plan = plan(&observed(pool, nodes));
    (plan.request.len(), cordoned(&plan))
}

#[test]
fn nodes_are_made_first_and_go_as_new_ones_become_available() {
    let old = |count: usize| (0..count).map(node);
    let fresh = |count: usize| (10..10 + count).map(node).map(new);
    let not_ready = || new(starting(20));
    let going = || leaves(draining(30, 90), DisruptionReason::Rollout);
    for (what, spec, nodes, expected) in [
        ("one more is made", surge(1, 0), old(3).collect::<Vec<_>>(), (1, 0)),
        ("all at once", surge(3, 0), old(3).collect(), (3, 0)),
        ("not more than there are old ones", surge(5, 0), old(1).chain(fresh(2)).collect(), (1, 0)),
        ("the new one is not Ready", surge(1, 0), old(3).chain([not_ready()]).collect(), (0, 0)),
        ("the new one is Ready", surge(1, 0), old(3).chain(fresh(1)).collect(), (0, 1)),
        (
            "the old one is still there",
            surge(1, 0),
            old(2).chain(fresh(1)).chain([going()]).collect(),
            (0, 0),
        ),
        ("the old one is gone", surge(1, 0), old(2).chain(fresh(1)).collect(), (1, 0)),
        (
            "two more, one is still there",
            surge(2, 0),
            old(2).chain(fresh(1)).chain([going()]).collect(),
            (1, 0),
        ),
        ("the last one", surge(1, 0), old(1).chain(fresh(3)).collect(), (0, 1)),
        ("none more", surge(0, 1), old(3).collect(), (0, 1)),
        ("none more, and it is still there", surge(0, 1), old(2).chain([going()]).collect(), (0, 0)),
        ("none more, and it is gone", surge(0, 1), old(2).collect(), (1, 0)),
        ("none more, and its successor starts", surge(0, 1), old(2).chain([not_ready()]).collect(), (0, 0)),
        ("none more, and its successor is Ready", surge(0, 1), old(2).chain(fresh(1)).collect(), (0, 1)),
        ("both", surge(1, 1), old(3).collect(), (1, 1)),
        ("all are new", surge(1, 0), fresh(3).collect(), (0, 0)),
    ] {
        assert_eq!(step(changed(3, spec), nodes), expected, "{what}");
    }
}

#[test]
fn without_room_for_one_more_one_goes_first() {
    let mut full = changed(3, surge(1, 0));
    full.spec.max_replicas = 3;
    assert_eq!(step(full.clone(), (0..3).map(node).collect()), (0, 1), "maxReplicas is reached");
    let going = leaves(draining(2, 90), DisruptionReason::Rollout);
    assert_eq!(step(full.clone(), vec![node(0), node(1), going]), (0, 0), "its machine is still there");
    assert_eq!(step(full, vec![node(0), node(1)]), (1, 0));

    let failed = |reason, extra: Vec<Node>| {
        let mut seen = observed(changed(3, surge(1, 0)), (0..3).map(node).chain(extra));
        let message = String::new();
        seen.supply.failure =
            Some(crate::input::supply::ProvisioningFailure { reason, message, retry_at: at(500) });
        let plan = plan(&seen);
        (plan.request.len(), cordoned(&plan))
    };
    assert_eq!(failed(Reason::QuotaExceeded, vec![]), (0, 1), "the provider's quota is used up");
    assert_eq!(failed(Reason::QuotaExceeded, vec![new(starting(9))]), (0, 0), "there is one more");
    assert_eq!(failed(Reason::ProviderUnreachable, vec![]), (0, 0), "none could be made in its place");
}

#[test]
fn a_node_that_is_too_many_and_does_not_go_holds_up_no_rollout_after_a_minute() {
    let too_many = |since: i64| leaves(draining(9, since), DisruptionReason::ScaleDown);
    let step = |pool: NodePool, nodes: Vec<Node>| {
        let mut seen = observed(pool, nodes);
        seen.recent = pods([("n-009", vec![pod("a")])]);
        let plan = plan(&seen);
        (plan.request.len(), cordoned(&plan))
    };
    for (what, surge, nodes, expected) in [
        ("a minute has passed", surge(1, 0), vec![node(0), node(1), too_many(40)], (0, 1)),
        ("not yet", surge(1, 0), vec![node(0), node(1), too_many(41)], (0, 0)),
        ("there is one more place", surge(2, 0), vec![node(0), node(1), too_many(40)], (1, 0)),
        ("the other one is gone", surge(1, 0), vec![node(0), too_many(40)], (1, 0)),
        ("its successor starts", surge(1, 0), vec![node(0), new(starting(1)), too_many(40)], (0, 0)),
        ("its successor is Ready", surge(1, 0), vec![node(0), new(node(1)), too_many(40)], (0, 1)),
        (
            "one is being replaced",
            surge(1, 0),
            vec![node(0), leaves(draining(1, 90), DisruptionReason::Rollout), too_many(40)],
            (0, 0),
        ),
        (
            "there is one more already",
            surge(1, 0),
            vec![node(0), node(1), new(node(2)), too_many(40)],
            (0, 1),
        ),
    ] {
        assert_eq!(step(changed(2, surge), nodes), expected, "{what}");
    }
    // Pods that end as they should are waited for, however long that takes.
    let with_pods = |is_ending: bool| {
        let mut pod = pod("a");
        pod.metadata.deletion_timestamp = is_ending.then(|| Time(at(500)));
        let mut seen = observed(changed(2, surge(1, 0)), [node(0), node(1), too_many(0)]);
        seen.recent = pods([("n-009", vec![pod])]);
        cordoned(&plan(&seen))
    };
    assert_eq!((with_pods(true), with_pods(false)), (0, 1));
    // One whose pods are not known may be empty, and has the time of an empty one.
    for (since, expected) in [(-199, 0), (-200, 1)] {
        let seen = observed(changed(2, surge(1, 0)), [node(0), node(1), too_many(since)]);
        assert_eq!(cordoned(&plan(&seen)), expected, "{since}");
    }
}

#[test]
fn nothing_is_taken_away_for_a_rollout_while_none_can_be_made() {
    let mut seen = observed(changed(3, surge(0, 1)), (0..3).map(node));
    seen.supply.is_unknown = true;
    assert_eq!(cordoned(&plan(&seen)), 0);
}

#[test]
fn a_node_that_never_started_goes_at_once_and_a_broken_one_while_new_ones_work() {
    let broken = |index| {
        let mut broken = node(index);
        set_ready(&mut broken, "Unknown");
        broken
    };
    assert_eq!(step(changed(2, surge(1, 0)), vec![node(0), node(1), starting(2)]), (0, 1));
    let fresh = || new(node(10));
    // The third one is broken: there are as many available ones as wanted without it, and never one more.
    assert_eq!(step(changed(3, surge(1, 0)), vec![node(0), node(1), broken(2), fresh()]), (0, 1));
    let names = with_action(
        &plan(&observed(changed(3, surge(1, 0)), [node(0), node(1), broken(2), fresh()])),
        &NodeAction::Cordon,
    );
    assert_eq!(names, ["n-002"], "the broken one goes first");
    // All are broken, the new one too: something else is wrong.
    let broken_new = new(broken(10));
    assert_eq!(step(changed(3, surge(1, 0)), vec![broken(0), broken(1), broken(2), broken_new]), (0, 0));
}

#[test]
fn a_new_node_is_available_after_its_time_and_without_startup_taints() {
    let taint = NodeTaint { key: "agent".into(), value: None, effect: TaintEffect::NoExecute };
    let mut pool = changed(1, RolloutSpec { min_ready_seconds: Some(60), ..surge(1, 0) });
    pool.spec.template.spec.startup_taints = vec![taint.clone()];
    let hash = pool.spec.template_hash().unwrap();
    let ready_since = |second: i64, taints: Option<Vec<Taint>>| {
        let mut node = node(1);
        annotate(&mut node, names::TEMPLATE_HASH_ANNOTATION, &hash);
        let status = node.status.as_mut().unwrap();
        status.conditions.as_mut().unwrap()[0].last_transition_time = Some(Time(at(second)));
        node.spec.as_mut().unwrap().taints = taints;
        node
    };
    let seen = |new: Node| observed(pool.clone(), [node(0), new]);
    let waits = plan(&seen(ready_since(50, None)));
    assert_eq!((cordoned(&waits), waits.requeue_at), (0, Some(at(110))));
    assert_eq!(cordoned(&plan(&seen(ready_since(40, None)))), 1);
    assert_eq!(
        cordoned(&plan(&seen(ready_since(40, Some(vec![Taint::from(&taint)]))))),
        0,
        "it is not let in yet"
    );
}

#[test]
fn a_new_node_is_available_when_its_devices_are_there() {
    let mut pool = changed(1, surge(1, 0));
    let capacity = &mut pool.spec.template.spec.capacity;
    for (name, amount) in [("example.com/gpu", "2"), ("example.com/none", "0"), ("example.com/kept", "1")] {
        capacity.insert(name.into(), Quantity(amount.into()));
    }
    capacity.insert("hugepages-2Mi".into(), Quantity("1Gi".into()));
    pool.spec.template.spec.reserved.insert("example.com/kept".into(), Quantity("1".into()));
    let hash = pool.spec.template_hash().unwrap();
    let with = |devices: &[(&str, &str)]| {
        let mut node = node(1);
        annotate(&mut node, names::TEMPLATE_HASH_ANNOTATION, &hash);
        let allocatable = node.status.as_mut().unwrap().allocatable.as_mut().unwrap();
        allocatable.extend(devices.iter().map(|(name, amount)| ((*name).into(), Quantity((*amount).into()))));
        node
    };
    for (what, devices, goes) in [
        ("its plugin has not registered", &[][..], 0),
        ("its kubelet knows the plugin and no device", &[("example.com/gpu", "0")], 0),
        ("one of two is there", &[("example.com/gpu", "1")], 1),
    ] {
        assert_eq!(step(pool.clone(), vec![node(0), with(devices)]), (0, goes), "{what}");
    }
    // The old ones were not promised any: they work. The time since when a node is Ready does not make up for them either.
    let criteria = OutdatedCriteria::of(&pool, at(100));
    let mut old = [Member::read(&std::sync::Arc::new(node(0)), at(100), ALWAYS)];
    criteria.assess(&mut old);
    let state = criteria.outdated_node(&old[0]);
    assert_eq!(state.unwrap().state, crate::assess::outdated::OutdatedState::Working);
    pool.spec.rollout = Some(RolloutSpec { min_ready_seconds: Some(1), ..surge(1, 0) });
    assert_eq!(step(pool, vec![node(0), with(&[])]), (0, 0));
}

#[test]
fn a_template_that_is_reverted_brings_back_what_is_being_drained() {
    let going = leaves(draining(2, 90), DisruptionReason::Rollout);
    // Of the three nodes of the present template, one is being drained; the fourth is of the template in between.
    let plan = plan(&observed(pool(3), [node(0), node(1), going, new(node(10))]));
    assert_eq!(with_action(&plan, &NodeAction::Uncordon), ["n-002"]);
    assert_eq!((plan.request.len(), cordoned(&plan)), (0, 0));
    let plan = testing_plan(pool(3), [node(0), node(1), node(2), new(node(10))]);
    assert_eq!(with_action(&plan, &NodeAction::Cordon), ["n-010"], "the one in between goes then");
}

fn testing_plan<const N: usize>(pool: NodePool, nodes: [Node; N]) -> Plan {
    plan(&observed(pool, nodes))
}

#[test]
fn a_drain_for_a_rollout_is_not_cancelled_to_have_more_nodes() {
    let going = leaves(draining(2, 90), DisruptionReason::Rollout);
    let plan = plan(&observed(changed(5, surge(1, 0)), [node(0), node(1), going]));
    assert!(with_action(&plan, &NodeAction::Uncordon).is_empty());
    assert_eq!(
        plan.request.len(),
        3,
        "five and one more, less those that are there, the leaving one included"
    );
}

#[test]
fn growth_waits_for_no_machine_that_does_not_end_where_a_rollout_only_waits() {
    use DisruptionReason::{Rollout, ScaleDown};
    // Three of six nodes stay, and four leave.
    let requested = |cause, since: i64, is_deleted: bool, only_waits: bool| {
        let staying = (0..3).map(node).map(|it| if only_waits { asks(it) } else { it });
        let leaving = (10..14).map(|index| {
            let mut node = leaves(draining(index, since), cause);
            node.metadata.deletion_timestamp = is_deleted.then(|| Time(at(since)));
            node
        });
        plan(&observed(changed(6, surge(1, 0)), staying.chain(leaving))).request.len()
    };
    for (what, cause, since, is_deleted, only_waits, expected) in [
        ("they were too many", ScaleDown, 50, true, true, 3),
        ("and the rollout goes on", ScaleDown, 50, true, false, 3),
        ("their machines are ending", Rollout, -199, true, true, 0),
        ("their machines should have ended", Rollout, -200, true, true, 3),
        ("and others would follow them", Rollout, -200, true, false, 0),
        ("their nodes are there", Rollout, -200, false, true, 0),
    ] {
        assert_eq!(requested(cause, since, is_deleted, only_waits), expected, "{what}");
    }
}

#[test]
fn on_delete_replaces_nothing_and_gives_old_nodes_up_first() {
    let on_delete = RolloutSpec { type_: RolloutType::OnDelete, ..RolloutSpec::default() };
    assert_eq!(step(changed(2, on_delete.clone()), vec![node(0), node(1)]), (0, 0));
    let plan = plan(&observed(changed(1, on_delete), [node(0), new(node(1))]));
    assert_eq!(with_action(&plan, &NodeAction::Cordon), ["n-000"]);
    assert_eq!(plan.nodes[0].cause, Some(DisruptionReason::ScaleDown));
}

#[test]
fn nodes_are_replaced_that_are_too_old_or_older_than_a_time() {
    let old = |spec: RolloutSpec| {
        let mut pool = pool(1);
        pool.spec.rollout = Some(spec);
        let plan = testing_plan(
            pool,
            [node(0), {
                let mut young = node(1);
                young.metadata.creation_timestamp = Some(Time(at(95)));
                young
            }],
        );
        let cause = plan.nodes.iter().find(|step| step.action == NodeAction::Cordon).map(|step| step.cause);
        (with_action(&plan, &NodeAction::Cordon), cause.flatten(), plan.requeue_at)
    };
    let age = |seconds| RolloutSpec { max_age_seconds: Some(seconds), ..RolloutSpec::default() };
    assert_eq!(old(age(100)), (vec!["n-000".to_owned()], Some(DisruptionReason::Expiry), Some(at(195))));
    let after = |second| RolloutSpec { after: Some(Time(at(second))), ..RolloutSpec::default() };
    assert_eq!(old(after(90)), (vec!["n-000".to_owned()], Some(DisruptionReason::Rollout), None));
    let young = |spec: RolloutSpec| {
        let mut pool = pool(1);
        pool.spec.rollout = Some(spec);
        let plan = testing_plan(pool, [node(0)]);
        (plan.request.len(), plan.requeue_at)
    };
    assert_eq!(young(age(101)), (0, Some(at(101))));
    assert_eq!(young(after(120)), (0, Some(at(120))), "the time has not come");
}

#[test]
fn nodes_of_others_and_machines_that_the_provider_replaces_are_not_rolled() {
    let mut foreign = node(0);
    foreign.metadata.annotations.as_mut().unwrap().remove(names::TEMPLATE_HASH_ANNOTATION);
    assert_eq!(step(changed(1, surge(1, 0)), vec![foreign]), (0, 0));
    let mut sized = changed(1, surge(1, 0));
    sized.spec.provider =
        ProviderSpec { cluster_api: Some(ClusterApiProvider::default()), ..ProviderSpec::default() };
    let criteria = OutdatedCriteria::of(&sized, at(100));
    let member = Member::read(&std::sync::Arc::new(node(0)), at(100), ALWAYS);
    assert_eq!(criteria.outdated(&member), None);
}

#[test]
fn a_node_that_a_user_wants_replaced_is_as_one_that_is_out_of_date() {
    let asked = |value: &str| {
        let mut node = node(0);
        annotate(&mut node, names::REPLACE_ANNOTATION, value);
        node
    };
    let mut rolls = pool(2);
    rolls.spec.rollout = Some(surge(1, 0));
    assert_eq!(step(rolls.clone(), vec![asked("false"), node(1)]), (0, 0));
    assert_eq!(step(rolls.clone(), vec![asked("true"), node(1)]), (1, 0), "one more is made first");
    assert_eq!(facts(&observed(rolls.clone(), [asked("true"), node(1)])).up_to_date, 1);
    let goes = plan(&observed(rolls.clone(), [asked("true"), node(1), node(2)]));
    assert_eq!(with_action(&goes, &NodeAction::Cordon), ["n-000"]);
    assert_eq!(goes.nodes[0].cause, Some(DisruptionReason::Rollout));

    let mut protected = asked("true");
    annotate(&mut protected, shared_crds::protection::DO_NOT_DISRUPT, "true");
    let kept = plan(&observed(rolls.clone(), [protected, node(1), node(2)]));
    assert_eq!((cordoned(&kept), kept.held.len()), (0, 1));
    let none = serde_json::json!({ "budgets": [{ "nodes": 0, "reasons": ["Rollout"] }] });
    rolls.spec.disruption = Some(serde_json::from_value(none).unwrap());
    let held = facts(&observed(rolls.clone(), [asked("true"), node(1)]));
    assert!(held.rollout.unwrap().waits.unwrap().why.starts_with("spec.disruption.budgets[0]"));
    // Nothing is known of the machine of a node that was not made for the pool.
    rolls.spec.disruption = None;
    let mut foreign = asked("true");
    foreign.metadata.annotations.as_mut().unwrap().remove(names::TEMPLATE_HASH_ANNOTATION);
    assert_eq!(step(rolls, vec![foreign, node(1)]), (0, 0));
}

#[test]
fn a_node_that_asks_to_be_left_alone_is_not_replaced_and_another_one_is() {
    let mut asks = node(0);
    annotate(&mut asks, shared_crds::protection::DO_NOT_DISRUPT, "true");
    let seen = observed(changed(2, surge(1, 0)), [asks.clone(), node(1), new(node(2))]);
    let empty = pods([("n-001", vec![])]);
    assert_eq!(with_action(&plan_with(&seen, &empty), &NodeAction::Cordon), ["n-001"]);
    let plan = plan(&observed(changed(1, surge(1, 0)), [asks, new(node(2))]));
    assert_eq!(cordoned(&plan), 0);
    assert_eq!(plan.held.len(), 1, "and it is said why");
}

/// `node` with an annotation that protects it.
pub(super) fn asks(mut node: Node) -> Node {
    annotate(&mut node, shared_crds::protection::DO_NOT_DISRUPT, "true");
    node
}

#[test]
fn no_node_is_made_for_one_that_asks_to_be_left_alone() {
    let two = || changed(2, surge(2, 0));
    assert_eq!(step(two(), vec![asks(node(0)), asks(node(1))]), (0, 0));
    assert_eq!(step(two(), vec![asks(node(0)), node(1)]), (1, 0));
    let mut last = two();
    last.spec.drain = Some(DrainSpec { protected_nodes: ProtectedNodes::Last, ..DrainSpec::default() });
    assert_eq!(step(last, vec![asks(node(0)), asks(node(1))]), (2, 0), "they go in the end");
    // What pods ask for may be found in the very pass.
    let mut asking = pod("a");
    protect_pod(&mut asking);
    let seen = observed(two(), [node(0), node(1), new(node(2))]);
    let found = plan_with(&seen, &pods([("n-000", vec![asking.clone()]), ("n-001", vec![asking])]));
    assert_eq!((found.request.len(), cordoned(&found), found.protected.len()), (0, 0, 2));
    let free = plan_with(&seen, &pods([("n-000", vec![pod("a")]), ("n-001", vec![pod("b")])]));
    assert_eq!((free.request.len(), cordoned(&free)), (1, 1));
}

#[test]
fn the_facts_say_how_many_nodes_may_go_and_why_none_may() {
    let of = |nodes: Vec<Node>| {
        let mut seen = observed(changed(2, surge(1, 0)), nodes);
        seen.recent = pods([("n-001", vec![pod("a")])]);
        let rollout = facts(&seen).rollout.unwrap();
        (rollout.record.unwrap().may_go_nodes.unwrap(), rollout.waits)
    };
    assert_eq!(of(vec![node(0), node(1)]), (2, None));
    assert_eq!(of(vec![asks(node(0)), node(1)]), (1, None));
    let (none, waits) = of(vec![asks(node(0)), asks(node(1))]);
    let waits = waits.unwrap();
    assert_eq!((none, waits.reason), (0, Reason::WaitsForProtected));
    let why = "node n-000 has the annotation karpenter.sh/do-not-disrupt";
    assert!(waits.why.starts_with(why) && waits.why.ends_with(", and 1 more node asks to be left alone"));
    // One that is being drained goes, for a minute.
    let going = |since: i64| leaves(draining(1, since), DisruptionReason::Rollout);
    assert_eq!(of(vec![asks(node(0)), going(41)]), (1, None));
    assert_eq!(of(vec![asks(node(0)), going(40)]).0, 0);
    let (none, waits) = of(vec![going(40)]);
    assert_eq!((none, waits.unwrap().reason), (0, Reason::WaitsForDrain), "nothing is refused");
    // The machine of one that is empty has longer to end.
    let mut ending = going(40);
    ending.metadata.deletion_timestamp = Some(Time(at(50)));
    assert_eq!(of(vec![asks(node(0)), ending]), (1, None));
}

#[test]
fn a_node_that_was_given_back_rests_and_keeps_its_place_in_the_rollout() {
    let plan_with = |spec: RolloutSpec| {
        let mut pool = changed(2, spec);
        pool.spec.drain = Some(DrainSpec {
            timeout_seconds: Some(60),
            on_timeout: DrainTimeoutAction::GiveBack,
            ..DrainSpec::default()
        });
        let mut rests = node(0);
        annotate(&mut rests, names::GIVEN_BACK_ANNOTATION, &at(90).to_string());
        let mut seen = observed(pool, [rests, node(1), new(node(2))]);
        seen.times = crate::input::observed_time::NodeTimes::default();
        plan(&seen)
    };
    assert_eq!(cordoned(&plan_with(surge(1, 0))), 0, "one at a time");
    let two = plan_with(surge(1, 1));
    assert_eq!(with_action(&two, &NodeAction::Cordon), ["n-001"]);
    assert!(
        !actions(&two).iter().any(|(_, action)| *action == NodeAction::Tidy),
        "it is not drained at once again"
    );
}

#[test]
fn after_its_rest_a_node_that_was_given_back_lets_another_one_go_first() {
    let given_back = |index: usize, second: i64| {
        let mut node = node(index);
        annotate(&mut node, names::GIVEN_BACK_ANNOTATION, &at(second).to_string());
        node
    };
    let of = |nodes: Vec<Node>| {
        let mut pool = changed(3, surge(0, 1));
        pool.spec.drain = Some(DrainSpec {
            timeout_seconds: Some(10),
            on_timeout: DrainTimeoutAction::GiveBack,
            ..DrainSpec::default()
        });
        with_action(&plan(&observed(pool, nodes)), &NodeAction::Cordon)
    };
    assert_eq!(of(vec![node(0), given_back(1, 30), given_back(2, 40)]), ["n-000"]);
    assert_eq!(of(vec![given_back(0, 50), given_back(1, 30), given_back(2, 40)]), ["n-001"]);
}

#[test]
fn the_new_node_is_not_withdrawn_for_being_one_too_many() {
    let mut seen = observed(changed(1, surge(1, 0)), [node(0)]);
    seen.supply.machines = vec![machine("n-001", SOON)];
    let plan = plan(&seen);
    assert!(plan.withdraw.is_empty() && plan.request.is_empty());
    let with_pod = plan_with(&seen, &pods([("n-000", vec![pod("a")])]));
    assert_eq!(cordoned(&with_pod), 0);
}

#[test]
fn the_facts_say_how_far_it_has_come_and_when_it_is_stuck() {
    let mut pool = changed(2, surge(1, 0));
    pool.spec.provisioning_timeout_seconds = 86_400;
    let seen = observed(pool.clone(), [node(0), node(1), new(starting(2))]);
    let begun = facts(&seen).rollout.unwrap();
    let record = begun.record.clone().unwrap();
    assert_eq!((begun.outdated, begun.is_stuck, record.available_nodes), (2, false, 0));
    assert_eq!(record.progress_time, Time(at(100)));
    pool.status.get_or_insert_default().rollout = Some(record);
    for (now, is_stuck, ready) in [(1899, false, false), (1900, true, false), (1900, false, true)] {
        let third = if ready { node(2) } else { starting(2) };
        let mut seen = observed(pool.clone(), [node(0), node(1), new(third)]);
        seen.now = at(now);
        let found = facts(&seen).rollout.unwrap();
        assert_eq!(found.is_stuck, is_stuck, "{now} {ready}");
    }
    assert_eq!(facts(&observed(self::pool(1), [node(0)])).rollout, None);
}

/// Not Ready, and asks to be left alone.
fn protected_and_broken(index: usize) -> Node {
    let mut node = node(index);
    set_ready(&mut node, "Unhealthy");
    annotate(&mut node, shared_crds::protection::DO_NOT_DISRUPT, "true");
    node
}

#[test]
fn no_working_node_goes_in_the_place_of_a_broken_one_that_stays() {
    let nodes = [node(0), node(1), protected_and_broken(2), new(node(10))];
    let plan = testing_plan(changed(3, surge(1, 0)), nodes);
    assert_eq!(cordoned(&plan), 0, "{:?}", actions(&plan));
    assert_eq!(plan.held.len(), 1);
}

#[test]
fn a_node_that_stays_keeps_no_other_one_when_there_are_too_many() {
    let mut asks = node(0);
    annotate(&mut asks, shared_crds::protection::DO_NOT_DISRUPT, "true");
    let of = |replicas: i32, nodes: Vec<Node>| plan(&observed(changed(replicas, surge(1, 0)), nodes));
    let down = of(0, vec![asks.clone(), new(node(1))]);
    assert_eq!(with_action(&down, &NodeAction::Cordon), ["n-001"]);
    let after = of(0, vec![asks.clone(), new(draining(1, 90)), new(draining(2, 90))]);
    assert!(with_action(&after, &NodeAction::Uncordon).is_empty() && after.request.is_empty());
    let fewer = of(4, [asks].into_iter().chain((1..6).map(node).map(new)).collect());
    assert_eq!(cordoned(&fewer), 1);
}

#[test]
fn nothing_goes_for_a_template_of_which_no_node_can_be_made() {
    let mut pool = changed(2, surge(0, 1));
    pool.spec.template.spec.reserved.insert("cpu".into(), Quantity("99".into()));
    let plan = testing_plan(pool, [node(0), starting(1)]);
    assert!(plan.stalled.is_some());
    assert_eq!(cordoned(&plan), 0, "{:?}", actions(&plan));
}

#[test]
fn a_failure_that_is_over_holds_up_nothing() {
    let cordons_after = |retry_at: i64| {
        let mut seen = observed(changed(2, surge(0, 1)), [node(0), node(1)]);
        let (reason, message) = (Reason::ProviderUnreachable, String::new());
        seen.supply.failure =
            Some(crate::input::supply::ProvisioningFailure { reason, message, retry_at: at(retry_at) });
        cordoned(&plan(&seen))
    };
    assert_eq!((cordons_after(101), cordons_after(100)), (0, 1));
}

#[test]
fn nodes_whose_hash_says_nothing_about_the_present_template_are_not_replaced() {
    for hash in ["0123456789abcdef", "v5-0123456789abcdef"] {
        let mut other = node(0);
        annotate(&mut other, names::TEMPLATE_HASH_ANNOTATION, hash);
        let plan = testing_plan(changed(1, surge(1, 0)), [other]);
        assert!(plan.request.is_empty(), "{hash}");
        assert_eq!(plan.nodes[0].action, NodeAction::Keep, "{hash}: the version that wrote it may come back");
    }
}

#[test]
fn a_new_taint_that_ends_pods_reaches_no_live_node() {
    let mut pool = pool(1);
    pool.spec.rollout = Some(surge(1, 0));
    let taint = NodeTaint { key: "e".into(), value: None, effect: TaintEffect::NoExecute };
    pool.spec.template.spec.taints = vec![taint];
    let plan = testing_plan(pool, [node(0)]);
    assert_eq!((plan.request.len(), actions(&plan)), (1, vec![]));
}

#[test]
fn a_drain_of_too_many_nodes_is_cancelled_also_for_one_that_is_out_of_date() {
    let going = leaves(draining(1, 90), DisruptionReason::ScaleDown);
    let of = |replicas: i32| testing_plan(changed(replicas, surge(1, 0)), [node(0), going.clone()]);
    assert_eq!(with_action(&of(2), &NodeAction::Uncordon), ["n-001"]);
    assert!(with_action(&of(1), &NodeAction::Uncordon).is_empty(), "it is no use as the one more");
}

#[test]
fn a_node_that_starts_is_not_too_old_and_a_clock_that_is_ahead_holds_up_nothing() {
    let mut pool = pool(1);
    pool.spec.rollout = Some(RolloutSpec { max_age_seconds: Some(60), ..RolloutSpec::default() });
    assert_eq!(cordoned(&testing_plan(pool, [starting(0)])), 0);
    let ready_since = |second: i64| {
        let mut node = new(node(1));
        let status = node.status.as_mut().unwrap();
        status.conditions.as_mut().unwrap()[0].last_transition_time = Some(Time(at(second)));
        node
    };
    assert_eq!(step(changed(1, surge(1, 0)), vec![node(0), ready_since(5000)]), (0, 1));
    // Its annotation says that it was Ready at second 5.
    let patient = |seconds| RolloutSpec { min_ready_seconds: Some(seconds), ..surge(1, 0) };
    assert_eq!(step(changed(1, patient(60)), vec![node(0), ready_since(5000)]), (0, 1));
    assert_eq!(step(changed(1, patient(99)), vec![node(0), ready_since(5000)]), (0, 0));
}

#[test]
fn a_rollout_to_another_template_has_its_time_again() {
    let mut pool = changed(1, surge(1, 0));
    let stuck = shared_crds::v1alpha1::RolloutStatus {
        template_hash: "v2-before".into(),
        outdated_nodes: 1,
        may_go_nodes: None,
        available_nodes: 0,
        progress_time: Time(at(-5000)),
    };
    let found = |status: shared_crds::v1alpha1::RolloutStatus| {
        pool.status.get_or_insert_default().rollout = Some(status);
        let rollout = facts(&observed(pool.clone(), [node(0)])).rollout.unwrap();
        (rollout.is_stuck, rollout.record.unwrap().progress_time.0)
    };
    let mut found = found;
    assert_eq!(found(stuck.clone()), (false, at(100)));
    let template_hash = changed(1, surge(1, 0)).spec.template_hash().unwrap();
    let same = shared_crds::v1alpha1::RolloutStatus { template_hash, ..stuck };
    assert_eq!(found(same.clone()), (true, at(-5000)));
    let fewer = shared_crds::v1alpha1::RolloutStatus { outdated_nodes: 2, ..same.clone() };
    assert_eq!(found(fewer), (false, at(100)));
    let waited = shared_crds::v1alpha1::RolloutStatus { may_go_nodes: Some(0), ..same.clone() };
    assert_eq!(found(waited), (false, at(100)), "what waited begins anew");
    let set_back = shared_crds::v1alpha1::RolloutStatus { progress_time: Time(at(3700)), ..same.clone() };
    assert_eq!(found(set_back), (false, at(100)), "a time to come is not waited for");
    let more = shared_crds::v1alpha1::RolloutStatus { outdated_nodes: 0, ..same };
    assert_eq!(found(more), (true, at(-5000)), "one that has become too old is no progress");
}
