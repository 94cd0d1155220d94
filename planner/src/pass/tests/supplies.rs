//! Tests of what pending pods compete for: free volumes, and claims that only one pod may use.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::fixtures::{Read, TestCluster, merged};

const ZONE: &str = "topology.kubernetes.io/zone";

fn object<K: DeserializeOwned>(written: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(written).unwrap())
}

/// A cluster with a pool in each of these zones, named after it, and a class without a provisioner.
fn cluster(zones: &[&str]) -> TestCluster {
    let in_zone =
        |zone: &str| json!({ "spec": { "template": { "metadata": { "labels": { ZONE: zone } } } } });
    let mut cluster =
        zones.iter().fold(TestCluster::eager(), |cluster, zone| cluster.pool(zone, in_zone(zone)));
    cluster.observed.storage_classes.push(object(json!({ "metadata": { "name": "local" },
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer" })));
    cluster
}

/// Adds a free volume of 10 GiB.
fn volume(cluster: TestCluster, name: &str, zone: &str) -> TestCluster {
    volume_of(cluster, name, zone, "10Gi")
}

/// Adds a free volume of that size.
fn volume_of(mut cluster: TestCluster, name: &str, zone: &str, size: &str) -> TestCluster {
    cluster.observed.volumes.push(object(json!({ "metadata": { "name": name }, "status": { "phase": "Available" },
        "spec": { "capacity": { "storage": size }, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
            "nodeAffinity": { "required": { "nodeSelectorTerms": [
                { "matchExpressions": [{ "key": ZONE, "operator": "In", "values": [zone] }] }] } } } })));
    cluster
}

/// Adds a claim without a volume.
fn claim(mut cluster: TestCluster, name: &str, change: Value) -> TestCluster {
    let base = json!({ "metadata": { "name": name, "namespace": "apps" }, "status": { "phase": "Pending" },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
            "resources": { "requests": { "storage": "10Gi" } } } });
    cluster.observed.claims.push(object(merged(base, change)));
    cluster
}

fn uses(claims: &[&str]) -> Value {
    let volume = |name: &&str| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } });
    json!({ "spec": { "volumes": claims.iter().map(volume).collect::<Vec<_>>() } })
}

/// Adds pods of 3 cores with a claim each, called like the pod.
fn pods(cluster: TestCluster, names: &[&str]) -> TestCluster {
    names
        .iter()
        .fold(cluster, |cluster, &name| claim(cluster, name, json!({})).pending(name, 1, "3", &uses(&[name])))
}

#[test]
fn a_free_volume_is_there_for_one_claim() {
    for (volumes, names, grown) in [
        (vec!["a"], vec!["p"], vec!["grows ns/a"]),
        (vec!["a"], vec!["p", "q"], vec!["grows ns/a"]),
        (vec!["a", "a"], vec!["p", "q"], vec!["grows ns/a", "grows ns/a"]),
        (vec!["a", "b"], vec!["p", "q"], vec!["grows ns/a", "grows ns/b"]),
        (vec!["a", "b", "a"], vec!["p", "q", "r", "s"], vec!["grows ns/a", "grows ns/a", "grows ns/b"]),
    ] {
        let with_volumes = volumes
            .iter()
            .enumerate()
            .fold(cluster(&["a", "b"]), |cluster, (at, zone)| volume(cluster, &format!("v{at}"), zone));
        let mut found = pods(with_volumes, &names).plan().results();
        assert_eq!(found.len(), names.len());
        found.retain(|result| result.starts_with("grows"));
        found.sort_unstable();
        assert_eq!(found, grown, "{volumes:?} {names:?}");
    }
}

#[test]
fn a_pod_without_a_volume_left_is_told_so() {
    let plan = pods(volume(cluster(&["a"]), "v", "a"), &["p", "q"]).plan();
    assert_eq!(plan.results(), ["grows ns/a", "no NoVolumeAvailable"]);
    assert_eq!(plan.desired("a"), 1);
}

#[test]
fn two_claims_of_one_pod_need_two_volumes() {
    for (volumes, result) in [(1, "no NoVolumeAvailable"), (2, "grows ns/a")] {
        let with_volumes =
            (0..volumes).fold(cluster(&["a"]), |cluster, at| volume(cluster, &format!("v{at}"), "a"));
        let both = claim(claim(with_volumes, "c", json!({})), "d", json!({}));
        let plan = both.pending("p", 1, "3", &uses(&["c", "d"])).plan();
        assert_eq!(plan.results(), [result]);
    }
}

#[test]
fn a_pod_takes_the_smallest_volume_that_its_claim_can_use() {
    // Whichever of the claims and volumes comes first by name.
    for (large_claim, small_claim, large, small) in [("c", "d", "v1", "v2"), ("d", "c", "v2", "v1")] {
        let with_large = volume_of(cluster(&["a"]), large, "a", "100Gi");
        let with_volumes = volume_of(with_large, small, "a", "10Gi");
        let asks = json!({ "spec": { "resources": { "requests": { "storage": "50Gi" } } } });
        let with_claims = claim(claim(with_volumes, large_claim, asks), small_claim, json!({}));
        // The pod with the small claim is larger, and placed first.
        let plan = with_claims
            .pending("p", 1, "2900m", &uses(&[large_claim]))
            .pending("q", 1, "3", &uses(&[small_claim]))
            .plan();
        assert_eq!(plan.results(), ["grows ns/a", "grows ns/a"], "{large_claim}");
        assert_eq!(plan.desired("a"), 2);
    }
}

#[test]
fn pods_that_share_a_claim_share_its_volume() {
    let shared = claim(volume(cluster(&["a"]), "v", "a"), "c", json!({}));
    let plan = shared.pending("p", 2, "3", &uses(&["c"])).plan();
    assert_eq!(plan.desired("a"), 2);
}

#[test]
fn a_claim_that_pods_share_takes_a_volume_once_and_where_the_first_of_them_is() {
    let with_claims = |volumes: &[&str]| {
        let with_volumes =
            volumes.iter().fold(cluster(volumes), |cluster, zone| volume(cluster, &format!("v{zone}"), zone));
        claim(claim(with_volumes, "c", json!({})), "d", json!({}))
    };
    let plan = |volumes: &[&str], cpu: &str| {
        let shared = with_claims(volumes).pending("p", 2, cpu, &uses(&["c"]));
        shared.pending("q", 1, "3", &uses(&["d"])).plan()
    };
    let one = plan(&["a"], "3");
    assert_eq!(one.results(), ["grows ns/a", "grows ns/a", "no NoVolumeAvailable"]);
    let two = plan(&["a", "b"], "3");
    let mut sizes = [two.desired("a"), two.desired("b")];
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 2], "the sharing pods in one zone, the other pod in the other");
    // Pods that find no place take nothing.
    assert_eq!(plan(&["a"], "9").results()[2], "grows ns/a");
}

#[test]
fn a_class_that_makes_volumes_does_not_run_out() {
    let mut cluster = volume(cluster(&["a"]), "v", "a");
    cluster.observed.storage_classes =
        vec![object(json!({ "metadata": { "name": "local" }, "provisioner": "disk",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{ "matchLabelExpressions": [{ "key": ZONE, "values": ["a"] }] }] }))];
    assert_eq!(pods(cluster, &["p", "q", "r"]).plan().desired("a"), 3);
}

#[test]
fn a_claim_for_one_pod_serves_the_first_that_finds_a_place() {
    let once = json!({ "spec": { "accessModes": ["ReadWriteOncePod"], "volumeName": "v" }, "status": { "phase": "Bound" } });
    let with_claim = || claim(volume(cluster(&["a"]), "v", "a"), "c", once.clone());
    let plan = with_claim().pending("p", 2, "3", &uses(&["c"])).plan();
    assert_eq!(plan.results(), ["grows ns/a", "no ClaimInUse"]);
    assert_eq!(plan.desired("a"), 1);
    let plan =
        with_claim().pending("large", 1, "9", &uses(&["c"])).pending("p", 1, "3", &uses(&["c"])).plan();
    assert_eq!(plan.results(), ["no InsufficientCpu", "grows ns/a"]);
    let twice = uses(&["c", "c"]);
    assert_eq!(with_claim().pending("p", 1, "3", &twice).plan().results(), ["grows ns/a"]);
}

#[test]
fn a_pod_whose_nomination_is_believed_takes_its_volume() {
    let free = || {
        let with_volume = volume(cluster(&["a"]), "v", "a");
        let with_node = with_volume.node("other", "n1", json!({ "metadata": { "labels": { ZONE: "a" } } }));
        let with_claims = claim(claim(with_node, "c", json!({})), "d", json!({}));
        with_claims.pending("q", 1, "1", &uses(&["d"]))
    };
    assert_eq!(free().plan().results(), ["fits n1"]);
    let nominated = merged(uses(&["c"]), json!({ "status": { "nominatedNodeName": "n1" } }));
    assert_eq!(free().pending("p", 1, "1", &nominated).plan().results(), ["no NoVolumeAvailable"]);
}
