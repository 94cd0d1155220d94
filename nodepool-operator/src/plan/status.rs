//! What the pool's owner is told: the `NodePool` operator's part of the status.
//!
//! Only counts and conditions are worked out here; who may write them, and how, is the write door's business.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use shared_crds::{
    NodePool,
    conditions::{ConditionType, Reason, Statement, set},
    names,
    v1alpha1::{NodePoolStatus, NodesSummary},
};

use super::{
    Applied, Blocked, Fate, NodeStep, Observed, PodName, Rejected, RejectedWrite, clamped,
    membership::{Member, Readiness},
    supply::Trouble,
    template::{Blueprint, Invalid},
    unreadable,
};

/// What a pass found and decided, as far as the status tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Nodes wanted; none while the pool is being deleted.
    pub wanted: usize,
    /// Nodes that are not on their way out.
    pub staying: usize,
    /// Of those: Ready.
    pub ready: usize,
    /// Of those: made from the current template.
    pub up_to_date: usize,
    /// Of those: not Ready yet.
    pub starting: usize,
    /// Of those: were Ready and are not now.
    pub not_ready: usize,
    /// Nodes on their way out.
    pub leaving: usize,
    /// Requests without a Node.
    pub in_flight: usize,
    /// Nodes that cannot be read, by name. They count nowhere else.
    pub unreadable: Vec<String>,
    /// The pool is being deleted.
    pub deleting: bool,
    /// Why the spec cannot be acted on.
    pub invalid: Option<String>,
    /// Why nodes are not being made.
    pub trouble: Option<Trouble>,
    /// A node and a pod on it that has outlived its grace period.
    pub overdue: Option<(String, PodName)>,
    /// The nodes that are counted as the plan wants them, which the world may prevent.
    turns: Vec<Turn>,
    /// The requests that are counted although they still have to be made.
    planned_requests: usize,
}

/// A node that the plan takes out of the count, or brings back into it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Turn {
    node: String,
    returns: bool,
    readiness: Readiness,
    up_to_date: bool,
}

/// Requests without a Node, should the plan be carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    /// All of them.
    pub(super) all: usize,
    /// Of those: the ones that the plan wants made.
    pub(super) new: usize,
}

/// The number of nodes `pool` should have now, where `present` are there or on their way.
pub fn wanted(pool: &NodePool, present: usize) -> usize {
    if pool.metadata.deletion_timestamp.is_some() {
        return 0;
    }
    usize::try_from(pool.spec.replicas_or(number(present))).unwrap_or_default()
}

impl Facts {
    /// Counts. `wanted` is how many nodes the pool should have; `members` and `nodes` are the same nodes in the same order.
    pub(super) fn gather(
        observed: &Observed,
        (pool, wanted): (&NodePool, usize),
        blueprint: &Result<Blueprint, Invalid>,
        members: &[Member],
        nodes: &[NodeStep],
        in_flight: InFlight,
    ) -> Self {
        let staying =
            || members.iter().zip(nodes).filter(|(_, step)| step.fate.stays()).map(|(member, _)| member);
        let count = |readiness| staying().filter(|member| member.readiness == readiness).count();
        let current = blueprint.as_ref().ok().map(|blueprint| &blueprint.hash);
        let is_current = |member: &Member| current.is_some() && member.template_hash.as_ref() == current;
        let turn = |(member, step): (&Member, &NodeStep)| Turn {
            node: member.name().to_owned(),
            returns: step.fate.stays(),
            readiness: member.readiness,
            up_to_date: is_current(member),
        };
        let turns = members.iter().zip(nodes).filter(|(member, step)| member.stays() != step.fate.stays());
        Self {
            wanted,
            staying: staying().count(),
            ready: count(Readiness::Ready),
            up_to_date: staying().filter(|member| is_current(member)).count(),
            starting: count(Readiness::Starting),
            not_ready: count(Readiness::NotReady),
            leaving: nodes.iter().filter(|step| !step.fate.stays()).count(),
            in_flight: in_flight.all,
            unreadable: observed.unread().map(ToOwned::to_owned).collect(),
            deleting: pool.metadata.deletion_timestamp.is_some(),
            invalid: blueprint.as_ref().err().map(ToString::to_string),
            trouble: observed.supply.trouble.clone(),
            overdue: nodes.iter().find_map(|step| match &step.fate {
                Fate::Drain { overdue: Some(pod), .. } => {
                    Some((step.node.metadata.name.clone().unwrap_or_default(), pod.clone()))
                }
                _ => None,
            }),
            turns: turns.map(turn).collect(),
            planned_requests: in_flight.new,
        }
    }

    /// The facts after `applied`: of what was planned only what was acknowledged counts, so that the next pass finds what
    /// this one reported.
    #[must_use]
    pub fn after(mut self, applied: &Applied, trouble: Option<Trouble>) -> Self {
        let created = applied.created.len();
        let never_made = std::mem::take(&mut self.planned_requests).saturating_sub(applied.requested);
        self.in_flight = self.in_flight.saturating_sub(created + never_made);
        for turn in std::mem::take(&mut self.turns) {
            self.settle(&turn, applied);
        }
        self.staying += created;
        self.starting += created;
        self.up_to_date += created;
        self.leaving = self.leaving.saturating_sub(applied.removed.len());
        self.trouble = trouble;
        self
    }

    /// Counts a node again as it was when its turn did not come.
    fn settle(&mut self, turn: &Turn, applied: &Applied) {
        let Applied { closed, replaced, rescued, .. } = applied;
        let came = |nodes: &[String]| nodes.contains(&turn.node);
        let of_readiness = match turn.readiness {
            Readiness::Starting => &mut self.starting,
            Readiness::Ready => &mut self.ready,
            Readiness::NotReady => &mut self.not_ready,
        };
        let current = usize::from(turn.up_to_date);
        if turn.returns && !came(rescued) {
            self.leaving += 1;
            self.staying -= 1;
            *of_readiness -= 1;
            self.up_to_date -= current;
        } else if !turn.returns && !came(closed) && !came(replaced) {
            self.leaving -= 1;
            self.staying += 1;
            *of_readiness += 1;
            self.up_to_date += current;
        }
    }

    /// Whether there are exactly as many Ready nodes as wanted.
    pub const fn settled(&self) -> bool {
        self.ready == self.wanted && self.staying == self.wanted
    }

    /// Whether nodes have to be made. Those that cannot be read are there.
    const fn too_few(&self) -> bool {
        self.staying + self.unreadable.len() < self.wanted
    }

    fn counts(&self) -> String {
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

/// The counts, for everyone who reads the status. `observedGeneration` and the conditions depend on the object they
/// are written to, and have functions of their own.
pub fn fields(pool: &NodePool, facts: &Facts) -> NodePoolStatus {
    NodePoolStatus {
        replicas: Some(number(facts.staying)),
        ready_replicas: Some(number(facts.ready)),
        up_to_date_replicas: Some(number(facts.up_to_date)),
        unavailable_replicas: Some(number(facts.wanted.saturating_sub(facts.ready))),
        selector: Some(names::node_selector(
            pool.metadata.namespace.as_deref().unwrap_or_default(),
            pool.metadata.name.as_deref().unwrap_or_default(),
        )),
        nodes: Some(NodesSummary {
            provisioning: number(facts.in_flight),
            starting: number(facts.starting),
            ready: number(facts.ready),
            not_ready: number(facts.not_ready),
            draining: number(facts.leaving),
        }),
        observed_generation: None,
        conditions: Vec::new(),
        autoscaling: None,
    }
}

/// The `observedGeneration` to write to `fresh`: it reaches the generation that was acted on when everything worked,
/// and never goes back.
pub fn observed_generation(fresh: &NodePool, acted_on: &NodePool, applied: &Applied) -> Option<i64> {
    let before = fresh.status.as_ref().and_then(|status| status.observed_generation);
    if applied.complete() { before.max(acted_on.metadata.generation) } else { before }
}

/// The operator's conditions, to be written to `fresh`.
pub fn conditions(
    fresh: &NodePool,
    acted_on: &NodePool,
    facts: &Facts,
    applied: &Applied,
    now: &Time,
) -> Vec<Condition> {
    let existing = fresh.status.as_ref().map_or(&[][..], |status| &status.conditions);
    statements(acted_on, facts, applied)
        .iter()
        .map(|statement| set(existing, statement, acted_on.metadata.generation, now))
        .collect()
}

/// `1 node`, `2 nodes`.
pub fn nodes(count: usize) -> String {
    format!("{count} node{}", if count == 1 { "" } else { "s" })
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Every condition the operator owns.
pub fn statements(pool: &NodePool, facts: &Facts, applied: &Applied) -> Vec<Statement> {
    vec![
        ready(pool, facts, applied),
        reconciling(pool, facts, applied),
        stalled(facts, applied),
        nodes_ready(facts),
        provisioning_healthy(facts, applied),
        clamped::replicas_clamped(pool, facts),
    ]
}

fn ready(pool: &NodePool, facts: &Facts, applied: &Applied) -> Statement {
    let say = |status: bool, reason, message| Statement::new(ConditionType::Ready, status, reason, message);
    if facts.deleting {
        say(
            false,
            Reason::Deleting,
            format!(
                "the pool is being deleted, {} left",
                nodes(facts.leaving + facts.staying + facts.unreadable.len())
            ),
        )
    } else if let Some(invalid) = &facts.invalid {
        say(false, Reason::InvalidSpec, invalid.clone())
    } else if facts.settled() {
        say(true, Reason::AllNodesReady, format!("{} of {} nodes are ready", facts.ready, facts.wanted))
    } else if pool.spec.paused {
        say(false, Reason::Paused, format!("{}; spec.paused is set", facts.counts()))
    } else if let Some(rejected) = &applied.rejected {
        say(false, rejected.reason, facts.counts())
    } else {
        say(false, why_not_ready(facts), facts.counts())
    }
}

fn why_not_ready(facts: &Facts) -> Reason {
    match &facts.trouble {
        Some(trouble) if facts.too_few() => trouble.reason,
        _ if facts.too_few() || facts.starting > 0 => Reason::Provisioning,
        _ if facts.not_ready > 0 => Reason::NodesNotReady,
        _ if !facts.unreadable.is_empty() => Reason::Unreadable,
        _ => Reason::Draining,
    }
}

fn reconciling(pool: &NodePool, facts: &Facts, applied: &Applied) -> Statement {
    let say =
        |status: bool, reason, message| Statement::new(ConditionType::Reconciling, status, reason, message);
    if pool.spec.paused {
        let mut message = "spec.paused is set".to_owned();
        if facts.deleting {
            message.push_str("; the deletion of the pool waits");
        }
        if facts.leaving > 0 {
            message.push_str(&format!("; {} waiting to be drained", nodes(facts.leaving)));
        }
        return say(false, Reason::Paused, message);
    }
    if let Some(Rejected { write: _, reason, message }) = applied.lasting_rejection() {
        return say(false, *reason, message.clone());
    }
    if let Some(blocked) = applied.blocked.iter().min() {
        let Blocked { node, pod, message } = blocked;
        let more = match applied.blocked.len() {
            1 => String::new(),
            2 => " (and 1 more pod)".to_owned(),
            count => format!(" (and {} more pods)", count - 1),
        };
        return say(true, Reason::DrainBlocked, format!("node {node} waits for pod {pod}{more}: {message}"));
    }
    if facts.deleting {
        return say(true, Reason::Deleting, waiting(facts));
    }
    if facts.leaving > 0 || facts.staying > facts.wanted {
        return say(true, Reason::Draining, waiting(facts));
    }
    if let Some((reason, message)) = stalled_reason(facts, applied) {
        return say(false, reason, message);
    }
    if facts.staying != facts.wanted || facts.starting + facts.in_flight > 0 {
        return say(true, Reason::Provisioning, facts.counts());
    }
    say(false, Reason::Settled, "there is nothing to do".to_owned())
}

fn waiting(facts: &Facts) -> String {
    let overdue = facts.overdue.as_ref();
    let overdue = overdue.map(|(node, pod)| format!("node {node} waits for pod {pod} to end"));
    let parts = [Some(facts.counts()), overdue, unreadable::of_nodes(&facts.unreadable)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Why nothing will move without a person. A quota that is used up is such a thing once all else is done, and so are
/// nodes that cannot be read.
fn stalled_reason(facts: &Facts, applied: &Applied) -> Option<(Reason, String)> {
    if let Some(rejected) = applied.lasting_rejection() {
        return Some((rejected.reason, rejected.message.clone()));
    }
    if let Some(invalid) = facts.invalid.as_ref().filter(|_| !facts.deleting) {
        return Some((Reason::InvalidSpec, invalid.clone()));
    }
    let busy = facts.in_flight + facts.starting + facts.leaving > 0;
    let is_used_up = |trouble: &&Trouble| trouble.reason == Reason::QuotaExceeded && facts.too_few();
    let used_up = facts.trouble.as_ref().filter(is_used_up).map(|it| (it.reason, it.message.clone()));
    let unreadable = || Some((Reason::Unreadable, unreadable::of_nodes(&facts.unreadable)?));
    used_up.or_else(unreadable).filter(|_| !busy)
}

fn stalled(facts: &Facts, applied: &Applied) -> Statement {
    match stalled_reason(facts, applied) {
        Some((reason, message)) => Statement::new(ConditionType::Stalled, true, reason, message),
        None => Statement::new(ConditionType::Stalled, false, Reason::Settled, "nothing stands in the way"),
    }
}

fn nodes_ready(facts: &Facts) -> Statement {
    if facts.settled() {
        let message = format!("{} of {} nodes are ready", facts.ready, facts.wanted);
        return Statement::new(ConditionType::NodesReady, true, Reason::AllNodesReady, message);
    }
    let reason = if facts.not_ready > 0 { Reason::NodesNotReady } else { why_not_ready(facts) };
    Statement::new(ConditionType::NodesReady, false, reason, facts.counts())
}

fn provisioning_healthy(facts: &Facts, applied: &Applied) -> Statement {
    let say = |status: bool, reason, message: &str| {
        Statement::new(ConditionType::ProvisioningHealthy, status, reason, message)
    };
    if let Some(rejected) = applied.rejected.as_ref().filter(|it| it.write == RejectedWrite::Creation) {
        return say(false, rejected.reason, &rejected.message);
    }
    match &facts.trouble {
        Some(trouble) => say(false, trouble.reason, &trouble.message),
        None if facts.in_flight > 0 => say(true, Reason::Provisioning, "the provider is making nodes"),
        None => say(true, Reason::Provisioned, "the provider owes no node"),
    }
}
