//! Which nodes are out of date: those that were made from another template, are too old, or that a user or their provider wants
//! replaced.

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::quantity::Exact;
use shared_crds::v1alpha1::{DisruptionReason, EarlierHash, NodePoolSpec, RolloutSpec, RolloutType};
use shared_crds::{NodePool, names};

use crate::assess::membership::Member;
use crate::assess::node_states::{NodeReadiness, Outdatedness, ReplacementRequest};
use crate::input::supply::Machine;
use crate::template::earlier;

/// By what a node of the pool is found to be out of date.
#[derive(Clone, Debug)]
pub(crate) struct OutdatedCriteria<'a> {
    pool: &'a NodePool,
    pub(crate) spec: RolloutSpec,
    /// `None` where the template cannot be hashed.
    hash: Option<String>,
    /// Those of the same template by versions that hashed less of it.
    earlier_hashes: Vec<EarlierHash<'a>>,
    now: Timestamp,
}

impl<'a> OutdatedCriteria<'a> {
    /// Those of `pool` at `now`.
    pub(crate) fn of(pool: &'a NodePool, now: Timestamp) -> Self {
        let spec = pool.spec.rollout.clone().unwrap_or_default();
        let (hash, earlier_hashes) = (pool.spec.template_hash(), pool.spec.earlier_template_hashes());
        Self { pool, spec, hash, earlier_hashes, now }
    }

    /// Notes on each of the nodes whether it is out of date, and so old that it goes whatever it asks for. What their pods show may
    /// change it.
    pub(crate) fn assess(&self, members: &mut [Member]) {
        for member in members {
            let is_past_hard_age = self.hard_age_at(member).is_some_and(|at| at <= self.now);
            // A hard age is also one from which the node is out of date.
            member.outdated = match self.outdated(member) {
                Some(reason) if is_past_hard_age => Outdatedness::PastHardAge(reason),
                Some(reason) => Outdatedness::Outdated(reason),
                None => Outdatedness::Current,
            };
        }
    }

    /// Why the node is out of date: it was made from another template or before `spec.rollout.after`, its provider or a user wants it
    /// replaced, or it is too old. `None` when it is not, as every node that was not made for the pool.
    pub(crate) fn outdated(&self, member: &Member) -> Option<DisruptionReason> {
        let hash = member.template_hash.as_deref()?;
        // The machines of a number that the provider keeps are made from a template of the provider's own, which replaces them.
        if self.pool.spec.provider.replaces_machines() {
            return None;
        }
        let is_other = NodePoolSpec::knows_template_hash(hash)
            && self.hash.as_deref().is_some_and(|own| own != hash)
            && !self.is_by_earlier_version(member, hash);
        if is_other { Some(DisruptionReason::Rollout) } else { self.wish(member) }
    }

    /// Whether the node is one that a user wants replaced, and that only its provider replaces.
    pub(crate) fn is_left_to_provider(&self, member: &Member) -> bool {
        let is_of_pool = member.template_hash.is_some();
        is_of_pool && self.pool.spec.provider.replaces_machines() && self.wish(member).is_some()
    }

    /// Why the node is to be replaced whatever it was made from.
    fn wish(&self, member: &Member) -> Option<DisruptionReason> {
        let after = self.spec.after.as_ref().map(|after| after.0).filter(|after| *after <= self.now);
        let is_asked_for = member.replacement_request != ReplacementRequest::None;
        if is_asked_for || after.is_some_and(|after| member.created < after) {
            return Some(DisruptionReason::Rollout);
        }
        self.expires(member).filter(|at| *at <= self.now).map(|_| DisruptionReason::Expiry)
    }

    /// Whether a version that hashed less made the node from the present template. It gets the present hash in place.
    fn is_by_earlier_version(&self, member: &Member, hash: &str) -> bool {
        let mut of_hash = self.earlier_hashes.iter().filter(|earlier| earlier.hash == hash);
        of_hash.any(|earlier| earlier::is_of_present_template(&member.node, earlier))
    }

    /// Whether a machine that has no Node yet was made from another template, as far as its provider says so. One of which an earlier
    /// version may have made it from the present one is not: only its Node could tell.
    pub(crate) fn is_of_other_template(&self, machine: &Machine) -> bool {
        let Some(hash) = machine.template_hash.as_deref() else { return false };
        let is_other = self.hash.as_deref().is_some_and(|own| own != hash);
        let may_be_present = self.earlier_hashes.iter().any(|earlier| earlier.hash == hash);
        is_other && !may_be_present && NodePoolSpec::knows_template_hash(hash)
    }

    /// Whether this is the hash of the present template.
    pub(crate) fn is_own(&self, hash: Option<&str>) -> bool {
        hash.is_some() && self.hash.as_deref() == hash
    }

    /// The node as one that is out of date; `None` when it is not.
    pub(crate) fn outdated_node(&self, member: &Member) -> Option<OutdatedNode> {
        let reason = member.outdated.reason()?;
        let state = match member.readiness {
            NodeReadiness::Starting => OutdatedState::NeverReady,
            _ if self.is_available(member) => OutdatedState::Working,
            _ => OutdatedState::Broken,
        };
        Some(OutdatedNode { reason, state, is_past_hard_age: member.outdated.is_past_hard_age() })
    }

    /// How many nodes more than `wanted` there may be while nodes are replaced.
    pub(crate) fn surge(&self, wanted: usize) -> usize {
        self.spec.surge(wanted)
    }

    /// Whether the node is out of date and replaced because of it.
    pub(crate) fn replaces(&self, member: &Member) -> bool {
        self.spec.type_ == RolloutType::RollingUpdate && member.outdated.is_outdated()
    }

    /// When the node becomes too old; `None` when it never does.
    fn expires(&self, member: &Member) -> Option<Timestamp> {
        let ages = [self.spec.max_age_seconds, self.spec.hard_max_age_seconds];
        Self::reaches(member, ages.into_iter().flatten().min()?)
    }

    /// When the node becomes so old that nothing that asks to be left alone keeps it; `None` for one that this operator does not
    /// replace.
    fn hard_age_at(&self, member: &Member) -> Option<Timestamp> {
        let is_replaced = member.template_hash.is_some()
            && self.spec.type_ == RolloutType::RollingUpdate
            && !self.pool.spec.provider.replaces_machines();
        Self::reaches(member, self.spec.hard_max_age_seconds.filter(|_| is_replaced)?)
    }

    /// When the node has this age, in seconds. One that has not started is given up elsewhere.
    fn reaches(member: &Member, age: i32) -> Option<Timestamp> {
        let has_started = member.readiness != NodeReadiness::Starting;
        member.created.checked_add(seconds(age)).ok().filter(|_| has_started)
    }

    /// Since when the node has been available; `None` while it is not Ready, has a startup taint or lacks a device of the
    /// template. A time to come is when it will be.
    fn available_from(&self, member: &Member) -> Option<Timestamp> {
        let spec = member.node.spec.as_ref();
        let taints: Vec<&Taint> = spec.iter().flat_map(|spec| spec.taints.iter().flatten()).collect();
        let startup = &self.pool.spec.template.spec.startup_taints;
        let is_starting = startup.iter().any(|startup| {
            taints.iter().any(|taint| taint.key == startup.key && taint.effect == startup.effect.as_str())
        });
        if member.readiness != NodeReadiness::Ready || is_starting || self.lacks_devices(member) {
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

    /// Whether the node has nothing yet of an extended resource that it should have: a kubelet reports Ready before the plugins
    /// of its devices have registered. Those are the names with a domain, as Kubernetes has it; huge pages are there from the
    /// kubelet's start. A node of another template has been promised something else.
    fn lacks_devices(&self, member: &Member) -> bool {
        let template = &self.pool.spec.template.spec;
        let given = member.node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let is_of_template = self.hash.is_some() && member.template_hash == self.hash;
        let lacks = |(name, whole): (&String, &Quantity)| {
            let kept = amount(template.reserved.get(name));
            let is_promised = name.contains('/') && amount(Some(whole)) > kept;
            is_promised && amount(given.and_then(|given| given.get(name))) <= Exact::ZERO
        };
        is_of_template && template.capacity.iter().any(lacks)
    }

    /// Whether pods can be placed on the node, and have been able to for `minReadySeconds`.
    pub(crate) fn is_available(&self, member: &Member) -> bool {
        self.available_from(member).is_some_and(|from| from <= self.now)
    }

    /// When a node becomes too old or available, or those before `spec.rollout.after` out of date.
    pub(crate) fn next(&self, members: &[Member]) -> Option<Timestamp> {
        let of_nodes = members.iter().filter(|member| member.stays());
        let of_nodes = of_nodes
            .flat_map(|member| [self.expires(member), self.hard_age_at(member), self.available_from(member)]);
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

/// One that cannot be read is nothing.
fn amount(quantity: Option<&Quantity>) -> Exact {
    quantity.and_then(|quantity| Exact::parse(&quantity.0).ok()).unwrap_or_default()
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
    /// It is so old that nothing that asks to be left alone keeps it, and no window of a budget.
    pub is_past_hard_age: bool,
}

/// Whether a drain for this reason replaces a node that is out of date.
pub(crate) fn is_for_rollout(cause: Option<DisruptionReason>) -> bool {
    matches!(cause, Some(DisruptionReason::Rollout | DisruptionReason::Expiry))
}
