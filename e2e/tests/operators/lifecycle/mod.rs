//! The life cycle, and what may go wrong during it: operators killed, leaders frozen, nodes that start slowly, the API
//! server down, CRDs missing.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

mod budgets;
mod crashes;
mod definitions;
mod deletion;
mod drains;
mod elsewhere;
mod given_back;
mod hard_age;
mod hold;
mod killed;
mod large_drain;
mod leaders;
mod load_balancers;
mod owed;
mod refused;
mod repairs;
mod rights;
mod rollouts;
mod several;
mod silent;
mod startup;
mod watches;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use shared_crds::conditions::ConditionType;
use shared_crds::names::EXCLUDE_FROM_LOAD_BALANCERS_LABEL;
use shared_crds::{NodePool, NodePoolAutoscaler};
use testbed::audit::Event;
use testbed::cluster::{Cluster, ClusterOptions};
use testbed::operators::{Launch, OperatorKind, OperatorProcess};
use testbed::process_supervisor::Exit;
use testbed::test_env::{EXITS, PATIENCE, TestEnv};
use testbed::wait::eventually;
use testbed::{objects, places};

/// A lease that is lost and acquired within seconds. A leader keeps it that is not scheduled for some, on a busy machine.
const QUICK_LEASE: [&str; 6] = [
    "nodepoolOperator.leaderElection.leaseDurationSeconds=10",
    "nodepoolOperator.leaderElection.renewDeadlineSeconds=8",
    "nodepoolOperator.leaderElection.retryPeriodSeconds=1",
    "autoscalerOperator.leaderElection.leaseDurationSeconds=10",
    "autoscalerOperator.leaderElection.renewDeadlineSeconds=8",
    "autoscalerOperator.leaderElection.retryPeriodSeconds=1",
];

/// `kubectl scale` of `what`, a kind and a name.
async fn scale(env: &TestEnv, what: &str, replicas: i32) {
    env.kubectl(&["scale", what, &format!("--replicas={replicas}")]).await.unwrap();
}

/// A lease that outlives a restart of the API server, which takes some twenty seconds, and a busy machine [`PATIENCE`] at most: after
/// that the restart itself has failed.
const PATIENT_LEASE: [&str; 4] = [
    "nodepoolOperator.leaderElection.leaseDurationSeconds=600",
    "nodepoolOperator.leaderElection.renewDeadlineSeconds=300",
    "autoscalerOperator.leaderElection.leaseDurationSeconds=600",
    "autoscalerOperator.leaderElection.renewDeadlineSeconds=300",
];

/// The names of nodes of `pool` that were ever requested with `verb`, whatever the answer: a request of a killed sender
/// may still be executed.
fn asked(events: &[Event], verb: &str, pool: &str) -> BTreeSet<String> {
    let prefix = format!("{pool}-");
    let nodes = events.iter().filter(|event| event.verb == verb && event.subresource.is_empty());
    let names = nodes.filter_map(|event| {
        let object = event.object.as_ref().filter(|object| object.resource == "nodes")?;
        let in_body = event.request.as_ref().and_then(|body| body.pointer("/metadata/name")?.as_str());
        Some(in_body.unwrap_or(&object.name).to_owned())
    });
    names.filter(|name| name.starts_with(&prefix)).collect()
}

/// The write that cordoned the Node and took it out of external load balancers.
fn cordon_of<'a>(events: &'a [Event], node: &str) -> Option<&'a Event> {
    let label = format!("/metadata/labels/{}", EXCLUDE_FROM_LOAD_BALANCERS_LABEL.replace('/', "~1"));
    let is_cordoned =
        |answer: &Value| answer["spec"]["unschedulable"] == true && answer.pointer(&label).is_some();
    events.iter().find(|event| {
        let object = event.object.as_ref().filter(|object| object.resource == "nodes");
        event.is_write()
            && event.succeeded()
            && object.is_some_and(|object| object.name == node)
            && event.response.as_ref().is_some_and(is_cordoned)
    })
}

/// Whether a replica of an operator sent the request, before or after a restart.
fn sent_by(event: &Event, operator: OperatorKind, replica: usize) -> bool {
    operator.has_sent(event, replica)
}

/// The node counts that the Autoscaler wrote to `pool`, in order.
fn replicas_written(env: &TestEnv, events: &[Event], pool: &str) -> Vec<i64> {
    let pool = env.key(pool);
    let scales = events.iter().filter(|event| {
        sent_by(event, OperatorKind::Autoscaler, 0)
            && event.is_write()
            && event.succeeded()
            && event.subresource.is_empty()
            && event.object.as_ref() == Some(&pool)
    });
    scales.map(|event| event.response.as_ref().unwrap()["spec"]["replicas"].as_i64().unwrap_or(0)).collect()
}

/// Waits until exactly `wanted` pods of the Deployment called `app` are unschedulable, and returns the scheduler's
/// messages.
async fn unschedulable(env: &TestEnv, app: &str, wanted: usize) -> Vec<String> {
    let of_app = ListParams::default().labels(&format!("app={app}"));
    eventually(PATIENCE, &format!("{wanted} pods of {app} wait for a node"), async || {
        let pods = env.api::<Pod>().list(&of_app).await?.items;
        let conditions = pods.iter().filter_map(|pod| pod.status.as_ref()?.conditions.as_ref()).flatten();
        let waiting: Vec<String> = conditions
            .filter(|c| c.type_ == "PodScheduled" && c.reason.as_deref() == Some("Unschedulable"))
            .map(|condition| condition.message.clone().unwrap_or_default())
            .collect();
        if waiting.len() == wanted { Ok(Some(waiting)) } else { bail!("{waiting:?} of {} pods", pods.len()) }
    })
    .await
    .unwrap()
}

/// Checks that the pod is the one that it was `before`, and is not being deleted.
async fn is_untouched(env: &TestEnv, before: &Pod) {
    let after = env.api::<Pod>().get(&before.name_any()).await.unwrap();
    assert_eq!((after.uid(), after.metadata.deletion_timestamp), (before.uid(), None));
}

/// Waits until `pool`, which was made without a count, has this one: from then on no operator writes what is unset.
async fn has_count(env: &TestEnv, pool: &str, wanted: i32) {
    eventually(PATIENCE, &format!("spec.replicas of {pool} is {wanted}"), async || {
        let replicas = env.pool(pool).await?.spec.replicas;
        if replicas == Some(wanted) { Ok(Some(())) } else { bail!("it is {replicas:?}") }
    })
    .await
    .unwrap();
}

/// Changes the spec of `pool` without an effect on its nodes, and waits until the `NodePool` operator has observed the
/// change.
async fn observed(env: &TestEnv, pool: &str, spec: Value) {
    let pools = env.api::<NodePool>();
    let change = Patch::Merge(json!({"spec": spec}));
    let generation = pools.patch(pool, &PatchParams::default(), &change).await.unwrap().metadata.generation;
    eventually(PATIENCE, &format!("the NodePool operator looks at {pool}"), async || {
        let observed = pools.get(pool).await?.status.and_then(|status| status.observed_generation);
        if observed == generation { Ok(Some(())) } else { bail!("generation {observed:?} of {generation:?}") }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_bring_nodes_and_idle_nodes_go() {
    let env = TestEnv::begin("story", &[]).await.unwrap();
    env.create(&objects::pool("workers", 0, 10)).await.unwrap();
    env.create(&objects::autoscaler("all", 1)).await.unwrap();
    env.create(&objects::deployment("web", "workers", 6, "2")).await.unwrap();
    env.pods_run(6).await.unwrap();
    let pool = env.settles("workers", 3).await.unwrap();
    assert_eq!(pool.spec.replicas, Some(3));

    let table = env.kubectl(&["get", "npool,npa"]).await.unwrap();
    for word in ["DESIRED", "AUTOSCALER", "AllNodesReady", "Auto"] {
        assert!(table.contains(word), "{word} is missing in\n{table}");
    }
    let of_pools =
        |type_: &&ConditionType| type_.owner_on_node_pool().is_some() && **type_ != ConditionType::CrdCurrent;
    // Those of the Autoscaler come after its write of the count.
    eventually(PATIENCE, "the pool has each condition", async || {
        let conditions = env.pool("workers").await?.status.unwrap_or_default().conditions;
        for type_ in ConditionType::ALL.iter().filter(of_pools) {
            ensure!(
                conditions.iter().any(|c| c.type_ == type_.as_str()),
                "{type_} is missing: {conditions:?}"
            );
        }
        Ok(Some(()))
    })
    .await
    .unwrap();

    scale(&env, "deployment/web", 0).await;
    env.settles("workers", 0).await.unwrap();
    env.published(&["TriggeredScaleUp", "ScaleDown"]).await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settled_pool_is_not_written_to() {
    let env = TestEnv::begin("quiet", &[]).await.unwrap();
    env.create(&objects::pool("still", 2, 4)).await.unwrap();
    env.create(&objects::autoscaler("all", 600)).await.unwrap();
    env.settles("still", 2).await.unwrap();
    // The last writes may still be in flight, for a while on a busy machine.
    let audit = env.audit().unwrap();
    eventually(PATIENCE, "8 s pass without a write", async || {
        let before = (audit.end()?, env.pool("still").await?.metadata.resource_version);
        tokio::time::sleep(Duration::from_secs(8)).await;
        let events = audit.follow_from(before.0).read_new()?;
        let writes = events.iter().filter(|event| {
            let leases = event.object.as_ref().is_some_and(|object| object.resource == "leases");
            event.is_write() && !leases && event.user.contains("tandem-system")
        });
        let writes: Vec<_> = writes.map(|event| (&event.user, &event.verb, &event.object)).collect();
        ensure!(writes.is_empty(), "{writes:?}");
        let version = env.pool("still").await?.metadata.resource_version;
        ensure!(version == before.1, "version {version:?} after {:?}", before.1);
        Ok(Some(()))
    })
    .await
    .unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn evictions_honour_a_disruption_budget_and_the_drain_waits() {
    let env = TestEnv::begin("budget", &[]).await.unwrap();
    let mut pool = objects::pool("guarded", 1, 3);
    pool.spec.replicas = Some(1);
    env.create(&pool).await.unwrap();
    env.create(&objects::deployment("web", "guarded", 1, "1")).await.unwrap();
    env.pods_run(1).await.unwrap();
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }))
    .unwrap();
    env.create(&budget).await.unwrap();
    let budgets = env.api::<PodDisruptionBudget>();
    eventually(PATIENCE, "the budget is counted", async || {
        let status = budgets.get("web").await?.status.context("no status")?;
        if status.current_healthy == Some(1) && status.disruptions_allowed == Some(0) {
            Ok(Some(()))
        } else {
            bail!("{status:?}")
        }
    })
    .await
    .unwrap();

    // A user deletes the node: the finalizer keeps it while the PodDisruptionBudget blocks the pod.
    let nodes = Api::<Node>::all(env.client.clone());
    let name = env.nodes("guarded").await.unwrap()[0].metadata.name.clone().unwrap();
    let _ = nodes.delete(&name, &DeleteParams::default()).await.unwrap();
    let refused = |events: &[Event]| {
        let evictions = events.iter().filter(|event| event.subresource == "eviction" && event.code == 429);
        (evictions.count() >= 2).then_some(())
    };
    let audit = env.audit().unwrap();
    let start = audit.end().unwrap();
    audit.wait_for(start, PATIENCE, "two evictions are refused", refused).await.unwrap();
    assert!(nodes.get_opt(&name).await.unwrap().is_some(), "the node went while a budget held its pod");
    assert_eq!(env.api::<Pod>().list(&ListParams::default()).await.unwrap().items.len(), 1);

    // A second pod elsewhere satisfies the PodDisruptionBudget, and the drain continues.
    scale(&env, "deployment/web", 2).await;
    eventually(PATIENCE, "the node is drained and gone", async || {
        Ok(nodes.get_opt(&name).await?.is_none().then_some(()))
    })
    .await
    .unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_outlive_an_api_server_that_goes_away() {
    // A leader that cannot renew its lease exits, which another test shows. Here it has enough time until the API
    // server is back.
    let env = TestEnv::begin("restart", &PATIENT_LEASE).await.unwrap();
    env.create(&objects::pool("workers", 0, 10)).await.unwrap();
    env.create(&objects::autoscaler("all", 600)).await.unwrap();
    env.create(&objects::deployment("web", "workers", 2, "2")).await.unwrap();
    env.settles("workers", 1).await.unwrap();
    env.cluster.restart_api_server().await.unwrap();
    env.operators.keep_alive().await.unwrap();
    scale(&env, "deployment/web", 8).await;
    env.pods_run(8).await.unwrap();
    env.settles("workers", 4).await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_without_their_definitions_wait_and_say_so() {
    let _turn = places::turn().await.unwrap();
    // Its own cluster: in the shared one the CRDs may already exist.
    let cluster = Cluster::start(ClusterOptions::private()).await.unwrap();
    let mut operators = Vec::new();
    for (operator, needed) in [
        (OperatorKind::NodePool, "nodepools.tandem.dev"),
        (OperatorKind::Autoscaler, "nodepoolautoscalers.tandem.dev"),
    ] {
        let args = ["run", "--leader-elect=false", "--admin-address=127.0.0.1:0", "--log-format=text"];
        let args = args.map(String::from).to_vec();
        let kubeconfig = cluster.kubeconfig_path().to_owned();
        let memory_limit = Some(testbed::tandem::default_memory_limit(operator).unwrap());
        let launch = Launch { operator, args, env: Vec::new(), kubeconfig, memory_limit };
        let process = OperatorProcess::start(&cluster, launch).await.unwrap();
        eventually(PATIENCE, "the log names what is missing", async || {
            process.check_alive()?;
            let log = std::fs::read_to_string(process.log_path())?;
            if log.contains(needed) { Ok(Some(())) } else { bail!("{log}") }
        })
        .await
        .unwrap();
        operators.push(process);
    }
    testbed::tandem::install_definitions(&cluster).await.unwrap();
    let client = cluster.client().await.unwrap();
    let pools = Api::<NodePool>::namespaced(client.clone(), "default");
    let autoscalers = Api::<NodePoolAutoscaler>::namespaced(client, "default");
    pools.create(&PostParams::default(), &objects::pool("late", 1, 3)).await.unwrap();
    autoscalers.create(&PostParams::default(), &objects::autoscaler("all", 600)).await.unwrap();
    // The NodePool operator sets the unset count, and creates that many nodes.
    eventually(PATIENCE, "both operators work", async || {
        for operator in &operators {
            operator.check_alive()?;
        }
        let pool = pools.get("late").await?;
        let ready = pool.status.context("no status")?.ready_replicas;
        let (wanted, ready) = (pool.spec.replicas, ready);
        if (wanted, ready) == (Some(1), Some(1)) {
            Ok(Some(()))
        } else {
            bail!("{ready:?} of {wanted:?} ready")
        }
    })
    .await
    .unwrap();
    for operator in operators {
        assert_eq!(operator.stop(EXITS).await.unwrap(), Exit::Code(0));
    }
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn recommend_decides_and_writes_no_replicas() {
    let env = TestEnv::begin("recommend", &[]).await.unwrap();
    env.create(&objects::pool("workers", 0, 10)).await.unwrap();
    has_count(&env, "workers", 0).await;
    env.settles("workers", 0).await.unwrap();
    let mut autoscaler = objects::autoscaler("all", 1);
    autoscaler.spec.mode = shared_crds::v1alpha1::AutoscalerMode::Recommend;
    env.create(&autoscaler).await.unwrap();
    env.create(&objects::deployment("web", "workers", 4, "2")).await.unwrap();
    eventually(PATIENCE, "a recommendation", async || {
        let pool = env.pool("workers").await?;
        let wanted = pool.status.and_then(|status| status.autoscaling).and_then(|own| own.desired_replicas);
        if wanted == Some(2) { Ok(Some(())) } else { bail!("desiredReplicas {wanted:?}") }
    })
    .await
    .unwrap();
    assert_eq!(
        env.pool("workers").await.unwrap().spec.replicas,
        Some(0),
        "what was filled in is written over"
    );
    // After a switch to Auto, the same decision is written.
    let auto = Patch::Merge(json!({"spec": {"mode": "Auto"}}));
    env.api::<NodePoolAutoscaler>().patch("all", &PatchParams::default(), &auto).await.unwrap();
    env.pods_run(4).await.unwrap();
    env.settles("workers", 2).await.unwrap();
    env.end().await.unwrap();
}
