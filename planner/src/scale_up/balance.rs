//! Balances the scale-up between pools that are declared equal except for a little memory and for labels that make no difference
//! ([`similarity`](super::similarity)): the smallest first. What their nodes have shown makes none either: kernels report a few KiB
//! more or less, and a pool without nodes has shown nothing. Only a pool whose nodes keep a startup taint is not balanced with
//! others: their pods do not fit there.

use shared_crds::v1alpha1::Expander;

use crate::index::{Indexed, PoolIndex, index_type};
use crate::input::selection::AutoscalerAssignment;
use crate::pools::{Pool, Pools, Template};
use crate::requirements::pod_class::{PodClass, PodClassId};
use crate::requirements::predicates::node_affinity;
use crate::resources::{Amounts, Basic, Resource};
use crate::scale_up::similarity::is_ignored;
use crate::snapshot::ClusterSnapshot;
use crate::steps;

/// By how many thousandths of the larger one the memory of balanced pools may differ: Cluster Autoscaler's
/// `MaxCapacityMemoryDifferenceRatio`.
const MEMORY_DIFFERENCE_PER_MILLE: i128 = 15;

/// Index of a set of pools that are balanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BalancedSetId(usize);
index_type!(BalancedSetId);

/// The pools that can scale up in this pass, by index, grouped into sets that are balanced.
pub(crate) fn sets(pools: &Pools) -> Indexed<BalancedSetId, Vec<PoolIndex>> {
    let mut sets: Indexed<BalancedSetId, Vec<PoolIndex>> = Indexed::default();
    for (index, pool) in pools.enumerated() {
        if !pool.is_planned() || pool.closed().is_some() {
            continue;
        }
        match sets.iter_mut().find(|set| alike(&pools[set[0]], pool)) {
            Some(set) => set.push(index),
            None => {
                sets.push(vec![index]);
            }
        }
    }
    sets
}

fn alike(a: &Pool, b: &Pool) -> bool {
    let (Ok(of_a), Ok(of_b)) = (&a.template, &b.template) else { return false };
    let (AutoscalerAssignment::Planned(by_a), AutoscalerAssignment::Planned(by_b)) =
        (&a.assignment, &b.assignment)
    else {
        return false;
    };
    let same_owner =
        by_a.metadata.namespace == by_b.metadata.namespace && by_a.metadata.name == by_b.metadata.name;
    let by_weight = by_a.spec.expander == Expander::Priority;
    same_owner
        && (!by_weight || weight(a) == weight(b))
        && is_alike(&of_a.promised, &of_b.promised)
        && is_alike(&of_a.capacity, &of_b.capacity)
        && of_a.balanced_taints().eq(of_b.balanced_taints())
        && labels(of_a).eq(labels(of_b))
}

/// Whether the amounts are equal but for a little memory: templates that were written from what nodes report differ by a few KiB.
fn is_alike(a: &Amounts, b: &Amounts) -> bool {
    let memory = Resource::Basic(Basic::Memory);
    let [one, other] = [a, b].map(|amounts| i128::from(amounts.get(memory)));
    // The amounts of each pool are compared with those of each set: they are copied only where the memory is near.
    let is_near = (one - other).abs() * 1000 <= one.max(other) * MEMORY_DIFFERENCE_PER_MILLE;
    is_near && {
        let mut with_others_memory = a.clone();
        with_others_memory.set(memory, b.get(memory));
        with_others_memory == *b
    }
}

fn labels(template: &Template) -> impl Iterator<Item = (&String, &String)> {
    template.declared_labels.iter().filter(|(key, _)| !is_ignored(key))
}

/// What the expander `Priority` compares.
pub(crate) fn weight(pool: &Pool) -> i32 {
    pool.object.spec.weight.unwrap_or(1)
}

/// How strongly the pods of a class prefer nodes of this template.
pub(crate) fn preference(class: &PodClass, template: &Template) -> i64 {
    let holds = |term| node_affinity::matches(Some(std::slice::from_ref(term)), &template.profile).is_ok();
    class.preferred.iter().filter(|p| holds(&p.term)).map(|p| i64::from(p.weight)).sum()
}

/// How far the pools have scaled up in a plan.
#[derive(Clone, Debug)]
pub(crate) struct PlannedSizes<'a> {
    /// The pools.
    pub pools: &'a Pools,
    /// Number of new nodes of each pool.
    pub added: Indexed<PoolIndex, usize>,
    /// How many more nodes each pool may add.
    pub room: Indexed<PoolIndex, usize>,
}

/// Which pool of a set opens the next node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextPool {
    /// This pool.
    Pool(PoolIndex),
    /// Pools that would take the pods are full.
    Full,
    /// No pool of the set takes such pods.
    None,
}

impl PlannedSizes<'_> {
    /// The smallest pool of the set that has room and whose new node would take a pod of this class. Of equally large
    /// ones the one that the pods prefer, then the first.
    pub(crate) fn next(
        &self,
        snapshot: &mut ClusterSnapshot,
        set: &[PoolIndex],
        id: PodClassId,
        class: &PodClass,
    ) -> NextPool {
        let liking = |pool: PoolIndex| {
            let template = self.pools[pool].template.as_ref();
            if class.preferred.is_empty() { 0 } else { template.map_or(0, |t| preference(class, t)) }
        };
        let mut order: Vec<_> =
            set.iter().map(|&pool| (self.size(pool), std::cmp::Reverse(liking(pool)), pool)).collect();
        order.sort_unstable();
        steps::count(order.len());
        let mut full = false;
        for (_, _, pool) in order {
            if (self.room[pool] > 0 || !full) && snapshot.would_take(id, pool) {
                if self.room[pool] > 0 {
                    return NextPool::Pool(pool);
                }
                full = true;
            }
        }
        if full { NextPool::Full } else { NextPool::None }
    }

    /// Counts a new node of the pool.
    pub(crate) fn opened(&mut self, pool: PoolIndex) {
        self.added[pool] += 1;
        self.room[pool] = self.room[pool].saturating_sub(1);
    }

    /// Uncounts a new node of the pool that is not needed after all.
    pub(crate) fn closed(&mut self, pool: PoolIndex) {
        self.added[pool] = self.added[pool].saturating_sub(1);
        self.room[pool] = self.room[pool].saturating_add(1);
    }

    fn size(&self, pool: PoolIndex) -> usize {
        self.pools[pool].grown_from() + self.added[pool]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::fixtures::{Read as _, TestCluster};

    #[test]
    fn pools_that_are_declared_alike_are_balanced_whatever_their_nodes_have_shown() {
        let pool = |zone: &str| {
            let labels = json!({ "topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": zone,
                "topology.ebs.csi.aws.com/zone": zone });
            json!({ "spec": { "replicas": 1, "template": { "metadata": { "labels": labels } } } })
        };
        let mut cluster = TestCluster::eager().pool("a", pool("a")).pool("b", pool("b"));
        for (name, memory, pool) in [("na", "15Gi", 0), ("nb", "14Gi", 1)] {
            let hash = cluster.observed.pools[pool].spec.template_hash();
            let change = json!({ "metadata": { "annotations": { "tandem.dev/template-hash": hash },
                "labels": { "feature": name } }, "status": { "allocatable": { "memory": memory } } });
            cluster = cluster.node(["a", "b"][pool], name, change).running(name, name, "4", json!({}));
        }
        let plan = cluster.pending("p", 4, "3", &json!({})).plan();
        assert_eq!((plan.desired("a"), plan.desired("b")), (3, 3));
        let known = plan.pool("a").discovered.as_ref().unwrap();
        assert_eq!(known.allocatable["memory"].0, "15Gi");
    }

    #[test]
    fn a_little_memory_makes_no_difference_between_pools_and_more_does() {
        let pool = |memory: &str| json!({ "spec": { "template": { "spec": { "capacity": { "memory": memory } } } } });
        for (memory, sizes) in [("16273408Ki", (2, 2)), ("16040000Ki", (2, 2)), ("15Gi", (0, 4))] {
            let cluster = TestCluster::eager().pool("a", pool("16281600Ki")).pool("b", pool(memory));
            let plan = cluster.pending("p", 4, "3", &json!({})).plan();
            assert_eq!((plan.desired("a"), plan.desired("b")), sizes, "{memory}");
        }
    }
}
