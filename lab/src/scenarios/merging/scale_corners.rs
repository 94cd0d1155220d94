//! `/scale` where it does not show the count, zero and unset, or who wrote it; and how it handles an apply.

use anyhow::{Context as _, Result, bail};
use conflict_retry::{Outcome, ScaleDecision, WriteOptions};
use kube::api::{Patch, PatchParams};
use kube::core::subresource::Scale;
use serde_json::{Value, json};

use super::guards::code;
use super::owners::owners;
use crate::context::{Actor, ScenarioContext};
use crate::pool::{Pool, PoolSpec, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "scale-corners",
    title: "Corner cases of /scale: zero replicas, an unset count, server-side apply, and managedFields",
    rows: &[],
    refutes: &[],
    lesson: "To test for zero replicas, test for an empty spec; to test for an unset count, test for the smallest int32.\nconflict_retry::scale knows both. To detect another writer's count, remember the number: after a zero through /scale, managedFields names no owner.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let alice = ctx.actor("alice").await?;
    zero(ctx, &alice).await?;
    forgotten(ctx, &alice).await?;
    unset(ctx, &alice).await?;
    apply(ctx, &alice).await
}

async fn zero(ctx: &ScenarioContext, alice: &Actor) -> Result<()> {
    ctx.set(&pool("zero", 0)).await?;
    ctx.say("A pool with replicas: 0. The answer of /scale has a spec, and nothing in it.");
    let scale = alice.api::<Pool>().get_scale("zero").await?;
    let spec = serde_json::to_string(&scale.spec)?;
    ctx.quote(&format!("\"spec\":{spec}"));
    ctx.check_eq("the zero is left out", &scale.spec.and_then(|spec| spec.replicas), &None);
    ctx.say("A JSON Patch sees the same: a test for 0 finds nothing to compare with, one for an empty spec holds.");
    let answer = code(guarded(alice, "zero", &json!({"path": "/spec/replicas", "value": 0})).await)?;
    ctx.check_eq("test /spec/replicas = 0: 422, though the count is 0", &answer, &422);
    let answer = code(guarded(alice, "zero", &json!({"path": "/spec", "value": {}})).await)?;
    ctx.check_eq("test /spec = {}: granted", &answer, &200);
    ctx.set(&pool("zero-too", 0)).await?;
    ctx.say("conflict_retry::scale, from 0 to 2:");
    let outcome = to(alice, "zero-too", 2).await?;
    ctx.check(
        "written, by the test that holds",
        matches!(&outcome, Outcome::Written(view) if view.replicas == Some(2)),
    );
    Ok(())
}

/// An entry of `managedFields` about a count that is left out is empty, and an empty entry is dropped.
#[expect(clippy::disallowed_methods, reason = "each kind of write is shown bare, by itself")]
async fn forgotten(ctx: &ScenarioContext, alice: &Actor) -> Result<()> {
    ctx.set(&pool("handed", 3)).await?;
    ctx.say("Who set the count: alice scales a pool of 3 to 2, to 0 and to 4, and then writes 5 into the pool itself.");
    for (count, writer) in [(2, "alice"), (0, "nobody"), (4, "nobody")] {
        written(alice, "handed", count).await?;
        let said = format!("{count} through /scale: managedFields names {writer}");
        ctx.check_eq(&said, &writer_of(ctx, "handed").await?, &writer.to_owned());
    }
    alice.api::<Pool>().patch("handed", &as_alice(), &Patch::Merge(replicas(5))).await?;
    let writer = writer_of(ctx, "handed").await?;
    ctx.check_eq("5 in the pool itself: alice again", &writer, &"alice".to_owned());
    Ok(())
}

async fn unset(ctx: &ScenarioContext, alice: &Actor) -> Result<()> {
    for name in ["unset", "unset-too"] {
        ctx.set(&Pool::new(name, PoolSpec::default())).await?;
    }
    ctx.say("A pool that does not say how many.");
    let Err(kube::Error::Api(status)) = alice.api::<Pool>().get_scale("unset").await else {
        bail!("/scale answered for an unset count");
    };
    ctx.check_eq("GET answers 500", &status.code, &500);
    let answer = code(guarded(alice, "unset", &json!({"path": "/spec/replicas", "value": i32::MIN})).await)?;
    ctx.check_eq(
        "a patch sees the smallest 32-bit integer in its place, and a test for that holds",
        &answer,
        &200,
    );
    ctx.say("conflict_retry::scale, from unset to 2. It asks for the object's identity when /scale fails, and for the count once more.");
    let outcome = to(alice, "unset-too", 2).await?;
    ctx.check("written", matches!(&outcome, Outcome::Written(view) if view.replicas == Some(2)));
    Ok(())
}

async fn apply(ctx: &ScenarioContext, alice: &Actor) -> Result<()> {
    ctx.set(&pool("applied", 3)).await?;
    ctx.say("An apply to /scale, which a user may try who applies everything else: another count, the same with force, and at last the count that is there. The first answer calls the owner “unknown”: that is who made the pool, a client that names no field manager and sends no user agent, whose name it would go by.");
    let other = code(applied(alice, "applied", 5, false).await)?;
    ctx.check_eq(
        "another count is refused, 409, because another manager set the one that is there",
        &other,
        &409,
    );
    let forced = code(applied(alice, "applied", 5, true).await)?;
    ctx.check_eq(
        "with force it is 500: the server fails to take the field from its owner through /scale",
        &forced,
        &500,
    );
    let same = code(applied(alice, "applied", 3, false).await)?;
    ctx.check_eq("only an apply that changes nothing is granted", &same, &200);
    let count = ctx.stored::<Pool>("applied").await?.spec.replicas;
    ctx.check_eq("the count is what it was", &count, &Some(3));
    Ok(())
}

fn as_alice() -> PatchParams {
    PatchParams { field_manager: Some("alice".to_owned()), ..PatchParams::default() }
}

fn replicas(count: i32) -> Value {
    json!({"spec": {"replicas": count}})
}

/// Sets the count through `/scale`, as kubectl does.
#[expect(clippy::disallowed_methods, reason = "each kind of write is shown bare, by itself")]
async fn written(alice: &Actor, name: &str, count: i32) -> Result<()> {
    alice.api::<Pool>().patch_scale(name, &as_alice(), &Patch::Merge(replicas(count))).await?;
    Ok(())
}

/// The one to whom `managedFields` assigns the count.
async fn writer_of(ctx: &ScenarioContext, name: &str) -> Result<String> {
    let owners = owners(&ctx.stored::<Pool>(name).await?.metadata);
    let mut writers = owners.into_iter().filter(|(_, fields)| fields.contains("spec.replicas"));
    Ok(writers.next().map_or_else(|| "nobody".to_owned(), |(writer, _)| writer))
}

async fn to(alice: &Actor, name: &str, count: i32) -> Result<Outcome<conflict_retry::ScaleView>> {
    let options = WriteOptions::new("alice");
    let decide = |_: &conflict_retry::ScaleView| ScaleDecision::Set(count);
    conflict_retry::scale(&alice.api::<Pool>(), name, decide)
        .with(&options)
        .outcome()
        .await
        .context("not scaled")
}

/// From the value in the test to 1.
#[expect(clippy::disallowed_methods, reason = "each kind of write is shown bare, by itself")]
async fn guarded(alice: &Actor, name: &str, test: &Value) -> Result<Scale, kube::Error> {
    let operations = json!([
        {"op": "test", "path": test["path"], "value": test["value"]},
        {"op": "add", "path": "/spec/replicas", "value": 1},
    ]);
    let patch = Patch::<()>::Json(serde_json::from_value(operations).map_err(kube::Error::SerdeError)?);
    alice.api::<Pool>().patch_scale(name, &PatchParams::default(), &patch).await
}

#[expect(clippy::disallowed_methods, reason = "each kind of write is shown bare, by itself")]
async fn applied(alice: &Actor, name: &str, replicas: i32, force: bool) -> Result<Scale, kube::Error> {
    let body = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": {"replicas": replicas},
    });
    let params = PatchParams { force, ..PatchParams::apply("alice") };
    alice.api::<Pool>().patch_scale(name, &params, &Patch::Apply(body)).await
}
