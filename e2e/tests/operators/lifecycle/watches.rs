//! Failures of the watches: watches that die silently, rights that are removed, objects that cannot be decoded, an API
//! server that is too busy for a long list.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use shared_crds::NodePool;
use testbed::audit::Event;
use testbed::cluster::{Cluster, ClusterOptions};
use testbed::fault_proxy::{FaultProxy, InjectedRefusal};
use testbed::objects;
use testbed::operators::OperatorKind;
use testbed::tandem::Release;
use testbed::test_env::{EXITS, PATIENCE, RELEASE_NAMESPACE, TestEnv};
use testbed::wait::eventually;

use super::leaders::holder;
use super::{PATIENT_LEASE, QUICK_LEASE, scale, sent_by};

/// A standby whose watches have been dead since it started knows a pool of three nodes. It becomes the leader when
/// there are ten.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_with_dead_watches_that_comes_to_lead_removes_no_node() {
    let mut env = TestEnv::begin("stale", &QUICK_LEASE).await.unwrap();
    let proxy = FaultProxy::start(env.cluster).await.unwrap();
    let mut pool = objects::pool("p", 0, 12);
    pool.spec.replicas = Some(3);
    env.create(&pool).await.unwrap();
    env.settles("p", 3).await.unwrap();
    holder(&env, OperatorKind::NodePool, 0).await;
    let replica = env.release.pod(env.cluster, OperatorKind::NodePool).await.unwrap().replica(1);
    let standby = replica.start_through(env.cluster, &proxy).await.unwrap();
    eventually(PATIENCE, "the standby has its caches", async || {
        Ok(standby.waits_for().await?.is_none().then_some(()))
    })
    .await
    .unwrap();
    proxy.silence_watches();

    scale(&env, "npool/p", 10).await;
    env.settles("p", 10).await.unwrap();
    env.operators.node_pool.kill_9().await.unwrap();
    env.operators.node_pool = standby;
    holder(&env, OperatorKind::NodePool, 1).await;
    // It has become the leader and knows that its caches are stale.
    eventually(PATIENCE, "the new leader says that its caches are of no use", async || {
        env.operators.check_alive()?;
        let waits = env.operators.node_pool.waits_for().await?;
        Ok(waits.filter(|waits| waits.contains("cache of nodepools")).map(|_| ()))
    })
    .await
    .unwrap();
    // The nodes of this pool only: a test that failed before leaves a namespace, and its nodes are removed meanwhile.
    let nodes = env.nodes("p").await.unwrap();
    let nodes: BTreeSet<String> = nodes.iter().filter_map(|node| node.metadata.name.clone()).collect();
    let written = || {
        let events = env.events().unwrap();
        let by_the_new = |event: &&Event| event.is_write() && sent_by(event, OperatorKind::NodePool, 1);
        let of_pool = |event: &Event| {
            let object = event.object.as_ref().filter(|object| object.resource == "nodes")?;
            nodes.contains(&object.name).then(|| format!("{} {}", event.verb, object.name))
        };
        events.iter().filter(by_the_new).filter_map(of_pool).collect::<Vec<_>>()
    };
    assert_eq!(written(), Vec::<String>::new(), "{}", env.operators.node_pool.log_tail());

    proxy.restore_watches();
    scale(&env, "npool/p", 11).await;
    env.settles("p", 11).await.unwrap();
    let log = std::fs::read_to_string(env.operators.node_pool.log_path()).unwrap();
    assert_eq!(written(), Vec::<String>::new(), "{log}");
    env.end().await.unwrap();
}

/// The connections stay open but no data arrives any more, as with a firewall that drops their state.
#[tokio::test(flavor = "multi_thread")]
async fn watches_that_died_silently_are_opened_anew_within_a_minute() {
    let mut env = TestEnv::begin("silent", &[]).await.unwrap();
    let proxy = FaultProxy::start(env.cluster).await.unwrap();
    env.operators.node_pool.stop(EXITS).await.unwrap();
    let replica = env.release.pod(env.cluster, OperatorKind::NodePool).await.unwrap();
    env.operators.node_pool = replica.start_through(env.cluster, &proxy).await.unwrap();
    let mut pool = objects::pool("p", 0, 5);
    pool.spec.replicas = Some(1);
    env.create(&pool).await.unwrap();
    env.settles("p", 1).await.unwrap();

    proxy.silence_open_watches();
    let silenced = Instant::now();
    scale(&env, "npool/p", 3).await;
    let operator = &env.operators.node_pool;
    let noticed = eventually(PATIENCE, "a silent watch is noticed", async || {
        let log = std::fs::read_to_string(operator.log_path())?;
        Ok(log.contains("nothing was heard of the watch for ").then(|| silenced.elapsed()))
    });
    // The operator lets a watch be silent for 18 s. The rest of the minute is for its timer and its log.
    let noticed = noticed.await.unwrap();
    assert!(noticed < Duration::from_secs(60), "{noticed:?}");
    env.settles("p", 3).await.unwrap();
    let silent =
        env.operators.node_pool.metric("tandem_watch_errors_total", &["category=\"silent\""]).await.unwrap();
    assert!(silent >= 1.0, "{silent}");
    env.end().await.unwrap();
}

const ROLE: &str = "tandem-nodepool-operator";

async fn write_role(env: &TestEnv, mut role: ClusterRole) {
    role.metadata.managed_fields = None;
    role.metadata.resource_version = None;
    let roles = Api::<ClusterRole>::all(env.client.clone());
    roles.replace(ROLE, &PostParams::default(), &role).await.unwrap();
}

/// Takes a right to all `resource`s from the `NodePool` operator. Returns its role as it was.
async fn take_right(env: &TestEnv, resource: &str, verbs: &[&str]) -> ClusterRole {
    let role = Api::<ClusterRole>::all(env.client.clone()).get(ROLE).await.unwrap();
    let mut without = role.clone();
    for rule in without.rules.iter_mut().flatten() {
        if rule.resources.iter().flatten().any(|named| named == resource) {
            rule.verbs.retain(|verb| !verbs.contains(&verb.as_str()));
        }
    }
    assert_ne!(role.rules, without.rules);
    write_role(env, without).await;
    role
}

/// More nodes than one pass looks at. Without the right, no pass can choose which of them go.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_list_pods_a_pool_of_many_nodes_asks_seldom_and_shrinks_when_it_is_given_back() {
    const SECONDS: u64 = 12;
    let env = TestEnv::begin("unlisted", &[]).await.unwrap();
    let mut pool = objects::pool("p", 0, 60);
    pool.spec.replicas = Some(60);
    env.create(&pool).await.unwrap();
    env.settles("p", 60).await.unwrap();

    let role = take_right(&env, "pods", &["list"]).await;
    eventually(PATIENCE, "the API server knows that the right is gone", async || {
        let may = env.cluster.can_i((RELEASE_NAMESPACE, ROLE), &["list", "pods", "--all-namespaces"]).await?;
        Ok((!may).then_some(()))
    })
    .await
    .unwrap();
    let start = env.audit().unwrap().end().unwrap();
    let scaled = Instant::now();
    scale(&env, "npool/p", 0).await;
    // The audit log names no object of a list.
    let is_list = |event: &&Event| event.verb == "list" && event.message.contains("pods is forbidden");
    let is_own = |event: &&Event| sent_by(event, OperatorKind::NodePool, 0);
    let asks = |events: &[Event]| events.iter().filter(is_own).any(|event| is_list(&event)).then_some(());
    env.audit().unwrap().wait_for(start, PATIENCE, "it asks for pods", asks).await.unwrap();
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    env.operators.check_alive().unwrap();
    let events = env.audit().unwrap().follow_from(start).read_new().unwrap();
    // On a busy machine it is more than was slept.
    let took = scaled.elapsed().as_secs().max(SECONDS);
    let (lists, others): (Vec<&Event>, Vec<&Event>) = events.iter().filter(is_own).partition(is_list);
    println!("{} lists of pods and {} other requests in {took} s", lists.len(), others.len());
    assert!(!lists.is_empty() && lists.iter().all(|event| event.code == 403), "{:?}", others.first());
    let most = usize::try_from(took * 5).unwrap();
    assert!(lists.len() <= most, "{} lists of pods in {took} s", lists.len());
    assert!(others.len() <= most, "{} other requests in {took} s", others.len());
    assert_eq!(env.nodes("p").await.unwrap().len(), 60, "it is not known which of them may go");

    write_role(&env, role).await;
    env.settles("p", 0).await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_taken_away_closes_readyz_and_stops_the_decisions_until_it_is_given_back() {
    let env = TestEnv::begin("revoked", &[]).await.unwrap();
    let mut pool = objects::pool("p", 0, 5);
    pool.spec.replicas = Some(1);
    env.create(&pool).await.unwrap();
    env.settles("p", 1).await.unwrap();

    let role = take_right(&env, "nodes", &["list", "watch"]).await;
    let waits = eventually(PATIENCE, "/readyz says that nodes cannot be watched", async || {
        env.operators.check_alive()?;
        Ok(env.operators.node_pool.waits_for().await?.filter(|waits| waits.contains("cache of nodes")))
    })
    .await
    .unwrap();
    assert!(waits.contains("forbidden"), "{waits}");

    write_role(&env, role).await;
    scale(&env, "npool/p", 2).await;
    env.settles("p", 2).await.unwrap();
    env.end().await.unwrap();
}

/// The API server accepts a time that is later than this program can represent.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_read_is_named_and_the_rest_goes_on() {
    let mut env = TestEnv::begin("odd", &[]).await.unwrap();
    let odd = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "odd"},
        "spec": {
            "selector": {"matchLabels": {"app": "odd"}},
            "template": {
                "metadata": {"labels": {"app": "odd"}, "creationTimestamp": "9999-12-31T23:59:59-23:00"},
                "spec": {"nodeSelector": {"no": "node"}, "containers": [{"name": "c", "image": "i"}]},
            },
        },
    });
    let input = serde_json::to_string(&odd).unwrap();
    let namespace = env.namespace().to_owned();
    let args = ["--namespace", &namespace, "create", "--filename", "-"];
    env.cluster.kubectl_with_input(&args, &input).await.unwrap();
    // Received by a watch, and by the list of one that starts.
    for wanted in [1, 2] {
        eventually(PATIENCE, "the object is counted", async || {
            env.operators.check_alive()?;
            let labels = ["resource=\"daemonsets\""];
            let count = env.operators.autoscaler.metric("tandem_unreadable_objects", &labels).await?;
            Ok((count > 0.5).then_some(()))
        })
        .await
        .unwrap();
        let log = std::fs::read_to_string(env.operators.autoscaler.log_path()).unwrap();
        assert!(log.contains(&format!("{namespace}/odd")), "{log}");
        assert!(log.contains("spec.template.metadata.creationTimestamp"), "{log}");
        if wanted == 1 {
            env.create(&objects::pool("p", 0, 5)).await.unwrap();
            env.create(&objects::autoscaler("all", 600)).await.unwrap();
            env.create(&objects::deployment("web", "p", 1, "3")).await.unwrap();
            env.pods_run(1).await.unwrap();
            env.operators.autoscaler.stop(EXITS).await.unwrap();
            env.operators.autoscaler.start_again().await.unwrap();
        }
    }
    scale(&env, "deployment/web", 2).await;
    env.pods_run(2).await.unwrap();

    env.kubectl(&["delete", "daemonset", "odd", "--ignore-not-found"]).await.unwrap();
    eventually(PATIENCE, "its deletion is noticed", async || {
        let labels = ["resource=\"daemonsets\""];
        let count = env.operators.autoscaler.metric("tandem_unreadable_objects", &labels).await?;
        Ok((count < 0.5).then_some(()))
    })
    .await
    .unwrap();
    env.end().await.unwrap();
}

/// Every other page is refused, so a list of four pages that restarts each time never completes.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_ends_although_the_api_server_is_too_busy_for_some_of_its_pages() {
    let mut env = TestEnv::begin("busy", &[]).await.unwrap();
    for number in 0..170 {
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"name": format!("b-{number}")},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"no": "pod"}}},
        }))
        .unwrap();
        env.create(&budget).await.unwrap();
    }
    let proxy = FaultProxy::start(env.cluster).await.unwrap();
    proxy.refuse(InjectedRefusal { target: "continue=".into(), code: 429, one_in: 2 });
    env.operators.autoscaler.stop(EXITS).await.unwrap();
    let replica = env.release.pod(env.cluster, OperatorKind::Autoscaler).await.unwrap();
    env.operators.autoscaler = replica.start_through(env.cluster, &proxy).await.unwrap();
    env.create(&objects::pool("p", 0, 5)).await.unwrap();
    env.create(&objects::autoscaler("all", 600)).await.unwrap();
    env.create(&objects::deployment("web", "p", 1, "3")).await.unwrap();
    env.pods_run(1).await.unwrap();
    assert!(proxy.refused() > 0);
    env.end().await.unwrap();
}

/// A value that a newer version of the CRD allows and this operator, after a rollback, does not know.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_cannot_be_read_gets_a_condition_and_no_changes_and_others_go_on() {
    let env = TestEnv::begin("newer", &[]).await.unwrap();
    for name in ["p", "other"] {
        let mut pool = objects::pool(name, 0, 5);
        pool.spec.replicas = Some(2);
        env.create(&pool).await.unwrap();
        env.settles(name, 2).await.unwrap();
    }
    let definitions = Api::<CustomResourceDefinition>::all(env.client.clone());
    let name = "nodepools.tandem.dev";
    let before = definitions.get(name).await.unwrap();
    let mut newer = serde_json::to_value(&before).unwrap();
    let effect = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/template/properties/spec\
                  /properties/taints/items/properties/effect/enum";
    newer.pointer_mut(effect).and_then(Value::as_array_mut).unwrap().push(json!("NoVisit"));
    let newer: CustomResourceDefinition = serde_json::from_value(newer).unwrap();
    let newer = definitions.replace(name, &PostParams::default(), &newer).await.unwrap();

    let patch = json!({"spec": {"replicas": 1, "template": {"spec": {"taints": [{"key": "k", "effect": "NoVisit"}]}}}});
    let patch = patch.to_string();
    let args = ["patch", "npool/p", "--type=merge", "--patch", patch.as_str()];
    eventually(PATIENCE, "the API server takes the new value", async || Ok(env.kubectl(&args).await.ok()))
        .await
        .unwrap();
    let condition = |type_: &'static str| {
        let output =
            format!("jsonpath={{.status.conditions[?(@.type==\"{type_}\")]['status','reason','message']}}");
        let env = &env;
        async move { env.kubectl(&["get", "npool/p", "--output", &output]).await }
    };
    let stalled = eventually(PATIENCE, "a condition says that the pool cannot be read", async || {
        env.operators.check_alive()?;
        Ok(Some(condition("Stalled").await?).filter(|said| said.starts_with("True Unreadable")))
    })
    .await
    .unwrap();
    assert!(stalled.contains("effect") && stalled.contains("NoVisit"), "{stalled}");
    assert!(condition("Ready").await.unwrap().starts_with("False Unreadable"));
    // Its previous state is kept: one node too many is not removed.
    let replicas = env.kubectl(&["get", "npool/p", "--output", "jsonpath={.status.replicas}"]).await.unwrap();
    assert_eq!(replicas.trim(), "2");
    scale(&env, "npool/other", 3).await;
    env.settles("other", 3).await.unwrap();
    assert_eq!(env.nodes("p").await.unwrap().len(), 2);

    let patch = json!([{"op": "remove", "path": "/spec/template/spec/taints"}]).to_string();
    env.kubectl(&["patch", "npool/p", "--type=json", "--patch", &patch]).await.unwrap();
    env.settles("p", 1).await.unwrap();
    let mut before = before;
    before.metadata.resource_version = newer.metadata.resource_version;
    definitions.replace(name, &PostParams::default(), &before).await.unwrap();
    env.end().await.unwrap();
}

/// etcd is restored from a backup, and versions are lower than before. A watch from before waits for a version that
/// does not come, and the operator's record of its own writes belongs to a state that no longer exists.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_restored_from_a_backup_is_seen_as_it_is() {
    let cluster = Cluster::start(ClusterOptions::api_only()).await.unwrap();
    let release =
        Release::install(&cluster, RELEASE_NAMESPACE, &PATIENT_LEASE.map(str::to_owned)).await.unwrap();
    let operator =
        release.pod(&cluster, OperatorKind::NodePool).await.unwrap().start(&cluster).await.unwrap();
    let client = cluster.client().await.unwrap();
    let (pools, nodes) =
        (Api::<NodePool>::namespaced(client.clone(), "default"), Api::<Node>::all(client.clone()));
    let mut pool = objects::pool("p", 0, 9);
    pool.spec.replicas = Some(1);
    pools.create(&PostParams::default(), &pool).await.unwrap();
    let there_are = async |wanted: usize| {
        eventually(PATIENCE, &format!("{wanted} nodes"), async || {
            operator.check_alive()?;
            let seen = nodes.list_metadata(&ListParams::default()).await?.items.len();
            anyhow::ensure!(seen == wanted, "{seen} nodes");
            Ok(Some(()))
        })
        .await
        .map_err(|error| error.context(operator.log_tail()))
        .unwrap();
    };
    there_are(1).await;

    let backup = cluster.back_up().await.unwrap();
    cluster.kubectl(&["scale", "npool/p", "--replicas=5"]).await.unwrap();
    there_are(5).await;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    for number in 0..200 {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("m-{number}"));
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    cluster.restore(&backup).await.unwrap();
    there_are(1).await;
    cluster.kubectl(&["scale", "npool/p", "--replicas=3"]).await.unwrap();
    there_are(3).await;
    let log = std::fs::read_to_string(operator.log_path()).unwrap();
    assert!(log.contains("restored from a backup"), "{log}");
    operator.stop(EXITS).await.unwrap();
    cluster.stop().await.unwrap();
}
