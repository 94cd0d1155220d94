//! What a pod requests of a node, as kube-scheduler 1.36 computes it.
//!
//! Follows <https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers>
//! and the rules for pod-level resources and in-place resize. Decides nothing about placement.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use shared_crds::quantity::Exact;

use crate::resources::{
    Amounts, Basic, ExactAmounts, InvalidAmount, Resource, ResourceNames, counted, exact,
};

/// The requests of a pod, including one of the resource `pods`.
///
/// # Errors
///
/// For the first quantity that cannot be read or is below zero.
pub fn of(pod: &Pod, names: &mut ResourceNames) -> Result<Amounts, InvalidAmount> {
    Ok(rounded(&exact_of(pod)?, names))
}

/// The requests of a pod by name and before rounding, without the resource `pods`.
///
/// # Errors
///
/// As [`of`].
pub fn exact_of(pod: &Pod) -> Result<ExactAmounts, InvalidAmount> {
    let mut total = match &pod.spec {
        Some(spec) => pod_requests(pod, spec)?,
        None => ExactAmounts::new(),
    };
    total.remove("pods");
    Ok(total)
}

/// The result of [`exact_of`] as the scheduler counts it, including one of the resource `pods`.
pub fn rounded(exact: &ExactAmounts, names: &mut ResourceNames) -> Amounts {
    let mut amounts = counted(exact, names);
    amounts.set(Resource::Basic(Basic::Pods), 1);
    amounts
}

fn pod_requests(pod: &Pod, spec: &PodSpec) -> Result<ExactAmounts, InvalidAmount> {
    let mut total = containers(pod, spec)?;
    if let Some(of_pod) = &spec.resources {
        pod_level(&mut total, of_pod)?;
    }
    if let Some(overhead) = &spec.overhead {
        add(&mut total, &exact(overhead)?);
    }
    Ok(total)
}

/// The containers' requests: all main containers and sidecars together, or the largest need during startup. An init
/// container runs next to the sidecars declared before it.
fn containers(pod: &Pod, spec: &PodSpec) -> Result<ExactAmounts, InvalidAmount> {
    let mut running = ExactAmounts::new();
    for container in &spec.containers {
        add(&mut running, &container_requests(pod, container)?);
    }
    let mut sidecars = ExactAmounts::new();
    let mut starting = ExactAmounts::new();
    for container in spec.init_containers.iter().flatten() {
        let requests = container_requests(pod, container)?;
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut running, &requests);
            add(&mut sidecars, &requests);
            raise(&mut starting, &sidecars);
        } else {
            let mut beside = sidecars.clone();
            add(&mut beside, &requests);
            raise(&mut starting, &beside);
        }
    }
    raise(&mut running, &starting);
    Ok(running)
}

/// Pod-level requests replace the containers' for cpu, memory and huge pages. A pod-level limit replaces a request that
/// neither the pod nor a container sets, as in the API server's defaulting.
fn pod_level(total: &mut ExactAmounts, of_pod: &ResourceRequirements) -> Result<(), InvalidAmount> {
    for (name, amount) in read(of_pod.limits.as_ref())? {
        if at_pod_level(&name) {
            total.entry(name).or_insert(amount);
        }
    }
    for (name, amount) in read(of_pod.requests.as_ref())? {
        if at_pod_level(&name) {
            total.insert(name, amount);
        }
    }
    Ok(())
}

fn at_pod_level(name: &str) -> bool {
    name == "cpu" || name == "memory" || name.starts_with("hugepages-")
}

/// One container's requests. A limit without a request is the request, as in the API server's defaulting. During a
/// resize the largest of requested, allocated and actual resources counts, unless the node has refused the resize.
fn container_requests(pod: &Pod, container: &Container) -> Result<ExactAmounts, InvalidAmount> {
    let mut spec = ExactAmounts::new();
    if let Some(resources) = &container.resources {
        spec = read(resources.limits.as_ref())?;
        spec.extend(read(resources.requests.as_ref())?);
    }
    let Some(in_force) = status_of(pod, container).filter(|status| status.resources.is_some()) else {
        return Ok(spec);
    };
    let mut held = read(in_force.resources.as_ref().and_then(|r| r.requests.as_ref()))?;
    raise(&mut held, &read(in_force.allocated_resources.as_ref())?);
    if !resize_refused(pod) {
        raise(&mut held, &spec);
    }
    Ok(held)
}

fn status_of<'a>(pod: &'a Pod, container: &Container) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let all =
        status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
    all.into_iter().find(|status| status.name == container.name)
}

fn resize_refused(pod: &Pod) -> bool {
    let conditions = pod.status.iter().filter_map(|s| s.conditions.as_ref()).flatten();
    conditions.into_iter().any(|c| c.type_ == "PodResizePending" && c.reason.as_deref() == Some("Infeasible"))
}

fn read(quantities: Option<&BTreeMap<String, Quantity>>) -> Result<ExactAmounts, InvalidAmount> {
    quantities.map_or_else(|| Ok(ExactAmounts::new()), exact)
}

fn add(total: &mut ExactAmounts, more: &ExactAmounts) {
    for (name, amount) in more {
        let sum = total.entry(name.clone()).or_insert(Exact::ZERO);
        *sum = sum.plus(*amount);
    }
}

fn raise(total: &mut ExactAmounts, other: &ExactAmounts) {
    for (name, amount) in other {
        let greatest = total.entry(name.clone()).or_insert(Exact::ZERO);
        *greatest = (*greatest).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cpu_and_memory(spec: &Value) -> (i64, i64) {
        let pod: Pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
        let amounts = of(&pod, &mut ResourceNames::default()).unwrap();
        assert_eq!(amounts.get(Resource::Basic(Basic::Pods)), 1);
        (amounts.get(Resource::Basic(Basic::Cpu)), amounts.get(Resource::Basic(Basic::Memory)))
    }

    fn c(name: &str, cpu: &str, memory: &str) -> Value {
        json!({ "name": name, "resources": { "requests": { "cpu": cpu, "memory": memory } } })
    }

    fn sidecar(name: &str, cpu: &str, memory: &str) -> Value {
        let mut container = c(name, cpu, memory);
        container["restartPolicy"] = json!("Always");
        container
    }

    #[test]
    fn requests_follow_the_schedulers_rules() {
        for (what, spec, expected) in [
            ("nothing asked", json!({ "containers": [{ "name": "a" }] }), (0, 0)),
            (
                "main containers add up",
                json!({ "containers": [c("a", "100m", "10"), c("b", "200m", "20")] }),
                (300, 30),
            ),
            (
                "parts of a thousandth add up before they are rounded",
                json!({ "containers": [c("a", "500u", "0"), c("b", "500u", "0")] }),
                (1, 0),
            ),
            (
                "the greatest init container counts where it is above the sum",
                json!({ "initContainers": [c("i", "1", "5"), c("j", "2", "1")], "containers": [c("a", "1500m", "20")] }),
                (2000, 20),
            ),
            (
                "sidecars add to main containers",
                json!({ "initContainers": [sidecar("s", "300m", "3")], "containers": [c("a", "1", "20")] }),
                (1300, 23),
            ),
            (
                "an init container runs beside the sidecars before it, not those after it",
                json!({ "initContainers": [sidecar("s", "300m", "3"), c("i", "2", "1"), sidecar("t", "400m", "4")],
                        "containers": [c("a", "1", "20")] }),
                (2300, 27),
            ),
            (
                "overhead is added last",
                json!({ "overhead": { "cpu": "250m", "memory": "5" }, "containers": [c("a", "1", "20")] }),
                (1250, 25),
            ),
            (
                "a limit without a request is the request",
                json!({ "containers": [{ "name": "a", "resources": { "limits": { "cpu": "2", "memory": "7" },
                                         "requests": { "cpu": "1" } } }] }),
                (1000, 7),
            ),
            (
                "pod-level requests replace the containers'",
                json!({ "resources": { "requests": { "cpu": "3" } }, "overhead": { "cpu": "1" },
                        "containers": [c("a", "1", "20")] }),
                (4000, 20),
            ),
            (
                "a pod-level limit stands in only where no container asks",
                json!({ "resources": { "limits": { "cpu": "3", "memory": "9" } },
                        "containers": [{ "name": "a", "resources": { "requests": { "cpu": "1" } } }] }),
                (1000, 9),
            ),
            (
                "ephemeral storage is no pod-level resource",
                json!({ "resources": { "requests": { "ephemeral-storage": "3", "cpu": "1" } }, "containers": [{ "name": "a" }] }),
                (1000, 0),
            ),
        ] {
            assert_eq!(cpu_and_memory(&spec), expected, "{what}");
        }
    }

    #[test]
    fn a_resize_counts_the_greatest_amount_until_the_node_refuses_it() {
        let pod = |conditions: Value| -> Pod {
            serde_json::from_value(json!({
                "spec": { "containers": [c("a", "3", "1")] },
                "status": { "conditions": conditions, "containerStatuses": [{
                    "name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "allocatedResources": { "cpu": "2" }, "resources": { "requests": { "cpu": "1" } }
                }] }
            }))
            .unwrap()
        };
        let cpu =
            |pod: &Pod| of(pod, &mut ResourceNames::default()).unwrap().get(Resource::Basic(Basic::Cpu));
        assert_eq!(cpu(&pod(json!([]))), 3000);
        assert_eq!(
            cpu(&pod(json!([{ "type": "PodResizePending", "status": "True", "reason": "Infeasible" }]))),
            2000
        );
    }

    #[test]
    fn nonsense_is_an_error_that_names_the_resource() {
        let pod: Pod =
            serde_json::from_value(json!({ "spec": { "containers": [c("a", "lots", "1")] } })).unwrap();
        assert_eq!(
            of(&pod, &mut ResourceNames::default()).unwrap_err().to_string(),
            "cpu \"lots\" is not a quantity"
        );
    }
}
