//! What the pods of `DaemonSet`s use on a node that is new or still starting.
//!
//! The `DaemonSet` controller decides on which nodes a daemon runs, and adds tolerations of its own:
//! <https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#taints-and-tolerations>

use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use shared_crds::QualifiedName;

use crate::input::observed::{Observed, key};
use crate::input::pod_info::PodInfo;
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

/// The pod of a `DaemonSet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
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
}

/// All daemons, by namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Daemons(Vec<Daemon>);

impl Daemons {
    /// Reads the `DaemonSet`s of a pass. A `DaemonSet` that is being deleted creates no pods.
    pub fn of(observed: &Observed, names: &mut ResourceNames, warnings: &mut Vec<String>) -> Self {
        let mut objects: Vec<_> =
            observed.daemon_sets.iter().filter(|d| d.metadata.deletion_timestamp.is_none()).collect();
        objects.sort_by(|a, b| key(&a.metadata).cmp(&key(&b.metadata)));
        Self(objects.into_iter().filter_map(|object| daemon(object, names, warnings)).collect())
    }

    /// Whether there are no daemons.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The daemons that run on a node with this profile.
    pub fn on(&self, profile: &NodeProfile) -> impl Iterator<Item = &Daemon> {
        self.0.iter().filter(|daemon| predicates::admits(&daemon.constraints, profile).is_ok())
    }
}

/// The pod of each `DaemonSet` as selectors of other pods see it. A `DaemonSet` that is being deleted has none.
pub fn pods(observed: &Observed) -> Vec<PodInfo> {
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
    let ports = ports(spec, in_host_network);
    Some(Daemon { namespace: namespace.to_owned(), name: name.to_owned(), constraints, request, ports })
}

/// The host ports of all containers. In the host network every container port is a host port.
fn ports(spec: &PodSpec, in_host_network: bool) -> Vec<HostPort> {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let listed = containers.flat_map(|container| container.ports.iter().flatten());
    let port = |port: &k8s_openapi::api::core::v1::ContainerPort| {
        let number = port.host_port.filter(|&number| number != 0);
        Some(HostPort {
            port: number.or(in_host_network.then_some(port.container_port))?,
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            address: port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned()),
        })
    };
    let mut ports: Vec<_> = listed.filter_map(port).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}
