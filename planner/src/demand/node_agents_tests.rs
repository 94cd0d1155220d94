//! Tests of what is learnt from the pods of a pool's nodes, and of what new nodes are planned with.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::v1alpha1::{DiscoveredPod, DiscoveredResources};

use crate::fixtures::{Read as _, TestCluster, merged};

/// A cluster with pool `a` of four cores, and its node `n` of that template.
fn cluster(created: &str, change: Value) -> TestCluster {
    node(TestCluster::eager().pool("a", json!({ "spec": { "replicas": 1 } })), "n", created, change)
}

/// A Ready node of the first pool's template.
fn node(cluster: TestCluster, name: &str, created: &str, change: Value) -> TestCluster {
    let hash = cluster.observed.pools[0].spec.template_hash();
    let base = json!({ "metadata": { "creationTimestamp": format!("2026-01-01T{created}:00Z"),
        "annotations": { "tandem.dev/template-hash": hash } } });
    cluster.node("a", name, merged(base, change))
}

fn owned(kind: &str, name: &str) -> Value {
    json!({ "metadata": { "namespace": "kube-system", "ownerReferences": [
        { "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": true }] } })
}

fn mirror() -> Value {
    merged(
        owned("Node", "n"),
        json!({ "metadata": { "annotations": { "kubernetes.io/config.mirror": "x" } } }),
    )
}

/// Adds a `DaemonSet` whose template asks for `cpu`.
fn daemon_set(mut cluster: TestCluster, name: &str, cpu: &str) -> TestCluster {
    let object = json!({ "metadata": { "name": name, "namespace": "kube-system" }, "spec": { "selector": {},
        "template": { "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] } } } });
    cluster.observed.daemon_sets.push(Arc::new(serde_json::from_value::<DaemonSet>(object).unwrap()));
    cluster
}

/// A cluster with pool `a`, its node `n` and the `DaemonSet` `agent`, whose template asks for nothing and is of this generation.
fn of_generation(cluster: TestCluster, generation: Option<&str>) -> TestCluster {
    let mut cluster = daemon_set(cluster, "agent", "0");
    let object: &mut DaemonSet = Arc::make_mut(&mut cluster.observed.daemon_sets[0]);
    let annotation = |text: &str| ("deprecated.daemonset.template.generation".to_owned(), text.to_owned());
    object.metadata.annotations = generation.map(|text| [annotation(text)].into());
    cluster
}

/// A pod of the `DaemonSet` `agent` that was made from the template of this generation.
fn made_from(generation: &str) -> Value {
    let label = json!({ "metadata": { "labels": { "pod-template-generation": generation } } });
    merged(owned("DaemonSet", "agent"), label)
}

/// What is learnt of the pool's pods, as `kind name cpu`.
fn learnt(cluster: &TestCluster) -> Vec<String> {
    let plan = cluster.plan();
    let pods = plan.pool("a").discovered.iter().flat_map(|known| &known.pods);
    let cpu = |pod: &DiscoveredPod| pod.requests.get("cpu").map(|cpu| cpu.0.clone());
    pods.map(|pod| format!("{} {} {}", pod.kind, pod.name, cpu(pod).unwrap_or_default())).collect()
}

/// Has the pool remember what `plan` would write.
fn remembering(mut cluster: TestCluster, discovered: Option<&DiscoveredResources>) -> TestCluster {
    let mut pool: Value = serde_json::to_value(&*cluster.observed.pools[0]).unwrap();
    pool["status"] = json!({ "autoscaling": { "discovered": discovered } });
    cluster.observed.pools[0] = Arc::new(serde_json::from_value::<NodePool>(pool).unwrap());
    cluster
}

#[test]
fn a_pool_does_not_grow_for_a_pod_that_does_not_fit_beside_what_its_nodes_run() {
    let none = json!({});
    for (what, change, expected) in [
        ("a static pod", mirror(), vec!["Node proxy 500m"]),
        (
            "a pod like a DaemonSet's",
            merged(
                owned("ReplicaSet", "agent"),
                json!({ "metadata": { "annotations": { "cluster-autoscaler.kubernetes.io/daemonset-pod": "true" } } }),
            ),
            vec!["ReplicaSet agent 500m"],
        ),
        ("a DaemonSet of another API", owned("DaemonSet", "advanced"), vec!["DaemonSet advanced 500m"]),
        ("a daemon that admission changed", owned("DaemonSet", "agent"), vec!["DaemonSet agent 500m"]),
    ] {
        let full = cluster("11:00", none.clone()).running("proxy-n", "n", "500m", change);
        let full = daemon_set(full, "agent", "0").running("app", "n", "3500m", none.clone());
        let full = if what.starts_with("a daemon") {
            full
        } else {
            full.running("agent-n", "n", "0", owned("DaemonSet", "agent"))
        };
        assert_eq!(learnt(&full), expected, "{what}");
        let plan = full.pending("p", 1, "3800m", &none).plan();
        assert_eq!((plan.desired("a"), plan.results()), (1, vec!["no InsufficientCpu".to_owned()]), "{what}");
        let full = cluster("11:00", none.clone()).running("app", "n", "3500m", none.clone());
        let plan = full.pending("p", 1, "3800m", &none).plan();
        assert_eq!(plan.desired("a"), 2, "{what}: the control");
    }
}

#[test]
fn a_daemon_that_asks_for_less_than_its_template_leaves_the_rest_to_pods() {
    let none = json!({});
    let full = cluster("11:00", none.clone())
        .running("agent-n", "n", "100m", owned("DaemonSet", "agent"))
        .running("app", "n", "3500m", none.clone());
    let plan = daemon_set(full, "agent", "2").pending("p", 1, "3", &none).plan();
    assert_eq!(plan.desired("a"), 2);
}

#[test]
fn only_pods_of_a_daemon_sets_template_as_it_is_now_show_what_new_nodes_will_run() {
    let two = || node(cluster("11:00", json!({})), "m", "11:00", json!({}));
    for (what, now, pods, expected) in [
        ("of the template", Some("2"), vec![("n", "500m", "2")], vec!["DaemonSet agent 500m"]),
        ("of an earlier one only", Some("2"), vec![("m", "700m", "1"), ("n", "700m", "1")], vec![]),
        ("of both", Some("2"), vec![("m", "700m", "1"), ("n", "500m", "2")], vec!["DaemonSet agent 500m"]),
        ("nothing says which", None, vec![("n", "500m", "1")], vec!["DaemonSet agent 500m"]),
    ] {
        let running = |cluster: TestCluster, (node, cpu, generation): (&str, &str, &str)| {
            cluster.running(&format!("agent-{node}"), node, cpu, made_from(generation))
        };
        assert_eq!(learnt(&pods.into_iter().fold(of_generation(two(), now), running)), expected, "{what}");
    }
    let full = |generation: &str| {
        let full = of_generation(cluster("11:00", json!({})), Some("2"));
        let full = full.running("agent-n", "n", "500m", made_from(generation));
        full.running("app", "n", "3500m", json!({})).pending("p", 1, "3800m", &json!({})).plan().desired("a")
    };
    assert_eq!((full("1"), full("2")), (2, 1));
}

/// Two pools and the `DaemonSet` `agent`, whose template is of the third generation. Pool `b` has its maximum, and its node `k` is full.
/// These pods of the `DaemonSet` run there, by the generation and the revision that they were made from.
fn rolled_back(a: TestCluster, pods: &[(&str, &str)]) -> TestCluster {
    let full = json!({ "spec": { "replicas": 1, "maxReplicas": 1 } });
    let both = of_generation(a, Some("3")).pool("b", full).node("b", "k", json!({}));
    let both = both.running("full", "k", "3", json!({}));
    pods.iter().fold(both, |both, &(generation, revision)| {
        both.running(&format!("agent-k{generation}"), "k", "500m", of_revision(generation, revision))
    })
}

/// A pod of the `DaemonSet` `agent` that was made from the template of this generation and revision.
fn of_revision(generation: &str, revision: &str) -> Value {
    let label = json!({ "metadata": { "labels": { "controller-revision-hash": revision } } });
    merged(made_from(generation), label)
}

#[test]
fn pods_of_a_template_that_was_brought_back_show_what_new_nodes_will_run() {
    for (what, elsewhere, expected) in [
        ("the first is back", vec![("3", "a")], vec!["DaemonSet agent 500m"]),
        ("there is a third one", vec![("3", "c")], vec![]),
        ("all are of earlier generations", vec![("1", "a"), ("2", "b")], vec![]),
        ("all are of the first", vec![], vec![]),
    ] {
        let here = || cluster("11:00", json!({})).running("agent-n", "n", "500m", of_revision("1", "a"));
        assert_eq!(learnt(&rolled_back(here(), &elsewhere)), expected, "{what}");
        let full = rolled_back(here().running("app", "n", "3500m", json!({})), &elsewhere);
        let grown = if expected.is_empty() { 2 } else { 1 };
        assert_eq!(full.pending("p", 1, "3800m", &json!({})).plan().desired("a"), grown, "{what}");
    }
}

#[test]
fn what_a_daemon_asked_for_is_known_again_when_its_template_is_brought_back() {
    let running = of_generation(cluster("11:00", json!({})), Some("1"));
    let plan = running.running("agent-n", "n", "500m", of_revision("1", "a")).plan();
    let known = plan.pool("a").discovered.clone();
    for (what, elsewhere, desired) in [
        ("the first is back", vec![("1", "a"), ("3", "a")], 0),
        ("there is a third one", vec![("1", "a"), ("3", "c")], 1),
        ("no pod says which the first was", vec![("3", "a")], 1),
    ] {
        let empty = rolled_back(TestCluster::eager().pool("a", json!({})), &elsewhere);
        let empty = remembering(empty, known.as_ref()).pending("p", 1, "3800m", &json!({}));
        assert_eq!(empty.plan().desired("a"), desired, "{what}");
    }
}

#[test]
fn what_a_daemon_asked_for_is_forgotten_with_its_template() {
    let running = of_generation(cluster("11:00", json!({})), Some("2"));
    let plan = running.running("agent-n", "n", "500m", made_from("2")).plan();
    let known = plan.pool("a").discovered.clone();
    for (generation, desired) in [(Some("2"), 0), (Some("3"), 1), (None, 0)] {
        let empty = of_generation(TestCluster::eager().pool("a", json!({})), generation);
        let empty = remembering(empty, known.as_ref()).pending("p", 1, "3800m", &json!({}));
        assert_eq!(empty.plan().desired("a"), desired, "{generation:?}");
    }
}

#[test]
fn only_what_all_settled_nodes_run_is_learnt_and_a_young_node_unlearns_nothing() {
    let none = json!({});
    let one = || cluster("11:00", json!({})).running("proxy-n", "n", "500m", mirror());
    let learns = ["Node proxy 500m"].map(str::to_owned);
    assert_eq!(learnt(&one()), learns);
    assert_eq!(learnt(&node(one(), "young", "11:59", none.clone())), learns);
    assert_eq!(learnt(&node(one(), "bare", "11:00", none.clone())), Vec::<String>::new());
    let both = node(one(), "m", "11:00", none.clone()).running("proxy-m", "m", "700m", mirror());
    assert_eq!(learnt(&both), ["Node proxy 700m"], "of two that started at once the larger");
    let other = node(one(), "m", "11:00", none).running("other-m", "m", "700m", mirror());
    assert_eq!(learnt(&other), Vec::<String>::new());
}

#[test]
fn what_is_remembered_is_kept_while_most_settled_nodes_run_it() {
    let running_on = |nodes: &[&str]| {
        let all = node(cluster("11:00", json!({})), "m", "11:00", json!({}));
        let all = node(all, "k", "11:00", json!({}));
        nodes.iter().fold(all, |all, node| all.running(&format!("proxy-{node}"), node, "500m", mirror()))
    };
    let learns = ["Node proxy 500m"].map(str::to_owned);
    let plan = running_on(&["n", "m", "k"]).plan();
    let known = plan.pool("a").discovered.as_ref();
    assert_eq!(learnt(&remembering(running_on(&["m", "k"]), known)), learns);
    assert_eq!(learnt(&remembering(running_on(&["n"]), known)), Vec::<String>::new());
    assert_eq!(learnt(&running_on(&["m", "k"])), Vec::<String>::new(), "not known before");
}

#[test]
fn a_pool_without_nodes_knows_for_an_hour_what_they_ran() {
    let none = json!({});
    let plan = cluster("11:00", none.clone()).running("proxy-n", "n", "500m", mirror()).plan();
    let known = plan.pool("a").discovered.clone();
    let empty = || TestCluster::eager().pool("a", json!({}));
    let grows = |cluster: TestCluster| cluster.pending("p", 1, "3800m", &json!({})).plan().desired("a");
    assert_eq!(grows(empty()), 1);
    let remembers = remembering(empty(), known.as_ref());
    let after = remembers.plan().pool("a").discovered.clone().unwrap();
    assert!(after.until_time.is_some());
    assert_eq!(grows(remembers), 0);
    let mut later = remembering(empty(), Some(&after));
    later.observed.now = "2026-01-01T13:00:00Z".parse().unwrap();
    assert_eq!(grows(later), 1);
    let young = remembering(cluster("11:59", none), known.as_ref());
    assert_eq!(learnt(&young), ["Node proxy 500m"], "its static pods have not come yet");
    let settled = cluster("11:00", json!({}));
    let plan = remembering(settled.running("proxy-n", "n", "500m", mirror()), known.as_ref()).plan();
    assert_eq!(plan.pool("a").discovered, known, "nothing changes, so that nothing is written");
}

#[test]
fn a_pool_without_nodes_knows_which_pods_those_that_ran_there_keep_away() {
    let ports = |number: i32, protocol: &str, cpu: &str| {
        json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } },
            "ports": [{ "containerPort": number, "hostPort": number, "protocol": protocol }] }] } })
    };
    let apart_from = |app: &str, namespace: &str| {
        let term = json!({ "topologyKey": "kubernetes.io/hostname", "namespaces": [namespace],
            "labelSelector": { "matchLabels": { "app": app } } });
        json!({ "spec": { "affinity": { "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [term] } } } })
    };
    let proxy = merged(mirror(), json!({ "metadata": { "labels": { "app": "proxy" } } }));
    let proxy = merged(proxy, ports(9100, "TCP", "500m"));
    let plan = cluster("11:00", json!({})).running("proxy-n", "n", "500m", proxy).plan();
    let known = plan.pool("a").discovered.clone();
    for (what, pod, desired) in [
        ("its port", ports(9100, "TCP", "1"), 0),
        ("another port", ports(9101, "TCP", "1"), 1),
        ("its port of another protocol", ports(9100, "UDP", "1"), 1),
        ("apart from it", apart_from("proxy", "kube-system"), 0),
        ("apart from another", apart_from("other", "kube-system"), 1),
        ("apart from those of another namespace", apart_from("proxy", "apps"), 1),
    ] {
        let empty = remembering(TestCluster::eager().pool("a", json!({})), known.as_ref());
        assert_eq!(empty.pending("p", 1, "1", &pod).plan().desired("a"), desired, "{what}");
    }
}

#[test]
fn a_young_node_without_what_its_template_promises_is_on_its_way() {
    let gpus = |capacity: Value| json!({ "spec": { "replicas": 1, "template": { "spec": { "capacity": capacity } } } });
    let pod = json!({ "spec": { "containers": [{ "name": "c",
        "resources": { "requests": { "cpu": "1", "example.com/gpu": "1" } } }] } });
    for (what, created, allocatable, desired) in [
        ("no GPU yet", "11:59", json!({}), 1),
        ("none of its GPUs yet", "11:59", json!({ "example.com/gpu": "0" }), 1),
        ("its time is over", "11:00", json!({}), 2),
    ] {
        let cluster = TestCluster::eager().pool("a", gpus(json!({ "example.com/gpu": "1" })));
        let cluster = node(cluster, "n", created, json!({ "status": { "allocatable": allocatable } }));
        let plan = cluster.pending("p", 1, "1", &pod).plan();
        assert_eq!(plan.desired("a"), desired, "{what}");
        if desired == 1 {
            assert_eq!(plan.verdict("n"), "NeededByPendingPods", "{what}");
        }
    }
}

/// A pod that asks for a core and these devices.
fn asking(devices: Value) -> Value {
    let requests = merged(json!({ "cpu": "1" }), devices);
    json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": requests } }] } })
}

/// Pool `a`, whose template has 8 GPUs and 2 network cards, and which has asked for so many nodes.
fn with_devices(replicas: i32) -> TestCluster {
    let capacity = json!({ "example.com/gpu": "8", "example.com/nic": "2" });
    let spec = json!({ "replicas": replicas, "template": { "spec": { "capacity": capacity } } });
    TestCluster::eager().pool("a", json!({ "spec": spec }))
}

/// What a node says of its devices.
fn showing(gpus: &str, nics: &str) -> Value {
    json!({ "status": { "allocatable": { "example.com/gpu": gpus, "example.com/nic": nics } } })
}

#[test]
fn a_young_node_with_a_part_of_its_devices_counts_with_all_of_them() {
    let pod = asking(json!({ "example.com/gpu": "8", "example.com/nic": "2" }));
    for (what, created, gpus, nics, desired) in [
        ("some GPUs", "11:59", "2", "2", 1),
        ("all GPUs but one", "11:59", "7", "2", 1),
        ("some of both", "11:59", "2", "1", 1),
        ("all GPUs and one card", "11:59", "8", "1", 1),
        ("some GPUs and no card", "11:59", "2", "0", 1),
        ("all", "11:59", "8", "2", 1),
        ("some GPUs when its time is over", "11:00", "2", "2", 2),
        ("one card when its time is over", "11:00", "8", "1", 2),
        ("all when its time is over", "11:00", "8", "2", 1),
    ] {
        let cluster = node(with_devices(1), "n", created, showing(gpus, nics));
        let plan = cluster.pending("p", 1, "1", &pod).plan();
        let result = if desired == 1 { "fits n" } else { "grows ns/a" };
        assert_eq!((plan.desired("a"), plan.results()), (desired, vec![result.to_owned()]), "{what}");
    }
}

#[test]
fn a_young_node_with_more_of_one_device_and_a_part_of_the_other_counts_with_more_and_all() {
    for (gpus, nics, expected) in
        [("12", "0", "fits n"), ("12", "2", "fits n"), ("13", "2", "no InsufficientResource")]
    {
        let cluster = node(with_devices(1), "n", "11:59", showing("12", "1"));
        let pod = asking(json!({ "example.com/gpu": gpus, "example.com/nic": nics }));
        assert_eq!(cluster.pending("p", 1, "1", &pod).plan().results(), [expected], "{gpus} and {nics}");
    }
}

#[test]
fn the_pods_on_a_young_node_have_a_part_of_the_devices_that_are_to_come() {
    for (gpus, desired) in [("6", 1), ("7", 2)] {
        let cluster = node(with_devices(1), "n", "11:59", showing("2", "2"));
        let cluster = cluster.running("app", "n", "1", asking(json!({ "example.com/gpu": "2" })));
        let plan = cluster.pending("p", 1, "1", &asking(json!({ "example.com/gpu": gpus }))).plan();
        assert_eq!(plan.desired("a"), desired, "{gpus} of the 6 that are left");
    }
}

#[test]
fn the_first_node_whose_devices_do_not_come_stays_until_it_is_known_whether_those_of_the_second_do() {
    let pod = asking(json!({ "example.com/gpu": "8" }));
    for (what, gpus, created, stays, result) in [
        ("the second is starting", "0", "11:59", true, "fits m"),
        ("the second has some yet", "2", "11:59", true, "fits m"),
        ("the second has all", "8", "11:59", false, "fits m"),
        ("the time of the second is over", "0", "11:00", false, "no InsufficientResource"),
    ] {
        let first = node(with_devices(2), "n", "11:00", showing("0", "2"));
        let plan = node(first, "m", created, showing(gpus, "2")).pending("p", 1, "1", &pod).plan();
        assert_eq!(plan.results(), [result], "{what}");
        assert_eq!(plan.pool("a").victims.is_empty(), stays, "{what}");
        assert_eq!(plan.verdict("n") == "ScaleUpInProgress", stays, "{what}");
    }
}

#[test]
fn a_young_node_of_another_template_counts_with_the_devices_that_it_shows() {
    let other = json!({ "metadata": { "annotations": { "tandem.dev/template-hash": "v2-other" } } });
    for (gpus, desired) in [("2", 1), ("8", 2)] {
        let cluster = node(with_devices(1), "n", "11:59", merged(showing("2", "2"), other.clone()));
        let plan = cluster.pending("p", 1, "1", &asking(json!({ "example.com/gpu": gpus }))).plan();
        assert_eq!(plan.desired("a"), desired, "{gpus} of 2");
    }
}

#[test]
fn a_young_node_is_to_have_the_devices_that_the_pools_nodes_have_and_not_those_of_the_template() {
    let four = json!({ "example.com/gpu": "4" });
    for (what, created, gpus, asked, expected) in [
        ("complete", "11:59", "4", "4", "fits k"),
        ("some yet", "11:59", "2", "4", "fits k"),
        ("more than the others have", "11:59", "2", "5", "no InsufficientResource"),
        ("its time is over", "11:00", "2", "4", "grows ns/a"),
    ] {
        let full = ["n", "m"].iter().fold(with_devices(3), |cluster, name| {
            let cluster = node(cluster, name, "11:00", showing("4", "2"));
            cluster.running(&format!("app-{name}"), name, "1", asking(four.clone()))
        });
        let cluster = node(full, "k", created, showing(gpus, "2"));
        let plan = cluster.pending("p", 1, "1", &asking(json!({ "example.com/gpu": asked }))).plan();
        assert_eq!(plan.results(), [expected], "{what}");
    }
}

#[test]
fn a_young_node_with_a_part_of_devices_that_only_nodes_have_shown_does_not_lower_them() {
    let with_nics = |nics: &str| json!({ "status": { "allocatable": { "example.com/nic": nics } } });
    let four = asking(json!({ "example.com/nic": "4" }));
    let known = cluster("11:00", with_nics("4")).plan().pool("a").discovered.clone();
    let nics = |known: Option<&DiscoveredResources>| known.unwrap().allocatable["example.com/nic"].0.clone();
    assert_eq!(nics(known.as_ref()), "4");
    for (created, expected, shown) in [("11:59", "fits m", "4"), ("11:00", "no InsufficientResource", "1")] {
        let two = TestCluster::eager().pool("a", json!({ "spec": { "replicas": 2 } }));
        let two = node(remembering(two, known.as_ref()), "n", "11:00", with_nics("4"));
        let two = node(two.running("app", "n", "1", four.clone()), "m", created, with_nics("1"));
        let plan = two.pending("p", 1, "1", &four).plan();
        assert_eq!(plan.results(), [expected], "{created}");
        assert_eq!(nics(plan.pool("a").discovered.as_ref()), shown, "{created}");
    }
}

#[test]
fn a_young_node_without_a_label_that_others_have_is_on_its_way() {
    let labelled = json!({ "metadata": { "labels": { "topology.csi.example.com/rack": "r1" } } });
    let pod = json!({ "spec": { "nodeSelector": { "topology.csi.example.com/rack": "r1" } } });
    let full = |replicas: i32| {
        let cluster = TestCluster::eager().pool("a", json!({ "spec": { "replicas": replicas } }));
        node(cluster, "n", "11:00", labelled.clone()).running("app", "n", "4", json!({}))
    };
    let plan = full(1).pending("p", 1, "2", &pod).plan();
    assert_eq!(plan.desired("a"), 2, "a new node will have the label");
    let plan = node(full(2), "m", "11:59", json!({})).pending("p", 1, "2", &pod).plan();
    assert_eq!((plan.desired("a"), plan.results()), (2, vec!["fits m".to_owned()]));
    let plan = node(full(2), "m", "11:00", json!({})).pending("p", 1, "2", &pod).plan();
    assert_eq!(plan.results(), ["no NodeSelectorMismatch"], "its time is over: the pool's nodes differ");
}

#[test]
fn a_pod_that_does_not_fit_beside_the_static_pods_of_a_node_that_is_starting_makes_no_other_node_come() {
    let with_gpu = json!({ "template": { "spec": { "capacity": { "example.com/gpu": "1" } } } });
    let taint = json!({ "spec": { "taints": [{ "key": "readiness.k8s.io/net", "effect": "NoSchedule" }] } });
    let is_down = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    for (what, pool, change) in [
        ("its GPU is missing", with_gpu, json!({})),
        ("its network is missing", json!({}), taint),
        ("it is not Ready", json!({}), is_down),
    ] {
        let starting = |names: &[&str]| {
            let spec = merged(pool.clone(), json!({ "replicas": names.len() }));
            let empty = TestCluster::eager().pool("a", json!({ "spec": spec }));
            names.iter().fold(empty, |cluster, name| node(cluster, name, "11:59", change.clone()))
        };
        let shown = |cluster: TestCluster| cluster.running("proxy-n", "n", "500m", mirror());
        let desired =
            |cluster: TestCluster, pods| cluster.pending("p", pods, "3800m", &json!({})).plan().desired("a");
        assert_eq!(desired(shown(starting(&["n"])), 1), 1, "{what}");
        // One that has begun with nothing yet says nothing against it.
        assert_eq!(desired(shown(starting(&["n", "m"])), 2), 2, "{what}: of two nodes");
        assert_eq!(desired(starting(&["n"]), 2), 2, "{what}: the control");
    }
}
