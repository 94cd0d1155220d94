//! A plan as `simulate` prints it: the JSON object that is specified in the documentation, or tables.

use planner::{NodeDecision, PodDecision, PoolDecision, PoolRejection, ScalingPlan, SchedulingResult};
use serde::Serialize;
use shared_crds::QualifiedName;

use crate::text::{aligned, yes_or_no};

/// The JSON object.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    pools: Vec<Pool<'a>>,
    pods: Vec<Pod<'a>>,
    nodes: Vec<Node<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pool<'a> {
    namespace: &'a str,
    name: &'a str,
    current_replicas: i32,
    desired_replicas: i32,
    reason: &'static str,
    message: &'a str,
    limited: bool,
    scale_down_nodes: &'a [String],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pod<'a> {
    namespace: &'a str,
    name: &'a str,
    outcome: &'static str,
    node_pool: &'a str,
    node: &'a str,
    reasons: Vec<WhyNot<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WhyNot<'a> {
    node_pool: &'a str,
    reason: &'static str,
    message: &'a str,
}

#[derive(Debug, Serialize)]
struct Node<'a> {
    name: &'a str,
    removable: bool,
    reason: &'static str,
    message: &'a str,
}

impl<'a> Report<'a> {
    /// The report of a plan.
    pub(super) fn of(plan: &'a ScalingPlan) -> Self {
        Self {
            pools: plan.pools.iter().map(Pool::of).collect(),
            pods: plan.pods.iter().map(Pod::of).collect(),
            nodes: plan.nodes.iter().map(Node::of).collect(),
        }
    }
}

impl<'a> Pool<'a> {
    fn of(decision: &'a PoolDecision) -> Self {
        let (namespace, name) = planner::input::key(&decision.object.metadata);
        Self {
            namespace,
            name,
            current_replicas: decision.current,
            desired_replicas: decision.desired,
            reason: decision.reason.as_str(),
            message: &decision.message,
            limited: decision.limited,
            scale_down_nodes: &decision.victims,
        }
    }
}

impl<'a> Pod<'a> {
    fn of(pod: &'a PodDecision) -> Self {
        let (outcome, node_pool, node, reasons): (_, &str, &str, &[PoolRejection]) = match &pod.result {
            SchedulingResult::Fits { pool, node } => ("Fits", pool, node, &[]),
            SchedulingResult::TriggersScaleUp { pool } => ("TriggersScaleUp", pool, "", &[]),
            SchedulingResult::Unschedulable { reasons } => ("Unschedulable", "", "", reasons),
        };
        let reasons =
            reasons.iter().map(|r| WhyNot { node_pool: &r.pool, reason: r.reason, message: &r.message });
        Self {
            namespace: &pod.namespace,
            name: &pod.name,
            outcome,
            node_pool,
            node,
            reasons: reasons.collect(),
        }
    }
}

impl<'a> Node<'a> {
    fn of(node: &'a NodeDecision) -> Self {
        let NodeDecision { name, reason, message } = node;
        Self { name, removable: reason.removable(), reason: reason.as_str(), message }
    }
}

/// The plan as tables. Reasons why no pool takes a pod are listed below it, one per line.
pub(super) fn table(plan: &ScalingPlan) -> String {
    let report = Report::of(plan);
    let mut pools = vec![["POOL", "CURRENT", "DESIRED", "LIMITED", "REASON", "MESSAGE"].map(str::to_owned)];
    for pool in &report.pools {
        let id = QualifiedName { namespace: pool.namespace, name: pool.name }.to_string();
        let mut message = pool.message.to_owned();
        if !pool.scale_down_nodes.is_empty() {
            message.push_str(&format!("; going: {}", pool.scale_down_nodes.join(", ")));
        }
        let limited = yes_or_no(pool.limited);
        pools.push([
            id,
            pool.current_replicas.to_string(),
            pool.desired_replicas.to_string(),
            limited,
            pool.reason.to_owned(),
            message,
        ]);
    }
    let mut pods = vec![["PENDING POD", "OUTCOME", "POOL", "NODE", "REASON"].map(str::to_owned)];
    for pod in &report.pods {
        let id = QualifiedName { namespace: pod.namespace, name: pod.name }.to_string();
        let row = [id, pod.outcome.to_owned(), pod.node_pool.to_owned(), pod.node.to_owned(), String::new()];
        pods.push(row);
        pods.extend(pod.reasons.iter().map(|r| {
            let reason = format!("{}: {}", r.reason, r.message);
            [String::new(), String::new(), r.node_pool.to_owned(), String::new(), reason]
        }));
    }
    let mut nodes = vec![["NODE", "REMOVABLE", "REASON", "MESSAGE"].map(str::to_owned)];
    nodes.extend(
        report
            .nodes
            .iter()
            .map(|n| [n.name.to_owned(), yes_or_no(n.removable), n.reason.to_owned(), n.message.to_owned()]),
    );
    [aligned(&pools), aligned(&pods), aligned(&nodes)].join("\n")
}
