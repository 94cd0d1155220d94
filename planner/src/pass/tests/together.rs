//! Tests of how parts of the planner interact: decisions in close succession, limits together with removals, upcoming
//! nodes.

use serde_json::{Value, json};
use shared_crds::names::MEMBER_LABEL;

use crate::fixtures::{Read, TestCluster, merged};
use crate::input::nodes;

fn owned() -> Value {
    json!({ "metadata": { "labels": { "app": "web" }, "ownerReferences": [
        { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u", "controller": true }] } })
}

fn decided(replicas: i32, target: i32, named: &[&str]) -> Value {
    json!({ "spec": { "replicas": replicas }, "status": { "autoscaling": { "scaleDown": {
        "targetReplicas": target, "decisionID": "x", "nodes": named } } } })
}

#[test]
fn what_a_decision_before_has_named_and_the_operator_has_not_marked_is_named_again() {
    // Two of four nodes are victims of the scale-down to two; the third is unneeded as well.
    let cluster = || {
        let pool = decided(2, 2, &["n1", "n2"]);
        let cluster =
            TestCluster::eager().pool("a", pool).node("a", "n1", json!({})).node("a", "n2", json!({}));
        cluster.node("a", "n3", json!({})).node("a", "n4", json!({})).running("r", "n4", "4", owned())
    };
    let plan = cluster().plan();
    let decision = plan.pool("a");
    assert_eq!(
        (decision.desired, &decision.victims, &decision.pending_removal),
        (1, &vec!["n3".to_owned()], &vec!["n1".to_owned(), "n2".to_owned()])
    );
    assert_eq!(
        decision.clone().limited_to(2).victims,
        Vec::<String>::new(),
        "they count among those that can be named"
    );

    // A new pod in between makes the pool scale up, and the victims are still the same two.
    let plan = cluster().running("s", "n3", "4", owned()).pending("p", 1, "1", &json!({})).plan();
    let decision = plan.pool("a");
    assert_eq!((decision.desired, decision.victims.len()), (3, 0));
    assert_eq!(decision.pending_removal, vec!["n1".to_owned(), "n2".to_owned()]);
    assert!(cluster().observed.nodes.iter().all(|node| !nodes::is_leaving(node)));
}

#[test]
fn a_budget_that_a_node_on_its_way_out_will_use_is_used() {
    let cluster = |leaving: Value| {
        let keeps = json!({ "metadata": { "annotations": { "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true" } } });
        let mut cluster = TestCluster::eager()
            .pool("a", json!({ "spec": { "replicas": 2 } }))
            .node("a", "n1", leaving)
            .node("a", "n2", json!({}))
            .node("a", "n3", keeps)
            .running("x", "n1", "100m", owned())
            .running("y", "n2", "100m", owned());
        let budget = json!({ "metadata": { "name": "b", "namespace": "apps" }, "spec": { "selector": {} },
            "status": { "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2 } });
        cluster.observed.budgets.push(std::sync::Arc::new(serde_json::from_value(budget).unwrap()));
        cluster.plan()
    };
    let drained =
        json!({ "metadata": { "annotations": { "tandem.dev/drain-start-time": "2026-01-01T11:59:00Z" } } });
    assert_eq!(cluster(drained).verdict("n2"), "BlockedByPod");
    let elsewhere = json!({ "metadata": { "labels": { MEMBER_LABEL: "none" } } });
    assert_eq!(cluster(elsewhere).verdict("n2"), "Unneeded");
}

#[test]
fn a_pool_loses_no_node_while_others_of_it_are_on_their_way() {
    let cluster = |replicas: i32| {
        TestCluster::eager()
            .pool("a", json!({ "spec": { "replicas": replicas } }))
            .node("a", "n1", json!({}))
            .node("a", "n2", json!({}))
            .running("r", "n2", "4", owned())
            .plan()
    };
    assert_eq!((cluster(2).verdict("n1"), cluster(2).desired("a")), ("Unneeded", 1));
    assert_eq!((cluster(3).verdict("n1"), cluster(3).desired("a")), ("ScaleUpInProgress", 3));
}

#[test]
fn a_pod_that_runs_moves_only_to_nodes_that_are_up() {
    let cluster = |change: Value, replicas: i32| {
        TestCluster::eager()
            .pool("a", json!({ "spec": { "replicas": 1 } }))
            .pool("b", json!({ "spec": { "replicas": replicas } }))
            .node("a", "n1", json!({}))
            .node("b", "n2", change)
            .running("r", "n1", "100m", owned())
            .plan()
    };
    let young = json!({ "metadata": { "creationTimestamp": "2026-01-01T11:59:00Z" } });
    let starting =
        merged(young, json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } }));
    let keeps = json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } });
    assert_eq!(cluster(merged(keeps.clone(), json!({})), 1).verdict("n1"), "Unneeded");
    assert_eq!(cluster(merged(keeps.clone(), starting), 1).verdict("n1"), "NoPlaceToMovePods");
    let full = TestCluster::eager()
        .pool("a", json!({ "spec": { "replicas": 1 } }))
        .pool("b", json!({ "spec": { "replicas": 2 } }))
        .node("a", "n1", json!({}))
        .node("b", "n2", keeps)
        .running("r", "n1", "100m", owned())
        .running("f", "n2", "4", owned())
        .plan();
    assert_eq!(full.verdict("n1"), "NoPlaceToMovePods", "the other node of b is only on its way");
}

#[test]
fn a_pool_that_pods_wait_for_loses_no_node_while_a_policy_slows_it_down() {
    let rules = json!({ "scaleDown": { "unneededSeconds": 0, "delayAfterAddSeconds": 0 },
        "behavior": { "scaleUp": { "policies": [{ "type": "Nodes", "value": 1, "periodSeconds": 3600 }] } } });
    let pool = json!({ "spec": { "replicas": 2 }, "status": { "autoscaling": { "writtenReplicas": 2,
        "scaleEvents": [{ "change": 1, "time": "2026-01-01T11:50:00Z" }] } } });
    let plan = TestCluster::new()
        .autoscaler("x", rules)
        .pool("a", pool)
        .node("a", "n1", json!({}))
        .node("a", "n2", json!({}))
        .running("r", "n1", "1500m", owned())
        .running("s", "n2", "1500m", owned())
        .pending("p", 1, "3", &json!({}))
        .plan();
    assert_eq!(plan.results(), ["no ScaleUpLimit"]);
    assert_eq!((plan.desired("a"), plan.verdict("n1")), (2, "ScaleUpInProgress"));
}

#[test]
fn pods_of_daemon_sets_tell_no_nodes_apart() {
    let of_node = |name: &str| {
        json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": true }] },
            "spec": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [name] }] }] } } } } })
    };
    let cluster = TestCluster::eager()
        .pool("a", json!({ "spec": { "replicas": 2 } }))
        .node("a", "n1", json!({}))
        .node("a", "n2", json!({}))
        .running("d1", "n1", "100m", of_node("n1"))
        .running("d2", "n2", "100m", of_node("n2"));
    let pods = crate::input::observed::PassPods::from(cluster.observed.pods.clone());
    let all_nodes = crate::input::observed::PassNodes::from(cluster.observed.nodes.clone());
    let mut interner = crate::demand::PodInterner::default();
    let mut names = crate::resources::ResourceNames::default();
    let reference = crate::resources::Amounts::default();
    let input =
        crate::input::observed::PassInput { observed: &cluster.observed, nodes: &all_nodes, pods: &pods };
    let nominations = crate::Nominations::default();
    let demand = crate::demand::Demand::of(input, &nominations, &mut names, &reference, &mut interner);
    assert_eq!((demand.classes.len(), demand.constraint_sets.len()), (1, 1));
}

#[test]
fn a_number_of_nodes_beyond_the_schema_is_cut() {
    let plan = TestCluster::eager()
        .pool("a", json!({ "spec": { "replicas": i32::MAX, "maxReplicas": i32::MAX } }))
        .plan();
    assert_eq!(plan.desired("a"), 100_000);
}

#[test]
fn the_bound_of_a_schedule_is_not_called_the_pools_own() {
    let cluster = |schedules: Value| {
        let rules = json!({ "schedules": schedules });
        let cluster =
            TestCluster::new().autoscaler("x", rules).pool("a", json!({ "spec": { "replicas": 0 } }));
        cluster.pending("p", 2, "4", &json!({})).plan()
    };
    let message = |plan: &crate::ScalingPlan| {
        let reasons = plan.pods.iter().find_map(|pod| match &pod.result {
            crate::SchedulingResult::Unschedulable { reasons } => Some(reasons[0].message.clone()),
            crate::SchedulingResult::Fits { .. } | crate::SchedulingResult::TriggersScaleUp { .. } => None,
        });
        reasons.unwrap_or_default()
    };
    let night =
        json!([{ "name": "night", "schedule": "0 0 * * *", "durationSeconds": 86400, "maxReplicas": 1 }]);
    let plan = cluster(night);
    assert_eq!((plan.desired("a"), plan.results()[1].as_str()), (1, "no MaxReplicasReached"));
    assert_eq!(message(&plan), "the pool would need more than 1 nodes, the bound that schedule night sets");
    assert_eq!(message(&cluster(json!([]))), "", "without it both find a place");
}
