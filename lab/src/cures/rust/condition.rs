//! Owns one condition among those of others.

#[expect(clippy::disallowed_methods, reason = "shows the bare patch of a whole list")]
pub(crate) mod naive {
    use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition};
    use kube::Api;
    use kube::api::{Patch, PatchParams};
    use serde_json::json;

    // naive: condition
    pub(crate) async fn report_seen(deployments: &Api<Deployment>) -> anyhow::Result<()> {
        let status = deployments.get("web").await?.status.unwrap_or_default();
        let mut conditions = status.conditions.unwrap_or_default();
        conditions.retain(|condition| condition.type_ != "Seen");
        conditions.push(DeploymentCondition {
            type_: "Seen".into(),
            status: "True".into(),
            ..DeploymentCondition::default()
        });
        // A merge patch replaces the whole list, with the conditions of others.
        let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
        deployments.patch_status("web", &PatchParams::default(), &patch).await?;
        Ok(())
    }
    // end
}

pub(crate) mod right {
    use conflict_retry::{WriteOptions, apply_status};
    use k8s_openapi::api::apps::v1::Deployment;
    use kube::Api;
    use serde_json::json;

    // right: condition
    pub(crate) async fn report_seen(deployments: &Api<Deployment>) -> anyhow::Result<()> {
        // The field manager owns its own entry of the list, which is found by its type.
        let options = WriteOptions::new("seen-reporter");
        let report = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "status": {"conditions": [{"type": "Seen", "status": "True"}]},
        });
        apply_status(deployments, "web", &report).with(&options).await?;
        Ok(())
    }
    // end
}
