//! Helpers for timestamps, as statuses and deadlines hold them.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// `time` plus `seconds`, limited to what a timestamp can represent.
pub(crate) fn later(time: Timestamp, seconds: i32) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(i64::from(seconds))).unwrap_or(Timestamp::MAX)
}

/// `time` without fractions of a second, as a status holds it.
pub(crate) fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
