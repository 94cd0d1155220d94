//! Writes behind a circuit breaker: to a contested object, to a quiet one, and to one for which the server is down.

/// Writes to the object for which the server is down. They fail; the proxy counts how often it is asked.
const TIMES: usize = 10;

#[expect(clippy::disallowed_methods, reason = "shows the bare loop behind a breaker that counts conflicts")]
pub(crate) mod naive {
    use std::time::Duration;

    use anyhow::bail;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::PostParams;
    use tokio::time::{Instant, sleep};

    // naive: circuit-breaker
    #[derive(Default)]
    struct Breaker {
        failures: u32,
        opened: Option<Instant>,
    }

    impl Breaker {
        fn is_open(&self) -> bool {
            let minute = Duration::from_secs(60);
            self.failures >= 5 && self.opened.is_some_and(|opened| opened.elapsed() < minute)
        }

        /// Every error counts: a conflict, too, which is the answer of a healthy server.
        fn record(&mut self, is_success: bool) {
            self.failures = if is_success { 0 } else { self.failures + 1 };
            self.opened = Some(Instant::now());
        }
    }

    async fn attempt(maps: &Api<ConfigMap>, name: &str) -> Result<(), kube::Error> {
        let mut map = maps.get(name).await?;
        map.data.get_or_insert_default().insert("colour".into(), "blue".into());
        maps.replace(name, &PostParams::default(), &map).await.map(drop)
    }

    async fn set_colour(maps: &Api<ConfigMap>, name: &str, breaker: &mut Breaker) -> anyhow::Result<()> {
        for _ in 0..10 {
            if breaker.is_open() {
                bail!("{name}: circuit breaker is open");
            }
            let answer = attempt(maps, name).await;
            breaker.record(answer.is_ok());
            match answer {
                Err(kube::Error::Api(status)) if status.is_conflict() => {
                    sleep(Duration::from_millis(10)).await;
                }
                answer => return Ok(answer?),
            }
        }
        bail!("{name}: ten attempts, ten conflicts")
    }
    // end

    /// All three.
    pub(crate) async fn set_colours(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
        let mut breaker = Breaker::default();
        let contested = set_colour(maps, "settings", &mut breaker).await;
        let quiet = set_colour(maps, "quiet", &mut breaker).await;
        for _ in 0..super::TIMES {
            set_colour(maps, "down", &mut breaker).await.ok();
        }
        contested.and(quiet)
    }
}

pub(crate) mod right {
    use std::time::Duration;

    use conflict_retry::protect::{BreakerSettings, CircuitBreaker, Protection};
    use conflict_retry::{Backoff, RetryPolicy, WriteOptions, update};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;

    // right: circuit-breaker
    fn behind_breaker() -> anyhow::Result<WriteOptions> {
        // It opens after five faults in a row: no answer, or an overloaded or failing API server. A conflict or a failing
        // webhook is no fault. After a minute one request is let through, the probe, and its answer decides.
        let minute = Duration::from_secs(60);
        let breaker = CircuitBreaker::new(BreakerSettings::new(5, minute, minute * 10)?);
        // Ten attempts, with pauses of 10 ms, each longer by up to a half at random.
        let backoff = Backoff::new(10, Duration::from_millis(10), 1.0, 0.5, Duration::ZERO)?;
        Ok(WriteOptions::new("painter")
            .with_policy(RetryPolicy::from_backoff(backoff)?)
            .with_protection(Protection::default().with_breaker(breaker)))
    }

    async fn set_colour(maps: &Api<ConfigMap>, name: &str, options: &WriteOptions) -> anyhow::Result<()> {
        update(maps, name, |map| {
            map.data.get_or_insert_default().insert("colour".into(), "blue".into());
        })
        .with(options)
        .await?;
        Ok(())
    }
    // end

    /// All three.
    pub(crate) async fn set_colours(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
        let options = behind_breaker()?;
        let contested = set_colour(maps, "settings", &options).await;
        let quiet = set_colour(maps, "quiet", &options).await;
        for _ in 0..super::TIMES {
            set_colour(maps, "down", &options).await.ok();
        }
        contested.and(quiet)
    }
}
