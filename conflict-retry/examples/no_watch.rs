//! A program without a watch, run by hand or by a `CronJob`: it makes sure that a Deployment exists and has as many replicas as the
//! settings say. A user may change both meanwhile.
//!
//! `no_watch`: reads `data.replicas` of the `ConfigMap` `settings`, which it makes when there is none.

use std::num::ParseIntError;

use conflict_retry::{ScaleDecision, WriteError, create_or_update, scale};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::json;

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("`replicas` in the settings is not a number")]
    Replicas(#[from] ParseIntError),
    #[error("not written")]
    Write(#[from] WriteError),
    #[error("no answer")]
    Client(#[from] kube::Error),
    #[error("the built-in Deployment is wrong")]
    BuiltIn(#[from] serde_json::Error),
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = Client::try_default().await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let deployments: Api<Deployment> = Api::default_namespaced(client);

    let mut initial = ConfigMap::default();
    initial.metadata.name = Some("settings".to_owned());
    let settings = create_or_update(&maps, &initial, |map| {
        map.data.get_or_insert_default().entry("replicas".to_owned()).or_insert_with(|| "2".to_owned());
    })
    .await?;
    let wanted = settings.data.unwrap_or_default().remove("replicas").unwrap_or_default();

    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}},
        },
    }))?;
    create_or_update(&deployments, &deployment, |deployment| {
        deployment.metadata.labels.get_or_insert_default().insert("managed".to_owned(), "true".to_owned());
    })
    .await?;
    let scaled = scale(&deployments, "web", |seen| {
        let wanted: i32 = wanted.parse()?;
        // Never fewer than a user has asked for.
        Ok::<_, Error>(ScaleDecision::Set(seen.replicas.unwrap_or(0).max(wanted)))
    })
    .await?;
    println!("web has {:?} replicas", scaled.replicas);
    Ok(())
}
