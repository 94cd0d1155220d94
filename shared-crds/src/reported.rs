//! Which conditions each kind has, and which reasons each status of them is reported with: the table behind
//! `docs/reference/conditions.md`.
//!
//! The operators' planners decide what a condition says. Their tests compare what they report with this table.

use crate::conditions::{ConditionType, Reason, status_name};

/// One status of a condition, with the reasons that it is reported with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedStatus {
    /// The condition.
    pub type_: ConditionType,
    /// `Some(true)` is `True`, `Some(false)` is `False`, `None` is `Unknown`.
    pub status: Option<bool>,
    /// The reasons.
    pub reasons: &'static [Reason],
}

const fn reported(type_: ConditionType, status: Option<bool>, reasons: &'static [Reason]) -> ReportedStatus {
    ReportedStatus { type_, status, reasons }
}

const TRUE: Option<bool> = Some(true);
const FALSE: Option<bool> = Some(false);

/// The conditions of a `NodePool`.
pub const NODE_POOL: &[ReportedStatus] = &[
    reported(ConditionType::Ready, TRUE, &[Reason::AllNodesReady]),
    reported(
        ConditionType::Ready,
        FALSE,
        &[
            Reason::Provisioning,
            Reason::NodesNotReady,
            Reason::RollingOut,
            Reason::WaitsForBudget,
            Reason::WaitsForProtected,
            Reason::WaitsForDrain,
            Reason::Draining,
            Reason::Deleting,
            Reason::UnknownOnDelete,
            Reason::Paused,
            Reason::QuotaExceeded,
            Reason::ProvisioningFailed,
            Reason::ProviderUnreachable,
            Reason::ProviderUnauthorized,
            Reason::ProvisioningTimedOut,
            Reason::TooManyMachines,
            Reason::AnotherCluster,
            Reason::InvalidSpec,
            Reason::Unreadable,
            Reason::WriteForbidden,
            Reason::WriteInvalid,
            Reason::WriteTimedOut,
        ],
    ),
    reported(
        ConditionType::Reconciling,
        TRUE,
        &[
            Reason::Provisioning,
            Reason::RollingOut,
            Reason::WaitsForBudget,
            Reason::WaitsForProtected,
            Reason::WaitsForDrain,
            Reason::Draining,
            Reason::DrainBlocked,
            Reason::Deleting,
        ],
    ),
    reported(
        ConditionType::Reconciling,
        FALSE,
        &[
            Reason::Settled,
            Reason::Paused,
            Reason::UnknownOnDelete,
            Reason::QuotaExceeded,
            Reason::ProgressDeadlineExceeded,
            Reason::NodeElsewhere,
            Reason::TooManyMachines,
            Reason::AnotherCluster,
            Reason::InvalidSpec,
            Reason::Unreadable,
            Reason::WriteForbidden,
            Reason::WriteInvalid,
        ],
    ),
    reported(
        ConditionType::Stalled,
        TRUE,
        &[
            Reason::UnknownOnDelete,
            Reason::QuotaExceeded,
            Reason::ProgressDeadlineExceeded,
            Reason::NodeElsewhere,
            Reason::TooManyMachines,
            Reason::AnotherCluster,
            Reason::InvalidSpec,
            Reason::Unreadable,
            Reason::WriteForbidden,
            Reason::WriteInvalid,
        ],
    ),
    reported(ConditionType::Stalled, FALSE, &[Reason::Settled]),
    reported(ConditionType::NodesReady, TRUE, &[Reason::AllNodesReady]),
    reported(
        ConditionType::NodesReady,
        FALSE,
        &[
            Reason::Provisioning,
            Reason::NodesNotReady,
            Reason::RollingOut,
            Reason::Draining,
            Reason::QuotaExceeded,
            Reason::ProvisioningFailed,
            Reason::ProviderUnreachable,
            Reason::ProviderUnauthorized,
            Reason::ProvisioningTimedOut,
            Reason::InvalidSpec,
            Reason::Unreadable,
        ],
    ),
    reported(ConditionType::ProvisioningHealthy, TRUE, &[Reason::Provisioned, Reason::Provisioning]),
    reported(
        ConditionType::ProvisioningHealthy,
        FALSE,
        &[
            Reason::QuotaExceeded,
            Reason::ProvisioningFailed,
            Reason::ProviderUnreachable,
            Reason::ProviderUnauthorized,
            Reason::ProvisioningTimedOut,
            Reason::NodeElsewhere,
            Reason::TooManyMachines,
            Reason::AnotherCluster,
            Reason::InvalidSpec,
            Reason::WriteForbidden,
            Reason::WriteInvalid,
            Reason::WriteTimedOut,
        ],
    ),
    reported(ConditionType::RollingOut, TRUE, &[Reason::RollingOut, Reason::ProgressDeadlineExceeded]),
    reported(
        ConditionType::RollingOut,
        FALSE,
        &[
            Reason::UpToDate,
            Reason::WaitsForBudget,
            Reason::WaitsForProtected,
            Reason::WaitsForDrain,
            Reason::OnDelete,
            Reason::Paused,
            Reason::Deleting,
        ],
    ),
    reported(ConditionType::RollingOut, None, &[Reason::ProviderUnreachable]),
    reported(ConditionType::BudgetsValid, TRUE, &[Reason::BudgetsRead]),
    reported(ConditionType::BudgetsValid, FALSE, &[Reason::InvalidBudget]),
    reported(ConditionType::ReplicasClamped, TRUE, &[Reason::AboveMaxReplicas, Reason::BelowMinReplicas]),
    reported(ConditionType::ReplicasClamped, FALSE, &[Reason::WithinBounds, Reason::ReplicasUnset]),
    reported(ConditionType::MachinesContested, TRUE, &[Reason::Yielded, Reason::Reclaimed]),
    reported(ConditionType::MachinesContested, FALSE, &[Reason::NotContested]),
    reported(ConditionType::CrdCurrent, FALSE, &[Reason::CrdOutdated]),
    reported(
        ConditionType::AbleToScale,
        TRUE,
        &[
            Reason::ReadyForNewScale,
            Reason::SucceededRescale,
            Reason::ScaleUpStabilized,
            Reason::ScaleDownStabilized,
        ],
    ),
    reported(
        ConditionType::AbleToScale,
        FALSE,
        &[
            Reason::FailedUpdateScale,
            Reason::AutoscalerOff,
            Reason::RecommendOnly,
            Reason::AmbiguousSelector,
            Reason::Paused,
            Reason::Deleting,
        ],
    ),
    reported(ConditionType::ScalingActive, TRUE, &[Reason::ValidPoolFound, Reason::RecommendOnly]),
    reported(
        ConditionType::ScalingActive,
        FALSE,
        &[
            Reason::AutoscalerOff,
            Reason::RecommendOnly,
            Reason::AmbiguousSelector,
            Reason::Paused,
            Reason::Deleting,
            Reason::InvalidSpec,
        ],
    ),
    reported(
        ConditionType::ScalingLimited,
        TRUE,
        &[Reason::TooManyReplicas, Reason::ScaleUpLimit, Reason::ScaleDownLimit],
    ),
    reported(ConditionType::ScalingLimited, FALSE, &[Reason::DesiredWithinRange]),
    reported(ConditionType::ReplicasContested, TRUE, &[Reason::Yielded, Reason::Reclaimed]),
    reported(ConditionType::ReplicasContested, FALSE, &[Reason::NotContested]),
];

/// The conditions of a `NodePoolAutoscaler`; the Autoscaler operator writes them all.
pub const NODE_POOL_AUTOSCALER: &[ReportedStatus] = &[
    reported(ConditionType::Ready, TRUE, &[Reason::Planning, Reason::RecommendOnly, Reason::AutoscalerOff]),
    reported(
        ConditionType::Ready,
        FALSE,
        &[
            Reason::NoPoolSelected,
            Reason::AmbiguousSelector,
            Reason::FailedUpdateScale,
            Reason::InvalidSchedule,
        ],
    ),
    reported(ConditionType::Reconciling, TRUE, &[Reason::FailedUpdateScale]),
    reported(ConditionType::Reconciling, FALSE, &[Reason::Settled]),
    reported(ConditionType::Stalled, TRUE, &[Reason::AmbiguousSelector, Reason::InvalidSchedule]),
    reported(ConditionType::Stalled, FALSE, &[Reason::Settled]),
    reported(ConditionType::SchedulesValid, TRUE, &[Reason::SchedulesRead]),
    reported(
        ConditionType::SchedulesValid,
        FALSE,
        &[Reason::InvalidSchedule, Reason::SchedulesCross, Reason::BeyondPoolBounds],
    ),
    reported(ConditionType::CrdCurrent, FALSE, &[Reason::CrdOutdated]),
];

/// Whether a table says that the condition is reported with this status and reason.
pub fn is_reported(table: &[ReportedStatus], type_: &str, status: &str, reason: &str) -> bool {
    table.iter().any(|row| {
        row.type_.as_str() == type_
            && status_name(row.status) == status
            && row.reasons.iter().any(|known| known.as_str() == reason)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_condition_and_every_reason_is_reported_somewhere() {
        let rows = || NODE_POOL.iter().chain(NODE_POOL_AUTOSCALER);
        for type_ in ConditionType::ALL {
            assert!(rows().any(|row| row.type_ == *type_), "{type_}");
        }
        for reason in Reason::ALL {
            assert!(rows().any(|row| row.reasons.contains(reason)), "{reason}");
        }
    }

    #[test]
    fn a_pool_has_exactly_the_conditions_that_have_an_owner_there() {
        for type_ in ConditionType::ALL {
            let is_listed = NODE_POOL.iter().any(|row| row.type_ == *type_);
            assert_eq!(is_listed, type_.owner_on_node_pool().is_some(), "{type_}");
        }
    }

    #[test]
    fn no_status_and_no_reason_of_one_is_listed_twice() {
        for table in [NODE_POOL, NODE_POOL_AUTOSCALER] {
            for (index, row) in table.iter().enumerate() {
                let again = |other: &ReportedStatus| (other.type_, other.status) == (row.type_, row.status);
                assert!(!table[index + 1..].iter().any(again), "{} {:?}", row.type_, row.status);
                for (place, reason) in row.reasons.iter().enumerate() {
                    assert!(!row.reasons[place + 1..].contains(reason), "{} {reason}", row.type_);
                }
            }
        }
    }

    #[test]
    fn every_condition_and_every_reason_says_what_it_means() {
        assert_eq!(
            ConditionType::NodesReady.meaning(),
            " Every node the pool should have exists and is Ready."
        );
        let meanings = ConditionType::ALL.iter().map(|type_| type_.meaning());
        for meaning in meanings.chain(Reason::ALL.iter().map(|reason| reason.meaning())) {
            assert!(meaning.starts_with(' ') && meaning.ends_with('.'), "{meaning}");
        }
    }
}
