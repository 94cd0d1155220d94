//! Two replicas: a drain of a node leaves one of them.

use e2e::cluster::Cluster;
use e2e::tandem::chart;

use crate::begin;
use crate::release::{NAMESPACE, install_with, json, make_namespace, uninstall};

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_of_the_operators_node_never_takes_both_replicas() {
    let Some(turn) = begin().await else { return };
    let (cluster, Some(_)) = (&turn.cluster, turn.kind()) else { return };
    make_namespace(cluster).await;
    // Two nodes for two replicas: the second worker is off.
    let everywhere = "[{\"key\": \"node-role.kubernetes.io/control-plane\"}]";
    let values =
        ["nodepoolOperator", "autoscalerOperator"].map(|of| format!("{of}.tolerations={everywhere}"));
    install_with(cluster, &chart(), &["--set-json", &values[0], "--set-json", &values[1]]).await;
    for operator in ["nodepool-operator", "autoscaler-operator"] {
        let nodes = nodes_of(cluster, operator).await;
        assert!(nodes.len() == 2 && nodes[0] != nodes[1], "{operator} runs on {nodes:?}");
    }
    let node = "tandem-worker";
    let args = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=90s"];
    let mut drain = std::pin::pin!(cluster.kubectl(&args));
    let mut looks = 0;
    let drained = loop {
        tokio::select! {
            drained = &mut drain => break drained,
            deployments = json(cluster, &["get", "deployments", "--namespace", NAMESPACE]) => {
                for deployment in deployments["items"].as_array().unwrap() {
                    let ready = deployment["status"]["readyReplicas"].as_u64().unwrap_or(0);
                    assert!(ready > 0, "no replica is ready: {deployment:#}");
                }
                looks += 1;
            }
        }
    };
    drained.unwrap();
    assert!(looks > 1, "the drain was over before it was looked at");
    cluster.kubectl(&["uncordon", node]).await.unwrap();
    let rolled_out = ["rollout", "status", "deployment", "--namespace", NAMESPACE, "--timeout=90s"];
    cluster.kubectl(&rolled_out).await.unwrap();
    uninstall(cluster).await;
}

async fn nodes_of(cluster: &Cluster, operator: &str) -> Vec<String> {
    let selector = format!("app.kubernetes.io/component={operator}");
    let pods = json(cluster, &["get", "pods", "--namespace", NAMESPACE, "--selector", &selector]).await;
    let pods = pods["items"].as_array().unwrap();
    pods.iter().map(|pod| pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()).collect()
}
