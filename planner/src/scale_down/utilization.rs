//! The utilization of a node: the larger share of cpu and of memory requested by its pods, and of a node with GPUs the
//! share of these alone, as Cluster Autoscaler measures it.

use std::cmp::Ordering;

use crate::resources::{Amounts, Basic, Resource};

/// What a utilization is the share of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measured {
    /// Cores.
    Cpu,
    /// Bytes.
    Memory,
    /// GPUs of one kind. People pay for these, and what else the pods of such a node request says nothing about them.
    Gpus,
}

impl Measured {
    /// As it is named in messages.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Gpus => "GPUs",
        }
    }
}

/// A share: the requested amount of the allocatable one. A node without the resource counts as unused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Utilization {
    /// The resource with the larger requested share.
    pub measured: Measured,
    asked: i64,
    of: i64,
    /// Whether the pods request none of what may be measured.
    nothing: bool,
}

impl Utilization {
    /// The utilization of a node with `allocatable`, whose pods request `asked` in total. `gpus` are the GPUs that the
    /// node has.
    pub(crate) fn of(asked: &Amounts, allocatable: &Amounts, gpus: &[Resource]) -> Self {
        let [cpu, memory] = [Basic::Cpu, Basic::Memory].map(Resource::Basic);
        let nothing = [cpu, memory].iter().chain(gpus).all(|&resource| asked.get(resource) <= 0);
        let share = |measured: Measured, resource: Resource| {
            let (asked, of) = (asked.get(resource).max(0), allocatable.get(resource));
            let (asked, of) = if of > 0 { (asked, of) } else { (0, 1) };
            Self { measured, asked, of, nothing }
        };
        if let Some(of_gpus) = gpus.iter().map(|&gpu| share(Measured::Gpus, gpu)).max() {
            return of_gpus;
        }
        let (cpu, memory) = (share(Measured::Cpu, cpu), share(Measured::Memory, memory));
        if memory > cpu { memory } else { cpu }
    }

    /// Whether less than `percent` are requested.
    pub(crate) fn is_below(self, percent: i32) -> bool {
        i128::from(self.asked) * 100 < i128::from(percent) * i128::from(self.of)
    }

    /// Whether neither cpu nor memory nor a GPU is requested; such a node is below every threshold. One with GPUs whose pods
    /// request only cpu is not: none of its GPUs is used, and it is in use.
    pub(crate) const fn is_nothing(self) -> bool {
        self.nothing
    }

    /// In whole percents, rounded down, for messages.
    pub(crate) fn percent(self) -> i128 {
        i128::from(self.asked) * 100 / i128::from(self.of)
    }

    /// What the pods ask for, for messages.
    pub(crate) fn text(self) -> String {
        let resource = self.measured.as_str();
        if self.measured == Measured::Gpus && self.asked == 0 && !self.nothing {
            return format!("none of its {resource}, and for other resources");
        }
        format!("{}% of its {resource}", self.percent())
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
        for (asked, allocatable, percent, measured, below) in [
            ((0, 0), (1000, 1000), 0, Measured::Cpu, true),
            ((499, 0), (1000, 1000), 49, Measured::Cpu, true),
            ((500, 0), (1000, 1000), 50, Measured::Cpu, false),
            ((100, 500), (1000, 1000), 50, Measured::Memory, false),
            ((100, 499), (1000, 1000), 49, Measured::Memory, true),
            ((3000, 0), (1000, 1000), 300, Measured::Cpu, false),
            ((500, 1), (0, 1000), 0, Measured::Memory, true),
            ((500, 500), (0, 0), 0, Measured::Cpu, true),
            ((i64::MAX, 0), (i64::MAX, 1), 100, Measured::Cpu, false),
        ] {
            let (asked, allocatable) = (amounts(asked.0, asked.1), amounts(allocatable.0, allocatable.1));
            let utilization = Utilization::of(&asked, &allocatable, &[]);
            assert_eq!((utilization.percent(), utilization.measured), (percent, measured), "{asked:?}");
            assert_eq!(utilization.is_below(50), below, "{asked:?} of {allocatable:?}");
        }
    }

    #[test]
    fn of_a_node_with_gpus_only_the_gpus_count_and_of_several_kinds_the_fullest() {
        let (gpu, slice) = (Resource::Scalar(0), Resource::Scalar(1));
        let with = |gpus: i64, slices: i64| {
            let mut amounts = amounts(900, 900);
            amounts.set(gpu, gpus);
            amounts.set(slice, slices);
            amounts
        };
        let node = with(8, 10);
        for (gpus, slices, percent) in [(0, 0, 0), (4, 0, 50), (1, 9, 90), (8, 0, 100)] {
            let utilization = Utilization::of(&with(gpus, slices), &node, &[gpu, slice]);
            assert_eq!((utilization.percent(), utilization.measured), (percent, Measured::Gpus));
        }
        let of_cpu = Utilization::of(&with(8, 0), &node, &[]);
        assert_eq!((of_cpu.percent(), of_cpu.measured), (100, Measured::Cpu));
    }

    #[test]
    fn nothing_is_below_a_threshold_of_zero() {
        assert!(!Utilization::of(&Amounts::default(), &amounts(1, 1), &[]).is_below(0));
    }

    #[test]
    fn nothing_is_requested_where_neither_cpu_nor_memory_nor_a_gpu_is() {
        let gpu = Resource::Scalar(0);
        for (cpu, memory, gpus, nothing, text) in [
            (0, 0, 0, true, "0% of its GPUs"),
            (1, 0, 0, false, "none of its GPUs, and for other resources"),
            (0, 1, 0, false, "none of its GPUs, and for other resources"),
            (0, 0, 1, false, "12% of its GPUs"),
            (1, 1, 8, false, "100% of its GPUs"),
        ] {
            let (mut asked, mut node) = (amounts(cpu, memory), amounts(1000, 1000));
            asked.set(gpu, gpus);
            node.set(gpu, 8);
            let utilization = Utilization::of(&asked, &node, &[gpu]);
            assert_eq!((utilization.is_nothing(), utilization.text().as_str()), (nothing, text));
        }
        let of = |asked: &Amounts| Utilization::of(asked, &amounts(1000, 1000), &[]);
        assert!(of(&amounts(0, 0)).is_nothing() && !of(&amounts(1, 0)).is_nothing());
        let mut other = amounts(0, 0);
        other.set(gpu, 1);
        assert!(of(&other).is_nothing(), "of devices only those that are GPUs of the node count");
    }

    #[test]
    fn shares_compare_exactly() {
        let of = |asked, of| Utilization::of(&amounts(asked, 0), &amounts(of, 0), &[]);
        assert!(of(1, 3) < of(334, 1000) && of(333, 1000) < of(1, 3));
        assert_eq!(of(1, 2), of(500, 1000));
    }
}
