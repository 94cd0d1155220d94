//! The nodes that are there or on their way, and what is free on each: where pending pods are tried before any pool
//! grows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Node, Pod};

use super::{
    constraints::Constraints,
    nodes,
    observed::Observed,
    pods,
    pools::{Pool, allocatable},
    predicates,
    profile::Profile,
    requests,
    resources::{Amounts, Names},
};

/// A node, there or on its way, that can take pods.
#[derive(Clone, Debug)]
pub struct Bin {
    /// Which one.
    pub place: Place,
    /// Index into [`Capacity::families`].
    pub family: usize,
    /// What is free.
    pub free: Amounts,
}

/// Which node a [`Bin`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// An existing node, by its index in the pass.
    Node(usize),
    /// A node of that pool that was asked for and does not exist yet.
    Upcoming(usize),
}

/// All of them: existing nodes by name first, then upcoming ones by pool.
#[derive(Clone, Debug, Default)]
pub struct Capacity {
    /// The nodes.
    pub bins: Vec<Bin>,
    /// Their profiles, cut down to what the pending pods' constraints can tell apart, so that alike nodes are one
    /// family.
    pub families: Vec<Profile>,
}

/// What cannot be read, for people.
pub type Warnings = Vec<String>;

impl Capacity {
    /// The capacity of a pass. `all_nodes` and `all_pods` are in the order of names.
    pub fn of(
        observed: &Observed,
        all_nodes: &[Arc<Node>],
        all_pods: &[Arc<Pod>],
        pools: &[Pool],
        classes: &[Constraints],
        names: &mut Names,
        warnings: &mut Warnings,
    ) -> Self {
        let usage = usage(all_nodes, all_pods, names, warnings);
        let owners = owners(pools, all_nodes.len());
        let mut families = Families::new(classes);
        let mut bins = Vec::with_capacity(all_nodes.len());
        for (index, node) in all_nodes.iter().enumerate() {
            let pool = match owners[index] {
                Owner::Leaving => continue,
                Owner::Pool(pool) => Some(&pools[pool]),
                Owner::Nobody if nodes::is_leaving(node) => continue,
                Owner::Nobody => None,
            };
            let Some((profile, mut free)) = offer(observed, node, pool, names, warnings) else { continue };
            for request in &usage[index] {
                free.take(request, 1);
            }
            bins.push(Bin { place: Place::Node(index), family: families.of(profile), free });
        }
        for (index, pool) in pools.iter().enumerate() {
            if let (Ok(template), true) = (&pool.template, pool.missing() > 0) {
                let family = families.of(template.profile.clone());
                let free = template.allocatable.clone();
                bins.extend((0..pool.missing()).map(|_| Bin {
                    place: Place::Upcoming(index),
                    family,
                    free: free.clone(),
                }));
            }
        }
        Self { bins, families: families.profiles }
    }

    /// Which families admit pods of `class`.
    pub fn admitting(&self, class: &Constraints) -> Vec<bool> {
        self.families.iter().map(|family| predicates::admits(class, family).is_ok()).collect()
    }
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

/// What a node offers before its pods: itself when it is up, its pool's template while it starts, nothing when it has
/// been down for too long.
fn offer(
    observed: &Observed,
    node: &Node,
    pool: Option<&Pool>,
    names: &mut Names,
    warnings: &mut Warnings,
) -> Option<(Profile, Amounts)> {
    let starting =
        pool.and_then(|pool| nodes::starting_until(node, &pool.object).zip(pool.template.as_ref().ok()));
    if let Some((_, template)) = starting.filter(|(until, _)| *until > observed.now) {
        return (!nodes::is_cordoned(node))
            .then(|| (template.profile.worn_by(node), template.allocatable.clone()));
    }
    if !nodes::is_ready(node) {
        return None;
    }
    match allocatable(node, names) {
        Ok(free) => Some((Profile::of_node(node), free)),
        Err(problem) => {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            warnings.push(format!("node {name} is left out: {problem} in status.allocatable"));
            None
        }
    }
}

/// The requests of the pods on each node.
fn usage(
    all_nodes: &[Arc<Node>],
    all_pods: &[Arc<Pod>],
    names: &mut Names,
    warnings: &mut Warnings,
) -> Vec<Vec<Amounts>> {
    let by_name: BTreeMap<&str, usize> =
        all_nodes.iter().enumerate().filter_map(|(i, n)| Some((n.metadata.name.as_deref()?, i))).collect();
    let mut usage = vec![Vec::new(); all_nodes.len()];
    for pod in all_pods {
        let Some(&node) = pods::occupied_node(pod).and_then(|name| by_name.get(name)) else { continue };
        match requests::of(pod, names) {
            Ok(request) => usage[node].push(request),
            Err(problem) => {
                let (namespace, name) = super::observed::key(&pod.metadata);
                warnings.push(format!(
                    "pod {namespace}/{name} counts as asking for nothing: {problem} in its requests"
                ));
            }
        }
    }
    usage
}

/// Interns profiles, reduced to the labels (and the name) that some constraint looks at.
struct Families<'a> {
    keys: BTreeSet<&'a str>,
    by_name: bool,
    ids: BTreeMap<Profile, usize>,
    profiles: Vec<Profile>,
}

impl<'a> Families<'a> {
    fn new(classes: &'a [Constraints]) -> Self {
        let mut keys = BTreeSet::new();
        for class in classes {
            class.label_keys(&mut keys);
        }
        let by_name = classes.iter().any(Constraints::names_nodes);
        Self { keys, by_name, ids: BTreeMap::new(), profiles: Vec::new() }
    }

    fn of(&mut self, profile: Profile) -> usize {
        let Profile { name, mut labels, taints } = profile;
        labels.retain(|key, _| self.keys.contains(key.as_str()));
        let reduced = Profile { name: name.filter(|_| self.by_name), labels, taints };
        let next = self.profiles.len();
        let id = *self.ids.entry(reduced.clone()).or_insert(next);
        if id == next {
            self.profiles.push(reduced);
        }
        id
    }
}
