//! The first step of a plan: the state of each node as far as it is known without its pods, the number of nodes, and the
//! nodes whose pods have to be read before the rest can be decided.

use std::collections::BTreeSet;

use shared_crds::names;
use shared_crds::v1alpha1::DisruptionReason;

use crate::assess::absence;
use crate::assess::drain_limits::DrainLimits;
use crate::assess::health;
use crate::assess::membership::{self, Member};
use crate::assess::node_states::{NodeHealth, ProviderDuty, ReplacementRequest};
use crate::assess::on_delete;
use crate::assess::outdated::OutdatedCriteria;
use crate::assess::provider_duty;
use crate::count::disruption_account;
use crate::count::sizing::{self, Sizing};
use crate::drain;
use crate::plan::orphaning_pool;
use crate::{NodeAction, Observed, ObservedPods, PodReads};

/// Maximum number of nodes whose pods are listed in one pass before they are replaced, one request each. What happens
/// to them triggers the next pass, for the others.
const MAX_UNVERIFIED: usize = 50;

/// The result of the first step, and the input of the second.
#[derive(Clone, Debug)]
pub struct Classified {
    /// The pods that have to be read.
    pub reads: PodReads,
    /// Every node of the pool, by name. What pods show about a node is not in it yet.
    pub(crate) members: Vec<Member>,
    /// The number of nodes, if every node turns out to have started; `None` where it does not matter, because the pool
    /// is paused or gone, or keeps its nodes when it is deleted.
    pub(crate) sizing: Option<Sizing>,
}

/// Derives the state of each node, and which nodes' pods have to be read.
pub fn classify(observed: &Observed) -> Classified {
    let read = |node| Member::read(node, observed.now, observed.times.of_node(node));
    let mut members: Vec<Member> = observed.nodes.iter().map(read).collect();
    if let Some(pool) = observed.pool.as_deref() {
        let all: Vec<&Member> = members.iter().collect();
        let is_unreachable = |member: &Member| {
            health::is_unreachable(observed, pool, member) || absence::is_gone(observed, &all, member)
        };
        let repair = health::spec(pool);
        let unreachable: Vec<bool> = all.iter().map(|member| is_unreachable(member)).collect();
        for (member, unreachable) in members.iter_mut().zip(unreachable) {
            if let Some(leaving) = member.leaving.as_mut().filter(|_| unreachable) {
                leaving.lose_kubelet();
            }
            let is_unhealthy = health::is_unhealthy(&repair.conditions, &member.node);
            member.health = NodeHealth::of(is_unhealthy, member.health.is_silent());
        }
        note_outdated_machines(observed, &mut members);
        provider_duty::note(observed, &mut members);
        OutdatedCriteria::of(pool, observed.now).assess(&mut members);
    }
    members.sort_by(|a, b| a.name().cmp(b.name()));
    let deleted = || members.iter().filter(|member| orphaning_pool::is_deleted(member));
    let (sizing, reads) = match observed.pool.as_deref() {
        None => (None, of_drains(observed, deleted(), DrainLimits::default())),
        Some(pool) if pool.spec.paused || on_delete::waits(pool) => (None, PodReads::default()),
        Some(pool) if on_delete::is_orphaning(pool) => {
            (None, of_drains(observed, deleted(), DrainLimits::of(pool)))
        }
        Some(pool) => {
            let account = disruption_account::account(
                observed,
                pool,
                &members,
                sizing::wanted(observed, pool, &members),
            );
            let none = ObservedPods::default();
            let sizing = sizing::size(observed, pool, &members, &BTreeSet::new(), &account, &none);
            let leaving =
                members.iter().filter(|member| !member.stays() && !sizing.uncordon.contains(member.name()));
            let start_timeout = membership::start_timeout(pool);
            let is_ours = |it: &&Member| it.provider_duty == ProviderDuty::None;
            let unverified =
                members.iter().filter(is_ours).filter(|it| it.has_timed_out(start_timeout, observed.now));
            let reads = PodReads {
                undecided: sizing.undecided(observed, &members, &account),
                unverified: unverified.take(MAX_UNVERIFIED).map(|it| it.name().to_owned()).collect(),
                ..of_drains(observed, leaving, DrainLimits::of(pool))
            };
            (Some(sizing), reads)
        }
    };
    Classified { reads, members, sizing }
}

/// Notes on each of the nodes whether its provider would make its machine from something else now. Where that is not known, drains that
/// began for it or for the template go on.
fn note_outdated_machines(observed: &Observed, members: &mut [Member]) {
    let outdated = observed.outdated_machines();
    for member in members {
        let goes_on = observed.supply.is_unknown && member.cause.reason() == Some(DisruptionReason::Rollout);
        let machine = names::machine_of(&member.node.metadata);
        let is_outdated = machine.is_some_and(|machine| outdated.contains(machine));
        if (goes_on || is_outdated) && member.replacement_request == ReplacementRequest::None {
            member.replacement_request = ReplacementRequest::Provider;
        }
    }
}

impl Classified {
    /// The nodes that no pod keeps any more: they go now, unless a volume keeps them. Those are missing to which no volume can be
    /// attached, and all where volumes are not waited for.
    pub fn emptied(&self, observed: &Observed, pods: &ObservedPods) -> BTreeSet<String> {
        let limits = observed.pool.as_deref().map_or_else(DrainLimits::default, DrainLimits::of);
        if limits.detachment.is_zero() {
            return BTreeSet::new();
        }
        let is_emptied = |member: &&Member| {
            let mut member = (*member).clone();
            member.learn_from(pods.of(member.name()).unwrap_or_default());
            let was_ready = member.leaving.is_some_and(|leaving| leaving.was_ready);
            was_ready && drain::without_volumes(&member, pods, limits, observed.now) == NodeAction::Remove
        };
        let listed = self.members.iter().filter(|member| self.reads.draining.contains(member.name()));
        listed.filter(is_emptied).map(|member| member.name().to_owned()).collect()
    }
}

/// The reads for those of the `leaving` nodes whose drain has started. A recent list is sufficient, except for removing
/// the node.
fn of_drains<'a>(
    observed: &Observed,
    leaving: impl Iterator<Item = &'a Member>,
    limits: DrainLimits,
) -> PodReads {
    let mut reads = PodReads::default();
    for member in leaving.filter(|member| member.leaving.is_some_and(|it| it.draining_since().is_some())) {
        let is_sufficient = observed.recent.of(member.name()).is_some_and(|pods| {
            let mut member = member.clone();
            member.learn_from(pods);
            drain::without_volumes(&member, &observed.recent, limits, observed.now) != NodeAction::Remove
        });
        let of_drains = if is_sufficient { &mut reads.recent } else { &mut reads.draining };
        of_drains.insert(member.name().to_owned());
    }
    reads
}
