//! A conflict inside a custom error.

use std::error::Error as StdError;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use conflict_retry::{
    MaybeConflict, RetryError, RetryPolicy, Source, UpdateDecision, WriteError, WriteOptions, is_conflict,
    retry_if, retry_on_conflict, update,
};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::context::{Actor, ScenarioContext};
use crate::event::Table;
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "wrapped-error",
    title: "A wrapped error is still a conflict: check its cause, not its text",
    rows: &["0i"],
    refutes: &[],
    lesson: "Wrap errors with context, keep the cause as source, and let the wrapper say whether it is a conflict.\nNever search the text: it misses conflicts, and finds some where there are none.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// The pool's name.
const NAME: &str = "workers";

/// The errors of an update of a pool.
#[derive(Debug, thiserror::Error)]
enum SyncError {
    #[error("cannot read the pool {name}")]
    Read { name: String, source: kube::Error },
    #[error("cannot store the note of the pool {name}")]
    Store { name: String, source: kube::Error },
}

impl MaybeConflict for SyncError {
    fn is_conflict(&self) -> bool {
        let (Self::Read { source, .. } | Self::Store { source, .. }) = self;
        source.is_conflict()
    }
}

/// Reads, changes and writes; Bob writes in between if `interfere` returns true.
#[expect(clippy::disallowed_methods, reason = "shows the bare requests whose errors are wrapped")]
async fn sync(
    alice: &Actor,
    name: &str,
    bob: &Actor,
    interfere: impl Fn() -> bool,
) -> Result<Pool, SyncError> {
    let pools = alice.api::<Pool>();
    let read = |source| SyncError::Read { name: name.to_owned(), source };
    let store = |source| SyncError::Store { name: name.to_owned(), source };
    let mut fresh = pools.get(name).await.map_err(read)?;
    if interfere() {
        let patch = Patch::Merge(json!({"spec": {"replicas": 4 + bob.requests().len()}}));
        bob.api::<Pool>().patch(name, &PatchParams::default(), &patch).await.map_err(store)?;
    }
    fresh.spec.note = Some(format!("{} requests", alice.requests().len()));
    pools.replace(name, &PostParams::default(), &fresh).await.map_err(store)
}

/// Returns true once.
fn once() -> impl Fn() -> bool {
    let left = AtomicBool::new(true);
    move || left.swap(false, Ordering::Relaxed)
}

/// Recognises conflicts.
type Classifier = fn(&SyncError) -> bool;

/// Recognises a conflict by its text.
fn text_says_conflict(error: &SyncError) -> bool {
    error.to_string().to_lowercase().contains("conflict")
}

/// Recognises a conflict only if the error itself is the client's.
fn outermost_is_conflict(error: &SyncError) -> bool {
    let error: &(dyn StdError + 'static) = error;
    error.downcast_ref::<kube::Error>().is_some_and(is_conflict)
}

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let bob = ctx.actor("bob").await?;
    ctx.set(&pool(NAME, 3)).await?;
    let mut table = Table::new(&["what is asked", "attempts", "what came of it"]);
    recognised(ctx, &bob, &mut table).await?;
    overlooked(ctx, &bob, &mut table).await?;
    imagined(ctx, &bob, &mut table).await?;
    ctx.table(table);
    exhausted(ctx, &bob).await
}

/// Number of an actor's attempts, each of which reads once.
fn attempts(actor: &Actor) -> usize {
    actor.requests().iter().filter(|request| request.verb == "GET").count()
}

async fn recognised(ctx: &ScenarioContext, bob: &Actor, table: &mut Table) -> Result<()> {
    ctx.say("Alice's code wraps each error of the client with what it was about to do. Bob gets in between once. The wrapper implements MaybeConflict: it checks the wrapped error.");
    let alice = ctx.actor("alice").await?;
    let interfere = once();
    let done = retry_on_conflict(&RetryPolicy::default(), || sync(&alice, NAME, bob, &interfere)).await;
    ctx.check("the conflict is recognised, and the second attempt is granted", done.is_ok());
    ctx.check_eq("that took two attempts", &attempts(&alice), &2);
    table.row(&[&"the error inside (MaybeConflict)", &2, &"written"]);
    Ok(())
}

async fn overlooked(ctx: &ScenarioContext, bob: &Actor, table: &mut Table) -> Result<()> {
    ctx.say("The same twice more, with classifiers that check only the wrapper: the text of the error, and its type.");
    let classifiers: [(&str, Classifier); 2] =
        [("the text", text_says_conflict), ("the outermost type", outermost_is_conflict)];
    for (what, classifier) in classifiers {
        let alice = ctx.actor("alice").await?;
        let interfere = once();
        let op = || sync(&alice, NAME, bob, &interfere);
        let done = retry_if(&RetryPolicy::default(), classifier, rand::random, op).await;
        let overlooked = matches!(&done, Err(RetryError::Op(error)) if error.is_conflict());
        ctx.check(&format!("{what}: the conflict is overlooked, and nothing is tried again"), overlooked);
        ctx.check_eq(&format!("{what}: one attempt"), &attempts(&alice), &1);
        table.row(&[&what, &1, &"the conflict is taken for a failure"]);
    }
    Ok(())
}

async fn imagined(ctx: &ScenarioContext, bob: &Actor, table: &mut Table) -> Result<()> {
    ctx.say("The text also finds conflicts where there are none. There is no pool called conflict-lab, and its name is in the text.");
    let five = RetryPolicy::client_go_default_retry();
    let alice = ctx.actor("alice").await?;
    let op = || sync(&alice, "conflict-lab", bob, || false);
    let done = retry_if(&five, text_says_conflict, rand::random, op).await;
    let missing = |error: &SyncError| matches!(error, SyncError::Read { source: kube::Error::Api(status), .. } if status.code == 404);
    ctx.check(
        "the text: a 404 is retried until the attempts are used up",
        matches!(&done, Err(RetryError::Exhausted { attempts: 5, last, .. }) if missing(last)),
    );
    table.row(&[&"the text, of a missing conflict-lab", &attempts(&alice), &"a 404 is taken for a conflict"]);
    let alice = ctx.actor("alice").await?;
    let done = retry_on_conflict(&five, || sync(&alice, "conflict-lab", bob, || false)).await;
    ctx.check(
        "the error inside: the 404 ends it after one attempt",
        matches!(&done, Err(RetryError::Op(error)) if missing(error)) && attempts(&alice) == 1,
    );
    table.row(&[&"the error inside, of the same", &attempts(&alice), &"a 404 is a 404"]);
    Ok(())
}

async fn exhausted(ctx: &ScenarioContext, bob: &Actor) -> Result<()> {
    ctx.say("The error after the last attempt is wrapped too. Bob is first every time; the final error has the last conflict in its chain of sources, and a caller can find it in any wrapper.");
    let alice = ctx.actor("alice").await?;
    let twice = RetryPolicy::client_go_default_retry().with_max_attempts(NonZeroU32::MIN.saturating_add(1));
    let done = retry_on_conflict(&twice, || sync(&alice, NAME, bob, || true)).await;
    let error =
        anyhow::Error::new(done.err().context("it was granted")?).context("cannot bring the pool up to date");
    ctx.live_quote(&format!("{error:#}"));
    let causes: Vec<String> = error.chain().skip(2).map(ToString::to_string).take(1).collect();
    ctx.check_eq(
        "in the middle of the chain is Alice's own error",
        &causes,
        &vec![format!("cannot store the note of the pool {NAME}")],
    );
    ctx.check("at its end is the client's error, and it is a conflict", in_chain(&error));

    let copy = ctx.stored::<Pool>(NAME).await?;
    sync(&alice, NAME, bob, || false).await?;
    let options = WriteOptions::new("alice").with_policy(RetryPolicy::once());
    let done = update(&alice.api::<Pool>(), NAME, |pool| {
        pool.spec.note = Some("late".into());
        UpdateDecision::Write
    })
    .put()
    .with(&options)
    .from(Source::Copy(copy))
    .outcome()
    .await;
    let error = done.err().context("it was granted")?;
    ctx.check("update that gives up: WriteError::Exhausted", matches!(error, WriteError::Exhausted { .. }));
    ctx.check(
        "with the conflict in its chain as well",
        in_chain(&anyhow::Error::new(error).context("cannot store the note")),
    );
    Ok(())
}

/// Whether an error in the chain is a conflict from the client.
fn in_chain(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref::<kube::Error>()).any(is_conflict)
}
