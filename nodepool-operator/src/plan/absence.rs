//! Whether a machine that its provider does not have is gone, or the provider looks elsewhere: after `clusterctl move`, with
//! the kubeconfig of another management cluster, or with a program that sees another project.
//!
//! What follows from "gone" cannot be undone: its Node goes, and volumes are detached from it by force.

use std::collections::BTreeSet;

use shared_crds::names;

use super::membership::Member;
use super::supply::{Completeness, NodeSource};
use super::{Absence, Observed};

/// Whether it is credible that the machine of `member` is gone if its provider says so after the list of this pass.
pub(super) fn absence(observed: &Observed, members: &[&Member], member: &Member) -> Absence {
    let supply = &observed.supply;
    let (Some(machine), Ok(NodeSource::Kubelet)) = (names::machine_of(&member.node.metadata), &supply.source)
    else {
        return Absence::Credible;
    };
    if let Some(why) = observed.unlisted(member) {
        return Absence::Doubtful(format!("its machines cannot be listed: {why}"));
    }
    let listed: BTreeSet<&str> = supply.machines.iter().map(|listed| &*listed.name).collect();
    if supply.completeness == Completeness::Certain || listed.contains(machine) {
        return Absence::Credible;
    }
    // The machines of nodes that are being deleted may be gone already, by the same decision.
    let is_other = |other: &&&Member| {
        other.name() != member.name() && other.leaving.is_none_or(|leaving| !leaving.deleting)
    };
    let others: Vec<&str> =
        members.iter().filter(is_other).filter_map(|other| names::machine_of(&other.node.metadata)).collect();
    if others.iter().any(|other| listed.contains(other)) {
        return Absence::Credible;
    }
    match (others.len(), supply.completeness) {
        (0, Completeness::Stated) => Absence::Credible,
        (0, _) => Absence::Doubtful(
            "an empty list proves nothing: end the machine yourself and then remove the finalizer of the Node, or let the \
             program say that its list is complete"
                .to_owned(),
        ),
        (others, _) => Absence::Doubtful(format!(
            "it lists none of the other {others} machines of the pool either: does it look at another cluster or project?"
        )),
    }
}

#[cfg(test)]
#[path = "absence_tests.rs"]
mod tests;
