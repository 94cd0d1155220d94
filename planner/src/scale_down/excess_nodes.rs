//! The nodes that exceed a pool's bounds, and how many of them stay because pending pods would make the pool scale up:
//! no node is created while another one of the pool is removed.

use std::cmp::Reverse;

use crate::index::{Indexed, PassNodeIndex, PoolIndex};
use crate::input::nodes;
use crate::input::observed::PassNodes;
use crate::pools::{Pool, Pools};
use crate::scale_down::workload_pods::WorkloadPods;
use crate::steps;

/// The excess nodes of every pool.
#[derive(Clone, Debug)]
pub(crate) struct ExcessNodes {
    pools: Indexed<PoolIndex, OfPool>,
}

/// The excess nodes of one pool.
#[derive(Clone, Debug)]
struct OfPool {
    /// In the order in which they are removed.
    nodes: Vec<PassNodeIndex>,
    /// How many of them, from the end, stay for pending pods.
    kept: usize,
    /// How many of them fit below the pool's upper bound.
    most: usize,
}

impl OfPool {
    fn going(&self) -> &[PassNodeIndex] {
        &self.nodes[..self.nodes.len().saturating_sub(self.kept)]
    }
}

impl ExcessNodes {
    /// The excess nodes before pending pods are considered: all of them are removed.
    pub(crate) fn of(
        pools: &Pools,
        nodes: &PassNodes,
        workload_pods: &Indexed<PassNodeIndex, WorkloadPods>,
    ) -> Self {
        let of_pool = |pool: &Pool| {
            let nodes = excess_nodes(pool, nodes, workload_pods);
            let most = pool.bounds.max.saturating_sub(pool.bounds.base).min(nodes.len());
            OfPool { nodes, kept: 0, most }
        };
        Self { pools: pools.iter().map(of_pool).collect() }
    }

    /// The nodes of `pool` that are removed.
    pub(crate) fn going(&self, pool: PoolIndex) -> &[PassNodeIndex] {
        self.pools[pool].going()
    }

    /// `pools`, without the nodes that are removed, and with those that stay added to the number of nodes each pool
    /// should have.
    pub(crate) fn applied_to(&self, pools: &Pools) -> Pools {
        let mut pools = pools.clone();
        for (pool, excess_nodes) in pools.iter_mut().zip(&self.pools) {
            excess_nodes.going().iter().for_each(|&node| pool.dismiss(node));
            pool.bounds.base += excess_nodes.kept;
            pool.spared = excess_nodes.kept;
        }
        pools
    }

    /// Keeps nodes of the pools that scale up by `added` while they scale down, and returns whether there were any:
    /// then the pass has to be planned again. At first as many stay as would be added; if that is not enough, as many
    /// as the upper bound allows. So a pool causes at most two more passes.
    pub(crate) fn keep_for(&mut self, added: &Indexed<PoolIndex, usize>) -> bool {
        let mut changed = false;
        for (pool, &added) in self.pools.iter_mut().zip(added) {
            if added > 0 && pool.kept < pool.most {
                pool.kept = if pool.kept == 0 { added.min(pool.most) } else { pool.most };
                changed = true;
            }
        }
        changed
    }
}

/// The nodes to remove because the pool has more than its bounds allow: first those that are not ready, then those with
/// the fewest pods, the newest first; protected ones last.
fn excess_nodes(
    pool: &Pool,
    nodes: &PassNodes,
    workload_pods: &Indexed<PassNodeIndex, WorkloadPods>,
) -> Vec<PassNodeIndex> {
    if !pool.is_planned() || pool.bounds.correction.is_none() {
        return Vec::new();
    }
    let excess = pool.staying.len().saturating_sub(pool.bounds.base);
    steps::count(pool.staying.len());
    let mut candidates = pool.staying.clone();
    candidates.sort_by_key(|&n| {
        let node = &nodes[n];
        (
            nodes::is_protected(node),
            nodes::is_ready(node),
            workload_pods[n].count(),
            Reverse(nodes::created(node)),
            n,
        )
    });
    candidates.truncate(excess);
    candidates
}
