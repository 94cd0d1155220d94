//! The planner: from the objects of a cluster to how many nodes each pool should have, and why.
//!
//! Pure. The same [`Observed`] always gives the same [`Plan`], in whatever order the objects come: there is no client in
//! here, no clock, no randomness and no log. Whoever wants to know what the Autoscaler would do can ask [`plan`].
//!
//! One pass goes: nodes that bounds leave no place for → pending pods onto nodes that are there or on their way → new
//! nodes over all pools for the pods that are left (where a pool would grow while it shrinks, it keeps nodes and the pods
//! are placed anew) → empty nodes that nothing needs.

pub mod bounds;
pub mod capacity;
pub mod constraints;
pub mod decision;
pub mod demand;
pub mod expander;
pub mod index;
pub mod keepers;
pub mod nodes;
pub mod observed;
pub mod packing;
pub mod placement;
pub mod pods;
pub mod pools;
pub mod predicates;
pub mod profile;
pub mod reasons;
pub mod requests;
pub mod resources;
pub mod scale_down;
pub mod scale_up;
pub mod selection;
pub mod summary;
pub mod surplus;
pub mod unplanned;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};

pub use decision::{Fate, NodeVerdict, Plan, PodOutcome, PoolDecision, PoolRejection};
pub use observed::{Observed, Recommendations};

use capacity::{Capacity, Place, Warnings};
use demand::Demand;
use observed::key;
use placement::Placement;
use pools::Pool;
use reasons::PoolReason;
use resources::{Amounts, Names};
use scale_down::Situation;
use scale_up::Growth;
use surplus::Surplus;

/// Most nodes that a status can name, as victims or as unneeded: `maxItems` of the lists in `status.autoscaling`.
pub const MAX_NAMED_NODES: usize = 1000;

/// Plans a pass.
pub fn plan(observed: &Observed) -> Plan {
    let all_nodes = sorted(&observed.nodes, |node: &Node| &node.metadata);
    let all_pods = sorted(&observed.pods, |pod: &Pod| &pod.metadata);
    let mut names = Names::default();

    let pools = pools::pools(observed, &all_nodes, &mut names);
    let reference = largest(&pools, &all_nodes, &mut names);
    let demand = Demand::of(&all_pods, &mut names, &reference);
    let keepers = keepers::keepers(&all_nodes, &all_pods, observed.now);
    let mut surplus = Surplus::of(&pools, &all_nodes, &keepers);
    let (pools, settled) = loop {
        let pools = surplus.applied_to(&pools);
        let settled = settle(observed, &all_nodes, &all_pods, &pools, &demand, &mut names);
        if !surplus.keep_for(&settled.growth.added) {
            break (pools, settled);
        }
    };
    let Settled { placement, fitting, growth, warnings } = settled;

    let planned = planned(&placement, all_nodes.len());
    let growing: Vec<_> = growth.added.iter().map(|&added| added > 0).collect();
    let situation = Situation {
        now: observed.now,
        nodes: &all_nodes,
        keepers: &keepers,
        planned: &planned,
        growing: &growing,
    };
    let removal = scale_down::scale_down(&situation, &pools);

    let pass = Pass { nodes: &all_nodes, pods: &all_pods, pools: &pools, demand: &demand, names: &names };
    Plan {
        pools: pass.pool_decisions(&growth, &removal, &surplus),
        pods: pass.pod_outcomes(&placement, &fitting, &growth),
        nodes: pass.node_verdicts(&removal, &surplus),
        warnings,
        next: removal.next,
    }
}

/// Where the pending pods go.
struct Settled {
    placement: Placement,
    /// For each group, how many pods went to which bin.
    fitting: Vec<Vec<(usize, usize)>>,
    growth: Growth,
    warnings: Warnings,
}

/// Places the pending pods: on what is there or on its way first, then on new nodes.
fn settle(
    observed: &Observed,
    all_nodes: &[Arc<Node>],
    all_pods: &[Arc<Pod>],
    pools: &[Pool],
    demand: &Demand,
    names: &mut Names,
) -> Settled {
    let mut warnings = Warnings::new();
    let capacity = Capacity::of(observed, all_nodes, all_pods, pools, &demand.classes, names, &mut warnings);
    let mut placement = Placement::new(capacity, &demand.classes);
    let fitting: Vec<_> =
        demand.groups.iter().map(|g| placement.place(g.class, &g.request, g.pods.len())).collect();
    let left: Vec<_> = demand
        .groups
        .iter()
        .zip(&fitting)
        .map(|(g, f)| g.pods.len() - f.iter().map(|p| p.1).sum::<usize>())
        .collect();
    let growth = scale_up::scale_up(pools, demand, &left);
    Settled { placement, fitting, growth, warnings }
}

/// Plans a pass of the operator itself. Pools whose autoscaler only recommends are left out of the decisions that are
/// carried out, or pods would be planned onto nodes that nobody makes; what would be done about them is planned apart.
pub fn plan_for_cluster(observed: &Observed) -> Plan {
    let with = |recommendations| plan(&Observed { recommendations, ..observed.clone() });
    let mut acting = with(Recommendations::Exclude);
    if acting.pools.iter().any(|decision| decision.reason == PoolReason::RecommendOnly) {
        let advice = with(Recommendations::Include);
        acting.next = acting.next.into_iter().chain(advice.next).min();
        for (decision, advised) in acting.pools.iter_mut().zip(advice.pools) {
            if decision.reason == PoolReason::RecommendOnly {
                *decision = advised;
            }
        }
    }
    acting.pools = acting.pools.into_iter().map(|decision| decision.limited_to(MAX_NAMED_NODES)).collect();
    acting
}

/// What the summaries of a pass look things up in.
struct Pass<'a> {
    nodes: &'a [Arc<Node>],
    pods: &'a [Arc<Pod>],
    pools: &'a [Pool],
    demand: &'a Demand,
    names: &'a Names,
}

fn sorted<K>(
    objects: &[Arc<K>],
    metadata: impl Fn(&K) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> Vec<Arc<K>> {
    let mut objects = objects.to_vec();
    objects.sort_by(|a, b| key(metadata(a)).cmp(&key(metadata(b))));
    objects
}

/// The greatest amount of each resource that a node has or would have.
fn largest(pools: &[Pool], all_nodes: &[Arc<Node>], names: &mut Names) -> Amounts {
    let mut largest = Amounts::default();
    pools
        .iter()
        .filter_map(|pool| pool.template.as_ref().ok())
        .for_each(|t| largest.raise_to(&t.allocatable));
    for node in all_nodes {
        if let Ok(amounts) = pools::allocatable(node, names) {
            largest.raise_to(&amounts);
        }
    }
    largest
}

/// How many pending pods this pass planned onto each existing node.
fn planned(placement: &Placement, nodes: usize) -> Vec<usize> {
    let mut planned = vec![0; nodes];
    for (bin, pods) in placement.planned() {
        if let Place::Node(node) = bin.place {
            planned[node] = pods;
        }
    }
    planned
}
