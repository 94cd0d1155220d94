//! Operators killed in the middle of what they do: what was decided is in the objects, not in a process.

use std::collections::BTreeSet;

use anyhow::bail;
use e2e::audit::Event;
use e2e::lifeline::Exit;
use e2e::objects;
use e2e::operators::Operator;
use e2e::trial::{PATIENCE, Trial};
use e2e::wait::eventually;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use shared_crds::v1alpha1::{AutoscalingStatus, ScaleDownPlan};
use shared_crds::{NodePool, NodePoolAutoscaler};

use super::hold::Hold;
use super::{QUICK_LEASE, asked, observed, replicas_written, scale, sent_by};

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_killed_in_the_middle_of_a_burst_never_has_too_many_nodes() {
    let mut trial = Trial::begin("kill", &QUICK_LEASE).await.unwrap();
    trial.create(&objects::pool("burst", 0, 60)).await.unwrap();
    trial.settles("burst", 0).await.unwrap();
    scale(&trial, "npool/burst", 60).await;
    eventually(PATIENCE, "the burst has begun", async || {
        let nodes = trial.nodes("burst").await?.len();
        if nodes >= 3 { Ok(Some(())) } else { bail!("{nodes} nodes") }
    })
    .await
    .unwrap();
    let exit = trial.operators.node_pool.kill_9().await.unwrap();
    assert_eq!(exit, Exit::Signal(9));
    trial.operators.node_pool.start_again().await.unwrap();
    trial.settles("burst", 60).await.unwrap();
    // Nothing was deleted, so there were never more nodes at the same time than names were asked for.
    let events = trial.events().unwrap();
    assert_eq!(asked(&events, "create", "burst").len(), 60);
    assert_eq!(asked(&events, "delete", "burst").len(), 0);

    // Down again, with the Autoscaler killed as well: what was decided is in the objects, not in a process.
    scale(&trial, "npool/burst", 5).await;
    trial.operators.autoscaler.kill_9().await.unwrap();
    trial.operators.node_pool.kill_9().await.unwrap();
    trial.operators.autoscaler.start_again().await.unwrap();
    trial.operators.node_pool.start_again().await.unwrap();
    trial.settles("burst", 5).await.unwrap();
    trial.end().await.unwrap();
}

/// Between the two writes of a scale-down: the nodes that go are named, and the replicas are not written yet.
#[tokio::test(flavor = "multi_thread")]
async fn the_autoscaler_killed_between_the_names_and_the_replicas_finishes_the_scale_down() {
    let mut trial = Trial::begin("kill-down", &QUICK_LEASE).await.unwrap();
    trial.create(&objects::pool("shrinking", 0, 10)).await.unwrap();
    trial.create(&objects::autoscaler("all", 600)).await.unwrap();
    // One pod fits on a node: two nodes stay busy, two become idle.
    trial.create(&objects::deployment("stays", "shrinking", 2, "3")).await.unwrap();
    trial.create(&objects::deployment("goes", "shrinking", 2, "3")).await.unwrap();
    trial.pods_run(4).await.unwrap();
    trial.settles("shrinking", 4).await.unwrap();
    let (busy, idle) = (nodes_of(&trial, "stays").await, nodes_of(&trial, "goes").await);
    scale(&trial, "deployment/goes", 0).await;
    eventually(PATIENCE, "two nodes are known to be idle", async || {
        let unneeded = autoscaling(&trial).await.unneeded_nodes.into_iter().map(|node| node.name);
        let unneeded: BTreeSet<String> = unneeded.collect();
        if unneeded == idle { Ok(Some(())) } else { bail!("{unneeded:?}, not {idle:?}") }
    })
    .await
    .unwrap();

    // Both may go in the same pass, which is killed when its write of the replicas is on its way.
    let mut hold = Hold::begin(&trial, Operator::Autoscaler, "shrinking").await.unwrap();
    let began = trial.audit().unwrap().end().unwrap();
    let ripe = Patch::Merge(json!({"spec": {"scaleDown": {"unneededSeconds": 0}}}));
    trial.api::<NodePoolAutoscaler>().patch("all", &PatchParams::default(), &ripe).await.unwrap();
    killed_in_the_middle(&trial, &mut hold, began, 2).await;

    // This is the middle, as it is kept and as it was written.
    assert_eq!(trial.pool("shrinking").await.unwrap().spec.replicas, Some(4));
    let plan = autoscaling(&trial).await.scale_down;
    let plan = plan.expect("the nodes that go are not named");
    assert_eq!((plan.target_replicas, plan.nodes.iter().cloned().collect()), (2, idle));
    assert_eq!(announced(&trial, began), [(Some(4), plan.clone())]);
    // The NodePool operator sees it, too, and waits for the count that the names belong to.
    observed(&trial, "shrinking", json!({"maxReplicas": 11})).await;
    let nodes = trial.nodes("shrinking").await.unwrap();
    let leaving = nodes.iter().filter(|node| {
        node.metadata.deletion_timestamp.is_some()
            || node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true))
    });
    assert_eq!(
        (nodes.len(), leaving.count()),
        (4, 0),
        "nodes went for a count that is not written: {nodes:#?}"
    );

    hold.end().await.unwrap();
    assert_eq!(trial.pool("shrinking").await.unwrap().spec.replicas, Some(4));
    trial.operators.autoscaler.start_again().await.unwrap();
    trial.settles("shrinking", 2).await.unwrap();
    trial.pods_run(2).await.unwrap();
    eventually(PATIENCE, "the decision that was taken up is reported", async || {
        let last = autoscaling(&trial).await.last_decision;
        if last.as_ref().is_some_and(|last| last.id == plan.decision_id) {
            Ok(Some(()))
        } else {
            bail!("{last:?}, not {}", plan.decision_id)
        }
    })
    .await
    .unwrap();

    // Nothing was decided anew, and what was decided was done once.
    let plans: BTreeSet<_> = announced(&trial, began).into_iter().map(|(_, plan)| plan.decision_id).collect();
    assert_eq!(plans, BTreeSet::from([plan.decision_id]));
    let events = trial.audit().unwrap().follow_from(began).read_new().unwrap();
    assert_eq!(replicas_written(&trial, &events, "shrinking"), [2]);
    assert_eq!(asked(&events, "delete", "shrinking"), plan.nodes.into_iter().collect());
    assert_eq!(asked(&events, "create", "shrinking"), BTreeSet::new());
    assert_eq!(nodes_of(&trial, "stays").await, busy);
    trial.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_autoscaler_killed_while_it_raises_the_replicas_raises_them_again() {
    let mut trial = Trial::begin("kill-up", &QUICK_LEASE).await.unwrap();
    trial.create(&objects::pool("growing", 0, 10)).await.unwrap();
    trial.create(&objects::autoscaler("all", 600)).await.unwrap();
    eventually(PATIENCE, "the Autoscaler sets what was unset", async || {
        let replicas = trial.pool("growing").await?.spec.replicas;
        if replicas == Some(0) { Ok(Some(())) } else { bail!("spec.replicas {replicas:?}") }
    })
    .await
    .unwrap();

    let mut hold = Hold::begin(&trial, Operator::Autoscaler, "growing").await.unwrap();
    let began = trial.audit().unwrap().end().unwrap();
    trial.create(&objects::deployment("web", "growing", 8, "2")).await.unwrap();
    killed_in_the_middle(&trial, &mut hold, began, 4).await;
    hold.end().await.unwrap();
    let replicas = trial.pool("growing").await.unwrap().spec.replicas;
    assert_eq!(replicas, Some(0), "a write that was refused was carried out");

    trial.operators.autoscaler.start_again().await.unwrap();
    trial.pods_run(8).await.unwrap();
    trial.settles("growing", 4).await.unwrap();
    let events = trial.audit().unwrap().follow_from(began).read_new().unwrap();
    assert_eq!(replicas_written(&trial, &events, "growing"), [4]);
    assert_eq!(asked(&events, "create", "growing").len(), 4);
    assert_eq!(asked(&events, "delete", "growing").len(), 0);
    trial.end().await.unwrap();
}

/// Kills the Autoscaler as soon as its write of the replicas has arrived, and proves that it had: that write asked for
/// `wanted` nodes, and was the only one since `began`.
async fn killed_in_the_middle(trial: &Trial, hold: &mut Hold, began: u64, wanted: i64) {
    hold.caught().await.unwrap();
    assert_eq!(trial.operators.autoscaler.kill_9().await.unwrap(), Exit::Signal(9));
    // The API server gives the write up with the connection of whoever sent it, and then writes it down.
    let asked_for = |events: &[Event]| {
        let scales = events.iter().filter(|event| {
            sent_by(event, Operator::Autoscaler, 0) && event.is_write() && event.subresource == "scale"
        });
        let scales: Vec<_> = scales.map(|event| (event.succeeded(), replicas_asked(event))).collect();
        (!scales.is_empty()).then_some(scales)
    };
    let audit = trial.audit().unwrap();
    let scales = audit.wait_for(began, PATIENCE, "a write of the replicas was cut off", asked_for).await;
    assert_eq!(scales.unwrap(), [(false, Some(wanted))]);
}

/// The number of nodes in a JSON Patch of `/scale`.
fn replicas_asked(event: &Event) -> Option<i64> {
    let operations = event.request.as_ref()?.as_array()?;
    operations.iter().rfind(|operation| operation["op"] != "test")?.pointer("/value")?.as_i64()
}

/// What status said of nodes that go after each of the Autoscaler's writes since `began`, with the replicas of that
/// moment.
fn announced(trial: &Trial, began: u64) -> Vec<(Option<i32>, ScaleDownPlan)> {
    let events = trial.audit().unwrap().follow_from(began).read_new().unwrap();
    let statuses = events.into_iter().filter(|event| {
        sent_by(event, Operator::Autoscaler, 0)
            && event.is_write()
            && event.succeeded()
            && event.subresource == "status"
            && event.object == Some(trial.key("shrinking"))
    });
    let pools = statuses.map(|event| serde_json::from_value::<NodePool>(event.response.unwrap()).unwrap());
    pools.filter_map(|pool| Some((pool.spec.replicas, pool.status?.autoscaling?.scale_down?))).collect()
}

async fn autoscaling(trial: &Trial) -> AutoscalingStatus {
    trial.pool("shrinking").await.unwrap().status.and_then(|status| status.autoscaling).unwrap_or_default()
}

/// The nodes that the pods of a Deployment are on.
async fn nodes_of(trial: &Trial, app: &str) -> BTreeSet<String> {
    let pods = trial.api::<Pod>().list(&ListParams::default().labels(&format!("app={app}"))).await.unwrap();
    pods.items.into_iter().filter_map(|pod| pod.spec?.node_name).collect()
}
