//! Several writers of one object, each of which sets a label of its own once.
//!
//! A PUT is refused only if that of another writer was granted since the read. So a writer among `k` meets at most
//! `k - 1` conflicts, and one that gives up after `s` has lost to `s` writes of others: at least `min(s, k)` succeed,
//! however the race goes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use conflict_retry::policy::RetryPolicy;
use conflict_retry::protect::Protection;
use conflict_retry::{Class, UpdateDecision, WriteError, WriteOptions, is_conflict, update};
use futures::future::{join_all, try_join_all};
use kube::ResourceExt as _;
use kube::api::PostParams;
use tokio::time::Instant;

use super::attempt_log::{AttemptLog, LoggedAttempt};
use crate::context::{Actor, ScenarioContext};
use crate::pool::{Pool, pool};

/// Number of writers.
pub(super) const WRITERS: usize = 10;

/// The result of a race.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finish {
    /// Writers whose label was written.
    pub(super) written: usize,
    /// Requests, reads included.
    pub(super) requests: usize,
    /// Those answered 409.
    pub(super) conflicts: usize,
    /// Conflicts after which a writer paused.
    pub(super) pauses: usize,
    /// From the start to the end of the last writer.
    pub(super) took: Duration,
}

impl Finish {
    /// Requests a second, as an average of the race.
    pub(super) fn per_second(&self) -> f64 {
        let requests = u32::try_from(self.requests).unwrap_or(u32::MAX);
        f64::from(requests) / self.took.max(Duration::from_millis(1)).as_secs_f64()
    }
}

/// All writers start at once and retry under `policy`, each at its own pace.
pub(super) async fn run(ctx: &ScenarioContext, name: &str, policy: &RetryPolicy) -> Result<Finish> {
    run_behind(ctx, name, policy, &Protection::default()).await
}

/// The same, behind one `protection` for all writers, as in one process.
pub(super) async fn run_behind(
    ctx: &ScenarioContext,
    name: &str,
    policy: &RetryPolicy,
    protection: &Protection,
) -> Result<Finish> {
    ctx.set(&pool(name, 3)).await?;
    let writers = ctx.actor("writers").await?;
    let began = Instant::now();
    let attempts = Arc::new(AttemptLog::default());
    let options = |number: usize| {
        let options = WriteOptions::new(format!("writer-{number}")).with_policy(policy.clone());
        options.with_protection(protection.clone()).with_observer(attempts.clone())
    };
    let racers = (0..WRITERS).map(|number| racer(&writers, name, number, options(number)));
    try_join_all(racers).await?;
    let finish = outcome(ctx, name, &writers, began.elapsed()).await?;
    let is_paused = |attempt: &LoggedAttempt| {
        attempt.class == Some(Class::Conflict.label()) && attempt.pause.is_some_and(|pause| !pause.is_zero())
    };
    let pauses = attempts.attempts().into_iter().filter(is_paused).count();
    Ok(Finish { pauses, ..finish })
}

async fn racer(writers: &Actor, name: &str, number: usize, options: WriteOptions) -> Result<()> {
    let written = update(&writers.api::<Pool>(), name, |pool| {
        mark(pool, number);
        UpdateDecision::Write
    })
    .put()
    .with(&options)
    .outcome()
    .await;
    match written {
        Ok(_) | Err(WriteError::Exhausted { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// All remaining writers read, then all of them write, `rounds` times. This barrier makes the worst case: writers that
/// need the same time for everything and never pause. Those of [`run`] have none.
pub(super) async fn in_step(ctx: &ScenarioContext, name: &str, rounds: usize) -> Result<Finish> {
    ctx.set(&pool(name, 3)).await?;
    let writers = ctx.actor("writers").await?;
    let began = Instant::now();
    let mut left: Vec<usize> = (0..WRITERS).collect();
    for _ in 0..rounds {
        let pools = writers.api::<Pool>();
        let copies = try_join_all(left.iter().map(|_| pools.get(name))).await?;
        let answers = join_all(left.iter().zip(copies).map(|(number, copy)| put(&writers, *number, copy)));
        let mut losers = Vec::new();
        for (number, answer) in left.iter().zip(answers.await) {
            match answer {
                Ok(_) => {}
                Err(error) if is_conflict(&error) => losers.push(*number),
                Err(error) => bail!(error),
            }
        }
        left = losers;
    }
    outcome(ctx, name, &writers, began.elapsed()).await
}

#[expect(clippy::disallowed_methods, reason = "the bare PUT of a loop by hand")]
async fn put(writers: &Actor, number: usize, mut copy: Pool) -> Result<Pool, kube::Error> {
    mark(&mut copy, number);
    writers.api::<Pool>().replace(&copy.name_any(), &PostParams::default(), &copy).await
}

fn mark(pool: &mut Pool, number: usize) {
    pool.labels_mut().insert(format!("writer-{number}"), "was-here".to_owned());
}

async fn outcome(ctx: &ScenarioContext, name: &str, writers: &Actor, took: Duration) -> Result<Finish> {
    let stored = ctx.stored::<Pool>(name).await?;
    let counts = writers.counts();
    Ok(Finish {
        written: stored.labels().len(),
        requests: counts.requests,
        conflicts: counts.conflicts,
        pauses: 0,
        took,
    })
}
