//! A cron expression of five fields: which minutes it matches. Time zones are not handled here.
//!
//! Syntax and meaning are those of `CronJob`: numbers, names of months and days of the week, `*`, `?`, ranges, lists,
//! steps; 7 is Sunday too; if day of month and day of week are both restricted, either suffices.

use k8s_openapi::jiff::civil::{Date, DateTime, Time, Weekday};

/// The values of a field, one bit for each.
type Set = u64;

/// A parsed expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cron {
    minutes: Set,
    hours: Set,
    days: Set,
    months: Set,
    weekdays: Set,
    /// Whether the day of the month, and the day of the week, are restricted.
    restricts: (bool, bool),
}

/// A field: its name, the range of its values, and their names.
struct Field {
    what: &'static str,
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Field; 5] = [
    Field { what: "minute", least: 0, most: 59, names: &[] },
    Field { what: "hour", least: 0, most: 23, names: &[] },
    Field { what: "day of month", least: 1, most: 31, names: &[] },
    Field { what: "month", least: 1, most: 12, names: &MONTHS },
    Field { what: "day of week", least: 0, most: 7, names: &WEEKDAYS },
];
/// Of February in a leap year, and of the other months.
const LAST_DAYS: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

impl Cron {
    /// Parses an expression.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and what is allowed instead.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<_> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = parts[..] else {
            return Err(format!(
                "{text:?} has {} fields; write five: minute, hour, day of month, month, day of week, such as \"0 8 * * 1-5\"",
                parts.len()
            ));
        };
        let [of_minute, of_hour, of_day, of_month, of_weekday] = &FIELDS;
        let weekdays = of_weekday.parse(weekday)?;
        let cron = Self {
            minutes: of_minute.parse(minute)?,
            hours: of_hour.parse(hour)?,
            days: of_day.parse(day)?,
            months: of_month.parse(month)?,
            // Sunday is 0 and 7.
            weekdays: (weekdays | (weekdays >> 7)) & 0x7f,
            restricts: (is_restricted(day), is_restricted(weekday)),
        };
        if cron.ever() { Ok(cron) } else { Err(format!("{text:?} names a day that no month has")) }
    }

    /// Whether the expression matches any day of any year.
    fn ever(&self) -> bool {
        let exists = |month: usize| {
            let days = (1..=LAST_DAYS[month]).fold(0, |set, day| set | bit(day));
            holds(self.months, u32::try_from(month + 1).unwrap_or(0)) && self.days & days != 0
        };
        self.restricts.1 || (0..12).any(exists)
    }

    /// Whether it matches the day.
    pub(super) fn on(&self, date: Date) -> bool {
        let day = holds(self.days, value(date.day()));
        let weekday = holds(self.weekdays, weekday(date.weekday()));
        let either = match self.restricts {
            (true, true) => day || weekday,
            _ => day && weekday,
        };
        either && holds(self.months, value(date.month()))
    }

    /// The first minute that it matches of those that begin from `from` to `to`, both included.
    pub(super) fn first_within(&self, from: DateTime, to: DateTime) -> Option<DateTime> {
        let (mut date, mut earliest) = (from.date(), from.time());
        while date <= to.date() {
            if self.on(date)
                && let Some(time) = self.first_time(earliest)
            {
                return Some(date.to_datetime(time)).filter(|found| *found <= to);
            }
            (date, earliest) = (date.tomorrow().ok()?, Time::MIN);
        }
        None
    }

    /// The last minute that it matches of those that begin from `from` to `to`, both included.
    pub(super) fn last_within(&self, from: DateTime, to: DateTime) -> Option<DateTime> {
        let (mut date, mut latest) = (to.date(), to.time());
        while from.date() <= date {
            if self.on(date)
                && let Some(time) = self.last_time(latest)
            {
                return Some(date.to_datetime(time)).filter(|found| from <= *found);
            }
            (date, latest) = (date.yesterday().ok()?, Time::MAX);
        }
        None
    }

    /// The first time of a day that it matches, from `from` on.
    fn first_time(&self, from: Time) -> Option<Time> {
        let (hour, minute) = (value(from.hour()), value(from.minute()));
        let has_begun = from.second() != 0 || from.subsec_nanosecond() != 0;
        let minutes = self.minutes & from_on(if has_begun { minute + 1 } else { minute });
        if holds(self.hours, hour)
            && let Some(minute) = least(minutes)
        {
            return time(hour, minute);
        }
        time(least(self.hours & from_on(hour + 1))?, least(self.minutes)?)
    }

    /// The last time of a day that it matches, up to `to`.
    fn last_time(&self, to: Time) -> Option<Time> {
        let (hour, minute) = (value(to.hour()), value(to.minute()));
        if holds(self.hours, hour)
            && let Some(minute) = most(self.minutes & !from_on(minute + 1))
        {
            return time(hour, minute);
        }
        time(most(self.hours & !from_on(hour))?, most(self.minutes)?)
    }

    /// The times of a day that it matches, in order.
    #[cfg(test)]
    pub(super) fn times(&self) -> impl Iterator<Item = Time> + '_ {
        let has = |set: Set, number: i8| holds(set, value(number));
        let hours = (0..24_i8).filter(move |hour| has(self.hours, *hour));
        let minutes = move || (0..60_i8).filter(move |minute| has(self.minutes, *minute));
        hours.flat_map(move |hour| minutes().map(move |minute| Time::constant(hour, minute, 0, 0)))
    }

    /// Whether it matches every hour, and so means elapsed time rather than a time of day.
    pub(super) fn is_hourly(&self) -> bool {
        self.hours.count_ones() == 24
    }
}

fn weekday(day: Weekday) -> u32 {
    value(day.to_sunday_zero_offset())
}

/// A star with a step is a restriction, as it is in `CronJob`.
fn is_restricted(field: &str) -> bool {
    !field.split(',').any(|part| matches!(part, "*" | "?" | "*/1" | "?/1"))
}

/// A part of a date or of a time.
fn value(part: i8) -> u32 {
    part.unsigned_abs().into()
}

fn time(hour: u32, minute: u32) -> Option<Time> {
    Time::new(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0).ok()
}

/// All values from `value` on.
const fn from_on(value: u32) -> Set {
    Set::MAX << value
}

fn least(set: Set) -> Option<u32> {
    (set != 0).then(|| set.trailing_zeros())
}

fn most(set: Set) -> Option<u32> {
    set.checked_ilog2()
}

const fn bit(value: u32) -> Set {
    1 << value
}

const fn holds(set: Set, value: u32) -> bool {
    set & bit(value) != 0
}

impl Field {
    fn parse(&self, text: &str) -> Result<Set, String> {
        text.split(',').try_fold(0, |set, part| Ok(set | self.part(part)?))
    }

    fn part(&self, text: &str) -> Result<Set, String> {
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (text, None),
        };
        let by: u32 =
            step.map_or(Ok(1), |step| number(step).filter(|&by| by > 0).ok_or_else(|| self.wrong(text)))?;
        // The second number for Sunday is only for input; a star must not count Sunday twice.
        let last = if self.most == 7 { 6 } else { self.most };
        let (first, last) = match range.split_once('-') {
            _ if matches!(range, "*" | "?") => (self.least, last),
            Some((first, last)) => (self.value(first)?, self.value(last)?),
            None => (self.value(range)?, if step.is_some() { last } else { self.value(range)? }),
        };
        if first > last {
            return Err(format!("{text:?} in {} ends before it begins", self.what));
        }
        Ok((first..=last)
            .step_by(usize::try_from(by).unwrap_or(usize::MAX))
            .fold(0, |set, value| set | bit(value)))
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let named = named.and_then(|at| u32::try_from(at).ok()).map(|at| at + self.least);
        named
            .or_else(|| number(text))
            .filter(|value| (self.least..=self.most).contains(value))
            .ok_or_else(|| self.wrong(text))
    }

    fn wrong(&self, text: &str) -> String {
        let Self { what, least, most, .. } = self;
        let names = match self.names {
            [] => String::new(),
            [first, .., last] => format!(" or {first} to {last}"),
            [one] => format!(" or {one}"),
        };
        format!(
            "{text:?} is no {what}; write {least} to {most}{names}, a range, a list, a step such as */2, or *"
        )
    }
}

/// Digits and nothing else.
fn number(text: &str) -> Option<u32> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::SignedDuration;
    use k8s_openapi::jiff::civil::date;

    use super::*;

    #[test]
    fn expressions_name_the_days_that_cron_job_has_them_name() {
        // 2026-01-01 is a Thursday.
        for (text, days) in [
            ("0 0 * * *", &[1, 2, 3, 4, 5, 6, 7][..]),
            ("0 0 1 * *", &[1]),
            ("0 0 * * mon-FRI", &[1, 2, 5, 6, 7]),
            ("0 0 * * 0", &[4]),
            ("0 0 * * 7", &[4]),
            ("0 0 * * 5-7", &[2, 3, 4]),
            ("0 0 * * sun,6", &[3, 4]),
            ("0 0 3 * 4", &[1, 3]),
            ("0 0 3 * *", &[3]),
            ("0 0 ? * ?", &[1, 2, 3, 4, 5, 6, 7]),
            ("0 0 */3 * *", &[1, 4, 7]),
            // Both are restricted, since a step restricts.
            ("0 0 */6 * 5", &[1, 2, 7]),
            ("0 0 * jan *", &[1, 2, 3, 4, 5, 6, 7]),
            ("0 0 * 2-12 *", &[]),
            ("0 0 5/2 * *", &[5, 7]),
        ] {
            let cron = Cron::parse(text).unwrap();
            let named: Vec<_> = (1..=7_i8).filter(|&day| cron.on(date(2026, 1, day))).collect();
            assert_eq!(named, days.iter().map(|&d| i8::try_from(d).unwrap()).collect::<Vec<_>>(), "{text}");
        }
    }

    #[test]
    fn expressions_name_the_times_of_a_day() {
        for (text, count, first, last) in [
            ("* * * * *", 1440, (0, 0), (23, 59)),
            ("30 8 * * *", 1, (8, 30), (8, 30)),
            ("*/15 9-17 * * *", 36, (9, 0), (17, 45)),
            ("5,50 0,12 * * *", 4, (0, 5), (12, 50)),
            ("10-20/5 3 * * *", 3, (3, 10), (3, 20)),
            ("40/10 3 * * *", 2, (3, 40), (3, 50)),
        ] {
            let cron = Cron::parse(text).unwrap();
            let times: Vec<_> = cron.times().map(|t| (t.hour(), t.minute())).collect();
            assert_eq!((times.len(), times[0], *times.last().unwrap()), (count, first, last), "{text}");
        }
    }

    #[test]
    fn the_nearest_minute_is_that_which_all_minutes_of_the_day_show() {
        let day = date(2026, 1, 1);
        let minutes = || (0..1440).map(|minute| day.at(0, 0, 0, 0) + SignedDuration::from_mins(minute));
        for text in
            ["* * * * *", "30 8 * * *", "*/25 9-17 * * *", "0,59 0,23 * * *", "59 23 * * *", "0 0 * * *"]
        {
            let cron = Cron::parse(text).unwrap();
            let all: Vec<_> = cron.times().map(|time| day.to_datetime(time)).collect();
            let (begin, end) = (day.at(0, 0, 0, 0), day.at(23, 59, 59, 999_999_999));
            for at in minutes().flat_map(|at| [at, at + SignedDuration::from_nanos(1)]) {
                let first = all.iter().copied().find(|time| *time >= at);
                let last = all.iter().copied().rfind(|time| *time <= at);
                assert_eq!(
                    (cron.first_within(at, end), cron.last_within(begin, at)),
                    (first, last),
                    "{text} {at}"
                );
            }
        }
        let cron = Cron::parse("30 8 * * 1").unwrap();
        let (monday, next) = (date(2026, 1, 5).at(8, 30, 0, 0), date(2026, 1, 12).at(8, 30, 0, 0));
        let (before, after) = (date(2026, 1, 5).at(8, 30, 1, 0), date(2026, 1, 12).at(8, 29, 59, 0));
        assert_eq!(
            (cron.first_within(monday, next), cron.last_within(monday, next)),
            (Some(monday), Some(next))
        );
        assert_eq!(
            (cron.first_within(before, next), cron.last_within(monday, after)),
            (Some(next), Some(monday))
        );
        assert_eq!((cron.first_within(before, after), cron.last_within(before, after)), (None, None));
        assert_eq!((cron.first_within(next, monday), cron.last_within(next, monday)), (None, None));
    }

    #[test]
    fn what_is_no_expression_is_refused_with_what_it_could_be() {
        for (text, said) in [
            ("", "has 0 fields"),
            ("@daily", "has 1 fields"),
            ("0 0 8 * * *", "has 6 fields"),
            ("60 * * * *", "no minute; write 0 to 59"),
            ("* 24 * * *", "no hour"),
            ("* * 0 * *", "no day of month"),
            ("* * * 13 *", "no month; write 1 to 12 or jan to dec"),
            ("* * * * 8", "no day of week"),
            ("* * * * monday", "no day of week"),
            ("*/0 * * * *", "no minute"),
            ("5-3 * * * *", "ends before it begins"),
            ("+5 * * * *", "no minute"),
            ("1, * * * *", "no minute"),
            ("99999999999 * * * *", "no minute"),
            ("0 0 30 2 *", "a day that no month has"),
            ("0 0 31 4,6 *", "a day that no month has"),
        ] {
            let problem = Cron::parse(text).unwrap_err();
            assert!(problem.contains(said), "{text}: {problem}");
        }
        assert!(Cron::parse("0 0 29 2 *").is_ok());
        assert!(Cron::parse("0 0 30 2 1").is_ok(), "either day suffices");
    }
}
