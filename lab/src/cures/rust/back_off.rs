//! Writes among writers who are faster.

#[expect(clippy::disallowed_methods, reason = "shows the bare loop without a pause")]
pub(crate) mod naive {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::PostParams;

    // naive: back-off
    pub(crate) async fn set_colour(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
        let mut attempt = 1;
        loop {
            let mut map = maps.get("settings").await?;
            map.data.get_or_insert_default().insert("colour".into(), "blue".into());
            match maps.replace("settings", &PostParams::default(), &map).await {
                // No pause: all five attempts meet the same crowd.
                Err(kube::Error::Api(status)) if status.is_conflict() && attempt < 5 => attempt += 1,
                answer => return Ok(answer.map(drop)?),
            }
        }
    }
    // end
}

pub(crate) mod right {
    use std::time::Duration;

    use conflict_retry::{Backoff, RetryPolicy, WriteOptions, update};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;

    // right: back-off
    pub(crate) async fn set_colour(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
        // Ten attempts, with pauses of 10 ms, 20 ms, 40 ms … 2.56 s, each longer by up to a half at random.
        let backoff = Backoff::new(10, Duration::from_millis(10), 2.0, 0.5, Duration::ZERO)?;
        let options = WriteOptions::new("painter").with_policy(RetryPolicy::from_backoff(backoff)?);
        update(maps, "settings", |map| {
            map.data.get_or_insert_default().insert("colour".into(), "blue".into());
        })
        .with(&options)
        .await?;
        Ok(())
    }
    // end
}
