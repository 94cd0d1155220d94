//! A hand-written loop with a growing pause: its behaviour after the last attempt, and when the process is asked to stop.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use conflict_retry::backoff::Backoff;
use conflict_retry::policy::RetryPolicy;
use conflict_retry::{AttemptEvent, Observer, Outcome, WriteError, WriteOptions, is_conflict};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::attempt_log::AttemptLog;
use super::contest::Contest;
use super::schedule::{bars, listed, pauses};
use crate::context::ScenarioContext;
use crate::event::Table;
use crate::pool::Pool;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "hand-rolled",
    title: "A hand-written retry loop: 100 ms, doubled up to 10 s, 10 % jitter, ten attempts",
    rows: &["3b"],
    refutes: &["hand-rolled-loop"],
    lesson: "A pause belongs between two attempts: not after the last one, and not after the work is cancelled.\nA hand-written loop that sleeps after each failure gets both wrong, and blocks its worker for 42.7 s or more.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// The loop's number of attempts.
const ATTEMPTS: u32 = 10;
/// Its first pause.
const FIRST: Duration = Duration::from_millis(100);
/// Its longest.
const LONGEST: Duration = Duration::from_secs(10);
/// Factor by which the loop runs faster than written.
const FASTER: u32 = 100;

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let slept = on_paper(ctx);
    capped(ctx)?;
    played(ctx, &slept).await?;
    told_to_end(ctx).await
}

/// The pause after attempt `attempt`, counted from 0, with the random number `random` in [0, 1).
fn pause(attempt: u32, random: f64) -> Duration {
    let doubled = FIRST.saturating_mul(2_u32.saturating_pow(attempt)).min(LONGEST);
    doubled.mul_f64(1.0 + 0.1 * random)
}

fn on_paper(ctx: &ScenarioContext) -> Vec<Duration> {
    ctx.say("The loop as it is often written: ten attempts, after each conflict a sleep of 100 ms · 2ⁿ, at most 10 s, plus up to 10 % jitter. Its sleeps if every attempt conflicts, without the jitter:");
    let slept: Vec<Duration> = (0..ATTEMPTS).map(|attempt| pause(attempt, 0.0)).collect();
    let lines: Vec<_> =
        slept.iter().zip(1..).map(|(pause, attempt)| (format!("after attempt {attempt}"), *pause)).collect();
    ctx.quote(&bars(&lines, 40));
    let sum: Duration = slept.iter().sum();
    ctx.check_eq("together 42.7 s", &sum, &Duration::from_millis(42_700));
    let useful: Duration = slept.iter().take(slept.len() - 1).sum();
    ctx.check_eq(
        "of which 10 s come after the tenth attempt, for nothing",
        &sum.saturating_sub(useful),
        &Duration::from_secs(10),
    );
    let most: Duration = (0..ATTEMPTS).map(|attempt| pause(attempt, 1.0)).sum();
    ctx.check_eq("and 46.97 s with the most that chance can add", &most, &Duration::from_millis(46_970));
    slept
}

fn capped(ctx: &ScenarioContext) -> Result<()> {
    ctx.say("The same numbers in client-go's `wait.Backoff` give a different loop: there, reaching the cap ends the attempts. `Backoff` is conflict-retry's port of its arithmetic. (With this arithmetic client-go sleeps 6,400 ms more after the last attempt; a `RetryPolicy` does not.)");
    let capped = RetryPolicy::from_backoff(Backoff::new(10, FIRST, 2.0, 0.1, LONGEST)?)?;
    let uncapped = RetryPolicy::from_backoff(Backoff::new(10, FIRST, 2.0, 0.1, Duration::ZERO)?)?;
    let mut table = Table::new(&["100 ms, doubled, ten attempts", "attempts", "pauses", "sum of the pauses"]);
    for (what, policy) in [("RetryPolicy, capped at 10 s", &capped), ("RetryPolicy, no cap", &uncapped)] {
        let pauses = pauses(policy, 0.0);
        let sum = format!("{:.1} s", pauses.iter().sum::<Duration>().as_secs_f64());
        table.row(&[&what, &(pauses.len() + 1), &pauses.len(), &sum]);
    }
    table.row(&[&"by hand, capped at 10 s", &ATTEMPTS, &ATTEMPTS, &"42.7 s"]);
    ctx.table(table);
    ctx.check_eq("with the cap there are seven attempts, not ten", &pauses(&capped, 0.0).len(), &6);
    let mut backoff = Backoff::new(10, FIRST, 2.0, 0.1, LONGEST)?;
    let seventh = (0..7).map(|_| backoff.step(|| 0.0)).last();
    ctx.check_eq(
        "after the seventh, the port of client-go's arithmetic gives 6.4 s of sleep and no further attempt",
        &(seventh, backoff.steps()),
        &(Some(Duration::from_millis(6400)), 0),
    );
    ctx.check_eq("without it ten, with nine pauses", &pauses(&uncapped, 0.0).len(), &9);
    Ok(())
}

/// The observations of the hand-written loop.
struct Log {
    answer: Result<Pool, kube::Error>,
    /// The pauses, with what chance has added to each.
    drawn: Vec<Duration>,
    /// The measured duration of each sleep.
    slept: Vec<Duration>,
    /// From the last answer to the return.
    idle: Duration,
}

/// The hand-written loop, a hundred times as fast. It calls `after_conflict` and has no other way to be stopped.
async fn by_hand(contest: &Contest, after_conflict: impl Fn(u32)) -> Log {
    let (mut drawn, mut slept) = (Vec::new(), Vec::new());
    let mut attempt = 0;
    loop {
        let answer = contest.attempt().await;
        let answered = Instant::now();
        if !answer.as_ref().is_err_and(is_conflict) {
            return Log { answer, drawn, slept, idle: answered.elapsed() };
        }
        after_conflict(attempt + 1);
        let pause = pause(attempt, rand::random());
        drawn.push(pause);
        let began = Instant::now();
        tokio::time::sleep(pause / FASTER).await;
        slept.push(began.elapsed());
        attempt += 1;
        if attempt == ATTEMPTS {
            return Log { answer, drawn, slept, idle: answered.elapsed() };
        }
    }
}

/// The equivalent policy: ten attempts, 1 ms, doubled.
fn policy() -> Result<RetryPolicy> {
    let steps = i32::try_from(ATTEMPTS)?;
    Ok(RetryPolicy::from_backoff(Backoff::new(steps, FIRST / FASTER, 2.0, 0.1, Duration::ZERO)?)?)
}

async fn played(ctx: &ScenarioContext, written: &[Duration]) -> Result<()> {
    let contest = Contest::new(ctx, "workers").await?;
    contest.interfere(ATTEMPTS);
    let intro = "The loop by hand, a hundred times as fast as written, against a Bob who writes before each of its PUTs. Chance adds to its pauses now.";
    let log = ctx.racing(intro, by_hand(&contest, |_| {})).await;
    ctx.check(
        "ten attempts, and the last conflict is the answer",
        log.answer.is_err_and(|e| is_conflict(&e)),
    );
    ctx.live_quote(&format!("pauses drawn: {}", listed(&log.drawn)));
    ctx.live_quote(&format!("sleeps measured: {}", listed(&log.slept)));
    ctx.check("chance has added to its ten pauses, at most 10 % to each", is_jittered(&log.drawn, written));
    ctx.check(
        "it slept ten times, by the clock none of them shorter than the pause that was drawn",
        log.slept.len() == log.drawn.len()
            && log.slept.iter().zip(&log.drawn).all(|(slept, drawn)| *slept >= *drawn / FASTER),
    );
    ctx.check(
        "the loop returns only when it has slept its longest pause after the last answer",
        log.idle >= LONGEST / FASTER,
    );

    contest.interfere(ATTEMPTS);
    let attempts = Arc::new(AttemptLog::default());
    let options = WriteOptions::new("alice").with_policy(policy()?).with_observer(attempts.clone());
    let intro = "`update` with ten attempts and the same first pause, against the same Bob.";
    let answer = ctx.racing(intro, contest.update(&options)).await;
    ctx.check("ten attempts, and an error that says so", is_exhausted(&answer));
    let pauses: Vec<_> = attempts.attempts().into_iter().filter(|attempt| attempt.class.is_some()).collect();
    ctx.check(
        "nine conflicts were followed by a pause, the tenth was not",
        pauses.len() == 10
            && pauses.iter().take(9).all(|note| note.pause.is_some())
            && pauses[9].pause.is_none(),
    );
    ctx.check(
        "its nine pauses are doubled, and chance has added at most 10 % to each",
        is_jittered(&attempts.pauses(), &doubled(9)),
    );
    Ok(())
}

/// The first `count` pauses of [`policy`], without chance.
fn doubled(count: u32) -> Vec<Duration> {
    (0..count).map(|attempt| FIRST / FASTER * 2_u32.pow(attempt)).collect()
}

/// Whether each pause is at least as long as the one on paper and at most 10 % longer, and chance has added to some.
fn is_jittered(pauses: &[Duration], on_paper: &[Duration]) -> bool {
    let pairs = || pauses.iter().zip(on_paper);
    pauses.len() == on_paper.len()
        && pairs().all(|(pause, paper)| *pause >= *paper && *pause <= paper.mul_f64(1.1))
        && pairs().any(|(pause, paper)| pause > paper)
}

const fn is_exhausted(answer: &Result<Outcome<Pool>, WriteError>) -> bool {
    matches!(answer, Err(WriteError::Exhausted { attempts: ATTEMPTS, .. }))
}

/// Cancels at the third conflict.
struct Ending {
    token: CancellationToken,
    conflicts: Mutex<u32>,
}

impl Observer for Ending {
    fn attempt(&self, event: &AttemptEvent<'_>) {
        if event.class.is_some() {
            let mut conflicts = self.conflicts.lock().unwrap_or_else(PoisonError::into_inner);
            *conflicts += 1;
            if *conflicts == 3 {
                self.token.cancel();
            }
        }
    }
}

async fn told_to_end(ctx: &ScenarioContext) -> Result<()> {
    let contest = Contest::new(ctx, "builders").await?;
    contest.interfere(ATTEMPTS);
    let token = CancellationToken::new();
    let intro = "Right after its third conflict the program is told to end. The loop by hand does not hear it, and goes on.";
    let ends = |conflicts| {
        if conflicts == 3 {
            ctx.act("the program", "is told to end");
            token.cancel();
        }
    };
    let log = ctx.racing(intro, by_hand(&contest, ends)).await;
    let after = contest.alice.requests().len().saturating_sub(6);
    ctx.check("it was told to end", token.is_cancelled());
    ctx.check_eq(
        "after that it slept eight times and sent 14 requests",
        &(log.slept.len().saturating_sub(2), after),
        &(8, 14),
    );

    let before = contest.alice.requests().len();
    contest.interfere(ATTEMPTS);
    ctx.say("`update` has a token. It is cancelled at the same moment.");
    let token = CancellationToken::new();
    let ending = Arc::new(Ending { token: token.clone(), conflicts: Mutex::default() });
    let options =
        WriteOptions::new("alice").with_policy(policy()?).with_observer(ending).with_cancellation(token);
    let answer = contest.update(&options).await;
    let Err(WriteError::Cancelled { attempts, maybe_written, last, .. }) = answer else {
        bail!("update ended otherwise: {answer:?}");
    };
    ctx.check_eq("nothing is sent after the third conflict", &(contest.alice.requests().len() - before), &6);
    ctx.check(
        "the answer is Cancelled: after three attempts, with the last conflict, and nothing is in doubt",
        attempts == 3 && last.is_some() && !maybe_written,
    );
    ctx.check("there is no fourth PUT for Bob to write before", contest.to_come() == ATTEMPTS - 3);
    Ok(())
}
