//! The hash by which a node of the present template is told from one of an earlier template.

use std::collections::BTreeMap;
use std::hash::Hasher as _;

use fnv::FnvHasher;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Serialize;

use super::node_pool::NodePoolSpec;
use super::provider::{KarpenterProvider, ProviderSpec};
use super::template::{NodeTaint, TaintEffect};
use crate::places::is_place;
use crate::quantity::Exact;

/// Comes before the hash and says what is in it. One that is unknown says nothing about the present template: nodes are not replaced
/// because another version of the operator counts other fields in.
const VERSION: &str = "v4-";
/// That of a template with nothing in it that version 4 hashes and version 3 does not, so that its nodes keep their hash. The version
/// is another one where a difference is possible: an operator that is rolled back does not know that, and so replaces no nodes.
const VERSION_3: &str = "v3-";
/// The same for what version 3 hashes and version 2 does not.
const VERSION_2: &str = "v2-";

/// The labels that version 3 hashes, of those that say where and what a machine is.
const PLACES_OF_VERSION_3: [&str; 5] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
];

/// The hash of a template by versions of the operator that left a part of it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierHash<'a> {
    /// The hash.
    pub hash: String,
    /// What is left out of where and what the template says that machines are.
    pub places: BTreeMap<&'a str, &'a str>,
    /// What is left out of the taints that end pods.
    pub no_execute: Vec<&'a NodeTaint>,
}

/// What a node gets when it is made and cannot get later. Maps are sorted and absent fields are left out, so that a new optional
/// field of a later version does not make every node look out of date.
#[derive(Serialize)]
struct Unchangeable<'a> {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    capacity: BTreeMap<&'a str, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    reserved: BTreeMap<&'a str, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    startup_taints: Vec<&'a NodeTaint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exec_parameters: Option<&'a BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    karpenter: Option<KarpenterProvider>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    places: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    no_execute: Vec<NodeTaint>,
}

impl NodePoolSpec {
    /// Hash of what a node cannot get while it lives: capacity, startup taints, what the provider makes its machine from, where
    /// and what the machine is, and taints that end pods. The same amount written in another way, and another order of taints
    /// or requirements, make no difference. `None` when the spec cannot be written as JSON.
    pub fn template_hash(&self) -> Option<String> {
        if self.places().all(|(key, _)| is_of_version_3(key)) {
            self.hash_of_version_3()
        } else {
            versioned(VERSION, &self.all(|_| true))
        }
    }

    /// The hashes of the same template by versions that left something of it out: some of the [`places`](Self::places), or all of
    /// them and the taints that end pods. A node that has one and what that leaves out is of the present template.
    pub fn earlier_template_hashes(&self) -> Vec<EarlierHash<'_>> {
        let before = self.hash_of_version_3().map(|hash| {
            let places = self.places().filter(|(key, _)| !is_of_version_3(key)).collect();
            EarlierHash { hash, places, no_execute: Vec::new() }
        });
        let oldest = versioned(VERSION_2, &self.unchangeable()).map(|hash| EarlierHash {
            hash,
            places: self.places().collect(),
            no_execute: self.no_execute().collect(),
        });
        before.into_iter().chain(oldest).collect()
    }

    /// Where and what the template says that machines are: those of its labels that are a [place](is_place).
    pub fn places(&self) -> impl Iterator<Item = (&str, &str)> {
        let labels = self.template.metadata.iter().flat_map(|metadata| &metadata.labels);
        let labels = labels.map(|(key, value)| (key.as_str(), value.as_str()));
        labels.filter(|(key, _)| is_place(key))
    }

    /// The template's taints that end pods which do not tolerate them, past every budget.
    pub fn no_execute(&self) -> impl Iterator<Item = &NodeTaint> {
        self.template.spec.taints.iter().filter(|taint| taint.effect == TaintEffect::NoExecute)
    }

    fn hash_of_version_3(&self) -> Option<String> {
        let all = self.all(is_of_version_3);
        let has_order = self.provider.karpenter.as_ref().is_some_and(has_order);
        let is_more = has_order || !all.places.is_empty() || !all.no_execute.is_empty();
        versioned(if is_more { VERSION_3 } else { VERSION_2 }, &all)
    }

    /// All of it, with those places whose label `counts`.
    fn all(&self, counts: impl Fn(&str) -> bool) -> Unchangeable<'_> {
        let mut no_execute: Vec<NodeTaint> = self.no_execute().cloned().collect();
        for taint in &mut no_execute {
            taint.value = taint.value.take().filter(|value| !value.is_empty());
        }
        no_execute.sort();
        let earlier = self.unchangeable();
        let karpenter = earlier.karpenter.map(sorted);
        let places = self.places().filter(|(key, _)| counts(key)).collect();
        Unchangeable { karpenter, places, no_execute, ..earlier }
    }

    fn unchangeable(&self) -> Unchangeable<'_> {
        let Self { template, provider, .. } = self;
        let ProviderSpec { simulated: _, exec, karpenter, cluster_api: _ } = provider;
        let mut startup_taints: Vec<&NodeTaint> = template.spec.startup_taints.iter().collect();
        startup_taints.sort();
        Unchangeable {
            capacity: amounts(&template.spec.capacity),
            reserved: amounts(&template.spec.reserved),
            startup_taints,
            exec_parameters: exec.as_ref().map(|exec| &exec.parameters).filter(|all| !all.is_empty()),
            karpenter: karpenter.clone(),
            places: BTreeMap::new(),
            no_execute: Vec::new(),
        }
    }

    /// Whether the hash can be compared with [`template_hash`](Self::template_hash): another version of the operator may have
    /// hashed other fields, and then a difference means nothing.
    pub fn knows_template_hash(hash: &str) -> bool {
        [VERSION, VERSION_3, VERSION_2].iter().any(|version| hash.starts_with(version))
    }
}

/// Whether version 3 hashes the label.
fn is_of_version_3(key: &str) -> bool {
    PLACES_OF_VERSION_3.contains(&key)
}

/// With its requirements in one order: all of them have to be met, and any of their values will do.
fn sorted(mut karpenter: KarpenterProvider) -> KarpenterProvider {
    for requirement in &mut karpenter.requirements {
        requirement.values.sort();
    }
    karpenter.requirements.sort_by(|one, other| {
        (&one.key, one.operator, &one.values).cmp(&(&other.key, other.operator, &other.values))
    });
    karpenter
}

/// Whether the same requirements can be written in more than one order.
fn has_order(karpenter: &KarpenterProvider) -> bool {
    let all = &karpenter.requirements;
    all.len() > 1 || all.iter().any(|requirement| requirement.values.len() > 1)
}

fn versioned(version: &str, unchangeable: &Unchangeable<'_>) -> Option<String> {
    Some(format!("{version}{}", hash(unchangeable)?))
}

fn amounts(of: &BTreeMap<String, Quantity>) -> BTreeMap<&str, String> {
    let canonical = |quantity: &Quantity| match Exact::parse(&quantity.0) {
        Ok(amount) => amount.written_like(""),
        Err(_) => quantity.0.clone(),
    };
    of.iter().map(|(name, quantity)| (name.as_str(), canonical(quantity))).collect()
}

/// 64-bit FNV-1a of the value as JSON, in hexadecimal.
fn hash(value: &impl Serialize) -> Option<String> {
    let mut hasher = FnvHasher::default();
    hasher.write(&serde_json::to_vec(value).ok()?);
    Some(format!("{:016x}", hasher.finish()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::places::EXAMPLES;

    fn spec(change: impl FnOnce(&mut serde_json::Value)) -> NodePoolSpec {
        let mut spec = json!({
            "maxReplicas": 3,
            "template": {
                "metadata": { "labels": { "a": "1" }, "annotations": { "b": "1" } },
                "spec": {
                    "capacity": { "cpu": "4", "memory": "16Gi" },
                    "reserved": { "cpu": "100m" },
                    "taints": [{ "key": "t", "effect": "NoSchedule" }],
                    "startupTaints": [{ "key": "s", "effect": "NoExecute" }, { "key": "u", "effect": "NoExecute" }],
                },
            },
            "provider": { "exec": { "name": "x", "parameters": { "size": "large" } } },
        });
        change(&mut spec);
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn the_hash_covers_what_a_node_cannot_get_later_and_nothing_else() {
        let own = spec(|_| {}).template_hash();
        let same: [fn(&mut serde_json::Value); 8] = [
            |it| it["maxReplicas"] = json!(9),
            |it| it["template"]["metadata"]["labels"]["a"] = json!("2"),
            |it| it["template"]["metadata"]["labels"]["kubernetes.io/hostname"] = json!("h"),
            |it| it["template"]["metadata"]["annotations"] = json!({}),
            |it| it["template"]["spec"]["taints"] = json!([]),
            |it| it["template"]["spec"]["capacity"]["cpu"] = json!("4000m"),
            |it| it["template"]["spec"]["startupTaints"].as_array_mut().unwrap().reverse(),
            |it| it["provisioningTimeoutSeconds"] = json!(5),
        ];
        for (number, change) in same.into_iter().enumerate() {
            assert_eq!(spec(change).template_hash(), own, "{number}");
        }
        let other: [fn(&mut serde_json::Value); 6] = [
            |it| it["template"]["spec"]["taints"][0]["effect"] = json!("NoExecute"),
            |it| it["template"]["spec"]["capacity"]["cpu"] = json!("5"),
            |it| it["template"]["spec"]["reserved"] = json!({}),
            |it| it["template"]["spec"]["startupTaints"] = json!([]),
            |it| it["provider"]["exec"]["parameters"]["size"] = json!("small"),
            |it| {
                it["provider"] =
                    json!({ "karpenter": { "nodeClassRef": { "group": "g", "kind": "K", "name": "n" } } });
            },
        ];
        for (number, change) in other.into_iter().enumerate() {
            assert_ne!(spec(change).template_hash(), own, "{number}");
        }
    }

    #[test]
    fn the_hash_covers_every_label_that_says_where_or_what_a_machine_is() {
        let at = |label: &str, value: &str| {
            spec(|it| it["template"]["metadata"]["labels"][label] = json!(value)).template_hash()
        };
        for label in EXAMPLES {
            assert_ne!(at(label, "x"), spec(|_| {}).template_hash(), "{label} added");
            assert_ne!(at(label, "x"), at(label, "y"), "{label} changed");
        }
    }

    #[test]
    fn a_template_with_more_places_is_known_by_the_hashes_that_earlier_versions_made_of_it() {
        // A node of theirs is replaced unless its hash is one of these, and unless it has what they leave out.
        let (zone, csi) = ("topology.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone");
        let of = |labels: serde_json::Value| spec(|it| it["template"]["metadata"]["labels"] = labels);
        let [without, old] =
            [json!({}), json!({ zone: "a" })].map(|labels| of(labels).template_hash().unwrap());
        for (labels, version_3, left_out) in [
            (json!({ csi: "a" }), &without, [vec![csi], vec![csi]]),
            (json!({ zone: "a", csi: "a" }), &old, [vec![csi], vec![csi, zone]]),
            (json!({ zone: "a" }), &old, [vec![], vec![zone]]),
        ] {
            let spec = of(labels);
            let own = spec.template_hash().unwrap();
            assert_eq!(own.starts_with("v4-"), !left_out[0].is_empty(), "{own}");
            let all = spec.earlier_template_hashes();
            let hashes: Vec<&String> = all.iter().map(|earlier| &earlier.hash).collect();
            assert_eq!(hashes, [version_3, &without]);
            let places = all.iter().map(|earlier| earlier.places.keys().copied().collect::<Vec<_>>());
            assert_eq!(places.collect::<Vec<_>>(), left_out);
        }
    }

    #[test]
    fn how_machines_of_the_simulated_provider_behave_is_not_part_of_the_template() {
        let simulated = |quota: i32| spec(|it| it["provider"] = json!({ "simulated": { "quota": quota } }));
        assert_eq!(simulated(1).template_hash(), simulated(2).template_hash());
    }

    /// With all that the hash covers, and with this provider.
    fn full(provider: &serde_json::Value) -> serde_json::Value {
        let spec = spec(|it| {
            it["template"]["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("z");
            let taint = json!({ "key": "e", "value": "1", "effect": "NoExecute" });
            it["template"]["spec"]["taints"].as_array_mut().unwrap().push(taint);
            it["provider"] = provider.clone();
        });
        serde_json::to_value(spec).unwrap()
    }

    fn read(spec: serde_json::Value) -> NodePoolSpec {
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn the_hash_stays_what_it_is_with_each_provider() {
        // Another value would replace every node of the pools of that provider when the operator is updated; another earlier
        // one would do so for nodes of versions that left out places. Those versions replace nothing for a hash of version 3.
        let requirements = json!([{ "key": "b", "operator": "In", "values": ["y", "x"] }, { "key": "a", "operator": "Exists" }]);
        let node_class = json!({ "group": "g", "kind": "K", "name": "n" });
        for (provider, hash, earlier) in [
            (json!({ "simulated": {} }), "v3-9dbad5aff4306de4", "v2-2ea1d7353bc73f46"),
            (
                json!({ "exec": { "name": "x", "parameters": { "size": "large" } } }),
                "v3-6ec5e98ab60f619a",
                "v2-2ef266b15ceb7700",
            ),
            (
                json!({ "karpenter": { "nodeClassRef": node_class, "requirements": requirements } }),
                "v3-22055faa5183f0f4",
                "v2-4d99ce8f0db22c1a",
            ),
            (
                json!({ "clusterApi": { "machineDeploymentRef": { "name": "md" } } }),
                "v3-9dbad5aff4306de4",
                "v2-2ea1d7353bc73f46",
            ),
        ] {
            let spec = read(full(&provider));
            assert_eq!(spec.template_hash().as_deref(), Some(hash), "{provider}");
            let all = spec.earlier_template_hashes();
            let all: Vec<&str> = all.iter().map(|earlier| earlier.hash.as_str()).collect();
            assert_eq!(all, [hash, earlier], "{provider}");
        }
    }

    #[test]
    fn a_template_without_places_and_taints_that_end_pods_has_the_hash_of_earlier_versions() {
        let spec = spec(|_| {});
        for earlier in spec.earlier_template_hashes() {
            assert_eq!(spec.template_hash().as_ref(), Some(&earlier.hash));
        }
        assert!(["v2-0", "v3-0", "v4-0"].into_iter().all(NodePoolSpec::knows_template_hash));
        assert!(!["v1-0", "v5-0", "0"].into_iter().any(NodePoolSpec::knows_template_hash));
    }

    #[test]
    fn the_order_of_requirements_of_their_values_and_of_taints_is_no_change() {
        let of = |requirements: serde_json::Value, taints: serde_json::Value| {
            let node_class = json!({ "group": "g", "kind": "K", "name": "n" });
            let provider =
                json!({ "karpenter": { "nodeClassRef": node_class, "requirements": requirements } });
            let mut spec = full(&provider);
            spec["template"]["spec"]["taints"] = taints;
            read(spec).template_hash().unwrap()
        };
        let ends =
            |key: &str, value: Option<&str>| json!({ "key": key, "value": value, "effect": "NoExecute" });
        let one = of(
            json!([
                { "key": "a", "operator": "In", "values": ["x", "y"] },
                { "key": "a", "operator": "NotIn", "values": ["z"] },
                { "key": "b", "operator": "Exists" },
            ]),
            json!([ends("e", None), ends("f", Some("1"))]),
        );
        let other = of(
            json!([
                { "key": "b", "operator": "Exists" },
                { "key": "a", "operator": "NotIn", "values": ["z"] },
                { "key": "a", "operator": "In", "values": ["y", "x"] },
            ]),
            json!([ends("f", Some("1")), ends("e", Some(""))]),
        );
        assert_eq!(one, other);
    }

    #[test]
    fn the_hash_of_a_spec_stays_what_it_is() {
        // Another value would replace every node of every pool when the operator is updated.
        insta::assert_snapshot!(spec(|_| {}).template_hash().unwrap());
    }
}
