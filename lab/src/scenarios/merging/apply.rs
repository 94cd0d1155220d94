//! Server-side apply: ownership of fields, and conflicts about it.

use anyhow::{Context as _, Result, bail};
use conflict_retry::{Class, Outcome, Verb, WriteError, is_conflict};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::owners::{apply_spec, owners, owns, spec_body, table};
use crate::context::{Actor, ScenarioContext};
use crate::pool::Pool;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "apply",
    title: "Server-side apply: a 409 about a field's owner is not resolved by a retry",
    rows: &["4e"],
    refutes: &["apply-resolves"],
    lesson: "Apply all of your own fields and nothing else: no read, no version, no conflict.\nThe 409 of an apply names the owner. The same apply succeeds only after the owner gives up the field or sets the same value; a retry does not help. Find out whose field it is, and force only your own.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// How often Carol repeats her apply.
const ATTEMPTS: usize = 5;
/// Concurrent writes of each. Fewer than the server's own merge attempts, so that they must succeed.
const ROUNDS: i32 = 3;
const POOL: &str = "workers";

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let alice = ctx.actor("alice").await?;
    let bob = ctx.actor("bob").await?;
    let carol = ctx.actor("carol").await?;
    apart(ctx, &alice, &bob).await?;
    disputed(ctx, &carol).await?;
    ended(ctx, &alice, &bob, &carol).await?;
    taken(ctx, &bob, &carol).await?;
    given_up(ctx, &bob, &carol).await
}

async fn apart(ctx: &ScenarioContext, alice: &Actor, bob: &Actor) -> Result<()> {
    ctx.say(
        "Alice applies the machine type, and Bob applies the count. Neither reads first, and neither sends a version.",
    );
    met(apply_spec(alice, POOL, &json!({"machine": "small"}), false).await?)?;
    met(apply_spec(bob, POOL, &json!({"replicas": 3}), false).await?)?;
    let pool = ctx.stored::<Pool>(POOL).await?;
    ctx.table(table(&pool.metadata));
    ctx.check(
        "managedFields gives each the field that it applied",
        owns(&pool.metadata, "alice", "spec.machine") && owns(&pool.metadata, "bob", "spec.replicas"),
    );

    let rounds = async || -> Result<()> {
        let notes = async {
            for round in 1..=ROUNDS {
                let spec = json!({"machine": "small", "note": round.to_string()});
                met(apply_spec(alice, POOL, &spec, false).await?)?;
            }
            Result::<()>::Ok(())
        };
        let counts = async {
            for round in 1..=ROUNDS {
                met(apply_spec(bob, POOL, &json!({"replicas": round}), false).await?)?;
            }
            Result::<()>::Ok(())
        };
        tokio::try_join!(notes, counts).map(drop)
    };
    ctx.racing("Both write at the same time, three times each.", rounds()).await?;
    let pool = ctx.stored::<Pool>(POOL).await?;
    let (alice, bob) = (alice.counts(), bob.counts());
    ctx.check_eq(
        "with the two before, that is 8 applies: all were granted, and none met a 409",
        &(alice.written + bob.written, alice.conflicts + bob.conflicts, alice.requests + bob.requests),
        &(8, 0, 8),
    );
    ctx.check(
        "and the last word of each is in the object",
        pool.spec.note.as_deref() == Some("3") && pool.spec.replicas == Some(3),
    );
    Ok(())
}

async fn disputed(ctx: &ScenarioContext, carol: &Actor) -> Result<()> {
    ctx.say(
        "Carol applies another count. She thinks that a retry resolves the 409, and tries five times at once.",
    );
    let errors = insist(carol).await?;
    ctx.check_eq("five attempts, five 409s", &errors.len(), &ATTEMPTS);
    ctx.check(
        "the usual test for a conflict says yes to each of them",
        !errors.is_empty() && errors.iter().all(is_conflict),
    );
    let class = errors.first().map(|error| Class::of(Verb::Apply, error));
    let Some(Class::FieldManager { conflicts }) = class else {
        bail!("the error is no field manager's conflict: {class:?}");
    };
    let named: Vec<_> = conflicts.iter().map(|c| (c.manager.as_str(), c.field.as_str())).collect();
    ctx.check_eq(
        "but its cause is FieldManagerConflict, and names the owner, bob, and the field, .spec.replicas",
        &named,
        &vec![("bob", ".spec.replicas")],
    );

    ctx.say("conflict_retry::apply recognises this kind of 409, and sends only one request:");
    let before = carol.counts().requests;
    let Err(error @ WriteError::FieldManager { .. }) =
        apply_spec(carol, POOL, &json!({"replicas": 9}), false).await
    else {
        bail!("the apply of another manager's field was not refused as such");
    };
    ctx.quote(&error.to_string());
    ctx.check_eq("one request, and an error that says whose it is", &(carol.counts().requests - before), &1);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a hand-written loop around a bare apply")]
async fn insist(carol: &Actor) -> Result<Vec<kube::Error>> {
    let body = Patch::Apply(spec_body(POOL, &json!({"replicas": 9})));
    let mut errors = Vec::new();
    for _ in 0..ATTEMPTS {
        match carol.api::<Pool>().patch(POOL, &PatchParams::apply("carol"), &body).await {
            Ok(_) => return Ok(errors),
            Err(error @ kube::Error::Api(_)) => errors.push(error),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(errors)
}

/// What resolves an ownership conflict: not time, not another version, but the owner.
async fn ended(ctx: &ScenarioContext, alice: &Actor, bob: &Actor, carol: &Actor) -> Result<()> {
    const POOL: &str = "builders";
    ctx.say("Five tries at once prove little. What does the answer depend on? A second pool, owned alike; Carol applies her count to it three times, each time the same body: at once, after a write that moves the version, and after Bob has left the count out of his apply.");
    met(apply_spec(alice, POOL, &json!({"machine": "small"}), false).await?)?;
    let owned = met(apply_spec(bob, POOL, &json!({"replicas": 3}), false).await?)?;
    let hers = json!({"replicas": 9});
    let at_once = owner_in_the_way(apply_spec(carol, POOL, &hers, false).await)?;
    let newer = met(apply_spec(alice, POOL, &json!({"machine": "large"}), false).await?)?;
    let later = owner_in_the_way(apply_spec(carol, POOL, &hers, false).await)?;
    ctx.check(
        "in between the version has moved",
        newer.metadata.resource_version != owned.metadata.resource_version,
    );
    let bobs = || Some("bob".to_owned());
    ctx.check_eq(
        "and both were refused for the same reason: bob owns it",
        &(at_once, later),
        &(bobs(), bobs()),
    );
    met(apply_spec(bob, POOL, &Value::Null, false).await?)?;
    let given_up = apply_spec(carol, POOL, &hers, false).await;
    ctx.check(
        "the same body is granted when Bob has given the field up: the answer depends on who owns it",
        given_up.as_ref().is_ok_and(|outcome| matches!(outcome, Outcome::Written(_))),
    );
    let pool = ctx.stored::<Pool>(POOL).await?;
    ctx.check(
        "and the count is hers",
        pool.spec.replicas == Some(9) && owns(&pool.metadata, "carol", "spec.replicas"),
    );
    Ok(())
}

/// The manager that a refused apply names; `None` if it was granted.
fn owner_in_the_way(answer: Result<Outcome<Pool>, WriteError>) -> Result<Option<String>> {
    match answer {
        Err(WriteError::FieldManager { conflicts, .. }) => Ok(conflicts.first().map(|c| c.manager.clone())),
        answer => answer.map(|_| None).map_err(Into::into),
    }
}

async fn taken(ctx: &ScenarioContext, bob: &Actor, carol: &Actor) -> Result<()> {
    ctx.say("Back to the first pool, where Bob still owns the count. With force Carol takes the field: its value and its ownership.");
    met(apply_spec(carol, POOL, &json!({"replicas": 9}), true).await?)?;
    let pool = ctx.stored::<Pool>(POOL).await?;
    ctx.table(table(&pool.metadata));
    ctx.check(
        "the count is hers, and Bob owns nothing any more",
        pool.spec.replicas == Some(9)
            && owns(&pool.metadata, "carol", "spec.replicas")
            && !owners(&pool.metadata).contains_key("bob"),
    );
    ctx.say("Bob gets no message. He notices when he applies the same fields again: now he gets the 409.");
    let owner = owner_in_the_way(apply_spec(bob, POOL, &json!({"replicas": 3}), false).await)?;
    ctx.check_eq("the loser's own apply is refused, and names carol", &owner.as_deref(), &Some("carol"));
    Ok(())
}

async fn given_up(ctx: &ScenarioContext, bob: &Actor, carol: &Actor) -> Result<()> {
    ctx.say("Two managers may own one field as long as they set the same value. Bob applies Carol's count, then she leaves the field out of her apply.");
    met(apply_spec(bob, POOL, &json!({"replicas": 9}), false).await?)?;
    let shared = ctx.stored::<Pool>(POOL).await?;
    ctx.check(
        "the same value is no dispute: both own the count",
        owns(&shared.metadata, "bob", "spec.replicas") && owns(&shared.metadata, "carol", "spec.replicas"),
    );
    met(apply_spec(carol, POOL, &Value::Null, false).await?)?;
    let pool = ctx.stored::<Pool>(POOL).await?;
    ctx.check(
        "what she leaves out she gives up; it stays, because Bob still owns it",
        pool.spec.replicas == Some(9)
            && owns(&pool.metadata, "bob", "spec.replicas")
            && !owners(&pool.metadata).contains_key("carol"),
    );
    ctx.say("Then Bob leaves it out too, and he was its last owner.");
    met(apply_spec(bob, POOL, &Value::Null, false).await?)?;
    let pool = ctx.stored::<Pool>(POOL).await?;
    ctx.table(table(&pool.metadata));
    ctx.check_eq(
        "the last owner who leaves a field out removes it from the object",
        &pool.spec.replicas,
        &None,
    );
    ctx.check_eq("what Alice owns is untouched", &pool.spec.machine.as_deref(), &Some("small"));
    Ok(())
}

/// The object, if the goal is met.
fn met(outcome: Outcome<Pool>) -> Result<Pool> {
    let label = outcome.label();
    outcome.met().with_context(|| format!("the apply ended as {label}"))
}
