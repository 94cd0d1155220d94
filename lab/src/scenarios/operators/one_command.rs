//! A whole cluster with one command, of which nothing is left afterwards: the command itself, and what the lab starts.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use serde_json::json;
use testbed::audit::Event;
use testbed::cluster::{Cluster, ClusterOptions};
use testbed::test_env::is_ready;
use testbed::wait::eventually;
use toolbox::go::KUBERNETES_VERSION;

use super::account;
use super::dev_up::{self, READY_WITHIN};
use crate::context::{PATIENCE, ScenarioContext};
use crate::event::Table;
use crate::picture::LOGGED;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "one-command",
    title: "Start a local Kubernetes control plane with one command",
    rows: &["2k"],
    refutes: &[],
    lesson: "`cargo xtask dev up` starts it and keeps it; every scenario and every test starts its own.\nThe API server is the real one; conflicts need nothing else, and controllers, scheduler and nodes are there when a scenario needs them.",
    needs: Needs::Operators,
    run: |ctx| Box::pin(run(ctx)),
};

/// The purpose of each program.
const PURPOSES: [(&str, &str); 5] = [
    ("etcd", "the store"),
    ("kube-apiserver", "versions, conflicts, validation, audit log"),
    ("kube-controller-manager", "Deployments, garbage collection, node health"),
    ("kube-scheduler", "pods to nodes"),
    ("kwok", "plays the kubelets of simulated nodes"),
];

/// The writes that lead to a pod that runs, each the reason of the next: endpoint, writer (empty: whoever asks for it), and
/// verb in the audit log. The creation of pods is not among them: the log has no name for it, and so no namespace.
const STEPS: [(&str, &str, &str); 6] = [
    ("nodes", "", "create"),
    ("nodes/status", "kwok", "patch"),
    ("deployments", "", "create"),
    ("replicasets", "deployment-controller", "create"),
    ("pods/binding", "kube-scheduler", "create"),
    ("pods/status", "kwok", "patch"),
];

fn is_step(event: &Event, (endpoint, who, verb): &(&str, &str, &str)) -> bool {
    event.verb == *verb
        && account::endpoint(event) == *endpoint
        && (who.is_empty() || account::writer(event) == *who)
}

async fn run(ctx: &ScenarioContext) -> Result<()> {
    dev_up::show(ctx, &all_programs()).await?;
    programs(ctx)?;
    kubectl(ctx).await?;
    pod_runs(ctx).await?;
    another(ctx).await
}

/// The names of all programs, sorted.
fn all_programs() -> Vec<String> {
    let mut names: Vec<String> = PURPOSES.iter().map(|(name, _)| (*name).to_owned()).collect();
    names.sort();
    names
}

/// Checks what this scenario runs on.
fn programs(ctx: &ScenarioContext) -> Result<()> {
    ctx.say("The lab starts its control planes by itself. This scenario runs on one of the same programs:");
    let mut running: Vec<String> = ctx.cluster.pids().into_iter().map(|(name, _)| name).collect();
    running.sort();
    let mut table = Table::new(&["program", "what for"]);
    for (name, purpose) in PURPOSES.iter().filter(|(name, _)| running.iter().any(|found| found == name)) {
        table.row(&[name, purpose]);
    }
    ctx.table(table);
    ctx.check_eq("these programs run, and no others", &running, &all_programs());
    ctx.check("none of them has ended", ctx.cluster.check_alive().is_ok());
    let took = ctx.cluster.startup().context("the cluster is not our own")?;
    ctx.live_quote(&format!("ready {:.1} s after the first program was started", took.as_secs_f64()));
    ctx.check("it was ready within two minutes of the start of the first program", took <= READY_WITHIN);
    Ok(())
}

/// Checks that kubectl works with it.
async fn kubectl(ctx: &ScenarioContext) -> Result<()> {
    ctx.say("Its kubeconfig is all that kubectl, Helm or an operator need.");
    let ready = ctx.cluster.kubectl(&["get", "--raw", "/readyz"]).await?;
    ctx.act("kubectl", &format!("get --raw /readyz → {ready}"));
    let version: serde_json::Value =
        serde_json::from_str(&ctx.cluster.kubectl(&["version", "--output=json"]).await?)?;
    let of = |side: &str| version[side]["gitVersion"].as_str().unwrap_or("?").to_owned();
    let (client, server) = (of("clientVersion"), of("serverVersion"));
    ctx.act("kubectl", &format!("version → client {client}, server {server}"));
    ctx.check_eq("it is ready", &ready.as_str(), &"ok");
    ctx.check_eq(
        "kubectl and the API server are both of the version that the lab pins",
        &(client.as_str(), server.as_str()),
        &(KUBERNETES_VERSION, KUBERNETES_VERSION),
    );
    Ok(())
}

/// Checks that a Deployment becomes available.
async fn pod_runs(ctx: &ScenarioContext) -> Result<()> {
    ctx.say("A node is only an object, and kwok simulates its kubelet. The scheduler places the pods of a Deployment on it, as in any cluster.");
    let (name, node) = node(ctx);
    let applied = deploy(ctx, &node).await;
    // The node belongs to no namespace, so it is deleted separately.
    let removed = ctx.cluster.kubectl(&["delete", "node", &name, "--ignore-not-found"]).await;
    applied?;
    removed.map(drop)
}

fn node(ctx: &ScenarioContext) -> (String, String) {
    let name = format!("{}-node", ctx.namespace());
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"pool": name}, "annotations": {"kwok.x-k8s.io/node": "fake"}},
    });
    (name, node.to_string())
}

async fn deploy(ctx: &ScenarioContext, node: &str) -> Result<()> {
    let client = ctx.unrecorded_client().await?;
    let log = ctx.cluster.audit_log().context("this cluster's audit log is not ours to read")?;
    let log_start = log.end()?;
    ctx.cluster.kubectl_with_input(&["apply", "--filename", "-"], node).await?;
    let name = format!("{}-node", ctx.namespace());
    let nodes = Api::<Node>::all(client.clone());
    let is_up = eventually(PATIENCE, "the node is ready", || async {
        Ok(nodes.get_opt(&name).await?.filter(is_ready))
    });
    let up = is_up.await?;
    ctx.set(&testbed::objects::deployment("web", &name, 2, "1")).await?;
    let pods = Api::<Pod>::namespaced(client, ctx.namespace());
    let places = eventually(PATIENCE, "two pods run", || async {
        let all = pods.list(&kube::api::ListParams::default()).await?.items;
        let on = |pod: &Pod| {
            let runs = pod.status.as_ref()?.phase.as_deref()? == "Running";
            runs.then(|| pod.spec.as_ref()?.node_name.clone()).flatten()
        };
        let places: Vec<String> = all.iter().filter_map(on).collect();
        if places.len() == 2 { Ok(Some(places)) } else { bail!("{} of {} run", places.len(), all.len()) }
    });
    let places = places.await?;
    ctx.check(
        "two pods of a Deployment run on it",
        places.iter().all(|place| Some(place) == up.metadata.name.as_ref()),
    );
    let is_ours = |event: &Event| {
        let object = event.object.as_ref();
        object.is_some_and(|object| object.namespace == ctx.namespace() || object.name == name)
    };
    let requests = log.wait_for(log_start, PATIENCE, "each program has written", |events: &[Event]| {
        let of_step = |step: &(_, _, _)| events.iter().find(|event| is_ours(event) && is_step(event, step));
        STEPS.iter().map(|step| of_step(step).cloned()).collect::<Option<Vec<Event>>>()
    });
    let requests = requests.await?;
    ctx.say("Each program did its part by a write to the API server. From the audit log, the first write of each kind:");
    let mut table = Table::new(&LOGGED);
    for ((endpoint, who, _), event) in STEPS.iter().zip(&requests) {
        let who = if who.is_empty() { "you" } else { *who };
        table.row(&[&who, &account::verb(event), endpoint, &event.code]);
    }
    ctx.table(table);
    ctx.check("all of them were granted", requests.iter().all(Event::succeeded));
    ctx.cluster.kubectl(&["delete", "deployment", "web", "--namespace", ctx.namespace(), "--wait"]).await?;
    Ok(())
}

/// Checks that a second one beside it ends without leaving anything behind.
async fn another(ctx: &ScenarioContext) -> Result<()> {
    ctx.say("For conflicts alone etcd and the API server are enough. A control plane of these two starts beside the first, on ports and in a directory of its own.");
    let second = Cluster::start(ClusterOptions::api_only()).await?;
    let mut running: Vec<String> = second.pids().into_iter().map(|(name, _)| name).collect();
    running.sort();
    ctx.check_eq("two programs run", &running, &vec!["etcd".to_owned(), "kube-apiserver".to_owned()]);
    let took = second.startup().context("the cluster is not our own")?;
    ctx.live_quote(&format!("ready {:.1} s after the first program was started", took.as_secs_f64()));
    let here = ctx.cluster.kubectl(&["get", "namespace", ctx.namespace(), "--output=name"]).await;
    let there = second.kubectl(&["get", "namespace", ctx.namespace(), "--output=name"]).await;
    ctx.check(
        "each has a store of its own: this scenario's namespace is in one only",
        here.is_ok() && there.is_err(),
    );

    ctx.say("Then the lab stops the second one.");
    let (root, pids): (PathBuf, Vec<u32>) =
        (second.root().to_owned(), second.pids().into_iter().map(|(_, pid)| pid).collect());
    second.stop().await?;
    let is_gone = eventually(PATIENCE, "the second one is gone", || async {
        let left: Vec<_> = pids.iter().filter(|pid| PathBuf::from(format!("/proc/{pid}")).exists()).collect();
        if left.is_empty() && !root.exists() { Ok(Some(())) } else { bail!("{left:?}") }
    });
    ctx.check("no process and no file of it is left", is_gone.await.is_ok());
    Ok(())
}
