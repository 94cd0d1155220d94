//! What happens to machines apart from their number: which go because they have failed, which Nodes join the pool, and which
//! marks are taken back.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use shared_crds::{NodePool, names};

use crate::Observed;
use crate::assess::membership::Member;
use crate::input::supply::{FailedMachine, Machine};
use crate::plan::decision::JoinStep;
use crate::plan::patches;
use crate::template::NodeMetadata;

/// The machines that will never run, and those whose deletion has begun long ago and may be lost. Nothing runs on them and nothing waits
/// for them, so that they go also from a pool that is paused, frozen or gone.
pub(crate) fn failed(observed: &Observed) -> Vec<FailedMachine> {
    observed.supply.failed.clone()
}

/// The machines that their provider would remove first although neither their Node is `leaving` nor they go in this pass.
pub(crate) fn marked_for_nothing(
    observed: &Observed,
    leaving: &BTreeSet<String>,
    withdraw: &[String],
    timed_out: &[String],
) -> Vec<String> {
    let marked = observed.supply.machines.iter().filter(|machine| machine.is_marked);
    let is_needed =
        |name: &String| leaving.contains(name) || withdraw.contains(name) || timed_out.contains(name);
    marked.map(|machine| machine.name.clone()).filter(|name| !is_needed(name)).collect()
}

/// The machines of the nodes that are being deleted, by name.
pub(crate) fn leaving(members: &[Member]) -> BTreeSet<String> {
    let deleting = members.iter().filter(|member| member.leaving.is_some_and(|leaving| leaving.deleting));
    deleting.filter_map(|member| names::machine_of(&member.node.metadata).map(str::to_owned)).collect()
}

/// The steps for the Nodes that registered themselves. Also in a pool that is being deleted, and in one whose spec has
/// become invalid: a Node is drained only in a pool.
pub(crate) fn join(observed: &Observed, pool: &NodePool) -> Vec<JoinStep> {
    let Some(metadata) = NodeMetadata::of(&observed.key, pool) else { return Vec::new() };
    let step = |(machine, node): (&Machine, Option<&Arc<Node>>)| {
        let node = Arc::clone(node?);
        let patch = patches::join(&node, &machine.name, &metadata.clone().of_machine(machine));
        let template_hash = machine.template_hash.clone().unwrap_or_else(|| metadata.hash.clone());
        Some(JoinStep { node, patch, template_hash })
    };
    observed.joining().into_iter().filter_map(step).collect()
}
