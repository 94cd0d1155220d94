//! The replica count of an object, independent of where it was read from.

use kube::Resource;
use kube::core::subresource::Scale;

/// The replica count of an object, with the fields that guard a write of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScaleView {
    /// `spec.replicas`; `None` when it is unset.
    pub replicas: Option<i32>,
    /// `status.replicas`; `None` when unknown.
    pub current: Option<i32>,
    /// The object's UID; `None` when unknown. With a UID, a write to another object of the same name is rejected.
    pub uid: Option<String>,
    /// The object's resourceVersion; `None` when unknown. Writes by PUT and merge patch need it.
    pub resource_version: Option<String>,
}

impl ScaleView {
    /// The view of a (cached) object with its UID and resourceVersion. `replicas` is its `spec.replicas`, `current` its
    /// `status.replicas`.
    pub fn of<K: Resource>(object: &K, replicas: Option<i32>, current: Option<i32>) -> Self {
        let meta = object.meta();
        Self { replicas, current, uid: meta.uid.clone(), resource_version: meta.resource_version.clone() }
    }
}

impl From<Scale> for ScaleView {
    /// Converts a scale sent by the server. The server omits a count of zero, and sends no scale for an unset count.
    fn from(scale: Scale) -> Self {
        Self {
            replicas: Some(scale.spec.and_then(|spec| spec.replicas).unwrap_or_default()),
            current: scale.status.map(|status| status.replicas),
            uid: scale.metadata.uid,
            resource_version: scale.metadata.resource_version,
        }
    }
}
