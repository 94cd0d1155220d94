//! Hand-made pods for tests of the engine: classes and topology counts without objects, and the benchmark mixes of the
//! two peer projects.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::demand::daemons::Daemons;
use crate::demand::node_agents::NodeAgents;
use crate::demand::{Demand, PendingGroup, order};
use crate::fixtures;
use crate::index::{Indexed, PodIndex};
use crate::input::observed::{Observed, PassInput, PassNodes, PassPods};
use crate::pools::{self, Pool, Pools, largest_node};
use crate::requirements::constraints::{Constraints, HOSTNAME_LABEL};
use crate::requirements::pod_class::{
    CountedNodes, PodAffinity, PodClass, PodClassId, TopologyCount, TopologyCountId, TopologySpread,
};
use crate::resources::{Amounts, Basic, Resource, ResourceNames};
use crate::scale_up::placement::{PendingId, PendingPods};
use crate::scale_up::{self, ScaleUp};
use crate::snapshot::capacity::{self, SnapshotInput};
use crate::snapshot::{ClusterSnapshot, Place};

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

/// A pod's request, or a node's capacity.
pub(super) fn amounts(cpu: i64, memory: i64) -> Amounts {
    let mut amounts = Amounts::default();
    amounts.set(Resource::Basic(Basic::Cpu), cpu);
    amounts.set(Resource::Basic(Basic::Memory), memory);
    amounts.set(Resource::Basic(Basic::Pods), 1);
    amounts
}

/// A pool of nodes in a zone with `cpu` thousandths of a core, `memory` bytes and `pods` pods, up to `max` of them.
pub(super) fn shape(zone: &str, cpu: i64, memory: i64, pods: i64, max: i32) -> Value {
    json!({ "spec": { "maxReplicas": max, "template": { "metadata": { "labels": { ZONE: zone } }, "spec": { "capacity": {
        "cpu": format!("{cpu}m"), "memory": memory.to_string(), "pods": pods.to_string() } } } } })
}

/// Hand-made pods.
#[derive(Clone, Debug)]
pub(super) struct Pods {
    pub(super) demand: Demand,
}

impl Pods {
    pub(super) fn new() -> Self {
        Self { demand: Demand { constraint_sets: vec![Constraints::default()].into(), ..Demand::default() } }
    }

    /// Adds a topology count for an affinity.
    pub(super) fn topology_count(&mut self, key: &str) -> TopologyCountId {
        self.demand.topology_counts.push(TopologyCount { key: key.to_owned(), nodes: CountedNodes::All })
    }

    /// Adds a topology count for a spread constraint.
    pub(super) fn spread_count(&mut self, key: &str) -> TopologyCountId {
        let nodes = CountedNodes::Eligible { keys: vec![key.to_owned()], labels_of: None, taints_of: None };
        self.demand.topology_counts.push(TopologyCount { key: key.to_owned(), nodes })
    }

    /// Adds a group of pending pods.
    pub(super) fn pending(&mut self, class: PodClass, count: usize) -> PodClassId {
        let class = self.demand.classes.push(class);
        let first: usize = self.demand.groups.iter().map(|group| group.pods.len()).sum();
        self.demand.groups.push(PendingGroup {
            class,
            priority: 0,
            pods: (first..first + count).map(PodIndex).collect(),
        });
        class
    }

    /// The class of each group of pending pods in a plan.
    pub(super) fn ordered_classes(
        &self,
        cluster: &fixtures::TestCluster,
        planned: &Planned,
    ) -> Vec<PodClassId> {
        let demand = self.ordered(&cluster.observed, &planned.pools);
        demand.groups.iter().map(|group| group.class).collect()
    }

    fn ordered(&self, observed: &Observed, pools: &[Pool]) -> Demand {
        let mut demand = self.demand.clone();
        let reference = largest_node(pools, &observed.nodes, &mut ResourceNames::default());
        order::order(&mut demand.groups, &demand.classes, &demand.topology_counts, &reference);
        demand
    }

    /// Plans the pods in a cluster.
    pub(super) fn plan(&self, cluster: &fixtures::TestCluster) -> Planned {
        let mut names = ResourceNames::default();
        let observed = &cluster.observed;
        let nodes = PassNodes::from(observed.nodes.clone());
        let pools = pools::pools(observed, observed.options, &nodes, &mut names);
        self.plan_on(cluster, pools)
    }

    /// Plans the pods onto these pools.
    pub(super) fn plan_on(&self, cluster: &fixtures::TestCluster, pools: Pools) -> Planned {
        self.plan_among(cluster, pools, usize::MAX)
    }

    /// Plans the pods onto these pools, with as many upcoming nodes as `waiting` pods can use.
    pub(super) fn plan_among(
        &self,
        cluster: &fixtures::TestCluster,
        pools: Pools,
        waiting: usize,
    ) -> Planned {
        let (mut names, mut warnings) = (ResourceNames::default(), Vec::new());
        let observed = &cluster.observed;
        let daemons = Daemons::of(observed, &observed.pods, &mut names, &mut warnings);
        let demand = Demand { daemon_sets: daemons, ..self.ordered(observed, &pools) };
        let (nodes, none) = (PassNodes::from(observed.nodes.clone()), PassPods::default());
        let input = PassInput { observed, nodes: &nodes, pods: &none };
        let agents = NodeAgents::default();
        let source = SnapshotInput { input, demand: &demand, agents: &agents, waiting };
        let mut snapshot = capacity::snapshot(source, &pools, &mut names, &mut warnings);
        let pending: Indexed<PendingId, PendingPods> =
            demand.groups.iter().map(|g| PendingPods { class: g.class, count: g.pods.len() }).collect();
        let pass = scale_up::ScaleUpInput {
            pools: &pools,
            classes: &demand.classes,
            pending: &pending,
            leaving: &[],
            seed: observed.seed,
        };
        let scale_up = scale_up::scale_up(&pass, &mut snapshot);
        Planned { scale_up, snapshot, pools }
    }
}

/// The result of a plan.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) scale_up: ScaleUp,
    pub(super) snapshot: ClusterSnapshot,
    pub(super) pools: Pools,
}

impl Planned {
    /// The number of new nodes in all pools.
    pub(super) fn added(&self) -> usize {
        self.scale_up.added.iter().sum()
    }

    /// The number of pods without a place.
    pub(super) fn left(&self) -> usize {
        self.scale_up.placement.left.iter().sum()
    }

    /// The number of pods on existing nodes, on upcoming ones and on new ones.
    pub(super) fn by_tier(&self) -> [usize; 3] {
        let mut tiers = [0; 3];
        for &(node, count) in self.scale_up.placement.placed.iter().flatten() {
            let tier = match self.snapshot.place_of(node) {
                Place::Node(_) => 0,
                Place::Upcoming(_) => 1,
                Place::Planned(_) => 2,
            };
            tiers[tier] += count;
        }
        tiers
    }
}

/// Cluster Autoscaler's benchmark of its estimator.
pub(super) fn estimator_mix() -> (fixtures::TestCluster, Pods) {
    let mut pods = Pods::new();
    for (cpu, memory, count) in [(95, 190, 1_000), (50, 100, 50_000)] {
        pods.pending(PodClass { request: amounts(cpu, memory), ..PodClass::default() }, count);
    }
    (fixtures::TestCluster::eager().pool("a", shape("a", 1000, 5000, 100, 3000)), pods)
}

/// The five types of pods of Karpenter's benchmark, on pools of large nodes in `zones` zones.
pub(super) fn diverse_mix(count: usize, zones: usize, cpu: i64) -> (fixtures::TestCluster, Pods) {
    const MIB: i64 = 1 << 20;
    let mut pods = Pods::new();
    let by_zone: Vec<_> = (0..7).map(|_| pods.spread_count(ZONE)).collect();
    let by_host: Vec<_> = (0..7).map(|_| pods.spread_count(HOSTNAME_LABEL)).collect();
    let near: Vec<_> = (0..7).map(|_| pods.topology_count(ZONE)).collect();
    let apart = pods.topology_count(HOSTNAME_LABEL);
    let mut random = 42_u64;
    let mut draw = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).unwrap() % below
    };
    let mut counts = BTreeMap::new();
    for at in 0..count {
        let cpu = [100, 250, 500, 1000, 1500][draw(5)];
        let memory = [100, 256, 512, 1024, 2048, 4096][draw(6)] * MIB;
        let (sort, own, selected) = (at % 5, draw(7), draw(7));
        let (own, selected) = match sort {
            0 | 3 => (own, 0),
            4 => (0, 0),
            _ => (own, selected),
        };
        *counts.entry((Reverse((cpu, memory)), sort, own, selected)).or_insert(0_usize) += 1;
    }
    for ((Reverse((cpu, memory)), sort, own, selected), count) in counts {
        let mut class = PodClass { request: amounts(cpu, memory), ..PodClass::default() };
        let spread = |topology_count| TopologySpread {
            topology_count,
            max_skew: 1,
            min_domains: 1,
            matches_itself: own == selected,
        };
        match sort {
            1 => class.spreads = vec![spread(by_zone[selected])],
            2 => class.spreads = vec![spread(by_host[selected])],
            3 => {
                class.affinity = Some(PodAffinity { topology_counts: vec![near[own]], matches_itself: true });
            }
            4 => class.anti_affinity = vec![apart],
            _ => {}
        }
        class.increments = match sort {
            3 => vec![near[own]],
            4 => vec![apart],
            _ => vec![by_zone[own], by_host[own]],
        };
        pods.pending(class, count);
    }
    let mut cluster = fixtures::TestCluster::eager();
    for zone in 0..zones {
        let shape = shape(&format!("z{zone}"), cpu, cpu * 4 * MIB * 1024 / 1000, 110, 100_000);
        cluster = cluster.pool(&format!("pool{zone}"), shape);
    }
    (cluster, pods)
}
