//! How many of the nodes that are out of date may go now so that enough others are available.
//!
//! A few nodes more than wanted are made first, and as many old ones go as there are available nodes too many. Which ones,
//! `removal_order` decides, as for every removal.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::NodePool;
use shared_crds::disruption::Account;
use shared_crds::v1alpha1::{DisruptionReason, RolloutType};

use crate::Observed;
use crate::assess::drain_limits::DrainLimits;
use crate::assess::membership::Member;
use crate::assess::outdated::{OutdatedCriteria, OutdatedNode, OutdatedState, is_for_rollout};
use crate::count::rollout_bounds::{RolloutBounds, RolloutCounts};
use crate::input::observed_time::due;
use crate::input::pods::blocks_removal;
use crate::template::Blueprint;

/// How long a node may be drained before a rollout no longer waits for its place or its budget: twice the usual grace period of a
/// pod.
const STUCK_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// The same of a node without pods, whose volumes are detached and whose machine ends: clouds take a minute or two for that, and the
/// controller that detaches volumes waits up to six.
const MACHINE_STUCK_AFTER: SignedDuration = SignedDuration::from_secs(300);

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
    /// How many nodes more than wanted there should be now, if nothing asks to be left alone on nodes whose pods are not known.
    pub surge: usize,
    /// How many of these are made: for nodes whose pods are known.
    pub sure_surge: usize,
    /// How many nodes have to turn out not to ask to be left alone so that the one number is as large as the other.
    pub sure_lacks: usize,
    /// The nodes that are out of date and may ask to be left alone, by name.
    pub unknown: BTreeSet<String>,
    /// How many there may be, those included that are being drained for it.
    most_surge: usize,
    /// How many staying nodes that are out of date may go now.
    pub may_go: MayGo,
    /// Number of nodes that are being drained for it.
    pub draining: usize,
    /// Number of nodes that are being drained for it, or because they are too many.
    leaving: usize,
    /// How many of them keep no room from machines that are missing to the number wanted: see [`has_ended`].
    ended: usize,
}

/// How many machines are missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MissingMachines {
    /// To the number that there should be now.
    pub all: usize,
    /// Of these, to the number wanted: what the surge does not ask for.
    pub to_wanted: usize,
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

/// What may keep the nodes that are out of date.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusals<'a> {
    /// How many may be disrupted.
    pub account: &'a Account,
    /// Those that are known to ask to be left alone, by name, and why.
    pub protected: &'a BTreeMap<String, String>,
    /// Those of which it is known that they do not.
    pub unprotected: &'a BTreeSet<String>,
}

impl Refusals<'_> {
    /// Whether it is not known that the node asks to be left alone.
    fn is_open(self, name: &str) -> bool {
        !self.protected.contains_key(name)
    }

    /// Those of the `outdated` nodes of which it is known whether they ask to be left alone, or which go whatever they ask for. One
    /// that has never been Ready runs no pods.
    fn known(
        self,
        pool: &NodePool,
        outdated: &BTreeMap<String, OutdatedNode>,
    ) -> BTreeMap<String, OutdatedNode> {
        let is_asked = DrainLimits::of(pool).holds_protected;
        let is_known = |(name, node): &(&String, &OutdatedNode)| {
            !is_asked
                || node.is_past_hard_age
                || node.state == OutdatedState::NeverReady
                || !self.is_open(name)
                || self.unprotected.contains(*name)
        };
        outdated.iter().filter(is_known).map(|(name, node)| (name.clone(), *node)).collect()
    }

    /// In the place of how many of the `outdated` nodes others are made, while `draining` ones are being drained: their budgets are
    /// free again soon. None is made for one that asks to be left alone.
    fn let_go(self, outdated: &BTreeMap<String, OutdatedNode>, draining: usize) -> usize {
        let open = outdated.keys().filter(|name| self.is_open(name)).count();
        open.min(may_go_now(outdated, self.account, self.protected) + draining)
    }
}

impl Rollout {
    /// Decides with what the budgets and the nodes themselves refuse. Of the `staying` nodes, those called `resting` are not
    /// drained now.
    pub(crate) fn of(
        observed: &Observed,
        pool: &NodePool,
        members: &[Member],
        staying: &[&Member],
        resting: &[(&str, Timestamp)],
        Counts { wanted, others, named }: Counts,
        refusals: Refusals<'_>,
    ) -> Self {
        let criteria = OutdatedCriteria::of(pool, observed.now);
        let outdated: BTreeMap<String, OutdatedNode> = staying
            .iter()
            .filter_map(|member| Some((member.name().to_owned(), criteria.outdated_node(member)?)))
            .collect();
        let draining = members.iter().filter(|member| is_for_rollout(member.cause.reason())).count();
        // A machine that is repaired is as good as gone.
        let is_drained =
            |member: &&Member| member.cause.reason().is_some_and(|cause| cause != DisruptionReason::Repair);
        let leaving = members.iter().filter(is_drained).count();
        // An unset number is that of the nodes there are: with the surge it would grow from pass to pass, and with each node that goes
        // it would fall. It is set soon, unless that is refused or nodes cannot be read.
        let is_held = pool.metadata.deletion_timestamp.is_some()
            || pool.spec.replicas.is_none()
            || criteria.spec.type_ == RolloutType::OnDelete;
        let is_active = !is_held && (!outdated.is_empty() || draining > 0);
        if !is_active {
            return Self { outdated, draining, ..Self::default() };
        }
        let is_too_many = |member: &&Member| member.cause.reason() == Some(DisruptionReason::ScaleDown);
        let stuck = members.iter().filter(is_too_many).filter(|member| is_stuck(observed, member)).count();
        let counts = RolloutCounts { wanted, staying: staying.len(), others, draining, stuck };
        let RolloutBounds { most_surge, unavailable } =
            RolloutBounds::of(observed, pool, &criteria.spec, counts);
        let can_make = Blueprint::of(&observed.key, pool, &observed.supply.source).is_ok();
        let may_go = if observed.supply.is_unknown || !can_make {
            MayGo::default()
        } else {
            let current = staying.iter().filter(|member| !outdated.contains_key(member.name()));
            let is_resting = |name: &str| resting.iter().any(|(other, _)| *other == name);
            let least = wanted.saturating_sub(unavailable);
            may_go(&criteria, &outdated, current.copied(), is_resting, least)
        };
        // Those that were made for it stay while budgets or protection keep the others.
        let too_many = (staying.len() + others).saturating_sub(wanted + named);
        let made = too_many.min(staying.len() + others - outdated.len());
        let most = most_surge.min(outdated.len());
        let known = refusals.known(pool, &outdated);
        let (could_go, surely_go) =
            (refusals.let_go(&outdated, draining).min(most), refusals.let_go(&known, draining).min(most));
        let only_waits = may_go_now(&outdated, refusals.account, refusals.protected) == 0;
        let ended = members.iter().filter(|member| has_ended(observed, member, only_waits)).count();
        let unknown =
            outdated.keys().filter(|it| can_make && refusals.is_open(it) && !known.contains_key(*it));
        Self {
            unknown: unknown.cloned().collect(),
            surge: most.min(made.max(could_go)),
            sure_surge: most.min(made.max(surely_go)),
            sure_lacks: could_go.saturating_sub(surely_go),
            outdated,
            is_active,
            most_surge,
            may_go,
            draining,
            leaving,
            ended,
        }
    }

    /// Why the node would be replaced; `None` for one that is not out of date, or is not replaced now.
    pub(crate) fn reason(&self, node: &str) -> Option<DisruptionReason> {
        self.outdated.get(node).filter(|_| self.is_active).map(|outdated| outdated.reason)
    }

    /// The number of machines that may be requested, of `missing` ones: those that are drained still use their room. `present`
    /// are all others. What is missing to the number wanted waits for no machine that is as good as gone, as in a pool without a
    /// rollout: there are never more nodes than `wanted` and the surge, without those whose Node is deleted and whose machine has not
    /// ended. A provider that has no room for both says so, and is then asked less and less often.
    pub(crate) fn may_request(&self, missing: MissingMachines, wanted: usize, present: usize) -> usize {
        let MissingMachines { all, to_wanted } = missing;
        if !self.is_active {
            return all;
        }
        let room = |leaving: usize| (wanted + self.most_surge).saturating_sub(present + leaving);
        let growth = to_wanted.min(room(self.leaving - self.ended));
        all.min(growth.max(room(self.leaving)))
    }
}

/// Whether the machine of a node that is drained keeps no room from machines that are missing to the number wanted. One that was too
/// many does not from the deletion of its Node on. One that was out of date does until its machine should have ended, because another
/// one takes its place; then only if the rollout takes no node, so that a provider that ends no machine gets no further one for each.
fn has_ended(observed: &Observed, member: &Member, rollout_only_waits: bool) -> bool {
    let (Some(leaving), Some(deleted)) = (member.leaving, &member.node.metadata.deletion_timestamp) else {
        return false;
    };
    let hangs = || due(deleted.0, MACHINE_STUCK_AFTER, leaving.observed, observed.now) <= observed.now;
    member.cause.reason() == Some(DisruptionReason::ScaleDown)
        || (is_for_rollout(member.cause.reason()) && rollout_only_waits && hangs())
}

/// Whether the node has been drained for so long that it may stay for ever. It is not stuck while nothing keeps it but pods that
/// are ending. Whether its pods were listed a moment ago changes that only for one that pods keep.
pub(crate) fn is_stuck(observed: &Observed, member: &Member) -> bool {
    let Some(leaving) = member.leaving else { return false };
    let now = observed.now;
    let pods = observed.recent.of(member.name());
    let mut keeping = pods.unwrap_or_default().iter().filter(|pod| blocks_removal(pod)).peekable();
    // One whose pods are not known may be empty, as one that is visited seldom because it waits for load balancers.
    let may_be_empty = leaving.deleting || keeping.peek().is_none();
    let is_ending = keeping.peek().is_some() && keeping.all(|pod| pod.metadata.deletion_timestamp.is_some());
    // An empty node waits for its load balancers as it was told.
    let told =
        || observed.pool.as_deref().map_or(SignedDuration::ZERO, |pool| DrainLimits::of(pool).load_balancers);
    let after = if may_be_empty {
        MACHINE_STUCK_AFTER.checked_add(told()).unwrap_or(SignedDuration::MAX)
    } else {
        STUCK_AFTER
    };
    let is_late =
        leaving.draining_since().is_some_and(|since| due(since, after, leaving.observed, now) <= now);
    is_late && !is_ending
}

/// How many of the staying `outdated` nodes may go now: those that are not known to be `protected`, and that the budgets let go.
/// One whose pods have not been listed lately may, so that nothing changes when what was found is forgotten. One that has never
/// run pods is in no budget. How many others are available is not looked at.
pub(crate) fn may_go_now(
    outdated: &BTreeMap<String, OutdatedNode>,
    account: &Account,
    protected: &BTreeMap<String, String>,
) -> usize {
    let mut account = account.clone();
    let mut take = |node: &OutdatedNode| {
        if node.is_past_hard_age { account.take_urgent(node.reason) } else { account.take(node.reason) }
    };
    let goes = |node: &OutdatedNode| node.state == OutdatedState::NeverReady || take(node).is_ok();
    let open = outdated.iter().filter(|(name, _)| !protected.contains_key(*name)).map(|(_, node)| *node);
    open.filter(goes).count()
}

/// How many of the `outdated` nodes may go so that there are at least `least` nodes, and as many available ones, or as many
/// as there are now. One that was given back keeps its place among them while it rests: otherwise pods that nothing can evict
/// would have every node drained in turn.
pub(crate) fn may_go<'a>(
    criteria: &OutdatedCriteria<'_>,
    outdated: &BTreeMap<String, OutdatedNode>,
    current: impl Iterator<Item = &'a Member>,
    is_resting: impl Fn(&str) -> bool,
    least: usize,
) -> MayGo {
    let (available, unavailable): (Vec<&Member>, Vec<&Member>) =
        current.partition(|member| criteria.is_available(member));
    let of = |state: OutdatedState| outdated.iter().filter(move |(_, node)| node.state == state);
    let candidates = |state: OutdatedState| of(state).filter(|(name, _)| !is_resting(name)).count();
    let never_ready = of(OutdatedState::NeverReady).count();
    let staying = outdated.len() + available.len() + unavailable.len();
    let kept = least + outdated.keys().filter(|name| is_resting(name)).count();
    let room = (staying - never_ready).saturating_sub(kept);
    // If new nodes do not become available either, something else is wrong than old nodes.
    let broken = if unavailable.is_empty() { candidates(OutdatedState::Broken).min(room) } else { 0 };
    let too_many = (of(OutdatedState::Working).count() + available.len()).saturating_sub(kept);
    let working = candidates(OutdatedState::Working).min(too_many).min(room - broken);
    MayGo { never_ready: candidates(OutdatedState::NeverReady), broken, working }
}
