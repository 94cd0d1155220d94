//! Which nominations (`status.nominatedNodeName`) are believed.
//!
//! kube-scheduler, and since 1.35 other components too, write there on which node a pod is expected to run. It is a
//! hint, and may stay there when it is no longer true: kube-scheduler tries that node first, and then all others. So it counts only
//! while the pod could run there: the node takes pods, and has a place for this one by everything that the snapshot knows
//! (resources, labels and taints, host ports, other pods, volumes) once those of its pods are gone that are being deleted, or that
//! the pod preempts. Pods of other nodes stay, whatever their priority: kube-scheduler preempts on one node only. A pod whose
//! nomination is not believed is planned like any other.
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/#user-exposed-information>

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::model::ClusterSnapshot;
use super::node_index::Place;
use super::setup::{NodeSetup, Setup};
use crate::demand::nominations::{ExclusiveClaims, Nominations, depends_on_others, keeps_others_away};
use crate::demand::{Demand, PodInterner};
use crate::index::{Indexed, PassNodeIndex, PodIndex};
use crate::input::by_name::ByName;
use crate::input::observed::{Observed, PassInput, PassNodes, PassPods, key};
use crate::input::pod_info::PodInfo;
use crate::input::{nodes, pods};
use crate::pools::allocatable;
use crate::requirements::constraints::Constraints;
use crate::requirements::node_profile::NodeProfile;
use crate::requirements::pod_class::{ConstraintSetId, PodClassId};
use crate::requirements::predicates;
use crate::resources::{Amounts, ResourceNames};
use crate::steps;

impl<'a> Nominations<'a> {
    /// The nominations that the planner believes.
    pub fn of(observed: &'a Observed) -> Self {
        let nodes =
            ByName::<PassNodeIndex, Node>::default().sorted(&observed.nodes, |node| key(&node.metadata));
        let pods = ByName::<PodIndex, PodInfo>::default().sorted(&observed.pods, PodInfo::key);
        let believed = believed(PassInput { observed, nodes: &nodes, pods: &pods });
        Self::as_written(observed.pods.iter().filter(|pod| believed.node_of(pod).is_some()))
    }
}

/// The nominations of a pass that are believed. Without nominations, nothing else is looked at.
pub(crate) fn believed(input: PassInput<'_>) -> Nominations<'_> {
    let all_pods = input.pods;
    let mut nominated: Vec<PodIndex> =
        all_pods.indexes().filter(|&pod| pods::nominated_node(&all_pods[pod]).is_some()).collect();
    if nominated.is_empty() {
        return Nominations::default();
    }
    let mut names = ResourceNames::default();
    let mut targets = targets(input.nodes, all_pods, &nominated, &mut names);
    nominated.retain(|&pod| is_admitted(&all_pods[pod], &targets));
    if nominated.is_empty() {
        return Nominations::default();
    }
    let (mut scene, candidates) = Scene::of(input, &nominated, &mut targets, &mut names);
    let held: Vec<PodIndex> =
        candidates.iter().filter(|candidate| scene.takes(candidate)).map(|held| held.index).collect();
    Nominations::as_written(held.iter().map(|&pod| &all_pods[pod]))
}

/// A node that takes pods, and that some pod is nominated to.
struct Target {
    profile: Arc<NodeProfile>,
    allocatable: Amounts,
}

/// The nodes that take pods and that one of the `nominated` pods names, by name.
fn targets<'n>(
    all_nodes: &'n PassNodes,
    all_pods: &PassPods,
    nominated: &[PodIndex],
    names: &mut ResourceNames,
) -> HashMap<&'n str, Target> {
    let wanted: HashSet<&str> =
        nominated.iter().filter_map(|&pod| pods::nominated_node(&all_pods[pod])).collect();
    let mut targets = HashMap::new();
    for node in all_nodes {
        let name = key(&node.metadata).1;
        let takes_pods = nodes::is_ready(node) && !nodes::is_cordoned(node) && !nodes::is_leaving(node);
        if !wanted.contains(name) || !takes_pods {
            continue;
        }
        if let Ok(allocatable) = allocatable(node, names) {
            targets.insert(name, Target { profile: Arc::new(NodeProfile::of_node(node)), allocatable });
        }
    }
    targets
}

/// Whether labels and taints of its node admit a pod. Its class does not say so of the pod of a `DaemonSet`.
fn is_admitted(pod: &PodInfo, targets: &HashMap<&str, Target>) -> bool {
    let target = pods::nominated_node(pod).and_then(|node| targets.get(node));
    target.is_some_and(|target| {
        predicates::admits(&Constraints::of(pod.shape().pod()), &target.profile).is_ok()
    })
}

/// A pod whose node may have a place for it.
struct Candidate<'a> {
    index: PodIndex,
    pod: &'a PodInfo,
    class: PodClassId,
    node: PassNodeIndex,
}

/// The cluster without pending pods, as far as it decides about nominations. Pods whose nomination is believed are in it.
struct Scene<'a> {
    snapshot: ClusterSnapshot,
    /// The pods that are bound to each node.
    bound: Indexed<PassNodeIndex, Vec<(&'a PodInfo, PodClassId)>>,
    claims: Option<ClaimUsers<'a>>,
}

impl<'a> Scene<'a> {
    /// The cluster, and the candidates in the order in which they get their places: a pod sees the nominated pods of its
    /// own and of a higher priority.
    fn of(
        input: PassInput<'a>,
        nominated: &[PodIndex],
        targets: &mut HashMap<&str, Target>,
        names: &mut ResourceNames,
    ) -> (Self, Vec<Candidate<'a>>) {
        let PassInput { observed, nodes: all_nodes, pods: all_pods } = input;
        let chosen = chosen(all_pods, nominated, targets);
        let of_scene: PassPods = chosen.iter().map(|&pod| Arc::clone(&all_pods[pod])).collect();
        let demand = Demand::of(
            PassInput { observed, nodes: all_nodes, pods: &of_scene },
            &Nominations::as_written(of_scene.iter()),
            names,
            &Amounts::default(),
            &mut PodInterner::default(),
        );
        let mut bound: Indexed<PassNodeIndex, Vec<(&'a PodInfo, PodClassId)>> =
            vec![Vec::new(); all_nodes.len()].into();
        let mut candidates = Vec::new();
        for (&index, placed) in chosen.iter().zip(&demand.placed) {
            let Some((class, node)) = *placed else { continue };
            let pod: &'a PodInfo = &all_pods[index];
            if pods::bound_node(pod).is_some() {
                bound[node].push((pod, class));
            } else {
                candidates.push(Candidate { index, pod, class, node });
            }
        }
        candidates.sort_by_key(|candidate| (Reverse(pods::priority(candidate.pod)), candidate.index));
        let snapshot = snapshot(all_nodes, &demand, &bound, targets);
        (Self { snapshot, bound, claims: ClaimUsers::of(input, &candidates) }, candidates)
    }

    /// Whether the node of a candidate has a place for it; then the pod gets it.
    fn takes(&mut self, candidate: &Candidate<'a>) -> bool {
        let Candidate { index: _, pod, class, node } = *candidate;
        let preempts = pod.spec().is_none_or(|spec| spec.preemption_policy.as_deref() != Some("Never"));
        let priority = pods::priority(pod);
        let goes = |other: &PodInfo| other.deleted().is_some();
        // Also without preemption: the pod may need one of those that it would preempt.
        let takes = self.takes_without(candidate, goes)
            || (preempts
                && self.takes_without(candidate, |other| goes(other) || pods::priority(other) < priority));
        if takes {
            self.snapshot.hold(self.snapshot.node_of(node), class, 1);
            if let Some(claims) = &mut self.claims {
                claims.add(pod);
            }
        }
        takes
    }

    /// Whether the node has a place once those of its pods that are `gone` are no longer there.
    fn takes_without(&mut self, candidate: &Candidate<'_>, gone: impl Fn(&PodInfo) -> bool) -> bool {
        if self.claims.as_ref().is_some_and(|claims| claims.are_in_use(candidate.pod, &gone)) {
            return false;
        }
        let node = self.snapshot.node_of(candidate.node);
        let fork = self.snapshot.fork();
        for &(_, class) in self.bound[candidate.node].iter().filter(|(other, _)| gone(other)) {
            self.snapshot.evict(node, class, 1);
        }
        let takes = self.snapshot.place_on(node, candidate.class, 1) == 1;
        self.snapshot.revert(fork);
        takes
    }
}

/// The pods that are looked at, in the order of the pass: the nominated ones, and the bound ones that can make a difference.
fn chosen(all_pods: &PassPods, nominated: &[PodIndex], targets: &HashMap<&str, Target>) -> Vec<PodIndex> {
    steps::count(all_pods.len());
    let all_matter = nominated.iter().any(|&pod| depends_on_others(&all_pods[pod]));
    let matters = |pod: &PodInfo| {
        pods::bound_node(pod)
            .is_some_and(|node| all_matter || targets.contains_key(node) || keeps_others_away(pod))
    };
    let is_chosen = |&pod: &PodIndex| nominated.binary_search(&pod).is_ok() || matters(&all_pods[pod]);
    all_pods.indexes().filter(is_chosen).collect()
}

/// The bound pods on their nodes. Only targets take more; all nodes count as domains.
fn snapshot(
    all_nodes: &PassNodes,
    demand: &Demand,
    bound: &Indexed<PassNodeIndex, Vec<(&PodInfo, PodClassId)>>,
    targets: &mut HashMap<&str, Target>,
) -> ClusterSnapshot {
    let setups = all_nodes.enumerated().map(|(index, node)| {
        let target = targets.remove(key(&node.metadata).1);
        let open = target.is_some();
        let Target { profile, allocatable: free } = target.unwrap_or_else(|| Target {
            profile: Arc::new(NodeProfile::of_node(node)),
            allocatable: Amounts::default(),
        });
        NodeSetup {
            place: Place::Node(index),
            profile,
            free,
            pods: bound[index].iter().map(|&(_, class)| (class, 1)).collect(),
            ports: Vec::new(),
            increments: Vec::new(),
            open,
        }
    });
    let pending: Indexed<ConstraintSetId, bool> = vec![false; demand.constraint_sets.len()].into();
    ClusterSnapshot::new(Setup {
        constraint_sets: &demand.constraint_sets,
        classes: &demand.classes,
        topology_counts: &demand.topology_counts,
        supplies: &demand.supplies,
        pending: &pending,
        nodes: setups.collect(),
        templates: Indexed::default(),
    })
}

/// The pods with a node that use claims that only one pod may use.
struct ClaimUsers<'a> {
    exclusive: ExclusiveClaims<'a>,
    /// By namespace and name of the claim.
    users: HashMap<(&'a str, &'a str), Vec<&'a PodInfo>>,
}

impl<'a> ClaimUsers<'a> {
    /// `None` if no candidate uses such a claim.
    fn of(input: PassInput<'a>, candidates: &[Candidate<'_>]) -> Option<Self> {
        if candidates.iter().all(|candidate| candidate.pod.claims().next().is_none()) {
            return None;
        }
        let exclusive = ExclusiveClaims::of(input);
        if candidates.iter().all(|candidate| exclusive.used_by(candidate.pod).is_empty()) {
            return None;
        }
        let mut users = Self { exclusive, users: HashMap::new() };
        for pod in input.pods.iter().filter(|pod| pods::bound_node(pod).is_some()) {
            users.add(pod);
        }
        Some(users)
    }

    fn add(&mut self, pod: &'a PodInfo) {
        for claim in self.exclusive.used_by(pod) {
            self.users.entry(claim).or_default().push(pod);
        }
    }

    /// Whether another pod keeps one of the claims of `pod` when those pods on its node that are `gone` are no longer there.
    fn are_in_use(&self, pod: &PodInfo, gone: impl Fn(&PodInfo) -> bool) -> bool {
        let node = pods::nominated_node(pod);
        let stays = |other: &&'a PodInfo| pods::bound_node(other) != node || !gone(other);
        let users = self.exclusive.used_by(pod).into_iter().filter_map(|claim| self.users.get(&claim));
        users.flatten().any(stays)
    }
}

#[cfg(test)]
#[path = "nominations_tests.rs"]
mod tests;
