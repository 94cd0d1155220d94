//! `cargo suites`: every test of the workspace, as `cargo test` runs them, with several test programs side by side and with
//! what is left to do. Not a runner that has a process for each test: the end-to-end tests of a program pass their control
//! planes on to each other.

mod build;
mod disk;
mod limits;
mod lines;
mod process;
mod program;
mod progress;

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, MissedTickBehavior, timeout};
use toolbox::announcement::Announcement;
use toolbox::process_group::interrupted;

pub(crate) use self::limits::Limits;
use self::limits::Watch;
use self::process::{Event, ends_of_logs};
use self::program::Program;
use self::progress::{Line, Progress, clock};
use crate::workspace;

/// Test programs at a time. Two of them have control planes, of which there are as many as the machine bears, however many
/// programs there are (`testbed::places`), and one has a kind cluster; the fourth is one that computes.
const LANES: usize = 4;

/// The programs that take longest start first: the last of them waits alone, if it starts last.
const FIRST: [&str; 5] = [
    "e2e --test providers",
    "e2e --test operators",
    "e2e --test kind",
    "e2e --test scheduler",
    "tandem-lab --test scenarios",
];

/// The tests that are named at the end with the time that each took: where to begin, when a run takes too long.
const SLOWEST: usize = 20;

/// Interval of the lines that say what is left.
const TOLD: Duration = Duration::from_secs(15);

/// Interval between two looks at the limits.
const LOOKED: Duration = Duration::from_secs(1);

/// Builds, then runs all tests, or those of the programs with `only` in their label.
///
/// # Errors
/// When something cannot be built, or a test failed; all others have been run then.
pub(crate) async fn run(only: Option<&str>, limits: Limits) -> anyhow::Result<()> {
    let began = Instant::now();
    if let Some(warning) = disk::warning(&workspace::root().join("target")) {
        eprintln!("{warning}");
    }
    let mut programs =
        timeout(limits.run, build::everything()).await.context("the build takes too long")??;
    let labels: Vec<_> = programs.iter().map(|program| program.label.clone()).collect();
    programs.retain(|program| only.is_none_or(|only| program.label.contains(only)));
    ensure!(!programs.is_empty(), "no program is called that; there are\n{}", labels.join("\n"));
    programs.sort_by_key(|program| rank(&program.label));
    let mut tests = Vec::new();
    for program in &programs {
        tests.push(program.tests(limits.test).await?);
    }
    let count: usize = tests.iter().map(Vec::len).sum();
    println!("built in {} s: {count} tests", began.elapsed().as_secs());
    let known = durations();
    let run = Run::new(&programs, tests, &known, limits);
    let (ended, took) = tokio::select! {
        ended = run.play() => ended?,
        name = interrupted() => bail!("ended by {}; no test result counts", name?),
    };
    remember(known, ended.durations())?;
    println!("{}", ended.summary(took));
    if ended.has_failed() {
        bail!(
            "tests failed; what they printed stands above, where their program ended; to run one alone: cargo test --package {} NAME",
            ended.failed_labels().join(", ")
        );
    }
    Ok(())
}

fn rank(label: &str) -> usize {
    FIRST.iter().position(|it| *it == label).unwrap_or(FIRST.len())
}

/// All programs, of which some run, and others have ended or wait.
struct Run<'a> {
    programs: &'a [Program],
    progress: Progress,
    watch: Watch,
    waiting: VecDeque<usize>,
    /// The running programs, with what ends them.
    running: BTreeMap<usize, Arc<Notify>>,
    send: UnboundedSender<Event>,
    events: UnboundedReceiver<Event>,
    began: Instant,
}

impl<'a> Run<'a> {
    fn new(
        programs: &'a [Program],
        tests: Vec<Vec<String>>,
        known: &BTreeMap<String, f64>,
        limits: Limits,
    ) -> Self {
        let (send, events) = unbounded_channel();
        let labels = programs.iter().map(|program| program.label.clone());
        Self {
            programs,
            progress: Progress::new(labels.zip(tests.iter().map(Vec::len)).collect(), known),
            watch: Watch::new(limits, tests),
            waiting: (0..programs.len()).collect(),
            running: BTreeMap::new(),
            send,
            events,
            began: Instant::now(),
        }
    }

    /// Runs the programs, each when one before it has ended, and returns how long that took.
    async fn play(mut self) -> anyhow::Result<(Progress, Duration)> {
        for _ in 0..LANES {
            self.next()?;
        }
        let mut told = tokio::time::interval(TOLD);
        let mut looked = tokio::time::interval(LOOKED);
        for ticker in [&mut told, &mut looked] {
            ticker.set_missed_tick_behavior(MissedTickBehavior::Skip);
        }
        while !self.running.is_empty() {
            tokio::select! {
                biased;
                // First: a test that prints without end has a limit too.
                _ = looked.tick() => self.look(),
                // This has a sender itself, so there is always a next event.
                Some(event) = self.events.recv() => self.happened(event)?,
                _ = told.tick() => println!("{}", self.progress.left(LANES, self.began.elapsed())),
            }
        }
        for (took, number, test) in self.watch.slowest(SLOWEST) {
            println!("{}  {}: {test}", clock(took), self.programs[number].label);
        }
        Ok((self.progress, self.began.elapsed()))
    }

    /// Starts the program that waits longest.
    fn next(&mut self) -> anyhow::Result<()> {
        let Some(number) = self.waiting.pop_front() else { return Ok(()) };
        let process = self.programs[number].start()?;
        let end = Arc::new(Notify::new());
        tokio::spawn(process.follow(number, end.clone(), self.send.clone()));
        self.running.insert(number, end);
        let now = self.began.elapsed();
        self.progress.began(number, now);
        self.watch.began(number, now);
        Ok(())
    }

    fn happened(&mut self, event: Event) -> anyhow::Result<()> {
        let now = self.began.elapsed();
        match event {
            Event::Said(number, line) => {
                self.watch.said(number, &line, now);
                if let Some(Line::Failed(test)) = self.progress.said(number, &line) {
                    println!("FAILED {}: {test}", self.programs[number].label);
                }
            }
            Event::Announced(number, announcement) => {
                let test = self.watch.meant(number, &announcement);
                self.watch.announced(number, &announcement, now);
                if let Announcement::DoesNotRun(name, why) = announcement {
                    self.progress.does_not_run(number, test.unwrap_or(name), why);
                }
            }
            Event::Begun(number, test) => self.watch.begun(number, &test, now),
            Event::Ended(number, ending) => {
                let label = &self.programs[number].label;
                let ending = ending.with_context(|| format!("cannot run {label}"))?;
                println!("{}", self.progress.ended(number, ending.status, now));
                // Not kept for the end of the run, which may be cut short.
                if let Some(output) = self.progress.output_of_failure(number) {
                    println!("── {label}\n{output}\n── end of {label}");
                }
                for command in ending.left_behind {
                    println!("{label} had left this behind, which was killed: {command}");
                }
                self.watch.ended(number);
                self.running.remove(&number);
                self.next()?;
            }
        }
        Ok(())
    }

    /// Ends what takes too long.
    fn look(&mut self) {
        let now = self.began.elapsed();
        if self.watch.is_over(now) {
            for number in self.waiting.drain(..) {
                println!("{} did not begin", self.programs[number].label);
            }
            for (number, what) in self.watch.running(now) {
                self.end(number, format!("the whole run takes {}: {what}", clock(now)), now);
            }
        }
        for (number, what) in self.watch.over(now) {
            self.end(number, what, now);
        }
    }

    /// Ends a program and all that it has started.
    fn end(&mut self, number: usize, why: String, now: Duration) {
        println!("TOO LONG {}: {why}", self.programs[number].label);
        let logs = ends_of_logs(&self.watch.directories(number, now));
        self.progress.is_ended_for(number, why, &logs);
        self.watch.ended(number);
        if let Some(end) = self.running.get(&number) {
            end.notify_one();
        }
    }
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
    use std::path::Path;

    use super::*;

    #[test]
    fn the_longest_begin_and_all_others_keep_their_order() {
        let mut labels = vec!["planner --lib", FIRST[3], FIRST[1], "testbed --lib", FIRST[0]];
        labels.sort_by_key(|label| rank(label));
        assert_eq!(labels, [FIRST[0], FIRST[1], FIRST[3], "planner --lib", "testbed --lib"]);
    }

    /// A shell script that prints like a test program with the tests `fast` and `hangs`, and writes its id into `ids`.
    fn fake(directory: &Path, script: &str) -> Program {
        let file = directory.join("program");
        let script = script.replace("DIRECTORY", directory.to_str().unwrap());
        let ids = directory.join("ids");
        let script = format!("#!/bin/sh\necho $$ >> {}\n{script}", ids.display());
        toolbox::executable::write(&file, script).unwrap();
        Program::of_file("fake", file)
    }

    fn run_of(programs: &[Program], limits: Limits) -> Run<'_> {
        Run::new(programs, vec![["fast", "hangs"].map(str::to_owned).to_vec()], &BTreeMap::new(), limits)
    }

    fn ids(directory: &Path) -> Vec<i32> {
        let ids = std::fs::read_to_string(directory.join("ids")).unwrap_or_default();
        ids.split_inclusive('\n').filter_map(|id| id.strip_suffix('\n')?.parse().ok()).collect()
    }

    /// Runs a script, and returns what the run has found with the ids that the script has written.
    async fn run_script(script: &str, limits: Limits) -> (Progress, Vec<i32>) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("operator.log"), "the operator's last line\n").unwrap();
        let programs = [fake(directory.path(), script)];
        let run = run_of(&programs, limits).play();
        let (progress, _) = timeout(Duration::from_secs(60), run).await.unwrap().unwrap();
        (progress, ids(directory.path()))
    }

    /// Whether a process runs; a zombie does not.
    fn alive(id: i32) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        status.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
    }

    const SHORT: Duration = Duration::from_secs(2);
    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn a_test_that_hangs_is_named_its_logs_are_shown_and_it_is_ended_with_all_that_it_started() {
        // A child in its process group, and one that ends, as a supervisor does, when it reads the end of its input.
        let script = r#"
            echo 'test fast ... ok'
            echo 'a line of the program'
            echo '[tandem-wait] {"Uses":["hangs","DIRECTORY"]}' >&2
            sleep 600 & echo $! >> DIRECTORY/ids
            mkfifo DIRECTORY/pipe
            setsid sh -c 'echo $$ >> DIRECTORY/ids; read line < DIRECTORY/pipe' &
            exec 3> DIRECTORY/pipe
            echo 'test hangs has been running for over 0 seconds'
            sleep 600"#;
        let (progress, ids) = run_script(script, Limits::new(SHORT, LONG)).await;
        assert!(progress.has_failed());
        let output = progress.output_of_failure(0).unwrap();
        for said in [
            "a line of the program",
            "hangs has run for 0:",
            "operator.log ends with",
            "the operator's last line",
        ] {
            assert!(output.contains(said), "{said}: {output}");
        }
        assert_eq!(ids.len(), 3);
        assert!(!ids.iter().any(|id| alive(*id)), "{ids:?}");
    }

    #[tokio::test]
    async fn a_test_that_waits_for_its_share_of_the_machine_is_not_ended() {
        let script = r#"
            echo '[tandem-wait] {"Waits":"hangs"}' >&2
            echo 'test hangs has been running for over 0 seconds'
            sleep 4
            printf 'test fast ... '; echo '[tandem-wait] {"GoesOn":"hangs"}' >&2; echo ok
            echo 'test hangs ... ok'"#;
        let (progress, _) = run_script(script, Limits::new(SHORT, LONG)).await;
        assert!(!progress.has_failed(), "{:?}", progress.output_of_failure(0));
    }

    #[tokio::test]
    async fn a_test_that_says_that_it_does_not_run_is_no_test_that_passed() {
        let script = r#"
            echo '[tandem-wait] {"DoesNotRun":["hangs","this is not root"]}' >&2
            echo 'test fast ... ok'
            echo 'test hangs ... ok'"#;
        let (progress, _) = run_script(script, Limits::new(LONG, LONG)).await;
        assert!(!progress.has_failed(), "{:?}", progress.output_of_failure(0));
        let summary = progress.summary(SHORT);
        assert!(summary.starts_with("1 of 2 tests passed, 0 were ignored"), "{summary}");
        assert!(summary.ends_with("; 1 not run: this is not root"), "{summary}");
    }

    #[tokio::test]
    async fn programs_that_name_no_test_or_take_too_long_together_are_ended_too() {
        let silent = run_script("echo hello; sleep 600", Limits::new(Duration::from_secs(1), LONG));
        let whole = run_script("printf 'test hangs ... '; sleep 600", Limits::new(LONG, SHORT));
        for ((progress, ids), said) in [
            (silent.await, ["hello", "it has said nothing for 0:", "not ended: fast, hangs"]),
            (whole.await, ["the whole run takes 0:", "hangs has run for 0:", "not ended: fast, hangs"]),
        ] {
            assert!(progress.has_failed());
            let output = progress.output_of_failure(0).unwrap();
            assert!(said.iter().all(|said| output.contains(said)), "{said:?}: {output}");
            assert!(!ids.iter().any(|id| alive(*id)), "{ids:?}");
        }
    }

    #[test]
    fn a_run_that_is_interrupted_leaves_no_process_behind() {
        let directory = tempfile::tempdir().unwrap();
        let programs = [fake(directory.path(), "sleep 600 & echo $! >> DIRECTORY/ids; sleep 600")];
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let both_run = async {
                while ids(directory.path()).len() < 2 {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            tokio::select! {
                _ = run_of(&programs, Limits::new(LONG, LONG)).play() => panic!("it ended by itself"),
                started = timeout(Duration::from_secs(60), both_run) => started.unwrap(),
            }
        });
        let ids = ids(directory.path());
        assert!(ids.len() == 2 && ids.iter().all(|id| alive(*id)), "{ids:?}");
        drop(runtime);
        // A minute: only to give up.
        for _ in 0..1200 {
            std::thread::sleep(Duration::from_millis(50));
            if !ids.iter().any(|id| alive(*id)) {
                return;
            }
        }
        panic!("left: {ids:?}");
    }
}
