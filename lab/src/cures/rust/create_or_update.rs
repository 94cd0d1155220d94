//! Creates an object, or changes the one that is there.

#[expect(clippy::disallowed_methods, reason = "shows the bare create that takes a lost race for the end")]
pub(crate) mod naive {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::PostParams;

    // naive: create-or-update
    pub(crate) async fn ensure(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
        let found = maps.get_opt("fresh").await?;
        let exists = found.is_some();
        let mut map = found.unwrap_or_default();
        map.metadata.name = Some("fresh".into());
        map.data.get_or_insert_default().insert("colour".into(), "blue".into());
        if exists {
            maps.replace("fresh", &PostParams::default(), &map).await?;
        } else {
            // If another client has created it since the read, this is a 409: AlreadyExists.
            maps.create(&PostParams::default(), &map).await?;
        }
        Ok(())
    }
    // end
}

pub(crate) mod right {
    use conflict_retry::create_or_update;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;

    // right: create-or-update
    pub(crate) async fn ensure(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
        let mut initial = ConfigMap::default();
        initial.metadata.name = Some("fresh".into());
        // If another client creates it first, that object is read, and the closure changes it.
        create_or_update(maps, &initial, |map| {
            map.data.get_or_insert_default().insert("colour".into(), "blue".into());
        })
        .await?;
        Ok(())
    }
    // end
}
