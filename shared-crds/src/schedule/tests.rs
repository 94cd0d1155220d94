//! Tests of when windows begin and end, also across clock changes, and of the messages for those that cannot be parsed.

use proptest::prelude::*;

use super::*;

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

/// The beginnings of a schedule between two times.
fn beginnings(cron: &str, zone: &str, from: &str, to: &str) -> Vec<String> {
    let (cron, clock) = (Cron::parse(cron).unwrap(), Clock::new(zone::zone(zone).unwrap()));
    let mut all = Vec::new();
    let mut moment = at(from);
    while let Some(next) = beginnings::next(&cron, &clock, moment).filter(|&next| next < at(to)) {
        assert_eq!(beginnings::last(&cron, &clock, moment, next), Some(next), "both ways give the same");
        all.push(next.to_string());
        moment = next;
    }
    all
}

#[test]
fn where_clocks_are_put_forward_a_skipped_time_begins_when_the_gap_ends() {
    for (cron, zone, from, to, expected) in [
        // 02:00 becomes 03:00 at 01:00 UTC.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            "2026-03-30T12:00:00Z",
            vec!["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
        ),
        (
            "0 3 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            "2026-03-29T12:00:00Z",
            vec!["2026-03-29T01:00:00Z"],
        ),
        (
            "*/20 2 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            "2026-03-29T12:00:00Z",
            vec!["2026-03-29T01:00:00Z"],
        ),
        // 02:00 becomes 03:00 at 07:00 UTC.
        (
            "15 2 * * *",
            "America/New_York",
            "2026-03-07T12:00:00Z",
            "2026-03-09T12:00:00Z",
            vec!["2026-03-08T07:00:00Z", "2026-03-09T06:15:00Z"],
        ),
        // Every hour means elapsed time: nothing is made up for.
        (
            "30 * * * *",
            "Europe/Berlin",
            "2026-03-29T00:00:00Z",
            "2026-03-29T03:00:00Z",
            vec!["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z", "2026-03-29T02:30:00Z"],
        ),
        // A whole day that was skipped.
        (
            "0 9 30 12 *",
            "Pacific/Apia",
            "2011-12-28T00:00:00Z",
            "2012-01-02T00:00:00Z",
            vec!["2011-12-30T10:00:00Z"],
        ),
    ] {
        assert_eq!(beginnings(cron, zone, from, to), expected, "{cron} in {zone}");
    }
}

#[test]
fn where_clocks_are_put_back_a_repeated_time_begins_once() {
    for (cron, zone, from, to, expected) in [
        // 03:00 becomes 02:00 at 01:00 UTC.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            "2026-10-26T12:00:00Z",
            vec!["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
        ),
        (
            "0 3 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            "2026-10-25T12:00:00Z",
            vec!["2026-10-25T02:00:00Z"],
        ),
        // 02:00 becomes 01:00 at 06:00 UTC.
        (
            "0,30 1 * * *",
            "America/New_York",
            "2026-10-31T12:00:00Z",
            "2026-11-01T12:00:00Z",
            vec!["2026-11-01T05:00:00Z", "2026-11-01T05:30:00Z"],
        ),
        // Every hour means elapsed time: the hour occurs twice.
        (
            "30 * * * *",
            "Europe/Berlin",
            "2026-10-25T00:00:00Z",
            "2026-10-25T03:00:00Z",
            vec!["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"],
        ),
    ] {
        assert_eq!(beginnings(cron, zone, from, to), expected, "{cron} in {zone}");
    }
}

#[test]
fn a_leap_day_is_waited_for_also_over_a_century_without_one() {
    assert_eq!(
        beginnings("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", "2109-01-01T00:00:00Z"),
        ["2104-02-29T00:00:00Z", "2108-02-29T00:00:00Z"]
    );
}

#[test]
fn a_window_is_active_from_its_beginning_until_just_before_its_end() {
    let office = RecurringWindows::parse("0 8 * * 1-5", Some("Europe/Berlin"), 36_000).unwrap();
    let window = Window { began: at("2026-01-02T07:00:00Z"), ends: at("2026-01-02T17:00:00Z") };
    for (now, active, next) in [
        ("2026-01-02T06:59:59.9Z", None, "2026-01-02T07:00:00Z"),
        ("2026-01-02T07:00:00Z", Some(window), "2026-01-02T17:00:00Z"),
        ("2026-01-02T16:59:59.9Z", Some(window), "2026-01-02T17:00:00Z"),
        ("2026-01-02T17:00:00Z", None, "2026-01-05T07:00:00Z"),
    ] {
        assert_eq!((office.active(at(now)), office.next(at(now))), (active, Some(at(next))), "{now}");
    }
    assert_eq!(office.local(window.began).to_string(), "2026-01-02T08:00:00+01:00[Europe/Berlin]");
}

#[test]
fn of_overlapping_windows_the_active_one_is_that_which_ends_last() {
    let always = RecurringWindows::parse("*/30 * * * *", None, 3600).unwrap();
    let window = Window { began: at("2026-01-01T12:30:00Z"), ends: at("2026-01-01T13:30:00Z") };
    assert_eq!(always.active(at("2026-01-01T12:40:00Z")), Some(window));
    assert_eq!(always.next(at("2026-01-01T12:40:00Z")), Some(at("2026-01-01T13:00:00Z")));
}

#[test]
fn what_cannot_be_followed_says_what_to_write() {
    for (cron, zone, seconds, said) in [
        ("0 25 * * *", None, 60, "no hour; write 0 to 23"),
        ("0 8 * * *", Some("Europe/Berln"), 60, "did you mean Europe/Berlin?"),
        ("0 8 * * *", Some("Mars/Olympus_Mons"), 60, "or leave timeZone out for UTC"),
        ("0 8 * * *", None, 0, "durationSeconds is 0; write 1 or more"),
    ] {
        let problem = RecurringWindows::parse(cron, zone, seconds).unwrap_err().to_string();
        assert!(problem.contains(said), "{problem}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_changes_before_the_next_change(
        cron in prop::sample::select(vec!["30 2 * * *", "0 * * * *", "15 1 * * 0", "0 0 1,15 * *", "*/20 0-3 * * *"]),
        zone in prop::sample::select(vec!["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"]),
        seconds in 1_i32..200_000,
        now in at("2026-01-01T00:00:00Z").as_second()..at("2027-01-01T00:00:00Z").as_second(),
        part in 0_i64..1000,
    ) {
        let windows = RecurringWindows::parse(cron, Some(zone), seconds).unwrap();
        let now = Timestamp::from_second(now).unwrap();
        let next = windows.next(now).unwrap();
        let between = now.as_second() + (next.as_second() - 1 - now.as_second()) * part / 999;
        let between = Timestamp::from_second(between).unwrap();
        prop_assert_eq!(windows.active(between), windows.active(now));
        prop_assert_eq!(windows.next(between), Some(next));
        prop_assert_ne!(windows.active(next), windows.active(now));
    }
}
