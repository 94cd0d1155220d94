//! What the caches keep of an object.

use k8s_openapi::api::core::v1::Node;

/// Drops fields that the operator does not read: on a real node the list of images is most of the object.
pub(crate) fn transform(node: &mut Node) {
    if let Some(status) = node.status.as_mut() {
        status.images = None;
        status.volumes_attached = None;
        status.volumes_in_use = None;
    }
}
