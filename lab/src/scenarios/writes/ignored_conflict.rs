//! A conflict that the caller ignores.

use anyhow::Result;
use conflict_retry::{Outcome, Source, Subresource, UpdateDecision, WriteOptions, once, update};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::context::{Actor, ScenarioContext};
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "ignored-conflict",
    title: "An ignored conflict is a silently lost change",
    rows: &["4k"],
    refutes: &[],
    lesson: "A write is done only when its answer says so: check every answer, and report it.\nconflict_retry's Outcome is must_use: the compiler warns about a dropped conflict.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// The pool's name.
const NAME: &str = "workers";

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let (alice, bob) = (ctx.actor("alice").await?, ctx.actor("bob").await?);
    ctx.set(&pool(NAME, 3)).await?;

    ctx.say("Alice wants to set 5 replicas. She reads; Bob changes the machine type; she PUTs, ignores the answer, and reports success.");
    let copy = alice.api::<Pool>().get(NAME).await?;
    interfere(&bob, "medium").await?;
    let reported = scale_carelessly(&alice, copy).await;
    let replicas = ctx.stored::<Pool>(NAME).await?.spec.replicas;
    ctx.check("she reports success", reported.is_ok());
    ctx.check_eq("the answer was a 409", &alice.counts().conflicts, &1);
    ctx.check_eq("3 replicas are stored: her change is lost, and no error says so", &replicas, &Some(3));

    ctx.say("The same with once::put. A conflict is not an error here, so the question mark does not return it. But the type Outcome is must_use, and the compiler warns if a statement drops it. The lab is built with warnings as errors, and this one line says that it expects exactly that warning.");
    let copy = alice.api::<Pool>().get(NAME).await?;
    interfere(&bob, "large").await?;
    let reported = scale_against_the_warning(&alice, &copy).await;
    ctx.check("against the warning, success is reported once more", reported.is_ok());
    let replicas = ctx.stored::<Pool>(NAME).await?.spec.replicas;
    ctx.check_eq("and once more 3 replicas are stored", &replicas, &Some(3));

    ctx.say("If you check the outcome, you notice the conflict, and can report it or read again. Bob writes in between as before.");
    let copy = alice.api::<Pool>().get(NAME).await?;
    interfere(&bob, "huge").await?;
    let report = scale_and_report(&alice, &copy).await?;
    ctx.check_eq(
        "checked, the outcome says that another write came first",
        &report,
        &"not scaled: another write came first",
    );
    let outcome = update(&alice.api::<Pool>(), NAME, |pool| {
        pool.spec.replicas = Some(5);
        UpdateDecision::Write
    })
    .put()
    .with(&WriteOptions::new("alice"))
    .from(Source::Copy(copy))
    .outcome()
    .await?;
    let stored = ctx.stored::<Pool>(NAME).await?;
    ctx.check(
        "update reads again and decides again, and says that it has written",
        matches!(outcome, Outcome::Written(_)),
    );
    ctx.check(
        "5 replicas are stored, and Bob's machine type is kept",
        stored.spec.replicas == Some(5) && stored.spec.machine.as_deref() == Some("huge"),
    );
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "any intermediate write will do")]
async fn interfere(bob: &Actor, machine: &str) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"machine": machine}}));
    bob.api::<Pool>().patch(NAME, &PatchParams::default(), &patch).await?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "shows an answer that is discarded")]
async fn scale_carelessly(alice: &Actor, mut pool: Pool) -> Result<()> {
    pool.spec.replicas = Some(5);
    let _ = alice.api::<Pool>().replace(NAME, &PostParams::default(), &pool).await;
    Ok(())
}

#[expect(unused_must_use, reason = "shows the warning: were there none, this line would be one")]
async fn scale_against_the_warning(alice: &Actor, pool: &Pool) -> Result<()> {
    let pool = scaled(pool);
    once::put(&alice.api::<Pool>(), NAME, Subresource::Main, &WriteOptions::new("alice"), &pool).await?;
    Ok(())
}

async fn scale_and_report(alice: &Actor, pool: &Pool) -> Result<&'static str> {
    let options = WriteOptions::new("alice");
    let outcome = once::put(&alice.api::<Pool>(), NAME, Subresource::Main, &options, &scaled(pool)).await?;
    Ok(match outcome {
        Outcome::Written(_) | Outcome::Unchanged(_) | Outcome::AlreadyDone(_) => "scaled",
        Outcome::Conflict(_) => "not scaled: another write came first",
        Outcome::Gone | Outcome::Aborted => "not scaled",
    })
}

fn scaled(pool: &Pool) -> Pool {
    let mut pool = pool.clone();
    pool.spec.replicas = Some(5);
    pool
}
