//! **What should happen to a pool**, decided from what was observed and from nothing else: no client, no clock, no
//! randomness. The same [`Observed`] always gives the same [`Plan`].
//!
//! | file | decides |
//! |---|---|
//! | `model`, `decision`, `keys` | nothing: they define the input and the output |
//! | `membership` | the state of each node |
//! | `observed_time` | whether this process itself has measured that a time has passed |
//! | `sizing` | how many nodes are missing or in excess |
//! | `victims` | which nodes are removed |
//! | `drain` | the next step of a leaving node |
//! | `slots`, `template`, `hash` | name and content of a new node |
//! | `patches` | how a decision is written so that it cannot be applied to the wrong object |
//! | `facts` | nothing: it counts what was decided and the result |
//! | `status`, `clamped`, `unreadable`, `events` | what is reported to the user |

pub(crate) mod applied;
mod clamped;
mod decision;
pub(crate) mod drain;
pub(crate) mod events;
pub(crate) mod facts;
pub(crate) mod hash;
mod keys;
pub(crate) mod membership;
mod model;
pub(crate) mod numbers;
pub(crate) mod observed_time;
pub(crate) mod patches;
pub(crate) mod pods;
pub(crate) mod sizing;
pub(crate) mod slots;
pub(crate) mod status;
pub(crate) mod supply;
pub(crate) mod template;
pub(crate) mod unreadable;
pub(crate) mod victims;

#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod start_tests;
#[cfg(test)]
mod status_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod unread_tests;
#[cfg(test)]
mod world_tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::{NodePool, names};

pub(crate) use self::applied::{Applied, Blocked, Extent, Rejected, RejectedWrite};
pub(crate) use self::decision::Plan;
pub(crate) use self::facts::Facts;
use self::facts::InFlight;
pub(crate) use self::keys::{PodName, PoolKey};
use self::membership::Member;
pub(crate) use self::model::{Fate, NodeStep, Observed, PodsNeeded, PoolStep};
pub(crate) use self::supply::Supply;
use self::template::Blueprint;

/// Polling interval of a drain. Pods are not watched, because only those of leaving nodes matter.
const DRAIN_POLL: SignedDuration = SignedDuration::from_secs(2);
/// Retry interval of a refused eviction, the same as in `kubectl drain`.
const BLOCKED_POLL: SignedDuration = SignedDuration::from_secs(5);
/// Polling interval of a pool with an unreadable node: no watch event reports that it became readable or is gone.
const UNREADABLE_POLL: SignedDuration = SignedDuration::from_secs(30);
/// Maximum number of nodes whose pods are listed in one pass before they are replaced, one request each. What happens
/// to them triggers the next pass, for the others.
const MAX_IN_DOUBT: usize = 50;

impl Plan {
    /// When to reconcile again after the result of the plan; `None` when only an event can change anything.
    pub(crate) fn next_visit(&self, applied: &Applied, now: Timestamp) -> Option<Timestamp> {
        let draining = self.nodes.iter().any(|step| matches!(step.fate, Fate::Drain { .. }));
        let poll = if applied.blocked.is_empty() || applied.evicted > 0 { DRAIN_POLL } else { BLOCKED_POLL };
        let drains = draining.then(|| now.checked_add(poll).unwrap_or(Timestamp::MAX));
        self.requeue_at.into_iter().chain(drains).chain(applied.expected).chain(applied.retry_at).min()
    }
}

/// Decides what happens to a pool.
pub(crate) fn plan(observed: &Observed) -> Plan {
    let mut members: Vec<Member> = observed.nodes.iter().map(|node| read(observed, node)).collect();
    members.sort_by(|a, b| a.name().cmp(b.name()));
    match observed.pool.as_deref() {
        None => without_pool(observed, &members),
        Some(pool) if pool.spec.paused => while_paused(observed, pool, &members),
        Some(pool) => active(observed, pool, &members),
    }
}

/// Derives the state of a node, including the evidence that it has been Ready although it lacks the annotation: this
/// process has observed it, or it has started pods.
fn read(observed: &Observed, node: &Arc<Node>) -> Member {
    let mut time = observed.time.of_node(node);
    let pods = node.metadata.name.as_ref().and_then(|name| observed.pods.get(name));
    let shows = |pod| membership::shows_a_ready_node(node, pod);
    time.was_ready |= pods.is_some_and(|pods| pods.iter().any(shows));
    Member::read(node, observed.now, time)
}

/// The nodes whose pods the plan needs.
pub(crate) fn pods_needed(observed: &Observed) -> PodsNeeded {
    let draft = plan(observed);
    PodsNeeded {
        draining: names_of(&draft, |fate| matches!(fate, Fate::Drain { .. })),
        undecided: draft.undecided,
        in_doubt: draft.in_doubt,
    }
}

/// The nodes that would be removed now.
pub(crate) fn removed(observed: &Observed) -> Vec<String> {
    names_of(&plan(observed), |fate| *fate == Fate::Remove)
}

fn names_of(plan: &Plan, is_meant: impl Fn(&Fate) -> bool) -> Vec<String> {
    let steps = plan.nodes.iter().filter(|step| is_meant(&step.fate));
    steps.filter_map(|step| step.node.metadata.name.clone()).collect()
}

/// The pool is gone. Nodes that are being deleted are drained and their finalizer is removed; the others are left
/// alone, with their pods.
fn without_pool(observed: &Observed, members: &[Member]) -> Plan {
    let nodes: Vec<NodeStep> = members
        .iter()
        .map(|member| {
            let deleting = member.leaving.is_some_and(|leaving| leaving.deleting);
            step(member, if deleting { leave(observed, member, None) } else { Fate::Keep })
        })
        .collect();
    Plan {
        pool: PoolStep::Keep,
        fill: None,
        requeue_at: next_visit(observed, members, None),
        nodes,
        request: Vec::new(),
        withdraw: observed.supply.machines.iter().map(|machine| machine.name.clone()).collect(),
        fulfilled: Vec::new(),
        register: Vec::new(),
        undecided: Vec::new(),
        in_doubt: Vec::new(),
        facts: None,
    }
}

/// Nothing changes but the status and the annotation that a node has been Ready, which is lost if it is not written.
/// Nodes and pools that are being deleted wait too, held by their finalizers.
fn while_paused(observed: &Observed, pool: &NodePool, members: &[Member]) -> Plan {
    let nodes: Vec<NodeStep> = members
        .iter()
        .map(|member| {
            let fate = match (member.stays(), member.lacks_mark()) {
                (true, true) => Fate::MarkReady,
                (true, false) => Fate::Keep,
                (false, _) => Fate::Wait,
            };
            step(member, fate)
        })
        .collect();
    let blueprint = Blueprint::of(&observed.key, pool);
    let in_flight = in_flight(observed, members);
    let wanted = facts::wanted(pool, present(observed, members));
    Plan {
        pool: PoolStep::Keep,
        fill: None,
        facts: Some(Facts::gather(
            observed,
            (pool, wanted),
            &blueprint,
            members,
            &nodes,
            InFlight { all: in_flight, new: 0 },
        )),
        nodes,
        request: Vec::new(),
        withdraw: Vec::new(),
        fulfilled: Vec::new(),
        register: Vec::new(),
        undecided: Vec::new(),
        in_doubt: Vec::new(),
        requeue_at: None,
    }
}

fn active(observed: &Observed, pool: &NodePool, members: &[Member]) -> Plan {
    let now = observed.now;
    let deleting = pool.metadata.deletion_timestamp.is_some();
    let blueprint = Blueprint::of(&observed.key, pool);
    let timeout = (!deleting).then(|| seconds(pool.spec.provisioning_timeout_seconds));
    let timed_out = |member: &Member| {
        let gives_up_at = timeout.and_then(|timeout| member.gives_up_at(timeout, now));
        member.stays() && gives_up_at.is_some_and(|at| at <= now)
    };
    // A node counts as never started only after its pods were listed.
    let gave_up = |member: &Member| timed_out(member) && observed.pods.contains_key(member.name());
    let in_doubt = members.iter().filter(|member| timed_out(member) && !gave_up(member));
    let in_doubt = in_doubt.map(|member| member.name().to_owned()).take(MAX_IN_DOUBT).collect();
    let staying = members.iter().filter(|member| member.stays() && !gave_up(member)).collect();
    let wanted = facts::wanted(pool, present(observed, members));
    let sizing = sizing::size(sizing::Input {
        key: &observed.key,
        pool,
        wanted,
        members,
        staying,
        pods: &observed.pods,
        unreadable: &observed.unreadable,
        unread: observed.unread().count(),
        supply: &observed.supply,
        now,
    });

    let names =
        |list: &[&Member]| list.iter().map(|member| member.name().to_owned()).collect::<BTreeSet<_>>();
    let (rescue, victims) = (names(&sizing.rescue), names(&sizing.victims));
    let drain_timeout = pool.spec.drain.as_ref().and_then(|drain| drain.timeout_seconds).filter(|s| *s > 0);
    let nodes: Vec<NodeStep> = members
        .iter()
        .map(|member| {
            let fate = if gave_up(member) {
                Fate::Replace
            } else if rescue.contains(member.name()) {
                Fate::Rescue
            } else if victims.contains(member.name()) {
                Fate::Close
            } else if !member.stays() {
                leave(observed, member, drain_timeout.map(seconds))
            } else if !member.held {
                Fate::Adopt
            } else if member.lacks_mark() {
                Fate::MarkReady
            } else {
                Fate::Keep
            };
            step(member, fate)
        })
        .collect();

    let held = pool.metadata.finalizers.iter().flatten().any(|name| name == names::POOL_FINALIZER);
    let existing = sizing::existing(members, &observed.unreadable);
    // While a node cannot be read, the number of nodes is not known, not even that it is zero.
    let all_read = observed.unread().next().is_none();
    let unread = (!all_read).then(|| now.checked_add(UNREADABLE_POLL).unwrap_or(Timestamp::MAX));
    let mut plan = Plan {
        pool: match (deleting, held) {
            (false, false) => PoolStep::Hold,
            (true, true) if members.is_empty() && all_read => PoolStep::Release,
            _ => PoolStep::Keep,
        },
        fill: (pool.spec.replicas.is_none() && !deleting && all_read)
            .then(|| i32::try_from(wanted).unwrap_or(i32::MAX)),
        request: sizing.request,
        withdraw: sizing.withdraw,
        fulfilled: (observed.supply.machines.iter())
            .map(|machine| machine.name.clone())
            .filter(|name| existing.contains(name.as_str()))
            .collect(),
        register: Vec::new(),
        undecided: sizing.undecided,
        in_doubt,
        facts: None,
        requeue_at: next_visit(observed, members, timeout).into_iter().chain(unread).min(),
        nodes,
    };
    let mut in_flight = sizing.in_flight;
    match &blueprint {
        Ok(blueprint) => plan.register = sizing.register.iter().map(|name| blueprint.node(name)).collect(),
        // It is not known what the nodes should look like.
        Err(_) => in_flight -= std::mem::take(&mut plan.request).len(),
    }
    let in_flight = InFlight { all: in_flight, new: plan.request.len() };
    plan.facts = Some(Facts::gather(observed, (pool, wanted), &blueprint, members, &plan.nodes, in_flight));
    plan
}

/// The number of nodes that exist or are requested: the value for an unset count.
fn present(observed: &Observed, members: &[Member]) -> usize {
    let readable = members.iter().filter(|member| member.stays()).count();
    readable + observed.unread().count() + in_flight(observed, members)
}

/// The number of machines that are requested and have no Node yet.
fn in_flight(observed: &Observed, members: &[Member]) -> usize {
    let existing = sizing::existing(members, &observed.unreadable);
    let machines = observed.supply.machines.iter();
    machines.filter(|machine| !existing.contains(machine.name.as_str())).count()
}

fn step(member: &Member, fate: Fate) -> NodeStep {
    NodeStep { node: Arc::clone(&member.node), fate }
}

/// The next step of a leaving node. A deleted node without the operator's finalizer is only drained: the owners of its
/// other finalizers decide when it goes.
fn leave(observed: &Observed, member: &Member, timeout: Option<SignedDuration>) -> Fate {
    let Some(leaving) = member.leaving else {
        return Fate::Keep;
    };
    let pods = observed.pods.get(member.name()).map(Vec::as_slice);
    match drain::next(leaving, pods, timeout, observed.now, &observed.time) {
        Fate::Remove if leaving.deleting && !member.held => Fate::Wait,
        fate => fate,
    }
}

/// When something is due without an event: a machine is expected, the provider's backoff ends, a node's start times
/// out, a cordoned node may be removed.
fn next_visit(
    observed: &Observed,
    members: &[Member],
    provisioning_timeout: Option<SignedDuration>,
) -> Option<Timestamp> {
    let now = observed.now;
    let machines = observed.supply.machines.iter().filter_map(|machine| match machine.state {
        supply::MachineState::Starting { until } => until,
        supply::MachineState::Running => None,
    });
    let retry = observed.supply.trouble.as_ref().map(|trouble| trouble.retry_at).filter(|at| *at > now);
    let gives_up = members
        .iter()
        .filter(|member| member.stays())
        .filter_map(|member| member.gives_up_at(provisioning_timeout?, now))
        .filter(|at| *at > now);
    let may_go =
        members.iter().filter_map(|member| drain::margin_end(member.leaving?, now)).filter(|end| *end > now);
    machines.chain(retry).chain(gives_up).chain(may_go).min()
}

fn seconds(seconds: i32) -> SignedDuration {
    SignedDuration::from_secs(i64::from(seconds))
}
