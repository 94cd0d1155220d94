//! Whether a cache is current: the API server has answered a short while ago. Controls the gate.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::liveness::{Liveness, Pulse};
use crate::metrics::Metrics;
use crate::readiness::Gate;

/// How long a cache counts as current after its watch was lost. A watch that is opened again delivers what was missed,
/// and an API server that is replaced by another does not leave its clients alone for longer.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// The gate of one cache.
#[derive(Debug)]
pub(super) struct Health {
    resource: String,
    gate: Gate,
    metrics: Metrics,
    pulse: Pulse,
    /// Whether the cache was current at the last check.
    current: bool,
    /// Until when it is current without an answer, and why it is not afterwards.
    until: Option<(Instant, String)>,
}

impl Health {
    /// Not current yet. `gate` is closed.
    pub(super) fn new(resource: String, gate: Gate, metrics: Metrics, liveness: &Liveness) -> Self {
        metrics.cache_current(&resource, false);
        let pulse = liveness.pulse(format!("cache of {resource}"));
        Self { resource, gate, metrics, pulse, current: false, until: None }
    }

    /// Records that the watch works.
    pub(super) fn current(&mut self) {
        self.until = None;
        if !self.current {
            self.current = true;
            self.gate.open();
            self.metrics.cache_current(&self.resource, true);
        }
    }

    /// Records that the watch does not work, because of `why`.
    pub(super) fn doubtful(&mut self, why: String) {
        let at = self.until.take().map_or_else(|| Instant::now() + GRACE, |(at, _)| at);
        if self.current {
            self.until = Some((at, why));
        } else {
            self.gate.close(why);
        }
    }

    /// Records that the cache is invalid until it is listed again.
    pub(super) fn lost(&mut self, why: &str) {
        self.close(why.to_owned());
    }

    fn close(&mut self, why: String) {
        self.until = None;
        self.current = false;
        self.gate.close(why);
        self.metrics.cache_current(&self.resource, false);
    }

    /// Waits for `work`, and closes the gate if the cache stops being current meanwhile.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        self.pulse.beat();
        let mut work = std::pin::pin!(work);
        if let Some((at, why)) = self.until.clone() {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = tokio::time::sleep_until(at) => self.close(why),
            }
        }
        work.await
    }
}

impl Drop for Health {
    /// However the task that fed the cache ended, also by a panic: the cache is outdated from now on.
    fn drop(&mut self) {
        self.close("nothing feeds the cache any more".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::readiness::Readiness;

    fn health() -> (Health, Readiness, Metrics) {
        let (readiness, metrics) = (Readiness::default(), Metrics::new("test", "0").unwrap());
        let gate = readiness.gate("cache of nodes", "not listed yet");
        let liveness = Liveness::new(Clock::system());
        (Health::new("nodes".to_owned(), gate, metrics.clone(), &liveness), readiness, metrics)
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_back_soon_closes_nothing_and_one_that_is_not_does() {
        let (mut health, readiness, metrics) = health();
        health.current();
        health.doubtful("cut".into());
        health.during(tokio::time::sleep(GRACE / 2)).await;
        health.current();
        assert!(readiness.waiting_for().is_empty());

        health.doubtful("cut".into());
        health.during(tokio::time::sleep(GRACE / 2)).await;
        health.doubtful("refused".into());
        health.during(tokio::time::sleep(GRACE)).await;
        assert_eq!(readiness.waiting_for(), [("cache of nodes".to_owned(), "refused".to_owned())]);
        let text = || String::from_utf8(metrics.render().unwrap()).unwrap();
        assert!(
            text().contains("tandem_cache_current{controller=\"test\",resource=\"nodes\"} 0"),
            "{}",
            text()
        );
        health.doubtful("forbidden".into());
        assert_eq!(readiness.waiting_for()[0].1, "forbidden", "the newest reason is shown");
        health.current();
        assert!(readiness.waiting_for().is_empty());
        drop(health);
        assert_eq!(readiness.waiting_for()[0].1, "nothing feeds the cache any more");
    }
}
