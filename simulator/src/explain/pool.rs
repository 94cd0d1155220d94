//! A pool: how many nodes it has and should have, why, for which pods, which nodes are removed, and its history.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use planner::input::key;
use planner::{PodDecision, ScalingPlan, SchedulingResult};
use serde::Serialize;
use shared_crds::QualifiedName;
use shared_crds::v1alpha1::{AutoscalerMode, AutoscalingStatus, Decision, Recommendation, ScaleEvent};

use super::picture::{Picture, find, id};
use super::{ExplainError, node};
use crate::text::{aligned, named, yes_or_no};

/// Number of nodes, and of history entries, in the text.
const MOST_SHOWN: usize = 20;

/// The JSON of `explain pool -o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolFacts {
    kind: &'static str,
    namespace: String,
    name: String,
    /// The autoscaler that plans it, and its mode; empty when none does.
    autoscaler: String,
    mode: &'static str,
    /// Whether the decision is written.
    written: bool,
    min_replicas: i32,
    max_replicas: i32,
    current_replicas: i32,
    desired_replicas: i32,
    reason: &'static str,
    message: String,
    limited: bool,
    /// Autoscalers that select it, where there is more than one.
    contenders: Vec<String>,
    scale_down_nodes: Vec<String>,
    nodes: Vec<PoolNode>,
    /// Pending pods that it grows for, as `namespace/name`.
    triggering_pods: Vec<String>,
    /// Pending pods that no pool takes, and why this one does not.
    refused: Vec<PoolRejection>,
    history: History,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PoolNode {
    name: String,
    removable: bool,
    reason: &'static str,
    unneeded_since: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PoolRejection {
    reason: &'static str,
    message: String,
    pods: Vec<String>,
}

/// The history in the pool's status.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct History {
    last_scale_up_time: Option<Time>,
    last_decision: Option<Decision>,
    scale_events: Vec<ScaleEvent>,
    recommendations: Vec<Recommendation>,
}

/// Explains the pool called `wanted`.
pub(super) fn explain(picture: &Picture<'_>, wanted: &str) -> Result<PoolFacts, ExplainError> {
    let known = picture.plan.pools.iter().map(|decision| key(&decision.object.metadata));
    let (namespace, name) = find("NodePool", wanted, known)?;
    let full = QualifiedName { namespace, name }.to_string();
    let Some(decision) = picture.decision(&full) else {
        return Err(ExplainError::NoSuch { kind: "NodePool", name: wanted.to_owned(), hint: String::new() });
    };
    let spec = &decision.object.spec;
    let recommends = picture.only_recommends(decision);
    // Where the pool only gets recommendations, only the plan that carries them out assigns pods to it.
    let for_pods = picture.advice.as_ref().filter(|_| recommends).unwrap_or(&picture.plan);
    let since = |node: &str| {
        let found = decision.unneeded.iter().find(|unneeded| unneeded.name == node);
        found.map(|unneeded| unneeded.since_time.0.to_string()).unwrap_or_default()
    };
    let nodes = node::of_pool(picture, decision).map(|verdict| PoolNode {
        name: verdict.name.clone(),
        removable: verdict.reason.removable(),
        reason: verdict.reason.as_str(),
        unneeded_since: since(&verdict.name),
    });
    let autoscaling = decision.object.status.as_ref().and_then(|status| status.autoscaling.as_ref());
    Ok(PoolFacts {
        kind: "NodePool",
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        autoscaler: decision.autoscaler.clone().unwrap_or_default(),
        mode: picture.autoscaler(decision).map_or("", |object| mode(object.spec.mode)),
        written: decision.acts && decision.changes_replicas(),
        min_replicas: spec.min_replicas,
        max_replicas: spec.max_replicas,
        current_replicas: decision.current,
        desired_replicas: decision.desired,
        reason: decision.reason.as_str(),
        message: decision.message.clone(),
        limited: decision.limited,
        contenders: decision.contenders.clone(),
        scale_down_nodes: decision.victims.clone(),
        nodes: nodes.collect(),
        triggering_pods: triggering(for_pods, &id(decision)),
        refused: refused(for_pods, &id(decision)),
        history: autoscaling.map(History::of).unwrap_or_default(),
    })
}

const fn mode(mode: AutoscalerMode) -> &'static str {
    match mode {
        AutoscalerMode::Auto => "Auto",
        AutoscalerMode::Recommend => "Recommend",
        AutoscalerMode::Off => "Off",
    }
}

impl History {
    fn of(status: &AutoscalingStatus) -> Self {
        Self {
            last_scale_up_time: status.last_scale_up_time.clone(),
            last_decision: status.last_decision.clone(),
            scale_events: status.scale_events.clone(),
            recommendations: status.recommendations.clone(),
        }
    }
}

fn triggering(plan: &ScalingPlan, pool: &str) -> Vec<String> {
    let grows = |result: &SchedulingResult| matches!(result, SchedulingResult::TriggersScaleUp { pool: of } if of == pool);
    plan.pods.iter().filter(|pod| grows(&pod.result)).map(pod_name).collect()
}

fn refused(plan: &ScalingPlan, pool: &str) -> Vec<PoolRejection> {
    let mut by_reason = BTreeMap::<(&str, &str), Vec<String>>::new();
    for pod in &plan.pods {
        let SchedulingResult::Unschedulable { reasons } = &pod.result else { continue };
        for rejection in reasons.iter().filter(|rejection| rejection.pool == pool) {
            by_reason.entry((rejection.reason, &rejection.message)).or_default().push(pod_name(pod));
        }
    }
    by_reason
        .into_iter()
        .map(|((reason, message), pods)| PoolRejection { reason, message: message.to_owned(), pods })
        .collect()
}

fn pod_name(pod: &PodDecision) -> String {
    QualifiedName { namespace: &pod.namespace, name: &pod.name }.to_string()
}

/// The facts as text.
pub(super) fn text(facts: &PoolFacts) -> String {
    let mut text = head(facts);
    let PoolFacts { triggering_pods, refused, nodes, history, .. } = facts;
    if !triggering_pods.is_empty() {
        text.push_str(&format!(
            "It grows for {}: {}.\n",
            counted(triggering_pods.len()),
            named(triggering_pods)
        ));
    }
    for PoolRejection { reason, message, pods } in refused {
        text.push_str(&format!(
            "It refuses {} ({reason}: {message}): {}.\n",
            counted(pods.len()),
            named(pods)
        ));
    }
    if !nodes.is_empty() {
        let mut rows = vec![["NODE", "COULD GO", "REASON", "UNNEEDED SINCE"].map(str::to_owned)];
        rows.extend(nodes.iter().take(MOST_SHOWN).map(|node| {
            let PoolNode { name, removable, reason, unneeded_since } = node;
            [name.clone(), yes_or_no(*removable), (*reason).to_owned(), unneeded_since.clone()]
        }));
        text.push('\n');
        text.push_str(&aligned(&rows));
        let more = nodes.len().saturating_sub(MOST_SHOWN);
        if more > 0 {
            text.push_str(&format!("and {more} more; -o json names them all\n"));
        }
    }
    text.push_str(&past(history));
    text
}

fn head(facts: &PoolFacts) -> String {
    let PoolFacts { namespace, name, autoscaler, mode, written, contenders, scale_down_nodes, .. } = facts;
    let (current, desired) = (facts.current_replicas, facts.desired_replicas);
    let count = if current == desired {
        format!("is to keep {}", counted_nodes(current))
    } else {
        format!("has {} and should have {desired}", counted_nodes(current))
    };
    let (min, max) = (facts.min_replicas, facts.max_replicas);
    let mut text = format!(
        "NodePool {namespace}/{name} {count} (at least {min}, at most {max}). {}: {}.\n",
        facts.reason, facts.message
    );
    text.push_str(&match (autoscaler.as_str(), *written) {
        ("", _) if contenders.is_empty() => "No NodePoolAutoscaler plans it.\n".to_owned(),
        ("", _) => format!("Selected by more than one NodePoolAutoscaler: {}.\n", contenders.join(", ")),
        (planner, true) => {
            format!("NodePoolAutoscaler {planner} (mode {mode}) writes this to spec.replicas.\n")
        }
        (planner, false) if current == desired => {
            format!("NodePoolAutoscaler {planner} (mode {mode}) plans it.\n")
        }
        (planner, false) => {
            format!("NodePoolAutoscaler {planner} (mode {mode}) reports this and writes nothing.\n")
        }
    });
    if facts.limited {
        text.push_str("Pods ask for more nodes than a bound or a policy allows.\n");
    }
    if !scale_down_nodes.is_empty() {
        text.push_str(&format!("These nodes go: {}.\n", named(scale_down_nodes)));
    }
    text
}

fn past(history: &History) -> String {
    let History { last_scale_up_time, last_decision, scale_events, recommendations } = history;
    let mut rows = vec![["TIME", "WHAT HAPPENED"].map(str::to_owned)];
    let skipped = scale_events.len().saturating_sub(MOST_SHOWN);
    rows.extend(scale_events.iter().skip(skipped).map(|ScaleEvent { change, time }| {
        let word = if *change < 0 { "fewer" } else { "more" };
        let nodes = i32::try_from(change.unsigned_abs()).unwrap_or(i32::MAX);
        let what = format!("{} {word}", counted_nodes(nodes));
        [time.0.to_string(), what]
    }));
    if let Some(last) = last_decision {
        let Decision { id: _, from_replicas, to_replicas, reason, message, time } = last;
        rows.push([
            time.0.to_string(),
            format!("last decision: from {from_replicas} to {to_replicas}, {reason}: {message}"),
        ]);
    }
    let mut text = String::new();
    if rows.len() > 1 {
        text = format!("\n{}", aligned(&rows));
    }
    if let Some(Time(time)) = last_scale_up_time {
        text.push_str(&format!("It last grew at {time}.\n"));
    }
    if !recommendations.is_empty() {
        let wanted: Vec<_> =
            recommendations.iter().map(|r| format!("{} since {}", r.replicas, r.time.0)).collect();
        text.push_str(&format!("Wanted within the stabilisation windows: {}.\n", wanted.join(", ")));
    }
    text
}

fn counted_nodes(nodes: i32) -> String {
    if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") }
}

fn counted(pods: usize) -> String {
    if pods == 1 { "1 pending pod".to_owned() } else { format!("{pods} pending pods") }
}
