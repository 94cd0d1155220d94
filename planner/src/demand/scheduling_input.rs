//! Selects the pods that matter for a pass, and reports the problems of the others.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::storage::Storage;
use super::volumes::VolumeTerms;
use crate::demand::pod_requirements::PodRequirements;
use crate::demand::requirements_cache::RequirementsCache;
use crate::input::observed::{Observed, key};
use crate::input::pod_info::PodInfo;
use crate::input::pods;
use crate::reasons::Rejection;

/// A pod that matters for a pass.
#[derive(Debug)]
pub(super) struct PodEntry {
    /// Index of the pod; the pods of daemons come after all others.
    pub(super) pod: usize,
    /// Index of the node it occupies; `None` if it is pending.
    pub(super) node: Option<usize>,
    /// Index of its requirements.
    pub(super) requirements: usize,
    /// Index of the places of its volumes.
    pub(super) places: usize,
}

/// The pods of a pass.
#[derive(Debug, Default)]
pub(super) struct SchedulingInput {
    pub(super) members: Vec<PodEntry>,
    /// The different requirements, in order of first use.
    pub(super) all_requirements: Vec<Arc<PodRequirements>>,
    /// The different places of volumes, in order of first use: one of the terms of each must match.
    pub(super) places: Vec<Vec<VolumeTerms>>,
    /// Pending pods that cannot be read, with the problem.
    pub(super) unreadable: Vec<(usize, String)>,
    /// Pending pods that no node can help.
    pub(super) waiting: Vec<(usize, Rejection)>,
    /// Bound pods whose requests cannot be read.
    pub(super) unmeasured: Vec<usize>,
    /// Problems of bound pods.
    pub(super) warnings: Vec<String>,
}

impl SchedulingInput {
    pub(super) fn of(
        observed: &Observed,
        all_pods: &[Arc<PodInfo>],
        all_nodes: &[Arc<Node>],
        daemons: &[PodInfo],
        memo: &mut RequirementsCache,
    ) -> Self {
        let nodes: HashMap<_, _> =
            all_nodes.iter().enumerate().map(|(index, node)| (key(&node.metadata).1, index)).collect();
        let storage = Storage::of(observed);
        let taken = storage.taken(all_pods.iter().filter(|pod| pods::occupied_node(pod).is_some()));
        let mut scheduling_input = Self::default();
        let mut known = Known::default();
        for (index, pod) in all_pods.iter().enumerate() {
            let node = pods::occupied_node(pod).map(|name| nodes.get(name).copied());
            let (node, places, requirements) = match node {
                Some(Some(node)) => {
                    let requirements = memo.requirements(pod.shape());
                    (
                        Some(node),
                        scheduling_input.of_placed(index, pod, &requirements, &storage),
                        requirements,
                    )
                }
                None if pods::is_pending(pod) => {
                    let requirements = memo.requirements(pod.shape());
                    let places = scheduling_input.of_pending(index, pod, &requirements, &storage, &taken);
                    let Some(places) = places else { continue };
                    (None, places, requirements)
                }
                Some(None) | None => continue,
            };
            let requirements = known.requirements(requirements, &mut scheduling_input.all_requirements);
            let places = known.places(places, &mut scheduling_input.places);
            scheduling_input.members.push(PodEntry { pod: index, node, requirements, places });
        }
        memo.end_pass();
        // The requirements of daemons' pods are not cached: these pods are created for this pass only.
        for (index, pod) in daemons.iter().enumerate() {
            let requirements = known.requirements(
                Arc::new(PodRequirements::of(pod.shape())),
                &mut scheduling_input.all_requirements,
            );
            let places = known.places(Vec::new(), &mut scheduling_input.places);
            scheduling_input.members.push(PodEntry {
                pod: all_pods.len() + index,
                node: None,
                requirements,
                places,
            });
        }
        scheduling_input
    }

    /// Where the volumes of a bound pod are.
    fn of_placed(
        &mut self,
        index: usize,
        pod: &PodInfo,
        requirements: &PodRequirements,
        storage: &Storage<'_>,
    ) -> Vec<VolumeTerms> {
        let (namespace, name) = pod.key();
        if let Err(problem) = &requirements.request {
            self.unmeasured.push(index);
            self.warnings.push(format!(
                "pod {namespace}/{name} counts as asking for nothing: {problem} in its requests"
            ));
        }
        if let Some(problem) = &requirements.problem {
            self.warnings
                .push(format!("pod {namespace}/{name} is planned without one of its constraints: {problem}"));
        }
        if !requirements.claims {
            return Vec::new();
        }
        // It stays on its node: without its claim no other node can take it.
        storage.places(pod).unwrap_or_else(|_| vec![VolumeTerms::new()])
    }

    /// Where the volumes of a pending pod can be; `None` if it cannot be planned.
    fn of_pending(
        &mut self,
        index: usize,
        pod: &PodInfo,
        requirements: &PodRequirements,
        storage: &Storage<'_>,
        taken: &HashSet<(&str, &str)>,
    ) -> Option<Vec<VolumeTerms>> {
        let problem = requirements.request.as_ref().err().or(requirements.problem.as_ref());
        if let Some(problem) = problem {
            self.unreadable.push((index, problem.clone()));
            return None;
        }
        if !requirements.claims {
            return Some(Vec::new());
        }
        match storage.places_unless_taken(pod, taken) {
            Ok(places) => Some(places),
            Err(rejection) => {
                self.waiting.push((index, rejection));
                None
            }
        }
    }
}

/// Assigns indexes.
#[derive(Default)]
struct Known {
    /// By address: the cache keeps one object of equal requirements, and the scheduling input keeps that object alive.
    all_requirements: HashMap<usize, usize>,
    places: HashMap<Vec<VolumeTerms>, usize>,
}

impl Known {
    fn requirements(
        &mut self,
        requirements: Arc<PodRequirements>,
        all: &mut Vec<Arc<PodRequirements>>,
    ) -> usize {
        *self.all_requirements.entry(Arc::as_ptr(&requirements).addr()).or_insert_with(|| {
            all.push(requirements);
            all.len() - 1
        })
    }

    fn places(&mut self, places: Vec<VolumeTerms>, all: &mut Vec<Vec<VolumeTerms>>) -> usize {
        if let Some(&id) = self.places.get(&places) {
            return id;
        }
        all.push(places.clone());
        self.places.insert(places, all.len() - 1);
        all.len() - 1
    }
}
