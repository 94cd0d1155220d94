//! A backoff of one's own: what each of its four knobs does to the pauses, and to ten writers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use conflict_retry::backoff::Backoff;
use conflict_retry::policy::RetryPolicy;
use conflict_retry::{Outcome, WriteOptions};

use super::contest::Contest;
use super::notebook::Notebook;
use super::race::{self, Finish, WRITERS};
use super::schedule::{bars, listed, millis, pauses};
use crate::event::Table;
use crate::scenario::{Needs, Scenario};
use crate::stage::Stage;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "custom-backoff",
    title: "A backoff of one's own: Steps, Duration, Factor and Jitter",
    rows: &["3d", "2i"],
    refutes: &[],
    lesson: "Steps decides who gives up, Duration and Factor how long a loser waits; Jitter only lengthens that by chance.\nWith as many steps as writers nobody gives up: each conflict is somebody else's write.",
    needs: Needs::ApiServer,
    run: |stage| Box::pin(run(stage)),
};

/// A backoff as its user writes it.
#[derive(Clone, Copy)]
struct Knobs {
    steps: i32,
    duration: Duration,
    factor: f64,
    jitter: f64,
}

/// 100 ms, factor 1.5, jitter 0.1, ten steps.
const CUSTOM: Knobs = Knobs { steps: 10, duration: Duration::from_millis(100), factor: 1.5, jitter: 0.1 };

impl Knobs {
    fn policy(self) -> Result<RetryPolicy> {
        let Self { steps, duration, factor, jitter } = self;
        Ok(RetryPolicy::from_backoff(Backoff::new(steps, duration, factor, jitter, Duration::ZERO)?)?)
    }

    /// The same, a number of times as fast.
    fn faster(self, times: u32) -> Self {
        Self { duration: self.duration / times, ..self }
    }
}

/// As close to one as a random number in [0, 1) gets.
const ALMOST_ONE: f64 = 1.0 - f64::EPSILON;

async fn run(stage: &Stage) -> Result<()> {
    on_paper(stage)?;
    swept(stage)?;
    played(stage).await?;
    raced(stage).await
}

fn on_paper(stage: &Stage) -> Result<()> {
    stage.say("100 ms, factor 1.5, jitter 0.1, ten steps: the pauses when nothing but conflicts come, at their shortest.");
    let shortest = pauses(&CUSTOM.policy()?, 0.0);
    let lines: Vec<_> = shortest
        .iter()
        .zip(1..)
        .map(|(pause, attempt)| (format!("after attempt {attempt}"), *pause))
        .collect();
    stage.quote(&bars(&lines, 40));
    stage.check_eq("ten steps are ten attempts and nine pauses", &shortest.len(), &9);
    let sum: Duration = shortest.iter().sum();
    stage.check(
        "which take 7.4 s to 8.3 s, a third of it the last one",
        sum > Duration::from_millis(7400)
            && pauses(&CUSTOM.policy()?, ALMOST_ONE).iter().sum::<Duration>() < Duration::from_millis(8300)
            && shortest.last().is_some_and(|last| *last > sum / 3),
    );
    Ok(())
}

/// Each knob turned by itself, the others as in [`CUSTOM`].
fn sweep() -> Vec<(String, Knobs)> {
    let mut all = vec![("as it is".to_owned(), CUSTOM)];
    all.extend([5, 20].map(|steps| (format!("Steps {steps}"), Knobs { steps, ..CUSTOM })));
    all.extend([10, 400].map(|millis| {
        (format!("Duration {millis} ms"), Knobs { duration: Duration::from_millis(millis), ..CUSTOM })
    }));
    all.extend([1.0, 2.0].map(|factor| (format!("Factor {factor}"), Knobs { factor, ..CUSTOM })));
    all.extend([0.0, 1.0].map(|jitter| (format!("Jitter {jitter}"), Knobs { jitter, ..CUSTOM })));
    all
}

fn swept(stage: &Stage) -> Result<()> {
    stage.say("Each knob turned by itself: the first pauses, and how long a writer waits in all before it gives up.");
    let mut table =
        Table::new(&["", "attempts", "first pauses", "last pause", "in all, at least", "at most"]);
    let mut longest = Vec::new();
    for (what, knobs) in sweep() {
        let (shortest, most) = (pauses(&knobs.policy()?, 0.0), pauses(&knobs.policy()?, ALMOST_ONE));
        let (first, last) = (listed(&shortest[..3]), shortest.last().copied().unwrap_or_default());
        let sums = [shortest.iter().sum::<Duration>(), most.iter().sum()];
        table.row(&[
            &what,
            &(shortest.len() + 1),
            &first,
            &rounded(last),
            &rounded(sums[0]),
            &rounded(sums[1]),
        ]);
        longest.push((what, sums[0]));
    }
    stage.table(table);
    stage.say("The waiting in all, at least. Steps 20 is left out: its bar would be eight times as long as the longest here.");
    let drawn: Vec<_> = longest.iter().filter(|(what, _)| what != "Steps 20").cloned().collect();
    stage.quote(&bars(&drawn, 50));
    let of = |what: &str| longest.iter().find(|(name, _)| name == what).map(|(_, sum)| *sum);
    stage.check(
        "twice the steps wait more than fifty times as long: with growth, Steps is a time, not a number",
        of("Steps 20") > of("as it is").map(|sum| sum * 50),
    );
    stage.check(
        "Duration scales everything: a tenth of it is a tenth of the waiting",
        of("Duration 10 ms").zip(of("as it is")).is_some_and(|(tenth, sum)| close(tenth * 10, sum)),
    );
    stage.check_eq(
        "without growth the waiting is nine times the first pause",
        &of("Factor 1"),
        &Some(CUSTOM.duration * 9),
    );
    stage.check_eq(
        "jitter only lengthens: the least is the same without it",
        &of("Jitter 0"),
        &of("Jitter 1"),
    );
    Ok(())
}

fn rounded(time: Duration) -> String {
    if time < Duration::from_secs(1) { millis(time) } else { format!("{:.1} s", time.as_secs_f64()) }
}

/// Equal but for the nanoseconds that are cut off each pause.
fn close(a: Duration, b: Duration) -> bool {
    a.abs_diff(b) < Duration::from_micros(1)
}

async fn played(stage: &Stage) -> Result<()> {
    let contest = Contest::new(stage, "workers").await?;
    stage.say("Against a Bob who is faster three times, as written.");
    contest.interfere(3);
    let notebook = Arc::new(Notebook::default());
    let options = WriteOptions::new("alice").with_policy(CUSTOM.policy()?).with_observer(notebook.clone());
    let outcome = contest.update(&options).await?;
    stage.check("the fourth attempt is written", matches!(outcome, Outcome::Written(_)));
    let pauses = notebook.pauses();
    stage.live_quote(&format!("pauses: {}", listed(&pauses)));
    let ranges = [100, 150, 225].map(Duration::from_millis);
    stage.check(
        "the pauses that its observer was told were 100 ms to 110 ms, 150 ms to 165 ms and 225 ms to 247.5 ms",
        pauses.len() == 3
            && pauses.iter().zip(ranges).all(|(pause, least)| (least..=least * 11 / 10).contains(pause)),
    );
    Ok(())
}

/// What the races are run with: a twentieth of the pauses, so that all of them take seconds.
const FASTER: u32 = 20;

async fn raced(stage: &Stage) -> Result<()> {
    let told = "Ten writers of one pool start together, each to set a label of its own, with a twentieth of these pauses. Who meets a conflict meets somebody else's write, so at least as many writers succeed as there are steps, and all of them with ten steps or more, whatever the pauses. How many requests and how much time that takes is shown live.";
    let races = stage.racing(told, races(stage)).await?;
    let mut table = Table::new(&["", "wrote, at least"]);
    let mut live = Table::new(&["", "wrote", "gave up", "requests", "of them 409", "took"]);
    let (mut times, mut all_as_promised) = (Vec::new(), true);
    for (what, knobs, race) in races {
        let promised = usize::try_from(knobs.steps)?.min(WRITERS);
        all_as_promised &= race.written >= promised;
        table.row(&[&what, &promised]);
        live.row(&live_cells(&what, &race).each_ref().map(|cell| cell as &dyn std::fmt::Display));
        times.push((what, race.took));
    }
    stage.table(table);
    stage.live_table(live);
    stage.live_quote(&bars(&times, 50));
    stage.check("in each race at least as many wrote", all_as_promised);
    Ok(())
}

/// One race for each setting.
async fn races(stage: &Stage) -> Result<Vec<(String, Knobs, Finish)>> {
    let mut races = Vec::new();
    for (number, (what, knobs)) in sweep().into_iter().enumerate() {
        stage.live_quote(&what);
        let policy = knobs.faster(FASTER).policy()?;
        let race = race::run(stage, &format!("race-{number}"), &policy).await?;
        races.push((what, knobs, race));
    }
    Ok(races)
}

fn live_cells(what: &str, race: &Finish) -> [String; 6] {
    let gave_up = WRITERS - race.written;
    let took = format!("{} ms", race.took.as_millis());
    [
        what.to_owned(),
        race.written.to_string(),
        gave_up.to_string(),
        race.requests.to_string(),
        race.conflicts.to_string(),
        took,
    ]
}
