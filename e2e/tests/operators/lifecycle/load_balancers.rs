//! `spec.drain.loadBalancerDrainSeconds`: an empty node keeps its machine until external load balancers have had their time since its
//! cordon.

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use shared_crds::names::{DRAIN_WAITS_ANNOTATION, EXCLUDE_FROM_LOAD_BALANCERS_LABEL};
use shared_crds::v1alpha1::DrainSpec;
use testbed::audit::Event;
use testbed::objects;
use testbed::test_env::{PATIENCE, TestEnv, is_ready};
use testbed::wait::eventually;

use super::drains::{evictions, one_node};
use super::{cordon_of, scale};

/// Far more than a drain takes that waits for nothing, which is two seconds and a pass or two.
const LET_GO: i32 = 30;

/// When an object of this name was first deleted: when that request arrived.
fn deleted_at(events: &[Event], resource: &str, name: &str) -> Option<Timestamp> {
    let mut deletions = events
        .iter()
        .filter(|event| event.verb == "delete" && event.subresource.is_empty() && event.succeeded());
    let is_it = |event: &&Event| {
        event.object.as_ref().is_some_and(|object| object.resource == resource && object.name == name)
    };
    deletions.find(is_it).map(|event| event.received)
}

/// How many seconds the node was there after its cordon, from the audit log.
async fn kept_for(env: &TestEnv, node: &str) -> f64 {
    let what = format!("cordon and deletion of {node} are in the audit log");
    eventually(PATIENCE, &what, async || {
        let events = env.events()?;
        let cordon = cordon_of(&events, node).context("no cordon")?.received;
        let deletion = deleted_at(&events, "nodes", node).context("no deletion")?;
        Ok(Some(deletion.duration_since(cordon).as_secs_f64()))
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_node_that_is_ready_keeps_its_machine_until_load_balancers_have_let_it_go() {
    let env = TestEnv::begin("let-go", &[]).await.unwrap();
    let mut nodes = Vec::new();
    for (pool, seconds) in [("patient", Some(LET_GO)), ("broken", Some(LET_GO)), ("prompt", None)] {
        let drain = DrainSpec { load_balancer_drain_seconds: seconds, ..DrainSpec::default() };
        one_node(&env, pool, drain).await;
        nodes.push(env.nodes(pool).await.unwrap().remove(0).name_any());
    }
    let [patient, broken, prompt] = &nodes[..] else { panic!("{nodes:?}") };
    for pool in ["patient", "prompt"] {
        env.create(&objects::pod_on(pool)).await.unwrap();
    }
    env.pods_run(2).await.unwrap();
    // Nothing reaches a node whose kubelet is silent, so it is not waited for.
    env.set_silent(broken, true).await.unwrap();
    for pool in ["patient", "broken", "prompt"] {
        scale(&env, &format!("npool/{pool}"), 0).await;
    }

    eventually(PATIENCE, "the node waits for load balancers, and for nothing else", async || {
        env.operators.keep_alive().await?;
        let nodes = env.nodes("patient").await?;
        let node = nodes.first().context("no node")?;
        let waits_for = node.annotations().get(DRAIN_WAITS_ANNOTATION).context("no annotation")?;
        ensure!(waits_for.contains("external load balancers"), "{waits_for}");
        ensure!(node.labels().contains_key(EXCLUDE_FROM_LOAD_BALANCERS_LABEL));
        let pod = env.api::<Pod>().get_opt("patient").await?;
        ensure!(is_ready(node) && pod.is_none(), "{:?}", pod.map(|pod| pod.status));
        Ok(Some(()))
    })
    .await
    .unwrap();
    for pool in ["patient", "broken", "prompt"] {
        env.settles(pool, 0).await.unwrap();
    }

    let let_go = f64::from(LET_GO);
    let kept = kept_for(&env, patient).await;
    assert!(kept >= let_go, "it was deleted {kept} s after its cordon");
    for (node, why) in [(prompt, "its pool waits for no load balancer"), (broken, "it is not Ready")] {
        let kept = kept_for(&env, node).await;
        assert!(kept < let_go, "{node} was deleted {kept} s after its cordon, and {why}");
    }
    let events = env.events().unwrap();
    assert!(evictions(&events).contains(&("patient".to_owned(), 201)), "its pod was evicted");
    let [of_pod, of_node] = [("pods", "patient"), ("nodes", patient.as_str())]
        .map(|(resource, name)| deleted_at(&events, resource, name).unwrap());
    assert!(of_pod < of_node, "the pod was there until {of_pod}, and the node until {of_node}");
    env.end().await.unwrap();
}
