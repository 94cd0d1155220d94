//! Tests of requests in force: what a node has granted counts besides what the spec asks for.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::requests::{exact_of, of};
use crate::resources::{Basic, Resource, ResourceNames};

fn c(name: &str, cpu: &str) -> Value {
    json!({ "name": name, "resources": { "requests": { "cpu": cpu } } })
}

fn sidecar(name: &str, cpu: &str) -> Value {
    let mut container = c(name, cpu);
    container["restartPolicy"] = json!("Always");
    container
}

fn cpu_of(spec: &Value, status: &Value) -> i64 {
    let pod: Pod = serde_json::from_value(json!({ "spec": spec, "status": status })).unwrap();
    of(&pod, &mut ResourceNames::default()).unwrap().get(Resource::Basic(Basic::Cpu))
}

fn status_of(name: &str, actual: &str, allocated: &str) -> Value {
    json!({ "name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0,
        "allocatedResources": { "cpu": allocated }, "resources": { "requests": { "cpu": actual } } })
}

fn resize_pending(reason: &str) -> Value {
    json!([{ "type": "Ready", "status": "True", "reason": "Infeasible" },
           { "type": "PodResizePending", "status": "True", "reason": reason }])
}

#[test]
fn init_containers_count_as_asked_and_sidecars_as_in_force() {
    let spec = json!({ "initContainers": [c("i", "1"), sidecar("s", "1")], "containers": [] });
    for (what, statuses, expected) in [
        ("nothing in force", json!([]), 1000),
        ("an init container is never resized", json!([status_of("i", "4", "4")]), 1000),
        ("the actual resources of a sidecar", json!([status_of("s", "3", "2")]), 3000),
        ("the allocated resources of a sidecar", json!([status_of("s", "2", "3")]), 3000),
    ] {
        assert_eq!(cpu_of(&spec, &json!({ "initContainerStatuses": statuses })), expected, "{what}");
    }
}

#[test]
fn a_deferred_resize_counts_and_an_infeasible_one_does_not() {
    let spec = json!({ "containers": [c("a", "3")] });
    for (reason, expected) in [("Deferred", 3000), ("Error", 3000), ("Infeasible", 2000)] {
        let status = json!({ "containerStatuses": [status_of("a", "1", "2")],
            "conditions": resize_pending(reason) });
        assert_eq!(cpu_of(&spec, &status), expected, "{reason}");
    }
}

#[test]
fn a_resize_of_the_pod_counts_the_greatest_amount_until_the_node_refuses_it() {
    let pod_level = |cpu: &str| {
        json!({ "resources": { "requests": { "cpu": cpu } }, "overhead": { "cpu": "100m" },
                "containers": [c("a", "500m")] })
    };
    let actual = |cpu: &str| json!({ "requests": { "cpu": cpu } });
    let infeasible = resize_pending("Infeasible");
    for (what, spec, status, expected) in [
        ("no status", pod_level("1"), json!({}), 1100),
        (
            "allocated alone is not read",
            pod_level("1"),
            json!({ "allocatedResources": { "cpu": "3" } }),
            1100,
        ),
        ("actual", pod_level("1"), json!({ "resources": actual("3") }), 3100),
        (
            "allocated",
            pod_level("1"),
            json!({ "resources": actual("1"), "allocatedResources": { "cpu": "3" } }),
            3100,
        ),
        ("asked", pod_level("4"), json!({ "resources": actual("1") }), 4100),
        (
            "asked, but infeasible",
            pod_level("4"),
            json!({ "resources": actual("1"), "allocatedResources": { "cpu": "2" },
                    "conditions": infeasible }),
            2100,
        ),
        (
            "infeasible, and nothing in force",
            pod_level("4"),
            json!({ "resources": {}, "conditions": infeasible }),
            100,
        ),
        (
            "a resource that the spec does not name at pod level",
            json!({ "resources": { "requests": { "memory": "1" } }, "containers": [c("a", "500m")] }),
            json!({ "resources": actual("3") }),
            500,
        ),
        (
            "no pod-level resources in the spec",
            json!({ "containers": [c("a", "500m")] }),
            json!({ "resources": actual("3") }),
            500,
        ),
    ] {
        assert_eq!(cpu_of(&spec, &status), expected, "{what}");
    }
}

#[test]
fn a_pod_level_limit_of_huge_pages_is_the_request() {
    let pod: Pod = serde_json::from_value(json!({ "spec": {
        "resources": { "limits": { "hugepages-2Mi": "8Mi" } },
        "containers": [{ "name": "a", "resources": { "requests": { "hugepages-2Mi": "4Mi" } } }] } }))
    .unwrap();
    assert_eq!(exact_of(&pod).unwrap()["hugepages-2Mi"].units(), 8 << 20);
}
