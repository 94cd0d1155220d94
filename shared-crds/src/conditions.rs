//! The condition types of both kinds, each with one owner, and the rules for setting one.
//!
//! Only the API conventions' rules are here. The operators' planners decide what a condition says.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::owner::Owner;

/// Declares an enum whose values appear in the API under exactly their Rust names. Each has a doc comment, and nothing else,
/// above it: what it means, for `docs/reference`.
#[macro_export]
macro_rules! api_names {
    ($(#[$meta:meta])* $vis:vis $name:ident { $($(#[doc = $doc:literal])+ $variant:ident),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis enum $name { $($(#[doc = $doc])+ $variant),+ }

        impl $name {
            /// Every value, in the order of declaration.
            $vis const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name in the API.
            $vis const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant)),+ }
            }

            /// What it means: the doc comment, each line with the space that it begins with.
            $vis const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+)),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

api_names! {
    /// Every condition type that Tandem writes.
    pub ConditionType {
        /// The object matches its spec. kstatus, Flux, Argo CD and Helm's `--wait` read this.
        Ready,
        /// Work is under way. kstatus reads `True` as "in progress".
        Reconciling,
        /// Nothing will change without an action by the user. kstatus reads `True` as "failed".
        Stalled,
        /// Every node the pool should have exists and is Ready.
        NodesReady,
        /// The node provider creates the requested nodes.
        ProvisioningHealthy,
        /// Nodes that are out of date are being replaced.
        RollingOut,
        /// Every budget of `spec.disruption` can be followed, and none contradicts another.
        BudgetsValid,
        /// `spec.replicas` is outside the bounds, and the operators act on the nearest bound instead.
        ReplicasClamped,
        /// Another writer has changed the number of machines that the provider keeps, since the operator last wrote it.
        MachinesContested,
        /// The installed definition of the kind has every field that the operator knows. Only stated while it is not so.
        CrdCurrent,
        /// The Autoscaler can act on the pool now. The meaning is that of a `HorizontalPodAutoscaler`.
        AbleToScale,
        /// The Autoscaler plans this pool: exactly one autoscaler in mode `Auto` or `Recommend` selects it.
        ScalingActive,
        /// A bound or a policy of `spec.behavior` keeps the pool from the number of nodes that is wanted.
        ScalingLimited,
        /// Another writer has changed `spec.replicas` since the Autoscaler last wrote it.
        ReplicasContested,
        /// On a `NodePoolAutoscaler`: every schedule can be parsed and is in effect as written.
        SchedulesValid,
    }
}

impl ConditionType {
    /// The only writer of this condition on a `NodePool`; `None` for a condition that a `NodePool` does not have.
    pub const fn owner_on_node_pool(self) -> Option<Owner> {
        match self {
            Self::Ready
            | Self::Reconciling
            | Self::Stalled
            | Self::NodesReady
            | Self::ProvisioningHealthy
            | Self::RollingOut
            | Self::BudgetsValid
            | Self::ReplicasClamped
            | Self::MachinesContested
            | Self::CrdCurrent => Some(Owner::NodepoolOperator),
            Self::AbleToScale | Self::ScalingActive | Self::ScalingLimited | Self::ReplicasContested => {
                Some(Owner::AutoscalerOperator)
            }
            Self::SchedulesValid => None,
        }
    }
}

api_names! {
    /// Reasons of the conditions, as the API shows them. Those of the Autoscaler are a `HorizontalPodAutoscaler`'s
    /// where one exists.
    pub Reason {
        /// As many Ready nodes as requested.
        AllNodesReady,
        /// Nodes are being created.
        Provisioning,
        /// Nodes are being drained or removed.
        Draining,
        /// Nodes that are out of date are being replaced.
        RollingOut,
        /// Nodes are out of date, and the budgets of `spec.disruption` let none of them go now.
        WaitsForBudget,
        /// Nodes are out of date, and all of them ask to be left alone.
        WaitsForProtected,
        /// Nodes are out of date, and drains that are held up keep their places: no other node may go meanwhile.
        WaitsForDrain,
        /// A rollout has made no progress for `spec.rollout.progressDeadlineSeconds`.
        ProgressDeadlineExceeded,
        /// No node is out of date.
        UpToDate,
        /// Every budget can be followed, and none contradicts another.
        BudgetsRead,
        /// A budget cannot be followed, or budgets contradict each other, so that nodes are kept.
        InvalidBudget,
        /// Nodes are out of date and stay until a user removes them, because `spec.rollout.type` is `OnDelete`.
        OnDelete,
        /// The pool is being deleted.
        Deleting,
        /// The annotation `tandem.dev/on-delete` is neither `Drain` nor `Orphan`, so the deletion of the pool waits.
        UnknownOnDelete,
        /// `spec.paused` is set.
        Paused,
        /// Nodes exist that are not Ready.
        NodesNotReady,
        /// The provider refuses for lack of quota.
        QuotaExceeded,
        /// The provider failed to create a node.
        ProvisioningFailed,
        /// The provider does not answer.
        ProviderUnreachable,
        /// The provider refuses the operator's credentials.
        ProviderUnauthorized,
        /// A node did not become Ready in `provisioningTimeoutSeconds`.
        ProvisioningTimedOut,
        /// The provider has more machines than it was asked for, so no more are made, and those without a Node stay.
        TooManyMachines,
        /// A node's machine carries another cluster, so nothing is made or removed.
        AnotherCluster,
        /// A machine has a Node that is not in this cluster, or that has another provider ID, so it is neither used nor removed.
        NodeElsewhere,
        /// The provider has created every requested node.
        Provisioned,
        /// Nothing to do.
        Settled,
        /// A drain cannot continue: evictions are refused, most often by a disruption budget.
        DrainBlocked,
        /// The API server forbids a write of the operator: by a role or an admission policy.
        WriteForbidden,
        /// The API server rejects a write of the operator as invalid.
        WriteInvalid,
        /// The object holds a value that this version of the operator cannot read.
        Unreadable,
        /// The installed definition is older than the operator, and lacks fields.
        CrdOutdated,
        /// The API server does not answer a write of the operator in time, most often because of a slow admission
        /// webhook.
        WriteTimedOut,
        /// `spec.replicas` is within the bounds.
        WithinBounds,
        /// `spec.replicas` is above `spec.maxReplicas`.
        AboveMaxReplicas,
        /// `spec.replicas` is below `spec.minReplicas`.
        BelowMinReplicas,
        /// `spec.replicas` is not set; the pool keeps its existing nodes, within its bounds.
        ReplicasUnset,
        /// Ready to act on the next decision.
        ReadyForNewScale,
        /// The last decision was written.
        SucceededRescale,
        /// The last decision could not be written.
        FailedUpdateScale,
        /// The pool is planned.
        ValidPoolFound,
        /// The autoscaler only recommends.
        RecommendOnly,
        /// The autoscaler is switched off.
        AutoscalerOff,
        /// More than one autoscaler selects the pool, so none acts on it.
        AmbiguousSelector,
        /// Pods need more nodes than `spec.maxReplicas` allows.
        TooManyReplicas,
        /// The number of nodes is the one that pods need.
        DesiredWithinRange,
        /// A policy of `spec.behavior.scaleUp` allows fewer nodes for now.
        ScaleUpLimit,
        /// A policy of `spec.behavior.scaleDown` requires more nodes for now.
        ScaleDownLimit,
        /// Fewer nodes were wanted within the stabilisation window of `spec.behavior.scaleUp`.
        ScaleUpStabilized,
        /// More nodes were wanted within the stabilisation window of `spec.behavior.scaleDown`.
        ScaleDownStabilized,
        /// The number of nodes of another writer is kept for now.
        Yielded,
        /// The number of nodes of another writer was overwritten.
        Reclaimed,
        /// No writer but the operator that reports this has changed the number recently.
        NotContested,
        /// Every schedule can be parsed and is in effect as written.
        SchedulesRead,
        /// A schedule cannot be parsed, and is ignored.
        InvalidSchedule,
        /// Active schedules set a lower bound above the upper one; the lower bound holds.
        SchedulesCross,
        /// An active schedule sets bounds beyond those of a pool's own spec, which every writer has to respect.
        BeyondPoolBounds,
        /// The object's spec cannot be acted on.
        InvalidSpec,
        /// The selector matches no pool.
        NoPoolSelected,
        /// Every selected pool is planned.
        Planning,
    }
}

/// The status as the API spells it.
pub const fn status_name(status: Option<bool>) -> &'static str {
    match status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    }
}

/// The intended content of a condition; [`set`] turns it into a `Condition` with the right transition time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Which condition.
    pub type_: ConditionType,
    /// `Some(true)` is `True`, `Some(false)` is `False`, `None` is `Unknown`.
    pub status: Option<bool>,
    /// The machine-readable reason.
    pub reason: Reason,
    /// The message for users; cut to 1,024 characters when it is written.
    pub message: String,
}

impl Statement {
    /// A statement in one line.
    pub fn new(
        type_: ConditionType,
        status: impl Into<Option<bool>>,
        reason: Reason,
        message: impl Into<String>,
    ) -> Self {
        Self { type_, status: status.into(), reason, message: message.into() }
    }

    /// The message as it is written.
    pub fn written_message(&self) -> String {
        self.message.chars().take(MAX_MESSAGE_CHARS).collect()
    }
}

/// Longest message written. The schema allows 32 KiB as `metav1.Condition` does; this keeps the object small.
const MAX_MESSAGE_CHARS: usize = 1024;

/// The condition for `statement`, given the object's current conditions: `lastTransitionTime` moves only when `status`
/// flips, so that an unchanged statement is an unchanged object and no write.
pub fn set(existing: &[Condition], statement: &Statement, generation: Option<i64>, now: &Time) -> Condition {
    let status = status_name(statement.status);
    let since = existing
        .iter()
        .find(|c| c.type_ == statement.type_.as_str() && c.status == status)
        .map_or_else(|| now.clone(), |c| c.last_transition_time.clone());
    Condition {
        type_: statement.type_.as_str().to_owned(),
        status: status.to_owned(),
        reason: statement.reason.as_str().to_owned(),
        message: statement.written_message(),
        observed_generation: generation,
        last_transition_time: since,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time(k8s_openapi::jiff::Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn transition_time_stays_while_the_status_stays() {
        let first = set(
            &[],
            &Statement::new(ConditionType::Ready, false, Reason::Provisioning, "0 of 3"),
            Some(1),
            &at(10),
        );
        let second = set(
            std::slice::from_ref(&first),
            &Statement::new(ConditionType::Ready, false, Reason::NodesNotReady, "2 of 3"),
            Some(1),
            &at(20),
        );
        assert_eq!(second.last_transition_time, at(10));
        assert_eq!(second.message, "2 of 3");
    }

    #[test]
    fn transition_time_moves_when_the_status_flips() {
        let first =
            set(&[], &Statement::new(ConditionType::Ready, None, Reason::Provisioning, ""), Some(1), &at(10));
        let second = set(
            &[first],
            &Statement::new(ConditionType::Ready, true, Reason::AllNodesReady, ""),
            Some(1),
            &at(20),
        );
        assert_eq!(second.last_transition_time, at(20));
    }

    #[test]
    fn message_is_cut_at_a_character_not_in_one() {
        let long = "ä".repeat(2000);
        let c = set(&[], &Statement::new(ConditionType::Ready, true, Reason::Settled, long), None, &at(0));
        assert_eq!(c.message.chars().count(), MAX_MESSAGE_CHARS);
    }
}
