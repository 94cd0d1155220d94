//! A pod: whether it waits for a node, which node or pool takes it, and the answer of every other pool.

use std::sync::Arc;

use planner::{Nominations, Observed, PoolRejection, SchedulingResult, plan};
use serde::Serialize;
use shared_crds::QualifiedName;

use super::ExplainError;
use super::picture::{Picture, find, id, result_of};
use crate::pod_state::PodState;
use crate::text::aligned;

/// Number of pools that are tried one after another for the same pod.
const MOST_ALTERNATIVES: usize = 16;

/// The JSON of `explain pod -o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodFacts {
    kind: &'static str,
    namespace: String,
    name: String,
    /// `Pending`, or why the pod is not planned.
    state: &'static str,
    /// `Fits`, `TriggersScaleUp` or `Unschedulable`; empty for pods that are not planned.
    outcome: &'static str,
    node_pool: String,
    node: String,
    message: String,
    /// The answers of all pools; empty for pods that need no new node.
    pools: Vec<Reply>,
}

/// The answer of a pool for a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reply {
    node_pool: String,
    /// `Takes`, `CouldTake`, `Refuses` or `NotPlanned`.
    answer: &'static str,
    reason: String,
    message: String,
}

/// Explains the pod called `wanted`.
pub(super) fn explain(picture: &Picture<'_>, wanted: &str) -> Result<PodFacts, ExplainError> {
    let (namespace, name) = find("pod", wanted, picture.observed.pods.iter().map(|pod| pod.key()))?;
    let pod = picture.observed.pods.iter().find(|pod| pod.key() == (namespace, name));
    let nominations = Nominations::of(picture.observed);
    let state = pod.map_or(PodState::Unmarked, |pod| PodState::of(pod, &nominations));
    let result = picture.result_of(namespace, name);
    let facts = PodFacts {
        kind: "Pod",
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        state: state.as_str(),
        outcome: "",
        node_pool: String::new(),
        node: String::new(),
        message: not_planned(state),
        pools: Vec::new(),
    };
    let (PodState::Pending, Some(result)) = (state, result) else {
        let node = match state {
            PodState::Bound(node) | PodState::Nominated(node) => node.to_owned(),
            _ => String::new(),
        };
        return Ok(PodFacts { node, ..facts });
    };
    Ok(planned(picture, facts, result))
}

/// Why a pod is not planned.
fn not_planned(state: PodState<'_>) -> String {
    match state {
        PodState::Pending => "the planner says nothing about it".to_owned(),
        PodState::Bound(node) => format!("it has a place on node {node}"),
        PodState::Nominated(node) => format!("node {node} is being cleared for it; no pool grows for it meanwhile"),
        PodState::Finished => "it has run to its end and needs no node".to_owned(),
        PodState::Ending => "it is being deleted".to_owned(),
        PodState::Gated => {
            "it has spec.schedulingGates: it waits until they are removed, not for a node".to_owned()
        }
        PodState::OfDaemonSet => {
            "it is a DaemonSet's, made for one certain node; another node would not help it".to_owned()
        }
        PodState::Unmarked => {
            "the scheduler has not said that it finds no node for it (condition PodScheduled=False, Unschedulable); \
             is the scheduler named in spec.schedulerName running?"
                .to_owned()
        }
    }
}

fn planned(picture: &Picture<'_>, facts: PodFacts, decided: &SchedulingResult) -> PodFacts {
    let pod = (facts.namespace.as_str(), facts.name.as_str());
    match decided {
        SchedulingResult::Fits { pool, node } => {
            let of_pool = if pool.is_empty() { String::new() } else { format!(" of NodePool {pool}") };
            let message = if node.is_empty() {
                format!("a node that NodePool {pool} is making already has room for it")
            } else {
                format!("node {node}{of_pool} has room for it; no pool has to grow")
            };
            PodFacts { outcome: "Fits", node_pool: pool.clone(), node: node.clone(), message, ..facts }
        }
        SchedulingResult::TriggersScaleUp { pool } => {
            let counts = picture.decision(pool).map_or_else(String::new, |decision| {
                let (current, desired) = (decision.current, decision.desired);
                format!(", from {current} to {desired} nodes")
            });
            let message = format!("NodePool {pool} grows for it and for others like it{counts}");
            let pools = answers(picture, pod, decided);
            PodFacts { outcome: "TriggersScaleUp", node_pool: pool.clone(), message, pools, ..facts }
        }
        SchedulingResult::Unschedulable { reasons } => {
            let pools = answers(picture, pod, decided);
            let advised =
                picture.advice.as_ref().and_then(|advice| result_of(advice, &facts.namespace, &facts.name));
            let message = match advised {
                Some(SchedulingResult::TriggersScaleUp { pool } | SchedulingResult::Fits { pool, .. }) => {
                    format!(
                        "no NodePool grows for it: NodePool {pool} would, but its NodePoolAutoscaler is in mode Recommend, \
                     which writes nothing"
                    )
                }
                _ if pools.iter().all(|pool| pool.answer == "NotPlanned") => {
                    "no NodePool grows for it, because no NodePoolAutoscaler plans one".to_owned()
                }
                _ => match reasons.iter().find(|rejection| rejection.keeps_waiting) {
                    Some(rejection) => format!("no NodePool grows for it: {}", rejection.message),
                    None => "no NodePool can take it".to_owned(),
                },
            };
            PodFacts { outcome: "Unschedulable", message, pools, ..facts }
        }
    }
}

/// The answer of every pool, sorted by name.
fn answers(picture: &Picture<'_>, pod: (&str, &str), decided: &SchedulingResult) -> Vec<Reply> {
    let mut answers: Vec<Reply> = match decided {
        SchedulingResult::Unschedulable { reasons } => reasons.iter().map(refusal).collect(),
        SchedulingResult::TriggersScaleUp { pool } => alternatives(picture, pod, pool),
        SchedulingResult::Fits { .. } => Vec::new(),
    };
    for decision in &picture.plan.pools {
        let node_pool = id(decision);
        if answers.iter().any(|answer| answer.node_pool == node_pool) {
            continue;
        }
        let recommends = picture.only_recommends(decision);
        let (answer, reason) = match (recommends, decision.is_planned()) {
            (true, _) => ("NotPlanned", "RecommendOnly"),
            // Beyond the limit of pools that are tried; see MOST_ALTERNATIVES.
            (false, true) => continue,
            (false, false) => ("NotPlanned", decision.reason.as_str()),
        };
        let message = if recommends {
            format!("its NodePoolAutoscaler only recommends: {}", decision.message)
        } else {
            decision.message.clone()
        };
        answers.push(Reply { node_pool, answer, reason: reason.to_owned(), message });
    }
    answers.sort_by(|a, b| a.node_pool.cmp(&b.node_pool));
    answers
}

fn refusal(PoolRejection { pool, reason, message, keeps_waiting: _ }: &PoolRejection) -> Reply {
    Reply {
        node_pool: pool.clone(),
        answer: "Refuses",
        reason: (*reason).to_owned(),
        message: message.clone(),
    }
}

/// The answers of pools for a pod that another pool grows for: the pod is planned again, each time without the pools
/// that would take it. Pending pods that need new nodes themselves are left out, because they would take the place.
fn alternatives(picture: &Picture<'_>, pod: (&str, &str), chosen: &str) -> Vec<Reply> {
    let mut answers = vec![Reply {
        node_pool: chosen.to_owned(),
        answer: "Takes",
        reason: String::new(),
        message: picture.decision(chosen).map(|decision| decision.message.clone()).unwrap_or_default(),
    }];
    let (namespace, name) = pod;
    let mut trial = alone(picture, pod);
    let mut next = chosen.to_owned();
    for _ in 0..MOST_ALTERNATIVES {
        if !pause(&mut trial, &next) {
            break;
        }
        let planned = plan(&trial);
        match result_of(&planned, namespace, name) {
            Some(SchedulingResult::TriggersScaleUp { pool })
                if answers.iter().all(|answer| answer.node_pool != *pool) =>
            {
                answers.push(Reply {
                    node_pool: pool.clone(),
                    answer: "CouldTake",
                    reason: String::new(),
                    message: "could grow for it as well".to_owned(),
                });
                next.clone_from(pool);
            }
            Some(SchedulingResult::Unschedulable { reasons }) => {
                let new: Vec<_> = reasons
                    .iter()
                    .map(refusal)
                    .filter(|answer| answers.iter().all(|known| known.node_pool != answer.node_pool))
                    .collect();
                answers.extend(new);
                break;
            }
            _ => break,
        }
    }
    answers
}

/// The cluster without the pending pods that found no place, except `pod`, and without the pools that only get
/// recommendations.
fn alone(picture: &Picture<'_>, pod: (&str, &str)) -> Observed {
    let mut trial = picture.observed.clone();
    trial.options.recommendations = planner::Recommendations::Exclude;
    let out: std::collections::BTreeSet<(&str, &str)> = picture
        .plan
        .pods
        .iter()
        .filter(|other| !matches!(other.result, SchedulingResult::Fits { .. }))
        .map(|other| (other.namespace.as_str(), other.name.as_str()))
        .collect();
    trial.pods.retain(|object| {
        let id = object.key();
        id == pod || !out.contains(&id)
    });
    trial
}

/// Pauses a pool, so that it does not grow.
fn pause(observed: &mut Observed, pool: &str) -> bool {
    let found =
        observed.pools.iter_mut().find(|object| QualifiedName::of(&object.metadata).to_string() == pool);
    found.map(|object| Arc::make_mut(object).spec.paused = true).is_some()
}

/// The facts as text.
pub(super) fn text(facts: &PodFacts) -> String {
    let PodFacts { kind: _, namespace, name, state, outcome: _, node_pool: _, node: _, message, pools } =
        facts;
    let head = if *state == "Pending" { "waits for a node" } else { "does not wait for a new node" };
    let mut text = format!("Pod {namespace}/{name} {head}: {message}.\n");
    if !pools.is_empty() {
        let mut rows = vec![["POOL", "ANSWER", "WHY"].map(str::to_owned)];
        rows.extend(pools.iter().map(|Reply { node_pool, answer, reason, message }| {
            let word = match *answer {
                "Takes" => "takes it",
                "CouldTake" => "could take it",
                "NotPlanned" => "not asked",
                _ => "refuses it",
            };
            let why = if reason.is_empty() { message.clone() } else { format!("{reason}: {message}") };
            [node_pool.clone(), word.to_owned(), why]
        }));
        text.push('\n');
        text.push_str(&aligned(&rows));
    }
    text
}
