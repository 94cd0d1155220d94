//! The utilization of a node: the larger share of cpu and of memory requested by its pods, as Cluster Autoscaler
//! measures it.

use std::cmp::Ordering;

use crate::resources::{Amounts, Basic, Resource};

/// A share: the requested amount of the allocatable one. A node without the resource counts as unused.
#[derive(Clone, Copy, Debug)]
pub struct Utilization {
    /// The resource with the larger requested share.
    pub resource: Basic,
    asked: i64,
    of: i64,
}

impl Utilization {
    /// The utilization of a node with `allocatable`, whose pods request `asked` in total.
    pub fn of(asked: &Amounts, allocatable: &Amounts) -> Self {
        let share = |basic: Basic| {
            let resource = Resource::Basic(basic);
            let (asked, of) = (asked.get(resource).max(0), allocatable.get(resource));
            if of > 0 {
                Self { resource: basic, asked, of }
            } else {
                Self { resource: basic, asked: 0, of: 1 }
            }
        };
        let (cpu, memory) = (share(Basic::Cpu), share(Basic::Memory));
        if memory > cpu { memory } else { cpu }
    }

    /// Whether less than `percent` are requested.
    pub fn is_below(self, percent: i32) -> bool {
        i128::from(self.asked) * 100 < i128::from(percent) * i128::from(self.of)
    }

    /// Whether nothing is requested; such a node is below every threshold.
    pub const fn is_nothing(self) -> bool {
        self.asked == 0
    }

    /// In whole percents, rounded down, for messages.
    pub fn percent(self) -> i128 {
        i128::from(self.asked) * 100 / i128::from(self.of)
    }
}

impl Ord for Utilization {
    /// Compares the shares exactly, whatever the resources.
    fn cmp(&self, other: &Self) -> Ordering {
        let (mine, others) =
            (i128::from(self.asked) * i128::from(other.of), i128::from(other.asked) * i128::from(self.of));
        mine.cmp(&others)
    }
}

impl PartialOrd for Utilization {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Utilization {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Utilization {}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(cpu: i64, memory: i64) -> Amounts {
        let mut amounts = Amounts::default();
        amounts.set(Resource::Basic(Basic::Cpu), cpu);
        amounts.set(Resource::Basic(Basic::Memory), memory);
        amounts
    }

    #[test]
    fn the_greater_share_counts_and_the_threshold_itself_is_not_below_it() {
        for (asked, allocatable, percent, resource, below) in [
            ((0, 0), (1000, 1000), 0, Basic::Cpu, true),
            ((499, 0), (1000, 1000), 49, Basic::Cpu, true),
            ((500, 0), (1000, 1000), 50, Basic::Cpu, false),
            ((100, 500), (1000, 1000), 50, Basic::Memory, false),
            ((100, 499), (1000, 1000), 49, Basic::Memory, true),
            ((3000, 0), (1000, 1000), 300, Basic::Cpu, false),
            ((500, 1), (0, 1000), 0, Basic::Memory, true),
            ((500, 500), (0, 0), 0, Basic::Cpu, true),
            ((i64::MAX, 0), (i64::MAX, 1), 100, Basic::Cpu, false),
        ] {
            let (asked, allocatable) = (amounts(asked.0, asked.1), amounts(allocatable.0, allocatable.1));
            let utilization = Utilization::of(&asked, &allocatable);
            assert_eq!((utilization.percent(), utilization.resource), (percent, resource), "{asked:?}");
            assert_eq!(utilization.is_below(50), below, "{asked:?} of {allocatable:?}");
        }
    }

    #[test]
    fn nothing_is_below_a_threshold_of_zero() {
        assert!(!Utilization::of(&Amounts::default(), &amounts(1, 1)).is_below(0));
    }

    #[test]
    fn shares_compare_exactly() {
        let of = |asked, of| Utilization::of(&amounts(asked, 0), &amounts(of, 0));
        assert!(of(1, 3) < of(334, 1000) && of(333, 1000) < of(1, 3));
        assert_eq!(of(1, 2), of(500, 1000));
    }
}
