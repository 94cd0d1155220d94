//! `simulate` from text to text.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::Format;
use crate::edits::EditArgs;
use crate::input::Objects;

const CLUSTER: &str = r"
apiVersion: tandem.dev/v1alpha1
kind: NodePool
metadata: { name: small, namespace: demo }
spec:
  replicas: 1
  maxReplicas: 3
  provider: { simulated: {} }
  template: { spec: { capacity: { cpu: 4, memory: 8Gi } } }
---
apiVersion: tandem.dev/v1alpha1
kind: NodePoolAutoscaler
metadata: { name: all, namespace: demo }
spec:
  nodePoolSelector: {}
  scaleDown: { unneededSeconds: 0, delayAfterAddSeconds: 0 }
---
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata:
    name: n1
    creationTimestamp: 2026-01-01T00:00:00Z
    labels: { tandem.node-restriction.kubernetes.io/nodepool: small, tandem.node-restriction.kubernetes.io/nodepool-namespace: demo }
  status:
    allocatable: { cpu: 4, memory: 8Gi, pods: 110 }
    conditions: [{ type: Ready, status: 'True' }]
";

const POD: &str = r"
---
apiVersion: v1
kind: Pod
metadata: { name: NAME }
spec: { containers: [{ name: c, resources: { requests: { cpu: CPU } } }] }
status: { conditions: [{ type: PodScheduled, status: 'False', reason: Unschedulable }] }
";

fn pod(name: &str, cpu: &str) -> String {
    POD.replace("NAME", name).replace("CPU", cpu)
}

fn simulated(text: &str, format: Format) -> (String, Vec<String>) {
    let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
    let input = Objects::text(text).unwrap().finish(now);
    let (printed, messages) = super::simulated(input, &EditArgs::default(), format).unwrap();
    assert_eq!(messages.notes, Vec::<String>::new());
    (printed, messages.warnings)
}

fn refused(text: &str) -> String {
    Objects::text(text).unwrap_err().to_string()
}

#[test]
fn the_json_has_exactly_the_documented_fields() {
    let text = format!("{CLUSTER}{}{}{}", pod("a", "3"), pod("b", "3"), pod("c", "64"));
    let (json, warnings) = simulated(&text, Format::Json);
    assert_eq!(warnings, Vec::<String>::new());
    let pod = |name: &str, outcome: &str, pool: &str, node: &str, reasons: Value| json!({ "namespace": "default", "name": name, "outcome": outcome, "nodePool": pool, "node": node, "reasons": reasons });
    let too_large = json!([{ "nodePool": "demo/small", "reason": "InsufficientCpu",
        "message": "the pod asks for 64 of cpu; an empty node of the pool's template offers 4" }]);
    assert_eq!(
        serde_json::from_str::<Value>(&json).unwrap(),
        json!({
            "pools": [{ "namespace": "demo", "name": "small", "currentReplicas": 1, "desiredReplicas": 2, "reason": "ScaleUp",
                        "message": "1 node for 1 pending pod", "limited": false, "scaleDownNodes": [] }],
            "pods": [
                pod("a", "Fits", "demo/small", "n1", json!([])),
                pod("b", "TriggersScaleUp", "demo/small", "", json!([])),
                pod("c", "Unschedulable", "", "", too_large),
            ],
            "nodes": [{ "name": "n1", "removable": false, "reason": "NeededByPendingPods",
                        "message": "pods that are pending now are planned onto the node" }]
        })
    );
}

#[test]
fn the_table_says_the_same() {
    let (table, _) = simulated(CLUSTER, Format::Table);
    let expected = "\
POOL         CURRENT   DESIRED   LIMITED   REASON      MESSAGE
demo/small   1         0         no        ScaleDown   nothing needs 1 node; going: n1

PENDING POD   OUTCOME   POOL   NODE   REASON
(none)

NODE   REMOVABLE   REASON     MESSAGE
n1     yes         Unneeded   nothing needs the node
";
    assert_eq!(table, expected);
}

#[test]
fn json_lists_of_items_without_a_kind_are_read() {
    let list = json!({ "apiVersion": "v1", "kind": "NodeList", "items": [{ "metadata": { "name": "n1" } }] });
    let objects = Objects::text(&format!("{list}\n{list}")).unwrap();
    assert_eq!(objects.nodes.len(), 1);
    assert_eq!(objects.warnings, ["test.yaml, document 2: Node n1 was given before; this one counts"]);
}

#[test]
fn what_plays_no_part_is_named() {
    let text = format!(
        "{CLUSTER}---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{ name: d }}\n{}",
        pod("a", "1")
            .replace("containers:", "hostNetwork: false, volumes: [{ name: v, ephemeral: {} }], containers:")
    )
    .replace("maxReplicas: 3", "maxReplicas: 3\n  wieght: 10");
    let (_, warnings) = simulated(&text, Format::Json);
    assert_eq!(
        warnings,
        [
            "test.yaml, document 1: NodePool small: spec.wieght is not a field of this version and plays no part",
            "apps/v1 Deployment plays no part in this version's plan: 1 object left aside",
            "this version does not plan with how many volumes a node can attach, and how much storage is left; planned as if they had none: default/a",
        ]
    );
}

#[test]
fn errors_name_file_document_and_field() {
    for (text, expected) in [
        ("a: [", "test.yaml, document 1: is neither YAML nor JSON: "),
        ("kind: Pod\nmetadata: { name: p }", "test.yaml, document 1: apiVersion: is missing"),
        ("apiVersion: v1\nmetadata: { name: p }", "test.yaml, document 1: kind: is missing"),
        ("- 1", "test.yaml, document 1: the document: is not an object"),
        ("apiVersion: v1\nkind: Pod", "test.yaml, document 1 (Pod): metadata.name: is missing"),
        (
            "apiVersion: v1\nkind: Node\nmetadata: { name: n }\n---\napiVersion: v1\nkind: Pod\nmetadata: { name: p }\nspec: { containers: [{ name: 3 }] }",
            "test.yaml, document 2 (Pod default/p): spec.containers[0].name: invalid type: integer `3`, expected a string",
        ),
        (
            "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: { name: n, labels: [] }",
            "test.yaml, document 1, items[0] (Node n): metadata.labels: ",
        ),
        ("apiVersion: v1\nkind: List\nitems: 3", "test.yaml, document 1: items: is not a list"),
        (
            "apiVersion: tandem.dev/v1alpha1\nkind: NodePool\nmetadata: { name: p }\nspec: { maxReplicas: many }",
            "test.yaml, document 1 (NodePool default/p): spec.maxReplicas: invalid type: string \"many\", expected i32",
        ),
    ] {
        let found = refused(text);
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
}

#[test]
fn a_quantity_that_means_nothing_is_a_reason_and_not_a_crash() {
    let (json, _) = simulated(&format!("{CLUSTER}{}", pod("a", "lots")), Format::Json);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["pods"][0]["reasons"][0]["reason"], "InvalidRequests");
    let text = CLUSTER.replace("capacity: { cpu: 4", "capacity: { cpu: -4");
    let (json, _) = simulated(&format!("{text}{}", pod("a", "4500m")), Format::Json);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        report["pods"][0]["reasons"][0]["message"],
        "the pool's template cannot be read: cpu \"-4\" is below zero"
    );
}

#[test]
fn typing_errors_in_kinds_of_kubernetes_are_named_once_with_how_many_have_them() {
    let wrong = |name: &str| pod(name, "1").replace("spec: {", "spec: { nodeSelctor: { disk: ssd },");
    let text = format!("{CLUSTER}{}{}{}", wrong("a"), wrong("b"), wrong("c"));
    let (_, warnings) = simulated(&text, Format::Json);
    assert_eq!(
        warnings,
        ["test.yaml, document 4: Pod a: spec.nodeSelctor is not a field of this version and plays no part \
          (2 more objects have it)"]
    );
}

#[test]
fn unknown_fields_in_the_status_of_a_newer_kubernetes_are_no_warning() {
    let text = format!("{CLUSTER}{}", pod("a", "1").replace("status: {", "status: { fieldOfTheFuture: 1,"));
    assert_eq!(simulated(&text, Format::Json).1, Vec::<String>::new());
}

#[test]
fn every_kind_that_a_plan_is_made_from_is_taken() {
    let of = |version: &str, kind: &str, rest: &str| {
        format!("---\napiVersion: {version}\nkind: {kind}\nmetadata: {{ name: x }}\n{rest}\n")
    };
    let text = [
        of("apps/v1", "DaemonSet", "spec: { selector: {}, template: { spec: { containers: [] } } }"),
        of("policy/v1", "PodDisruptionBudget", "spec: { selector: {} }"),
        of("v1", "PersistentVolume", "spec: { capacity: { storage: 1Gi } }"),
        of("v1", "PersistentVolumeClaim", "spec: { volumeName: x }"),
        of("storage.k8s.io/v1", "StorageClass", "provisioner: p"),
        of("v1", "Namespace", ""),
        of("scheduling.k8s.io/v1", "PriorityClass", "value: 5"),
    ]
    .concat();
    let input = Objects::text(&text).unwrap().finish(Timestamp::UNIX_EPOCH);
    assert_eq!(input.warnings, Vec::<String>::new());
    assert_eq!(input.priority_classes.len(), 1);
    let observed = &input.observed;
    let counts = [
        observed.daemon_sets.len(),
        observed.budgets.len(),
        observed.volumes.len(),
        observed.claims.len(),
        observed.storage_classes.len(),
        observed.namespaces.len(),
    ];
    assert_eq!(counts, [1; 6]);
    assert_eq!(observed.daemon_sets[0].metadata.namespace.as_deref(), Some("default"));
}

#[test]
fn pods_that_the_scheduler_has_not_given_up_on_are_left_out_and_counted() {
    let unmarked = pod("a", "1").replace("Unschedulable", "SchedulerError");
    let (json, warnings) = simulated(&format!("{CLUSTER}{unmarked}"), Format::Json);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["pods"], json!([]));
    assert_eq!(
        warnings,
        ["1 pod without a node is left out, because the scheduler has not marked it PodScheduled=False, \
          Unschedulable: default/a"]
    );
}

#[test]
fn a_pod_that_the_scheduler_refuses_for_volume_limits_or_free_storage_fits_no_node_that_exists() {
    let outcome = |reason: &str| {
        let told = format!("reason: Unschedulable, message: '0/1 nodes are available: 1 {reason}.'");
        let pod = pod("a", "1").replace("reason: Unschedulable", &told);
        let report: Value =
            serde_json::from_str(&simulated(&format!("{CLUSTER}{pod}"), Format::Json).0).unwrap();
        let found = &report["pods"][0];
        (found["outcome"].clone(), found["reasons"][0]["reason"].clone())
    };
    let refused = |reason: &str| (json!("Unschedulable"), json!(reason));
    assert_eq!(outcome("node(s) exceed max volume count"), refused("VolumeLimitsNotPlanned"));
    assert_eq!(outcome("node(s) did not have enough free storage"), refused("FreeStorageNotPlanned"));
    assert_eq!(outcome("Insufficient cpu"), (json!("Fits"), Value::Null));
}

#[test]
fn the_class_of_a_pod_gives_it_its_priority() {
    let class =
        "---\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: { name: high }\nvalue: 9\n";
    let high = pod("z", "3").replace("spec: {", "spec: { priorityClassName: high,");
    let outcomes = |text: &str| {
        let report: Value = serde_json::from_str(&simulated(text, Format::Json).0).unwrap();
        (report["pods"][0]["outcome"].clone(), report["pods"][1]["outcome"].clone())
    };
    // One node exists: the pod with the class takes it, although the other comes first by name.
    let text = format!("{CLUSTER}{}{high}", pod("a", "3"));
    assert_eq!(outcomes(&format!("{text}{class}")), (json!("TriggersScaleUp"), json!("Fits")));
    assert_eq!(outcomes(&text), (json!("Fits"), json!("TriggersScaleUp")));
}
