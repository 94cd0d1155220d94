//! What the caches keep of nodes and pods: only what the planner reads, because these are the many objects of a cluster.

mod others;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Node, Pod, Volume};
use kube::ResourceExt as _;

pub use others::{budget, claim, daemon_set, namespace, storage_class, volume};

/// Annotations that somebody reads begin with one of these.
const READ_ANNOTATIONS: [&str; 4] =
    ["tandem.dev/", "kubernetes.io/config.mirror", "cluster-autoscaler.kubernetes.io/", "karpenter.sh/"];
/// Conditions of pods that somebody reads.
const READ_CONDITIONS: [&str; 3] = ["PodScheduled", "PodResizePending", "Ready"];

/// Drops what the planner does not read of a node; on a real one the list of images is most of the object.
pub fn node(node: &mut Node) {
    node.annotations_mut().retain(|key, _| is_read(key));
    if let Some(status) = node.status.as_mut() {
        status.addresses = None;
        status.images = None;
        status.node_info = None;
        status.volumes_attached = None;
        status.volumes_in_use = None;
        status.conditions.iter_mut().flatten().for_each(|c| c.message = None);
    }
}

/// Drops what the planner does not read of a pod: requests, ports and the container's name stay of a container.
pub fn pod(pod: &mut Pod) {
    pod.annotations_mut().retain(|key, _| is_read(key));
    if let Some(spec) = pod.spec.as_mut() {
        spec.containers.iter_mut().for_each(container);
        spec.init_containers.iter_mut().flatten().for_each(container);
        spec.ephemeral_containers = None;
        spec.volumes.iter_mut().for_each(|volumes| volumes.retain(is_read_volume));
        spec.security_context = None;
        spec.image_pull_secrets = None;
        spec.host_aliases = None;
        spec.dns_config = None;
    }
    if let Some(status) = pod.status.as_mut() {
        status.conditions.iter_mut().for_each(|conditions| {
            conditions.retain(|c| READ_CONDITIONS.contains(&c.type_.as_str()));
            for condition in conditions {
                condition.message = None;
            }
        });
        status.container_statuses.iter_mut().for_each(container_statuses);
        status.init_container_statuses.iter_mut().for_each(container_statuses);
        status.ephemeral_container_statuses = None;
        status.host_ips = None;
        status.pod_ips = None;
    }
}

fn is_read(annotation: &str) -> bool {
    READ_ANNOTATIONS.iter().any(|prefix| annotation.starts_with(prefix))
}

/// Claims say where a pod can run; the other two keep data on the node, which decides whether the pod may leave it.
fn is_read_volume(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some()
        || volume.ephemeral.is_some()
        || volume.host_path.is_some()
        || volume.empty_dir.is_some()
}

fn container(container: &mut Container) {
    let whole = std::mem::take(container);
    *container = Container {
        name: whole.name,
        ports: whole.ports,
        resources: whole.resources,
        restart_policy: whole.restart_policy,
        ..Container::default()
    };
}

/// Statuses say what a container was granted, which counts while it is resized.
fn container_statuses(statuses: &mut Vec<ContainerStatus>) {
    statuses.retain(|status| status.resources.is_some());
    for status in statuses {
        let whole = std::mem::take(status);
        *status = ContainerStatus {
            name: whole.name,
            resources: whole.resources,
            allocated_resources: whole.allocated_resources,
            ..ContainerStatus::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
    use serde_json::json;

    use super::*;
    use crate::plan::{budgets, drainability, pods, requests, resources::Names};

    #[test]
    fn the_planner_reads_the_same_from_a_pruned_pod() {
        let whole: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "ns", "uid": "u", "annotations": { "x": "y", "kubernetes.io/config.mirror": "z" } },
            "spec": {
                "priority": 7, "terminationGracePeriodSeconds": 60, "nodeSelector": { "zone": "a" }, "overhead": { "cpu": "1" },
                "tolerations": [{ "key": "k", "operator": "Exists" }],
                "volumes": [{ "name": "v", "emptyDir": {} }, { "name": "w", "persistentVolumeClaim": { "claimName": "c" } },
                            { "name": "x", "configMap": { "name": "m" } }],
                "initContainers": [{ "name": "s", "restartPolicy": "Always", "resources": { "requests": { "cpu": "2" } } }],
                "containers": [{ "name": "c", "image": "i", "env": [{ "name": "E", "value": "v" }],
                                 "resources": { "requests": { "cpu": "1", "memory": "1Gi" } }, "ports": [{ "containerPort": 1, "hostPort": 1 }] }]
            },
            "status": { "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3" },
                                       { "type": "Ready", "status": "False" }] }
        }))
        .unwrap();
        let mut pruned = whole.clone();
        pod(&mut pruned);
        assert!(pods::is_pending(&pruned));
        let read = |pod: &Pod| {
            let requests = requests::of(pod, &mut Names::default()).unwrap();
            let constraints = crate::plan::constraints::Constraints::of(pod);
            (
                requests,
                constraints,
                pods::priority(pod),
                pods::keeps_node(pod, Timestamp::UNIX_EPOCH),
                crate::plan::unplanned::constraints(pod),
            )
        };
        assert_eq!(read(&pruned), read(&whole));
        let going = |mut pod: Pod| {
            pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
            pods::keeps_until(&pod)
        };
        assert_eq!(going(pruned.clone()), Some("1970-01-01T00:01:30Z".parse().unwrap()));
        assert!(pruned.spec.unwrap().containers[0].image.is_none());
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
            let mut pruned = whole.clone();
            pod(&mut pruned);
            let now = "1970-01-01T01:00:00Z".parse().unwrap();
            for pod in [&whole, &pruned] {
                let blocker = drainability::blocker(pod, &budgets, now);
                assert_eq!(blocker.map(|blocker| blocker.rule.as_str()), rule, "{metadata}");
            }
            assert!(
                pruned
                    .spec
                    .unwrap()
                    .volumes
                    .is_none_or(|volumes| volumes.iter().all(|v| v.config_map.is_none()))
            );
        }
    }

    #[test]
    fn the_planner_reads_the_same_from_a_pruned_node() {
        let whole: Node = serde_json::from_value(json!({
            "metadata": { "name": "n", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": { "zone": "a" },
                "annotations": { "tandem.dev/drain-start-time": "x", "node.alpha.kubernetes.io/ttl": "0" } },
            "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] },
            "status": { "allocatable": { "cpu": "1" }, "images": [{ "names": ["i"] }],
                        "conditions": [{ "type": "Ready", "status": "True", "message": "m" }] }
        }))
        .unwrap();
        let mut pruned = whole.clone();
        node(&mut pruned);
        let read = |node: &Node| {
            let profile = crate::plan::profile::Profile::of_node(node);
            let facts = (crate::plan::nodes::is_leaving(node), crate::plan::nodes::is_ready(node));
            let created: Option<Timestamp> = crate::plan::nodes::created(node);
            (profile, facts, created, crate::plan::pools::allocatable(node, &mut Names::default()))
        };
        assert_eq!(read(&pruned), read(&whole));
        assert!(pruned.status.unwrap().images.is_none());
    }
}
