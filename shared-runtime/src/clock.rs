//! The only place that reads clocks. Everything else takes a [`Clock`] or, where it is pure, the time itself.
#![expect(clippy::disallowed_methods, reason = "this is the module that may read clocks")]

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;

/// Wall time and monotonic time, real or fake. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    /// tokio's instant, so that a test with paused time moves it.
    System {
        origin: Instant,
    },
    Fake(Arc<Mutex<Times>>),
}

#[derive(Clone, Copy, Debug)]
struct Times {
    wall: Timestamp,
    monotonic: Duration,
}

/// The handle that moves a fake [`Clock`].
#[derive(Clone, Debug)]
pub struct FakeClock(Arc<Mutex<Times>>);

impl Clock {
    /// The machine's clocks. Monotonic time counts from this call.
    pub fn system() -> Self {
        Self(Source::System { origin: Instant::now() })
    }

    /// A clock that stands still at `start` until it is advanced.
    pub fn fake(start: Timestamp) -> (Self, FakeClock) {
        let times = Arc::new(Mutex::new(Times { wall: start, monotonic: Duration::ZERO }));
        (Self(Source::Fake(times.clone())), FakeClock(times))
    }

    /// Wall time: what goes into objects and is shown to people.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System { .. } => Timestamp::now(),
            Source::Fake(times) => read(times).wall,
        }
    }

    /// Time since the clock was made, never going back: what durations are measured with.
    pub fn monotonic(&self) -> Duration {
        match &self.0 {
            Source::System { origin } => origin.elapsed(),
            Source::Fake(times) => read(times).monotonic,
        }
    }
}

impl FakeClock {
    /// Moves both times on.
    pub fn advance(&self, by: Duration) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.monotonic = times.monotonic.saturating_add(by);
        times.wall = times.wall.saturating_add(by).unwrap_or(times.wall);
    }
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

    #[tokio::test(start_paused = true)]
    async fn the_system_clock_follows_paused_time() {
        let clock = Clock::system();
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(clock.monotonic(), Duration::from_secs(3));
    }
}
