//! JSON and merge patches, with every guard they can carry.

use std::fmt::Display;

use anyhow::{Context as _, Result, bail};
use conflict_retry::{Class, Outcome, Source, Subresource, Verb, WriteOptions, is_conflict};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::guards;
use crate::context::{Actor, ScenarioContext};
use crate::event::Table;
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "patches",
    title: "Guards for a patch: none, a value, the generation, or the resourceVersion",
    rows: &["4g"],
    refutes: &["never-set-version"],
    lesson: "Guard what you decided from: one value by a test of it, the spec by generation, the whole object by resourceVersion.\nSend the version that you read, never one that you made up; a failed test is a 422, which means the same as a 409.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

const POOL: &str = "workers";

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let alice = ctx.actor("alice").await?;
    let bob = ctx.actor("bob").await?;
    ctx.set(&pool(POOL, 3)).await?;
    blind(ctx, &alice, &bob).await?;
    tested(ctx, &alice, &bob).await?;
    generation(ctx, &alice, &bob).await?;
    versioned(ctx, &alice, &bob).await?;
    invented(ctx).await?;
    matrix(ctx).await
}

async fn blind(ctx: &ScenarioContext, alice: &Actor, bob: &Actor) -> Result<()> {
    ctx.say("Alice reads 3 and decides: two more. Bob, who needs fewer, sets 2 in the meantime. Her JSON Patch does not say what she read.");
    alice.api::<Pool>().get(POOL).await?;
    let bobs = merge(bob, &json!({"spec": {"replicas": 2}})).await?.spec.replicas;
    let granted = json_patch(alice, &json!([{"op": "replace", "path": "/spec/replicas", "value": 5}])).await;
    ctx.check("an unguarded patch is granted", granted.is_ok());
    let stored = ctx.stored::<Pool>(POOL).await?.spec.replicas;
    ctx.check_eq("and Bob's 2, granted before, is lost without a word", &(bobs, stored), &(Some(2), Some(5)));
    Ok(())
}

async fn tested(ctx: &ScenarioContext, alice: &Actor, bob: &Actor) -> Result<()> {
    ctx.say("Again, from 5 to 7, and now the patch tests the value that she decided from. Bob sets 4 before it arrives.");
    let operations = json!([
        {"op": "test", "path": "/spec/replicas", "value": 5},
        {"op": "replace", "path": "/spec/replicas", "value": 7},
    ]);
    merge(bob, &json!({"spec": {"replicas": 4}})).await?;
    let Err(error) = json_patch(alice, &operations).await else {
        bail!("the patch was granted though its test fails");
    };
    ctx.check(
        "it is refused with 422 Invalid, for which the usual test for a conflict says no",
        matches!(&error, kube::Error::Api(status) if status.code == 422 && status.reason == "Invalid")
            && !is_conflict(&error),
    );
    ctx.check_eq(
        "conflict_retry tells it from an invalid object: a test failed",
        &Class::of(Verb::JsonPatch, &error),
        &Class::TestFailed,
    );
    let options = WriteOptions::new("alice");
    let pools = alice.api::<Pool>();
    let outcome =
        conflict_retry::once::json_patch(&pools, POOL, Subresource::Main, &options, &operations).await?;
    ctx.check("and its json_patch answers Conflict", matches!(outcome, Outcome::Conflict(_)));
    let stored = ctx.stored::<Pool>(POOL).await?;
    ctx.check_eq("Bob's 4 stands", &stored.spec.replicas, &Some(4));

    ctx.say("A controller reports to the status, which moves the version. Alice's next decision, from 4 to 6, tests the value again.");
    report(bob, 1).await?;
    let operations = json!([
        {"op": "test", "path": "/spec/replicas", "value": 4},
        {"op": "replace", "path": "/spec/replicas", "value": 6},
    ]);
    let outcome =
        conflict_retry::once::json_patch(&pools, POOL, Subresource::Main, &options, &operations).await?;
    ctx.check("the status is none of the test's business: written", matches!(outcome, Outcome::Written(_)));
    Ok(())
}

async fn generation(ctx: &ScenarioContext, alice: &Actor, bob: &Actor) -> Result<()> {
    ctx.say("Where a decision was made from all of the spec, the test can name the generation: every change of the spec moves it, no report to the status does.");
    let read = alice.api::<Pool>().get(POOL).await?;
    let seen = read.metadata.generation.context("no generation")?;
    let operations = |replicas: i32, generation: i64| {
        json!([
            {"op": "test", "path": "/metadata/generation", "value": generation},
            {"op": "replace", "path": "/spec/replicas", "value": replicas},
        ])
    };
    report(bob, 2).await?;
    let churned = json_patch(alice, &operations(7, seen)).await;
    ctx.check("after a report it is granted", churned.is_ok());
    let seen = churned?.metadata.generation.context("no generation")?;
    merge(bob, &json!({"spec": {"machine": "large"}})).await?;
    let moved = json_patch(alice, &operations(8, seen)).await;
    ctx.check_eq(
        "after a change of another field of the spec it is refused",
        &moved.err().map(|error| Class::of(Verb::JsonPatch, &error)),
        &Some(Class::TestFailed),
    );
    Ok(())
}

async fn versioned(ctx: &ScenarioContext, alice: &Actor, bob: &Actor) -> Result<()> {
    ctx.say("A merge patch is guarded by the version, when it carries one. Alice reads, Bob writes, and she sends the same change without it and with it.");
    let read = alice.api::<Pool>().get(POOL).await?;
    let seen = read.metadata.resource_version.clone().context("no version")?;
    report(bob, 3).await?;
    let guarded = json!({"metadata": {"resourceVersion": seen}, "spec": {"replicas": 9}});
    let refused = merge(alice, &guarded).await;
    ctx.check(
        "with the version that she read, which is old by now: 409, even though only the status was written",
        refused.as_ref().is_err_and(is_conflict),
    );
    let granted = merge(alice, &json!({"spec": {"replicas": 9}})).await;
    ctx.check("without it: granted, as it always is", granted.is_ok());

    ctx.say("conflict_retry::merge_patch reads, carries the version, and decides again after a 409. She wants one more than are ready, and gives it the copy from before Bob's report, which says 2.");
    let before = alice.counts();
    let options = WriteOptions::new("alice");
    let pools = alice.api::<Pool>();
    let source = Source::Copy(read);
    let outcome = conflict_retry::merge_patch(&pools, POOL, |pool: &Pool| {
        let ready = pool.status.as_ref()?.ready?;
        Some(json!({"spec": {"replicas": ready + 1}}))
    })
    .with(&options)
    .from(source)
    .outcome()
    .await?;
    let after = alice.counts();
    ctx.check_eq(
        "one 409, one read, one write, decided from the newest report: 3 are ready, so 4",
        &(
            after.conflicts - before.conflicts,
            after.requests - before.requests,
            outcome.met().and_then(|pool| pool.spec.replicas),
        ),
        &(1, 3, Some(4)),
    );
    Ok(())
}

/// With the unrecorded client, because a version that never existed has no replacement on the page.
#[expect(clippy::disallowed_methods, reason = "each kind of patch is shown bare, by itself")]
async fn invented(ctx: &ScenarioContext) -> Result<()> {
    ctx.say("So you set the version in a patch body yourself, and have to. But never make one up.");
    let pools = Api::<Pool>::namespaced(ctx.unrecorded_client().await?, ctx.namespace());
    let stored = pools.get(POOL).await?.metadata.resource_version.context("no version")?;
    let next = stored.parse::<u128>().context("the version is no number")? + 1;
    let versions = [
        ("1", "1".to_owned()),
        ("the stored one and one more", next.to_string()),
        ("\"newest\"", "newest".to_owned()),
        ("\"\"", String::new()),
    ];
    let (mut table, mut answers) = (Table::new(&["version in the merge patch", "answer"]), Vec::new());
    for (label, text) in versions {
        let body = json!({"metadata": {"resourceVersion": text}, "spec": {"note": label}});
        let answer = guards::code(pools.patch(POOL, &PatchParams::default(), &Patch::Merge(body)).await)?;
        table.row(&[&label, &answer]);
        answers.push(answer);
    }
    ctx.table(table);
    ctx.check_eq("none of these is taken", &answers, &vec![409, 409, 500, 422]);
    Ok(())
}

/// Each guard against each kind of intermediate write, on separate pools, with the unrecorded client.
async fn matrix(ctx: &ScenarioContext) -> Result<()> {
    ctx.say("Every guard against every write that may come in between; each time from 3 to 5, on a pool of its own.");
    let pools = Api::<Pool>::namespaced(ctx.unrecorded_client().await?, ctx.namespace());
    let mut table = Table::new(&["guard", "nothing", "a report", "the machine type", "the count"]);
    let mut found = Vec::new();
    for guard in &guards::ALL {
        let mut answers = Vec::new();
        for between in &guards::BETWEEN {
            answers.push(guards::answer(&pools, guard, between).await?);
        }
        let cells: Vec<&dyn Display> = answers.iter().map(|code| code as _).collect();
        table.row(&[&[&guard.name as &dyn Display], &cells[..]].concat());
        found.push(answers);
    }
    ctx.table(table);
    for (guard, answers) in guards::ALL.iter().zip(found) {
        ctx.check_eq(&format!("{}: {}", guard.name, guard.claim), &answers, &guard.wanted.to_vec());
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "each kind of patch is shown bare, by itself")]
async fn json_patch(actor: &Actor, operations: &Value) -> Result<Pool, kube::Error> {
    let patch =
        Patch::<()>::Json(serde_json::from_value(operations.clone()).map_err(kube::Error::SerdeError)?);
    actor.api::<Pool>().patch(POOL, &PatchParams::default(), &patch).await
}

#[expect(clippy::disallowed_methods, reason = "each kind of patch is shown bare, by itself")]
async fn merge(actor: &Actor, body: &Value) -> Result<Pool, kube::Error> {
    actor.api::<Pool>().patch(POOL, &PatchParams::default(), &Patch::Merge(body)).await
}

/// A write to the status: it moves the version and changes no basis of a decision.
async fn report(actor: &Actor, ready: i32) -> Result<()> {
    let status = json!({"ready": ready});
    super::owners::apply_status(actor, POOL, &status, false).await?.met().context("no report")?;
    Ok(())
}
