//! client-go's `RetryOnConflict(DefaultRetry, …)`: its constants, read from client-go's source; and the two results of its port
//! in `conflict_retry`.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use conflict_retry::backoff::{Backoff, DEFAULT_BACKOFF, DEFAULT_RETRY};
use conflict_retry::policy::RetryPolicy;
use conflict_retry::protect::workqueue::{ItemLimiter, MaxOf};
use conflict_retry::{RetryError, is_conflict, retry_on_conflict};
use tokio::time::Instant;

use super::client_go::Sources;
use super::contest::Contest;
use super::schedule::{listed, millis, pauses, shortest};
use crate::context::ScenarioContext;
use crate::event::Table;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "default-retry",
    title: "RetryOnConflict with DefaultRetry: five attempts, 10 ms apart; with DefaultBackoff: 10, 50, 250 ms",
    rows: &["3c", "4d"],
    refutes: &["default-retry-unlimited", "retry-is-exponential"],
    lesson: "DefaultRetry is made for a conflict or two: five attempts within about 44 ms of waiting, and no exponential backoff. DefaultBackoff is exponential.\nAfter the last attempt the helper returns the conflict; a caller that does not check it has lost a write.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// The largest random number in [0, 1).
const ALMOST_ONE: f64 = 1.0 - f64::EPSILON;

async fn run(ctx: &ScenarioContext) -> Result<()> {
    constants(ctx).await?;
    four_conflicts(ctx).await?;
    five_conflicts(ctx).await?;
    three_conflicts(ctx).await?;
    which_one(ctx).await
}

async fn constants(ctx: &ScenarioContext) -> Result<()> {
    let (retry, backoff) = match Sources::find().await {
        Ok(sources) => from_source(ctx, &sources)?,
        Err(error) => {
            ctx.live_quote(&format!(
                "client-go's source is not here, so the port's constants are not compared with it: {error:#}"
            ));
            (DEFAULT_RETRY, DEFAULT_BACKOFF)
        }
    };
    ctx.say("The pauses that these two make when every attempt conflicts, at their shortest; chance adds up to 10 % to each. They are computed by the port. Below them is the limiter of client-go's work queues, whose numbers are often given for DefaultRetry: it paces how soon a failed key comes back, and has no end.");
    let mut table = Table::new(&["", "attempts", "pauses at their shortest", "sum, at most"]);
    for (name, backoff) in [("DefaultRetry", retry), ("DefaultBackoff", backoff)] {
        let most: Duration = pauses(&RetryPolicy::from_backoff(backoff)?, ALMOST_ONE).iter().sum();
        table.row(&[&name, &backoff.steps(), &listed(&shortest(backoff)), &millis(most)]);
    }
    let queue = queue_pauses(20);
    let shown = format!("{}, …, {}", listed(&queue[..4]).trim_end_matches(" ms"), millis(queue[18]));
    table.row(&[&"the work queue's limiter", &"no bound", &shown, &"no bound"]);
    ctx.table(table);
    let ten = Duration::from_millis(10);
    ctx.check_eq("DefaultRetry pauses 10 ms each time: its factor is 1", &shortest(retry), &vec![ten; 4]);
    let most: Duration = pauses(&RetryPolicy::from_backoff(retry)?, ALMOST_ONE).iter().sum();
    ctx.check(
        "all its pauses together are at least 40 ms and at most 44 ms",
        shortest(retry).iter().sum::<Duration>() == ten * 4 && most <= Duration::from_millis(44),
    );
    ctx.check_eq(
        "DefaultBackoff is exponential: each pause is five times the one before",
        &shortest(backoff),
        &vec![ten, ten * 5, ten * 25],
    );
    ctx.check_eq(
        "1,000 s is where the work queue's limiter ends, at the 19th failure of a key",
        &queue.iter().position(|pause| *pause == Duration::from_secs(1000)),
        &Some(18),
    );
    Ok(())
}

/// Shows and checks client-go's own constants, and returns its two backoffs.
fn from_source(ctx: &ScenarioContext, sources: &Sources) -> Result<(Backoff, Backoff)> {
    ctx.say(&format!(
        "This scenario runs no Go. It runs `retry_on_conflict`, conflict-retry's port of client-go's RetryOnConflict. The constants are read from the source of client-go {}, in util/retry/util.go:",
        sources.version
    ));
    let declared = [sources.declaration("DefaultRetry")?, sources.declaration("DefaultBackoff")?];
    ctx.quote(&declared.join("\n\n"));
    let (retry, backoff) = (sources.backoff("DefaultRetry")?, sources.backoff("DefaultBackoff")?);
    ctx.check_eq("the port has the same DefaultRetry", &DEFAULT_RETRY, &retry);
    ctx.check_eq("the port has the same DefaultBackoff", &DEFAULT_BACKOFF, &backoff);
    let queue = queue_pauses(40);
    ctx.check_eq(
        "the port of the work queue's limiter begins and ends with the pauses in client-go's source: 5 ms and 1,000 s",
        &(queue[0], queue[39]),
        &sources.queue_limits()?,
    );
    Ok((retry, backoff))
}

/// How long a work queue delays a key that keeps failing.
fn queue_pauses(failures: usize) -> Vec<Duration> {
    let mut limiter = MaxOf::default_controller();
    (0..failures).map(|_| limiter.when(&"key", Duration::ZERO)).collect()
}

async fn four_conflicts(ctx: &ScenarioContext) -> Result<()> {
    let contest = Contest::new(ctx, "workers").await?;
    ctx.say("The port with DefaultRetry, and four conflicts: Bob writes before each of Alice's first four PUTs. The fifth attempt is the last one, and is written.");
    contest.interfere(4);
    let paces = Paces::default();
    let policy = RetryPolicy::client_go_default_retry();
    let written = retry_on_conflict(&policy, || paces.around(contest.attempt())).await;
    ctx.check("the retry answers what was written", written.is_ok() && contest.is_written(ctx).await?);
    let pauses = paces.pauses();
    ctx.live_quote(&format!("pauses measured: {}", listed(&pauses)));
    ctx.check(
        "of its four pauses none was shorter than 10 ms",
        pauses.len() == 4 && pauses.iter().all(|pause| *pause >= Duration::from_millis(10)),
    );
    Ok(())
}

async fn five_conflicts(ctx: &ScenarioContext) -> Result<()> {
    let contest = Contest::new(ctx, "builders").await?;
    ctx.say("Five conflicts. There is no sixth attempt.");
    contest.interfere(5);
    let policy = RetryPolicy::client_go_default_retry();
    let answer = retry_on_conflict(&policy, || contest.attempt()).await;
    let Err(error) = answer else { bail!("the retry answers a write") };
    let RetryError::Exhausted { attempts, .. } = &error else { bail!("the retry ended otherwise: {error}") };
    ctx.check_eq("the error says that five attempts were made", attempts, &5);
    let last = error.into_inner();
    ctx.check(
        "and carries the last conflict, which is all that client-go's function returns",
        last.as_ref().is_some_and(is_conflict),
    );
    ctx.check("nothing of Alice's is written", !contest.is_written(ctx).await?);
    Ok(())
}

/// The same with client-go's other backoff.
async fn three_conflicts(ctx: &ScenarioContext) -> Result<()> {
    let contest = Contest::new(ctx, "cleaners").await?;
    ctx.say("The port with DefaultBackoff: Bob writes before each of Alice's first three PUTs, and the fourth attempt is the last one.");
    contest.interfere(3);
    let paces = Paces::default();
    let policy = RetryPolicy::client_go_default_backoff();
    let written = retry_on_conflict(&policy, || paces.around(contest.attempt())).await;
    ctx.check("the retry answers what was written", written.is_ok() && contest.is_written(ctx).await?);
    let pauses = paces.pauses();
    ctx.live_quote(&format!("pauses measured: {}", listed(&pauses)));
    let least = [10, 50, 250].map(Duration::from_millis);
    ctx.check(
        "its three pauses were not shorter than 10, 50 and 250 ms: the backoff is exponential because DefaultBackoff is",
        pauses.len() == 3 && pauses.iter().zip(least).all(|(pause, least)| *pause >= least),
    );
    Ok(())
}

/// How long Bob is busy, counted in Alice's pauses: longer than the pauses of `DefaultRetry`, shorter than those of `DefaultBackoff`.
const BUSY: Duration = Duration::from_millis(300);
/// Pools of the writes under `DefaultRetry`.
const BUSY_POOLS: [&str; 5] = ["busy", "busy-2", "busy-3", "busy-4", "busy-5"];

async fn which_one(ctx: &ScenarioContext) -> Result<()> {
    let intro = "Which one, when? client-go recommends DefaultRetry where several clients make changes to the same object, and DefaultBackoff where a client changes something unrelated in an object that controllers manage actively. Bob is such a controller: from his first write on he writes before each PUT of Alice's, until she has waited for 300 ms between her attempts. (The time that requests take does not count. On a machine so busy that four pauses of 10 ms last longer than that, the attempts are made again.)";
    let (retry, backoff) = ctx.racing(intro, both_against_busy_bob(ctx)).await?;
    let mut table = Table::new(&["Bob is busy for 300 ms", "end"]);
    for (name, is_written) in [("DefaultRetry", retry), ("DefaultBackoff", backoff)] {
        table.row(&[&name, &if is_written { "written" } else { "given up" }]);
    }
    ctx.table(table);
    ctx.check("the five attempts of DefaultRetry are over before he is", !retry);
    ctx.check("the four of DefaultBackoff are fewer, and last longer than he is busy: written", backoff);
    Ok(())
}

/// Whether each of the two wrote, in a run where Bob was busy during all attempts of `DefaultRetry`.
async fn both_against_busy_bob(ctx: &ScenarioContext) -> Result<(bool, bool)> {
    let (retry, backoff) = (RetryPolicy::client_go_default_retry(), RetryPolicy::client_go_default_backoff());
    for name in BUSY_POOLS {
        let (is_written, is_outlasted) = against_busy_bob(ctx, name, &retry).await?;
        if !is_outlasted {
            return Ok((is_written, against_busy_bob(ctx, "backed-off", &backoff).await?.0));
        }
    }
    bail!("the four pauses of DefaultRetry take longer than {} ms, time after time", BUSY.as_millis())
}

/// Whether Alice wrote, and whether a PUT of hers came after Bob's busy time.
async fn against_busy_bob(
    ctx: &ScenarioContext,
    name: &'static str,
    policy: &RetryPolicy,
) -> Result<(bool, bool)> {
    let contest = Contest::new(ctx, name).await?;
    contest.keep_busy_in_pauses(BUSY);
    let answer = retry_on_conflict(policy, || contest.attempt()).await;
    if let Err(RetryError::Op(error)) = answer {
        bail!(error);
    }
    Ok((contest.is_written(ctx).await?, contest.is_outlasted()))
}

/// The times at which attempts began and ended.
#[derive(Default)]
struct Paces(Mutex<Vec<(Instant, Instant)>>);

impl Paces {
    async fn around<T>(&self, attempt: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let answer = attempt.await;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((began, Instant::now()));
        answer
    }

    fn pauses(&self) -> Vec<Duration> {
        let paces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        paces.windows(2).map(|pair| pair[1].0 - pair[0].1).collect()
    }
}
