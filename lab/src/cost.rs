//! What one write strategy cost in a run: the figures, as the audit log and the operators' metrics have them.

use jiff::Timestamp;
use serde::Serialize;

/// What one strategy cost: requests of both operators to the pool that they share, and their passes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StrategyCost {
    /// The strategy.
    pub strategy: &'static str,
    /// When the first request to the pool arrived.
    pub began: Timestamp,
    /// When the last one was answered.
    pub ended: Timestamp,
    /// How often pods came and went.
    pub rounds: usize,
    /// Reads of the pool.
    pub reads: usize,
    /// Writes, granted or refused.
    pub writes: usize,
    /// Granted writes.
    pub granted: usize,
    /// Writes that were answered 409.
    pub conflicts: usize,
    /// Those of them that a write of the same operator caused.
    pub own_conflicts: usize,
    /// Writes that were answered 422, like a JSON Patch whose test fails.
    pub invalid: usize,
    /// Passes of both operators.
    pub passes: f64,
    /// Those of them that ended in a conflict.
    pub thrown: f64,
    /// For each granted write the milliseconds from its first request to the answer that granted it, in ascending order.
    #[serde(rename = "latenciesMs")]
    pub latencies: Vec<f64>,
}

impl StrategyCost {
    /// Requests for each granted write, reads included.
    pub fn per_write(&self) -> f64 {
        count(self.reads + self.writes) / count(self.granted.max(1))
    }

    /// The latency that this many in a hundred do not exceed (nearest rank); 0 without granted writes.
    pub fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.latencies.len() * percent).div_ceil(100);
        self.latencies.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    }
}

/// A count, for arithmetic.
#[expect(clippy::cast_precision_loss, reason = "a run has far fewer than 2^52 requests")]
pub(crate) fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_of_the_nearest_rank() {
        let of = |latencies| StrategyCost {
            strategy: "lazy",
            began: Timestamp::UNIX_EPOCH,
            ended: Timestamp::UNIX_EPOCH,
            rounds: 1,
            reads: 0,
            writes: 0,
            granted: 0,
            conflicts: 0,
            own_conflicts: 0,
            invalid: 0,
            passes: 0.0,
            thrown: 0.0,
            latencies,
        };
        let cost = of((1..=200).map(f64::from).collect());
        assert_eq!([50, 99].map(|percent| cost.percentile(percent).to_string()), ["100", "198"]);
        assert!(of(Vec::new()).percentile(99).abs() < f64::EPSILON);
        assert!(of(Vec::new()).per_write().abs() < f64::EPSILON, "nothing was granted");
    }
}
