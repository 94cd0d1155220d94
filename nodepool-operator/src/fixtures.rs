//! Passes without a cluster, for the tests of what works beside this operator: what a pass over a pool writes, and what it then
//! reports, as data. The plan is the operator's own. Who calls this is the API server, the kubelets and the provider.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use node_lifecycle::facts::Facts;
use node_lifecycle::observed_time::{ConditionTimes, MachineTimes, NodeTime, NodeTimes};
use node_lifecycle::outcome::{Applied, AppliedAction};
use node_lifecycle::supply::{KnownAs, Machine, MachineState, NodeSource};
use node_lifecycle::testing::writes::of_step;
pub use node_lifecycle::testing::writes::{PassWrite, patched};
use node_lifecycle::{
    Classified, ClusterId, ClusterReadiness, NodeStep, Observed, ObservedPods, Plan, PodReads, Pods, PoolKey,
    Supply, classify, plan,
};
use shared_crds::NodePool;
use shared_crds::v1alpha1::{NodePoolStatus, ProvisioningStatus};

use crate::status;

/// What comes before the name of a machine in the provider ID of its Node.
const SCHEME: &str = "kwok://";

/// The provider ID of a machine: by it the operator finds the Node that the machine registers.
pub fn provider_id(machine: &str) -> String {
    format!("{SCHEME}{machine}")
}

/// What a pass over one pool is made from, but the pods.
#[derive(Clone, Copy, Debug)]
pub struct PassFixture<'a> {
    /// The pool, with its finalizer.
    pub pool: &'a NodePool,
    /// Every Node of the cluster.
    pub nodes: &'a [Arc<Node>],
    /// When each machine of the pool runs, by its name.
    pub machines: &'a BTreeMap<String, Timestamp>,
    /// Whether its machines register their Nodes themselves. Otherwise the operator creates them.
    pub registers_itself: bool,
    /// The time of the pass.
    pub now: Timestamp,
}

impl PassFixture<'_> {
    /// What the pass writes, in its order, and the operator's part of the status after it. `pods_on` are the pods of a node, by the
    /// name of the node.
    pub fn run(&self, pods_on: impl Fn(&str) -> Vec<Pod>) -> (Vec<PassWrite>, NodePoolStatus) {
        let observed = self.observed();
        let classified = classify(&observed);
        let pods = read(&classified, pods_on);
        let plan = plan(&observed, classified, &pods);
        let applied = all_of(&plan);
        let facts = Facts::count(&observed, self.pool, &plan, &applied)
            .with_failure(None, ProvisioningStatus::default());
        let reported = status::of_pass(self.pool, self.pool, &facts, &applied, &Time(self.now));
        (writes(&plan, self.now), reported)
    }

    fn observed(&self) -> Observed {
        let key = PoolKey::of_pool(self.pool);
        let ids: BTreeSet<String> = self.machines.keys().map(|machine| provider_id(machine)).collect();
        let is_awaited = |node: &Arc<Node>| {
            let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_ref());
            PoolKey::of_node(node).is_none() && id.is_some_and(|id| ids.contains(id))
        };
        let is_own = |node: &&Arc<Node>| PoolKey::of_node(node).is_some_and(|of| of == key);
        let nodes: Vec<Arc<Node>> = self.nodes.iter().filter(is_own).cloned().collect();
        Observed {
            cluster: ClusterId::from("here"),
            pool: Some(Arc::new(self.pool.clone())),
            is_orphaned: false,
            just_ended: None,
            times: always(&nodes),
            nodes,
            unreadable: BTreeSet::new(),
            registered: self.nodes.iter().filter(|node| is_awaited(node)).cloned().collect(),
            lookalikes: Vec::new(),
            may_be_hidden: false,
            recent: ObservedPods::default(),
            protected: BTreeMap::new(),
            stale: BTreeSet::new(),
            failed_lists: Vec::new(),
            unprotected: BTreeSet::new(),
            cluster_readiness: ClusterReadiness::of(self.nodes.iter().map(|node| &**node)),
            condition_times: ConditionTimes::default(),
            supply: self.supply(),
            now: self.now,
            machine_times: MachineTimes::default(),
            template_time: SignedDuration::ZERO,
            key,
        }
    }

    /// A provider that lists all its machines, and never fails.
    fn supply(&self) -> Supply {
        let machine = |(name, runs): (&String, &Timestamp)| Machine {
            name: name.clone(),
            state: if *runs <= self.now {
                MachineState::Running
            } else {
                MachineState::Starting { until: Some(*runs) }
            },
            provider_id: self.registers_itself.then(|| provider_id(name)),
            is_marked: false,
            template_hash: None,
            is_outdated: false,
            known_as: KnownAs::default(),
        };
        Supply {
            source: Ok(if self.registers_itself {
                NodeSource::Kubelet
            } else {
                NodeSource::Operator { provider_id_prefix: SCHEME }
            }),
            machines: self.machines.iter().map(machine).collect(),
            ..node_lifecycle::testing::supply()
        }
    }
}

/// The measurements of a process that has run from the start, so that the wall clock alone decides.
fn always(nodes: &[Arc<Node>]) -> NodeTimes {
    let time = NodeTime {
        was_ready: false,
        not_ready: SignedDuration::MAX,
        lost: None,
        draining: SignedDuration::MAX,
        given_back: SignedDuration::MAX,
    };
    NodeTimes(nodes.iter().filter_map(|node| Some((node.metadata.uid.clone()?, time))).collect())
}

/// All the pods that are asked for. No volume is attached to any node.
fn read(classified: &Classified, pods_on: impl Fn(&str) -> Vec<Pod>) -> ObservedPods {
    let PodReads { recent: _, draining, undecided, unverified, waiting: _, deferred: _ } = &classified.reads;
    let of_node = |node: &String| -> (String, Pods) {
        (node.clone(), pods_on(node).into_iter().map(Arc::new).collect())
    };
    let asked: BTreeSet<&String> = draining.iter().chain(undecided).chain(unverified).collect();
    let mut pods =
        ObservedPods { by_node: asked.into_iter().map(of_node).collect(), ..ObservedPods::default() };
    pods.attached.by_node = Some(BTreeMap::new());
    pods
}

/// The result of a plan that is carried out completely.
fn all_of(plan: &Plan) -> Applied {
    let created = plan.register.iter().filter_map(|node| node.metadata.name.clone());
    let joined = plan.join.iter().filter_map(|step| step.node.metadata.name.clone());
    let mut all = Applied::done(AppliedAction::Create, created);
    all.absorb(Applied::done(AppliedAction::Join, joined));
    for step in &plan.nodes {
        all.record_step(step);
    }
    all.absorb(Applied::done(AppliedAction::Withdraw, &plan.withdraw));
    all.absorb(Applied::done(AppliedAction::Request, &plan.request));
    all
}

/// The writes of a plan in the order in which `apply` makes them.
fn writes(plan: &Plan, now: Timestamp) -> Vec<PassWrite> {
    let join = plan
        .join
        .iter()
        .filter_map(|step| Some(PassWrite::PatchNode(step.node.metadata.name.clone()?, step.patch.clone())));
    let (removals, others): (Vec<&NodeStep>, Vec<&NodeStep>) =
        plan.nodes.iter().partition(|step| step.action.removes_replica());
    let mut writes: Vec<PassWrite> = join.collect();
    writes.extend(removals.into_iter().chain(others).flat_map(|step| of_step(step, now)));
    writes.extend(plan.withdraw.iter().chain(&plan.timed_out).cloned().map(PassWrite::EndMachine));
    writes.extend(plan.register.iter().cloned().map(|node| PassWrite::CreateNode(Box::new(node))));
    writes.extend(plan.request.iter().cloned().map(PassWrite::RequestMachine));
    writes
}

#[cfg(test)]
mod tests {
    use node_lifecycle::testing::{at, draining, key, node, nodes, pod, pool};

    use super::*;

    fn written(pool: &NodePool, nodes: Vec<Node>, machines: &[(&str, i64)], pods: &[Pod]) -> Vec<PassWrite> {
        let nodes: Vec<Arc<Node>> = nodes.into_iter().map(Arc::new).collect();
        let machines: BTreeMap<String, Timestamp> =
            machines.iter().map(|(name, runs)| ((*name).to_owned(), at(*runs))).collect();
        let pass =
            PassFixture { pool, nodes: &nodes, machines: &machines, registers_itself: false, now: at(100) };
        pass.run(|_| pods.to_vec()).0
    }

    #[test]
    fn missing_machines_are_requested_and_their_nodes_created_when_they_run() {
        let requested = written(&pool(2), vec![], &[], &[]);
        let names = requested.iter().filter_map(|write| match write {
            PassWrite::RequestMachine(name) => Some(name.as_str()),
            _ => None,
        });
        let names: Vec<&str> = names.collect();
        assert_eq!((names.len(), requested.len()), (2, 2), "{requested:?}");
        let created = written(&pool(2), vec![], &[(names[0], 50), (names[1], 150)], &[]);
        let [PassWrite::CreateNode(node)] = &created[..] else { panic!("{created:?}") };
        assert_eq!(node.metadata.name.as_deref(), Some(names[0]));
        assert_eq!(PoolKey::of_node(node), Some(key()));
    }

    #[test]
    fn a_node_too_many_is_cordoned_drained_and_removed() {
        let cordoned = written(&pool(1), nodes(2), &[], &[]);
        let [PassWrite::PatchNode(name, patch)] = &cordoned[..] else { panic!("{cordoned:?}") };
        assert_eq!(name, "n-001");
        let after = patched(&node(1), patch).unwrap();
        assert_eq!(after.spec.unwrap().unschedulable, Some(true));
        assert!(patched(&node(0), patch).is_none(), "it is another node");
        let evicted = written(&pool(1), vec![node(0), draining(1, 50)], &[], &[pod("web")]);
        let [PassWrite::Evict(pod)] = &evicted[..] else { panic!("{evicted:?}") };
        assert_eq!(pod.metadata.name.as_deref(), Some("web"));
        let removed = written(&pool(1), vec![node(0), draining(1, 50)], &[], &[]);
        let [PassWrite::DeleteNode(_), PassWrite::EndMachine(machine), PassWrite::PatchNode(_, released)] =
            &removed[..]
        else {
            panic!("{removed:?}")
        };
        assert_eq!(machine, "n-001");
        assert!(patched(&draining(1, 50), released).unwrap().metadata.finalizers.unwrap().is_empty());
    }

    #[test]
    fn the_status_is_that_after_the_pass() {
        let (machines, pool): (BTreeMap<String, Timestamp>, NodePool) = (BTreeMap::new(), pool(3));
        let pass = PassFixture {
            pool: &pool,
            nodes: &[],
            machines: &machines,
            registers_itself: true,
            now: at(100),
        };
        let (writes, status) = pass.run(|_| Vec::new());
        assert_eq!(writes.len(), 3);
        assert_eq!(status.provisioning.unwrap().machines, Some(3));
        assert_eq!((status.replicas, status.observed_generation), (Some(0), Some(1)));
    }
}
