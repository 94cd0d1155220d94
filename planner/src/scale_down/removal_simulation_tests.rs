use proptest::prelude::*;

use super::*;
use crate::requirements::constraints::{Constraints, HOSTNAME_LABEL};
use crate::requirements::node_profile::NodeProfile;
use crate::requirements::pod_class::{
    CountedNodes, PodAffinity, TopologyCount, TopologyCounts, TopologySpread,
};
use crate::resources::{Amounts, Basic, Resource};
use crate::snapshot::Place;
use crate::snapshot::setup::{NodeSetup, Setup};

fn amounts(cpu: i64, pods: i64) -> Amounts {
    let mut a = Amounts::default();
    a.set(Resource::Basic(Basic::Cpu), cpu);
    a.set(Resource::Basic(Basic::Pods), pods);
    a
}

/// The only topology count of a test.
const HERE: TopologyCountId = TopologyCountId(0);

/// A topology count of all nodes.
fn counting(key: &str) -> TopologyCount {
    TopologyCount { key: key.to_owned(), nodes: CountedNodes::All }
}

/// A node with four free cores.
fn node(at: usize, zone: &str, pods: Vec<(PodClassId, usize)>) -> NodeSetup {
    let mut profile = NodeProfile::default();
    profile.labels.insert(HOSTNAME_LABEL.to_owned(), format!("n{at}"));
    profile.labels.insert("zone".to_owned(), zone.to_owned());
    NodeSetup {
        place: Place::Node(PassNodeIndex(at)),
        profile: profile.into(),
        free: amounts(4000, 10),
        pods,
        ports: vec![],
        increments: vec![],
        open: true,
    }
}

fn snapshot(
    classes: &PodClasses,
    topology_counts: &TopologyCounts,
    nodes: Vec<NodeSetup>,
) -> ClusterSnapshot {
    ClusterSnapshot::new(Setup {
        constraint_sets: &vec![Constraints::default()].into(),
        classes,
        topology_counts,
        supplies: &Indexed::default(),
        pending: &vec![false].into(),
        nodes,
        templates: Indexed::default(),
    })
}

#[test]
fn departures_respect_constraints_and_arrivals() {
    let classes: PodClasses = vec![
        PodClass {
            request: amounts(1000, 1),
            anti_affinity: vec![HERE],
            increments: vec![HERE],
            ..PodClass::default()
        },
        PodClass { request: amounts(2000, 1), ..PodClass::default() },
    ]
    .into();
    let (zero, one) = (PodClassId(0), PodClassId(1));
    // Pods: 0 class 0 on n0, 1 class 0 on n1, 2 class 1 on n2, 3 class 1 on n0.
    let nodes = vec![
        node(0, "z", vec![(zero, 1), (one, 1)]),
        node(1, "z", vec![(zero, 1)]),
        node(2, "z", vec![(one, 1)]),
    ];
    let mut snapshot = snapshot(&classes, &vec![counting(HOSTNAME_LABEL)].into(), nodes);
    let mut during = snapshot.clone();
    let [n0, n1, n2] = [0, 1, 2].map(PassNodeIndex);
    let [p0, p1, p2, p3, p4] = [0, 1, 2, 3, 4].map(PodIndex);
    let placed =
        PlacedPods::from(vec![Some((zero, n0)), Some((zero, n1)), Some((one, n2)), Some((one, n0)), None]);
    let mut d = RemovalSimulation::new(&mut snapshot, Some(&mut during), &classes, &placed);
    assert_eq!(d.could_leave(n0, &[p0, p3]), Ok(()));
    assert_eq!(d.leave(n0, &[p0, p3]), Ok(()));
    assert_eq!(d.could_leave(n1, &[p1]), Err(p1), "the other of its class is on n2 now");
    assert_eq!(d.could_leave(n1, &[]), Err(p3), "what arrived there moves on, and cannot");
    assert_eq!(d.could_leave(n2, &[p2, p4]), Err(p4), "a pod of no class has no place");
}

const PLAIN: PodClassId = PodClassId(0);
const NEAR: PodClassId = PodClassId(1);
const APART: PodClassId = PodClassId(2);
const SPREADING: PodClassId = PodClassId(3);
const COUNTED: PodClassId = PodClassId(4);

/// One class for each way in which pods look at each other in a zone, of a core and a half.
fn classes() -> PodClasses {
    let affinity = PodAffinity { topology_counts: vec![HERE], matches_itself: true };
    let spread = TopologySpread { topology_count: HERE, max_skew: 1, min_domains: 1, matches_itself: true };
    let class = PodClass { request: amounts(1500, 1), ..PodClass::default() };
    vec![
        class.clone(),
        PodClass { affinity: Some(affinity), increments: vec![HERE], ..class.clone() },
        PodClass { anti_affinity: vec![HERE], ..class.clone() },
        PodClass { spreads: vec![spread], increments: vec![HERE], ..class.clone() },
        PodClass { increments: vec![HERE], ..class.clone() },
        PodClass { anti_affinity: vec![HERE], increments: vec![HERE], ..class },
    ]
    .into()
}

#[test]
fn a_drained_node_is_seen_by_pods_that_spread_or_look_at_what_stays_on_it() {
    let classes = classes();
    for (what, moving, staying, increments, expected) in [
        ("nothing moves", vec![], vec![COUNTED], vec![], false),
        ("no constraint", vec![PLAIN, COUNTED], vec![COUNTED], vec![], false),
        ("all that counts moves", vec![NEAR, NEAR, COUNTED], vec![PLAIN], vec![], false),
        ("near to one that stays", vec![NEAR], vec![COUNTED], vec![], true),
        ("near to its like, which stays", vec![NEAR], vec![NEAR], vec![], true),
        ("near to a daemon to come", vec![NEAR], vec![], vec![HERE], true),
        ("apart from one that stays", vec![PLAIN, APART], vec![COUNTED], vec![], true),
        ("apart from one that moves", vec![COUNTED, APART], vec![PLAIN], vec![], false),
        ("spreads", vec![SPREADING], vec![], vec![], true),
    ] {
        let placed: PlacedPods = moving.iter().map(|&class| Some((class, PassNodeIndex(0)))).collect();
        let pods = moving.iter().chain(&staying).map(|&class| (class, 1)).collect();
        let first = NodeSetup { increments, ..node(0, "z", pods) };
        let snapshot =
            snapshot(&classes, &vec![counting("zone")].into(), vec![first, node(1, "z", vec![(COUNTED, 1)])]);
        let moving = MovingPods { nodes: vec![PassNodeIndex(0)], pods: placed.indexes().collect() };
        assert_eq!(sees_drained_nodes(&moving, &snapshot, &classes, &placed), expected, "{what}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// Nodes by their zones; pods by class, node, and whether they move with it; how many of the first nodes may go.
    #[test]
    fn where_no_moving_pod_sees_drained_nodes_they_make_no_difference(
        zones in prop::collection::vec(0_usize..3, 2..6),
        pods in prop::collection::vec(((0_usize..6).prop_map(PodClassId), 0_usize..6, prop::bool::weighted(0.8)), 0..10),
        candidates in 1_usize..5,
        abandoned in prop::bool::ANY,
    ) {
        let classes = classes();
        let pods: Vec<_> = pods.into_iter().map(|(class, at, moves)| (class, at % zones.len(), moves)).collect();
        let of_node = |at: usize| {
            let mut counts = PodCounts::new();
            pods.iter().filter(|pod| pod.1 == at).for_each(|pod| *counts.entry(pod.0).or_default() += 1);
            counts.into_iter().collect()
        };
        let nodes = zones.iter().enumerate().map(|(at, zone)| node(at, &format!("z{zone}"), of_node(at)));
        let mut after = snapshot(&classes, &vec![counting("zone")].into(), nodes.collect());
        let placed: PlacedPods = pods.iter().map(|&(class, at, _)| Some((class, PassNodeIndex(at)))).collect();
        let moves = |at: PassNodeIndex, pod: PodIndex| pods[pod.0].1 == at.0 && pods[pod.0].2;
        let moving = |at: PassNodeIndex| placed.indexes().filter(|&pod| moves(at, pod)).collect::<Vec<_>>();
        let leaving: Vec<_> = (0..candidates.min(zones.len())).map(PassNodeIndex).collect();
        let mut all: Vec<PodIndex> = leaving.iter().flat_map(|&at| moving(at)).collect();
        all.sort_unstable();
        let all = MovingPods { nodes: leaving.clone(), pods: all };
        if sees_drained_nodes(&all, &after, &classes, &placed) {
            return Ok(());
        }
        let (mut alone, mut during) = (after.clone(), after.clone());
        let mut both = RemovalSimulation::new(&mut after, Some(&mut during), &classes, &placed);
        let mut alone = RemovalSimulation::new(&mut alone, None, &classes, &placed);
        for (turn, &at) in leaving.iter().enumerate() {
            if abandoned && turn == 0 {
                both.abandon(at, &moving(at));
                alone.abandon(at, &moving(at));
                continue;
            }
            prop_assert_eq!(both.could_leave(at, &moving(at)), alone.could_leave(at, &moving(at)), "{:?}", at);
            prop_assert_eq!(both.leave(at, &moving(at)), alone.leave(at, &moving(at)), "{:?}", at);
        }
    }
}
