//! Pods that the planner cannot tell apart, and the counts of pods that their constraints ask about.
//!
//! Types only. They are read from pods in `Workload`, and counted in the snapshot.

use crate::resources::Amounts;

/// Index of a [`PodClass`] in `Workload`.
pub type PodClassId = usize;
/// Index of a [`TopologyCount`] in `Workload`.
pub type TopologyCountId = usize;

/// Pods that the planner cannot tell apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodClass {
    /// What one of them asks for, the place of one pod included.
    pub request: Amounts,
    /// Index into `Workload`: which nodes admit it, by taints, labels and names.
    pub constraint_set: usize,
    /// Host ports it takes, sorted.
    pub ports: Vec<HostPort>,
    /// Required pod affinity.
    pub near: Option<PodAffinity>,
    /// Tallies that must be zero in the domain of the node: its own anti-affinity, and that of others which it matches.
    pub apart: Vec<TopologyCountId>,
    /// TopologySpread constraints that forbid placing.
    pub spreads: Vec<TopologySpread>,
    /// Tallies that one of these pods raises in the domains of its node.
    pub raises: Vec<TopologyCountId>,
    /// Preferred node affinity, for ties between pools.
    pub preferred: Vec<Preference>,
}

/// A port of the node itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// The port.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The address it is bound to; `0.0.0.0`, also where the pod names none, stands for all of them.
    pub address: String,
}

/// Required pod affinity: of all its terms at once, as the scheduler has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodAffinity {
    /// One for each term's topology key: pods that match *all* terms. Each must be above zero in the domain of the node.
    pub topology_counts: Vec<TopologyCountId>,
    /// Whether such a pod satisfies its own terms. Then it may also go anywhere where all keys exist while none of the
    /// topology counts counts any pod.
    pub itself: bool,
}

/// A spread constraint with `whenUnsatisfiable: DoNotSchedule`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopologySpread {
    /// Pods of the namespace that match the selector, over the nodes that the constraint counts.
    pub topology_count: TopologyCountId,
    /// How far a domain may be above the least.
    pub max_skew: u32,
    /// While there are fewer domains than this, the least is zero.
    pub min_domains: u32,
    /// Whether such a pod matches the selector itself.
    pub itself: bool,
}

/// What is counted: pods by domain of one topology key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopologyCount {
    /// The topology key.
    pub key: String,
    /// Which nodes count, and are domains. A node without the key never does.
    pub nodes: CountedNodes,
}

/// Which nodes a topology count looks at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CountedNodes {
    /// All that have the key.
    All,
    /// Those that have all of these keys (all topology keys of the pod's spread constraints) and, where the constraint's
    /// policies say so, satisfy node selector and affinity (`labels_of`) or tolerate the taints (`taints_of`) of a constraint set.
    Eligible {
        /// Keys a node must have, sorted.
        keys: Vec<String>,
        /// Class whose selector and affinity count.
        labels_of: Option<usize>,
        /// Class whose tolerations count.
        taints_of: Option<usize>,
    },
}

/// One preferred term of a node affinity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Preference {
    /// From 1 to 100.
    pub weight: i32,
    /// The rules.
    pub term: super::constraints::NodeTerm,
}
