//! Nodes that stay although their drain had begun: one whose drain took too long, and one that has recovered. Pods that tolerate every
//! taint come back to such a node as fast as they are evicted, and those of a `DaemonSet` are never evicted: neither may delay it.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use shared_crds::names::{
    DISRUPTION_REASON_ANNOTATION, DRAIN_WAITS_ANNOTATION, EXCLUDE_FROM_LOAD_BALANCERS_LABEL,
    GIVEN_BACK_ANNOTATION,
};
use shared_crds::v1alpha1::{ConditionStatus, DrainSpec, DrainTimeoutAction, RepairCondition, RepairSpec};
use testbed::objects;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

use super::drains::{cordoned, one_node, tainted};
use super::silent::{frozen_kwok, guarded_pod, not_ready, silenced};
use super::{is_untouched, scale};

/// Two pods of a Deployment and one of a `DaemonSet` on each node of `pool`, which tolerate every taint. So little is requested that
/// their successors fit beside those that are still ending.
async fn tolerant_pods(env: &TestEnv, pool: &str) {
    let every_taint = json!([{ "operator": "Exists" }]);
    let mut web = serde_json::to_value(objects::deployment("web", pool, 2, "10m")).unwrap();
    web["spec"]["template"]["spec"]["tolerations"] = every_taint.clone();
    let web: Deployment = serde_json::from_value(web).unwrap();
    env.create(&web).await.unwrap();
    let agent: DaemonSet = serde_json::from_value(json!({
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {
                    "nodeSelector": {"pool": pool},
                    "tolerations": every_taint,
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "agent", "image": "example.invalid/agent"}],
                },
            },
        },
    }))
    .unwrap();
    env.create(&agent).await.unwrap();
}

/// Ends a test: the pod of a `DaemonSet` goes with its node, and is collected some time later.
async fn end(env: TestEnv) {
    env.kubectl(&["delete", "daemonset", "agent"]).await.unwrap();
    env.kubectl(&["delete", "pods", "--all", "--grace-period=0", "--force"]).await.unwrap();
    env.end().await.unwrap();
}

async fn pods(env: &TestEnv) -> Vec<Pod> {
    env.api::<Pod>().list(&ListParams::default()).await.unwrap().items
}

/// Whether nothing is left on the node of what a drain does to it.
fn is_in_use(node: &Node) -> bool {
    let is_excluded = node.labels().contains_key(EXCLUDE_FROM_LOAD_BALANCERS_LABEL);
    !tainted(node) && !cordoned(node) && !is_excluded
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_come_back_to_a_draining_node_do_not_keep_it_from_being_given_back() {
    let env = TestEnv::begin("tolerant", &[]).await.unwrap();
    let drain = DrainSpec {
        // Time for the eviction of two pods on a busy machine.
        timeout_seconds: Some(20),
        on_timeout: DrainTimeoutAction::GiveBack,
        ..DrainSpec::default()
    };
    one_node(&env, "tolerant", drain).await;
    tolerant_pods(&env, "tolerant").await;
    env.pods_run(3).await.unwrap();
    let before = pods(&env).await;
    // No pod ends, so the node is at no moment empty by chance.
    let frozen = frozen_kwok(env.cluster).await;
    scale(&env, "npool/tolerant", 0).await;
    // From a minute after the beginning of its drain on, pods that come to it do not keep it: were they waited for until then, it would
    // be removed and never be given back.
    eventually(PATIENCE, "the node is given back", async || {
        env.operators.keep_alive().await?;
        let nodes = env.nodes("tolerant").await?;
        let node = nodes.first().context("no node")?;
        ensure!(node.annotations().contains_key(GIVEN_BACK_ANNOTATION), "{:?}", node.annotations());
        ensure!(is_in_use(node), "{:?}", node.spec);
        Ok(Some(()))
    })
    .await
    .unwrap();
    // Those that were there before have been evicted, so others had come in their place.
    let after = pods(&env).await;
    for pod in &before {
        let name = pod.name_any();
        let now = after.iter().find(|it| it.uid() == pod.uid()).unwrap();
        assert_eq!(now.metadata.deletion_timestamp.is_some(), name.starts_with("web-"), "{name}");
    }

    drop(frozen);
    env.kubectl(&["delete", "deployment", "web"]).await.unwrap();
    env.settles("tolerant", 0).await.unwrap();
    end(env).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_recovers_while_it_is_drained_to_be_repaired_is_in_use_again_at_once() {
    let env = TestEnv::begin("recovers", &[]).await.unwrap();
    let mut object = objects::pool("repaired", 0, 3);
    object.spec.replicas = Some(1);
    let failing = RepairCondition { type_: "Ready".to_owned(), status: ConditionStatus::False, seconds: 3 };
    object.spec.repair = Some(RepairSpec { conditions: vec![failing], ..RepairSpec::default() });
    env.create(&object).await.unwrap();
    env.settles("repaired", 1).await.unwrap();
    guarded_pod(&env, "repaired", 1).await;
    tolerant_pods(&env, "repaired").await;
    env.pods_run(4).await.unwrap();
    let before = env.api::<Pod>().get("db").await.unwrap();

    let unhealthy = silenced(&env, "repaired").await;
    let (name, nodes) = (unhealthy.name_any(), Api::<Node>::all(env.client.clone()));
    nodes.patch_status(&name, &PatchParams::default(), &not_ready()).await.unwrap();
    eventually(PATIENCE, "the node is drained to be repaired", async || {
        env.operators.keep_alive().await?;
        let node = nodes.get(&name).await?;
        let cause = node.annotations().get(DISRUPTION_REASON_ANNOTATION).context("no reason")?;
        let waits_for = node.annotations().get(DRAIN_WAITS_ANNOTATION).context("it waits for nothing")?;
        ensure!(cause == "Repair" && cordoned(&node), "{cause}");
        ensure!(waits_for.contains("/db: The disruption budget db needs 1"), "{waits_for}");
        Ok(Some(()))
    })
    .await
    .unwrap();

    env.set_silent(&name, false).await.unwrap();
    // Neither the tolerant pods are waited for, which come back, nor the guarded one, which stays: otherwise the node would not be in use
    // again at any time.
    eventually(PATIENCE, "the node is in use again", async || {
        env.operators.keep_alive().await?;
        let node = nodes.get(&name).await?;
        ensure!(node.uid() == unhealthy.uid(), "it is another node");
        let left: Vec<&String> =
            node.annotations().keys().filter(|key| key.starts_with("tandem.dev/drain")).collect();
        ensure!(left.is_empty() && is_in_use(&node), "{left:?} {:?}", node.spec);
        Ok(Some(()))
    })
    .await
    .unwrap();
    is_untouched(&env, &before).await;

    // The one that was made in its place is too many, and the younger one.
    env.kubectl(&["delete", "deployment", "web"]).await.unwrap();
    env.settles("repaired", 1).await.unwrap();
    assert_eq!(env.nodes("repaired").await.unwrap()[0].uid(), unhealthy.uid(), "the recovered node has gone");
    env.kubectl(&["delete", "pdb", "db"]).await.unwrap();
    end(env).await;
}
