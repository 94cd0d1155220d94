//! Which writes move `resourceVersion`, and which move `generation`.

use anyhow::{Context as _, Result};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::context::{Actor, ScenarioContext};
use crate::event::Table;
use crate::pool::{Foo, FooSpec, Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "generation",
    title: "resourceVersion moves with every change, generation with the spec",
    rows: &["2a", "4b"],
    refutes: &["status-version", "no-op-moves-version"],
    lesson: "generation changes when the desired state changes; resourceVersion changes with every write.\nCompare generation with status.observedGeneration; guard writes with resourceVersion.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// The changes: text, endpoint, and whether version and generation must move.
const CHANGES: [(&str, Endpoint, bool, bool); 8] = [
    ("spec", Endpoint::Main, true, true),
    ("the same spec again", Endpoint::Main, false, false),
    ("status", Endpoint::Status, true, false),
    ("the same status again", Endpoint::Status, false, false),
    ("replicas through /scale", Endpoint::Scale, true, true),
    ("a label", Endpoint::Main, true, false),
    ("a finalizer", Endpoint::Main, true, false),
    ("the same labels again", Endpoint::Main, false, false),
];

#[derive(Clone, Copy)]
enum Endpoint {
    Main,
    Status,
    Scale,
}

fn body(change: &str) -> Value {
    match change {
        "spec" | "the same spec again" => json!({"spec": {"machine": "large"}}),
        "status" | "the same status again" => json!({"status": {"ready": 2}}),
        "replicas through /scale" => json!({"spec": {"replicas": 4}}),
        "a finalizer" => json!({"metadata": {"finalizers": ["lab.tandem.dev/hold"]}}),
        _ => json!({"metadata": {"labels": {"team": "a"}}}),
    }
}

#[expect(clippy::disallowed_methods, reason = "each kind of write is shown bare, by itself")]
async fn run(ctx: &ScenarioContext) -> Result<()> {
    let alice = ctx.actor("alice").await?;
    ctx.set(&pool("workers", 3)).await?;
    ctx.say("One change after the other, without another writer.");
    let mut table = Table::new(&["what is written", "resourceVersion", "generation"]);
    for (change, endpoint, moves_version, moves_generation) in CHANGES {
        let before = marks(&ctx.stored("workers").await?)?;
        send(&alice, endpoint, &body(change)).await?;
        let after = marks(&ctx.stored("workers").await?)?;
        let moved = (before.0 != after.0, before.1 != after.1);
        table.row(&[&change, &moves_or_stays(moved.0), &moves_or_stays(moved.1)]);
        ctx.check_eq(
            &format!(
                "{change}: the version {}, the generation {}",
                moves_or_stays(moves_version),
                moves_or_stays(moves_generation)
            ),
            &moved,
            &(moves_version, moves_generation),
        );
    }
    ctx.say("A deletion that a finalizer holds is a change too: it sets deletionTimestamp, and moves both.");
    let before = marks(&ctx.stored("workers").await?)?;
    alice.api::<Pool>().delete("workers", &DeleteParams::default()).await?;
    let after = marks(&ctx.stored("workers").await?)?;
    let moved = (before.0 != after.0, before.1 != after.1);
    table.row(&[&"deletion, held by a finalizer", &moves_or_stays(moved.0), &moves_or_stays(moved.1)]);
    ctx.check_eq("a held deletion moves version and generation", &moved, &(true, true));
    without_subresource(ctx, &alice, &mut table).await?;
    ctx.table(table);
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let pools = kube::Api::<Pool>::namespaced(ctx.unrecorded_client().await?, ctx.namespace());
    pools.patch("workers", &PatchParams::default(), &free).await?;
    Ok(())
}

/// The status of a kind that is defined without the subresource.
#[expect(clippy::disallowed_methods, reason = "each kind of write is shown bare, by itself")]
async fn without_subresource(ctx: &ScenarioContext, alice: &Actor, table: &mut Table) -> Result<()> {
    ctx.say("The generation leaves the status out only where the definition declares the status subresource. Foo has a status and declares none, so its status is one more field of the object.");
    let made = ctx.set(&Foo::new("hello", FooSpec::default())).await?;
    let patch = Patch::Merge(json!({"status": {"said": "Hello"}}));
    let foos = alice.api::<Foo>();
    let written = foos.patch("hello", &PatchParams::default(), &patch).await?;
    let (before, after) = (&made.metadata, &written.metadata);
    let moved = (before.resource_version != after.resource_version, before.generation != after.generation);
    table.row(&[&"status, without the subresource", &moves_or_stays(moved.0), &moves_or_stays(moved.1)]);
    ctx.check_eq(
        "status, without the subresource: version and generation move, so a controller that compares generations is called by its own report",
        &moved,
        &(true, true),
    );
    let refused = foos.patch_status("hello", &PatchParams::default(), &patch).await;
    let is_missing = matches!(refused, Err(kube::Error::Api(status)) if status.code == 404);
    ctx.check("and there is no /status to write to: 404", is_missing);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "each kind of write is shown bare, by itself")]
async fn send(alice: &Actor, endpoint: Endpoint, body: &Value) -> Result<()> {
    let (pools, params, patch) = (alice.api::<Pool>(), PatchParams::default(), Patch::Merge(body));
    match endpoint {
        Endpoint::Main => drop(pools.patch("workers", &params, &patch).await?),
        Endpoint::Status => drop(pools.patch_status("workers", &params, &patch).await?),
        Endpoint::Scale => drop(pools.patch_scale("workers", &params, &patch).await?),
    }
    Ok(())
}

fn marks(pool: &Pool) -> Result<(String, i64)> {
    let version = pool.metadata.resource_version.clone().context("no version")?;
    Ok((version, pool.metadata.generation.context("no generation")?))
}

const fn moves_or_stays(moves: bool) -> &'static str {
    if moves { "moves" } else { "stays" }
}
