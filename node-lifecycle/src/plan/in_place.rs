//! What of a changed template reaches nodes that exist: labels, annotations and taints. Only a change of the template is carried
//! over, so that what others have done to a node since stays.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Taint};
use serde_json::{Value, json};
use shared_crds::v1alpha1::NodeTaint;
use shared_crds::{NodePool, names};

use crate::assess::membership::Member;
use crate::plan::patches;
use crate::template::NodeMetadata;
use crate::template::applied_template::{AppliedTemplate, hashed};

/// What the nodes of a pool should have from its template.
#[derive(Debug)]
pub(crate) struct InPlace<'a> {
    metadata: &'a NodeMetadata,
    wanted: AppliedTemplate,
    text: Option<String>,
}

impl<'a> InPlace<'a> {
    /// What those of `pool` should have, whose nodes carry `metadata`.
    pub(crate) fn new(pool: &NodePool, metadata: &'a NodeMetadata) -> Self {
        let wanted = AppliedTemplate::of(&pool.spec);
        let text = wanted.text();
        Self { metadata, wanted, text }
    }

    /// Whether the node of `member` lacks something of that, or has too much; never a node that was not made for the pool.
    /// `is_outdated` says that it is replaced anyway.
    pub(crate) fn is_due(&self, member: &Member, is_outdated: bool) -> bool {
        let Some(annotations) = &member.node.metadata.annotations else { return false };
        let is_noted = annotations.get(names::TEMPLATE_APPLIED_ANNOTATION) == self.text.as_ref();
        let is_other = |hash: &String| !is_outdated && *hash != self.metadata.hash;
        member.template_hash.as_ref().is_some_and(|hash| !is_noted || is_other(hash))
    }

    /// The patch that brings the node of `member` there; `None` when nothing [`is_due`](Self::is_due).
    pub(crate) fn update(&self, member: &Member, is_outdated: bool) -> Option<Value> {
        self.is_due(member, is_outdated).then(|| self.patch(member, is_outdated))?
    }

    fn patch(&self, member: &Member, is_outdated: bool) -> Option<Value> {
        let Self { metadata, wanted, text } = self;
        let node = &*member.node;
        let hash = member.template_hash.as_ref()?;
        let annotations = node.metadata.annotations.as_ref()?;
        let noted = annotations.get(names::TEMPLATE_APPLIED_ANNOTATION);
        let other_hash = (!is_outdated && *hash != metadata.hash).then_some(&metadata.hash);
        let known: Option<AppliedTemplate> = noted.and_then(|noted| serde_json::from_str(noted).ok());
        let known = known.unwrap_or_default();
        let mut patch = patches::is_same_object(&node.metadata);
        let labels = node.metadata.labels.clone().unwrap_or_default();
        patch.extend(changed(&known.labels, &wanted.labels).flat_map(|key| {
            let wanted = wanted.labels.get(key);
            let is_untouched = labels.get(key) == known.labels.get(key);
            entry(&patches::label_path(key), labels.get(key), wanted, is_untouched)
        }));
        patch.extend(changed(&known.annotations, &wanted.annotations).flat_map(|key| {
            let wanted = metadata.annotations.get(key).filter(|_| wanted.annotations.contains_key(key));
            let is_untouched =
                annotations.get(key).map(|value| hashed(value)) == known.annotations.get(key).cloned();
            entry(&patches::annotation_path(key), annotations.get(key), wanted, is_untouched)
        }));
        patch.extend(retaint(node, &known.taints, &wanted.taints));
        let annotated = [
            (names::TEMPLATE_APPLIED_ANNOTATION, text.clone()),
            (names::TEMPLATE_HASH_ANNOTATION, other_hash.cloned()),
        ];
        for (note, value) in annotated {
            if value.is_some() || note == names::TEMPLATE_APPLIED_ANNOTATION {
                patch.extend(entry(
                    &patches::annotation_path(note),
                    annotations.get(note),
                    value.as_ref(),
                    true,
                ));
            }
        }
        Some(Value::Array(patch))
    }
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
    let is_same = |taint: &Taint, other: &NodeTaint| {
        is_at(taint, other)
            && taint.value.as_deref().unwrap_or_default() == other.value.as_deref().unwrap_or_default()
    };
    let removed: Vec<&NodeTaint> = known.iter().filter(|taint| !wanted.contains(taint)).collect();
    let set: Vec<&NodeTaint> = wanted.iter().filter(|taint| !known.contains(taint)).collect();
    let mut taints: Vec<Taint> = present
        .iter()
        .filter(|taint| !removed.iter().any(|old| is_same(taint, old)))
        .filter(|taint| !set.iter().any(|new| is_at(taint, new) && !is_same(taint, new)))
        .cloned()
        .collect();
    for new in set {
        if !taints.iter().any(|taint| is_same(taint, new)) {
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
