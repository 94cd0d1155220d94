//! Which nodes are out of date, and how many of them may go now so that enough others are available.
//!
//! Nodes are out of date that were made from another template or are too old. A few nodes more than wanted are made first,
//! and as many old ones go as there are available nodes too many. Which ones, `victims` decides, as for every removal.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::NodePool;
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::{RolloutSpec, RolloutType};

use super::Observed;
use super::decision::Cause;
use super::membership::{Member, Readiness};

/// Why a node is out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outdated {
    /// It was made from another template, or before `spec.rollout.after`.
    Template,
    /// It is older than `spec.rollout.maxAgeSeconds`.
    Age,
}

impl Outdated {
    /// The reason of a drain because of it.
    pub(crate) const fn cause(self) -> Cause {
        match self {
            Self::Template => Cause::Rollout,
            Self::Age => Cause::Expiry,
        }
    }
}

/// By what a node of the pool is found to be out of date.
#[derive(Clone, Debug)]
pub(crate) struct Standard<'a> {
    pool: &'a NodePool,
    spec: RolloutSpec,
    /// `None` where the template cannot be hashed.
    hash: Option<String>,
    now: Timestamp,
}

impl<'a> Standard<'a> {
    /// That of `pool` at `now`.
    pub(crate) fn of(pool: &'a NodePool, now: Timestamp) -> Self {
        let spec = pool.spec.rollout.clone().unwrap_or_default();
        Self { pool, spec, hash: pool.spec.template_hash(), now }
    }

    /// Why the node is out of date; `None` when it is not, as every node that somebody else made.
    pub(crate) fn outdated(&self, member: &Member) -> Option<Outdated> {
        let hash = member.template_hash.as_deref()?;
        // The machines of a number that the provider keeps are made from a template of the provider's own, which replaces them.
        if self.pool.spec.provider.replaces_machines() {
            return None;
        }
        let is_other = self.hash.as_deref().is_some_and(|own| own != hash)
            && !self.pool.spec.is_hash_of_version_0_1(hash);
        let after = self.spec.after.as_ref().map(|after| after.0).filter(|after| *after <= self.now);
        if is_other || after.is_some_and(|after| member.created < after) {
            return Some(Outdated::Template);
        }
        self.expires(member).filter(|at| *at <= self.now).map(|_| Outdated::Age)
    }

    /// How many nodes more than `wanted` there may be while nodes are replaced.
    pub(crate) fn surge(&self, wanted: usize) -> usize {
        self.spec.surge(wanted)
    }

    /// Whether the node is out of date and replaced because of it.
    pub(crate) fn replaces(&self, member: &Member) -> bool {
        self.spec.type_ == RolloutType::RollingUpdate && self.outdated(member).is_some()
    }

    /// When the node becomes too old; `None` when it never does.
    fn expires(&self, member: &Member) -> Option<Timestamp> {
        member.created.checked_add(seconds(self.spec.max_age_seconds?)).ok()
    }

    /// Since when the node has been available; `None` while it is not Ready or has a startup taint. A time to come is when it
    /// will be.
    fn available_from(&self, member: &Member) -> Option<Timestamp> {
        let spec = member.node.spec.as_ref();
        let taints: Vec<&Taint> = spec.iter().flat_map(|spec| spec.taints.iter().flatten()).collect();
        let startup = &self.pool.spec.template.spec.startup_taints;
        let is_starting = startup.iter().any(|startup| {
            taints.iter().any(|taint| taint.key == startup.key && taint.effect == startup.effect.as_str())
        });
        let status = member.node.status.as_ref();
        let ready =
            status.and_then(|status| status.conditions.iter().flatten().find(|it| it.type_ == "Ready"));
        let since =
            ready.and_then(|ready| ready.last_transition_time.as_ref()).map_or(Timestamp::MIN, |at| at.0);
        let rest = seconds(self.spec.min_ready_seconds.unwrap_or_default());
        (member.readiness == Readiness::Ready && !is_starting)
            .then(|| since.checked_add(rest).unwrap_or(Timestamp::MAX))
    }

    /// Whether pods can be placed on the node, and have been able to for `minReadySeconds`.
    pub(crate) fn is_available(&self, member: &Member) -> bool {
        self.available_from(member).is_some_and(|from| from <= self.now)
    }

    /// When a node becomes too old or available, or those before `spec.rollout.after` out of date.
    pub(crate) fn next(&self, members: &[Member]) -> Option<Timestamp> {
        let of_nodes = members.iter().filter(|member| member.stays());
        let of_nodes = of_nodes.flat_map(|member| [self.expires(member), self.available_from(member)]);
        let after = self.spec.after.as_ref().map(|after| after.0);
        of_nodes.chain([after]).flatten().filter(|at| *at > self.now).min()
    }
}

/// When a rollout that makes no progress is said to be stuck; `None` when there is none.
pub(crate) fn deadline(pool: &NodePool) -> Option<Timestamp> {
    let progress = pool.status.as_ref()?.rollout.as_ref()?.progress_time.0;
    let spec = pool.spec.rollout.clone().unwrap_or_default();
    progress.checked_add(seconds(spec.progress_deadline_seconds)).ok()
}

fn seconds(seconds: i32) -> SignedDuration {
    SignedDuration::from_secs(i64::from(seconds))
}

/// How far nodes that are out of date may be replaced now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rollout {
    /// The staying nodes that are out of date, by name. They are the first to go also where no rollout replaces them.
    pub outdated: BTreeSet<String>,
    /// Such nodes are being replaced, or the last of them is being drained.
    pub is_active: bool,
    /// How many nodes more than wanted there should be now.
    pub surge: usize,
    /// How many there may be, those included that are being drained for it.
    pub most_surge: usize,
    /// How many staying nodes that are out of date may go now.
    pub may_go: usize,
    /// Number of nodes that are being drained for it.
    pub draining: usize,
}

impl Rollout {
    /// Decides for `wanted` nodes, of which `others` are machines without a Node.
    pub(crate) fn of(
        observed: &Observed,
        pool: &NodePool,
        members: &[Member],
        staying: &[&Member],
        (wanted, others): (usize, usize),
    ) -> Self {
        let standard = Standard::of(pool, observed.now);
        let (outdated, current): (Vec<&Member>, Vec<&Member>) =
            staying.iter().copied().partition(|member| standard.outdated(member).is_some());
        let names = outdated.iter().map(|member| member.name().to_owned()).collect();
        let draining = members.iter().filter(|member| is_drained_for_it(member)).count();
        let is_held =
            pool.metadata.deletion_timestamp.is_some() || standard.spec.type_ == RolloutType::OnDelete;
        let is_active = !is_held && (!outdated.is_empty() || draining > 0);
        if !is_active {
            return Self { outdated: names, draining, ..Self::default() };
        }
        let room = usize::try_from(pool.spec.max_replicas).unwrap_or_default().saturating_sub(wanted);
        let most_surge = standard.spec.surge(wanted).min(room);
        let failure = observed.supply.failure.as_ref().map(|failure| failure.reason);
        let is_full = failure == Some(Reason::QuotaExceeded) && staying.len() + others + draining <= wanted;
        let unavailable = match standard.spec.unavailable(wanted).min(wanted) {
            // Nothing is taken away while nothing can be made in its place, unless only its going makes room.
            _ if failure.is_some_and(|reason| reason != Reason::QuotaExceeded) => 0,
            0 if most_surge == 0 || is_full => 1,
            unavailable => unavailable,
        };
        let may_go = if observed.supply.is_unknown {
            0
        } else {
            may_go(&standard, &outdated, &current, wanted.saturating_sub(unavailable))
        };
        let surge = most_surge.min(outdated.len());
        Self { outdated: names, is_active, surge, most_surge, may_go, draining }
    }

    /// The number of machines that may be requested, of `missing` ones: those that are drained for a rollout still use their
    /// room. `present` are all others.
    pub(crate) fn may_request(&self, missing: usize, wanted: usize, present: usize) -> usize {
        if self.is_active {
            missing.min((wanted + self.most_surge).saturating_sub(present + self.draining))
        } else {
            missing
        }
    }
}

/// Whether the operator drains the node because it was out of date, and its Node is still there.
fn is_drained_for_it(member: &Member) -> bool {
    !member.stays() && matches!(member.cause, Some(Cause::Rollout | Cause::Expiry))
}

/// How many of the `outdated` nodes may go so that there are at least `least` nodes, and as many available ones, or as many
/// as there are now.
fn may_go(standard: &Standard<'_>, outdated: &[&Member], current: &[&Member], least: usize) -> usize {
    let staying = outdated.len() + current.len();
    let available = |of: &[&Member]| of.iter().filter(|member| standard.is_available(member)).count();
    let (old, new) = (available(outdated), available(current));
    // They never had pods.
    let never_ready = outdated.iter().filter(|member| member.readiness == Readiness::Starting).count();
    let broken = outdated.len() - old - never_ready;
    // If new nodes do not become available either, something else is wrong than old nodes.
    let room = (staying - never_ready).saturating_sub(least);
    let broken = if new == current.len() { broken.min(room) } else { 0 };
    let working = old.min((old + new).saturating_sub(least)).min(room - broken);
    never_ready + broken + working
}

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;
