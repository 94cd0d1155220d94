//! The labels that all nodes of a pool share and that its template does not set: those of cloud providers, CSI drivers and
//! feature discovery, and the real architecture.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use shared_crds::NodePool;
use shared_crds::names::EXCLUDE_FROM_LOAD_BALANCERS_LABEL;
use shared_crds::places::tells_where;
use shared_crds::v1alpha1::DiscoveredResources;

use crate::requirements::node_profile::NodeProfile;
use crate::steps;

/// `maxProperties` of `status.autoscaling.discovered.labels`, and `maxItems` of `varying`.
pub(crate) const MAX_LABELS: usize = 128;

/// How many settled nodes show what the others of their pool have; one shows what it has itself.
pub(crate) const SEVERAL: usize = 2;

/// Labels that every node has, so that the planner assumes a value where the template names none.
const ASSUMED: [&str; 4] =
    ["kubernetes.io/arch", "kubernetes.io/os", "beta.kubernetes.io/arch", "beta.kubernetes.io/os"];

/// Domains of the labels that the operators set, each node its own.
const OURS: [&str; 2] = ["tandem.dev/", "tandem.node-restriction.kubernetes.io/"];

/// The parts of label keys after the slash whose values say which node it is. On a pool with one node nothing else shows that.
const NAMES_OF_NODES: [&str; 11] = [
    "host",
    "hostname",
    "instance-id",
    "machine",
    "machine-id",
    "machine-name",
    "node",
    "node-id",
    "node-name",
    "nodeid",
    "nodename",
];

/// What the labels of nodes show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LearntLabels {
    /// Those that new nodes will have.
    pub labels: BTreeMap<String, String>,
    /// Keys of those that the nodes no longer share.
    pub varying: BTreeSet<String>,
}

/// The nodes that show what labels a pool's nodes have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LabelledNodes<'a> {
    /// The pool.
    pub pool: &'a NodePool,
    /// A new node as its template says.
    pub profile: &'a NodeProfile,
    /// Nodes that have all their labels.
    pub settled: &'a [&'a Node],
    /// Nodes that may get more labels.
    pub young: &'a [&'a Node],
}

impl<'a> LabelledNodes<'a> {
    /// What the nodes share. What `remembered` names counts as on one more node that may get more labels, so that a label is
    /// lost when a node shows the contrary, and not because a new node does not have it yet, or because one of several has
    /// lost it. A label that was shared and no longer is will be expected again only when there are several settled nodes and
    /// all of them share it: otherwise each time that one node is left, a pod could add another one in vain. One that says
    /// where a node is will never be: nodes that happen to be at one place do not show where the next one will be.
    pub(crate) fn learn(&self, remembered: Option<&'a DiscoveredResources>) -> LearntLabels {
        let mut varying: BTreeSet<&str> =
            remembered.into_iter().flat_map(|known| known.varying.iter().map(String::as_str)).collect();
        let mut differing = BTreeSet::new();
        let mut shared: BTreeMap<&str, &str> = match self.settled.split_first() {
            Some((first, rest)) => {
                let mut shared: Vec<_> = self.learnable(first).collect();
                for node in rest {
                    meet(&mut shared, node, false, &mut differing);
                }
                for node in self.young {
                    meet(&mut shared, node, true, &mut differing);
                }
                shared.into_iter().collect()
            }
            None => union(self.young.iter().flat_map(|node| self.learnable(node)), &mut differing),
        };
        let before = remembered.into_iter().flat_map(|known| &known.labels);
        for (key, value) in before.filter(|(key, _)| !self.is_declared(key)) {
            let (key, value) = (key.as_str(), value.as_str());
            let is_shared = shared.get(key).map(|&now| now == value);
            let may_come = self.settled.is_empty() && !differing.contains(key);
            match is_shared {
                Some(true) => {}
                None if may_come || self.most_have(key, value) => {
                    shared.insert(key, value);
                }
                Some(false) | None => {
                    varying.insert(key);
                }
            }
        }
        if self.settled.len() >= SEVERAL {
            varying.retain(|key| !shared.contains_key(*key) || tells_where(key));
        }
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let is_news = |(key, value): &(&str, &str)| {
            !varying.contains(*key) && self.profile.labels.get(*key).is_none_or(|assumed| assumed != value)
        };
        LearntLabels {
            labels: shared.into_iter().filter(is_news).take(MAX_LABELS).map(owned).collect(),
            varying: varying.into_iter().take(MAX_LABELS).map(str::to_owned).collect(),
        }
    }

    /// Whether most of the settled nodes have the label, and no node has another value.
    fn most_have(&self, key: &str, value: &str) -> bool {
        let differs = |node: &&Node| label(node, key).is_some_and(|its| its != value);
        let having = self.settled.iter().filter(|node| label(node, key) == Some(value)).count();
        self.is_open(key)
            && are_most(having, self.settled.len())
            && !self.settled.iter().chain(self.young).any(differs)
    }

    /// The labels of a node that another one could share, by key.
    fn learnable<'n>(&self, node: &'n Node) -> impl Iterator<Item = (&'n str, &'n str)> {
        let labels = node.metadata.labels.iter().flatten();
        labels
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .filter(move |(key, value)| self.is_open(key) && !names_the_node(node, key, value))
    }

    /// Whether the template leaves the label to the nodes.
    fn is_open(&self, key: &str) -> bool {
        let is_set = self.profile.labels.contains_key(key) && !ASSUMED.contains(&key);
        let is_ours = OURS.iter().any(|domain| key.starts_with(domain));
        !is_set && !is_ours && key != EXCLUDE_FROM_LOAD_BALANCERS_LABEL && !self.is_declared(key)
    }

    fn is_declared(&self, key: &str) -> bool {
        let metadata = self.pool.spec.template.metadata.as_ref();
        metadata.is_some_and(|metadata| metadata.labels.contains_key(key))
    }
}

/// Whether `having` of `all` settled nodes are several, and more than half: what they have is the pool's, and those without it
/// are the exception.
pub(crate) const fn are_most(having: usize, all: usize) -> bool {
    having >= SEVERAL && having > all / 2
}

fn label<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Keeps what the node has as well. `lacking` says whether it may lack a label.
fn meet<'a>(
    shared: &mut Vec<(&'a str, &'a str)>,
    node: &Node,
    lacking: bool,
    differing: &mut BTreeSet<&'a str>,
) {
    // Both are sorted by key.
    steps::count(1 + shared.len());
    let mut labels = node.metadata.labels.iter().flatten().peekable();
    shared.retain(|&(key, value)| {
        while labels.next_if(|(other, _)| other.as_str() < key).is_some() {}
        match labels.next_if(|(other, _)| other.as_str() == key) {
            Some((_, other)) if other.as_str() == value => true,
            Some(_) => {
                differing.insert(key);
                false
            }
            None => lacking,
        }
    });
}

/// The labels that no two nodes contradict.
fn union<'a>(
    labels: impl Iterator<Item = (&'a str, &'a str)>,
    differing: &mut BTreeSet<&'a str>,
) -> BTreeMap<&'a str, &'a str> {
    let mut found = BTreeMap::new();
    for (key, value) in labels {
        if *found.entry(key).or_insert(value) != value {
            differing.insert(key);
        }
    }
    found.retain(|key, _| !differing.contains(key));
    found
}

/// Whether the label says which node it is on.
fn names_the_node(node: &Node, key: &str, value: &str) -> bool {
    let (_, last) = key.rsplit_once('/').unwrap_or(("", key));
    if NAMES_OF_NODES.contains(&last) {
        return true;
    }
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let host = name.split('.').next().unwrap_or_default();
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
    let machine = provider_id.rsplit('/').next().unwrap_or_default();
    let uid = node.metadata.uid.as_deref().unwrap_or_default();
    !value.is_empty() && [name, host, machine, uid].contains(&value)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pool() -> NodePool {
        serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "ns" }, "spec": {
            "maxReplicas": 9, "provider": { "simulated": {} },
            "template": { "metadata": { "labels": { "disk": "ssd" } }, "spec": { "capacity": { "cpu": "4" } } } } }))
        .unwrap()
    }

    fn node(name: &str, labels: &Value) -> Node {
        serde_json::from_value(
            json!({ "metadata": { "name": name, "uid": format!("uid-{name}"), "labels": labels },
            "spec": { "providerID": format!("cloud:///zone/i-{name}") } }),
        )
        .unwrap()
    }

    fn learnt(settled: &[Node], young: &[Node], remembered: Option<&DiscoveredResources>) -> LearntLabels {
        let pool = pool();
        let profile = NodeProfile::of_template(&pool);
        let (settled, young): (Vec<_>, Vec<_>) = (settled.iter().collect(), young.iter().collect());
        LabelledNodes { pool: &pool, profile: &profile, settled: &settled, young: &young }.learn(remembered)
    }

    fn texts(learnt: &LearntLabels) -> Vec<String> {
        learnt.labels.iter().map(|(key, value)| format!("{key}={value}")).collect()
    }

    fn known(labels: &Value, varying: &Value) -> DiscoveredResources {
        serde_json::from_value(
            json!({ "allocatable": {}, "templateHash": "h", "labels": labels, "varying": varying }),
        )
        .unwrap()
    }

    #[test]
    fn labels_that_all_nodes_share_and_the_template_lacks_are_learnt() {
        let full = json!({ "kubernetes.io/hostname": "a", "kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux",
            "disk": "hdd", "zone": "1", "csi/zone": "1", "csi/node": "x", "id": "i-a", "uid": "uid-a",
            "tandem.dev/nodepool": "p", "tandem.node-restriction.kubernetes.io/machine": "m" });
        let only = [node("a", &full)];
        let expected = ["csi/zone=1", "kubernetes.io/arch=arm64", "zone=1"].map(str::to_owned);
        assert_eq!(texts(&learnt(&only, &[], None)), expected, "nothing that is of the one node only");
        assert_eq!(texts(&learnt(&[], &only, None)), expected, "also from one that is young");
        let other = node("b.example.com", &json!({ "zone": "2", "csi/zone": "1", "host-label": "b" }));
        let both = [only[0].clone(), other];
        assert_eq!(
            texts(&learnt(&both, &[], None)),
            ["csi/zone=1"],
            "what differs or is missing is not shared"
        );
        assert!(learnt(&both, &[], None).varying.is_empty(), "it never was");
    }

    #[test]
    fn a_young_node_without_a_label_does_not_unlearn_it_and_one_with_another_value_does() {
        let with = |value: &str| node(&format!("n{value}"), &json!({ "csi/zone": value }));
        let bare = node("n", &json!({}));
        let before = known(&json!({ "csi/zone": "1" }), &json!([]));
        for (what, settled, young, remembered, expected) in [
            ("one to come", vec![with("1")], vec![bare.clone()], None, vec!["csi/zone=1"]),
            ("all to come", vec![], vec![bare.clone()], Some(&before), vec!["csi/zone=1"]),
            ("none", vec![], vec![], Some(&before), vec!["csi/zone=1"]),
            ("another value", vec![with("1")], vec![with("2")], None, vec![]),
            ("young ones differ", vec![], vec![with("1"), with("2")], Some(&before), vec![]),
            ("it does not come", vec![with("1"), bare.clone()], vec![], None, vec![]),
        ] {
            assert_eq!(texts(&learnt(&settled, &young, remembered)), expected, "{what}");
        }
    }

    #[test]
    fn a_label_that_was_shared_once_and_differs_is_not_expected_again_of_one_node() {
        let with = |value: &str| node(&format!("n{value}"), &json!({ "zone": value }));
        let before = known(&json!({ "zone": "1" }), &json!([]));
        for (what, settled, young) in [
            ("two zones", vec![with("1"), with("2")], vec![]),
            ("the new one is elsewhere", vec![with("1")], vec![with("2")]),
            ("from zero elsewhere", vec![], vec![with("2")]),
            ("it went", vec![node("n", &json!({}))], vec![]),
        ] {
            let found = learnt(&settled, &young, Some(&before));
            assert_eq!((texts(&found), found.varying.len()), (vec![], 1), "{what}");
        }
        let after = known(&json!({}), &json!(["zone"]));
        assert_eq!(texts(&learnt(&[with("1")], &[], Some(&after))), Vec::<String>::new());
    }

    #[test]
    fn a_label_that_differed_is_learnt_again_of_several_nodes_unless_it_says_where_they_are() {
        let rack = "topology.csi.example.com/rack";
        let with =
            |name: &str, value: &str| node(name, &json!({ "feature": value, "zone": value, rack: value }));
        let (a, b, c) = (with("a", "1"), with("b", "1"), with("c", "2"));
        let bare = node("d", &json!({}));
        let after = known(&json!({}), &json!(["feature", rack, "zone"]));
        for (what, settled, young, expected) in [
            ("several", vec![a.clone(), b.clone()], vec![], vec!["feature=1"]),
            ("a young one lacks it", vec![a.clone(), b.clone()], vec![bare.clone()], vec!["feature=1"]),
            ("one", vec![a.clone()], vec![], vec![]),
            ("one and a young one", vec![a.clone()], vec![b.clone()], vec![]),
            ("they differ", vec![a.clone(), b.clone(), c.clone()], vec![], vec![]),
            ("a young one differs", vec![a.clone(), b.clone()], vec![c], vec![]),
            ("one lacks it", vec![a, b, bare], vec![], vec![]),
        ] {
            let found = learnt(&settled, &young, Some(&after));
            assert_eq!(texts(&found), expected, "{what}");
            assert_eq!(found.varying.len(), 3 - expected.len(), "{what}");
        }
    }

    #[test]
    fn several_nodes_that_all_show_another_value_teach_it_at_once() {
        let with = |name: &str| node(name, &json!({ "feature": "2", "zone": "2" }));
        let before = known(&json!({ "feature": "1", "zone": "1" }), &json!([]));
        let found = learnt(&[with("a"), with("b")], &[], Some(&before));
        assert_eq!((texts(&found), found.varying.len()), (vec!["feature=2".to_owned()], 1));
    }

    #[test]
    fn one_lacking_node_of_three_unlearns_nothing_and_two_or_another_value_do() {
        let has = |name: &str| node(name, &json!({ "feature": "1" }));
        let lacks = |name: &str| node(name, &json!({}));
        let other = || node("o", &json!({ "feature": "2" }));
        let before = known(&json!({ "feature": "1" }), &json!([]));
        for (what, settled, young, keeps) in [
            ("one of three lacks it", vec![lacks("a"), has("b"), has("c")], vec![], true),
            ("the last one does", vec![has("a"), has("b"), lacks("c")], vec![lacks("d")], true),
            ("one of two does", vec![lacks("a"), has("b")], vec![], false),
            ("two of three do", vec![lacks("a"), lacks("b"), has("c")], vec![], false),
            ("two of four do", vec![lacks("a"), lacks("b"), has("c"), has("d")], vec![], false),
            ("one has another value", vec![has("a"), has("b"), has("c"), other()], vec![], false),
            ("a young one has", vec![has("a"), has("b")], vec![other()], false),
        ] {
            let found = learnt(&settled, &young, Some(&before));
            let expected = if keeps { (1, 0) } else { (0, 1) };
            assert_eq!((found.labels.len(), found.varying.len()), expected, "{what}");
        }
        let new = learnt(&[lacks("a"), has("b"), has("c")], &[], None);
        assert!(new.labels.is_empty(), "what is not remembered has to be on all of them");
    }
}
