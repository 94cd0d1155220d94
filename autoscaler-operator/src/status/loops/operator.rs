//! The `NodePool` operator in the world: its own plan, pass after pass until nothing is left to do. What it writes is carried out as
//! the API server, the providers and the kubelets do it.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod as ApiPod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nodepool_operator::fixtures::{PassFixture, PassWrite, patched, provider_id};
use planner::fixtures::merged;
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::v1alpha1::NodePoolStatus;

use super::objects::{GRACE, HOST, Host, Pod, Tainted, ZONE, time};
use super::world::World;

/// The taint by which Kubernetes shows a cordon.
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";
/// More passes in a row than a pool needs: machines, their Nodes, their annotations, a drain.
const MOST_PASSES: usize = 12;

impl World {
    /// Every pool until it is at rest.
    pub(super) fn operate(&mut self) {
        for pool in 0..self.pools.len() {
            let mut object = self.pools[pool].object();
            for _ in 0..MOST_PASSES {
                self.register(pool);
                let (writes, reported) = self.pass(pool, &object);
                // Of the status, the rest is the Autoscaler's.
                let autoscaling = self.pools[pool].status.autoscaling.take();
                self.pools[pool].status = NodePoolStatus { autoscaling, ..reported };
                object.status = Some(self.pools[pool].status.clone());
                let mut has_changed = false;
                for write in writes {
                    has_changed |= self.carry_out(pool, write);
                }
                if !has_changed {
                    break;
                }
            }
        }
    }

    fn pass(&self, pool: usize, object: &NodePool) -> (Vec<PassWrite>, NodePoolStatus) {
        let nodes = self.nodes();
        let pass = PassFixture {
            pool: object,
            nodes: &nodes,
            machines: &self.pools[pool].machines,
            registers_itself: self.pools[pool].registers_itself,
            now: time(self.now),
        };
        pass.run(|node| self.pods_on(node))
    }

    fn pods_on(&self, node: &str) -> Vec<ApiPod> {
        let on_node = |(name, change): (String, Value)| {
            let pod = json!({ "metadata": { "name": name, "namespace": "apps" },
                "spec": { "nodeName": node }, "status": { "phase": "Running" } });
            serde_json::from_value::<ApiPod>(merged(pod, change)).unwrap()
        };
        let found = self.hosts.get(node).map(|host| self.on(node, host)).unwrap_or_default();
        found.into_iter().map(on_node).collect()
    }

    /// Whether the write changes anything.
    fn carry_out(&mut self, pool: usize, write: PassWrite) -> bool {
        match write {
            PassWrite::CreateNode(node) => self.create(pool, *node),
            PassWrite::PatchNode(name, patch) => self.patch(&name, &patch),
            PassWrite::DeleteNode(name) => self.delete(&name),
            PassWrite::Evict(pod) => self.evict(&pod, true),
            PassWrite::DeletePod(pod) => self.evict(&pod, false),
            PassWrite::RequestMachine(name) => {
                let runs = time(self.now + self.pools[pool].runs_after);
                self.pools[pool].machines.insert(name, runs).is_none()
            }
            PassWrite::EndMachine(name) => self.pools[pool].machines.remove(&name).is_some(),
        }
    }

    /// The kubelets of machines that run and have no Node, where they register it themselves.
    fn register(&mut self, pool: usize) {
        if !self.pools[pool].registers_itself {
            return;
        }
        let (now, zone) = (time(self.now), self.pools[pool].zone);
        let id_of = |host: &Host| host.object.spec.as_ref()?.provider_id.clone();
        let known: BTreeSet<String> = self.hosts.values().filter_map(id_of).collect();
        let running = self.pools[pool].machines.iter().filter(|(_, runs)| **runs <= now);
        let ids = running.map(|(machine, _)| provider_id(machine)).filter(|id| !known.contains(id));
        for id in ids.collect::<Vec<_>>() {
            let name = self.fresh("host");
            let labels = json!({ HOST: name, "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64", ZONE: zone });
            let node =
                json!({ "metadata": { "name": name, "labels": labels }, "spec": { "providerID": id } });
            self.create(pool, serde_json::from_value(node).unwrap());
        }
    }

    fn create(&mut self, pool: usize, mut node: Node) -> bool {
        let name = node.metadata.name.clone().unwrap();
        if self.hosts.contains_key(&name) {
            return false;
        }
        node.metadata.uid = Some(self.fresh("uid"));
        node.metadata.creation_timestamp = Some(Time(time(self.now)));
        if self.pools[pool].tainted == Tainted::Kubelets {
            let (key, effect) = ("dedicated".to_owned(), "NoSchedule".to_owned());
            let taints = node.spec.get_or_insert_default().taints.get_or_insert_default();
            taints.push(Taint { key, effect, ..Taint::default() });
        }
        self.hosts.insert(name, Host { pool, created: self.now, object: Arc::new(node) });
        self.report();
        true
    }

    fn patch(&mut self, name: &str, patch: &Value) -> bool {
        let Some(host) = self.hosts.get_mut(name) else { return false };
        let Some(mut node) = patched(&host.object, patch) else { return false };
        show_cordon(&mut node);
        let has_changed = node != *host.object;
        host.object = Arc::new(node);
        self.sweep();
        has_changed
    }

    fn delete(&mut self, name: &str) -> bool {
        let now = time(self.now);
        let Some(host) = self.hosts.get_mut(name) else { return false };
        if host.object.metadata.deletion_timestamp.is_some() {
            return false;
        }
        Arc::make_mut(&mut host.object).metadata.deletion_timestamp = Some(Time(now));
        self.sweep();
        true
    }

    /// A deleted Node goes with its last finalizer.
    fn sweep(&mut self) {
        self.hosts.retain(|_, host| {
            let metadata = &host.object.metadata;
            metadata.deletion_timestamp.is_none() || metadata.finalizers.iter().flatten().next().is_some()
        });
    }

    fn evict(&mut self, pod: &ApiPod, asks_budgets: bool) -> bool {
        let named = |other: &Pod| Some(&other.name) == pod.metadata.name.as_ref();
        let Some(at) = self.pods.iter().position(named) else { return false };
        let app = self.pods[at].app;
        let has_room = self.running(app) >= self.apps[app].replicas;
        let is_kept = asks_budgets && self.apps[app].budget && !has_room;
        if is_kept || self.pods[at].ends.is_some() {
            return false;
        }
        self.pods[at].ends = Some(self.now + GRACE);
        true
    }
}

/// What Kubernetes' node controller does.
fn show_cordon(node: &mut Node) {
    let Some(spec) = node.spec.as_mut() else { return };
    let mut taints = spec.taints.take().unwrap_or_default();
    taints.retain(|taint| taint.key != CORDON_TAINT);
    if spec.unschedulable == Some(true) {
        let (key, effect) = (CORDON_TAINT.to_owned(), "NoSchedule".to_owned());
        taints.push(Taint { key, effect, ..Taint::default() });
    }
    spec.taints = (!taints.is_empty()).then_some(taints);
}
