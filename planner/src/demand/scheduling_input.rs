//! Selects the pods that matter for a pass, and reports the problems of the others.

use std::collections::{HashMap, HashSet};

use shared_crds::QualifiedName;

use super::interner::{InternedPodId, InternedPods, PodInterner};
use super::nominations::Nominations;
use super::storage::Storage;
use super::supplies::{LimitedSupply, PodVolumes, Supplies};
use super::volumes::VolumeTerms;
use crate::demand::pod_requirements::PodRequirements;
use crate::index::{Indexed, PassNodeIndex, PodIndex};
use crate::input::observed::{PassInput, key};
use crate::input::pod_info::{Labels, PodInfo};
use crate::input::pods;
use crate::input::unplanned;
use crate::reasons::Rejection;
use crate::requirements::pod_class::SupplyId;
use crate::steps;

/// A pod that matters for a pass.
#[derive(Debug)]
pub(super) struct PodEntry {
    /// The pod.
    pub(super) pod: PodIndex,
    /// The node it occupies; `None` if it is pending.
    pub(super) node: Option<PassNodeIndex>,
    /// What it has in common with equal pods.
    pub(super) id: InternedPodId,
}

/// A pod that is made for the pass, to know which selectors of other pods match those like it.
#[derive(Debug)]
pub(super) struct MadeEntry<'p> {
    /// The pod.
    pod: &'p PodInfo,
    /// What it has in common with equal pods.
    pub(super) id: InternedPodId,
}

impl MadeEntry<'_> {
    /// Its namespace and name.
    pub(super) fn key(&self) -> (String, String) {
        let (namespace, name) = self.pod.key();
        (namespace.to_owned(), name.to_owned())
    }

    /// Its namespace and labels.
    pub(super) fn subject(&self) -> (String, Labels) {
        (self.pod.shape().namespace().to_owned(), self.pod.labels().clone())
    }
}

/// The pods of a pass.
#[derive(Debug, Default)]
pub(super) struct SchedulingInput<'p> {
    pub(super) entries: Vec<PodEntry>,
    /// The pods of `DaemonSet`s.
    pub(super) daemons: Vec<MadeEntry<'p>>,
    /// Pods like the agents that pools remember.
    pub(super) remembered: Vec<MadeEntry<'p>>,
    pub(super) interned: InternedPods<'p>,
    /// What pending pods compete for.
    pub(super) supplies: Indexed<SupplyId, LimitedSupply>,
    /// Pending pods that cannot be read, with the problem.
    pub(super) unreadable: Vec<(PodIndex, String)>,
    /// Pending pods that no node can help.
    pub(super) waiting: Vec<(PodIndex, Rejection)>,
    /// Bound pods whose requests or selectors cannot be read.
    pub(super) misread: Vec<PodIndex>,
    /// Problems of bound pods.
    pub(super) warnings: Vec<String>,
}

impl<'p> SchedulingInput<'p> {
    pub(super) fn of(
        pass: PassInput<'p>,
        nominations: &Nominations<'_>,
        daemons: &'p [PodInfo],
        remembered: &'p [PodInfo],
        interner: &mut PodInterner,
    ) -> Self {
        let PassInput { observed: _, nodes: all_nodes, pods: all_pods } = pass;
        let nodes: HashMap<_, _> =
            all_nodes.enumerated().map(|(index, node)| (key(&node.metadata).1, index)).collect();
        steps::count(all_nodes.len() + all_pods.len());
        let storage = Storage::of(pass);
        // While a volume is made, which can take minutes, its node is kept for the pod as a nominated one is.
        let awaits_volume = |pod: &'p PodInfo| {
            if pods::is_being_scheduled(pod) { storage.chosen_node(pod) } else { None }
        };
        let occupied = |pod: &'p PodInfo| {
            pods::bound_node(pod).or_else(|| nominations.node_of(pod)).or_else(|| awaits_volume(pod))
        };
        let taken = storage.taken(all_pods.iter().filter(|pod| occupied(pod).is_some()));
        // The volumes of a nominated pod are not bound yet either.
        let is_unbound = |pod: &PodInfo| nominations.node_of(pod).is_some() || pods::is_pending(pod);
        let unbound = all_pods.iter().map(|pod| &**pod).filter(|pod| is_unbound(pod));
        let supplies = Supplies::of(&storage, unbound);
        let mut input = Self::default();
        let mut interning = interner.pass();
        for (index, pod) in all_pods.enumerated() {
            let node = match occupied(pod).map(|name| nodes.get(name).copied()) {
                Some(Some(node)) => Some(node),
                None if pods::is_pending(pod) => None,
                Some(None) | None => continue,
            };
            let id = interning.id(pod, |requirements| {
                let places = if node.is_some() {
                    input.of_placed(index, pod, requirements, &storage)
                } else {
                    input.of_pending(index, pod, requirements, &storage, &taken)?
                };
                let competes = requirements.claims && is_unbound(pod);
                let needs = if competes { supplies.needs(&storage, pod) } else { Vec::new() };
                Some(PodVolumes { places, needs })
            });
            input.entries.extend(id.map(|id| PodEntry { pod: index, node, id }));
        }
        let mut made = |pods: &'p [PodInfo]| -> Vec<MadeEntry<'p>> {
            let entry = |pod: &'p PodInfo| {
                let id = interning.id(pod, |_| Some(PodVolumes::default()))?;
                Some(MadeEntry { pod, id })
            };
            pods.iter().filter_map(entry).collect()
        };
        input.daemons = made(daemons);
        input.remembered = made(remembered);
        input.interned = interning.end();
        input.supplies = supplies.all;
        input
    }

    /// Where the volumes of a pod with a node are.
    fn of_placed(
        &mut self,
        index: PodIndex,
        pod: &PodInfo,
        requirements: &PodRequirements,
        storage: &Storage<'_>,
    ) -> Vec<VolumeTerms> {
        let name = QualifiedName::from(pod.key());
        if requirements.request.is_err() || requirements.problem.is_some() {
            self.misread.push(index);
        }
        if let Err(problem) = &requirements.request {
            self.warnings.push(format!("pod {name} counts as asking for nothing: {problem} in its requests"));
        }
        if let Some(problem) = &requirements.problem {
            self.warnings.push(format!("pod {name} is planned without one of its constraints: {problem}"));
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
        index: PodIndex,
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
        if let Some(what) = unplanned::obstacle(pod.shape().pod()) {
            self.waiting.push((index, Rejection::NotPlanned(what)));
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
