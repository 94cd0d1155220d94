//! Checks what became of a pool, its nodes and their pods against what the pool and the budgets of the pods allow, from the
//! audit log alone: nothing that an operator reports is believed. Pure: events in, findings out.
//!
//! Four rules, each held against every write that could break it. A bound is what the spec says at the time of the write, or
//! said so short a time before it that an operator may not have known.

mod budgets;
mod nodes;
mod order;
mod pods;
mod pool;
mod report;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use shared_crds::v1alpha1::NodePoolSpec;

use self::budgets::Budgets;
use self::nodes::{NodeChange, NodeState, PoolNodes};
use self::pods::{AppPods, Ending, PodChange};
use self::pool::{CLOCKS, Wishes};
use crate::audit::{Event, ObjectKey};

pub use self::pods::Allowance;

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// No node is made above the nodes wanted and, in a rollout, the surge.
    NeverAbove,
    /// No node that is used is taken away below the nodes wanted less, in a rollout, those that may be missing.
    NeverBelow,
    /// No pod is ended that its budgets keep, or by a writer that may not.
    Budgets,
    /// No Node goes while there is a pod on it, but for one that should have ended long ago.
    NodesEmpty,
}

/// A write that broke a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Invariant,
    /// When the write was answered.
    pub at: Timestamp,
    /// What was written, and what was allowed.
    pub what: String,
}

/// The pool after a write of a node or of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    /// When.
    pub at: Timestamp,
    /// Nodes that exist.
    pub all: usize,
    /// Those that are Ready and whose removal has not begun.
    pub usable: usize,
    /// Those with a kubelet that are not Ready, and whose removal has not begun.
    pub starting: usize,
    /// Those with a kubelet whose removal has begun.
    pub leaving: usize,
    /// Those without a kubelet.
    pub dead: usize,
    /// Those from the pool's template.
    pub current: usize,
    /// Some node is from another template.
    pub rolls: bool,
    /// Nodes wanted.
    pub wanted: usize,
    /// The most there may be.
    pub most: usize,
    /// The least that there should be to use.
    pub least: usize,
}

impl PoolSize {
    /// The nodes in no other state: with a kubelet, Ready, and not about to go.
    pub fn in_use(&self) -> usize {
        self.all.saturating_sub(self.starting + self.leaving + self.dead)
    }

    #[cfg(test)]
    pub(super) const EMPTY: Self = Self {
        at: Timestamp::UNIX_EPOCH,
        all: 0,
        usable: 0,
        starting: 0,
        leaving: 0,
        dead: 0,
        current: 0,
        rolls: false,
        wanted: 0,
        most: 0,
        least: 0,
    };
}

/// What a log shows.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The writes that broke a rule, in order.
    pub violations: Vec<Violation>,
    /// How many writes were held against each rule.
    pub checked: BTreeMap<Invariant, usize>,
    /// How many pods that were somewhere were ended, by what allowed it.
    pub endings: BTreeMap<Allowance, usize>,
    /// Pods whose end nobody had confirmed long after they were asked to end, when their node went.
    pub overdue: usize,
    /// Evictions that the API server refused because of a budget.
    pub refused: usize,
    /// Writes that were read.
    pub writes: usize,
    /// The pool over time.
    pub sizes: Vec<PoolSize>,
    /// When the template of the pool was last changed.
    pub template_changed: Option<Timestamp>,
}

/// Reads the log from the pool's creation on, and holds it against the rules. The pods are those of the pool's namespace.
pub fn check(events: &[Event], pool: &ObjectKey) -> Findings {
    let granted = order::of_effects(events);
    let in_namespace = |event: &&&Event| of_pods(event, &pool.namespace);
    let of_pods: Vec<&Event> = granted.iter().filter(in_namespace).copied().collect();
    let refused = events.iter().filter(|event| event.subresource == "eviction" && event.code == 429);
    let mut checker = Checker {
        pool,
        wishes: Wishes::default(),
        nodes: PoolNodes::of(pool),
        pods: AppPods::with_evictions(&of_pods),
        budgets: Budgets::default(),
        template: None,
        findings: Findings { refused: refused.count(), writes: granted.len(), ..Findings::default() },
    };
    for event in granted {
        checker.read(event);
    }
    checker.findings
}

fn of_pods(event: &Event, namespace: &str) -> bool {
    let object = event.object.as_ref();
    object.is_some_and(|object| object.resource == "pods" && object.namespace == namespace)
}

struct Checker<'a> {
    pool: &'a ObjectKey,
    wishes: Wishes,
    nodes: PoolNodes,
    pods: AppPods,
    budgets: Budgets,
    template: Option<Value>,
    findings: Findings,
}

impl Checker<'_> {
    fn read(&mut self, event: &Event) {
        let Some(object) = &event.object else { return };
        let is_ours = object.namespace == self.pool.namespace;
        match object.resource.as_str() {
            "nodepools" if object == self.pool => {
                self.wishes.read(event);
                self.template(event);
                self.size(event.completed);
            }
            "nodes" => {
                if let Some(change) = self.nodes.read(event) {
                    self.node(&object.name, &change, event);
                    self.size(event.completed);
                }
            }
            "pods" if is_ours => {
                if let Some(change) = self.pods.read(event) {
                    self.pod(&change, event.completed);
                }
            }
            "poddisruptionbudgets" if is_ours && event.subresource.is_empty() => {
                self.budgets.read_budget(event);
            }
            "deployments" if is_ours && event.subresource.is_empty() => self.budgets.read_deployment(event),
            _ => {}
        }
    }

    fn template(&mut self, event: &Event) {
        let spec = event.response.as_ref().and_then(|answer| answer.get("spec"));
        let Some((spec, template)) = spec.and_then(|spec| Some((spec, spec.get("template")?))) else {
            return;
        };
        // A change of what a live node can get as well begins no rollout.
        let read = serde_json::from_value::<NodePoolSpec>(spec.clone());
        if let Some(hash) = read.ok().and_then(|spec| spec.template_hash()) {
            self.nodes.want(hash);
        }
        if self.template.as_ref().is_some_and(|before| before != template) {
            self.findings.template_changed = Some(event.completed);
        }
        self.template = Some(template.clone());
    }

    fn size(&mut self, at: Timestamp) {
        let Some(wish) = self.wishes.now() else { return };
        let rolls = self.nodes.roll();
        let size = PoolSize {
            at,
            all: self.nodes.all(),
            usable: self.nodes.usable(),
            starting: self.nodes.starting(),
            leaving: self.nodes.leaving(),
            dead: self.nodes.dead(),
            current: self.nodes.current(),
            rolls,
            wanted: wish.wanted,
            most: wish.most(rolls),
            least: wish.least(rolls),
        };
        if self.findings.sizes.last().is_none_or(|last| PoolSize { at, ..*last } != size) {
            self.findings.sizes.push(size);
        }
    }

    fn node(&mut self, name: &str, change: &NodeChange, event: &Event) {
        let (at, rolls) = (event.completed, self.nodes.roll());
        match change {
            NodeChange::Created => {
                let most = self.wishes.acted_on(at).map(|wish| wish.most(rolls)).max().unwrap_or(0);
                let count = self.nodes.counted(rolls);
                let what = || format!("{name} was made: {count} nodes count, {most} may");
                self.hold(Invariant::NeverAbove, count <= most, at, what);
            }
            NodeChange::Taken => {
                let least = self.wishes.acted_on(at).map(|wish| wish.least(rolls)).min().unwrap_or(0);
                let count = self.nodes.relied_on(rolls, at);
                let user = &event.user;
                let what = || format!("{name} was taken by {user}: {count} nodes are left of {least}");
                self.hold(Invariant::NeverBelow, count >= least, at, what);
            }
            NodeChange::Gone => {
                let (late, left): (Vec<_>, Vec<_>) = self.pods.on(name, at).partition(|(_, late)| *late);
                let left: Vec<&str> = left.into_iter().map(|(pod, _)| pod).collect();
                self.findings.overdue += late.len();
                let what = format!("{name} is gone, and on it were {left:?}");
                self.hold(Invariant::NodesEmpty, left.is_empty(), at, || what);
            }
            NodeChange::Other => {}
        }
    }

    fn pod(&mut self, change: &PodChange, at: Timestamp) {
        let PodChange { name, before, ending, bound } = change;
        let node = before.node.as_deref().and_then(|node| self.nodes.get(node)).cloned();
        if *bound {
            let what = || format!("{name} was put on {:?}, which is gone", before.node);
            self.hold(Invariant::NodesEmpty, node.is_some(), at, what);
        }
        // A pod that is nowhere has not begun.
        let (Some(ending), Some(place)) = (ending, &before.node) else { return };
        let allowed = self.allowance(change, ending, node.as_ref(), at);
        if let Ok(allowance) = allowed {
            *self.findings.endings.entry(allowance).or_default() += 1;
        }
        let what = || format!("{name} on {place} {}", allowed.as_ref().err().map_or("", String::as_str));
        self.hold(Invariant::Budgets, allowed.is_ok(), at, what);
    }

    /// What allows the end of a pod.
    fn allowance(
        &self,
        change: &PodChange,
        ending: &Ending,
        node: Option<&NodeState>,
        at: Timestamp,
    ) -> Result<Allowance, String> {
        let pod = &change.before;
        let user = match ending {
            Ending::Evicted => return self.within_budgets(change, at).map(|()| Allowance::Eviction),
            Ending::Deleted(user) => user,
        };
        let is_off = node.is_some_and(|node| !node.has_kubelet && !node.is_ready);
        let is_given_up = is_off && node.is_some_and(|node| node.gives_up_pods);
        let too_many =
            self.budgets.wanted(&pod.labels).is_none_or(|wanted| self.pods.staying(&pod.labels) >= wanted);
        let forced = || {
            let started = node.and_then(|node| node.drain_started)?;
            let after = self.wishes.acted_on(at).filter_map(|wish| wish.force_after).min()?;
            Some(at + CLOCKS >= started + SignedDuration::from_secs(after - pod.grace))
        };
        match user.rsplit(':').next().unwrap_or_default() {
            "replicaset-controller" if too_many => Ok(Allowance::Owner),
            // Whichever of them sees first that the machine is off and the Node says so.
            "node-controller"
            | "taint-eviction-controller"
            | "pod-garbage-collector"
            | "tandem-nodepool-operator"
                if is_given_up =>
            {
                Ok(Allowance::MachineOff)
            }
            "node-controller" | "taint-eviction-controller"
                if node.is_some_and(|node| node.is_given_up_by_kubernetes(at)) =>
            {
                Ok(Allowance::Unreachable)
            }
            "tandem-nodepool-operator" if forced() == Some(true) => Ok(Allowance::Forced),
            _ => {
                let is_given_up = node.is_some_and(|node| node.gives_up_pods);
                let since = node.and_then(|node| node.drain_started);
                let since = since.map_or_else(|| "never".to_owned(), |since| since.to_string());
                Err(format!(
                    "was deleted by {user}, and nothing allows that: machine off: {is_off}, given up: {is_given_up}, drained since: {since}"
                ))
            }
        }
    }

    /// Whether every budget of an evicted pod keeps enough others, as the log counts them.
    fn within_budgets(&self, change: &PodChange, at: Timestamp) -> Result<(), String> {
        let pod = &change.before;
        if !pod.is_available() {
            return Ok(());
        }
        for (budget, selector, least) in self.budgets.of(&pod.labels) {
            let left = self.pods.available(selector, at);
            if left < least {
                return Err(format!(
                    "was evicted: {left} pods are left, and the budget {budget} keeps {least}"
                ));
            }
        }
        Ok(())
    }

    fn hold(&mut self, rule: Invariant, holds: bool, at: Timestamp, what: impl FnOnce() -> String) {
        *self.findings.checked.entry(rule).or_default() += 1;
        if !holds {
            self.findings.violations.push(Violation { rule, at, what: what() });
        }
    }
}
