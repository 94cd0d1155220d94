//! How much each pool grows for the pods that found no place: over all pools in one pass. The pool with the best offer
//! takes what it can; what is left goes to the next.

use std::cmp::Ordering;

use super::{
    constraints::Constraints,
    demand::{Demand, Group},
    expander,
    packing::{Packing, pack},
    pools::Pool,
    predicates,
    reasons::Rejection,
    resources::{Amounts, Basic, Names, Resource, display},
};

/// What the pools grow by.
#[derive(Clone, Debug, Default)]
pub struct Growth {
    /// New nodes, by pool.
    pub added: Vec<usize>,
    /// Whether a bound cut what pods asked for, by pool.
    pub limited: Vec<bool>,
    /// Where pods of each group go: pool and number.
    pub assigned: Vec<Vec<(usize, usize)>>,
    /// Pods of each group that no pool can take.
    pub left: Vec<usize>,
}

/// Plans new nodes for what is `left` of each group.
pub fn scale_up(pools: &[Pool], demand: &Demand, left: &[usize]) -> Growth {
    let search = Search::new(pools, demand, left);
    let mut growth = search.clone().finished();
    for pool in 0..pools.len() {
        growth.limited[pool] = growth.limited[pool] && search.is_held_back(pool, &growth);
    }
    growth
}

/// What a pool offers for the pods that are left.
#[derive(Clone, Debug)]
enum Bid {
    /// That has to be found out, again.
    Unknown,
    /// It can take none of them.
    Nothing,
    /// These nodes.
    Nodes(Packing),
}

impl Bid {
    const fn nodes(&self) -> Option<&Packing> {
        match self {
            Self::Nodes(packing) => Some(packing),
            Self::Unknown | Self::Nothing => None,
        }
    }
}

#[derive(Clone)]
struct Search<'a> {
    pools: &'a [Pool],
    groups: &'a [Group],
    /// Which classes of pods each pool's nodes admit.
    hosts: Vec<Vec<bool>>,
    /// How many more nodes each pool may have.
    room: Vec<usize>,
    /// What each pool offers now.
    offers: Vec<Bid>,
    growth: Growth,
}

impl<'a> Search<'a> {
    fn new(pools: &'a [Pool], demand: &'a Demand, left: &[usize]) -> Self {
        let open = |pool: &&Pool| pool.closed().is_none() && pool.is_planned();
        let hosts = |pool: &Pool| match (&pool.template, open(&pool)) {
            (Ok(template), true) => demand
                .classes
                .iter()
                .map(|class| predicates::admits(class, &template.profile).is_ok())
                .collect(),
            _ => vec![false; demand.classes.len()],
        };
        Self {
            pools,
            groups: &demand.groups,
            hosts: pools.iter().map(hosts).collect(),
            room: pools.iter().map(Pool::room).collect(),
            offers: vec![Bid::Unknown; pools.len()],
            growth: Growth {
                added: vec![0; pools.len()],
                limited: vec![false; pools.len()],
                assigned: vec![Vec::new(); demand.groups.len()],
                left: left.to_vec(),
            },
        }
    }

    fn finished(mut self) -> Growth {
        while let Some((pool, packing)) = self.best() {
            self.take(pool, &packing);
        }
        self.growth
    }

    /// Whether `pool` would grow further than in `growth` if it had no bound. That a bound once cut an offer does not
    /// say so: other pools may have had the better offer for the pods in question all along. `self` has not begun.
    fn is_held_back(&self, pool: usize, growth: &Growth) -> bool {
        let Ok(template) = &self.pools[pool].template else { return false };
        let takes =
            |group: &Group| self.hosts[pool][group.class] && template.allocatable.fits(&group.request, 1) > 0;
        // Pods that nobody takes are all the proof that is needed, and spare the second search.
        if self.groups.iter().zip(&growth.left).any(|(group, &left)| left > 0 && takes(group)) {
            return true;
        }
        let mut boundless = self.clone();
        boundless.room[pool] = usize::MAX;
        boundless.finished().added[pool] > growth.added[pool]
    }

    /// The pool with the best offer. A pool that is full makes one too, as if it were not: when that is the best of
    /// all, its bound has cut what the pods asked for, and the next best is looked at.
    fn best(&mut self) -> Option<(usize, Packing)> {
        loop {
            for pool in 0..self.pools.len() {
                if matches!(self.offers[pool], Bid::Unknown) {
                    self.offers[pool] = self.offer(pool).map_or(Bid::Nothing, Bid::Nodes);
                }
            }
            let candidates =
                self.offers.iter().enumerate().filter_map(|(pool, bid)| Some((pool, bid.nodes()?)));
            let (pool, packing) = candidates.min_by(|(p, a), (q, b)| better(*p, a, *q, b))?;
            if self.room[pool] > 0 {
                return Some((pool, packing.clone()));
            }
            self.growth.limited[pool] = true;
            self.offers[pool] = Bid::Nothing;
        }
    }

    fn offer(&self, pool: usize) -> Option<Packing> {
        let template = self.pools[pool].template.as_ref().ok()?;
        let room = if self.room[pool] > 0 { self.room[pool] } else { usize::MAX };
        pack(template, self.groups, &self.growth.left, &self.hosts[pool], room)
    }

    fn take(&mut self, pool: usize, packing: &Packing) {
        self.growth.added[pool] += packing.nodes;
        self.growth.limited[pool] |= packing.cut;
        self.room[pool] = self.room[pool].saturating_sub(packing.nodes);
        for &(group, count) in &packing.placed {
            self.growth.assigned[group].push((pool, count));
            self.growth.left[group] -= count;
        }
        for (other, bid) in self.offers.iter_mut().enumerate() {
            // What an offer had to leave out is not in its list, and may have found its place now.
            let outdated = |theirs: &Packing| theirs.cut || share_a_group(&theirs.placed, &packing.placed);
            if other == pool || bid.nodes().is_some_and(outdated) {
                *bid = Bid::Unknown;
            }
        }
    }
}

/// Both lists are in the order of groups.
fn share_a_group(a: &[(usize, usize)], b: &[(usize, usize)]) -> bool {
    a.iter().any(|(group, _)| b.binary_search_by_key(group, |(other, _)| *other).is_ok())
}

/// Pools are in the order of namespaces and names, so their indexes break ties.
fn better(pool: usize, a: &Packing, other: usize, b: &Packing) -> Ordering {
    expander::least_waste(&a.offer, &b.offer).then(pool.cmp(&other))
}

/// Why each selected pool cannot take one more pod of a group, by pool.
pub fn rejections(
    pools: &[Pool],
    class: &Constraints,
    request: &Amounts,
    names: &Names,
) -> Vec<(usize, Rejection)> {
    let selected = pools.iter().enumerate().filter(|(_, pool)| pool.is_selected());
    selected.map(|(index, pool)| (index, rejection(pool, class, request, names))).collect()
}

fn rejection(pool: &Pool, class: &Constraints, request: &Amounts, names: &Names) -> Rejection {
    if let Some(closed) = pool.closed() {
        return closed;
    }
    let template = match &pool.template {
        Ok(template) => template,
        Err(problem) => return Rejection::InvalidTemplate(problem.clone()),
    };
    if let Err(rejection) = predicates::admits(class, &template.profile) {
        return rejection;
    }
    match template.allocatable.shortage(request) {
        Some(resource) => Rejection::Insufficient {
            reason: shortage_reason(resource),
            resource: names.name(resource).to_owned(),
            asked: display(resource, request.get(resource)),
            offered: display(resource, template.allocatable.get(resource)),
        },
        None => Rejection::MaxReplicasReached { max: pool.bounds.max },
    }
}

const fn shortage_reason(resource: Resource) -> &'static str {
    match resource {
        Resource::Basic(Basic::Pods) => "TooManyPods",
        Resource::Basic(Basic::Cpu) => "InsufficientCpu",
        Resource::Basic(Basic::Memory) => "InsufficientMemory",
        Resource::Basic(Basic::EphemeralStorage) => "InsufficientEphemeralStorage",
        Resource::Scalar(_) => "InsufficientResource",
    }
}
