//! Many controllers that write each other's objects: two in one small operator, and those of a whole cluster.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use conflict_retry::{Outcome, WriteOptions, apply};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{PostParams, WatchEvent, WatchParams};
use serde_json::json;
use shared_crds::names::{AUTOSCALER_OPERATOR, NODE_FINALIZER, NODEPOOL_OPERATOR, node_selector};
use testbed::audit::{Event, ObjectKey};
use testbed::objects;
use testbed::test_env::is_ready;
use testbed::wait::eventually;

use super::account;
use super::one_operator;
use super::tandem::{Tandem, passed};
use crate::context::{Actor, PATIENCE, ScenarioContext};
use crate::event::Table;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "many-controllers",
    title: "Many controllers write each other's objects",
    rows: &["2d", "0e", "0f"],
    refutes: &[],
    lesson: "Few objects in a cluster have only one writer: two controllers of one operator may write the same one, and a new node has four writers.\nA controller that sends only its own fields, under a field manager of its own, meets no conflict.",
    needs: Needs::Operators,
    run: |ctx| Box::pin(run(ctx)),
};

/// The writes when a node is created and pods are scheduled to it: endpoint, writer, and purpose.
const WRITERS: [(&str, &str, &str); 14] = [
    ("nodepools", "nodepool-operator", "its finalizer"),
    ("nodepools", "autoscaler-operator", "how many nodes there should be"),
    ("nodepools/status", "autoscaler-operator", "why, and what it saw"),
    ("nodepools/status", "nodepool-operator", "how many there are"),
    ("nodepoolautoscalers/status", "autoscaler-operator", "what it plans"),
    ("nodes", "nodepool-operator", "makes them, holds them, drains them"),
    ("nodes", "node-controller", "taints, by what the kubelet says"),
    ("nodes", "ttl-controller", "an annotation for kubelets"),
    ("nodes/status", "kwok", "plays the kubelet: conditions, addresses"),
    ("deployments/status", "deployment-controller", "how many replicas there are"),
    ("replicasets", "deployment-controller", "makes them and sets their replicas"),
    ("replicasets/status", "replicaset-controller", "how many pods there are"),
    ("pods/binding", "kube-scheduler", "the node"),
    ("pods/status", "kwok", "plays the kubelet: that they run"),
];

/// The writers of each single node.
const OF_A_NODE: [&str; 4] = ["nodepool-operator", "node-controller", "ttl-controller", "kwok"];

async fn run(ctx: &ScenarioContext) -> Result<()> {
    one_operator::show(ctx).await?;
    let tandem = Tandem::begin(ctx, "guarded").await?;
    let played = play(&tandem).await;
    tandem.end(played).await
}

async fn play(tandem: &Tandem<'_>) -> Result<()> {
    let ctx = tandem.ctx;
    let bob = ctx.actor("bob").await?;
    let copy = nodes_come(tandem, &bob).await?;
    let name = copy.metadata.name.clone().context("no name")?;
    bob_writes(ctx, &bob, copy).await?;
    who_writes(tandem, name).await
}

/// Load creates nodes; returns the first node as Bob's tool first read it.
async fn nodes_come(tandem: &Tandem<'_>, bob: &Actor) -> Result<Node> {
    let ctx = tandem.ctx;
    ctx.say("Several programs, with more controllers: both operators of Tandem, on a whole cluster. Bob's tool watches the nodes of a pool and keeps each as it first saw it.");
    let nodes = Api::<Node>::all(bob.client());
    let of_pool = WatchParams::default().labels(&node_selector(ctx.namespace(), "workers"));
    let mut seen = nodes.watch(&of_pool, "0").await?.boxed();

    ctx.say("A Deployment of 4 pods needs 2 nodes. The Autoscaler writes that number into the pool, the NodePool operator makes the nodes, and kwok plays their kubelets. The controllers of Kubernetes write too: they are many in one program, kube-controller-manager, each with an account of its own.");
    ctx.set(&objects::pool("workers", 0, 10)).await?;
    ctx.set(&objects::autoscaler("all", 600)).await?;
    ctx.set(&objects::deployment("web", "workers", 4, "2")).await?;
    let first = async {
        while let Some(event) = seen.next().await {
            if let WatchEvent::Added(node) = event?
                && node.metadata.name.as_deref().is_some_and(|name| name.ends_with("-0"))
            {
                return Ok(node);
            }
        }
        bail!("the watch ended before a node came")
    };
    let copy = tokio::time::timeout(PATIENCE, first).await.context("no node came")??;
    tandem.pods_run(4).await?;
    tandem.settles("workers", 2).await?;
    Ok(copy)
}

/// A write of another controller's object from an old copy, and a write of a field of one's own.
#[expect(clippy::disallowed_methods, reason = "a tool's bare PUT of the whole object is the naive half")]
async fn bob_writes(ctx: &ScenarioContext, bob: &Actor, mut copy: Node) -> Result<()> {
    let nodes = Api::<Node>::all(bob.client());
    let name = copy.metadata.name.clone().context("no name")?;
    ctx.say("The nodes are ready, and all pods run. Bob's tool adds a label to its copy of the first node and sends the whole node back.");
    copy.metadata.labels.get_or_insert_default().insert("example.com/rack".to_owned(), "r1".to_owned());
    let answer = nodes.replace(&name, &PostParams::default(), &copy).await;
    let code = match answer {
        Err(kube::Error::Api(status)) => status.code,
        Ok(_) => 200,
        Err(error) => return Err(error.into()),
    };
    ctx.check_eq("409: others have written the node since, and a PUT replaces all of it", &code, &409);

    ctx.say("It sends its label and nothing else, by conflict-retry's apply.");
    let body = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"example.com/rack": "r1"}},
    });
    let Outcome::Written(node) =
        apply(&nodes, &name, &body).with(&WriteOptions::new("bob")).outcome().await?
    else {
        bail!("the label was not written")
    };
    let is_labelled = node.metadata.labels.iter().flatten().any(|(key, _)| key == "example.com/rack");
    let is_held = node.metadata.finalizers.iter().flatten().any(|held| held == NODE_FINALIZER);
    ctx.check(
        "granted at once; the operator's finalizer and the kubelet's Ready are as they were",
        is_labelled && is_held && is_ready(&node),
    );
    Ok(())
}

/// The writers of each kind, from the audit log.
async fn who_writes(tandem: &Tandem<'_>, first: String) -> Result<()> {
    let ctx = tandem.ctx;
    let (group, namespace, resource) = (String::new(), String::new(), "nodes".to_owned());
    let node = ObjectKey { group, resource, namespace, name: first };
    ctx.say("The audit log shows who has written what in these few seconds, and with which account:");
    let wanted: BTreeSet<(String, String)> =
        WRITERS.iter().map(|(endpoint, writer, _)| ((*endpoint).to_owned(), (*writer).to_owned())).collect();
    // Some of these writers may write a little later.
    let all = eventually(PATIENCE, "all expected writers have written", || async {
        let events = tandem.events_so_far()?;
        let (seen, of_node) = (writers(&events), writers_of(&events, &node));
        let mut missing: Vec<_> = wanted.difference(&seen).collect();
        let of_nodes = wanted.iter().filter(|(_, writer)| OF_A_NODE.contains(&writer.as_str()));
        missing.extend(of_nodes.filter(|pair| pair.0.starts_with("nodes") && !of_node.contains(*pair)));
        if missing.is_empty() { Ok(Some(())) } else { bail!("{missing:?} are missing") }
    });
    let all = passed(ctx, &all.await);
    let events = tandem.events_so_far()?;
    let seen = writers(&events);
    let mut table = Table::new(&["through", "written by", "what for"]);
    for (endpoint, writer, what) in WRITERS {
        if seen.contains(&(endpoint.to_owned(), writer.to_owned())) {
            table.row(&[&endpoint, &writer, &what]);
        }
    }
    ctx.table(table);
    ctx.check("all of these write, each through the endpoint that is named", all);
    let first: Vec<String> = writers_of(&events, &node).into_iter().map(|(_, writer)| writer).collect();
    ctx.check(
        "the first node alone was written by the four writers of nodes in the table, not counting Bob",
        OF_A_NODE.iter().all(|name| first.iter().any(|writer| writer == name)),
    );
    let pool = writers_of(&events, &tandem.key("workers"));
    let both = [NODEPOOL_OPERATOR, AUTOSCALER_OPERATOR];
    ctx.check(
        "both operators write the status of one pool",
        both.iter().all(|name| pool.contains(&("nodepools/status".to_owned(), (*name).to_owned()))),
    );

    ctx.say("Writes that were answered 409, if there were any, are listed in a terminal: how many differs from run to run.");
    ctx.live_table(refusals(&events));
    let ours = events.iter().filter(|event| account::operator(event).is_some() && is_contested(event));
    let ours: Vec<&Event> = ours.collect();
    ctx.check_eq("Tandem's operators met none", &ours.iter().filter(|event| event.code == 409).count(), &0);
    ctx.check(
        "because none of their changes names a version: each is a forced apply of what is theirs by contract, or a JSON Patch that tests what it was decided from (422)",
        account::cannot_conflict(ctx, ours),
    );
    Ok(())
}

/// Whether the request's object has several controllers as writers.
fn is_contested(event: &Event) -> bool {
    let resource = event.object.as_ref().map_or("", |object| object.resource.as_str());
    event.is_write() && ["nodepools", "nodepoolautoscalers", "nodes", "pods"].contains(&resource)
}

/// The writers of one object, with the endpoint.
fn writers_of(events: &[Event], key: &ObjectKey) -> BTreeSet<(String, String)> {
    writers(events.iter().filter(|event| event.object.as_ref() == Some(key)))
}

fn writers<'a>(events: impl IntoIterator<Item = &'a Event>) -> BTreeSet<(String, String)> {
    let granted = events.into_iter().filter(|event| event.is_write() && event.succeeded());
    granted.map(|event| (account::endpoint(event), account::writer(event))).collect()
}

/// Every write that was answered 409.
fn refusals(events: &[Event]) -> Table {
    let mut table = Table::new(&["through", "by", "how", "answer"]);
    for event in events.iter().filter(|event| event.is_write() && event.code == 409) {
        table.row(&[
            &account::endpoint(event),
            &account::writer(event),
            &account::form(event),
            &event.reason,
        ]);
    }
    table
}
