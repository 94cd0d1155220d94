//! The host ports that a pod uses on its node.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::requirements::pod_class::{ANY_ADDRESS, HostPort};

const DEFAULT_PROTOCOL: &str = "TCP";

/// The host ports of a pod, sorted, without duplicates: those of its containers and of its sidecars. As in
/// kube-scheduler, init containers that terminate use none. A pod in the host network uses every port it names, as in
/// the API server's defaulting.
pub(crate) fn of(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten().filter(|c| is_sidecar(c));
    let host_network = spec.host_network == Some(true);
    let mut ports: Vec<_> = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten())
        .map(|port| {
            let named = port.host_port.filter(|&p| p != 0);
            let number = named.or_else(|| host_network.then_some(port.container_port)).unwrap_or(0);
            (number, port)
        })
        .filter(|(number, _)| *number > 0)
        .map(|(number, port)| HostPort {
            port: number,
            protocol: filled(port.protocol.as_ref(), DEFAULT_PROTOCOL),
            address: filled(port.host_ip.as_ref(), ANY_ADDRESS),
        })
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn filled(text: Option<&String>, default: &str) -> String {
    text.filter(|text| !text.is_empty()).map_or_else(|| default.to_owned(), Clone::clone)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ports(spec: Value) -> Vec<(i32, String, String)> {
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        of(&spec).into_iter().map(|p| (p.port, p.protocol, p.address)).collect()
    }

    fn port(number: i32, protocol: &str, address: &str) -> (i32, String, String) {
        (number, protocol.to_owned(), address.to_owned())
    }

    #[test]
    fn containers_and_sidecars_take_ports_as_in_the_scheduler() {
        let c = |ports: Value| json!({ "name": "c", "ports": ports });
        let web = json!([{ "containerPort": 1, "hostPort": 80 }]);
        for (what, spec, expected) in [
            ("none", json!({ "containers": [c(json!([{ "containerPort": 1 }]))] }), vec![]),
            (
                "zero is none",
                json!({ "containers": [c(json!([{ "containerPort": 1, "hostPort": 0 }]))] }),
                vec![],
            ),
            ("defaults", json!({ "containers": [c(web.clone())] }), vec![port(80, "TCP", "0.0.0.0")]),
            (
                "protocol and address as written, sorted, none twice",
                json!({ "containers": [
                    c(json!([{ "containerPort": 1, "hostPort": 81, "protocol": "UDP", "hostIP": "10.0.0.1" }])),
                    c(web.clone()),
                    c(web.clone()),
                ] }),
                vec![port(80, "TCP", "0.0.0.0"), port(81, "UDP", "10.0.0.1")],
            ),
            (
                "a sidecar keeps its port, an init container does not",
                json!({ "containers": [], "initContainers": [
                    { "name": "i", "ports": [{ "containerPort": 1, "hostPort": 70 }] },
                    { "name": "s", "restartPolicy": "Always", "ports": [{ "containerPort": 1, "hostPort": 71 }] },
                ] }),
                vec![port(71, "TCP", "0.0.0.0")],
            ),
            (
                "in the host's network every port is the host's",
                json!({ "hostNetwork": true, "containers": [c(json!([{ "containerPort": 9 }]))] }),
                vec![port(9, "TCP", "0.0.0.0")],
            ),
        ] {
            assert_eq!(ports(spec), expected, "{what}");
        }
    }
}
