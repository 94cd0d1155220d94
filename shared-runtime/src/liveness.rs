//! Whether the tasks of this process still run: `/livez` fails when one of them has been silent for so long that only a
//! restart helps.
//!
//! It says nothing about the cluster. An unreachable API server makes an operator unready, and a restart does not help.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;

/// How long a task may be silent. Three times the longest wait of any of them, a page of a list (30 s).
const LIMIT: Duration = Duration::from_secs(90);

/// Every long-running task of a process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Liveness {
    clock: Clock,
    last: Arc<Mutex<BTreeMap<String, Duration>>>,
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
        Self { clock, last: Arc::default() }
    }

    fn last(&self) -> MutexGuard<'_, BTreeMap<String, Duration>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a task, which counts as alive now.
    pub fn pulse(&self, name: impl Into<String>) -> Pulse {
        let pulse = Pulse { liveness: self.clone(), name: name.into() };
        pulse.beat();
        pulse
    }

    /// The tasks that have been silent for too long, and for how long.
    pub fn silent(&self) -> Vec<(String, Duration)> {
        let now = self.clock.monotonic();
        let last = self.last();
        let since = last.iter().map(|(name, beat)| (name.clone(), now.saturating_sub(*beat)));
        since.filter(|(_, silent)| *silent > LIMIT).collect()
    }
}

impl Pulse {
    /// Reports that the task runs.
    pub fn beat(&self) {
        let now = self.liveness.clock.monotonic();
        let mut last = self.liveness.last();
        match last.get_mut(&self.name) {
            Some(beat) => *beat = now,
            None => {
                last.insert(self.name.clone(), now);
            }
        }
    }

    /// Removes the task, which has ended as intended.
    pub fn ended(self) {
        self.liveness.last().remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_task_that_is_not_heard_of_is_named_until_it_is() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let liveness = Liveness::new(clock);
        let (a, b) = (liveness.pulse("a"), liveness.pulse("b"));
        time.advance(LIMIT);
        b.beat();
        assert!(liveness.silent().is_empty());
        time.advance(Duration::from_secs(1));
        assert_eq!(liveness.silent(), [("a".to_owned(), LIMIT + Duration::from_secs(1))]);
        a.beat();
        assert!(liveness.silent().is_empty());
        time.advance(LIMIT * 2);
        a.ended();
        b.ended();
        assert!(liveness.silent().is_empty());
    }
}
