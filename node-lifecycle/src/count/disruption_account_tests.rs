//! What the budgets of `spec.disruption` hold up, and what they do not.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};
use shared_crds::names;
use shared_crds::v1alpha1::RolloutSpec;

use super::*;
use crate::assess::health;
use crate::input::observed_time::ConditionTimes;
use crate::testing::{
    annotate, at, deleted, done, draining, facts, facts_after, node, nodes, observed, plan, pool, set_ready,
    starting, with_action,
};
use crate::{NodeAction, Plan, classify};

fn limited(replicas: i32, budgets: &Value) -> NodePool {
    let mut pool = pool(replicas);
    pool.spec.disruption = Some(serde_json::from_value(json!({ "budgets": budgets })).unwrap());
    pool
}

fn leaves(index: usize, reason: DisruptionReason) -> Node {
    let mut node = draining(index, 90);
    annotate(&mut node, names::DISRUPTION_REASON_ANNOTATION, reason.as_str());
    node
}

fn cordoned(plan: &Plan) -> Vec<String> {
    with_action(plan, &NodeAction::Cordon)
}

#[test]
fn no_more_nodes_go_at_a_time_than_a_limit_allows_and_the_others_say_why() {
    let pool = limited(1, &json!([{ "nodes": 2 }]));
    let seen = observed(pool.clone(), nodes(5));
    let first = plan(&seen);
    assert_eq!(cordoned(&first).len(), 2);
    assert_eq!(first.held.len(), 2);
    let why = "has to wait: spec.disruption.budgets[0] allows 2 nodes at a time, and 2 are being disrupted";
    assert_eq!(first.held[0].1, why);
    let counts = facts_after(&seen, &first, &done(&first)).disrupted.unwrap();
    assert_eq!((counts.scale_down, counts.rollout), (2, 0));
    let going = [leaves(5, DisruptionReason::Rollout), leaves(6, DisruptionReason::ScaleDown)];
    assert!(cordoned(&plan(&observed(pool.clone(), nodes(5).into_iter().chain(going)))).is_empty());
    // A drain without a reason counts as a scale-down, and nodes that are deleted by hand are not in the account.
    let unnoted = plan(&observed(pool.clone(), nodes(5).into_iter().chain([draining(5, 90)])));
    assert_eq!(cordoned(&unnoted).len(), 1);
    let by_hand = [deleted(node(5)), deleted(node(6))];
    let beside = plan(&observed(pool, nodes(5).into_iter().chain(by_hand)));
    let chosen = beside.nodes.iter().filter(|step| step.cause == Some(DisruptionReason::ScaleDown));
    assert_eq!((chosen.count(), cordoned(&beside).len()), (2, 4));
}

#[test]
fn a_percentage_is_of_the_nodes_that_are_there_also_where_fewer_are_wanted() {
    let going = |count: usize| {
        let leaves = |index: usize| leaves(100 + index, DisruptionReason::ScaleDown);
        (0..count).map(leaves).collect::<Vec<_>>()
    };
    for (what, wanted, there, leaving, chosen) in [
        ("a tenth of 50", 5, 50, 0, 5),
        ("those that leave are in the account and not among those that are there", 5, 45, 3, 2),
        ("less is allowed when there are fewer", 5, 40, 4, 0),
        ("a pool shrinks to nothing, too", 0, 3, 0, 1),
    ] {
        let pool = limited(wanted, &json!([{ "nodes": "10%" }]));
        let plan = plan(&observed(pool, nodes(there).into_iter().chain(going(leaving))));
        assert_eq!(cordoned(&plan).len(), chosen, "{what}");
    }
}

#[test]
fn the_message_says_what_a_percentage_is_of() {
    let pool = limited(5, &json!([{ "nodes": "10%" }]));
    let held = plan(&observed(pool, nodes(20))).held;
    let why = "has to wait: spec.disruption.budgets[0] allows 2 nodes at a time (10% of 20), and 2 are being disrupted";
    assert_eq!((held.len(), held[0].1.as_str()), (13, why));
}

#[test]
fn nodes_that_have_never_run_pods_make_no_budget_wider() {
    let pool = limited(5, &json!([{ "nodes": "10%" }]));
    let plan = plan(&observed(pool, nodes(10).into_iter().chain((10..30).map(starting))));
    let (starting, ready): (Vec<_>, Vec<_>) =
        cordoned(&plan).into_iter().partition(|name| name.as_str() >= "n-010");
    assert_eq!((starting.len(), ready.len()), (20, 1));
}

#[test]
fn what_a_rollout_makes_beyond_the_nodes_wanted_makes_no_budget_wider() {
    let rolling = |wanted: i32, budgets: &Value, new: usize| {
        let mut pool = limited(wanted, budgets);
        pool.spec.rollout = Some(serde_json::from_value(json!({ "maxSurge": 5 })).unwrap());
        pool.spec.template.spec.capacity.insert("cpu".into(), Quantity("8".into()));
        let hash = pool.spec.template_hash().unwrap();
        let fresh = (100..100 + new).map(|index| {
            let mut node = node(index);
            annotate(&mut node, names::TEMPLATE_HASH_ANNOTATION, &hash);
            node
        });
        let seen = observed(pool, nodes(10).into_iter().chain(fresh));
        cordoned(&plan(&seen)).len()
    };
    let tenth = json!([{ "nodes": "10%" }]);
    assert_eq!(rolling(10, &json!([]), 5), 5, "as many as there are available ones too many");
    assert_eq!(rolling(10, &tenth, 5), 1, "a tenth of 10, although 15 are there");
    assert_eq!(rolling(2, &tenth, 15), 2, "of 25 nodes, 5 may be what the rollout has made");
}

#[test]
fn a_budget_that_is_wide_takes_no_more_nodes_for_a_rollout_than_may_be_missing() {
    let rolling = |unavailable: &str| {
        let mut pool = limited(10, &json!([{ "nodes": "100%" }]));
        let rollout = json!({ "maxSurge": 0, "maxUnavailable": unavailable });
        pool.spec.rollout = Some(serde_json::from_value(rollout).unwrap());
        pool.spec.template.spec.capacity.insert("cpu".into(), Quantity("8".into()));
        cordoned(&plan(&observed(pool, nodes(40)))).len()
    };
    assert_eq!(rolling("20%"), 32, "30 are too many, and a fifth of the 10 wanted may be missing");
    assert_eq!(rolling("10%"), 31);
}

#[test]
fn nothing_begins_outside_of_windows_and_the_pool_is_visited_when_one_opens() {
    let window =
        json!({ "nodes": 1, "effect": "AllowOnly", "schedule": "0 1 * * *", "durationSeconds": 600 });
    let mut seen = observed(limited(1, &json!([window])), nodes(3));
    let closed = plan(&seen);
    assert!(cordoned(&closed).is_empty());
    assert_eq!(closed.requeue_at, Some(at(3600)));
    assert!(classify(&seen).reads.undecided.is_empty(), "no pods are listed for nodes that may not go");
    assert!(
        facts(&seen).held[0].1.contains("the next one begins 1970-01-01T01:00:00"),
        "{:?}",
        facts(&seen).held
    );
    seen.now = at(3600);
    let open = plan(&seen);
    assert_eq!(cordoned(&open).len(), 1);
    assert!(open.requeue_at.is_some_and(|at| at <= self::at(4200)), "{:?}", open.requeue_at);
}

#[test]
fn repair_comes_first_and_takes_from_the_same_account() {
    let mut pool = limited(3, &json!([{ "nodes": 1, "reasons": ["Repair", "Rollout"] }]));
    pool.spec.rollout = Some(RolloutSpec::default());
    pool.spec.template.spec.capacity.insert("cpu".into(), Quantity("8".into()));
    let mut unhealthy = node(0);
    set_ready(&mut unhealthy, "Unknown");
    let mut fresh = [node(10), node(11)];
    for node in &mut fresh {
        annotate(node, names::TEMPLATE_HASH_ANNOTATION, &pool.spec.template_hash().unwrap());
    }
    let lasting = |node: &Node| {
        let spec = shared_crds::v1alpha1::RepairSpec::default();
        let times = spec.conditions.iter().map(|it| (health::key(it), SignedDuration::MAX)).collect();
        ConditionTimes([(node.metadata.uid.clone().unwrap(), times)].into())
    };
    let all = |unhealthy: Node| {
        let mut seen =
            observed(pool.clone(), [unhealthy.clone(), node(1), node(2)].into_iter().chain(fresh.clone()));
        seen.now = at(1000);
        seen.condition_times = lasting(&unhealthy);
        plan(&seen)
    };
    let both = all(unhealthy.clone());
    assert_eq!(with_action(&both, &NodeAction::Repair), ["n-000"]);
    assert!(cordoned(&both).is_empty(), "{:?}", cordoned(&both));
    // While it is being repaired, too.
    let mut going = deleted(unhealthy);
    annotate(&mut going, names::DISRUPTION_REASON_ANNOTATION, DisruptionReason::Repair.as_str());
    assert!(cordoned(&all(going.clone())).is_empty());
    // Also when it recovers meanwhile: it is drained, and ends.
    set_ready(&mut going, "True");
    assert_eq!(cordoned(&all(going)), ["n-000"]);
    assert_eq!(cordoned(&all(node(0))).len(), 2, "one is too many, one is replaced");
}

#[test]
fn a_draining_node_that_dies_is_charged_once_for_the_reason_that_it_leaves_for() {
    let mut dead = leaves(0, DisruptionReason::ScaleDown);
    set_ready(&mut dead, "Unknown");
    let budgets = json!([{ "nodes": 2 }, { "nodes": 0, "reasons": ["Repair"] }]);
    let mut seen = observed(limited(1, &budgets), [dead.clone(), node(1), node(2), node(3)]);
    seen.now = at(1000);
    let times = shared_crds::v1alpha1::RepairSpec::default().conditions;
    let times = times.iter().map(|it| (health::key(it), SignedDuration::MAX)).collect();
    seen.condition_times = ConditionTimes([(dead.metadata.uid.clone().unwrap(), times)].into());
    let repaired = plan(&seen);
    assert_eq!(with_action(&repaired, &NodeAction::Repair), ["n-000"]);
    assert_eq!(cordoned(&repaired).len(), 1, "of the two nodes that are too many");
    let counts = facts_after(&seen, &repaired, &done(&repaired)).disrupted.unwrap();
    assert_eq!((counts.scale_down, counts.repair), (2, 0));
}

#[test]
fn a_node_that_its_provider_drains_is_charged_to_every_budget_and_once() {
    let room = |seen: &Observed, reasons: &[DisruptionReason], reason: DisruptionReason| {
        let reasons: Vec<&str> = reasons.iter().map(|reason| reason.as_str()).collect();
        let pool = limited(3, &json!([{ "nodes": 2, "reasons": reasons }]));
        account(seen, &pool, &classify(seen).members, 3).room(reason)
    };
    let mut seen = observed(pool(3), nodes(3));
    seen.supply.duties.drains = ["n-000".to_owned()].into();
    for reason in DisruptionReason::ALL {
        assert_eq!(room(&seen, &[reason], reason), 1, "{reason}: why its provider drains it is not known");
        assert_eq!(room(&seen, &[], reason), 1, "{reason}: it is one node where the budget is for all");
    }
    assert_eq!(facts(&seen).disrupted.unwrap().scale_down, 1);
    // One whose drain began here leaves for the reason that was noted then.
    seen.nodes[0] = Arc::new(leaves(0, DisruptionReason::Repair));
    for reason in DisruptionReason::ALL {
        let expected = if reason == DisruptionReason::Repair { 1 } else { 2 };
        assert_eq!(room(&seen, &[reason], reason), expected, "{reason}");
    }
}

#[test]
fn an_unhealthy_node_says_which_budget_keeps_it() {
    let mut unhealthy = node(0);
    set_ready(&mut unhealthy, "Unknown");
    let mut seen = observed(limited(1, &json!([{ "nodes": 0, "reasons": ["Repair"] }])), [unhealthy.clone()]);
    seen.now = at(1000);
    let times = shared_crds::v1alpha1::RepairSpec::default().conditions;
    let times = times.iter().map(|it| (health::key(it), SignedDuration::MAX)).collect();
    seen.condition_times = ConditionTimes([(unhealthy.metadata.uid.clone().unwrap(), times)].into());
    let kept = plan(&seen);
    assert!(with_action(&kept, &NodeAction::Repair).is_empty());
    let why = facts(&seen).repair_waits.unwrap();
    assert!(why.starts_with("unhealthy node n-000 has to wait: spec.disruption.budgets[0]"), "{why}");
}

#[test]
fn nodes_that_never_ran_pods_and_empty_ones_of_a_deleted_pool_are_not_asked_about() {
    let none = json!([{ "nodes": 0 }]);
    assert_eq!(cordoned(&plan(&observed(limited(1, &none), [node(0), starting(1)]))), ["n-001"]);
    let mut gone = limited(1, &none);
    gone.metadata.deletion_timestamp = deleted(node(0)).metadata.deletion_timestamp;
    let plan = plan(&observed(gone, nodes(2)));
    assert_eq!(cordoned(&plan).len(), 2);
    assert!(plan.nodes.iter().all(|step| step.cause.is_none()), "that is no voluntary work");
}

#[test]
fn budgets_that_cannot_be_followed_are_reported() {
    let wrong = json!([{ "nodes": 1, "schedule": "0 0 30 2 *", "durationSeconds": 60 }]);
    let seen = observed(limited(1, &wrong), nodes(1));
    let problems = facts(&seen).budget_problems;
    assert!(problems[0].contains("spec.disruption.budgets[0]"), "{problems:?}");
    assert!(facts(&observed(limited(1, &json!([{ "nodes": "10%" }])), nodes(1))).budget_problems.is_empty());
}

fn rollout_waits(observed: &Observed) -> Option<String> {
    facts(observed).rollout.and_then(|rollout| rollout.waits).map(|waits| waits.why)
}

#[test]
fn a_node_too_many_is_charged_as_such_also_when_it_is_out_of_date() {
    use DisruptionReason::{Rollout, ScaleDown};
    let chosen = |budgets: &Value, count: usize| {
        let mut pool = limited(2, budgets);
        pool.spec.template.spec.capacity.insert("cpu".into(), Quantity("8".into()));
        let seen = observed(pool, nodes(count));
        let plan = plan(&seen);
        let mut causes: Vec<_> = plan.nodes.iter().filter_map(|step| step.cause).collect();
        causes.sort();
        (causes, plan.request.len(), plan.held.len(), rollout_waits(&seen).is_some())
    };
    let no = |reason: &str| json!([{ "nodes": 0, "reasons": [reason] }]);
    assert_eq!(chosen(&json!([]), 3), (vec![Rollout], 0, 0, false), "the third one is what the rollout adds");
    assert_eq!(chosen(&json!([]), 5), (vec![ScaleDown, ScaleDown, Rollout], 0, 0, false));
    assert_eq!(chosen(&no("Rollout"), 5), (vec![ScaleDown; 3], 0, 0, true));
    assert_eq!(chosen(&no("ScaleDown"), 5), (vec![], 0, 3, false), "none goes in the place of another");
}

#[test]
fn a_rollout_that_no_budget_allows_makes_no_node_and_keeps_those_that_it_has_made() {
    let window = json!({ "nodes": 1, "reasons": ["Rollout"], "effect": "AllowOnly", "schedule": "0 1 * * *", "durationSeconds": 600 });
    let mut pool = limited(2, &json!([window]));
    pool.spec.template.spec.capacity.insert("cpu".into(), Quantity("8".into()));
    let mut new = node(10);
    annotate(&mut new, names::TEMPLATE_HASH_ANNOTATION, &pool.spec.template_hash().unwrap());
    let at_night = |nodes: Vec<Node>| {
        let mut seen = observed(pool.clone(), nodes);
        seen.now = at(3600);
        (plan(&seen).request.len(), cordoned(&plan(&seen)).len())
    };
    let by_day = |nodes: Vec<Node>| {
        let seen = observed(pool.clone(), nodes);
        let plan = plan(&seen);
        assert_eq!(plan.requeue_at, Some(at(3600)));
        assert!(rollout_waits(&seen).unwrap().contains("the next one begins 1970-01-01T01:00:00"));
        (plan.request.len(), cordoned(&plan).len())
    };
    assert_eq!((by_day(nodes(2)), at_night(nodes(2))), ((0, 0), (1, 0)));
    let with_new = || nodes(2).into_iter().chain([new.clone()]).collect::<Vec<_>>();
    assert_eq!((by_day(with_new()), at_night(with_new())), ((0, 0), (0, 1)));
    // One that never ran pods is replaced all the same.
    let early = observed(pool.clone(), [node(0), starting(1)]);
    assert_eq!((cordoned(&plan(&early)), rollout_waits(&early)), (vec!["n-001".to_owned()], None));
}

#[test]
fn a_node_that_never_ran_pods_and_those_of_a_deleted_pool_are_in_no_count() {
    let mut pool = limited(1, &json!([{ "nodes": 1 }]));
    let mut never_ready = leaves(5, DisruptionReason::ScaleDown);
    never_ready.metadata.annotations.as_mut().unwrap().remove(names::READY_TIME_ANNOTATION);
    set_ready(&mut never_ready, "False");
    let mut seen = observed(pool.clone(), nodes(2).into_iter().chain([never_ready]));
    seen.times.0.clear();
    assert_eq!(cordoned(&plan(&seen)).len(), 1);
    assert_eq!(facts(&seen).disrupted.unwrap().scale_down, 1);
    pool.metadata.deletion_timestamp = deleted(node(0)).metadata.deletion_timestamp;
    assert_eq!(facts(&observed(pool, [leaves(5, DisruptionReason::ScaleDown)])).disrupted, None);
}

#[test]
fn a_reason_on_a_node_that_stays_is_taken_off() {
    let mut stays = node(0);
    annotate(&mut stays, names::DISRUPTION_REASON_ANNOTATION, "Repair");
    let stays_as = |node: &Node| plan(&observed(limited(1, &json!([])), [node.clone()]));
    assert_eq!(with_action(&stays_as(&stays), &NodeAction::Tidy), ["n-000"]);
    // An operator that was killed before it deleted the node deletes it when the time is over again.
    set_ready(&mut stays, "Unknown");
    assert_eq!(with_action(&stays_as(&stays), &NodeAction::Tidy), [""; 0]);
}
