//! Answers that depend on the object that is written.

use anyhow::{Context as _, Result};
use conflict_retry::{
    Decision, Source, Subresource, WriteError, WriteOptions, apply, create, json_patch, merge_patch, update,
};
use serde_json::json;

use super::{Expected, NAME, Trial, word};
use crate::event::Table;
use crate::pool::{Pool, pool};
use crate::stage::Stage;

pub(super) async fn all(stage: &Stage, table: &mut Table, old: &Pool) -> Result<()> {
    not_found(stage, table).await?;
    already_exists(stage, table).await?;
    stale_version(stage, table, old).await?;
    failed_test(stage, table).await?;
    field_manager(stage, table).await?;
    invalid(stage, table).await
}

async fn not_found(stage: &Stage, table: &mut Table) -> Result<()> {
    let trial = Trial::of_alice(stage).await?;
    let ended = update(&trial.pools(), "nobody", &trial.options, Source::Live, |_| Decision::Write).await;
    let expected = Expected {
        what: "there is no such object",
        code: 404,
        class: "not_found",
        ends: "gone",
        requests: 1,
        deserves: "stop writing, or create it",
    };
    trial.end(stage, table, &expected, word(&ended));
    Ok(())
}

async fn already_exists(stage: &Stage, table: &mut Table) -> Result<()> {
    let trial = Trial::of_alice(stage).await?;
    let ended = create(&trial.pools(), &trial.options, &pool(NAME, 9)).await;
    let expected = Expected {
        what: "create: the name is taken",
        code: 409,
        class: "already_exists",
        ends: "already_exists",
        requests: 1,
        deserves: "read it and adopt it, or take another name",
    };
    trial.end(stage, table, &expected, ended.as_ref().map_or_else(WriteError::category, |_| "created"));
    Ok(())
}

async fn stale_version(stage: &Stage, table: &mut Table, old: &Pool) -> Result<()> {
    let (bob, copy) = (stage.actor("bob").await?, Source::Copy(old.clone()));
    let outcome = update(&bob.api::<Pool>(), NAME, &WriteOptions::new("bob"), copy, |pool| {
        pool.spec.replicas = Some(4);
        Decision::Write
    })
    .await?;
    outcome.met().context("the pool is gone")?;
    let trial = Trial::of_alice(stage).await?;
    let ended = update(&trial.pools(), NAME, &trial.options, Source::Copy(old.clone()), |pool| {
        pool.spec.machine = Some("large".into());
        Decision::Write
    })
    .await;
    let expected = Expected {
        what: "PUT: the version is old",
        code: 409,
        class: "conflict",
        ends: "written",
        requests: 3,
        deserves: "read again and decide again",
    };
    trial.end(stage, table, &expected, word(&ended));
    Ok(())
}

async fn failed_test(stage: &Stage, table: &mut Table) -> Result<()> {
    let trial = Trial::of_alice(stage).await?;
    let operations = json!([
        {"op": "test", "path": "/spec/replicas", "value": 3},
        {"op": "replace", "path": "/spec/replicas", "value": 5},
    ]);
    let ended = json_patch(&trial.pools(), NAME, Subresource::Main, &trial.options, &operations).await;
    let expected = Expected {
        what: "JSON Patch: its test fails",
        code: 422,
        class: "test_failed",
        ends: "conflict",
        requests: 1,
        deserves: "read again and decide again",
    };
    trial.end(stage, table, &expected, word(&ended));
    Ok(())
}

async fn field_manager(stage: &Stage, table: &mut Table) -> Result<()> {
    let trial = Trial::of_alice(stage).await?;
    let body = json!({"apiVersion": "lab.tandem.dev/v1", "kind": "Pool", "spec": {"note": "taken"}});
    let ended = apply(&trial.pools(), NAME, &trial.options, &body).await;
    let expected = Expected {
        what: "apply: another owns the field",
        code: 409,
        class: "field_manager",
        ends: "field_manager",
        requests: 1,
        deserves: "leave the field out, or force it; no retry",
    };
    trial.end(stage, table, &expected, word(&ended));
    Ok(())
}

async fn invalid(stage: &Stage, table: &mut Table) -> Result<()> {
    let trial = Trial::of_alice(stage).await?;
    let newest = Source::Copy(stage.stored::<Pool>(NAME).await?);
    let many = |_: &Pool| Some(json!({"spec": {"replicas": "many"}}));
    let ended = merge_patch(&trial.pools(), NAME, Subresource::Main, &trial.options, newest, many).await;
    let expected = Expected {
        what: "the object is not valid",
        code: 422,
        class: "invalid",
        ends: "invalid",
        requests: 1,
        deserves: "correct it; no retry",
    };
    trial.end(stage, table, &expected, word(&ended));
    Ok(())
}
