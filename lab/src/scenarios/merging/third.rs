//! A third controller joins two that share an object: without a contract, and with one.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use conflict_retry::{WriteError, is_conflict};
use kube::api::PostParams;
use serde_json::{Value, json};

use super::owners::{MAKER, apply_status, owners, owns, table};
use crate::context::{Actor, ScenarioContext};
use crate::pool::{Pool, PoolStatus, condition, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const UNOWNED: Scenario = Scenario {
    name: "third-controller-unowned",
    title: "A third controller that PUTs the whole status overwrites the other two, with or without a retry",
    rows: &[],
    refutes: &[],
    lesson: "A version check only makes the third controller read again; it still writes the whole status.\nIt also takes ownership of the others' fields, so their next apply is refused.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(unowned(ctx)),
};

pub(super) const OWNED: Scenario = Scenario {
    name: "third-controller-owned",
    title: "A third controller with its own field manager and its own condition causes no conflict",
    rows: &[],
    refutes: &[],
    lesson: "Use one field manager for each controller, one owner for each field and each condition type, and only server-side apply.\nThen managedFields is the contract, and the server refuses an apply that breaks it.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(owned(ctx)),
};

/// The pool that controllers share.
pub(super) const POOL: &str = "workers";
/// Concurrent reports of each controller. Fewer than the server's own merge attempts.
const ROUNDS: i32 = 2;

/// The two existing controllers, and their fields.
pub(super) async fn two(ctx: &ScenarioContext) -> Result<(Actor, Actor)> {
    let provisioner = ctx.actor("provisioner").await?;
    let scaler = ctx.actor("scaler").await?;
    ctx.set(&pool(POOL, 3)).await?;
    ctx.say("Two controllers share the status of a pool. The provisioner owns the counts and Ready, the scaler owns ScalingActive; each applies its own.");
    report(&provisioner, &provisioned(1)?).await?;
    report(&scaler, &list("ScalingActive")?).await?;
    Ok((provisioner, scaler))
}

async fn unowned(ctx: &ScenarioContext) -> Result<()> {
    let (provisioner, _scaler) = two(ctx).await?;
    let third = ctx.actor("budget").await?;
    ctx.say("A third controller reports what the pool costs. It copies the status, sets its message and its list of conditions in the copy, and PUTs that. In the meantime the provisioner reports two nodes more.");
    let mut copy = third.api::<Pool>().get(POOL).await?;
    report(&provisioner, &provisioned(3)?).await?;
    let status = copy.status.get_or_insert_default();
    status.message = Some("3 a day".to_owned());
    // It has only its own conditions.
    status.conditions = vec![condition("WithinBudget", "True", "Shown")?];
    let refused = put(&third, copy.clone()).await;
    ctx.check("the first PUT is refused, as it should be", refused.is_err_and(|error| is_conflict(&error)));
    ctx.say("So its code gets a retry: read again, insert the computed status, PUT.");
    let mut fresh = third.api::<Pool>().get(POOL).await?;
    let before = fresh.status.as_ref().and_then(|status| status.ready);
    fresh.status.clone_from(&copy.status);
    let written = put(&third, fresh).await;
    ctx.check("the second is granted", written.is_ok());
    let pool = ctx.stored::<Pool>(POOL).await?;
    ctx.check_eq(
        "the provisioner's count was 3 ready, and is the old one again: 1",
        &(before, pool.status.as_ref().and_then(|status| status.ready)),
        &(Some(3), Some(1)),
    );
    ctx.check_eq("and both other conditions are gone", &types(&pool), &vec!["WithinBudget".to_owned()]);
    ctx.table(table(&pool.metadata));
    ctx.say(MAKER);
    ctx.say("The provisioner notices at its next report, four nodes, without force:");
    let named = match apply_status(&provisioner, POOL, &provisioned(4)?, false).await {
        Err(WriteError::FieldManager { conflicts, .. }) => {
            conflicts.first().map(|c| (c.manager.clone(), c.field.clone()))
        }
        _ => None,
    };
    ctx.check_eq(
        "it is refused: its own count belongs to budget now",
        &named,
        &Some(("budget".to_owned(), ".status.ready".to_owned())),
    );
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the naive half: a PUT of the whole status")]
async fn put(third: &Actor, pool: Pool) -> Result<Pool, kube::Error> {
    let params = PostParams { field_manager: Some("budget".to_owned()), ..PostParams::default() };
    third.api::<Pool>().replace_status(POOL, &params, &pool).await
}

async fn owned(ctx: &ScenarioContext) -> Result<()> {
    let (provisioner, scaler) = two(ctx).await?;
    let third = ctx.actor("budget").await?;
    ctx.say("The third one gets a field manager of its own, budget, and what has no owner yet: the message, and the condition WithinBudget. It reads nothing.");
    report(&third, &priced(0)?).await?;
    let rounds = async || -> Result<()> {
        for round in 1..=ROUNDS {
            let (ready, scaling) = (provisioned(1 + round)?, list("ScalingActive")?);
            let price = priced(round)?;
            tokio::try_join!(
                report(&provisioner, &ready),
                report(&scaler, &scaling),
                report(&third, &price)
            )?;
        }
        Ok(())
    };
    ctx.racing("All three report at the same time, twice.", rounds()).await?;
    let pool = ctx.stored::<Pool>(POOL).await?;
    let conflicts: usize = [&provisioner, &scaler, &third].iter().map(|actor| actor.counts().conflicts).sum();
    ctx.check_eq("no writer met a conflict", &conflicts, &0);
    let status = pool.status.clone().unwrap_or_default();
    ctx.check_eq(
        "the last word of each is there: 3 ready, 2 a day, three conditions",
        &(status.ready, status.message.as_deref(), types(&pool).len()),
        &(Some(3), Some("2 a day"), 3),
    );
    let mut status_only = pool.metadata.clone();
    if let Some(entries) = &mut status_only.managed_fields {
        entries.retain(|entry| entry.subresource.as_deref() == Some("status"));
    }
    ctx.table(table(&status_only));
    let mut owned_by = BTreeMap::<String, usize>::new();
    for field in owners(&status_only).into_values().flatten() {
        *owned_by.entry(field).or_default() += 1;
    }
    ctx.check("managedFields: every field of the status has one owner", owned_by.values().all(|n| *n == 1));
    ctx.check(
        "the new condition is budget's",
        owns(&pool.metadata, "budget", "status.conditions[type=WithinBudget]"),
    );
    collision(ctx, &third).await
}

async fn collision(ctx: &ScenarioContext, third: &Actor) -> Result<()> {
    ctx.say("If it uses a condition type that another controller owns, it gets a conflict as soon as the two values differ:");
    let mut body = list("Ready")?;
    body["conditions"][0]["status"] = json!("False");
    let Err(error @ WriteError::FieldManager { .. }) = apply_status(third, POOL, &body, false).await else {
        anyhow::bail!("an apply of another controller's condition was accepted");
    };
    ctx.quote(&error.to_string());
    let pool = ctx.stored::<Pool>(POOL).await?;
    let ready = pool.status.iter().flat_map(|status: &PoolStatus| &status.conditions);
    ctx.check(
        "and the provisioner's Ready is what it was",
        ready.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"),
    );
    Ok(())
}

/// What the provisioner reports.
pub(super) fn provisioned(ready: i32) -> Result<Value> {
    let mut status = list("Ready")?;
    status["ready"] = json!(ready);
    Ok(status)
}

/// What the third controller reports.
pub(super) fn priced(price: i32) -> Result<Value> {
    let mut status = list("WithinBudget")?;
    status["message"] = json!(format!("{price} a day"));
    Ok(status)
}

fn list(type_: &str) -> Result<Value> {
    Ok(json!({"conditions": [condition(type_, "True", "Shown")?]}))
}

/// A report under the actor's own name, without force.
pub(super) async fn report(actor: &Actor, status: &Value) -> Result<()> {
    apply_status(actor, POOL, status, false).await?.met().context("the report was not taken")?;
    Ok(())
}

/// The types of the conditions.
pub(super) fn types(pool: &Pool) -> Vec<String> {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    conditions.map(|condition| condition.type_.clone()).collect()
}
