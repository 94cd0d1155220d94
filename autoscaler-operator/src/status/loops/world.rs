//! A small cluster in virtual time: its users ask for the same pods all the time, and controllers, kube-scheduler, machines and the
//! `NodePool` operator do what they do while the planner plans. Models of these, as simple as the questions allow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use planner::fixtures::{NOW, TestCluster, merged};
use planner::{Observed, plan_for_cluster};
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::names::{DRAIN_STARTED_ANNOTATION, DRAINING_TAINT, TEMPLATE_HASH_ANNOTATION};
use shared_crds::v1alpha1::NodePoolStatus;

use super::super::{DecisionState, Scaled, announcing, autoscaling, victims};

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
const GPU: &str = "nvidia.com/gpu";
/// Seconds of one step.
pub(super) const STEP: i64 = 15;
/// Seconds from the begin of a drain until the Node is gone, at the least: evicted pods end, and the machine does.
const GOES: i64 = 45;
/// Cores that every node has, in thousandths.
const CORES: i64 = 4000;

/// A pool, and what its machines are in truth.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) name: &'static str,
    pub(super) zone: &'static str,
    /// What of the promised cores its nodes lack.
    pub(super) lacks: i64,
    /// What a static pod on each node asks for.
    pub(super) static_pod: i64,
    pub(super) gpu: bool,
    /// Seconds until a node is Ready, and from then on until its GPU is there.
    pub(super) boots: (i64, i64),
    pub(super) tainted: bool,
    pub(super) replicas: i32,
    pub(super) generation: i64,
    pub(super) status: NodePoolStatus,
    /// When it was resized, and by how much.
    pub(super) history: Vec<(i64, i32)>,
}

/// A Deployment.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a rule of its own of the pods")]
pub(super) struct App {
    pub(super) name: String,
    pub(super) replicas: usize,
    pub(super) cpu: i64,
    pub(super) gpu: bool,
    /// The key of a hard spread, and whether its taints policy is `Honor`.
    pub(super) spread: Option<(&'static str, bool)>,
    /// At most one pod on a node.
    pub(super) apart: bool,
    pub(super) tolerates: bool,
    /// A budget: no pod goes while another one waits.
    pub(super) budget: bool,
}

/// A `DaemonSet` whose pods ask for `real` where its template says `said`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Daemon {
    pub(super) said: i64,
    pub(super) real: i64,
}

#[derive(Clone, Debug)]
struct Node {
    name: String,
    pool: usize,
    created: i64,
    drained_since: Option<i64>,
}

#[derive(Clone, Debug)]
struct Pod {
    name: String,
    app: usize,
    node: Option<String>,
    created: i64,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) pools: Vec<Pool>,
    pub(super) apps: Vec<App>,
    pub(super) daemon: Daemon,
    pub(super) now: i64,
    nodes: Vec<Node>,
    pods: Vec<Pod>,
    names: usize,
}

impl World {
    pub(super) fn new(pools: Vec<Pool>, apps: Vec<App>, daemon: Daemon) -> Self {
        Self { pools, apps, daemon, now: 0, nodes: Vec::new(), pods: Vec::new(), names: 0 }
    }

    /// What happens in one step.
    pub(super) fn step(&mut self) {
        self.now += STEP;
        self.operate();
        self.create_pods();
        self.schedule();
        self.plan();
    }

    pub(super) fn pending(&self) -> usize {
        self.pods.iter().filter(|pod| pod.node.is_none()).count()
    }

    fn fresh(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}-{:04}", self.names)
    }

    fn is_ready(&self, node: &Node) -> bool {
        self.now >= node.created + self.pools[node.pool].boots.0
    }

    fn has_gpu(&self, node: &Node) -> bool {
        let pool = &self.pools[node.pool];
        pool.gpu && self.now >= node.created + pool.boots.0 + pool.boots.1
    }

    /// The `NodePool` operator: makes nodes, chooses those that go as the Autoscaler says, drains them.
    fn operate(&mut self) {
        for at in 0..self.pools.len() {
            let wanted = usize::try_from(self.pools[at].replicas).unwrap();
            let stays = |node: &&Node| node.pool == at && node.drained_since.is_none();
            let staying: Vec<String> =
                self.nodes.iter().filter(stays).map(|node| node.name.clone()).collect();
            for _ in staying.len()..wanted {
                let (name, created) = (self.fresh(self.pools[at].name), self.now);
                self.nodes.push(Node { name, pool: at, created, drained_since: None });
            }
            let status = self.pools[at].status.autoscaling.as_ref();
            let first: Vec<String> = status
                .and_then(|it| it.scale_down.as_ref())
                .map(|plan| plan.nodes.clone())
                .unwrap_or_default();
            let mut order = staying.clone();
            order.sort_by_key(|name| (!first.contains(name), std::cmp::Reverse(name.clone())));
            for name in order.into_iter().take(staying.len().saturating_sub(wanted)) {
                let now = self.now;
                self.nodes
                    .iter_mut()
                    .filter(|node| node.name == name)
                    .for_each(|node| node.drained_since = Some(now));
            }
        }
        let draining: BTreeSet<String> = self
            .nodes
            .iter()
            .filter(|node| node.drained_since.is_some())
            .map(|node| node.name.clone())
            .collect();
        let mut waiting: BTreeSet<usize> =
            self.pods.iter().filter(|pod| pod.node.is_none()).map(|pod| pod.app).collect();
        for at in 0..self.pods.len() {
            let Pod { app, node, .. } = &self.pods[at];
            let app = *app;
            let goes = node.as_ref().is_some_and(|node| draining.contains(node));
            if goes && !(self.apps[app].budget && waiting.contains(&app)) {
                waiting.insert(app);
                let name = self.fresh("p");
                self.pods[at] = Pod { name, app, node: None, created: self.now };
            }
        }
        let used: BTreeSet<&String> = self.pods.iter().filter_map(|pod| pod.node.as_ref()).collect();
        let now = self.now;
        self.nodes.retain(|node| {
            node.drained_since.is_none_or(|since| now < since + GOES || used.contains(&node.name))
        });
    }

    fn create_pods(&mut self) {
        for app in 0..self.apps.len() {
            let there = self.pods.iter().filter(|pod| pod.app == app).count();
            for _ in there..self.apps[app].replicas {
                let name = self.fresh("p");
                self.pods.push(Pod { name, app, node: None, created: self.now });
            }
        }
    }

    /// kube-scheduler: each pod onto the emptiest node that takes it.
    fn schedule(&mut self) {
        for at in 0..self.pods.len() {
            if self.pods[at].node.is_none() {
                let takes = |node: &&Node| self.takes(node, self.pods[at].app);
                let emptiest =
                    self.nodes.iter().filter(takes).max_by_key(|node| (self.free(node), node.name.clone()));
                self.pods[at].node = emptiest.map(|node| node.name.clone());
            }
        }
    }

    fn free(&self, node: &Node) -> i64 {
        let pool = &self.pools[node.pool];
        let own = CORES - pool.lacks - pool.static_pod - self.daemon.real;
        let asked = |pod: &&Pod| pod.node.as_ref() == Some(&node.name);
        own - self.pods.iter().filter(asked).map(|pod| self.apps[pod.app].cpu).sum::<i64>()
    }

    fn takes(&self, node: &Node, at: usize) -> bool {
        let app = &self.apps[at];
        let there = |other: &Node| {
            self.pods.iter().filter(|pod| pod.app == at && pod.node.as_ref() == Some(&other.name)).count()
        };
        let gpus_used =
            self.pods.iter().filter(|pod| pod.node.as_ref() == Some(&node.name) && self.apps[pod.app].gpu);
        let gpu_free = self.has_gpu(node) && gpus_used.count() == 0;
        if !self.is_ready(node)
            || node.drained_since.is_some()
            || (self.pools[node.pool].tainted && !app.tolerates)
            || self.free(node) < app.cpu
            || (app.gpu && !gpu_free)
            || (app.apart && there(node) > 0)
        {
            return false;
        }
        let Some((key, honor)) = app.spread else { return true };
        let domain = |node: &Node| match key {
            ZONE => self.pools[node.pool].zone.to_owned(),
            _ => node.name.clone(),
        };
        let counts = |node: &&Node| {
            let repels = node.drained_since.is_some() || (self.pools[node.pool].tainted && !app.tolerates);
            !(honor && repels)
        };
        let mut domains: BTreeMap<String, usize> = BTreeMap::new();
        for node in self.nodes.iter().filter(counts) {
            *domains.entry(domain(node)).or_default() += there(node);
        }
        let least = domains.values().min().copied().unwrap_or(0);
        domains.get(&domain(node)).copied().unwrap_or(0) < least + 1
    }

    /// The Autoscaler: plans, and writes what it decides.
    fn plan(&mut self) {
        let observed = self.observed();
        let (time, plan) = (Time(observed.now), plan_for_cluster(&observed));
        for decision in &plan.pools {
            let name = decision.object.metadata.name.as_deref().unwrap();
            let now = self.now;
            let pool = self.pools.iter_mut().find(|pool| pool.name == name).unwrap();
            let scales = decision.acts && decision.changes_replicas();
            let mut object: NodePool = (*decision.object).clone();
            let state = if scales {
                DecisionState::Scaled(Scaled::of(decision, &time))
            } else {
                DecisionState::Settled
            };
            if scales {
                let announced = victims(decision, &observed.nodes);
                object.status = Some(announcing(&object, announced.as_ref()));
                pool.history.push((now, decision.desired - pool.replicas));
                pool.replicas = decision.desired;
                pool.generation += 1;
            }
            pool.status.autoscaling = autoscaling(&object, decision, &state, &time);
        }
    }

    fn observed(&self) -> Observed {
        let start: Timestamp = NOW.parse().unwrap();
        let at = |seconds: i64| start.checked_add(SignedDuration::from_secs(seconds)).unwrap();
        let scale_down = json!({ "unneededSeconds": 60, "delayAfterAddSeconds": 30 });
        let mut cluster = TestCluster::new().autoscaler("all", json!({ "scaleDown": scale_down }));
        cluster.observed.now = at(self.now);
        for pool in &self.pools {
            cluster = cluster.pool(pool.name, pool.object(&at(pool.history.last().map_or(0, |last| last.0))));
        }
        let hashes: Vec<String> =
            cluster.observed.pools.iter().map(|pool| pool.spec.template_hash().unwrap()).collect();
        for node in &self.nodes {
            let pool = &self.pools[node.pool];
            let gpu = if self.has_gpu(node) { json!({ GPU: "1" }) } else { json!({}) };
            let cpu = format!("{}m", CORES - pool.lacks);
            let allocatable = merged(json!({ "cpu": cpu, "memory": "16Gi", "pods": "30" }), gpu);
            let mut taints = if pool.tainted { vec![taint("dedicated")] } else { Vec::new() };
            let mut annotations = json!({ TEMPLATE_HASH_ANNOTATION: hashes[node.pool] });
            if let Some(since) = node.drained_since {
                taints.extend([taint("node.kubernetes.io/unschedulable"), taint(DRAINING_TAINT)]);
                annotations[DRAIN_STARTED_ANNOTATION] = json!(at(since));
            }
            let status = if self.is_ready(node) { "True" } else { "False" };
            let ready_at = if self.is_ready(node) { node.created + pool.boots.0 } else { node.created };
            let conditions =
                json!([{ "type": "Ready", "status": status, "lastTransitionTime": at(ready_at) }]);
            let labels = json!({ ZONE: pool.zone });
            let metadata = json!({ "uid": node.name, "creationTimestamp": at(node.created), "labels": labels,
                "annotations": annotations });
            let spec = json!({ "taints": taints, "unschedulable": node.drained_since.is_some() });
            let status =
                json!({ "allocatable": allocatable, "capacity": allocatable, "conditions": conditions });
            cluster = cluster.node(
                pool.name,
                &node.name,
                json!({ "metadata": metadata, "spec": spec, "status": status }),
            );
            if self.is_ready(node) {
                cluster =
                    cluster.running(&format!("agent-{}", node.name), &node.name, "1m", self.daemon_pod());
                if pool.static_pod > 0 {
                    let mirror = json!({ "metadata": { "annotations": { "kubernetes.io/config.mirror": "x" } },
                        "spec": containers(pool.static_pod, false) });
                    cluster = cluster.running(&format!("static-{}", node.name), &node.name, "1m", mirror);
                }
            }
        }
        for pod in &self.pods {
            let change = self.apps[pod.app].pod(&pod.name, &at(pod.created));
            cluster = match &pod.node {
                Some(node) => cluster.running(&pod.name, node, "1m", change),
                None => cluster.pending("x", 1, "1m", &change),
            };
        }
        let template = merged(
            json!({ "metadata": { "labels": { "app": "agent" } } }),
            json!({ "spec": containers(self.daemon.said, false) }),
        );
        let daemon = json!({ "metadata": { "name": "agent", "namespace": "apps", "uid": "agent" },
            "spec": { "selector": { "matchLabels": { "app": "agent" } }, "template": template } });
        cluster.observed.daemon_sets.push(Arc::new(serde_json::from_value(daemon).unwrap()));
        cluster.observed
    }

    fn daemon_pod(&self) -> Value {
        let tolerates = json!({ "spec": { "tolerations": [{ "operator": "Exists" }] } });
        let spec = json!({ "spec": containers(self.daemon.real, false) });
        merged(owned("DaemonSet", "agent"), merged(spec, tolerates))
    }
}

impl Pool {
    fn object(&self, written: &Timestamp) -> Value {
        let gpu = if self.gpu { json!({ GPU: "1" }) } else { json!({}) };
        let capacity = merged(json!({ "cpu": format!("{CORES}m"), "memory": "16Gi", "pods": "30" }), gpu);
        let taints = if self.tainted { vec![taint("dedicated")] } else { Vec::new() };
        let template = json!({ "metadata": { "labels": { ZONE: self.zone } },
            "spec": { "capacity": capacity, "taints": taints } });
        // The API server records the operator's own writes as such.
        let fields = json!([{ "manager": "autoscaler-operator", "time": written,
            "fieldsV1": { "f:spec": { "f:replicas": {} } } }]);
        json!({
            "metadata": { "uid": self.name, "generation": self.generation, "managedFields": fields },
            "spec": { "replicas": self.replicas, "maxReplicas": 8, "template": template },
            "status": self.status,
        })
    }
}

impl App {
    fn pod(&self, name: &str, created: &Timestamp) -> Value {
        let mut spec = containers(self.cpu, self.gpu);
        let selector = json!({ "matchLabels": { "app": self.name } });
        if let Some((key, honor)) = self.spread {
            let policy = if honor { "Honor" } else { "Ignore" };
            spec["topologySpreadConstraints"] = json!([{ "maxSkew": 1, "topologyKey": key,
                "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": policy, "labelSelector": selector }]);
        }
        if self.apart {
            let term = json!({ "topologyKey": "kubernetes.io/hostname", "labelSelector": selector });
            spec["affinity"] =
                json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } });
        }
        if self.tolerates {
            spec["tolerations"] = json!([{ "key": "dedicated", "operator": "Exists" }]);
        }
        let metadata =
            json!({ "metadata": { "name": name, "uid": name, "creationTimestamp": created }, "spec": spec });
        merged(owned("ReplicaSet", &self.name), metadata)
    }
}

fn taint(key: &str) -> Value {
    json!({ "key": key, "effect": "NoSchedule" })
}

fn owned(kind: &str, app: &str) -> Value {
    json!({ "metadata": { "labels": { "app": app }, "ownerReferences": [
        { "apiVersion": "apps/v1", "kind": kind, "name": app, "uid": app, "controller": true }] } })
}

fn containers(cpu: i64, gpu: bool) -> Value {
    let mut requests = json!({ "cpu": format!("{cpu}m") });
    if gpu {
        requests[GPU] = json!("1");
    }
    json!({ "containers": [{ "name": "c", "resources": { "requests": requests, "limits": requests } }] })
}
