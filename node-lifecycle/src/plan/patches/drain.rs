//! What a drain writes on its Node, and how that is undone.

use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use shared_crds::names;
use shared_crds::v1alpha1::DisruptionReason;

use crate::Blocker;
use crate::assess::provider_duty::was_left_to_provider;

use super::operations::{
    add_label, add_taints, annotate, annotation, is_same_object, label, label_path, later_second,
    remove_annotation,
};

/// Cordons the node, taints it, takes it out of external load balancers and annotates the start of its drain, with what
/// another writer had done of this before, and the `cause` if there is one.
pub fn cordon(node: &Node, now: Timestamp, cause: Option<DisruptionReason>) -> Value {
    let metadata = &node.metadata;
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    let excluded = label(metadata, names::EXCLUDE_FROM_LOAD_BALANCERS_LABEL).is_some();
    // What a node with the drain annotation or the taint has, it has from this operator, unless noted otherwise.
    let draining =
        annotation(metadata, names::DRAIN_STARTED_ANNOTATION).is_some() || has_draining_taint(node);
    let mut notes = vec![(names::DRAIN_STARTED_ANNOTATION, later_second(now).to_string())];
    notes.extend(cause.map(|cause| (names::DISRUPTION_REASON_ANNOTATION, cause.as_str().to_owned())));
    let given_back = names::GIVEN_BACK_ANNOTATION;
    let mut outdated: Vec<&str> = annotation(metadata, given_back).map(|_| given_back).into_iter().collect();
    let before = [(names::WAS_CORDONED_ANNOTATION, cordoned), (names::WAS_EXCLUDED_ANNOTATION, excluded)];
    for (note, is_so) in before {
        let is_noted = annotation(metadata, note).is_some();
        if is_so && (is_noted || !draining) {
            notes.push((note, true.to_string()));
        } else if is_noted {
            outdated.push(note);
        }
    }
    let mut patch = is_same_object(metadata);
    let seen = if cordoned { Value::Bool(true) } else { Value::Null };
    patch.push(json!({ "op": "test", "path": "/spec/unschedulable", "value": seen }));
    patch.extend(annotate(metadata, &notes));
    patch.extend(outdated.into_iter().flat_map(|note| remove_annotation(metadata, note)));
    patch.extend(add_taints(node, &[draining_taint()]));
    if !excluded {
        patch.extend(add_label(metadata, names::EXCLUDE_FROM_LOAD_BALANCERS_LABEL, ""));
    }
    patch.push(json!({ "op": "add", "path": "/spec/unschedulable", "value": true }));
    Value::Array(patch)
}

/// Cancels the drain, or removes what is left of one that another client has cancelled: undoes [`cordon`], except for what
/// another writer had done before it. The API server's `test` refuses it if the node was deleted meanwhile.
pub fn uncordon(node: &Node) -> Value {
    Value::Array(undone(node))
}

/// The operations of [`uncordon`].
pub(super) fn undone(node: &Node) -> Vec<Value> {
    let mut patch = cancelled(node);
    if annotation(&node.metadata, names::GIVEN_BACK_ANNOTATION).is_some() {
        patch.extend(remove_annotation(&node.metadata, names::GIVEN_BACK_ANNOTATION));
    }
    patch
}

fn cancelled(node: &Node) -> Vec<Value> {
    let metadata = &node.metadata;
    let mut patch = is_same_object(metadata);
    patch.push(json!({ "op": "test", "path": "/metadata/deletionTimestamp", "value": null }));
    let has = |note: &&str| annotation(metadata, note).is_some();
    let notes = [
        names::DRAIN_STARTED_ANNOTATION,
        names::WAS_CORDONED_ANNOTATION,
        names::WAS_EXCLUDED_ANNOTATION,
        names::DRAIN_WAITS_ANNOTATION,
        names::DRAINED_BY_PROVIDER_ANNOTATION,
        names::DISRUPTION_REASON_ANNOTATION,
    ];
    patch.extend(notes.into_iter().filter(has).flat_map(|note| remove_annotation(metadata, note)));
    let label_name = names::EXCLUDE_FROM_LOAD_BALANCERS_LABEL;
    // A drain sets both in one patch: without the taint the label is not this operator's.
    let is_ours = has_draining_taint(node) && !has(&names::WAS_EXCLUDED_ANNOTATION);
    patch.extend(remove_draining_taint(node));
    if let Some(value) = label(metadata, label_name).filter(|_| is_ours) {
        let place = label_path(label_name);
        patch.push(json!({ "op": "test", "path": place, "value": value }));
        patch.push(json!({ "op": "remove", "path": place }));
    }
    // A node whose drain another client has cancelled is as that left it.
    if has(&names::DRAIN_STARTED_ANNOTATION) && !has(&names::WAS_CORDONED_ANNOTATION) {
        patch.push(json!({ "op": "add", "path": "/spec/unschedulable", "value": false }));
    }
    patch
}

/// Cancels a drain that took too long, and annotates when.
pub fn give_back(node: &Node, now: Timestamp) -> Value {
    let mut patch = cancelled(node);
    patch.extend(annotate(&node.metadata, &[(names::GIVEN_BACK_ANNOTATION, later_second(now).to_string())]));
    Value::Array(patch)
}

/// Longest text in the annotation that says what a drain waits for: what a condition's message is cut to.
const MAX_REASON_CHARS: usize = 1024;

/// What a Node says of its drain: what it waits for, and who drains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainNote {
    reason: Option<String>,
    by_provider: bool,
}

impl DrainNote {
    /// What a drain that waits for this says; `None` for one that goes on by itself.
    pub fn of(waits_for: Option<&Blocker>) -> Self {
        Self {
            reason: waits_for.map(|by| by.to_string().chars().take(MAX_REASON_CHARS).collect()),
            by_provider: waits_for == Some(&Blocker::LeftToProvider),
        }
    }

    /// What the Node says now.
    pub fn on(node: &Node) -> Self {
        Self {
            reason: annotation(&node.metadata, names::DRAIN_WAITS_ANNOTATION).cloned(),
            by_provider: was_left_to_provider(node),
        }
    }

    /// Whether it and `other` both give a reason, and only the words of that differ: budgets and webhooks answer with numbers that change.
    pub fn differs_in_words(&self, other: &Self) -> bool {
        self.reason.is_some() && other.reason.is_some() && self.by_provider == other.by_provider
    }
}

/// Annotates what the drain waits for, and whether the provider drains the node.
pub fn drain_waits(node: &Node, says: &DrainNote) -> Value {
    let metadata = &node.metadata;
    let mut patch = is_same_object(metadata);
    let by_provider = says.by_provider.then(|| "true".to_owned());
    let wanted = [
        (names::DRAIN_WAITS_ANNOTATION, says.reason.clone()),
        (names::DRAINED_BY_PROVIDER_ANNOTATION, by_provider),
    ];
    let (set, absent): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|(_, value)| value.is_some());
    let set: Vec<_> = set.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    if !set.is_empty() {
        patch.extend(annotate(metadata, &set));
    }
    let taken_off = absent.into_iter().filter(|(name, _)| annotation(metadata, name).is_some());
    patch.extend(taken_off.flat_map(|(name, _)| remove_annotation(metadata, name)));
    Value::Array(patch)
}

/// Annotates why the node leaves, provided that it is in the version that was observed: what is done next cannot be undone.
/// `None` where it is annotated already.
pub fn note_cause(node: &Node, cause: DisruptionReason) -> Option<Value> {
    let (metadata, name) = (&node.metadata, names::DISRUPTION_REASON_ANNOTATION);
    if annotation(metadata, name).is_some_and(|noted| noted == cause.as_str()) {
        return None;
    }
    let mut patch = is_same_object(metadata);
    patch.push(
        json!({ "op": "test", "path": "/metadata/resourceVersion", "value": metadata.resource_version }),
    );
    patch.extend(annotate(metadata, &[(name, cause.as_str().to_owned())]));
    Some(Value::Array(patch))
}

/// Says that the node's machine is off. Unlike a drain, that is never taken back.
pub fn out_of_service(node: &Node) -> Value {
    let taint = Taint {
        key: names::OUT_OF_SERVICE_TAINT.to_owned(),
        value: Some("nodeshutdown".to_owned()),
        effect: "NoExecute".to_owned(),
        time_added: None,
    };
    let mut patch = is_same_object(&node.metadata);
    patch.extend(add_taints(node, &[taint]));
    Value::Array(patch)
}

/// The taint of a node that is drained.
fn draining_taint() -> Taint {
    Taint {
        key: names::DRAINING_TAINT.to_owned(),
        value: None,
        effect: "NoSchedule".to_owned(),
        time_added: None,
    }
}

/// Whether the node has the taint of a drain.
fn has_draining_taint(node: &Node) -> bool {
    !remove_draining_taint(node).is_empty()
}

/// Removes the taint of a drain, provided that it is still in its place among the others.
fn remove_draining_taint(node: &Node) -> Vec<Value> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let is_ours = |taint: &Taint| taint.key == names::DRAINING_TAINT && taint.effect == "NoSchedule";
    let Some((place, taint)) = taints.iter().enumerate().find(|(_, taint)| is_ours(taint)) else {
        return Vec::new();
    };
    let path = format!("/spec/taints/{place}");
    vec![json!({ "op": "test", "path": path, "value": taint }), json!({ "op": "remove", "path": path })]
}

#[cfg(test)]
mod tests {
    use json_patch::{Patch, PatchOperation};

    use super::*;
    use crate::testing::{at, node};

    /// `node` after `patch`, which must be applicable. A `test` with `null` is left out: it holds where the field is
    /// absent.
    fn patched(node: &Node, patch: Value) -> Node {
        let Patch(operations) = serde_json::from_value(patch).unwrap();
        let absent = |operation: &PatchOperation| matches!(operation, PatchOperation::Test(test) if test.value.is_null());
        let rest: Vec<_> = operations.into_iter().filter(|operation| !absent(operation)).collect();
        let mut json = serde_json::to_value(node).unwrap();
        json_patch::patch(&mut json, &rest).unwrap();
        serde_json::from_value(json).unwrap()
    }

    fn cordoned(node: &Node) -> bool {
        node.spec.as_ref().unwrap().unschedulable == Some(true)
    }

    #[test]
    fn a_cancelled_drain_leaves_the_cordon_of_a_user_in_place() {
        for annotations in [node(0).metadata.annotations, None] {
            let mut cordoned_by_user = node(0);
            cordoned_by_user.metadata.annotations = annotations;
            cordoned_by_user.spec.as_mut().unwrap().unschedulable = Some(true);
            let draining = patched(&cordoned_by_user, cordon(&cordoned_by_user, at(5), None));
            // The operator may cordon it again, for instance because its annotation was damaged.
            let again = patched(&draining, cordon(&draining, at(6), None));
            let uncordoned = patched(&again, uncordon(&again));
            assert!(cordoned(&uncordoned));
            let left = |name| annotation(&uncordoned.metadata, name);
            assert_eq!(left(names::WAS_CORDONED_ANNOTATION), None);
            assert_eq!(left(names::DRAIN_STARTED_ANNOTATION), None);
        }
    }

    #[test]
    fn a_cancelled_drain_uncordons_a_node_that_the_operator_cordoned() {
        let draining = patched(&node(0), cordon(&node(0), at(5), None));
        assert_eq!(annotation(&draining.metadata, names::WAS_CORDONED_ANNOTATION), None);
        let again = patched(&draining, cordon(&draining, at(6), None));
        assert!(!cordoned(&patched(&again, uncordon(&again))));
    }

    #[test]
    fn a_cordon_that_a_user_removed_during_the_drain_does_not_come_back() {
        let mut cordoned_by_user = node(0);
        cordoned_by_user.spec.as_mut().unwrap().unschedulable = Some(true);
        let mut uncordoned = patched(&cordoned_by_user, cordon(&cordoned_by_user, at(5), None));
        uncordoned.spec.as_mut().unwrap().unschedulable = None;
        let again = patched(&uncordoned, cordon(&uncordoned, at(6), None));
        assert!(!cordoned(&patched(&again, uncordon(&again))));
    }

    #[test]
    fn a_drain_taints_its_node_and_takes_it_out_of_load_balancers_until_it_is_cancelled() {
        let taint = |key: &str| Taint { key: key.into(), effect: "NoSchedule".into(), ..Taint::default() };
        for (taints, labels) in [(None, true), (Some(vec![taint("other")]), true), (Some(vec![]), false)] {
            let mut before = node(0);
            before.spec.as_mut().unwrap().taints = taints.clone();
            before.metadata.labels = before.metadata.labels.filter(|_| labels);
            let draining = patched(&before, cordon(&before, at(5), None));
            let keys = |node: &Node| -> Vec<String> {
                let taints = node.spec.as_ref().unwrap().taints.clone().unwrap_or_default();
                taints.into_iter().map(|taint| taint.key).collect()
            };
            assert_eq!(keys(&draining).last().unwrap(), names::DRAINING_TAINT);
            let excluded =
                |node: &Node| label(&node.metadata, names::EXCLUDE_FROM_LOAD_BALANCERS_LABEL).is_some();
            assert!(excluded(&draining));
            // Also when it is cordoned again, and when another client adds a taint meanwhile.
            let mut again = patched(&draining, cordon(&draining, at(6), None));
            again.spec.as_mut().unwrap().taints.as_mut().unwrap().insert(0, taint("first"));
            let after = patched(&again, uncordon(&again));
            assert!(!excluded(&after) && !cordoned(&after));
            let expected: Vec<String> = ["first".to_owned()].into_iter().chain(keys(&before)).collect();
            assert_eq!(keys(&after), expected);
            assert_eq!(annotation(&after.metadata, names::WAS_EXCLUDED_ANNOTATION), None);
        }
    }

    #[test]
    fn a_node_that_was_out_of_the_load_balancers_before_its_drain_stays_so() {
        let mut excluded = node(0);
        let label_name = names::EXCLUDE_FROM_LOAD_BALANCERS_LABEL;
        excluded.metadata.labels.as_mut().unwrap().insert(label_name.into(), "yes".into());
        let draining = patched(&excluded, cordon(&excluded, at(5), None));
        let after = patched(&draining, uncordon(&draining));
        assert_eq!(label(&after.metadata, label_name).map(String::as_str), Some("yes"));
        assert_eq!(annotation(&after.metadata, names::WAS_EXCLUDED_ANNOTATION), None);
    }

    #[test]
    fn what_is_left_of_a_drain_that_a_user_cancelled_is_removed_and_their_cordon_stays() {
        for unschedulable in [None, Some(true)] {
            let mut left = patched(&node(0), cordon(&node(0), at(5), None));
            left.metadata.annotations.as_mut().unwrap().remove(names::DRAIN_STARTED_ANNOTATION);
            left.spec.as_mut().unwrap().unschedulable = unschedulable;
            let tidy = patched(&left, uncordon(&left));
            assert!(!has_draining_taint(&tidy));
            assert_eq!(label(&tidy.metadata, names::EXCLUDE_FROM_LOAD_BALANCERS_LABEL), None);
            assert_eq!(tidy.spec.unwrap().unschedulable, unschedulable);
            // If it is drained again before that, what is there is still known to be the operator's.
            let again = patched(&left, cordon(&left, at(6), None));
            assert_eq!(annotation(&again.metadata, names::WAS_EXCLUDED_ANNOTATION), None);
        }
    }

    #[test]
    fn a_label_of_a_node_without_the_taint_is_its_users_and_stays_when_its_drain_is_cancelled() {
        let mut old = patched(&node(0), cordon(&node(0), at(5), None));
        old.spec.as_mut().unwrap().taints = None;
        let after = patched(&old, uncordon(&old));
        assert!(label(&after.metadata, names::EXCLUDE_FROM_LOAD_BALANCERS_LABEL).is_some());
    }

    fn waits_for(why: &str) -> DrainNote {
        DrainNote::of(Some(&Blocker::Provider(why.to_owned())))
    }

    #[test]
    fn that_a_provider_drains_a_node_is_noted_apart_from_the_words() {
        let left = patched(&node(0), drain_waits(&node(0), &DrainNote::of(Some(&Blocker::LeftToProvider))));
        assert!(was_left_to_provider(&left));
        assert_eq!(DrainNote::on(&left), DrainNote::of(Some(&Blocker::LeftToProvider)));
        let other = waits_for("another");
        assert!(!DrainNote::on(&left).differs_in_words(&other), "more than words");
        let changed = patched(&left, drain_waits(&left, &other));
        assert_eq!(DrainNote::on(&changed), other);
        assert!(
            other.differs_in_words(&waits_for("a third")) && !other.differs_in_words(&DrainNote::of(None))
        );
        for after in
            [patched(&left, uncordon(&left)), patched(&left, drain_waits(&left, &DrainNote::of(None)))]
        {
            assert_eq!(DrainNote::on(&after), DrainNote::of(None));
        }
        // What another version has written in other words is still known.
        let mut reworded = left;
        let annotations = reworded.metadata.annotations.as_mut().unwrap();
        annotations.insert(names::DRAIN_WAITS_ANNOTATION.to_owned(), "waits: in other words".to_owned());
        assert!(was_left_to_provider(&reworded));
    }

    #[test]
    fn what_a_drain_waits_for_is_noted_changed_and_taken_off() {
        let draining = patched(&node(0), cordon(&node(0), at(5), None));
        let waits = |node: &Node| annotation(&node.metadata, names::DRAIN_WAITS_ANNOTATION).cloned();
        let noted = patched(&draining, drain_waits(&draining, &waits_for("a pod")));
        let changed = patched(&noted, drain_waits(&noted, &waits_for("another")));
        assert_eq!(
            (waits(&noted).as_deref(), waits(&changed).as_deref()),
            (Some("waits: a pod"), Some("waits: another"))
        );
        assert_eq!(waits(&patched(&changed, drain_waits(&changed, &DrainNote::of(None)))), None);
        let given_back = patched(&changed, give_back(&changed, at(7)));
        let time = |node: &Node| annotation(&node.metadata, names::GIVEN_BACK_ANNOTATION).cloned();
        assert_eq!((waits(&given_back), cordoned(&given_back)), (None, false));
        assert_eq!(time(&given_back).as_deref(), Some("1970-01-01T00:00:07Z"));
        let again = patched(&given_back, cordon(&given_back, at(9), None));
        assert_eq!((time(&again), cordoned(&again)), (None, true));
    }
}
