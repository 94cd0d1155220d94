//! What the budgets of a pool's `spec.disruption` are asked with: which of its nodes are being disrupted already, and of how many
//! nodes percentages are. The `NodePool` operator counts in the same way, and has the last word.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use shared_crds::disruption::{Account, BudgetBase};
use shared_crds::v1alpha1::{DisruptedNodes, DisruptionReason};

use crate::index::PassNodeIndex;
use crate::input::nodes;
use crate::input::observed::PassNodes;
use crate::numbers::count;
use crate::pools::Pool;
use crate::steps;

/// The voluntary work on a pool's nodes before this pass chooses any.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VoluntaryWork {
    /// Number of nodes that have been Ready and that the `NodePool` operator has not begun to remove.
    staying: usize,
    /// The nodes that are being disrupted, or named for it.
    disrupted: DisruptedNodes,
}

impl VoluntaryWork {
    /// That on the nodes of `pool`, which are among `all_nodes`. Of a pool without budgets nothing is counted.
    pub(super) fn of(pool: &Pool, all_nodes: &PassNodes) -> Self {
        if pool.object.spec.disruption_budgets().is_empty() {
            return Self::default();
        }
        steps::count(pool.staying.len() + pool.leaving.len());
        let has_been_ready = |node: &&Node| nodes::has_been_ready(node);
        let of_pool = |indexes: &[PassNodeIndex]| -> Vec<&Node> {
            indexes.iter().map(|&n| &*all_nodes[n]).filter(has_been_ready).collect()
        };
        // Those that are not marked are named by a decision before, or beyond the pool's bounds. They are there until they are
        // cordoned, and no other node may take their places in the budgets.
        let (marked, named): (Vec<&Node>, Vec<&Node>) =
            of_pool(&pool.leaving).into_iter().partition(|node| nodes::is_leaving(node));
        let reasons = marked.into_iter().filter_map(nodes::disruption_reason);
        let found = reasons.chain(named.iter().map(|_| DisruptionReason::ScaleDown));
        let found = DisruptedNodes::count(found).unwrap_or_default();
        let reported = pool.object.status.as_ref().and_then(|status| status.disruption).unwrap_or_default();
        Self { staying: of_pool(&pool.staying).len() + named.len(), disrupted: most(found, reported) }
    }

    /// The account of the pool's `spec.disruption` as the `NodePool` operator will find it when it removes one node more than the
    /// `gone` ones.
    pub(super) fn account(&self, pool: &Pool, gone: usize, now: Timestamp) -> Account {
        let spec = &pool.object.spec;
        let wanted = count(spec.effective_replicas()).saturating_sub(gone + 1);
        let surge = nodes::kept_by_rollout(&pool.object, wanted);
        let pool_size = BudgetBase { wanted, staying: self.staying, surge }.nodes();
        let reasons = steps::counted(self.disrupted.reasons());
        let account = Account::new(spec.disruption_budgets(), pool_size, reasons, now);
        account.with(DisruptionReason::ScaleDown, gone)
    }
}

/// The larger number for each reason. Nodes and the status are seen at different times: a node may be cordoned before the status
/// counts it, or be counted before its own change is seen, and is the same one in both.
fn most(found: DisruptedNodes, reported: DisruptedNodes) -> DisruptedNodes {
    let DisruptedNodes { scale_down, rollout, repair, expiry } = found;
    DisruptedNodes {
        scale_down: scale_down.max(reported.scale_down),
        rollout: rollout.max(reported.rollout),
        repair: repair.max(reported.repair),
        expiry: expiry.max(reported.expiry),
    }
}
