//! The object that all writers write: a custom resource, as operators write them, with one shared number and one number
//! per writer.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, Client, CustomResource, CustomResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How long the API server may take until it serves a new kind.
const ESTABLISHED: Duration = Duration::from_secs(20);

/// The numbers.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "bench.tandem.dev", version = "v1", kind = "Counter", plural = "counters", namespaced)]
#[kube(derive = "PartialEq")]
pub(crate) struct CounterSpec {
    /// Incremented by all writers.
    pub(crate) value: i64,
    /// One number per writer, incremented by it alone.
    pub(crate) parts: BTreeMap<String, i64>,
}

/// The name of a writer's own number.
pub(crate) fn part(writer: usize) -> String {
    format!("w{writer}")
}

/// Makes the API server serve counters.
pub(crate) async fn install(client: &Client, namespace: &str) -> Result<()> {
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    match crds.create(&PostParams::default(), &Counter::crd()).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(error) => return Err(error).context("cannot create the definition of counters"),
    }
    let counters = Api::<Counter>::namespaced(client.clone(), namespace);
    testbed::wait::eventually(ESTABLISHED, "counters are served", || async {
        Ok(counters.list(&kube::api::ListParams::default()).await.ok().map(|_| ()))
    })
    .await
}

/// Creates a counter at zero, with a number for each of `writers`.
pub(crate) async fn create(client: &Client, namespace: &str, name: &str, writers: usize) -> Result<()> {
    let parts = (0..writers).map(|writer| (part(writer), 0)).collect();
    let counter = Counter::new(name, CounterSpec { value: 0, parts });
    let counters = Api::<Counter>::namespaced(client.clone(), namespace);
    counters
        .create(&PostParams::default(), &counter)
        .await
        .with_context(|| format!("cannot create the counter {name}"))?;
    Ok(())
}

/// The stored result: the shared number and the sum of the others.
pub(crate) async fn total(client: &Client, namespace: &str, name: &str) -> Result<i64> {
    let counters = Api::<Counter>::namespaced(client.clone(), namespace);
    let counter = counters.get(name).await.with_context(|| format!("cannot read the counter {name}"))?;
    Ok(counter.spec.value + counter.spec.parts.values().sum::<i64>())
}
