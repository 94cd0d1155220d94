//! Writes a status.

#[expect(clippy::disallowed_methods, reason = "shows the bare PUT that drops the status")]
pub(crate) mod naive {
    use k8s_openapi::api::apps::v1::Deployment;
    use kube::Api;
    use kube::api::PostParams;

    // naive: status
    pub(crate) async fn set_count(deployments: &Api<Deployment>) -> anyhow::Result<()> {
        loop {
            let mut deployment = deployments.get("web").await?;
            deployment.status.get_or_insert_default().collision_count = Some(1);
            // Not `/status`: the server drops the change, and answers 200.
            match deployments.replace("web", &PostParams::default(), &deployment).await {
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                answer => return Ok(answer.map(drop)?),
            }
        }
    }
    // end
}

pub(crate) mod right {
    use conflict_retry::update_status;
    use k8s_openapi::api::apps::v1::Deployment;
    use kube::Api;

    // right: status
    pub(crate) async fn set_count(deployments: &Api<Deployment>) -> anyhow::Result<()> {
        // Writes to `/status`, and reads again after a conflict.
        update_status(deployments, "web", |deployment| {
            deployment.status.get_or_insert_default().collision_count = Some(1);
        })
        .await?;
        Ok(())
    }
    // end
}
