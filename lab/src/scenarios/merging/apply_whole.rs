//! The fields that an apply takes over because it sends more than it intends to set.

use anyhow::{Result, bail};
use conflict_retry::{Class, Verb, WriteError};
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde_json::json;

use super::owners::{apply_spec, owns, spec_body, table};
use crate::context::{Actor, ScenarioContext};
use crate::pool::Pool;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "apply-whole",
    title: "Applying a whole object takes ownership of fields that you did not mean to set",
    rows: &["4e"],
    refutes: &["apply-resolves"],
    lesson: "An apply takes ownership of every field in its body, including copied values and defaults.\nBuild the body only from your own fields; never from the object that you read, nor from a type that fills in defaults.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// A spec type without optional fields: unset fields are zero or empty, and are sent.
#[derive(Default, Serialize)]
struct Defaults {
    replicas: i32,
    machine: String,
    note: String,
}

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let alice = ctx.actor("alice").await?;
    let bob = ctx.actor("bob").await?;
    let dave = ctx.actor("dave").await?;
    ctx.say("There are three equal pools: Alice owns the machine type, Bob the count. In each of them Dave wants to set a note, and nothing else.");
    for name in ["copied", "defaulted", "meant"] {
        owned(&alice, name, &json!({"machine": "small"})).await?;
        owned(&bob, name, &json!({"replicas": 3})).await?;
    }
    copied(ctx, &bob, &dave).await?;
    defaulted(ctx, &dave).await?;
    meant(ctx, &bob, &dave).await
}

async fn copied(ctx: &ScenarioContext, bob: &Actor, dave: &Actor) -> Result<()> {
    ctx.say("He reads the pool, sets the note in what he read, and applies that.");
    apply_copy(dave).await?;
    let pool = ctx.stored::<Pool>("copied").await?;
    ctx.table(table(&pool.metadata));
    ctx.check(
        "no conflict, because he changed no value of another owner; but now he owns the count and the machine type too",
        owns(&pool.metadata, "dave", "spec.replicas") && owns(&pool.metadata, "dave", "spec.machine"),
    );
    ctx.say("Bob, whose count it is, changes it:");
    let answer = apply_spec(bob, "copied", &json!({"replicas": 4}), false).await;
    let owner = match answer {
        Err(WriteError::FieldManager { conflicts, .. }) => conflicts.first().map(|c| c.manager.clone()),
        _ => None,
    };
    ctx.check_eq(
        "Bob's change of his own field is refused in favour of dave, who wanted a note",
        &owner.as_deref(),
        &Some("dave"),
    );
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the naive half: the object that was read is applied as a whole"
)]
async fn apply_copy(dave: &Actor) -> Result<()> {
    let pools = dave.api::<Pool>();
    let mut copy = pools.get("copied").await?;
    // The server refuses an apply that carries these.
    copy.metadata.managed_fields = None;
    copy.spec.note = Some("from dave".to_owned());
    pools.patch("copied", &PatchParams::apply("dave"), &Patch::Apply(&copy)).await?;
    Ok(())
}

async fn defaulted(ctx: &ScenarioContext, dave: &Actor) -> Result<()> {
    ctx.say("In the second pool he fills in a type of his own: a note, and for the rest its defaults, 0 and \"\".");
    let Err(error @ kube::Error::Api(_)) = apply_defaults(dave, false).await else {
        bail!("the apply of defaults was not refused");
    };
    let Class::FieldManager { conflicts } = Class::of(Verb::Apply, &error) else {
        bail!("it is no field manager's conflict: {error}");
    };
    let mut named: Vec<_> = conflicts.iter().map(|c| (c.manager.as_str(), c.field.as_str())).collect();
    named.sort_unstable();
    ctx.check_eq(
        "both owners are named, for fields of which he said nothing",
        &named,
        &vec![("alice", ".spec.machine"), ("bob", ".spec.replicas")],
    );
    ctx.say("The message suggests force, so he adds it.");
    apply_defaults(dave, true).await?;
    let pool = ctx.stored::<Pool>("defaulted").await?;
    ctx.check_eq(
        "there is a note now; the pool is scaled to 0, and its machine type is empty",
        &(pool.spec.note.as_deref(), pool.spec.replicas, pool.spec.machine.as_deref()),
        &(Some("from dave"), Some(0), Some("")),
    );
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the naive half: a type full of defaults is applied as a whole"
)]
async fn apply_defaults(dave: &Actor, force: bool) -> Result<Pool, kube::Error> {
    let spec = Defaults { note: "from dave".to_owned(), ..Defaults::default() };
    let body = Patch::Apply(spec_body("defaulted", &json!(spec)));
    let params = PatchParams { force, ..PatchParams::apply("dave") };
    dave.api::<Pool>().patch("defaulted", &params, &body).await
}

async fn meant(ctx: &ScenarioContext, bob: &Actor, dave: &Actor) -> Result<()> {
    ctx.say("In the third pool he applies only his note, and Bob changes his count after that.");
    owned(dave, "meant", &json!({"note": "from dave"})).await?;
    owned(bob, "meant", &json!({"replicas": 4})).await?;
    let pool = ctx.stored::<Pool>("meant").await?;
    ctx.table(table(&pool.metadata));
    ctx.check_eq(
        "the note, the machine type and the new count stand side by side",
        &(pool.spec.note.as_deref(), pool.spec.machine.as_deref(), pool.spec.replicas),
        &(Some("from dave"), Some("small"), Some(4)),
    );
    Ok(())
}

async fn owned(actor: &Actor, name: &str, spec: &serde_json::Value) -> Result<()> {
    let outcome = apply_spec(actor, name, spec, false).await?;
    let label = outcome.label();
    if outcome.met().is_none() {
        bail!("the apply by {} ended as {label}", actor.name());
    }
    Ok(())
}
