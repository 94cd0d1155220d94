//! What is said about nodes that have failed and stay. One that has never started is told as starting, unless its provider is to
//! replace it.

use k8s_openapi::jiff::Timestamp;

use super::removals::{Removals, Waiting};
use super::verdict::{Ground, Hold};

/// Why nodes stay that are unhealthy or have lost their machines. It says nothing that changes from pass to pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairWait {
    /// The node has not been unhealthy for long enough.
    NotDue {
        /// The node's name.
        node: String,
        /// Why it is unhealthy, and for how long it has to be.
        why: String,
    },
    /// It has, and no node is replaced now.
    Held(String),
}

impl Removals {
    fn of_failed(&self) -> impl Iterator<Item = &Waiting> {
        let is_of_failed = |it: &&Waiting| {
            let is_left = it.ground == Ground::NeverReady && matches!(it.hold, Hold::Alone(_));
            is_left
                || matches!(it.ground, Ground::MachineLost | Ground::Unhealthy | Ground::UnhealthyAnswering)
        };
        self.waits.iter().filter(is_of_failed)
    }

    /// Why nodes stay that are unhealthy or have lost their machines; `None` when none does.
    pub(crate) fn repair_waits(&self) -> Option<RepairWait> {
        let held = self.of_failed().find_map(|it| match &it.hold {
            Hold::Held(why) => Some(RepairWait::Held(why.clone())),
            Hold::NotDue { .. } | Hold::Alone(_) => None,
        });
        let alone = || {
            self.of_failed().find_map(|it| match &it.hold {
                Hold::Alone(why) => Some(RepairWait::Held(why.clone())),
                Hold::NotDue { .. } | Hold::Held(_) => None,
            })
        };
        let not_due = self.of_failed().filter_map(|it| match &it.hold {
            Hold::NotDue { since, why } => Some((since, &it.node, why)),
            Hold::Held(_) | Hold::Alone(_) => None,
        });
        let first = not_due.min_by_key(|(since, node, _)| (*since, *node));
        let first = first.map(|(_, node, why)| RepairWait::NotDue { node: node.clone(), why: why.clone() });
        held.or(first).or_else(alone)
    }

    /// When to look again at nodes that have failed and stay.
    pub(crate) fn next_repair(&self) -> Option<Timestamp> {
        self.of_failed().filter_map(|it| it.until).min()
    }
}
