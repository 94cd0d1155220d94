//! The writers of a `NodePool`, between whom its fields are divided.

use crate::names::{AUTOSCALER_OPERATOR, NODEPOOL_OPERATOR};

/// A writer of `NodePool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// A user, or a `GitOps` tool.
    User,
    /// The scaler of the pool: the Autoscaler if a `NodePoolAutoscaler` in mode `Auto` selects it; otherwise a user, an
    /// HPA or KEDA.
    Scaler,
    /// The `NodePool` operator.
    NodepoolOperator,
    /// The Autoscaler operator.
    AutoscalerOperator,
}

impl Owner {
    /// The field manager that `managedFields` shows for this owner, where it is one of ours.
    pub const fn field_manager(self) -> Option<&'static str> {
        match self {
            Self::NodepoolOperator => Some(NODEPOOL_OPERATOR),
            Self::AutoscalerOperator => Some(AUTOSCALER_OPERATOR),
            Self::User | Self::Scaler => None,
        }
    }

    /// The owner in words, for tables.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::User => "the user / GitOps",
            Self::Scaler => {
                "the Autoscaler where one in mode `Auto` selects the pool, else the user, an HPA or KEDA"
            }
            Self::NodepoolOperator => "NodePool operator",
            Self::AutoscalerOperator => "Autoscaler operator",
        }
    }
}
