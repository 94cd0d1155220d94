//! What there is in the world, and how the API server shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use planner::fixtures::{NOW, TestCluster, merged};
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::names::POOL_FINALIZER;
use shared_crds::v1alpha1::NodePoolStatus;

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
pub(super) const HOST: &str = "kubernetes.io/hostname";
pub(super) const GPU: &str = "nvidia.com/gpu";
/// The key of the startup taint of pools that have one. No pod of an app tolerates it.
pub(super) const STARTUP_TAINT: &str = "cni";
/// Cores that every node has, in thousandths.
pub(super) const CORES: i64 = 4000;
/// Seconds from the eviction of a pod until it has ended.
pub(super) const GRACE: i64 = 30;

/// The time so many seconds after the begin.
pub(super) fn time(seconds: i64) -> Timestamp {
    NOW.parse::<Timestamp>().unwrap().checked_add(SignedDuration::from_secs(seconds)).unwrap()
}

/// What gives the nodes of a pool the taint that only some pods tolerate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tainted {
    Nothing,
    Template,
    /// Its kubelets register with it, and its template does not name it.
    Kubelets,
}

/// A pool, and what its machines are in truth.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) name: &'static str,
    pub(super) zone: &'static str,
    /// What of the promised cores its nodes lack.
    pub(super) lacks: i64,
    /// What a static pod on each node asks for.
    pub(super) static_pod: i64,
    /// GPUs that every node has.
    pub(super) gpus: i64,
    /// Seconds from the request of a machine until it runs, and has a Node.
    pub(super) runs_after: i64,
    /// Seconds from then on until the node is Ready, and from then on until its first GPU is there.
    pub(super) boots: (i64, i64),
    /// Seconds from one GPU of a node to the next; zero if all are there at once.
    pub(super) gpu_every: i64,
    /// Whether its machines register their Nodes themselves.
    pub(super) registers_itself: bool,
    pub(super) tainted: Tainted,
    /// Whether its nodes get a startup taint that is never removed.
    pub(super) never_starts: bool,
    /// Seconds from when a node is Ready until an agent removes its startup taint; zero if its nodes get none.
    pub(super) agent_after: i64,
    pub(super) replicas: i32,
    pub(super) generation: i64,
    pub(super) status: NodePoolStatus,
    /// When each of its machines runs, by name.
    pub(super) machines: BTreeMap<String, Timestamp>,
    /// When it was resized, and by how much.
    pub(super) history: Vec<(i64, i32)>,
}

/// A Deployment.
#[derive(Clone, Debug)]
pub(super) struct App {
    pub(super) name: String,
    pub(super) replicas: usize,
    pub(super) cpu: i64,
    /// How much more its pods are given while they run, where there is room.
    pub(super) resized: i64,
    /// GPUs that each of its pods asks for.
    pub(super) gpus: i64,
    /// The key of a hard spread, and whether its taints policy is `Honor`.
    pub(super) spread: Option<(&'static str, bool)>,
    /// At most one pod on a node.
    pub(super) apart: bool,
    /// The port of the node that each of its pods takes.
    pub(super) host_port: Option<u64>,
    /// The app near whose pods its own have to be, and the topology key that says what is near.
    pub(super) near: Option<(String, &'static str)>,
    pub(super) tolerates: bool,
    /// A budget: no pod is evicted while another one does not run.
    pub(super) budget: bool,
}

/// A `DaemonSet` whose pods ask for `real` where its template says `said`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Daemon {
    pub(super) said: i64,
    pub(super) real: i64,
}

/// A Node, and the pool whose machine it is.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) pool: usize,
    pub(super) created: i64,
    pub(super) object: Arc<Node>,
}

/// A pod of a Deployment.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) app: usize,
    pub(super) node: Option<String>,
    pub(super) created: i64,
    pub(super) cpu: i64,
    /// When it has ended, if it was evicted.
    pub(super) ends: Option<i64>,
}

impl Host {
    /// Whether it takes no new pods.
    pub(super) fn is_cordoned(&self) -> bool {
        self.object.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
    }

    /// Whether it takes no pods because no agent has removed its startup taint.
    pub(super) fn has_startup_taint(&self) -> bool {
        let taints = self.object.spec.as_ref().and_then(|spec| spec.taints.as_ref());
        taints.into_iter().flatten().any(|taint| taint.key == STARTUP_TAINT)
    }
}

impl Pool {
    pub(super) fn object(&self) -> NodePool {
        let gpus = if self.gpus > 0 { json!({ GPU: self.gpus.to_string() }) } else { json!({}) };
        let capacity = merged(json!({ "cpu": format!("{CORES}m"), "memory": "16Gi", "pods": "30" }), gpus);
        let by_template = self.tainted == Tainted::Template;
        let taints =
            if by_template { json!([{ "key": "dedicated", "effect": "NoSchedule" }]) } else { json!([]) };
        let has_startup_taint = self.never_starts || self.agent_after > 0;
        let startup = if has_startup_taint {
            json!([{ "key": STARTUP_TAINT, "effect": "NoSchedule" }])
        } else {
            json!([])
        };
        let template = json!({ "metadata": { "labels": { ZONE: self.zone } },
            "spec": { "capacity": capacity, "taints": taints, "startupTaints": startup } });
        // The API server records the Autoscaler's own writes as such.
        let written = time(self.history.last().map_or(0, |last| last.0));
        let fields = json!([{ "manager": "autoscaler-operator", "time": written,
            "fieldsV1": { "f:spec": { "f:replicas": {} } } }]);
        let change = json!({
            "metadata": { "uid": self.name, "generation": self.generation, "managedFields": fields,
                "finalizers": [POOL_FINALIZER] },
            "spec": { "replicas": self.replicas, "maxReplicas": 8, "template": template },
            "status": self.status,
        });
        NodePool::clone(&TestCluster::new().pool(self.name, change).observed.pools[0])
    }

    /// The static pod of each of its nodes.
    pub(super) fn mirror(&self) -> Value {
        json!({ "metadata": { "annotations": { "kubernetes.io/config.mirror": "x" } },
            "spec": containers(self.static_pod, 0) })
    }
}

impl App {
    pub(super) fn pod(&self, pod: &Pod) -> Value {
        let mut spec = containers(pod.cpu, self.gpus);
        if let Some(port) = self.host_port {
            spec["containers"][0]["ports"] = json!([{ "containerPort": port, "hostPort": port }]);
        }
        let selector = json!({ "matchLabels": { "app": self.name } });
        if let Some((key, honor)) = self.spread {
            let policy = if honor { "Honor" } else { "Ignore" };
            spec["topologySpreadConstraints"] = json!([{ "maxSkew": 1, "topologyKey": key,
                "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": policy, "labelSelector": selector }]);
        }
        if self.apart {
            let term = json!({ "topologyKey": HOST, "labelSelector": selector });
            spec["affinity"]["podAntiAffinity"] =
                json!({ "requiredDuringSchedulingIgnoredDuringExecution": [term] });
        }
        if let Some((app, key)) = &self.near {
            let term = json!({ "topologyKey": key, "labelSelector": { "matchLabels": { "app": app } } });
            spec["affinity"]["podAffinity"] =
                json!({ "requiredDuringSchedulingIgnoredDuringExecution": [term] });
        }
        if self.tolerates {
            spec["tolerations"] = json!([{ "key": "dedicated", "operator": "Exists" }]);
        }
        let created = time(pod.created);
        let metadata = json!({ "name": pod.name, "uid": pod.name, "creationTimestamp": created });
        let metadata = match pod.ends {
            Some(ends) => merged(
                metadata,
                json!({ "deletionTimestamp": time(ends), "deletionGracePeriodSeconds": GRACE }),
            ),
            None => metadata,
        };
        merged(owned("ReplicaSet", &self.name), json!({ "metadata": metadata, "spec": spec }))
    }

    /// Its budget, as Kubernetes' controller has it while so many of its pods run.
    pub(super) fn disruption_budget(&self, running: usize) -> Value {
        let desired = self.replicas.saturating_sub(1);
        let status = json!({ "expectedPods": self.replicas, "currentHealthy": running, "desiredHealthy": desired,
            "disruptionsAllowed": running.saturating_sub(desired) });
        let selector = json!({ "matchLabels": { "app": self.name } });
        json!({ "metadata": { "name": self.name, "namespace": "apps" },
            "spec": { "maxUnavailable": 1, "selector": selector }, "status": status })
    }
}

impl Daemon {
    /// Its pod on each node.
    pub(super) fn pod(self) -> Value {
        let tolerates = json!({ "spec": { "tolerations": [{ "operator": "Exists" }] } });
        let spec = json!({ "spec": containers(self.real, 0) });
        merged(owned("DaemonSet", "agent"), merged(spec, tolerates))
    }

    pub(super) fn set(self) -> Value {
        let template = merged(
            json!({ "metadata": { "labels": { "app": "agent" } } }),
            json!({ "spec": containers(self.said, 0) }),
        );
        json!({ "metadata": { "name": "agent", "namespace": "apps", "uid": "agent" },
            "spec": { "selector": { "matchLabels": { "app": "agent" } }, "template": template } })
    }
}

fn owned(kind: &str, app: &str) -> Value {
    json!({ "metadata": { "labels": { "app": app }, "ownerReferences": [
        { "apiVersion": "apps/v1", "kind": kind, "name": app, "uid": app, "controller": true }] } })
}

fn containers(cpu: i64, gpus: i64) -> Value {
    let mut requests = json!({ "cpu": format!("{cpu}m") });
    if gpus > 0 {
        requests[GPU] = json!(gpus.to_string());
    }
    json!({ "containers": [{ "name": "c", "resources": { "requests": requests, "limits": requests } }] })
}
