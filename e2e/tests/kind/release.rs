//! The release of the chart, as a user types it.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use serde_json::Value;
use testbed::borrowed;
use testbed::cluster::Cluster;
use testbed::operators::OperatorKind;
use testbed::tandem::chart;
use testbed::test_env::RELEASE_NAMESPACE;
use testbed::wait::{PATIENCE, eventually};

use crate::place::values;

/// The namespace of the release.
pub(crate) const NAMESPACE: &str = RELEASE_NAMESPACE;

/// Installs the chart as it is, as [`install_with`] does.
pub(crate) async fn install(cluster: &Cluster) {
    make_namespace(cluster).await;
    install_with(cluster, &chart(), &[]).await;
}

/// Removes what a test before has left, because it failed.
pub(crate) async fn clean(cluster: &Cluster) {
    borrowed::clean(cluster, Duration::from_secs(60)).await.unwrap();
}

/// The release's namespace, which enforces the restricted level of Pod Security.
pub(crate) async fn make_namespace(cluster: &Cluster) {
    let level = ("pod-security.kubernetes.io/enforce", "restricted");
    borrowed::make_namespace(cluster, NAMESPACE, &[level]).await.unwrap();
}

/// A namespace with these objects.
pub(crate) async fn make(cluster: &Cluster, namespace: &str, manifest: &str) {
    borrowed::make_namespace(cluster, namespace, &[]).await.unwrap();
    let apply = ["apply", "--namespace", namespace, "--filename", "-"];
    cluster.kubectl_with_input(&apply, manifest).await.unwrap();
}

/// Installs a chart, and waits until its Pods are ready. The images are there already, so nothing is pulled.
pub(crate) async fn install_with(cluster: &Cluster, chart: &Path, more: &[&str]) {
    release(cluster, "install", chart, more).await;
}

/// Upgrades the release to this chart, and waits until its Pods are ready.
pub(crate) async fn upgrade(cluster: &Cluster, chart: &Path, more: &[&str]) {
    release(cluster, "upgrade", chart, more).await;
}

async fn release(cluster: &Cluster, verb: &str, chart: &Path, more: &[&str]) {
    let chart = chart.to_str().unwrap();
    let args = [verb, "tandem", chart, "--namespace", NAMESPACE, "--wait", "--timeout", "180s"];
    let values = values();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    if let Err(error) = cluster.helm(&[&args, &*values, more].concat()).await {
        panic!("{error:#}\n{}", what_runs(cluster).await);
    }
}

/// For messages: the nodes, the Pods, their events and their logs, and the Pods of the cluster itself.
pub(crate) async fn what_runs(cluster: &Cluster) -> String {
    let wide = ["--output", "wide"];
    let of_cluster = ["get", "pods", "--namespace", "kube-system"];
    let mut text = String::new();
    for args in [&[&["get", "nodes"], &wide[..]].concat(), &[&of_cluster, &wide[..]].concat()] {
        text += &cluster.kubectl(args).await.unwrap_or_else(|error| format!("{error:#}"));
        text += "\n";
    }
    for args in [
        &["get", "pods", "--output", "wide"][..],
        &["get", "events"],
        &["logs", "--selector", "app.kubernetes.io/instance=tandem", "--tail", "20", "--prefix"],
    ] {
        let all = [args, &["--namespace", NAMESPACE]].concat();
        text += &cluster.kubectl(&all).await.unwrap_or_else(|error| format!("{error:#}"));
        text += "\n";
    }
    text
}

/// What the program of `helm test` says, when it runs on this machine: where Pods do not start, its own does not either.
pub(crate) async fn checked(kubeconfig: &Path, seconds: u8) -> String {
    let check = tokio::process::Command::new(OperatorKind::NodePool.binary().await.unwrap())
        .args(["check", "--namespace", NAMESPACE, "--timeout-seconds", &seconds.to_string(), "--kubeconfig"])
        .arg(kubeconfig)
        .output()
        .await
        .unwrap();
    String::from_utf8_lossy(&check.stdout).into_owned()
}

/// As a user types it.
pub(crate) const UNINSTALL: [&str; 7] =
    ["uninstall", "tandem", "--namespace", NAMESPACE, "--wait", "--timeout", "180s"];

pub(crate) async fn uninstall(cluster: &Cluster) {
    cluster.helm(&UNINSTALL).await.unwrap();
    cluster.kubectl(&["delete", "namespace", NAMESPACE, "--timeout=180s"]).await.unwrap();
}

pub(crate) async fn json(cluster: &Cluster, args: &[&str]) -> Value {
    let output = cluster.kubectl(&[args, &["--output", "json"]].concat()).await.unwrap();
    serde_json::from_str(&output).unwrap()
}

/// Scales the pool `kept`.
pub(crate) async fn scale(cluster: &Cluster, replicas: usize) {
    let replicas = format!("--replicas={replicas}");
    cluster.kubectl(&["scale", "--namespace", "kept", "nodepools.tandem.dev/kept", &replicas]).await.unwrap();
}

/// Of the nodes of the pool `kept`.
pub(crate) async fn node_uids(cluster: &Cluster) -> Vec<String> {
    let nodes = json(cluster, &["get", "nodes", "--selector", "tandem.dev/nodepool=kept"]).await;
    let nodes = nodes["items"].as_array().cloned().unwrap_or_default();
    nodes.iter().map(|node| node["metadata"]["uid"].as_str().unwrap().to_owned()).collect()
}

/// Waits until the pool has exactly so many nodes, and says that they are ready.
pub(crate) async fn nodes_are_ready(cluster: &Cluster, wanted: usize) {
    let what = format!("{wanted} nodes are ready");
    let settled = eventually(PATIENCE, &what, || async {
        let pool = json(cluster, &["get", "nodepools.tandem.dev/kept", "--namespace", "kept"]).await;
        let ready = pool["status"]["readyReplicas"].as_u64().unwrap_or(0);
        let found = node_uids(cluster).await.len();
        ensure!((found, ready) == (wanted, u64::try_from(wanted)?), "{ready} of {found}: {}", pool["status"]);
        Ok(Some(()))
    });
    if let Err(error) = settled.await {
        panic!("{error:#}\n{}", what_runs(cluster).await);
    }
}

/// Two simulated nodes, in the namespace `kept`.
pub(crate) const POOL: &str = r#"
apiVersion: tandem.dev/v1alpha1
kind: NodePool
metadata: {name: kept}
spec:
  replicas: 2
  minReplicas: 0
  maxReplicas: 5
  template: {spec: {capacity: {cpu: "4", memory: 16Gi, pods: "110"}}}
  provider: {simulated: {provisionSeconds: 1}}
"#;
