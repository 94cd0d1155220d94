//! The work during which the operator is killed. Each kind is a file: what is there before, and what is done then.

mod deletion;
mod drain;
mod repair;
mod rollout;
mod scale_up;

use anyhow::Result;

use super::crashable::Crashable;
use super::maker::NodeMaker;

/// Work on a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A pool that is new, and then grows.
    ScaleUp,
    /// One node of two goes when the disruption budget of its pod allows it.
    Drain,
    /// A node whose kubelet is dead is replaced, and its pod given up, which no other controller does.
    Repair,
    /// Three nodes are replaced, one after the other.
    Rollout,
    /// A pool is deleted, and goes with its nodes when the disruption budget of their pods allows it.
    Deletion,
}

impl Work {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::ScaleUp, Self::Drain, Self::Repair, Self::Rollout, Self::Deletion];

    /// What it is called, also on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScaleUp => "scale-up",
            Self::Drain => "drain",
            Self::Repair => "repair",
            Self::Rollout => "rollout",
            Self::Deletion => "deletion",
        }
    }

    /// Why this is not the operator's work with such nodes; `None` where it is.
    pub const fn left_to(self, maker: NodeMaker) -> Option<&'static str> {
        // `ProviderSpec::replaces_machines`: another template of the pool changes no machine of the set, and another one of the set
        // is rolled out by Cluster API, which drains the nodes itself.
        let is_left = matches!((self, maker), (Self::Rollout, NodeMaker::Set));
        if is_left { Some("Cluster API itself replaces the machines of another template") } else { None }
    }

    /// Makes what is there before the operator is killed.
    ///
    /// # Errors
    /// When it does not come to be.
    pub async fn prepare(self, test: &Crashable, pool: &str) -> Result<()> {
        match self {
            Self::ScaleUp => Ok(()),
            Self::Drain => drain::prepare(test, pool).await,
            Self::Repair => repair::prepare(test, pool).await,
            Self::Rollout => rollout::prepare(test, pool).await,
            Self::Deletion => deletion::prepare(test, pool).await,
        }
    }

    /// Does the work, and waits for its effects.
    ///
    /// # Errors
    /// When they do not come.
    pub async fn carry_out(self, test: &Crashable, pool: &str) -> Result<()> {
        match self {
            Self::ScaleUp => scale_up::carry_out(test, pool).await,
            Self::Drain => drain::carry_out(test, pool).await,
            Self::Repair => repair::carry_out(test, pool).await,
            Self::Rollout => rollout::carry_out(test, pool).await,
            Self::Deletion => deletion::carry_out(test, pool).await,
        }
    }
}
