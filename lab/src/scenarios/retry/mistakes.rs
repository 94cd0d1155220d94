//! Mistakes of hand-written loops, each beside the behaviour of `conflict_retry`.

use anyhow::{Result, bail};
use conflict_retry::policy::RetryPolicy;
use conflict_retry::{
    Class, DeleteOutcome, Outcome, UpdateDecision, Verb, WriteError, WriteOptions, is_conflict, once,
    retry_on_conflict, update,
};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};

use super::contest::{Contest, GOAL, owner_without_uid};
use super::excerpt::Excerpt;
use crate::context::{Actor, RequestCounts, ScenarioContext};
use crate::event::Table;
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "mistakes",
    title: "Five ways to get a retry loop wrong",
    rows: &["3m", "4j"],
    refutes: &["exhaustion-unchecked"],
    lesson: "Read and decide inside the loop, retry only conflicts, limit the attempts, and return an error when nothing was written.\nYou need not write any of this by hand.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// The attempt after which the scenario stops an endless loop.
const STOPPED_AFTER: u32 = 20;

async fn run(ctx: &ScenarioContext) -> Result<()> {
    silent_end(ctx).await?;
    outside(ctx).await?;
    what_cannot_succeed(ctx).await?;
    error_unread(ctx).await?;
    no_end(ctx).await
}

/// Ten attempts, then the end of the function.
async fn falls_out(contest: &Contest) -> Result<(), kube::Error> {
    for _ in 0..10 {
        match contest.attempt().await {
            Ok(_) => return Ok(()),
            Err(error) if is_conflict(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The same loop, which takes every error for a conflict.
#[expect(clippy::disallowed_methods, reason = "shows the mistake")]
async fn swallows(pools: &Api<Pool>, name: &str) -> Result<(), kube::Error> {
    for _ in 0..10 {
        let Ok(mut pool) = pools.get(name).await else { continue };
        pool.spec.replicas = Some(GOAL);
        if pools.replace(name, &PostParams::default(), &pool).await.is_ok() {
            return Ok(());
        }
    }
    Ok(())
}

async fn silent_end(ctx: &ScenarioContext) -> Result<()> {
    let contest = Contest::new(ctx, "silent").await?;
    contest.interfere(10);
    let intro = "1. Falling out of the loop. It makes ten attempts, returns after a write, and goes on after a conflict. After the tenth it returns success, too. Bob is faster ten times.";
    let excerpt = Excerpt::begin(ctx);
    let answer = ctx.racing(intro, falls_out(&contest)).await;
    ctx.say("The first three attempts and the last:");
    excerpt.show(ctx);
    ctx.check_eq("all ten attempts met a conflict", &contest.alice.counts(), &counts(20, 0, 10));
    ctx.check("the loop reports success", answer.is_ok());
    ctx.check("and nothing of Alice's is written", !contest.is_written(ctx).await?);

    ctx.say("In one text that loop is the good example, and continues after every error, not only after a conflict. The same for a pool that does not exist:");
    let alice = ctx.actor("alice").await?;
    let answer = swallows(&alice.api(), "absent").await;
    ctx.check_eq("ten requests are answered 404", &answers(&alice, 404), &10);
    ctx.check("the loop reports success", answer.is_ok());

    ctx.say(
        "`update` with at most two attempts, and Bob is faster twice. An end without a write is an error.",
    );
    contest.interfere(2);
    let options = WriteOptions::new("alice").with_policy(RetryPolicy::default().with_max_attempts(two()));
    let answer = contest.update(&options).await;
    let Err(WriteError::Exhausted { attempts, class, maybe_written, .. }) = answer else {
        bail!("update ended otherwise: {answer:?}");
    };
    ctx.check_eq(
        "it is exhausted after two attempts, the last of which was a conflict, and wrote nothing",
        &(attempts, class, maybe_written),
        &(2, Class::Conflict, false),
    );
    Ok(())
}

/// Reads once, then sends the same copy five times.
#[expect(clippy::disallowed_methods, reason = "shows the mistake")]
async fn sends_one_copy(contest: &Contest) -> Result<Pool, kube::Error> {
    let pools = contest.pools();
    let mut pool = pools.get(contest.name).await?;
    pool.spec.replicas = Some(GOAL);
    let policy = RetryPolicy::client_go_default_retry();
    let params = PostParams::default();
    let put = || pools.replace(contest.name, &params, &pool);
    retry_on_conflict(&policy, put).await.map_err(|error| match error.into_inner() {
        Some(error) => error,
        None => kube::Error::Service("the retry has no error of its own".into()),
    })
}

async fn outside(ctx: &ScenarioContext) -> Result<()> {
    let contest = Contest::new(ctx, "outside").await?;
    ctx.say("2. Reading and changing outside the loop. Bob writes once, before the first PUT, and never again. The loop sends the same copy five times, with the same old version.");
    contest.interfere(1);
    let answer = sends_one_copy(&contest).await;
    ctx.check(
        "the fifth PUT meets the conflict of the first",
        answer.is_err_and(|error| is_conflict(&error)),
    );
    ctx.check("nothing of Alice's is written", !contest.is_written(ctx).await?);
    ctx.say("`update` reads again after the conflict, and calls the closure with what it has read.");
    contest.interfere(1);
    let outcome = contest.update(&WriteOptions::new("alice")).await?;
    ctx.check("the second attempt is written", matches!(outcome, Outcome::Written(_)));
    Ok(())
}

/// Five attempts to store an invalid owner reference, whatever the answer is.
#[expect(clippy::disallowed_methods, reason = "shows the mistake")]
async fn retries_everything(contest: &Contest) -> Result<Pool, kube::Error> {
    let pools = contest.pools();
    let mut attempt = 1;
    loop {
        let mut pool = pools.get(contest.name).await?;
        pool.owner_references_mut().push(owner_without_uid());
        match pools.replace(contest.name, &PostParams::default(), &pool).await {
            Err(_) if attempt < 5 => attempt += 1,
            answer => return answer,
        }
    }
}

async fn what_cannot_succeed(ctx: &ScenarioContext) -> Result<()> {
    let contest = Contest::new(ctx, "invalid").await?;
    let intro = "3. Retrying what cannot succeed. Alice gives the pool an owner, and leaves out the owner's UID; the loop retries every error.";
    let answer = ctx.racing(intro, retries_everything(&contest)).await;
    ctx.check_eq("ten requests were sent for nothing", &contest.alice.counts(), &counts(10, 0, 0));
    let is_invalid = |error: &kube::Error| Class::of(Verb::Put, error) == Class::Invalid;
    ctx.check(
        "the fifth answer is the first one: 422, the object is not valid",
        answer.is_err_and(|error| is_invalid(&error)),
    );
    ctx.say("`update` checks what the error means. This one needs another object, not another attempt.");
    let options = WriteOptions::new("alice");
    let answer = update(&contest.pools(), contest.name, |pool| {
        pool.owner_references_mut().push(owner_without_uid());
        UpdateDecision::Write
    })
    .put()
    .with(&options)
    .outcome()
    .await;
    let is_rejected = matches!(answer, Err(WriteError::Rejected { class: Class::Invalid, .. }));
    ctx.check("it is rejected at the first attempt", is_rejected);
    Ok(())
}

/// Treats every error of a read as transient.
async fn waits_for_it(pools: &Api<Pool>, name: &str) -> Result<Pool, kube::Error> {
    let mut attempt = 1;
    loop {
        match pools.get(name).await {
            Err(_) if attempt < 5 => attempt += 1,
            answer => return answer,
        }
    }
}

async fn error_unread(ctx: &ScenarioContext) -> Result<()> {
    let (alice, bob) = (ctx.actor("alice").await?, ctx.actor("bob").await?);
    ctx.say("4. Not reading the error. Bob deletes the pool; a loop that retries every error asks for it five times.");
    ctx.set(&pool("deleted", 3)).await?;
    let pools = bob.api::<Pool>();
    let options = WriteOptions::new("bob");
    let gone = once::delete(&pools, "deleted", &options, &DeleteParams::default()).await?;
    ctx.check("the pool is deleted", matches!(gone, DeleteOutcome::Deleted));
    let answer = waits_for_it(&alice.api(), "deleted").await;
    let is_missing = |error: &kube::Error| Class::of(Verb::Get, error) == Class::NotFound;
    ctx.check("five times it is not there", answer.is_err_and(|error| is_missing(&error)));
    ctx.say("For `update` a missing object is a separate outcome: no success, and nothing to retry.");
    let options = WriteOptions::new("alice");
    let outcome = update(&alice.api::<Pool>(), "deleted", |_| UpdateDecision::Write)
        .put()
        .with(&options)
        .outcome()
        .await?;
    ctx.check_eq("it answers Gone after one request", &outcome, &Outcome::Gone);
    ctx.check_eq("six requests in all", &alice.counts().requests, &6);
    Ok(())
}

/// A loop without a bound except for the scenario's.
async fn without_end(contest: &Contest) -> Result<Option<Pool>, kube::Error> {
    for _ in 0..STOPPED_AFTER {
        match contest.attempt().await {
            Err(error) if is_conflict(&error) => {}
            answer => return answer.map(Some),
        }
    }
    Ok(None)
}

async fn no_end(ctx: &ScenarioContext) -> Result<()> {
    let contest = Contest::new(ctx, "endless").await?;
    contest.interfere(u32::MAX);
    let intro = "5. No end. Bob writes before every PUT of Alice's and does not stop, like a controller whose reconcile has no end. Alice's loop has no bound, so the scenario stops it after 20 attempts.";
    let excerpt = Excerpt::begin(ctx);
    let answer = ctx.racing(intro, without_end(&contest)).await?;
    ctx.say("The first three attempts and the last before it is stopped:");
    excerpt.show(ctx);
    ctx.check("it was still trying when it was stopped", answer.is_none());
    ctx.check_eq("40 requests, nothing written", &contest.alice.counts(), &counts(40, 0, 20));

    let before = contest.alice.counts().requests;
    let bounded = RetryPolicy::client_go_default_backoff();
    let options = WriteOptions::new("alice").with_policy(bounded);
    let intro = "The policies of `update` always have a bound: 64 attempts by default, four here.";
    let answer = ctx.racing(intro, contest.update(&options)).await;
    let requests = contest.alice.counts().requests - before;
    ctx.check(
        "it gives up after four attempts, and says so",
        matches!(answer, Err(WriteError::Exhausted { attempts: 4, .. })),
    );
    let mut table = Table::new(&["Bob does not stop", "requests", "and then"]);
    table.row(&[&"no bound", &"40", &"goes on until it is stopped"]);
    table.row(&[&"four attempts", &requests, &"an error that says that nothing was written"]);
    ctx.table(table);
    ctx.check_eq("eight requests", &requests, &8);
    Ok(())
}

/// Number of an actor's requests that were answered with `code`.
fn answers(actor: &Actor, code: u16) -> usize {
    actor.requests().iter().filter(|request| request.code == code).count()
}

const fn counts(requests: usize, written: usize, conflicts: usize) -> RequestCounts {
    RequestCounts { requests, written, conflicts }
}

const fn two() -> std::num::NonZeroU32 {
    std::num::NonZeroU32::MIN.saturating_add(1)
}
