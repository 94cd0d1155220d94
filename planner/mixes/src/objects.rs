//! The objects that the mixes are made of, with the fields that the operator's caches keep.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{
    Affinity, Container, Node, NodeAffinity, NodeCondition, NodeSelector, NodeSelectorRequirement,
    NodeSelectorTerm, NodeSpec, NodeStatus, Pod, PodAffinity, PodAffinityTerm, PodAntiAffinity, PodCondition,
    PodSpec, PodStatus, PodTemplateSpec, ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::names::{TEMPLATE_HASH_ANNOTATION, member_labels};
use shared_crds::v1alpha1::{
    Expander, NodePoolAutoscalerSpec, NodePoolSpec, NodeTemplate, NodeTemplateMetadata, NodeTemplateSpec,
    ProviderSpec, ScaleDownSpec, SimulatedProvider,
};
use shared_crds::{NodePool, NodePoolAutoscaler};

use crate::Mix;

/// Namespace of the pools, and of the pods.
pub const NAMESPACE: &str = "bench";
/// The label that spread constraints count by. The labels have the names they have in Karpenter's benchmark.
pub const SPREAD_LABEL: &str = "my-label";
/// The label of pods that want to be in one zone.
pub const AFFINITY_LABEL: &str = "my-affinity";
/// The label of pods that want to be alone on a host.
pub const ANTI_AFFINITY_LABEL: &str = "app";
/// The topology key of zones.
pub const ZONE_KEY: &str = "topology.kubernetes.io/zone";
/// The topology key of hosts.
pub(crate) const HOST_KEY: &str = "kubernetes.io/hostname";
/// Labels that nodes have and no template names.
const LABELS_OF_NODES: [(&str, &str); 3] = [
    ("kubernetes.io/arch", "amd64"),
    ("kubernetes.io/os", "linux"),
    ("node.kubernetes.io/instance-type", "large"),
];
/// The zones of every mix that has several.
pub(crate) const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// The time of every pass: 2026-01-01T12:00:00Z.
const NOW: i64 = 1_767_268_800;

/// The time of every pass.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap_or_default()
}

/// Nodes and pods that run are an hour old.
fn an_hour_ago() -> Time {
    Time(now().checked_sub(SignedDuration::from_hours(1)).unwrap_or_default())
}

/// Amounts of cpu (in thousandths of a core) and memory (in bytes).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) cpu: u64,
    pub(crate) memory: u64,
}

pub(crate) const MIB: u64 = 1 << 20;

/// The `DaemonSet` of those mixes that have one, and what each of its pods asks for.
const DAEMON: (&str, Size) = ("node-agent", Size { cpu: 50, memory: 64 * MIB });

fn quantities(size: Size) -> BTreeMap<String, Quantity> {
    let memory = match size.memory {
        bytes if bytes.is_multiple_of(MIB) => format!("{}Mi", bytes / MIB),
        bytes => bytes.to_string(),
    };
    [("cpu", format!("{}m", size.cpu)), ("memory", memory)]
        .map(|(name, amount)| (name.to_owned(), Quantity(amount)))
        .into()
}

/// What a node has.
pub(crate) fn capacity(size: Size, pods: u64) -> BTreeMap<String, Quantity> {
    let mut capacity = quantities(size);
    capacity.insert("pods".to_owned(), Quantity(pods.to_string()));
    capacity
}

pub(crate) fn labels<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// A pool without nodes.
pub(crate) fn pool(name: &str, zone: Option<&str>, capacity: &BTreeMap<String, Quantity>) -> NodePool {
    let labels = zone.map(|zone| labels([(ZONE_KEY, zone)])).unwrap_or_default();
    let metadata = NodeTemplateMetadata { labels, ..NodeTemplateMetadata::default() };
    let spec = NodePoolSpec {
        replicas: Some(0),
        max_replicas: 100_000,
        template: NodeTemplate {
            metadata: Some(metadata),
            spec: NodeTemplateSpec { capacity: capacity.clone(), ..NodeTemplateSpec::default() },
        },
        provider: ProviderSpec { simulated: Some(SimulatedProvider::default()), ..ProviderSpec::default() },
        provisioning_timeout_seconds: 900,
        ..NodePoolSpec::default()
    };
    NodePool { metadata: metadata_of(NAMESPACE, name), spec, status: None }
}

/// The autoscaler of every pool, as it is by default but for `expander`.
pub(crate) fn autoscaler(expander: Expander, scale_down: Option<ScaleDownSpec>) -> Arc<NodePoolAutoscaler> {
    let spec = NodePoolAutoscalerSpec { expander, scale_down, ..NodePoolAutoscalerSpec::default() };
    Arc::new(NodePoolAutoscaler { metadata: metadata_of(NAMESPACE, "all"), spec, status: None })
}

fn metadata_of(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()).filter(|n| !n.is_empty()),
        uid: Some(format!("uid-of-{name}")),
        resource_version: Some("1".to_owned()),
        creation_timestamp: Some(an_hour_ago()),
        ..ObjectMeta::default()
    }
}

/// A Ready node of `pool` that looks as its template says and was made from it, with the labels of its kubelet and its
/// provider: the planner learns from it what new nodes will be like.
pub(crate) fn node(pool: &NodePool, name: &str) -> Node {
    let template = &pool.spec.template;
    let mut labels = template.metadata.as_ref().map(|m| m.labels.clone()).unwrap_or_default();
    labels.extend(LABELS_OF_NODES.map(|(key, value)| (key.to_owned(), value.to_owned())));
    labels.insert(HOST_KEY.to_owned(), name.to_owned());
    let of_pool = member_labels(NAMESPACE, pool.metadata.name.as_deref().unwrap_or_default());
    labels.extend(of_pool.map(|(key, value)| (key.to_owned(), value)));
    let ready = NodeCondition {
        type_: "Ready".to_owned(),
        status: "True".to_owned(),
        reason: Some("KubeletReady".to_owned()),
        last_transition_time: Some(an_hour_ago()),
        ..NodeCondition::default()
    };
    let template_hash = pool.spec.template_hash();
    let annotations = template_hash.map(|hash| BTreeMap::from([(TEMPLATE_HASH_ANNOTATION.to_owned(), hash)]));
    Node {
        metadata: ObjectMeta { labels: Some(labels), annotations, ..metadata_of("", name) },
        spec: Some(NodeSpec { provider_id: Some(format!("kwok://{name}")), ..NodeSpec::default() }),
        status: Some(NodeStatus {
            capacity: Some(template.spec.capacity.clone()),
            allocatable: Some(template.spec.capacity.clone()),
            conditions: Some(vec![ready]),
            ..NodeStatus::default()
        }),
    }
}

/// A pending pod of a `ReplicaSet`, as the API server's defaults leave it.
pub(crate) fn pod(name: &str, owner: &str, labels: BTreeMap<String, String>, request: Size) -> Pod {
    let owner = OwnerReference {
        api_version: "apps/v1".to_owned(),
        kind: "ReplicaSet".to_owned(),
        name: owner.to_owned(),
        uid: format!("uid-of-{owner}"),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    let requests =
        ResourceRequirements { requests: Some(quantities(request)), ..ResourceRequirements::default() };
    let tolerations =
        ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].map(|key| Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some("NoExecute".to_owned()),
            toleration_seconds: Some(300),
            ..Toleration::default()
        });
    Pod {
        metadata: ObjectMeta {
            labels: Some(labels),
            owner_references: Some(vec![owner]),
            ..metadata_of(NAMESPACE, name)
        },
        spec: Some(PodSpec {
            containers: vec![Container {
                name: "app".to_owned(),
                resources: Some(requests),
                ..Container::default()
            }],
            priority: Some(0),
            restart_policy: Some("Always".to_owned()),
            scheduler_name: Some("default-scheduler".to_owned()),
            service_account_name: Some("default".to_owned()),
            termination_grace_period_seconds: Some(30),
            tolerations: Some(tolerations.into()),
            ..PodSpec::default()
        }),
        status: Some(PodStatus {
            phase: Some("Pending".to_owned()),
            conditions: Some(vec![scheduled(false)]),
            ..PodStatus::default()
        }),
    }
}

fn scheduled(yes: bool) -> PodCondition {
    PodCondition {
        type_: "PodScheduled".to_owned(),
        status: if yes { "True" } else { "False" }.to_owned(),
        reason: (!yes).then(|| "Unschedulable".to_owned()),
        last_transition_time: Some(an_hour_ago()),
        ..PodCondition::default()
    }
}

/// The same pod, running on `node`.
pub(crate) fn on(mut pod: Pod, node: &str) -> Pod {
    if let Some(spec) = &mut pod.spec {
        spec.node_name = Some(node.to_owned());
    }
    pod.status = Some(PodStatus {
        phase: Some("Running".to_owned()),
        start_time: Some(an_hour_ago()),
        conditions: Some(vec![scheduled(true)]),
        ..PodStatus::default()
    });
    pod
}

/// The `DaemonSet` that [`daemon`] makes the pods of.
pub(crate) fn daemon_set() -> DaemonSet {
    let (name, request) = DAEMON;
    let labels = labels([("k8s-app", name)]);
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta { labels: Some(labels.clone()), ..ObjectMeta::default() }),
        spec: pod(name, name, labels.clone(), request).spec,
    };
    let spec = DaemonSetSpec { selector: selector(labels), template, ..DaemonSetSpec::default() };
    DaemonSet { metadata: metadata_of(NAMESPACE, name), spec: Some(spec), status: None }
}

/// The pod called `name` of [`daemon_set`], running on `node`, with the affinity that the `DaemonSet` controller gives it.
pub(crate) fn daemon(name: &str, node: &str) -> Pod {
    let (owner, request) = DAEMON;
    let mut pod = on(pod(name, owner, labels([("k8s-app", owner)]), request), node);
    for owner in pod.metadata.owner_references.iter_mut().flatten() {
        "DaemonSet".clone_into(&mut owner.kind);
    }
    let its_node = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![its_node]), ..NodeSelectorTerm::default() };
    let affinity = NodeAffinity {
        required_during_scheduling_ignored_during_execution: Some(NodeSelector {
            node_selector_terms: vec![term],
        }),
        ..NodeAffinity::default()
    };
    if let Some(spec) = &mut pod.spec {
        spec.affinity = Some(Affinity { node_affinity: Some(affinity), ..Affinity::default() });
    }
    pod
}

fn selector(labels: BTreeMap<String, String>) -> LabelSelector {
    LabelSelector { match_labels: Some(labels), match_expressions: None }
}

/// Spreads the pod over the domains of `key` among pods with `labels`, by one at most.
pub(crate) fn spread(mut pod: Pod, key: &str, labels: BTreeMap<String, String>) -> Pod {
    if let Some(spec) = &mut pod.spec {
        spec.topology_spread_constraints = Some(vec![TopologySpreadConstraint {
            max_skew: 1,
            topology_key: key.to_owned(),
            when_unsatisfiable: "DoNotSchedule".to_owned(),
            label_selector: Some(selector(labels)),
            ..TopologySpreadConstraint::default()
        }]);
    }
    pod
}

fn term(key: &str, pod: &Pod) -> Vec<PodAffinityTerm> {
    vec![PodAffinityTerm {
        label_selector: Some(selector(pod.metadata.labels.clone().unwrap_or_default())),
        topology_key: key.to_owned(),
        ..PodAffinityTerm::default()
    }]
}

/// Wants the pod where pods with its own labels are.
pub(crate) fn near_its_like(mut pod: Pod, key: &str) -> Pod {
    let near = PodAffinity {
        required_during_scheduling_ignored_during_execution: Some(term(key, &pod)),
        ..PodAffinity::default()
    };
    if let Some(spec) = &mut pod.spec {
        spec.affinity = Some(Affinity { pod_affinity: Some(near), ..Affinity::default() });
    }
    pod
}

/// Keeps the pod away from pods with its own labels.
pub(crate) fn apart_from_its_like(mut pod: Pod, key: &str) -> Pod {
    let apart = PodAntiAffinity {
        required_during_scheduling_ignored_during_execution: Some(term(key, &pod)),
        ..PodAntiAffinity::default()
    };
    if let Some(spec) = &mut pod.spec {
        spec.affinity = Some(Affinity { pod_anti_affinity: Some(apart), ..Affinity::default() });
    }
    pod
}

/// A mix without nodes. The pods are shared as they are made: collected bare first, the vector of pointers would keep the
/// memory of the pods' own vector, and the mix would look larger than it is.
pub(crate) fn from_zero<P>(
    pools: Vec<NodePool>,
    expander: Expander,
    pods: impl Iterator<Item = P>,
) -> Mix<P> {
    Mix {
        now: now(),
        pools: pools.into_iter().map(Arc::new).collect(),
        autoscalers: vec![autoscaler(expander, None)],
        daemon_sets: Vec::new(),
        nodes: Vec::new(),
        pods: pods.map(Arc::new).collect(),
    }
}
