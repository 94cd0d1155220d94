//! What has been done and what is left, from the lines that test programs print. Starts nothing and prints nothing; times
//! are since the begin of the run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// All programs of a run.
pub(super) struct Progress {
    suites: Vec<Suite>,
}

/// A program and what it has said.
struct Suite {
    label: String,
    tests: usize,
    /// Seconds of the last run, where there was one.
    expected: Option<f64>,
    state: State,
    passed: usize,
    ignored: usize,
    failed: Vec<String>,
    /// Those that say that they pass without having tested anything, and why.
    not_run: BTreeMap<String, String>,
    /// The sum of what it has said at its ends; the examples of the documentation have several.
    totals: Option<Totals>,
    output: String,
    /// Why it was ended, when it did not end by itself.
    ended_for: Option<String>,
}

/// The numbers of a line `test result`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    passed: usize,
    failed: usize,
    ignored: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Waiting,
    Running(Duration),
    Ended { took: Duration, well: bool },
}

/// What a line of a test program says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Passed,
    Ignored,
    /// The name of the test.
    Failed(String),
    Totals(Totals),
}

impl Line {
    /// `None` for a line that does not tell the end of a test, or of all.
    fn parse(line: &str) -> Option<Self> {
        if let Some(result) = line.strip_prefix("test result: ") {
            let number = |word: &str| {
                let parts = result.split_once(". ")?.1.split("; ");
                parts.filter_map(|part| part.split_once(' ')).find(|(_, name)| *name == word)?.0.parse().ok()
            };
            let (passed, failed, ignored) = (number("passed")?, number("failed")?, number("ignored")?);
            return Some(Self::Totals(Totals { passed, failed, ignored }));
        }
        let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
        match result {
            "ok" => Some(Self::Passed),
            "FAILED" => Some(Self::Failed(name.to_owned())),
            _ if result.starts_with("ignored") => Some(Self::Ignored),
            _ => None,
        }
    }
}

impl Suite {
    fn done(&self) -> usize {
        self.passed + self.ignored + self.failed.len()
    }

    /// Seconds that are left of it, where the last run says how long it takes.
    fn left(&self, now: Duration) -> Option<f64> {
        match self.state {
            State::Waiting => self.expected,
            State::Running(since) => {
                Some((self.expected? - now.saturating_sub(since).as_secs_f64()).max(0.0))
            }
            State::Ended { .. } => Some(0.0),
        }
    }
}

impl Progress {
    /// `programs` with the number of their tests; `known` are the seconds of the last run.
    pub(super) fn new(programs: Vec<(String, usize)>, known: &BTreeMap<String, f64>) -> Self {
        let suite = |(label, tests): (String, usize)| Suite {
            expected: known.get(&label).copied(),
            label,
            tests,
            state: State::Waiting,
            passed: 0,
            ignored: 0,
            failed: Vec::new(),
            not_run: BTreeMap::new(),
            totals: None,
            output: String::new(),
            ended_for: None,
        };
        Self { suites: programs.into_iter().map(suite).collect() }
    }

    pub(super) fn began(&mut self, number: usize, now: Duration) {
        self.suites[number].state = State::Running(now);
    }

    /// A program has printed a line. Returns what it says of a test.
    pub(super) fn said(&mut self, number: usize, line: &str) -> Option<Line> {
        let suite = &mut self.suites[number];
        let parsed = Line::parse(line);
        match &parsed {
            Some(Line::Passed) => suite.passed += 1,
            Some(Line::Ignored) => suite.ignored += 1,
            Some(Line::Failed(name)) => suite.failed.push(name.clone()),
            Some(Line::Totals(new)) => {
                let totals = suite.totals.get_or_insert_default();
                totals.passed += new.passed;
                totals.failed += new.failed;
                totals.ignored += new.ignored;
            }
            None => {
                suite.output.push_str(line);
                suite.output.push('\n');
            }
        }
        parsed
    }

    /// A test of a program says that it passes without having tested anything.
    pub(super) fn does_not_run(&mut self, number: usize, test: String, why: String) {
        self.suites[number].not_run.insert(test, why);
    }

    /// A program is being ended because of `why`; `logs` go with what it has printed.
    pub(super) fn is_ended_for(&mut self, number: usize, why: String, logs: &str) {
        let suite = &mut self.suites[number];
        suite.output.push_str(&format!("\n{why}\n{logs}"));
        suite.ended_for = Some(why);
    }

    /// A program has ended; `None` when by a signal. Returns the line that says so. A program that ended well without having
    /// told the end of each of its tests has not passed. Its totals count more than its lines, into which a test may print.
    pub(super) fn ended(&mut self, number: usize, status: Option<i32>, now: Duration) -> String {
        let suite = &mut self.suites[number];
        let took = match suite.state {
            State::Running(since) => now.saturating_sub(since),
            State::Waiting | State::Ended { .. } => Duration::ZERO,
        };
        let mut failed = suite.failed.len();
        if let Some(totals) = suite.totals {
            (suite.passed, suite.ignored) = (totals.passed, totals.ignored);
            failed = totals.failed.max(failed);
        }
        let (done, of) = (suite.passed + suite.ignored + failed, suite.tests);
        let well = status == Some(0) && failed == 0 && done == of && suite.ended_for.is_none();
        suite.state = State::Ended { took, well };
        let exit = match (&suite.ended_for, status) {
            _ if well => String::new(),
            (Some(why), _) => format!(": {failed} failed, and it was ended: {why}"),
            (None, Some(status)) => format!(": {failed} failed, exit status {status}"),
            (None, None) => format!(": {failed} failed, ended by a signal"),
        };
        let word = if well { "ok    " } else { "FAILED" };
        let not_run = not_run([&*suite]);
        format!("{word} {}: {done} of {of} tests in {:.0} s{exit}{not_run}", suite.label, took.as_secs_f64())
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failures().next().is_some()
    }

    fn failures(&self) -> impl Iterator<Item = &Suite> {
        self.suites.iter().filter(|suite| matches!(suite.state, State::Ended { well: false, .. }))
    }

    /// What a program that failed has printed beside the ends of its tests; `None` while it runs and when it passed.
    pub(super) fn output_of_failure(&self, number: usize) -> Option<&str> {
        let suite = &self.suites[number];
        matches!(suite.state, State::Ended { well: false, .. }).then_some(&*suite.output)
    }

    pub(super) fn failed_labels(&self) -> Vec<&str> {
        self.failures().map(|suite| &*suite.label).collect()
    }

    /// Seconds of each program that has passed.
    pub(super) fn durations(&self) -> BTreeMap<String, f64> {
        let seconds = |suite: &Suite| match suite.state {
            State::Ended { took, well: true } => Some((suite.label.clone(), took.as_secs_f64())),
            _ => None,
        };
        self.suites.iter().filter_map(seconds).collect()
    }

    /// The line that says what is left, with `lanes` programs at a time.
    pub(super) fn left(&self, lanes: usize, now: Duration) -> String {
        let (done, of) = self.counts();
        let failed: Vec<&str> =
            self.suites.iter().flat_map(|suite| &suite.failed).map(String::as_str).collect();
        let mut line = format!("{}  {done} of {of} tests, {} failed", clock(now), failed.len());
        if !failed.is_empty() {
            write!(line, " ({})", failed.join(", ")).ok();
        }
        if let Some(left) = self.time_left(lanes, now) {
            let left = Duration::from_secs_f64(left).as_secs();
            let left = if left < 60 {
                "less than a minute".to_owned()
            } else {
                format!("about {} min", left.div_ceil(60))
            };
            write!(line, ", {left} left if it goes as last time").ok();
        }
        for suite in &self.suites {
            if matches!(suite.state, State::Running(_)) {
                write!(line, "; {} {} of {}", suite.label, suite.done(), suite.tests).ok();
            }
        }
        line
    }

    fn counts(&self) -> (usize, usize) {
        let done = self.suites.iter().map(Suite::done).sum();
        (done, self.suites.iter().map(|suite| suite.tests).sum())
    }

    /// Seconds: the longest program, or all of them shared by the lanes. `None` where the last run says nothing of one.
    fn time_left(&self, lanes: usize, now: Duration) -> Option<f64> {
        let left: Option<Vec<f64>> = self.suites.iter().map(|suite| suite.left(now)).collect();
        let left = left?;
        let shared = left.iter().sum::<f64>() / f64::from(u32::try_from(lanes).ok()?);
        Some(left.iter().copied().fold(shared, f64::max))
    }

    /// The last line.
    pub(super) fn summary(&self, now: Duration) -> String {
        let (done, of) = self.counts();
        // Their programs say that they passed.
        let tested = |suite: &Suite| suite.passed.saturating_sub(suite.not_run.len());
        let passed: usize = self.suites.iter().map(tested).sum();
        let ignored: usize = self.suites.iter().map(|suite| suite.ignored).sum();
        format!(
            "{passed} of {of} tests passed, {ignored} were ignored, {} did not end; {} programs in {}{}",
            of.saturating_sub(done),
            self.suites.len(),
            clock(now),
            not_run(&self.suites)
        )
    }
}

/// How many tests did not run, for each reason; empty where all did.
fn not_run<'a>(suites: impl IntoIterator<Item = &'a Suite>) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for why in suites.into_iter().flat_map(|suite| suite.not_run.values()) {
        *counts.entry(why).or_default() += 1;
    }
    counts.iter().map(|(why, count)| format!("; {count} not run: {why}")).collect()
}

/// Minutes and seconds.
pub(super) fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(70);

    fn progress(known: &[(&str, f64)]) -> Progress {
        let known = known.iter().map(|(label, seconds)| ((*label).to_owned(), *seconds)).collect();
        Progress::new(vec![("e2e --test operators".to_owned(), 2), ("planner --lib".to_owned(), 1)], &known)
    }

    #[test]
    fn lines_of_tests_are_told_from_what_tests_print() {
        assert_eq!(Line::parse("test a::b ... ok"), Some(Line::Passed));
        assert_eq!(Line::parse("test a::b - should panic ... ok"), Some(Line::Passed));
        assert_eq!(Line::parse("test a::b ... FAILED"), Some(Line::Failed("a::b".to_owned())));
        assert_eq!(Line::parse("test a::b ... ignored, not today"), Some(Line::Ignored));
        assert_eq!(Line::parse("test result: ok. 2 passed"), None);
        let totals = "test result: ok. 51 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 499.34s";
        let expected = Totals { passed: 51, failed: 2, ignored: 1 };
        assert_eq!(Line::parse(totals), Some(Line::Totals(expected)));
        assert_eq!(Line::parse("testing ... ok"), None);
    }

    #[test]
    fn a_program_has_passed_when_each_of_its_tests_has() {
        let passed = "test a ... ok";
        for (lines, status, well) in [
            (&[passed, passed][..], Some(0), true),
            // Each of these once looked like a success to a reader of the exit status or of the lines alone.
            (&[passed], Some(0), false),
            (&[passed, passed], Some(101), false),
            (&[passed, passed], None, false),
            (&[passed, "test b ... FAILED"], Some(0), false),
        ] {
            let mut progress = progress(&[]);
            progress.began(0, Duration::ZERO);
            for line in lines {
                progress.said(0, line);
            }
            let told = progress.ended(0, status, NOW);
            assert_eq!(told.starts_with("ok "), well, "{told}");
            assert_eq!(progress.has_failed(), !well, "{told}");
            assert_eq!(progress.durations().is_empty(), !well);
        }
    }

    #[test]
    fn a_program_that_was_ended_has_failed_and_says_why_with_its_logs() {
        let mut progress = progress(&[]);
        progress.began(0, Duration::ZERO);
        for line in ["test a ... ok", "hello", "test b ... ok"] {
            progress.said(0, line);
        }
        progress.is_ended_for(0, "b has run for 10:00".to_owned(), "the log\n");
        let told = progress.ended(0, Some(0), NOW);
        let expected = "FAILED e2e --test operators: 2 of 2 tests in 70 s: 0 failed, and it was ended: b has run for 10:00";
        assert_eq!(told, expected);
        assert_eq!(progress.output_of_failure(0), Some("hello\n\nb has run for 10:00\nthe log\n"));
    }

    #[test]
    fn tests_that_did_not_run_are_counted_with_their_reasons_and_not_as_passed() {
        let mut progress = progress(&[]);
        progress.began(0, Duration::ZERO);
        for test in ["a", "b", "b"] {
            progress.does_not_run(0, test.to_owned(), "no root".to_owned());
        }
        for line in ["test a ... ok", "test b ... ok"] {
            progress.said(0, line);
        }
        let told = progress.ended(0, Some(0), NOW);
        assert_eq!(told, "ok     e2e --test operators: 2 of 2 tests in 70 s; 2 not run: no root");
        progress.began(1, Duration::ZERO);
        progress.does_not_run(1, "c".to_owned(), "no browser".to_owned());
        progress.said(1, "test c ... ok");
        progress.ended(1, Some(0), NOW);
        let summary = progress.summary(NOW);
        assert!(summary.starts_with("0 of 3 tests passed, 0 were ignored, 0 did not end; "), "{summary}");
        assert!(summary.ends_with("; 1 not run: no browser; 2 not run: no root"), "{summary}");
    }

    #[test]
    fn a_line_into_which_a_test_has_printed_is_counted_at_the_end() {
        let good = "test result: ok. 2 passed; 0 failed; 0 ignored";
        for (totals, well) in [
            (&[good][..], true),
            (&["test result: ok. 1 passed; 0 failed; 0 ignored"; 2], true),
            (&[], false),
            (&[good; 2], false),
        ] {
            let mut progress = progress(&[]);
            progress.began(0, Duration::ZERO);
            let printed = ["test a ... building the operators", "ok", "test b ... ok"];
            for line in printed.iter().chain(totals) {
                progress.said(0, line);
            }
            assert_eq!(progress.ended(0, Some(0), NOW).starts_with("ok "), well, "{totals:?}");
        }
    }

    #[test]
    fn what_a_failed_program_printed_is_kept_and_it_is_named() {
        let mut progress = progress(&[]);
        progress.began(0, Duration::ZERO);
        for line in ["test a ... FAILED", "failures:", "expected 1"] {
            progress.said(0, line);
        }
        progress.ended(0, Some(101), NOW);
        assert_eq!(progress.output_of_failure(0), Some("failures:\nexpected 1\n"));
        assert_eq!(progress.failed_labels(), ["e2e --test operators"]);
        assert!(
            progress
                .summary(NOW)
                .starts_with("0 of 3 tests passed, 0 were ignored, 2 did not end; 2 programs")
        );
    }

    #[test]
    fn what_is_left_is_told_in_tests_and_in_time_where_the_last_run_says_so() {
        let mut unknown = progress(&[("planner --lib", 3.0)]);
        unknown.began(0, Duration::ZERO);
        unknown.said(0, "test a ... ok");
        assert_eq!(unknown.left(3, NOW), "1:10  1 of 3 tests, 0 failed; e2e --test operators 1 of 2");
        unknown.said(0, "test b::c ... FAILED");
        assert!(unknown.left(3, NOW).contains("2 of 3 tests, 1 failed (b::c)"), "{}", unknown.left(3, NOW));
        let mut known = progress(&[("e2e --test operators", 200.0), ("planner --lib", 3.0)]);
        assert!(
            known.left(3, NOW).contains(", about 4 min left if it goes as last time"),
            "{}",
            known.left(3, NOW)
        );
        known.began(0, Duration::ZERO);
        known.ended(0, Some(0), NOW);
        assert!(known.left(3, NOW).contains(", less than a minute left"), "{}", known.left(3, NOW));
    }
}
