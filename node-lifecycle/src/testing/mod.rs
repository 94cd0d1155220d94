//! Objects for tests, and what a plan writes, as data.

mod pools;
pub mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::v1alpha1::ProvisioningStatus;
use shared_crds::{NodePool, names};

pub use self::pools::{at, cluster, key, pool, prefix, slot};
use crate::after::facts::Facts;
use crate::after::outcome::{Applied, AppliedAction, Blocked};
use crate::assess::membership::Member;
use crate::input::observed_time::{ConditionTimes, MachineTimes, NodeTime, NodeTimes};
use crate::input::supply::{Completeness, KnownAs, Machine, MachineState, NodeSource, ProviderDuties};
use crate::template::Blueprint;
use crate::{
    Absence, AttachedVolumes, ClusterReadiness, NodeAction, NodeStep, Observed, ObservedPods, Plan, Pods,
    Supply, classify,
};

/// A provider whose Nodes the operator creates.
pub const SOURCE: Result<NodeSource, String> = Ok(NodeSource::Operator { provider_id_prefix: "kwok://" });

/// Such a provider without machines and failures.
pub fn supply() -> Supply {
    Supply {
        source: SOURCE,
        machines: vec![],
        failed: vec![],
        foreign: BTreeMap::new(),
        traits: BTreeMap::new(),
        trouble: None,
        is_unknown: false,
        size: None,
        size_writer: None,
        capacity: BTreeMap::new(),
        completeness: Completeness::Certain,
        unlisted: BTreeMap::new(),
        absent: BTreeMap::new(),
        removals_wait: None,
        rolling: None,
        duties: ProviderDuties::default(),
        seen_ending: BTreeSet::new(),
        uncertain_until: None,
        deleted_ids: BTreeSet::new(),
        outdated_before: BTreeSet::new(),
        former: BTreeSet::new(),
        former_machines: BTreeMap::new(),
        taken: BTreeSet::new(),
        passed_over: BTreeSet::new(),
        failure: None,
    }
}

/// A node of the pool as the operator makes it, created at second 0, named `n-<index>`, Ready and annotated so.
pub fn node(index: usize) -> Node {
    let name = format!("n-{index:03}");
    let mut node = Blueprint::of(&key(), &pool(1), &SOURCE).unwrap().node(&name, None).unwrap();
    node.metadata.uid = Some(format!("uid-{name}"));
    node.metadata.creation_timestamp = Some(Time(at(0)));
    annotate(&mut node, names::READY_TIME_ANNOTATION, "1970-01-01T00:00:05Z");
    set_ready(&mut node, "True");
    node
}

/// A node that has not been Ready yet.
pub fn starting(index: usize) -> Node {
    let mut node = node(index);
    node.metadata.annotations.as_mut().unwrap().remove(names::READY_TIME_ANNOTATION);
    set_ready(&mut node, "False");
    node
}

/// A node whose drain started at second `since`.
pub fn draining(index: usize, since: i64) -> Node {
    let mut node = node(index);
    annotate(&mut node, names::DRAIN_STARTED_ANNOTATION, &at(since).to_string());
    node.spec.as_mut().unwrap().unschedulable = Some(true);
    node
}

/// A node that was deleted at second 50.
pub fn deleted(mut node: Node) -> Node {
    node.metadata.deletion_timestamp = Some(Time(at(50)));
    node
}

/// Sets an annotation of the node.
pub fn annotate(node: &mut Node, key: &str, value: &str) {
    node.metadata.annotations.get_or_insert_default().insert(key.into(), value.into());
}

/// Gives the node the one condition `Ready`, with this status.
pub fn set_ready(node: &mut Node, status: &str) {
    let ready = NodeCondition { type_: "Ready".into(), status: status.into(), ..NodeCondition::default() };
    node.status.get_or_insert_with(NodeStatus::default).conditions = Some(vec![ready]);
}

/// A pod of the namespace `default`.
pub fn pod(name: &str) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some("default".into()),
            uid: Some(format!("uid-{name}")),
            ..ObjectMeta::default()
        },
        ..Pod::default()
    }
}

/// Lets the pod ask to be left alone.
pub fn protect_pod(pod: &mut Pod) {
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(shared_crds::protection::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
}

/// A pod whose controller is of this kind.
pub fn pod_of(kind: &str, name: &str) -> Pod {
    let mut pod = pod(name);
    pod.metadata.owner_references =
        Some(vec![OwnerReference { kind: kind.into(), controller: Some(true), ..OwnerReference::default() }]);
    pod
}

/// The measurements of a process that has run from the start, so that the wall clock alone decides.
pub const ALWAYS: NodeTime = NodeTime {
    was_ready: false,
    not_ready: SignedDuration::MAX,
    lost: None,
    draining: SignedDuration::MAX,
    given_back: SignedDuration::MAX,
};

/// The observation of a process that has run from the start.
pub fn observed(pool: NodePool, nodes: impl IntoIterator<Item = Node>) -> Observed {
    let nodes: Vec<_> = nodes.into_iter().map(Arc::new).collect();
    Observed {
        cluster: cluster(),
        key: key(),
        pool: Some(Arc::new(pool)),
        is_orphaned: false,
        just_ended: None,
        times: always(&nodes),
        nodes,
        unreadable: BTreeSet::new(),
        registered: vec![],
        lookalikes: vec![],
        may_be_hidden: false,
        recent: ObservedPods::default(),
        protected: BTreeMap::new(),
        stale: BTreeSet::new(),
        failed_lists: Vec::new(),
        unprotected: BTreeSet::new(),
        cluster_readiness: ClusterReadiness::default(),
        condition_times: ConditionTimes::default(),
        supply: supply(),
        now: at(100),
        machine_times: MachineTimes::default(),
        template_time: SignedDuration::ZERO,
    }
}

/// The observation of a pool of `replicas`, with `readable` nodes and `unreadable` ones in its first slots.
pub fn pool_with(replicas: Option<i32>, readable: usize, unreadable: usize) -> Observed {
    let mut pool = pool(0);
    pool.spec.replicas = replicas;
    let mut observed = observed(pool, (0..readable).map(node));
    observed.unreadable = (0..unreadable).map(slot).collect();
    observed
}

/// [`ALWAYS`] for each of `nodes`.
pub fn always(nodes: &[Arc<Node>]) -> NodeTimes {
    let uids = nodes.iter().filter_map(|node| node.metadata.uid.clone());
    NodeTimes(uids.map(|uid| (uid, ALWAYS)).collect())
}

/// Pods as they are handed on.
pub fn shared(pods: Vec<Pod>) -> Pods {
    pods.into_iter().map(Arc::new).collect()
}

/// These pods, by the name of their node.
pub fn pods<'a>(by_node: impl IntoIterator<Item = (&'a str, Vec<Pod>)>) -> ObservedPods {
    let by_node = by_node.into_iter().map(|(node, pods)| (node.to_owned(), shared(pods))).collect();
    ObservedPods { by_node, attached: no_volumes(), ..ObservedPods::default() }
}

/// No volume is attached to any node.
pub fn no_volumes() -> AttachedVolumes {
    AttachedVolumes { by_node: Some(BTreeMap::new()), ..AttachedVolumes::default() }
}

/// The plan when no pods of draining nodes could be read, and the nodes among which victims are chosen are empty.
pub fn plan(observed: &Observed) -> Plan {
    let classified = classify(observed);
    let empty = classified.reads.undecided.iter().map(|node| (node.clone(), shared(Vec::new()))).collect();
    super::plan(observed, classified, &ObservedPods { by_node: empty, ..ObservedPods::default() })
}

/// The plan when these pods were read.
pub fn plan_with(observed: &Observed, pods: &ObservedPods) -> Plan {
    super::plan(observed, classify(observed), pods)
}

/// A step for `node`.
pub fn step(node: Node, action: NodeAction) -> NodeStep {
    NodeStep {
        member: Member::read(&Arc::new(node), at(100), ALWAYS),
        action,
        cause: None,
        waits: None,
        absence: Absence::Credible,
    }
}

/// The result of a plan that is carried out completely.
pub fn done(plan: &Plan) -> Applied {
    let mut all = Applied::default();
    for step in &plan.nodes {
        all.record_step(step);
    }
    all.absorb(Applied::done(AppliedAction::Withdraw, &plan.withdraw));
    all.absorb(Applied::done(AppliedAction::Request, &plan.request));
    all
}

/// The result of a pass in which nothing was done, because these keep nodes.
pub fn blocked_by(all: impl IntoIterator<Item = Blocked>) -> Applied {
    let mut applied = Applied::default();
    for blocked in all {
        applied.record_blocked(blocked);
    }
    applied
}

/// The facts after `applied`, while the provider's last failure is the observed one.
pub fn facts_after(observed: &Observed, plan: &Plan, applied: &Applied) -> Facts {
    let pool = observed.pool.as_deref().unwrap();
    Facts::count(observed, pool, plan, applied)
        .with_failure(observed.supply.failure.clone(), ProvisioningStatus::default())
}

/// The facts after a plan that is carried out completely, but for what it creates and removes.
pub fn facts(observed: &Observed) -> Facts {
    let plan = plan(observed);
    facts_after(observed, &plan, &done(&plan))
}

/// The steps as `(name, action)`, without `Keep`.
pub fn actions(plan: &Plan) -> Vec<(String, NodeAction)> {
    plan.nodes
        .iter()
        .filter(|step| step.action != NodeAction::Keep)
        .map(|step| (step.member.name().to_owned(), step.action.clone()))
        .collect()
}

/// The names of the nodes with step `action`.
pub fn with_action(plan: &Plan, action: &NodeAction) -> Vec<String> {
    actions(plan).into_iter().filter(|(_, other)| other == action).map(|(name, _)| name).collect()
}

/// A machine with nothing known of it but its name and state.
pub fn machine(name: &str, state: MachineState) -> Machine {
    Machine {
        name: name.into(),
        state,
        provider_id: None,
        is_marked: false,
        template_hash: None,
        is_outdated: false,
        known_as: KnownAs::default(),
    }
}

/// The state of a machine that is expected, at no known time.
pub const SOON: MachineState = MachineState::Starting { until: Some(Timestamp::MAX) };

/// So many nodes of the pool: see [`node`].
pub fn nodes(count: usize) -> Vec<Node> {
    (0..count).map(node).collect()
}
