//! Requests that the API server executes late: after their sender gave up, after a successor wrote, after a user
//! changed their mind. Each is intercepted, and sent when it is outdated; it must be refused.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use anyhow::bail;
use conflict_retry::RetryPolicy;
use http::{Request, Response};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::ownership::Owner;
use shared_crds::v1alpha1::NodePoolStatus;
use shared_runtime::clock::Clock;
use shared_runtime::write::{DeleteOutcome, ScaleDecision, WriteStrategy, Writer, unobserved};
use testbed::cluster::Cluster;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;
use testbed::{objects, tandem};

const STRATEGIES: [WriteStrategy; 4] =
    [WriteStrategy::Lazy, WriteStrategy::Retry, WriteStrategy::Patch, WriteStrategy::Guarded];

/// An intercepted request.
type Held = Arc<Mutex<Option<(http::request::Parts, Vec<u8>)>>>;

/// A client whose writes never arrive: the first one is kept, and fails as if the connection had broken.
fn cut_off(real: Client) -> (Client, Held) {
    let held = Held::default();
    let kept = Arc::clone(&held);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (real, kept) = (real.clone(), Arc::clone(&kept));
        async move {
            if request.method() == http::Method::GET {
                return Ok::<Response<Body>, tower::BoxError>(real.send(request).await?);
            }
            let (parts, body) = request.into_parts();
            let bytes = body.collect_bytes().await?.to_vec();
            kept.lock().unwrap().get_or_insert((parts, bytes));
            Err("the connection broke".into())
        }
    });
    (Client::new(service, "default"), held)
}

/// Sends it to the server. Returns the code of the answer.
async fn arrive(real: &Client, held: &Held) -> u16 {
    let (parts, bytes) = held.lock().unwrap().take().unwrap();
    real.send(Request::from_parts(parts, Body::from(bytes))).await.unwrap().status().as_u16()
}

/// The Autoscaler's writer with a single attempt.
fn writer(client: Client, strategy: WriteStrategy) -> Writer {
    let once = RetryPolicy::default().with_max_attempts(NonZeroU32::MIN);
    Writer::new(client, Owner::AutoscalerOperator, strategy, &Clock::system(), unobserved())
        .unwrap()
        .with_policy(once)
}

/// The Autoscaler's list of nodes to remove, together with another of its fields.
fn naming(decision: &str, nodes: &[&str]) -> NodePoolStatus {
    let list = json!({"decisionID": decision, "targetReplicas": 2, "nodes": nodes});
    let status = json!({"autoscaling": {"autoscaler": "all", "scaleDown": list}});
    serde_json::from_value(status).unwrap()
}

async fn pool(cluster: &Cluster, namespace: &str) -> (Client, Api<NodePool>, NodePool) {
    let client = cluster.client().await.unwrap();
    let pools: Api<NodePool> = Api::namespaced(client.clone(), namespace);
    let mut pool = objects::pool("x", 0, 10);
    pool.spec.replicas = Some(3);
    let stored = pools.create(&PostParams::default(), &pool).await.unwrap();
    (client, pools, stored)
}

fn announced(pool: &NodePool) -> Value {
    let list = pool.status.as_ref().and_then(|status| status.autoscaling.as_ref()?.scale_down.as_ref());
    list.map(|list| list.decision_id.clone()).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_that_comes_late_does_not_undo_the_users_although_the_old_number_is_back() {
    let cluster = tandem::definitions_only().await.unwrap();
    for strategy in STRATEGIES {
        let namespace = cluster.namespace("late-count").await.unwrap();
        let (client, pools, before) = pool(cluster, namespace.name()).await;
        let (broken, held) = cut_off(client.clone());
        let sent = writer(broken, strategy).replicas(&before, |_| ScaleDecision::Set(5)).await;
        assert!(sent.unwrap_err().maybe_written(), "{strategy}");

        for replicas in [5, 3] {
            let user = Patch::Merge(json!({"spec": {"replicas": replicas}}));
            pools.patch_scale("x", &PatchParams::default(), &user).await.unwrap();
        }
        let code = arrive(&client, &held).await;
        let replicas = pools.get("x").await.unwrap().spec.replicas;
        assert_eq!(replicas, Some(3), "{strategy}: the user's number was undone by a late one ({code})");
        assert!([409, 422].contains(&code), "{strategy}: {code}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_comes_late_does_not_replace_the_successors() {
    let cluster = tandem::definitions_only().await.unwrap();
    for strategy in STRATEGIES {
        let namespace = cluster.namespace("late-list").await.unwrap();
        let (client, pools, before) = pool(cluster, namespace.name()).await;
        let (broken, held) = cut_off(client.clone());
        let deposed = writer(broken, strategy).node_pool_status(&before, |_| naming("deposed", &["a"])).await;
        assert!(deposed.unwrap_err().maybe_written(), "{strategy}");

        let leader = writer(client.clone(), strategy);
        let written = leader.node_pool_status(&before, |_| naming("leader", &["b"])).await.unwrap();
        assert!(written.is_met(), "{strategy}: {}", written.label());
        // Status writes of other writers are no reason to refuse it.
        let code = arrive(&client, &held).await;
        let stored = pools.get("x").await.unwrap();
        assert_eq!(announced(&stored), "leader", "{strategy}: a late list took its place ({code})");
        assert!([409, 422].contains(&code), "{strategy}: {code}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_delete_of_a_node_does_not_take_a_node_that_was_uncordoned_meanwhile() {
    let cluster = tandem::definitions_only().await.unwrap();
    let client = cluster.client().await.unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    let cordoned: Node = serde_json::from_value(json!({
        "metadata": {"name": "late-delete", "finalizers": ["tandem.dev/test"]},
        "spec": {"unschedulable": true},
    }))
    .unwrap();
    let before = nodes.create(&PostParams::default(), &cordoned).await.unwrap();
    let (broken, held) = cut_off(client.clone());
    let sent =
        writer(broken.clone(), WriteStrategy::Guarded).delete_unchanged(&Api::all(broken), &before).await;
    assert!(sent.unwrap_err().maybe_written());

    let open = Patch::Merge(json!({"spec": {"unschedulable": false}}));
    let uncordoned = nodes.patch("late-delete", &PatchParams::default(), &open).await.unwrap();
    let code = arrive(&client, &held).await;
    let after = nodes.get("late-delete").await.unwrap();
    assert_eq!(after.metadata.deletion_timestamp, None, "a node that was wanted again went ({code})");
    assert_eq!(code, 409);
    // After a new decision, the node is deleted.
    let writer = writer(client, WriteStrategy::Guarded);
    let deleted = writer.delete_unchanged(&nodes, &uncordoned).await.unwrap();
    let is_accepted = matches!(deleted, DeleteOutcome::Deleted | DeleteOutcome::Terminating(_));
    assert!(is_accepted, "{}", deleted.label());
    let let_go = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    nodes.patch("late-delete", &PatchParams::default(), &let_go).await.unwrap();
}

/// The nodes that the Autoscaler named before it crashed do not apply when a user later writes the same number.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_was_left_behind_is_not_followed_when_a_person_writes_its_number() {
    let mut env = TestEnv::begin("left-behind", &[]).await.unwrap();
    let mut pool = objects::pool("x", 0, 10);
    pool.spec.replicas = Some(3);
    env.create(&pool).await.unwrap();
    let before = env.settles("x", 3).await.unwrap();
    env.operators.autoscaler.kill_9().await.unwrap();

    // The nodes that the operator would choose itself come first.
    let mut nodes = env.nodes("x").await.unwrap();
    nodes.sort_by_key(|node| {
        let created = node.metadata.creation_timestamp.as_ref().map(|time| time.0);
        std::cmp::Reverse((created, node.metadata.name.clone()))
    });
    let name = |node: &Node| node.metadata.name.clone().unwrap();
    let (chosen, named) = (name(&nodes[0]), name(&nodes[2]));
    let leader = writer(env.client.clone(), WriteStrategy::Guarded);
    let uid = nodes[2].metadata.uid.clone().unwrap();
    let list = |pool: &NodePool| {
        let mut status = naming("cut-off", &[&named]);
        let list = status.autoscaling.as_mut().unwrap().scale_down.as_mut().unwrap();
        list.node_uids = vec![uid.clone()];
        list.generation = Some(pool.metadata.generation.unwrap() + 1);
        status
    };
    let written = leader.node_pool_status(&before, list).await.unwrap();
    assert!(written.is_met(), "{}", written.label());

    env.kubectl(&["scale", "npool/x", "--replicas=2"]).await.unwrap();
    let left = eventually(PATIENCE, "one node goes", async || {
        let nodes: Vec<String> = env.nodes("x").await?.iter().map(name).collect();
        if nodes.len() == 2 { Ok(Some(nodes)) } else { bail!("{nodes:?}") }
    })
    .await
    .unwrap();
    assert!(
        left.contains(&named),
        "{named} went, by a list whose number was never written; {chosen} should have"
    );
    env.operators.autoscaler.start_again().await.unwrap();
    env.end().await.unwrap();
}
