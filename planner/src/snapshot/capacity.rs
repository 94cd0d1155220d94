//! The nodes that are there or on their way, and what is free on each before pending pods are placed: what the pass's
//! [`World`] is made of.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::{NodeSetup, Place, Setup, TemplateSetup, World};
use crate::demand::Workload;
use crate::demand::daemons::{Daemon, Daemons};
use crate::input::observed::Observed;
use crate::input::pod_info::PodInfo;
use crate::input::{nodes, pods};
use crate::pools::{Pool, allocatable};
use crate::requirements::kinds::{HostPort, KindId, TallyId};
use crate::requirements::profile::Profile;
use crate::resources::{Amounts, Names};

/// What capacity is read from. Nodes and pods are in the order of names.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The objects of the pass.
    pub observed: &'a Observed,
    /// Its nodes.
    pub nodes: &'a [Arc<Node>],
    /// Its pods.
    pub pods: &'a [Arc<PodInfo>],
    /// What its pods are like.
    pub demand: &'a Workload,
    /// What daemons take of each node.
    pub daemons: &'a Daemons,
    /// How many pods wait for a place, those of the headroom included.
    pub waiting: usize,
}

/// The world of a pass before pending pods are placed.
pub fn world(source: Source<'_>, pools: &[Pool], names: &mut Names, warnings: &mut Vec<String>) -> World {
    let Source { nodes: all_nodes, demand, daemons, .. } = source;
    let templates: Vec<_> = pools.iter().map(|pool| template(pool, daemons, demand)).collect();
    let mut nodes = Vec::with_capacity(all_nodes.len());
    let owners = owners(pools, all_nodes.len());
    let pods = pods_by_node(demand, all_nodes.len());
    let running = running_daemons(source);
    for (index, ((node, pods), running)) in all_nodes.iter().zip(pods).zip(running).enumerate() {
        let pool = match owners[index] {
            Owner::Pool(pool) => Some(&pools[pool]),
            Owner::Leaving | Owner::Nobody => None,
        };
        let leaving = matches!(owners[index], Owner::Leaving) || (pool.is_none() && nodes::is_leaving(node));
        let offer = if leaving { None } else { offer(source, node, pool, &running, names, warnings) };
        let open = offer.is_some();
        let Offer { profile, free, ports, raises } =
            offer.unwrap_or_else(|| Offer::of(Profile::of_node(node), Amounts::default()));
        let (place, profile) = (Place::Node(index), Arc::new(profile));
        nodes.push(NodeSetup { place, profile, free, pods, ports, raises, open });
    }
    for (index, (pool, template)) in pools.iter().zip(&templates).enumerate() {
        let Some(TemplateSetup { profile, free, ports, raises }) = template else { continue };
        nodes.extend((0..upcoming(pool.missing(), source.waiting, raises)).map(|_| NodeSetup {
            place: Place::Upcoming(index),
            profile: Arc::clone(profile),
            free: free.clone(),
            pods: Vec::new(),
            ports: ports.clone(),
            raises: raises.clone(),
            open: true,
        }));
    }
    let mut pending = vec![false; demand.classes.len()];
    demand.groups.iter().for_each(|group| pending[demand.kinds[group.kind].class] = true);
    World::new(Setup {
        classes: &demand.classes,
        kinds: &demand.kinds,
        tallies: &demand.tallies,
        pending: &pending,
        nodes,
        templates,
    })
}

fn template(pool: &Pool, daemons: &Daemons, demand: &Workload) -> Option<TemplateSetup> {
    let template = pool.template.as_ref().ok()?;
    let mut offer = Offer::of(template.profile.clone(), template.allocatable.clone());
    let profile = &template.profile;
    daemons.on(profile).for_each(|daemon| offer.reserve(daemon, demand));
    let Offer { profile, free, ports, raises } = offer;
    Some(TemplateSetup { profile: Arc::new(profile), free, ports, raises })
}

/// How many of a pool's `missing` nodes are in the world. They are empty and alike, and only pods that wait for a place
/// go there: with one more than there are such pods, one at least stays empty, as more would. So what a pool asks for
/// does not say how much memory a pass takes. Daemons that other pods look at make each node count.
fn upcoming(missing: usize, waiting: usize, raises: &[TallyId]) -> usize {
    if raises.is_empty() { missing.min(waiting.saturating_add(1)) } else { missing }
}

/// The pods on each node whose kind is known.
fn pods_by_node(demand: &Workload, nodes: usize) -> Vec<Vec<(KindId, usize)>> {
    let mut kinds = vec![Vec::new(); nodes];
    for &(kind, node) in demand.placed.iter().flatten() {
        kinds[node].push(kind);
    }
    let counted = |mut kinds: Vec<KindId>| {
        kinds.sort_unstable();
        kinds.chunk_by(PartialEq::eq).map(|like| (like[0], like.len())).collect()
    };
    kinds.into_iter().map(counted).collect()
}

/// The daemons, by namespace and name, that have a pod on each node already.
fn running_daemons(source: Source<'_>) -> Vec<BTreeSet<(&str, &str)>> {
    let mut running = vec![BTreeSet::new(); source.nodes.len()];
    if source.daemons.is_empty() {
        return running;
    }
    for (pod, placed) in source.pods.iter().zip(&source.demand.placed) {
        if let (Some((_, node)), Some(daemon)) = (placed, pods::daemon_set(pod)) {
            running[*node].insert(daemon);
        }
    }
    running
}

/// Whose a node is.
#[derive(Clone, Copy)]
enum Owner {
    Pool(usize),
    Leaving,
    Nobody,
}

fn owners(pools: &[Pool], nodes: usize) -> Vec<Owner> {
    let mut owners = vec![Owner::Nobody; nodes];
    for (index, pool) in pools.iter().enumerate() {
        pool.staying.iter().for_each(|&node| owners[node] = Owner::Pool(index));
        pool.leaving.iter().for_each(|&node| owners[node] = Owner::Leaving);
    }
    owners
}

/// What a node offers before its pods.
struct Offer {
    profile: Profile,
    free: Amounts,
    ports: Vec<HostPort>,
    /// By daemons that are still to come.
    raises: Vec<TallyId>,
}

impl Offer {
    fn of(profile: Profile, free: Amounts) -> Self {
        Self { profile, free, ports: Vec::new(), raises: Vec::new() }
    }

    /// Keeps a place for a pod of the daemon, which other pods see as they see any pod.
    fn reserve(&mut self, daemon: &Daemon, demand: &Workload) {
        self.free.take(&daemon.request, 1);
        self.ports.extend(daemon.ports.iter().cloned());
        let raised = demand.daemons.get(&(daemon.namespace.clone(), daemon.name.clone()));
        self.raises.extend(raised.into_iter().flatten());
    }
}

/// A node offers itself when it is up, its pool's template (less the daemons that are not there yet) while it starts,
/// nothing when it has been down for too long.
fn offer(
    source: Source<'_>,
    node: &Node,
    pool: Option<&Pool>,
    running: &BTreeSet<(&str, &str)>,
    names: &mut Names,
    warnings: &mut Vec<String>,
) -> Option<Offer> {
    let starting =
        pool.and_then(|pool| nodes::starting_until(node, &pool.object).zip(pool.template.as_ref().ok()));
    if let Some((_, template)) = starting.filter(|(until, _)| *until > source.observed.now) {
        if nodes::is_cordoned(node) {
            return None;
        }
        let profile = template.profile.worn_by(node);
        let mut offer = Offer::of(profile.clone(), template.allocatable.clone());
        let missing =
            |daemon: &&Daemon| !running.contains(&(daemon.namespace.as_str(), daemon.name.as_str()));
        let missing = source.daemons.on(&profile).filter(missing);
        missing.for_each(|daemon| offer.reserve(daemon, source.demand));
        return Some(offer);
    }
    if !nodes::is_ready(node) {
        return None;
    }
    match allocatable(node, names) {
        Ok(free) => Some(Offer::of(Profile::of_node(node), free)),
        Err(problem) => {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            warnings.push(format!("node {name} is left out: {problem} in status.allocatable"));
            None
        }
    }
}
