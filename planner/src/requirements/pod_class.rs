//! Pods that are equal to the planner, and the counts of pods that their constraints need.
//!
//! Types only. `Demand` reads them from pods, and the snapshot keeps the counts.

use crate::index::{Indexed, PoolIndex, index_type};
use crate::reasons::Rejection;
use crate::requirements::constraints::Constraints;
use crate::resources::Amounts;

/// Index of a [`PodClass`] in `Demand`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodClassId(pub(crate) usize);
index_type!(PodClassId);
/// The classes of a pass.
pub(crate) type PodClasses = Indexed<PodClassId, PodClass>;

/// Index of a [`TopologyCount`] in `Demand`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TopologyCountId(pub(crate) usize);
index_type!(TopologyCountId);
/// The topology counts of a pass.
pub(crate) type TopologyCounts = Indexed<TopologyCountId, TopologyCount>;

/// Index of [`Constraints`] in `Demand`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConstraintSetId(pub(crate) usize);
index_type!(ConstraintSetId);
/// The constraint sets of a pass.
pub(crate) type ConstraintSets = Indexed<ConstraintSetId, Constraints>;

/// Index of a [`Supply`] in `Demand`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SupplyId(pub(crate) usize);
index_type!(SupplyId);
/// One unit of one of these supplies, which are sorted and tried in this order.
pub(crate) type Need = Vec<SupplyId>;

/// Pods that are equal to the planner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PodClass {
    /// The request of one pod, including one of the resource `pods`.
    pub request: Amounts,
    /// Which nodes admit the pods, by taints, labels and names.
    pub constraint_set: ConstraintSetId,
    /// The host ports they use, sorted.
    pub ports: Vec<HostPort>,
    /// Required pod affinity.
    pub affinity: Option<PodAffinity>,
    /// Topology counts that must be zero in the domain of the node: for the pods' own anti-affinity, and for that of
    /// others which matches them.
    pub anti_affinity: Vec<TopologyCountId>,
    /// Spread constraints with `DoNotSchedule`.
    pub spreads: Vec<TopologySpread>,
    /// Topology counts that one of these pods raises in the domains of its node.
    pub increments: Vec<TopologyCountId>,
    /// Preferred node affinity, for ties between pools.
    pub preferred: Vec<Preference>,
    /// What one of these pods needs of the supplies, at its node.
    pub needs: Vec<Need>,
    /// The pools that do not grow for them, of pending pods.
    pub barred: BarredPools,
}

/// The pools that do not grow for pods, although a new node would take them. The pods may have places on nodes that exist
/// or are coming.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct BarredPools {
    /// Whether no pool does yet: an annotation of the pods asks for more time.
    pub delayed: bool,
    /// The pools, as sorted indexes, to whose autoscalers the pods are expendable.
    pub expendable: Vec<PoolIndex>,
}

impl BarredPools {
    /// Whether the pool does not grow for the pods.
    pub(crate) fn contains(&self, pool: PoolIndex) -> bool {
        self.delayed || self.expendable.binary_search(&pool).is_ok()
    }
}

/// Equal things of which the cluster has few, and which pending pods compete for: each is there for one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Supply {
    /// Its volumes tell on which nodes the supply can be used.
    pub constraint_set: ConstraintSetId,
    /// How many there are.
    pub units: usize,
    /// If not empty, all pods that need this supply share one unit of one of these, and it has none itself.
    pub one_of: Need,
    /// What a pod is told for which none is left.
    pub used_up: Rejection,
}

/// The address that stands for all addresses of a node.
pub(crate) const ANY_ADDRESS: &str = "0.0.0.0";

/// A port of the node itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostPort {
    /// The port number.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The address it is bound to; [`ANY_ADDRESS`] if the pod names none.
    pub address: String,
}

/// Required pod affinity: of all its terms at once, as in the scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PodAffinity {
    /// One for each term's topology key: pods that match *all* terms. Each must be above zero in the domain of the
    /// node.
    pub topology_counts: Vec<TopologyCountId>,
    /// Whether such a pod satisfies its own terms. Then, while none of the topology counts counts any pod, it may also
    /// run wherever all keys exist.
    pub matches_itself: bool,
}

/// A spread constraint with `whenUnsatisfiable: DoNotSchedule`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TopologySpread {
    /// Pods of the namespace that match the selector, over the nodes that the constraint counts.
    pub topology_count: TopologyCountId,
    /// By how much the count of a domain may exceed the minimum.
    pub max_skew: u32,
    /// While there are fewer domains than this, the minimum is zero.
    pub min_domains: u32,
    /// Whether such a pod matches the selector itself.
    pub matches_itself: bool,
}

/// A count of pods by domain of one topology key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TopologyCount {
    /// The topology key.
    pub key: String,
    /// Which nodes count, and form domains. A node without the key never does.
    pub nodes: CountedNodes,
}

/// Which nodes a topology count includes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum CountedNodes {
    /// All that have the key.
    All,
    /// Those that have all of these keys (all topology keys of the pod's spread constraints) and, where the
    /// constraint's policies say so, satisfy node selector and affinity (`labels_of`) or tolerate the taints
    /// (`taints_of`) of a constraint set.
    Eligible {
        /// Keys a node must have, sorted.
        keys: Vec<String>,
        /// Constraint set whose selector and affinity count.
        labels_of: Option<ConstraintSetId>,
        /// Constraint set whose tolerations count.
        taints_of: Option<ConstraintSetId>,
    },
}

/// One preferred term of a node affinity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Preference {
    /// From 1 to 100.
    pub weight: i32,
    /// The rules.
    pub term: super::constraints::NodeTerm,
}
