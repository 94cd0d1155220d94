//! A release that watches one namespace.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use anyhow::ensure;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use shared_crds::names::{NODEPOOL_NAMESPACE_LABEL, POOL_FINALIZER};
use shared_crds::{NodePool, NodePoolAutoscaler};
use testbed::cluster::{Cluster, ClusterOptions};
use testbed::objects;
use testbed::places::Places;
use testbed::tandem::Release;
use testbed::test_env::{PATIENCE, RELEASE_NAMESPACE};
use testbed::wait::eventually;

/// Their own control plane: a namespace that does not end would stay for other tests.
static PLACES: Places = Places::new(1, ClusterOptions::private);

async fn install(cluster: &Cluster, namespace: &str) -> Release {
    let values =
        ["nodepoolOperator", "autoscalerOperator"].map(|part| format!("{part}.watchNamespace={namespace}"));
    Release::install(cluster, RELEASE_NAMESPACE, &values).await.unwrap()
}

async fn nodes_of(client: &Client, namespace: &str) -> Vec<Node> {
    let params = ListParams::default().labels(&format!("{NODEPOOL_NAMESPACE_LABEL}={namespace}"));
    Api::<Node>::all(client.clone()).list(&params).await.unwrap().items
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_namespace_that_is_deleted_takes_its_pools_and_their_nodes_along() {
    let cluster = &PLACES.take().await.unwrap();
    let (namespace, client) = (cluster.namespace("watched").await.unwrap(), cluster.client().await.unwrap());
    let name = namespace.name().to_owned();
    let release = install(cluster, &name).await;
    let operators = release.start(cluster).await.unwrap();
    let pools = Api::<NodePool>::namespaced(client.clone(), &name);
    let mut pool = objects::pool("p", 0, 9);
    pool.spec.replicas = Some(2);
    pools.create(&PostParams::default(), &pool).await.unwrap();
    let autoscalers = Api::<NodePoolAutoscaler>::namespaced(client.clone(), &name);
    autoscalers.create(&PostParams::default(), &objects::autoscaler("all", 600)).await.unwrap();
    let deployments = Api::namespaced(client.clone(), &name);
    deployments.create(&PostParams::default(), &objects::deployment("web", "p", 2, "3")).await.unwrap();
    eventually(PATIENCE, "the pool has its nodes", async || {
        operators.keep_alive().await?;
        let ready = pools.get("p").await?.status.and_then(|status| status.ready_replicas);
        ensure!(ready == Some(2), "{ready:?} of 2 are ready");
        Ok(Some(()))
    })
    .await
    .unwrap();

    let deleted = namespace.delete(PATIENCE).await;
    let log = operators.node_pool.log_tail();
    let left = nodes_of(&client, &name).await.len();
    deleted.map_err(|error| error.context(format!("{left} nodes are left; {log}"))).unwrap();
    assert_eq!(left, 0, "nodes are left");
    operators.stop().await.unwrap();
    cluster.mark_reusable();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_of_one_namespace_may_not_write_to_the_pools_of_another() {
    let cluster = &PLACES.take().await.unwrap();
    let (own, other) = (cluster.namespace("own").await.unwrap(), cluster.namespace("other").await.unwrap());
    install(cluster, own.name()).await;
    let admin = cluster.client().await.unwrap();
    for namespace in [own.name(), other.name()] {
        let pools = Api::<NodePool>::namespaced(admin.clone(), namespace);
        pools.create(&PostParams::default(), &objects::pool("p", 0, 1)).await.unwrap();
    }
    let params = PatchParams::default();
    // What each may write anywhere else: of other fields, rbac.fieldFirewall refuses a change in its own namespace too.
    let finalizers = json!({"metadata": {"finalizers": [POOL_FINALIZER]}});
    for (account, main, status) in [
        ("tandem-nodepool-operator", finalizers, json!({"status": {"readyReplicas": 1}})),
        (
            "tandem-autoscaler-operator",
            json!({"spec": {"replicas": 1}}),
            json!({"status": {"autoscaling": null}}),
        ),
    ] {
        let client = cluster.client_for_service_account(RELEASE_NAMESPACE, account).await.unwrap();
        let pools = |namespace: &str| Api::<NodePool>::namespaced(client.clone(), namespace);
        let (main, status) = (Patch::Merge(main), Patch::Merge(status));
        // A policy that an earlier test here has left for its own namespace is in force for another moment.
        eventually(PATIENCE, "only writes to the other namespace are refused", async || {
            pools(own.name()).patch("p", &params, &main).await?;
            pools(own.name()).patch_status("p", &params, &status).await?;
            for answer in [
                pools(other.name()).patch("p", &params, &main).await,
                pools(other.name()).patch_status("p", &params, &status).await,
            ] {
                let is_refused = matches!(&answer, Err(kube::Error::Api(status)) if status.is_forbidden());
                ensure!(is_refused, "{account}: {answer:?}");
            }
            Ok(Some(()))
        })
        .await
        .unwrap();
    }
    // No operator runs that could.
    let own = Api::<NodePool>::namespaced(admin.clone(), own.name());
    let finished = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    own.patch("p", &params, &finished).await.unwrap();
    // A user is none of their business.
    let pools = Api::<NodePool>::namespaced(admin, other.name());
    let label = Patch::Merge(json!({"metadata": {"labels": {"touched": "yes"}}}));
    pools.patch("p", &params, &label).await.unwrap();
    cluster.mark_reusable();
}
