//! Property tests of scale-up: each placement is one that the naive snapshot allows at that moment, no bound is
//! violated, no pod is left out that a pool with room would take, and the same input gives the same plan.

use proptest::prelude::*;
use serde_json::json;

use super::mixes::{Planned, Pods};
use crate::demand::{Demand, PendingGroup};
use crate::fixtures::TestCluster as Cluster;
use crate::index::{Indexed, PassNodeIndex, PodIndex, PoolIndex};
use crate::pools::Pool;
use crate::requirements::node_profile::NodeProfile;
use crate::requirements::pod_class::PodClassId;
use crate::snapshot::naive::{Naive, NaiveNode};
use crate::snapshot::tests::{ZONE, amounts, class, constraint_sets, replay, topology_counts};
use crate::snapshot::{NodeIndex, Place};

fn cluster() -> impl Strategy<Value = (Cluster, Vec<(PodClassId, PassNodeIndex)>)> {
    let zone = || prop::sample::select(vec!["a", "b", "c"]);
    let pool = (zone(), 3_i64..9, 0_i32..2, 0_i32..4, prop::bool::weighted(0.2), 1_i32..4);
    let node = (zone(), 3_i64..9, prop::collection::vec((0_usize..5).prop_map(PodClassId), 0..3));
    let expander = prop::sample::select(vec!["LeastWaste", "Priority", "MostPods", "LeastNodes", "Random"]);
    (prop::collection::vec(pool, 1..4), prop::collection::vec(node, 0..3), expander, 0_u64..3).prop_map(
        |(pools, nodes, expander, seed)| {
            let mut cluster = Cluster::new().autoscaler("x", json!({ "expander": expander }));
            for (at, (zone, size, replicas, extra, tainted, weight)) in pools.into_iter().enumerate() {
                let taints: Vec<_> =
                    tainted.then(|| json!({ "key": "t", "effect": "NoSchedule" })).into_iter().collect();
                let capacity = json!({ "cpu": format!("{size}m"), "memory": size.to_string(), "pods": "4" });
                cluster = cluster.pool(
                    &format!("pool{at}"),
                    json!({ "spec": { "replicas": replicas, "maxReplicas": replicas + extra, "weight": weight,
                        "template": { "metadata": { "labels": { ZONE: zone } }, "spec": { "capacity": capacity, "taints": taints } } } }),
                );
            }
            let mut placed = Vec::new();
            for (at, (zone, size, pods)) in nodes.into_iter().enumerate() {
                placed.extend(pods.into_iter().map(|class| (class, PassNodeIndex(at))));
                cluster = cluster.node(
                    "none",
                    &format!("n{at}"),
                    json!({ "metadata": { "labels": { ZONE: zone } },
                        "status": { "allocatable": { "cpu": format!("{size}m"), "memory": size.to_string(), "pods": "4" } } }),
                );
            }
            cluster.observed.seed = seed;
            (cluster, placed)
        },
    )
}

fn demand() -> impl Strategy<Value = Demand> {
    let of_class = (0_usize..5).prop_map(PodClassId);
    (prop::collection::vec(class(), 5), prop::collection::vec((of_class, 1_usize..7), 1..6)).prop_map(
        |(classes, groups)| {
            let group = |(class, count)| PendingGroup { class, priority: 0, pods: vec![PodIndex(0); count] };
            let groups = groups.into_iter().map(group).collect();
            Demand {
                constraint_sets: constraint_sets(),
                topology_counts: topology_counts(),
                classes: classes.into(),
                groups,
                ..Demand::default()
            }
        },
    )
}

fn naive_node(profile: &NodeProfile, pool: Option<&Pool>, size: i64) -> NaiveNode {
    let capacity =
        pool.and_then(|p| p.template.as_ref().ok()).map_or(amounts(size, size, 4), |t| t.allocatable.clone());
    NaiveNode {
        profile: profile.clone(),
        capacity,
        ports: Vec::new(),
        increments: Vec::new(),
        pods: Vec::new(),
        open: true,
        gone: false,
    }
}

/// The naive snapshot before anything is placed, and the properties of new nodes.
fn naive(cluster: &Cluster, demand: &Demand, planned: &Planned) -> (Naive, Indexed<PoolIndex, NaiveNode>) {
    let of_pool = |pool: &Pool| naive_node(&pool.template.as_ref().unwrap().profile, Some(pool), 0);
    let templates: Indexed<PoolIndex, _> = planned.pools.iter().map(of_pool).collect();
    let existing = cluster.observed.nodes.iter().map(|node| {
        let cpu = &node.status.as_ref().unwrap().allocatable.as_ref().unwrap()["memory"].0;
        naive_node(&NodeProfile::of_node(node), None, cpu.parse().unwrap())
    });
    let upcoming = planned.pools.iter().zip(&templates);
    let upcoming =
        upcoming.flat_map(|(pool, template)| std::iter::repeat_n(template.clone(), pool.missing()));
    let mut nodes: Indexed<NodeIndex, _> = existing.chain(upcoming).collect();
    for &(class, node) in demand.placed.iter().flatten() {
        nodes[planned.snapshot.node_of(node)].pods.push(class);
    }
    let Demand { constraint_sets, classes, topology_counts, .. } = demand.clone();
    (Naive { constraint_sets, classes, topology_counts, nodes }, templates)
}

/// A plan, and the naive snapshot after it.
struct Replayed {
    pods: Pods,
    planned: Planned,
    naive: Naive,
    /// The properties of a new node of each pool.
    templates: Indexed<PoolIndex, NaiveNode>,
}

/// Plans, and repeats the plan in the naive snapshot, which must allow each step.
fn replayed(
    cluster: &Cluster,
    placed: Vec<(PodClassId, PassNodeIndex)>,
    demand: Demand,
) -> Result<Replayed, TestCaseError> {
    let pods = Pods { demand: Demand { placed: placed.into_iter().map(Some).collect(), ..demand } };
    let planned = pods.plan(cluster);
    let (mut naive, templates) = naive(cluster, &pods.demand, &planned);
    replay(&planned.snapshot, &mut naive, &templates)?;
    Ok(Replayed { pods, planned, naive, templates })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn every_place_is_allowed_no_bound_is_broken_and_no_pod_is_left_out_for_nothing(
        (cluster, placed) in cluster(),
        demand in demand(),
    ) {
        let Replayed { pods, planned, .. } = replayed(&cluster, placed, demand)?;
        let demand = &pods.demand;

        let placement = &planned.scale_up.placement;
        let asked: usize = demand.groups.iter().map(|group| group.pods.len()).sum();
        prop_assert_eq!(planned.by_tier().iter().sum::<usize>() + planned.left(), asked);
        let mut nodes: Indexed<PoolIndex, usize> = vec![0; planned.pools.len()].into();
        for node in planned.snapshot.node_indexes().filter(|&node| !planned.snapshot.is_gone(node)) {
            if let Place::Planned(pool) = planned.snapshot.place_of(node) {
                nodes[pool] += 1;
                prop_assert!(!planned.snapshot.pods_on(node).is_empty(), "a node without a pod");
            }
        }
        prop_assert_eq!(&nodes, &planned.scale_up.added);
        for (at, pool) in planned.pools.enumerated() {
            prop_assert!(nodes[at] <= pool.room());
        }
        let again = pods.plan(&cluster);
        prop_assert_eq!(&again.scale_up.added, &planned.scale_up.added);
        prop_assert_eq!(&again.scale_up.limited, &planned.scale_up.limited);
        prop_assert_eq!(&again.scale_up.placement, placement);
    }

    #[test]
    fn no_more_upcoming_nodes_are_needed_than_pods_that_wait_and_one(
        (cluster, placed) in cluster(),
        demand in demand(),
        owed in 0_usize..40,
    ) {
        let pods = Pods { demand: Demand { placed: placed.into_iter().map(Some).collect(), ..demand } };
        let mut pools = pods.plan(&cluster).pools;
        for pool in &mut pools {
            (pool.bounds.base, pool.bounds.max) = (pool.bounds.base + owed, pool.bounds.max + owed);
        }
        let waiting = pods.demand.groups.iter().map(|group| group.pods.len()).sum();
        let all = pods.plan_on(&cluster, pools.clone());
        let some = pods.plan_among(&cluster, pools, waiting);
        let upcoming = |planned: &Planned| {
            let nodes = planned.snapshot.node_indexes();
            nodes.filter(|&node| matches!(planned.snapshot.place_of(node), Place::Upcoming(_))).count()
        };
        prop_assert!(upcoming(&some) <= some.pools.len() * (waiting + 1));
        let places = |planned: &Planned| {
            let placed = planned.scale_up.placement.placed.iter();
            let of_class = |nodes: &Vec<(NodeIndex, usize)>| {
                let mut places: Vec<_> =
                    nodes.iter().map(|&(node, pods)| (planned.snapshot.place_of(node), pods)).collect();
                places.sort_unstable();
                places
            };
            placed.map(of_class).collect::<Vec<_>>()
        };
        prop_assert_eq!(places(&some), places(&all));
        prop_assert_eq!(some.scale_up.placement.left, all.scale_up.placement.left);
        prop_assert_eq!(some.scale_up.added, all.scale_up.added);
        prop_assert_eq!(some.scale_up.limited, all.scale_up.limited);
    }

    #[test]
    fn no_pod_is_left_that_a_node_or_a_pool_with_room_would_take(
        (cluster, placed) in cluster(),
        demand in demand(),
    ) {
        let Replayed { pods, planned, mut naive, templates } = replayed(&cluster, placed, demand)?;
        let classes = pods.ordered_classes(&cluster, &planned);
        for (&class, &left) in classes.iter().zip(&planned.scale_up.placement.left) {
            if left == 0 {
                continue;
            }
            for (pool, template) in templates.enumerated() {
                let node = naive.nodes.push(template.clone());
                let takes = naive.allows(class, node);
                naive.nodes.pop();
                let full = planned.scale_up.added[pool] >= planned.pools[pool].room();
                prop_assert!(!takes || full, "{:?} has room for {:?}", pool, class);
                prop_assert!(!takes || planned.scale_up.limited[pool], "{:?} is limited by {:?}", pool, class);
            }
        }
    }
}
