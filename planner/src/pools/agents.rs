//! Pods that run on every node of a pool, whatever is planned there, and that no `DaemonSet`'s template describes: static pods,
//! pods that count as those of a `DaemonSet`, and pods of a `DaemonSet` whose requests admission has changed.
//!
//! Types only. They are learnt with the pods of the pass, in [`crate::demand::node_agents`].

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use shared_crds::v1alpha1::DiscoveredPod;

use crate::requirements::pod_class::{HostPort, TopologyCountId};
use crate::requirements::requests;
use crate::resources::{Amounts, Basic, Resource, ResourceNames, display, exact};

/// The kind of a `DaemonSet`.
pub(crate) const DAEMON_SET: &str = "DaemonSet";

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
    /// Its host ports, where it has been seen in this pass.
    pub ports: Vec<HostPort>,
    /// The topology counts that it raises, where it has been seen in this pass.
    pub increments: Vec<TopologyCountId>,
}

impl Agent {
    /// What has it run.
    pub(crate) fn key(&self) -> AgentKey<'_> {
        let DiscoveredPod { kind, namespace, name, requests: _ } = &self.pod;
        AgentKey { kind, namespace, name }
    }

    /// The agent that the status remembers; `None` if its requests cannot be read.
    pub(crate) fn remembered(
        pod: &DiscoveredPod,
        is_daemon: bool,
        names: &mut ResourceNames,
    ) -> Option<Self> {
        let request = requests::rounded(&exact(&pod.requests).ok()?, names);
        Some(Self { pod: pod.clone(), request, is_daemon, ports: Vec::new(), increments: Vec::new() })
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
    }
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
        let agent = Agent::remembered(&pod, false, &mut names).unwrap();
        assert_eq!((agent.request, agent.pod), (request, pod));
    }
}
