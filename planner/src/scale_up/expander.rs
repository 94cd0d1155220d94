//! Which pool scales up if several could: the comparisons that Cluster Autoscaler calls expanders.
//!
//! Ties go to the expansion option that more pods prefer, then to the pool whose namespace and name come first.

use std::cmp::{Ordering, Reverse};

use shared_crds::v1alpha1::Expander;

use crate::pools::Pool;

/// What a pool, or a set of balanced ones, would add, and for which pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExpansionOption {
    /// Number of nodes that would be added.
    pub nodes: usize,
    /// Number of pods that would find a place.
    pub pods: usize,
    /// Weight of the pool.
    pub weight: i32,
    /// How strongly the pods prefer the nodes: the sum of the weights of their preferred node affinities.
    pub preferred: i64,
    /// Capacity in thousandths of a core of all nodes that would be added.
    pub cpu: i128,
    /// Capacity in bytes of all nodes that would be added.
    pub memory: i128,
    /// Thousandths of a core that the pods on them request.
    pub requested_cpu: i128,
    /// Bytes that the pods on them request.
    pub requested_memory: i128,
    /// GPUs of all nodes that would be added.
    pub gpus: i128,
    /// GPUs that the pods on them request.
    pub requested_gpus: i128,
    /// Whether a node with GPUs would be added on which no pod requests one.
    pub idles_gpus: bool,
}

/// Compares two expansion options, the better one first. `a` and `b` are each an option and its random number for
/// `Random`.
///
/// Nodes whose GPUs no pod asks for come last, whatever else speaks for them: GPUs cost many times what the rest of a
/// node does, and a GPU node with other pods on it is neither free for GPU pods nor goes. No count of pods or nodes, and
/// no share of cpu, outweighs that. Two expanders stand above it: a user who sets different weights has said which pool
/// comes first, and `Random` means any pool.
pub(crate) fn compare(
    expander: Expander,
    a: (&ExpansionOption, u64),
    b: (&ExpansionOption, u64),
) -> Ordering {
    let ((a, drawn_a), (b, drawn_b)) = (a, b);
    let idle = a.idles_gpus.cmp(&b.idles_gpus);
    let by_expander = match expander {
        Expander::LeastWaste => idle.then_with(|| least_waste(a, b)),
        Expander::Priority => {
            Reverse(a.weight).cmp(&Reverse(b.weight)).then(idle).then_with(|| least_waste(a, b))
        }
        Expander::MostPods => idle.then(Reverse(a.pods).cmp(&Reverse(b.pods))),
        Expander::LeastNodes => idle.then(a.nodes.cmp(&b.nodes)),
        Expander::Random => drawn_a.cmp(&drawn_b),
    };
    by_expander.then(Reverse(a.preferred).cmp(&Reverse(b.preferred)))
}

/// The random seed for `Random`: a different one after each scale-up, and the same one while nothing happens; otherwise
/// a repeated pass would reach a different decision.
pub(crate) fn seed(base: u64, pools: &[Pool]) -> u64 {
    pools.iter().fold(base, |seed, pool| {
        let grown = pool.remembered.as_ref().and_then(|a| a.last_scale_up_time.as_ref());
        let round = grown.map_or(0, |time| time.0.as_second().unsigned_abs());
        draw(seed, round, pool.object.metadata.uid.as_deref().unwrap_or_default())
    })
}

/// The random number for `Random`: the same for the same seed, round and pool, whatever other pools there are.
pub(crate) fn draw(seed: u64, round: u64, pool: &str) -> u64 {
    // 64-bit FNV-1a, then the finalizer of SplitMix64, so that similar names give very different numbers.
    let hash = pool.bytes().fold(0xcbf2_9ce4_8422_2325_u64 ^ seed ^ round.rotate_left(32), |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Compares expansion options by the share of cpu, of memory and of GPUs that pods would leave unused, the least first.
pub(crate) fn least_waste(a: &ExpansionOption, b: &ExpansionOption) -> Ordering {
    waste(a).total_cmp(&waste(b))
}

/// Unused share of cpu plus unused share of memory, and of GPUs if the nodes have any. Nodes without cpu or memory count
/// as ones that leave it all unused; ones without GPUs waste none.
fn waste(offer: &ExpansionOption) -> f64 {
    let gpus = if offer.gpus > 0 { unused(offer.gpus, offer.requested_gpus) } else { 0.0 };
    unused(offer.cpu, offer.requested_cpu) + unused(offer.memory, offer.requested_memory) + gpus
}

#[expect(
    clippy::cast_precision_loss,
    reason = "shares are compared, not added up; equal inputs give equal shares"
)]
fn unused(available: i128, requested: i128) -> f64 {
    if available > 0 { (available - requested) as f64 / available as f64 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::TestCluster;
    use crate::input::observed::PassNodes;
    use crate::pools;
    use crate::resources::ResourceNames;

    fn offer(cpu: i128, memory: i128) -> ExpansionOption {
        ExpansionOption {
            cpu,
            memory,
            requested_cpu: 2000,
            requested_memory: 8,
            ..ExpansionOption::default()
        }
    }

    #[test]
    fn the_pool_that_leaves_less_unused_comes_first() {
        let (large, small) = (offer(16_000, 64), offer(4000, 16));
        assert_eq!(least_waste(&small, &large), Ordering::Less);
        assert_eq!(least_waste(&small, &small), Ordering::Equal);
    }

    #[test]
    fn both_resources_count() {
        let (of_cpu, balanced) = (offer(2000, 64), offer(4000, 16));
        assert_eq!(least_waste(&of_cpu, &balanced), Ordering::Less);
        let nothing = offer(0, 0);
        assert_eq!(least_waste(&of_cpu, &nothing), Ordering::Less);
    }

    #[test]
    fn unused_gpus_are_waste_and_nodes_without_gpus_waste_none() {
        let gpus = |gpus, requested_gpus| ExpansionOption { gpus, requested_gpus, ..offer(4000, 16) };
        assert_eq!(least_waste(&gpus(2, 2), &gpus(8, 2)), Ordering::Less);
        assert_eq!(least_waste(&offer(4000, 16), &gpus(8, 2)), Ordering::Less);
        assert_eq!(least_waste(&offer(4000, 16), &gpus(2, 2)), Ordering::Equal);
    }

    #[test]
    fn nodes_whose_gpus_no_pod_asks_for_come_last_unless_weights_or_chance_decide() {
        let idle = ExpansionOption { nodes: 1, pods: 9, weight: 1, idles_gpus: true, ..offer(2000, 8) };
        let plain = ExpansionOption { nodes: 9, pods: 1, weight: 1, ..offer(64_000, 256) };
        for expander in [Expander::LeastWaste, Expander::Priority, Expander::MostPods, Expander::LeastNodes] {
            assert_eq!(compare(expander, (&plain, 2), (&idle, 1)), Ordering::Less, "{expander:?}");
        }
        let heavy = ExpansionOption { weight: 2, ..idle };
        assert_eq!(compare(Expander::Priority, (&heavy, 0), (&plain, 0)), Ordering::Less);
        assert_eq!(compare(Expander::Random, (&idle, 1), (&plain, 2)), Ordering::Less);
    }

    #[test]
    fn each_expander_compares_what_its_name_says() {
        let base = ExpansionOption { nodes: 2, pods: 4, weight: 1, ..offer(4000, 16) };
        for (expander, better) in [
            (Expander::LeastWaste, ExpansionOption { cpu: 3000, nodes: 9, pods: 1, ..base }),
            (Expander::Priority, ExpansionOption { weight: 2, cpu: 9000, pods: 1, ..base }),
            (Expander::Priority, ExpansionOption { cpu: 3000, ..base }),
            (Expander::MostPods, ExpansionOption { pods: 5, nodes: 9, cpu: 9000, ..base }),
            (Expander::LeastNodes, ExpansionOption { nodes: 1, pods: 1, cpu: 9000, ..base }),
        ] {
            assert_eq!(compare(expander, (&better, 2), (&base, 1)), Ordering::Less, "{expander:?}");
            assert_eq!(compare(expander, (&base, 1), (&better, 2)), Ordering::Greater, "{expander:?}");
        }
        let liked = ExpansionOption { preferred: 1, ..base };
        for expander in [Expander::LeastWaste, Expander::Priority, Expander::MostPods, Expander::LeastNodes] {
            assert_eq!(compare(expander, (&liked, 0), (&base, 0)), Ordering::Less, "{expander:?}");
        }
        assert_eq!(compare(Expander::Random, (&liked, 2), (&base, 1)), Ordering::Greater);
    }

    #[test]
    fn the_seed_is_another_one_after_each_scale_up_and_the_same_until_then() {
        let pools = |grown: &str| {
            let pool = serde_json::json!({ "metadata": { "uid": "u" }, "status": { "autoscaling": { "lastScaleUpTime": grown } } });
            let cluster = TestCluster::eager().pool("a", pool);
            let nodes = PassNodes::default();
            pools::pools(&cluster.observed, cluster.observed.options, &nodes, &mut ResourceNames::default())
        };
        let (first, second) = (pools("2026-01-01T11:00:00Z"), pools("2026-01-01T11:00:01Z"));
        assert_eq!(seed(7, &first), seed(7, &first));
        assert_ne!(seed(7, &first), seed(7, &second));
        assert_ne!(seed(7, &first), seed(8, &first));
    }

    #[test]
    fn draws_differ_by_seed_round_and_pool_and_are_always_the_same() {
        let drawn = draw(1, 0, "ns/a");
        assert_eq!(drawn, draw(1, 0, "ns/a"));
        for other in [draw(2, 0, "ns/a"), draw(1, 1, "ns/a"), draw(1, 0, "ns/b")] {
            assert_ne!(drawn, other);
        }
        let first = (0..100).filter(|&seed| draw(seed, 0, "ns/a") < draw(seed, 0, "ns/b")).count();
        assert!((30..=70).contains(&first), "both are drawn: {first}");
    }
}
