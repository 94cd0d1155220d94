//! A custom backoff: the effect of each of its four parameters on the pauses, and on ten writers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use conflict_retry::{Outcome, WriteOptions};

use super::attempt_log::AttemptLog;
use super::contest::Contest;
use super::knobs::{CUSTOM, Knobs, charts};
use super::race;
use super::race::{Finish, WRITERS};
use super::schedule::{bars, listed, pauses};
use crate::context::ScenarioContext;
use crate::event::Table;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "custom-backoff",
    title: "A custom wait.Backoff: Steps, Duration, Factor and Jitter",
    rows: &["3d", "2i"],
    refutes: &[],
    lesson: "Steps decides who gives up, Duration and Factor how long a refused writer waits; Jitter keeps refused writers from colliding again.\nWith as many steps as writers nobody gives up: each conflict is another writer's write.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

async fn run(ctx: &ScenarioContext) -> Result<()> {
    on_paper(ctx)?;
    charts(ctx)?;
    played(ctx).await?;
    raced(ctx).await?;
    jitter(ctx).await
}

fn on_paper(ctx: &ScenarioContext) -> Result<()> {
    ctx.say("100 ms, factor 1.5, jitter 0.1, ten steps: the pauses when every attempt conflicts, at their shortest.");
    let shortest = pauses(&CUSTOM.policy()?, 0.0);
    let lines: Vec<_> = shortest
        .iter()
        .zip(1..)
        .map(|(pause, attempt)| (format!("after attempt {attempt}"), *pause))
        .collect();
    ctx.quote(&bars(&lines, 40));
    ctx.check_eq("ten steps are ten attempts and nine pauses", &shortest.len(), &9);
    let sum: Duration = shortest.iter().sum();
    ctx.check(
        "which take 7.4 s to 8.3 s, a third of it the last one",
        sum > Duration::from_millis(7400)
            && CUSTOM.waiting()?.most < Duration::from_millis(8300)
            && shortest.last().is_some_and(|last| *last > sum / 3),
    );
    Ok(())
}

/// The settings of the races: [`CUSTOM`], and each parameter decreased and increased.
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

async fn played(ctx: &ScenarioContext) -> Result<()> {
    let contest = Contest::new(ctx, "workers").await?;
    ctx.say("With these settings, against a Bob who is faster three times.");
    contest.interfere(3);
    let attempts = Arc::new(AttemptLog::default());
    let options = WriteOptions::new("alice").with_policy(CUSTOM.policy()?).with_observer(attempts.clone());
    let outcome = contest.update(&options).await?;
    ctx.check("the fourth attempt is written", matches!(outcome, Outcome::Written(_)));
    let pauses = attempts.pauses();
    ctx.live_quote(&format!("pauses: {}", listed(&pauses)));
    let ranges = [100, 150, 225].map(Duration::from_millis);
    ctx.check(
        "the pauses that its observer was told were 100 ms to 110 ms, 150 ms to 165 ms and 225 ms to 247.5 ms",
        pauses.len() == 3
            && pauses.iter().zip(ranges).all(|(pause, least)| (least..=least * 11 / 10).contains(pause)),
    );
    Ok(())
}

/// Divisor of the pauses in the races, so that all of them take only seconds.
const FASTER: u32 = 20;

async fn raced(ctx: &ScenarioContext) -> Result<()> {
    let intro = "Ten writers of one pool start together, each to set a label of its own, with a twentieth of the pauses: as they are, and with each knob turned down and up, nine races. How many writers, requests and milliseconds each race had is shown live, and differs from run to run. What holds in every run is a bound: each conflict is the write of another writer, so at least as many writers succeed as there are steps, whatever the pauses.";
    let races = ctx.racing(intro, races(ctx)).await?;
    let mut live = Table::new(&["", "wrote", "gave up", "requests", "of them 409", "took"]);
    let mut times = Vec::new();
    for (what, _, race) in &races {
        live.row(&live_cells(what, race).each_ref().map(|cell| cell as &dyn std::fmt::Display));
        times.push((what.clone(), race.took));
    }
    ctx.live_table(live);
    ctx.live_quote(&bars(&times, 50));
    let (few, enough): (Vec<_>, Vec<_>) =
        races.into_iter().partition(|(_, knobs, _)| usize::try_from(knobs.steps).is_ok_and(|n| n < WRITERS));
    ctx.check(
        "with five steps at least five of ten wrote: a bound, not a count",
        few.len() == 1 && few.iter().all(|(_, _, race)| race.written >= 5),
    );
    ctx.check(
        "with ten steps or more all ten wrote, in each of the other eight races",
        enough.len() == 8 && enough.iter().all(|(_, _, race)| race.written == WRITERS),
    );
    Ok(())
}

/// Races of each kind between two looks at the result.
const RACES: usize = 8;
/// At most so many looks.
const LOOKS: usize = 4;
/// Equal pauses, and pauses of the same 150 ms on average, of which a third is chance. They are long, so that what
/// chance adds is more than the time that ten requests take one after the other.
const JITTERS: [(&str, Knobs); 2] = [
    ("150 ms", Knobs { steps: 10, duration: Duration::from_millis(150), factor: 1.0, jitter: 0.0 }),
    ("100 to 200 ms", Knobs { steps: 10, duration: Duration::from_millis(100), factor: 1.0, jitter: 1.0 }),
];

async fn jitter(ctx: &ScenarioContext) -> Result<()> {
    let intro = "What is jitter for? Writers that lose together pause equally long, and meet again. Eight races of the same ten with pauses of 150 ms, and eight with pauses of 100 to 200 ms by chance, which are 150 ms on average. All have ten attempts, so all of them write; what differs is how often they are refused. (The busier the machine, the less chance adds: where ten reads and ten writes last longer than 50 ms, all pauses are doubled, three times at most; and until the difference is two standard errors, eight more races of each kind are run, three times at most.)";
    let jittered = ctx.racing(intro, jittered_races(ctx)).await?;
    let Jittered { times, races: [equal, by_chance] } = &jittered;
    ctx.live_quote(&format!("all pauses times {times}"));
    let mut table = Table::new(&["pauses", "each time all ten wrote"]);
    let mut live = Table::new(&["pauses", "409s in each race", "in all"]);
    for ((what, _), races) in JITTERS.iter().zip([equal, by_chance]) {
        let is_all = races.iter().all(|race| race.written == WRITERS);
        table.row(&[what, &if is_all { "yes" } else { "no" }]);
        let mut each: Vec<usize> = races.iter().map(|race| race.conflicts).collect();
        each.sort_unstable();
        let each: Vec<String> = each.iter().map(ToString::to_string).collect();
        live.row(&[what, &each.join(" "), &conflicts(races)]);
    }
    ctx.table(table);
    ctx.live_table(live);
    ctx.check(
        "all ten wrote in each race, with the same ten attempts and the same average pause",
        equal.iter().chain(by_chance).all(|race| race.written == WRITERS),
    );
    ctx.check("with pauses by chance they met fewer conflicts in all, beyond chance", jittered.is_clear());
    Ok(())
}

fn conflicts(races: &[Finish]) -> usize {
    races.iter().map(|race| race.conflicts).sum()
}

/// Races with equal pauses, and with pauses by chance.
struct Jittered {
    /// All pauses are so many times as long as [`JITTERS`] says.
    times: u32,
    /// As many of the one kind as of the other.
    races: [Vec<Finish>; 2],
}

impl Jittered {
    /// Whether races with pauses by chance have fewer conflicts: on average by two standard errors of the difference of a pair.
    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    fn is_clear(&self) -> bool {
        let [equal, by_chance] = &self.races;
        let pairs = equal.iter().zip(by_chance);
        let differences: Vec<f64> =
            pairs.map(|(equal, by_chance)| equal.conflicts as f64 - by_chance.conflicts as f64).collect();
        let count = differences.len() as f64;
        let mean = differences.iter().sum::<f64>() / count;
        let squares: f64 = differences.iter().map(|difference| (difference - mean).powi(2)).sum();
        mean > 2.0 * (squares / (count - 1.0) / count).sqrt()
    }
}

/// How much longer than [`JITTERS`] says pauses have to be here, so that chance adds twice the time that a round of the writers
/// takes; at most eight times.
async fn times(ctx: &ScenarioContext) -> Result<u32> {
    let mut rounds = Vec::new();
    for name in ["round-1", "round-2", "round-3"] {
        rounds.push(race::in_step(ctx, name, 1).await?.took);
    }
    let round = rounds.into_iter().min().unwrap_or_default();
    let [_, (_, by_chance)] = JITTERS;
    let is_enough = |times: &u32| by_chance.duration * *times >= round * 2;
    Ok([1, 2, 4].into_iter().find(is_enough).unwrap_or(8))
}

/// The races of each kind by turns, so that whatever else the machine does falls on both.
async fn jittered_races(ctx: &ScenarioContext) -> Result<Jittered> {
    let mut jittered = Jittered { times: times(ctx).await?, races: [Vec::new(), Vec::new()] };
    for look in 0..LOOKS {
        for number in 0..RACES {
            for (kind, (_, knobs)) in JITTERS.iter().enumerate() {
                let name = format!("jitter-{kind}-{look}-{number}");
                let knobs = Knobs { duration: knobs.duration * jittered.times, ..*knobs };
                jittered.races[kind].push(race::run(ctx, &name, &knobs.policy()?).await?);
            }
        }
        if jittered.is_clear() {
            break;
        }
    }
    Ok(jittered)
}

/// One race for each setting.
async fn races(ctx: &ScenarioContext) -> Result<Vec<(String, Knobs, Finish)>> {
    let mut races = Vec::new();
    for (number, (what, knobs)) in sweep().into_iter().enumerate() {
        ctx.live_quote(&what);
        let policy = knobs.faster(FASTER).policy()?;
        let race = race::run(ctx, &format!("race-{number}"), &policy).await?;
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
