//! The existing and upcoming nodes, and their free capacity before pending pods are placed: the input of the pass's
//! [`ClusterSnapshot`].

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::model::ClusterSnapshot;
use super::node_index::Place;
use super::rules::conflict;
use super::setup::{NodeSetup, Setup, TemplateSetup};
use crate::demand::Demand;
use crate::demand::daemons::Daemon;
use crate::demand::node_agents::{NodeAgents, Present};
use crate::index::{Indexed, PassNodeIndex, PoolIndex};
use crate::input::nodes;
use crate::input::observed::PassInput;
use crate::pools::agents::{AgentKey, DAEMON_SET};
use crate::pools::{Pool, Pools, Template, allocatable};
use crate::requirements::node_profile::NodeProfile;
use crate::requirements::pod_class::{ConstraintSetId, HostPort, PodClassId, TopologyCountId};
use crate::resources::{Amounts, ResourceNames};
use crate::steps;

/// What capacity is read from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotInput<'a> {
    /// The objects of the pass.
    pub input: PassInput<'a>,
    /// The pod classes and topology counts of the pass, and the daemons, which use resources of each node.
    pub demand: &'a Demand,
    /// The daemons and other agents that already run on nodes that are starting.
    pub agents: &'a NodeAgents<'a>,
    /// How many pods are pending, including headroom.
    pub waiting: usize,
}

/// The snapshot of a pass before pending pods are placed.
pub(crate) fn snapshot(
    source: SnapshotInput<'_>,
    pools: &Pools,
    names: &mut ResourceNames,
    warnings: &mut Vec<String>,
) -> ClusterSnapshot {
    let SnapshotInput { input: PassInput { nodes: all_nodes, .. }, demand, .. } = source;
    let templates: Indexed<PoolIndex, _> = pools.iter().map(|pool| template(pool, demand)).collect();
    let mut nodes = Vec::with_capacity(all_nodes.len());
    steps::count(all_nodes.len() + demand.placed.len() + demand.groups.len());
    let owners = owners(pools, all_nodes.len());
    let pods = pods_by_node(demand, all_nodes.len());
    for ((index, node), pods) in all_nodes.enumerated().zip(pods) {
        let pool = match owners[index] {
            NodeOwner::Pool(pool) => Some(&pools[pool]),
            NodeOwner::Leaving | NodeOwner::NoPool => None,
        };
        let leaving =
            matches!(owners[index], NodeOwner::Leaving) || (pool.is_none() && nodes::is_leaving(node));
        let offer = if leaving { None } else { offer(source, index, pool, names, warnings) };
        let open = offer.is_some();
        let NodeCapacity { profile, free, ports, increments } =
            offer.unwrap_or_else(|| NodeCapacity::of(NodeProfile::of_node(node), Amounts::default()));
        let (place, profile) = (Place::Node(index), Arc::new(profile));
        nodes.push(NodeSetup { place, profile, free, pods, ports, increments, open });
    }
    for ((index, pool), template) in pools.enumerated().zip(&templates) {
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
    let mut pending: Indexed<ConstraintSetId, bool> = vec![false; demand.constraint_sets.len()].into();
    demand.groups.iter().for_each(|group| pending[demand.classes[group.class].constraint_set] = true);
    ClusterSnapshot::new(Setup {
        constraint_sets: &demand.constraint_sets,
        classes: &demand.classes,
        topology_counts: &demand.topology_counts,
        supplies: &demand.supplies,
        pending: &pending,
        nodes,
        templates,
    })
}

fn template(pool: &Pool, demand: &Demand) -> Option<TemplateSetup> {
    let template = pool.template.as_ref().ok()?;
    let mut offer = NodeCapacity::of(template.profile.clone(), template.allocatable.clone());
    offer.reserve(template, demand, &Present::default());
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
fn pods_by_node(demand: &Demand, nodes: usize) -> Indexed<PassNodeIndex, Vec<(PodClassId, usize)>> {
    let mut classes: Indexed<PassNodeIndex, Vec<PodClassId>> = vec![Vec::new(); nodes].into();
    for &(class, node) in demand.placed.iter().flatten() {
        classes[node].push(class);
    }
    let counted = |mut classes: Vec<PodClassId>| {
        classes.sort_unstable();
        classes.chunk_by(PartialEq::eq).map(|like| (like[0], like.len())).collect()
    };
    classes.into_iter().map(counted).collect()
}

/// The pool a node belongs to.
#[derive(Clone, Copy)]
enum NodeOwner {
    Pool(PoolIndex),
    Leaving,
    NoPool,
}

fn owners(pools: &Pools, nodes: usize) -> Indexed<PassNodeIndex, NodeOwner> {
    let mut owners: Indexed<PassNodeIndex, NodeOwner> = vec![NodeOwner::NoPool; nodes].into();
    for (index, pool) in pools.enumerated() {
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

    /// Reserves places for what runs on each node of the template and is not `present` yet: static pods, and then those daemons
    /// that fit, one after the other in their order, beside the pods that are there. A daemon that does not fit takes
    /// nothing, whatever it lacks: kube-scheduler leaves its pod pending. One that preempts does not see pods of a lower priority.
    fn reserve(&mut self, template: &Template, demand: &Demand, present: &Present<'_>) {
        steps::count(1 + template.agents.len());
        for agent in template.agents.iter().filter(|agent| !agent.is_daemon) {
            if !present.agents.contains(&agent.key()) {
                self.free.take(&agent.request, 1);
                self.ports.extend(agent.ports.iter().cloned());
                self.increments.extend(&agent.increments);
            }
        }
        let daemons: Vec<&Daemon> = demand.daemon_sets.on(&self.profile).collect();
        for daemon in daemons {
            let key = AgentKey { kind: DAEMON_SET, namespace: &daemon.namespace, name: &daemon.name };
            let seen = template.agents.iter().find(|agent| agent.is_daemon && agent.key() == key);
            let request = seen.map_or(&daemon.request, |agent| &agent.request);
            if !present.agents.contains(&key) && self.has_room(daemon, request, &present.pods, demand) {
                self.take(daemon, request, demand);
            }
        }
    }

    fn has_room(
        &self,
        daemon: &Daemon,
        request: &Amounts,
        present: &[(i32, PodClassId)],
        demand: &Demand,
    ) -> bool {
        let clear = |taken: &[HostPort]| {
            !taken.iter().any(|taken| daemon.ports.iter().any(|port| conflict(port, taken)))
        };
        let stays = |pod: &&(i32, PodClassId)| !daemon.preempts || pod.0 >= daemon.priority;
        let mut free = self.free.clone();
        steps::count(1 + present.len());
        for &(_, class) in present.iter().filter(stays) {
            let class = &demand.classes[class];
            if !clear(&class.ports) {
                return false;
            }
            free.take(&class.request, 1);
        }
        clear(&self.ports) && free.fits(request, 1) == 1
    }

    /// Reserves a place for a pod of the daemon, which counts for other pods like any pod.
    fn take(&mut self, daemon: &Daemon, request: &Amounts, demand: &Demand) {
        self.free.take(request, 1);
        self.ports.extend(daemon.ports.iter().cloned());
        let raised = demand.daemons.get(&(daemon.namespace.clone(), daemon.name.clone()));
        self.increments.extend(raised.into_iter().flatten());
    }
}

/// A node that is up counts with its own capacity; while it starts, with its pool's template (minus the daemons and other
/// agents whose pods do not exist yet), and once it is Ready with what it has beyond that; one that has been down for too long
/// counts with none.
fn offer(
    source: SnapshotInput<'_>,
    index: PassNodeIndex,
    pool: Option<&Pool>,
    names: &mut ResourceNames,
    warnings: &mut Vec<String>,
) -> Option<NodeCapacity> {
    let SnapshotInput { input, demand, agents, .. } = source;
    let node: &Node = &input.nodes[index];
    let now = input.observed.now;
    let starting = pool.and_then(|pool| pool.starting_until(index).zip(pool.template.as_ref().ok()));
    if let Some((_, template)) = starting.filter(|(until, _)| *until > now) {
        if nodes::is_cordoned(node) {
            return None;
        }
        let mut free = template.allocatable.clone();
        // What cannot be read is warned of when the node is up.
        if nodes::is_ready(node)
            && let Ok(shown) = allocatable(node, names)
        {
            free.raise_to(&shown);
        }
        let mut offer = NodeCapacity::of(template.profile.worn_by(node), free);
        offer.reserve(template, demand, agents.present(index).unwrap_or(&Present::default()));
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
