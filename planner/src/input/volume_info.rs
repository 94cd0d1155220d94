//! A persistent volume as the planner sees it: the API's type has room for each of some twenty storage types, 4 KB even
//! if few fields are set.

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::pod_info::Labels;
use crate::requirements::constraints::{self, NodeTerm};

/// A persistent volume: where it can be used, and by which claim.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(any(test, feature = "fixtures"), derive(serde::Deserialize), serde(from = "PersistentVolume"))]
pub struct VolumeInfo {
    /// `metadata.name`.
    pub name: Box<str>,
    /// `metadata.uid`; empty in objects that were never on an API server.
    pub uid: Box<str>,
    /// `metadata.labels`: those of old volumes hold their location.
    pub(crate) labels: Option<Labels>,
    /// Whether it is being deleted.
    pub(crate) is_being_deleted: bool,
    /// Where it can be used: one of these must match a node; `None` is everywhere.
    pub(crate) places: Option<Vec<NodeTerm>>,
    /// The claim it is bound to or reserved for; `None` if there is none.
    pub(crate) meant_for: Option<ClaimRef>,
    /// Its storage class; empty for none.
    pub(crate) class: Box<str>,
    /// Its capacity.
    pub(crate) capacity: Option<Quantity>,
    /// `spec.volumeMode`.
    pub(crate) mode: Option<Box<str>>,
    /// `spec.accessModes`.
    pub(crate) access_modes: Box<[Box<str>]>,
    /// `status.phase`; `None` in objects that were never on an API server.
    pub(crate) phase: Option<Box<str>>,
}

/// The claim that a volume is bound to or reserved for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimRef {
    /// Namespace of the claim.
    pub namespace: Box<str>,
    /// Name of the claim.
    pub name: Box<str>,
    /// UID of the claim; empty while the volume is not bound.
    pub uid: Box<str>,
}

impl From<ObjectReference> for ClaimRef {
    fn from(whole: ObjectReference) -> Self {
        Self {
            namespace: whole.namespace.unwrap_or_default().into(),
            name: whole.name.unwrap_or_default().into(),
            uid: whole.uid.unwrap_or_default().into(),
        }
    }
}

impl ClaimRef {
    /// Namespace and name.
    pub(crate) fn key(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }
}

impl From<PersistentVolume> for VolumeInfo {
    fn from(whole: PersistentVolume) -> Self {
        let PersistentVolume { metadata, spec, status } = whole;
        let spec = spec.unwrap_or_default();
        let required = spec.node_affinity.and_then(|affinity| affinity.required);
        Self {
            name: metadata.name.unwrap_or_default().into(),
            uid: metadata.uid.unwrap_or_default().into(),
            labels: metadata.labels,
            is_being_deleted: metadata.deletion_timestamp.is_some(),
            places: required.as_ref().map(constraints::terms),
            meant_for: spec.claim_ref.map(ClaimRef::from),
            class: spec.storage_class_name.unwrap_or_default().into(),
            capacity: spec.capacity.and_then(|mut capacity| capacity.remove("storage")),
            mode: spec.volume_mode.map(String::into_boxed_str),
            access_modes: spec.access_modes.into_iter().flatten().map(String::into_boxed_str).collect(),
            phase: status.and_then(|status| status.phase).map(String::into_boxed_str),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_volume_what_a_plan_is_made_from_stays() {
        let volume: VolumeInfo = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": { "name": "v", "uid": "u", "resourceVersion": "7", "labels": { "zone": "a" }, "annotations": { "x": "y" },
                "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubernetes.io/pv-protection"] },
            "spec": { "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" }, "volumeMode": "Block", "storageClassName": "s",
                "claimRef": { "namespace": "ns", "name": "c", "uid": "w" }, "csi": { "driver": "d", "volumeHandle": "h" },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["a"] }] }] } } },
            "status": { "phase": "Bound", "message": "m" }
        }))
        .unwrap();
        assert_eq!(
            (volume.name.as_ref(), volume.meant_for.as_ref().map(ClaimRef::key)),
            ("v", Some(("ns", "c")))
        );
        assert_eq!(volume.meant_for.as_ref().unwrap().uid.as_ref(), "w");
        assert_eq!(volume.labels.as_ref().unwrap()["zone"], "a");
        assert!(volume.is_being_deleted);
        assert_eq!(volume.places.as_ref().unwrap()[0].labels[0].values, ["a"]);
        assert_eq!(
            (volume.class.as_ref(), volume.mode.as_deref(), volume.phase.as_deref()),
            ("s", Some("Block"), Some("Bound"))
        );
        assert_eq!(
            (volume.capacity.unwrap().0.as_str(), volume.access_modes[0].as_ref()),
            ("1Gi", "ReadWriteOnce")
        );
        assert!(size_of::<VolumeInfo>() < 300, "{} bytes", size_of::<VolumeInfo>());
    }

    #[test]
    fn a_volume_that_says_nothing_can_be_used_on_any_node_by_any_pod() {
        let volume: VolumeInfo = serde_json::from_value(json!({ "metadata": { "name": "v" } })).unwrap();
        assert_eq!((volume.places, volume.meant_for, volume.phase), (None, None, None));
        assert_eq!(volume.class.as_ref(), "");
    }
}
