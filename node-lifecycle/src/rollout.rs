//! Which nodes are out of date, and how many of them may go now so that enough others are available.
//!
//! Nodes are out of date that were made from another template or are too old. A few nodes more than wanted are made first,
//! and as many old ones go as there are available nodes too many. Which ones, `victims` decides, as for every removal.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::conditions::Reason;
use shared_crds::disruption::Account;
use shared_crds::v1alpha1::{DisruptionReason, NodePoolSpec, RolloutSpec, RolloutType};
use shared_crds::{NodePool, names};

use super::Observed;
use super::membership::{Member, NodeReadiness};
use super::template::Blueprint;

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

    /// Why the node is out of date: it was made from another template or before `spec.rollout.after`, or it is too old. `None`
    /// when it is not, as every node that somebody else made.
    pub(crate) fn outdated(&self, member: &Member) -> Option<DisruptionReason> {
        let hash = member.template_hash.as_deref()?;
        // The machines of a number that the provider keeps are made from a template of the provider's own, which replaces them.
        if self.pool.spec.provider.replaces_machines() {
            return None;
        }
        let is_other =
            NodePoolSpec::knows_template_hash(hash) && self.hash.as_deref().is_some_and(|own| own != hash);
        let after = self.spec.after.as_ref().map(|after| after.0).filter(|after| *after <= self.now);
        if is_other || after.is_some_and(|after| member.created < after) {
            return Some(DisruptionReason::Rollout);
        }
        self.expires(member).filter(|at| *at <= self.now).map(|_| DisruptionReason::Expiry)
    }

    /// The node as one that is out of date; `None` when it is not.
    pub(crate) fn outdated_node(&self, member: &Member) -> Option<OutdatedNode> {
        let reason = self.outdated(member)?;
        let state = match member.readiness {
            NodeReadiness::Starting => OutdatedState::NeverReady,
            _ if self.is_available(member) => OutdatedState::Working,
            _ => OutdatedState::Broken,
        };
        Some(OutdatedNode { reason, state })
    }

    /// How many nodes more than `wanted` there may be while nodes are replaced.
    pub(crate) fn surge(&self, wanted: usize) -> usize {
        self.spec.surge(wanted)
    }

    /// Whether the node is out of date and replaced because of it.
    pub(crate) fn replaces(&self, member: &Member) -> bool {
        self.spec.type_ == RolloutType::RollingUpdate && self.outdated(member).is_some()
    }

    /// When the node becomes too old; `None` when it never does. One that has not started is given up elsewhere.
    fn expires(&self, member: &Member) -> Option<Timestamp> {
        let age = seconds(self.spec.max_age_seconds.filter(|_| member.readiness != NodeReadiness::Starting)?);
        member.created.checked_add(age).ok()
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
        if member.readiness != NodeReadiness::Ready || is_starting {
            return None;
        }
        let Some(rest) = self.spec.min_ready_seconds.filter(|rest| *rest > 0) else {
            return Some(Timestamp::MIN);
        };
        let status = member.node.status.as_ref();
        let ready =
            status.and_then(|status| status.conditions.iter().flatten().find(|it| it.type_ == "Ready"));
        let since = ready.and_then(|ready| ready.last_transition_time.as_ref()).map(|at| at.0);
        // A time to come is from a node whose clock is ahead: since when this operator has known it to be Ready counts then.
        let since = since.filter(|since| *since <= self.now).or_else(|| ready_time(member));
        Some(since.unwrap_or(Timestamp::MIN).checked_add(seconds(rest)).unwrap_or(Timestamp::MAX))
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

/// When the operator first saw the node Ready, as its annotation says.
fn ready_time(member: &Member) -> Option<Timestamp> {
    member.node.metadata.annotations.as_ref()?.get(names::READY_TIME_ANNOTATION)?.parse().ok()
}

fn seconds(seconds: i32) -> SignedDuration {
    SignedDuration::from_secs(i64::from(seconds))
}

/// The state of a staying node that is out of date, as far as it matters for who goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutdatedState {
    /// It has never been Ready, so it has never run pods.
    NeverReady,
    /// It was available and is not now, or not yet again.
    Broken,
    /// It is available.
    Working,
}

/// A staying node that is out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutdatedNode {
    /// Why it is.
    pub reason: DisruptionReason,
    /// Its state.
    pub state: OutdatedState,
}

/// How many nodes that are out of date may go, by state: the place of a broken one is none for a working one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MayGo {
    never_ready: usize,
    broken: usize,
    working: usize,
}

impl MayGo {
    /// All of them together.
    pub(crate) const fn count(self) -> usize {
        self.never_ready + self.broken + self.working
    }

    const fn of(&mut self, state: OutdatedState) -> &mut usize {
        match state {
            OutdatedState::NeverReady => &mut self.never_ready,
            OutdatedState::Broken => &mut self.broken,
            OutdatedState::Working => &mut self.working,
        }
    }

    /// Whether a node of this state may go.
    pub(crate) const fn has(mut self, state: OutdatedState) -> bool {
        *self.of(state) > 0
    }

    /// Notes that one goes. One that is not out of date, `None`, leaves fewer of the others that can be missed.
    pub(crate) const fn take(&mut self, state: Option<OutdatedState>) {
        if let Some(state) = state {
            let left = self.of(state);
            *left = left.saturating_sub(1);
        } else {
            self.working = self.working.saturating_sub(1);
            self.broken = self.broken.saturating_sub(1);
        }
    }
}

/// How far nodes that are out of date may be replaced now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rollout {
    /// The staying nodes that are out of date, by name. They are the first to go also where no rollout replaces them.
    pub outdated: BTreeMap<String, OutdatedNode>,
    /// Such nodes are being replaced, or the last of them is being drained.
    pub is_active: bool,
    /// How many nodes more than wanted there should be now.
    pub surge: usize,
    /// How many there may be, those included that are being drained for it.
    most_surge: usize,
    /// How many staying nodes that are out of date may go now.
    pub may_go: MayGo,
    /// Number of nodes that are being drained for it.
    pub draining: usize,
    /// Number of nodes that are being drained for it, or because they are too many.
    leaving: usize,
    /// Which budget of `spec.disruption` lets no node go for it while none is being drained; `None` where none does.
    pub waits: Option<String>,
}

/// How many nodes there are for a rollout to decide about, and should be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Number of nodes wanted.
    pub wanted: usize,
    /// Number of machines without a Node.
    pub others: usize,
    /// How many of the nodes that are too many the Autoscaler has named.
    pub named: usize,
}

impl Rollout {
    /// Decides with what is left in the `account`. The nodes called `resting` are not drained now.
    pub(crate) fn of(
        observed: &Observed,
        pool: &NodePool,
        members: &[Member],
        (staying, resting): (&[&Member], &[(&str, Timestamp)]),
        Counts { wanted, others, named }: Counts,
        account: &Account,
    ) -> Self {
        let standard = Standard::of(pool, observed.now);
        let outdated: BTreeMap<String, OutdatedNode> = staying
            .iter()
            .filter_map(|member| Some((member.name().to_owned(), standard.outdated_node(member)?)))
            .collect();
        let draining = members.iter().filter(|member| is_for_rollout(member.cause)).count();
        // A machine that is repaired is as good as gone.
        let is_drained =
            |member: &&Member| member.cause.is_some_and(|cause| cause != DisruptionReason::Repair);
        let leaving = members.iter().filter(is_drained).count();
        let is_held =
            pool.metadata.deletion_timestamp.is_some() || standard.spec.type_ == RolloutType::OnDelete;
        let is_active = !is_held && (!outdated.is_empty() || draining > 0);
        if !is_active {
            return Self { outdated, draining, ..Self::default() };
        }
        let failure = observed.supply.failure.as_ref();
        let has_no_quota = failure.is_some_and(|failure| failure.reason == Reason::QuotaExceeded);
        let backs_off = failure.is_some_and(|failure| failure.retry_at > observed.now);
        let is_full =
            has_no_quota && (backs_off || draining > 0) && staying.len() + others + draining <= wanted;
        let room = usize::try_from(pool.spec.max_replicas).unwrap_or_default().saturating_sub(wanted);
        let most_surge = if is_full || wanted == 0 { 0 } else { standard.spec.surge(wanted).min(room) };
        let unavailable = match standard.spec.unavailable(wanted).min(wanted) {
            // Nothing is taken away while nothing can be made in its place, unless only its going makes room.
            _ if backs_off && !has_no_quota => 0,
            0 if most_surge == 0 => 1,
            unavailable => unavailable,
        };
        let can_make = Blueprint::of(&observed.key, pool, &observed.supply.source).is_ok();
        let may_go = if observed.supply.is_unknown || !can_make {
            MayGo::default()
        } else {
            let current = staying.iter().filter(|member| !outdated.contains_key(member.name()));
            let is_resting = |name: &str| resting.iter().any(|(other, _)| *other == name);
            let least = wanted.saturating_sub(unavailable);
            may_go(&standard, &outdated, current.copied(), is_resting, least)
        };
        let allowed = allowed(outdated.values().copied(), account);
        // Those that were made for it stay while a budget keeps the others.
        let too_many = (staying.len() + others).saturating_sub(wanted + named);
        let made = too_many.min(staying.len() + others - outdated.len());
        let surge = most_surge.min(outdated.len()).min(made.max(allowed + draining));
        let rollout = Self { outdated, is_active, surge, most_surge, may_go, draining, leaving, waits: None };
        let waits = waits(rollout.outdated.values().copied(), draining, account);
        Self { waits, ..rollout }
    }

    /// Why the node would be replaced; `None` for one that is not out of date, or is not replaced now.
    pub(crate) fn reason(&self, node: &str) -> Option<DisruptionReason> {
        self.outdated.get(node).filter(|_| self.is_active).map(|outdated| outdated.reason)
    }

    /// The number of machines that may be requested, of `missing` ones: those that are drained still use their room. `present`
    /// are all others.
    pub(crate) fn may_request(&self, missing: usize, wanted: usize, present: usize) -> usize {
        if self.is_active {
            missing.min((wanted + self.most_surge).saturating_sub(present + self.leaving))
        } else {
            missing
        }
    }
}

/// Whether a drain for this reason replaces a node that is out of date.
pub(crate) fn is_for_rollout(cause: Option<DisruptionReason>) -> bool {
    matches!(cause, Some(DisruptionReason::Rollout | DisruptionReason::Expiry))
}

/// Which budget lets none of the staying `outdated` nodes go, while none is being drained for the same rollout; `None` where
/// none does.
pub(crate) fn waits(
    mut outdated: impl Iterator<Item = OutdatedNode> + Clone,
    draining: usize,
    account: &Account,
) -> Option<String> {
    let is_held = draining == 0 && allowed(outdated.clone(), account) == 0;
    let first = outdated.next().filter(|_| is_held)?;
    Some(account.refusal(first.reason)?.to_string())
}

/// How many of the `outdated` nodes the budgets let go. One that has never run pods is not asked about.
fn allowed(outdated: impl Iterator<Item = OutdatedNode>, account: &Account) -> usize {
    let mut account = account.clone();
    let goes =
        |node: &OutdatedNode| node.state == OutdatedState::NeverReady || account.take(node.reason).is_ok();
    outdated.filter(goes).count()
}

/// How many of the `outdated` nodes may go so that there are at least `least` nodes, and as many available ones, or as many
/// as there are now.
fn may_go<'a>(
    standard: &Standard<'_>,
    outdated: &BTreeMap<String, OutdatedNode>,
    current: impl Iterator<Item = &'a Member>,
    is_resting: impl Fn(&str) -> bool,
    least: usize,
) -> MayGo {
    let (available, unavailable): (Vec<&Member>, Vec<&Member>) =
        current.partition(|member| standard.is_available(member));
    let of = |state: OutdatedState| outdated.iter().filter(move |(_, node)| node.state == state);
    let candidates = |state: OutdatedState| of(state).filter(|(name, _)| !is_resting(name)).count();
    let never_ready = of(OutdatedState::NeverReady).count();
    let staying = outdated.len() + available.len() + unavailable.len();
    let room = (staying - never_ready).saturating_sub(least);
    // If new nodes do not become available either, something else is wrong than old nodes.
    let broken = if unavailable.is_empty() { candidates(OutdatedState::Broken).min(room) } else { 0 };
    let too_many = (of(OutdatedState::Working).count() + available.len()).saturating_sub(least);
    let working = candidates(OutdatedState::Working).min(too_many).min(room - broken);
    MayGo { never_ready: candidates(OutdatedState::NeverReady), broken, working }
}

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;
