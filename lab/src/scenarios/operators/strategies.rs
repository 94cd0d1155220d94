//! The same two operators with each of four write strategies, while another writer changes their object all the time.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use shared_crds::NodePool;
use shared_crds::names::AUTOSCALER_OPERATOR;
use testbed::audit::Event;
use testbed::concurrent_writer::ConcurrentWriter;
use testbed::lost_update_check::LostUpdateCheck;
use testbed::wait::eventually;
use testbed::write_effects::WriteEffects;
use testbed::{guards, objects};

use super::account;
use super::tandem::{Tandem, passed};
use crate::context::{PATIENCE, ScenarioContext};
use crate::cost::StrategyCost;
use crate::event::Table;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "strategies",
    title: "Four ways to write while other writers are busy: update, retry, patch, apply",
    rows: &["2f", "2g", "2j"],
    refutes: &["always-retry", "conflicts-are-certain"],
    lesson: "All four end with the same nodes and lose nothing; they differ in what a race costs: repeated reconciles, reads, attempts, or nothing.\nWrite only your own fields, guard the one value that you share, and there is nothing left to retry.",
    needs: Needs::Operators,
    run: |ctx| Box::pin(run(ctx)),
};

/// Each strategy, with the form of its writes of status and of replicas.
const STRATEGIES: [(&str, &str, &str); 4] = [
    ("lazy", "PUT at a version", "PUT at a version"),
    ("retry", "PUT at a version", "PUT at a version"),
    ("patch", "merge patch at a version", "merge patch at a version"),
    ("guarded", "JSON Patch at a generation, server-side apply with force", "JSON Patch at a generation"),
];
/// Writes per second by the other writer.
const STORM: u64 = 10;
/// Maximum number of rounds of load until `lazy` has met its first conflict with itself, and `retry` any. For `lazy` one
/// is enough: the Autoscaler writes the replicas and then its report from the same copy, which its own first write made
/// stale.
const ROUNDS: usize = 10;

/// What one strategy cost, and what is only checked.
struct Measured {
    cost: StrategyCost,
    /// Writes to `/status` and `/scale`, which both operators write.
    shared_writes: usize,
    /// Guards that failed although their condition held.
    falsely: usize,
}

async fn run(ctx: &ScenarioContext) -> Result<()> {
    ctx.say("Two operators write one pool: the NodePool operator its status, the Autoscaler its replicas and its own part of the status. A third party writes labels, annotations and bounds of the same pool, ten times a second. 8 pods are created, which need 4 nodes, and are deleted again; then the nodes are removed. This runs four times. lazy sends the object from its cache; after a conflict it gives up and the whole reconcile runs again. retry reads, changes and PUTs until it succeeds. patch sends only its changes, with the version that it read, and reads again only after a conflict. guarded sends its own status fields without a version, and guards the replicas with the generation that it decided from.");
    let mut all = Vec::new();
    let mut forms = Table::new(&["strategy", "status is written by", "replicas are written by"]);
    for (strategy, status, scale) in STRATEGIES {
        let tandem = Tandem::begin(ctx, strategy).await?;
        let played = storm(&tandem, strategy).await;
        // The release is kept, because the next strategy upgrades it.
        let is_last = strategy == "guarded" || played.is_err();
        let (measured, seen) = if is_last { tandem.end(played).await? } else { tandem.rest(played).await? };
        forms.row(&[&strategy, &seen.0, &seen.1]);
        ctx.check_eq(
            &format!("{strategy}: the API server saw what the name says"),
            &(seen.0.as_str(), seen.1.as_str()),
            &(status, scale),
        );
        all.push(measured);
    }
    ctx.say("Each strategy has created its 4 nodes and removed them again. As the API server saw it:");
    ctx.table(forms);
    ctx.costs(all.iter().map(|played| played.cost.clone()).collect());
    ctx.say(&format!("Why does guarded meet no 409? {}", account::WHY_NO_409));
    ctx.say("The costs of the race differ from run to run, and so does the number of 409s that the third party causes; the terminal shows all of them. What always holds:");
    compare(ctx, &all);
    Ok(())
}

/// Checks what must hold between the costs.
fn compare(ctx: &ScenarioContext, all: &[Measured]) {
    for Measured { cost, shared_writes, falsely } in all {
        match cost.strategy {
            "lazy" => {
                ctx.check(
                    "lazy: it met a 409 of its own making: a pass writes the replicas and then its report from one copy, which the first write has made old",
                    cost.own_conflicts > 0,
                );
                // Not one per 409: a pass may write the pool twice from one copy, and be refused both times.
                ctx.check(
                    "lazy: for that, whole passes were thrown away; the operators' own metrics count their result, conflict",
                    cost.thrown >= 1.0,
                );
            }
            "retry" => {
                // Whether a pass ended in a conflict says nothing here: that may be one over a Node.
                ctx.check("retry: it met a 409, so there was something to try again", cost.conflicts > 0);
                ctx.check("retry: it paid a read for each of its PUTs", cost.reads >= *shared_writes);
            }
            "guarded" => {
                ctx.check_eq(
                    "guarded: no 409, although it is often said that you will hit conflict errors",
                    &cost.conflicts,
                    &0,
                );
                ctx.check_eq("guarded: no guard failed unless the spec had changed", falsely, &0);
            }
            _ => ctx.check("patch: it read less often than it wrote", cost.reads < *shared_writes),
        }
    }
    let price = |wanted: &str| {
        let found = all.iter().find(|played| played.cost.strategy == wanted);
        found.map(|played| played.cost.per_write())
    };
    let [lazy, retry, patch, guarded] = ["lazy", "retry", "patch", "guarded"].map(price);
    let is_less = |a: Option<f64>, b: Option<f64>| a.zip(b).is_some_and(|(a, b)| a < b);
    let mut table = Table::new(&["strategy", "requests for a granted write", "409s", "passes thrown away"]);
    table.row(&[&"lazy", &"more than 1", &"some", &"some"]);
    table.row(&[&"retry", &"more than patch", &"some", &""]);
    table.row(&[&"patch", &"fewer than retry", &"as many as chance brings", &""]);
    table.row(&[&"guarded", &"fewer than lazy and retry", &"none", &""]);
    ctx.say("The costs that are the same in each run; the terminal also shows the numbers of this run:");
    ctx.table(table);
    ctx.check("lazy: more than one request for a granted write", is_less(Some(1.0), lazy));
    ctx.check("patch: fewer requests for a granted write than retry", is_less(patch, retry));
    ctx.check(
        "guarded: fewer requests for a granted write than lazy and than retry",
        is_less(guarded, lazy) && is_less(guarded, retry),
    );
}

/// Load is added and removed while all writers write. Returns the costs, and the forms of the writes.
async fn storm(tandem: &Tandem<'_>, strategy: &'static str) -> Result<(Measured, (String, String))> {
    let ctx = tandem.ctx;
    // A name for each strategy, so that a report has a row for each.
    let name = format!("busy-{strategy}");
    let name = name.as_str();
    ctx.set(&objects::pool(name, 0, 20)).await?;
    ctx.set(&objects::autoscaler("all", 1)).await?;
    ctx.set(&objects::deployment("web", name, 0, "2")).await?;
    let pools = Api::<NodePool>::namespaced(ctx.unrecorded_client().await?, ctx.namespace());
    let writer = ConcurrentWriter::start(pools, name, STORM, 20, 7);
    let mut rounds = 0;
    while rounds < ROUNDS {
        rounds += 1;
        for (pods, nodes) in [(8, 4), (0, 0)] {
            load(ctx, pods).await?;
            tandem.pods_run(usize::try_from(pods)?).await?;
            tandem.settles(name, nodes).await?;
        }
        let (key, events) = (tandem.key(name), tandem.events(name).await?);
        let is_met = match strategy {
            "lazy" => account::own_conflicts(&events, &key) > 0,
            "retry" => account::bill(&events, &key).conflicts > 0,
            _ => true,
        };
        if is_met {
            break;
        }
    }
    let report = writer.finish().await?;
    let pool = tandem.settles(name, 0).await?;

    let (key, events) = (tandem.key(name), tandem.events(name).await?);
    ctx.check(
        &format!("{strategy}: all that the third party was told is written is there"),
        passed(ctx, &report.check_kept(&pool)),
    );
    ctx.check(
        &format!("{strategy}: no write undid another one, none changed a field that is not its writer's"),
        passed(ctx, &LostUpdateCheck::of(&events, &key).check_unbroken())
            && passed(ctx, &WriteEffects::of(&events, &key).check_owned()),
    );
    let (bill, own_conflicts) = (account::bill(&events, &key), account::own_conflicts(&events, &key));
    // Only under `lazy` does a pass end with `conflict` at its first 409; the others try again within the pass.
    let expected = if strategy == "lazy" && bill.conflicts > 0 { 1.0 } else { 0.0 };
    let (passes, thrown) = passes(tandem, expected).await?;
    let ours: Vec<&Event> = events.iter().filter(|event| event.object.as_ref() == Some(&key)).collect();
    let cost = StrategyCost {
        strategy,
        began: ours.iter().map(|event| event.received).min().unwrap_or_default(),
        ended: ours.iter().map(|event| event.completed).max().unwrap_or_default(),
        rounds,
        reads: bill.reads,
        writes: bill.writes,
        granted: bill.granted,
        conflicts: bill.conflicts,
        own_conflicts,
        invalid: bill.invalid,
        passes,
        thrown,
        latencies: account::latencies(&events, &key),
    };
    let falsely = guards::false_conflicts(&events, &key).len();
    let seen = (forms(&ours, is_status), forms(&ours, is_count));
    Ok((Measured { cost, shared_writes: bill.shared_writes, falsely }, seen))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a user scales a Deployment, which no operator of Tandem writes"
)]
async fn load(ctx: &ScenarioContext, pods: i32) -> Result<()> {
    let deployments = Api::<Deployment>::namespaced(ctx.unrecorded_client().await?, ctx.namespace());
    let patch = Patch::Merge(json!({"spec": {"replicas": pods}}));
    deployments.patch_scale("web", &PatchParams::default(), &patch).await?;
    Ok(())
}

fn is_status(event: &Event) -> bool {
    event.subresource == "status"
}

/// Of the object itself, the Autoscaler writes only the count.
fn is_count(event: &Event) -> bool {
    let autoscaler = account::operator(event) == Some(AUTOSCALER_OPERATOR);
    event.subresource == "scale" || (event.subresource.is_empty() && autoscaler)
}

/// The forms of the operators' writes of a part.
fn forms(events: &[&Event], is_part: impl Fn(&Event) -> bool) -> String {
    let writes = events.iter().filter(|event| account::operator(event).is_some() && event.is_write());
    let of_it = writes.filter(|event| is_part(event) && event.succeeded());
    let forms: BTreeSet<&str> = of_it.map(|event| account::form(event)).collect();
    forms.into_iter().collect::<Vec<_>>().join(", ")
}

/// Number of passes of both operators, and of those that were discarded. Waits until at least `expected` are, or the time
/// is over, because a pass that met a conflict may still be running.
async fn passes(tandem: &Tandem<'_>, expected: f64) -> Result<(f64, f64)> {
    let counted = eventually(PATIENCE, "the passes are counted", || async {
        let thrown = ended(tandem, "conflict").await?;
        if thrown >= expected { Ok(Some(())) } else { bail!("{thrown} of {expected}") }
    });
    if let Err(error) = counted.await {
        tandem.ctx.live_quote(&format!("{error:#}"));
    }
    let thrown = ended(tandem, "conflict").await?;
    Ok((ended(tandem, "").await?, thrown))
}

/// Number of passes of both operators that ended with `result`, or at all.
async fn ended(tandem: &Tandem<'_>, result: &str) -> Result<f64> {
    let label = format!("result=\"{result}");
    let mut sum = 0.0;
    for operator in [&tandem.operators.node_pool, &tandem.operators.autoscaler] {
        sum += operator.metric("tandem_reconcile_total", &[&label]).await?;
    }
    Ok(sum)
}
