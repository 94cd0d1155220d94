//! Which nodes are unhealthy: those whose conditions are ones of `spec.repair`, for however short a time.

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::NodePool;
use shared_crds::v1alpha1::{ConditionStatus, DisruptionReason, RepairCondition, RepairSpec};

use crate::Observed;
use crate::assess::membership::Member;
use crate::input::observed_time::{ConditionKey, due};

/// Whether the node was made for the pool, so that its provider knows its machine: of any other, the answer that there is no
/// such machine would mean nothing.
pub(crate) fn has_machine(member: &Member) -> bool {
    member.has_finalizer && member.template_hash.is_some() && member.made_by().is_some()
}

/// Whether no kubelet will confirm the end of the pods of a node that is being deleted, because its own has not been heard
/// of for as long as makes a node unhealthy, and its machine is known.
pub(crate) fn is_unreachable(observed: &Observed, pool: &NodePool, member: &Member) -> bool {
    let silent = [silence(&spec(pool))];
    let silence = unhealthy_condition(observed, &silent, &member.node);
    !observed.cluster_readiness.is_outage()
        && has_machine(member)
        && silence.is_some_and(|silence| silence.due <= observed.now)
}

/// Whether one of these conditions of `spec.repair` holds for `node`, for however short a time.
pub(crate) fn is_unhealthy(conditions: &[RepairCondition], node: &Node) -> bool {
    !holding(conditions, node).is_empty()
}

/// What `spec.repair` says, or says by default.
pub(crate) fn spec(pool: &NodePool) -> RepairSpec {
    pool.spec.repair.clone().unwrap_or_default()
}

/// The conditions by which the node would be repaired. One that leaves goes anyway, unless no kubelet is there to end its pods: of
/// it only a silent kubelet counts, whatever the spec names where it is drained to be repaired.
pub(crate) fn of_repair(pool: &NodePool, member: &Member) -> Vec<RepairCondition> {
    let spec = spec(pool);
    if member.stays() {
        return spec.conditions;
    }
    if member.cause.reason() == Some(DisruptionReason::Repair) {
        return vec![silence(&spec)];
    }
    spec.conditions.into_iter().filter(is_silence).collect()
}

/// The condition of a node whose kubelet is silent: as the spec has it, or as it is by default.
fn silence(spec: &RepairSpec) -> RepairCondition {
    let find = |all: &[RepairCondition]| all.iter().find(|it| is_silence(it)).cloned();
    let named = find(&spec.conditions);
    named.or_else(|| find(&RepairSpec::default().conditions)).unwrap_or(RepairCondition {
        type_: "Ready".to_owned(),
        status: ConditionStatus::Unknown,
        seconds: 600,
    })
}

fn is_silence(condition: &RepairCondition) -> bool {
    condition.type_ == "Ready" && condition.status == ConditionStatus::Unknown
}

/// The conditions whose times matter.
pub fn watched(pool: &NodePool) -> Vec<RepairCondition> {
    let spec = spec(pool);
    let silence = silence(&spec);
    let mut all = spec.conditions;
    if !all.contains(&silence) {
        all.push(silence);
    }
    all
}

/// What makes a node unhealthy.
pub(crate) struct UnhealthyCondition<'a> {
    condition: &'a RepairCondition,
    pub(crate) since: Timestamp,
    /// When it has lasted long enough.
    pub(crate) due: Timestamp,
}

impl std::fmt::Display for UnhealthyCondition<'_> {
    /// As the end of a sentence about the node.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RepairCondition { type_, status, seconds } = self.condition;
        let (status, since) = (status.as_str(), self.since);
        write!(f, "is unhealthy ({type_} is {status} since {since:.0}) and is replaced after {seconds} s")
    }
}

/// The first of the conditions that hold to have lasted long enough; `None` for a healthy node.
pub(crate) fn unhealthy_condition<'a>(
    observed: &Observed,
    conditions: &'a [RepairCondition],
    node: &Node,
) -> Option<UnhealthyCondition<'a>> {
    let times = observed.condition_times.of_node(node);
    let all = holding(conditions, node).into_iter().map(|(condition, since)| {
        let seen = times.and_then(|times| times.get(&key(condition))).copied().unwrap_or_default();
        let limit = SignedDuration::from_secs(i64::from(condition.seconds));
        UnhealthyCondition { condition, since, due: due(since, limit, seen, observed.now) }
    });
    all.min_by_key(|condition| condition.due)
}

/// Those of the conditions that hold for `node`, with the time since when.
pub fn holding<'a>(conditions: &'a [RepairCondition], node: &Node) -> Vec<(&'a RepairCondition, Timestamp)> {
    let of_node: Vec<&NodeCondition> =
        node.status.iter().flat_map(|status| status.conditions.iter().flatten()).collect();
    let holds = |wanted: &'a RepairCondition| {
        let is_it = |it: &&&NodeCondition| it.type_ == wanted.type_ && it.status == wanted.status.as_str();
        let found = of_node.iter().find(is_it)?;
        let since = found.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        Some((wanted, since))
    };
    conditions.iter().filter_map(holds).collect()
}

/// What a condition's time is kept by.
pub fn key(condition: &RepairCondition) -> ConditionKey {
    (condition.type_.clone(), condition.status)
}
