//! A pod in two parts: what is its own, and what it shares with other pods of its template, its [`PodShape`].
//!
//! A cluster has tens of thousands of pods and a few hundred templates. A cache of pods keeps the shared part once
//! ([`PodShapes`]), and what is read from a shape is valid for all pods that have it. Only here are pods compared field
//! by field: a pass knows equal shapes by their [`ShapeId`].

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::mem;
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;

/// A pod. The name is kube-scheduler's, for a pod together with what is read from it once.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(any(test, feature = "fixtures"), derive(serde::Deserialize), serde(from = "Pod"))]
#[repr(C)]
pub struct PodInfo {
    // In the order of the memory layout (`repr(C)`): what a pass reads of every pod comes first and is contiguous, so
    // that it takes as few cache lines as possible. In the compiler's order a pass over 150,000 pods took a tenth
    // longer.
    shape: PodShape,
    deleted: Moment,
    node: Option<Box<str>>,
    name: Box<str>,
    uid: Box<str>,
    started: Moment,
    unschedulable: Moment,
    created: Moment,
    /// Names of `PersistentVolumeClaim`s, one for each volume of the shape that uses a claim. Each pod of a
    /// `StatefulSet` names its own.
    claims: Box<[Box<str>]>,
}

/// A time or none, in the whole seconds that the API server writes. A cluster has three times as many of these as pods:
/// the types of `jiff` and `Option` take three times the memory, and a pass iterates over all pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment(i64);

impl Moment {
    /// A second that no timestamp can hold.
    const NONE: Self = Self(i64::MIN);

    fn of(time: Option<Timestamp>) -> Self {
        time.map_or(Self::NONE, |time| Self(time.as_second()))
    }

    fn time(self) -> Option<Timestamp> {
        // Checks for none first: converting it would fail with an error, which allocates.
        if self == Self::NONE { None } else { Timestamp::from_second(self.0).ok() }
    }
}

impl Default for Moment {
    fn default() -> Self {
        Self::NONE
    }
}

/// Labels of a pod.
pub(crate) type Labels = BTreeMap<String, String>;

/// What a pod shares with others: everything except its name, UID, node, times and claims. Labels are separate from the
/// rest, because the API server gives each pod the zone of its node as a label, and the rest is large.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodShape {
    labels: Arc<Labels>,
    pod: Arc<Pod>,
}

impl PodShape {
    /// `metadata.labels`.
    pub(crate) fn labels(&self) -> &Labels {
        &self.labels
    }

    /// The rest of the shape, without labels.
    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    /// `metadata.namespace`.
    pub(crate) fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The id of the shared object: no two shapes have the same id while both exist.
    pub(crate) fn id(&self) -> ShapeId {
        ShapeId(Arc::as_ptr(&self.labels).addr(), Arc::as_ptr(&self.pod).addr())
    }
}

/// Tells shapes apart without looking into them. It says nothing about a shape that has been dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ShapeId(usize, usize);

impl ShapeId {
    /// The id of the shape without its labels.
    pub(crate) const fn without_labels(self) -> usize {
        self.1
    }
}

impl From<Pod> for PodInfo {
    fn from(mut pod: Pod) -> Self {
        let whole = mem::take(&mut pod.metadata);
        pod.metadata = ObjectMeta {
            namespace: whole.namespace,
            annotations: whole.annotations,
            owner_references: whole.owner_references,
            ..ObjectMeta::default()
        };
        let node = pod.spec.as_mut().and_then(|spec| spec.node_name.take()).filter(|name| !name.is_empty());
        let started = pod.status.as_mut().and_then(|status| status.start_time.take());
        let conditions = pod.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten());
        let scheduled = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled");
        let unschedulable = scheduled.and_then(|condition| {
            let since = condition.last_transition_time.take();
            since.filter(|_| condition.status == "False")
        });
        let volumes = pod.spec.iter_mut().flat_map(|spec| spec.volumes.iter_mut().flatten());
        let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_mut());
        let claims = claims.map(|claim| mem::take(&mut claim.claim_name).into_boxed_str()).collect();
        let labels = whole.labels.unwrap_or_default();
        Self {
            name: whole.name.unwrap_or_default().into(),
            uid: whole.uid.unwrap_or_default().into(),
            deleted: Moment::of(whole.deletion_timestamp.map(|time| time.0)),
            node: node.map(String::into_boxed_str),
            started: Moment::of(started.map(|time| time.0)),
            unschedulable: Moment::of(unschedulable.map(|time| time.0)),
            created: Moment::of(whole.creation_timestamp.map(|time| time.0)),
            claims,
            shape: PodShape { labels: Arc::new(labels), pod: Arc::new(pod) },
        }
    }
}

impl PodInfo {
    /// Namespace and name.
    pub fn key(&self) -> (&str, &str) {
        (self.shape.namespace(), &self.name)
    }

    /// `metadata.uid`; empty in objects that no API server has seen.
    pub const fn uid(&self) -> &str {
        &self.uid
    }

    /// Makes it another pod of the same shape.
    pub fn identify(&mut self, name: &str, uid: &str) {
        self.name = name.into();
        self.uid = uid.into();
    }

    /// `metadata.deletionTimestamp`; `None` if it is not being deleted.
    pub fn deleted(&self) -> Option<Timestamp> {
        self.deleted.time()
    }

    /// Sets `metadata.deletionTimestamp`.
    pub fn set_deleted(&mut self, at: Option<Timestamp>) {
        self.deleted = Moment::of(at);
    }

    /// `spec.nodeName`, unless it is empty.
    pub fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// Removes it from its node.
    pub fn unbind(&mut self) {
        self.node = None;
    }

    /// `status.startTime`.
    pub(crate) fn started(&self) -> Option<Timestamp> {
        self.started.time()
    }

    /// `metadata.creationTimestamp`; `None` in objects that no API server has seen.
    pub(crate) fn created(&self) -> Option<Timestamp> {
        self.created.time()
    }

    /// Since when it has been unschedulable: the last transition of the condition `PodScheduled` to `False`.
    pub(crate) fn unschedulable_since(&self) -> Option<Timestamp> {
        self.unschedulable.time()
    }

    /// The `PersistentVolumeClaim`s that `spec.volumes` name, in their order.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &str> {
        self.claims.iter().map(Box::as_ref)
    }

    /// What it shares with other pods.
    pub const fn shape(&self) -> &PodShape {
        &self.shape
    }

    /// Its shape without labels, to change.
    pub fn pod_mut(&mut self) -> &mut Pod {
        Arc::make_mut(&mut self.shape.pod)
    }

    /// `metadata.labels`.
    pub fn labels(&self) -> &Labels {
        &self.shape.labels
    }

    /// `metadata.labels`, to change.
    pub fn labels_mut(&mut self) -> &mut Labels {
        Arc::make_mut(&mut self.shape.labels)
    }

    /// The value of one of `metadata.annotations`.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.shape.pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// `metadata.ownerReferences`.
    pub fn owners(&self) -> &[OwnerReference] {
        self.shape.pod.metadata.owner_references.as_deref().unwrap_or_default()
    }

    /// `spec`; the node and the names of claims are not in it.
    pub fn spec(&self) -> Option<&PodSpec> {
        self.shape.pod.spec.as_ref()
    }

    /// `status`; the times of the start and of `PodScheduled` are not in it.
    pub fn status(&self) -> Option<&PodStatus> {
        self.shape.pod.status.as_ref()
    }
}

/// The shared parts of pods that are in use.
#[derive(Debug, Default)]
pub(crate) struct PodShapes {
    labels: Known<Labels>,
    pods: Known<Pod>,
}

impl PodShapes {
    /// Replaces the pod's shape by an equal one that is in use.
    pub(crate) fn share(&mut self, pod: &mut PodInfo) {
        let PodShape { labels, pod } = &mut pod.shape;
        self.labels.share(labels, Labels::hash);
        self.pods.share(pod, look);
    }
}

/// Objects that are in use, without duplicates.
#[derive(Debug)]
struct Known<T> {
    /// By a hash of the fields that differ most often.
    objects: HashMap<u64, Vec<Weak<T>>>,
    /// How many were added since unused entries were last removed.
    added: usize,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { objects: HashMap::new(), added: 0 }
    }
}

impl<T: PartialEq> Known<T> {
    fn share(&mut self, object: &mut Arc<T>, look: impl Fn(&T, &mut DefaultHasher)) {
        let mut hasher = DefaultHasher::new();
        look(object, &mut hasher);
        let alike = self.objects.entry(hasher.finish()).or_default();
        if let Some(known) = alike.iter().filter_map(Weak::upgrade).find(|known| known == object) {
            *object = known;
            return;
        }
        alike.push(Arc::downgrade(object));
        self.added += 1;
        // The cost of a sweep is covered by the entries added since the last one.
        if self.added > self.objects.len() / 2 {
            self.sweep();
        }
    }

    fn sweep(&mut self) {
        self.objects.retain(|_, alike| {
            alike.retain(|object| object.strong_count() > 0);
            !alike.is_empty()
        });
        self.added = 0;
    }
}

fn look(pod: &Pod, hasher: &mut DefaultHasher) {
    let ObjectMeta { namespace, owner_references, .. } = &pod.metadata;
    namespace.hash(hasher);
    owner_references.iter().flatten().for_each(|owner| owner.uid.hash(hasher));
    let status = pod.status.as_ref();
    status.map(|status| (&status.phase, &status.nominated_node_name)).hash(hasher);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pod_takes_two_lines_of_a_processors_cache_with_the_counts_of_its_pointer() {
        assert!(size_of::<PodInfo>() + 2 * size_of::<usize>() <= 128, "{}", size_of::<PodInfo>());
    }

    #[test]
    fn times_are_kept_to_the_second() {
        assert_eq!(Moment::of(None).time(), None);
        for (time, kept) in [
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
            ("1969-12-31T23:59:59Z", "1969-12-31T23:59:59Z"),
            ("2026-01-01T00:00:00.9Z", "2026-01-01T00:00:00Z"),
        ] {
            assert_eq!(Moment::of(Some(time.parse().unwrap())).time(), Some(kept.parse().unwrap()), "{time}");
        }
    }

    fn pod(name: &str, node: &str, label: &str) -> PodInfo {
        let object: Value = json!({
            "metadata": { "name": name, "namespace": "ns", "uid": name, "labels": { "app": label },
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "nodeName": node, "containers": [],
                "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": format!("of-{name}") } }] },
            "status": { "phase": "Running", "startTime": "2026-01-01T00:00:00Z" }
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn nothing_is_lost_between_the_two_parts() {
        let pod = pod("p", "n", "a");
        let time = "2026-01-01T00:00:00Z".parse().ok();
        assert_eq!((pod.key(), pod.uid(), pod.node()), (("ns", "p"), "p", Some("n")));
        assert_eq!((pod.created(), pod.deleted(), pod.started()), (time, time, time));
        assert_eq!(pod.labels()["app"], "a");
        assert_eq!(pod.status().unwrap().phase.as_deref(), Some("Running"));
        assert_eq!(pod.claims().collect::<Vec<_>>(), ["of-p"]);
        assert_eq!(self::pod("p", "", "a").node(), None);
    }

    #[test]
    fn equal_shapes_are_one_object_and_go_with_their_last_pod() {
        let mut shapes = PodShapes::default();
        let mut pods: Vec<_> = (0..100).map(|at| pod(&at.to_string(), &at.to_string(), "a")).collect();
        pods.push(pod("other", "n", "b"));
        for pod in &mut pods {
            shapes.share(pod);
        }
        assert!(pods[..100].iter().all(|pod| pod.shape().id() == pods[0].shape().id()));
        let (one, other) = (pods[0].shape(), pods[100].shape());
        assert_ne!(one.id(), other.id());
        assert!(Arc::ptr_eq(&one.pod, &other.pod), "only their labels differ");
        drop(pods);
        for at in 0..100 {
            let mut pod = pod("p", "n", &at.to_string());
            pod.pod_mut().metadata.namespace = Some(at.to_string());
            shapes.share(&mut pod);
        }
        let kept = (shapes.labels.objects.len(), shapes.pods.objects.len());
        assert!(kept.0 < 10 && kept.1 < 10, "{kept:?} of pods that are gone");
    }
}
