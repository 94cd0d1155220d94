//! `spec.repair`: which nodes are unhealthy, and how many of them may be replaced.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which nodes are replaced because they are unhealthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "type(self.maxUnhealthy) == int ? int(self.maxUnhealthy) > 0 && int(self.maxUnhealthy) <= 100000 : string(self.maxUnhealthy).matches('^([1-9][0-9]?|100)%$')",
    "message": "maxUnhealthy must be a number above 0 or a percentage from 1% to 100%; to replace no node, set conditions to []",
    "fieldPath": ".maxUnhealthy"
}]))]
pub struct RepairSpec {
    /// conditions are the states of a Node in which it is unhealthy. By default a Node whose condition Ready is False or
    /// Unknown for 600 s. An empty list replaces no node. Conditions of other agents, such as node-problem-detector's,
    /// can be named too.
    #[serde(default = "default_conditions")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type", "status"]))]
    pub conditions: Vec<RepairCondition>,
    /// maxUnhealthy is how many nodes of the pool may be unhealthy, or have lost their machines, for any of them to be
    /// replaced: a number, or a percentage of the nodes wanted, rounded up. If more are, something else is wrong than nodes,
    /// and none is replaced.
    #[serde(default = "default_max_unhealthy")]
    pub max_unhealthy: IntOrString,
}

impl Default for RepairSpec {
    fn default() -> Self {
        Self { conditions: default_conditions(), max_unhealthy: default_max_unhealthy() }
    }
}

/// A state of a Node in which it is unhealthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(self.type == 'Ready' && self.status == 'True')",
    "message": "Ready True is the state of a healthy node: name False or Unknown"
}]))]
pub struct RepairCondition {
    /// type of the Node's condition, such as Ready or one that node-problem-detector sets.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub type_: String,
    /// status of the condition.
    pub status: ConditionStatus,
    /// seconds for which the condition has to have this status without a break. nodepool-operator has to watch it for as
    /// long itself, so after a restart of the operator the time starts again.
    #[schemars(range(min = 1, max = 604_800))]
    pub seconds: i32,
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// That is not known.
    Unknown,
}

impl ConditionStatus {
    /// As in a condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// 10 minutes for either, the default of Karpenter's and Machine Controller Manager's health checks.
fn default_conditions() -> Vec<RepairCondition> {
    [ConditionStatus::False, ConditionStatus::Unknown]
        .map(|status| RepairCondition { type_: "Ready".to_owned(), status, seconds: 600 })
        .into()
}

/// Karpenter's bound.
fn default_max_unhealthy() -> IntOrString {
    IntOrString::String("20%".to_owned())
}

impl RepairSpec {
    /// How many of `wanted` nodes may be unhealthy for any of them to be replaced: at least one.
    pub fn bound(&self, wanted: usize) -> usize {
        let bound = match &self.max_unhealthy {
            IntOrString::Int(count) => usize::try_from(*count).unwrap_or_default(),
            IntOrString::String(percentage) => {
                let percent: usize = percentage.trim_end_matches('%').parse().unwrap_or_default();
                wanted.saturating_mul(percent).div_ceil(100)
            }
        };
        bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_rounded_up_and_at_least_one() {
        let bound = |max: IntOrString, wanted| {
            RepairSpec { max_unhealthy: max, ..RepairSpec::default() }.bound(wanted)
        };
        for (wanted, expected) in [(0, 1), (1, 1), (5, 1), (6, 2), (100, 20)] {
            assert_eq!(bound(IntOrString::String("20%".into()), wanted), expected, "{wanted}");
        }
        assert_eq!(bound(IntOrString::Int(3), 100), 3);
    }
}
