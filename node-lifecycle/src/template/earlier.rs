//! Nodes of versions whose hash left out a part of the template.

use k8s_openapi::api::core::v1::{Node, Taint};
use shared_crds::v1alpha1::{EarlierHash, NodeTaint};

use crate::template::applied_template::AppliedTemplate;

/// Whether `node`, which has the hash `earlier` of the present template, is of that template: whether it has what the hash leaves
/// out, or had it when it was made as far as its note says. The note counts because a cloud may have corrected what the template
/// said, and the node because a kubelet sets some of it.
pub(crate) fn is_of_present_template(node: &Node, earlier: &EarlierHash<'_>) -> bool {
    let noted = AppliedTemplate::noted_on(node);
    let labels = node.metadata.labels.as_ref();
    let taints = || node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let is_at = |(&key, &value): (&&str, &&str)| {
        let has = |of: &String| of == value;
        noted.labels.get(key).is_some_and(has) || labels.and_then(|labels| labels.get(key)).is_some_and(has)
    };
    let is_tainted =
        |taint: &&NodeTaint| noted.taints.contains(taint) || taints().any(|other| is_same(other, taint));
    earlier.places.iter().all(is_at) && earlier.no_execute.iter().all(is_tainted)
}

/// Whether the taint of a node is that of a template. No value and an empty one are the same.
pub(crate) fn is_same(taint: &Taint, of_template: &NodeTaint) -> bool {
    taint.key == of_template.key
        && taint.effect == of_template.effect.as_str()
        && taint.value.as_deref().unwrap_or_default() == of_template.value.as_deref().unwrap_or_default()
}

#[cfg(test)]
#[path = "earlier_tests.rs"]
pub(crate) mod tests;
