//! What the caches keep of an object.

use k8s_openapi::api::core::v1::{Node, NodeSpec};
use shared_crds::names;

/// Drops fields that the operator does not read: on a real node the list of images is most of the object. Of a node
/// without a pool it reads only what is needed to make it one of a pool.
pub(crate) fn transform(node: &mut Node) {
    if let Some(status) = node.status.as_mut() {
        status.images = None;
        status.volumes_attached = None;
        status.volumes_in_use = None;
    }
    let labels = node.metadata.labels.as_ref();
    if labels.and_then(names::pool_of_member).is_some() {
        return;
    }
    if let Some(status) = node.status.take() {
        let ready = status.conditions.unwrap_or_default().into_iter().filter(|it| it.type_ == "Ready");
        let kept = node.status.get_or_insert_default();
        kept.conditions = Some(ready.collect());
        kept.addresses = status.addresses;
    }
    if let Some(NodeSpec { provider_id, taints, .. }) = node.spec.take() {
        node.spec = Some(NodeSpec { provider_id, taints, ..NodeSpec::default() });
    }
}

#[cfg(test)]
mod tests {
    use node_lifecycle::testing::node;

    use super::*;

    #[test]
    fn a_node_in_no_pool_keeps_what_joining_reads() {
        let mut member = node(0);
        transform(&mut member);
        assert_eq!(member, node(0));
        let mut other = node(0);
        other.metadata.labels = None;
        transform(&mut other);
        let spec = other.spec.unwrap();
        assert_eq!(spec.provider_id, node(0).spec.unwrap().provider_id);
        let status = other.status.unwrap();
        assert!(status.capacity.is_none() && status.conditions.unwrap().len() == 1);
    }
}
