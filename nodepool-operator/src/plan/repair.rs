//! Which nodes are replaced because they are unhealthy.
//!
//! A node that is not Ready may be dead, or cut off with its pods running, or everything may be well and only the control
//! plane's view of it be gone. Nothing here tells which. So a node is replaced only after a time, only while few nodes are
//! unhealthy, and its pods are given up only when the provider has confirmed the end of its machine.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::NodePool;
use shared_crds::disruption::Account;
use shared_crds::v1alpha1::{ConditionStatus, DisruptionReason, RepairCondition, RepairSpec};

use super::membership::{Member, Readiness};
use super::observed_time::{ConditionKey, due};
use super::{Observed, Sight};

/// Above this share of nodes that the control plane has lost sight of, it is taken to be the control plane's fault.
/// Kubernetes' own `--unhealthy-zone-threshold`, above which it evicts no pods.
const OUTAGE_PERCENT: usize = 55;
/// Polling interval while no node is replaced for a reason that may end without an event of this pool.
const HELD_POLL: SignedDuration = SignedDuration::from_secs(30);

/// What is done about unhealthy nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Repair {
    /// The nodes that are replaced now, by name.
    pub names: BTreeSet<String>,
    /// Why unhealthy nodes stay; `None` when none does.
    pub waits: Option<RepairWait>,
    /// When to look again.
    pub next: Option<Timestamp>,
}

/// Why unhealthy nodes stay. It says nothing that changes from pass to pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RepairWait {
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

fn is_outage(Sight { lost, all }: Sight) -> bool {
    lost > 1 && lost.saturating_mul(100) > all.saturating_mul(OUTAGE_PERCENT)
}

/// Whether the node was made for the pool, so that its provider knows its machine: of any other, the answer that there is no
/// such machine would mean nothing.
fn has_machine(member: &Member) -> bool {
    member.has_finalizer && member.template_hash.is_some() && member.made_by().is_some()
}

/// Decides which nodes are replaced, of those that have been Ready. `wanted` is the number of nodes that the pool should
/// have. `can_make` says that new nodes can be made. Each node that is replaced is taken out of the `account`.
pub(crate) fn repair(
    observed: &Observed,
    pool: &NodePool,
    members: &[Member],
    wanted: usize,
    can_make: bool,
    account: &mut Account,
) -> Repair {
    if pool.metadata.deletion_timestamp.is_some() || observed.supply.removals_wait.is_some() {
        return Repair::default();
    }
    let spec = spec(pool);
    let sick = |member: &&Member| member.readiness != Readiness::Starting && has_machine(member);
    let sick: Vec<(&Member, Ailment<'_>)> = members
        .iter()
        .filter(sick)
        .filter_map(|member| Some((member, ailment(observed, &spec.conditions, &member.node)?)))
        .collect();
    // Those whose machine has not ended yet, whichever way they leave: they are the ones being repaired.
    let is_going = |member: &Member| member.leaving.is_some_and(|it| it.deleting && !it.out_of_service);
    let unhealthy = sick.iter().filter(|(member, _)| member.stays() || is_going(member)).count();
    let staying = sick.iter().filter(|(member, _)| member.stays());
    let (due, ailing): (Vec<_>, Vec<_>) = staying.partition(|(_, ailment)| ailment.due <= observed.now);
    let next = ailing.iter().map(|(_, ailment)| ailment.due).min();
    let bound = spec.bound(wanted);
    let Sight { lost, all } = observed.sight;
    let held = if due.is_empty() {
        None
    } else if is_outage(observed.sight) {
        Some(format!(
            "{lost} of {all} nodes of all pools are out of the control plane's sight, so none is replaced"
        ))
    } else if unhealthy > bound {
        Some(format!(
            "{unhealthy} nodes are unhealthy, and with {wanted} nodes wanted spec.repair.maxUnhealthy allows {bound}, so \
             none is replaced"
        ))
    } else if !(can_make && observed.supply.may_request(observed.now)) {
        Some("unhealthy nodes are not replaced while no new nodes can be made".to_owned())
    } else {
        None
    };
    if let Some(why) = held {
        let again = observed.now.checked_add(HELD_POLL).ok();
        let next = next.into_iter().chain(again).min();
        return Repair { waits: Some(RepairWait::Held(why)), next, ..Repair::default() };
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
    Repair {
        names,
        waits: refused.map(RepairWait::Held).or_else(|| {
            let (member, ailment) = first?;
            Some(RepairWait::NotDue { node: member.name().to_owned(), why: ailment.to_string() })
        }),
        next,
    }
}

/// Whether nobody will confirm the end of the pods of a node that is being deleted, because its kubelet has not been heard
/// of for as long as makes a node unhealthy, and its machine is known.
pub(crate) fn is_unreachable(observed: &Observed, pool: &NodePool, member: &Member) -> bool {
    let silent = [silence(&spec(pool))];
    let ailment = ailment(observed, &silent, &member.node);
    !is_outage(observed.sight)
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
pub(crate) fn watched(pool: &NodePool) -> Vec<RepairCondition> {
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
pub(crate) fn holding<'a>(
    conditions: &'a [RepairCondition],
    node: &Node,
) -> Vec<(&'a RepairCondition, Timestamp)> {
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
pub(crate) fn key(condition: &RepairCondition) -> ConditionKey {
    (condition.type_.clone(), condition.status)
}
