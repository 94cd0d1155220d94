//! An object has one version, whichever endpoint is written.

use anyhow::Result;
use conflict_retry::{WriteOptions, apply_status};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::code;
use crate::context::{Actor, ScenarioContext};
use crate::event::Table;
use crate::pool::{Pool, PoolStatus, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "one-version",
    title: "Spec and status share one resourceVersion: a write to either makes every copy old",
    rows: &["0e"],
    refutes: &["status-conflicts", "status-version"],
    lesson: "There is one version per object: writing /status instead of the object avoids no conflict.\nTo avoid conflicts, send only your own fields, by an apply or a patch without a version.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// Number of tries of each pair of writes.
const ROUNDS: usize = 2;

/// The pool's name.
const NAME: &str = "workers";

/// One write between a read and the PUT that follows it.
struct Case {
    /// The intermediate write.
    between: &'static str,
    /// The endpoint of the PUT.
    endpoint: &'static str,
    /// Whether the intermediate write moves the generation.
    moves_generation: bool,
}

const CASES: [Case; 6] = [
    Case { between: "status", endpoint: "the object", moves_generation: false },
    Case { between: "status", endpoint: "/status", moves_generation: false },
    Case { between: "spec", endpoint: "the object", moves_generation: true },
    Case { between: "spec", endpoint: "/status", moves_generation: true },
    Case { between: "a label", endpoint: "the object", moves_generation: false },
    Case { between: "a label", endpoint: "/status", moves_generation: false },
];

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let (alice, controller) = (ctx.actor("alice").await?, ctx.actor("controller").await?);
    ctx.set(&pool(NAME, 3)).await?;
    let mut table = Table::new(&["written in between", "then", "refused", "generation"]);
    for case in &CASES {
        put_after(ctx, &alice, &controller, case, &mut table).await?;
    }
    own_fields(ctx, &alice, &controller, &mut table).await?;
    ctx.table(table);
    ctx.say("How often each of these happens in a cluster depends on how often each client writes; the table has each kind of write equally often.");
    Ok(())
}

/// A PUT from a copy that is older than the intermediate write.
async fn put_after(
    ctx: &ScenarioContext,
    alice: &Actor,
    controller: &Actor,
    case: &Case,
    table: &mut Table,
) -> Result<()> {
    let Case { between, endpoint, moves_generation } = case;
    ctx.say(&format!("Alice reads, a controller writes {between}, and Alice PUTs to {endpoint} what she read, with a change of hers; {ROUNDS} times."));
    let (mut refused, mut moved) = (0, 0);
    for round in 0..ROUNDS {
        let copy = alice.api::<Pool>().get(NAME).await?;
        let newer = interfere(controller, between, round).await?;
        moved += usize::from(newer.metadata.generation != copy.metadata.generation);
        refused += usize::from(put(alice, endpoint, copy, round).await == 409);
    }
    ctx.check_eq(
        &format!("written in between: {between}; PUT to {endpoint}: {ROUNDS} of {ROUNDS} are refused"),
        &refused,
        &ROUNDS,
    );
    let effect = if *moves_generation { "moves" } else { "stays" };
    ctx.check_eq(
        &format!("a write of {between}: the generation {effect}"),
        &moved,
        &if *moves_generation { ROUNDS } else { 0 },
    );
    table.row(&[between, &format!("PUT to {endpoint}"), &format!("{refused} of {ROUNDS}"), &effect]);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the other writer is not the subject")]
async fn interfere(controller: &Actor, what: &str, round: usize) -> Result<Pool> {
    let (pools, params) = (controller.api::<Pool>(), PatchParams::default());
    let patch = |body: Value| Patch::Merge(body);
    Ok(match what {
        "status" => pools.patch_status(NAME, &params, &patch(json!({"status": {"ready": round}}))).await?,
        "spec" => pools.patch(NAME, &params, &patch(json!({"spec": {"replicas": 10 + round}}))).await?,
        _ => {
            // A different value in every round and case, so that each is a change.
            let stamp = controller.requests().len().to_string();
            let body = json!({"metadata": {"labels": {"seen": stamp}}});
            pools.patch(NAME, &params, &patch(body)).await?
        }
    })
}

#[expect(clippy::disallowed_methods, reason = "shows the bare PUT")]
async fn put(alice: &Actor, endpoint: &str, mut copy: Pool, round: usize) -> u16 {
    let (pools, params) = (alice.api::<Pool>(), PostParams::default());
    let note = Some(format!("round {round}"));
    if endpoint == "/status" {
        copy.status = Some(PoolStatus { message: note, ..copy.status.unwrap_or_default() });
        code(&pools.replace_status(NAME, &params, &copy).await)
    } else {
        copy.spec.note = note;
        code(&pools.replace(NAME, &params, &copy).await)
    }
}

/// The same two writers, each of which sends only its own fields.
#[expect(clippy::disallowed_methods, reason = "shows a patch of one's own field, which no version guards")]
async fn own_fields(
    ctx: &ScenarioContext,
    alice: &Actor,
    controller: &Actor,
    table: &mut Table,
) -> Result<()> {
    ctx.say("Now each sends only fields of its own, without a version: Alice applies her part of the status and patches her note. A controller writes status and spec in between, as before.");
    let pools = alice.api::<Pool>();
    let options = WriteOptions::new("alice");
    let before = alice.counts().conflicts;
    let mut written = 0;
    for round in 0..ROUNDS {
        pools.get(NAME).await?;
        interfere(controller, "spec", 10 + round).await?;
        let status = json!({
            "apiVersion": "lab.tandem.dev/v1", "kind": "Pool",
            "status": {"selector": format!("round={round}")},
        });
        written +=
            usize::from(apply_status(&pools, NAME, &status).with(&options).outcome().await?.met().is_some());
        interfere(controller, "status", 10 + round).await?;
        let note = Patch::Merge(json!({"spec": {"note": format!("own {round}")}}));
        written += usize::from(code(&pools.patch(NAME, &PatchParams::default(), &note).await) == 200);
    }
    let conflicts = alice.counts().conflicts - before;
    ctx.check_eq(
        &format!("all {} writes are granted, and none met a conflict", 2 * ROUNDS),
        &(written, conflicts),
        &(2 * ROUNDS, 0),
    );
    let stored = ctx.stored::<Pool>(NAME).await?;
    let status = stored.status.clone().unwrap_or_default();
    ctx.check_eq(
        "and both writers' fields are in the object",
        &(stored.spec.note.as_deref(), stored.spec.replicas, status.selector.as_deref(), status.ready),
        &(Some("own 1"), Some(21), Some("round=1"), Some(11)),
    );
    let none = format!("0 of {}", 2 * ROUNDS);
    table.row(&[&"spec and status", &"apply and patch of one's own fields", &none, &"moves with spec"]);
    Ok(())
}
