//! Facts about one node: its pool, its age, and whether it is ready, still starting, being removed, or protected.

use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::jiff::Timestamp;
use shared_crds::names::{
    DISRUPTION_REASON_ANNOTATION, DRAIN_STARTED_ANNOTATION, DRAINED_BY_PROVIDER_ANNOTATION,
    GIVEN_BACK_ANNOTATION, READY_TIME_ANNOTATION, TEMPLATE_HASH_ANNOTATION, pool_of_member,
};
use shared_crds::v1alpha1::{DisruptionReason, ReplacementState};
use shared_crds::{NodePool, protection};

use crate::input::earlier_status;
use crate::requirements::node_profile;
use crate::time::later;

/// Taints of a starting node that Kubernetes itself removes when the node is up.
const LIFECYCLE_TAINTS: [&str; 4] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/network-unavailable",
    "node.cloudprovider.kubernetes.io/uninitialized",
];

/// How long in seconds pending pods wait for a leaving node to be gone. A drain that nothing holds up takes less: a
/// pod's grace period is 30 s unless it sets another, and Cluster Autoscaler gives a drain these ten minutes
/// (`--max-graceful-termination-sec`). One that something holds up may take for ever, and the pods need a node.
const AWAITED_SECONDS: i32 = 600;

/// Namespace and name of the pool that the node belongs to.
pub fn pool_of(node: &Node) -> Option<(&str, &str)> {
    pool_of_member(node.metadata.labels.as_ref()?)
}

/// Whether the kubelet reports the node as Ready.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().filter_map(|s| s.conditions.as_ref()).flatten();
    conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// Whether the node is cordoned.
pub(crate) fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().is_some_and(|s| s.unschedulable == Some(true))
}

/// Whether the node is being deleted, or drained: by the `NodePool` operator, or by its provider, as that operator has noted.
pub fn is_leaving(node: &Node) -> bool {
    let noted = [DRAIN_STARTED_ANNOTATION, DRAINED_BY_PROVIDER_ANNOTATION];
    node.metadata.deletion_timestamp.is_some() || noted.iter().any(|it| annotation(node, it).is_some())
}

/// Whether the node has been Ready at some time, as far as its object shows: only then it is in the budgets of its pool.
pub(crate) fn has_been_ready(node: &Node) -> bool {
    is_ready(node) || annotation(node, READY_TIME_ANNOTATION).is_some()
}

/// Why the leaving node is being disrupted, as the `NodePool` operator counts it: for the reason that it has noted, without one
/// because there are too many; `None` where another client has deleted the node.
pub(crate) fn disruption_reason(node: &Node) -> Option<DisruptionReason> {
    let noted = annotation(node, DISRUPTION_REASON_ANNOTATION);
    let noted = noted.and_then(|noted| DisruptionReason::ALL.into_iter().find(|it| it.as_str() == noted));
    noted.or_else(|| node.metadata.deletion_timestamp.is_none().then_some(DisruptionReason::ScaleDown))
}

/// Until when pending pods wait for the leaving node to be gone; `None` if it stays, or if its departure has no known
/// beginning.
pub(crate) fn awaited_until(node: &Node) -> Option<Timestamp> {
    let deleted = node.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let drained = annotation(node, DRAIN_STARTED_ANNOTATION).and_then(|time| time.parse().ok());
    deleted.max(drained).map(|since| later(since, AWAITED_SECONDS))
}

/// Whether the `NodePool` operator has given the node back because its drain took too long: it stays for now.
pub(crate) fn is_given_back(node: &Node) -> bool {
    annotation(node, GIVEN_BACK_ANNOTATION).is_some()
}

/// Whether an annotation protects the node from scale-down.
pub(crate) fn is_protected(node: &Node) -> bool {
    protection::of_node(&node.metadata).is_some()
}

/// Whether the pool's nodes are being replaced, or may be: as the `NodePool` operator reports, or until that is about the present
/// spec. A rollout that budgets, or nodes that ask to be left alone, let take no node now waits, however long.
pub(crate) fn is_rolling_out(pool: &NodePool) -> bool {
    let Some(status) = &pool.status else { return false };
    let Some(replacement) = status.replacement.clone().or_else(|| earlier_status::replacement(pool)) else {
        return false;
    };
    let is_earlier =
        replacement.observed_generation.is_some_and(|seen| Some(seen) < pool.metadata.generation);
    let may_be_replacing = match replacement.state {
        ReplacementState::Active => !waits_with_rollout(pool),
        ReplacementState::Inactive => false,
        ReplacementState::Unknown => true,
    };
    is_earlier || may_be_replacing
}

/// Whether nodes of the pool are out of date and none of them may go now, as the `NodePool` operator has counted them.
fn waits_with_rollout(pool: &NodePool) -> bool {
    let rollout = pool.status.as_ref().and_then(|status| status.rollout.as_ref());
    rollout.is_some_and(|rollout| rollout.may_go_nodes == Some(0))
}

/// How many of the pool's nodes beyond its count a rollout has made that waits: they stay as long as it does.
pub(crate) fn kept_by_rollout(pool: &NodePool, count: usize) -> usize {
    if waits_with_rollout(pool) { pool.spec.rollout.clone().unwrap_or_default().surge(count) } else { 0 }
}

/// When the node was created; `None` for objects that were never on an API server.
pub fn created(node: &Node) -> Option<Timestamp> {
    node.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// The hash of the template that the node was made from.
pub(crate) fn template_hash(node: &Node) -> Option<&str> {
    annotation(node, TEMPLATE_HASH_ANNOTATION)
}

/// When the node has to be up: its provisioning timeout is over. `None` if its age is unknown.
pub(crate) fn provisioned_until(node: &Node, pool: &NodePool) -> Option<Timestamp> {
    created(node).map(|created| later(created, pool.spec.provisioning_timeout_seconds))
}

/// Until when the node counts as starting, if it is not up yet: not ready, or still with startup taints. `None` if it
/// is up, or if its age is unknown. Whether it has all that its template promises is not looked at here: see
/// [`Promise`](super::promise::Promise).
pub(crate) fn starting_until(node: &Node, pool: &NodePool) -> Option<Timestamp> {
    let starting = !is_ready(node) || startup_taints(node, pool).next().is_some();
    if starting { provisioned_until(node, pool) } else { None }
}

/// The taints that say that the node is starting, on a node of any age.
pub(crate) fn startup_taints<'a>(node: &'a Node, pool: &'a NodePool) -> impl Iterator<Item = &'a Taint> {
    taints(node).filter(move |taint| is_startup_taint(taint, pool))
}

/// The other taints of a node.
pub(crate) fn other_taints<'a>(node: &'a Node, pool: &'a NodePool) -> impl Iterator<Item = &'a Taint> {
    taints(node).filter(move |taint| !is_startup_taint(taint, pool))
}

fn is_startup_taint(taint: &Taint, pool: &NodePool) -> bool {
    LIFECYCLE_TAINTS.contains(&taint.key.as_str())
        || node_profile::is_startup_taint(&taint.key)
        || pool
            .spec
            .template
            .spec
            .startup_taints
            .iter()
            .any(|startup| startup.key == taint.key && startup.effect.as_str() == taint.effect)
}

fn taints(node: &Node) -> impl Iterator<Item = &Taint> {
    node.spec.iter().filter_map(|s| s.taints.as_ref()).flatten()
}

fn annotation<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(ready: &str, taints: &Value) -> Node {
        serde_json::from_value(json!({
            "metadata": { "name": "n", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "taints": taints },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] }
        }))
        .unwrap()
    }

    fn pool() -> NodePool {
        serde_json::from_value(json!({ "metadata": {}, "spec": { "maxReplicas": 1, "provider": {}, "provisioningTimeoutSeconds": 60,
            "template": { "spec": { "capacity": {}, "startupTaints": [{ "key": "cni", "effect": "NoSchedule" }] } } } }))
        .unwrap()
    }

    #[test]
    fn a_node_is_starting_while_it_is_not_ready_or_carries_taints_of_its_start() {
        let until: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        for (what, node, expected) in [
            ("not ready", node("False", &json!([])), Some(until)),
            ("unknown", node("Unknown", &json!([])), Some(until)),
            ("startup taint", node("True", &json!([{ "key": "cni", "effect": "NoSchedule" }])), Some(until)),
            ("another effect", node("True", &json!([{ "key": "cni", "effect": "NoExecute" }])), None),
            (
                "lifecycle taint",
                node("True", &json!([{ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }])),
                Some(until),
            ),
            ("up", node("True", &json!([{ "key": "dedicated", "effect": "NoSchedule" }])), None),
            (
                "not a prefix",
                node("True", &json!([{ "key": "readiness.k8s.io", "effect": "NoSchedule" }])),
                None,
            ),
        ] {
            assert_eq!(starting_until(&node, &pool()), expected, "{what}");
        }
    }

    #[test]
    fn taints_that_components_name_by_convention_are_taints_of_a_start() {
        for key in [
            "readiness.k8s.io/network",
            "startup-taint.cluster-autoscaler.kubernetes.io/cni",
            "ignore-taint.cluster-autoscaler.kubernetes.io/cni",
            "node.cilium.io/agent-not-ready",
            "ebs.csi.aws.com/agent-not-ready",
            "node.cluster.x-k8s.io/uninitialized",
            "karpenter.sh/unregistered",
        ] {
            for effect in ["NoSchedule", "NoExecute"] {
                let node = node("True", &json!([{ "key": key, "effect": effect }]));
                assert!(starting_until(&node, &pool()).is_some(), "{key}:{effect}");
            }
        }
    }

    #[test]
    fn only_the_exact_annotation_protects() {
        for (key, value, protected) in [
            ("cluster-autoscaler.kubernetes.io/scale-down-disabled", "true", true),
            ("cluster-autoscaler.kubernetes.io/scale-down-disabled", "false", false),
            ("karpenter.sh/do-not-disrupt", "true", true),
            ("karpenter.sh/do-not-disrupt", "1h", false),
        ] {
            let node: Node =
                serde_json::from_value(json!({ "metadata": { "annotations": { key: value } } })).unwrap();
            assert_eq!(is_protected(&node), protected, "{key}={value}");
        }
    }

    #[test]
    fn a_node_leaves_once_it_is_deleted_or_drained_here_or_by_its_provider() {
        for (metadata, leaving, awaited) in [
            (json!({}), false, false),
            (json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }), true, true),
            (json!({ "annotations": { DRAIN_STARTED_ANNOTATION: "2026-01-01T00:00:00Z" } }), true, true),
            // When that began is not noted, so no pod waits for it.
            (json!({ "annotations": { DRAINED_BY_PROVIDER_ANNOTATION: "true" } }), true, false),
        ] {
            let node: Node = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
            assert_eq!(is_leaving(&node), leaving);
            assert_eq!(awaited_until(&node).is_some(), awaited);
        }
    }

    #[test]
    fn a_node_is_awaited_for_ten_minutes_from_the_last_step_of_its_departure() {
        let node = |metadata: Value| serde_json::from_value::<Node>(json!({ "metadata": metadata })).unwrap();
        let drained = json!({ DRAIN_STARTED_ANNOTATION: "2026-01-01T00:00:00Z" });
        for (metadata, expected) in [
            (json!({ "annotations": drained }), Some("2026-01-01T00:10:00Z")),
            (
                json!({ "annotations": drained, "deletionTimestamp": "2026-01-01T00:05:00Z" }),
                Some("2026-01-01T00:15:00Z"),
            ),
            (json!({ "annotations": { DRAIN_STARTED_ANNOTATION: "soon" } }), None),
        ] {
            let expected = expected.map(|time| time.parse::<Timestamp>().unwrap());
            assert_eq!(awaited_until(&node(metadata)), expected);
        }
    }
}
