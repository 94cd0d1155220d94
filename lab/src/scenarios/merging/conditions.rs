//! A list of conditions with two writers: as one value, and as a map by type.

use anyhow::{Context as _, Result};
use conflict_retry::{Outcome, WriteError};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::owners::{MAKER, apply_status, owns, table};
use crate::context::{Actor, ScenarioContext};
use crate::pool::{Pool, condition, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "conditions",
    title: "Two controllers, one list of conditions: an atomic list has one owner, a map keyed by type has one owner per entry",
    rows: &["4e"],
    refutes: &[],
    lesson: "Declare conditions as a map keyed by type, and let each controller apply its own types under its own field manager.\nOnly server-side apply respects that: a merge patch replaces the whole list.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

const POOL: &str = "workers";

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let provisioner = ctx.actor("provisioner").await?;
    let scaler = ctx.actor("scaler").await?;
    ctx.set(&pool(POOL, 3)).await?;
    atomic(ctx, &provisioner, &scaler).await?;
    map(ctx, &provisioner, &scaler).await?;
    merged(ctx, &scaler).await
}

async fn atomic(ctx: &ScenarioContext, provisioner: &Actor, scaler: &Actor) -> Result<()> {
    ctx.say("First status.atomicConditions, a list without keys. The provisioner says Ready, the scaler says ScalingActive, each under its own name.");
    met(apply_status(provisioner, POOL, &list("atomicConditions", "Ready")?, false).await?)?;
    let refused = apply_status(scaler, POOL, &list("atomicConditions", "ScalingActive")?, false).await;
    let field = match refused {
        Err(WriteError::FieldManager { conflicts, .. }) => conflicts.first().map(|c| c.field.clone()),
        _ => None,
    };
    ctx.check_eq(
        "the second is refused: the dispute is over the list, though neither touches the other's entry",
        &field.as_deref(),
        &Some(".status.atomicConditions"),
    );
    ctx.say("Force makes the 409 go away, and the other's condition with it; when the provisioner reports again, it does the same.");
    met(apply_status(scaler, POOL, &list("atomicConditions", "ScalingActive")?, true).await?)?;
    let first = types(&ctx.stored::<Pool>(POOL).await?, |pool| &pool.atomic_conditions);
    met(apply_status(provisioner, POOL, &list("atomicConditions", "Ready")?, true).await?)?;
    let second = types(&ctx.stored::<Pool>(POOL).await?, |pool| &pool.atomic_conditions);
    ctx.check_eq(
        "after each write there is one condition, the writer's",
        &(first, second),
        &(vec!["ScalingActive".to_owned()], vec!["Ready".to_owned()]),
    );
    Ok(())
}

async fn map(ctx: &ScenarioContext, provisioner: &Actor, scaler: &Actor) -> Result<()> {
    ctx.say(
        "The same two with status.conditions, whose schema says: a map, keyed by type. Neither uses force.",
    );
    met(apply_status(provisioner, POOL, &list("conditions", "Ready")?, false).await?)?;
    met(apply_status(scaler, POOL, &list("conditions", "ScalingActive")?, false).await?)?;
    let pool = ctx.stored::<Pool>(POOL).await?;
    ctx.table(table(&pool.metadata));
    ctx.check_eq("both are there", &types(&pool, |status| &status.conditions), &both());
    ctx.check(
        "and each belongs to the one who wrote it",
        owns(&pool.metadata, "provisioner", "status.conditions[type=Ready]")
            && owns(&pool.metadata, "scaler", "status.conditions[type=ScalingActive]"),
    );
    ctx.say(MAKER);
    ctx.say("A controller that leaves its condition out of an apply removes it, and no other.");
    met(apply_status(scaler, POOL, &json!({}), false).await?)?;
    let left = types(&ctx.stored::<Pool>(POOL).await?, |status| &status.conditions);
    ctx.check_eq("the provisioner's is left", &left, &vec!["Ready".to_owned()]);
    met(apply_status(scaler, POOL, &list("conditions", "ScalingActive")?, false).await?)?;
    let again = types(&ctx.stored::<Pool>(POOL).await?, |status| &status.conditions);
    ctx.check_eq("applied again, they are two again", &again, &both());
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the naive half: a merge patch without a version")]
async fn merged(ctx: &ScenarioContext, scaler: &Actor) -> Result<()> {
    ctx.say("The schema helps only those who apply. The scaler sends the same body as a merge patch.");
    let patch = Patch::Merge(json!({"status": list("conditions", "ScalingActive")?}));
    scaler.api::<Pool>().patch_status(POOL, &PatchParams::default(), &patch).await?;
    let pool = ctx.stored::<Pool>(POOL).await?;
    ctx.check_eq(
        "the patch was granted, the list is replaced, and the provisioner's condition is lost without a word",
        &types(&pool, |status| &status.conditions),
        &vec!["ScalingActive".to_owned()],
    );
    Ok(())
}

fn list(field: &str, type_: &str) -> Result<Value> {
    Ok(json!({field: [condition(type_, "True", "Shown")?]}))
}

fn both() -> Vec<String> {
    vec!["Ready".to_owned(), "ScalingActive".to_owned()]
}

fn types(pool: &Pool, list: impl Fn(&crate::pool::PoolStatus) -> &Vec<Condition>) -> Vec<String> {
    let conditions = pool.status.as_ref().map(list);
    conditions.into_iter().flatten().map(|condition| condition.type_.clone()).collect()
}

fn met(outcome: Outcome<Pool>) -> Result<Pool> {
    let label = outcome.label();
    outcome.met().with_context(|| format!("the apply ended as {label}"))
}
