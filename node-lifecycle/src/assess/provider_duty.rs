//! What the provider of each node does with its machine by itself: repairs it, or is ending it and drains the node.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use shared_crds::names;

use crate::Observed;
use crate::assess::membership::Member;
use crate::assess::node_states::ProviderDuty;
use crate::input::supply::ProviderDuties;

/// Notes on each of the nodes what its provider does with its machine by itself. While that cannot list its machines, a node that was
/// left to it stays so: it may be draining it still. Which nodes it repairs does not matter then, because no machine may be removed. What
/// a former provider does with its machines is not known while it answers, so that their nodes are drained and repaired here.
pub(crate) fn note(observed: &Observed, members: &mut [Member]) {
    let ProviderDuties { drains, repairs, awaits: _ } = &observed.supply.duties;
    for member in members {
        let machine = names::machine_of(&member.node.metadata);
        let is_in = |of: &BTreeSet<String>| machine.is_some_and(|machine| of.contains(machine));
        let is_unlisted = observed.unlisted(member).is_some();
        let is_drained = is_in(drains) || (is_unlisted && was_left_to_provider(&member.node));
        if is_in(repairs) {
            member.provider_duty = ProviderDuty::Repairs;
        }
        if is_drained {
            member.leave_to_provider();
        }
    }
}

/// Whether the Node says that it was left to its provider, which is all that is known of it while its provider does not answer.
pub(crate) fn was_left_to_provider(node: &Node) -> bool {
    names::asks_for(names::DRAINED_BY_PROVIDER_ANNOTATION, &node.metadata)
}
