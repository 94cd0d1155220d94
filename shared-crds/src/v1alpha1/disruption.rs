//! `spec.disruption`: how many nodes may be disrupted at a time, why, and when. What budgets mean together is said by
//! [`crate::disruption`].

#![expect(clippy::doc_markdown, reason = "these comments are also what kubectl explain prints")]

use std::fmt;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many nodes may be disrupted at a time, why, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionSpec {
    /// budgets bound the nodes that are disrupted at a time; all that are active hold. Without one that names a reason,
    /// disruption for that reason is not bounded here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub budgets: Vec<DisruptionBudget>,
}

/// A bound of the nodes that are disrupted at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "string(self.nodes).matches('^((100|[1-9]?[0-9])%|100000|[1-9]?[0-9]{1,4})$')",
        "message": "nodes must be a number from 0 to 100000 or a percentage from 0% to 100%",
        "fieldPath": ".nodes"
    },
    {
        "rule": "has(self.schedule) == has(self.durationSeconds)",
        "message": "schedule and durationSeconds belong together: the one says when a window begins, the other how long it lasts; set both or neither"
    },
    {
        "rule": "!has(self.timeZone) || has(self.schedule)",
        "message": "timeZone is that of schedule: set schedule too, or leave timeZone out",
        "fieldPath": ".timeZone"
    },
    {
        "rule": "self.effect != 'AllowOnly' || has(self.schedule)",
        "message": "AllowOnly allows disruption in windows: set schedule and durationSeconds, or use effect Limit for a bound at all times",
        "fieldPath": ".effect"
    },
    {
        "rule": "self.effect != 'AllowOnly' || !(string(self.nodes) in ['0', '0%'])",
        "message": "AllowOnly with 0 nodes would never allow any: raise nodes, or use effect Limit to forbid disruption in the windows",
        "fieldPath": ".nodes"
    }
]))]
pub struct DisruptionBudget {
    /// nodes is how many nodes of the pool may be disrupted at a time, for all of the budget's reasons together: a number, or
    /// a percentage, rounded up, and at least 1 if it is above 0%. 0 and 0% forbid disruption. A percentage is of the nodes
    /// that are there, or of the nodes wanted if these are more; counted as there are nodes that have been Ready and are not
    /// being removed, without those that a rollout makes beyond the nodes wanted. A node counts from when it is chosen until it
    /// is gone or is given back.
    // The bounds are for texts only: the length for the API server's estimate of what the rules cost; the pattern because the
    // rules, which see numbers as texts, cannot tell 5 from "5".
    #[schemars(extend("maxLength" = 16, "pattern" = "%$"))]
    pub nodes: IntOrString,
    /// reasons that the budget is for; all of them when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), extend("x-kubernetes-list-type" = "set"))]
    pub reasons: Vec<DisruptionReason>,
    /// effect says what the budget does. Limit: at most that many nodes are disrupted at a time, in the windows of schedule,
    /// or always without one; of several the least holds. AllowOnly: no node is disrupted for these reasons outside the
    /// windows, and at most that many at a time inside; of several, any that is open and not used up allows the next node,
    /// and every active Limit still holds.
    #[serde(default)]
    pub effect: DisruptionEffect,
    /// schedule says when the windows begin: minute, hour, day of month, month, day of week, as in cron.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 9, max = 256))]
    pub schedule: Option<String>,
    /// timeZone that schedule is read in, a name of the IANA database such as Europe/Berlin; UTC when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,
    /// durationSeconds is how long a window lasts, measured in elapsed time also where clocks are put forward or back. What
    /// has begun in a window is not called off at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_678_400))]
    pub duration_seconds: Option<i32>,
}

/// What a budget does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DisruptionEffect {
    /// At most so many nodes are disrupted at a time.
    #[default]
    Limit,
    /// Nodes are disrupted in the windows only.
    AllowOnly,
}

/// Why a node is disrupted by an operator's own decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DisruptionReason {
    /// The pool has more nodes than it should.
    ScaleDown,
    /// The node was made from an earlier template.
    Rollout,
    /// The node is unhealthy.
    Repair,
    /// The node has reached its greatest age.
    Expiry,
}

impl DisruptionReason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::ScaleDown, Self::Rollout, Self::Repair, Self::Expiry];

    /// As in a spec.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ScaleDown => "ScaleDown",
            Self::Rollout => "Rollout",
            Self::Repair => "Repair",
            Self::Expiry => "Expiry",
        }
    }
}

impl fmt::Display for DisruptionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl DisruptionBudget {
    /// Whether the budget is for that reason.
    pub fn concerns(&self, reason: DisruptionReason) -> bool {
        self.reasons.is_empty() || self.reasons.contains(&reason)
    }

    /// How many nodes of a pool may be disrupted at a time in which percentages are of `pool_size` nodes; `None` where `nodes` is
    /// neither a number nor a percentage, which the schema refuses.
    pub fn nodes_of(&self, pool_size: usize) -> Option<usize> {
        match &self.nodes {
            IntOrString::Int(count) => usize::try_from(*count).ok(),
            IntOrString::String(text) => match percent(text)? {
                0 => Some(0),
                // Also where there is none: a pool must be able to shrink to nothing.
                percent => Some(pool_size.saturating_mul(percent).div_ceil(100).max(1)),
            },
        }
    }
}

/// The number in a percentage from 0% to 100%.
fn percent(text: &str) -> Option<usize> {
    let digits = text.strip_suffix('%')?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|percent| is_number && *percent <= 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_rounded_up_and_only_0_percent_is_no_node() {
        for (nodes, wanted, expected) in [
            (IntOrString::Int(0), 10, Some(0)),
            (IntOrString::Int(3), 1, Some(3)),
            (IntOrString::Int(-1), 10, None),
            (IntOrString::String("0%".into()), 10, Some(0)),
            (IntOrString::String("1%".into()), 0, Some(1)),
            (IntOrString::String("10%".into()), 1, Some(1)),
            (IntOrString::String("10%".into()), 10, Some(1)),
            (IntOrString::String("10%".into()), 11, Some(2)),
            (IntOrString::String("100%".into()), 7, Some(7)),
            (IntOrString::String("101%".into()), 7, None),
            (IntOrString::String("+5%".into()), 7, None),
            (IntOrString::String("%".into()), 7, None),
            (IntOrString::String("5".into()), 7, None),
        ] {
            let budget = DisruptionBudget {
                nodes,
                reasons: vec![DisruptionReason::Repair],
                effect: DisruptionEffect::Limit,
                schedule: None,
                time_zone: None,
                duration_seconds: None,
            };
            assert_eq!(budget.nodes_of(wanted), expected, "{:?} of {wanted}", budget.nodes);
            assert!(budget.concerns(DisruptionReason::Repair) && !budget.concerns(DisruptionReason::Expiry));
        }
    }
}
