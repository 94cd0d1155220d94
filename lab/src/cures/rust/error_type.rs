//! Finds a conflict in an error that was given context.

#[expect(clippy::disallowed_methods, reason = "shows the bare PUT whose error is wrapped")]
pub(crate) mod naive {
    use anyhow::anyhow;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::PostParams;

    // naive: error-type
    async fn set_colour(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
        let mut map = maps.get("settings").await?;
        map.data.get_or_insert_default().insert("colour".into(), "blue".into());
        let answer = maps.replace("settings", &PostParams::default(), &map).await;
        // Keeps the text of the error, and forgets its type.
        answer.map(drop).map_err(|error| anyhow!("cannot set the colour: {error}"))
    }

    pub(crate) async fn what_happened(maps: &Api<ConfigMap>) -> &'static str {
        match set_colour(maps).await {
            Ok(()) => "written",
            Err(error) => match error.downcast_ref::<kube::Error>() {
                Some(kube::Error::Api(status)) if status.is_conflict() => "conflict",
                _ => "other",
            },
        }
    }
    // end
}

#[expect(clippy::disallowed_methods, reason = "the bare PUT whose error is wrapped")]
pub(crate) mod right {
    use anyhow::Context as _;
    use conflict_retry::is_conflict;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::PostParams;

    // right: error-type
    async fn set_colour(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
        let mut map = maps.get("settings").await?;
        map.data.get_or_insert_default().insert("colour".into(), "blue".into());
        let answer = maps.replace("settings", &PostParams::default(), &map).await;
        // Keeps the error as the source.
        answer.map(drop).context("cannot set the colour")
    }

    pub(crate) async fn what_happened(maps: &Api<ConfigMap>) -> &'static str {
        match set_colour(maps).await {
            Ok(()) => "written",
            Err(error) if error.downcast_ref::<kube::Error>().is_some_and(is_conflict) => "conflict",
            Err(_) => "other",
        }
    }
    // end
}
