//! What is known of an object's replica count, wherever it was read from.

use kube::Resource;
use kube::core::subresource::Scale;

/// The replica count of an object, with what guards a write of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScaleView {
    /// `spec.replicas`; `None` when it is unset.
    pub replicas: Option<i32>,
    /// `status.replicas`; `None` when unknown.
    pub current: Option<i32>,
    /// The object's UID, if known: the write is then refused for a namesake.
    pub uid: Option<String>,
    /// The object's version, if known; writes by PUT and merge patch need it.
    pub resource_version: Option<String>,
}

impl ScaleView {
    /// The view of a (cached) object: its own counts, with its UID and version. `replicas` is its `spec.replicas`,
    /// `current` its `status.replicas`.
    pub fn of<K: Resource>(object: &K, replicas: Option<i32>, current: Option<i32>) -> Self {
        let meta = object.meta();
        Self { replicas, current, uid: meta.uid.clone(), resource_version: meta.resource_version.clone() }
    }
}

impl From<Scale> for ScaleView {
    /// A scale that the server sent: it leaves a count of zero out, and cannot be sent for an unset one.
    fn from(scale: Scale) -> Self {
        Self {
            replicas: Some(scale.spec.and_then(|spec| spec.replicas).unwrap_or_default()),
            current: scale.status.map(|status| status.replicas),
            uid: scale.metadata.uid,
            resource_version: scale.metadata.resource_version,
        }
    }
}
