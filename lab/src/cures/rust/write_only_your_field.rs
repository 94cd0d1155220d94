//! Sets one field whose value depends on nothing else.

#[expect(clippy::disallowed_methods, reason = "shows the bare PUT without a version")]
pub(crate) mod naive {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::PostParams;

    // naive: write-only-your-field
    pub(crate) async fn set_colour(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
        let mut map = maps.get("settings").await?;
        map.data.get_or_insert_default().insert("colour".into(), "blue".into());
        // No version, no conflict: the old copy replaces what others have written since.
        map.metadata.resource_version = None;
        maps.replace("settings", &PostParams::default(), &map).await?;
        Ok(())
    }
    // end
}

#[expect(
    clippy::disallowed_methods,
    reason = "the value depends on nothing that was read: no version to guard"
)]
pub(crate) mod right {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{Patch, PatchParams};
    use serde_json::json;

    // right: write-only-your-field
    pub(crate) async fn set_colour(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
        // One request, no read: what is not in the patch stays as it is.
        let patch = Patch::Merge(json!({"data": {"colour": "blue"}}));
        maps.patch("settings", &PatchParams::default(), &patch).await?;
        Ok(())
    }
    // end
}
