//! What the `NodePool` operator has written about a node: that it removes it, for which reason, since when, and what that waits
//! for; or, of a node that stays, what it says of it in the conditions of its pool. All of it is quoted: what becomes of a node is
//! decided in that operator, and nothing is concluded here from the state of the node or of the pool.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use planner::input::nodes;
use serde::Serialize;
use shared_crds::NodePool;
use shared_crds::conditions::{ConditionType, Reason};
use shared_crds::names;

/// What the `NodePool` operator says of a node.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Lifecycle {
    /// Whether the node is being drained or deleted.
    pub(super) leaves: bool,
    /// Why it leaves, as a reason of `spec.disruption.budgets`; empty where another client has deleted it, or it stays.
    reason: String,
    /// When its drain began; empty where it is not drained.
    drain_start_time: String,
    /// When its Node was deleted; empty where it was not.
    deletion_time: String,
    /// What it waits for, as the end of a sentence about it; empty while its removal goes on by itself, and where it stays.
    waits_for: String,
    /// When its last drain took too long and was cancelled; empty where none did.
    given_back_time: String,
    /// The conditions of its pool that are about it, or about nodes like it.
    pool_conditions: Vec<QuotedCondition>,
}

/// A condition of the pool as it stands there.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct QuotedCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: String,
    message: String,
    /// Since when the condition has its status.
    last_transition_time: String,
}

impl Lifecycle {
    /// Reads what stands on `node` and in the status of its `pool`.
    pub(super) fn of(node: &Node, pool: Option<&NodePool>) -> Self {
        let metadata = &node.metadata;
        let noted = |annotation: &str| {
            let value = metadata.annotations.as_ref().and_then(|all| all.get(annotation));
            value.cloned().unwrap_or_default()
        };
        let status = pool.and_then(|pool| pool.status.as_ref());
        let conditions = status.map_or(&[][..], |status| &status.conditions);
        if !nodes::is_leaving(node) {
            return Self {
                given_back_time: noted(names::GIVEN_BACK_ANNOTATION),
                pool_conditions: about_staying(node, conditions),
                ..Self::default()
            };
        }
        let waits_for = noted(names::DRAIN_WAITS_ANNOTATION);
        let deleted = metadata.deletion_timestamp.as_ref();
        Self {
            leaves: true,
            reason: noted(names::DISRUPTION_REASON_ANNOTATION),
            drain_start_time: noted(names::DRAIN_STARTED_ANNOTATION),
            deletion_time: deleted.map(|time| time.0.to_string()).unwrap_or_default(),
            pool_conditions: about_leaving(&waits_for, conditions),
            waits_for,
            given_back_time: String::new(),
        }
    }
}

impl QuotedCondition {
    fn of(condition: &Condition) -> Self {
        let Condition { type_, status, reason, message, last_transition_time, observed_generation: _ } =
            condition;
        Self {
            type_: type_.clone(),
            status: status.clone(),
            reason: reason.clone(),
            message: message.clone(),
            last_transition_time: last_transition_time.0.to_string(),
        }
    }
}

fn found(conditions: &[Condition], type_: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == type_.as_str())
}

fn has_reason(condition: &Condition, reason: Reason) -> bool {
    condition.reason == reason.as_str()
}

/// What the pool says of a node that leaves: where nothing is noted on it, such as that it waits for its turn, which is said of all
/// such nodes at once; and that the pool is paused, because what is noted on the node is from before.
fn about_leaving(waits_for: &str, conditions: &[Condition]) -> Vec<QuotedCondition> {
    let is_said = |condition: &&Condition| {
        let is_silent = waits_for.is_empty() && !has_reason(condition, Reason::Settled);
        is_silent || has_reason(condition, Reason::Paused)
    };
    let reconciling = found(conditions, ConditionType::Reconciling).filter(is_said);
    reconciling.map(QuotedCondition::of).into_iter().collect()
}

/// What the pool says of a node that stays: that nodes are out of date and what these wait for, and the first condition beside
/// it that names the node. Of many unhealthy nodes it names one, so that a node that is not Ready comes with what is said of all.
fn about_staying(node: &Node, conditions: &[Condition]) -> Vec<QuotedCondition> {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let is_out_of_date = |condition: &&Condition| {
        !has_reason(condition, Reason::UpToDate) && !has_reason(condition, Reason::Deleting)
    };
    let rollout = found(conditions, ConditionType::RollingOut).filter(is_out_of_date);
    // Other conditions repeat it.
    let of_rollout = rollout.map_or("", |condition| &condition.message);
    let is_named = |condition: &&Condition| names_node(&condition.message.replace(of_rollout, ""), name);
    let is_unready =
        |condition: &&Condition| has_reason(condition, Reason::NodesNotReady) && !nodes::is_ready(node);
    let types = [ConditionType::Reconciling, ConditionType::NodesReady, ConditionType::Ready];
    let mut all = types.into_iter().filter_map(|type_| found(conditions, type_));
    let other =
        all.find(is_named).or_else(|| found(conditions, ConditionType::NodesReady).filter(is_unready));
    rollout.into_iter().chain(other).map(QuotedCondition::of).collect()
}

/// Whether the message is about the node: it writes `node NAME` of each that it names.
fn names_node(message: &str, name: &str) -> bool {
    let words: Vec<&str> = message.split_whitespace().collect();
    let is_it = |word: &str| word.trim_end_matches([',', ';', ':', '.']) == name;
    words.windows(2).any(|pair| matches!(pair, ["node", word] if is_it(word)))
}

/// The same as text; `node_pool` is the pool's `namespace/name`.
pub(super) fn text(lifecycle: &Lifecycle, node_pool: &str) -> String {
    let Lifecycle {
        leaves,
        reason,
        drain_start_time,
        deletion_time,
        waits_for,
        given_back_time,
        pool_conditions,
    } = lifecycle;
    let cause = if reason.is_empty() { String::new() } else { format!(" for {reason}") };
    let is_drained = !drain_start_time.is_empty();
    let mut text = String::new();
    if is_drained {
        text.push_str(&format!("Its drain{cause} began at {drain_start_time}.\n"));
    }
    if !deletion_time.is_empty() {
        let cause = if is_drained { "" } else { cause.as_str() };
        text.push_str(&format!("Its Node was deleted{cause} at {deletion_time}.\n"));
    }
    if !waits_for.is_empty() {
        text.push_str(&format!("It {}.\n", without_stop(waits_for)));
    } else if *leaves {
        text.push_str("Nothing is noted on it that it waits for.\n");
    }
    if !given_back_time.is_empty() {
        text.push_str(&format!("Its last drain took too long and was cancelled at {given_back_time}.\n"));
    }
    for condition in pool_conditions {
        let QuotedCondition { type_, status, reason, message, last_transition_time } = condition;
        let (since, message) = (last_transition_time, without_stop(message));
        text.push_str(&format!(
            "NodePool {node_pool}: {type_} is {status} since {since} ({reason}): {message}.\n"
        ));
    }
    text
}

/// Answers of the API server end with a full stop.
fn without_stop(message: &str) -> &str {
    message.trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_a_node_by_its_whole_name() {
        for (message, is_named) in [
            ("node a1 is unhealthy (Ready is Unknown)", true),
            ("2 of 3 nodes are ready; unhealthy node a1 has to wait: a budget", true),
            ("node a0 waits for pod apps/web: no; node a1, and 1 more node stay", true),
            ("node a10 is unhealthy", false),
            ("node b.a1 is unhealthy", false),
            ("the machine of a1 is not listed", false),
            ("", false),
        ] {
            assert_eq!(names_node(message, "a1"), is_named, "{message}");
        }
    }
}
