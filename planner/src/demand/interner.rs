//! Finds the requirements of an equal pod without parsing: pods of one template have equal specs, and comparing is many
//! times faster than parsing.
//!
//! It may miss an equal pod, but the pods that it treats as equal have equal requirements: it compares everything that
//! [`PodRequirements`] is made from.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerStatus, Pod, PodAffinityTerm, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::demand::pod_requirements::PodRequirements;
use crate::input::pod_info::PodShape;

/// A pod, and its requirements.
type InternedPod = (PodShape, Arc<PodRequirements>);

/// Pods whose requirements are known, by a cheap hash.
#[derive(Debug, Default)]
pub(super) struct PodInterner {
    looks: HashMap<u64, Vec<InternedPod>>,
}

impl PodInterner {
    /// The requirements of an equal pod.
    pub(super) fn find(&self, shape: &PodShape) -> Option<Arc<PodRequirements>> {
        let alike = self.looks.get(&look(shape.pod()))?;
        alike.iter().find(|(twin, _)| same(twin, shape)).map(|(_, requirements)| Arc::clone(requirements))
    }

    pub(super) fn remember(&mut self, shape: &PodShape, requirements: &Arc<PodRequirements>) {
        self.looks.entry(look(shape.pod())).or_default().push((shape.clone(), Arc::clone(requirements)));
    }
}

/// A hash of the fields that differ most often.
fn look(pod: &Pod) -> u64 {
    let mut hasher = DefaultHasher::new();
    let Some(spec) = &pod.spec else { return 0 };
    pod.metadata.namespace.hash(&mut hasher);
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        let requests = container.resources.iter().flat_map(|r| r.requests.iter().flatten());
        requests.for_each(|(name, quantity)| (name, &quantity.0).hash(&mut hasher));
    }
    spec.node_selector.hash(&mut hasher);
    for selector in spec.affinity.iter().flat_map(required).filter_map(|term| term.label_selector.as_ref()) {
        selector.match_labels.hash(&mut hasher);
    }
    for constraint in spec.topology_spread_constraints.iter().flatten() {
        constraint.topology_key.hash(&mut hasher);
        constraint.label_selector.as_ref().map(|s: &LabelSelector| &s.match_labels).hash(&mut hasher);
    }
    hasher.finish()
}

fn required(affinity: &Affinity) -> impl Iterator<Item = &PodAffinityTerm> {
    let near = affinity.pod_affinity.iter();
    let near = near.flat_map(|a| a.required_during_scheduling_ignored_during_execution.iter().flatten());
    let apart = affinity.pod_anti_affinity.iter();
    near.chain(apart.flat_map(|a| a.required_during_scheduling_ignored_during_execution.iter().flatten()))
}

fn same(one: &PodShape, other: &PodShape) -> bool {
    let (a, b) = (one.pod(), other.pod());
    let (Some(of_a), Some(of_b)) = (&a.spec, &b.spec) else { return a.spec.is_none() && b.spec.is_none() };
    a.metadata.namespace == b.metadata.namespace
        && same_spec(of_a, of_b)
        && same_status(a.status.as_ref(), b.status.as_ref())
        && own_keys(of_a).all(|key| one.labels().get(key) == other.labels().get(key))
}

fn same_spec(a: &PodSpec, b: &PodSpec) -> bool {
    let inits = |spec: &PodSpec| spec.init_containers.as_ref().map_or(0, Vec::len);
    let claims = |spec: &PodSpec| {
        let volumes = spec.volumes.iter().flatten();
        volumes.into_iter().any(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some())
    };
    a.containers.len() == b.containers.len()
        && inits(a) == inits(b)
        && a.containers.iter().zip(&b.containers).all(same_container)
        && a.init_containers.iter().flatten().zip(b.init_containers.iter().flatten()).all(same_container)
        && a.resources == b.resources
        && a.overhead == b.overhead
        && a.node_selector == b.node_selector
        && a.tolerations == b.tolerations
        && a.affinity == b.affinity
        && a.topology_spread_constraints == b.topology_spread_constraints
        && a.host_network == b.host_network
        && claims(a) == claims(b)
}

fn same_container((a, b): (&Container, &Container)) -> bool {
    a.name == b.name
        && a.resources == b.resources
        && a.ports == b.ports
        && a.restart_policy == b.restart_policy
}

/// Compares the parts of a status that matter: the resources allocated to containers, and whether a resize was refused.
fn same_status(a: Option<&PodStatus>, b: Option<&PodStatus>) -> bool {
    fn granted(status: Option<&PodStatus>) -> impl Iterator<Item = (&String, &ContainerStatus)> {
        let main = status.into_iter().flat_map(|s| s.container_statuses.iter().flatten());
        let init = status.into_iter().flat_map(|s| s.init_container_statuses.iter().flatten());
        main.chain(init).filter(|s| s.resources.is_some()).map(|s| (&s.name, s))
    }
    fn resize(status: Option<&PodStatus>) -> impl Iterator<Item = Option<&str>> {
        let conditions = status.into_iter().flat_map(|s| s.conditions.iter().flatten());
        conditions.filter(|c| c.type_ == "PodResizePending").map(|c| c.reason.as_deref())
    }
    let parts = |(name, status): (_, &ContainerStatus)| {
        (name, status.resources.clone(), status.allocated_resources.clone())
    };
    resize(a).eq(resize(b)) && granted(a).map(parts).eq(granted(b).map(parts))
}

/// The label keys whose values the pod's selectors take from the pod's own labels.
fn own_keys(spec: &PodSpec) -> impl Iterator<Item = &String> {
    let of_spreads = spec.topology_spread_constraints.iter().flatten().flat_map(|c| &c.match_label_keys);
    let terms = spec.affinity.iter().flat_map(required);
    let of_terms = terms.flat_map(|term| [&term.match_label_keys, &term.mismatch_label_keys]).flatten();
    of_spreads.chain(of_terms).flatten()
}
