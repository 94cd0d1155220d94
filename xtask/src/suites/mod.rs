//! `cargo suites`: every test of the workspace, as `cargo test` runs them, with several test programs side by side and with
//! what is left to do. Not a runner that has a process for each test: the end-to-end tests of a program pass their control
//! planes on to each other.

mod build;
mod program;
mod progress;

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::unix::pipe::Receiver;
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, MissedTickBehavior};

use self::program::Program;
use self::progress::{Line, Progress};
use crate::workspace;

/// Test programs at a time. Two of them mostly wait for their control planes, of which there are as many as the machine
/// bears, however many programs there are (`e2e::places`); the third is one that computes.
const LANES: usize = 3;

/// The programs that take longest start first: the last of them waits alone, if it starts last.
const FIRST: [&str; 4] =
    ["e2e --test providers", "e2e --test operators", "e2e --test scheduler", "tandem-lab --test scenarios"];

/// Interval of the lines that say what is left.
const TOLD: Duration = Duration::from_secs(15);

/// What happens in a program, by its place in the list.
enum Event {
    Said(usize, String),
    Ended(usize, anyhow::Result<Option<i32>>),
}

/// Builds, then runs all tests, or those of the programs with `only` in their label.
///
/// # Errors
/// When something cannot be built, or a test failed; all others have been run then.
pub(crate) async fn run(only: Option<&str>) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut programs = build::everything().await?;
    let labels: Vec<_> = programs.iter().map(|program| program.label.clone()).collect();
    programs.retain(|program| only.is_none_or(|only| program.label.contains(only)));
    ensure!(!programs.is_empty(), "no program is called that; there are\n{}", labels.join("\n"));
    programs.sort_by_key(|program| rank(&program.label));
    let mut tests = Vec::new();
    for program in &programs {
        tests.push(program.count_tests().await?);
    }
    println!("built in {} s: {} tests", began.elapsed().as_secs(), tests.iter().sum::<usize>());
    let known = durations();
    let labels = programs.iter().map(|program| program.label.clone());
    let progress = Progress::new(labels.zip(tests).collect(), &known);
    let ended = tokio::select! {
        ended = play(&programs, progress, began) => ended?,
        name = interrupted() => bail!("ended by {}; no test result counts", name?),
    };
    for (label, output) in ended.outputs_of_failures() {
        println!("\n── {label}\n{output}");
    }
    remember(known, ended.durations())?;
    println!("{}", ended.summary(began.elapsed()));
    if ended.has_failed() {
        bail!(
            "tests failed; to run one alone: cargo test --package {} NAME",
            ended.failed_labels().join(", ")
        );
    }
    Ok(())
}

fn rank(label: &str) -> usize {
    FIRST.iter().position(|it| *it == label).unwrap_or(FIRST.len())
}

/// Runs the programs, each when one before it has ended.
async fn play(programs: &[Program], mut progress: Progress, began: Instant) -> anyhow::Result<Progress> {
    let (send, mut events) = unbounded_channel();
    let mut waiting: VecDeque<usize> = (0..programs.len()).collect();
    for _ in 0..LANES {
        if let Some(number) = next(programs, &mut waiting, &send)? {
            progress.began(number, began.elapsed());
        }
    }
    let mut ticker = tokio::time::interval(TOLD);
    ticker.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while !progress.is_over() {
        match event(&mut events, &mut ticker).await {
            None => println!("{}", progress.left(LANES, began.elapsed())),
            Some(Event::Said(number, line)) => {
                if let Some(Line::Failed(test)) = progress.said(number, &line) {
                    println!("FAILED {}: {test}", programs[number].label);
                }
            }
            Some(Event::Ended(number, status)) => {
                let status = status.with_context(|| format!("cannot run {}", programs[number].label))?;
                println!("{}", progress.ended(number, status, began.elapsed()));
                if let Some(number) = next(programs, &mut waiting, &send)? {
                    progress.began(number, began.elapsed());
                }
            }
        }
    }
    Ok(progress)
}

/// The next event, or `None` when it is time to say what is left.
async fn event(events: &mut UnboundedReceiver<Event>, ticker: &mut tokio::time::Interval) -> Option<Event> {
    tokio::select! {
        biased;
        event = events.recv() => event,
        _ = ticker.tick() => None,
    }
}

/// Starts the program that waits longest and returns its place in the list.
fn next(
    programs: &[Program],
    waiting: &mut VecDeque<usize>,
    send: &UnboundedSender<Event>,
) -> anyhow::Result<Option<usize>> {
    let Some(number) = waiting.pop_front() else { return Ok(None) };
    let (child, output) = programs[number].start()?;
    let send = send.clone();
    tokio::spawn(async move {
        let status = follow(number, child, output, &send).await;
        // Nobody listens when the run was interrupted.
        send.send(Event::Ended(number, status)).ok();
    });
    Ok(Some(number))
}

async fn follow(
    number: usize,
    mut child: Child,
    output: Receiver,
    send: &UnboundedSender<Event>,
) -> anyhow::Result<Option<i32>> {
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await? {
        send.send(Event::Said(number, line)).ok();
    }
    Ok(child.wait().await?.code())
}

/// Waits for Ctrl-C or for a request to end, and says which. The programs are killed when this process drops them; what
/// they started ends with them.
async fn interrupted() -> anyhow::Result<&'static str> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(tokio::select! {
        _ = interrupt.recv() => "Ctrl-C",
        _ = terminate.recv() => "SIGTERM",
    })
}

/// Where a run leaves its durations for the next one, which says with them how much time is left.
fn durations_file() -> PathBuf {
    workspace::root().join("target").join("suites.json")
}

/// Seconds of each program in the last run; empty where there was none.
fn durations() -> BTreeMap<String, f64> {
    let text = std::fs::read_to_string(durations_file()).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn remember(mut all: BTreeMap<String, f64>, new: BTreeMap<String, f64>) -> anyhow::Result<()> {
    all.extend(new);
    let path = durations_file();
    std::fs::write(&path, serde_json::to_string_pretty(&all)?)
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_begin_and_all_others_keep_their_order() {
        let mut labels = vec!["planner --lib", FIRST[3], FIRST[1], "e2e --lib", FIRST[0]];
        labels.sort_by_key(|label| rank(label));
        assert_eq!(labels, [FIRST[0], FIRST[1], FIRST[3], "planner --lib", "e2e --lib"]);
    }
}
