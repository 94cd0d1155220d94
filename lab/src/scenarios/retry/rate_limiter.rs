//! A rate limiter in the loop: 10 requests a second, 20 at once.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use conflict_retry::backoff::Backoff;
use conflict_retry::policy::RetryPolicy;
use conflict_retry::protect::{Protection, Rate, RateLimiter, ThrottledBy, TokenBucket};
use conflict_retry::{Class, Outcome, WriteError, WriteOptions, is_conflict};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use testbed::wait::eventually;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::attempt_log::AttemptLog;
use super::contest::{Contest, GOAL, goal};
use super::schedule::{bars, millis};
use crate::context::{Actor, PATIENCE, RequestCounts, ScenarioContext};
use crate::event::Table;
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "rate-limiter",
    title: "A rate limiter in the retry loop: 10 requests a second, burst 20",
    rows: &["3i"],
    refutes: &[],
    lesson: "A rate limiter delays all requests, first attempts too. It prevents no conflict; if it makes a writer wait between its read and its PUT, it causes conflicts. So conflict-retry waits before the read, and counts the write afterwards.\nA waiting writer must be able to stop: when it is cancelled, and when its deadline has passed.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// Number of Bob's writes: with the successful attempt, 13 reads and 13 PUTs.
const CONFLICTS: u32 = 12;
/// Number of requests of a write that meets so many conflicts.
const REQUESTS: u32 = 2 * (CONFLICTS + 1);

async fn run(ctx: &ScenarioContext) -> Result<()> {
    on_paper(ctx);
    in_the_loop(ctx).await?;
    first_attempt(ctx).await?;
    free_rival(ctx).await?;
    leaving(ctx).await
}

fn on_paper(ctx: &ScenarioContext) {
    let rate = Rate::default();
    ctx.say("The bucket holds 20 tokens, and gets a new one each 100 ms. How long each of 25 simultaneous requests has to wait:");
    let mut bucket = TokenBucket::new(rate);
    let waits: Vec<Duration> = (0..25).map(|_| bucket.reserve(Duration::ZERO)).collect();
    let lines: Vec<_> =
        waits.iter().zip(1..).skip(18).map(|(wait, n)| (format!("request {n}"), *wait)).collect();
    ctx.quote(&format!("requests 1 to 18  at once\n{}", bars(&lines, 25)));
    ctx.check(
        "twenty pass at once",
        waits.iter().take(20).all(Duration::is_zero) && waits.iter().skip(20).all(|wait| !wait.is_zero()),
    );
    let rest: Vec<Duration> = waits.into_iter().skip(20).collect();
    let wanted: Vec<Duration> = (1..=5).map(|n| rate.interval() * n).collect();
    ctx.check_eq("the next five pass 100 ms after one another", &rest, &wanted);
}

/// Time until the tokens beyond the bucket's size are available. The last PUT does not wait for its own.
fn needed(rate: Rate) -> Duration {
    rate.interval() * (REQUESTS - 1).saturating_sub(rate.burst())
}

/// The result of a contested write.
struct Paced {
    requests: usize,
    conflicts: usize,
    queued: Duration,
    took: Duration,
}

async fn in_the_loop(ctx: &ScenarioContext) -> Result<()> {
    let intro = "A write that meets twelve conflicts, because Bob is made to write before each PUT, and pauses 1 ms after each: 26 requests. Once without a limiter, once with one, in which each request costs a token, reads as well. (On a machine where 26 requests alone take longer than 300 ms new tokens come before they are needed; there the limiter, and the numbers below, are made slower until they do not.)";
    let (free, limited, rate) = ctx.racing(intro, both(ctx)).await?;
    let mut table = Table::new(&["", "requests", "of them 409"]);
    let mut live = Table::new(&["", "waited for tokens", "took"]);
    for (what, paced) in [("no limiter", &free), ("10 a second, 20 at once", &limited)] {
        table.row(&[&what, &paced.requests, &paced.conflicts]);
        live.row(&[&what, &millis(paced.queued), &millis(paced.took)]);
    }
    ctx.table(table);
    ctx.live_table(live);
    ctx.check_eq("without a limiter nothing waits for a token", &free.queued, &Duration::ZERO);
    ctx.check(
        "with it, the last read needs five tokens more than the bucket holds: five times 100 ms at least",
        limited.took >= needed(rate),
    );
    ctx.check(
        "and at least half of that time is spent in the limiter, waiting for a token",
        limited.queued >= needed(rate) / 2,
    );
    ctx.check_eq(
        "against such a Bob the limiter changes when requests are sent, and not how many of them are refused",
        &(limited.requests, limited.conflicts),
        &(free.requests, free.conflicts),
    );
    ctx.check_eq("26 requests and twelve conflicts, each time", &(free.requests, free.conflicts), &(26, 12));
    Ok(())
}

/// Pools of the limited write; the limiter is twice as slow at each repetition.
const LIMITED: [&str; 5] = ["limited", "limited-2", "limited-4", "limited-8", "limited-16"];

/// Without a limiter, and with one that is slower than this machine.
async fn both(ctx: &ScenarioContext) -> Result<(Paced, Paced, Rate)> {
    let free = contested(ctx, "free", Protection::default()).await?;
    let mut per_second = 10.0;
    for name in LIMITED {
        let rate = Rate::new(per_second, Rate::default().burst())?;
        let protection = Protection::default().with_limiter(RateLimiter::new(rate));
        let limited = contested(ctx, name, protection).await?;
        if limited.took.saturating_sub(limited.queued) <= needed(rate) / 2 {
            return Ok((free, limited, rate));
        }
        per_second /= 2.0;
    }
    bail!("this machine is slower than the slowest limiter")
}

async fn contested(ctx: &ScenarioContext, name: &'static str, protection: Protection) -> Result<Paced> {
    let contest = Contest::new(ctx, name).await?;
    contest.interfere(CONFLICTS);
    let quick = Backoff::new(20, Duration::from_millis(1), 1.0, 0.0, Duration::ZERO)?;
    let attempts = Arc::new(AttemptLog::default());
    let options = WriteOptions::new("alice")
        .with_policy(RetryPolicy::from_backoff(quick)?)
        .with_observer(attempts.clone())
        .with_protection(protection);
    let began = Instant::now();
    let outcome = contest.update(&options).await?;
    let took = began.elapsed();
    if !matches!(outcome, Outcome::Written(_)) {
        bail!("the pool was not written: {}", outcome.label());
    }
    let counts = contest.alice.counts();
    Ok(Paced { requests: counts.requests, conflicts: counts.conflicts, queued: attempts.queued(), took })
}

/// The usual limiter, whose bucket has been emptied.
fn emptied() -> RateLimiter {
    emptied_of(Rate::default())
}

fn slow_rate() -> Result<Rate> {
    Ok(Rate::new(BESIDE_PER_SECOND, 1)?)
}

fn emptied_of(rate: Rate) -> RateLimiter {
    let limiter = RateLimiter::new(rate);
    while limiter.try_take().is_ok() {}
    limiter
}

async fn first_attempt(ctx: &ScenarioContext) -> Result<()> {
    let (one, other) = (Contest::new(ctx, "quiet").await?, Contest::new(ctx, "quiet-too").await?);
    ctx.say("A rate limiter does not know what a request is for. Two writes without a conflict, one after the other, after earlier requests have emptied the bucket:");
    let began = Instant::now();
    let options = WriteOptions::new("alice").with_protection(Protection::default().with_limiter(emptied()));
    let outcomes = [one.update(&options).await?.label(), other.update(&options).await?.label()];
    let took = began.elapsed();
    ctx.check_eq("both are written", &outcomes, &["written", "written"]);
    let counts = [&one, &other]
        .map(|contest| contest.alice.counts())
        .map(|counts| (counts.requests, counts.conflicts));
    ctx.check_eq("at the first attempt, with two requests each", &counts, &[(2, 0), (2, 0)]);
    ctx.check(
        "the first read waits for one token, and the second for two, because the first PUT was sent on credit: 300 ms at least, without any retry",
        took >= Rate::default().interval() * 3,
    );
    Ok(())
}

/// Time between two writes of a Bob who runs freely.
const RIVAL_PAUSE: Duration = Duration::from_millis(20);
/// Tokens a second beside him: so few that he writes during each wait on a busy machine too.
const BESIDE_PER_SECOND: f64 = 2.0;
/// Attempts of the writer that waits before each request.
const FEW: usize = 5;
/// Attempts of the writer that waits before each read, at most.
const MANY: i32 = 20;

/// The result of a write beside a Bob who runs freely.
struct Beside {
    attempts: usize,
    conflicts: usize,
    is_written: bool,
}

impl Beside {
    fn of(alice: &Actor, is_written: bool) -> Self {
        let RequestCounts { requests, conflicts, .. } = alice.counts();
        Self { attempts: requests / 2, conflicts, is_written }
    }
}

async fn free_rival(ctx: &ScenarioContext) -> Result<()> {
    let intro = "Now Bob runs freely: he writes the pool every 20 ms, whatever Alice does. Her bucket is empty, and a token comes every 500 ms. She waits for them in two ways. Before each request, as the limiter in client-go's REST client does: then she waits between her read and her PUT as well; five attempts. And before each read only, as conflict-retry does: the PUT follows at once, and the next read waits for its token too; twenty attempts at most.";
    let (by_request, by_read) = ctx.racing(intro, both_ways(ctx)).await?;
    let mut table = Table::new(&["waits before each", "waits between read and PUT", "end"]);
    let mut live = Table::new(&["waits before each", "attempts", "of them 409", "end"]);
    for (what, waits, beside) in [("request", "500 ms", &by_request), ("read", "no", &by_read)] {
        let end = if beside.is_written { "written" } else { "given up" };
        table.row(&[&what, &waits, &end]);
        live.row(&[&what, &beside.attempts, &beside.conflicts, &end]);
    }
    ctx.table(table);
    ctx.live_table(live);
    ctx.check_eq(
        "before each request: five attempts, five conflicts, because Bob writes during each wait",
        &(by_request.attempts, by_request.conflicts, by_request.is_written),
        &(5, 5, false),
    );
    ctx.check("before each read: written", by_read.is_written);
    Ok(())
}

/// A write that waits before each request, and one that waits before each read.
async fn both_ways(ctx: &ScenarioContext) -> Result<(Beside, Beside)> {
    let rival = Rival::start(ctx, "each-request").await?;
    let by_request = by_request(ctx, "each-request").await;
    rival.end().await?;
    let rival = Rival::start(ctx, "each-read").await?;
    let by_read = by_read(ctx, "each-read").await;
    rival.end().await?;
    Ok((by_request?, by_read?))
}

async fn by_request(ctx: &ScenarioContext, name: &str) -> Result<Beside> {
    let (alice, limiter) = (ctx.actor("alice").await?, emptied_of(slow_rate()?));
    for _ in 0..FEW {
        match attempt(&alice, name, &limiter).await {
            Ok(_) => return Ok(Beside::of(&alice, true)),
            Err(error) if is_conflict(&error) => {}
            Err(error) => bail!(error),
        }
    }
    Ok(Beside::of(&alice, false))
}

async fn by_read(ctx: &ScenarioContext, name: &str) -> Result<Beside> {
    let alice = ctx.actor("alice").await?;
    let quick = Backoff::new(MANY, Duration::from_millis(1), 1.0, 0.0, Duration::ZERO)?;
    let options = WriteOptions::new("alice")
        .with_policy(RetryPolicy::from_backoff(quick)?)
        .with_protection(Protection::default().with_limiter(emptied_of(slow_rate()?)));
    let is_written = match goal(&alice.api(), name, &options).await {
        Ok(outcome) => matches!(outcome, Outcome::Written(_)),
        Err(WriteError::Exhausted { class: Class::Conflict, .. }) => false,
        Err(error) => bail!(error),
    };
    Ok(Beside::of(&alice, is_written))
}

#[expect(clippy::disallowed_methods, reason = "the parts of a hand-written loop")]
async fn attempt(alice: &Actor, name: &str, limiter: &RateLimiter) -> Result<Pool, kube::Error> {
    let pools = alice.api::<Pool>();
    limiter.acquire().await;
    let mut pool = pools.get(name).await?;
    pool.spec.replicas = Some(GOAL);
    limiter.acquire().await;
    pools.replace(name, &PostParams::default(), &pool).await
}

/// Bob, who writes a pool until he is told to end, or dropped.
struct Rival {
    stop: DropGuard,
    writing: JoinHandle<Result<(), kube::Error>>,
}

impl Rival {
    async fn start(ctx: &ScenarioContext, name: &'static str) -> Result<Self> {
        ctx.set(&pool(name, 3)).await?;
        let (pools, stop) = (ctx.actor("bob").await?.api::<Pool>(), CancellationToken::new());
        let writing = tokio::spawn(keep_writing(pools, name, stop.clone()));
        Ok(Self { stop: stop.drop_guard(), writing })
    }

    async fn end(self) -> Result<()> {
        drop(self.stop);
        Ok(self.writing.await??)
    }
}

#[expect(clippy::disallowed_methods, reason = "a writer that does not check versions")]
async fn keep_writing(
    pools: Api<Pool>,
    name: &'static str,
    stop: CancellationToken,
) -> Result<(), kube::Error> {
    let mut count = 0;
    while !stop.is_cancelled() {
        count += 1;
        let patch = Patch::Merge(json!({"spec": {"note": format!("bob's {count}")}}));
        pools.patch(name, &PatchParams::default(), &patch).await?;
        tokio::time::sleep(RIVAL_PAUSE).await;
    }
    Ok(())
}

async fn leaving(ctx: &ScenarioContext) -> Result<()> {
    let contest = Contest::new(ctx, "patient").await?;
    ctx.say("A limiter that has one token an hour, which another request has taken. The read waits for the next, under a policy that allows 200 ms in all.");
    let limiter = RateLimiter::new(Rate::new(1.0 / 3600.0, 1)?);
    limiter.acquire().await;
    let protection = Protection::default().with_limiter(limiter.clone());
    let short = RetryPolicy::default()
        .with_max_attempts(NonZeroU32::MIN)
        .with_deadline(Some(Duration::from_millis(200)));
    let options = WriteOptions::new("alice").with_policy(short).with_protection(protection.clone());
    let answer = contest.update(&options).await;
    let Err(WriteError::ClientThrottled { by, maybe_written, .. }) = answer else {
        bail!("update ended otherwise: {answer:?}");
    };
    ctx.check(
        "its turn does not come: it is held back, and nothing is written",
        matches!(by, ThrottledBy::WaitTimeout(_)) && !maybe_written,
    );
    ctx.check_eq("no request was sent", &contest.alice.requests().len(), &0);

    ctx.say("The same without a deadline, in a program that is cancelled.");
    let token = CancellationToken::new();
    let patient = RetryPolicy::default().with_deadline(None);
    let options = WriteOptions::new("alice")
        .with_policy(patient)
        .with_protection(protection)
        .with_cancellation(token.clone());
    let ended = async {
        // It is cancelled while it waits in the queue.
        let waits = eventually(PATIENCE, "it stands in the queue", || async {
            Ok((limiter.waiting() > 0).then_some(()))
        })
        .await;
        ctx.act("the program", "is told to end");
        token.cancel();
        waits
    };
    let (answer, waits) = tokio::join!(contest.update(&options), ended);
    waits?;
    ctx.check("it stops waiting", matches!(answer, Err(WriteError::Cancelled { .. })));
    ctx.check_eq("leaves the queue", &limiter.waiting(), &0);
    ctx.check_eq("and sends nothing", &contest.alice.requests().len(), &0);
    Ok(())
}
