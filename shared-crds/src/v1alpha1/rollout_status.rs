//! `status.rollout` and `status.replacement`: how far nodes that are out of date have been replaced, and whether they are being.

#![expect(clippy::doc_markdown, reason = "these comments are also what kubectl explain prints")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How far a rollout has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// templateHash is that of the template that nodes are replaced for.
    #[schemars(length(max = 64))]
    pub template_hash: String,
    /// outdatedNodes is the number of nodes that are out of date, those included that are being drained.
    #[schemars(range(min = 0))]
    pub outdated_nodes: i32,
    /// mayGoNodes is how many nodes that are out of date may go now, by the budgets of spec.disruption and by what asks to be left
    /// alone; those that are being drained and are not stuck are included. It is 0, too, while drains that do not get on keep the
    /// places of all others. With 0 the rollout waits, and the Autoscaler may lower the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub may_go_nodes: Option<i32>,
    /// availableNodes is the largest number of available nodes that are up to date, since the rollout began.
    #[schemars(range(min = 0))]
    pub available_nodes: i32,
    /// progressTime is when there were last fewer of the former or more of the latter, or when the rollout began.
    /// spec.rollout.progressDeadlineSeconds counts from here.
    pub progress_time: Time,
}

/// Whether nodes are being replaced because they are out of date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplacementStatus {
    /// state is Active while nodes are being replaced; Inactive while none is, also while a rollout waits, is paused or is left
    /// to users; Unknown while it is not known whether the provider replaces machines.
    pub state: ReplacementState,
    /// observedGeneration is the generation of the pool that state is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
}

/// Whether nodes are being replaced: the status of the condition RollingOut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ReplacementState {
    /// They are, by the operator or by the provider.
    Active,
    /// They are not.
    Inactive,
    /// That is not known.
    Unknown,
}
