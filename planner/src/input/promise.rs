//! Whether a Ready node has all that its template promises. A kubelet reports Ready before device plugins have registered their
//! devices and before drivers have set their labels.

use k8s_openapi::api::core::v1::Node;
use shared_crds::quantity::Exact;

use super::nodes;

/// What a node of a template gets some time after it is Ready. A node that lacks a part of it is starting until its provisioning
/// timeout is over: then it counts as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Promise {
    /// The hash of the template; `None` if it has none.
    pub template_hash: Option<String>,
    /// Those of the same template by operators that hashed less of it: until its nodes and what is remembered have the present one,
    /// they count as of this template.
    pub earlier_hashes: Vec<String>,
    /// Extended resources and huge pages: device plugins and the kubelet report them later, or as zero at first.
    pub resources: Vec<String>,
    /// Keys of labels that the pool declares or that its nodes have shown to have.
    pub labels: Vec<String>,
}

impl Promise {
    /// Whether this is the hash of the template.
    pub(crate) fn is_of(&self, hash: &str) -> bool {
        self.template_hash.iter().chain(&self.earlier_hashes).any(|own| own == hash)
    }

    /// Whether the node has everything. A node of another template has been promised something else: it always does.
    pub(crate) fn is_kept_by(&self, node: &Node) -> bool {
        let is_other =
            self.template_hash.is_some() && nodes::template_hash(node).is_some_and(|its| !self.is_of(its));
        let labels = node.metadata.labels.as_ref();
        let is_labelled = |key: &String| labels.is_some_and(|labels| labels.contains_key(key));
        is_other
            || (self.resources.iter().all(|name| gives(node, name)) && self.labels.iter().all(is_labelled))
    }
}

/// Whether the node gives pods more than nothing of a resource.
pub(crate) fn gives(node: &Node, name: &str) -> bool {
    let status = node.status.as_ref();
    let quantities = status.and_then(|status| status.allocatable.as_ref().or(status.capacity.as_ref()));
    quantities
        .and_then(|quantities| quantities.get(name))
        .is_some_and(|quantity| Exact::parse(&quantity.0).is_ok_and(|amount| amount > Exact::ZERO))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared_crds::names::TEMPLATE_HASH_ANNOTATION;

    use super::*;

    fn node(labels: &Value, allocatable: &Value, hash: &str) -> Node {
        serde_json::from_value(
            json!({ "metadata": { "labels": labels, "annotations": { TEMPLATE_HASH_ANNOTATION: hash } },
            "status": { "allocatable": allocatable } }),
        )
        .unwrap()
    }

    #[test]
    fn a_node_keeps_the_promise_of_its_own_template_with_all_devices_and_labels() {
        let promise = Promise {
            template_hash: Some("ours".to_owned()),
            earlier_hashes: vec!["before".to_owned(), "earlier".to_owned()],
            resources: vec!["example.com/gpu".to_owned(), "hugepages-2Mi".to_owned()],
            labels: vec!["disk".to_owned()],
        };
        let (gpu, labels) =
            (json!({ "example.com/gpu": "1", "hugepages-2Mi": "1Gi" }), json!({ "disk": "ssd" }));
        for (what, node, keeps) in [
            ("all", node(&labels, &gpu, "ours"), true),
            ("no devices", node(&labels, &json!({ "hugepages-2Mi": "1Gi" }), "ours"), false),
            (
                "none yet",
                node(&labels, &json!({ "example.com/gpu": "0", "hugepages-2Mi": "1Gi" }), "ours"),
                false,
            ),
            ("no huge pages", node(&labels, &json!({ "example.com/gpu": "1" }), "ours"), false),
            ("no label", node(&json!({}), &gpu, "ours"), false),
            ("no label, of an earlier operator", node(&json!({}), &gpu, "earlier"), false),
            ("no label, of the operator before", node(&json!({}), &gpu, "before"), false),
            ("another template", node(&json!({}), &json!({}), "theirs"), true),
        ] {
            assert_eq!(promise.is_kept_by(&node), keeps, "{what}");
        }
    }
}
