//! When a schedule begins, in its time zone.
//!
//! Where clocks are put forward, a skipped time begins at the first instant after the gap. Where they are put back, a
//! time that occurs twice begins the first time only. A schedule that matches every hour means elapsed time: it skips
//! what the clock skips and begins both times that an hour occurs.
//!
//! The matching minute is found on the local clock, by the fields of the expression; only the minute that is found is
//! turned into an instant. `property_tests` compares with all minutes, one by one.

use k8s_openapi::jiff::civil::DateTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::clock::{Clock, Period, following, preceding};
use super::cron::Cron;

/// From 29 February to the next one, across a century year that is no leap year.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours((366 * 8 + 2) * 24);

/// The last beginning in `(after, until]`.
pub(super) fn last(cron: &Cron, clock: &Clock, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
    let mut period = clock.period(until);
    loop {
        let (from, to) = minutes(cron, &period, after, until);
        let found = cron.last_within(from, to).and_then(|local| period.offset.to_timestamp(local).ok());
        if let Some(last) = found.or_else(|| made_up_for(cron, &period, after, until)) {
            return Some(last);
        }
        let (began, _) = period.began.filter(|(began, _)| after < *began)?;
        period = clock.period(preceding(began));
    }
}

/// The first beginning after `after`.
pub(super) fn next(cron: &Cron, clock: &Clock, after: Timestamp) -> Option<Timestamp> {
    let until = after.checked_add(LONGEST_WAIT).unwrap_or(Timestamp::MAX);
    let mut period = clock.period(following(after));
    loop {
        let found = || {
            let (from, to) = minutes(cron, &period, after, until);
            cron.first_within(from, to).and_then(|local| period.offset.to_timestamp(local).ok())
        };
        if let Some(first) = made_up_for(cron, &period, after, until).or_else(found) {
            return Some(first);
        }
        period = clock.period(period.ends.filter(|ends| *ends <= until)?);
    }
}

/// The local times of the period that are in `(after, until]` and of which each may begin the schedule; the first is after
/// the last if there are none.
fn minutes(cron: &Cron, period: &Period, after: Timestamp, until: Timestamp) -> (DateTime, DateTime) {
    let Period { began, ends, offset } = *period;
    let first = began.map_or(following(after), |(began, _)| began.max(following(after)));
    let last = ends.map_or(until, |ends| until.min(preceding(ends)));
    // Where clocks were put back, the times up to then have begun already.
    let old = began.filter(|_| !cron.is_hourly()).map(|(began, before)| before.to_datetime(began));
    let first = offset.to_datetime(first);
    (old.map_or(first, |old| old.max(first)), offset.to_datetime(last))
}

/// The beginning of the period if it is in `(after, until]` and the clock skipped a time of the schedule there.
fn made_up_for(cron: &Cron, period: &Period, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
    let (began, before) = period.began.filter(|(began, _)| after < *began && *began <= until)?;
    if cron.is_hourly() {
        return None;
    }
    // Where clocks were put back, the first of these is after the last.
    let skipped = (before.to_datetime(began), period.offset.to_datetime(preceding(began)));
    cron.first_within(skipped.0, skipped.1).map(|_| began)
}
