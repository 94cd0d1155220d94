//! Applies to an object of which another field manager owns a field.

#[expect(clippy::disallowed_methods, reason = "shows the bare apply that is retried in vain")]
pub(crate) mod naive {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{Patch, PatchParams};
    use serde_json::json;

    // naive: field-manager
    pub(crate) async fn apply_settings(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
        let settings = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "settings"},
            "data": {"shade": "dark", "colour": "blue"},
        });
        let mut attempt = 1;
        loop {
            match maps.patch("settings", &PatchParams::apply("mine"), &Patch::Apply(&settings)).await {
                // Another manager owns the colour, and still does at the next attempt.
                Err(kube::Error::Api(status)) if status.is_conflict() && attempt < 5 => attempt += 1,
                answer => return Ok(answer.map(drop)?),
            }
        }
    }
    // end
}

pub(crate) mod right {
    use conflict_retry::{WriteOptions, apply};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use serde_json::json;

    // right: field-manager
    pub(crate) async fn apply_settings(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
        // Only the field that is ours. The colour belongs to another manager, and is left out.
        let settings = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "settings"},
            "data": {"shade": "dark"},
        });
        let options = WriteOptions::new("mine");
        apply(maps, "settings", &settings).with(&options).await?;
        Ok(())
    }
    // end
}
