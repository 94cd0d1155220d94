//! Tests of the snapshot against the naive one: the same placements, the same answers, and all changes can be reverted.

use proptest::prelude::*;

use super::journal::UndoEntry;
use super::naive::{Naive, NaiveNode};
use super::setup::{NodeSetup, Setup, TemplateSetup};
use super::{ClusterSnapshot, NodeIndex, NodeOrTemplate, Place, Scope};
use crate::index::{Indexed, PassNodeIndex, PoolIndex};
use crate::requirements::constraints::{Constraints, HOSTNAME_LABEL, Tolerated};
use crate::requirements::node_profile::{NodeProfile, RepellingTaint};
use crate::requirements::pod_class::{
    BarredPools, ConstraintSetId, ConstraintSets, CountedNodes, HostPort, PodAffinity, PodClass, PodClassId,
    PodClasses, TopologyCount, TopologyCountId, TopologyCounts, TopologySpread,
};
use crate::resources::{Amounts, Basic, Resource};

pub(crate) const ZONE: &str = "zone";

pub(crate) fn amounts(cpu: i64, memory: i64, pods: i64) -> Amounts {
    let mut amounts = Amounts::default();
    amounts.set(Resource::Basic(Basic::Cpu), cpu);
    amounts.set(Resource::Basic(Basic::Memory), memory);
    amounts.set(Resource::Basic(Basic::Pods), pods);
    amounts
}

fn profile(zone: usize, host: bool, tainted: bool) -> NodeProfile {
    let mut profile = NodeProfile::default();
    if let Some(zone) = ["a", "b", "c"].get(zone) {
        profile.labels.insert(ZONE.to_owned(), (*zone).to_owned());
    }
    if host {
        profile.labels.insert(HOSTNAME_LABEL.to_owned(), "h".to_owned());
    }
    if tainted {
        profile.taints.push(RepellingTaint {
            key: "t".into(),
            value: String::new(),
            effect: "NoSchedule".into(),
        });
    }
    profile
}

fn port(number: usize) -> HostPort {
    let address = ["0.0.0.0", "10.0.0.1", "10.0.0.2"][number % 3].to_owned();
    HostPort { port: 80, protocol: "TCP".to_owned(), address }
}

pub(crate) fn constraint_sets() -> ConstraintSets {
    let tolerant =
        Tolerated { key: "t".into(), operator: "Exists".into(), value: String::new(), effect: String::new() };
    vec![
        Constraints::default(),
        Constraints { selector: vec![(ZONE.into(), "a".into())], ..Constraints::default() },
        Constraints { tolerations: vec![tolerant], ..Constraints::default() },
    ]
    .into()
}

pub(crate) fn topology_counts() -> TopologyCounts {
    let counted = |keys: &[&str], labels_of, taints_of| CountedNodes::Eligible {
        keys: keys.iter().map(|&k| k.to_owned()).collect(),
        labels_of,
        taints_of,
    };
    let set = |number| Some(ConstraintSetId(number));
    [
        (ZONE, CountedNodes::All),
        (HOSTNAME_LABEL, CountedNodes::All),
        (ZONE, counted(&[ZONE], set(1), None)),
        (ZONE, counted(&[HOSTNAME_LABEL, ZONE], None, set(0))),
        (HOSTNAME_LABEL, counted(&[HOSTNAME_LABEL], None, None)),
        (HOSTNAME_LABEL, counted(&[HOSTNAME_LABEL, ZONE], set(0), set(0))),
    ]
    .map(|(key, nodes)| TopologyCount { key: key.to_owned(), nodes })
    .into_iter()
    .collect()
}

pub(crate) fn class() -> impl Strategy<Value = PodClass> {
    let id = |n: usize| (0..n).prop_map(TopologyCountId);
    let some = || prop::collection::btree_set(id(6), 0..3);
    let rarely = |n: usize| prop::collection::btree_set(id(n), 0..2);
    (
        1_i64..5,
        0_i64..3,
        0_usize..3,
        (prop::option::weighted(0.2, 0_usize..3)),
        some(),
        rarely(6),
        rarely(6),
        rarely(2),
    )
        .prop_flat_map(
            |(cpu, memory, constraint_set, ports, increments, anti_affinity, spread, affinity)| {
                (1_u32..3, 1_u32..4).prop_map(move |(max_skew, min_domains)| {
                    let affinity: Vec<_> = affinity.iter().copied().collect();
                    let increments: Vec<_> = increments.iter().copied().collect();
                    PodClass {
                        request: amounts(cpu, memory, 1),
                        constraint_set: ConstraintSetId(constraint_set),
                        barred: BarredPools::default(),
                        ports: ports.into_iter().map(port).collect(),
                        anti_affinity: anti_affinity.iter().copied().collect(),
                        spreads: spread
                            .iter()
                            .map(|&topology_count| TopologySpread {
                                topology_count,
                                max_skew,
                                min_domains,
                                matches_itself: increments.contains(&topology_count),
                            })
                            .collect(),
                        affinity: (!affinity.is_empty()).then(|| PodAffinity {
                            matches_itself: affinity
                                .iter()
                                .all(|topology_count| increments.contains(topology_count)),
                            topology_counts: affinity,
                        }),
                        increments,
                        preferred: Vec::new(),
                        needs: Vec::new(),
                    }
                })
            },
        )
}

/// A change to a snapshot; numbers are taken modulo the number of existing entries.
#[derive(Clone, Debug)]
enum Step {
    Place(PodClassId, usize, bool),
    PlaceOn(usize, PodClassId, usize),
    Open(PoolIndex),
    Evict(usize, PodClassId, usize),
    Close(usize),
    Cordon(usize),
    Retire(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let (node, class) = (|| 0_usize..12, || (0_usize..5).prop_map(PodClassId));
    prop_oneof![
        6 => (class(), 1_usize..7, any::<bool>()).prop_map(|(k, n, existing)| Step::Place(k, n, existing)),
        2 => (node(), class(), 1_usize..4).prop_map(|(n, k, c)| Step::PlaceOn(n, k, c)),
        3 => (0_usize..2).prop_map(|pool| Step::Open(PoolIndex(pool))),
        2 => (node(), class(), 1_usize..4).prop_map(|(n, k, c)| Step::Evict(n, k, c)),
        1 => node().prop_map(Step::Close),
        1 => node().prop_map(Step::Cordon),
        1 => node().prop_map(Step::Retire),
    ]
}

/// A snapshot and its naive counterpart.
#[derive(Clone, Debug)]
struct SnapshotPair {
    snapshot: ClusterSnapshot,
    naive: Naive,
    templates: Indexed<PoolIndex, NaiveNode>,
}

fn interner() -> impl Strategy<Value = SnapshotPair> {
    let shape = || (0_usize..4, prop::bool::weighted(0.9), prop::bool::weighted(0.2));
    let pods = prop::collection::vec(((0_usize..5).prop_map(PodClassId), 1_usize..3), 0..2);
    let increments = || prop::collection::vec((0_usize..6).prop_map(TopologyCountId), 0..3);
    let increments = || prop_oneof![2 => Just(Vec::new()), 1 => increments()];
    let node = (shape(), 3_i64..9, pods, prop::bool::weighted(0.9), any::<bool>(), increments());
    let template = (shape(), 3_i64..9, prop::option::weighted(0.2, 0_usize..3), increments());
    (
        prop::collection::vec(class(), 5).prop_map(PodClasses::from),
        prop::collection::vec(node, 0..6),
        prop::collection::vec(template, 2),
    )
        .prop_map(|(classes, nodes, templates)| {
            let (constraint_sets, topology_counts) = (constraint_sets(), topology_counts());
            let existing = nodes.iter().filter(|node| !node.4).count();
            let mut setups = Vec::new();
            // Existing nodes come first, then upcoming ones.
            let sorted = nodes.iter().filter(|n| !n.4).chain(nodes.iter().filter(|n| n.4));
            for (at, ((zone, host, tainted), size, pods, open, _, increments)) in sorted.cloned().enumerate()
            {
                let (node, pool) = (PassNodeIndex(at), PoolIndex(at % 2));
                let mut pods: Vec<_> = if at < existing { pods } else { Vec::new() };
                pods.sort_unstable();
                pods.dedup_by_key(|p| p.0);
                setups.push(NodeSetup {
                    place: if at < existing { Place::Node(node) } else { Place::Upcoming(pool) },
                    profile: profile(zone, host, tainted).into(),
                    free: amounts(size, size, 4),
                    pods,
                    ports: Vec::new(),
                    increments,
                    open,
                });
            }
            let templates: Indexed<PoolIndex, _> = templates
                .into_iter()
                .map(|((zone, host, tainted), size, taken, increments)| NaiveNode {
                    profile: profile(zone, host, tainted),
                    capacity: amounts(size, size, 4),
                    ports: taken.into_iter().map(port).collect(),
                    increments,
                    pods: Vec::new(),
                    open: true,
                    gone: false,
                })
                .collect();
            let naive_nodes = setups.iter().map(|setup| NaiveNode {
                profile: NodeProfile::clone(&setup.profile),
                capacity: setup.free.clone(),
                ports: Vec::new(),
                increments: setup.increments.clone(),
                pods: setup.pods.iter().flat_map(|&(class, n)| std::iter::repeat_n(class, n)).collect(),
                open: setup.open,
                gone: false,
            });
            let naive = Naive {
                constraint_sets: constraint_sets.clone(),
                classes: classes.clone(),
                topology_counts: topology_counts.clone(),
                nodes: naive_nodes.collect(),
            };
            let snapshot = ClusterSnapshot::new(Setup {
                constraint_sets: &constraint_sets,
                classes: &classes,
                topology_counts: &topology_counts,
                supplies: &Indexed::default(),
                pending: &vec![true; 3].into(),
                nodes: setups,
                templates: templates
                    .iter()
                    .map(|t| TemplateSetup {
                        profile: t.profile.clone().into(),
                        free: t.capacity.clone(),
                        ports: t.ports.clone(),
                        increments: t.increments.clone(),
                    })
                    .map(Some)
                    .collect(),
            });
            SnapshotPair { snapshot, naive, templates }
        })
}

impl SnapshotPair {
    /// Applies a step to both; returns how they differ.
    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let nodes = self.snapshot.nodes();
        let at = |number: usize| NodeIndex(number % nodes);
        match *step {
            Step::Place(class, wanted, existing) => {
                let order = self.order(existing);
                let expected = self.naive.place(class, wanted, &order);
                let scope = if existing { Scope::Existing } else { Scope::Anywhere };
                prop_assert_eq!(self.snapshot.place(class, wanted, scope), expected);
            }
            Step::PlaceOn(node, class, wanted) if nodes > 0 => {
                let expected: usize = self.naive.place(class, wanted, &[at(node)]).iter().map(|p| p.1).sum();
                prop_assert_eq!(self.snapshot.place_on(at(node), class, wanted), expected);
            }
            Step::Open(pool) => {
                let node = self.naive.nodes.push(self.templates[pool].clone());
                for class in (0..5).map(PodClassId) {
                    let expected = self.naive.allows(class, node);
                    prop_assert_eq!(
                        self.snapshot.would_take(class, pool),
                        expected,
                        "would take {:?}",
                        class
                    );
                    let why_not = self.snapshot.why_not(class, NodeOrTemplate::Template(pool));
                    // Daemons on the new node can make a spread more even, which the reason does not consider.
                    let exact = self.templates[pool].increments.is_empty();
                    prop_assert!(why_not.is_none() == expected || !exact, "{:?}", why_not);
                }
                prop_assert_eq!(self.snapshot.open(pool), Some(node));
            }
            Step::Evict(node, class, count) if nodes > 0 => {
                self.snapshot.evict(at(node), class, count);
                let pods = &mut self.naive.nodes[at(node)].pods;
                for _ in 0..count {
                    if let Some(at) = pods.iter().position(|&pod| pod == class) {
                        pods.remove(at);
                    }
                }
            }
            Step::Close(node) if nodes > 0 => {
                self.snapshot.close(at(node));
                self.naive.nodes[at(node)].open = false;
            }
            Step::Cordon(node) if nodes > 0 => {
                self.snapshot.cordon(at(node));
                let node = &mut self.naive.nodes[at(node)];
                node.open = false;
                node.profile.taints.extend(RepellingTaint::of_drain());
            }
            Step::Retire(node) if nodes > 0 => {
                self.snapshot.retire(at(node));
                let node = &mut self.naive.nodes[at(node)];
                (node.gone, node.open) = (true, false);
                node.pods.clear();
            }
            Step::PlaceOn(..) | Step::Evict(..) | Step::Close(_) | Step::Cordon(_) | Step::Retire(_) => {}
        }
        Ok(())
    }

    /// The nodes in the order in which the snapshot searches them.
    fn order(&self, existing: bool) -> Vec<NodeIndex> {
        let nodes =
            self.snapshot.order.iter().flat_map(|&bucket| self.snapshot.buckets[bucket].nodes.clone());
        nodes.filter(|&n| !(existing && matches!(self.snapshot.place_of(n), Place::Planned(_)))).collect()
    }

    /// The complete visible state of the snapshot.
    fn view(&self) -> String {
        let snapshot = &self.snapshot;
        let nodes: Vec<_> = snapshot
            .nodes
            .iter()
            .map(|n| (n.place, &n.free, &n.here, &n.pods, n.closed & super::bits::CLOSED, n.cordoned, n.gone))
            .collect();
        let buckets: Vec<_> = snapshot.buckets.iter().map(|b| (&b.nodes, b.index.len())).collect();
        format!("{nodes:?} {:?} {buckets:?}", snapshot.counts)
    }
}

/// Repeats on `naive` what was placed on `snapshot`, pod by pod; returns the pod that the naive snapshot would not have
/// allowed there. `templates` are the properties of new nodes.
pub(crate) fn replay(
    snapshot: &ClusterSnapshot,
    naive: &mut Naive,
    templates: &Indexed<PoolIndex, NaiveNode>,
) -> Result<(), TestCaseError> {
    for change in &snapshot.journal {
        match *change {
            UndoEntry::Placed(node, class, count) => {
                for _ in 0..count {
                    prop_assert!(naive.allows(class, node), "a pod of {:?} on {:?}", class, node);
                    naive.nodes[node].pods.push(class);
                }
            }
            UndoEntry::Opened => {
                let Place::Planned(pool) = snapshot.place_of(naive.nodes.next()) else {
                    panic!("{change:?}")
                };
                naive.nodes.push(templates[pool].clone());
            }
            UndoEntry::Closed(node) => naive.nodes[node].open = false,
            UndoEntry::Retired(node) => naive.nodes[node].gone = true,
            UndoEntry::Cordoned(_) | UndoEntry::Evicted(..) => panic!("{change:?}"),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn pods_go_where_the_naive_snapshot_puts_them(interner in interner(), steps in prop::collection::vec(step(), 1..16)) {
        let mut interner = interner;
        for step in &steps {
            interner.step(step)?;
            for node in interner.snapshot.node_indexes() {
                for class in (0..5).map(PodClassId) {
                    let why_not = interner.snapshot.why_not(class, NodeOrTemplate::Node(node));
                    prop_assert_eq!(why_not.is_none(), interner.naive.allows(class, node), "{:?} on {:?}: {:?}", class, node, why_not);
                }
            }
        }
    }

    #[test]
    fn what_happened_since_a_mark_is_taken_back_whole(
        interner in interner(),
        before in prop::collection::vec(step(), 0..8),
        after in prop::collection::vec(step(), 1..12),
        again in prop::collection::vec(step(), 0..6),
    ) {
        let mut interner = interner;
        for step in &before {
            interner.step(step)?;
        }
        let (fork, view, naive) = (interner.snapshot.fork(), interner.view(), interner.naive.clone());
        for step in &after {
            interner.step(step)?;
        }
        interner.snapshot.revert(fork);
        interner.naive = naive;
        prop_assert_eq!(interner.view(), view);
        for step in &again {
            interner.step(step)?;
        }
    }
}
