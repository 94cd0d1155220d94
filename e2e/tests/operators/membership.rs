//! Which nodes belong to a pool: those that the operator recorded, and none that only claims so.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::names::{
    MEMBER_LABEL, MEMBER_NAMESPACE_LABEL, NODEPOOL_LABEL, NODEPOOL_NAMESPACE_LABEL, member_labels,
};
use testbed::objects;
use testbed::test_env::TestEnv;

/// The client of a kubelet, as the API server's authorizer and admission know it.
async fn kubelet(env: &TestEnv, node: &str) -> Client {
    let mut config = env.cluster.client_config().await.unwrap();
    config.auth_info.impersonate = Some(format!("system:node:{node}"));
    config.auth_info.impersonate_groups = Some(vec!["system:nodes".to_owned()]);
    Client::try_from(config).unwrap()
}

fn node(name: &str, labels: &[(&'static str, String)]) -> Node {
    let mut all = json!({"kubernetes.io/hostname": name});
    for (key, value) in labels {
        all[*key] = json!(value);
    }
    serde_json::from_value(json!({"metadata": {"name": name, "labels": all}})).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_claims_a_pool_in_its_own_labels_does_not_join_it() {
    let env = TestEnv::begin("claims", &[]).await.unwrap();
    env.create(&objects::pool("workers", 1, 3)).await.unwrap();
    env.settles("workers", 1).await.unwrap();

    let impostor = format!("impostor-{}", env.namespace());
    let own: Api<Node> = Api::all(kubelet(&env, &impostor).await);
    let labels = member_labels(env.namespace(), "workers");
    // What the operator records, no kubelet can say of itself: neither when it registers nor later.
    let refused = own.create(&PostParams::default(), &node(&impostor, &labels)).await.unwrap_err();
    let message = refused.to_string();
    assert!(message.contains(MEMBER_LABEL) && message.contains("is not allowed"), "{message}");
    let claims: Vec<_> =
        labels.iter().filter(|(key, _)| !key.contains("node-restriction")).cloned().collect();
    assert_eq!(claims.len(), 2);
    own.create(&PostParams::default(), &node(&impostor, &claims)).await.unwrap();
    let record: Value = json!({"metadata": {"labels": {
        MEMBER_LABEL: "workers", MEMBER_NAMESPACE_LABEL: env.namespace(),
    }}});
    let patched = own.patch(&impostor, &PatchParams::default(), &Patch::Strategic(record)).await;
    assert!(patched.unwrap_err().to_string().contains(MEMBER_LABEL));

    // It is there with the pool's public labels, and the pool neither counts it nor, scaled to nothing, removes it.
    let at = |replicas: i32| json!({"spec": {"minReplicas": 0, "replicas": replicas}});
    let pools = env.api::<NodePool>();
    for replicas in [2, 0] {
        let scale = Patch::Merge(at(replicas));
        pools.patch("workers", &PatchParams::default(), &scale).await.unwrap();
        env.settles("workers", replicas).await.unwrap();
    }
    let nodes: Api<Node> = Api::all(env.cluster.client().await.unwrap());
    let left = nodes.get(&impostor).await.unwrap();
    let labels = left.metadata.labels.unwrap();
    assert!(labels.contains_key(NODEPOOL_LABEL) && labels.contains_key(NODEPOOL_NAMESPACE_LABEL));
    assert_eq!((left.metadata.deletion_timestamp, left.metadata.finalizers), (None, None));
    assert_eq!(left.spec.and_then(|spec| spec.unschedulable), None);
    nodes.delete(&impostor, &DeleteParams::default()).await.unwrap();
    env.end().await.unwrap();
}
