//! Tests of scale-up: the tables of the peer projects, and what DESIGN §3.1 specifies about expanders, balance and
//! bounds.

use serde_json::{Value, json};

use super::mixes::{Pods, ZONE, amounts, diverse_mix, estimator_mix, shape};
use crate::fixtures::{TestCluster, merged};
use crate::index::PoolIndex;
use crate::input::observed::PassNodes;
use crate::pools;
use crate::requirements::constraints::HOSTNAME_LABEL;
use crate::requirements::pod_class::{HostPort, PodAffinity, PodClass, PodClassId, TopologySpread};
use crate::resources::ResourceNames;
use crate::scale_up::placement::PendingId;

fn class(cpu: i64, memory: i64) -> PodClass {
    PodClass { request: amounts(cpu, memory), ..PodClass::default() }
}

fn spread_over(pods: &mut Pods, key: &str, max_skew: u32) -> PodClass {
    let topology_count = pods.spread_count(key);
    let spreads = vec![TopologySpread { topology_count, max_skew, min_domains: 1, matches_itself: true }];
    PodClass { spreads, increments: vec![topology_count], ..class(20, 100) }
}

/// A node outside all pools in that zone, without room for any pod that requests cpu.
fn full_node(cluster: TestCluster, name: &str, zone: &str) -> TestCluster {
    let change =
        json!({ "metadata": { "labels": { ZONE: zone } }, "status": { "allocatable": { "cpu": "0" } } });
    cluster.node("none", name, change)
}

#[test]
fn packing_agrees_with_the_table_of_cluster_autoscalers_estimator() {
    let pool = |cpu, memory, max| TestCluster::eager().pool("a", shape("a", cpu, memory, 10, max));
    let port = HostPort { port: 5555, protocol: "TCP".into(), address: "0.0.0.0".into() };

    let mut pods = Pods::new();
    pods.pending(class(350, 1000), 10);
    let planned = pods.plan(&pool(1000, 2000, 100));
    assert_eq!((planned.added(), planned.left()), (5, 0), "two of these pods a node");

    let mut pods = Pods::new();
    pods.pending(PodClass { ports: vec![port], ..class(200, 1000) }, 8);
    let planned = pods.plan(&pool(1000, 5000, 100));
    assert_eq!((planned.added(), planned.left()), (8, 0), "one pod a node holds the port");

    let mut pods = Pods::new();
    pods.pending(class(500, 1000), 20);
    let planned = pods.plan(&pool(1000, 5000, 5));
    assert_eq!((planned.added(), planned.left()), (5, 10), "no more nodes than the bound allows");

    let mut pods = Pods::new();
    let spread = spread_over(&mut pods, HOSTNAME_LABEL, 2);
    pods.pending(spread, 8);
    let planned = pods.plan(&full_node(pool(1000, 5000, 100), "n1", "b"));
    assert_eq!(
        (planned.added(), planned.left()),
        (4, 0),
        "two pods a node, since a node without any is there"
    );
    assert_eq!(pods.plan(&pool(1000, 5000, 100)).added(), 1, "a single domain has no skew");

    let mut pods = Pods::new();
    let spread = spread_over(&mut pods, ZONE, 2);
    pods.pending(spread, 8);
    let planned = pods.plan(&full_node(pool(1000, 5000, 100), "n1", "b"));
    assert_eq!((planned.added(), planned.left()), (1, 6), "two pods in the zone, since the other has none");
}

#[test]
fn fifty_thousand_pods_need_exactly_the_nodes_that_their_cpu_fills() {
    let (cluster, pods) = estimator_mix();
    let planned = pods.plan(&cluster);
    assert_eq!((planned.added(), planned.left()), (2595, 0));
}

#[test]
fn the_diverse_mix_finds_all_its_places_on_a_fifth_as_many_nodes() {
    // Measured against the smallest node, all cpu would fill a sixth as many: there it matters which pod is placed
    // first.
    let sizes = [(500, 1, 16_000), (1000, 3, 16_000), (2000, 3, 8000), (1000, 2, 32_000), (2000, 3, 4000)];
    for (count, zones, cpu) in sizes {
        let (cluster, pods) = diverse_mix(count, zones, cpu);
        let planned = pods.plan(&cluster);
        assert_eq!((planned.added(), planned.left()), (count / 5, 0), "{count} pods, {zones} zones, {cpu}m");
    }
}

#[test]
fn pods_that_only_other_pending_pods_make_a_place_for_are_placed_in_the_same_pass() {
    let mut pods = Pods::new();
    let topology_count = pods.topology_count(ZONE);
    // The larger pod is considered first, before the smaller one is placed.
    pods.pending(
        PodClass {
            affinity: Some(PodAffinity { topology_counts: vec![topology_count], matches_itself: false }),
            ..class(900, 100)
        },
        2,
    );
    pods.pending(PodClass { increments: vec![topology_count], ..class(500, 100) }, 1);
    let cluster = TestCluster::eager()
        .pool("a", shape("a", 1000, 5000, 10, 10))
        .pool("b", shape("b", 1000, 5000, 10, 10));
    let planned = pods.plan(&cluster);
    assert_eq!(
        (planned.left(), planned.scale_up.added.to_vec()),
        (0, vec![3, 0]),
        "all in the zone of the smaller"
    );
}

#[test]
fn a_pod_with_affinity_to_its_own_class_begins_a_domain_and_the_others_follow_it() {
    let mut pods = Pods::new();
    let topology_count = pods.topology_count(ZONE);
    let affinity = Some(PodAffinity { topology_counts: vec![topology_count], matches_itself: true });
    pods.pending(PodClass { affinity, increments: vec![topology_count], ..class(900, 100) }, 4);
    let cluster = TestCluster::eager()
        .pool("a", shape("a", 1000, 5000, 10, 3))
        .pool("b", shape("b", 1000, 5000, 10, 10));
    let planned = pods.plan(&cluster);
    assert_eq!((planned.left(), planned.scale_up.added.to_vec()), (1, vec![3, 0]), "the zone's pool is full");
    assert_eq!(*planned.scale_up.limited, [true, false]);
}

#[test]
fn pods_are_placed_anew_when_new_nodes_bring_domains() {
    let mut pods = Pods::new();
    let spread = spread_over(&mut pods, ZONE, 1);
    // All six fit the first node, and spread over the only zone. The others add a second node.
    pods.pending(PodClass { request: amounts(400, 100), ..spread }, 6);
    pods.pending(class(500, 100), 8);
    let pool = |zone| shape(zone, 4000, 50_000, 20, 10);
    let cluster = TestCluster::eager().pool("a", pool("a")).pool("b", pool("b"));
    let planned = pods.plan(&cluster);
    assert_eq!(planned.left(), 0);
    let mut by_pool = [0, 0];
    for &(node, count) in &planned.scale_up.placement.placed[PendingId(0)] {
        let crate::snapshot::Place::Planned(pool) = planned.snapshot.place_of(node) else {
            panic!("{node:?}")
        };
        by_pool[pool.0] += count;
    }
    assert!(by_pool[0].abs_diff(by_pool[1]) <= 1, "as even as the spread asks: {by_pool:?}");
}

#[test]
fn like_pools_share_and_the_smallest_grows_first() {
    let cluster = |max_of_b: i32, change: Value| {
        let zone = |name: &str| shape(name, 4000, 16_000, 10, 10);
        let with = merged(zone("b"), json!({ "spec": { "maxReplicas": max_of_b } }));
        TestCluster::eager()
            .pool("a", merged(zone("a"), json!({ "spec": { "replicas": 2 } })))
            .pool("b", merged(with, change))
            .pool("c", zone("c"))
    };
    let mut pods = Pods::new();
    // Two nodes are upcoming; seven more are needed.
    pods.pending(class(4000, 100), 9);
    let plan = |max_of_b, change| pods.plan(&cluster(max_of_b, change)).scale_up;
    let scale_up = plan(10, json!({}));
    assert_eq!(*scale_up.added, [1, 3, 3], "three each in the end");
    let scale_up = plan(1, json!({}));
    assert_eq!(
        (scale_up.added.to_vec(), scale_up.limited.to_vec()),
        (vec![2, 1, 4], vec![false, true, false])
    );
    let unlike = json!({ "spec": { "template": { "metadata": { "labels": { "disk": "ssd" } } } } });
    assert_eq!(*plan(10, unlike).added, [3, 0, 4], "another label is another sort of node");
}

#[test]
fn each_expander_chooses_by_its_own_measure() {
    // Four pods of a core each: pool a takes one per node, b two, c all four with much room to spare.
    let pool = |cpu: i64, weight: i32| {
        merged(shape("z", cpu, cpu * 4, 10, 3), json!({ "spec": { "weight": weight } }))
    };
    for (expander, grown) in [
        ("LeastWaste", [3, 1, 0]),
        ("Priority", [0, 2, 0]),
        ("MostPods", [0, 2, 0]),
        ("LeastNodes", [0, 0, 1]),
    ] {
        let cluster = TestCluster::new()
            .autoscaler("x", json!({ "expander": expander }))
            .pool("a", pool(1000, 1))
            .pool("b", pool(2100, 9))
            .pool("c", pool(40_000, 1));
        let mut pods = Pods::new();
        pods.pending(class(1000, 4000), 4);
        let planned = pods.plan(&cluster);
        assert_eq!((&*planned.scale_up.added, planned.left()), (&grown[..], 0), "{expander}");
    }
}

#[test]
fn random_draws_by_the_seed_and_nothing_else() {
    let chosen = |seed: u64| {
        let mut cluster = TestCluster::new()
            .autoscaler("x", json!({ "expander": "Random" }))
            .pool("a", shape("z", 1000, 16_000, 10, 3))
            .pool("b", shape("z", 2000, 16_000, 10, 3));
        cluster.observed.seed = seed;
        let mut pods = Pods::new();
        pods.pending(class(1000, 4000), 1);
        pods.plan(&cluster).scale_up.added.to_vec()
    };
    let all: std::collections::BTreeSet<_> = (0..32).map(chosen).collect();
    assert_eq!(all.len(), 2, "both are drawn");
    assert_eq!(chosen(7), chosen(7));
}

#[test]
fn pods_decide_ties_by_their_preferred_node_affinity() {
    let prefers: crate::requirements::constraints::NodeTerm = crate::requirements::constraints::NodeTerm {
        labels: vec![crate::requirements::constraints::NodeRequirement {
            key: ZONE.to_owned(),
            operator: crate::requirements::constraints::RequirementOperator::In,
            values: vec!["b".to_owned()],
        }],
        fields: Vec::new(),
    };
    let preferred = vec![crate::requirements::pod_class::Preference { weight: 10, term: prefers }];
    for (alike, label) in [(true, "same"), (false, "other")] {
        let with = json!({ "spec": { "template": { "metadata": { "labels": { "l": label } } } } });
        let first = json!({ "spec": { "template": { "metadata": { "labels": { "l": "same" } } } } });
        let cluster = TestCluster::eager()
            .pool("a", merged(shape("a", 1000, 16_000, 10, 3), first))
            .pool("b", merged(shape("b", 1000, 16_000, 10, 3), with));
        let mut pods = Pods::new();
        pods.pending(PodClass { preferred: preferred.clone(), ..class(500, 4000) }, 1);
        assert_eq!(*pods.plan(&cluster).scale_up.added, [0, 1], "alike: {alike}");
    }
}

#[test]
fn a_ceiling_leaves_pods_out() {
    let cluster = TestCluster::eager().pool("a", shape("a", 1000, 5000, 10, 8));
    let mut pods = Pods::new();
    pods.pending(class(1000, 100), 10);
    let mut pools = pools::pools(
        &cluster.observed,
        cluster.observed.options,
        &PassNodes::default(),
        &mut ResourceNames::default(),
    );
    pools[PoolIndex(0)].ceiling = Some(3);
    let planned = pods.plan_on(&cluster, pools);
    let scale_up = &planned.scale_up;
    assert_eq!((scale_up.added[PoolIndex(0)], scale_up.limited[PoolIndex(0)]), (3, true));
    assert_eq!(planned.left(), 7);
    let asked = crate::decision::rejections::RejectionInput {
        snapshot: &planned.snapshot,
        pools: &planned.pools,
        classes: &pods.demand.classes,
        names: &ResourceNames::default(),
    };
    assert_eq!(asked.rejections(PodClassId(0))[0].1.reason(), "ScaleUpLimit");
}

#[test]
fn nodes_that_are_there_are_filled_before_those_on_their_way_and_those_before_new_ones() {
    let cluster = TestCluster::eager()
        .pool("a", merged(shape("a", 4000, 16_000, 10, 9), json!({ "spec": { "replicas": 2 } })))
        .node("a", "n1", json!({ "metadata": { "labels": { ZONE: "a" } } }));
    let mut pods = Pods::new();
    pods.pending(class(2000, 1), 6);
    let planned = pods.plan(&cluster);
    assert_eq!((planned.by_tier(), planned.added()), ([2, 2, 2], 1));
}

/// Not a test: prints how long planning takes. `cargo test --release -p planner -- --ignored timing`.
#[test]
#[ignore = "measures, and needs a release build"]
#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn timing() {
    let time = |what: &str, cluster: &TestCluster, pods: &Pods| {
        let start = std::time::Instant::now();
        let planned = pods.plan(cluster);
        let (added, left) = (planned.added(), planned.left());
        println!("{what}: {:?}, {added} nodes, {left} left", start.elapsed());
    };
    let (cluster, pods) = estimator_mix();
    time("estimator", &cluster, &pods);
    for count in [1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 75_000, 100_000] {
        for zones in [1, 3] {
            let (cluster, pods) = diverse_mix(count, zones, 16_000);
            time(&format!("diverse {count} in {zones} zones"), &cluster, &pods);
        }
    }
    let (cluster, pods) = diverse_mix(20_000, 3, 8_000);
    time("diverse 20000 on 8 cores", &cluster, &pods);
    let (cluster, pods) = diverse_mix(20_000, 3, 4_000);
    time("diverse 20000 on 4 cores", &cluster, &pods);
}

/// A node in zone c is planned for the large pod, so everything is placed again with it; then the large pod uses the
/// room in zone b, and the node in zone c is no longer needed.
#[test]
fn a_node_that_is_not_needed_after_all_keeps_no_pod_out_of_another_zone() {
    let pool = |zone: &str, cpu: i64, replicas: i32| {
        merged(shape(zone, cpu, 10, 4, 1), json!({ "spec": { "replicas": replicas } }))
    };
    let cluster =
        TestCluster::eager().pool("a", pool("b", 3, 0)).pool("b", pool("b", 5, 1)).pool("c", pool("c", 4, 0));
    let mut pods = Pods::new();
    let zone = pods.topology_count(ZONE);
    let spread = |matches_itself| {
        vec![TopologySpread { topology_count: zone, max_skew: 1, min_domains: 1, matches_itself }]
    };
    let affinity = Some(PodAffinity { topology_counts: vec![zone], matches_itself: true });
    pods.pending(PodClass { affinity, spreads: spread(true), increments: vec![zone], ..class(1, 0) }, 4);
    pods.pending(PodClass { spreads: spread(false), ..class(4, 2) }, 1);
    let planned = pods.plan(&cluster);
    assert_eq!((&*planned.scale_up.added, planned.left()), (&[1, 0, 0][..], 0));
}
