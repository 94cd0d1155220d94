//! The clock of a time zone, as periods in which its offset from UTC stays the same: within one, local times and instants
//! differ by a constant. All that is asked of a time zone is asked here.

use k8s_openapi::jiff::tz::{Offset, TimeZone};
use k8s_openapi::jiff::{SignedDuration, Timestamp, Zoned};

/// How far around a time [`Clock::around`] looks.
const YEAR: SignedDuration = SignedDuration::from_hours(366 * 24);
/// The step from an instant to the next one.
const STEP: SignedDuration = SignedDuration::from_nanos(1);

/// The clock of a time zone.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    zone: TimeZone,
    /// Periods that are looked up already, in order.
    known: Vec<Period>,
}

/// A period in which the offset stays the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    /// Its first instant, and the offset before it; `None` if there was no other.
    pub(super) began: Option<(Timestamp, Offset)>,
    /// The first instant after it; `None` if it does not end.
    pub(super) ends: Option<Timestamp>,
    /// The offset in it.
    pub(super) offset: Offset,
}

impl Clock {
    pub(super) const fn new(zone: TimeZone) -> Self {
        Self { zone, known: Vec::new() }
    }

    /// The same clock, with the periods of a year around `at` looked up.
    pub(super) fn around(self, at: Timestamp) -> Self {
        let until = at.checked_add(YEAR).unwrap_or(Timestamp::MAX);
        let mut from = Some(at.checked_sub(YEAR).unwrap_or(Timestamp::MIN));
        let mut known = Vec::new();
        while let Some(begins) = from.filter(|begins| *begins <= until) {
            let period = Period::of(&self.zone, begins);
            from = period.ends;
            known.push(period);
        }
        Self { known, ..self }
    }

    /// The period that `at` is in.
    pub(super) fn period(&self, at: Timestamp) -> Period {
        let known = self.known.iter().find(|period| period.has(at)).copied();
        known.unwrap_or_else(|| Period::of(&self.zone, at))
    }

    /// `at` as people of the time zone read it.
    pub(super) fn local(&self, at: Timestamp) -> Zoned {
        count(1);
        at.to_zoned(self.zone.clone())
    }
}

impl Period {
    fn of(zone: &TimeZone, at: Timestamp) -> Self {
        count(4);
        let began = zone.preceding(following(at)).next().and_then(|change| {
            let began = change.timestamp();
            Some((began, zone.to_offset(began.checked_sub(STEP).ok()?)))
        });
        let ends = zone.following(at).next().map(|change| change.timestamp());
        Self { began, ends, offset: zone.to_offset(at) }
    }

    fn has(&self, at: Timestamp) -> bool {
        self.began.is_none_or(|(began, _)| began <= at) && self.ends.is_none_or(|ends| at < ends)
    }
}

/// The instant after `at`.
pub(super) fn following(at: Timestamp) -> Timestamp {
    at.checked_add(STEP).unwrap_or(Timestamp::MAX)
}

/// The instant before `at`.
pub(super) fn preceding(at: Timestamp) -> Timestamp {
    at.checked_sub(STEP).unwrap_or(Timestamp::MIN)
}

#[cfg(not(test))]
const fn count(_: usize) {}

#[cfg(test)]
thread_local! {
    static CONVERSIONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
fn count(conversions: usize) {
    CONVERSIONS.with(|all| all.set(all.get() + conversions));
}

/// How often this thread has asked a time zone for an offset or for a change of one.
#[cfg(test)]
pub(crate) fn conversions() -> usize {
    CONVERSIONS.with(std::cell::Cell::get)
}
