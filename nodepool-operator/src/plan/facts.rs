//! The counts of what a pass found and decided.

use shared_crds::NodePool;

use super::membership::{Member, Readiness};
use super::numbers::number;
use super::supply::Trouble;
use super::template::{Blueprint, Invalid};
use super::{Applied, Fate, NodeStep, Observed, PodName};

/// What a pass found and decided, as far as the status reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
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
    /// Number of requests without a Node.
    pub in_flight: usize,
    /// Names of nodes that cannot be read. They are in no other count.
    pub unreadable: Vec<String>,
    /// Whether the pool is being deleted.
    pub deleting: bool,
    /// Why the spec cannot be acted on; `None` when it is valid.
    pub invalid: Option<String>,
    /// Why nodes are not being made; `None` without a failure.
    pub trouble: Option<Trouble>,
    /// A node and a pod on it that has exceeded its grace period.
    pub overdue: Option<(String, PodName)>,
    /// The nodes that are counted as planned, which a failed write may prevent.
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

/// Requests without a Node, if the plan is carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    /// All of them.
    pub(super) all: usize,
    /// Those that are new in this plan.
    pub(super) new: usize,
}

/// The number of nodes `pool` should have now. `present` nodes exist or are requested.
pub(crate) fn wanted(pool: &NodePool, present: usize) -> usize {
    if pool.metadata.deletion_timestamp.is_some() {
        return 0;
    }
    usize::try_from(pool.spec.replicas_or(number(present))).unwrap_or_default()
}

impl Facts {
    /// Counts nodes and requests. `wanted` is how many nodes the pool should have; `members` and `nodes` are the same
    /// nodes in the same order.
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

    /// The facts after `applied`: of the plan only acknowledged writes count, so that the next pass finds what this one
    /// reported.
    #[must_use]
    pub(crate) fn after(mut self, applied: &Applied, trouble: Option<Trouble>) -> Self {
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

    /// Counts a node in its previous state when its planned change was not carried out.
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
    pub(crate) const fn settled(&self) -> bool {
        self.ready == self.wanted && self.staying == self.wanted
    }

    /// Whether nodes have to be made. Nodes that cannot be read count as existing.
    pub(super) const fn too_few(&self) -> bool {
        self.staying + self.unreadable.len() < self.wanted
    }

    pub(super) fn counts(&self) -> String {
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
