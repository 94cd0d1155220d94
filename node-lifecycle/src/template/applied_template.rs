//! What a node has from its pool's template, as its annotation notes it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shared_crds::v1alpha1::{NodePoolSpec, NodeTaint};

use crate::input::hash;

/// The labels that a kubelet sets on its own Node, again and again: what the template says of them is for planning only.
pub const KUBELETS_LABELS: [&str; 3] = ["kubernetes.io/os", "kubernetes.io/arch", "kubernetes.io/hostname"];

/// What the names of the operator's own labels and annotations begin with.
const OWN_PREFIX: &str = "tandem.dev/";
/// The same for those that no kubelet may set.
const OWN_RESTRICTED_PREFIX: &str = "tandem.node-restriction.kubernetes.io/";

/// What a node has from the template, in the annotation that says so. Of annotations, the hash of the value: they may be long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AppliedTemplate {
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations, with the hashes of their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Taints, sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<NodeTaint>,
}

impl AppliedTemplate {
    /// What every node of a pool has from its template, apart from what the pool, the provider or the kubelet decides.
    pub fn of(spec: &NodePoolSpec) -> Self {
        let template = &spec.template;
        let metadata = template.metadata.clone().unwrap_or_default();
        let of_provider = |key: &str| spec.provider.node_labels().iter().any(|(other, _)| *other == key);
        let is_own = |key: &str| {
            let is_reserved = key.starts_with(OWN_PREFIX) || key.starts_with(OWN_RESTRICTED_PREFIX);
            is_reserved || of_provider(key) || KUBELETS_LABELS.contains(&key)
        };
        let labels = metadata.labels.into_iter().filter(|(key, _)| !is_own(key));
        let annotations = metadata.annotations.into_iter().filter(|(key, _)| !is_own(key));
        let mut taints = template.spec.taints.clone();
        taints.sort();
        Self {
            labels: labels.collect(),
            annotations: annotations.map(|(key, value)| (key, hashed(&value))).collect(),
            taints,
        }
    }

    /// As an annotation; `None` where there is nothing to note.
    pub fn text(&self) -> Option<String> {
        serde_json::to_string(self).ok().filter(|_| *self != Self::default())
    }
}

/// The hash of an annotation's value.
pub fn hashed(value: &str) -> String {
    format!("{:016x}", hash::fnv1a(value.as_bytes()))
}
