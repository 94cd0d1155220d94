//! What of a changed template reaches nodes that exist: labels, annotations and taints. Only a change of the template is carried
//! over, so that what others have done to a node since stays. Where and what a machine is does not change while it lives, and a
//! taint that ends pods would do so past every budget: neither is written here, nodes are replaced for them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Taint};
use serde_json::{Value, json};
use shared_crds::places::is_place;
use shared_crds::v1alpha1::{NodePoolSpec, NodeTaint};
use shared_crds::{NodePool, names};

use crate::assess::membership::Member;
use crate::plan::patches;
use crate::template::NodeMetadata;
use crate::template::applied_template::{AppliedTemplate, hashed};
use crate::template::earlier::is_same;

/// What the nodes of a pool should have from its template.
#[derive(Debug)]
pub(crate) struct InPlace<'a> {
    metadata: &'a NodeMetadata,
    wanted: AppliedTemplate,
    text: Option<String>,
    /// The template's taints that end pods.
    no_execute: Vec<&'a NodeTaint>,
}

impl<'a> InPlace<'a> {
    /// What those of `pool` should have, whose nodes carry `metadata`.
    pub(crate) fn new(pool: &'a NodePool, metadata: &'a NodeMetadata) -> Self {
        let wanted = AppliedTemplate::of(&pool.spec);
        let text = wanted.text();
        Self { metadata, wanted, text, no_execute: pool.spec.no_execute().collect() }
    }

    /// Whether the node of `member` lacks something of that, or has too much; never a node that was not made for the pool.
    /// `is_outdated` says that it is replaced anyway.
    pub(crate) fn is_due(&self, member: &Member, is_outdated: bool) -> bool {
        let Some(annotations) = &member.node.metadata.annotations else { return false };
        let noted = annotations.get(names::TEMPLATE_APPLIED_ANNOTATION);
        let is_noted =
            noted == self.text.as_ref() || noted == self.wanted(&self.known(&member.node)).text().as_ref();
        member.template_hash.is_some() && (!is_noted || self.other_hash(member, is_outdated).is_some())
    }

    /// The present hash, for a node that is of the present template and has the hash of another: its provider replaces machines
    /// itself, or an earlier version hashed less. One that this version does not know stays: it may be of a rollout that runs.
    fn other_hash(&self, member: &Member, is_outdated: bool) -> Option<&String> {
        let is_known = |hash: &&String| NodePoolSpec::knows_template_hash(hash);
        let hash = member.template_hash.as_ref().filter(is_known).filter(|_| !is_outdated)?;
        (*hash != self.metadata.hash).then_some(&self.metadata.hash)
    }

    /// What `node` has from the template, without what does not change in place: the note of an earlier version has that too.
    fn known(&self, node: &Node) -> AppliedTemplate {
        let mut known = AppliedTemplate::noted_on(node);
        known.labels.retain(|key, _| !is_place(key));
        known.taints.retain(|taint| !self.no_execute.contains(&taint));
        known
    }

    /// What a node should have that has `known`. Where the template says `NoExecute` now, it keeps the taint of that key until it
    /// is replaced: without one, pods would come that its successor does not take.
    fn wanted(&self, known: &AppliedTemplate) -> AppliedTemplate {
        let mut wanted = self.wanted.clone();
        let is_kept = |taint: &&NodeTaint| {
            self.no_execute.iter().any(|new| new.key == taint.key)
                && !self.wanted.taints.iter().any(|new| (&new.key, new.effect) == (&taint.key, taint.effect))
        };
        wanted.taints.extend(known.taints.iter().filter(is_kept).cloned());
        wanted.taints.sort();
        wanted
    }

    /// The patch that brings the node of `member` there; `None` when nothing [`is_due`](Self::is_due).
    pub(crate) fn update(&self, member: &Member, is_outdated: bool) -> Option<Value> {
        self.is_due(member, is_outdated).then(|| self.patch(member, is_outdated))?
    }

    fn patch(&self, member: &Member, is_outdated: bool) -> Option<Value> {
        let node = &*member.node;
        let annotations = node.metadata.annotations.as_ref()?;
        let known = self.known(node);
        let wanted = self.wanted(&known);
        let mut patch = patches::is_same_object(&node.metadata);
        let labels = node.metadata.labels.clone().unwrap_or_default();
        patch.extend(changed(&known.labels, &wanted.labels).flat_map(|key| {
            let wanted = wanted.labels.get(key);
            let is_untouched = labels.get(key) == known.labels.get(key);
            entry(&patches::label_path(key), labels.get(key), wanted, is_untouched)
        }));
        patch.extend(changed(&known.annotations, &wanted.annotations).flat_map(|key| {
            let wanted = self.metadata.annotations.get(key).filter(|_| wanted.annotations.contains_key(key));
            let is_untouched =
                annotations.get(key).map(|value| hashed(value)) == known.annotations.get(key).cloned();
            entry(&patches::annotation_path(key), annotations.get(key), wanted, is_untouched)
        }));
        patch.extend(retaint(node, &known.taints, &wanted.taints));
        let annotated = [
            (names::TEMPLATE_APPLIED_ANNOTATION, wanted.text()),
            (names::TEMPLATE_HASH_ANNOTATION, self.other_hash(member, is_outdated).cloned()),
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
