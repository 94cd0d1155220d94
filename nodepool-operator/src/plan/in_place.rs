//! What of a changed template reaches nodes that exist: labels, annotations and taints. Only a change of the template is carried
//! over, so that what others have done to a node since stays.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Taint};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use shared_crds::v1alpha1::NodeTaint;
use shared_crds::{NodePool, names};

use super::hash;
use super::membership::Member;
use super::patches::{self, KUBELETS_LABELS};
use super::template::Marks;

/// What a node has from the template, in the annotation that says so. Of annotations, the hash of the value: they may be long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AppliedTemplate {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    taints: Vec<NodeTaint>,
}

impl AppliedTemplate {
    /// What every node of `pool` has from its template, apart from what the pool, the provider or the kubelet decides.
    pub(crate) fn of(pool: &NodePool) -> Self {
        let template = &pool.spec.template;
        let metadata = template.metadata.clone().unwrap_or_default();
        let of_provider = |key: &str| pool.spec.provider.node_labels().iter().any(|(other, _)| *other == key);
        let is_own =
            |key: &str| key.starts_with("tandem.") || of_provider(key) || KUBELETS_LABELS.contains(&key);
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
    pub(crate) fn text(&self) -> Option<String> {
        serde_json::to_string(self).ok().filter(|_| *self != Self::default())
    }
}

fn hashed(value: &str) -> String {
    format!("{:016x}", hash::fnv1a(value.as_bytes()))
}

/// The patch that brings the node of `member` to what a new one of `pool` would have; `None` when it has it, and for a node that
/// was not made for the pool. `is_outdated` says that it is replaced anyway.
pub(crate) fn update(member: &Member, pool: &NodePool, marks: &Marks, is_outdated: bool) -> Option<Value> {
    let node = &*member.node;
    let hash = member.template_hash.as_ref()?;
    let annotations = node.metadata.annotations.as_ref()?;
    let wanted = AppliedTemplate::of(pool);
    let noted = annotations.get(names::TEMPLATE_APPLIED_ANNOTATION);
    let other_hash = (!is_outdated && *hash != marks.hash).then_some(&marks.hash);
    let is_noted = noted.cloned() == wanted.text();
    if is_noted && other_hash.is_none() {
        return None;
    }
    let known: Option<AppliedTemplate> = noted.and_then(|noted| serde_json::from_str(noted).ok());
    // Version 0.1 did not note it; what a node of the present template had then is what it has to have.
    let known = known.unwrap_or_else(|| {
        if pool.spec.is_hash_of_version_0_1(hash) { wanted.clone() } else { AppliedTemplate::default() }
    });
    let mut patch = patches::is_same_object(&node.metadata);
    let labels = node.metadata.labels.clone().unwrap_or_default();
    patch.extend(changed(&known.labels, &wanted.labels).flat_map(|key| {
        let wanted = wanted.labels.get(key);
        let is_untouched = labels.get(key) == known.labels.get(key);
        entry(&patches::label_path(key), labels.get(key), wanted, is_untouched)
    }));
    patch.extend(changed(&known.annotations, &wanted.annotations).flat_map(|key| {
        let wanted = marks.annotations.get(key).filter(|_| wanted.annotations.contains_key(key));
        let is_untouched =
            annotations.get(key).map(|value| hashed(value)) == known.annotations.get(key).cloned();
        entry(&patches::annotation_path(key), annotations.get(key), wanted, is_untouched)
    }));
    patch.extend(retaint(node, &known.taints, &wanted.taints));
    let notes = [
        (names::TEMPLATE_APPLIED_ANNOTATION, wanted.text()),
        (names::TEMPLATE_HASH_ANNOTATION, other_hash.cloned()),
    ];
    for (note, value) in notes {
        if value.is_some() || note == names::TEMPLATE_APPLIED_ANNOTATION {
            patch.extend(entry(&patches::annotation_path(note), annotations.get(note), value.as_ref(), true));
        }
    }
    Some(Value::Array(patch))
}

/// The keys whose value the template has changed, set or taken off.
fn changed<'a>(
    known: &'a BTreeMap<String, String>,
    wanted: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = &'a String> {
    let set = wanted.iter().filter(|(key, value)| known.get(*key) != Some(value)).map(|(key, _)| key);
    set.chain(known.keys().filter(|key| !wanted.contains_key(*key)))
}

/// Sets the entry at `path` to `wanted`, or takes it off where it `is_untouched`, provided that it still is `now`.
fn entry(path: &str, now: Option<&String>, wanted: Option<&String>, is_untouched: bool) -> Vec<Value> {
    if now == wanted || (wanted.is_none() && !is_untouched) {
        return Vec::new();
    }
    let change = match wanted {
        Some(value) => json!({ "op": "add", "path": path, "value": value }),
        None => json!({ "op": "remove", "path": path }),
    };
    vec![json!({ "op": "test", "path": path, "value": now }), change]
}

/// Replaces the taints that the template has changed, provided that the node still has those that were observed.
fn retaint(node: &Node, known: &[NodeTaint], wanted: &[NodeTaint]) -> Vec<Value> {
    let present = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let is_at =
        |taint: &Taint, other: &NodeTaint| taint.key == other.key && taint.effect == other.effect.as_str();
    let is_it = |taint: &Taint, other: &NodeTaint| {
        is_at(taint, other)
            && taint.value.as_deref().unwrap_or_default() == other.value.as_deref().unwrap_or_default()
    };
    let removed: Vec<&NodeTaint> = known.iter().filter(|taint| !wanted.contains(taint)).collect();
    let set: Vec<&NodeTaint> = wanted.iter().filter(|taint| !known.contains(taint)).collect();
    let mut taints: Vec<Taint> = present
        .iter()
        .filter(|taint| !removed.iter().any(|old| is_it(taint, old)))
        .filter(|taint| !set.iter().any(|new| is_at(taint, new) && !is_it(taint, new)))
        .cloned()
        .collect();
    for new in set {
        if !taints.iter().any(|taint| is_it(taint, new)) {
            taints.push(Taint::from(new));
        }
    }
    if taints == present {
        return Vec::new();
    }
    let seen = if present.is_empty() { Value::Null } else { json!(present) };
    let change = if taints.is_empty() {
        json!({ "op": "remove", "path": "/spec/taints" })
    } else {
        json!({ "op": "add", "path": "/spec/taints", "value": taints })
    };
    vec![json!({ "op": "test", "path": "/spec/taints", "value": seen }), change]
}

#[cfg(test)]
#[path = "in_place_tests.rs"]
mod tests;
