//! `simulate` from text to text.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{Format, input, print};

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
    labels: { tandem.dev/nodepool: small, tandem.dev/nodepool-namespace: demo }
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
    let mut out = Vec::new();
    let warnings = print(input::read_text(text).unwrap(), now, format, &mut out).unwrap();
    (String::from_utf8(out).unwrap(), warnings)
}

fn refused(text: &str) -> String {
    input::read_text(text).unwrap_err().to_string()
}

#[test]
fn the_json_has_exactly_the_documented_fields() {
    let text = format!("{CLUSTER}{}{}{}", pod("a", "3"), pod("b", "3"), pod("c", "64"));
    let (json, warnings) = simulated(&text, Format::Json);
    assert_eq!(warnings, Vec::<String>::new());
    let pod = |name: &str, outcome: &str, pool: &str, node: &str, reasons: Value| json!({ "namespace": "default", "name": name, "outcome": outcome, "nodePool": pool, "node": node, "reasons": reasons });
    let too_large = json!([{ "nodePool": "demo/small", "reason": "InsufficientCpu",
        "message": "the pod asks for 64 of cpu; an empty node of the pool offers 4" }]);
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
            "nodes": [{ "name": "n1", "removable": false, "reason": "NeededByPendingPods" }]
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

NODE   REMOVABLE   REASON
n1     yes         Unneeded
";
    assert_eq!(table, expected);
}

#[test]
fn json_lists_of_items_without_a_kind_are_read() {
    let list = json!({ "apiVersion": "v1", "kind": "NodeList", "items": [{ "metadata": { "name": "n1" } }] });
    let objects = input::read_text(&format!("{list}\n{list}")).unwrap();
    assert_eq!(objects.observed.nodes.len(), 1);
    assert_eq!(objects.warnings, ["test.yaml, document 2: Node n1 was given before; this one counts"]);
}

#[test]
fn what_plays_no_part_is_named() {
    let text = format!(
        "{CLUSTER}---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{ name: d }}\n{}",
        pod("a", "1").replace("containers:", "hostNetwork: false, topologySpreadConstraints: [{ maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule }], containers:")
    )
    .replace("maxReplicas: 3", "maxReplicas: 3\n  wieght: 10");
    let (_, warnings) = simulated(&text, Format::Json);
    assert_eq!(
        warnings,
        [
            "test.yaml, document 1: NodePool small: spec.wieght is not a field of this version and plays no part",
            "apps/v1 DaemonSet plays no part in this version's plan: 1 object left aside",
            "this version does not plan with topology spread (DoNotSchedule); planned as if they had none: default/a",
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
