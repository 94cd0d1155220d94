//! Nodes that exist but do not accept pods yet, because a component on them still has to start.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use shared_crds::NodePoolAutoscaler;
use shared_crds::v1alpha1::{NodeTaint, TaintEffect};
use testbed::objects;
use testbed::operators::OperatorKind;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

use super::{QUICK_LEASE, asked, observed, replicas_written, scale, sent_by, unschedulable};

/// A taint that an agent removes once it runs, like those of network and storage agents.
const TAINT: &str = "example.com/agent-not-ready";

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_startup_taint_is_capacity_on_its_way_until_an_agent_takes_the_taint_away() {
    let mut env = TestEnv::begin("startup", &QUICK_LEASE).await.unwrap();
    let mut pool = objects::pool("warming", 0, 10);
    pool.spec.template.spec.startup_taints =
        vec![NodeTaint { key: TAINT.to_owned(), value: None, effect: TaintEffect::NoSchedule }];
    env.create(&pool).await.unwrap();
    env.create(&objects::autoscaler("all", 600)).await.unwrap();
    env.create(&objects::deployment("web", "warming", 2, "1")).await.unwrap();
    env.settles("warming", 1).await.unwrap();
    let node = only_node(&env).await;
    let name = node.metadata.name.clone().unwrap();
    assert!(is_tainted(&node), "born without the taint: {:?}", node.spec);

    // Two pods are pending although the node is Ready, and so is a third one created meanwhile: none triggers another
    // node.
    blocked(&env, 2).await;
    planned(&env, 2).await;
    scale(&env, "deployment/web", 3).await;
    blocked(&env, 3).await;
    planned(&env, 3).await;
    one_node(&env, &name).await;

    // An agent tolerates the taint, the only obstacle for the other pods, and removes it.
    let agent: Pod = serde_json::from_value(json!({
        "metadata": {"name": "agent", "labels": {"app": "agent"}},
        "spec": {
            "nodeSelector": {"pool": "warming"},
            "tolerations": [{"key": TAINT, "operator": "Exists"}],
            "containers": [{
                "name": "agent",
                "image": "example.invalid/agent",
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            }],
        },
    }))
    .unwrap();
    env.create(&agent).await.unwrap();
    runs_on(&env, "agent", 1, &name).await;
    assert_eq!(unschedulable(&env, "web", 3).await.len(), 3);
    assert!(is_tainted(&only_node(&env).await), "the taint went before the agent removed it");
    let removed = env.audit().unwrap().end().unwrap();
    env.kubectl(&["taint", "node", &name, &format!("{TAINT}:NoSchedule-")]).await.unwrap();
    runs_on(&env, "web", 3, &name).await;

    // The template still contains the taint, but no operator restores it: neither in a pass nor after a restart.
    observed(&env, "warming", json!({"maxReplicas": 11})).await;
    env.operators.node_pool.kill_9().await.unwrap();
    env.operators.node_pool.start_again().await.unwrap();
    observed(&env, "warming", json!({"maxReplicas": 12})).await;
    let pool = env.settles("warming", 1).await.unwrap();
    assert_eq!(pool.spec.template.spec.startup_taints.len(), 1);
    one_node(&env, &name).await;
    let events = env.audit().unwrap().follow_from(removed).read_new().unwrap();
    let writes = events.iter().filter(|event| {
        event.is_write() && event.object.as_ref().is_some_and(|o| o.resource == "nodes" && o.name == name)
    });
    let tainted = |body: &Option<Value>| body.as_ref().is_some_and(|body| body.to_string().contains(TAINT));
    // Another writer may have come before the one that removed it.
    let writes = writes.skip_while(|event| tainted(&event.response) || !event.succeeded());
    let writes: Vec<_> = writes.collect();
    assert!(!writes.is_empty(), "the audit log has no write to the node that removed its taint");
    let again = writes.iter().filter(|event| {
        tainted(&event.response) || sent_by(event, OperatorKind::NodePool, 0) && tainted(&event.request)
    });
    let again: Vec<_> = again.map(|event| (event.writer(), &event.field_manager, &event.request)).collect();
    assert!(again.is_empty(), "the taint was there again after {again:?}");

    // The control: pods that do not fit on that node get another one, which is created with the taint, too.
    scale(&env, "deployment/web", 5).await;
    env.settles("warming", 2).await.unwrap();
    blocked(&env, 2).await;
    planned(&env, 2).await;
    let nodes = env.nodes("warming").await.unwrap();
    let tainted: BTreeMap<_, _> =
        nodes.iter().map(|node| (node.metadata.name.as_deref().unwrap(), is_tainted(node))).collect();
    assert_eq!(tainted.get(name.as_str()), Some(&false), "{tainted:?}");
    assert_eq!(tainted.values().filter(|tainted| **tainted).count(), 1, "{tainted:?}");
    assert_eq!(raised(&env), [1, 2]);
    env.end().await.unwrap();
}

fn is_tainted(node: &Node) -> bool {
    let mut taints = node.spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten();
    taints.any(|taint| taint.key == TAINT && taint.effect == "NoSchedule")
}

async fn only_node(env: &TestEnv) -> Node {
    let mut nodes = env.nodes("warming").await.unwrap();
    let names: Vec<_> = nodes.iter().map(|node| &node.metadata.name).collect();
    assert_eq!(nodes.len(), 1, "there are {names:?}");
    nodes.remove(0)
}

/// The node counts that the Autoscaler requested, except for the initial zero.
fn raised(env: &TestEnv) -> Vec<i64> {
    let mut written = replicas_written(env, &env.events().unwrap(), "warming");
    written.retain(|replicas| *replicas != 0);
    written
}

/// Checks that there is one node and that neither operator ever requested more.
async fn one_node(env: &TestEnv, name: &str) {
    assert_eq!(only_node(env).await.metadata.name.as_deref(), Some(name));
    assert_eq!(env.pool("warming").await.unwrap().spec.replicas, Some(1));
    let names = asked(&env.events().unwrap(), "create", "warming");
    assert_eq!(names.iter().collect::<Vec<_>>(), [name], "other nodes were made");
    assert_eq!(raised(env), [1]);
}

/// Waits until the scheduler has rejected the node for `wanted` pods because of its taint.
async fn blocked(env: &TestEnv, wanted: usize) {
    eventually(PATIENCE, &format!("{wanted} pods wait for the taint to go"), async || {
        let messages = unschedulable(env, "web", wanted).await;
        if messages.iter().all(|message| message.contains("untolerated taint")) {
            return Ok(Some(()));
        }
        bail!("{messages:?}")
    })
    .await
    .unwrap();
}

/// Makes the Autoscaler plan with the current state, and checks that it sees `waiting` pods.
async fn planned(env: &TestEnv, waiting: i32) {
    let autoscalers = env.api::<NodePoolAutoscaler>();
    // Its status of a new generation comes from a pass that began after this.
    let change = json!({"spec": {"scaleDown": {"unneededSeconds": 600 + waiting}}});
    let patched = autoscalers.patch("all", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    eventually(PATIENCE, &format!("the Autoscaler plans for {waiting} pods"), async || {
        let status = autoscalers.get("all").await?.status.context("no status")?;
        if status.observed_generation >= patched.metadata.generation && status.pending_pods == Some(waiting) {
            return Ok(Some(()));
        }
        bail!("{status:?}")
    })
    .await
    .unwrap();
}

/// Waits until all `wanted` pods called `app` run on the node.
async fn runs_on(env: &TestEnv, app: &str, wanted: usize, node: &str) {
    let of_app = ListParams::default().labels(&format!("app={app}"));
    eventually(PATIENCE, &format!("{wanted} pods of {app} run on {node}"), async || {
        let pods = env.api::<Pod>().list(&of_app).await?.items;
        let on_node = pods.iter().filter(|pod| {
            pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node)
                && pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
        });
        let (on_node, all) = (on_node.count(), pods.len());
        if (on_node, all) == (wanted, wanted) { Ok(Some(())) } else { bail!("{on_node} of {all}") }
    })
    .await
    .unwrap();
}
