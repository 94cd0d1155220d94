//! When writers begin: all at once, or each in its own time.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::Serialize;

/// The pattern of beginnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Load {
    /// All writers begin together, one increment each.
    Burst,
    /// Each writer begins at random times, independently (Poisson).
    Sustained,
}

impl Load {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Burst => "burst",
            Self::Sustained => "sustained",
        }
    }
}

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount {
    /// How often the policies take turns.
    pub(crate) rounds: usize,
    /// Repetitions of the load per turn.
    pub(crate) repeat: usize,
    /// Length of one repetition; a burst takes as long as it takes.
    pub(crate) length: Duration,
}

impl Amount {
    /// At least 200 successes per cell of a burst; of a sustained load of many writers some 700, so that seven of them lie above
    /// the p99 and a pause of the machine does not decide it.
    pub(crate) fn of(load: Load, writers: usize, quick: bool) -> Self {
        let (rounds, repeat, millis) = match (load, writers, quick) {
            (Load::Burst, 0..=2, false) => (10, 20, 0),
            (Load::Burst, 3..=5, false) => (10, 8, 0),
            (Load::Burst, 6..=10, false) => (10, 4, 0),
            (Load::Burst, 11..=20, false) => (10, 2, 0),
            (Load::Burst, _, false) => (8, 1, 0),
            (Load::Burst, 0..=2, true) => (4, 10, 0),
            (Load::Burst, 3..=5, true) => (4, 4, 0),
            (Load::Burst, 6..=10, true) => (4, 2, 0),
            (Load::Burst, _, true) => (2, 1, 0),
            // Long turns, because each begins with an idle object.
            (Load::Sustained, _, false) => (12, 1, 1_200),
            (Load::Sustained, _, true) => (1, 1, 500),
        };
        Self { rounds, repeat, length: Duration::from_millis(millis) }
    }
}

/// Beginnings per second and writer: five, or as many as one object bears when there are many writers.
fn rate(writers: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a number of writers is small")]
    let writers = writers.max(1) as f64;
    (50.0 / writers).min(5.0)
}

/// For each writer its beginnings, in milliseconds after the common start. The same seed gives the same beginnings, so
/// that all policies of a round get the same load.
pub(crate) fn starts(load: Load, writers: usize, length: Duration, seed: u64) -> Vec<Vec<f64>> {
    if load == Load::Burst {
        return vec![vec![0.0]; writers];
    }
    let mut random = StdRng::seed_from_u64(seed);
    let mean = 1000.0 / rate(writers);
    let end = length.as_secs_f64() * 1000.0;
    (0..writers)
        .map(|_| {
            let mut at = 0.0;
            let mut starts = Vec::new();
            loop {
                at += -mean * (1.0 - random.random::<f64>()).ln();
                if at >= end {
                    return starts;
                }
                starts.push(at);
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_begins_at_once_and_a_seed_repeats_a_sustained_load() {
        assert_eq!(starts(Load::Burst, 2, Duration::ZERO, 0), vec![vec![0.0]; 2]);
        let length = Duration::from_secs(100);
        let once = starts(Load::Sustained, 10, length, 7);
        assert_eq!(once, starts(Load::Sustained, 10, length, 7));
        let count: usize = once.iter().map(Vec::len).sum();
        // 5/s · 10 writers · 100 s = 5,000, give or take four standard deviations.
        assert!((4_700..5_300).contains(&count), "{count}");
        assert!(once.iter().flatten().all(|start| (0.0..100_000.0).contains(start)));
    }

    #[test]
    fn every_burst_cell_has_at_least_two_hundred_successes() {
        for writers in [2, 5, 10, 50] {
            let amount = Amount::of(Load::Burst, writers, false);
            assert!(amount.rounds * amount.repeat * writers >= 200, "{writers}");
        }
    }
}
