//! Invariants over random histories: the plan is carried out, wholly or in part, on a small model of nodes, machines
//! and pods, with users and crashes as disturbances.

use std::collections::BTreeMap;
use std::sync::Arc;

use json_patch::{Patch, PatchOperation};
use k8s_openapi::api::core::v1::{Node, NodeSpec, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;
use shared_crds::{NodePool, names};

use super::observed_time::MachineTimes;
use super::supply::{Machine, MachineState};
use super::testing::{ALWAYS, always, at, facts_after, key, machine, pod, pool, set_ready, supply};
use super::*;
use crate::outcome::Applied;

/// How long a machine takes, in seconds.
const DELAY: i64 = 3;

/// The provider ID of a machine that registers itself.
fn provider_id(machine: &str) -> String {
    format!("x://{machine}")
}

/// The part of a cluster that matters here.
struct ModelCluster {
    pool: NodePool,
    nodes: BTreeMap<String, Node>,
    pods: BTreeMap<String, Vec<Pod>>,
    machines: BTreeMap<String, Timestamp>,
    /// Machines outlive the operator's process and register their Nodes themselves.
    registers_itself: bool,
    budget_blocks: bool,
    second: i64,
    uids: u32,
}

impl ModelCluster {
    fn new(registers_itself: bool) -> Self {
        Self {
            registers_itself,
            pool: pool(0),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            machines: BTreeMap::new(),
            budget_blocks: false,
            second: 1000,
            uids: 0,
        }
    }

    fn observe(&self) -> Observed {
        let now = at(self.second);
        let machine = |(name, due): (&String, &Timestamp)| Machine {
            name: name.clone(),
            state: if *due <= now {
                MachineState::Running
            } else {
                MachineState::Starting { until: Some(*due) }
            },
            provider_id: self.registers_itself.then(|| provider_id(name)),
            is_marked: false,
        };
        let all = self.nodes.values().cloned().map(Arc::new);
        let (nodes, others): (Vec<_>, Vec<_>) = all.partition(|node| PoolKey::of_node(node).is_some());
        let is_awaited = |node: &Arc<Node>| {
            self.machines
                .keys()
                .any(|name| node.spec.as_ref().unwrap().provider_id == Some(provider_id(name)))
        };
        let source = if self.registers_itself { Ok(NodeSource::Kubelet) } else { supply().source };
        Observed {
            key: key(),
            pool: Some(Arc::new(self.pool.clone())),
            times: always(&nodes),
            nodes,
            unreadable: BTreeSet::new(),
            registered: others.into_iter().filter(is_awaited).collect(),
            may_be_hidden: false,
            recent: ObservedPods::default(),
            supply: Supply { source, machines: self.machines.iter().map(machine).collect(), ..supply() },
            now,
            machine_times: MachineTimes::default(),
        }
    }

    /// The plan of a pass that reads all the pods it asks for.
    fn plan(&self) -> Plan {
        self.plan_from(&self.observe())
    }

    fn plan_from(&self, observed: &Observed) -> Plan {
        let classified = classify(observed);
        let PodReads { recent: _, draining, undecided, unverified } = &classified.reads;
        let by_node = (draining.iter().chain(undecided).chain(unverified))
            .map(|node| (node.clone(), self.pods.get(node).cloned().unwrap_or_default()))
            .collect();
        plan(observed, classified, &ObservedPods { by_node, ..ObservedPods::default() })
    }

    fn staying(&self) -> usize {
        let now = at(self.second);
        self.members().filter(|node| Member::read(&Arc::new((*node).clone()), now, ALWAYS).stays()).count()
    }

    fn members(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values().filter(|node| PoolKey::of_node(node).is_some())
    }

    fn has_member(&self, machine: &str) -> bool {
        self.members().any(|node| names::machine_of(&node.metadata) == Some(machine))
    }

    /// What kubelets do: each running machine has a Node, and makes it again when it is gone.
    fn register(&mut self) {
        let now = at(self.second);
        let due = self.machines.iter().filter(|(_, due)| self.registers_itself && **due <= now);
        let ids: Vec<_> = due.map(|(name, _)| provider_id(name)).collect();
        for id in ids {
            if self.nodes.values().all(|node| node.spec.as_ref().unwrap().provider_id.as_ref() != Some(&id)) {
                let mut node = Node::default();
                node.metadata.name = Some(format!("host-{}", self.uids));
                node.spec = Some(NodeSpec { provider_id: Some(id), ..NodeSpec::default() });
                self.create(node);
            }
        }
    }

    fn wanted(&self) -> usize {
        usize::try_from(self.pool.spec.effective_replicas()).unwrap()
    }

    fn promised(&self) -> usize {
        self.staying() + self.machines.keys().filter(|name| !self.has_member(name)).count()
    }

    /// Carries out the first `budget` writes of `plan`, like an operator that is killed after them.
    fn apply(&mut self, plan: &Plan, mut budget: usize) -> Applied {
        let mut applied = Applied::default();
        for step in &plan.join {
            let name = step.node.metadata.name.clone().unwrap();
            self.patch(&name, &step.patch);
            applied.joined.push(name);
        }
        let (removals, others): (Vec<_>, Vec<_>) =
            plan.nodes.iter().partition(|step| step.action.removes_replica());
        for step in removals.into_iter().chain(others) {
            if budget == 0 {
                return applied;
            }
            budget -= usize::from(step.action != NodeAction::Keep);
            self.carry_out(step);
            let acknowledged = match step.action {
                NodeAction::Cordon => &mut applied.cordoned,
                NodeAction::Uncordon => &mut applied.uncordoned,
                NodeAction::Replace => &mut applied.replaced,
                NodeAction::ReplaceLost => &mut applied.lost,
                NodeAction::Remove => &mut applied.removed,
                NodeAction::Keep
                | NodeAction::Wait
                | NodeAction::Adopt
                | NodeAction::MarkReady
                | NodeAction::Drain { .. } => continue,
            };
            acknowledged.push(step.member.name().to_owned());
        }
        for node in plan.register.iter().take(budget) {
            self.create(node.clone());
            applied.created.extend(node.metadata.name.clone());
        }
        for name in &plan.withdraw {
            self.machines.remove(name);
        }
        applied.withdrawn = plan.withdraw.len();
        // Nodes that never started are a failure of the provider.
        if applied.replaced.is_empty() {
            for name in &plan.request {
                self.machines.entry(name.clone()).or_insert(at(self.second + DELAY));
            }
            applied.requested = plan.request.len();
        }
        applied
    }

    fn create(&mut self, mut node: Node) {
        let name = node.metadata.name.clone().unwrap();
        if self.nodes.contains_key(&name) {
            return;
        }
        self.uids += 1;
        node.metadata.uid = Some(format!("uid-{}", self.uids));
        node.metadata.creation_timestamp = Some(Time(at(self.second)));
        self.pods.insert(name.clone(), vec![pod(&format!("pod-{}", self.uids))]);
        self.nodes.insert(name, node);
    }

    fn carry_out(&mut self, step: &NodeStep) {
        let now = at(self.second);
        let name = step.member.name().to_owned();
        match &step.action {
            NodeAction::Keep | NodeAction::Wait => {}
            NodeAction::Adopt => self.patch(&name, &patches::add_node_finalizer(&step.member.node)),
            NodeAction::MarkReady => self.patch(&name, &patches::mark_ready(&step.member.node, now)),
            NodeAction::Uncordon => self.patch(&name, &patches::uncordon(&step.member.node)),
            NodeAction::Cordon => self.patch(&name, &patches::cordon(&step.member.node, now)),
            NodeAction::Drain { evict, delete, .. } => {
                let goes = |pod: &Pod| delete.contains(pod) || (evict.contains(pod) && !self.budget_blocks);
                self.pods.entry(name).or_default().retain(|pod| !goes(pod));
            }
            NodeAction::Replace | NodeAction::ReplaceLost => self.delete(&name, &step.member.node),
            NodeAction::Remove => {
                self.delete(&name, &step.member.node);
                self.machines.remove(names::machine_of(&step.member.node.metadata).unwrap());
                if let Some(patch) = patches::remove_node_finalizer(&step.member.node) {
                    self.patch(&name, &patch);
                }
            }
        }
    }

    fn delete(&mut self, name: &str, seen: &Node) {
        let now = at(self.second);
        if let Some(node) = self.nodes.get_mut(name).filter(|node| node.metadata.uid == seen.metadata.uid) {
            node.metadata.deletion_timestamp.get_or_insert(Time(now));
        }
        self.sweep();
    }

    /// Applies a patch as the API server does: `test` with `null` holds where the field is absent, and a failed test
    /// changes nothing.
    fn patch(&mut self, name: &str, patch: &Value) {
        let patch: Patch = serde_json::from_value(patch.clone()).unwrap();
        let Some(node) = self.nodes.get(name) else { return };
        let mut json = serde_json::to_value(node).unwrap();
        let mut rest = Vec::new();
        for operation in &patch.0 {
            match operation {
                PatchOperation::Test(test) if test.value.is_null() => {
                    if json.pointer(test.path.as_str()).is_some_and(|value| !value.is_null()) {
                        return;
                    }
                }
                other => rest.push(other.clone()),
            }
        }
        if json_patch::patch(&mut json, &rest).is_ok() {
            let mut node: Node = serde_json::from_value(json).unwrap();
            // The API server leaves `false` out when it writes JSON.
            if let Some(spec) = node.spec.as_mut().filter(|spec| spec.unschedulable == Some(false)) {
                spec.unschedulable = None;
            }
            self.nodes.insert(name.to_owned(), node);
        }
        self.sweep();
    }

    /// The API server's part: a deleted object is removed with its last finalizer.
    fn sweep(&mut self) {
        self.nodes.retain(|_, node| {
            let has_finalizer = node.metadata.finalizers.iter().flatten().next().is_some();
            has_finalizer || node.metadata.deletion_timestamp.is_none()
        });
    }
}

/// What happens between passes, and how far a pass gets.
#[derive(Clone, Debug)]
enum Disturbance {
    Scale(i32),
    DeleteNode(usize),
    BecomeReady(usize),
    Break(usize),
    RemoveFinalizer(usize),
    Budget(bool),
    Pause(bool),
    Time(i64),
    /// The kubelets of new machines register their Nodes.
    Register,
    /// A pass that is carried out up to this many writes; the operator's memory is lost if it stops early.
    Pass(usize),
}

fn disturbance() -> impl Strategy<Value = Disturbance> {
    prop_oneof![
        2 => (0..12_i32).prop_map(Disturbance::Scale),
        1 => (0..12_usize).prop_map(Disturbance::DeleteNode),
        2 => (0..12_usize).prop_map(Disturbance::BecomeReady),
        1 => (0..12_usize).prop_map(Disturbance::Break),
        1 => (0..12_usize).prop_map(Disturbance::RemoveFinalizer),
        1 => any::<bool>().prop_map(Disturbance::Budget),
        1 => prop::bool::weighted(0.2).prop_map(Disturbance::Pause),
        2 => prop_oneof![0..5_i64, Just(1000)].prop_map(Disturbance::Time),
        2 => Just(Disturbance::Register),
        6 => prop_oneof![Just(usize::MAX), 0..6_usize].prop_map(Disturbance::Pass),
    ]
}

fn disturb(cluster: &mut ModelCluster, disturbance: &Disturbance) {
    let nth = |cluster: &ModelCluster, index: usize| cluster.nodes.keys().nth(index).cloned();
    let status = |cluster: &mut ModelCluster, index: usize, status: &str| {
        if let Some(node) = nth(cluster, index).and_then(|name| cluster.nodes.get_mut(&name)) {
            set_ready(node, status);
        }
    };
    match *disturbance {
        Disturbance::Scale(replicas) => cluster.pool.spec.replicas = Some(replicas),
        Disturbance::DeleteNode(index) => {
            if let Some(node) = nth(cluster, index).and_then(|name| cluster.nodes.get(&name).cloned()) {
                cluster.delete(&node.metadata.name.clone().unwrap(), &node);
            }
        }
        Disturbance::BecomeReady(index) => status(cluster, index, "True"),
        Disturbance::Break(index) => status(cluster, index, "Unknown"),
        Disturbance::RemoveFinalizer(index) => {
            if let Some(node) = nth(cluster, index).and_then(|name| cluster.nodes.get_mut(&name)) {
                node.metadata.finalizers = None;
            }
            cluster.sweep();
        }
        Disturbance::Budget(blocks) => cluster.budget_blocks = blocks,
        Disturbance::Pause(paused) => cluster.pool.spec.paused = paused,
        Disturbance::Time(seconds) => cluster.second += seconds,
        Disturbance::Register => cluster.register(),
        Disturbance::Pass(writes) => {
            let plan = cluster.plan();
            cluster.apply(&plan, writes);
            if writes != usize::MAX && !cluster.registers_itself {
                cluster.machines.clear();
            }
        }
    }
}

/// Runs passes until nothing more is planned. Nodes become Ready as with a machine's kubelet.
fn run_until_idle(cluster: &mut ModelCluster) -> usize {
    for pass in 0..60 {
        cluster.register();
        for node in cluster.nodes.values_mut() {
            set_ready(node, "True");
        }
        let plan = cluster.plan();
        let idle = plan.nodes.iter().all(|step| step.action == NodeAction::Keep)
            && plan.request.is_empty()
            && plan.withdraw.is_empty()
            && plan.register.is_empty()
            && plan.join.is_empty()
            && cluster.observe().in_flight().next().is_none()
            && (cluster.registers_itself
                || Applied::default().next_visit(&plan, at(cluster.second)).is_none());
        if idle {
            return pass;
        }
        cluster.apply(&plan, usize::MAX);
        cluster.second += 2;
    }
    60
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_pass_leads_to_more_nodes_than_are_wanted(history in vec(disturbance(), 1..40), registers_itself in any::<bool>()) {
        let mut cluster = ModelCluster::new(registers_itself);
        for disturbance in &history {
            let before = cluster.promised();
            disturb(&mut cluster, disturbance);
            if let Disturbance::Pass(_) = disturbance {
                let wanted = cluster.wanted();
                let after = cluster.promised();
                prop_assert!(after <= wanted.max(before), "{after} promised, {wanted} wanted, {before} before");
            }
        }
    }

    #[test]
    fn every_node_has_exactly_one_action(history in vec(disturbance(), 1..40), registers_itself in any::<bool>()) {
        let mut cluster = ModelCluster::new(registers_itself);
        for disturbance in &history {
            disturb(&mut cluster, disturbance);
            let plan = cluster.plan();
            let planned: Vec<_> = plan.nodes.iter().map(|step| step.member.name().to_owned()).collect();
            let existing: Vec<_> = cluster.members().map(|node| node.metadata.name.clone().unwrap()).collect();
            prop_assert_eq!(planned, existing);
        }
    }

    #[test]
    fn a_pass_counts_what_the_next_one_finds(
        history in vec(disturbance(), 1..40),
        writes in 0..8_usize,
        registers_itself in any::<bool>(),
    ) {
        let mut cluster = ModelCluster::new(registers_itself);
        for disturbance in &history {
            disturb(&mut cluster, disturbance);
            let (observed, plan) = (cluster.observe(), cluster.plan());
            // A node without a finalizer is gone at once when it is deleted, which the pass does not know.
            let lost = plan.nodes.iter().filter(|step| step.action == NodeAction::Replace && !step.member.has_finalizer).count();
            let applied = cluster.apply(&plan, writes);
            let facts = facts_after(&observed, &plan, &applied);
            prop_assert_eq!(facts.staying, facts.ready + facts.starting + facts.not_ready);
            let found = facts_after(&cluster.observe(), &cluster.plan(), &Applied::default());
            prop_assert_eq!(found.staying + found.leaving, cluster.members().count());
            if lost == 0 {
                prop_assert_eq!(facts, found);
            }
        }
    }

    #[test]
    fn from_any_state_the_pool_reaches_what_is_wanted(history in vec(disturbance(), 1..40), registers_itself in any::<bool>()) {
        let mut cluster = ModelCluster::new(registers_itself);
        for disturbance in &history {
            disturb(&mut cluster, disturbance);
        }
        cluster.budget_blocks = false;
        cluster.pool.spec.paused = false;
        prop_assert!(run_until_idle(&mut cluster) < 60, "{:?}", actions_now(&cluster));
        prop_assert_eq!(cluster.nodes.len(), cluster.wanted());
        prop_assert!(!registers_itself || cluster.machines.len() == cluster.wanted(), "{:?}", cluster.machines);
        prop_assert_eq!(cluster.staying(), cluster.wanted());
        for node in cluster.nodes.values() {
            prop_assert_ne!(node.spec.as_ref().unwrap().unschedulable, Some(true));
            prop_assert!(node.metadata.finalizers.iter().flatten().any(|f| f == names::NODE_FINALIZER));
        }
    }

    #[test]
    fn a_burst_that_is_repeated_from_a_stale_cache_creates_no_excess_node(first in 0..8_usize, wanted in 0..8_i32) {
        let mut cluster = ModelCluster::new(false);
        cluster.pool.spec.replicas = Some(wanted);
        let old = cluster.observe();
        for observed in [old.clone(), old] {
            cluster.machines.clear();
            let plan_requests = cluster.plan_from(&observed);
            cluster.apply(&plan_requests, usize::MAX);
            let mut running = observed;
            running.supply.machines = plan_requests
                .request
                .iter()
                .map(|name| machine(name, MachineState::Running))
                .collect();
            let burst = cluster.plan_from(&running);
            cluster.apply(&burst, first);
            cluster.apply(&burst, usize::MAX);
        }
        prop_assert_eq!(cluster.nodes.len(), usize::try_from(wanted).unwrap());
    }
}

fn actions_now(cluster: &ModelCluster) -> Vec<(String, NodeAction)> {
    testing::actions(&cluster.plan())
}
