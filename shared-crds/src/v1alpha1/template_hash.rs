//! The hash by which a node of the present template is told from one of an earlier template.

use std::collections::BTreeMap;
use std::hash::Hasher as _;

use fnv::FnvHasher;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Serialize;

use super::node_pool::NodePoolSpec;
use super::provider::{KarpenterProvider, ProviderSpec};
use super::template::NodeTaint;
use crate::quantity::Exact;

/// Comes before the hash and says what is in it. Another one means that it says nothing about the present template: nodes are
/// not replaced because a new version of the operator counts other fields in.
const VERSION: &str = "v2-";

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
    karpenter: Option<&'a KarpenterProvider>,
}

impl NodePoolSpec {
    /// Hash of what a node cannot get while it lives: capacity, startup taints, and what the provider makes its machine from.
    /// The same amount written in another way, and another order of taints, make no difference. `None` when the spec cannot be
    /// written as JSON.
    pub fn template_hash(&self) -> Option<String> {
        let Self { template, provider, .. } = self;
        let ProviderSpec { simulated: _, exec, karpenter, cluster_api: _ } = provider;
        let mut startup_taints: Vec<&NodeTaint> = template.spec.startup_taints.iter().collect();
        startup_taints.sort();
        let unchangeable = Unchangeable {
            capacity: amounts(&template.spec.capacity),
            reserved: amounts(&template.spec.reserved),
            startup_taints,
            exec_parameters: exec.as_ref().map(|exec| &exec.parameters).filter(|all| !all.is_empty()),
            karpenter: karpenter.as_ref(),
        };
        Some(format!("{VERSION}{}", hash(&unchangeable)?))
    }

    /// Whether the hash can be compared with [`template_hash`](Self::template_hash): another version of the operator may have
    /// hashed other fields, and then a difference means nothing.
    pub fn knows_template_hash(hash: &str) -> bool {
        hash.starts_with(VERSION)
    }
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
        let same: [fn(&mut serde_json::Value); 7] = [
            |it| it["maxReplicas"] = json!(9),
            |it| it["template"]["metadata"]["labels"]["a"] = json!("2"),
            |it| it["template"]["metadata"]["annotations"] = json!({}),
            |it| it["template"]["spec"]["taints"] = json!([]),
            |it| it["template"]["spec"]["capacity"]["cpu"] = json!("4000m"),
            |it| it["template"]["spec"]["startupTaints"].as_array_mut().unwrap().reverse(),
            |it| it["provisioningTimeoutSeconds"] = json!(5),
        ];
        for (number, change) in same.into_iter().enumerate() {
            assert_eq!(spec(change).template_hash(), own, "{number}");
        }
        let other: [fn(&mut serde_json::Value); 5] = [
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
    fn how_machines_of_the_simulated_provider_behave_is_not_part_of_the_template() {
        let simulated = |quota: i32| spec(|it| it["provider"] = json!({ "simulated": { "quota": quota } }));
        assert_eq!(simulated(1).template_hash(), simulated(2).template_hash());
    }

    #[test]
    fn the_hash_of_a_spec_stays_what_it_is() {
        // Another value would replace every node of every pool when the operator is updated.
        insta::assert_snapshot!(spec(|_| {}).template_hash().unwrap());
    }
}
