//! Pods for the tests of this folder, and queries about the result.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Demand, PodInterner};
use crate::fixtures::merged;
use crate::index::PodIndex;
use crate::input::observed::{Observed, PassInput, PassNodes, PassPods};
use crate::input::pod_info::PodInfo;
use crate::requirements::pod_class::{PodClass, TopologyCount};
use crate::resources::{Amounts, ResourceNames};
use crate::snapshot::nominations;

/// A pod of namespace `x` that the scheduler found unschedulable.
pub(super) fn pending(name: &str, change: Value) -> Value {
    merged(
        json!({
            "metadata": { "name": name, "namespace": "x" },
            "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] },
            "status": { "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }] }
        }),
        change,
    )
}

/// A pod of namespace `x` bound to the one node.
pub(super) fn placed(name: &str, change: Value) -> Value {
    pending(name, merged(json!({ "spec": { "nodeName": "n" }, "status": null }), change))
}

pub(super) fn labels(labels: Value) -> Value {
    let mut change = json!({ "metadata": {} });
    change["metadata"]["labels"] = labels;
    change
}

pub(super) fn required(which: &str, terms: Value) -> Value {
    let mut change = json!({ "spec": { "affinity": { which: {} } } });
    change["spec"]["affinity"][which]["requiredDuringSchedulingIgnoredDuringExecution"] = terms;
    change
}

pub(super) fn app(value: &str) -> Value {
    json!({ "matchLabels": { "app": value } })
}

/// The result of resolving some pods.
pub(super) struct Resolution {
    pub(super) demand: Demand,
    pods: Vec<String>,
}

/// Deserializes an object that a test wrote as JSON.
pub(super) fn object<K: DeserializeOwned>(written: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(written).unwrap())
}

/// Reads pods in a cluster with the one node `n`.
pub(super) fn read_with(observed: &Observed, pods: Vec<Value>) -> Resolution {
    let mut pods: Vec<Arc<PodInfo>> = pods.into_iter().map(object).collect();
    pods.sort_by(|a, b| a.key().cmp(&b.key()));
    let node = object(
        json!({ "metadata": { "name": "n" }, "status": { "allocatable": { "cpu": "100", "pods": "100" },
        "conditions": [{ "type": "Ready", "status": "True" }] } }),
    );
    let (mut names, mut interner) = (ResourceNames::default(), PodInterner::default());
    let (nodes, pods) = (PassNodes::from(vec![node]), PassPods::from(pods));
    let input = PassInput { observed, nodes: &nodes, pods: &pods };
    let nominations = nominations::believed(input);
    let demand = Demand::of(input, &nominations, &mut names, &Amounts::default(), &mut interner);
    let pods = pods.iter().map(|pod| pod.key().1.to_owned()).collect();
    Resolution { demand, pods }
}

pub(super) fn read(pods: Vec<Value>) -> Resolution {
    read_with(&Observed::default(), pods)
}

impl Resolution {
    pub(super) fn index(&self, pod: &str) -> PodIndex {
        self.pods.iter().position(|name| name == pod).map(PodIndex).unwrap()
    }

    pub(super) fn class(&self, pod: &str) -> &PodClass {
        let index = self.index(pod);
        let placed = self.demand.placed[index].map(|(class, _)| class);
        let pending = self.demand.groups.iter().find(|g| g.pods.contains(&index)).map(|g| g.class);
        &self.demand.classes[placed.or(pending).unwrap()]
    }

    /// Topology keys over which `pod` has anti-affinity to `other`, sorted.
    pub(super) fn keeps_from(&self, pod: &str, other: &str) -> Vec<&str> {
        let raised = &self.class(other).increments;
        let between =
            self.class(pod).anti_affinity.iter().filter(|topology_count| raised.contains(topology_count));
        let mut keys: Vec<_> =
            between.map(|&topology_count| self.demand.topology_counts[topology_count].key.as_str()).collect();
        keys.sort_unstable();
        keys
    }

    /// Whether the affinity of `pod` selects `other`.
    pub(super) fn wants(&self, pod: &str, other: &str) -> bool {
        let affinity = self.class(pod).affinity.as_ref().unwrap();
        affinity
            .topology_counts
            .iter()
            .all(|topology_count| self.class(other).increments.contains(topology_count))
    }

    /// Whether the first spread constraint of `pod` counts `other`.
    pub(super) fn counts(&self, pod: &str, other: &str) -> bool {
        self.class(other).increments.contains(&self.class(pod).spreads[0].topology_count)
    }

    pub(super) fn spread_count(&self, pod: &str) -> &TopologyCount {
        &self.demand.topology_counts[self.class(pod).spreads[0].topology_count]
    }
}
