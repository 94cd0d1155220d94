//! Why a rollout takes no node now: a budget, such as one whose window is closed, or nodes that ask to be left alone.

use std::collections::BTreeMap;

use shared_crds::conditions::Reason;
use shared_crds::disruption::{Account, BudgetRefusal};

use crate::assess::outdated::OutdatedNode;

/// Why no node that is out of date may go now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutWait {
    /// Machine-readable reason.
    pub reason: Reason,
    /// The budget, or the node that asks to be left alone, in words for the user.
    pub why: String,
}

/// Why none of the staying `outdated` nodes may go now, where [`super::rollout::may_go_now`] finds none; `None` where there are none.
pub(crate) fn waits(
    outdated: &BTreeMap<String, OutdatedNode>,
    account: &Account,
    protected: &BTreeMap<String, String>,
) -> Option<RolloutWait> {
    let open = outdated.iter().find(|(name, _)| !protected.contains_key(*name));
    if let Some((_, node)) = open {
        let why = refusal(account, *node)?.to_string();
        return Some(RolloutWait { reason: Reason::WaitsForBudget, why });
    }
    let (first, _) = outdated.first_key_value()?;
    let more = match outdated.len() - 1 {
        0 => String::new(),
        1 => ", and 1 more node asks to be left alone".to_owned(),
        more => format!(", and {more} more nodes ask to be left alone"),
    };
    let why = format!("node {first} {}{more}", protected.get(first)?);
    Some(RolloutWait { reason: Reason::WaitsForProtected, why })
}

/// The budget that keeps the node now; `None` when none does.
fn refusal(account: &Account, node: OutdatedNode) -> Option<BudgetRefusal> {
    if node.is_past_hard_age { account.urgent_refusal(node.reason) } else { account.refusal(node.reason) }
}
