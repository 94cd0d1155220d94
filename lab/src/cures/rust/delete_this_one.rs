//! Deletes the object that was read, and no other of its name.

#[expect(clippy::disallowed_methods, reason = "shows the bare DELETE by name")]
pub(crate) mod naive {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::DeleteParams;
    use kube::{Api, ResourceExt as _};

    // naive: delete-this-one
    pub(crate) async fn delete_settings(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
        let map = maps.get("settings").await?;
        // By now another object may have this name.
        maps.delete(&map.name_any(), &DeleteParams::default()).await?;
        Ok(())
    }
    // end
}

pub(crate) mod right {
    use conflict_retry::{DeleteOutcome, WriteOptions, once};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{DeleteParams, Preconditions};

    // right: delete-this-one
    pub(crate) async fn delete_settings(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
        let map = maps.get("settings").await?;
        // The UID: no other object of this name. The version: not if it has changed since.
        let preconditions =
            Some(Preconditions { uid: map.metadata.uid, resource_version: map.metadata.resource_version });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match once::delete(maps, "settings", &WriteOptions::default(), &params).await? {
            DeleteOutcome::Deleted | DeleteOutcome::Terminating(_) | DeleteOutcome::Gone => Ok(()),
            DeleteOutcome::Conflict(status) => anyhow::bail!("not deleted: {}", status.message),
        }
    }
    // end
}
