//! What those who wait for a pool make of a rollout that waits: kstatus, and with it Flux and Helm 4; Argo CD with the script of
//! the documentation; and `kubectl wait --for=condition=Ready`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use mlua::{Lua, LuaSerdeExt as _};
use node_lifecycle::outcome::{AppliedAction, Blocked};
use node_lifecycle::supply::ProvisioningFailure;
use node_lifecycle::testing::{
    annotate, at, blocked_by, done, draining, facts_after, node, nodes, observed, plan, pod, pods, pool,
};
use node_lifecycle::{Blocker, Observed, PodName};
use serde_json::{Value, json};
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::{
    DisruptionReason, DrainSpec, DrainTimeoutAction, NodePoolStatus, RolloutSpec, RolloutStatus,
};
use shared_crds::{NodePool, names};

use super::of_pass;

/// What a reader makes of the object.
#[derive(Debug, PartialEq, Eq)]
struct Verdicts {
    kstatus: &'static str,
    argo_cd: String,
    kubectl_wait: &'static str,
}

/// What the operator does and says about a pool whose template has changed.
#[derive(Debug)]
struct Case {
    what: &'static str,
    seen: Observed,
    blocked: Vec<Blocked>,
}

/// The expected row.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// How many nodes are asked for, and how many are cordoned.
    requested: usize,
    cordoned: usize,
    may_go: Option<i32>,
    /// Status and reason of `RollingOut`, `Ready`, `Reconciling` and `Stalled`.
    said: [String; 4],
    /// Those of the other conditions of the operator.
    others: Vec<String>,
    verdicts: Verdicts,
}

/// The other conditions, of a pool that nothing else is the matter with.
const SETTLED: [&str; 5] = [
    "NodesReady True AllNodesReady",
    "ProvisioningHealthy True Provisioned",
    "BudgetsValid True BudgetsRead",
    "ReplicasClamped False WithinBounds",
    "MachinesContested False NotContested",
];

/// The conditions that say something of the rollout.
const TOLD: [&str; 4] = ["RollingOut", "Ready", "Reconciling", "Stalled"];

/// A pool of three with a changed template, of which at most `surge` are more than wanted, and `unavailable` less.
fn changed(surge: i32, unavailable: i32) -> NodePool {
    let mut pool = pool(3);
    pool.metadata.generation = Some(2);
    pool.spec.template.spec.capacity.insert("cpu".into(), Quantity("8".into()));
    pool.spec.rollout = Some(RolloutSpec {
        max_surge: IntOrString::Int(surge),
        max_unavailable: IntOrString::Int(unavailable),
        ..RolloutSpec::default()
    });
    pool
}

fn closed_window() -> Case {
    let mut pool = changed(1, 0);
    let window = json!({ "budgets": [{ "nodes": 0, "reasons": ["Rollout"] }] });
    pool.spec.disruption = Some(serde_json::from_value(window).unwrap());
    Case { what: "no window is open", seen: observed(pool, nodes(3)), blocked: Vec::new() }
}

/// From when the window of [`closed_schedule`] is open for the first time, and until when. At the second 100, where a case begins, it
/// is closed.
const OPENS: i64 = 3600;
const CLOSES: i64 = 10_800;

fn closed_schedule() -> Case {
    let mut pool = changed(1, 0);
    let window = json!({ "effect": "AllowOnly", "nodes": 1, "reasons": ["Rollout"], "schedule": "0 1 * * *", "durationSeconds": CLOSES - OPENS });
    pool.spec.disruption = Some(serde_json::from_value(json!({ "budgets": [window] })).unwrap());
    Case { what: "the window of a schedule is closed", seen: observed(pool, nodes(3)), blocked: Vec::new() }
}

fn protected() -> Case {
    let keep = |mut node: Node| {
        annotate(&mut node, "cluster-autoscaler.kubernetes.io/scale-down-disabled", "true");
        node
    };
    let all = nodes(3).into_iter().map(keep);
    Case { what: "every node asks to be left alone", seen: observed(changed(1, 0), all), blocked: Vec::new() }
}

fn blocked_drain() -> Case {
    let mut leaving = draining(2, 90);
    annotate(&mut leaving, names::DISRUPTION_REASON_ANNOTATION, DisruptionReason::Rollout.as_str());
    let pod = PodName { namespace: "default".into(), name: "web-0".into() };
    let blocked = Blocked { node: "n-002".into(), by: Blocker::Pod(pod, "the disruption budget web".into()) };
    Case {
        what: "the drain of a node is blocked",
        seen: observed(changed(0, 1), [node(0), node(1), leaving]),
        blocked: vec![blocked],
    }
}

/// `node` as one of the changed template.
fn new(pool: &NodePool, mut node: Node) -> Node {
    annotate(&mut node, names::TEMPLATE_HASH_ANNOTATION, &pool.spec.template_hash().unwrap());
    node
}

/// The new node is there, and the drain of the first old one is refused by a budget of its pod for longer than a minute.
fn stuck_drain() -> Case {
    let pool = changed(1, 0);
    let mut leaving = draining(2, 30);
    annotate(&mut leaving, names::DISRUPTION_REASON_ANNOTATION, DisruptionReason::Rollout.as_str());
    let nodes = [node(0), node(1), leaving, new(&pool, node(3))];
    let recent = pods([("n-002", vec![pod("web-0")])]);
    Case {
        what: "the only drain is blocked for a minute",
        seen: Observed { recent, ..observed(pool, nodes) },
        blocked: blocked_drain().blocked,
    }
}

/// The same where the old node was given back.
fn given_back() -> Case {
    let mut pool = changed(1, 0);
    pool.spec.drain = Some(DrainSpec {
        timeout_seconds: Some(60),
        on_timeout: DrainTimeoutAction::GiveBack,
        ..DrainSpec::default()
    });
    let mut rests = node(2);
    annotate(&mut rests, names::GIVEN_BACK_ANNOTATION, &at(90).to_string());
    let nodes = [node(0), node(1), rests, new(&pool, node(3))];
    Case { what: "the only drain was given back", seen: observed(pool, nodes), blocked: Vec::new() }
}

fn no_machine_left() -> Case {
    let mut seen = observed(changed(1, 0), nodes(3));
    let message = "the project may have 3 machines".to_owned();
    seen.supply.failure =
        Some(ProvisioningFailure { reason: Reason::QuotaExceeded, message, retry_at: at(500) });
    Case { what: "the provider has no machine left", seen, blocked: Vec::new() }
}

fn too_late() -> Case {
    let begun = Case {
        what: "it cannot get on before its deadline",
        seen: observed(changed(1, 0), nodes(3)),
        blocked: Vec::new(),
    };
    long_after(begun, Some(3))
}

/// The case long after the last progress, of which it is recorded that so many nodes may go.
fn long_after(case: Case, may_go_nodes: Option<i32>) -> Case {
    let mut pool = NodePool::clone(case.seen.pool.as_deref().unwrap());
    let record = RolloutStatus {
        template_hash: pool.spec.template_hash().unwrap(),
        outdated_nodes: 3,
        may_go_nodes,
        available_nodes: 3,
        progress_time: Time(at(-100_000)),
    };
    pool.status = Some(NodePoolStatus { rollout: Some(record), ..NodePoolStatus::default() });
    Case { seen: Observed { pool: Some(Arc::new(pool)), ..case.seen }, ..case }
}

fn all_new() -> Case {
    let pool = changed(1, 0);
    let all = nodes(3).into_iter().map(|node| new(&pool, node));
    Case { what: "all nodes are new", seen: observed(pool.clone(), all), blocked: Vec::new() }
}

/// The pool as the operator leaves it.
fn written(case: &Case) -> Row {
    passed(case).0
}

/// The same, and the status that is written.
fn passed(case: &Case) -> (Row, NodePoolStatus) {
    let pool = case.seen.pool.as_deref().unwrap();
    let plan = plan(&case.seen);
    let mut applied = done(&plan);
    applied.absorb(blocked_by(case.blocked.clone()));
    let facts = facts_after(&case.seen, &plan, &applied);
    let status = of_pass(pool, pool, &facts, &applied, &Time(case.seen.now));
    let said = TOLD.map(|type_| {
        let one = status.conditions.iter().find(|condition| condition.type_ == type_).unwrap();
        format!("{} {}", one.status, one.reason)
    });
    let others = status.conditions.iter().filter(|one| !TOLD.contains(&&*one.type_));
    let others = others.map(|one| format!("{} {} {}", one.type_, one.status, one.reason)).collect();
    let object = json!({ "metadata": pool.metadata, "spec": pool.spec, "status": status });
    let row = Row {
        requested: plan.request.len(),
        cordoned: applied.names(AppliedAction::starts_drain).count(),
        may_go: status.rollout.as_ref().and_then(|rollout| rollout.may_go_nodes),
        said,
        others,
        verdicts: Verdicts {
            kstatus: kstatus(&object),
            argo_cd: argo_cd(&object),
            kubectl_wait: if condition(&object, "Ready") == "True" { "returns" } else { "waits" },
        },
    };
    (row, status)
}

fn condition<'a>(object: &'a Value, type_: &str) -> &'a str {
    let all = object["status"]["conditions"].as_array();
    all.into_iter()
        .flatten()
        .find(|one| one["type"] == type_)
        .and_then(|one| one["status"].as_str())
        .unwrap_or("none")
}

/// The rules of kstatus for kinds that it does not know. `e2e/tests/operators/clients_that_wait.rs` runs Helm, which has it built in.
fn kstatus(object: &Value) -> &'static str {
    let seen = object["status"]["observedGeneration"].as_i64();
    if seen.is_some_and(|seen| seen != object["metadata"]["generation"].as_i64().unwrap()) {
        return "InProgress";
    }
    match ["Reconciling", "Stalled", "Ready"].map(|type_| condition(object, type_)) {
        ["True", _, _] => "InProgress",
        [_, "True", _] => "Failed",
        [_, _, "True" | "none"] => "Current",
        _ => "InProgress",
    }
}

/// The answer of the script in the documentation.
fn argo_cd(object: &Value) -> String {
    let page = include_str!("../../../docs/guides/operations.md");
    let script = page.split("```lua\n").nth(1).unwrap().split("```").next().unwrap();
    let lua = Lua::new();
    lua.globals().set("obj", lua.to_value(object).unwrap()).unwrap();
    let answer: mlua::Table = lua.load(script).eval().unwrap();
    let message: String = answer.get("message").unwrap();
    assert!(!message.is_empty());
    answer.get("status").unwrap()
}

/// A row of which the readers say this.
fn row(done: (usize, usize), may_go: Option<i32>, said: [&str; 4], read: [&'static str; 3]) -> Row {
    let [kstatus, argo_cd, kubectl_wait] = read;
    Row {
        requested: done.0,
        cordoned: done.1,
        may_go,
        said: said.map(str::to_owned),
        others: SETTLED.map(str::to_owned).to_vec(),
        verdicts: Verdicts { kstatus, argo_cd: argo_cd.to_owned(), kubectl_wait },
    }
}

/// The row of a pool of which other conditions say these.
fn but(mut row: Row, said: &[&str]) -> Row {
    for &said in said {
        let type_ = said.split(' ').next().unwrap();
        let other = row.others.iter_mut().find(|it| it.split(' ').next() == Some(type_)).unwrap();
        said.clone_into(other);
    }
    row
}

#[test]
fn waiting_is_no_failure_for_those_who_wait_for_the_pool() {
    let in_progress = ["InProgress", "Progressing", "waits"];
    let no_failure = "False Settled";
    let by_budget = ["False WaitsForBudget", "False WaitsForBudget", "True WaitsForBudget", no_failure];
    let by_nodes =
        ["False WaitsForProtected", "False WaitsForProtected", "True WaitsForProtected", no_failure];
    let blocked = ["True RollingOut", "False RollingOut", "True DrainBlocked", no_failure];
    let by_drain = ["False WaitsForDrain", "False WaitsForDrain", "True DrainBlocked", no_failure];
    let by_rest = ["False WaitsForDrain", "False WaitsForDrain", "True WaitsForDrain", no_failure];
    // One goes first, and its successor gets its machine.
    let by_quota = ["True RollingOut", "False QuotaExceeded", "True RollingOut", no_failure];
    let late = "ProgressDeadlineExceeded";
    let late =
        [&format!("True {late}"), "False RollingOut", &format!("False {late}"), &format!("True {late}")];
    let new = ["False UpToDate", "True AllNodesReady", "False Settled", no_failure];
    // As long as it waits, no time makes a failure of it.
    for (made, said) in [
        (closed_window as fn() -> Case, by_budget),
        (closed_schedule, by_budget),
        (protected, by_nodes),
        (stuck_drain, by_drain),
        (given_back, by_rest),
    ] {
        for case in [made(), long_after(made(), Some(0))] {
            assert_eq!(written(&case), row((0, 0), Some(0), said, in_progress), "{}", case.what);
        }
    }
    for (case, expected) in [
        (blocked_drain(), but(row((0, 0), Some(3), blocked, in_progress), &["NodesReady False RollingOut"])),
        (
            no_machine_left(),
            but(
                row((0, 1), Some(3), by_quota, in_progress),
                &["NodesReady False QuotaExceeded", "ProvisioningHealthy False QuotaExceeded"],
            ),
        ),
        (
            too_late(),
            but(
                row((1, 0), Some(3), late, ["Failed", "Degraded", "waits"]),
                &["ProvisioningHealthy True Provisioning"],
            ),
        ),
        (all_new(), row((0, 0), None, new, ["Current", "Healthy", "returns"])),
    ] {
        assert_eq!(written(&case), expected, "{}", case.what);
    }
}

/// The case at that second, with this status written to its pool.
fn later(case: Case, second: i64, status: NodePoolStatus) -> Case {
    let mut pool = NodePool::clone(case.seen.pool.as_deref().unwrap());
    pool.status = Some(status);
    Case { seen: Observed { pool: Some(Arc::new(pool)), now: at(second), ..case.seen }, ..case }
}

#[test]
fn a_rollout_that_waited_for_a_window_has_its_whole_deadline_from_when_the_window_opens() {
    const DAY: i64 = 86_400;
    let deadline = i64::from(RolloutSpec::default().progress_deadline_seconds);
    // The wait alone is longer, and the window is open for longer.
    assert!(deadline < OPENS - 101 && OPENS + deadline < CLOSES);
    let in_progress = ["InProgress", "Progressing", "waits"];
    let settled = "False Settled";
    let wait = ["False WaitsForBudget", "False WaitsForBudget", "True WaitsForBudget", settled];
    let wait = || row((0, 0), Some(0), wait, in_progress);
    let making = ["ProvisioningHealthy True Provisioning"];
    let going = ["True RollingOut", "False RollingOut", "True RollingOut", settled];
    // The successor of the one that may go is asked for.
    let going = || but(row((1, 0), Some(1), going, in_progress), &making);
    let late = "ProgressDeadlineExceeded";
    let late =
        [&format!("True {late}"), "False RollingOut", &format!("False {late}"), &format!("True {late}")];
    let late = || but(row((1, 0), Some(1), late, ["Failed", "Degraded", "waits"]), &making);
    let (first, second) =
        (Some("the next one begins 1970-01-01T01:00:00"), Some("the next one begins 1970-01-02T01:00:00"));
    let mut status = NodePoolStatus::default();
    // The second, the row, since when the deadline runs, and what is said of the window that it waits for.
    for (now, expected, since, next) in [
        (100, wait(), 100, first),
        (OPENS - 1, wait(), 100, first),
        (OPENS, going(), OPENS, None),
        (OPENS + deadline - 1, going(), OPENS, None),
        (OPENS + deadline, late(), OPENS, None),
        // What was late waits again, and then has as long as before.
        (CLOSES, wait(), OPENS, second),
        (DAY + OPENS - 1, wait(), OPENS, second),
        (DAY + OPENS, going(), DAY + OPENS, None),
    ] {
        let case = later(closed_schedule(), now, status);
        let (row, written) = passed(&case);
        assert_eq!(row, expected, "at {now}");
        assert_eq!(written.rollout.as_ref().unwrap().progress_time.0, at(since), "at {now}");
        let opens = if now < OPENS { OPENS } else { DAY + OPENS };
        let visit = plan(&case.seen).requeue_at;
        assert!(next.is_none() || visit.is_some_and(|due| due <= at(opens)), "{visit:?} at {now}");
        for type_ in ["RollingOut", "Ready", "Reconciling"] {
            let one = written.conditions.iter().find(|condition| condition.type_ == type_).unwrap();
            let says = next
                .map(|next| format!("no window of spec.disruption.budgets[0] allows Rollout now; {next}"));
            let is_said = says.is_none_or(|says| one.message.contains(&says));
            assert!(is_said && (next.is_some() || !one.message.contains("window")), "{one:?} at {now}");
        }
        status = written;
    }
}

#[test]
fn a_spec_that_no_node_can_be_made_of_is_seen_and_has_failed() {
    let mut changed = pool(3);
    changed.metadata.generation = Some(2);
    changed.status = Some(NodePoolStatus { observed_generation: Some(1), ..NodePoolStatus::default() });
    let mut seen = observed(changed.clone(), []);
    seen.supply.source = Err("spec.provider is invalid: no such thing".to_owned());
    let plan = plan(&seen);
    let applied = done(&plan);
    let facts = facts_after(&seen, &plan, &applied);
    let status = of_pass(&changed, &changed, &facts, &applied, &Time(seen.now));
    assert_eq!(status.observed_generation, Some(2));
    assert!(status.conditions.iter().all(|it| it.observed_generation == Some(2)), "{:?}", status.conditions);
    let object = json!({ "metadata": changed.metadata, "spec": changed.spec, "status": status });
    let said = TOLD.map(|type_| condition(&object, type_));
    assert_eq!(said, ["False", "False", "False", "True"], "{:?}", object["status"]["conditions"]);
    assert_eq!((kstatus(&object), argo_cd(&object).as_str()), ("Failed", "Degraded"));
}

#[test]
fn a_pool_that_was_not_seen_yet_and_a_paused_one_are_no_healthy_ones() {
    let seen = |generation: i64, paused: bool, observed: Option<i64>| {
        json!({
            "metadata": { "generation": generation },
            "spec": { "paused": paused },
            "status": { "observedGeneration": observed, "conditions": [{ "type": "Ready", "status": "True", "message": "3 of 3" }] },
        })
    };
    for (object, kstatus_says, argo_cd_says) in [
        (seen(2, false, Some(1)), "InProgress", "Progressing"),
        (seen(2, true, Some(2)), "Current", "Suspended"),
        (seen(2, false, Some(2)), "Current", "Healthy"),
    ] {
        assert_eq!((kstatus(&object), argo_cd(&object).as_str()), (kstatus_says, argo_cd_says), "{object}");
    }
    // kstatus takes it for an object of a kind without conditions, and returns at once.
    let none = json!({ "metadata": { "generation": 1 }, "spec": {} });
    assert_eq!((kstatus(&none), argo_cd(&none).as_str()), ("Current", "Progressing"));
}
