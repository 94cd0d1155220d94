//! Sets one field of an object that others change, too.

#[expect(clippy::disallowed_methods, reason = "shows the bare PUT that takes a conflict for the end")]
pub(crate) mod naive {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::PostParams;

    // naive: change-a-field
    pub(crate) async fn set_colour(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
        let mut map = maps.get("settings").await?;
        map.data.get_or_insert_default().insert("colour".into(), "blue".into());
        // If another client has written since the read, this is a 409, and the colour stays.
        maps.replace("settings", &PostParams::default(), &map).await?;
        Ok(())
    }
    // end
}

pub(crate) mod right {
    use conflict_retry::update;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;

    // right: change-a-field
    pub(crate) async fn set_colour(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
        // After a conflict, `update` reads again and calls the closure again.
        update(maps, "settings", |map| {
            map.data.get_or_insert_default().insert("colour".into(), "blue".into());
        })
        .await?;
        Ok(())
    }
    // end
}
