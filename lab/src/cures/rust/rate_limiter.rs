//! Writes at a limited rate, beside a writer who is not limited.

#[expect(clippy::disallowed_methods, reason = "shows the bare loop that waits before each request")]
pub(crate) mod naive {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::PostParams;
    use tokio::time::{Interval, MissedTickBehavior, interval};

    // naive: rate-limiter
    pub(crate) fn two_a_second() -> Interval {
        let mut pace = interval(Duration::from_millis(500));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pace
    }

    pub(crate) async fn set_colour(maps: &Api<ConfigMap>, pace: &mut Interval) -> anyhow::Result<()> {
        let mut attempt = 1;
        loop {
            pace.tick().await;
            let mut map = maps.get("settings").await?;
            map.data.get_or_insert_default().insert("colour".into(), "blue".into());
            // Half a second between the read and the write: by then the copy is old.
            pace.tick().await;
            match maps.replace("settings", &PostParams::default(), &map).await {
                Err(kube::Error::Api(status)) if status.is_conflict() && attempt < 5 => attempt += 1,
                answer => return Ok(answer.map(drop)?),
            }
        }
    }
    // end
}

pub(crate) mod right {
    use std::time::Duration;

    use conflict_retry::protect::{Protection, Rate, RateLimiter};
    use conflict_retry::{Backoff, RetryPolicy, WriteOptions, update};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;

    // right: rate-limiter
    pub(crate) fn two_a_second() -> anyhow::Result<WriteOptions> {
        // It waits before a read, and never between the read and its write.
        let limiter = RateLimiter::new(Rate::new(2.0, 1)?);
        // Twenty attempts, with pauses of 10 ms, each longer by up to a half at random.
        let backoff = Backoff::new(20, Duration::from_millis(10), 1.0, 0.5, Duration::ZERO)?;
        Ok(WriteOptions::new("painter")
            .with_policy(RetryPolicy::from_backoff(backoff)?)
            .with_protection(Protection::default().with_limiter(limiter)))
    }

    pub(crate) async fn set_colour(maps: &Api<ConfigMap>, options: &WriteOptions) -> anyhow::Result<()> {
        update(maps, "settings", |map| {
            map.data.get_or_insert_default().insert("colour".into(), "blue".into());
        })
        .with(options)
        .await?;
        Ok(())
    }
    // end
}
