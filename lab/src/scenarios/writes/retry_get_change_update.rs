//! Reading, changing and writing the status in a loop: by hand, with the helper, and with the write function.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use conflict_retry::{
    Class, Outcome, RetryError, RetryPolicy, Source, UpdateDecision, WriteError, WriteOptions, is_conflict,
    retry_on_conflict, update_status,
};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::context::{Actor, RequestCounts, ScenarioContext};
use crate::event::Table;
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "retry-get-change-update",
    title: "Retry a status update on conflict: read, change and write again, a limited number of times",
    rows: &["0h", "3h", "4c", "4d", "4f"],
    refutes: &[],
    lesson: "A correct loop reads in each attempt, changes what it has read, tells a conflict from other errors, waits, and has a limit.\nIf it ends without a write, it returns an error; update_status is such a loop.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// The pool's name.
const NAME: &str = "workers";

/// Number of attempts of the hand-written loop.
const ATTEMPTS: u32 = 3;

/// Bob, who changes the count between Alice's read and her PUT, `left` times.
struct Interference {
    bob: Actor,
    left: AtomicU32,
}

impl Interference {
    /// Writes, if writes are left: 4 the first time, 5 the second, and so on.
    #[expect(clippy::disallowed_methods, reason = "any intermediate write will do")]
    async fn interfere(&self) -> Result<(), kube::Error> {
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            self.left.store(left - 1, Ordering::Relaxed);
            let patch = Patch::Merge(json!({"spec": {"replicas": 4 + self.bob.requests().len()}}));
            self.bob.api::<Pool>().patch(NAME, &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }
}

/// Alice's change: as many replicas are ready as the given object wants, and the name of the `way` of writing.
fn all_ready(pool: &mut Pool, way: &str) {
    let status = pool.status.get_or_insert_default();
    status.ready = pool.spec.replicas;
    status.message = Some(way.to_owned());
}

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let bob = ctx.actor("bob").await?;
    ctx.set(&pool(NAME, 3)).await?;
    let interference = |left| Interference { bob: bob.clone(), left: AtomicU32::new(left) };
    let mut table = Table::new(&["way", "requests", "conflicts", "writes"]);

    ctx.say("By hand. Alice sets status.ready to the number of replicas. Bob writes once between her read and her PUT, with another number.");
    let alice = ctx.actor("alice").await?;
    by_hand(&alice, &interference(1)).await?;
    row(ctx, &mut table, "a loop by hand", alice.counts(), 4).await?;

    ctx.say("With the helper `retry_on_conflict`, which is a port of client-go's RetryOnConflict, with the constants of its DefaultRetry. What is inside stays the same, and the loop is no longer written by hand. (The port differs in one thing: a conflict that no retry can resolve ends it at once, as when the object was deleted and made anew.)");
    let alice = ctx.actor("alice").await?;
    with_helper(&alice, &interference(1), &RetryPolicy::client_go_default_retry()).await?;
    row(ctx, &mut table, "retry_on_conflict", alice.counts(), 5).await?;

    ctx.say("With update_status, beginning with a copy that Alice has read before Bob wrote.");
    let alice = ctx.actor("alice").await?;
    let copy = alice.api::<Pool>().get(NAME).await?;
    interference(1).interfere().await?;
    let options = WriteOptions::new("alice");
    let outcome = with_update_status(&alice, &options, copy.clone()).await?;
    ctx.check_eq("update_status says that it has written", &outcome.label(), &"written");
    row(ctx, &mut table, "update_status", alice.counts(), 6).await?;
    ctx.table(table);
    exhausted(ctx, &interference(ATTEMPTS + 3), copy).await
}

async fn row(
    ctx: &ScenarioContext,
    table: &mut Table,
    way: &str,
    counts: RequestCounts,
    ready: i32,
) -> Result<()> {
    let status = ctx.stored::<Pool>(NAME).await?.status;
    ctx.check_eq(
        &format!("{way}: four requests, one of them a conflict, one a write"),
        &counts,
        &RequestCounts { requests: 4, written: 1, conflicts: 1 },
    );
    ctx.check_eq(
        &format!("{way}: status.ready is {ready}, decided from what Bob had written"),
        &status.and_then(|status| status.ready),
        &Some(ready),
    );
    table.row(&[&way, &counts.requests, &counts.conflicts, &counts.written]);
    Ok(())
}

/// The correct loop.
#[expect(clippy::disallowed_methods, reason = "shows the loop that update_status is")]
async fn by_hand(alice: &Actor, interference: &Interference) -> Result<()> {
    let pools = alice.api::<Pool>();
    let mut window = Duration::from_millis(20);
    for attempt in 1..=ATTEMPTS {
        let mut fresh = pools.get(NAME).await?;
        interference.interfere().await?;
        all_ready(&mut fresh, "by hand");
        match pools.replace_status(NAME, &PostParams::default(), &fresh).await {
            Ok(_) => return Ok(()),
            Err(error) if !is_conflict(&error) => return Err(error.into()),
            Err(error) if attempt == ATTEMPTS => {
                return Err(error).with_context(|| format!("gave up after {ATTEMPTS} conflicts"));
            }
            Err(_) => tokio::time::sleep(window.mul_f64(rand::random())).await,
        }
        window *= 2;
    }
    bail!("no attempt was allowed")
}

#[expect(clippy::disallowed_methods, reason = "shows the bare PUT inside the helper")]
async fn with_helper(
    alice: &Actor,
    interference: &Interference,
    policy: &RetryPolicy,
) -> Result<Pool, RetryError<kube::Error>> {
    let pools = alice.api::<Pool>();
    retry_on_conflict(policy, || async {
        let mut fresh = pools.get(NAME).await?;
        interference.interfere().await?;
        all_ready(&mut fresh, "helper");
        pools.replace_status(NAME, &PostParams::default(), &fresh).await
    })
    .await
}

async fn with_update_status(
    alice: &Actor,
    options: &WriteOptions,
    copy: Pool,
) -> Result<Outcome<Pool>, WriteError> {
    update_status(&alice.api::<Pool>(), NAME, |pool| {
        all_ready(pool, "update_status");
        UpdateDecision::Write
    })
    .put()
    .with(options)
    .from(Source::Copy(copy))
    .outcome()
    .await
}

/// The results when Bob writes first every time.
async fn exhausted(ctx: &ScenarioContext, interference: &Interference, copy: Pool) -> Result<()> {
    ctx.say("Now Bob writes before each of her PUTs. All three ways end, and none of them reports success. The loop by hand and the helper have three attempts each, and update_status has one, from the old copy.");
    let before = ctx.stored::<Pool>(NAME).await?.status;
    let alice = ctx.actor("alice").await?;
    let hand = by_hand(&alice, interference).await;
    let three = RetryPolicy::client_go_default_retry().with_max_attempts(NonZeroU32::MIN.saturating_add(2));
    let helper = with_helper(&alice, interference, &three).await;
    let once = WriteOptions::new("alice").with_policy(RetryPolicy::once());
    let function = with_update_status(&alice, &once, copy).await;
    let cause = hand.err().and_then(|error| error.downcast::<kube::Error>().ok());
    ctx.check(
        "by hand: an error, with the last conflict in it",
        cause.is_some_and(|cause| is_conflict(&cause)),
    );
    ctx.check(
        "retry_on_conflict: Exhausted after 3 attempts, with the last conflict in it",
        matches!(helper, Err(RetryError::Exhausted { attempts: 3, last, .. }) if is_conflict(&last)),
    );
    ctx.check(
        "update_status: Exhausted after 1 attempt, of a conflict",
        matches!(function, Err(WriteError::Exhausted { attempts: 1, class: Class::Conflict, .. })),
    );
    ctx.check_eq("seven requests were refused", &alice.counts().conflicts, &7);
    let after = ctx.stored::<Pool>(NAME).await?.status;
    ctx.check("and the status is as it was", before == after);
    Ok(())
}
