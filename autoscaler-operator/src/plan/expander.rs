//! Which pool grows when several could: the comparison that Cluster Autoscaler calls an expander.
//!
//! This version knows one, `LeastWaste`. Ties go to the pool whose namespace and name come first.

use std::cmp::Ordering;

/// What a pool would add, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Capacity in thousandths of a core of all nodes that would be added.
    pub cpu: i128,
    /// Capacity in bytes of all nodes that would be added.
    pub memory: i128,
    /// Thousandths of a core that the pods on them ask for.
    pub requested_cpu: i128,
    /// Bytes that the pods on them ask for.
    pub requested_memory: i128,
}

/// Orders offers by the share of cpu and of memory that pods would leave unused, the least first.
pub fn least_waste(a: &Offer, b: &Offer) -> Ordering {
    waste(a).total_cmp(&waste(b))
}

/// Unused share of cpu plus unused share of memory; a resource the nodes do not have counts as all unused.
fn waste(offer: &Offer) -> f64 {
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

    #[test]
    fn the_pool_that_leaves_less_unused_comes_first() {
        let large = Offer { cpu: 16_000, memory: 64, requested_cpu: 2000, requested_memory: 8 };
        let small = Offer { cpu: 4000, memory: 16, ..large };
        assert_eq!(least_waste(&small, &large), Ordering::Less);
        assert_eq!(least_waste(&small, &small), Ordering::Equal);
    }

    #[test]
    fn both_resources_count() {
        let of_cpu = Offer { cpu: 2000, memory: 64, requested_cpu: 2000, requested_memory: 8 };
        let balanced = Offer { cpu: 4000, memory: 16, ..of_cpu };
        assert_eq!(least_waste(&of_cpu, &balanced), Ordering::Less);
        let nothing = Offer { cpu: 0, memory: 0, ..of_cpu };
        assert_eq!(least_waste(&of_cpu, &nothing), Ordering::Less);
    }
}
