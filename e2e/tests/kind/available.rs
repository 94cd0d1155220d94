//! Two replicas: one takes over from the other, and a drain of their nodes leaves one of them.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use shared_runtime::leader::{DEFAULT_TIMING, Timing};
use testbed::audit::{Event, ObjectKey};
use testbed::borrowed;
use testbed::cluster::Cluster;
use testbed::kind::Kind;
use testbed::lost_update_check::LostUpdateCheck;
use testbed::operators::OperatorKind;
use testbed::takeover::Takeover;
use testbed::tandem::chart;
use testbed::terms::LeaderTerm;
use testbed::wait::{PATIENCE, eventually};
use testbed::write_effects::WriteEffects;
use toolbox::messages::inform;

use crate::begin;
use crate::real_node::install_with_machines;
use crate::release::{
    NAMESPACE, POOL, install, install_with, json, make, make_namespace, nodes_are_ready, scale, uninstall,
    what_runs,
};

const LEASE: &str = "leases/tandem-nodepool-operator";

/// When a test gives up to wait for another leader.
const GIVES_UP: Duration = Duration::from_secs(60);

/// How a leader stops working.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Killed,
    Frozen,
    CutOff,
}

/// The leader, as a process.
struct Leader {
    identity: String,
    pod: String,
    node: String,
    /// In the PID namespace of its node.
    pid: String,
    /// The process that holds the network of its Pod: it stays when the container is started again.
    sandbox: String,
}

#[tokio::test(flavor = "multi_thread")]
async fn another_replica_takes_over_from_a_leader_that_is_killed_frozen_or_cut_off_and_nothing_is_written_twice()
 {
    let Some(turn) = begin().await else { return };
    let (cluster, Some(kind)) = (&turn.cluster, turn.kind()) else { return };
    // Other tests have had a pool of this name. From before the first leader, so that each has a beginning.
    let audit = kind.audit_log();
    let from = audit.end().unwrap();
    let mut log = audit.follow_from(from);
    install(cluster).await;
    make(cluster, "kept", POOL).await;
    nodes_are_ready(cluster, 2).await;
    let Timing { lease_duration, retry_period, .. } = DEFAULT_TIMING;
    let takeover_at_most = DEFAULT_TIMING.takeover();
    let mut events = Vec::new();
    for (nodes, fault) in [(3, Fault::Killed), (4, Fault::Frozen), (5, Fault::CutOff)] {
        let old = leader(cluster, kind).await.unwrap();
        events.extend(log.read_new().unwrap());
        assert!(events.iter().any(|event| wrote(event, &old)), "no write of {} is recognised", old.pod);
        fault.begin(kind, &old).await.unwrap();
        taken_over(cluster, &old).await;
        let find = |events: &[Event]| Takeover::of(events, &lease_key(), &old.identity).ok();
        let takeover =
            audit.wait_for(from, PATIENCE, "the takeover is in the audit log", find).await.unwrap();
        let took = takeover.took.as_secs_f64();
        inform(&format!("{fault:?}: another took over {took:.1} s after the last renewal"));
        let longest = takeover_at_most.saturating_sub(lease_duration) / 2;
        if let Err(error) = takeover.check(lease_duration, retry_period, longest) {
            panic!("{fault:?}: {error:#}");
        }
        scale(cluster, nodes).await;
        nodes_are_ready(cluster, nodes).await;
        // It comes back, and has to notice that it does not lead any more.
        let back = Timestamp::now();
        fault.end(kind, &old).await.unwrap();
        scale(cluster, nodes - 1).await;
        nodes_are_ready(cluster, nodes - 1).await;
        events.extend(log.read_new().unwrap());
        // The container that was killed starts again in the same Pod, and may lead by right.
        if !matches!(fault, Fault::Killed) {
            let late: Vec<&Event> =
                events.iter().filter(|event| event.received > back && wrote(event, &old)).collect();
            assert!(late.is_empty(), "{fault:?}: {late:#?}");
        }
    }
    // Two at the beginning, to three and back to two, to four and back to three, to five.
    let created = |event: &&Event| {
        let node = event.object.as_ref().is_some_and(|object| object.resource == "nodes");
        node && event.verb == "create" && event.succeeded() && event.user_agent.contains("nodepool-operator")
    };
    assert_eq!(events.iter().filter(created).count(), 2 + 1 + 2 + 2);
    // What a leader that was cut off had sent may still arrive, and must be refused then.
    let stored: Vec<Event> = events.iter().filter(|event| event.succeeded()).cloned().collect();
    let terms = LeaderTerm::all(&stored, &lease_key(), OperatorKind::NodePool).unwrap();
    assert!(terms.iter().any(|term| term.writes > 0), "{terms:?}");
    let pool = ObjectKey::node_pool("kept", "kept");
    WriteEffects::of(&events, &pool).check_owned().unwrap();
    LostUpdateCheck::of(&events, &pool).check_unbroken().unwrap();
    cluster.kubectl(&["delete", "namespace", "kept", "--timeout=180s"]).await.unwrap();
    uninstall(cluster).await;
}

/// Whether a Pod's operator has changed something of Tandem's.
fn wrote(event: &Event, old: &Leader) -> bool {
    let shared =
        event.object.as_ref().is_some_and(|object| ["nodes", "nodepools"].contains(&&*object.resource));
    shared && event.is_write() && event.succeeded() && event.user_agent.contains(&old.pod)
}

impl Fault {
    async fn begin(self, kind: &Kind, leader: &Leader) -> Result<String> {
        match self {
            Self::Killed => kind.in_node(&leader.node, &["kill", "-KILL", &leader.pid]).await,
            Self::Frozen => kind.in_node(&leader.node, &["kill", "-STOP", &leader.pid]).await,
            Self::CutOff => leader.route(kind, "add").await,
        }
    }

    async fn end(self, kind: &Kind, leader: &Leader) -> Result<String> {
        match self {
            Self::Killed => Ok(String::new()),
            // Its kubelet may have ended it meanwhile, because it did not answer.
            Self::Frozen => {
                kind.in_node(&leader.node, &["sh", "-c", &format!("kill -CONT {} || true", leader.pid)]).await
            }
            Self::CutOff => leader.route(kind, "del").await,
        }
    }
}

impl Leader {
    /// Adds or removes what keeps the Pod's packets from the API server.
    async fn route(&self, kind: &Kind, what: &str) -> Result<String> {
        let inside = [
            "nsenter",
            "--target",
            &*self.sandbox,
            "--net",
            "ip",
            "route",
            what,
            "blackhole",
            "10.96.0.1/32",
        ];
        kind.in_node(&self.node, &inside).await
    }
}

async fn leader(cluster: &Cluster, kind: &Kind) -> Result<Leader> {
    let identity = holder(&lease(cluster).await).to_owned();
    let pods = json(cluster, &["get", "pods", "--namespace", NAMESPACE]).await;
    let pods = pods["items"].as_array().context("no pods")?;
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let holder = identity.split('_').next().unwrap_or_default();
    let pod = pods.iter().find(|pod| name(pod) == holder);
    let pod = pod.with_context(|| format!("{identity} is no pod"))?;
    let node = pod["spec"]["nodeName"].as_str().context("the leader is on no node")?.to_owned();
    let id = pod["status"]["containerStatuses"][0]["containerID"]
        .as_str()
        .context("the leader has no container")?;
    let id = id.trim_start_matches("containerd://");
    let inspect = ["crictl", "inspect", "--output", "go-template", "--template", "{{.info.pid}}", id];
    let pid = kind.in_node(&node, &inspect).await?.trim().to_owned();
    let sandbox = kind.in_node(&node, &["crictl", "pods", "--quiet", "--name", &name(pod)]).await?;
    let inspect =
        ["crictl", "inspectp", "--output", "go-template", "--template", "{{.info.pid}}", sandbox.trim()];
    let sandbox = kind.in_node(&node, &inspect).await?.trim().to_owned();
    Ok(Leader { identity, pod: name(pod), node, pid, sandbox })
}

async fn lease(cluster: &Cluster) -> Value {
    let mut lease = json(cluster, &["get", LEASE, "--namespace", NAMESPACE]).await;
    lease["spec"].take()
}

fn lease_key() -> ObjectKey {
    let (_, name) = LEASE.split_once('/').unwrap();
    let [group, resource, namespace, name] =
        ["coordination.k8s.io", "leases", NAMESPACE, name].map(str::to_owned);
    ObjectKey { group, resource, namespace, name }
}

fn holder(lease: &Value) -> &str {
    lease["holderIdentity"].as_str().unwrap_or_default()
}

/// Waits until another replica holds the lease.
async fn taken_over(cluster: &Cluster, old: &Leader) {
    let taken = eventually(GIVES_UP, "another replica leads", || async {
        let lease = lease(cluster).await;
        let now = holder(&lease);
        ensure!(!now.is_empty() && now != old.identity, "{now} leads");
        Ok(Some(()))
    });
    if let Err(error) = taken.await {
        panic!("{error:#}\n{}", what_runs(cluster).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_of_the_operators_node_never_takes_both_replicas() {
    let Some(turn) = begin().await else { return };
    let (cluster, Some(_)) = (&turn.cluster, turn.kind()) else { return };
    make_namespace(cluster).await;
    // Two nodes for two replicas: the second worker is off.
    let everywhere = "[{\"key\": \"node-role.kubernetes.io/control-plane\"}]";
    let values =
        ["nodepoolOperator", "autoscalerOperator"].map(|of| format!("{of}.tolerations={everywhere}"));
    install_with(cluster, &chart(), &["--set-json", &values[0], "--set-json", &values[1]]).await;
    for operator in ["nodepool-operator", "autoscaler-operator"] {
        let nodes = nodes_of(cluster, operator).await;
        assert!(nodes.len() == 2 && nodes[0] != nodes[1], "{operator} runs on {nodes:?}");
    }
    let node = "tandem-worker";
    borrowed::cordon(cluster, &[node]).await.unwrap();
    let args = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s"];
    let mut drain = std::pin::pin!(cluster.kubectl(&args));
    let mut looks = 0;
    let drained = loop {
        tokio::select! {
            drained = &mut drain => break drained,
            deployments = json(cluster, &["get", "deployments", "--namespace", NAMESPACE]) => {
                for deployment in deployments["items"].as_array().unwrap() {
                    let ready = deployment["status"]["readyReplicas"].as_u64().unwrap_or(0);
                    assert!(ready > 0, "no replica is ready: {deployment:#}");
                }
                looks += 1;
            }
        }
    };
    drained.unwrap();
    assert!(looks > 1, "the drain was over before it was looked at");
    borrowed::uncordon(cluster).await.unwrap();
    let rolled_out = ["rollout", "status", "deployment", "--namespace", NAMESPACE, "--timeout=180s"];
    cluster.kubectl(&rolled_out).await.unwrap();
    for operator in ["nodepool-operator", "autoscaler-operator"] {
        the_last_one_is_not_evicted(cluster, operator).await;
    }
    uninstall(cluster).await;
}

/// Takes one replica of an operator away, while no node would take another, and asks for the eviction of the one that is left.
async fn the_last_one_is_not_evicted(cluster: &Cluster, operator: &str) {
    let ready = pods_of(cluster, operator).await;
    let [(left, _), (gone, _)] = &ready[..] else { panic!("{ready:?} are not two replicas of {operator}") };
    let is = async |may: bool, what: &str| {
        let asked = eventually(PATIENCE, what, || async {
            Ok((may_be_evicted(cluster, left).await? == may).then_some(()))
        });
        asked.await.unwrap();
    };
    is(true, "one of two ready replicas may be evicted").await;
    let nodes = names_of_nodes(cluster).await;
    borrowed::cordon(cluster, &nodes.iter().map(String::as_str).collect::<Vec<_>>()).await.unwrap();
    cluster.kubectl(&["delete", "pod", gone, "--namespace", NAMESPACE]).await.unwrap();
    is(false, "the only ready replica may not be evicted").await;
    borrowed::uncordon(cluster).await.unwrap();
    is(true, "one of two ready replicas may be evicted again").await;
}

/// Whether the API server would evict a Pod now. It is asked; nothing is evicted.
async fn may_be_evicted(cluster: &Cluster, pod: &str) -> Result<bool> {
    let eviction = serde_json::json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": pod, "namespace": NAMESPACE},
        "deleteOptions": {"dryRun": ["All"]},
    });
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction");
    let create = ["create", "--raw", &path, "--filename", "-"];
    match cluster.kubectl_with_input(&create, &eviction.to_string()).await {
        Ok(_) => Ok(true),
        // Of an answer 429, kubectl shows the reason and this.
        Err(error) if format!("{error:#}").contains("violate the pod's disruption budget") => Ok(false),
        Err(error) => Err(error),
    }
}

async fn names_of_nodes(cluster: &Cluster) -> Vec<String> {
    let nodes = json(cluster, &["get", "nodes"]).await;
    let nodes = nodes["items"].as_array().unwrap();
    nodes.iter().map(|node| node["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// A node of a pool, which has to be made by the program of [`install_with_machines`].
const REAL: &str = r#"
apiVersion: tandem.dev/v1alpha1
kind: NodePool
metadata: {name: kept}
spec:
  replicas: 1
  minReplicas: 0
  maxReplicas: 3
  template: {spec: {capacity: {cpu: "1", memory: 1Gi, pods: "20"}}}
  provider: {exec: {name: kind}}
"#;

/// The chart keeps the operators off the nodes that Tandem removes; this administrator has taken that out.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_drains_its_own_node_leaves_the_rest_to_the_other_replica() {
    let Some(turn) = begin().await else { return };
    let (cluster, Some(kind)) = (&turn.cluster, turn.kind()) else { return };
    let anywhere = ["--set-json", "nodepoolOperator.affinity.nodeAffinity=null"];
    let _machines = install_with_machines(cluster, kind, &anywhere).await;
    make(cluster, "kept", REAL).await;
    nodes_are_ready(cluster, 1).await;
    let nodes = json(cluster, &["get", "nodes", "--selector", "tandem.dev/nodepool=kept"]).await;
    let own = nodes["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();

    // Both replicas get onto the new node while the others are closed, whichever leads; then the standby goes elsewhere, which
    // replicas prefer.
    let deployment = "deployment/tandem-nodepool-operator";
    let others = names_of_nodes(cluster).await;
    let others: Vec<&str> = others.iter().map(String::as_str).filter(|node| *node != own).collect();
    borrowed::cordon(cluster, &others).await.unwrap();
    for (pod, _) in pods_of(cluster, "nodepool-operator").await {
        replaced(cluster, &pod).await;
    }
    borrowed::uncordon(cluster).await.unwrap();
    // The lease may still name a replica that is gone.
    let leads = eventually(GIVES_UP, "one of them leads", || async { leader(cluster, kind).await.map(Some) });
    let first = leads.await.unwrap();
    let standby = pods_of(cluster, "nodepool-operator").await.into_iter().find(|(pod, _)| *pod != first.pod);
    replaced(cluster, &standby.expect("a standby").0).await;
    let first = leader(cluster, kind).await.unwrap();
    assert_eq!(first.node, own, "{}", what_runs(cluster).await);
    let nodes = nodes_of(cluster, "nodepool-operator").await;
    assert!(nodes.iter().any(|node| *node != own), "{nodes:?}");

    let audit = kind.audit_log();
    let mark = audit.end().unwrap();
    // No node takes a replica in place of the leader's own until it has been seen that the other one must not go.
    borrowed::cordon(cluster, &others).await.unwrap();
    scale(cluster, 0).await;
    let refused = Cell::new(false);
    eventually(PATIENCE, "the node is drained and given back", || async {
        let deployment = json(cluster, &["get", deployment, "--namespace", NAMESPACE]).await;
        assert!(deployment["status"]["readyReplicas"].as_u64() > Some(0), "{deployment:#}");
        if !refused.get()
            && let [left] = &ready_pods(cluster).await[..]
            && *left != first.pod
            && !may_be_evicted(cluster, left).await?
        {
            refused.set(true);
            borrowed::uncordon(cluster).await?;
        }
        ensure!(refused.get(), "the budget does not refuse the eviction of the other replica");
        let left = names_of_nodes(cluster).await.len();
        ensure!(left == 2, "{left} nodes");
        Ok(Some(()))
    })
    .await
    .unwrap();
    two_ready(cluster, "").await;
    let events = audit.follow_from(mark).read_new().unwrap();
    let by = |verb: &str, resource: &str, subresource: &str| {
        let of = |event: &&Event| {
            let object = event.object.as_ref().is_some_and(|object| object.resource == resource);
            object && event.verb == verb && event.subresource == subresource && event.succeeded()
        };
        let ours = |event: &&Event| event.user_agent.contains("nodepool-operator");
        let agents: Vec<_> = events.iter().filter(of).filter(ours).map(|event| &*event.user_agent).collect();
        agents
    };
    let evicted = by("create", "pods", "eviction");
    assert!(evicted.iter().any(|agent| agent.contains(&first.pod)), "{evicted:?}");
    let deleted = by("delete", "nodes", "");
    assert!(deleted.len() == 1 && !deleted[0].contains(&first.pod), "{} drained: {deleted:?}", first.pod);
    let pool = ObjectKey::node_pool("kept", "kept");
    LostUpdateCheck::of(&events, &pool).check_unbroken().unwrap();
    cluster.kubectl(&["delete", "namespace", "kept", "--timeout=180s"]).await.unwrap();
    uninstall(cluster).await;
}

/// Deletes a replica of the `NodePool` operator, and waits for the one that takes its place.
async fn replaced(cluster: &Cluster, pod: &str) {
    cluster.kubectl(&["delete", "pod", pod, "--namespace", NAMESPACE]).await.unwrap();
    two_ready(cluster, pod).await;
}

/// Waits until there are two replicas of the `NodePool` operator, both ready, and not `gone`: the status of the Deployment may be
/// from before it went.
async fn two_ready(cluster: &Cluster, gone: &str) {
    let selector = "app.kubernetes.io/component=nodepool-operator";
    let ready = eventually(PATIENCE, "two replicas are ready", || async {
        let pods = json(cluster, &["get", "pods", "--namespace", NAMESPACE, "--selector", selector]).await;
        let pods = pods["items"].as_array().context("no pods")?;
        let ready = pods.iter().filter(|pod| pod["metadata"]["name"] != gone && is_ready(pod)).count();
        ensure!(ready == 2 && pods.len() == 2, "{ready} of {} pods are ready", pods.len());
        Ok(Some(()))
    });
    if let Err(error) = ready.await {
        panic!("{error:#}\n{}", what_runs(cluster).await);
    }
}

/// Whether a Pod is ready, and stays.
fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let ready = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
    pod["metadata"]["deletionTimestamp"].is_null() && conditions.is_some_and(|all| all.iter().any(ready))
}

/// The names of those Pods of the `NodePool` operator that are ready.
async fn ready_pods(cluster: &Cluster) -> Vec<String> {
    let selector = "app.kubernetes.io/component=nodepool-operator";
    let pods = json(cluster, &["get", "pods", "--namespace", NAMESPACE, "--selector", selector]).await;
    let ready = pods["items"].as_array().unwrap().iter().filter(|pod| is_ready(pod));
    ready.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// The names of an operator's Pods and of their nodes.
async fn pods_of(cluster: &Cluster, operator: &str) -> Vec<(String, String)> {
    let selector = format!("app.kubernetes.io/component={operator}");
    let pods = json(cluster, &["get", "pods", "--namespace", NAMESPACE, "--selector", &selector]).await;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pods = pods["items"].as_array().unwrap();
    pods.iter().map(|pod| (text(&pod["metadata"]["name"]), text(&pod["spec"]["nodeName"]))).collect()
}

async fn nodes_of(cluster: &Cluster, operator: &str) -> Vec<String> {
    pods_of(cluster, operator).await.into_iter().map(|(_, node)| node).collect()
}
