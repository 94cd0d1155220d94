//! An API server that has forgotten old versions, as each does after a while: etcd is compacted every five minutes, and the
//! server's own memory of changes is limited.

use anyhow::{Context as _, Result};
use kube::{Client, Config};
use serde_json::{Value, json};
use testbed::cluster::Cluster;

/// Lets both forget every version before `newest` at once: etcd is told to compact, and the API server is started again.
///
/// # Errors
/// When the cluster has no etcd to speak with, or the API server does not come back.
pub async fn forget_versions_before(cluster: &Cluster, newest: &str) -> Result<()> {
    let address = cluster.etcd().context("no etcd to speak with")?;
    let etcd = Client::try_from(Config::new(address.parse().context("no address")?))?;
    let body = serde_json::to_vec(&json!({"revision": newest, "physical": true}))?;
    let request = http::Request::post("/v3/kv/compaction").body(body)?;
    etcd.request::<Value>(request).await.context("etcd does not compact")?;
    cluster.restart_api_server().await
}
