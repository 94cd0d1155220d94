//! The counts of what a pass found and did.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::Timestamp;
use shared_crds::NodePool;
use shared_crds::conditions::Statement;
use shared_crds::disruption::Account;
use shared_crds::v1alpha1::{DisruptedNodes, DisruptionReason, ProvisioningStatus};

use crate::after::outcome::{Applied, AppliedAction};
pub use crate::after::rollout::RolloutFacts;
use crate::assess::contested::MachinesWriter;
use crate::assess::membership::{Leaving, Member};
use crate::assess::node_states::NodeReadiness;
use crate::assess::outdated::OutdatedCriteria;
use crate::count::disruption_account;
use crate::count::rollout_waits::RolloutNodes;
use crate::count::sizing;
use crate::input::observed_time::NodeTime;
use crate::input::supply::ProvisioningFailure;
use crate::{NodeAction, NodeStep, Observed, Plan, RepairWait, Stall};

/// What a pass found and did, as far as the status reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Number of nodes wanted; 0 while the pool is being deleted.
    pub wanted: usize,
    /// Number of nodes that are not leaving.
    pub staying: usize,
    /// Number of staying nodes that are Ready.
    pub ready: usize,
    /// Number of staying nodes that were made from the current template.
    pub up_to_date: usize,
    /// Number of staying nodes that are not Ready yet.
    pub starting: usize,
    /// Number of staying nodes that were Ready and are not now.
    pub not_ready: usize,
    /// Number of leaving nodes.
    pub leaving: usize,
    /// Number of those that wait for a place among the nodes that are drained.
    pub waiting: usize,
    /// Number of requests without a Node.
    pub in_flight: usize,
    /// Number of machines without a Node that were withdrawn and are not gone: their provider may list them for a while as it did.
    pub ending: usize,
    /// Number of leaving nodes that come back beside the machines that were made in their place, should they recover.
    pub may_recover: usize,
    /// Whether the provider's machines could not be listed.
    pub is_unknown: bool,
    /// Names of nodes that cannot be read. They are in no other count.
    pub unreadable: Vec<String>,
    /// Whether the pool is being deleted.
    pub deleting: bool,
    /// Why nothing is made or removed until the user changes something; `None` when that is not so.
    pub stalled: Option<Stall>,
    /// The number of machines that the provider was asked for, and who else has set it.
    pub machines: MachinesWriter,
    /// Capacity of one node, as far as the provider says it.
    pub capacity: BTreeMap<String, Quantity>,
    /// What to say about machines whose Node may be elsewhere; `None` when there are none such.
    pub elsewhere: Option<String>,
    /// What the operator remembers about the provider, apart from [`Self::machines`] and [`Self::capacity`].
    pub provisioning: ProvisioningStatus,
    /// Why nodes are not being made; `None` without a failure.
    pub failure: Option<ProvisioningFailure>,
    /// Why a requested machine does not start, in its provider's words; `None` when the provider does not say so.
    pub trouble: Option<String>,
    /// Why no machine may be removed now; `None` when one may.
    pub removals_wait: Option<String>,
    /// Nodes that are too many and stay as long as they ask for it, by name, and why.
    pub held: Vec<(String, String)>,
    /// What to say about unhealthy nodes that stay; `None` when there are none.
    pub repair_waits: Option<String>,
    /// What is wrong with the budgets of `spec.disruption`.
    pub budget_problems: Vec<String>,
    /// The nodes that are being disrupted; `None` when there are none.
    pub disrupted: Option<DisruptedNodes>,
    /// Number of staying nodes that are not out of date and lack labels, annotations or taints of the template.
    pub not_updated: usize,
    /// Whether the provider replaces machines of an earlier template by itself.
    pub is_sized: bool,
    /// How far the replacement of nodes that are out of date has come; `None` when there are none.
    pub rollout: Option<RolloutFacts>,
    /// How the provider says that it replaces machines of an earlier template of its own; `None` when it does not.
    pub rolling: Option<String>,
    /// Names of the staying nodes that a user wants replaced, by an annotation or by their age, and that only their provider replaces.
    pub left_to_provider: Vec<String>,
    /// Nodes that are too many and not drained again for a while, because their last drain took too long.
    pub given_back: Vec<String>,
    /// What to say about an installed definition that lacks fields; `None` when it has all.
    pub outdated_crd: Option<Statement>,
}

/// Why each of the `leaving` nodes leaves as far as the next pass finds it noted, with those that were `chosen` in this one.
fn causes<'a>(
    plan: &Plan,
    leaving: &[&'a Member],
    chosen: &BTreeSet<String>,
) -> Vec<(&'a Member, Option<DisruptionReason>)> {
    let steps = plan.nodes.iter().filter(|step| chosen.contains(step.member.name()));
    let now: BTreeMap<&str, DisruptionReason> =
        steps.filter_map(|step| Some((step.member.name(), step.cause?))).collect();
    leaving
        .iter()
        .map(|member| (*member, now.get(member.name()).copied().or(member.cause.reason())))
        .collect()
}

/// The members that were `joined` in this pass, as the next one finds them.
fn members_joined(
    observed: &Observed,
    pool: &NodePool,
    plan: &Plan,
    joined: &BTreeSet<String>,
) -> Vec<Member> {
    let mut members: Vec<Member> = plan
        .join
        .iter()
        .filter(|step| step.node.metadata.name.as_ref().is_some_and(|name| joined.contains(name)))
        .map(|step| Member {
            template_hash: Some(step.template_hash.clone()),
            ..Member::read(&step.node, observed.now, NodeTime::default())
        })
        .collect();
    OutdatedCriteria::of(pool, observed.now).assess(&mut members);
    members
}

/// Why each node is being disrupted that is, of those that leave for these `causes`. Some were `deleted` in this pass.
fn reasons(
    pool: &NodePool,
    causes: &[(&Member, Option<DisruptionReason>)],
    deleted: &BTreeSet<String>,
) -> Vec<DisruptionReason> {
    let reasons = causes.iter().filter_map(|(member, noted)| {
        let is_deleted = |leaving: Leaving| leaving.deleting;
        let is_deleted = deleted.contains(member.name()) || member.leaving.is_some_and(is_deleted);
        disruption_account::reason(pool, member, *noted, is_deleted)
    });
    reasons.collect()
}

/// Number of nodes that leave for these `causes` and come back should they recover: those that are drained to be repaired. Some were
/// `deleted` in this pass.
fn may_recover(causes: &[(&Member, Option<DisruptionReason>)], deleted: &BTreeSet<String>) -> usize {
    let repaired = causes.iter().filter(|(_, cause)| *cause == Some(DisruptionReason::Repair));
    let is_deleted = |member: &Member| {
        deleted.contains(member.name()) || member.leaving.is_some_and(|leaving| leaving.deleting)
    };
    repaired.filter(|(member, _)| !is_deleted(member)).count()
}

/// Number of `staying` nodes that lack what can be updated in place, and are not out of date.
fn not_updated(plan: &Plan, staying: &[&Member], updated: &BTreeSet<String>) -> usize {
    let is_not_updated = |member: &&&Member| {
        let name = member.name();
        let is_due = plan.not_updated.contains(name) && !updated.contains(name);
        is_due && !member.outdated.is_outdated()
    };
    staying.iter().filter(is_not_updated).count()
}

/// What to say about unhealthy nodes of which repair waits.
fn repair_waits(plan: &Plan, staying: &[&Member]) -> Option<String> {
    match plan.repair_waits.as_ref()? {
        RepairWait::Held(why) => Some(why.clone()),
        // It may have begun to leave in this pass.
        RepairWait::NotDue { node, why } => {
            staying.iter().any(|member| member.name() == node).then(|| format!("node {node} {why}"))
        }
    }
}

/// The `staying` nodes that are not drained again for a while, and those that were given back in this pass.
fn given_back(pool: &NodePool, staying: &[&Member], applied: &Applied, now: Timestamp) -> Vec<String> {
    let resting = sizing::resting(pool, staying.iter().copied(), now);
    let resting = resting.into_iter().map(|(node, _)| node.to_owned());
    let in_this_pass = applied.names(|action| action == AppliedAction::GiveBack);
    resting.chain(in_this_pass.map(ToOwned::to_owned)).collect()
}

/// Those of the `staying` nodes that a user wants replaced, and that only their provider replaces.
fn left_to_provider(pool: &NodePool, staying: &[&Member], now: Timestamp) -> Vec<String> {
    if !pool.spec.provider.replaces_machines() {
        return Vec::new();
    }
    let criteria = OutdatedCriteria::of(pool, now);
    let left = staying.iter().filter(|member| criteria.is_left_to_provider(member));
    left.map(|member| member.name().to_owned()).collect()
}

fn waits_for_place(step: &NodeStep) -> bool {
    matches!(&step.action, NodeAction::Drain(step) if step.waits_for_place())
}

/// Number of requests without a Node after a pass in which so many of them `came` as nodes.
fn in_flight(observed: &Observed, applied: &Applied, came: usize) -> usize {
    let (requested, withdrawn) =
        (applied.count(AppliedAction::Request), applied.count(AppliedAction::Withdraw));
    let before = observed.in_flight().count() + observed.joining().len();
    (before + requested).saturating_sub(withdrawn + came)
}

/// The budgets' account after a pass that leaves the nodes `all`, while others are disrupted for `reasons`.
fn account(
    observed: &Observed,
    pool: &NodePool,
    plan: &Plan,
    all: &[&Member],
    reasons: &[DisruptionReason],
) -> Account {
    let pool_size = disruption_account::pool_size(observed, pool, all.iter().copied(), plan.wanted);
    let of_provider = disruption_account::of_provider(pool, plan.nodes.iter().map(|step| &step.member));
    let budgets = pool.spec.disruption_budgets();
    let account = Account::new(budgets, pool_size, reasons.iter().copied(), observed.now);
    account.with_unknown(DisruptionReason::ScaleDown, of_provider)
}

impl Facts {
    /// Counts nodes and requests after a pass: what was observed, changed by what was acknowledged. Of the plan, only
    /// what it found counts, so that the next pass finds what this one reported.
    pub fn count(observed: &Observed, pool: &NodePool, plan: &Plan, applied: &Applied) -> Self {
        let named = |is_it: fn(AppliedAction) -> bool| -> BTreeSet<String> {
            applied.names(is_it).map(ToOwned::to_owned).collect()
        };
        let (left, returned) = (named(AppliedAction::leaves), named(AppliedAction::returns));
        let removed = named(AppliedAction::ends);
        let (staying, leaving): (Vec<&Member>, Vec<&Member>) =
            plan.nodes.iter().map(|step| &step.member).partition(|member| {
                let (stayed, name) = (member.stays(), member.name());
                if stayed { !left.contains(name) } else { returned.contains(name) }
            });
        let joined = named(|action| action == AppliedAction::Join);
        let joined = members_joined(observed, pool, plan, &joined);
        let all: Vec<&Member> = staying.iter().copied().chain(&joined).collect();
        let with = |readiness| all.iter().filter(|member| member.readiness == readiness).count();
        let leaving: Vec<&Member> =
            leaving.into_iter().filter(|member| !removed.contains(member.name())).collect();
        let (chosen, deleted) = (named(AppliedAction::notes_cause), named(AppliedAction::deletes));
        let causes = causes(plan, &leaving, &chosen);
        let reasons = reasons(pool, &causes, &deleted);
        let account = account(observed, pool, plan, &all, &reasons);
        let created = applied.count(AppliedAction::Create);
        let all_staying = all.len() + created;
        let in_flight = in_flight(observed, applied, joined.len() + created);
        let given_back = given_back(pool, &staying, applied, observed.now);
        let nodes = RolloutNodes {
            wanted: plan.wanted,
            staying: &all,
            leaving: &causes,
            given_back: &given_back,
            coming: in_flight + created,
        };
        let rollout = RolloutFacts::count(observed, pool, plan, nodes, &account);
        let not_updated = not_updated(plan, &staying, &named(|action| action == AppliedAction::Update));
        let outdated = rollout.as_ref().map_or(0, |rollout| rollout.staying);
        let lagging = if plan.template_hash.is_some() { outdated + not_updated } else { staying.len() };
        Self {
            wanted: plan.wanted,
            staying: all_staying,
            ready: with(NodeReadiness::Ready),
            up_to_date: all_staying.saturating_sub(lagging),
            starting: with(NodeReadiness::Starting) + created,
            not_ready: with(NodeReadiness::NotReady),
            leaving: leaving.len(),
            waiting: plan.nodes.iter().filter(|step| waits_for_place(step)).count(),
            in_flight,
            ending: applied.withdrawn_and_ending(),
            may_recover: may_recover(&causes, &deleted),
            is_unknown: observed.supply.is_unknown,
            unreadable: observed.unread().map(ToOwned::to_owned).collect(),
            deleting: pool.metadata.deletion_timestamp.is_some(),
            stalled: plan.stalled.clone(),
            machines: MachinesWriter::of(pool, &observed.supply, observed.now),
            capacity: observed.supply.capacity.clone(),
            elsewhere: observed.elsewhere_problem(),
            provisioning: ProvisioningStatus::default(),
            failure: None,
            trouble: observed.supply.trouble.clone(),
            removals_wait: observed.supply.removals_wait.clone(),
            held: plan.held.clone(),
            budget_problems: plan.budget_problems.clone(),
            disrupted: DisruptedNodes::count(reasons),
            not_updated,
            is_sized: pool.spec.provider.replaces_machines(),
            rollout,
            rolling: observed.supply.rolling.clone(),
            left_to_provider: left_to_provider(pool, &all, observed.now),
            repair_waits: repair_waits(plan, &staying),
            given_back: given_back.into_iter().filter(|_| all_staying > plan.wanted).collect(),
            outdated_crd: None,
        }
    }

    /// The same with what is said about the installed definition.
    #[must_use]
    pub fn with_outdated_crd(self, outdated_crd: Option<Statement>) -> Self {
        Self { outdated_crd, ..self }
    }

    /// The same with the reason why the provider makes no nodes. It comes after counting, because a pool that has every
    /// node it wants ends the provider's backoff.
    #[must_use]
    pub fn with_failure(
        self,
        failure: Option<ProvisioningFailure>,
        provisioning: ProvisioningStatus,
    ) -> Self {
        Self { provisioning, failure, ..self }
    }

    /// Whether there are exactly as many nodes as wanted, apart from those that cannot go now, and all are Ready.
    pub const fn all_ready(&self) -> bool {
        let extra = self.held.len() + self.given_back.len();
        self.ready == self.staying
            && self.staying >= self.wanted
            && self.staying.saturating_sub(extra) <= self.wanted
    }

    /// Whether staying nodes are replaced because they are out of date, by this operator or by the provider.
    pub fn is_rolling(&self) -> bool {
        self.rolling.is_some()
            || self.rollout.as_ref().is_some_and(|rollout| rollout.is_active && rollout.staying > 0)
    }

    /// Whether nodes are being brought to the present template, in place or by others.
    pub fn is_changing(&self) -> bool {
        self.is_rolling() || self.not_updated > 0
    }

    /// Whether as many nodes as wanted are Ready while a rollout has more.
    pub fn has_enough_ready(&self) -> bool {
        self.is_rolling() && self.ready >= self.wanted
    }

    /// Whether a rollout goes on, and nothing that was asked of the provider is missing.
    pub fn is_between_steps(&self) -> bool {
        self.has_enough_ready() && self.in_flight + self.starting == 0
    }

    /// Whether it is not known if the provider replaces machines.
    pub const fn may_be_rolling(&self) -> bool {
        self.is_sized && self.is_unknown
    }

    /// Whether nodes have to be made. Nodes that cannot be read count as existing.
    pub const fn too_few(&self) -> bool {
        self.staying + self.unreadable.len() < self.wanted
    }

    /// The numbers of nodes, as a sentence.
    pub fn counts(&self) -> String {
        let mut text = format!("{} of {} nodes are ready", self.ready, self.wanted);
        let parts = [
            (self.in_flight, "requested"),
            (self.starting, "starting"),
            (self.not_ready, "not ready"),
            (self.leaving, "draining"),
            (self.unreadable.len(), "unreadable"),
        ];
        for (count, what) in parts.into_iter().filter(|(count, _)| *count > 0) {
            text.push_str(&format!(", {count} {what}"));
        }
        text
    }
}
