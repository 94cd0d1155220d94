//! Whether a Ready node has all that its template promises. A kubelet reports Ready before device plugins have registered their
//! devices, which come one by one or plugin by plugin, and before drivers have set their labels.

use k8s_openapi::api::core::v1::Node;
use shared_crds::quantity::Exact;

use super::nodes;
use crate::resources::ExactAmounts;

/// What a node of a template gets some time after it is Ready. A node that lacks a part of it is starting until its provisioning
/// timeout is over: then it counts as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Promise {
    /// The hash of the template; `None` if it has none.
    pub template_hash: Option<String>,
    /// Those of the same template by operators that hashed less of it: until its nodes and what is remembered have the present one,
    /// they count as of this template.
    pub earlier_hashes: Vec<String>,
    /// Extended resources and huge pages: device plugins and the kubelet report them later, or as zero at first. With how much of
    /// each a node has at least when it is complete; zero where any amount is enough.
    pub resources: ExactAmounts,
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
        let has_all = |(name, least): (&String, &Exact)| {
            let amount = given(node, name);
            amount > Exact::ZERO && amount >= *least
        };
        is_other || (self.resources.iter().all(has_all) && self.labels.iter().all(is_labelled))
    }
}

/// Whether the node gives pods more than nothing of a resource.
pub(crate) fn gives(node: &Node, name: &str) -> bool {
    given(node, name) > Exact::ZERO
}

/// How much of a resource the node gives pods: nothing if it does not say so.
fn given(node: &Node, name: &str) -> Exact {
    let status = node.status.as_ref();
    let quantities = status.and_then(|status| status.allocatable.as_ref().or(status.capacity.as_ref()));
    let quantity = quantities.and_then(|quantities| quantities.get(name));
    quantity.and_then(|quantity| Exact::parse(&quantity.0).ok()).unwrap_or(Exact::ZERO)
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
        let amount = |text: &str| Exact::parse(text).unwrap();
        let promise = Promise {
            template_hash: Some("ours".to_owned()),
            earlier_hashes: vec!["before".to_owned(), "earlier".to_owned()],
            resources: ExactAmounts::from([
                ("example.com/gpu".to_owned(), amount("8")),
                ("example.com/nic".to_owned(), amount("2")),
                ("hugepages-2Mi".to_owned(), Exact::ZERO),
            ]),
            labels: vec!["disk".to_owned()],
        };
        let labels = json!({ "disk": "ssd" });
        let with = |gpus: &str, nics: &str, pages: &str| {
            let amounts = json!({ "example.com/gpu": gpus, "example.com/nic": nics, "hugepages-2Mi": pages });
            node(&labels, &amounts, "ours")
        };
        let all = json!({ "example.com/gpu": "8", "example.com/nic": "2", "hugepages-2Mi": "1Gi" });
        let expect = |what: &str, node: Node, keeps| assert_eq!(promise.is_kept_by(&node), keeps, "{what}");
        expect("all", node(&labels, &all, "ours"), true);
        expect("more", with("16", "4", "4Gi"), true);
        expect("written otherwise", with("8000m", "2", "1Gi"), true);
        expect("no devices", node(&labels, &json!({ "hugepages-2Mi": "1Gi" }), "ours"), false);
        expect("none yet", with("0", "2", "1Gi"), false);
        expect("some yet", with("2", "2", "1Gi"), false);
        expect("all but one", with("7", "2", "1Gi"), false);
        expect("some of the other device", with("8", "1", "1Gi"), false);
        expect("more of one does not make up for the other", with("16", "1", "1Gi"), false);
        expect("not a quantity", with("many", "2", "1Gi"), false);
        expect("no huge pages", with("8", "2", "0"), false);
        expect("any amount of huge pages", with("8", "2", "2Mi"), true);
        expect("no label", node(&json!({}), &all, "ours"), false);
        expect("no label, of an earlier operator", node(&json!({}), &all, "earlier"), false);
        expect("no label, of the operator before", node(&json!({}), &all, "before"), false);
        expect("another template", node(&json!({}), &json!({}), "theirs"), true);
        expect(
            "some, of another template",
            node(&labels, &json!({ "example.com/gpu": "2" }), "theirs"),
            true,
        );
    }
}
