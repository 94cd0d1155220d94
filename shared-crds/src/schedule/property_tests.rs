//! The beginnings that are found by the fields of an expression are those that all minutes of the days show, also where
//! clocks change.

use std::collections::BTreeSet;

use k8s_openapi::jiff::ToSpan as _;
use k8s_openapi::jiff::civil::{Date, DateTime};
use k8s_openapi::jiff::tz::AmbiguousOffset;
use proptest::prelude::*;

use super::*;

/// With changes by an hour, by half an hour, by two hours and by a day, four times a year, at midnight, a minute after it, in
/// the middle of a minute, and without any.
const ZONES: [&str; 10] = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Pacific/Apia",
    "Africa/Casablanca",
    "America/Havana",
    "America/St_Johns",
    "Africa/Monrovia",
    "UTC",
];

/// All beginnings on the local date.
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
            let beyond = before.to_timestamp(local).unwrap().checked_add(1.nanosecond()).unwrap();
            [zone.preceding(beyond).next().map(|transition| transition.timestamp()), None]
        }
        AmbiguousOffset::Fold { before, after } => {
            [before.to_timestamp(local).ok(), after.to_timestamp(local).ok().filter(|_| hourly)]
        }
    }
}

/// All beginnings on the local date and on those beside it: where clocks are put back over midnight, a time of the day before
/// may come after one of the day.
fn begins_about(cron: &Cron, zone: &TimeZone, date: Date) -> BTreeSet<Timestamp> {
    [date.yesterday().unwrap(), date, date.tomorrow().unwrap()]
        .into_iter()
        .flat_map(|date| begins(cron, zone, date))
        .collect()
}

/// The last beginning in `(after, until]`, by all minutes.
fn slow_last(cron: &Cron, zone: &TimeZone, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
    let first = zone.to_datetime(after).date().yesterday().unwrap();
    let dates = std::iter::successors(Some(zone.to_datetime(until).date()), |date| date.yesterday().ok());
    dates.take_while(|date| *date >= first).find_map(|date| {
        begins_about(cron, zone, date).into_iter().rfind(|begins| after < *begins && *begins <= until)
    })
}

/// The first beginning after `after`, by all minutes.
fn slow_next(cron: &Cron, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let dates = std::iter::successors(Some(zone.to_datetime(after).date()), |date| date.tomorrow().ok());
    dates
        .take(366 * 8 + 2)
        .find_map(|date| begins_about(cron, zone, date).into_iter().find(|&begins| begins > after))
}

/// One field of an expression, of values from `least` to `most`.
fn field(least: u32, most: u32) -> impl Strategy<Value = String> {
    let value = least..=most;
    prop_oneof![
        3 => Just("*".to_owned()),
        3 => value.clone().prop_map(|value| value.to_string()),
        1 => (value.clone(), value.clone()).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => (value.clone(), value).prop_map(|(a, b)| format!("{a},{b}")),
        1 => (2..20_u32).prop_map(|step| format!("*/{step}")),
    ]
}

fn cron() -> impl Strategy<Value = String> {
    let fields = (field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6));
    let any = fields
        .prop_map(|(minute, hour, day, month, weekday)| format!("{minute} {hour} {day} {month} {weekday}"));
    // Every day, so that a change of clocks is met.
    let daily = (field(0, 59), field(0, 4)).prop_map(|(minute, hour)| format!("{minute} {hour} * * *"));
    let names_a_day = "an expression that names a day";
    prop_oneof![any.prop_filter(names_a_day, |cron| Cron::parse(cron).is_ok()), daily]
}

/// Seconds since 1970, from 1960 to 2089.
const SECONDS: std::ops::Range<i64> = -315_619_200..3_786_912_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn beginnings_are_those_that_all_minutes_show(
        cron in cron(),
        zone in prop::sample::select(ZONES.to_vec()),
        at in SECONDS,
        from_change in prop::option::weighted(0.7, -172_800..172_800_i64),
        nanoseconds in prop::sample::select(vec![0, 1, 999_999_999]),
        reach in prop_oneof![1..200_000_i64, 1..40_000_000_i64],
    ) {
        let (cron, zone) = (Cron::parse(&cron).unwrap(), zone::zone(zone).unwrap());
        let at = Timestamp::from_second(at).unwrap();
        // At the change itself, or within two days of it.
        let change = zone.following(at).next().map(|change| change.timestamp());
        let near = change.zip(from_change).map(|(change, seconds)| {
            let seconds = if seconds % 8 == 0 { 0 } else { seconds };
            change.checked_add(SignedDuration::from_secs(seconds)).unwrap()
        });
        let at = near.unwrap_or(at).checked_sub(SignedDuration::from_nanos(nanoseconds)).unwrap();
        let after = at.checked_sub(SignedDuration::from_secs(reach)).unwrap();
        let expected = (slow_last(&cron, &zone, after, at), slow_next(&cron, &zone, at));
        let clock = Clock::new(zone);
        for clock in [clock.clone(), clock.around(at)] {
            let found = (beginnings::last(&cron, &clock, after, at), beginnings::next(&cron, &clock, at));
            prop_assert_eq!(found, expected, "{}", at);
        }
    }
}
