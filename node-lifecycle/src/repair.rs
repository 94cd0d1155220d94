//! Which nodes are replaced because they are unhealthy or have lost their machines.
//!
//! A node that is not Ready may be dead, or cut off with its pods running, or everything may be well and only the control
//! plane's view of it be gone. A machine that is not listed may be gone, or its provider may list a part of its machines. Nothing
//! here tells which. So a node is replaced only after a time, only while few nodes have failed in either way, and its pods are
//! given up only when the provider has confirmed the end of its machine.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::disruption::Account;
use shared_crds::v1alpha1::{ConditionStatus, DisruptionReason, RepairCondition, RepairSpec};
use shared_crds::{NodePool, names};

use super::membership::{Member, NodeReadiness};
use super::observed_time::{ConditionKey, due};
use super::{Observed, Sight};

/// Polling interval while no node is replaced for a reason that may end without an event of this pool.
const HELD_POLL: SignedDuration = SignedDuration::from_secs(30);

/// What is done about nodes that have lost their machines, and about unhealthy ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Repair {
    /// The unhealthy nodes that are replaced now, by name.
    pub names: BTreeSet<String>,
    /// The nodes that are replaced now because their machines are gone, or going, behind the operator's back, by name.
    pub lost: BTreeSet<String>,
    /// Why such nodes stay; `None` when none does.
    pub waits: Option<RepairWait>,
    /// When to look again.
    pub next: Option<Timestamp>,
}

/// Why nodes stay that are unhealthy or have lost their machines. It says nothing that changes from pass to pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairWait {
    /// The node has not been unhealthy for long enough.
    NotDue {
        /// The node's name.
        node: String,
        /// Why it is unhealthy, and for how long it has to be.
        why: String,
    },
    /// It has, and no node is replaced now.
    Held(String),
}

/// Whether the node was made for the pool, so that its provider knows its machine: of any other, the answer that there is no
/// such machine would mean nothing.
pub(super) fn has_machine(member: &Member) -> bool {
    member.has_finalizer && member.template_hash.is_some() && member.made_by().is_some()
}

/// Decides which nodes are replaced because their machines are gone, and which because they are unhealthy, of those that have been
/// Ready. `wanted` is the number of nodes that the pool should have. `can_make` says that new nodes can be made. Each unhealthy
/// node that is replaced is taken out of the `account`: what became of a lost one was decided elsewhere.
pub(crate) fn repair(
    observed: &Observed,
    pool: &NodePool,
    members: &[Member],
    wanted: usize,
    can_make: bool,
    account: &mut Account,
) -> Repair {
    let ended = ended_elsewhere(observed, members);
    if observed.supply.removals_wait.is_some() {
        return Repair { lost: ended, ..Repair::default() };
    }
    let lost = members.iter().filter(|member| member.is_lost()).map(|member| member.name().to_owned());
    let lost: BTreeSet<String> = lost.chain(ended.iter().cloned()).collect();
    if pool.metadata.deletion_timestamp.is_some() {
        // All nodes go, and none is replaced.
        return Repair { lost, ..Repair::default() };
    }
    let spec = spec(pool);
    let sick: Vec<(&Member, Ailment<'_>)> = members
        .iter()
        .filter(|member| member.readiness != NodeReadiness::Starting && has_machine(member))
        .filter_map(|member| Some((member, ailment(observed, &spec.conditions, &member.node)?)))
        .collect();
    let failed = Failed::count(members, &sick);
    let staying = sick.into_iter().filter(|(member, _)| member.stays() && !lost.contains(member.name()));
    let (due, ailing): (Vec<_>, Vec<_>) = staying.partition(|(_, ailment)| ailment.due <= observed.now);
    let next = ailing.iter().map(|(_, ailment)| ailment.due).min();
    let held = |why: String, lost: BTreeSet<String>| {
        let again = observed.now.checked_add(HELD_POLL).ok();
        let next = next.into_iter().chain(again).min();
        Repair { lost, waits: Some(RepairWait::Held(why)), next, ..Repair::default() }
    };
    let is_any_due = !due.is_empty() || lost.len() > ended.len();
    if let Some(why) = failed.brake(observed.sight, wanted, spec.bound(wanted)).filter(|_| is_any_due) {
        return held(why, ended);
    }
    let may_make = can_make && observed.supply.may_request(observed.now);
    if !due.is_empty() && !may_make {
        return held("unhealthy nodes are not replaced while no new nodes can be made".to_owned(), lost);
    }
    let (mut names, mut refused) = (BTreeSet::new(), None);
    for (member, _) in due {
        match account.take(DisruptionReason::Repair) {
            Ok(()) => {
                names.insert(member.name().to_owned());
            }
            Err(refusal) => {
                refused.get_or_insert(format!("unhealthy node {} has to wait: {refusal}", member.name()));
            }
        }
    }
    let next = next.into_iter().chain(refused.as_ref().and_then(|_| account.next())).min();
    let first = ailing.iter().min_by_key(|(member, ailment)| (ailment.since, member.name()));
    let not_due = || {
        let (member, ailment) = first?;
        Some(RepairWait::NotDue { node: member.name().to_owned(), why: ailment.to_string() })
    };
    Repair { names, lost, waits: refused.map(RepairWait::Held).or_else(not_due), next }
}

/// The nodes that stay although somebody else is ending their machines. That is decided, so no bound holds it.
fn ended_elsewhere(observed: &Observed, members: &[Member]) -> BTreeSet<String> {
    let going = observed.going();
    let is_ended = |member: &&Member| {
        let machine = names::machine_of(&member.node.metadata);
        member.stays() && member.has_finalizer && machine.is_some_and(|machine| going.contains(machine))
    };
    members.iter().filter(is_ended).map(|member| member.name().to_owned()).collect()
}

/// How many nodes count against `spec.repair.maxUnhealthy`, for however short a time they have failed: those that stay, and those
/// whose machine has not ended yet, whichever way they leave.
struct Failed {
    /// Nodes that are not Ready and whose machine their provider does not list.
    unlisted: usize,
    /// Unhealthy nodes, but those.
    unhealthy: usize,
}

impl Failed {
    fn count(members: &[Member], sick: &[(&Member, Ailment<'_>)]) -> Self {
        let is_going = |member: &Member| member.leaving.is_some_and(|it| it.deleting && !it.out_of_service);
        let counts = |member: &Member| member.stays() || is_going(member);
        let is_unlisted = |member: &Member| member.has_finalizer && member.lost.is_some();
        let unhealthy = sick.iter().filter(|(member, _)| counts(member) && !is_unlisted(member));
        Self {
            unlisted: members.iter().filter(|member| counts(member) && is_unlisted(member)).count(),
            unhealthy: unhealthy.count(),
        }
    }

    /// Why no node is replaced for its state: so many have failed that the cause is something else, such as a provider that lists
    /// a part of its machines; `None` when that is not so.
    fn brake(&self, sight: Sight, wanted: usize, bound: usize) -> Option<String> {
        let Self { unlisted, unhealthy } = *self;
        let allowed = format!("with {wanted} nodes wanted spec.repair.maxUnhealthy allows {bound}");
        let is_too_many = unlisted + unhealthy > bound;
        let too_many = is_too_many.then(|| match (unlisted, unhealthy) {
            (0, _) => format!("{}, and {allowed}", are_unhealthy(unhealthy, "")),
            (_, 0) => format!("{}, and {allowed}", are_unlisted(unlisted)),
            _ => {
                let both = [are_unlisted(unlisted), are_unhealthy(unhealthy, "other ")].join(" and ");
                format!("{both}, and {allowed} of both together")
            }
        });
        let Sight { not_ready, all } = sight;
        let outage =
            sight.is_outage().then(|| format!("{not_ready} of {all} nodes of all pools are not Ready"));
        let all = [too_many, outage].into_iter().flatten().collect::<Vec<_>>().join(", and ");
        let advice = if unlisted > 0 { "; delete the Nodes whose machines are known to be gone" } else { "" };
        (!all.is_empty()).then(|| format!("{all}, so none is replaced{advice}"))
    }
}

fn are_unhealthy(count: usize, other: &str) -> String {
    if count == 1 {
        format!("1 {other}node is unhealthy")
    } else {
        format!("{count} {other}nodes are unhealthy")
    }
}

fn are_unlisted(count: usize) -> String {
    if count == 1 {
        "the machine of 1 node is not listed any more".to_owned()
    } else {
        format!("the machines of {count} nodes are not listed any more")
    }
}

/// Whether nobody will confirm the end of the pods of a node that is being deleted, because its kubelet has not been heard
/// of for as long as makes a node unhealthy, and its machine is known.
pub(crate) fn is_unreachable(observed: &Observed, pool: &NodePool, member: &Member) -> bool {
    let silent = [silence(&spec(pool))];
    let ailment = ailment(observed, &silent, &member.node);
    !observed.sight.is_outage()
        && has_machine(member)
        && ailment.is_some_and(|ailment| ailment.due <= observed.now)
}

/// The names of the nodes that are unhealthy, for however short a time.
pub(crate) fn unhealthy<'a>(
    pool: &NodePool,
    members: impl IntoIterator<Item = &'a Member>,
) -> BTreeSet<&'a str> {
    let spec = spec(pool);
    let is_sick = |member: &&Member| !holding(&spec.conditions, &member.node).is_empty();
    members.into_iter().filter(is_sick).map(Member::name).collect()
}

fn spec(pool: &NodePool) -> RepairSpec {
    pool.spec.repair.clone().unwrap_or_default()
}

/// The condition of a node whose kubelet is silent: as the spec has it, or as it is by default.
fn silence(spec: &RepairSpec) -> RepairCondition {
    let is_silence = |it: &&RepairCondition| it.type_ == "Ready" && it.status == ConditionStatus::Unknown;
    let named = spec.conditions.iter().find(is_silence).cloned();
    named.or_else(|| RepairSpec::default().conditions.iter().find(is_silence).cloned()).unwrap_or(
        RepairCondition { type_: "Ready".to_owned(), status: ConditionStatus::Unknown, seconds: 600 },
    )
}

/// The conditions whose times matter.
pub fn watched(pool: &NodePool) -> Vec<RepairCondition> {
    let spec = spec(pool);
    let silence = silence(&spec);
    let mut all = spec.conditions;
    if !all.contains(&silence) {
        all.push(silence);
    }
    all
}

/// What makes a node unhealthy.
struct Ailment<'a> {
    condition: &'a RepairCondition,
    since: Timestamp,
    /// When it has lasted long enough.
    due: Timestamp,
}

impl std::fmt::Display for Ailment<'_> {
    /// As the end of a sentence about the node.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RepairCondition { type_, status, seconds } = self.condition;
        let (status, since) = (status.as_str(), self.since);
        write!(f, "is unhealthy ({type_} is {status} since {since:.0}) and is replaced after {seconds} s")
    }
}

/// The first of the conditions that hold to have lasted long enough; `None` for a healthy node.
fn ailment<'a>(observed: &Observed, conditions: &'a [RepairCondition], node: &Node) -> Option<Ailment<'a>> {
    let times = observed.condition_times.of_node(node);
    let ailments = holding(conditions, node).into_iter().map(|(condition, since)| {
        let seen = times.and_then(|times| times.get(&key(condition))).copied().unwrap_or_default();
        let limit = SignedDuration::from_secs(i64::from(condition.seconds));
        Ailment { condition, since, due: due(since, limit, seen, observed.now) }
    });
    ailments.min_by_key(|ailment| ailment.due)
}

/// Those of the conditions that hold for `node`, with the time since when.
pub fn holding<'a>(conditions: &'a [RepairCondition], node: &Node) -> Vec<(&'a RepairCondition, Timestamp)> {
    let of_node: Vec<&NodeCondition> =
        node.status.iter().flat_map(|status| status.conditions.iter().flatten()).collect();
    let holds = |wanted: &'a RepairCondition| {
        let is_it = |it: &&&NodeCondition| it.type_ == wanted.type_ && it.status == wanted.status.as_str();
        let found = of_node.iter().find(is_it)?;
        let since = found.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        Some((wanted, since))
    };
    conditions.iter().filter_map(holds).collect()
}

/// What a condition's time is kept by.
pub fn key(condition: &RepairCondition) -> ConditionKey {
    (condition.type_.clone(), condition.status)
}
