//! Which nodes go when there are too many: first those the Autoscaler named for exactly this count, then by an order
//! that costs the least.

use std::{cmp::Reverse, collections::BTreeMap};

use k8s_openapi::api::core::v1::Pod;
use shared_crds::NodePool;

use super::{
    drain,
    membership::{Member, Readiness},
};

/// The nodes that the Autoscaler named, while its count is the pool's: names in its order, only nodes that were there
/// when it decided. A slot's name may have been given to a new node since, and that one was not meant.
pub fn named<'a>(pool: &NodePool, staying: &[&'a Member]) -> Vec<&'a Member> {
    let Some(autoscaling) = pool.status.as_ref().and_then(|status| status.autoscaling.as_ref()) else {
        return Vec::new();
    };
    let Some(plan) =
        autoscaling.scale_down.as_ref().filter(|plan| Some(plan.target_replicas) == pool.spec.replicas)
    else {
        return Vec::new();
    };
    let decided = autoscaling
        .last_decision
        .as_ref()
        .filter(|decision| decision.id == plan.decision_id)
        .map(|decision| decision.time.0);
    let by_name: BTreeMap<&str, &Member> = staying.iter().map(|member| (member.name(), *member)).collect();
    plan.nodes
        .iter()
        .filter_map(|name| by_name.get(name.as_str()).copied())
        .filter(|member| decided.is_none_or(|time| member.created <= time))
        .collect()
}

/// `candidates` in the order in which they go: not Ready before Ready, then those that somebody has cordoned, then empty
/// before busy (where the pods are known), then newest first; the name breaks ties, so that two passes over the same nodes choose the same ones.
pub fn in_order<'a>(mut candidates: Vec<&'a Member>, pods: &BTreeMap<String, Vec<Pod>>) -> Vec<&'a Member> {
    candidates.sort_by_key(|member| {
        let busy = pods.get(member.name()).is_none_or(|pods| pods.iter().any(drain::holds_the_node));
        (member.readiness == Readiness::Ready, !member.cordoned, busy, Reverse(member.created), member.name())
    });
    candidates
}
