//! Whether this candidate can use the lease, as a gate of readiness: a replica that cannot read the lease is no standby,
//! and would never take over.
//!
//! Pure: the time is an argument. A leader needs no gate: it ends when it cannot renew, which is sooner.

use std::time::Duration;

use crate::readiness::Gate;

/// What the attempts at the lease have told.
#[derive(Debug, Default)]
pub(super) struct Usable {
    gate: Option<Gate>,
    /// When an attempt had a result for the last time.
    worked: Option<Duration>,
    /// Whether the gate was closed because of failures.
    is_lost: bool,
}

impl Usable {
    /// Opens and closes `gate`.
    pub(super) fn new(gate: Gate) -> Self {
        Self { gate: Some(gate), ..Self::default() }
    }

    /// Records that the lease was read at `now`, and written if that was necessary. Returns whether it could not be
    /// before.
    pub(super) fn works(&mut self, now: Duration) -> bool {
        if (self.worked.is_none() || self.is_lost)
            && let Some(gate) = &self.gate
        {
            gate.open();
        }
        self.worked = Some(now);
        std::mem::take(&mut self.is_lost)
    }

    /// Records that an attempt failed at `now`, for `reason`. After `patience` without a result, which a lease would not
    /// have outlived either, this replica is not ready; at the start it has not been yet. Returns whether that is new.
    pub(super) fn fails(&mut self, reason: String, now: Duration, patience: Duration) -> bool {
        if self.worked.is_some_and(|worked| now.saturating_sub(worked) < patience) {
            return false;
        }
        if let Some(gate) = &self.gate {
            gate.close(reason);
        }
        !std::mem::replace(&mut self.is_lost, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readiness::Readiness;

    #[test]
    fn a_failure_closes_the_gate_when_nothing_has_worked_for_the_time_of_a_lease() {
        let readiness = Readiness::default();
        let mut usable = Usable::new(readiness.gate("lease", "not read yet"));
        let second = Duration::from_secs;
        let is_ready = || readiness.waiting_for().is_empty();
        assert!(usable.fails("no".into(), second(1), second(15)), "it was never ready");
        assert!(!usable.fails("no".into(), second(3), second(15)), "said once");
        assert_eq!(readiness.waiting_for(), [("lease".to_owned(), "no".to_owned())]);
        assert!(usable.works(second(5)) && is_ready());
        assert!(!usable.works(second(7)) && is_ready());
        assert!(!usable.fails("no".into(), second(21), second(15)) && is_ready());
        assert!(usable.fails("never".into(), second(22), second(15)) && !is_ready());
        assert!(usable.works(second(23)) && is_ready());
    }
}
