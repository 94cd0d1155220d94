//! Whether a machine that its provider does not have is gone, or the provider looks elsewhere: after `clusterctl move`, with
//! the kubeconfig of another management cluster, or with a program that sees another project.
//!
//! What follows from "gone" cannot be undone: its Node goes, and its pods and volumes are taken from it by force.

use std::collections::BTreeMap;

use shared_crds::names;

use crate::assess::health;
use crate::assess::membership::Member;
use crate::input::supply::{Completeness, NodeSource};
use crate::{Absence, Observed};

/// Whether it is credible that the machine of `member` is gone if its provider says so after the list of this pass.
pub(crate) fn absence(observed: &Observed, members: &[&Member], member: &Member) -> Absence {
    let supply = &observed.supply;
    let (Some(machine), Ok(NodeSource::Kubelet)) = (names::machine_of(&member.node.metadata), &supply.source)
    else {
        return Absence::Credible;
    };
    // No step ends the machine of a node that stays.
    if member.stays() {
        return Absence::Credible;
    }
    if let Some(why) = observed.unlisted(member) {
        return Absence::Doubtful(format!("its machines cannot be listed: {why}"));
    }
    let is_listed = |machine: &str| supply.machines.iter().any(|listed| listed.name == machine);
    if supply.completeness == Completeness::Certain || is_listed(machine) {
        return Absence::Credible;
    }
    // Kubernetes has been told that it is off: by this operator, which had believed it, or by the user.
    let is_off = member.leaving.is_some_and(|leaving| leaving.is_out_of_service());
    if is_off || was_ended_by_provider(observed, member, machine) {
        return Absence::Credible;
    }
    // The machines of nodes that are being deleted may be gone already, by the same decision.
    let is_other = |other: &&&Member| {
        other.name() != member.name() && other.leaving.is_none_or(|leaving| !leaving.deleting)
    };
    let others: Vec<&str> =
        members.iter().filter(is_other).filter_map(|other| names::machine_of(&other.node.metadata)).collect();
    if others.iter().any(|other| is_listed(other)) {
        return Absence::Credible;
    }
    let doubt = match (others.len(), supply.completeness) {
        (0, Completeness::Stated) => return Absence::Credible,
        (0, _) => "an empty list proves nothing: end the machine yourself and then remove the finalizer of the Node, or let the \
                   program say that its list is complete"
            .to_owned(),
        (others, _) => format!(
            "it lists none of the other {others} machines of the pool either: does it look at another cluster or project?"
        ),
    };
    Absence::Doubtful(match observed.absent(member) {
        Some(why) => format!("{why}; {doubt}"),
        None => doubt,
    })
}

/// Whether the provider of a node that is being deleted was seen ending its machine, and nothing is heard of it any more.
///
/// A Machine that Cluster API deletes is there until its infrastructure is gone. `clusterctl move` takes the finalizers off before it
/// deletes a Machine, so that none is seen being deleted because of it; the kubelet of one that was being deleted before reports on.
fn was_ended_by_provider(observed: &Observed, member: &Member, machine: &str) -> bool {
    let current = observed.pool.as_deref().and_then(|pool| pool.spec.provider.reference());
    member.leaving.is_some_and(|leaving| leaving.deleting)
        && member.health.is_silent()
        && member.made_by() == current.as_deref()
        && observed.supply.seen_ending.contains(machine)
}

/// Whether nothing runs on a node that is being deleted: its kubelet is silent, and this pass's list of the provider that made
/// its machine lacks it. Neither its budgets nor its kubelet are waited for then.
///
/// A kubelet that reports runs on a machine, whatever a list says. Where the operator makes the Nodes there is no such list: those
/// machines are the Nodes.
///
/// No measure of an outage holds this up (docs/adr/0024-unhealthy-nodes.md): the deletion of the Node is decided, and in an outage it is
/// the way to let those go that are known to be gone.
pub(crate) fn is_gone(observed: &Observed, members: &[&Member], member: &Member) -> bool {
    let supply = &observed.supply;
    let current = observed.pool.as_deref().and_then(|pool| pool.spec.provider.reference());
    let is_listed = |machine: &str| supply.machines.iter().any(|listed| listed.name == machine);
    member.leaving.is_some_and(|leaving| leaving.deleting)
        && member.health.is_silent()
        && health::has_machine(member)
        && member.made_by() == current.as_deref()
        && supply.source == Ok(NodeSource::Kubelet)
        && !supply.is_unknown
        && names::machine_of(&member.node.metadata).is_some_and(|machine| !is_listed(machine))
        && absence(observed, members, member) == Absence::Credible
}

impl Observed {
    /// Why the machines of the provider that made this one could not be listed; `None` when they were.
    pub(crate) fn unlisted(&self, member: &Member) -> Option<&str> {
        of_maker(&self.supply.unlisted, member)
    }

    /// Why the provider that made this one has no machines at all; `None` when it may have some.
    pub(crate) fn absent(&self, member: &Member) -> Option<&str> {
        of_maker(&self.supply.absent, member)
    }
}

/// What is said of the provider that made this one; of any, where it is not known which.
fn of_maker<'a>(said: &'a BTreeMap<String, String>, member: &Member) -> Option<&'a str> {
    let why = match member.made_by() {
        Some(provider) => said.get(provider),
        None => said.values().next(),
    };
    why.map(String::as_str)
}

#[cfg(test)]
#[path = "absence_tests.rs"]
mod tests;
