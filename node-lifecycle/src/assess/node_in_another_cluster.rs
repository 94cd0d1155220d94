//! Machines that have no Node of their provider ID here, and may have a live one all the same: in the cluster that the
//! provider looks at, or here under another provider ID. Such a machine is neither withdrawn nor given up.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeAddress};
use k8s_openapi::jiff::SignedDuration;

use crate::Observed;
use crate::input::ready::is_ready;
use crate::input::supply::Machine;

/// How long a machine has to be without its Node here before that is reported: a provider can see a Node some seconds before
/// this operator's watch brings it.
const SAID_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// Label with the host name of a Node.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// The names and addresses by which a Node could be that of the machine, whatever its provider ID.
pub fn names_of(machine: &Machine) -> impl Iterator<Item = &str> {
    let known = machine.known_as.addresses.iter().map(String::as_str);
    known.chain(machine.known_as.node.as_deref()).chain([&*machine.name])
}

/// Whether the Node is known by one of these names or addresses.
pub fn is_known_as(node: &Node, names: &BTreeSet<&str>) -> bool {
    let metadata = &node.metadata;
    let hostname = metadata.labels.as_ref().and_then(|labels| labels.get(HOSTNAME_LABEL));
    let own = metadata.name.iter().chain(hostname).map(String::as_str);
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    own.chain(addresses.map(|NodeAddress { address, .. }| &**address)).any(|name| names.contains(name))
}

impl Observed {
    /// The Ready Node of no pool that is known by a name or an address of the machine.
    fn lookalike(&self, machine: &Machine) -> Option<&Arc<Node>> {
        let names: BTreeSet<&str> = names_of(machine).collect();
        let has_joined = |node: &Node| self.registered.iter().any(|it| it.metadata.uid == node.metadata.uid);
        self.lookalikes.iter().find(|node| is_ready(node) && !has_joined(node) && is_known_as(node, &names))
    }

    /// Whether the machine, which has no Node with its provider ID here, may have a live one.
    pub(crate) fn may_be_live(&self, machine: &Machine) -> bool {
        machine.known_as.node.is_some() || self.lookalike(machine).is_some()
    }

    /// The machines in flight that may have a live Node.
    pub(crate) fn elsewhere(&self) -> impl Iterator<Item = &Machine> {
        self.in_flight().filter(|machine| self.may_be_live(machine))
    }

    /// What to say about such machines; `None` while there is nothing to say.
    pub(crate) fn elsewhere_problem(&self) -> Option<String> {
        let is_late = |machine: &&Machine| self.machine_times.of_machine(&machine.name) >= SAID_AFTER;
        let mut late = self.elsewhere().filter(is_late);
        let first = late.next()?;
        let more = match late.count() {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let id = first.provider_id.as_deref().unwrap_or("none");
        let name = &first.name;
        Some(match (self.lookalike(first), &first.known_as.node) {
            (Some(node), _) => format!(
                "machine {name}{more} has the provider ID {id}, and Node {}, which seems to be its own, has the provider ID \
                 {}: both have to be the same (the kubelet's flag --provider-id, or the cloud provider sets that of the \
                 Node); until then the machine is neither used nor removed",
                node.metadata.name.as_deref().unwrap_or_default(),
                node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or("none"),
            ),
            (None, found) => format!(
                "machine {name}{more} with the provider ID {id} has the Node {} according to its provider, and this cluster \
                 has no such Node: Tandem belongs into the cluster of the nodes, and the pool must name machines of that \
                 cluster; until then the machine is neither used nor removed",
                found.as_deref().unwrap_or_default(),
            ),
        })
    }
}

#[cfg(test)]
#[path = "node_in_another_cluster_tests.rs"]
mod tests;
