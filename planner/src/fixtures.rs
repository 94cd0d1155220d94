//! Small clusters for tests, of the planner and of the crates that use it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use shared_crds::names::member_labels;
use shared_crds::{NodePool, NodePoolAutoscaler};

use super::{Observed, PoolDecision, ScalingPlan, SchedulingResult, plan};
use crate::input::pod_info::PodInfo;

/// The time in every test.
pub const NOW: &str = "2026-01-01T12:00:00Z";

/// `base` with `change` applied, as a merge patch without deletions.
pub fn merged(mut base: Value, change: Value) -> Value {
    merge(&mut base, change);
    base
}

fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}

/// A builder for a test cluster.
#[derive(Debug)]
#[must_use]
pub struct TestCluster {
    /// The planner's input.
    pub observed: Observed,
}

impl TestCluster {
    /// An empty cluster, at [`NOW`].
    #[expect(clippy::new_without_default, reason = "an empty cluster is at a time")]
    pub fn new() -> Self {
        Self { observed: Observed { now: NOW.parse::<Timestamp>().unwrap(), ..Observed::default() } }
    }

    /// A cluster with an autoscaler for every pool of namespace `ns` that acts at once.
    pub fn eager() -> Self {
        Self::new()
            .autoscaler("all", json!({ "scaleDown": { "unneededSeconds": 0, "delayAfterAddSeconds": 0 } }))
    }

    /// Adds an autoscaler of every pool of namespace `ns`.
    pub fn autoscaler(mut self, name: &str, spec: Value) -> Self {
        let object = json!({ "metadata": { "name": name, "namespace": "ns" },
            "spec": merged(json!({ "nodePoolSelector": {} }), spec) });
        self.observed
            .autoscalers
            .push(Arc::new(serde_json::from_value::<NodePoolAutoscaler>(object).unwrap()));
        self
    }

    /// Adds a pool of nodes with 4 cores, 16 GiB and 10 pods, up to 10 of them.
    pub fn pool(mut self, name: &str, change: Value) -> Self {
        let base = json!({ "metadata": { "name": name, "namespace": "ns" }, "spec": {
            "replicas": 0, "minReplicas": 0, "maxReplicas": 10, "provider": { "simulated": {} },
            "template": { "spec": { "capacity": { "cpu": "4", "memory": "16Gi", "pods": "10" } } } } });
        self.observed.pools.push(Arc::new(serde_json::from_value::<NodePool>(merged(base, change)).unwrap()));
        self
    }

    /// Adds a Ready node of `pool` (in namespace `ns`), an hour old, that matches the pool's template.
    pub fn node(mut self, pool: &str, name: &str, change: Value) -> Self {
        let mut labels = json!({ "kubernetes.io/hostname": name });
        for (key, value) in member_labels("ns", pool) {
            labels[key] = json!(value);
        }
        let base = json!({
            "metadata": { "name": name, "creationTimestamp": "2026-01-01T11:00:00Z", "labels": labels },
            "status": { "allocatable": { "cpu": "4", "memory": "16Gi", "pods": "10" },
                        "conditions": [{ "type": "Ready", "status": "True" }] } });
        self.observed.nodes.push(Arc::new(serde_json::from_value::<Node>(merged(base, change)).unwrap()));
        self
    }

    /// Adds `count` pending pods that request `cpu` each.
    pub fn pending(mut self, name: &str, count: usize, cpu: &str, change: &Value) -> Self {
        for at in 0..count {
            let base = json!({ "metadata": { "name": format!("{name}-{at:03}"), "namespace": "apps" },
                "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu, "memory": "1Gi" } } }] },
                "status": { "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }] } });
            let pod = merged(base, change.clone());
            self.observed.pods.push(Arc::new(serde_json::from_value::<PodInfo>(pod).unwrap()));
        }
        self
    }

    /// Adds a pod that runs on `node`.
    pub fn running(mut self, name: &str, node: &str, cpu: &str, change: Value) -> Self {
        let base = json!({ "metadata": { "name": name, "namespace": "apps" },
            "spec": { "nodeName": node, "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] },
            "status": { "phase": "Running" } });
        self.observed.pods.push(Arc::new(serde_json::from_value::<PodInfo>(merged(base, change)).unwrap()));
        self
    }

    /// The plan of this cluster.
    pub fn plan(&self) -> ScalingPlan {
        plan(&self.observed)
    }
}

/// Short forms of what tests look up in a plan.
pub trait Read {
    /// The decision about a pool.
    fn pool(&self, name: &str) -> &PoolDecision;
    /// How many nodes a pool should have.
    fn desired(&self, name: &str) -> i32;
    /// The reason why a node stays, or that it can be removed.
    fn verdict(&self, node: &str) -> &'static str;
    /// The outcomes sorted by name: `fits NODE`, `fits upcoming POOL`, `grows POOL`, `no REASON,REASON`.
    fn results(&self) -> Vec<String>;
}

impl Read for ScalingPlan {
    fn pool(&self, name: &str) -> &PoolDecision {
        self.pools.iter().find(|p| p.object.metadata.name.as_deref() == Some(name)).unwrap()
    }

    fn desired(&self, name: &str) -> i32 {
        self.pool(name).desired
    }

    fn verdict(&self, node: &str) -> &'static str {
        self.nodes.iter().find(|n| n.name == node).unwrap().reason.as_str()
    }

    fn results(&self) -> Vec<String> {
        let word = |result: &SchedulingResult| match result {
            SchedulingResult::Fits { pool, node } if node.is_empty() => format!("fits upcoming {pool}"),
            SchedulingResult::Fits { node, .. } => format!("fits {node}"),
            SchedulingResult::TriggersScaleUp { pool } => format!("grows {pool}"),
            SchedulingResult::Unschedulable { reasons } => {
                format!("no {}", reasons.iter().map(|r| r.reason).collect::<Vec<_>>().join(","))
            }
        };
        self.pods.iter().map(|pod| word(&pod.result)).collect()
    }
}
