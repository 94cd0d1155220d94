use std::collections::{BTreeMap, BTreeSet};

use shared_crds::NodePool;
use shared_crds::names::{MEMBER_LABEL, TEMPLATE_HASH_ANNOTATION};

use super::*;

fn whole(pod: Pod) -> Pod {
    pod
}

fn label<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn kind(pod: &Pod) -> &str {
    let owners = pod.metadata.owner_references.as_ref().unwrap();
    &owners[0].name
}

/// Thousandths of a core.
fn cpu(pod: &Pod) -> u64 {
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let requests = container.resources.as_ref().unwrap().requests.as_ref().unwrap();
    requests["cpu"].0.strip_suffix('m').unwrap().parse().unwrap()
}

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().node_name.as_deref().unwrap()
}

#[test]
fn every_mix_is_the_same_each_time_and_names_no_object_twice() {
    let mixes = [
        || karpenter(1003, &mut whole),
        || estimator(1, &mut whole),
        || run_once_up(3, &mut whole),
        || run_once_down(5, &mut whole),
        || Replan::new(6, 61, &mut whole).cluster,
    ];
    for mix in mixes {
        let (one, other) = (mix(), mix());
        assert_eq!(one.pods, other.pods);
        assert_eq!(one.nodes, other.nodes);
        let names: BTreeSet<_> = one.pods.iter().map(|p| p.metadata.name.clone()).collect();
        assert_eq!(names.len(), one.pods.len());
    }
}

#[test]
fn karpenters_mix_has_five_kinds_in_equal_parts_and_every_value_of_each_draw() {
    let mix = karpenter(1003, &mut whole);
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in &mix.pods {
        *kinds.entry(kind(pod)).or_default() += 1;
    }
    let expected =
        [("host-apart", 200), ("host-spread", 200), ("plain", 203), ("zone-near", 200), ("zone-spread", 200)];
    assert_eq!(kinds, expected.into());
    let drawn: BTreeSet<_> = mix.pods.iter().map(|p| cpu(p)).collect();
    assert_eq!(drawn, [100, 250, 500, 1000, 1500].into());
    let values: BTreeSet<_> = mix.pods.iter().filter_map(|p| label(p, SPREAD_LABEL)).collect();
    assert_eq!(values.len(), 7);
    let alone: BTreeSet<_> = mix.pods.iter().filter_map(|p| label(p, ANTI_AFFINITY_LABEL)).collect();
    assert_eq!(alone, ["nginx"].into(), "one label for all of them");
    assert_eq!(mix.pools.len(), 24);
}

#[test]
fn the_estimators_case_is_the_peers() {
    let mix = estimator(100, &mut whole);
    assert_eq!(mix.pods.len(), 51_000);
    assert_eq!(mix.pods.iter().map(|p| cpu(p)).sum::<u64>().div_ceil(1000), 2595);
    assert_eq!(estimator_nodes(100), 2595);
}

#[test]
fn forty_pods_in_a_hundred_run_on_every_node_of_the_shrinking_cluster() {
    let mix = run_once_down(5, &mut whole);
    let mut asked: BTreeMap<&str, u64> = BTreeMap::new();
    for pod in &mix.pods {
        *asked.entry(node_of(pod)).or_default() += cpu(pod);
    }
    assert_eq!(asked.len(), 5);
    assert!(asked.values().all(|&cpu| cpu == 4000), "{asked:?}");
}

#[test]
fn a_large_cluster_keeps_the_constraints_of_the_pods_that_come() {
    let replan = Replan::new(6, 61, &mut whole);
    let cluster = &replan.cluster;
    assert_eq!((cluster.nodes.len(), cluster.pods.len()), (6, 60));
    let alone: Vec<_> = cluster.pods.iter().filter(|p| kind(p) == "host-apart").map(|p| node_of(p)).collect();
    assert_eq!(alone.iter().collect::<BTreeSet<_>>().len(), 6, "one on every node");
    assert_eq!(alone.len(), 6);
    let daemons = cluster.pods.iter().filter(|p| kind(p) == "node-agent").map(|p| node_of(p));
    assert_eq!(daemons.collect::<BTreeSet<_>>().len(), 6, "one on every node");
    assert_eq!(cluster.daemon_sets[0].metadata.name.as_deref(), Some("node-agent"));
    for node in &cluster.nodes {
        let annotations = node.metadata.annotations.as_ref().unwrap();
        let labels = node.metadata.labels.as_ref().unwrap();
        let is_its = |pool: &&Arc<NodePool>| pool.metadata.name.as_ref() == labels.get(MEMBER_LABEL);
        let pool = cluster.pools.iter().find(is_its).unwrap();
        assert_eq!(annotations.get(TEMPLATE_HASH_ANNOTATION), pool.spec.template_hash().as_ref());
    }
    let zone_of = |name: &str| {
        let node = cluster.nodes.iter().find(|n| n.metadata.name.as_deref() == Some(name)).unwrap();
        node.metadata.labels.as_ref().unwrap()[ZONE_KEY].clone()
    };
    for pod in cluster.pods.iter().filter(|p| kind(p) == "zone-near") {
        assert_eq!(label(pod, AFFINITY_LABEL), Some(zone_of(node_of(pod)).as_str()));
    }
    let replicas: i32 = cluster.pools.iter().filter_map(|p| p.spec.replicas).sum();
    assert_eq!(replicas, 6);
    let expected: Vec<_> = (0..5).map(|pass| replan.newcomer(pass).1).collect();
    assert_eq!(
        expected,
        [
            ExpectedPlacement::Fits,
            ExpectedPlacement::Fits,
            ExpectedPlacement::Fits,
            ExpectedPlacement::Fits,
            ExpectedPlacement::NewNode
        ]
    );
}
