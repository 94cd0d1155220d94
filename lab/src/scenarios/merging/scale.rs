//! `/scale`: the guards of a write of a count.

use anyhow::{Context as _, Result};
use conflict_retry::{Class, Outcome, ScaleDecision, ScaleView, Source, Verb, WriteOptions, is_conflict};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::subresource::Scale;
use serde_json::{Value, json};

use super::owners::apply_status;
use crate::context::{Actor, ScenarioContext};
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "scale",
    title: "Set replicas through /scale: guard the count, not the object",
    rows: &["4g", "4i"],
    refutes: &["empty-version-ignores", "no-spec-writes"],
    lesson: "A resourceVersion guards the whole object: every status update makes the PUT of a count fail.\nA test of the count fails only when the count has changed, and then the decision must be made again anyway.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

const POOL: &str = "workers";

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let alice = ctx.actor("alice").await?;
    let bob = ctx.actor("bob").await?;
    ctx.set(&pool(POOL, 3)).await?;
    put(ctx, &alice, &bob).await?;
    tested(ctx, &alice, &bob).await?;
    with_scale(ctx, &alice, &bob).await
}

async fn put(ctx: &ScenarioContext, alice: &Actor, bob: &Actor) -> Result<()> {
    ctx.say("Alice reads the count through /scale. A controller updates the status; the count stays the same. She PUTs her count with the version that she read.");
    let seen = alice.api::<Pool>().get_scale(POOL).await?;
    report(bob, 1).await?;
    let answer = replace(alice, seen.metadata.resource_version.as_deref(), 5).await;
    ctx.check("the PUT is refused with 409, over a report", answer.is_err_and(|error| is_conflict(&error)));

    ctx.say("So she leaves the version out. Before that, Bob sets 7, which she does not know.");
    let bobs = scale_patch(bob, &Patch::Merge(json!({"spec": {"replicas": 7}}))).await?;
    let bobs = bobs.spec.and_then(|spec| spec.replicas);
    let answer = replace(alice, None, 5).await;
    ctx.check("a PUT to /scale without a version is granted", answer.is_ok());
    ctx.check_eq(
        "and Bob's 7, granted before, is lost without an error",
        &(bobs, count(ctx).await?),
        &(Some(7), Some(5)),
    );
    Ok(())
}

async fn tested(ctx: &ScenarioContext, alice: &Actor, bob: &Actor) -> Result<()> {
    ctx.say("A JSON Patch that tests the count. Once more a report comes in between:");
    report(bob, 2).await?;
    let answer = scale_patch(alice, &from_to(5, 6)?).await;
    ctx.check("granted: the test looks at the count, which is what she decided from", answer.is_ok());
    ctx.say("And now another count:");
    scale_patch(bob, &Patch::Merge(json!({"spec": {"replicas": 8}}))).await?;
    let answer = scale_patch(alice, &from_to(6, 7)?).await;
    ctx.check_eq(
        "refused with 422: the test failed",
        &answer.err().map(|error| Class::of(Verb::JsonPatch, &error)),
        &Some(Class::TestFailed),
    );
    ctx.check_eq("Bob's 8 stands", &count(ctx).await?, &Some(8));
    Ok(())
}

async fn with_scale(ctx: &ScenarioContext, alice: &Actor, bob: &Actor) -> Result<()> {
    ctx.say("conflict_retry::scale does that by itself. Alice wants at least 9, and decides from what her cache says, 8; a report has come since.");
    let copy = ctx.stored::<Pool>(POOL).await?;
    report(bob, 3).await?;
    let generation = copy.metadata.generation;
    let before = alice.counts();
    let outcome = at_least(alice, 9, ScaleView::of(&copy, copy.spec.replicas, None)).await?;
    let after = alice.counts();
    ctx.check("written", matches!(outcome, Outcome::Written(_)));
    ctx.check_eq(
        "with one request, and no conflict",
        &(after.requests - before.requests, after.conflicts - before.conflicts),
        &(1, 0),
    );
    let stored = ctx.stored::<Pool>(POOL).await?;
    ctx.check_eq(
        "“controllers should not update the spec”: an autoscaler does, here by one field of it, and the generation moves",
        &(stored.spec.replicas, stored.metadata.generation),
        &(Some(9), generation.map(|generation| generation + 1)),
    );
    ctx.say("Then she wants at least 10, from 9, when Bob has set 12 already:");
    let copy = ctx.stored::<Pool>(POOL).await?;
    scale_patch(bob, &Patch::Merge(json!({"spec": {"replicas": 12}}))).await?;
    let outcome = at_least(alice, 10, ScaleView::of(&copy, copy.spec.replicas, None)).await?;
    ctx.check(
        "the test fails, she is asked again with the count that is there, and has nothing to do",
        matches!(&outcome, Outcome::Unchanged(view) if view.replicas == Some(12)),
    );
    ctx.check_eq("nothing was written over", &count(ctx).await?, &Some(12));
    Ok(())
}

/// Sets the count to `least` when it is lower.
async fn at_least(alice: &Actor, least: i32, copy: ScaleView) -> Result<Outcome<ScaleView>> {
    let options = WriteOptions::new("alice");
    let decide = |view: &ScaleView| match view.replicas {
        Some(count) if count >= least => ScaleDecision::Keep,
        _ => ScaleDecision::Set(least),
    };
    Ok(conflict_retry::scale(&alice.api::<Pool>(), POOL, decide)
        .with(&options)
        .from(Source::Copy(copy))
        .outcome()
        .await?)
}

#[expect(clippy::disallowed_methods, reason = "the naive half: a bare PUT to /scale")]
async fn replace(alice: &Actor, version: Option<&str>, replicas: i32) -> Result<Scale, kube::Error> {
    let mut scale = Scale::default();
    scale.metadata.name = Some(POOL.to_owned());
    scale.metadata.resource_version = version.map(str::to_owned);
    scale.spec.get_or_insert_default().replicas = Some(replicas);
    alice.api::<Pool>().replace_scale(POOL, &PostParams::default(), &scale).await
}

#[expect(clippy::disallowed_methods, reason = "each kind of write is shown bare, by itself")]
async fn scale_patch(actor: &Actor, patch: &Patch<Value>) -> Result<Scale, kube::Error> {
    actor.api::<Pool>().patch_scale(POOL, &PatchParams::default(), patch).await
}

fn from_to(from: i32, to: i32) -> Result<Patch<Value>> {
    let operations = json!([
        {"op": "test", "path": "/spec/replicas", "value": from},
        {"op": "replace", "path": "/spec/replicas", "value": to},
    ]);
    Ok(Patch::Json(serde_json::from_value(operations)?))
}

/// A write to the status: it moves the version, and not the count.
async fn report(actor: &Actor, ready: i32) -> Result<()> {
    apply_status(actor, POOL, &json!({"ready": ready}), false).await?.met().context("no report")?;
    Ok(())
}

async fn count(ctx: &ScenarioContext) -> Result<Option<i32>> {
    Ok(ctx.stored::<Pool>(POOL).await?.spec.replicas)
}
