//! Two controllers that apply under one field manager are one owner, whose set of fields changes with each report.

use anyhow::{Context as _, Result};
use conflict_retry::{WriteError, WriteOptions};
use serde_json::Value;

use super::owners::{MAKER, owns, spec_body, table};
use super::third::{POOL, priced, provisioned, types};
use crate::context::{Actor, ScenarioContext};
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "third-controller-same-name",
    title: "Two controllers with the same field manager remove each other's fields, without a 409",
    rows: &[],
    refutes: &[],
    lesson: "An apply is the complete set of fields that its manager wants; the server cannot tell which process left a field out.\nUse one field manager for each controller: then a field that one leaves out does not affect the other's.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// The field manager that both use at first.
const SHARED: &str = "pool-operator";
/// Reports of each, in turn.
const ROUNDS: i32 = 2;

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let provisioner = ctx.actor("provisioner").await?;
    let budget = ctx.actor("budget").await?;
    ctx.set(&pool(POOL, 3)).await?;
    shared(ctx, &provisioner, &budget).await?;
    ctx.set(&pool("named", 3)).await?;
    named(ctx, &provisioner, &budget).await
}

async fn shared(ctx: &ScenarioContext, provisioner: &Actor, budget: &Actor) -> Result<()> {
    ctx.say("The provisioner reports how many are ready, and the condition Ready, with the field manager pool-operator. The budget controller began as a copy of its code: it reports a message and the condition WithinBudget, with the same field manager. No field is in both reports.");
    report(provisioner, POOL, SHARED, &provisioned(1)?).await?;
    let before = ctx.stored::<Pool>(POOL).await?;
    report(budget, POOL, SHARED, &priced(1)?).await?;
    let after = ctx.stored::<Pool>(POOL).await?;
    ctx.check_eq(
        "before the second report: 1 ready, no message, and Ready",
        &seen(&before),
        &(Some(1), None, strings(&["Ready"])),
    );
    ctx.check_eq(
        "after it the count and Ready are gone: left out by pool-operator, who owned them",
        &seen(&after),
        &(None, Some("1 a day".to_owned()), strings(&["WithinBudget"])),
    );
    ctx.table(table(&after.metadata));
    ctx.say(MAKER);
    ctx.say("The provisioner reports again, and so on, each in its turn.");
    let mut whole = 0;
    for round in 2..=1 + ROUNDS {
        for (actor, status) in [(provisioner, provisioned(round)?), (budget, priced(round)?)] {
            report(actor, POOL, SHARED, &status).await?;
            whole += usize::from(is_whole(&ctx.stored::<Pool>(POOL).await?));
        }
    }
    ctx.check_eq("after none of the four reports was what both had said in the pool", &whole, &0);
    let conflicts = provisioner.counts().conflicts + budget.counts().conflicts;
    ctx.check_eq("and none of the six got a 409: there is only one owner", &conflicts, &0);
    Ok(())
}

async fn named(ctx: &ScenarioContext, provisioner: &Actor, budget: &Actor) -> Result<()> {
    ctx.say("The same reports on another pool, each under its controller's own name.");
    report(provisioner, "named", "provisioner", &provisioned(1)?).await?;
    let mut whole = 0;
    for round in 1..=ROUNDS {
        for (actor, status) in [(budget, priced(round)?), (provisioner, provisioned(1 + round)?)] {
            report(actor, "named", actor.name(), &status).await?;
            whole += usize::from(is_whole(&ctx.stored::<Pool>("named").await?));
        }
    }
    let pool = ctx.stored::<Pool>("named").await?;
    ctx.say("Who owns what in this pool:");
    ctx.table(table(&pool.metadata));
    ctx.check_eq("from the second report on, each of the four left the other's in place", &whole, &4);
    ctx.check(
        "each owns its condition",
        owns(&pool.metadata, "provisioner", "status.conditions[type=Ready]")
            && owns(&pool.metadata, "budget", "status.conditions[type=WithinBudget]"),
    );
    Ok(())
}

async fn report(actor: &Actor, name: &str, manager: &str, status: &Value) -> Result<()> {
    let mut body = spec_body(name, &Value::Null);
    body["status"] = status.clone();
    let options = WriteOptions::new(manager);
    match conflict_retry::apply_status(&actor.api::<Pool>(), name, &body).with(&options).outcome().await {
        // They are counted at the end.
        Err(WriteError::FieldManager { .. }) => {}
        answer => drop(answer?.met().context("the report was not taken")?),
    }
    Ok(())
}

/// Whether both controllers' fields and conditions are there.
fn is_whole(pool: &Pool) -> bool {
    let (ready, message, conditions) = seen(pool);
    ready.is_some() && message.is_some() && conditions.len() == 2
}

fn seen(pool: &Pool) -> (Option<i32>, Option<String>, Vec<String>) {
    let status = pool.status.clone().unwrap_or_default();
    (status.ready, status.message, types(pool))
}

fn strings(types: &[&str]) -> Vec<String> {
    types.iter().map(ToString::to_string).collect()
}
