//! Five attempts without a pause.

use std::sync::Arc;

use anyhow::{Result, bail};
use conflict_retry::policy::RetryPolicy;
use conflict_retry::{Outcome, WriteOptions, is_conflict};

use super::contest::Contest;
use super::notebook::Notebook;
use super::race::{self, Finish, WRITERS};
use super::schedule::listed;
use crate::event::Table;
use crate::pool::Pool;
use crate::scenario::{Needs, Scenario};
use crate::stage::{PATIENCE, Stage};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "naive-loop",
    title: "Five attempts without a pause are over while the others still write",
    rows: &["3a", "3m"],
    refutes: &[],
    lesson: "Without a pause five attempts last as long as ten requests, and writers that start together stay together.\nPauses by chance let one after the other through; a bound in attempts and in time ends what does not end.",
    needs: Needs::ApiServer,
    run: |stage| Box::pin(run(stage)),
};

/// How often the naive loop tries.
const ATTEMPTS: u32 = 5;

async fn run(stage: &Stage) -> Result<()> {
    against_bob(stage).await?;
    with_pauses(stage).await?;
    in_a_crowd(stage).await
}

/// Reads, changes and writes until it is granted, five times at most, one right after the other.
async fn naive(contest: &Contest) -> Result<Pool, kube::Error> {
    let mut attempt = 1;
    loop {
        match contest.attempt().await {
            Err(error) if is_conflict(&error) && attempt < ATTEMPTS => attempt += 1,
            answer => return answer,
        }
    }
}

async fn against_bob(stage: &Stage) -> Result<()> {
    let contest = Contest::new(stage, "workers").await?;
    stage.say("Bob writes notes to the pool, one after the other. Alice wants 5 replicas: she reads, changes and writes in a loop, five times at most, without a pause. Each time Bob is between her read and her write.");
    contest.interfere(ATTEMPTS);
    let Err(error) = naive(&contest).await else { bail!("a contested PUT was taken") };
    stage.check("after five conflicts the loop is over, and its error is the last one", is_conflict(&error));
    stage.check("nothing of Alice's is written", !contest.is_written(stage).await?);
    Ok(())
}

async fn with_pauses(stage: &Stage) -> Result<()> {
    let contest = Contest::new(stage, "builders").await?;
    stage.say("The same Bob, five times again, and Alice calls `update` with the default policy: up to 64 attempts in 10 s, and after each conflict a pause that chance picks within a window that grows.");
    contest.interfere(ATTEMPTS);
    let notebook = Arc::new(Notebook::default());
    let options = WriteOptions::new("alice").with_observer(notebook.clone());
    let written = contest.update(&options).await?;
    stage.check("the sixth attempt is written", matches!(written, Outcome::Written(_)));
    stage.check(
        "with Alice's 5 replicas, and Bob's last note is still there",
        contest.is_written(stage).await? && noted(&written),
    );
    let pauses = notebook.pauses();
    stage.check_eq("there was one pause after each conflict", &pauses.len(), &5);
    stage.live_quote(&format!("pauses: {}", listed(&pauses)));
    Ok(())
}

fn noted(outcome: &Outcome<Pool>) -> bool {
    matches!(outcome, Outcome::Written(pool) if pool.spec.note.as_deref() == Some("bob's 5"))
}

async fn in_a_crowd(stage: &Stage) -> Result<()> {
    let told = "Ten writers of one pool that start together, need the same time for everything and never pause stay in step: all read, then all write. In each round one wins and the others lose.";
    let rounds = race::in_step(stage, "in-step", ATTEMPTS as usize);
    let naive = stage.racing(told, rounds).await?;
    let told = "The same ten with the default policy, each at its own pace. A PUT is refused only after somebody else's was granted, so nobody can meet more than nine conflicts.";
    let patient = RetryPolicy::default().with_deadline(Some(PATIENCE));
    let paced = stage.racing(told, race::run(stage, "at-chance", &patient)).await?;

    let mut table = Table::new(&["ten writers", "wrote", "gave up"]);
    let mut live = Table::new(&["ten writers", "requests", "of them 409", "requests for each write", "took"]);
    for (what, race) in [("five attempts, no pause, in step", naive), ("the default policy", paced)] {
        table.row(&[&what, &race.written, &(WRITERS - race.written)]);
        live.row(&[
            &what,
            &race.requests,
            &race.conflicts,
            &each(&race),
            &format!("{} ms", race.took.as_millis()),
        ]);
    }
    stage.table(table);
    stage.live_table(live);
    stage.check_eq(
        "in step, five rounds let five of ten write, after 80 requests, 35 of them refused",
        &(naive.written, naive.requests, naive.conflicts),
        &(5, 80, 35),
    );
    stage.check_eq("with pauses all ten write", &paced.written, &WRITERS);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn each(race: &Finish) -> String {
    format!("{:.1}", race.requests as f64 / race.written.max(1) as f64)
}
