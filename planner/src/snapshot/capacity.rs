//! The existing and upcoming nodes, and their free capacity before pending pods are placed: the input of the pass's
//! [`ClusterSnapshot`].

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::{ClusterSnapshot, NodeSetup, Place, Setup, TemplateSetup};
use crate::demand::Demand;
use crate::demand::daemons::{Daemon, Daemons};
use crate::input::observed::PassInput;
use crate::input::{nodes, pods};
use crate::pools::{Pool, allocatable};
use crate::requirements::node_profile::NodeProfile;
use crate::requirements::pod_class::{HostPort, PodClassId, TopologyCountId};
use crate::resources::{Amounts, ResourceNames};

/// What capacity is read from.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotInput<'a> {
    /// The objects of the pass.
    pub input: PassInput<'a>,
    /// The pod classes and topology counts of the pass, and the daemons, which use resources of each node.
    pub demand: &'a Demand,
    /// How many pods are pending, including headroom.
    pub waiting: usize,
}

/// The snapshot of a pass before pending pods are placed.
pub fn snapshot(
    source: SnapshotInput<'_>,
    pools: &[Pool],
    names: &mut ResourceNames,
    warnings: &mut Vec<String>,
) -> ClusterSnapshot {
    let SnapshotInput { input: PassInput { nodes: all_nodes, .. }, demand, .. } = source;
    let daemons = &demand.daemon_sets;
    let templates: Vec<_> = pools.iter().map(|pool| template(pool, daemons, demand)).collect();
    let mut nodes = Vec::with_capacity(all_nodes.len());
    let owners = owners(pools, all_nodes.len());
    let pods = pods_by_node(demand, all_nodes.len());
    let running = running_daemons(source);
    for (index, ((node, pods), running)) in all_nodes.iter().zip(pods).zip(running).enumerate() {
        let pool = match owners[index] {
            NodeOwner::Pool(pool) => Some(&pools[pool]),
            NodeOwner::Leaving | NodeOwner::NoPool => None,
        };
        let leaving =
            matches!(owners[index], NodeOwner::Leaving) || (pool.is_none() && nodes::is_leaving(node));
        let offer = if leaving { None } else { offer(source, node, pool, &running, names, warnings) };
        let open = offer.is_some();
        let NodeCapacity { profile, free, ports, increments } =
            offer.unwrap_or_else(|| NodeCapacity::of(NodeProfile::of_node(node), Amounts::default()));
        let (place, profile) = (Place::Node(index), Arc::new(profile));
        nodes.push(NodeSetup { place, profile, free, pods, ports, increments, open });
    }
    for (index, (pool, template)) in pools.iter().zip(&templates).enumerate() {
        let Some(TemplateSetup { profile, free, ports, increments }) = template else { continue };
        nodes.extend((0..upcoming(pool.missing(), source.waiting, increments)).map(|_| NodeSetup {
            place: Place::Upcoming(index),
            profile: Arc::clone(profile),
            free: free.clone(),
            pods: Vec::new(),
            ports: ports.clone(),
            increments: increments.clone(),
            open: true,
        }));
    }
    let mut pending = vec![false; demand.constraint_sets.len()];
    demand.groups.iter().for_each(|group| pending[demand.classes[group.class].constraint_set] = true);
    ClusterSnapshot::new(Setup {
        constraint_sets: &demand.constraint_sets,
        classes: &demand.classes,
        topology_counts: &demand.topology_counts,
        pending: &pending,
        nodes,
        templates,
    })
}

fn template(pool: &Pool, daemons: &Daemons, demand: &Demand) -> Option<TemplateSetup> {
    let template = pool.template.as_ref().ok()?;
    let mut offer = NodeCapacity::of(template.profile.clone(), template.allocatable.clone());
    let profile = &template.profile;
    daemons.on(profile).for_each(|daemon| offer.reserve(daemon, demand));
    let NodeCapacity { profile, free, ports, increments } = offer;
    Some(TemplateSetup { profile: Arc::new(profile), free, ports, increments })
}

/// How many of a pool's `missing` nodes are in the snapshot. They are empty and equal, and only pending pods are placed
/// there: with one more than there are such pods, at least one stays empty, as any further ones would. So the requested
/// size of a pool does not determine how much memory a pass needs. If daemons on them raise topology counts, each node
/// counts.
fn upcoming(missing: usize, waiting: usize, increments: &[TopologyCountId]) -> usize {
    if increments.is_empty() { missing.min(waiting.saturating_add(1)) } else { missing }
}

/// The pods on each node, as far as their class is known.
fn pods_by_node(demand: &Demand, nodes: usize) -> Vec<Vec<(PodClassId, usize)>> {
    let mut classes = vec![Vec::new(); nodes];
    for &(class, node) in demand.placed.iter().flatten() {
        classes[node].push(class);
    }
    let counted = |mut classes: Vec<PodClassId>| {
        classes.sort_unstable();
        classes.chunk_by(PartialEq::eq).map(|like| (like[0], like.len())).collect()
    };
    classes.into_iter().map(counted).collect()
}

/// The daemons, by namespace and name, that already have a pod on each node.
fn running_daemons(source: SnapshotInput<'_>) -> Vec<BTreeSet<(&str, &str)>> {
    let mut running = vec![BTreeSet::new(); source.input.nodes.len()];
    if source.demand.daemon_sets.is_empty() {
        return running;
    }
    for (pod, placed) in source.input.pods.iter().zip(&source.demand.placed) {
        if let (Some((_, node)), Some(daemon)) = (placed, pods::daemon_set(pod)) {
            running[*node].insert(daemon);
        }
    }
    running
}

/// The pool a node belongs to.
#[derive(Clone, Copy)]
enum NodeOwner {
    Pool(usize),
    Leaving,
    NoPool,
}

fn owners(pools: &[Pool], nodes: usize) -> Vec<NodeOwner> {
    let mut owners = vec![NodeOwner::NoPool; nodes];
    for (index, pool) in pools.iter().enumerate() {
        pool.staying.iter().for_each(|&node| owners[node] = NodeOwner::Pool(index));
        pool.leaving.iter().for_each(|&node| owners[node] = NodeOwner::Leaving);
    }
    owners
}

/// The capacity of a node before its pods.
struct NodeCapacity {
    profile: NodeProfile,
    free: Amounts,
    ports: Vec<HostPort>,
    /// Raised by daemons whose pods do not exist yet.
    increments: Vec<TopologyCountId>,
}

impl NodeCapacity {
    fn of(profile: NodeProfile, free: Amounts) -> Self {
        Self { profile, free, ports: Vec::new(), increments: Vec::new() }
    }

    /// Reserves a place for a pod of the daemon, which counts for other pods like any pod.
    fn reserve(&mut self, daemon: &Daemon, demand: &Demand) {
        self.free.take(&daemon.request, 1);
        self.ports.extend(daemon.ports.iter().cloned());
        let raised = demand.daemons.get(&(daemon.namespace.clone(), daemon.name.clone()));
        self.increments.extend(raised.into_iter().flatten());
    }
}

/// A node that is up counts with its own capacity; while it starts, with its pool's template (minus the daemons whose
/// pods do not exist yet); one that has been down for too long counts with none.
fn offer(
    source: SnapshotInput<'_>,
    node: &Node,
    pool: Option<&Pool>,
    running: &BTreeSet<(&str, &str)>,
    names: &mut ResourceNames,
    warnings: &mut Vec<String>,
) -> Option<NodeCapacity> {
    let starting =
        pool.and_then(|pool| nodes::starting_until(node, &pool.object).zip(pool.template.as_ref().ok()));
    if let Some((_, template)) = starting.filter(|(until, _)| *until > source.input.observed.now) {
        if nodes::is_cordoned(node) {
            return None;
        }
        let profile = template.profile.worn_by(node);
        let mut offer = NodeCapacity::of(profile.clone(), template.allocatable.clone());
        let missing =
            |daemon: &&Daemon| !running.contains(&(daemon.namespace.as_str(), daemon.name.as_str()));
        let missing = source.demand.daemon_sets.on(&profile).filter(missing);
        missing.for_each(|daemon| offer.reserve(daemon, source.demand));
        return Some(offer);
    }
    if !nodes::is_ready(node) {
        return None;
    }
    match allocatable(node, names) {
        Ok(free) => Some(NodeCapacity::of(NodeProfile::of_node(node), free)),
        Err(problem) => {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            warnings.push(format!("node {name} is left out: {problem} in status.allocatable"));
            None
        }
    }
}
