//! What is kept of a pod on a node that leaves: what the plan reads, and its name and UID for the eviction. The rest of the
//! API server's answer, often a hundred times as much, is never decoded.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    EphemeralVolumeSource, PersistentVolumeClaimVolumeSource, Pod, PodSpec, PodStatus, Toleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use node_lifecycle::pods::{MIRROR_ANNOTATION, is_daemon_set};
use serde::Deserialize;
use serde::de::IgnoredAny;
use shared_crds::protection::{DO_NOT_DISRUPT, SAFE_TO_EVICT};

/// A pod that was cut while it was decoded.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Read")]
pub(crate) struct KeptPod(pub Pod);

#[derive(Default, Deserialize)]
#[serde(default)]
struct Read {
    metadata: Metadata,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    priority: Option<i32>,
    termination_grace_period_seconds: Option<i64>,
    tolerations: Option<Vec<Toleration>>,
    volumes: Option<Vec<Volume>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Volume {
    name: String,
    persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
    ephemeral: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: Option<String>,
    start_time: Option<Time>,
}

impl From<Read> for KeptPod {
    fn from(Read { metadata, spec, status }: Read) -> Self {
        let status = status.map(|Status { phase, start_time }| PodStatus {
            phase,
            start_time,
            ..PodStatus::default()
        });
        Self(Pod { metadata: metadata.into(), spec: spec.map(Into::into), status })
    }
}

impl From<Metadata> for ObjectMeta {
    fn from(read: Metadata) -> Self {
        let annotations = read.annotations.map(|mut all| {
            all.retain(|key, _| [SAFE_TO_EVICT, DO_NOT_DISRUPT, MIRROR_ANNOTATION].contains(&key.as_str()));
            all
        });
        let owners = read.owner_references.map(|mut all| {
            all.retain(is_daemon_set);
            all
        });
        Self {
            name: read.name,
            namespace: read.namespace,
            uid: read.uid,
            creation_timestamp: read.creation_timestamp,
            deletion_timestamp: read.deletion_timestamp,
            deletion_grace_period_seconds: read.deletion_grace_period_seconds,
            annotations: annotations.filter(|all| !all.is_empty()),
            owner_references: owners.filter(|all| !all.is_empty()),
            ..Self::default()
        }
    }
}

impl From<Spec> for PodSpec {
    fn from(read: Spec) -> Self {
        let volumes: Vec<_> = read.volumes.into_iter().flatten().filter_map(Volume::kept).collect();
        Self {
            priority: read.priority,
            termination_grace_period_seconds: read.termination_grace_period_seconds,
            tolerations: read.tolerations,
            volumes: Some(volumes).filter(|volumes| !volumes.is_empty()),
            ..Self::default()
        }
    }
}

impl Volume {
    /// The volume if it has a claim.
    fn kept(self) -> Option<k8s_openapi::api::core::v1::Volume> {
        let Self { name, persistent_volume_claim, ephemeral } = self;
        let has_claim = persistent_volume_claim.is_some() || ephemeral.is_some();
        has_claim.then(|| k8s_openapi::api::core::v1::Volume {
            name,
            persistent_volume_claim,
            ephemeral: ephemeral.map(|_| EphemeralVolumeSource::default()),
            ..k8s_openapi::api::core::v1::Volume::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use node_lifecycle::pods;
    use serde_json::{Value, json};
    use shared_crds::protection;

    use super::*;

    /// A pod with everything that is read of it, and much that is not.
    fn fat() -> Value {
        let env: Vec<Value> =
            (0..60).map(|index| json!({ "name": format!("E{index}"), "value": "x".repeat(50) })).collect();
        json!({
            "metadata": {
                "name": "db-0", "namespace": "default", "uid": "u", "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T10:00:00Z",
                "deletionTimestamp": "2026-01-01T11:00:00Z", "deletionGracePeriodSeconds": 20,
                "labels": { "app": "db" },
                "annotations": { "karpenter.sh/do-not-disrupt": "true", "note": "x".repeat(5000) },
                "ownerReferences": [
                    { "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d", "controller": true },
                    { "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c" },
                ],
                "managedFields": [{ "manager": "m", "fieldsV1": { "f:spec": { "x": "y".repeat(9000) } } }],
            },
            "spec": {
                "containers": [{ "name": "db", "env": env }], "priority": 2_000_000_000,
                "terminationGracePeriodSeconds": 7,
                "tolerations": [{ "key": "a", "operator": "Exists", "effect": "NoSchedule" }],
                "volumes": [
                    { "name": "data", "persistentVolumeClaim": { "claimName": "data-db-0" } },
                    { "name": "scratch", "ephemeral": { "volumeClaimTemplate": { "spec": {} } } },
                    { "name": "config", "configMap": { "name": "c" } },
                ],
            },
            "status": {
                "phase": "Running", "startTime": "2026-01-01T10:00:05Z",
                "containerStatuses": [{ "name": "db", "image": "i", "imageID": "i", "ready": true, "restartCount": 0 }],
            },
        })
    }

    #[test]
    fn a_pod_keeps_what_the_plan_reads_and_nothing_else() {
        let whole: Pod = serde_json::from_value(fat()).unwrap();
        let KeptPod(kept) = serde_json::from_str(&fat().to_string()).unwrap();
        let read = |pod: &Pod| {
            let mut alive = pod.clone();
            alive.metadata.deletion_timestamp = None;
            let spec = pod.spec.as_ref().unwrap();
            (
                (pods::is_bound_to_its_node(pod), pods::blocks_removal(pod), pods::is_finished(pod)),
                pods::claims(pod).collect::<Vec<_>>(),
                protection::of_pod(&alive, Timestamp::UNIX_EPOCH),
                (spec.priority, spec.termination_grace_period_seconds, spec.tolerations.clone()),
                (pod.metadata.creation_timestamp.clone(), pod.metadata.deletion_timestamp.clone()),
                (pod.metadata.deletion_grace_period_seconds, pod.metadata.uid.clone()),
                pod.status.as_ref().unwrap().start_time.clone(),
            )
        };
        assert_eq!(read(&kept), read(&whole));
        assert_eq!(pods::claims(&kept).collect::<Vec<_>>(), ["data-db-0", "db-0-scratch"]);
        let size = |pod: &Pod| serde_json::to_string(pod).unwrap().len();
        assert!(size(&kept) * 10 < size(&whole), "{} of {}", size(&kept), size(&whole));
    }

    #[test]
    fn a_pod_without_anything_can_be_read_and_one_with_an_odd_time_cannot() {
        for text in
            ["{}", r#"{"metadata": {"annotations": null}, "spec": {"volumes": null}, "status": null}"#]
        {
            let KeptPod(kept) = serde_json::from_str(text).unwrap();
            assert!(pods::blocks_removal(&kept));
        }
        assert!(serde_json::from_str::<KeptPod>(r#"{"metadata": {"deletionTimestamp": "soon"}}"#).is_err());
    }
}
