//! A small cluster in virtual time: its users ask for the same pods all the time, and controllers, kube-scheduler, kubelets and the
//! `NodePool` operator do what they do while the planner plans. The plans of both operators are real; the rest are models, as
//! simple as the questions allow.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use planner::fixtures::TestCluster;
use planner::{Observed, plan_for_cluster};
use serde_json::{Value, json};
use shared_crds::NodePool;

use super::super::{DecisionState, Scaled, announcing, autoscaling, victims};
use super::objects::{App, CORES, Daemon, GPU, Host, Pod, Pool, STARTUP_TAINT, Tainted, ZONE, time};

/// Seconds of one step.
pub(super) const STEP: i64 = 15;

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) pools: Vec<Pool>,
    pub(super) apps: Vec<App>,
    pub(super) daemon: Daemon,
    pub(super) now: i64,
    /// The Nodes by name.
    pub(super) hosts: BTreeMap<String, Host>,
    pub(super) pods: Vec<Pod>,
    names: usize,
}

impl World {
    pub(super) fn new(pools: Vec<Pool>, apps: Vec<App>, daemon: Daemon) -> Self {
        Self { pools, apps, daemon, now: 0, hosts: BTreeMap::new(), pods: Vec::new(), names: 0 }
    }

    /// What happens in one step.
    pub(super) fn step(&mut self) {
        self.now += STEP;
        self.end_pods();
        self.report();
        self.remove_startup_taints();
        self.operate();
        self.create_pods();
        self.schedule();
        self.resize_pods();
        self.plan();
    }

    pub(super) fn pending(&self) -> usize {
        self.pods.iter().filter(|pod| pod.node.is_none()).count()
    }

    /// How many pods of an app run.
    pub(super) fn running(&self, app: usize) -> usize {
        let runs = |pod: &&Pod| pod.app == app && pod.node.is_some() && pod.ends.is_none();
        self.pods.iter().filter(runs).count()
    }

    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.hosts.values().map(|host| Arc::clone(&host.object)).collect()
    }

    pub(super) fn fresh(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}-{:04}", self.names)
    }

    fn is_ready(&self, host: &Host) -> bool {
        self.now >= host.created + self.pools[host.pool].boots.0
    }

    /// How many GPUs of the node are there by now.
    fn gpus(&self, host: &Host) -> i64 {
        let pool = &self.pools[host.pool];
        let since_first = self.now - (host.created + pool.boots.0 + pool.boots.1);
        if since_first < 0 {
            return 0;
        }
        let others = since_first.checked_div(pool.gpu_every);
        others.map_or(pool.gpus, |others| pool.gpus.min(1 + others))
    }

    /// Evicted pods end, and nothing is left of those whose node is gone.
    fn end_pods(&mut self) {
        let has_ended = |pod: &Pod| pod.ends.is_some_and(|ends| ends <= self.now);
        let has_place = |pod: &Pod| pod.node.as_ref().is_none_or(|node| self.hosts.contains_key(node));
        self.pods.retain(|pod| !has_ended(pod) && has_place(pod));
    }

    /// The kubelets: what their Nodes say of them.
    pub(super) fn report(&mut self) {
        let said: Vec<NodeStatus> = self.hosts.values().map(|host| self.status(host)).collect();
        for (host, status) in self.hosts.values_mut().zip(said) {
            Arc::make_mut(&mut host.object).status = Some(status);
        }
    }

    fn status(&self, host: &Host) -> NodeStatus {
        let pool = &self.pools[host.pool];
        let mut amounts = vec![
            ("cpu", format!("{}m", CORES - pool.lacks)),
            ("memory", "16Gi".to_owned()),
            ("pods", "30".to_owned()),
        ];
        if self.gpus(host) > 0 {
            amounts.push((GPU, self.gpus(host).to_string()));
        }
        let amounts: BTreeMap<String, Quantity> =
            amounts.into_iter().map(|(name, amount)| (name.to_owned(), Quantity(amount))).collect();
        let (status, since) =
            if self.is_ready(host) { ("True", host.created + pool.boots.0) } else { ("False", host.created) };
        let ready = NodeCondition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            last_transition_time: Some(Time(time(since))),
            ..NodeCondition::default()
        };
        NodeStatus {
            allocatable: Some(amounts.clone()),
            capacity: Some(amounts),
            conditions: Some(vec![ready]),
            ..NodeStatus::default()
        }
    }

    /// The agents: each removes the startup taint of its node when it has come.
    fn remove_startup_taints(&mut self) {
        for host in self.hosts.values_mut() {
            let pool = &self.pools[host.pool];
            let has_come = self.now >= host.created + pool.boots.0 + pool.agent_after;
            if has_come && !pool.never_starts && host.has_startup_taint() {
                let spec = Arc::make_mut(&mut host.object).spec.get_or_insert_default();
                let mut taints = spec.taints.take().unwrap_or_default();
                taints.retain(|taint| taint.key != STARTUP_TAINT);
                spec.taints = (!taints.is_empty()).then_some(taints);
            }
        }
    }

    fn create_pods(&mut self) {
        for app in 0..self.apps.len() {
            let there = self.pods.iter().filter(|pod| pod.app == app && pod.ends.is_none()).count();
            for _ in there..self.apps[app].replicas {
                let (name, cpu) = (self.fresh("p"), self.apps[app].cpu);
                self.pods.push(Pod { name, app, node: None, created: self.now, cpu, ends: None });
            }
        }
    }

    /// kube-scheduler: each pod onto the emptiest node that takes it.
    fn schedule(&mut self) {
        for at in 0..self.pods.len() {
            if self.pods[at].node.is_none() {
                let app = self.pods[at].app;
                let takes = |(name, host): &(&String, &Host)| self.takes(name, host, app);
                let emptiest = self
                    .hosts
                    .iter()
                    .filter(takes)
                    .max_by_key(|(name, host)| (self.free(name, host), (*name).clone()));
                self.pods[at].node = emptiest.map(|(name, _)| name.clone());
            }
        }
    }

    /// Pods that are resized in place, where their nodes have room: the others wait for it.
    fn resize_pods(&mut self) {
        for at in 0..self.pods.len() {
            let pod = &self.pods[at];
            let app = &self.apps[pod.app];
            let more = app.cpu + app.resized - pod.cpu;
            let host = pod.node.as_ref().and_then(|node| self.hosts.get_key_value(node));
            let has_room = host.is_some_and(|(name, host)| self.free(name, host) >= more);
            if has_room && pod.ends.is_none() {
                self.pods[at].cpu += more;
            }
        }
    }

    fn pods_of<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods.iter().filter(move |pod| pod.node.as_deref() == Some(node))
    }

    fn free(&self, name: &str, host: &Host) -> i64 {
        let pool = &self.pools[host.pool];
        let own = CORES - pool.lacks - pool.static_pod - self.daemon.real;
        own - self.pods_of(name).map(|pod| pod.cpu).sum::<i64>()
    }

    fn takes(&self, name: &str, host: &Host, at: usize) -> bool {
        let app = &self.apps[at];
        let gpus_used: i64 = self.pods_of(name).map(|pod| self.apps[pod.app].gpus).sum();
        let has_gpus = app.gpus == 0 || self.gpus(host) - gpus_used >= app.gpus;
        let repels = |host: &Host| {
            let is_dedicated = self.pools[host.pool].tainted != Tainted::Nothing;
            host.has_startup_taint() || is_dedicated && !app.tolerates
        };
        // kube-scheduler counts the ports of pods that are ending.
        let shares_port = |pod: &Pod| self.apps[pod.app].host_port == app.host_port;
        let is_port_taken = app.host_port.is_some() && self.pods_of(name).any(shares_port);
        if !self.is_ready(host)
            || host.is_cordoned()
            || repels(host)
            || self.free(name, host) < app.cpu
            || !has_gpus
            || is_port_taken
            || (app.apart && self.pods_of(name).any(|pod| pod.app == at))
            || !self.is_near(name, host, app)
        {
            return false;
        }
        let Some((key, honor)) = app.spread else { return true };
        let mut domains: BTreeMap<String, usize> = BTreeMap::new();
        for (name, host) in &self.hosts {
            let is_counted = !(honor && (host.is_cordoned() || repels(host)));
            if is_counted {
                // kube-scheduler does not count pods that are ending.
                let there = self.pods_of(name).filter(|pod| pod.app == at && pod.ends.is_none()).count();
                *domains.entry(self.domain(key, name, host)).or_default() += there;
            }
        }
        let least = domains.values().min().copied().unwrap_or(0);
        domains.get(&self.domain(key, name, host)).copied().unwrap_or(0) < least + 1
    }

    /// The domain of a node under a topology key.
    fn domain(&self, key: &str, name: &str, host: &Host) -> String {
        match key {
            ZONE => self.pools[host.pool].zone.to_owned(),
            _ => name.to_owned(),
        }
    }

    /// Whether a pod that those of the app have to be near is in the domain of the node. Here kube-scheduler counts pods that are
    /// ending.
    fn is_near(&self, name: &str, host: &Host, app: &App) -> bool {
        let Some((near, key)) = &app.near else { return true };
        let own = self.domain(key, name, host);
        self.hosts.iter().any(|(name, host)| {
            self.domain(key, name, host) == own
                && self.pods_of(name).any(|pod| self.apps[pod.app].name == *near)
        })
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
        let scale_down = json!({ "unneededSeconds": 60, "delayAfterAddSeconds": 30 });
        let mut cluster = TestCluster::new().autoscaler("all", json!({ "scaleDown": scale_down }));
        cluster.observed.now = time(self.now);
        cluster.observed.pools = self.pools.iter().map(|pool| Arc::new(pool.object())).collect();
        cluster.observed.nodes = self.nodes();
        let daemon_set = serde_json::from_value(self.daemon.set()).unwrap();
        cluster.observed.daemon_sets.push(Arc::new(daemon_set));
        let budgets = (0..self.apps.len()).filter(|&app| self.apps[app].budget);
        let budgets = budgets.map(|app| self.apps[app].disruption_budget(self.running(app)));
        cluster.observed.budgets =
            budgets.map(|budget| Arc::new(serde_json::from_value(budget).unwrap())).collect();
        for (node, host) in &self.hosts {
            for (name, change) in self.on(node, host) {
                cluster = cluster.running(&name, node, "1m", change);
            }
        }
        for pod in self.pods.iter().filter(|pod| pod.node.is_none()) {
            cluster = cluster.pending("x", 1, "1m", &self.apps[pod.app].pod(pod));
        }
        cluster.observed
    }

    /// The pods on a node by name, as far as they differ from any pod.
    pub(super) fn on(&self, node: &str, host: &Host) -> Vec<(String, Value)> {
        let pool = &self.pools[host.pool];
        let mut pods = Vec::new();
        if self.is_ready(host) {
            pods.push((format!("agent-{node}"), self.daemon.pod()));
            if pool.static_pod > 0 {
                pods.push((format!("static-{node}"), pool.mirror()));
            }
        }
        pods.extend(self.pods_of(node).map(|pod| (pod.name.clone(), self.apps[pod.app].pod(pod))));
        pods
    }
}
