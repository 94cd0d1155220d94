//! What the chart asks of a cluster besides what it installs: that the requests of leader election come first, and the definitions of the
//! Prometheus operator where monitors are asked for.

use anyhow::{Context as _, ensure};
use http::Request;
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use kube::client::Body;
use kube::{Api, Client, ResourceExt as _};
use testbed::cluster::{Cluster, ClusterOptions};
use testbed::places;
use testbed::tandem::{Release, chart};
use testbed::test_env::{PATIENCE, RELEASE_NAMESPACE};
use testbed::wait::eventually;

use super::install::PLACES;

/// The UID of the `FlowSchema` under which the API server has handled a request.
async fn flow_schema_of(client: &Client, path: &str) -> anyhow::Result<String> {
    let answer = client.send(Request::get(path).body(Body::empty())?).await?;
    let uid =
        answer.headers().get("x-kubernetes-pf-flowschema-uid").context("the answer names no FlowSchema")?;
    Ok(uid.to_str()?.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_about_the_lease_of_an_operator_are_handled_at_the_level_of_leader_election() {
    let cluster = &PLACES.take().await.unwrap();
    Release::install(cluster, RELEASE_NAMESPACE, &[]).await.unwrap();
    let schemas = Api::<FlowSchema>::all(cluster.client().await.unwrap());
    for account in ["tandem-nodepool-operator", "tandem-autoscaler-operator"] {
        let schema = schemas.get(&format!("{account}-lease")).await.unwrap();
        let level = schema.spec.as_ref().unwrap().priority_level_configuration.name.clone();
        assert_eq!(level, "leader-election");
        let own = schema.uid().unwrap();
        let client = cluster.client_for_service_account(RELEASE_NAMESPACE, account).await.unwrap();
        let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{RELEASE_NAMESPACE}/leases/{account}");
        // The API server learns of a schema by a watch.
        eventually(PATIENCE, "the schema is in force", async || {
            let found = flow_schema_of(&client, &lease).await?;
            ensure!(found == own, "it is handled under {found}");
            Ok(Some(()))
        })
        .await
        .unwrap();
        // The control: everything else stays with the requests of other accounts.
        for other in ["/api/v1/nodes?limit=1", "/apis/tandem.dev/v1alpha1/nodepools?limit=1"] {
            assert_ne!(flow_schema_of(&client, other).await.unwrap(), own, "{account}: {other}");
        }
    }
    cluster.mark_reusable();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_the_definition_of_a_monitor_is_told_which_and_gets_nothing() {
    let _turn = places::turn().await.unwrap();
    // Other tests install the definitions into clusters that they share.
    let cluster = Cluster::start(ClusterOptions::api_only()).await.unwrap();
    let chart = chart();
    let install = ["install", "tandem", chart.to_str().unwrap(), "--namespace", RELEASE_NAMESPACE];
    for (value, kind) in [("serviceMonitor", "ServiceMonitor"), ("podMonitor", "PodMonitor")] {
        let set = format!("metrics.{value}.enabled=true");
        let more = ["--create-namespace", "--set", set.as_str()];
        let refusal = cluster.helm(&[&install[..], &more].concat()).await.unwrap_err();
        let refusal = format!("{refusal:#}");
        let words = format!(
            "metrics.{value}.enabled: this cluster has no {kind} in monitoring.coreos.com/v1; install"
        );
        assert!(refusal.contains(&words), "{refusal}");
    }
    let made = ["get", "deployments,serviceaccounts", "--all-namespaces", "--output", "name"];
    let made = cluster.kubectl(&made).await.unwrap();
    assert!(!made.contains("tandem"), "{made}");
    // The control: without monitors it is installed.
    let none = ["--create-namespace", "--set", "nodepoolOperator.replicas=0,autoscalerOperator.replicas=0"];
    cluster.helm(&[&install[..], &none].concat()).await.unwrap();
}
