//! Answers that depend on the written object.

use anyhow::{Context as _, Result};
use conflict_retry::{
    DeleteOutcome, Source, Subresource, UpdateDecision, WriteError, WriteOptions, apply, merge_patch, once,
    update,
};
use kube::api::{DeleteParams, Preconditions};
use serde_json::json;

use super::{ErrorCase, Expected, NAME, label};
use crate::context::ScenarioContext;
use crate::event::Table;
use crate::pool::{Pool, pool};

/// The UID of no object of the lab.
const EARLIER: &str = "00000000-0000-4000-8000-000000000000";

pub(super) async fn all(ctx: &ScenarioContext, table: &mut Table, old: &Pool) -> Result<()> {
    not_found(ctx, table).await?;
    already_exists(ctx, table).await?;
    stale_version(ctx, table, old).await?;
    failed_test(ctx, table).await?;
    other_uid(ctx, table).await?;
    field_manager(ctx, table).await?;
    invalid(ctx, table).await
}

async fn not_found(ctx: &ScenarioContext, table: &mut Table) -> Result<()> {
    let case = ErrorCase::of_alice(ctx).await?;
    let ended =
        update(&case.pools(), "absent", |_| UpdateDecision::Write).put().with(&case.options).outcome().await;
    let expected = Expected {
        what: "there is no such object",
        code: 404,
        class: "not_found",
        ends: "gone",
        requests: 1,
        deserves: "stop writing, or create it",
    };
    case.end(ctx, table, &expected, label(&ended));
    Ok(())
}

async fn already_exists(ctx: &ScenarioContext, table: &mut Table) -> Result<()> {
    let case = ErrorCase::of_alice(ctx).await?;
    let ended = once::create(&case.pools(), &case.options, &pool(NAME, 9)).await;
    let expected = Expected {
        what: "create: the name is taken",
        code: 409,
        class: "already_exists",
        ends: "already_exists",
        requests: 1,
        deserves: "read it and adopt it, or take another name",
    };
    case.end(ctx, table, &expected, ended.as_ref().map_or_else(WriteError::category, |_| "created"));
    Ok(())
}

async fn stale_version(ctx: &ScenarioContext, table: &mut Table, old: &Pool) -> Result<()> {
    let (bob, copy) = (ctx.actor("bob").await?, Source::Copy(old.clone()));
    let outcome = update(&bob.api::<Pool>(), NAME, |pool| {
        pool.spec.replicas = Some(4);
        UpdateDecision::Write
    })
    .put()
    .with(&WriteOptions::new("bob"))
    .from(copy)
    .outcome()
    .await?;
    outcome.met().context("the pool is gone")?;
    let case = ErrorCase::of_alice(ctx).await?;
    let ended = update(&case.pools(), NAME, |pool| {
        pool.spec.machine = Some("large".into());
        UpdateDecision::Write
    })
    .put()
    .with(&case.options)
    .from(Source::Copy(old.clone()))
    .outcome()
    .await;
    let expected = Expected {
        what: "PUT: the version is old",
        code: 409,
        class: "conflict",
        ends: "written",
        requests: 3,
        deserves: "read again and decide again",
    };
    case.end(ctx, table, &expected, label(&ended));
    Ok(())
}

async fn failed_test(ctx: &ScenarioContext, table: &mut Table) -> Result<()> {
    let case = ErrorCase::of_alice(ctx).await?;
    let operations = json!([
        {"op": "test", "path": "/spec/replicas", "value": 3},
        {"op": "replace", "path": "/spec/replicas", "value": 5},
    ]);
    let ended = once::json_patch(&case.pools(), NAME, Subresource::Main, &case.options, &operations).await;
    let expected = Expected {
        what: "JSON Patch: its test fails",
        code: 422,
        class: "test_failed",
        ends: "conflict",
        requests: 1,
        deserves: "read again and decide again",
    };
    case.end(ctx, table, &expected, label(&ended));
    Ok(())
}

/// A deletion of an object that was made anew under its name.
async fn other_uid(ctx: &ScenarioContext, table: &mut Table) -> Result<()> {
    let case = ErrorCase::of_alice(ctx).await?;
    let preconditions = Preconditions { uid: Some(EARLIER.to_owned()), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let ended = once::delete(&case.pools(), NAME, &case.options, &params).await;
    let expected = Expected {
        what: "delete: the UID is another one",
        code: 409,
        class: "uid_mismatch",
        ends: "conflict",
        requests: 1,
        deserves: "it is another object; start over with that",
    };
    let label = ended.as_ref().map_or_else(WriteError::category, DeleteOutcome::label);
    case.end(ctx, table, &expected, label);
    Ok(())
}

async fn field_manager(ctx: &ScenarioContext, table: &mut Table) -> Result<()> {
    let case = ErrorCase::of_alice(ctx).await?;
    let body = json!({"apiVersion": "lab.tandem.dev/v1", "kind": "Pool", "spec": {"note": "taken"}});
    let ended = apply(&case.pools(), NAME, &body).with(&case.options).outcome().await;
    let expected = Expected {
        what: "apply: another owns the field",
        code: 409,
        class: "field_manager",
        ends: "field_manager",
        requests: 1,
        deserves: "leave the field out, or force it; no retry",
    };
    case.end(ctx, table, &expected, label(&ended));
    Ok(())
}

async fn invalid(ctx: &ScenarioContext, table: &mut Table) -> Result<()> {
    let case = ErrorCase::of_alice(ctx).await?;
    let newest = Source::Copy(ctx.stored::<Pool>(NAME).await?);
    let many = |_: &Pool| Some(json!({"spec": {"replicas": "many"}}));
    let ended = merge_patch(&case.pools(), NAME, many).with(&case.options).from(newest).outcome().await;
    let expected = Expected {
        what: "the object is not valid",
        code: 422,
        class: "invalid",
        ends: "invalid",
        requests: 1,
        deserves: "correct it; no retry",
    };
    case.end(ctx, table, &expected, label(&ended));
    Ok(())
}
