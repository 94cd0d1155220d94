//! `spec.rollout`: how nodes of an earlier template, and old ones, are replaced.

#![expect(clippy::doc_markdown, reason = "these comments are also what kubectl explain prints")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How nodes that are out of date are replaced. Out of date are nodes of another template, apart from its labels, annotations
/// and taints, which change in place; nodes whose provider would make them from other parameters now; and those that after,
/// maxAgeSeconds and hardMaxAgeSeconds name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "type(self.maxSurge) == int ? int(self.maxSurge) >= 0 && int(self.maxSurge) <= 100000 : string(self.maxSurge).matches('^([0-9]|[1-9][0-9]|100)%$')",
        "message": "maxSurge must be a number of nodes or a percentage from 0% to 100%",
        "fieldPath": ".maxSurge"
    },
    {
        "rule": "type(self.maxUnavailable) == int ? int(self.maxUnavailable) >= 0 && int(self.maxUnavailable) <= 100000 : string(self.maxUnavailable).matches('^([0-9]|[1-9][0-9]|100)%$')",
        "message": "maxUnavailable must be a number of nodes or a percentage from 0% to 100%",
        "fieldPath": ".maxUnavailable"
    },
    {
        "rule": "!((type(self.maxSurge) == int ? int(self.maxSurge) == 0 : string(self.maxSurge) == '0%') && (type(self.maxUnavailable) == int ? int(self.maxUnavailable) == 0 : string(self.maxUnavailable) == '0%'))",
        "message": "maxSurge and maxUnavailable must not both be 0, or no node could ever be replaced: raise one, or set type to OnDelete",
        "fieldPath": ".maxUnavailable"
    },
    {
        "rule": "!has(self.minReadySeconds) || self.minReadySeconds < self.progressDeadlineSeconds",
        "message": "progressDeadlineSeconds must be above minReadySeconds, or every rollout would be reported stuck",
        "fieldPath": ".progressDeadlineSeconds"
    },
    {
        "rule": "!has(self.maxAgeSeconds) || !has(self.minReadySeconds) || self.minReadySeconds < self.maxAgeSeconds",
        "message": "maxAgeSeconds must be above minReadySeconds, or every node would be too old before it is available",
        "fieldPath": ".maxAgeSeconds"
    },
    {
        "rule": "!has(self.hardMaxAgeSeconds) || !has(self.maxAgeSeconds) || self.hardMaxAgeSeconds >= self.maxAgeSeconds",
        "message": "hardMaxAgeSeconds must not be below maxAgeSeconds: it ends the wait for nodes that maxAgeSeconds has found too old",
        "fieldPath": ".hardMaxAgeSeconds"
    },
    {
        "rule": "!has(self.hardMaxAgeSeconds) || !has(self.minReadySeconds) || self.minReadySeconds < self.hardMaxAgeSeconds",
        "message": "hardMaxAgeSeconds must be above minReadySeconds, or every node would be too old before it is available",
        "fieldPath": ".hardMaxAgeSeconds"
    },
    {
        "rule": "!has(self.hardMaxAgeSeconds) || self.type != 'OnDelete'",
        "message": "hardMaxAgeSeconds needs type RollingUpdate: with OnDelete no node is replaced, however old it is",
        "fieldPath": ".hardMaxAgeSeconds"
    }
]))]
pub struct RolloutSpec {
    /// type is RollingUpdate to replace such nodes step by step, or OnDelete to leave them until they are removed for
    /// another reason.
    #[serde(rename = "type", default)]
    pub type_: RolloutType,
    /// maxSurge is how many nodes more than wanted there may be meanwhile: a number, or a percentage of the nodes wanted,
    /// rounded up. Where spec.maxReplicas or a quota of the provider leaves no room for any, one node at a time is removed
    /// before its successor is made.
    #[serde(default = "default_max_surge")]
    pub max_surge: IntOrString,
    /// maxUnavailable is how many of the nodes wanted may be missing or not available meanwhile: a number, or a percentage of
    /// the nodes wanted, rounded down.
    #[serde(default = "default_max_unavailable")]
    pub max_unavailable: IntOrString,
    /// minReadySeconds is how long a new node has to be Ready, without startup taints, to count as available. 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86_400))]
    pub min_ready_seconds: Option<i32>,
    /// progressDeadlineSeconds is how long a rollout may make no progress before the pool says so in its conditions RollingOut
    /// and Stalled. It is not given up.
    #[serde(default = "default_progress_deadline")]
    #[schemars(range(min = 1, max = 604_800))]
    pub progress_deadline_seconds: i32,
    /// after is a time from which on all nodes that were created before it are out of date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Time>,
    /// maxAgeSeconds is the age from which on a node is out of date; absent means no limit. A node that asks to be left alone stays,
    /// until hardMaxAgeSeconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 315_360_000))]
    pub max_age_seconds: Option<i32>,
    /// hardMaxAgeSeconds is the age from which on a node is out of date and goes although it or its pods ask to be left alone, whatever
    /// drain.protectedNodes says; absent means that nothing ends such a wish. It is the first to go, its pods are evicted like others,
    /// and their PodDisruptionBudgets hold until drain.timeoutSeconds is over with Force. maxSurge, maxUnavailable and disruption
    /// budgets bound how many nodes go at a time; windows of budgets do not hold such a node, and a budget of 0 nodes lets one go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 315_360_000))]
    pub hard_max_age_seconds: Option<i32>,
}

impl Default for RolloutSpec {
    fn default() -> Self {
        Self {
            type_: RolloutType::default(),
            max_surge: default_max_surge(),
            max_unavailable: default_max_unavailable(),
            min_ready_seconds: None,
            progress_deadline_seconds: default_progress_deadline(),
            after: None,
            max_age_seconds: None,
            hard_max_age_seconds: None,
        }
    }
}

/// When nodes that are out of date are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RolloutType {
    /// At once, a few at a time.
    #[default]
    RollingUpdate,
    /// When a user removes them.
    OnDelete,
}

/// That of a MachineDeployment of Cluster API, as are the two that follow.
fn default_max_surge() -> IntOrString {
    IntOrString::Int(1)
}

fn default_max_unavailable() -> IntOrString {
    IntOrString::Int(0)
}

/// 30 minutes: a machine may take the fifteen of `provisioningTimeoutSeconds`, and then be replaced once.
const fn default_progress_deadline() -> i32 {
    1800
}

impl RolloutSpec {
    /// How many nodes more than `wanted` there may be.
    pub fn surge(&self, wanted: usize) -> usize {
        match &self.max_surge {
            IntOrString::Int(count) => usize::try_from(*count).unwrap_or_default(),
            IntOrString::String(share) => wanted.saturating_mul(percent(share)).div_ceil(100),
        }
    }

    /// How many of `wanted` nodes may be missing.
    pub fn unavailable(&self, wanted: usize) -> usize {
        match &self.max_unavailable {
            IntOrString::Int(count) => usize::try_from(*count).unwrap_or_default(),
            IntOrString::String(share) => wanted.saturating_mul(percent(share)) / 100,
        }
    }
}

fn percent(share: &str) -> usize {
    share.trim_end_matches('%').parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_surge_is_rounded_up_and_one_of_missing_nodes_down_as_in_a_deployment() {
        let share = |text: &str| IntOrString::String(text.to_owned());
        for (text, wanted, surge, unavailable) in
            [("25%", 10, 3, 2), ("1%", 10, 1, 0), ("0%", 10, 0, 0), ("100%", 3, 3, 3), ("50%", 0, 0, 0)]
        {
            let spec = RolloutSpec {
                max_surge: share(text),
                max_unavailable: share(text),
                ..RolloutSpec::default()
            };
            assert_eq!(
                (spec.surge(wanted), spec.unavailable(wanted)),
                (surge, unavailable),
                "{text} of {wanted}"
            );
        }
        assert_eq!((RolloutSpec::default().surge(10), RolloutSpec::default().unavailable(10)), (1, 0));
    }

    #[test]
    fn an_empty_rollout_is_the_default() {
        let empty: RolloutSpec = serde_json::from_value(serde_json::json!({})).unwrap();
        assert_eq!(empty, RolloutSpec::default());
    }
}
