//! Contents of the status and the events, case by case.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use node_lifecycle::Blocker;
use node_lifecycle::outcome::{AppliedAction, Blocked, EventReason, Extent};
use node_lifecycle::supply::{MachineState, Size};
use node_lifecycle::testing::{
    self, annotate, at, blocked_by, deleted, done, draining, facts_after, node, observed, plan, plan_with,
    pods, pool, set_ready, starting, supply,
};
use node_lifecycle::{Observed, PodName, Supply};
use serde_json::json;
use shared_crds::conditions::status_name;
use shared_crds::names;
use shared_crds::ownership::{self, Owner};
use shared_crds::reported::{NODE_POOL, is_reported};
use shared_crds::v1alpha1::{NodePoolStatus, RolloutSpec, RolloutStatus, RolloutType};

use super::events::{deletion_waits, events};
use super::*;

/// The facts after a pass in which everything was done.
fn facts(pool: &NodePool, nodes: Vec<Node>, supply: Supply) -> Facts {
    testing::facts(&Observed { supply, ..observed(pool.clone(), nodes) })
}

/// The facts after a pass in which no more than `applied` was done.
fn counted(pool: &NodePool, nodes: Vec<Node>, supply: Supply, applied: &Applied) -> Facts {
    let observed = Observed { supply, ..observed(pool.clone(), nodes) };
    facts_after(&observed, &plan(&observed), applied)
}

/// `(type, status, reason)` of every condition.
fn reported(pool: &NodePool, facts: &Facts, applied: &Applied) -> Vec<(ConditionType, Option<bool>, Reason)> {
    let all = statements(pool, facts, applied);
    for Statement { type_, status, reason, message } in &all {
        let (type_, status) = (type_.as_str(), status_name(*status));
        assert!(
            is_reported(NODE_POOL, type_, status, reason.as_str()),
            "{type_}={status}/{reason}: {message}"
        );
    }
    all.into_iter().map(|s| (s.type_, s.status, s.reason)).collect()
}

fn one(pool: &NodePool, facts: &Facts, applied: &Applied, type_: ConditionType) -> (Option<bool>, Reason) {
    reported(pool, facts, applied).into_iter().find(|s| s.0 == type_).map(|s| (s.1, s.2)).unwrap()
}

fn failure(reason: Reason) -> ProvisioningFailure {
    ProvisioningFailure { reason, message: "no more machines".into(), retry_at: at(500) }
}

fn blocked(pod: &str) -> Blocked {
    let pod = PodName { namespace: "default".into(), name: pod.into() };
    Blocked { node: "n-000".into(), by: Blocker::Pod(pod, "budget".into()) }
}

#[test]
fn every_owned_condition_is_always_reported_once() {
    let pool = pool(1);
    let types: Vec<_> =
        reported(&pool, &facts(&pool, vec![], supply()), &Applied::default()).iter().map(|s| s.0).collect();
    let always = |type_: &ConditionType| *type_ != ConditionType::CrdCurrent;
    assert_eq!(types, ownership::conditions(Owner::NodepoolOperator).filter(always).collect::<Vec<_>>());
}

#[test]
fn a_rollout_that_no_budget_allows_waits_and_is_not_stuck() {
    let mut pool = pool(1);
    pool.spec.disruption =
        serde_json::from_value(json!({ "budgets": [{ "nodes": 0, "reasons": ["Rollout"] }] })).unwrap();
    let mut old = node(0);
    annotate(&mut old, names::TEMPLATE_HASH_ANNOTATION, &pool.spec.template_hash().unwrap());
    pool.spec.template.spec.capacity.insert("cpu".into(), Quantity("8".into()));
    let hash = pool.spec.template_hash().unwrap();
    let rollout = RolloutStatus {
        template_hash: hash,
        outdated_nodes: 1,
        may_go_nodes: None,
        available_nodes: 0,
        progress_time: Time(at(-100_000)),
    };
    pool.status = Some(NodePoolStatus { rollout: Some(rollout), ..NodePoolStatus::default() });
    let reasons = |pool: &NodePool| {
        let facts = facts(pool, vec![old.clone()], supply());
        let one = |type_| one(pool, &facts, &Applied::default(), type_);
        let may_go = facts.rollout.as_ref().unwrap().record.as_ref().unwrap().may_go_nodes;
        (one(ConditionType::RollingOut), one(ConditionType::Ready), one(ConditionType::Stalled).0, may_go)
    };
    let waits = (Some(false), Reason::WaitsForBudget);
    assert_eq!(reasons(&pool), (waits, waits, Some(false), Some(0)));
    let message = statements(&pool, &facts(&pool, vec![old.clone()], supply()), &Applied::default())
        .into_iter()
        .find(|it| it.type_ == ConditionType::RollingOut);
    assert!(message.unwrap().message.contains("spec.disruption.budgets[0] holds Rollout"));
    // Without the budget it has made no progress for too long.
    pool.spec.disruption = None;
    let late = Reason::ProgressDeadlineExceeded;
    assert_eq!(reasons(&pool), ((Some(true), late), (Some(false), Reason::RollingOut), Some(true), Some(1)));
}

#[test]
fn a_machine_that_does_not_start_is_reported_in_its_makers_words() {
    let machine = testing::machine("m", MachineState::Starting { until: None });
    let supply = Supply { machines: vec![machine], trouble: Some("no host is free".to_owned()), ..supply() };
    let pool = pool(1);
    let all = statements(&pool, &facts(&pool, vec![], supply), &Applied::default());
    let healthy = all.iter().find(|it| it.type_ == ConditionType::ProvisioningHealthy).unwrap();
    assert_eq!(healthy.message, "the provider is creating nodes; no host is free");
}

#[test]
fn the_three_standard_conditions_report_the_state() {
    use Reason::{AllNodesReady, Draining, NodesNotReady, Provisioning, QuotaExceeded, Settled};
    let machine = testing::machine("m", MachineState::Running);
    let mut broken = node(1);
    set_ready(&mut broken, "False");
    let in_flight = Supply { machines: vec![machine], ..supply() };
    let no_quota = Supply { failure: Some(failure(QuotaExceeded)), ..supply() };
    let (yes, no) = (Some(true), Some(false));
    for (case, nodes, supply, ready, reconciling, stalled) in [
        ("all is well", vec![node(0), node(1)], supply(), (yes, AllNodesReady), (no, Settled), (no, Settled)),
        (
            "one is on its way",
            vec![node(0)],
            in_flight,
            (no, Provisioning),
            (yes, Provisioning),
            (no, Settled),
        ),
        (
            "one starts",
            vec![node(0), starting(1)],
            supply(),
            (no, Provisioning),
            (yes, Provisioning),
            (no, Settled),
        ),
        ("one broke", vec![node(0), broken], supply(), (no, NodesNotReady), (no, Settled), (no, Settled)),
        (
            "one leaves",
            vec![node(0), node(1), draining(2, 5)],
            supply(),
            (yes, AllNodesReady),
            (yes, Draining),
            (no, Settled),
        ),
        (
            "the quota is used up",
            vec![node(0)],
            no_quota,
            (no, QuotaExceeded),
            (no, QuotaExceeded),
            (yes, QuotaExceeded),
        ),
    ] {
        let pool = pool(2);
        let facts = facts(&pool, nodes, supply);
        let say = |type_| one(&pool, &facts, &Applied::default(), type_);
        assert_eq!(say(ConditionType::Ready), ready, "{case}");
        assert_eq!(say(ConditionType::Reconciling), reconciling, "{case}");
        assert_eq!(say(ConditionType::Stalled), stalled, "{case}");
    }
}

#[test]
fn a_blocked_drain_names_the_node_and_the_pod_and_counts_the_rest() {
    let pool = pool(0);
    let facts = facts(&pool, vec![draining(0, 5)], supply());
    let applied = blocked_by([blocked("b"), blocked("a")]);
    let statement =
        statements(&pool, &facts, &applied).into_iter().find(|s| s.reason == Reason::DrainBlocked).unwrap();
    assert_eq!(statement.type_, ConditionType::Reconciling);
    assert_eq!(statement.message, "node n-000 waits for pod default/a: budget (and 1 more)");
}

#[test]
fn replicas_outside_the_bounds_are_reported_with_the_number_used() {
    let mut pool = pool(5);
    for (asked, min, max, expected) in [
        (Some(5), 0, 3, (Some(true), Reason::AboveMaxReplicas)),
        (Some(5), 7, 9, (Some(true), Reason::BelowMinReplicas)),
        (Some(5), 0, 9, (Some(false), Reason::WithinBounds)),
        (None, 2, 9, (Some(false), Reason::ReplicasUnset)),
    ] {
        (pool.spec.replicas, pool.spec.min_replicas, pool.spec.max_replicas) = (asked, min, max);
        let facts = facts(&pool, vec![], supply());
        assert_eq!(one(&pool, &facts, &Applied::default(), ConditionType::ReplicasClamped), expected);
    }
}

#[test]
fn counts_are_those_of_nodes_that_stay() {
    let mut outdated = node(1);
    annotate(&mut outdated, names::TEMPLATE_HASH_ANNOTATION, "v2-other");
    let mut pool = pool(3);
    pool.spec.rollout = Some(RolloutSpec { type_: RolloutType::OnDelete, ..RolloutSpec::default() });
    let facts =
        facts(&pool, vec![node(0), outdated, starting(2), draining(3, 5), deleted(node(4))], supply());
    let fields = fields(&pool, &facts);
    assert_eq!((fields.replicas, fields.ready_replicas), (Some(3), Some(2)));
    assert_eq!((fields.up_to_date_replicas, fields.unavailable_replicas), (Some(2), Some(1)));
    let nodes = fields.nodes.unwrap();
    assert_eq!((nodes.starting, nodes.ready, nodes.draining), (1, 2, 2));
    assert_eq!(
        fields.selector.as_deref(),
        Some(
            "tandem.node-restriction.kubernetes.io/nodepool=web,tandem.node-restriction.kubernetes.io/nodepool-namespace=default"
        )
    );
}

#[test]
fn a_pool_that_no_node_can_be_made_of_is_no_healthy_one() {
    let pool = pool(2);
    let invalid = Supply { source: Err("spec.provider is invalid: no such thing".to_owned()), ..supply() };
    let facts = facts(&pool, vec![], invalid);
    let done = Applied::default();
    for type_ in [ConditionType::Ready, ConditionType::ProvisioningHealthy] {
        assert_eq!(one(&pool, &facts, &done, type_), (Some(false), Reason::InvalidSpec), "{type_:?}");
    }
    assert_eq!(one(&pool, &facts, &done, ConditionType::Stalled), (Some(true), Reason::InvalidSpec));
}

#[test]
fn observed_generation_advances_after_a_complete_pass_only_and_never_goes_back() {
    let generation = |before: Option<i64>, acted_on: i64, applied: &Applied| {
        let mut fresh = pool(0);
        fresh.status = Some(NodePoolStatus { observed_generation: before, ..NodePoolStatus::default() });
        let mut pool = pool(0);
        pool.metadata.generation = Some(acted_on);
        observed_generation(&fresh, &pool, applied)
    };
    let failed = Applied { extent: Extent::Failed, ..Applied::default() };
    let conflict = Applied { extent: Extent::Conflict, ..Applied::default() };
    assert_eq!(generation(None, 3, &Applied::default()), Some(3));
    assert_eq!(generation(Some(2), 3, &failed), Some(2));
    assert_eq!(generation(None, 3, &conflict), None);
    assert_eq!(generation(Some(5), 3, &Applied::default()), Some(5));
}

#[test]
fn a_second_pass_over_the_same_state_reports_the_same() {
    let mut pool = pool(1);
    let facts = facts(&pool, vec![node(0)], supply());
    let first = of_pass(&pool, &pool, &facts, &Applied::default(), &Time(at(100)));
    pool.status = Some(first.clone());
    let second = of_pass(&pool, &pool, &facts, &Applied::default(), &Time(at(900)));
    assert_eq!(second, first);
}

#[test]
fn a_failure_is_in_a_field_too_with_the_time_at_which_it_began() {
    let mut pool = pool(2);
    pool.metadata.generation = Some(3);
    let report = |pool: &NodePool, failure: Option<ProvisioningFailure>, second: i64| {
        let facts = facts(pool, vec![], Supply { failure, ..supply() });
        of_pass(pool, pool, &facts, &Applied::default(), &Time(at(second)))
    };
    let said = |status: &NodePoolStatus| status.provisioning.as_ref().unwrap().failure.clone();
    let first = report(&pool, Some(failure(Reason::QuotaExceeded)), 100);
    let failed = said(&first).unwrap();
    assert_eq!((failed.reason.as_str(), failed.message.as_str()), ("QuotaExceeded", "no more machines"));
    assert_eq!((failed.observed_generation, failed.since_time), (Some(3), Time(at(100))));
    pool.status = Some(first);
    let second = report(&pool, Some(failure(Reason::ProviderUnreachable)), 900);
    let failed = said(&second).unwrap();
    assert_eq!((failed.reason.as_str(), failed.since_time), ("ProviderUnreachable", Time(at(100))));
    pool.status = Some(second);
    assert_eq!(said(&report(&pool, None, 1000)), None);
}

#[test]
fn what_was_done_is_in_the_status_of_the_same_pass() {
    let pool = pool(2);
    let machine = |name: &str| testing::machine(name, MachineState::Running);
    let machines = vec![machine("a"), machine("b")];
    let applied = Applied::done(AppliedAction::Create, ["a", "b"]);
    let facts = counted(&pool, vec![], Supply { machines, ..supply() }, &applied);
    assert_eq!((facts.staying, facts.starting, facts.in_flight), (2, 2, 0));
}

#[test]
fn only_what_was_acknowledged_counts() {
    let mut outdated = node(2);
    annotate(&mut outdated, names::TEMPLATE_HASH_ANNOTATION, "v2-other");
    let numbers = |facts: &Facts| {
        let Facts { staying, ready, up_to_date, starting, leaving, in_flight, .. } = *facts;
        [staying, ready, up_to_date, starting, leaving, in_flight]
    };
    let nothing = Applied::default();
    let counts =
        |nodes: &[Node], applied: &Applied| numbers(&counted(&pool(2), nodes.to_vec(), supply(), applied));

    let surplus = [node(0), node(1), outdated];
    assert_eq!(counts(&surplus, &nothing), [3, 3, 2, 0, 0, 0]);
    let cordoned = Applied::done(AppliedAction::DrainSurplus, ["n-000"]);
    assert_eq!(counts(&surplus, &cordoned), [2, 2, 1, 0, 1, 0]);
    assert!(counted(&pool(2), surplus.to_vec(), supply(), &cordoned).all_ready());

    let too_few = [node(0), draining(1, 5)];
    assert_eq!(counts(&too_few, &nothing), [1, 1, 1, 0, 1, 0]);
    let uncordoned = Applied::done(AppliedAction::Uncordon, ["n-001"]);
    assert_eq!(counts(&too_few, &uncordoned), [2, 2, 2, 0, 0, 0]);
    let removed = Applied::done(AppliedAction::Remove, ["n-001"]);
    assert_eq!(counts(&too_few, &removed), [1, 1, 1, 0, 0, 0]);

    let late = Observed { now: at(2000), ..observed(pool(1), [starting(0)]) };
    let planned = plan_with(&late, &pods([("n-000", vec![])]));
    assert_eq!(numbers(&facts_after(&late, &planned, &done(&planned))), [0, 0, 0, 0, 1, 1]);
    assert_eq!(numbers(&facts_after(&late, &planned, &nothing)), [1, 0, 1, 1, 0, 0]);

    let machine = |name: &str| testing::machine(name, MachineState::Running);
    let mut busy = observed(pool(1), []);
    busy.supply.machines = vec![machine("a"), machine("b")];
    let planned = plan(&busy);
    assert_eq!(planned.withdraw, ["b"]);
    assert_eq!(numbers(&facts_after(&busy, &planned, &nothing)), [0, 0, 0, 0, 0, 2]);
    assert_eq!(numbers(&facts_after(&busy, &planned, &done(&planned))), [0, 0, 0, 0, 0, 1]);
}

#[test]
fn an_excess_that_could_not_be_removed_is_still_draining() {
    let pool = pool(1);
    let facts = counted(&pool, vec![node(0), node(1)], supply(), &Applied::default());
    let say = |type_| one(&pool, &facts, &Applied::default(), type_);
    assert_eq!(say(ConditionType::Ready), (Some(false), Reason::Draining));
    assert_eq!(say(ConditionType::Reconciling), (Some(true), Reason::Draining));
}

fn rejected(write: RejectedWrite, message: &str) -> Applied {
    let rejected = Rejected { write, reason: Reason::WriteForbidden, message: message.into() };
    Applied { rejected: Some(rejected), extent: Extent::Failed, ..Applied::default() }
}

#[test]
fn a_creation_without_an_answer_is_reported_and_does_not_stall_the_pool() {
    let pool = pool(2);
    let facts = counted(&pool, vec![node(0)], supply(), &Applied::default());
    let (write, reason) = (RejectedWrite::Creation, Reason::WriteTimedOut);
    let rejected = Rejected { write, reason, message: "no answer".into() };
    let applied = Applied { rejected: Some(rejected), extent: Extent::Failed, ..Applied::default() };
    let say = |type_| one(&pool, &facts, &applied, type_);
    assert_eq!(say(ConditionType::ProvisioningHealthy), (Some(false), Reason::WriteTimedOut));
    assert_eq!(say(ConditionType::Stalled), (Some(false), Reason::Settled));
    assert_eq!(say(ConditionType::Reconciling).0, Some(true));
}

#[test]
fn a_write_that_the_server_will_never_accept_stalls_the_pool() {
    let pool = pool(2);
    let nodes = vec![node(0), draining(1, 5), deleted(node(2))];
    let facts = counted(&pool, nodes, supply(), &Applied::default());
    for (write, healthy) in [
        (RejectedWrite::Creation, (Some(false), Reason::WriteForbidden)),
        (RejectedWrite::Change, (Some(true), Reason::Provisioned)),
    ] {
        let applied = rejected(write, "no right");
        let say = |type_| one(&pool, &facts, &applied, type_);
        assert_eq!(say(ConditionType::Stalled), (Some(true), Reason::WriteForbidden));
        assert_eq!(say(ConditionType::Reconciling), (Some(false), Reason::WriteForbidden));
        assert_eq!(say(ConditionType::Ready), (Some(false), Reason::WriteForbidden));
        assert_eq!(say(ConditionType::ProvisioningHealthy), healthy);
    }
}

#[test]
fn of_several_rejected_writes_the_same_one_is_reported_in_any_order() {
    let all = [
        rejected(RejectedWrite::Change, "a"),
        rejected(RejectedWrite::Creation, "c"),
        rejected(RejectedWrite::Creation, "b"),
    ];
    for order in [[0_usize, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut applied = Applied::default();
        for index in order {
            applied.absorb(all[index].clone());
        }
        assert_eq!(applied.rejected, rejected(RejectedWrite::Creation, "b").rejected);
    }
}

#[test]
fn a_rejected_write_is_published_once_until_its_message_changes() {
    let mut pool = pool(2);
    let facts = facts(&pool, vec![node(0)], supply());
    let long = format!("no right {}", "x".repeat(2000));
    let applied = rejected(RejectedWrite::Change, &long);
    let published = |pool: &NodePool, applied: &Applied| {
        events(pool, applied, None, None)
            .iter()
            .filter(|event| event.reason == EventReason::WriteRejected)
            .count()
    };
    assert_eq!(published(&pool, &applied), 1);
    let conditions = conditions(&pool, &pool, &facts, &applied, &Time(at(100)));
    pool.status = Some(NodePoolStatus { conditions, ..NodePoolStatus::default() });
    assert_eq!(published(&pool, &applied), 0);
    assert_eq!(published(&pool, &rejected(RejectedWrite::Change, "another")), 1);
}

#[test]
fn events_name_what_changed_and_a_known_block_is_not_published_again() {
    let mut applied = Applied::done(AppliedAction::Create, (0..9).map(|n| format!("n-{n}")));
    applied.absorb(Applied::done(AppliedAction::Remove, ["n-0"]));
    applied.record_blocked(blocked("a"));
    let mut pool = pool(1);
    let published = events(&pool, &applied, Some(&failure(Reason::ProvisioningFailed)), None);
    let reasons: Vec<_> = published.iter().map(|event| event.reason).collect();
    assert_eq!(
        reasons,
        [
            EventReason::ScaledUp,
            EventReason::NodeRemoved,
            EventReason::ProvisioningFailed,
            EventReason::DrainBlocked
        ]
    );
    assert!(published[0].note.starts_with("created 9 nodes: n-0, ") && published[0].note.ends_with(", …"));
    assert_eq!(published[1].note, "removed 1 node: n-0");
    let known = Condition {
        type_: "Reconciling".into(),
        status: "True".into(),
        reason: "DrainBlocked".into(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: Time(at(0)),
    };
    pool.status = Some(NodePoolStatus { conditions: vec![known], ..NodePoolStatus::default() });
    assert!(
        events(&pool, &applied, None, None).iter().all(|event| event.reason != EventReason::DrainBlocked)
    );
    assert!(events(&pool, &Applied::default(), None, None).is_empty());
}

#[test]
fn an_event_says_why_nodes_are_drained() {
    let mut applied = Applied::done(AppliedAction::DrainSurplus, ["n-0"]);
    applied.absorb(Applied::done(AppliedAction::DrainOutdated, ["n-1"]));
    applied.absorb(Applied::done(AppliedAction::DrainAsked, ["n-2"]));
    applied.absorb(Applied::done(AppliedAction::DrainUnhealthy, ["n-3"]));
    let published = events(&pool(1), &applied, None, None);
    let said: Vec<_> = published.iter().map(|event| (event.reason, event.note.as_str())).collect();
    assert_eq!(
        said,
        [
            (EventReason::ScalingDown, "draining 1 node: n-0"),
            (EventReason::RollingOut, "out of date, so draining 1 node: n-1"),
            (EventReason::RollingOut, "to be replaced by annotation, so draining 1 node: n-2"),
            (EventReason::NodeRepaired, "unhealthy, so draining 1 node: n-3"),
        ]
    );
}

#[test]
fn an_event_says_how_many_nodes_were_released() {
    let applied = Applied::done(AppliedAction::Release, ["n-0", "n-1"]);
    let published = events(&pool(1), &applied, None, None);
    let said: Vec<_> = published.iter().map(|event| (event.reason, event.note.as_str())).collect();
    let note = "released without a drain, and still running: 2 nodes: n-0, n-1";
    assert_eq!(said, [(EventReason::NodesReleased, note)]);
}

#[test]
fn a_deletion_that_waits_for_its_user_says_so_and_an_event_says_it_once() {
    let mut pool = pool(1);
    pool.metadata.deletion_timestamp = Some(Time(at(90)));
    let annotation = |value: &str| (names::ON_DELETE_ANNOTATION.to_owned(), value.to_owned());
    pool.metadata.annotations = Some([annotation("orphan")].into());
    let waits = facts(&pool, vec![node(0)], supply());
    let nothing = Applied::default();
    for (type_, expected) in [
        (ConditionType::Ready, (Some(false), Reason::UnknownOnDelete)),
        (ConditionType::Reconciling, (Some(false), Reason::UnknownOnDelete)),
        (ConditionType::Stalled, (Some(true), Reason::UnknownOnDelete)),
        (ConditionType::ProvisioningHealthy, (Some(true), Reason::Provisioned)),
    ] {
        assert_eq!(one(&pool, &waits, &nothing, type_), expected, "{type_}");
    }
    let event = deletion_waits(&pool, &waits).unwrap();
    assert_eq!(event.reason, EventReason::DeletionWaits);
    assert!(event.note.contains("\"orphan\": set it to Orphan"), "{}", event.note);
    let reported = conditions(&pool, &pool, &waits, &nothing, &Time(at(100)));
    pool.status = Some(NodePoolStatus { conditions: reported, ..NodePoolStatus::default() });
    assert_eq!(deletion_waits(&pool, &waits), None);
    // Another wrong word is another event.
    pool.metadata.annotations = Some([annotation("keep")].into());
    let waits = facts(&pool, vec![node(0)], supply());
    assert!(deletion_waits(&pool, &waits).is_some());

    pool.metadata.annotations = Some([annotation("Orphan")].into());
    let goes = facts(&pool, vec![node(0)], supply());
    assert_eq!(one(&pool, &goes, &nothing, ConditionType::Ready), (Some(false), Reason::Deleting));
    assert_eq!(one(&pool, &goes, &nothing, ConditionType::Stalled), (Some(false), Reason::Settled));
}

#[test]
fn a_machine_that_cannot_be_deleted_shows_in_the_provisioning_condition_and_stalls_nothing() {
    let pool = pool(0);
    let message =
        "cannot delete a machine: the provider refuses the credentials of nodepool-operator: no".to_owned();
    let source = machine_providers::ProviderError::Unauthorized("no".to_owned());
    let error = crate::error::Error::Provider { what: crate::error::MachineCall::Delete, source };
    let rejected = error.rejection().unwrap();
    assert_eq!((rejected.write, &rejected.message), (RejectedWrite::Machine, &message));
    let applied = Applied { rejected: Some(rejected), extent: Extent::Failed, ..Applied::default() };
    let facts = counted(&pool, vec![draining(0, 0)], supply(), &applied);
    let said = |type_| one(&pool, &facts, &applied, type_);
    assert_eq!(said(ConditionType::ProvisioningHealthy), (Some(false), Reason::ProviderUnauthorized));
    assert_eq!(said(ConditionType::Stalled), (Some(false), Reason::Settled));
    assert_eq!(said(ConditionType::Reconciling), (Some(true), Reason::Draining));
    // An event says it once.
    let of = |pool: &NodePool| events(pool, &applied, None, None);
    assert_eq!(of(&pool).iter().filter(|event| event.reason == EventReason::WriteRejected).count(), 1);
}

#[test]
fn who_else_sets_the_number_of_machines_is_said_with_what_follows() {
    let mut pool = pool(3);
    let contested =
        json!({ "machines": 5, "writer": "kubectl", "sinceTime": "1970-01-01T00:00:50Z", "poolReplicas": 3 });
    pool.status =
        serde_json::from_value(json!({ "provisioning": { "machines": 3, "contested": contested } })).unwrap();
    let size = Some(Size { replicas: 5, generation: 1 });
    let by = |pool: &NodePool, writer: &str| {
        let supply = Supply { size, size_writer: Some(writer.to_owned()), ..supply() };
        let facts = facts(pool, vec![], supply);
        let all = statements(pool, &facts, &Applied::default());
        let said = all.into_iter().find(|it| it.type_ == ConditionType::MachinesContested).unwrap();
        (said.status, said.reason, said.message)
    };
    let (status, reason, message) = by(&pool, "kubectl");
    assert_eq!((status, reason), (Some(true), Reason::Yielded));
    assert_eq!(
        message,
        "kubectl has set the provider to 5 machines: the pool keeps 5 nodes until 1970-01-01T00:10:50Z, or until a user \
         sets the pool's own replicas; then 3 nodes"
    );
    let autoscaling = json!({ "onContested": "Reclaim" });
    pool.status.as_mut().unwrap().autoscaling = serde_json::from_value(autoscaling).unwrap();
    let (status, reason, message) = by(&pool, "kubectl");
    assert_eq!((status, reason), (Some(true), Reason::Reclaimed));
    assert!(message.contains("overruled, the pool runs 3 nodes"), "{message}");
    pool.status = None;
    assert_eq!(by(&pool, "kubectl").2, "the provider keeps 5 machines, as the operator asked it to");
}

#[test]
fn a_definition_that_lacks_fields_is_a_condition_and_changes_no_other() {
    let pool = pool(0);
    let facts = facts(&pool, Vec::new(), supply());
    let before = statements(&pool, &facts, &Applied::default());
    let outdated = Statement::new(ConditionType::CrdCurrent, false, Reason::CrdOutdated, "it is old");
    let after = statements(&pool, &facts.with_outdated_crd(Some(outdated.clone())), &Applied::default());
    assert_eq!(after, [before, vec![outdated]].concat());
}
