//! A program that only reports: it owns one condition in the status of a Deployment and applies it. Server-side apply needs no read and no
//! retry: writers of other conditions never conflict with it. `update_status` is for a report that depends on what others have written.
//!
//! `status NAME`: the Deployment to report about.

use conflict_retry::{WriteOptions, apply_status, update_status};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).ok_or("name a Deployment")?;
    let deployments: Api<Deployment> = Api::default_namespaced(Client::try_default().await?);
    let options = WriteOptions::new("reporter");

    let report = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "status": {"conditions": [{"type": "Inspected", "status": "True", "reason": "Complete", "message": "looks fine"}]},
    });
    apply_status(&deployments, &name, &report).with(&options).await?;

    // A report that depends on what is there: at least one, and never fewer than another reporter has said.
    let stored = update_status(&deployments, &name, |deployment| {
        let status = deployment.status.get_or_insert_default();
        status.collision_count = Some(status.collision_count.unwrap_or(0).max(1));
    })
    .with(&options)
    .await?;

    let status = stored.status.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    if !conditions.iter().any(|condition| condition.type_ == "Inspected") {
        return Err("the other report is gone".into());
    }
    println!("{} conditions, and the count is {:?}", conditions.len(), status.collision_count);
    Ok(())
}
