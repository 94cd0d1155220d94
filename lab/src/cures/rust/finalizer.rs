//! Adds a finalizer next to those of others.

#[expect(clippy::disallowed_methods, reason = "shows the bare patch of a whole list")]
pub(crate) mod naive {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{Patch, PatchParams};
    use serde_json::json;

    // naive: finalizer
    pub(crate) async fn hold(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
        let mut finalizers = maps.get("settings").await?.metadata.finalizers.unwrap_or_default();
        finalizers.push("example.com/mine".into());
        // A merge patch replaces the whole list. Without a version, one that was added since is lost.
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        maps.patch("settings", &PatchParams::default(), &patch).await?;
        Ok(())
    }
    // end
}

pub(crate) mod right {
    use conflict_retry::add_finalizer;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;

    // right: finalizer
    pub(crate) async fn hold(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
        // Sends the list with the version that it was read at, and reads again after a conflict.
        add_finalizer(maps, "settings", "example.com/mine").await?;
        Ok(())
    }
    // end
}
