//! What the pods of `DaemonSet`s use on a node that is new or still starting.
//!
//! The `DaemonSet` controller decides on which nodes a daemon runs, and adds tolerations of its own:
//! <https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#taints-and-tolerations>
//! Whether the node has room for them is not decided here.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ptr;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use shared_crds::QualifiedName;

use super::ports;
use crate::input::observed::{Observed, key};
use crate::input::pod_info::PodInfo;
use crate::input::pods;
use crate::requirements::constraints::{Constraints, Tolerated};
use crate::requirements::node_profile::NodeProfile;
use crate::requirements::pod_class::HostPort;
use crate::requirements::{predicates, requests};
use crate::resources::{Amounts, ResourceNames};

/// Taints that every daemon tolerates, with their effects.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// Additionally tolerated by daemons in the host network.
const TOLERATED_IN_HOST_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// The priority classes of every cluster, with their values:
/// <https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/>
pub const BUILT_IN_PRIORITIES: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// The pod of a `DaemonSet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Daemon {
    /// Namespace of the `DaemonSet`.
    pub namespace: String,
    /// Name of the `DaemonSet`.
    pub name: String,
    /// The constraints on the nodes it runs on.
    pub constraints: Constraints,
    /// Its resource requests.
    pub request: Amounts,
    /// The host ports it uses.
    pub ports: Vec<HostPort>,
    /// Its priority: where room is short, the scheduler places pods of a higher priority first.
    pub priority: i32,
    /// Whether it preempts pods of a lower priority: its `preemptionPolicy` is not `Never`.
    pub preempts: bool,
    /// The generation of its template, which its pods on new nodes will have; `None` if the `DaemonSet` does not say it.
    pub generation: Option<i64>,
}

/// All daemons: those of a higher priority first, then by namespace and name. The scheduler takes equal priorities in
/// the order in which the pods come, which is unknown for a new node: the names make it deterministic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Daemons(Vec<Daemon>);

impl Daemons {
    /// Reads the `DaemonSet`s of a pass, whose pods are `all_pods`. A `DaemonSet` that is being deleted creates no pods.
    pub(crate) fn of(
        observed: &Observed,
        all_pods: &[Arc<PodInfo>],
        names: &mut ResourceNames,
        warnings: &mut Vec<String>,
    ) -> Self {
        let mut objects: Vec<_> =
            observed.daemon_sets.iter().filter(|d| d.metadata.deletion_timestamp.is_none()).collect();
        objects.sort_by(|a, b| key(&a.metadata).cmp(&key(&b.metadata)));
        let admitted = admitted_priorities(all_pods, &objects);
        let resolved = |object: &Arc<DaemonSet>| {
            let mut daemon = daemon(object, names, warnings)?;
            if let Some(&priority) = admitted.get(&key(&object.metadata)) {
                daemon.priority = priority;
            }
            Some(daemon)
        };
        let mut daemons: Vec<_> = objects.into_iter().filter_map(resolved).collect();
        daemons.sort_by_key(|daemon| Reverse(daemon.priority));
        Self(daemons)
    }

    /// The daemon of a `DaemonSet`; `None` if there is none that creates pods.
    pub(crate) fn named(&self, namespace: &str, name: &str) -> Option<&Daemon> {
        self.0.iter().find(|daemon| daemon.namespace == namespace && daemon.name == name)
    }

    /// The daemons that the `DaemonSet` controller makes a pod of for a node with this profile, in their order.
    pub(crate) fn on(&self, profile: &NodeProfile) -> impl Iterator<Item = &Daemon> {
        self.0.iter().filter(|daemon| predicates::admits(&daemon.constraints, profile).is_ok())
    }
}

/// The pod of each `DaemonSet` as selectors of other pods see it. A `DaemonSet` that is being deleted has none.
pub(crate) fn pods(observed: &Observed) -> Vec<PodInfo> {
    let staying = observed.daemon_sets.iter().filter(|d| d.metadata.deletion_timestamp.is_none());
    let pod = |object: &Arc<DaemonSet>| {
        let template = &object.spec.as_ref()?.template;
        let metadata = ObjectMeta {
            namespace: object.metadata.namespace.clone(),
            name: object.metadata.name.clone(),
            labels: template.metadata.as_ref().and_then(|m| m.labels.clone()),
            ..ObjectMeta::default()
        };
        Some(PodInfo::from(Pod { metadata, spec: template.spec.clone(), ..Pod::default() }))
    };
    let mut pods: Vec<_> = staying.filter_map(pod).collect();
    pods.sort_by(|a, b| a.key().cmp(&b.key()));
    pods
}

fn daemon(object: &DaemonSet, names: &mut ResourceNames, warnings: &mut Vec<String>) -> Option<Daemon> {
    let (namespace, name) = key(&object.metadata);
    let pod = Pod { spec: object.spec.as_ref()?.template.spec.clone(), ..Pod::default() };
    let spec = pod.spec.as_ref()?;
    let mut constraints = Constraints::of(&pod);
    let in_host_network = spec.host_network == Some(true);
    let own = TOLERATED.iter().chain(in_host_network.then_some(&TOLERATED_IN_HOST_NETWORK));
    constraints.tolerations.extend(own.map(|(key, effect)| Tolerated {
        key: (*key).to_owned(),
        operator: "Exists".to_owned(),
        value: String::new(),
        effect: (*effect).to_owned(),
    }));
    let request = match requests::of(&pod, names) {
        Ok(request) => request,
        Err(problem) => {
            let says = format!("counts as asking for nothing: {problem} in its requests");
            warnings.push(format!("DaemonSet {} {says}", QualifiedName::from((namespace, name))));
            return None;
        }
    };
    Some(Daemon {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        constraints,
        request,
        ports: ports::of(spec),
        priority: template_priority(spec).unwrap_or(0),
        preempts: spec.preemption_policy.as_deref() != Some("Never"),
        generation: generation(object),
    })
}

fn generation(object: &DaemonSet) -> Option<i64> {
    object.metadata.annotations.as_ref()?.get(pods::TEMPLATE_GENERATION)?.parse().ok()
}

/// The priority that a template sets: by value, or by a class whose value is the same in every cluster. A template
/// without a class has 0. `None` if only admission knows the value of its class.
fn template_priority(spec: &PodSpec) -> Option<i32> {
    let of_class = || match spec.priority_class_name.as_deref().filter(|name| !name.is_empty()) {
        None => Some(0),
        Some(name) => {
            let built_in = BUILT_IN_PRIORITIES.into_iter().find(|(class, _)| *class == name);
            built_in.map(|(_, value)| value)
        }
    };
    spec.priority.or_else(of_class)
}

/// The priorities of those `DaemonSet`s whose templates do not tell them, by namespace and name: the highest that
/// admission has written into one of their pods. Without pods there is none. Pods are looked at only where such a
/// `DaemonSet` exists, and of those that follow each other and have one template only the first: both the `DaemonSet`
/// and the priority are the template's.
fn admitted_priorities<'a>(
    all_pods: &'a [Arc<PodInfo>],
    objects: &[&'a Arc<DaemonSet>],
) -> HashMap<(&'a str, &'a str), i32> {
    let is_unknown = |object: &&&Arc<DaemonSet>| {
        let spec = object.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        spec.is_some_and(|spec| template_priority(spec).is_none())
    };
    let unknown: HashSet<_> = objects.iter().filter(is_unknown).map(|object| key(&object.metadata)).collect();
    let mut found = HashMap::new();
    if unknown.is_empty() {
        return found;
    }
    let are_alike = |a: &Arc<PodInfo>, b: &Arc<PodInfo>| ptr::eq(a.shape().pod(), b.shape().pod());
    for pod in all_pods.chunk_by(are_alike).map(|alike| &alike[0]) {
        if let Some(daemon_set) = pods::daemon_set(pod).filter(|daemon_set| unknown.contains(daemon_set)) {
            let highest = found.entry(daemon_set).or_insert(i32::MIN);
            *highest = pods::priority(pod).max(*highest);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn observed(daemon_sets: Vec<Value>, pods: Vec<Value>) -> Observed {
        Observed {
            daemon_sets: daemon_sets
                .into_iter()
                .map(|d| Arc::new(serde_json::from_value(d).unwrap()))
                .collect(),
            pods: pods.into_iter().map(|p| Arc::new(serde_json::from_value(p).unwrap())).collect(),
            ..Observed::default()
        }
    }

    fn set(name: &str, spec: &Value) -> Value {
        let mut set = json!({ "metadata": { "name": name, "namespace": "sys" },
            "spec": { "selector": {}, "template": { "spec": spec } } });
        let containers = &mut set["spec"]["template"]["spec"]["containers"];
        if containers.is_null() {
            *containers = json!([]);
        }
        set
    }

    fn read(observed: &Observed) -> Daemons {
        Daemons::of(observed, &observed.pods, &mut ResourceNames::default(), &mut Vec::new())
    }

    #[test]
    fn daemons_come_by_priority_then_by_name() {
        let pod = |name: &str, priority: i32| {
            json!({ "metadata": { "name": name, "namespace": "sys", "ownerReferences": [
                { "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "own", "uid": "u", "controller": true }] },
                "spec": { "priority": priority, "containers": [] } })
        };
        let sets = vec![
            set("b", &json!({})),
            set("a", &json!({ "priorityClassName": "" })),
            set("low", &json!({ "priority": -1 })),
            set("high", &json!({ "priority": 7, "preemptionPolicy": "Never" })),
            set("own", &json!({ "priorityClassName": "ours" })),
            set("new", &json!({ "priorityClassName": "ours" })),
            set("node", &json!({ "priorityClassName": "system-node-critical" })),
            set("cluster", &json!({ "priorityClassName": "system-cluster-critical" })),
        ];
        let daemons = read(&observed(sets, vec![pod("p", 3), pod("q", 9)]));
        let order: Vec<_> = daemons.0.iter().map(|d| (d.name.as_str(), d.priority, d.preempts)).collect();
        assert_eq!(
            order,
            [
                ("node", 2_000_001_000, true),
                ("cluster", 2_000_000_000, true),
                ("own", 9, true),
                ("high", 7, false),
                ("a", 0, true),
                ("b", 0, true),
                ("new", 0, true),
                ("low", -1, true),
            ]
        );
    }

    #[test]
    fn the_ports_of_a_daemon_are_those_of_any_pod() {
        let port = |number: i32| json!([{ "containerPort": number, "hostPort": number }]);
        let spec = json!({
            "containers": [{ "name": "c", "ports": port(1) }, { "name": "d", "ports": [{ "containerPort": 5 }] }],
            "initContainers": [{ "name": "i", "ports": port(2) },
                               { "name": "s", "restartPolicy": "Always", "ports": port(3) }],
        });
        let numbers = |spec: &Value| {
            let daemons = read(&observed(vec![set("d", spec)], vec![]));
            daemons.0[0].ports.iter().map(|port| port.port).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&spec), [1, 3]);
        let mut in_host_network = spec;
        in_host_network["hostNetwork"] = json!(true);
        assert_eq!(numbers(&in_host_network), [1, 3, 5]);
    }
}
