//! Whether the tasks of this process still run: `/livez` fails when one of them has been silent, or one piece of its work has
//! been under way, for so long that only a restart helps.
//!
//! It says nothing about the cluster. An unreachable API server makes an operator unready, and a restart does not help.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;

/// How long a task may be silent. Three times the longest wait of any of them, a page of a list (30 s).
const LIMIT: Duration = Duration::from_secs(90);

/// How long one piece of work of a task may take: one reconcile of a loop. One and a half times what the limits of everything
/// add up to that a pass of the `NodePool` operator waits for: up to seven calls to a provider, each of up to 151 s (a minute for
/// its turn, and the longest limit of a call), and requests to the API server of up to 30 s each, together some 20 minutes.
/// Nothing else in a pass waits, so one that takes longer than this never ends.
pub(crate) const WORK_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Every long-running task of a process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Liveness {
    clock: Clock,
    tasks: Arc<Mutex<BTreeMap<String, Signs>>>,
}

/// What was last heard of a task.
#[derive(Clone, Copy, Debug)]
struct Signs {
    last: Duration,
    /// Since when the oldest piece of its work has been under way.
    works_since: Option<Duration>,
}

/// A task that does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckTask {
    /// Its name.
    pub task: String,
    /// What is wrong with it, without the names of objects.
    pub trouble: String,
}

/// The handle of one task. A task that ends, or panics, is silent from then on.
#[derive(Clone, Debug)]
pub struct Pulse {
    liveness: Liveness,
    name: String,
}

impl Liveness {
    /// A registry without tasks.
    pub fn new(clock: Clock) -> Self {
        Self { clock, tasks: Arc::default() }
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeMap<String, Signs>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a task, which counts as alive now.
    pub fn pulse(&self, name: impl Into<String>) -> Pulse {
        let pulse = Pulse { liveness: self.clone(), name: name.into() };
        pulse.beat();
        pulse
    }

    /// The tasks that have been silent, or at one piece of work, for too long.
    pub fn stuck(&self) -> Vec<StuckTask> {
        let now = self.clock.monotonic();
        let trouble = |signs: &Signs| {
            let silent = now.saturating_sub(signs.last);
            let works = signs.works_since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
            if silent > LIMIT {
                return Some(format!("not heard of for {} s", silent.as_secs()));
            }
            (works > WORK_LIMIT).then(|| format!("one reconcile has not ended for {} s", works.as_secs()))
        };
        let tasks = self.tasks();
        let stuck = tasks.iter().filter_map(|(task, signs)| {
            trouble(signs).map(|trouble| StuckTask { task: task.clone(), trouble })
        });
        stuck.collect()
    }
}

impl Pulse {
    /// Reports that the task runs.
    pub fn beat(&self) {
        self.beat_at_work(None);
    }

    /// Reports that the task runs, and for how long the oldest piece of its work has been under way.
    pub fn beat_at_work(&self, oldest: Option<Duration>) {
        let now = self.liveness.clock.monotonic();
        let signs = Signs { last: now, works_since: oldest.map(|age| now.saturating_sub(age)) };
        let mut tasks = self.liveness.tasks();
        match tasks.get_mut(&self.name) {
            Some(known) => *known = signs,
            None => {
                tasks.insert(self.name.clone(), signs);
            }
        }
    }

    /// Removes the task, which has ended as intended.
    pub fn ended(self) {
        self.liveness.tasks().remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn said(liveness: &Liveness) -> Vec<String> {
        liveness.stuck().into_iter().map(|StuckTask { task, trouble }| format!("{task}: {trouble}")).collect()
    }

    #[test]
    fn a_task_that_is_not_heard_of_is_named_until_it_is() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let liveness = Liveness::new(clock);
        let (a, b) = (liveness.pulse("a"), liveness.pulse("b"));
        time.advance(LIMIT);
        b.beat();
        assert!(liveness.stuck().is_empty());
        time.advance(Duration::from_secs(1));
        assert_eq!(said(&liveness), ["a: not heard of for 91 s"]);
        a.beat();
        assert!(liveness.stuck().is_empty());
        time.advance(LIMIT * 2);
        a.ended();
        b.ended();
        assert!(liveness.stuck().is_empty());
    }

    #[test]
    fn a_task_at_one_piece_of_work_for_too_long_is_named_although_it_is_heard_of() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let liveness = Liveness::new(clock);
        time.advance(WORK_LIMIT);
        let pulse = liveness.pulse("a");
        pulse.beat_at_work(Some(WORK_LIMIT));
        assert!(liveness.stuck().is_empty());
        time.advance(Duration::from_secs(1));
        assert_eq!(said(&liveness), ["a: one reconcile has not ended for 1801 s"]);
        pulse.beat_at_work(Some(Duration::from_secs(5)));
        assert!(liveness.stuck().is_empty(), "that piece of work has ended");
        pulse.beat();
        time.advance(LIMIT);
        assert!(liveness.stuck().is_empty(), "it has nothing to do");
    }
}
