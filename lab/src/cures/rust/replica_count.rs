//! Sets a replica count that depends on the present one.

#[expect(clippy::disallowed_methods, reason = "shows the bare PUT of a decision that is too old")]
pub(crate) mod naive {
    use k8s_openapi::api::apps::v1::Deployment;
    use kube::Api;
    use kube::api::PostParams;

    // naive: replica-count
    pub(crate) async fn add_two(deployments: &Api<Deployment>) -> anyhow::Result<()> {
        let mut deployment = deployments.get("web").await?;
        let replicas = deployment.spec.get_or_insert_default().replicas.unwrap_or(1) + 2;
        loop {
            deployment.spec.get_or_insert_default().replicas = Some(replicas);
            match deployments.replace("web", &PostParams::default(), &deployment).await {
                // Takes the new version, and keeps the count that was made from the old one.
                Err(kube::Error::Api(status)) if status.is_conflict() => {
                    deployment = deployments.get("web").await?;
                }
                answer => return Ok(answer.map(drop)?),
            }
        }
    }
    // end
}

pub(crate) mod right {
    use conflict_retry::scale;
    use k8s_openapi::api::apps::v1::Deployment;
    use kube::Api;

    // right: replica-count
    pub(crate) async fn add_two(deployments: &Api<Deployment>) -> anyhow::Result<()> {
        // Through `/scale`. If the count has changed, the closure is called again with the new one.
        scale(deployments, "web", |seen| seen.replicas.unwrap_or(1) + 2).await?;
        Ok(())
    }
    // end
}
