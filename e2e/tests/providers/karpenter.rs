//! Pools whose machines Karpenter makes: the real controllers of Karpenter, beside both operators.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::names::{
    CLUSTER_ANNOTATION, MACHINE_LABEL, NODE_CLASS_HASH_ANNOTATION, NODE_FINALIZER, NODEPOOL_LABEL,
    NODEPOOL_NAMESPACE_LABEL, PROVIDER_LABEL,
};
use shared_crds::v1alpha1::{KarpenterProvider, NodeClassReference, ProviderSpec};
use testbed::karpenter::{self, NODE_CLASS, WITH_KARPENTER};
use testbed::nodes_over_time::NodesOverTime;
use testbed::objects;
use testbed::operators::OperatorProcess;
use testbed::tandem::Release;
use testbed::test_env::{RELEASE_NAMESPACE, TestEnv};
use testbed::wait::{PATIENCE, eventually};

/// Both operators, and Karpenter.
async fn begin(prefix: &str) -> (TestEnv, OperatorProcess) {
    let env = TestEnv::begin_with(&WITH_KARPENTER, prefix, async |cluster| {
        karpenter::install(cluster).await?;
        Ok(vec!["providers.karpenter.enabled=true".to_owned()])
    });
    let env = env.await.unwrap();
    let karpenter = karpenter::start(env.cluster).await.unwrap();
    (env, karpenter)
}

/// A pool whose machines Karpenter makes, of the smallest type with four cores.
pub(super) fn pool_of(name: &str, class: &str, replicas: i32) -> NodePool {
    let mut pool = objects::pool(name, 0, 30);
    let requirements = json!([
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["s-4x-amd64-linux"]},
    ]);
    let (group, kind, _) = NODE_CLASS;
    let node_class_ref = NodeClassReference { group: group.into(), kind: kind.into(), name: class.into() };
    let requirements = serde_json::from_value(requirements).unwrap();
    let karpenter = Some(KarpenterProvider { node_class_ref, requirements });
    pool.spec.provider = ProviderSpec { karpenter, ..ProviderSpec::default() };
    pool.spec.template.spec = serde_json::from_value(json!({
        "capacity": {"cpu": "4", "memory": "16Gi", "pods": "64"},
        "reserved": {"cpu": "500m", "memory": "1Gi", "pods": "4"},
    }))
    .unwrap();
    pool.spec.replicas = Some(replicas);
    pool
}

async fn claim_names(env: &TestEnv) -> Result<Vec<String>> {
    let all = karpenter::claims(env.client.clone()).list(&ListParams::default()).await?.items;
    Ok(all.into_iter().filter_map(|claim| claim.metadata.name).collect())
}

async fn wait_for<T>(
    env: &TestEnv,
    karpenter: &OperatorProcess,
    what: &str,
    probe: impl AsyncFn() -> Result<Option<T>>,
) -> T {
    let found = eventually(PATIENCE, what, async || {
        env.operators.keep_alive().await?;
        karpenter.check_alive()?;
        probe().await
    });
    found.await.unwrap_or_else(|error| {
        panic!("{error:#}\n{}\n{}", env.operators.node_pool.log_tail(), karpenter.log_tail())
    })
}

/// Waits until the pool has this many Ready nodes, and there are this many claims and no other node of Karpenter's.
async fn has(env: &TestEnv, karpenter: &OperatorProcess, pool: &str, wanted: usize) -> Vec<Node> {
    wait_for(env, karpenter, &format!("{pool} has {wanted} nodes"), async || {
        let (nodes, claims) = (env.nodes(pool).await?, claim_names(env).await?);
        let ready = nodes.iter().filter(|node| testbed::test_env::is_ready(node)).count();
        let status = env.pool(pool).await?.status.unwrap_or_default();
        let counts = (nodes.len(), ready, claims.len(), status.ready_replicas.unwrap_or(0));
        ensure!(counts == (wanted, wanted, wanted, i32::try_from(wanted)?), "{counts:?}: {claims:?}");
        Ok(Some(nodes))
    })
    .await
}

/// Applies a `NodeClass` of this name, whose machines register so many seconds after their launch.
async fn apply_class(env: &TestEnv, name: &str, seconds: u32) {
    let (group, kind, _) = NODE_CLASS;
    let class = json!({
        "apiVersion": format!("{group}/v1alpha1"), "kind": kind, "metadata": { "name": name },
        "spec": { "nodeRegistrationDelay": format!("{seconds}s") },
    });
    let apply = ["apply", "--server-side", "--filename", "-"];
    env.cluster.kubectl_with_input(&apply, &class.to_string()).await.unwrap();
}

/// What the claims carry of their `NodeClass`.
async fn class_hashes(env: &TestEnv) -> BTreeSet<Option<String>> {
    let all = karpenter::claims(env.client.clone()).list(&ListParams::default()).await.unwrap();
    all.iter().map(|claim| claim.annotations().get(NODE_CLASS_HASH_ANNOTATION).cloned()).collect()
}

async fn uids(env: &TestEnv, pool: &str) -> Result<BTreeSet<String>> {
    Ok(env.nodes(pool).await?.iter().filter_map(Node::uid).collect())
}

/// Waits until none of the nodes in `before` is left.
async fn all_replaced(env: &TestEnv, karpenter: &OperatorProcess, pool: &str, before: &BTreeSet<String>) {
    wait_for(env, karpenter, "every node is replaced", async || {
        let now = uids(env, pool).await?;
        ensure!(now.is_disjoint(before), "{} are left", now.intersection(before).count());
        Ok(Some(()))
    })
    .await;
}

fn is_leaving(node: &Node) -> bool {
    let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    is_cordoned || node.metadata.deletion_timestamp.is_some()
}

/// Gives up every claim without a machine, and says so, as Karpenter does when its cloud has no capacity.
async fn refuse_new_claims(env: &TestEnv) -> Result<()> {
    let claims = karpenter::claims(env.client.clone());
    let events = Api::<Event>::namespaced(env.client.clone(), "default");
    for claim in claims.list(&ListParams::default()).await?.items {
        if claim.data["status"]["providerID"].is_string() {
            continue;
        }
        let name = claim.name_any();
        let event: Event = serde_json::from_value(json!({
            "metadata": { "generateName": "refused-", "namespace": "default" },
            "involvedObject": {
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": name, "uid": claim.uid(),
            },
            "type": "Warning", "reason": "InsufficientCapacityError", "message": "no host is free",
        }))?;
        events.create(&PostParams::default(), &event).await?;
        claims.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn karpenter_makes_the_nodes_that_pods_need_and_gives_them_back_drained() {
    let (mut env, karpenter) = begin("karpenter").await;
    env.create(&pool_of("racks", NODE_CLASS.2, 0)).await.unwrap();
    env.create(&objects::autoscaler("all", 1)).await.unwrap();
    env.create(&objects::deployment("web", "racks", 3, "2")).await.unwrap();
    has(&env, &karpenter, "racks", 3).await;
    // Until Karpenter has registered a Node, with its finalizer, a taint keeps pods off it.
    env.pods_run(3).await.unwrap();
    for node in &env.nodes("racks").await.unwrap() {
        let labels = node.metadata.labels.as_ref().unwrap();
        assert_eq!(labels[PROVIDER_LABEL], "karpenter");
        assert_ne!(node.metadata.name.as_deref(), Some(labels[MACHINE_LABEL].as_str()));
        let finalizers = node.metadata.finalizers.as_deref().unwrap();
        assert!(finalizers.iter().any(|name| name == NODE_FINALIZER), "{finalizers:?}");
        assert!(finalizers.iter().any(|name| name.starts_with("karpenter.sh/")), "{finalizers:?}");
    }

    // The operator is killed while nodes leave.
    env.kubectl(&["scale", "deployment/web", "--replicas=1"]).await.unwrap();
    wait_for(&env, &karpenter, "a node begins to leave", async || {
        let nodes = env.nodes("racks").await?;
        Ok(nodes.iter().any(|node| node.metadata.deletion_timestamp.is_some()).then_some(()))
    })
    .await;
    env.operators.node_pool.kill_9().await.unwrap();
    env.operators.node_pool.start_again().await.unwrap();
    has(&env, &karpenter, "racks", 1).await;
    env.pods_run(1).await.unwrap();

    // A user deletes the claim: Karpenter deletes the Node, which is drained first, and another one takes its place.
    let name = claim_names(&env).await.unwrap().remove(0);
    let before = env.nodes("racks").await.unwrap()[0].metadata.uid.clone();
    env.kubectl(&["delete", "nodeclaim", &name, "--wait=false"]).await.unwrap();
    wait_for(&env, &karpenter, "another node runs the pod", async || {
        let nodes = env.nodes("racks").await?;
        Ok((nodes.len() == 1 && nodes[0].metadata.uid != before).then_some(()))
    })
    .await;
    env.pods_run(1).await.unwrap();

    env.kubectl(&["delete", "deployment/web"]).await.unwrap();
    has(&env, &karpenter, "racks", 0).await;
    env.end().await.unwrap();
    karpenter.stop(PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_machines_come_and_go_by_kubectl_scale() {
    let (env, karpenter) = begin("karpenter-twenty").await;
    env.create(&pool_of("racks", NODE_CLASS.2, 0)).await.unwrap();
    env.kubectl(&["scale", "nodepools.tandem.dev/racks", "--replicas=20"]).await.unwrap();
    has(&env, &karpenter, "racks", 20).await;
    env.kubectl(&["scale", "nodepools.tandem.dev/racks", "--replicas=2"]).await.unwrap();
    has(&env, &karpenter, "racks", 2).await;
    // A pool that is deleted takes its claims with it.
    env.kubectl(&["delete", "nodepools.tandem.dev/racks", "--timeout=180s"]).await.unwrap();
    wait_for(&env, &karpenter, "no claim is left", async || {
        let left = claim_names(&env).await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(Some(()))
    })
    .await;
    env.end().await.unwrap();
    karpenter.stop(PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_class_that_is_missing_is_said_in_karpenters_words_and_no_claim_stays() {
    let (env, karpenter) = begin("karpenter-class").await;
    env.create(&pool_of("racks", "nowhere", 1)).await.unwrap();
    wait_for(&env, &karpenter, "the pool says that no machine comes", async || {
        let all = env.pool("racks").await?.status.unwrap_or_default().conditions;
        let Some(found) = all.iter().find(|it| it.type_ == "ProvisioningHealthy") else {
            bail!("no condition")
        };
        ensure!(found.status == "False", "{}: {}", found.reason, found.message);
        for text in ["does not list it", "InsufficientCapacityError", "\"nowhere\" not found"] {
            ensure!(found.message.contains(text), "{text:?} is not in {}", found.message);
        }
        Ok(Some(()))
    })
    .await;
    env.patch_pool("racks", &json!({"replicas": 0})).await.unwrap();
    has(&env, &karpenter, "racks", 0).await;
    env.end().await.unwrap();
    karpenter.stop(PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_node_class_replaces_one_node_after_another() {
    let (env, karpenter) = begin("karpenter-rolls").await;
    apply_class(&env, "rolled", 1).await;
    env.create(&pool_of("racks", "rolled", 3)).await.unwrap();
    has(&env, &karpenter, "racks", 3).await;
    let (before, old) = (uids(&env, "racks").await.unwrap(), class_hashes(&env).await);
    assert!(old.len() == 1 && old.iter().all(Option::is_some), "{old:?}");

    let recording = NodesOverTime::begin(&env, "racks").await.unwrap();
    apply_class(&env, "rolled", 2).await;
    env.says("racks", "RollingOut", ("True", "RollingOut", "out of date")).await.unwrap();
    all_replaced(&env, &karpenter, "racks", &before).await;
    has(&env, &karpenter, "racks", 3).await;
    let counts = recording.end().await.unwrap();
    let (most, least) =
        (counts.iter().map(|count| count.all).max(), counts.iter().map(|count| count.ready).min());
    assert_eq!((most, least), (Some(4), Some(3)), "one more than wanted, and never one less: {counts:?}");
    let new = class_hashes(&env).await;
    assert!(new.len() == 1 && new.iter().all(Option::is_some) && new.is_disjoint(&old), "{old:?} {new:?}");
    env.says("racks", "RollingOut", ("False", "UpToDate", "")).await.unwrap();

    let cluster = env.cluster;
    env.end().await.unwrap();
    cluster.kubectl(&["delete", "kwoknodeclass/rolled"]).await.unwrap();
    karpenter.stop(PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_capacity_for_one_more_machine_one_node_goes_first_and_the_rollout_ends() {
    let (env, mut karpenter) = begin("karpenter-scarce").await;
    apply_class(&env, "scarce", 1).await;
    env.create(&pool_of("racks", "scarce", 2)).await.unwrap();
    has(&env, &karpenter, "racks", 2).await;
    let before = uids(&env, "racks").await.unwrap();

    // Karpenter's simulated cloud always has capacity, so the test says in its place that there is none.
    karpenter.kill_9().await.unwrap();
    let recording = NodesOverTime::begin(&env, "racks").await.unwrap();
    apply_class(&env, "scarce", 2).await;
    let leaving = eventually(PATIENCE, "a node goes before its successor comes", async || {
        env.operators.keep_alive().await?;
        refuse_new_claims(&env).await?;
        let said = ("False", "QuotaExceeded", "no host is free");
        env.said("racks", "ProvisioningHealthy", said).await?;
        let leaving = env.nodes("racks").await?.iter().filter(|node| is_leaving(node)).count();
        Ok((leaving > 0).then_some(leaving))
    })
    .await
    .unwrap_or_else(|error| panic!("{error:#}\n{}", env.operators.node_pool.log_tail()));
    assert_eq!(leaving, 1);
    assert_eq!(uids(&env, "racks").await.unwrap(), before, "no successor has come");

    karpenter.start_again().await.unwrap();
    all_replaced(&env, &karpenter, "racks", &before).await;
    has(&env, &karpenter, "racks", 2).await;
    let counts = recording.end().await.unwrap();
    let (most, least) =
        (counts.iter().map(|count| count.all).max(), counts.iter().map(|count| count.ready).min());
    assert!(most <= Some(3) && least == Some(1), "one at a time: {counts:?}");
    let cluster = env.cluster;
    env.end().await.unwrap();
    cluster.kubectl(&["delete", "kwoknodeclass/scarce"]).await.unwrap();
    karpenter.stop(PATIENCE).await.unwrap();
}

/// A `NodeClaim` with these labels and annotations.
fn claim(name: &str, labels: &Value, annotations: &Value) -> DynamicObject {
    let (group, kind, class) = NODE_CLASS;
    let os = json!({"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]});
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {
            "nodeClassRef": {"group": group, "kind": kind, "name": class},
            "requirements": [os],
            "expireAfter": "Never",
        },
    }))
    .unwrap()
}

/// What every message of the admission policy begins with.
const NOT_OWN: &str = "nodepool-operator does not own";

/// What the admission policy answers to a request that it refuses; `None` for one that passes.
fn refusal<T>(answer: Result<T, kube::Error>) -> Option<String> {
    let error = answer.err()?.to_string();
    assert!(error.contains(NOT_OWN), "{error}");
    Some(error)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_token_makes_and_deletes_no_claims_but_tandems() {
    let cluster = &WITH_KARPENTER.take().await.unwrap();
    karpenter::install(cluster).await.unwrap();
    let values = ["providers.karpenter.enabled=true".to_owned()];
    Release::install(cluster, RELEASE_NAMESPACE, &values).await.unwrap();
    let operator = "tandem-nodepool-operator";
    let client = cluster.client_for_service_account(RELEASE_NAMESPACE, operator).await.unwrap();
    let claims = karpenter::claims(client);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let stranger = claim("stranger", &json!({"karpenter.sh/nodepool": "others"}), &json!({}));
    // At first the API server may refuse it for the lack of a right, of which it does not know yet.
    eventually(PATIENCE, "the policy is in force", async || {
        let Err(error) = claims.create(&dry, &stranger).await else { bail!("it is admitted") };
        ensure!(error.to_string().contains(NOT_OWN), "{error}");
        Ok(Some(()))
    })
    .await
    .unwrap();

    let labels = json!({NODEPOOL_LABEL: "x", NODEPOOL_NAMESPACE_LABEL: "ns"});
    let cluster_id = json!({CLUSTER_ANNOTATION: "c"});
    let refused = [
        stranger.clone(),
        claim("half", &json!({NODEPOOL_LABEL: "x"}), &cluster_id),
        claim("of-no-cluster", &labels, &json!({})),
    ];
    for claim in refused {
        assert!(refusal(claims.create(&dry, &claim).await).is_some(), "{claim:?}");
    }
    let own = claim("own", &labels, &cluster_id);
    assert_eq!(refusal(claims.create(&dry, &own).await), None);

    let admin = karpenter::claims(cluster.client().await.unwrap());
    let (create, delete) = (PostParams::default(), DeleteParams::default());
    for claim in [&stranger, &own] {
        admin.create(&create, claim).await.unwrap();
    }
    let stays = refusal(claims.delete("stranger", &delete).await);
    let goes = refusal(claims.delete("own", &delete).await);
    // The next test here counts claims.
    admin.delete("stranger", &delete).await.unwrap();
    assert!(stays.is_some_and(|said| said.contains("name no NodePool")));
    assert_eq!(goes, None);
    cluster.mark_reusable();
}
