//! One turn of one policy, and its result. The Go program reads and writes the same two types as JSON.

use serde::{Deserialize, Serialize};

use crate::numbers::percentile;

/// What to do: every writer increments once per entry of its starts, in order; the whole `repeat` times.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Session {
    /// client-go's name of the policy.
    pub(crate) policy: &'static str,
    /// The object's name.
    pub(crate) object: String,
    /// One list per writer: milliseconds after the common start.
    pub(crate) starts: Vec<Vec<f64>>,
    /// How often.
    pub(crate) repeat: usize,
    /// Rest before each repetition.
    pub(crate) gap_ms: f64,
}

impl Session {
    /// Increments that the session makes.
    pub(crate) fn successes(&self) -> usize {
        self.repeat * self.starts.iter().map(Vec::len).sum::<usize>()
    }
}

/// The result of a session.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    /// From the moment an increment was due to its success, give-ups and all.
    pub(crate) latencies_ms: Vec<f64>,
    /// GET, PUT and PATCH requests.
    pub(crate) requests: u64,
    /// How often the policy gave up, and the increment was begun again.
    pub(crate) give_ups: u64,
    /// Time under load.
    pub(crate) wall_seconds: f64,
    /// Connections that watched.
    #[serde(default)]
    pub(crate) watches: u64,
    /// Why there is no result.
    #[serde(default)]
    pub(crate) error: Option<String>,
}

impl Report {
    /// Adds another turn of the same policy.
    pub(crate) fn add(&mut self, other: Self) {
        let Self { latencies_ms, requests, give_ups, wall_seconds, watches, error } = other;
        self.latencies_ms.extend(latencies_ms);
        self.requests += requests;
        self.give_ups += give_ups;
        self.wall_seconds += wall_seconds;
        self.watches += watches;
        self.error = self.error.take().or(error);
    }

    /// The latency that this share of the successes did not exceed (nearest rank); 0 without successes.
    pub(crate) fn percentile(&self, share: f64) -> f64 {
        let mut sorted = self.latencies_ms.clone();
        sorted.sort_by(f64::total_cmp);
        percentile(&sorted, share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let latencies_ms = (1..=200).rev().map(f64::from).collect();
        let report = Report { latencies_ms, ..Report::default() };
        assert_eq!(
            (report.percentile(0.5), report.percentile(0.99), report.percentile(1.0)),
            (100.0, 198.0, 200.0)
        );
        assert!(Report::default().percentile(0.99).abs() < f64::EPSILON);
    }
}
