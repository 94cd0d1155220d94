//! Which drains end because the node is wanted again: it is one of those that are missing, or it was to be repaired and has
//! recovered. Drains that take too long end in `drain::next_step`.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use shared_crds::NodePool;
use shared_crds::v1alpha1::DisruptionReason;

use crate::Observed;
use crate::assess::membership::Member;
use crate::assess::node_states::{NodeHealth, NodeReadiness, ProviderDuty};
use crate::assess::outdated::{self, OutdatedCriteria};

/// How many nodes are missing before drains are cancelled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MissingNodes {
    /// With those that there may be more for a rollout.
    pub all: usize,
    /// Up to the wanted number, where those that a rollout drains count as present.
    pub to_wanted: usize,
}

/// The names of the nodes whose drain is cancelled because so many are `missing`. None of the `replaced` ones is among them.
pub(crate) fn wanted_again(
    observed: &Observed,
    pool: &NodePool,
    members: &[Member],
    replaced: &BTreeSet<String>,
    missing: MissingNodes,
) -> BTreeSet<String> {
    let (current, outdated) = drains_to_cancel(observed, pool, members, replaced);
    let current = current.into_iter().take(missing.all);
    let mut uncordon: BTreeSet<String> = current.map(|member| member.name().to_owned()).collect();
    // One that is out of date is better than none, and no use in the place of one that is replaced.
    let short = missing.to_wanted.saturating_sub(uncordon.len());
    uncordon.extend(outdated.into_iter().take(short).map(|member| member.name().to_owned()));
    uncordon
}

/// The names of the nodes that were drained to be repaired and have recovered, without the `replaced` ones.
pub(crate) fn recovered(members: &[Member], replaced: &BTreeSet<String>) -> BTreeSet<String> {
    let is_kept = |member: &&Member| !replaced.contains(member.name()) && has_recovered(member);
    members.iter().filter(is_kept).map(|member| member.name().to_owned()).collect()
}

/// Whether the node is drained because it was unhealthy, and that is over: nothing of `spec.repair` holds for it any more, or a user
/// keeps it.
fn has_recovered(member: &Member) -> bool {
    let is_drained = member.leaving.is_some_and(|leaving| !leaving.deleting);
    is_drained
        && member.provider_duty != ProviderDuty::Drains
        && member.cause.reason() == Some(DisruptionReason::Repair)
        && (member.skips_repair
            || member.provider_duty == ProviderDuty::Repairs
            || member.health == NodeHealth::Healthy)
}

/// Nodes whose drain can be cancelled, best first: healthy ones, then those whose drain started last, because most of
/// their pods are still there. A deleted Node cannot be brought back, and one that is replaced would only be drained again.
/// Those that are out of date and were drained because they were too many come second. None of the `replaced` ones is left, and of
/// those that are repaired the drain ends when they recover.
fn drains_to_cancel<'a>(
    observed: &Observed,
    pool: &NodePool,
    members: &'a [Member],
    replaced: &BTreeSet<String>,
) -> (Vec<&'a Member>, Vec<&'a Member>) {
    let criteria = OutdatedCriteria::of(pool, observed.now);
    // What a provider has begun cannot be called off.
    let can_stay = |member: &&Member| {
        member.provider_duty != ProviderDuty::Drains
            && member.leaving.is_some_and(|leaving| !leaving.deleting)
    };
    let leaving = members.iter().filter(can_stay);
    let is_repaired = |member: &&Member| {
        member.cause.reason() == Some(DisruptionReason::Repair) || replaced.contains(member.name())
    };
    let mut nodes: Vec<&Member> = leaving.filter(|member| !is_repaired(member)).collect();
    nodes.sort_by_key(|member| {
        let started = member.leaving.and_then(|leaving| leaving.drain_started);
        let is_healthy = member.readiness == NodeReadiness::Ready && !member.health.is_unhealthy();
        (!is_healthy, Reverse(started), member.name())
    });
    let (outdated, current): (Vec<&Member>, Vec<&Member>) =
        nodes.into_iter().partition(|member| criteria.replaces(member));
    (
        current,
        outdated.into_iter().filter(|member| !outdated::is_for_rollout(member.cause.reason())).collect(),
    )
}
