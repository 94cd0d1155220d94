//! Which nodes are removed when there are too many: first those the Autoscaler named, for its current count or, from
//! this very spec, for the next; then by an order that costs the least.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use shared_crds::NodePool;

use crate::Pods;
use crate::assess::membership::Member;
use crate::assess::node_states::NodeReadiness;
use crate::assess::outdated::OutdatedNode;
use crate::input::pods::blocks_removal;

/// The nodes that the Autoscaler named, while the pool's count was written by it: in its order, and only nodes with the
/// same UID. A slot's name may have been given to a new node since.
pub(crate) fn named<'a>(pool: &NodePool, staying: &[&'a Member]) -> Vec<&'a Member> {
    let Some(plan) = pool.scale_down_first() else {
        return Vec::new();
    };
    let by_name: BTreeMap<&str, &Member> = staying.iter().map(|member| (member.name(), *member)).collect();
    let named = plan.nodes.iter().filter_map(|name| by_name.get(name.as_str()).copied());
    named.filter(|member| plan.means(&member.node)).collect()
}

/// `candidates` in the order of removal: not Ready before Ready, then `outdated` ones (of these, those whose last drain took too
/// long come last, so that another one has its turn, and those past their hard age first), then `named` ones, then cordoned ones, then empty before busy (where the
/// pods are known), then newest first, then the highest slot: among nodes of the same second, that is the one that was
/// asked for last, or that was not asked for.
pub(crate) fn in_order<'a>(
    mut candidates: Vec<&'a Member>,
    pods: &BTreeMap<String, Pods>,
    outdated: &BTreeMap<String, OutdatedNode>,
    named: &BTreeSet<String>,
) -> Vec<&'a Member> {
    candidates.sort_by_key(|member| {
        let busy = pods.get(member.name()).is_none_or(|pods| pods.iter().any(|pod| blocks_removal(pod)));
        // The names of a pool's slots differ in their number only, so that the longer one is the higher one.
        let slot = (member.name().len(), member.name());
        let current = !outdated.contains_key(member.name());
        (
            member.readiness == NodeReadiness::Ready,
            current,
            member.given_back.map(|(at, _)| at).filter(|_| !current),
            !member.outdated.is_past_hard_age(),
            !named.contains(member.name()),
            !member.cordon.is_unschedulable(),
            busy,
            Reverse(member.created),
            Reverse(slot),
        )
    });
    candidates
}
