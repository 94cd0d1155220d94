//! Pods as the cache keeps them: what the planner reads of them, with the shapes that many share kept once.

use std::collections::BTreeMap;
use std::mem;

use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, Pod, PodCondition, PodSpec, PodStatus, ResourceRequirements, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::annotations::keep_read;
use crate::input::pod_info::{PodInfo, PodShapes};
use crate::input::{pods, unplanned};
use crate::requirements::requests;

/// Conditions that the planner reads.
const READ_CONDITIONS: [&str; 3] = ["PodScheduled", "PodResizePending", "Ready"];

/// Converts pods to what the cache keeps of them: what the planner reads, with shared parts kept once.
pub fn pods() -> impl FnMut(Pod) -> PodInfo + Send + 'static {
    let mut shapes = PodShapes::default();
    move |mut whole| {
        pod(&mut whole);
        let mut info = PodInfo::from(whole);
        shapes.share(&mut info);
        info
    }
}

/// Drops what the planner does not read of a pod that is not kept for long.
pub fn pod(pod: &mut Pod) {
    // The affinity names the one node of the pod; no other node is ever considered for it.
    if pods::is_daemon(pod)
        && let Some(affinity) = pod.spec.as_mut().and_then(|spec| spec.affinity.as_mut())
    {
        affinity.node_affinity = None;
    }
    template(pod);
}

/// Drops what the planner does not read of a pod template.
pub(super) fn template(pod: &mut Pod) {
    keep_read(&mut pod.metadata);
    let Pod { spec: Some(spec), status, .. } = pod else { return };
    if let Some(status) = status {
        self::status(status, spec);
    }
    self::spec(spec);
}

fn spec(spec: &mut PodSpec) {
    spec.containers.iter_mut().for_each(container);
    spec.init_containers.iter_mut().flatten().for_each(container);
    spec.resources.iter_mut().for_each(limits);
    spec.ephemeral_containers = None;
    spec.volumes = mem::take(&mut spec.volumes).map(volumes).filter(|volumes| !volumes.is_empty());
    spec.security_context = None;
    spec.image_pull_secrets = None;
    spec.host_aliases = None;
    spec.hostname = None;
    spec.dns_config = None;
}

/// Keeps a container's requests, ports and name.
fn container(container: &mut Container) {
    let whole = mem::take(container);
    *container = Container {
        name: whole.name,
        ports: whole.ports,
        resources: whole.resources,
        restart_policy: whole.restart_policy,
        ..Container::default()
    };
    container.resources.iter_mut().for_each(limits);
}

/// A limit is only read if there is no request, and the API server defaults a missing request to the limit.
fn limits(resources: &mut ResourceRequirements) {
    resources.claims = None;
    let ResourceRequirements { limits: Some(limits), requests: Some(requests), .. } = resources else {
        return;
    };
    limits.retain(|name, _| !requests.contains_key(name));
    if limits.is_empty() {
        resources.limits = None;
    }
}

/// Claims determine where a pod can run; the other two keep data on the node, which decides whether the pod may leave
/// it.
fn is_read_volume(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some()
        || volume.ephemeral.is_some()
        || volume.host_path.is_some()
        || volume.empty_dir.is_some()
}

/// In a vector of exact size: a volume takes much memory even if few fields are set.
fn volumes(mut volumes: Vec<Volume>) -> Vec<Volume> {
    volumes.retain(is_read_volume);
    volumes.shrink_to_fit();
    volumes
}

fn status(status: &mut PodStatus, spec: &PodSpec) {
    let whole = mem::take(status);
    let (resources, allocated_resources) = in_force_at_pod_level(&whole, spec).unzip();
    *status = PodStatus {
        phase: whole.phase,
        conditions: whole.conditions.map(conditions),
        nominated_node_name: whole.nominated_node_name,
        start_time: whole.start_time,
        resources,
        allocated_resources: allocated_resources.flatten(),
        container_statuses: in_force(whole.container_statuses, spec.containers.iter()),
        init_container_statuses: in_force(
            whole.init_container_statuses,
            spec.init_containers.iter().flatten().filter(|container| is_sidecar(container)),
        ),
        ..PodStatus::default()
    };
}

fn conditions(conditions: Vec<PodCondition>) -> Vec<PodCondition> {
    let read = conditions.into_iter().filter(|c| READ_CONDITIONS.contains(&c.type_.as_str()));
    let since = |c: &mut PodCondition| c.last_transition_time.take().filter(|_| c.type_ == "PodScheduled");
    read.map(|mut c| PodCondition {
        last_transition_time: since(&mut c),
        message: unplanned::read_of_message(&c),
        type_: c.type_,
        status: c.status,
        reason: c.reason,
        ..PodCondition::default()
    })
    .collect()
}

/// The resources of a pod as a whole that its node has in force, actual and allocated, if the pod requests any and one
/// of these differs: they matter during a resize.
fn in_force_at_pod_level(
    status: &PodStatus,
    spec: &PodSpec,
) -> Option<(ResourceRequirements, Option<BTreeMap<String, Quantity>>)> {
    let of_pod = spec.resources.as_ref()?;
    let actual = status.resources.as_ref()?;
    let named = of_pod.requests.iter().chain(&of_pod.limits).flatten();
    let mut named = named.filter(|(name, _)| requests::is_at_pod_level(name));
    let is_in_force = |(name, asked): (&String, &Quantity)| {
        let requested = of_pod.requests.as_ref().is_some_and(|requests| requests.contains_key(name));
        requested
            && actual.requests.as_ref().and_then(|requests| requests.get(name)) == Some(asked)
            && status.allocated_resources.as_ref().is_none_or(|granted| granted.get(name) == Some(asked))
    };
    if named.all(is_in_force) {
        return None;
    }
    let kept = ResourceRequirements { requests: actual.requests.clone(), ..ResourceRequirements::default() };
    Some((kept, status.allocated_resources.clone()))
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// The resources allocated to containers matter during a resize: they are kept if they differ from the requests.
fn in_force<'a>(
    statuses: Option<Vec<ContainerStatus>>,
    containers: impl Iterator<Item = &'a Container>,
) -> Option<Vec<ContainerStatus>> {
    let statuses = statuses?;
    let containers: Vec<&Container> = containers.collect();
    let is_read = |status: &ContainerStatus| {
        let container = containers.iter().find(|container| container.name == status.name);
        status.resources.is_some() && container.is_some_and(|container| !is_as_asked(status, container))
    };
    let read = statuses.into_iter().filter(is_read).map(|whole| ContainerStatus {
        name: whole.name,
        resources: whole.resources,
        allocated_resources: whole.allocated_resources,
        ..ContainerStatus::default()
    });
    Some(read.collect::<Vec<_>>()).filter(|read| !read.is_empty())
}

/// Whether allocated, actual and requested resources are all the same, and only requests are set.
fn is_as_asked(status: &ContainerStatus, container: &Container) -> bool {
    let empty = BTreeMap::<String, Quantity>::new();
    let resources = container.resources.as_ref();
    let asked = resources.and_then(|r| r.requests.as_ref()).unwrap_or(&empty);
    let limits = resources.and_then(|r| r.limits.as_ref()).unwrap_or(&empty);
    let in_force = status.resources.as_ref().and_then(|r| r.requests.as_ref()).unwrap_or(&empty);
    in_force == asked
        && status.allocated_resources.as_ref().is_none_or(|granted| granted == asked)
        && limits.keys().all(|name| asked.contains_key(name))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::{Value, json};
    use shared_crds::protection::POD_SCALE_UP_DELAY;

    use super::*;
    use crate::input::pods;
    use crate::input::unplanned;
    use crate::requirements::constraints::Constraints;
    use crate::resources::ResourceNames;
    use crate::scale_down::{budgets, drainability};

    #[test]
    fn the_planner_reads_the_same_from_a_pruned_pod() {
        let whole: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": { "x": "y", "kubernetes.io/config.mirror": "z", POD_SCALE_UP_DELAY: "5m" } },
            "spec": {
                "priority": 7, "terminationGracePeriodSeconds": 60, "nodeSelector": { "zone": "a" }, "overhead": { "cpu": "1" },
                "tolerations": [{ "key": "k", "operator": "Exists" }],
                "volumes": [{ "name": "v", "emptyDir": {} }, { "name": "w", "persistentVolumeClaim": { "claimName": "c" } },
                            { "name": "x", "configMap": { "name": "m" } }],
                "initContainers": [{ "name": "s", "restartPolicy": "Always", "resources": { "requests": { "cpu": "2" } } }],
                "containers": [{ "name": "c", "image": "i", "env": [{ "name": "E", "value": "v" }],
                                 "resources": { "requests": { "cpu": "1", "memory": "1Gi" } }, "ports": [{ "containerPort": 1, "hostPort": 1 }] }]
            },
            "status": { "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available: 3 node(s) exceed max volume count.", "lastTransitionTime": "2026-01-01T00:00:00Z" },
                                       { "type": "Ready", "status": "False" }] }
        }))
        .unwrap();
        let pruned = pods()(whole.clone());
        let whole = PodInfo::from(whole);
        assert!(pods::is_pending(&pruned));
        let read = |pod: &PodInfo| {
            (
                requests::of(pod.shape().pod(), &mut ResourceNames::default()).unwrap(),
                Constraints::of(pod.shape().pod()),
                pods::priority(pod),
                pod.unschedulable_since(),
                pods::scale_up_from(pod).unwrap(),
                pods::keeps_node(pod, Timestamp::UNIX_EPOCH),
                (unplanned::constraints(pod.shape().pod()), unplanned::obstacle(pod.shape().pod())),
                unplanned::storage_refusal(pod.shape().pod()),
            )
        };
        assert_eq!(read(&pruned), read(&whole));
        assert_eq!(
            unplanned::storage_refusal(pruned.shape().pod()),
            Some(unplanned::StorageRefusal::VolumeLimits)
        );
        assert_eq!(pruned.unschedulable_since(), Some("2026-01-01T00:00:00Z".parse().unwrap()));
        assert_eq!(pods::scale_up_from(&pruned), Ok("2026-01-01T00:05:00Z".parse().ok()));
        let going = |mut pod: PodInfo| {
            pod.set_deleted(Some(Timestamp::UNIX_EPOCH));
            pods::keeps_until(&pod)
        };
        assert_eq!(going(pruned.clone()), Some("1970-01-01T00:01:30Z".parse().unwrap()));
        assert!(pruned.spec().unwrap().containers[0].image.is_none());
    }

    #[test]
    fn a_pruned_pod_blocks_its_node_as_the_whole_one_does() {
        let owned = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u", "controller": true }]);
        let annotated =
            |key: &str, value: &str| json!({ "ownerReferences": owned, "annotations": { key: value } });
        let volumes = json!([{ "name": "c", "configMap": { "name": "m" } }, { "name": "v", "hostPath": { "path": "/x" } }]);
        let unready = json!([{ "type": "Ready", "status": "False" }]);
        for (metadata, volumes, conditions, rule) in [
            (json!({}), json!([]), json!([]), Some("NotReplicated")),
            (json!({ "ownerReferences": owned }), json!([]), json!([]), Some("NotEnoughPdb")),
            (json!({ "ownerReferences": owned }), json!([]), unready, None),
            (json!({ "ownerReferences": owned }), volumes, json!([]), Some("LocalStorageRequested")),
            (
                json!({ "ownerReferences": owned }),
                json!([{ "name": "v", "emptyDir": {} }]),
                json!([]),
                Some("LocalStorageRequested"),
            ),
            (
                annotated("karpenter.sh/do-not-disrupt", "2h"),
                json!([]),
                json!([]),
                Some("DoNotDisruptAnnotation"),
            ),
            (annotated("karpenter.sh/do-not-disrupt", "30m"), json!([]), json!([]), Some("NotEnoughPdb")),
            (
                annotated("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
                json!([]),
                json!([]),
                Some("NotSafeToEvictAnnotation"),
            ),
        ] {
            let whole: Pod = serde_json::from_value(json!({ "metadata": metadata, "spec": { "containers": [], "volumes": volumes },
                "status": { "phase": "Running", "startTime": "1970-01-01T00:00:00Z", "conditions": conditions } }))
            .unwrap();
            let budget = json!({ "spec": { "selector": {}, "unhealthyPodEvictionPolicy": "AlwaysAllow" }, "status": { "disruptionsAllowed": 0 } });
            let budgets =
                budgets::Budgets::of(&[std::sync::Arc::new(serde_json::from_value(budget).unwrap())]);
            let pruned = pods()(whole.clone());
            let whole = PodInfo::from(whole);
            let now = "1970-01-01T01:00:00Z".parse().unwrap();
            for pod in [&whole, &pruned] {
                let blocker = drainability::blocker(pod, &budgets, now);
                assert_eq!(blocker.map(|blocker| blocker.rule.as_str()), rule, "{metadata}");
            }
            assert!(
                pruned
                    .spec()
                    .unwrap()
                    .volumes
                    .as_ref()
                    .is_none_or(|volumes| volumes.iter().all(|v| v.config_map.is_none()))
            );
        }
    }

    #[test]
    fn what_is_not_planned_is_kept() {
        for spec in [
            json!({ "containers": [], "resourceClaims": [{ "name": "r", "resourceClaimName": "c" }] }),
            json!({ "containers": [], "schedulingGroup": { "podGroupName": "g" } }),
        ] {
            let whole: Pod = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
            let pruned = pods()(whole.clone());
            let obstacle = unplanned::obstacle(&whole);
            assert!(obstacle.is_some(), "{spec}");
            assert_eq!(unplanned::obstacle(pruned.shape().pod()), obstacle, "{spec}");
        }
    }

    /// A pod of a `ReplicaSet` with the status that the kubelet sets.
    fn running(name: &str, node: &str, granted: &str) -> Pod {
        let resources = json!({ "requests": { "cpu": granted }, "limits": { "cpu": granted } });
        let object: Value = json!({
            "metadata": { "name": name, "namespace": "ns", "uid": name, "labels": { "app": "a" }, "generateName": "p-",
                "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u", "controller": true }] },
            "spec": { "nodeName": node, "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" }, "limits": { "cpu": "1" } } }] },
            "status": { "phase": "Running", "hostIP": node, "podIP": name, "startTime": "2026-01-01T00:00:00Z",
                "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
                "containerStatuses": [{ "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0, "containerID": name,
                    "resources": resources, "allocatedResources": { "cpu": granted } }] }
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn pods_of_one_template_have_one_shape_until_one_is_resized() {
        let pods = [running("p", "n", "1"), running("q", "m", "1"), running("r", "n", "2")].map(pods());
        let [p, q, resized] = &pods;
        assert!(p.shape().id() == q.shape().id(), "{:#?} {:#?}", p.shape(), q.shape());
        assert!(p.status().unwrap().container_statuses.is_none());
        let cpu = |pod: &PodInfo| requests::exact_of(pod.shape().pod()).unwrap()["cpu"];
        assert_eq!(cpu(resized), cpu(&PodInfo::from(running("r", "n", "2"))), "what was granted counts");
        assert!(cpu(resized) > cpu(p));
    }

    #[test]
    fn pods_share_a_shape_whatever_the_scheduler_says_except_about_volume_limits() {
        let of = |message: &str| -> Pod {
            let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message });
            let object = json!({ "metadata": { "name": "p" }, "spec": { "containers": [] },
                "status": { "phase": "Pending", "conditions": [condition] } });
            serde_json::from_value(object).unwrap()
        };
        let mut keep = pods();
        let mut shape = |message: &str| keep(of(message)).shape().clone();
        let short = shape("0/1 nodes are available: 1 Insufficient cpu.");
        let limited = shape("0/1 nodes are available: 1 node(s) exceed max volume count.");
        assert!(short.id() == shape("0/2 nodes are available: 2 Insufficient cpu.").id());
        assert!(limited.id() == shape("0/2 nodes are available: 2 node(s) exceed max volume count.").id());
        assert!(short.id() != limited.id());
    }

    #[test]
    fn what_a_node_has_in_force_for_a_pod_as_a_whole_is_kept_during_a_resize() {
        let of = |actual: &str, allocated: &str| -> Pod {
            let object = json!({ "metadata": { "name": "p", "namespace": "ns" },
                "spec": { "nodeName": "n", "containers": [],
                    "resources": { "requests": { "cpu": "1" }, "limits": { "cpu": "1" } } },
                "status": { "phase": "Running", "allocatedResources": { "cpu": allocated },
                    "resources": { "requests": { "cpu": actual }, "limits": { "cpu": actual } } } });
            serde_json::from_value(object).unwrap()
        };
        let mut keep = pods();
        for (actual, allocated, is_kept) in
            [("1", "1", false), ("3", "3", true), ("1", "3", true), ("3", "1", true)]
        {
            let pruned = keep(of(actual, allocated));
            let cpu = |pod: &PodInfo| requests::exact_of(pod.shape().pod()).unwrap()["cpu"];
            assert_eq!(cpu(&pruned), cpu(&PodInfo::from(of(actual, allocated))), "{actual} {allocated}");
            assert_eq!(pruned.status().unwrap().resources.is_some(), is_kept, "{actual} {allocated}");
        }
    }

    #[test]
    fn the_status_of_an_init_container_that_ends_is_not_kept() {
        let status = |name: &str| {
            json!({ "name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "resources": { "requests": { "cpu": "2" } } })
        };
        let whole: Pod = serde_json::from_value(json!({ "metadata": { "name": "p" },
            "spec": { "containers": [], "initContainers": [{ "name": "i" }, { "name": "s", "restartPolicy": "Always" }] },
            "status": { "initContainerStatuses": [status("i"), status("s")] } }))
        .unwrap();
        let pruned = pods()(whole);
        let kept = pruned.status().unwrap().init_container_statuses.as_ref().unwrap();
        assert_eq!(kept.iter().map(|status| status.name.as_str()).collect::<Vec<_>>(), ["s"]);
    }

    #[test]
    fn pods_of_a_daemon_have_one_shape_with_a_node_and_without() {
        let on = |name: &str, node: &str| -> Pod {
            let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [name] }] }] } } });
            let owners = json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": true }]);
            let object = json!({ "metadata": { "name": name, "namespace": "ns", "ownerReferences": owners },
                "spec": { "nodeName": node, "containers": [], "affinity": affinity } });
            serde_json::from_value(object).unwrap()
        };
        let pods = [on("a", "a"), on("b", "b"), on("c", "")].map(pods());
        assert!(pods.iter().all(|pod| pod.shape().id() == pods[0].shape().id()));
    }

    #[test]
    fn pods_of_a_stateful_set_share_all_but_their_labels_and_claims() {
        let of = |name: &str| -> Pod {
            let object = json!({
                "metadata": { "name": name, "namespace": "ns", "labels": { "statefulset.kubernetes.io/pod-name": name } },
                "spec": { "hostname": name, "containers": [],
                    "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": format!("data-{name}") } }] } });
            serde_json::from_value(object).unwrap()
        };
        let pods = [of("p-0"), of("p-1")].map(pods());
        let [one, other] = &pods;
        assert!(std::ptr::eq(one.shape().pod(), other.shape().pod()));
        assert_eq!([one, other].map(|pod| pod.claims().collect::<Vec<_>>()), [["data-p-0"], ["data-p-1"]]);
    }
}
