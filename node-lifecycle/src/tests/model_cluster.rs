//! A small model of nodes, machines and pods, on which plans are carried out: for the random histories of
//! `invariant_tests`.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeSpec, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use shared_crds::protection::DO_NOT_DISRUPT;
use shared_crds::v1alpha1::{DisruptionBudget, DisruptionEffect, RepairSpec};
use shared_crds::{NodePool, names};

use super::*;
use crate::assess::node_states::NodeReadiness;
use crate::input::observed_time::{ConditionTimes, MachineTimes, NodeTimes};
use crate::input::ready::is_ready;
use crate::input::supply::{KnownAs, Machine, MachineState, NodeSource, ProvisioningFailure};
use crate::testing::writes::patched;
use crate::testing::{ALWAYS, always, at, cluster, key, pod, pool, set_ready, shared, supply};

/// How long a machine takes, in seconds.
pub(super) const DELAY: i64 = 3;

/// The provider ID of a machine that registers itself.
pub(super) fn provider_id(machine: &str) -> String {
    format!("x://{machine}")
}

/// What a pass may change.
type State = (
    NodePool,
    BTreeMap<String, Node>,
    BTreeMap<String, Vec<Pod>>,
    BTreeMap<String, Timestamp>,
    BTreeMap<String, String>,
    BTreeSet<String>,
);

/// The part of a cluster that matters here.
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the cluster")]
pub(super) struct ModelCluster {
    pub(super) pool: NodePool,
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) pods: BTreeMap<String, Vec<Pod>>,
    pub(super) machines: BTreeMap<String, Timestamp>,
    /// Machines outlive the operator's process and register their Nodes themselves.
    pub(super) registers_itself: bool,
    pub(super) budget_blocks: bool,
    /// The provider's last failure.
    pub(super) failure: Option<ProvisioningFailure>,
    /// Nodes that are not Ready again by themselves.
    pub(super) broken: BTreeSet<String>,
    /// Nodes to which a volume is attached.
    pub(super) attached: BTreeSet<String>,
    /// Why nodes that had run pods were chosen to leave, by UID: kept apart from what the operator writes on them.
    pub(super) chosen: BTreeMap<String, DisruptionReason>,
    /// Nodes whose pods were found to ask to be left alone, and why: the operator's memory.
    pub(super) found: BTreeMap<String, String>,
    /// Nodes whose pods were found not to: the same memory.
    pub(super) free: BTreeSet<String>,
    /// Nodes whose machine is not listed any more while they are not Ready, and since when.
    pub(super) lost: BTreeMap<String, i64>,
    /// The provider's list fails.
    pub(super) is_unlisted: bool,
    /// Until when a machine may come whose creation was not answered.
    pub(super) uncertain_until: Option<i64>,
    /// Why the provider lets no machine go.
    pub(super) removals_wait: bool,
    /// No pods can be listed.
    pub(super) pods_unread: bool,
    /// Machines that are deleted while they have no Node are still listed.
    pub(super) lists_withdrawn: bool,
    /// The pool is gone, and its nodes are left.
    pub(super) is_gone: bool,
    pub(super) second: i64,
    pub(super) uids: u32,
}

impl ModelCluster {
    pub(super) fn new(registers_itself: bool) -> Self {
        Self {
            registers_itself,
            pool: pool(0),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            machines: BTreeMap::new(),
            budget_blocks: false,
            failure: None,
            broken: BTreeSet::new(),
            attached: BTreeSet::new(),
            chosen: BTreeMap::new(),
            found: BTreeMap::new(),
            free: BTreeSet::new(),
            lost: BTreeMap::new(),
            is_unlisted: false,
            uncertain_until: None,
            removals_wait: false,
            pods_unread: false,
            lists_withdrawn: false,
            is_gone: false,
            second: 1000,
            uids: 0,
        }
    }

    pub(super) fn observe(&self) -> Observed {
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
            template_hash: None,
            is_outdated: false,
            known_as: KnownAs::default(),
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
            cluster: cluster(),
            key: key(),
            pool: (!self.is_gone).then(|| Arc::new(self.pool.clone())),
            is_orphaned: false,
            just_ended: None,
            times: self.times(&nodes),
            nodes,
            unreadable: BTreeSet::new(),
            registered: others.into_iter().filter(is_awaited).collect(),
            lookalikes: vec![],
            may_be_hidden: false,
            recent: ObservedPods::default(),
            protected: self.found.clone(),
            stale: BTreeSet::new(),
            failed_lists: vec![],
            unprotected: self.free.clone(),
            cluster_readiness: ClusterReadiness::of(self.members()),
            condition_times: self.condition_times(),
            supply: Supply {
                source,
                machines: self.machines.iter().filter(|_| !self.is_unlisted).map(machine).collect(),
                is_unknown: self.is_unlisted,
                removals_wait: self.removals_wait.then(|| "machines are being replaced".to_owned()),
                // A list that succeeds ends what was uncertain.
                uncertain_until: self
                    .uncertain_until
                    .map(at)
                    .filter(|until| self.is_unlisted || *until > now),
                failure: self.failure.clone(),
                ..supply()
            },
            now,
            machine_times: MachineTimes::default(),
            template_time: SignedDuration::ZERO,
        }
    }

    /// The measurements of a process that has run from the start.
    fn times(&self, nodes: &[Arc<Node>]) -> NodeTimes {
        let mut times = always(nodes);
        for node in nodes.iter().filter(|node| !is_ready(node)) {
            let since = node.metadata.name.as_ref().and_then(|name| self.lost.get(name));
            let time = node.metadata.uid.as_ref().and_then(|uid| times.0.get_mut(uid));
            if let (Some(since), Some(time)) = (since, time) {
                time.lost = Some(SignedDuration::from_secs(self.second - since));
            }
        }
        times
    }

    /// Sets the clock back. What is in the objects stays as it was written; what the process or a provider measures goes on.
    pub(super) fn set_back(&mut self, seconds: i64) {
        self.second -= seconds;
        for due in self.machines.values_mut() {
            *due = at(due.as_second() - seconds);
        }
        for since in self.lost.values_mut() {
            *since -= seconds;
        }
        self.uncertain_until = self.uncertain_until.map(|until| until - seconds);
    }

    /// Everything that a pass may change.
    pub(super) fn state(&self) -> State {
        let Self { pool, nodes, pods, machines, found, free, .. } = self.clone();
        (pool, nodes, pods, machines, found, free)
    }

    /// Every condition has lasted for ever.
    fn condition_times(&self) -> ConditionTimes {
        let of_all = RepairSpec::default().conditions;
        let times = || of_all.iter().map(|it| (health::key(it), SignedDuration::MAX)).collect();
        ConditionTimes(
            self.nodes.values().filter_map(|node| Some((node.metadata.uid.clone()?, times()))).collect(),
        )
    }

    /// The plan of a pass that reads all the pods it asks for.
    pub(super) fn plan(&self) -> Plan {
        self.plan_from(&self.observe())
    }

    pub(super) fn plan_from(&self, observed: &Observed) -> Plan {
        let classified = classify(observed);
        let PodReads { draining, undecided, unverified, .. } = &classified.reads;
        let is_incomplete = self.pods_unread;
        let by_node = (draining.iter().chain(undecided).chain(unverified))
            .filter(|_| !is_incomplete)
            .map(|node| (node.clone(), shared(self.pods.get(node).cloned().unwrap_or_default())))
            .collect();
        let mut pods = ObservedPods { by_node, is_incomplete, ..ObservedPods::default() };
        let of_node = |node: String| self.attached.contains(&node).then(|| (node, vec!["volume".to_owned()]));
        // Others are not listed, and none of them may be removed for that.
        let emptied = classified.emptied(observed, &pods);
        pods.attached.by_node =
            (!emptied.is_empty()).then(|| emptied.into_iter().filter_map(of_node).collect());
        plan(observed, classified, &pods)
    }

    pub(super) fn staying(&self) -> usize {
        let now = at(self.second);
        self.members().filter(|node| Member::read(&Arc::new((*node).clone()), now, ALWAYS).stays()).count()
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values().filter(|node| PoolKey::of_node(node).is_some())
    }

    pub(super) fn has_member(&self, machine: &str) -> bool {
        self.members().any(|node| names::machine_of(&node.metadata) == Some(machine))
    }

    /// What kubelets do: each running machine has a Node, and makes it again when it is gone.
    pub(super) fn register(&mut self) {
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

    /// Gives the template so many cpus, and this value of a label.
    pub(super) fn change_template(&mut self, cpus: u8, label: u8) {
        let template = &mut self.pool.spec.template;
        template.spec.capacity.insert("cpu".to_owned(), Quantity(cpus.to_string()));
        let labels = &mut template.metadata.get_or_insert_default().labels;
        labels.insert("example.com/label".to_owned(), label.to_string());
    }

    /// Number of nodes that are Ready and not leaving.
    pub(super) fn ready(&self) -> usize {
        let now = at(self.second);
        let members = self.members().map(|node| Member::read(&Arc::new(node.clone()), now, ALWAYS));
        members.filter(|member| member.stays() && member.readiness == NodeReadiness::Ready).count()
    }

    /// Nodes and machines, without those that another client ends.
    pub(super) fn all(&self) -> usize {
        let now = at(self.second);
        let members = self.members().map(|node| Member::read(&Arc::new(node.clone()), now, ALWAYS));
        let is_drained =
            |member: &Member| member.cause.reason().is_some_and(|cause| cause != DisruptionReason::Repair);
        let counted = members.filter(|member| member.stays() || is_drained(member)).count();
        counted + self.machines.keys().filter(|name| !self.has_member(name)).count()
    }

    /// The reasons of the chosen nodes that have not gone yet and have not been given back.
    pub(super) fn disrupted(&self) -> Vec<DisruptionReason> {
        let now = at(self.second);
        let members = self.members().map(|node| Member::read(&Arc::new(node.clone()), now, ALWAYS));
        let leaving = members.filter(|member| !member.stays());
        leaving.filter_map(|member| self.chosen.get(member.node.metadata.uid.as_ref()?).copied()).collect()
    }

    /// Bounds how many nodes are disrupted at a time for the reasons of each bit set.
    pub(super) fn limit(&mut self, limits: &[(i32, u8)]) {
        let budget = |(nodes, reasons): &(i32, u8)| DisruptionBudget {
            nodes: IntOrString::Int(*nodes),
            reasons: (0..)
                .zip(DisruptionReason::ALL)
                .filter(|(bit, _)| reasons >> bit & 1 == 1)
                .map(|(_, it)| it)
                .collect(),
            effect: DisruptionEffect::Limit,
            schedule: None,
            time_zone: None,
            duration_seconds: None,
        };
        self.pool.spec.disruption.get_or_insert_default().budgets = limits.iter().map(budget).collect();
    }

    /// Lets every node be Ready that was created so many seconds ago and is not broken.
    pub(super) fn become_ready(&mut self, after: i64) {
        let now = at(self.second - after);
        for (name, node) in &mut self.nodes {
            let is_old = node.metadata.creation_timestamp.as_ref().is_some_and(|created| created.0 <= now);
            if is_old && !self.broken.contains(name) {
                set_ready(node, "True");
            }
        }
    }

    pub(super) fn wanted(&self) -> usize {
        usize::try_from(self.pool.spec.effective_replicas()).unwrap()
    }

    pub(super) fn promised(&self) -> usize {
        self.staying() + self.machines.keys().filter(|name| !self.has_member(name)).count()
    }

    pub(super) fn create(&mut self, mut node: Node) {
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

    /// Whether the node, and its pods, ask to be left alone.
    pub(super) fn protect(&mut self, name: &str, node: bool, pods: bool) {
        let set = |metadata: &mut ObjectMeta, asks: bool| {
            let annotations = metadata.annotations.get_or_insert_default();
            annotations.remove(DO_NOT_DISRUPT);
            annotations.extend(asks.then(|| (DO_NOT_DISRUPT.to_owned(), "true".to_owned())));
        };
        if let Some(found) = self.nodes.get_mut(name) {
            set(&mut found.metadata, node);
        }
        for pod in self.pods.get_mut(name).into_iter().flatten() {
            set(&mut pod.metadata, pods);
        }
    }

    pub(super) fn delete(&mut self, name: &str, seen: &Node) {
        let now = at(self.second);
        if let Some(node) = self.nodes.get_mut(name).filter(|node| node.metadata.uid == seen.metadata.uid) {
            node.metadata.deletion_timestamp.get_or_insert(Time(now));
        }
        self.sweep();
    }

    /// Applies a patch as the API server does: a failed test changes nothing.
    pub(super) fn patch(&mut self, name: &str, patch: &Value) {
        if let Some(node) = self.nodes.get(name).and_then(|node| patched(node, patch)) {
            self.nodes.insert(name.to_owned(), node);
        }
        self.sweep();
    }

    /// The API server's part: a deleted object is removed with its last finalizer.
    pub(super) fn sweep(&mut self) {
        self.nodes.retain(|_, node| {
            let has_finalizer = node.metadata.finalizers.iter().flatten().next().is_some();
            has_finalizer || node.metadata.deletion_timestamp.is_none()
        });
    }
}
