//! The state machine of leader election: which process holds the lease. Pure: time is an argument.
//!
//! As in client-go, clocks of different processes are never compared: a lease has expired when *this* process has
//! observed it unchanged for its duration, on its own monotonic clock.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::core::ObjectMeta;

/// How long a lease lasts, how long its holder tries to renew it, and how often candidates check it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long other candidates wait before they take an unchanged lease.
    pub lease_duration: Duration,
    /// How long the holder continues without a renewal.
    pub renew_deadline: Duration,
    /// How often the holder renews and the others check.
    pub retry_period: Duration,
}

/// The lease times are inconsistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTiming {
    /// The holder would continue with a lease that another candidate has taken.
    #[error(
        "the lease duration ({lease:?}) must be longer than the renew deadline ({renew:?}); raise --lease-duration-seconds or lower --renew-deadline-seconds"
    )]
    Duration {
        /// The lease duration.
        lease: Duration,
        /// The renew deadline.
        renew: Duration,
    },
    /// The holder would have no second attempt.
    #[error(
        "the renew deadline ({renew:?}) must be longer than 1.2 times the retry period ({retry:?}); raise --renew-deadline-seconds or lower --retry-period-seconds"
    )]
    Deadline {
        /// The renew deadline.
        renew: Duration,
        /// The retry period.
        retry: Duration,
    },
    /// The retry period is too short: there would be no wait at all.
    #[error("the retry period must be at least one second; raise --retry-period-seconds")]
    Period,
}

/// client-go's `JitterFactor`: its waits are one to 2.2 retry periods.
pub(super) const JITTER_FACTOR: f64 = 1.2;

impl Timing {
    /// Checks the times as client-go does.
    pub fn validate(self) -> Result<Self, InvalidTiming> {
        let Self { lease_duration, renew_deadline, retry_period } = self;
        if retry_period < Duration::from_secs(1) {
            return Err(InvalidTiming::Period);
        }
        if lease_duration <= renew_deadline {
            return Err(InvalidTiming::Duration { lease: lease_duration, renew: renew_deadline });
        }
        if renew_deadline <= retry_period.mul_f64(JITTER_FACTOR) {
            return Err(InvalidTiming::Deadline { renew: renew_deadline, retry: retry_period });
        }
        Ok(self)
    }

    /// How long after the holder's last renewal another candidate has the lease, at most: it waits until it looks and sees that renewal,
    /// then for the duration, then until it looks again. What its requests take comes on top.
    pub fn takeover(self) -> Duration {
        self.lease_duration + self.retry_period.mul_f64(2.0 * (1.0 + JITTER_FACTOR))
    }
}

/// What this process may do with a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaseState {
    /// It holds the lease.
    Mine,
    /// The lease has no holder, or the holder has not renewed it for its duration: take it.
    Free,
    /// Another process holds it.
    Held {
        /// Identity of the holder.
        by: String,
    },
}

/// This process's observations of the lease.
#[derive(Debug, Default)]
pub(super) struct Watcher {
    last: Option<(LeaseSpec, Duration)>,
}

impl Watcher {
    /// Evaluates the lease that was just read. `lease_duration` is used where the lease does not state its own.
    pub(super) fn judge(
        &mut self,
        lease: &Lease,
        identity: &str,
        lease_duration: Duration,
        now: Duration,
    ) -> LeaseState {
        let spec = lease.spec.clone().unwrap_or_default();
        let since = match &self.last {
            Some((seen, since)) if *seen == spec => *since,
            _ => now,
        };
        let holder = spec.holder_identity.clone().unwrap_or_default();
        let lasts = lasts(&spec, lease_duration);
        self.last = Some((spec, since));
        if holder == identity {
            LeaseState::Mine
        } else if holder.is_empty() || now.saturating_sub(since) >= lasts {
            LeaseState::Free
        } else {
            LeaseState::Held { by: holder }
        }
    }
}

impl Watcher {
    /// Evaluates the absence of a lease. It was deleted, and its holder does not know yet: as long as the holder may
    /// consider itself the leader, the lease is not free. A process that has never observed it has no holder to wait
    /// for.
    pub(super) fn judge_absent(&self, identity: &str, lease_duration: Duration, now: Duration) -> LeaseState {
        let held = self.last.as_ref().filter(|(spec, since)| {
            let held_by_other =
                spec.holder_identity.as_deref().is_some_and(|h| !h.is_empty() && h != identity);
            held_by_other && now.saturating_sub(*since) < lasts(spec, lease_duration)
        });
        let holder = held.and_then(|(spec, _)| spec.holder_identity.clone());
        holder.map_or(LeaseState::Free, |by| LeaseState::Held { by })
    }
}

/// How long a lease lasts; `otherwise` where it does not state it.
fn lasts(spec: &LeaseSpec, otherwise: Duration) -> Duration {
    spec.lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(otherwise, Duration::from_secs)
}

/// A new lease, held by `identity`.
pub(super) fn new(namespace: &str, name: &str, identity: &str, timing: Timing, now: Timestamp) -> Lease {
    let metadata = ObjectMeta {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    let empty = Lease { metadata, spec: None };
    Lease {
        spec: Some(LeaseSpec { lease_transitions: Some(0), ..held(&empty, identity, timing, now) }),
        ..empty
    }
}

/// `lease` taken or renewed by `identity`, at the version it was read.
pub(super) fn renewed(lease: &Lease, identity: &str, timing: Timing, now: Timestamp) -> Lease {
    Lease { spec: Some(held(lease, identity, timing, now)), ..lease.clone() }
}

fn held(lease: &Lease, identity: &str, timing: Timing, now: Timestamp) -> LeaseSpec {
    let before = lease.spec.clone().unwrap_or_default();
    let is_mine = before.holder_identity.as_deref() == Some(identity);
    let transitions = before.lease_transitions.unwrap_or_default();
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(timing.lease_duration.as_secs()).ok(),
        acquire_time: if is_mine { before.acquire_time } else { Some(MicroTime(now)) },
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(if is_mine { transitions } else { transitions.saturating_add(1) }),
        preferred_holder: before.preferred_holder,
        strategy: before.strategy,
    }
}

/// `lease` released: no holder, and one second so that no candidate waits for the rest of its duration.
pub(super) fn released(lease: &Lease, now: Timestamp) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        renew_time: Some(MicroTime(now)),
        ..lease.spec.clone().unwrap_or_default()
    };
    Lease { spec: Some(spec), ..lease.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const TIMING: Timing = Timing {
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_lease_expires_by_standing_still_before_our_eyes_not_by_its_own_clock() {
        // Its renewTime is years in our past; that alone means nothing.
        let lease = new("ns", "l", "other", TIMING, at(0));
        let mut watcher = Watcher::default();
        assert_eq!(
            watcher.judge(&lease, "me", SECOND, SECOND * 100),
            LeaseState::Held { by: "other".into() }
        );
        assert_eq!(
            watcher.judge(&lease, "me", SECOND, SECOND * 114),
            LeaseState::Held { by: "other".into() }
        );
        let alive = renewed(&lease, "other", TIMING, at(1));
        assert_eq!(
            watcher.judge(&alive, "me", SECOND, SECOND * 115),
            LeaseState::Held { by: "other".into() }
        );
        assert_eq!(watcher.judge(&alive, "me", SECOND, SECOND * 130), LeaseState::Free);
    }

    #[test]
    fn a_released_lease_is_free_at_once() {
        let lease = released(&new("ns", "l", "other", TIMING, at(0)), at(5));
        assert_eq!(Watcher::default().judge(&lease, "me", SECOND, SECOND), LeaseState::Free);
        let spec = lease.spec.unwrap();
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some(""), Some(1)));
    }

    #[test]
    fn a_renewal_keeps_the_time_of_acquisition_and_a_change_of_hands_counts() {
        let first = new("ns", "l", "a", TIMING, at(0));
        let second = renewed(&first, "a", TIMING, at(2)).spec.unwrap();
        assert_eq!(
            (second.acquire_time, second.renew_time),
            (Some(MicroTime(at(0))), Some(MicroTime(at(2))))
        );
        assert_eq!(second.lease_transitions, Some(0));
        let third = renewed(&first, "b", TIMING, at(30)).spec.unwrap();
        assert_eq!((third.acquire_time, third.lease_transitions), (Some(MicroTime(at(30))), Some(1)));
    }

    #[test]
    fn a_takeover_takes_the_duration_and_two_of_the_longest_waits() {
        assert_eq!(TIMING.takeover(), Duration::from_millis(15_000 + 2 * 4_400));
    }

    #[test]
    fn times_that_do_not_fit_together_are_refused_with_the_flag_to_change() {
        assert_eq!(TIMING.validate(), Ok(TIMING));
        let long = Timing { renew_deadline: SECOND * 15, ..TIMING };
        assert!(long.validate().unwrap_err().to_string().contains("--lease-duration-seconds"));
        let often = Timing { retry_period: SECOND * 9, ..TIMING };
        assert!(often.validate().unwrap_err().to_string().contains("--retry-period-seconds"));
    }
}
