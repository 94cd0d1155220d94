//! Moments, as statuses and deadlines have them.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// `time` plus `seconds`, within what a timestamp can hold.
pub fn later(time: Timestamp, seconds: i32) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(i64::from(seconds))).unwrap_or(Timestamp::MAX)
}

/// `time` without the fraction of its second, as a status keeps it.
pub fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
