//! The only place that reads clocks. Everything else takes a [`Clock`] or, where it is pure, the time itself.
#![expect(clippy::disallowed_methods, reason = "this is the module that may read clocks")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// Wall time and monotonic time, real or fake. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(TimeSource);

#[derive(Clone, Debug)]
enum TimeSource {
    /// tokio's instant, so that a test with paused time advances it.
    System {
        origin: Instant,
        /// How long the machine had been suspended by then.
        suspended: Duration,
    },
    Fake(Arc<Mutex<Times>>),
}

#[derive(Clone, Copy, Debug)]
struct Times {
    wall: Timestamp,
    monotonic: Duration,
    suspended: Duration,
}

/// The handle that advances a fake [`Clock`].
#[derive(Clone, Debug)]
pub struct FakeClock(Arc<Mutex<Times>>);

impl Clock {
    /// The machine's clocks. Monotonic time counts from this call.
    pub fn system() -> Self {
        Self(TimeSource::System { origin: Instant::now(), suspended: suspended() })
    }

    /// A clock that stays at `start` until it is advanced.
    pub fn fake(start: Timestamp) -> (Self, FakeClock) {
        let times =
            Arc::new(Mutex::new(Times { wall: start, monotonic: Duration::ZERO, suspended: Duration::ZERO }));
        (Self(TimeSource::Fake(times.clone())), FakeClock(times))
    }

    /// Wall time: what goes into objects and is shown to users.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            TimeSource::System { .. } => Timestamp::now(),
            TimeSource::Fake(times) => read(times).wall,
        }
    }

    /// How long it is until `at` by wall time; zero when that is over.
    pub fn until(&self, at: Timestamp) -> Duration {
        Duration::try_from(at.duration_since(self.now())).unwrap_or_default()
    }

    /// Time since the clock was created, never going back: for measuring durations. It stops while the machine is
    /// suspended, as timers do.
    pub fn monotonic(&self) -> Duration {
        match &self.0 {
            TimeSource::System { origin, .. } => origin.elapsed(),
            TimeSource::Fake(times) => read(times).monotonic,
        }
    }

    /// Like [`Clock::monotonic`], but including time in which the machine was suspended: for deadlines that have passed
    /// when it wakes because other processes continued. Where the system does not report this (Linux does), or where a
    /// hypervisor stops a machine without telling it, this is the same as `monotonic`.
    pub fn boottime(&self) -> Duration {
        match &self.0 {
            TimeSource::System { origin, suspended: before } => {
                origin.elapsed().saturating_add(suspended().saturating_sub(*before))
            }
            TimeSource::Fake(times) => {
                let times = read(times);
                times.monotonic.saturating_add(times.suspended)
            }
        }
    }
}

impl FakeClock {
    /// Advances both times.
    pub fn advance(&self, by: Duration) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.monotonic = times.monotonic.saturating_add(by);
        times.wall = times.wall.saturating_add(by).unwrap_or(times.wall);
    }

    /// Simulates a suspended machine: the monotonic clock stops for that long.
    pub fn suspend(&self, by: Duration) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.suspended = times.suspended.saturating_add(by);
        times.wall = times.wall.saturating_add(by).unwrap_or(times.wall);
    }
}

/// How long the machine has been suspended since it booted: the difference between its two clocks.
#[cfg(target_os = "linux")]
fn suspended() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    // In this order, so that time passing between the two makes the result longer, never shorter.
    let [monotonic, boottime] = [ClockId::Monotonic, ClockId::Boottime].map(|clock| {
        let time = clock_gettime(clock);
        Duration::try_from(time).unwrap_or_default()
    });
    boottime.saturating_sub(monotonic)
}

#[cfg(not(target_os = "linux"))]
fn suspended() -> Duration {
    Duration::ZERO
}

fn read(times: &Mutex<Times>) -> Times {
    *times.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fake_clock_moves_only_when_told() {
        let (clock, fake) = Clock::fake(Timestamp::UNIX_EPOCH);
        assert_eq!(clock.monotonic(), Duration::ZERO);
        fake.advance(Duration::from_secs(5));
        assert_eq!(clock.monotonic(), Duration::from_secs(5));
        assert_eq!(clock.now().as_second(), 5);
    }

    #[test]
    fn a_suspended_machine_has_two_times() {
        let (clock, fake) = Clock::fake(Timestamp::UNIX_EPOCH);
        fake.advance(Duration::from_secs(5));
        fake.suspend(Duration::from_secs(3600));
        assert_eq!(clock.monotonic(), Duration::from_secs(5));
        assert_eq!(clock.boottime(), Duration::from_secs(3605));
        assert_eq!(clock.now().as_second(), 3605);
    }

    #[test]
    fn a_machine_that_is_awake_has_one_time() {
        let clock = Clock::system();
        let (before, boottime, after) = (clock.monotonic(), clock.boottime(), clock.monotonic());
        // Only a moment passes between two readings.
        let slack = Duration::from_secs(5);
        assert!(before <= boottime + slack && boottime <= after + slack, "{before:?} {boottime:?} {after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_system_clock_follows_paused_time() {
        let clock = Clock::system();
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(clock.monotonic(), Duration::from_secs(3));
        assert!(clock.boottime() >= Duration::from_secs(3));
    }
}
