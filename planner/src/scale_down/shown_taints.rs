//! Nodes that stay because they show taints that new nodes of their pool would have: without them these would be forgotten, and the
//! pool would grow for the same pod again. Where the taints are remembered, nodes stay only while they are young.

use std::collections::{BTreeMap, BTreeSet};

use super::input::ScaleDownInput;
use super::model::{Candidate, ScaleDown};
use super::timing::sooner;
use crate::demand::Demand;
use crate::index::{Indexed, PassNodeIndex, PoolIndex};
use crate::pools::Pools;
use crate::pools::shared_taints::SharedTaints;
use crate::requirements::predicates::taints;
use crate::steps;

/// The value of [`ScaleDownInput::repelled`], while so many pods of each entry of pending pods have no place.
pub(super) fn repelled(pools: &Pools, demand: &Demand, left: &[usize]) -> Indexed<PoolIndex, bool> {
    let is_repelled_by = |shared: &SharedTaints| {
        steps::count(demand.groups.len());
        demand.groups.iter().zip(left).any(|(group, &left)| {
            let constraints = &demand.constraint_sets[demand.classes[group.class].constraint_set];
            left > 0 && taints::tolerated(&constraints.tolerations, shared.learnt()).is_err()
        })
    };
    let shared = |pool| shared_taints(pools, pool).filter(|shared| shared.is_believed);
    pools.indexes().map(|pool| shared(pool).is_some_and(is_repelled_by)).collect()
}

/// The `unneeded` nodes that stay for what they show, and why: while a pod waits because of it, and while a node is starting that
/// would be the second to show it, or the first for a while.
pub(super) fn showing(
    input: &ScaleDownInput<'_>,
    pools: &Pools,
    unneeded: &[Candidate],
    scale_down: &mut ScaleDown,
) -> BTreeMap<PassNodeIndex, String> {
    let shared = |pool| Some((pool, shared_taints(pools, pool)?));
    let shared: Vec<(PoolIndex, &SharedTaints)> = pools.indexes().filter_map(shared).collect();
    let mut showing = BTreeMap::new();
    if shared.is_empty() {
        return showing;
    }
    steps::count(unneeded.len());
    let unneeded: BTreeSet<PassNodeIndex> = unneeded.iter().map(|candidate| candidate.node).collect();
    for (pool, shared) in shared {
        let message = if input.repelled[pool] && shared.kept_until > input.now {
            sooner(&mut scale_down.next, shared.kept_until, input.now);
            let (taints, until) = (shared.text(), shared.kept_until);
            format!(
                "a pod waits that does not tolerate {taints} of the node, and a new one of the pool would have it as well; \
                 it stays until {until}, and no other is tried before"
            )
        } else if !shared.is_believed && is_starting(pools, pool) {
            format!("the node has {}, and one that is starting may have it too", shared.text())
        } else {
            continue;
        };
        let kept = shared.kept(|node| unneeded.contains(&node));
        showing.extend(kept.iter().map(|&node| (node, message.clone())));
    }
    showing
}

/// Whether a node of the pool's template is starting.
fn is_starting(pools: &Pools, pool: PoolIndex) -> bool {
    pools[pool].template.as_ref().is_ok_and(|template| !template.teachers.starting.is_empty())
}

fn shared_taints(pools: &Pools, pool: PoolIndex) -> Option<&SharedTaints> {
    pools[pool].template.as_ref().ok()?.shared_taints.as_ref()
}
