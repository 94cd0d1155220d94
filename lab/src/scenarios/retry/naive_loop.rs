//! Five attempts without a pause.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use conflict_retry::backoff::Backoff;
use conflict_retry::policy::RetryPolicy;
use conflict_retry::protect::{Protection, Rate, RateLimiter};
use conflict_retry::{Class, WriteError, WriteOptions, is_conflict};

use super::attempt_log::AttemptLog;
use super::contest::Contest;
use super::race;
use super::race::{Finish, WRITERS};
use super::schedule::{listed, millis};
use crate::context::{PATIENCE, ScenarioContext};
use crate::event::Table;
use crate::pool::Pool;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "naive-loop",
    title: "Five retries without backoff fail while another writer is still busy",
    rows: &["3a", "3m"],
    refutes: &[],
    lesson: "Without a pause, five attempts take only as long as ten requests: a writer that is busy for longer wins all five.\nFive attempts with growing pauses outlast that writer; among many writers, the number of attempts decides who gives up.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// As many attempts as there are writers.
const TEN: NonZeroU32 = NonZeroU32::MIN.saturating_add(9);
/// The naive loop's number of attempts.
const ATTEMPTS: u32 = 5;

async fn run(ctx: &ScenarioContext) -> Result<()> {
    against_bob(ctx).await?;
    same_bound(ctx).await?;
    in_a_crowd(ctx).await
}

/// Reads, changes and writes until a write is granted, at most five times, without pauses.
async fn naive(contest: &Contest) -> Result<Pool, kube::Error> {
    let mut attempt = 1;
    loop {
        match contest.attempt().await {
            Err(error) if is_conflict(&error) && attempt < ATTEMPTS => attempt += 1,
            answer => return answer,
        }
    }
}

async fn against_bob(ctx: &ScenarioContext) -> Result<()> {
    let contest = Contest::new(ctx, "workers").await?;
    ctx.say("Bob writes notes to the pool, one after the other. Alice wants 5 replicas: she reads, changes and writes in a loop, five times at most, without a pause. Each time Bob writes between her read and her write.");
    contest.interfere(ATTEMPTS);
    let Err(error) = naive(&contest).await else { bail!("a contested PUT was taken") };
    ctx.check("after five conflicts the loop is over, and its error is the last one", is_conflict(&error));
    ctx.check("nothing of Alice's is written", !contest.is_written(ctx).await?);
    Ok(())
}

/// How long Bob is busy.
const BUSY: Duration = Duration::from_millis(150);
/// The first of the pauses, which together outlast his busy time: 40 + 80 + 160 + 320 ms are four times as long.
const FIRST: Duration = Duration::from_millis(40);
/// A pool for each kind of loop, with a doubled busy time of Bob at each repetition.
const BUSY_POOLS: [[&str; 3]; 6] = [
    ["by-hand", "at-once", "paced"],
    ["by-hand-2", "at-once-2", "paced-2"],
    ["by-hand-4", "at-once-4", "paced-4"],
    ["by-hand-8", "at-once-8", "paced-8"],
    ["by-hand-16", "at-once-16", "paced-16"],
    ["by-hand-32", "at-once-32", "paced-32"],
];

/// How five attempts ended.
struct End {
    is_written: bool,
    gave_up: bool,
    attempts: usize,
    pauses: Vec<Duration>,
}

/// The same five attempts against a Bob who is busy for the same time: by hand, by `update` without and with pauses.
struct Ends {
    busy: Duration,
    by_hand: End,
    at_once: End,
    paced: End,
}

async fn same_bound(ctx: &ScenarioContext) -> Result<()> {
    let intro = "Now Bob is busy for 150 ms by his own clock: from his first write until then he writes before each PUT of Alice's. She may try five times, whatever she does between: the loop by hand; `update` without a pause; `update` with pauses of 40, 80, 160 and 320 ms. (On a machine where five attempts without a pause last longer than 150 ms, that time and the pauses are doubled until they do not.)";
    let Ends { busy, by_hand, at_once, paced } = ctx.racing(intro, against_busy_bob(ctx)).await?;
    let mut table = Table::new(&["five attempts", "pauses", "end"]);
    let mut live = Table::new(&["Bob is busy for", "attempts made", "pauses made", "end"]);
    let rows = [
        ("by hand", "none", &by_hand),
        ("update, pauses of 0 ms", "none", &at_once),
        ("update, growing pauses", "at most 600 ms", &paced),
    ];
    for (what, pauses, end) in rows {
        let result = if end.is_written { "written" } else { "given up" };
        table.row(&[&what, &pauses, &result]);
        let made = if end.pauses.is_empty() { "none".to_owned() } else { listed(&end.pauses) };
        live.row(&[&millis(busy), &end.attempts, &made, &result]);
    }
    ctx.table(table);
    ctx.live_table(live);
    ctx.check(
        "without a pause all five attempts fall into the time when Bob is busy, and nothing is written",
        [&by_hand, &at_once].iter().all(|end| end.gave_up && !end.is_written && end.attempts == 5),
    );
    ctx.check(
        "with growing pauses one of five comes after it, and is written",
        paced.is_written && !paced.gave_up && paced.attempts <= 5,
    );
    Ok(())
}

/// All three, in a run where five attempts without a pause end before Bob's busy time does.
async fn against_busy_bob(ctx: &ScenarioContext) -> Result<Ends> {
    for (pools, doubled) in BUSY_POOLS.into_iter().zip(0..) {
        let times = 2_u32.pow(doubled);
        let busy = BUSY * times;
        let [first, second, third] = pools;
        let (contest, by_hand) = five_by_hand(ctx, first, busy).await?;
        let (other, at_once) = five_by_update(ctx, second, busy, Duration::ZERO).await?;
        if contest.is_outlasted() || other.is_outlasted() {
            continue;
        }
        let (_, paced) = five_by_update(ctx, third, busy, FIRST * times).await?;
        return Ok(Ends { busy, by_hand, at_once, paced });
    }
    bail!("five attempts without a pause take longer than {} s", (BUSY * 32).as_secs())
}

async fn five_by_hand(ctx: &ScenarioContext, name: &'static str, busy: Duration) -> Result<(Contest, End)> {
    let contest = Contest::new(ctx, name).await?;
    contest.keep_busy(busy);
    let answer = naive(&contest).await;
    let end = End {
        is_written: contest.is_written(ctx).await?,
        gave_up: answer.is_err_and(|error| is_conflict(&error)),
        attempts: contest.alice.requests().len() / 2,
        pauses: Vec::new(),
    };
    Ok((contest, end))
}

async fn five_by_update(
    ctx: &ScenarioContext,
    name: &'static str,
    busy: Duration,
    first: Duration,
) -> Result<(Contest, End)> {
    let contest = Contest::new(ctx, name).await?;
    contest.keep_busy(busy);
    let attempts = Arc::new(AttemptLog::default());
    let steps = i32::try_from(ATTEMPTS)?;
    let policy = RetryPolicy::from_backoff(Backoff::new(steps, first, 2.0, 0.0, Duration::ZERO)?)?;
    let options = WriteOptions::new("alice").with_policy(policy).with_observer(attempts.clone());
    let answer = contest.update(&options).await;
    let end = End {
        is_written: contest.is_written(ctx).await?,
        gave_up: matches!(answer, Err(WriteError::Exhausted { class: Class::Conflict, .. })),
        attempts: contest.alice.requests().len() / 2,
        pauses: attempts.pauses(),
    };
    Ok((contest, end))
}

async fn in_a_crowd(ctx: &ScenarioContext) -> Result<()> {
    let intro = "Ten writers of one pool. First the worst case, which the lab makes: all wait until each has read, then all write. In each round one wins and the others lose. Once they may try five times, once ten times.";
    let steps = async {
        Ok::<_, anyhow::Error>((
            race::in_step(ctx, "in-step-5", 5).await?,
            race::in_step(ctx, "in-step-10", 10).await?,
        ))
    };
    let (five, ten) = ctx.racing(intro, steps).await?;
    let intro = "The same ten with ten attempts and without a pause, each at its own pace: nobody waits for another one.";
    let no_pause = RetryPolicy::from_backoff(Backoff::new(10, Duration::ZERO, 1.0, 0.0, Duration::ZERO)?)?;
    let free = ctx.racing(intro, race::run(ctx, "at-once-10", &no_pause)).await?;
    let intro = "And with the pauses of the default policy. A write refuses each of the others once at most, so none meets more than nine conflicts, and all of them together not more than 9 + 8 + … + 1 = 45.";
    let patient = RetryPolicy::default().with_max_attempts(TEN).with_deadline(Some(PATIENCE));
    let paced = ctx.racing(intro, race::run(ctx, "at-chance", &patient)).await?;

    let mut table = Table::new(&["ten writers", "attempts", "wrote", "gave up"]);
    let mut live = Table::new(&[
        "ten writers",
        "attempts",
        "requests",
        "of them 409",
        "requests for each write",
        "took",
        "requests a second",
    ]);
    let rows = [
        ("no pause, in step", 5, five),
        ("no pause, in step", 10, ten),
        ("no pause, at their own pace", 10, free),
        ("the default policy's pauses", 10, paced),
    ];
    for (what, attempts, race) in rows {
        table.row(&[&what, &attempts, &race.written, &(WRITERS - race.written)]);
        let took = format!("{} ms", race.took.as_millis());
        let per_second = format!("{:.0}", race.per_second());
        live.row(&[&what, &attempts, &race.requests, &race.conflicts, &each(&race), &took, &per_second]);
    }
    ctx.table(table);
    ctx.live_table(live);
    let found = [five, ten].map(|race| (race.written, race.requests, race.conflicts));
    ctx.check_eq(
        "in step, five rounds let five of ten write, after 80 requests, 35 of them refused",
        &found[0],
        &(5, 80, 35),
    );
    ctx.check_eq(
        "ten rounds let all ten write, after 110 requests, 45 of them refused",
        &found[1],
        &(10, 110, 45),
    );
    ctx.check_eq(
        "at their own pace all ten write as well, without pauses and with them",
        &(free.written, paced.written),
        &(WRITERS, WRITERS),
    );
    ctx.check(
        "and never with more refusals: in step is the worst case, so a crowd's attempts decide who gives up, its pauses only how many requests that costs",
        [free, paced].iter().all(|race| race.conflicts <= ten.conflicts && race.requests <= ten.requests),
    );
    load(ctx, &free, &paced).await
}

/// The load that the server gets: without pauses, with them, and through a client's own limit.
async fn load(ctx: &ScenarioContext, free: &Finish, paced: &Finish) -> Result<()> {
    ctx.check_eq(
        "with the pauses each refused writer sends nothing for a while, without them none does",
        &(paced.pauses, free.pauses),
        &(paced.conflicts, 0),
    );
    let intro = "That is a short load, because a crowd of ten is through after 110 requests at most. What keeps larger ones from overloading a server is not their loops. client-go's client lets 5 requests a second pass, 10 at once. controller-runtime turns that off, and leaves it to the API server: its priority and fairness lets requests wait, and answers 429 when too many do. The same ten without a pause, two attempts each, behind one limiter of client-go's size. conflict-retry waits for a token before each read, and sends the write at once, on credit:";
    let two = RetryPolicy::from_backoff(Backoff::new(2, Duration::ZERO, 1.0, 0.0, Duration::ZERO)?)?;
    let rate = Rate::client_go();
    let protection = Protection::default().with_limiter(RateLimiter::new(rate));
    let limited = ctx.racing(intro, race::run_behind(ctx, "one-client", &two, &protection)).await?;
    ctx.live_quote(&format!("{} requests in {} ms", limited.requests, limited.took.as_millis()));
    // Of each writer, one write may not be paid for yet.
    let beyond = u32::try_from(limited.requests.saturating_sub(WRITERS))?.saturating_sub(rate.burst());
    ctx.check(
        "ten requests pass at once, and one write of each writer on credit; each request beyond these takes another 200 ms",
        beyond > 0 && limited.took >= rate.interval() * beyond,
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn each(race: &Finish) -> String {
    format!("{:.1}", race.requests as f64 / race.written.max(1) as f64)
}
