//! Windows of time that begin again and again: a cron expression, the time zone it is read in, and how long a window
//! lasts. The schedules of a `NodePoolAutoscaler` and the budgets of `spec.disruption` are both made of these.

mod beginnings;
mod clock;
mod cron;
mod zone;

use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp, Zoned};

use self::clock::Clock;
#[cfg(test)]
pub(crate) use self::clock::conversions;
use self::cron::Cron;

/// Why windows cannot be followed, and what to write instead. The text is for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSchedule {
    /// The cron expression cannot be read.
    #[error("{0}")]
    Expression(String),
    /// There is no such time zone.
    #[error("{0}")]
    TimeZone(String),
    /// Windows of this many seconds do not exist.
    #[error("durationSeconds is {0}; write 1 or more")]
    Duration(i32),
}

/// Windows that begin again and again, and may overlap.
#[derive(Clone, Debug)]
pub struct RecurringWindows {
    cron: Cron,
    clock: Clock,
    duration: SignedDuration,
}

/// One window: from its beginning until just before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first instant in it.
    pub began: Timestamp,
    /// The first instant after it.
    pub ends: Timestamp,
}

impl RecurringWindows {
    /// Parses an expression of five fields and the name of a time zone of the IANA database, UTC if absent. A window lasts
    /// `duration_seconds` of elapsed time, also where clocks are put forward or back.
    ///
    /// # Errors
    ///
    /// The first of them that cannot be followed.
    pub fn parse(
        schedule: &str,
        time_zone: Option<&str>,
        duration_seconds: i32,
    ) -> Result<Self, InvalidSchedule> {
        let cron = Cron::parse(schedule).map_err(InvalidSchedule::Expression)?;
        let zone = time_zone.map_or(Ok(TimeZone::UTC), zone::zone).map_err(InvalidSchedule::TimeZone)?;
        if duration_seconds < 1 {
            return Err(InvalidSchedule::Duration(duration_seconds));
        }
        let duration = SignedDuration::from_secs(duration_seconds.into());
        Ok(Self { cron, clock: Clock::new(zone), duration })
    }

    /// The same windows, for many questions about times near `now`: when clocks change within a year of it is looked up once.
    #[must_use]
    pub fn around(self, now: Timestamp) -> Self {
        Self { clock: self.clock.around(now), ..self }
    }

    /// How long a window lasts.
    pub fn duration(&self) -> SignedDuration {
        self.duration
    }

    /// The window that `now` is in; where several overlap, the one that ends last.
    pub fn active(&self, now: Timestamp) -> Option<Window> {
        let earliest = now.checked_sub(self.duration).unwrap_or(Timestamp::MIN);
        let began = beginnings::last(&self.cron, &self.clock, earliest, now)?;
        Some(Window { began, ends: began.checked_add(self.duration).unwrap_or(Timestamp::MAX) })
    }

    /// When the next window begins, after `now`; `None` if none ever does.
    pub fn next_beginning(&self, now: Timestamp) -> Option<Timestamp> {
        beginnings::next(&self.cron, &self.clock, now)
    }

    /// The time after `now` until which [`active`](Self::active) stays the same: the end of its window, or the beginning
    /// of the next one.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        self.active(now).map(|window| window.ends).into_iter().chain(self.next_beginning(now)).min()
    }

    /// `time` on the clock of the windows' time zone, as people read it.
    pub fn local(&self, time: Timestamp) -> Zoned {
        self.clock.local(time)
    }
}

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;
