//! The `NodePool` operator's token, and those of kubelets, in other hands: what the API server refuses of Nodes.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shared_crds::names::{
    LEFT_OVER_ANNOTATION, MACHINE_LABEL, MEMBER_LABEL, NODE_FINALIZER, TEMPLATE_APPLIED_ANNOTATION,
    TEMPLATE_HASH_ANNOTATION, member_labels,
};
use testbed::cluster::Cluster;
use testbed::test_env::RELEASE_NAMESPACE;

use super::firewall::{PLACES, Verdict, WRITERS, install, verdict};

/// A finalizer of another controller.
const OTHER: &str = "example.org/other";

fn node(name: &str, metadata: &Value) -> Node {
    let mut metadata = metadata.clone();
    metadata["name"] = json!(name);
    let taints = json!([{"key": "example.org/own", "effect": "NoSchedule"}]);
    let spec = json!({"providerID": format!("x://{name}"), "taints": taints});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

/// The Node of a worker that has registered itself, and of which no pool knows.
fn stranger(name: &str) -> Node {
    node(
        name,
        &json!({
            "labels": {"kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "a", "team": "a"},
            "annotations": {"other": "a", "tandem.dev/skip-repair": "true"},
            "finalizers": [OTHER],
        }),
    )
}

/// What the operator writes to the Node of a machine that it makes a node of a pool.
fn join() -> Value {
    let mut labels: Value = member_labels("ns", "x").into_iter().collect();
    labels[MACHINE_LABEL] = json!("x-0");
    json!({
        "metadata": {
            "labels": labels,
            "annotations": {TEMPLATE_HASH_ANNOTATION: "1", TEMPLATE_APPLIED_ANNOTATION: "{}"},
            "finalizers": [OTHER, NODE_FINALIZER],
        },
    })
}

/// `join`, with what is at this pointer replaced.
fn join_but(pointer: &str, value: Value) -> Value {
    let mut patch = join();
    let (above, key) = pointer.rsplit_once('/').unwrap();
    let mut place = &mut patch;
    for part in above.split('/').skip(1) {
        place = &mut place[part];
    }
    place[key.replace("~1", "/")] = value;
    patch
}

/// Nodes, with the operator's token.
async fn operator(cluster: &Cluster) -> Api<Node> {
    Api::all(cluster.client_for_service_account(RELEASE_NAMESPACE, WRITERS[0].1).await.unwrap())
}

/// Nodes, as the kubelet of this one.
async fn kubelet(cluster: &Cluster, name: &str) -> Api<Node> {
    Api::all(super::firewall::kubelet(cluster, name).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_that_makes_nodes_touches_no_other_node() {
    let cluster = &PLACES.take().await.unwrap();
    install(cluster).await;
    let admin: Api<Node> = Api::all(cluster.client().await.unwrap());
    let (create, plain) = (PostParams::default(), PatchParams::default());
    let member = node("member", &json!({"labels": {MEMBER_LABEL: "x"}}));
    let control_plane = json!({"labels": {MEMBER_LABEL: "x", "node-role.kubernetes.io/control-plane": ""}});
    for node in [member, stranger("worker"), node("control-plane", &control_plane)] {
        admin.create(&create, &node).await.unwrap();
    }
    let nodes = operator(cluster).await;
    let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    for (name, expected) in
        [("member", Verdict::Stored), ("worker", Verdict::Refused), ("control-plane", Verdict::Refused)]
    {
        assert_eq!(verdict(nodes.patch(name, &plain, &cordon).await), expected, "cordons {name}");
    }
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    for (name, expected) in
        [("member", Verdict::Stored), ("worker", Verdict::Refused), ("control-plane", Verdict::Refused)]
    {
        assert_eq!(verdict(nodes.delete(name, &dry).await), expected, "deletes {name}");
    }
    assert_eq!(verdict(nodes.create(&create, &node("new", &json!({}))).await), Verdict::Refused);
    cluster.mark_reusable();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_joins_a_pool_as_the_operator_does_it_and_in_no_other_way() {
    let cluster = &PLACES.take().await.unwrap();
    install(cluster).await;
    let admin: Api<Node> = Api::all(cluster.client().await.unwrap());
    admin.create(&PostParams::default(), &stranger("registered")).await.unwrap();
    let nodes = operator(cluster).await;
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let refused = [
        // Not all of what makes it a node of a pool.
        json!({"metadata": {"labels": {MEMBER_LABEL: "x"}}}),
        json!({"metadata": {"labels": {"team": "b"}}}),
        join_but(&format!("/metadata/labels/{}", MACHINE_LABEL.replace('/', "~1")), Value::Null),
        join_but("/metadata/finalizers", json!([OTHER])),
        // More than that.
        join_but("/metadata/finalizers", json!([NODE_FINALIZER])),
        join_but("/metadata/finalizers", json!([OTHER, "example.org/more", NODE_FINALIZER])),
        join_but("/metadata/labels/team", Value::Null),
        join_but("/metadata/labels/kubernetes.io~1os", json!("windows")),
        join_but("/metadata/labels/topology.kubernetes.io~1zone", json!("b")),
        join_but("/metadata/labels/node-role.kubernetes.io~1control-plane", json!("")),
        join_but("/metadata/annotations/other", Value::Null),
        join_but("/metadata/annotations/tandem.dev~1skip-repair", Value::Null),
        join_but("/metadata/annotations/tandem.dev~1drain-start-time", json!("2020-01-01T00:00:00Z")),
        join_but("/spec", json!({"unschedulable": true})),
        join_but("/spec", json!({"taints": []})),
        join_but(
            "/metadata/ownerReferences",
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}]),
        ),
        // To be deleted, and more.
        json!({"metadata": {"annotations": {LEFT_OVER_ANNOTATION: "false"}}}),
        json!({"metadata": {"annotations": {LEFT_OVER_ANNOTATION: "true", "other": "b"}}}),
        json!({"metadata": {"annotations": {LEFT_OVER_ANNOTATION: "true"}, "labels": {"team": "b"}}}),
        json!({"metadata": {"annotations": {LEFT_OVER_ANNOTATION: "true"}, "finalizers": []}}),
        json!({"metadata": {"annotations": {LEFT_OVER_ANNOTATION: "true"}}, "spec": {"unschedulable": true}}),
    ];
    for change in refused {
        let answer = nodes.patch("registered", &dry, &Patch::Merge(change.clone())).await;
        assert_eq!(verdict(answer), Verdict::Refused, "{change}");
    }
    // The control: what the template of a pool may add, and what it may say otherwise. Another writer may taint it meanwhile.
    let spec = nodes.get("registered").await.unwrap().spec.unwrap();
    let mut taints = json!({"taints": spec.taints});
    let added = json!({"key": "team", "value": "x", "effect": "NoSchedule"});
    taints["taints"].as_array_mut().unwrap().push(added);
    let stored = [
        join(),
        join_but("/metadata/labels/team", json!("b")),
        join_but("/metadata/labels/topology.kubernetes.io~1region", json!("b")),
        join_but("/metadata/annotations/other", json!("b")),
        join_but("/spec", taints),
        json!({"metadata": {"annotations": {LEFT_OVER_ANNOTATION: "true"}}}),
    ];
    for change in stored {
        let answer = nodes.patch("registered", &dry, &Patch::Merge(change.clone())).await;
        assert_eq!(verdict(answer), Verdict::Stored, "{change}");
    }
    cluster.mark_reusable();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_no_pool_is_deleted_when_it_says_that_it_is_left_over() {
    let cluster = &PLACES.take().await.unwrap();
    install(cluster).await;
    let admin: Api<Node> = Api::all(cluster.client().await.unwrap());
    let left = node("left", &json!({}));
    admin.create(&PostParams::default(), &left).await.unwrap();
    let nodes = operator(cluster).await;
    let delete = DeleteParams::default();
    assert_eq!(verdict(nodes.delete("left", &delete).await), Verdict::Refused);
    let mark = Patch::Merge(json!({"metadata": {"annotations": {LEFT_OVER_ANNOTATION: "true"}}}));
    nodes.patch("left", &PatchParams::default(), &mark).await.unwrap();
    assert_eq!(verdict(nodes.delete("left", &delete).await), Verdict::Stored);
    cluster.mark_reusable();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_does_not_write_what_the_operator_decides_from_and_registers_without_it() {
    let cluster = &PLACES.take().await.unwrap();
    install(cluster).await;
    let admin: Api<Node> = Api::all(cluster.client().await.unwrap());
    let noted = json!({
        "finalizers": [NODE_FINALIZER],
        "annotations": {"tandem.dev/drain-start-time": "2026-01-01T00:00:00Z", "other": "a"},
    });
    admin.create(&PostParams::default(), &node("noted", &noted)).await.unwrap();
    let own_node = kubelet(cluster, "noted").await;
    let plain = PatchParams::default();
    let refused = [
        json!({"metadata": {"annotations": {"tandem.dev/drain-start-time": null}}}),
        json!({"metadata": {"annotations": {"tandem.dev/drain-start-time": "2020-01-01T00:00:00Z"}}}),
        json!({"metadata": {"annotations": {"tandem.dev/ready-time": "2020-01-01T00:00:00Z"}}}),
        json!({"metadata": {"finalizers": []}}),
    ];
    for change in refused {
        let patch = Patch::Merge(change.clone());
        assert_eq!(verdict(own_node.patch("noted", &plain, &patch).await), Verdict::Refused, "{change}");
        assert_eq!(
            verdict(own_node.patch_status("noted", &plain, &patch).await),
            Verdict::Refused,
            "{change} at /status"
        );
    }
    let own = Patch::Merge(json!({"metadata": {"annotations": {"other": "b"}}}));
    assert_eq!(verdict(own_node.patch("noted", &plain, &own).await), Verdict::Stored);
    assert_eq!(verdict(own_node.patch_status("noted", &plain, &own).await), Verdict::Stored);

    let new_node = kubelet(cluster, "new").await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let annotations = [
        "skip-repair",
        "ready-time",
        "drain-start-time",
        "replace",
        "drained-by-provider",
        "template-hash",
        "left-over",
    ];
    for name in annotations {
        let key = format!("tandem.dev/{name}");
        let claims = json!({"annotations": {key: "true"}});
        assert_eq!(verdict(new_node.create(&dry, &node("new", &claims)).await), Verdict::Refused, "{name}");
    }
    let finalizer = json!({"finalizers": [NODE_FINALIZER]});
    assert_eq!(verdict(new_node.create(&dry, &node("new", &finalizer)).await), Verdict::Refused);
    // Labels are for selectors, and prove nothing.
    let own =
        json!({"labels": {"tandem.dev/nodepool": "x"}, "annotations": {"other": "a"}, "finalizers": [OTHER]});
    for metadata in [json!({}), own] {
        assert_eq!(
            verdict(new_node.create(&dry, &node("new", &metadata)).await),
            Verdict::Stored,
            "{metadata}"
        );
    }
    cluster.mark_reusable();
}
