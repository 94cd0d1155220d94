//! Operators that are killed in the middle of their work: decisions are stored in the objects, not in a process.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use shared_crds::v1alpha1::{AutoscalingStatus, ScaleDownPlan};
use shared_crds::{NodePool, NodePoolAutoscaler};
use testbed::audit::Event;
use testbed::objects;
use testbed::operators::OperatorKind;
use testbed::process_supervisor::Exit;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

use super::hold::Hold;
use super::{QUICK_LEASE, asked, has_count, observed, replicas_written, scale, sent_by, unschedulable};

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_killed_in_the_middle_of_a_burst_never_has_too_many_nodes() {
    let mut env = TestEnv::begin("kill", &QUICK_LEASE).await.unwrap();
    env.create(&objects::pool("burst", 0, 60)).await.unwrap();
    env.settles("burst", 0).await.unwrap();
    scale(&env, "npool/burst", 60).await;
    eventually(PATIENCE, "the burst has begun", async || {
        let nodes = env.nodes("burst").await?.len();
        if nodes >= 3 { Ok(Some(())) } else { bail!("{nodes} nodes") }
    })
    .await
    .unwrap();
    let exit = env.operators.node_pool.kill_9().await.unwrap();
    assert_eq!(exit, Exit::Signal(9));
    env.operators.node_pool.start_again().await.unwrap();
    env.settles("burst", 60).await.unwrap();
    // No node was deleted, so there were never more nodes at the same time than requested names.
    let events = env.events().unwrap();
    assert_eq!(asked(&events, "create", "burst").len(), 60);
    assert_eq!(asked(&events, "delete", "burst").len(), 0);

    // Scale-down, with the Autoscaler killed as well: decisions are stored in the objects, not in a process.
    scale(&env, "npool/burst", 5).await;
    env.operators.autoscaler.kill_9().await.unwrap();
    env.operators.node_pool.kill_9().await.unwrap();
    env.operators.autoscaler.start_again().await.unwrap();
    env.operators.node_pool.start_again().await.unwrap();
    env.settles("burst", 5).await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_autoscaler_killed_between_the_names_and_the_replicas_finishes_the_scale_down() {
    let mut env = TestEnv::begin("kill-down", &QUICK_LEASE).await.unwrap();
    let CutOff { began, busy, plan } = cut_off(&env, "shrinking").await;
    env.operators.autoscaler.start_again().await.unwrap();
    env.settles("shrinking", 2).await.unwrap();
    env.pods_run(2).await.unwrap();
    eventually(PATIENCE, "the decision that was taken up is reported", async || {
        let last = autoscaling(&env, "shrinking").await.last_decision;
        if last.as_ref().is_some_and(|last| last.id == plan.decision_id) {
            Ok(Some(()))
        } else {
            bail!("{last:?}, not {}", plan.decision_id)
        }
    })
    .await
    .unwrap();

    // No new decision was made, and the existing one was executed once.
    let plans = announced(&env, "shrinking", began).into_iter().map(|(_, plan)| plan.decision_id);
    assert_eq!(plans.collect::<BTreeSet<_>>(), BTreeSet::from([plan.decision_id]));
    let events = env.audit().unwrap().follow_from(began).read_new().unwrap();
    assert_eq!(replicas_written(&env, &events, "shrinking"), [2]);
    assert_eq!(asked(&events, "delete", "shrinking"), plan.nodes.into_iter().collect());
    assert_eq!(asked(&events, "create", "shrinking"), BTreeSet::new());
    assert_eq!(nodes_of(&env, "stays").await, busy);
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_down_that_was_cut_off_is_withdrawn_when_pods_have_come_back() {
    let mut env = TestEnv::begin("kill-back", &QUICK_LEASE).await.unwrap();
    let CutOff { began, busy, plan } = cut_off(&env, "staying").await;
    // The nodes that were to be removed are not cordoned.
    scale(&env, "deployment/goes", 2).await;
    env.pods_run(4).await.unwrap();
    assert_eq!(nodes_of(&env, "goes").await, plan.nodes.into_iter().collect());
    env.operators.autoscaler.start_again().await.unwrap();
    eventually(PATIENCE, "the names of nodes that were to go are withdrawn", async || {
        let left = autoscaling(&env, "staying").await.scale_down;
        if left.is_none() { Ok(Some(())) } else { bail!("{left:?}") }
    })
    .await
    .unwrap();
    env.settles("staying", 4).await.unwrap();
    let events = env.audit().unwrap().follow_from(began).read_new().unwrap();
    assert_eq!(replicas_written(&env, &events, "staying"), Vec::<i64>::new());
    assert_eq!(asked(&events, "delete", "staying"), BTreeSet::new());
    assert_eq!(nodes_of(&env, "stays").await, busy);
    env.end().await.unwrap();
}

/// A scale-down from four nodes to two that was interrupted between its two writes: the nodes to remove are named, and
/// the replicas are not written.
struct CutOff {
    /// Its start in the audit log.
    began: u64,
    /// The nodes of the pods that stay.
    busy: BTreeSet<String>,
    /// The nodes that were to be removed.
    plan: ScaleDownPlan,
}

/// Interrupts a scale-down of `pool` and proves that it was. The Autoscaler is dead after this.
async fn cut_off(env: &TestEnv, pool: &str) -> CutOff {
    env.create(&objects::pool(pool, 0, 10)).await.unwrap();
    env.create(&objects::autoscaler("all", 600)).await.unwrap();
    // One pod fits on a node: two nodes stay busy, two become idle.
    env.create(&objects::deployment("stays", pool, 2, "3")).await.unwrap();
    env.create(&objects::deployment("goes", pool, 2, "3")).await.unwrap();
    env.pods_run(4).await.unwrap();
    env.settles(pool, 4).await.unwrap();
    let (busy, idle) = (nodes_of(env, "stays").await, nodes_of(env, "goes").await);
    scale(env, "deployment/goes", 0).await;
    eventually(PATIENCE, "two nodes are known to be idle", async || {
        let unneeded = autoscaling(env, pool).await.unneeded_nodes.into_iter().map(|node| node.name);
        let unneeded: BTreeSet<String> = unneeded.collect();
        if unneeded == idle { Ok(Some(())) } else { bail!("{unneeded:?}, not {idle:?}") }
    })
    .await
    .unwrap();

    // Both may be removed in the same pass, which is killed when its write of the replicas is in flight.
    let mut hold = Hold::begin(env, OperatorKind::Autoscaler, pool).await.unwrap();
    let began = env.audit().unwrap().end().unwrap();
    let ripe = Patch::Merge(json!({"spec": {"scaleDown": {"unneededSeconds": 0}}}));
    env.api::<NodePoolAutoscaler>().patch("all", &PatchParams::default(), &ripe).await.unwrap();
    assert_eq!(killed_in_the_middle(env, &mut hold, began).await, 2);

    // This is the middle of the scale-down, in the stored state and in the audit log.
    assert_eq!(env.pool(pool).await.unwrap().spec.replicas, Some(4));
    let plan = autoscaling(env, pool).await.scale_down.context("the nodes that go are not named").unwrap();
    assert_eq!((plan.target_replicas, plan.nodes.iter().cloned().collect()), (2, idle));
    assert_eq!(announced(env, pool, began), [(Some(4), plan.clone())]);
    // The NodePool operator sees it, too, and waits for the count that the names belong to.
    observed(env, pool, json!({"maxReplicas": 11})).await;
    let nodes = env.nodes(pool).await.unwrap();
    let leaving = nodes.iter().filter(|node| is_leaving(node)).map(|node| &node.metadata.name);
    let leaving: Vec<_> = leaving.collect();
    let all = nodes.len();
    assert!(all == 4 && leaving.is_empty(), "{leaving:?} of {all} go for a count that is not written");

    hold.end().await.unwrap();
    assert_eq!(env.pool(pool).await.unwrap().spec.replicas, Some(4));
    CutOff { began, busy, plan }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_autoscaler_killed_while_it_raises_the_replicas_raises_them_again() {
    let mut env = TestEnv::begin("kill-up", &QUICK_LEASE).await.unwrap();
    env.create(&objects::pool("growing", 0, 10)).await.unwrap();
    env.create(&objects::autoscaler("all", 600)).await.unwrap();
    has_count(&env, "growing", 0).await;

    let mut hold = Hold::begin(&env, OperatorKind::Autoscaler, "growing").await.unwrap();
    let began = env.audit().unwrap().end().unwrap();
    env.create(&objects::deployment("web", "growing", 8, "2")).await.unwrap();
    // The first pass may be too early to see all eight pods.
    let asked_for = killed_in_the_middle(&env, &mut hold, began).await;
    assert!((1..=4).contains(&asked_for), "{asked_for} nodes for 8 pods");
    hold.end().await.unwrap();
    let replicas = env.pool("growing").await.unwrap().spec.replicas;
    assert_eq!(replicas, Some(0), "a write that was refused was carried out");
    // Its next pass sees all of them, and asks once.
    unschedulable(&env, "web", 8).await;

    env.operators.autoscaler.start_again().await.unwrap();
    env.pods_run(8).await.unwrap();
    env.settles("growing", 4).await.unwrap();
    let events = env.audit().unwrap().follow_from(began).read_new().unwrap();
    assert_eq!(replicas_written(&env, &events, "growing"), [4]);
    assert_eq!(asked(&events, "create", "growing").len(), 4);
    assert_eq!(asked(&events, "delete", "growing").len(), 0);
    env.end().await.unwrap();
}

/// Kills the Autoscaler as soon as its write of the replicas has arrived, and proves that this write, the only one
/// since `began`, was interrupted. Returns the number of nodes that it requested.
async fn killed_in_the_middle(env: &TestEnv, hold: &mut Hold, began: u64) -> i64 {
    hold.caught().await.unwrap();
    assert_eq!(env.operators.autoscaler.kill_9().await.unwrap(), Exit::Signal(9));
    // The API server gives the write up with its sender's connection, and then logs it.
    let scales = |events: &[Event]| {
        let scales = events.iter().filter(|event| {
            sent_by(event, OperatorKind::Autoscaler, 0) && event.is_write() && is_main(event)
        });
        let scales: Vec<_> = scales.map(|event| (event.succeeded(), replicas_asked(event))).collect();
        (!scales.is_empty()).then_some(scales)
    };
    let audit = env.audit().unwrap();
    let scales =
        audit.wait_for(began, PATIENCE, "a write of the replicas was cut off", scales).await.unwrap();
    let replicas = match scales[..] {
        [(false, Some(replicas))] => Some(replicas),
        _ => None,
    };
    replicas
        .with_context(|| format!("not one write that was refused: (granted, replicas) {scales:?}"))
        .unwrap()
}

/// Whether it is about a pool itself, not a subresource.
fn is_main(event: &Event) -> bool {
    event.subresource.is_empty() && event.object.as_ref().is_some_and(|object| object.resource == "nodepools")
}

/// The number of nodes in a JSON Patch of the count.
fn replicas_asked(event: &Event) -> Option<i64> {
    let operations = event.request.as_ref()?.as_array()?;
    operations.iter().rfind(|operation| operation["op"] != "test")?.pointer("/value")?.as_i64()
}

/// The Autoscaler's list of nodes to remove in the status of `pool` after each of its writes since `began`, with the
/// replicas at that time.
fn announced(env: &TestEnv, pool: &str, began: u64) -> Vec<(Option<i32>, ScaleDownPlan)> {
    let events = env.audit().unwrap().follow_from(began).read_new().unwrap();
    let statuses = events.into_iter().filter(|event| {
        sent_by(event, OperatorKind::Autoscaler, 0)
            && event.is_write()
            && event.succeeded()
            && event.subresource == "status"
            && event.object == Some(env.key(pool))
    });
    let pools = statuses.map(|event| serde_json::from_value::<NodePool>(event.response.unwrap()).unwrap());
    pools.filter_map(|pool| Some((pool.spec.replicas, pool.status?.autoscaling?.scale_down?))).collect()
}

async fn autoscaling(env: &TestEnv, pool: &str) -> AutoscalingStatus {
    env.pool(pool).await.unwrap().status.and_then(|status| status.autoscaling).unwrap_or_default()
}

fn is_leaving(node: &Node) -> bool {
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    cordoned || node.metadata.deletion_timestamp.is_some()
}

/// The nodes of a Deployment's pods.
async fn nodes_of(env: &TestEnv, app: &str) -> BTreeSet<String> {
    let pods = env.api::<Pod>().list(&ListParams::default().labels(&format!("app={app}"))).await.unwrap();
    pods.items.into_iter().filter_map(|pod| pod.spec?.node_name).collect()
}
