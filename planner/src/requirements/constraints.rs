//! A pod's constraints on nodes, in a form that is cheap to compare and sort: two pods with equal [`Constraints`] may
//! run on the same nodes.
//!
//! This only reads; [`super::predicates`] decides whether a node satisfies a constraint.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration,
};

/// The label that holds a node's name.
pub(crate) const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
/// The only field that `matchFields` supports.
pub(crate) const NAME_FIELD: &str = "metadata.name";

/// A pod's constraints on nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Constraints {
    /// `spec.nodeSelector`, sorted.
    pub selector: Vec<(String, String)>,
    /// Required node affinity: one of the terms must match. `None` when the pod has none; an empty list matches no
    /// node.
    pub affinity: Option<Vec<NodeTerm>>,
    /// `spec.tolerations`, sorted.
    pub tolerations: Vec<Tolerated>,
    /// Where the pod's volumes can be used: one of the terms of each must match. Sorted. Read from the pod's
    /// `PersistentVolumeClaim`s, not from the pod.
    pub volumes: Vec<Vec<NodeTerm>>,
}

/// One term of a required node affinity: all its rules must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeTerm {
    /// Rules over labels.
    pub labels: Vec<NodeRequirement>,
    /// Rules over fields.
    pub fields: Vec<NodeRequirement>,
}

/// A rule over one label or field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeRequirement {
    /// Key of the label, or path of the field.
    pub key: String,
    /// The comparison.
    pub operator: RequirementOperator,
    /// The values to compare with.
    pub values: Vec<String>,
}

/// The comparison of a [`NodeRequirement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RequirementOperator {
    /// One of the values.
    In,
    /// Absent, or none of the values.
    NotIn,
    /// Present.
    Exists,
    /// Absent.
    DoesNotExist,
    /// A greater integer.
    Gt,
    /// A smaller integer.
    Lt,
    /// An operator that the scheduler does not support; matches no node.
    Unknown,
}

/// A toleration. `tolerationSeconds` is irrelevant for placing a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tolerated {
    /// Empty means every key.
    pub key: String,
    /// `Equal` (the default), `Exists`, `Lt` or `Gt`.
    pub operator: String,
    /// The value to compare the taint's value with.
    pub value: String,
    /// Empty means every effect.
    pub effect: String,
}

impl Constraints {
    /// Reads the constraints of a pod.
    pub(crate) fn of(pod: &Pod) -> Self {
        pod.spec.as_ref().map(Self::of_spec).unwrap_or_default()
    }

    fn of_spec(spec: &PodSpec) -> Self {
        let selector = spec.node_selector.iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
        let required = spec
            .affinity
            .as_ref()
            .and_then(|a| a.node_affinity.as_ref())
            .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
        let affinity = required.map(terms);
        let tolerations = sorted(spec.tolerations.iter().flatten().map(tolerated));
        Self { selector, affinity, tolerations, volumes: Vec::new() }
    }

    /// Adds the label keys that these constraints depend on.
    pub(crate) fn label_keys<'a>(&'a self, keys: &mut BTreeSet<&'a str>) {
        keys.extend(self.selector.iter().map(|(key, _)| key.as_str()));
        keys.extend(self.terms().flat_map(|t| &t.labels).map(|rule| rule.key.as_str()));
    }

    /// Whether the constraints depend on a node's name.
    pub(crate) fn names_nodes(&self) -> bool {
        self.terms().any(|term| !term.fields.is_empty())
    }

    fn terms(&self) -> impl Iterator<Item = &NodeTerm> {
        self.affinity.iter().flatten().chain(self.volumes.iter().flatten())
    }
}

/// The alternatives of a node selector, sorted.
pub(crate) fn terms(selector: &NodeSelector) -> Vec<NodeTerm> {
    sorted(selector.node_selector_terms.iter().map(NodeTerm::of))
}

fn sorted<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.sort_unstable();
    items.dedup();
    items
}

impl NodeTerm {
    /// Reads a term.
    pub(crate) fn of(term: &NodeSelectorTerm) -> Self {
        Self {
            labels: sorted(term.match_expressions.iter().flatten().map(rule)),
            fields: sorted(term.match_fields.iter().flatten().map(rule)),
        }
    }

    /// Whether it has no rules, so that no node matches it.
    pub(crate) const fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

fn rule(requirement: &NodeSelectorRequirement) -> NodeRequirement {
    let operator = match requirement.operator.as_str() {
        "In" => RequirementOperator::In,
        "NotIn" => RequirementOperator::NotIn,
        "Exists" => RequirementOperator::Exists,
        "DoesNotExist" => RequirementOperator::DoesNotExist,
        "Gt" => RequirementOperator::Gt,
        "Lt" => RequirementOperator::Lt,
        _ => RequirementOperator::Unknown,
    };
    NodeRequirement {
        key: requirement.key.clone(),
        operator,
        values: requirement.values.clone().unwrap_or_default(),
    }
}

fn tolerated(toleration: &Toleration) -> Tolerated {
    Tolerated {
        key: toleration.key.clone().unwrap_or_default(),
        operator: toleration.operator.clone().unwrap_or_default(),
        value: toleration.value.clone().unwrap_or_default(),
        effect: toleration.effect.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_in_which_constraints_are_written_does_not_matter() {
        let pod = |tolerations: serde_json::Value| -> Pod {
            serde_json::from_value(json!({ "spec": { "containers": [], "tolerations": tolerations } }))
                .unwrap()
        };
        let (a, b) = (json!({ "key": "a", "operator": "Exists" }), json!({ "key": "b", "value": "1" }));
        assert_eq!(Constraints::of(&pod(json!([a, b]))), Constraints::of(&pod(json!([b, a]))));
    }

    #[test]
    fn an_affinity_without_terms_is_not_the_same_as_no_affinity() {
        let pod: Pod =
            serde_json::from_value(json!({ "spec": { "containers": [], "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [] } } } } }))
            .unwrap();
        assert_eq!(Constraints::of(&pod).affinity, Some(vec![]));
    }

    #[test]
    fn only_keys_that_are_mentioned_decide() {
        let pod: Pod = serde_json::from_value(json!({ "spec": { "containers": [], "nodeSelector": { "zone": "a" },
            "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                { "matchExpressions": [{ "key": "size", "operator": "Gt", "values": ["3"] }] },
                { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n"] }] }
            ] } } } } }))
        .unwrap();
        let constraints = Constraints::of(&pod);
        let mut keys = BTreeSet::new();
        constraints.label_keys(&mut keys);
        assert_eq!(keys, BTreeSet::from(["size", "zone"]));
        assert!(constraints.names_nodes());
    }

    #[test]
    fn what_volumes_ask_for_decides_too() {
        let rule = |key: &str| NodeRequirement {
            key: key.to_owned(),
            operator: RequirementOperator::Exists,
            values: vec![],
        };
        let volumes = vec![vec![NodeTerm { labels: vec![rule("rack")], fields: vec![rule(NAME_FIELD)] }]];
        let constraints = Constraints { volumes, ..Constraints::default() };
        let mut keys = BTreeSet::new();
        constraints.label_keys(&mut keys);
        assert_eq!(keys, BTreeSet::from(["rack"]));
        assert!(constraints.names_nodes());
    }
}
