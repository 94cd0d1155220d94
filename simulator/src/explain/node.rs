//! A node: whether it can be removed, why not, since when, and where each of its pods would go. Of one that the `NodePool` operator
//! removes or keeps, what that operator has written.

use std::sync::Arc;

use planner::input::{key, nodes};
use planner::{NodeDecision, NodeReason, PoolDecision, SchedulingResult, plan_for_cluster};
use serde::Serialize;
use shared_crds::v1alpha1::UnneededNode;
use shared_crds::{NodePool, QualifiedName};

use super::lifecycle::Lifecycle;
use super::picture::{Picture, find, id, result_of};
use super::{ExplainError, advice, lifecycle};
use crate::edits::keep_without;
use crate::text::{aligned, yes_or_no};

/// The JSON of `explain node -o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeFacts {
    kind: &'static str,
    name: String,
    /// The pool, as `namespace/name`; empty for a node outside pools.
    node_pool: String,
    /// Whether it could be removed on its own merits.
    removable: bool,
    reason: &'static str,
    message: String,
    /// What can be done about the reason.
    advice: &'static str,
    /// Since when the node is unneeded; empty when it is needed.
    unneeded_since: String,
    /// Whether the current decision removes it.
    goes_now: bool,
    /// What the `NodePool` operator says of it.
    lifecycle: Lifecycle,
    /// Its pods, and what would happen to them if it were gone and not replaced.
    pods: Vec<PodResult>,
}

/// What would happen to a pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodResult {
    namespace: String,
    name: String,
    /// `Moves`, `NeedsNewNode`, `NoPlace`, `Lost` or `GoesWithNode`.
    result: &'static str,
    /// The pool it would go to.
    node_pool: String,
    node: String,
    message: String,
}

/// Explains the node called `wanted`.
pub(super) fn explain(picture: &Picture<'_>, wanted: &str) -> Result<NodeFacts, ExplainError> {
    let (_, name) = find("node", wanted, picture.observed.nodes.iter().map(|node| key(&node.metadata)))?;
    let node = picture.observed.nodes.iter().find(|node| key(&node.metadata).1 == name);
    let node_pool = node.and_then(|node| nodes::pool_of(node)).map(qualified).unwrap_or_default();
    let decision = picture.decision(&node_pool);
    let verdict = picture.plan.nodes.iter().find(|verdict| verdict.name == name);
    let (removable, reason) = verdict.map_or((false, "NotAutoscaled"), |NodeDecision { reason, .. }| {
        (reason.removable(), reason.as_str())
    });
    let since = decision.and_then(|decision| decision.unneeded.iter().find(|node| node.name == name));
    let is_its_pool = |pool: &&Arc<NodePool>| QualifiedName::of(&pool.metadata).to_string() == node_pool;
    let pool = picture.observed.pools.iter().find(is_its_pool).map(|pool| &**pool);
    Ok(NodeFacts {
        kind: "Node",
        name: name.to_owned(),
        removable,
        reason,
        message: verdict.map(|verdict| verdict.message.clone()).unwrap_or_default(),
        advice: advice::advice(reason),
        unneeded_since: since
            .map(|UnneededNode { since_time, .. }| since_time.0.to_string())
            .unwrap_or_default(),
        goes_now: decision.is_some_and(|decision| takes(picture, decision, name)),
        lifecycle: node.map(|node| Lifecycle::of(node, pool)).unwrap_or_default(),
        pods: pods(picture, name)?,
        node_pool,
    })
}

fn takes(picture: &Picture<'_>, decision: &PoolDecision, node: &str) -> bool {
    !picture.only_recommends(decision) && decision.victims.iter().any(|victim| victim == node)
}

fn qualified(id: (&str, &str)) -> String {
    QualifiedName::from(id).to_string()
}

/// Plans the cluster without the node, and returns where its pods go.
fn pods(picture: &Picture<'_>, node: &str) -> Result<Vec<PodResult>, ExplainError> {
    let mut without = picture.observed.clone();
    let removal = keep_without(&mut without, node)?;
    let planned = plan_for_cluster(&without);
    let entry = |pod: &String, result, node_pool: &str, node: &str, message: String| {
        let (namespace, name) = pod.split_once('/').unwrap_or(("", pod));
        PodResult {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            result,
            node_pool: node_pool.to_owned(),
            node: node.to_owned(),
            message,
        }
    };
    let mut results: Vec<PodResult> = removal
        .displaced
        .iter()
        .map(|pod| {
            let (namespace, name) = pod.split_once('/').unwrap_or(("", pod));
            (pod, result_of(&planned, namespace, name))
        })
        .map(|(pod, result)| match result {
            Some(SchedulingResult::Fits { pool, node }) if node.is_empty() => {
                entry(pod, "Moves", pool, node, format!("to a node that NodePool {pool} is making already"))
            }
            Some(SchedulingResult::Fits { pool, node }) => {
                entry(pod, "Moves", pool, node, format!("to node {node}"))
            }
            Some(SchedulingResult::TriggersScaleUp { pool }) => {
                entry(pod, "NeedsNewNode", pool, "", format!("NodePool {pool} would grow for it"))
            }
            Some(SchedulingResult::Unschedulable { reasons }) => {
                let why: Vec<_> = reasons.iter().map(|r| format!("{}: {}", r.pool, r.message)).collect();
                let why =
                    if why.is_empty() { "no other node has room for it".to_owned() } else { why.join("; ") };
                entry(pod, "NoPlace", "", "", why)
            }
            None => {
                entry(pod, "NoPlace", "", "", "it would not be planned: see its scheduling gates".to_owned())
            }
        })
        .collect();
    let no_controller = "no controller would make it again";
    results.extend(removal.lost.iter().map(|pod| entry(pod, "Lost", "", "", no_controller.to_owned())));
    let ends = "of a DaemonSet or of the node itself, or ending already";
    results.extend(removal.gone.iter().map(|pod| entry(pod, "GoesWithNode", "", "", ends.to_owned())));
    results.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    Ok(results)
}

/// The first sentences: of a node that leaves they are the `NodePool` operator's alone, because nothing is left to decide about it.
fn head(facts: &NodeFacts) -> String {
    let NodeFacts {
        kind: _,
        name,
        node_pool,
        removable,
        reason,
        message,
        advice,
        unneeded_since,
        goes_now,
        lifecycle,
        pods: _,
    } = facts;
    let pool =
        if node_pool.is_empty() { "of no NodePool".to_owned() } else { format!("of NodePool {node_pool}") };
    let said = lifecycle::text(lifecycle, node_pool);
    if lifecycle.leaves {
        return format!("Node {name} {pool} leaves.\n{said}");
    }
    let what = if *removable {
        "could go"
    } else if *reason == NodeReason::CurrentlyBeingDeleted.as_str() {
        "is to go"
    } else {
        "stays"
    };
    let why = if message.is_empty() { (*reason).to_owned() } else { format!("{reason}: {message}") };
    let mut text = format!("Node {name} {pool} {what}. {why}.\n");
    if *goes_now {
        text.push_str("It goes with the decision of this moment.\n");
    }
    if !unneeded_since.is_empty() {
        text.push_str(&format!("Nothing has needed it since {unneeded_since}.\n"));
    }
    if !advice.is_empty() {
        text.push_str(&format!("To change that: {advice}.\n"));
    }
    text.push_str(&said);
    text
}

/// The facts as text.
pub(super) fn text(facts: &NodeFacts) -> String {
    let (mut text, pods) = (head(facts), &facts.pods);
    if pods.is_empty() {
        text.push_str("No pods are on it.\n");
        return text;
    }
    text.push_str("\nIf it were gone, and nothing in its place:\n\n");
    let mut rows = vec![["POD", "HAS A PLACE", "WHAT HAPPENS"].map(str::to_owned)];
    rows.extend(pods.iter().map(|pod| {
        let what = match pod.result {
            "Moves" => format!("moves {}", pod.message),
            "Lost" => format!("is lost: {}", pod.message),
            "GoesWithNode" => format!("goes with the node: {}", pod.message),
            "NeedsNewNode" => format!("needs a new node: {}", pod.message),
            _ => format!("waits: {}", pod.message),
        };
        let needs_none = pod.result == "GoesWithNode";
        let place = if needs_none { "needs none".to_owned() } else { yes_or_no(pod.result == "Moves") };
        [qualified((&pod.namespace, &pod.name)), place, what]
    }));
    text.push_str(&aligned(&rows));
    text
}

/// The pool's nodes with the decision about each, for `explain pool`.
pub(super) fn of_pool<'p>(
    picture: &'p Picture<'_>,
    decision: &PoolDecision,
) -> impl Iterator<Item = &'p NodeDecision> {
    let pool = id(decision);
    let names: std::collections::BTreeSet<String> = picture
        .observed
        .nodes
        .iter()
        .filter(|node| nodes::pool_of(node).map(qualified).is_some_and(|of| of == pool))
        .filter_map(|node| node.metadata.name.clone())
        .collect();
    picture.plan.nodes.iter().filter(move |verdict| names.contains(&verdict.name))
}
