//! Which pool scales up if several could: the comparisons that Cluster Autoscaler calls expanders.
//!
//! Ties go to the expansion option that more pods prefer, then to the pool whose namespace and name come first.

use std::cmp::{Ordering, Reverse};

use shared_crds::v1alpha1::Expander;

use crate::pools::Pool;

/// What a pool, or a set of balanced ones, would add, and for which pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpansionOption {
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
}

/// Compares two expansion options, the better one first. `a` and `b` are each an option and its random number for
/// `Random`.
pub fn compare(expander: Expander, a: (&ExpansionOption, u64), b: (&ExpansionOption, u64)) -> Ordering {
    let ((a, drawn_a), (b, drawn_b)) = (a, b);
    let by_expander = match expander {
        Expander::LeastWaste => least_waste(a, b),
        Expander::Priority => Reverse(a.weight).cmp(&Reverse(b.weight)).then_with(|| least_waste(a, b)),
        Expander::MostPods => Reverse(a.pods).cmp(&Reverse(b.pods)),
        Expander::LeastNodes => a.nodes.cmp(&b.nodes),
        Expander::Random => drawn_a.cmp(&drawn_b),
    };
    by_expander.then(Reverse(a.preferred).cmp(&Reverse(b.preferred)))
}

/// The random seed for `Random`: a different one after each scale-up, and the same one while nothing happens; otherwise
/// a repeated pass would reach a different decision.
pub fn seed(base: u64, pools: &[Pool]) -> u64 {
    pools.iter().fold(base, |seed, pool| {
        let grown = pool.remembered.as_ref().and_then(|a| a.last_scale_up_time.as_ref());
        let round = grown.map_or(0, |time| time.0.as_second().unsigned_abs());
        draw(seed, round, pool.object.metadata.uid.as_deref().unwrap_or_default())
    })
}

/// The random number for `Random`: the same for the same seed, round and pool, whatever other pools there are.
pub fn draw(seed: u64, round: u64, pool: &str) -> u64 {
    // 64-bit FNV-1a, then the finalizer of SplitMix64, so that similar names give very different numbers.
    let hash = pool.bytes().fold(0xcbf2_9ce4_8422_2325_u64 ^ seed ^ round.rotate_left(32), |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Compares expansion options by the share of cpu and of memory that pods would leave unused, the least first.
pub fn least_waste(a: &ExpansionOption, b: &ExpansionOption) -> Ordering {
    waste(a).total_cmp(&waste(b))
}

/// Unused share of cpu plus unused share of memory; a resource that the nodes do not have counts as all unused.
fn waste(offer: &ExpansionOption) -> f64 {
    unused(offer.cpu, offer.requested_cpu) + unused(offer.memory, offer.requested_memory)
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
            pools::pools(&cluster.observed, cluster.observed.options, &[], &mut ResourceNames::default())
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
