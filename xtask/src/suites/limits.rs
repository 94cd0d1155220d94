//! Which tests run for how long, from what test programs print, and which of them run for too long. Starts nothing, ends nothing
//! and prints nothing; times are since the begin of the run.
//!
//! A program that runs several tests at once names a test only at its end, and once before: when it has run for a minute. From
//! that line on its begin is known, long before its limit. A program that runs one test after the other begins a line with the
//! test's name. A test that waits for its share of the machine says so ([`Announcement`]), and that time is not its own. One
//! that says that a part of its work is done has the time of a test for the next part.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toolbox::announcement::Announcement;

use super::progress::clock;

/// How long what may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// A test, or the part of a test that says when a part is done; without the time that it waits for others.
    pub(super) test: Duration,
    /// A program of which no running test is known, between two lines: it may compile examples, or wait for a lock of cargo.
    pub(super) silence: Duration,
    /// All tests together; and before them, the build.
    pub(super) run: Duration,
}

impl Limits {
    /// A program may be silent for twice the time of a test: nothing that is known to be silent takes as long as a test may.
    pub(crate) const fn new(test: Duration, run: Duration) -> Self {
        Self { test, silence: test.saturating_mul(2), run }
    }
}

/// What keeps the time of all programs of a run.
pub(super) struct Watch {
    limits: Limits,
    programs: Vec<Watched>,
}

/// A program.
struct Watched {
    is_running: bool,
    /// When it last said something.
    heard: Duration,
    /// The tests that have not ended, in the order in which they begin.
    left: Vec<String>,
    /// Those of which it is known that they run.
    running: BTreeMap<String, Clock>,
    /// The test whose line is begun and not ended.
    open: Option<String>,
    /// The tests that have ended of which it is known when they began, with the time that each took without waiting.
    took: Vec<(Duration, String)>,
}

/// The time of a running test.
struct Clock {
    began: Duration,
    waited: Duration,
    /// How many times it waits, and since when.
    waits: Option<(u32, Duration)>,
    directory: Option<PathBuf>,
}

impl Clock {
    const fn at(began: Duration) -> Self {
        Self { began, waited: Duration::ZERO, waits: None, directory: None }
    }

    /// How long it has run, without the time that it has waited.
    fn own(&self, now: Duration) -> Duration {
        let waits = self.waits.map_or(Duration::ZERO, |(_, since)| now.saturating_sub(since));
        now.saturating_sub(self.began).saturating_sub(self.waited).saturating_sub(waits)
    }

    fn announced(&mut self, announcement: &Announcement, now: Duration) {
        match announcement {
            Announcement::Waits(_) => {
                let (depth, since) = self.waits.unwrap_or((0, now));
                self.waits = Some((depth + 1, since));
            }
            Announcement::GoesOn(_) => match self.waits {
                Some((1, since)) => {
                    self.waited += now.saturating_sub(since);
                    self.waits = None;
                }
                Some((depth, since)) => self.waits = Some((depth - 1, since)),
                None => {}
            },
            Announcement::GetsOn(_) => {
                (self.began, self.waited) = (now, Duration::ZERO);
                self.waits = self.waits.map(|(depth, _)| (depth, now));
            }
            Announcement::Uses(_, directory) => self.directory = Some(directory.clone()),
            Announcement::DoesNotRun(..) => {}
        }
    }

    fn said(&self, name: &str, now: Duration) -> String {
        let waits = if self.waits.is_some() { " and waits for its share of the machine" } else { "" };
        format!("{name} has run for {}{waits}", clock(self.own(now)))
    }
}

impl Watched {
    fn ended(&mut self, test: &str, now: Duration) {
        self.left.retain(|name| name != test);
        if let Some(clock) = self.running.remove(test) {
            self.took.push((clock.own(now), test.to_owned()));
        }
        self.open.take_if(|open| open == test);
    }

    /// A program says nothing of the end of a test before it begins the line of the next.
    fn open_ended(&mut self, now: Duration) {
        if let Some(open) = self.open.clone() {
            self.ended(&open, now);
        }
    }

    /// The test with this name; a program that runs one test after the other runs each on its main thread.
    fn meant(&self, name: &str) -> Option<String> {
        let is_test = self.left.iter().any(|test| test == name);
        if is_test { Some(name.to_owned()) } else { self.open.clone() }
    }

    fn line(&mut self, line: &str, now: Duration) {
        if let Some((name, time)) = running_for(line) {
            let began = now.saturating_sub(time);
            let clock = self.running.entry(name.to_owned()).or_insert(Clock::at(began));
            clock.began = clock.began.min(began);
        } else if let Some((name, result)) = line.strip_prefix("test ").and_then(|it| it.split_once(" ... "))
        {
            let name = without_mode(name);
            if self.open.as_deref() != Some(name) {
                self.open_ended(now);
            }
            self.open = Some(name.to_owned());
            if is_result(result) {
                self.ended(name, now);
            }
        } else if is_result(line) || line.starts_with("test result: ") {
            self.open_ended(now);
        }
    }

    /// The first tests that have not ended.
    fn first_left(&self) -> String {
        const SHOWN: usize = 5;
        let shown: Vec<&str> = self.left.iter().take(SHOWN).map(String::as_str).collect();
        match self.left.len() {
            0 => "all of its tests have ended".to_owned(),
            all if all <= SHOWN => format!("not ended: {}", shown.join(", ")),
            all => format!("not ended: {} and {} more", shown.join(", "), all - SHOWN),
        }
    }
}

impl Watch {
    /// `programs` are the names of the tests of each, in their order.
    pub(super) fn new(limits: Limits, programs: Vec<Vec<String>>) -> Self {
        let watched = |left| Watched {
            is_running: false,
            heard: Duration::ZERO,
            left,
            running: BTreeMap::new(),
            open: None,
            took: Vec::new(),
        };
        Self { limits, programs: programs.into_iter().map(watched).collect() }
    }

    /// A program has been started.
    pub(super) fn began(&mut self, number: usize, now: Duration) {
        let program = &mut self.programs[number];
        (program.is_running, program.heard) = (true, now);
    }

    /// It has printed a line.
    pub(super) fn said(&mut self, number: usize, line: &str, now: Duration) {
        let program = &mut self.programs[number];
        program.heard = now;
        program.line(line, now);
    }

    /// It has begun the line of a test.
    pub(super) fn begun(&mut self, number: usize, test: &str, now: Duration) {
        let (program, test) = (&mut self.programs[number], without_mode(test));
        program.heard = now;
        if program.open.as_deref() != Some(test) {
            program.open_ended(now);
        }
        program.open = Some(test.to_owned());
        program.running.entry(test.to_owned()).or_insert(Clock::at(now));
    }

    /// A test of it has announced something.
    pub(super) fn announced(&mut self, number: usize, announcement: &Announcement, now: Duration) {
        let test = self.meant(number, announcement);
        let program = &mut self.programs[number];
        program.heard = now;
        if let Some(test) = test {
            program.running.entry(test).or_insert(Clock::at(now)).announced(announcement, now);
        }
    }

    /// The test of a program that an announcement is about, where that is known.
    pub(super) fn meant(&self, number: usize, announcement: &Announcement) -> Option<String> {
        self.programs[number].meant(announcement.test())
    }

    /// It has ended, or is being ended.
    pub(super) fn ended(&mut self, number: usize) {
        self.programs[number].is_running = false;
    }

    /// Whether the whole run takes too long.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        now >= self.limits.run
    }

    /// The running programs in which something takes too long, with what to say of each.
    pub(super) fn over(&self, now: Duration) -> Vec<(usize, String)> {
        let over = |program: &Watched| {
            let slow = |clock: &Clock| clock.own(now) >= self.limits.test;
            let mut slow = program.running.iter().filter(|(_, clock)| slow(clock)).peekable();
            if slow.peek().is_some() {
                let names: Vec<String> = slow.map(|(name, clock)| clock.said(name, now)).collect();
                let limit = clock(self.limits.test);
                return Some(format!("{}; the limit of a test is {limit}", names.join(", ")));
            }
            let silent = now.saturating_sub(program.heard);
            let is_silent = program.running.is_empty() && silent >= self.limits.silence;
            is_silent.then(|| format!("it has said nothing for {}; {}", clock(silent), program.first_left()))
        };
        let running = self.programs.iter().enumerate().filter(|(_, program)| program.is_running);
        running.filter_map(|(number, program)| Some((number, over(program)?))).collect()
    }

    /// What each running program does.
    pub(super) fn running(&self, now: Duration) -> Vec<(usize, String)> {
        let said = |program: &Watched| {
            let mut said: Vec<String> =
                program.running.iter().map(|(name, clock)| clock.said(name, now)).collect();
            said.push(program.first_left());
            said.join(", ")
        };
        let running = self.programs.iter().enumerate().filter(|(_, program)| program.is_running);
        running.map(|(number, program)| (number, said(program))).collect()
    }

    /// The tests that took longest, with the program of each and the time without waiting.
    pub(super) fn slowest(&self, most: usize) -> Vec<(Duration, usize, &str)> {
        let mut all = Vec::new();
        for (number, program) in self.programs.iter().enumerate() {
            all.extend(program.took.iter().map(|(took, test)| (*took, number, test.as_str())));
        }
        all.sort_by(|one, other| other.cmp(one));
        all.truncate(most);
        all
    }

    /// The directories with the logs of the tests that a program runs; of those only that take too long, if there are any.
    pub(super) fn directories(&self, number: usize, now: Duration) -> Vec<&Path> {
        let clocks = || self.programs[number].running.values();
        let is_slow = |clock: &&Clock| clock.own(now) >= self.limits.test;
        let all = clocks().filter(is_slow).count() == 0;
        let meant = clocks().filter(|clock| all || is_slow(clock));
        meant.filter_map(|clock| clock.directory.as_deref()).collect()
    }
}

/// The test that a line says to be running for some time, and for how long.
fn running_for(line: &str) -> Option<(&str, Duration)> {
    let (before, time) = line.split_once(" has been running for over ")?;
    let seconds = time.split_once(" seconds")?.0.parse().ok()?;
    // A test may have printed something without a line's end before it.
    let name = before.strip_prefix("test ").or_else(|| Some(before.rsplit_once("test ")?.1))?;
    Some((without_mode(name), Duration::from_secs(seconds)))
}

/// The name as `--list` has it. The scenarios of the lab are filled up with spaces.
fn without_mode(name: &str) -> &str {
    let name = name.trim_end();
    let modes = [" - should panic", " - compile fail", " - compile"];
    modes.iter().find_map(|mode| name.strip_suffix(mode)).unwrap_or(name)
}

fn is_result(text: &str) -> bool {
    let word = text.split([' ', ',']).next();
    matches!(word, Some("ok" | "FAILED" | "ignored"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(minutes: u64, seconds: u64) -> Duration {
        Duration::from_secs(minutes * 60 + seconds)
    }

    const LIMITS: Limits = Limits::new(at(10, 0), at(60, 0));

    /// What is heard of a program with the tests `a`, `b` and `a::c`.
    enum Heard {
        Line(&'static str),
        Begun(&'static str),
        Waits(&'static str),
        GoesOn(&'static str),
        GetsOn(&'static str),
    }

    use Heard::{Begun, GetsOn, GoesOn, Line, Waits};

    fn watch(heard: &[(Duration, Heard)]) -> Watch {
        let tests = ["a", "a::c", "b"].map(str::to_owned).to_vec();
        let mut watch = Watch::new(LIMITS, vec![tests.clone(), tests]);
        watch.began(1, at(1, 0));
        for (now, heard) in heard {
            match heard {
                Line(line) => watch.said(1, line, *now),
                Begun(test) => watch.begun(1, test, *now),
                Waits(test) => watch.announced(1, &Announcement::Waits((*test).to_owned()), *now),
                GoesOn(test) => watch.announced(1, &Announcement::GoesOn((*test).to_owned()), *now),
                GetsOn(test) => watch.announced(1, &Announcement::GetsOn((*test).to_owned()), *now),
            }
        }
        watch
    }

    /// The first whole second at which the program is over a limit, and what is said then.
    fn first_over(watch: &Watch) -> (Duration, String) {
        let times = (0..10_000).map(Duration::from_secs);
        let found = times.into_iter().find_map(|now| {
            let (number, said) = watch.over(now).pop()?;
            assert_eq!(number, 1);
            Some((now, said))
        });
        found.unwrap()
    }

    #[test]
    fn a_test_is_over_its_limit_ten_minutes_of_its_own_after_its_begin() {
        let slow_a = "test a has been running for over 60 seconds";
        for (case, heard, expected, said) in [
            ("several at once", vec![(at(3, 0), Line(slow_a))], at(12, 0), "a has run for 10:00;"),
            (
                "another ends",
                vec![(at(3, 0), Line(slow_a)), (at(4, 0), Line("test a::c ... ok"))],
                at(12, 0),
                "a has run for 10:00;",
            ),
            (
                "it gets on",
                vec![(at(3, 0), Line(slow_a)), (at(4, 0), GetsOn("a")), (at(9, 0), GetsOn("a"))],
                at(19, 0),
                "a has run for 10:00;",
            ),
            (
                "it gets on while it waits",
                vec![(at(3, 0), Waits("a")), (at(5, 0), GetsOn("a")), (at(9, 0), GoesOn("a"))],
                at(19, 0),
                "a has run for 10:00;",
            ),
            (
                "it ends: what is left is silence",
                vec![(at(3, 0), Line(slow_a)), (at(4, 0), Line("test a ... FAILED"))],
                at(24, 0),
                "it has said nothing for 20:00; not ended: a::c, b",
            ),
            (
                "its end is torn apart",
                vec![(at(3, 0), Line(slow_a)), (at(4, 0), Line("test a ... hello")), (at(4, 0), Line("ok"))],
                at(24, 0),
                "it has said nothing for 20:00",
            ),
            (
                "two",
                vec![
                    (at(3, 0), Line(slow_a)),
                    (at(3, 0), Line("xtest b has been running for over 60 seconds")),
                ],
                at(12, 0),
                "a has run for 10:00, b has run for 10:00;",
            ),
            (
                "one after the other",
                vec![(at(2, 0), Begun("a")), (at(3, 0), Line("test a ... ok")), (at(3, 0), Begun("a::c"))],
                at(13, 0),
                "a::c has run for 10:00;",
            ),
            (
                "one after the other, and the first one prints",
                vec![(at(2, 0), Begun("a")), (at(3, 0), Line("test a ... hello")), (at(4, 0), Begun("b"))],
                at(14, 0),
                "b has run for 10:00;",
            ),
            (
                "one after the other, with its mode",
                vec![
                    (at(2, 0), Begun("a - should panic  ")),
                    (at(3, 0), Line("test a - should panic ... ok")),
                ],
                at(23, 0),
                "it has said nothing for 20:00; not ended: a::c, b",
            ),
            (
                "it waits nine minutes",
                vec![(at(2, 0), Waits("a")), (at(3, 0), Line(slow_a)), (at(11, 0), GoesOn("a"))],
                at(21, 0),
                "a has run for 10:00;",
            ),
            (
                "it waits twice, and once within",
                vec![
                    (at(2, 0), Waits("a")),
                    (at(3, 0), Waits("a")),
                    (at(4, 0), GoesOn("a")),
                    (at(5, 0), GoesOn("a")),
                    (at(7, 0), Waits("a")),
                    (at(8, 0), GoesOn("a")),
                ],
                at(16, 0),
                "a has run for 10:00;",
            ),
            (
                "it waits on the main thread",
                vec![(at(2, 0), Begun("a")), (at(3, 0), Waits("main")), (at(5, 0), GoesOn("main"))],
                at(14, 0),
                "a has run for 10:00;",
            ),
            ("it says nothing", vec![], at(21, 0), "it has said nothing for 20:00; not ended: a, a::c, b"),
        ] {
            let (now, told) = first_over(&watch(&heard));
            assert_eq!(now, expected, "{case}: {told}");
            assert!(told.contains(said), "{case}: {told}");
        }
    }

    #[test]
    fn the_slowest_tests_are_named_with_their_time_without_waiting() {
        let slow = |test: &str| format!("test {test} has been running for over 60 seconds");
        let mut watch = watch(&[
            (at(2, 0), Waits("a")),
            (at(8, 0), GoesOn("a")),
            (at(9, 0), Line("test a ... ok")),
            (at(9, 0), Begun("a::c")),
            (at(9, 30), Line("test a::c ... FAILED")),
        ]);
        watch.began(0, at(1, 0));
        watch.said(0, &slow("b"), at(4, 0));
        watch.said(0, "test b ... ok", at(6, 0));
        // It was not known to run, so that nothing is known of its time.
        watch.said(0, "test a ... ok", at(7, 0));
        let expected = [(at(3, 0), 0, "b"), (at(1, 0), 1, "a"), (at(0, 30), 1, "a::c")];
        assert_eq!(watch.slowest(3), expected);
        assert_eq!(watch.slowest(1), expected[..1]);
    }

    #[test]
    fn who_waits_is_not_over_a_limit_however_long_and_is_named_when_the_run_is() {
        let mut watch =
            watch(&[(at(2, 0), Waits("a")), (at(3, 0), Line("test a has been running for over 60 seconds"))]);
        assert_eq!(watch.over(at(59, 59)), []);
        assert!(!watch.is_over(at(59, 59)) && watch.is_over(at(60, 0)));
        let (number, said) = watch.running(at(60, 0)).pop().unwrap();
        let expected = "a has run for 0:00 and waits for its share of the machine, not ended: a, a::c, b";
        assert_eq!((number, &*said), (1, expected));
        watch.ended(1);
        assert_eq!(watch.running(at(60, 0)), []);
        assert_eq!(watch.over(at(90, 0)), []);
    }

    #[test]
    fn the_logs_are_those_of_the_slow_tests_or_of_all_that_run() {
        let mut watch = watch(&[(at(2, 0), Begun("a"))]);
        for (test, minute) in [("a", 2), ("b", 9)] {
            let uses = Announcement::Uses(test.to_owned(), PathBuf::from(test));
            watch.announced(1, &uses, at(minute, 0));
        }
        assert_eq!(watch.directories(1, at(11, 0)), [Path::new("a"), Path::new("b")]);
        assert_eq!(watch.directories(1, at(12, 0)), [Path::new("a")]);
    }
}
