//! Everything a decision about one pool is made from, as data. Nothing is decided here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::{NodePool, names};

use crate::input::keys::{ClusterId, PoolKey};
use crate::input::observed_time::{ConditionTimes, MachineTimes, NodeTimes, PodTimes};
use crate::input::outage::ClusterReadiness;
use crate::input::supply::{Machine, MachineState, NodeSource, Supply};

/// Interval of the visits of a pool whose pods are listed a few at a time.
const DEFERRED_RETRY: SignedDuration = SignedDuration::from_secs(2);

/// Everything a decision is made from, except the pods that have to be read for it.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The cluster that the pool is in.
    pub cluster: ClusterId,
    /// The pool's key, also when the pool no longer exists.
    pub key: PoolKey,
    /// The pool; `None` when it is gone and only nodes are left.
    pub pool: Option<Arc<NodePool>>,
    /// The pool is gone, and its nodes and machines were to outlive it: see [`OnDelete::Orphan`](crate::on_delete::OnDelete::Orphan).
    pub is_orphaned: bool,
    /// When this process ended the deletion of the pool, which had no node then, if that was a moment ago.
    pub just_ended: Option<Timestamp>,
    /// Every Node that carries the pool's labels.
    pub nodes: Vec<Arc<Node>>,
    /// Names of nodes that seem to belong to the pool and cannot be read. Nothing is done to them, and nothing that
    /// depends on their absence.
    pub unreadable: BTreeSet<String>,
    /// Nodes of no pool that have the provider ID of one of the pool's machines, also of one that was deleted.
    pub registered: Vec<Arc<Node>>,
    /// Nodes of no pool that have a name or an address of one of the pool's machines that lack a Node, and not its provider ID.
    pub lookalikes: Vec<Arc<Node>>,
    /// Some Node of the cluster cannot be read, and it is not known whether it is that of a machine of this pool.
    pub may_be_hidden: bool,
    /// Pods of draining nodes that were listed a moment ago.
    pub recent: ObservedPods,
    /// Nodes that were found protected when their pods were listed last, by name, and why.
    pub protected: BTreeMap<String, String>,
    /// Those of them whose pods were not listed a moment ago, by name. They count as protected until they are listed again.
    pub stale: BTreeSet<String>,
    /// Nodes whose pods could not be listed when there was a choice to make, the last failure last.
    pub failed_lists: Vec<String>,
    /// Nodes on which nothing was found that asks to be left alone when their pods were listed a moment ago, by name.
    pub unprotected: BTreeSet<String>,
    /// What the provider says.
    pub supply: Supply,
    /// How many nodes of all pools are not Ready.
    pub cluster_readiness: ClusterReadiness,
    /// The time of the decision, from the wall clock, which may be adjusted.
    pub now: Timestamp,
    /// For how long this process itself has observed the nodes in their current state.
    pub times: NodeTimes,
    /// For how long this process itself has observed unhealthy nodes in that state.
    pub condition_times: ConditionTimes,
    /// For how long this process itself has observed machines without a Node.
    pub machine_times: MachineTimes,
    /// For how long it has observed the pool's template as it is; zero while no machine lacks a Node.
    pub template_time: SignedDuration,
}

/// Pods of some of the nodes.
#[derive(Clone, Debug, Default)]
pub struct ObservedPods {
    /// Pods by the name of their node. Nodes whose pods were not read are missing.
    pub by_node: BTreeMap<String, Pods>,
    /// For how long this process itself has observed the terminating ones.
    pub times: PodTimes,
    /// The volumes of the nodes without pods.
    pub attached: AttachedVolumes,
    /// The pods of some node could not be listed. That node waits; the pool should be visited again soon.
    pub is_incomplete: bool,
    /// Draining nodes that wait for a place, by name: as many are drained as may be at a time.
    pub waiting: BTreeSet<String>,
    /// Nodes whose pods were not listed because enough lists were made lately. They are listed soon.
    pub deferred: BTreeSet<String>,
}

/// The pods of a node, each cut to what is read of it: shared, because a drain has them in several hands.
pub type Pods = Arc<[Arc<Pod>]>;

/// The volumes that are attached to nodes although no pod there uses them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachedVolumes {
    /// Their names by node, of nodes that no pod keeps any more; a node without such volumes is missing. `None` when they
    /// were not listed.
    pub by_node: Option<BTreeMap<String, Vec<String>>>,
    /// For how long this process itself has observed each of those nodes without pods, by name.
    pub times: BTreeMap<String, SignedDuration>,
}

impl ObservedPods {
    /// The pods of the node; `None` when they were not read.
    pub fn of(&self, node: &str) -> Option<&[Arc<Pod>]> {
        self.by_node.get(node).map(|pods| &**pods)
    }
}

/// The nodes whose pods a plan needs, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodReads {
    /// Draining nodes whose pods were listed recently enough: those in [`Observed::recent`] are used.
    pub recent: BTreeSet<String>,
    /// The other draining nodes.
    pub draining: BTreeSet<String>,
    /// Nodes among which victims are chosen, where listing their pods is cheap enough.
    pub undecided: BTreeSet<String>,
    /// Nodes that would be replaced because they never started, unless a pod on them shows otherwise.
    pub unverified: BTreeSet<String>,
    /// Draining nodes that wait for a place; see [`ObservedPods::waiting`].
    pub waiting: BTreeSet<String>,
    /// Nodes that are listed later; see [`ObservedPods::deferred`].
    pub deferred: BTreeSet<String>,
}

impl ObservedPods {
    /// When those pods can be listed that were not asked for in this pass, or not listed.
    pub fn next_list(&self, now: Timestamp) -> Timestamp {
        if self.deferred.is_empty() { now } else { now.checked_add(DEFERRED_RETRY).unwrap_or(Timestamp::MAX) }
    }
}

/// How long before the end of its pool's deletion a Node may say that it was created: the request is given up after a minute, and clocks
/// differ by seconds.
const LATE_REQUEST: SignedDuration = SignedDuration::from_secs(65);

impl Observed {
    /// Whether the Node was created by a request that was carried out when the deletion of its pool had ended. One that is older was taken
    /// out of the pool before, and is its user's.
    pub fn has_come_late(&self, node: &Node) -> bool {
        let since = self.just_ended.and_then(|ended| ended.checked_sub(LATE_REQUEST).ok());
        let created = node.metadata.creation_timestamp.as_ref();
        let is_new = since.zip(created).is_some_and(|(since, created)| created.0 >= since);
        is_new && node.metadata.deletion_timestamp.is_none()
    }

    /// The names that no new machine may have: those of all nodes and machines of the pool, and of slots that have failed.
    pub fn occupied(&self) -> BTreeSet<&str> {
        let nodes = self.nodes.iter().filter_map(|node| node.metadata.name.as_deref());
        let machines = self.supply.machines.iter().map(|machine| &*machine.name);
        let passed_by = self.supply.taken.iter().chain(&self.supply.passed_over);
        let taken = passed_by.chain(self.supply.foreign.keys()).map(String::as_str);
        self.with_node().into_iter().chain(nodes).chain(machines).chain(taken).collect()
    }

    /// The names of the machines that have a node of the pool, including nodes that cannot be read.
    fn with_node(&self) -> BTreeSet<&str> {
        let readable = self.nodes.iter().filter_map(|node| names::machine_of(&node.metadata));
        readable.chain(self.unreadable.iter().map(String::as_str)).collect()
    }

    /// The machines that are requested and have no Node yet.
    pub fn in_flight(&self) -> impl Iterator<Item = &Machine> {
        let with_node = self.with_node();
        self.supply
            .machines
            .iter()
            .filter(|machine| machine.state != MachineState::Deleting)
            .filter(move |machine| !with_node.contains(&*machine.name) && !self.has_registered(machine))
    }

    /// The machines without a Node that have no live one elsewhere.
    pub fn withdrawable(&self) -> impl Iterator<Item = &Machine> {
        self.in_flight().filter(|machine| !self.may_be_live(machine))
    }

    fn has_registered(&self, machine: &Machine) -> bool {
        self.registered_nodes(machine).next().is_some()
    }

    fn registered_nodes(&self, machine: &Machine) -> impl Iterator<Item = &Arc<Node>> {
        let id = machine.provider_id.clone();
        self.registered.iter().filter(move |node| id.is_some() && provider_id(node) == id.as_deref())
    }

    /// Whether the node's provider lists machines of the pool, and not the one of this node. An empty list is no reason to
    /// conclude anything, and neither is one of machines that the provider names itself and of which none has a Node here: it
    /// may be of another cluster.
    pub fn lists_others_only(&self, node: &Node) -> bool {
        let machine = names::machine_of(&node.metadata);
        let with_node = self.with_node();
        self.supply.source == Ok(NodeSource::Kubelet)
            && !self.supply.is_unknown
            && self.supply.machines.iter().any(|listed| {
                self.supply.size.is_none() || with_node.contains(&*listed.name) || self.has_registered(listed)
            })
            && self.supply.machines.iter().all(|listed| Some(&*listed.name) != machine)
    }

    /// The machines that are being deleted. The operator deletes none whose Node stays, so a Node that stays although its
    /// machine is among them is being deleted by another client.
    pub fn going(&self) -> BTreeSet<&str> {
        let machines = self.supply.machines.iter().filter(|it| it.state == MachineState::Deleting);
        machines.map(|machine| &*machine.name).collect()
    }

    /// The machines of which their provider says that it would make them from something else now, or said so last, by name.
    pub fn outdated_machines(&self) -> BTreeSet<&str> {
        let outdated = self.supply.machines.iter().filter(|machine| machine.is_outdated);
        let before = self.supply.outdated_before.iter().map(String::as_str);
        outdated.map(|machine| &*machine.name).chain(before).collect()
    }

    /// The Nodes that are left of machines that were deleted.
    pub fn left_over(&self) -> impl Iterator<Item = &Arc<Node>> {
        let of_deleted = |id: &str| self.supply.deleted_ids.contains(id);
        self.registered.iter().filter(move |node| provider_id(node).is_some_and(of_deleted))
    }

    /// The machines whose Node has registered and is not a node of the pool yet, with that Node; `None` where more than
    /// one Node claims to be the machine, so that it is not known which one is.
    pub fn joining(&self) -> Vec<(&Machine, Option<&Arc<Node>>)> {
        let with_node = self.with_node();
        let machines = self.supply.machines.iter().filter(|it| it.state != MachineState::Deleting);
        let joining = machines.filter(|machine| !with_node.contains(&*machine.name)).filter_map(|machine| {
            let mut nodes = self.registered_nodes(machine);
            let first = nodes.next()?;
            Some((machine, Some(first).filter(|_| nodes.next().is_none())))
        });
        joining.collect()
    }

    /// The names of the pool's unreadable nodes, without those that are known to be foreign.
    pub fn unread(&self) -> impl Iterator<Item = &str> {
        self.unreadable.difference(&self.supply.taken).map(String::as_str)
    }
}

/// `spec.providerID`.
fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()
}
