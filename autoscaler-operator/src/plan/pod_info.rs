//! A pod in two parts: what is its own, and what it has in common with the other pods of its template.
//!
//! A cluster has tens of thousands of pods and a few hundred templates. Whoever keeps pods keeps each common part once
//! ([`Shapes`]), and what was read of it holds for all of them.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    mem,
    sync::{Arc, Weak},
};

use k8s_openapi::{
    api::core::v1::{Pod, PodSpec, PodStatus},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
    jiff::Timestamp,
};
use serde::Deserialize;

use super::observed::key;

/// A pod. The name is kube-scheduler's, for a pod together with what is read of it once.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Pod")]
pub struct PodInfo {
    /// Name, namespace, UID, version, and when it was made and is to end. Private, because labels, annotations and owners
    /// are not here but in the shape.
    metadata: ObjectMeta,
    node: Option<String>,
    started: Option<Time>,
    shape: Arc<Pod>,
}

impl From<Pod> for PodInfo {
    fn from(mut pod: Pod) -> Self {
        let whole = mem::take(&mut pod.metadata);
        pod.metadata = ObjectMeta {
            namespace: whole.namespace.clone(),
            labels: whole.labels,
            annotations: whole.annotations,
            owner_references: whole.owner_references,
            ..ObjectMeta::default()
        };
        let metadata = ObjectMeta {
            name: whole.name,
            namespace: whole.namespace,
            uid: whole.uid,
            resource_version: whole.resource_version,
            creation_timestamp: whole.creation_timestamp,
            deletion_timestamp: whole.deletion_timestamp,
            ..ObjectMeta::default()
        };
        let node = pod.spec.as_mut().and_then(|spec| spec.node_name.take()).filter(|name| !name.is_empty());
        let started = pod.status.as_mut().and_then(|status| status.start_time.take());
        Self { metadata, node, started, shape: Arc::new(pod) }
    }
}

impl PodInfo {
    /// Namespace and name.
    pub fn key(&self) -> (&str, &str) {
        key(&self.metadata)
    }

    /// `metadata.uid`; empty in objects that no API server has seen.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// What is its own of its metadata: everything but labels, annotations and owners.
    pub const fn identity(&self) -> &ObjectMeta {
        &self.metadata
    }

    /// The same, to change.
    pub const fn identity_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    /// When it is to end, if it is being deleted.
    pub fn deleted(&self) -> Option<Timestamp> {
        self.metadata.deletion_timestamp.as_ref().map(|time| time.0)
    }

    /// `spec.nodeName`, unless it is empty.
    pub fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// Takes it off its node.
    pub fn unbind(&mut self) {
        self.node = None;
    }

    /// `status.startTime`.
    pub fn started(&self) -> Option<Timestamp> {
        self.started.as_ref().map(|time| time.0)
    }

    /// What it has in common with others: a pod without name, node and times.
    pub const fn shape(&self) -> &Arc<Pod> {
        &self.shape
    }

    /// The same, to change.
    pub fn shape_mut(&mut self) -> &mut Pod {
        Arc::make_mut(&mut self.shape)
    }

    /// `metadata.labels`.
    pub fn labels(&self) -> Option<&BTreeMap<String, String>> {
        self.shape.metadata.labels.as_ref()
    }

    /// One of `metadata.annotations`.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.shape.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// `metadata.ownerReferences`.
    pub fn owners(&self) -> &[OwnerReference] {
        self.shape.metadata.owner_references.as_deref().unwrap_or_default()
    }

    /// `spec`; the node is not in it.
    pub fn spec(&self) -> Option<&PodSpec> {
        self.shape.spec.as_ref()
    }

    /// `status`; the time of the start is not in it.
    pub fn status(&self) -> Option<&PodStatus> {
        self.shape.status.as_ref()
    }
}

/// The shapes that are in use.
#[derive(Debug, Default)]
pub struct Shapes {
    /// By a hash of what most often differs.
    known: HashMap<u64, Vec<Weak<Pod>>>,
    /// How many were added since those that nobody uses went.
    added: usize,
}

impl Shapes {
    /// Gives the pod the shape of an earlier one that has an equal one.
    pub fn share(&mut self, pod: &mut PodInfo) {
        let alike = self.known.entry(look(&pod.shape)).or_default();
        if let Some(shape) = alike.iter().filter_map(Weak::upgrade).find(|shape| *shape == pod.shape) {
            pod.shape = shape;
            return;
        }
        alike.push(Arc::downgrade(&pod.shape));
        self.added += 1;
        // As many as there are: what a sweep costs is paid for by what was added since the last one.
        if self.added > self.known.len() / 2 + 1 {
            self.sweep();
        }
    }

    fn sweep(&mut self) {
        self.known.retain(|_, alike| {
            alike.retain(|shape| shape.strong_count() > 0);
            !alike.is_empty()
        });
        self.added = 0;
    }
}

fn look(shape: &Pod) -> u64 {
    let mut hasher = DefaultHasher::new();
    let ObjectMeta { namespace, labels, owner_references, .. } = &shape.metadata;
    (namespace, labels).hash(&mut hasher);
    owner_references.iter().flatten().for_each(|owner| owner.uid.hash(&mut hasher));
    let status = shape.status.as_ref();
    status.map(|status| (&status.phase, &status.nominated_node_name)).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, node: &str, label: &str) -> PodInfo {
        let object: Value = json!({
            "metadata": { "name": name, "namespace": "ns", "uid": name, "labels": { "app": label },
                "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "nodeName": node, "containers": [] },
            "status": { "phase": "Running", "startTime": "2026-01-01T00:00:00Z" }
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn nothing_is_lost_between_the_two_parts() {
        let pod = pod("p", "n", "a");
        let time = "2026-01-01T00:00:00Z".parse().ok();
        assert_eq!((pod.key(), pod.uid(), pod.node()), (("ns", "p"), "p", Some("n")));
        assert_eq!((pod.deleted(), pod.started()), (time, time));
        assert_eq!(pod.labels().unwrap()["app"], "a");
        assert_eq!(pod.status().unwrap().phase.as_deref(), Some("Running"));
        assert_eq!(self::pod("p", "", "a").node(), None);
    }

    #[test]
    fn equal_shapes_are_one_object_and_go_with_their_last_pod() {
        let mut shapes = Shapes::default();
        let mut pods: Vec<_> = (0..100).map(|at| pod(&at.to_string(), &at.to_string(), "a")).collect();
        pods.push(pod("other", "n", "b"));
        for pod in &mut pods {
            shapes.share(pod);
        }
        assert!(pods[..100].iter().all(|pod| Arc::ptr_eq(pod.shape(), pods[0].shape())));
        assert!(!Arc::ptr_eq(pods[0].shape(), pods[100].shape()));
        drop(pods);
        for at in 0..100 {
            shapes.share(&mut pod("p", "n", &at.to_string()));
        }
        assert!(shapes.known.len() < 10, "{} shapes of pods that are gone", shapes.known.len());
    }
}
