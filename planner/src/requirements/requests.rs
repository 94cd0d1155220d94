//! What a pod requests of a node, as kube-scheduler 1.36 computes it.
//!
//! Follows <https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers>
//! and the rules for pod-level resources
//! (<https://kubernetes.io/docs/tasks/configure-pod-container/assign-pod-level-resources/>) and in-place resize
//! (<https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/>) of containers, sidecars and
//! whole pods, with the features that are on by default. Resources of claims (`DRANodeAllocatableResources`, off by
//! default) do not count. Decides nothing about placement.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, PodStatus, ResourceRequirements};
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
pub(crate) fn of(pod: &Pod, names: &mut ResourceNames) -> Result<Amounts, InvalidAmount> {
    Ok(rounded(&exact_of(pod)?, names))
}

/// The requests of a pod by name and before rounding, without the resource `pods`.
///
/// # Errors
///
/// As [`of`].
pub(crate) fn exact_of(pod: &Pod) -> Result<ExactAmounts, InvalidAmount> {
    let mut total = match &pod.spec {
        Some(spec) => pod_requests(pod, spec)?,
        None => ExactAmounts::new(),
    };
    total.remove("pods");
    Ok(total)
}

/// The result of [`exact_of`] as the scheduler counts it, including one of the resource `pods`.
pub(crate) fn rounded(exact: &ExactAmounts, names: &mut ResourceNames) -> Amounts {
    let mut amounts = counted(exact, names);
    amounts.set(Resource::Basic(Basic::Pods), 1);
    amounts
}

fn pod_requests(pod: &Pod, spec: &PodSpec) -> Result<ExactAmounts, InvalidAmount> {
    let mut total = containers(spec, pod.status.as_ref())?;
    if let Some(of_pod) = &spec.resources {
        total.extend(pod_level(pod, spec, of_pod)?);
    }
    if let Some(overhead) = &spec.overhead {
        add(&mut total, &exact(overhead)?);
    }
    Ok(total)
}

/// The containers' requests: all main containers and sidecars together, or the largest need during startup. An init
/// container runs next to the sidecars declared before it; it is never resized, so its status does not count. Without a
/// `status` only what the spec asks for counts.
fn containers(spec: &PodSpec, status: Option<&PodStatus>) -> Result<ExactAmounts, InvalidAmount> {
    let mut running = ExactAmounts::new();
    for container in &spec.containers {
        add(&mut running, &container_requests(container, status)?);
    }
    let mut sidecars = ExactAmounts::new();
    let mut starting = ExactAmounts::new();
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.as_deref() == Some("Always") {
            let requests = container_requests(container, status)?;
            add(&mut running, &requests);
            add(&mut sidecars, &requests);
            raise(&mut starting, &sidecars);
        } else {
            let mut beside = sidecars.clone();
            add(&mut beside, &container_requests(container, None)?);
            raise(&mut starting, &beside);
        }
    }
    raise(&mut running, &starting);
    Ok(running)
}

/// The pod-level requests in force, which replace the containers' for cpu, memory and huge pages. A resource that only
/// the status names does not count; one that the status lacks counts as zero where the node has refused the resize.
fn pod_level(
    pod: &Pod,
    spec: &PodSpec,
    of_pod: &ResourceRequirements,
) -> Result<ExactAmounts, InvalidAmount> {
    let asked = asked_at_pod_level(spec, of_pod)?;
    let Some(status) = pod.status.as_ref().filter(|status| status.resources.is_some()) else {
        return Ok(asked);
    };
    let held = in_force(&asked, status.resources.as_ref(), status.allocated_resources.as_ref(), status)?;
    let amount = |name: String| {
        let amount = held.get(&name).copied().unwrap_or(Exact::ZERO);
        (name, amount)
    };
    Ok(asked.into_keys().map(amount).collect())
}

/// The pod-level requests of the spec. Where there are pod-level limits, the API server's defaulting fills them in: cpu
/// and memory with what the containers ask for, and what is still missing with the limit.
fn asked_at_pod_level(spec: &PodSpec, of_pod: &ResourceRequirements) -> Result<ExactAmounts, InvalidAmount> {
    let mut asked = read(of_pod.requests.as_ref())?;
    let limits = read(of_pod.limits.as_ref())?;
    if !limits.is_empty() {
        for (name, amount) in containers(spec, None)? {
            if name == "cpu" || name == "memory" {
                asked.entry(name).or_insert(amount);
            }
        }
        for (name, amount) in limits {
            asked.entry(name).or_insert(amount);
        }
    }
    asked.retain(|name, _| is_at_pod_level(name));
    Ok(asked)
}

/// Whether a resource can be requested for a pod as a whole.
pub(crate) fn is_at_pod_level(name: &str) -> bool {
    name == "cpu" || name == "memory" || name.starts_with("hugepages-")
}

/// One container's requests. A limit without a request is the request, as in the API server's defaulting.
fn container_requests(
    container: &Container,
    status: Option<&PodStatus>,
) -> Result<ExactAmounts, InvalidAmount> {
    let mut asked = ExactAmounts::new();
    if let Some(resources) = &container.resources {
        asked = read(resources.limits.as_ref())?;
        asked.extend(read(resources.requests.as_ref())?);
    }
    let Some(status) = status else { return Ok(asked) };
    let of_container = status_of(status, container).filter(|status| status.resources.is_some());
    match of_container {
        Some(ContainerStatus { resources, allocated_resources, .. }) => {
            in_force(&asked, resources.as_ref(), allocated_resources.as_ref(), status)
        }
        None => Ok(asked),
    }
}

/// During a resize the largest of the requested, allocated and actual resources counts; once the node has refused the
/// resize for good, the requested ones no longer do.
fn in_force(
    asked: &ExactAmounts,
    actual: Option<&ResourceRequirements>,
    allocated: Option<&BTreeMap<String, Quantity>>,
    status: &PodStatus,
) -> Result<ExactAmounts, InvalidAmount> {
    let mut held = read(actual.and_then(|actual| actual.requests.as_ref()))?;
    raise(&mut held, &read(allocated)?);
    if !is_resize_refused(status) {
        raise(&mut held, asked);
    }
    Ok(held)
}

fn status_of<'a>(status: &'a PodStatus, container: &Container) -> Option<&'a ContainerStatus> {
    let of_init = status.init_container_statuses.iter().flatten();
    let mut all = of_init.chain(status.container_statuses.iter().flatten());
    all.find(|status| status.name == container.name)
}

/// Whether the node can never grant the resize; a deferred one may still come.
fn is_resize_refused(status: &PodStatus) -> bool {
    let pending = status.conditions.iter().flatten().find(|condition| condition.type_ == "PodResizePending");
    pending.is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"))
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
                "containers that ask for a resource beyond the pod-level limit still ask for that much",
                json!({ "resources": { "limits": { "cpu": "3" }, "requests": { "memory": "9" } },
                        "containers": [c("a", "1", "20")] }),
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
