//! Which key runs next, and when: the state machine of the loop in [`crate::controller`]. Pure: time (since any fixed
//! origin) and randomness are arguments; nothing here sleeps, spawns or logs.
//!
//! A key is in one of two states. *Waiting* has one due time; the earliest request wins. *Running* remembers whether it
//! was triggered meanwhile. In addition a key has a **floor**, before which it never starts. A failure or a conflict
//! sets both: the due time is when the key returns on its own, and grows to the larger cap; the floor is the earliest
//! that an event may bring it back, and grows to the smaller one. So after the cause of a failure is fixed, the user
//! does not wait for the whole backoff, and a stream of events cannot turn it into a hot loop.
//!
//! A key that wants to run again soon although its run changed nothing, and once more, is **idle**: it comes back at once the first
//! time, and then later and later, until a run changes something, or an event comes. Whatever it waits for, it finds nothing
//! to do; without the growing wait, a time in the past would be a hot loop for as long as it stands in some object.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

/// Time since the loop began.
type Time = Duration;

/// The backoff of a failing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequeueBackoff {
    /// The delay after the first failure.
    pub base: Duration,
    /// The maximum delay, whatever the number of failures.
    pub max: Duration,
    /// The maximum delay where an event triggers the key meanwhile.
    pub event_max: Duration,
}

impl Default for RequeueBackoff {
    /// 100 ms doubling up to one minute, which an event shortens to five seconds. client-go's rate limiter goes from 5
    /// ms to 1,000 s, and an event ends its wait at once. Our own figures: not every fixed cause shows as an event, so
    /// the minute must be one that a user is willing to wait; and objects that change all the time, such as the pods of
    /// a large cluster, limit a key that always fails to twelve runs a minute.
    fn default() -> Self {
        Self {
            base: Duration::from_millis(100),
            max: Duration::from_secs(60),
            event_max: Duration::from_secs(5),
        }
    }
}

impl RequeueBackoff {
    /// The delay after failure number `failures` (from 1): exponential, and between half and all of it by `random` in
    /// `[0, 1)`, so that keys that failed together do not return together.
    pub fn delay(self, failures: u32, random: f64) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1).min(31));
        let full = self.base.saturating_mul(doubled).min(self.max);
        full.mul_f64(0.5 + 0.5 * random.clamp(0.0, 1.0))
    }

    /// The part of that delay that passes before an event can end it.
    fn floor(self, delay: Duration) -> Duration {
        delay.min(self.event_max)
    }
}

/// The backoff of a key with repeated conflicts. A single one is resolved as soon as the watch has delivered the other
/// writer's version, which takes a few milliseconds; when it persists after many, the watch delivers nothing, and each
/// run is a full pass from the same stale cache. Our own figures.
pub const CONFLICT_BACKOFF: RequeueBackoff = RequeueBackoff {
    base: Duration::from_millis(20),
    max: Duration::from_secs(5),
    event_max: Duration::from_secs(1),
};

/// The backoff of a key that keeps coming back on its own from runs that changed nothing. It is counted from the second such
/// run: the first comes back as soon as it asks for. Our own figures: the cap is the shortest of the operators' own polling
/// intervals that nothing waits for.
pub const IDLE_BACKOFF: RequeueBackoff = RequeueBackoff {
    base: Duration::from_millis(100),
    max: Duration::from_secs(15),
    event_max: Duration::ZERO,
};

/// How long the triggers of a key are collected before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Debounce {
    /// Until no other trigger has come for this long.
    pub quiet: Duration,
    /// At most for this long, counted from the first: a key that is triggered all the time still runs.
    pub most: Duration,
}

impl Debounce {
    /// For this long, however many triggers come.
    pub const fn fixed(time: Duration) -> Self {
        Self { quiet: time, most: time }
    }
}

/// A key that asks for less than this comes back soon; for more, it polls, and may do so for ever.
const SOON: Duration = Duration::from_secs(1);

/// The result of one run of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunResult {
    /// Nothing more to do until the next trigger.
    Done,
    /// It changed something: run again after this time, or earlier on a trigger.
    ChangedThenAfter(Duration),
    /// It changed nothing: run again after this time, or earlier on a trigger; later when the runs before were so, too.
    After(Duration),
    /// A write met a conflict: run again at once, give or take a little; later when the last run met one, too.
    Conflict,
    /// It failed: back off, longer each time.
    Failed,
}

/// What the loop should do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next<K> {
    /// Run this key; it counts as running now.
    Start(K),
    /// Nothing can start before this time.
    WaitUntil(Time),
    /// Nothing can start before a trigger or the end of a run.
    Idle,
}

#[derive(Debug)]
struct Entry {
    state: State,
    failures: u32,
    conflicts: u32,
    /// Runs in a row that changed nothing and asked for another one soon.
    idle: u32,
    not_before: Time,
}

impl Entry {
    const fn new(state: State) -> Self {
        Self { state, failures: 0, conflicts: 0, idle: 0, not_before: Time::ZERO }
    }

    /// How long to wait after a run with this outcome, and how much of that passes before an event can end it; `None` when only
    /// an event runs the key again.
    fn delay(
        &mut self,
        outcome: RunResult,
        backoff: RequeueBackoff,
        random: f64,
    ) -> Option<(Duration, Duration)> {
        match outcome {
            RunResult::Done => None,
            RunResult::After(delay) if delay < SOON => {
                self.idle = self.idle.saturating_add(1);
                let least = match self.idle {
                    1 => Duration::ZERO,
                    runs => IDLE_BACKOFF.delay(runs.saturating_sub(1), random),
                };
                let delay = delay.max(least);
                Some((delay, IDLE_BACKOFF.floor(delay)))
            }
            RunResult::After(delay) | RunResult::ChangedThenAfter(delay) => Some((delay, Duration::ZERO)),
            RunResult::Conflict => {
                self.conflicts = self.conflicts.saturating_add(1);
                let delay = CONFLICT_BACKOFF.delay(self.conflicts, random);
                Some((delay, CONFLICT_BACKOFF.floor(delay)))
            }
            RunResult::Failed => {
                self.failures = self.failures.saturating_add(1);
                let delay = backoff.delay(self.failures, random);
                Some((delay, backoff.floor(delay)))
            }
        }
    }

    /// Forgets what the outcome shows to be over. A run that changed nothing and asks for another one soon says nothing about
    /// conflicts: a key that has both in turn is in a loop as well.
    fn settle(&mut self, outcome: RunResult) {
        match outcome {
            RunResult::Conflict | RunResult::Failed => {}
            RunResult::After(delay) if delay < SOON => self.failures = 0,
            RunResult::Done | RunResult::ChangedThenAfter(_) | RunResult::After(_) => {
                (self.failures, self.conflicts, self.idle) = (0, 0, 0);
            }
        }
    }
}

#[derive(Debug)]
enum State {
    /// `seq` breaks ties in the order of the triggers. Another trigger puts off a key that it would otherwise be run for, until
    /// `latest`; `None` when it waits for something else.
    Waiting { due: Time, seq: u64, latest: Option<Time> },
    /// `again` is when the key should run again because it was triggered meanwhile, and what that may be put off to.
    Running { again: Option<(Time, Time)> },
}

/// The queue of one controller.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    backoff: RequeueBackoff,
    debounce: Debounce,
    seq: u64,
    entries: HashMap<K, Entry>,
    order: BTreeSet<(Time, u64)>,
    by_seq: HashMap<u64, K>,
}

impl<K: Hash + Eq + Clone> Queue<K> {
    pub(crate) fn new(backoff: RequeueBackoff, debounce: Debounce) -> Self {
        Self {
            backoff,
            debounce,
            seq: 0,
            entries: HashMap::new(),
            order: BTreeSet::new(),
            by_seq: HashMap::new(),
        }
    }

    /// Triggers `key`. It runs after the debounce time.
    pub(crate) fn trigger(&mut self, key: K, now: Time) {
        let Debounce { quiet, most } = self.debounce;
        let (quiet, most) = (now.saturating_add(quiet), now.saturating_add(most));
        let Some(entry) = self.entries.get_mut(&key) else {
            let state = self.enqueue(&key, quiet.min(most), Some(most));
            self.entries.insert(key, Entry::new(state));
            return;
        };
        entry.idle = 0;
        match &mut entry.state {
            State::Running { again } => {
                let latest = again.map_or(most, |(_, latest)| latest);
                *again = Some((quiet.min(latest), latest));
            }
            State::Waiting { due: planned, seq, latest } => {
                let is_first = latest.is_none();
                let until = latest.unwrap_or(most);
                let due = quiet.min(until).max(entry.not_before);
                // What is planned for earlier stays, and is not put off.
                if is_first && due >= *planned {
                    return;
                }
                *latest = Some(until);
                self.order.remove(&(*planned, *seq));
                self.order.insert((due, *seq));
                *planned = due;
            }
        }
    }

    fn enqueue(&mut self, key: &K, due: Time, latest: Option<Time>) -> State {
        self.seq += 1;
        self.order.insert((due, self.seq));
        self.by_seq.insert(self.seq, key.clone());
        State::Waiting { due, seq: self.seq, latest }
    }

    /// What to do now. [`Next::Start`] marks the key as running; the caller must report its end with
    /// [`Self::finished`].
    pub(crate) fn next(&mut self, now: Time) -> Next<K> {
        let Some(&(due, seq)) = self.order.first() else {
            return Next::Idle;
        };
        if due > now {
            return Next::WaitUntil(due);
        }
        self.order.remove(&(due, seq));
        let Some(key) = self.by_seq.remove(&seq) else {
            return Next::Idle;
        };
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.state = State::Running { again: None };
        }
        Next::Start(key)
    }

    /// Records the end of the run of `key`. `random` is in `[0, 1)`. Returns how many times in a row it has failed.
    pub(crate) fn finished(&mut self, key: &K, outcome: RunResult, now: Time, random: f64) -> u32 {
        let Some(mut entry) = self.entries.remove(key) else {
            return 0;
        };
        let State::Running { again } = entry.state else {
            self.entries.insert(key.clone(), entry);
            return 0;
        };
        let delay = entry.delay(outcome, self.backoff, random);
        entry.settle(outcome);
        let wish = delay.map(|(delay, _)| now.saturating_add(delay));
        let floor = delay.map(|(_, floor)| floor).filter(|floor| !floor.is_zero());
        let floor = floor.map_or(Time::ZERO, |floor| now.saturating_add(floor));
        entry.not_before = floor;
        let failures = entry.failures;
        let due = match (wish, again) {
            (Some(wish), Some((due, latest))) if due < wish => Some((due, Some(latest))),
            (Some(wish), _) => Some((wish, None)),
            (None, again) => again.map(|(due, latest)| (due, Some(latest))),
        };
        if let Some((due, latest)) = due {
            entry.state = self.enqueue(key, due.max(floor), latest);
            self.entries.insert(key.clone(), entry);
        }
        failures
    }

    /// The number of keys that wait.
    pub(crate) fn depth(&self) -> usize {
        self.order.len()
    }

    /// The number of keys that wait because they failed.
    pub(crate) fn in_backoff(&self) -> usize {
        self.entries.values().filter(|e| e.failures > 0 && matches!(e.state, State::Waiting { .. })).count()
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
