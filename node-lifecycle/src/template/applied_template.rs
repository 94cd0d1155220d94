//! What a node has from its pool's template, as its annotation notes it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use serde::{Deserialize, Serialize};
use shared_crds::names::{self, KUBELETS_LABELS};
use shared_crds::places::is_place;
use shared_crds::v1alpha1::{NodePoolSpec, NodeTaint, TaintEffect};

use crate::input::hash;

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
    /// What every node of a pool has from its template, apart from what the pool, the provider or the kubelet decides, and from
    /// what nodes are replaced for: where and what the machine is, and taints that end pods.
    pub fn of(spec: &NodePoolSpec) -> Self {
        let template = &spec.template;
        let metadata = template.metadata.clone().unwrap_or_default();
        let of_provider = |key: &str| spec.provider.node_labels().iter().any(|(other, _)| *other == key);
        let is_own = |key: &str| {
            let is_reserved = key.starts_with(OWN_PREFIX) || key.starts_with(OWN_RESTRICTED_PREFIX);
            is_reserved || of_provider(key) || KUBELETS_LABELS.contains(&key)
        };
        let labels = metadata.labels.into_iter().filter(|(key, _)| !is_own(key) && !is_place(key));
        let annotations = metadata.annotations.into_iter().filter(|(key, _)| !is_own(key));
        let mut taints = template.spec.taints.clone();
        taints.retain(|taint| taint.effect != TaintEffect::NoExecute);
        taints.sort();
        Self {
            labels: labels.collect(),
            annotations: annotations.map(|(key, value)| (key, hashed(&value))).collect(),
            taints,
        }
    }

    /// What the annotation of `node` notes: nothing where there is none, or one that cannot be read. That of an earlier version
    /// has also places and taints that end pods.
    pub(crate) fn noted_on(node: &Node) -> Self {
        let annotations = node.metadata.annotations.as_ref();
        let noted = annotations.and_then(|all| all.get(names::TEMPLATE_APPLIED_ANNOTATION));
        noted.and_then(|noted| serde_json::from_str(noted).ok()).unwrap_or_default()
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
