//! Pods that run on every node of a pool, whatever is planned there, and that no `DaemonSet`'s template describes: static pods,
//! pods that count as those of a `DaemonSet`, and pods of a `DaemonSet` whose requests admission has changed.
//!
//! Types only. They are learnt with the pods of the pass, in [`crate::demand::node_agents`].

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use shared_crds::v1alpha1::{DiscoveredHostPort, DiscoveredPod};

use crate::input::pod_info::Labels;
use crate::requirements::pod_class::{ANY_ADDRESS, HostPort, TopologyCountId};
use crate::requirements::requests;
use crate::resources::{Amounts, Basic, Resource, ResourceNames, display, exact};

/// The kind of a `DaemonSet`.
pub(crate) const DAEMON_SET: &str = "DaemonSet";

/// `maxItems` of `status.autoscaling.discovered.pods[].hostPorts`.
const MAX_PORTS: usize = 64;

/// `maxProperties` of `status.autoscaling.discovered.pods[].labels`.
const MAX_LABELS: usize = 16;

/// Labels in which the pods of one controller differ from each other or from those to come, by their beginnings: a new node is
/// elsewhere, and a new revision would have the status written for nothing.
const OWN_LABELS: [&str; 6] = [
    "topology.kubernetes.io/",
    "pod-template-hash",
    "controller-revision-hash",
    "pod-template-generation",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
];

/// What has the pods run on each node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AgentKey<'a> {
    /// The kind of the controller; `Node` for static pods, `Pod` for pods without a controller.
    pub kind: &'a str,
    /// The namespace of the pods.
    pub namespace: &'a str,
    /// The name of the controller, or that of the pods without the name of their node.
    pub name: &'a str,
}

/// A pod that each node of a pool runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Agent {
    /// What has it run, and its requests as the status says them.
    pub pod: DiscoveredPod,
    /// Its requests, including one of the resource `pods`.
    pub request: Amounts,
    /// Whether it is the pod of a known `DaemonSet`: its request stands instead of that of the template.
    pub is_daemon: bool,
    /// Its host ports.
    pub ports: Vec<HostPort>,
    /// The topology counts that it raises.
    pub increments: Vec<TopologyCountId>,
}

impl Agent {
    /// What has it run.
    pub(crate) fn key(&self) -> AgentKey<'_> {
        let DiscoveredPod {
            kind,
            namespace,
            name,
            requests: _,
            host_ports: _,
            labels: _,
            template_generation: _,
        } = &self.pod;
        AgentKey { kind, namespace, name }
    }

    /// The agent that the status remembers, which raises the topology counts `increments`; `None` if its requests cannot be
    /// read.
    pub(crate) fn remembered(
        pod: &DiscoveredPod,
        is_daemon: bool,
        increments: Vec<TopologyCountId>,
        names: &mut ResourceNames,
    ) -> Option<Self> {
        let request = requests::rounded(&exact(&pod.requests).ok()?, names);
        let ports = pod.host_ports.iter().map(host_port).collect();
        Some(Self { pod: pod.clone(), request, is_daemon, ports, increments })
    }

    /// Whether it takes some of the resource.
    pub(crate) fn takes(&self, resource: Resource) -> bool {
        self.request.get(resource) > 0
    }
}

/// The pod as the status says it, in whole units of the scheduler, so that the same requests are the same text.
pub(crate) fn record(key: AgentKey<'_>, request: &Amounts, names: &ResourceNames) -> DiscoveredPod {
    let pods = Resource::Basic(Basic::Pods);
    let asked = request.iter().filter(|&(resource, amount)| resource != pods && amount > 0);
    let requests = asked
        .map(|(resource, amount)| (names.name(resource).to_owned(), Quantity(display(resource, amount))));
    DiscoveredPod {
        kind: key.kind.to_owned(),
        namespace: key.namespace.to_owned(),
        name: key.name.to_owned(),
        requests: requests.collect(),
        ..DiscoveredPod::default()
    }
}

/// The pod with what keeps others away from its node besides its requests: its host ports, and the labels that anti-affinity may
/// select.
pub(crate) fn with_ports_and_labels(
    pod: DiscoveredPod,
    ports: &[HostPort],
    labels: &Labels,
) -> DiscoveredPod {
    let is_own = |label: &str| OWN_LABELS.iter().any(|own| label.starts_with(own));
    let kept = labels.iter().filter(|(label, _)| !is_own(label)).take(MAX_LABELS);
    DiscoveredPod {
        host_ports: ports.iter().take(MAX_PORTS).map(recorded_port).collect(),
        labels: kept.map(|(label, value)| (label.clone(), value.clone())).collect(),
        ..pod
    }
}

fn recorded_port(port: &HostPort) -> DiscoveredHostPort {
    let HostPort { port, protocol, address } = port;
    let host_ip = Some(address.clone()).filter(|address| address != ANY_ADDRESS);
    DiscoveredHostPort { protocol: protocol.clone(), port: *port, host_ip }
}

fn host_port(recorded: &DiscoveredHostPort) -> HostPort {
    let DiscoveredHostPort { protocol, port, host_ip } = recorded;
    let address = host_ip.as_deref().unwrap_or(ANY_ADDRESS).to_owned();
    HostPort { port: *port, protocol: protocol.clone(), address }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_status_says_of_an_agent_is_read_back_as_it_was() {
        let mut names = ResourceNames::default();
        let requests = json!({ "cpu": "1500m", "memory": "1Gi", "example.com/nic": "1" });
        let request =
            requests::rounded(&exact(&serde_json::from_value(requests).unwrap()).unwrap(), &mut names);
        let pod = record(AgentKey { kind: "Node", namespace: "ns", name: "proxy" }, &request, &names);
        assert_eq!(pod.requests.len(), 3, "{pod:?}");
        let port = |port: i32, protocol: &str, address: &str| HostPort {
            port,
            protocol: protocol.to_owned(),
            address: address.to_owned(),
        };
        let ports = [port(53, "UDP", "10.0.0.1"), port(9100, "TCP", ANY_ADDRESS)];
        let pod = with_ports_and_labels(pod, &ports, &Labels::new());
        let written = serde_json::to_value(&pod).unwrap();
        assert_eq!(
            written["hostPorts"],
            json!([{ "protocol": "UDP", "port": 53, "hostIP": "10.0.0.1" }, { "protocol": "TCP", "port": 9100 }])
        );
        assert_eq!(serde_json::from_value::<DiscoveredPod>(written).unwrap(), pod);
        let agent = Agent::remembered(&pod, false, vec![TopologyCountId(1)], &mut names).unwrap();
        assert_eq!((agent.request, agent.pod, agent.ports), (request, pod, ports.to_vec()));
        assert_eq!(agent.increments, [TopologyCountId(1)]);
    }

    #[test]
    fn a_status_of_an_earlier_release_names_neither_ports_nor_labels() {
        let old = json!({ "kind": "Node", "namespace": "ns", "name": "proxy", "requests": { "cpu": "1" } });
        let pod: DiscoveredPod = serde_json::from_value(old.clone()).unwrap();
        assert!(pod.host_ports.is_empty() && pod.labels.is_empty());
        assert_eq!(serde_json::to_value(&pod).unwrap(), old);
    }

    #[test]
    fn what_the_status_keeps_of_ports_and_labels_is_bounded_and_the_same_for_all_pods_of_an_agent() {
        let pod = |labels: &Labels| with_ports_and_labels(DiscoveredPod::default(), &[], labels);
        let labels = [("app", "proxy"), ("topology.kubernetes.io/zone", "a"), ("pod-template-hash", "1")];
        let labels: Labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        assert_eq!(
            pod(&labels).labels.into_iter().collect::<Vec<_>>(),
            [("app".to_owned(), "proxy".to_owned())]
        );
        let many: Labels = (0..100).map(|at| (format!("label-{at}"), String::new())).collect();
        assert_eq!(pod(&many).labels.len(), MAX_LABELS);
        let port = |port: i32| HostPort { port, protocol: "TCP".to_owned(), address: ANY_ADDRESS.to_owned() };
        let ports: Vec<_> = (1..=100).map(port).collect();
        let all = with_ports_and_labels(DiscoveredPod::default(), &ports, &Labels::new());
        assert_eq!(all.host_ports.len(), MAX_PORTS);
    }
}
