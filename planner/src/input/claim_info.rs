//! A `PersistentVolumeClaim` as the planner sees it. The API's type is three times as large, and a `StatefulSet` has a
//! claim for each pod.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Set on a claim whose binding is complete.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Holds the node that the scheduler has chosen for a claim whose volume is being provisioned.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The storage class of a claim, in older objects; it takes precedence over `spec.storageClassName`.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// Mark the storage class of claims that name none; the API server's admission accepts the older one, too.
pub(crate) const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// A `PersistentVolumeClaim`: what it requests, and which volume it has.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    any(test, feature = "fixtures"),
    derive(serde::Deserialize),
    serde(from = "PersistentVolumeClaim")
)]
pub struct ClaimInfo {
    /// `metadata.namespace`.
    pub(crate) namespace: Box<str>,
    /// `metadata.name`.
    pub(crate) name: Box<str>,
    /// `metadata.uid`; empty in objects that were never on an API server.
    pub uid: Box<str>,
    /// Whether it is being deleted.
    pub(crate) is_being_deleted: bool,
    /// Whether its binding is complete, whatever its phase.
    pub(crate) is_bound: bool,
    /// The node that the scheduler has chosen for its volume; `None` if it has chosen none.
    pub(crate) node: Option<Box<str>>,
    /// Its storage class: `None` is the default class, and empty is no class.
    pub(crate) class: Option<Box<str>>,
    /// `spec.volumeName`, unless it is empty.
    pub(crate) volume: Option<Box<str>>,
    /// How much storage it requests.
    pub(crate) storage: Option<Quantity>,
    /// `spec.volumeMode`.
    pub(crate) mode: Option<Box<str>>,
    /// `spec.accessModes`.
    pub(crate) access_modes: Box<[Box<str>]>,
    /// `spec.selector`.
    pub(crate) selector: Option<Box<LabelSelector>>,
    /// `status.phase`; `None` in objects that were never on an API server.
    pub(crate) phase: Option<Box<str>>,
}

impl From<PersistentVolumeClaim> for ClaimInfo {
    fn from(whole: PersistentVolumeClaim) -> Self {
        let PersistentVolumeClaim { metadata, spec, status } = whole;
        let mut annotations = metadata.annotations.unwrap_or_default();
        let mut claim = Self {
            namespace: metadata.namespace.unwrap_or_default().into(),
            name: metadata.name.unwrap_or_default().into(),
            uid: metadata.uid.unwrap_or_default().into(),
            is_being_deleted: metadata.deletion_timestamp.is_some(),
            is_bound: annotations.contains_key(BIND_COMPLETED),
            node: annotations.remove(SELECTED_NODE).map(String::into_boxed_str),
            phase: status.and_then(|status| status.phase).map(String::into_boxed_str),
            ..Self::default()
        };
        claim.ask(spec.unwrap_or_default());
        if let Some(class) = annotations.remove(CLASS_ANNOTATION) {
            claim.class = Some(class.into());
        }
        claim
    }
}

impl ClaimInfo {
    /// A claim that does not exist yet and will be created from `spec`.
    pub(crate) fn to_come(namespace: &str, name: &str, spec: &PersistentVolumeClaimSpec) -> Self {
        let mut claim = Self { namespace: namespace.into(), name: name.into(), ..Self::default() };
        claim.ask(spec.clone());
        claim
    }

    fn ask(&mut self, spec: PersistentVolumeClaimSpec) {
        self.class = spec.storage_class_name.map(String::into_boxed_str);
        self.volume = spec.volume_name.filter(|name| !name.is_empty()).map(String::into_boxed_str);
        let requests = spec.resources.and_then(|resources| resources.requests);
        self.storage = requests.and_then(|mut requests| requests.remove("storage"));
        self.mode = spec.volume_mode.map(String::into_boxed_str);
        self.access_modes = spec.access_modes.into_iter().flatten().map(String::into_boxed_str).collect();
        self.selector = spec.selector.map(Box::new);
    }

    /// Namespace and name.
    pub fn key(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_claim_what_a_plan_is_made_from_stays() {
        let claim: ClaimInfo = serde_json::from_value(json!({
            "metadata": { "namespace": "ns", "name": "c", "uid": "u", "labels": { "a": "b" }, "deletionTimestamp": "2026-01-01T00:00:00Z",
                "annotations": { "pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "n", "x": "y" } },
            "spec": { "storageClassName": "s", "volumeName": "v", "volumeMode": "Block", "accessModes": ["ReadWriteOncePod"],
                "resources": { "requests": { "storage": "1Gi" } }, "selector": { "matchLabels": { "a": "b" } } },
            "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } }
        }))
        .unwrap();
        assert_eq!((claim.key(), claim.uid.as_ref()), (("ns", "c"), "u"));
        assert!(claim.is_being_deleted && claim.is_bound);
        assert_eq!((claim.node.as_deref(), claim.volume.as_deref()), (Some("n"), Some("v")));
        assert_eq!(
            (claim.class.as_deref(), claim.mode.as_deref(), claim.phase.as_deref()),
            (Some("s"), Some("Block"), Some("Bound"))
        );
        assert_eq!(
            (claim.storage.unwrap().0.as_str(), claim.access_modes[0].as_ref()),
            ("1Gi", "ReadWriteOncePod")
        );
        assert_eq!(claim.selector.unwrap().match_labels.unwrap()["a"], "b");
        assert!(size_of::<ClaimInfo>() < 300, "{} bytes", size_of::<ClaimInfo>());
    }

    #[test]
    fn the_older_way_to_name_a_class_counts_first() {
        let class = |metadata: serde_json::Value, spec: serde_json::Value| {
            let claim: ClaimInfo =
                serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
            claim.class.map(String::from)
        };
        let older = json!({ "annotations": { "volume.beta.kubernetes.io/storage-class": "old" } });
        assert_eq!(class(older.clone(), json!({ "storageClassName": "new" })).as_deref(), Some("old"));
        assert_eq!(class(older, json!({})).as_deref(), Some("old"));
        assert_eq!(class(json!({}), json!({ "storageClassName": "" })).as_deref(), Some(""));
        assert_eq!(class(json!({}), json!({ "volumeName": "" })), None);
    }
}
