//! A cron expression of five fields: which minutes it matches. Time zones are not handled here.
//!
//! Syntax and meaning are those of `CronJob`: numbers, names of months and days of the week, `*`, `?`, ranges, lists,
//! steps; 7 is Sunday too; if day of month and day of week are both restricted, either suffices.

use k8s_openapi::jiff::civil::{Date, Time, Weekday};

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
        let day = holds(self.days, date.day().unsigned_abs().into());
        let weekday = holds(self.weekdays, weekday(date.weekday()));
        let either = match self.restricts {
            (true, true) => day || weekday,
            _ => day && weekday,
        };
        either && holds(self.months, date.month().unsigned_abs().into())
    }

    /// The times of a day that it matches, in order.
    pub(super) fn times(&self) -> impl Iterator<Item = Time> + '_ {
        let has = |set: Set, value: i8| holds(set, value.unsigned_abs().into());
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
    day.to_sunday_zero_offset().unsigned_abs().into()
}

/// A star with a step is a restriction, as it is in `CronJob`.
fn is_restricted(field: &str) -> bool {
    !field.split(',').any(|part| matches!(part, "*" | "?" | "*/1" | "?/1"))
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
