//! Tests that scale-down and scale-up agree about drains: what is removed makes no pool grow, neither while its nodes
//! are drained nor when they have gone.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use shared_crds::names::{DRAIN_STARTED_ANNOTATION, DRAINING_TAINT};

use crate::fixtures::{Read, TestCluster, merged};
use crate::requirements::constraints::HOSTNAME_LABEL;
use crate::requirements::node_profile::UNSCHEDULABLE_TAINT;

const ZONE: &str = "topology.kubernetes.io/zone";
const STAYS: &[&str] = &[];
const GOES: &[&str] = &["n3"];
const THREE: [(&str, &str); 3] = [("n1", "a"), ("n2", "a"), ("n3", "a")];

/// A pod that runs: name, node, cpu, and what else is said of it.
type Running = (&'static str, &'static str, &'static str, Value);

/// What has become of removed nodes.
#[derive(Clone, Copy)]
enum Removed {
    Draining,
    Gone,
}

fn owned(kind: &str, app: &str) -> Value {
    json!({ "metadata": { "labels": { "app": app }, "ownerReferences": [
        { "apiVersion": "apps/v1", "kind": kind, "name": app, "uid": app, "controller": true }] } })
}

fn daemon(app: &str) -> Value {
    owned("DaemonSet", app)
}

/// Pods of `s` that spread over `key`.
fn spread(key: &str, change: Value) -> Value {
    let base = json!({ "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "s" } } });
    let constraint = merged(base, change);
    merged(owned("ReplicaSet", "s"), json!({ "spec": { "topologySpreadConstraints": [constraint] } }))
}

/// Pods of `app` that need (`podAffinity`) or avoid (`podAntiAffinity`) the domains of those of `other`.
fn related(app: &str, rule: &str, other: &str, key: &str) -> Value {
    let term = json!({ "topologyKey": key, "labelSelector": { "matchLabels": { "app": other } } });
    let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": [term] });
    merged(owned("ReplicaSet", app), json!({ "spec": { "affinity": { rule: required } } }))
}

/// A pod because of which the node stays.
fn keeper(node: &'static str) -> Running {
    (node, node, "2500m", json!({}))
}

fn draining() -> Value {
    let taint = |key: &str| json!({ "key": key, "effect": "NoSchedule" });
    json!({ "metadata": { "annotations": { DRAIN_STARTED_ANNOTATION: "2026-01-01T11:59:30Z" } },
        "spec": { "unschedulable": true, "taints": [taint(UNSCHEDULABLE_TAINT), taint(DRAINING_TAINT)] } })
}

/// A pool for each zone, with those nodes (name and zone) that are not `removed`. The pods on removed nodes are pending,
/// except that those of `DaemonSet`s stay until their node has gone.
fn cluster(nodes: &[(&str, &str)], pods: &[Running], removed: &[String], as_now: Removed) -> TestCluster {
    let is_removed = |name: &str| removed.iter().any(|node| node == name);
    let mut zones: Vec<&str> = nodes.iter().map(|node| node.1).collect();
    zones.sort_unstable();
    zones.dedup();
    let mut cluster = TestCluster::eager();
    for zone in zones {
        let stay = nodes.iter().filter(|node| node.1 == zone && !is_removed(node.0)).count();
        let template = json!({ "metadata": { "labels": { ZONE: zone } } });
        cluster = cluster.pool(zone, json!({ "spec": { "replicas": stay, "template": template } }));
    }
    for &(name, zone) in nodes {
        let labels = json!({ "metadata": { "labels": { ZONE: zone } } });
        cluster = match (is_removed(name), as_now) {
            (false, _) => cluster.node(zone, name, labels),
            (true, Removed::Draining) => cluster.node(zone, name, merged(labels, draining())),
            (true, Removed::Gone) => cluster,
        };
    }
    for (name, node, cpu, change) in pods {
        let of_daemon = change["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet";
        cluster = match (is_removed(node), of_daemon, as_now) {
            (true, false, _) => cluster.pending(name, 1, cpu, change),
            (true, true, Removed::Gone) => cluster,
            (true, true, Removed::Draining) | (false, ..) => cluster.running(name, node, cpu, change.clone()),
        };
    }
    cluster
}

/// Plans and carries out until nothing more is removed, and returns what was. No pool may grow meanwhile.
fn removed(nodes: &[(&str, &str)], pods: &[Running]) -> Vec<String> {
    let mut removed = Vec::new();
    loop {
        let draining = cluster(nodes, pods, &removed, Removed::Draining).plan();
        let gone = cluster(nodes, pods, &removed, Removed::Gone).plan();
        for decision in draining.pools.iter().chain(&gone.pools) {
            assert!(decision.desired <= decision.current, "grows without {removed:?}: {}", decision.message);
        }
        let victims: Vec<_> = draining.pools.into_iter().flat_map(|decision| decision.victims).collect();
        if victims.is_empty() {
            return removed;
        }
        removed.extend(victims);
    }
}

/// One pod of a spread on each of three nodes, of which n3 is hardly used.
fn one_each(pod: &Value) -> Vec<Running> {
    let on = |name, node| (name, node, "500m", pod.clone());
    vec![keeper("n1"), keeper("n2"), on("s1", "n1"), on("s2", "n2"), on("s3", "n3")]
}

#[test]
fn a_node_whose_domain_counts_while_it_is_drained_stays() {
    let honor = json!({ "nodeTaintsPolicy": "Honor" });
    let tolerates = |key: Value| {
        let tolerations =
            json!({ "spec": { "tolerations": [merged(json!({ "operator": "Exists" }), key)] } });
        merged(spread(HOSTNAME_LABEL, honor.clone()), tolerations)
    };
    let cases = [
        ("the default", spread(HOSTNAME_LABEL, json!({})), STAYS),
        ("Ignore", spread(HOSTNAME_LABEL, json!({ "nodeTaintsPolicy": "Ignore" })), STAYS),
        ("Honor", spread(HOSTNAME_LABEL, honor.clone()), GOES),
        ("Honor, and the cordon is tolerated", tolerates(json!({ "key": UNSCHEDULABLE_TAINT })), GOES),
        ("Honor, and everything is tolerated", tolerates(json!({})), STAYS),
        ("more skew", spread(HOSTNAME_LABEL, json!({ "maxSkew": 2 })), GOES),
        ("no matter", spread(HOSTNAME_LABEL, json!({ "whenUnsatisfiable": "ScheduleAnyway" })), GOES),
    ];
    for (what, pod, expected) in cases {
        assert_eq!(removed(&THREE, &one_each(&pod)), expected, "{what}");
    }
    let plan = cluster(&THREE, &one_each(&spread(HOSTNAME_LABEL, json!({}))), &[], Removed::Gone).plan();
    assert_eq!(plan.verdict("n3"), "NoPlaceToMovePods");
}

#[test]
fn a_zone_counts_as_long_as_its_last_node_is_drained() {
    let nodes = [("n1", "a"), ("n2", "b"), ("n3", "c")];
    let pods = one_each(&spread(ZONE, json!({})));
    assert_eq!(removed(&nodes, &pods), STAYS);
    assert_eq!(removed(&nodes, &one_each(&spread(ZONE, json!({ "nodeTaintsPolicy": "Honor" })))), ["n3"]);
    let nodes = [("n1", "a"), ("n2", "b"), ("n3", "c"), ("n4", "c")];
    let kept = [pods.clone(), vec![keeper("n4")]].concat();
    assert_eq!(removed(&nodes, &kept), ["n3"], "the pod stays in its zone");
    assert_eq!(removed(&nodes, &pods), ["n4"], "the empty node goes first, and then there is no other");
}

#[test]
fn domains_must_be_enough_during_the_drain_and_after_it() {
    for (domains, policy, expected) in
        [(2, "Ignore", STAYS), (2, "Honor", GOES), (3, "Ignore", STAYS), (3, "Honor", STAYS)]
    {
        let pod = spread(HOSTNAME_LABEL, json!({ "minDomains": domains, "nodeTaintsPolicy": policy }));
        assert_eq!(removed(&THREE, &one_each(&pod)), expected, "{domains} domains, {policy}");
    }
    // A daemon's pod counts on each node: during the drain n2 takes the pod of n3, after it two domains are too few.
    let with = |domains: i32| {
        let pod = spread(HOSTNAME_LABEL, json!({ "minDomains": domains }));
        let mut pods = one_each(&pod);
        pods.retain(|pod| pod.0 != "s2");
        pods.extend(
            [("d1", "n1"), ("d2", "n2"), ("d3", "n3")].map(|(name, node)| (name, node, "100m", daemon("s"))),
        );
        pods
    };
    assert_eq!(removed(&THREE, &with(2)), ["n3"]);
    assert_eq!(removed(&THREE, &with(3)), STAYS);
}

#[test]
fn pods_of_another_revision_do_not_count() {
    let of_revision = |revision: &str| {
        let labels = json!({ "metadata": { "labels": { "pod-template-hash": revision } } });
        merged(spread(HOSTNAME_LABEL, json!({ "matchLabelKeys": ["pod-template-hash"] })), labels)
    };
    assert_eq!(removed(&THREE, &one_each(&of_revision("x"))), STAYS);
    let mut pods = one_each(&of_revision("x"));
    pods.retain(|pod| pod.0 != "s3");
    pods.push(("s3", "n3", "500m", of_revision("y")));
    assert_eq!(removed(&THREE, &pods), ["n3"]);
}

#[test]
fn pods_of_daemon_sets_count_until_the_node_has_gone() {
    let daemons = [("d1", "n1"), ("d2", "n2"), ("d3", "n3")];
    let daemons = daemons.map(|(name, node)| (name, node, "100m", daemon("s")));
    let pods = [one_each(&spread(HOSTNAME_LABEL, json!({}))), daemons.to_vec()].concat();
    assert_eq!(removed(&THREE, &pods), STAYS, "one is left on n3, two are on each other node");
    let rest: Vec<_> = pods.into_iter().filter(|pod| pod.0 != "s2").collect();
    assert_eq!(removed(&THREE, &rest), ["n3"], "one is left on n3, and one is on n2");
}

#[test]
fn nodes_that_are_drained_together_all_count() {
    let nodes = [("n1", "a"), ("n2", "a"), ("n3", "a"), ("n4", "a"), ("n5", "a")];
    let on = |change: Value| {
        let pod = spread(HOSTNAME_LABEL, change);
        let spread = [("s1", "n1"), ("s2", "n2"), ("s3", "n3"), ("s4", "n4"), ("s5", "n5")];
        let mut pods = spread.map(|(name, node)| (name, node, "300m", pod.clone())).to_vec();
        pods.extend([keeper("n1"), keeper("n2")]);
        pods
    };
    assert_eq!(removed(&nodes, &on(json!({ "maxSkew": 2 }))), ["n3", "n4"], "n1 and n2 take one more each");
    assert_eq!(removed(&nodes, &on(json!({ "nodeTaintsPolicy": "Honor" }))), ["n3", "n4", "n5"]);
}

#[test]
fn a_pod_that_stays_on_a_drained_node_keeps_others_out_of_its_zone() {
    let nodes = [("n1", "a"), ("n3", "b"), ("n4", "a")];
    let x = related("x", "podAntiAffinity", "y", ZONE);
    let pods = [keeper("n1"), ("x", "n3", "500m", x), ("y", "n4", "100m", daemon("y"))];
    assert_eq!(removed(&nodes, &pods), ["n4"], "n3 can go when n4 has gone");
    let gone = cluster(&nodes, &pods, &["n4".to_owned()], Removed::Gone).plan();
    assert_eq!(gone.pool("b").victims, ["n3"]);
}

#[test]
fn pods_that_need_each_other_move_together() {
    let near = |key: &str| related("x", "podAffinity", "y", key);
    let y = owned("ReplicaSet", "y");
    let pods =
        |x: Value, y: Value| [keeper("n1"), keeper("n2"), ("x", "n3", "300m", x), ("y", "n3", "200m", y)];
    assert_eq!(removed(&THREE, &pods(near(HOSTNAME_LABEL), y.clone())), ["n3"]);
    assert_eq!(removed(&THREE, &pods(near(ZONE), y)), ["n3"]);
    assert_eq!(removed(&THREE, &pods(near(ZONE), daemon("y"))), STAYS, "the daemon's pod does not move");
}

#[test]
fn pods_wait_for_a_node_to_be_gone_and_no_pool_grows_for_them() {
    let n3 = ["n3".to_owned()];
    let mut drained = cluster(&THREE, &one_each(&spread(HOSTNAME_LABEL, json!({}))), &n3, Removed::Draining);
    let plan = drained.plan();
    assert_eq!((plan.results(), plan.desired("a")), (vec!["fits n1".to_owned()], 2));
    let until: Timestamp = "2026-01-01T12:09:30Z".parse().unwrap();
    assert_eq!(plan.next, Some(until), "not for ever");
    drained.observed.now = until;
    let plan = drained.plan();
    assert_eq!((plan.results(), plan.desired("a")), (vec!["grows ns/a".to_owned()], 3));
}

#[test]
fn pods_that_have_no_place_when_the_node_has_gone_either_do_not_wait() {
    let mut pods = one_each(&spread(HOSTNAME_LABEL, json!({})));
    pods.extend([("f1", "n1", "600m", json!({})), ("f2", "n2", "600m", json!({}))]);
    let plan = cluster(&THREE, &pods, &["n3".to_owned()], Removed::Draining).plan();
    assert_eq!(plan.desired("a"), 3, "{:?}", plan.results());
}

#[test]
fn pods_wait_for_what_keeps_them_off_by_affinity_to_leave_with_its_node() {
    let nodes = [("n1", "a"), ("n2", "b"), ("n3", "a")];
    let n3 = ["n3".to_owned()];
    let pods = [keeper("n1"), ("full", "n2", "4", json!({})), ("y", "n3", "100m", daemon("y"))];
    let cluster =
        |change: &Value| cluster(&nodes, &pods, &n3, Removed::Draining).pending("x", 1, "500m", change);
    let plan = cluster(&related("x", "podAntiAffinity", "y", ZONE)).plan();
    assert_eq!(plan.results(), ["fits n1"]);
    assert_eq!((plan.desired("a"), plan.desired("b")), (1, 1));
    // One of two that need each other has been evicted, and may begin anew once the other has gone.
    let near = related("x", "podAffinity", "x", HOSTNAME_LABEL);
    let plan = cluster(&near).running("x-1", "n3", "500m", near).plan();
    assert_eq!(plan.results(), ["fits n1"]);
}
