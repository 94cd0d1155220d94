//! How many nodes a changed template reaches in a pass. Labels and taints decide where pods go, so what is wrong with a change shows
//! at the first nodes, and the change can be taken back before the last ones have it.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::{NodeAction, NodeStep};

/// How many nodes are updated in place in a pass. That many patches take about a second at the API server, so that drains and repairs
/// of the same pool, which come after them or in the next pass, do not wait behind those of thousands of nodes.
const MOST_UPDATES: usize = 50;
/// When the next ones follow.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// The `steps` with as many updates as a pass may have; the other nodes stay as they are until a later one.
pub(crate) fn paced(steps: Vec<NodeStep>) -> Vec<NodeStep> {
    let mut left = MOST_UPDATES;
    let in_turn = |step: NodeStep| {
        let is_update = matches!(step.action, NodeAction::Update(_));
        if is_update && left == 0 {
            return NodeStep { action: NodeAction::Keep, ..step };
        }
        left -= usize::from(is_update);
        step
    };
    steps.into_iter().map(in_turn).collect()
}

/// When the pool is visited again although no event may say so: more nodes may be due after as many updates as a pass may have.
pub(crate) fn next(steps: &[NodeStep], now: Timestamp) -> Option<Timestamp> {
    let updates = steps.iter().filter(|step| matches!(step.action, NodeAction::Update(_))).count();
    (updates == MOST_UPDATES).then(|| now.checked_add(PAUSE).unwrap_or(Timestamp::MAX))
}
