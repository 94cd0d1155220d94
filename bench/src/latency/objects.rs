//! The objects of a large cluster as they are applied. What the API server adds by itself (the service account's volume,
//! default tolerations, the priority) is left to it.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::deal::{ALLOCATABLE, DAEMON, Deal, NEWCOMER};

/// Namespace of the pools, of the `DaemonSets` and of the samples' pods.
pub(crate) const NAMESPACE: &str = "platform";
/// The namespaces of the other pods.
pub(crate) const TEAMS: [&str; 8] =
    ["billing", "catalog", "checkout", "identity", "mail", "media", "search", "shipping"];
/// The zones. Each has a pool.
pub(crate) const ZONES: [&str; 4] = ["zone-a", "zone-b", "zone-c", "zone-d"];
/// Owner of the samples' pods.
pub(crate) const NEWCOMERS: &str = "report";
const ZONE: &str = "topology.kubernetes.io/zone";
/// Annotation of a pod whose status the bench writes itself: kwok leaves it alone (its stages, `testbed/control-plane`).
const RUN_BY: &str = "testbed.tandem.dev/run-by";
/// What the kubelet and the system have of a node.
const RESERVED: usize = 100;

/// The name of the pool in a zone.
pub(crate) fn pool_name(zone: &str) -> String {
    format!("general-{zone}")
}

/// A pool of 8-core nodes in a zone.
pub(crate) fn pool(zone: &str, replicas: usize, most: usize) -> Value {
    json!({
        "metadata": {"name": pool_name(zone), "namespace": NAMESPACE, "labels": {"scaled": "yes"}},
        "spec": {
            "replicas": replicas,
            "maxReplicas": most,
            "template": {
                "metadata": {"labels": {
                    ZONE: zone,
                    "topology.kubernetes.io/region": "region-1",
                    "node.kubernetes.io/instance-type": "general-8",
                    "kubernetes.io/arch": "amd64",
                    "kubernetes.io/os": "linux",
                }},
                "spec": {
                    "capacity": {"cpu": millis(ALLOCATABLE + RESERVED), "memory": "32Gi", "pods": "110"},
                    "reserved": {"cpu": millis(RESERVED), "memory": "1Gi"},
                },
            },
            "provider": {"simulated": {}},
        },
    })
}

/// An autoscaler of all pools, as it is by default.
pub(crate) fn autoscaler() -> Value {
    json!({
        "metadata": {"name": "all", "namespace": NAMESPACE},
        "spec": {"nodePoolSelector": {"matchLabels": {"scaled": "yes"}}},
    })
}

fn millis(cpu: usize) -> String {
    format!("{cpu}m")
}

/// Two containers that ask for `cpu` together, with limits.
fn containers(image: &str, cpu: usize) -> Value {
    let resources = |cpu: usize| {
        json!({
            "requests": {"cpu": millis(cpu), "memory": format!("{}Mi", cpu * 2)},
            "limits": {"cpu": millis(cpu * 2), "memory": format!("{}Mi", cpu * 4)},
        })
    };
    let sidecar = cpu / 5;
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": "http"}, "periodSeconds": 10});
    json!([
        {
            "name": "app",
            "image": format!("registry.example.com/{image}@sha256:{}", "0123456789abcdef".repeat(4)),
            "args": ["--listen=0.0.0.0:8080", "--config=/etc/app/config.yaml", "--log-format=json"],
            "ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9090}],
            "env": [
                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
                {"name": "DATABASE_URL", "valueFrom": {"secretKeyRef": {"name": "database", "key": "url"}}},
                {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector.observability.svc:4317"},
                {"name": "GOMEMLIMIT", "value": "400MiB"},
                {"name": "FEATURES", "value": "fast-path,second-cache,structured-log"},
            ],
            "resources": resources(cpu - sidecar),
            "readinessProbe": probe("/ready"),
            "livenessProbe": probe("/live"),
            "volumeMounts": [{"name": "config", "mountPath": "/etc/app", "readOnly": true}],
            "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]}},
        },
        {
            "name": "proxy",
            "image": "registry.example.com/proxy:1.24.3",
            "ports": [{"name": "admin", "containerPort": 15000}],
            "env": [{"name": "UPSTREAM", "value": "127.0.0.1:8080"}, {"name": "CONCURRENCY", "value": "2"}],
            "resources": resources(sidecar),
        },
    ])
}

fn labels(name: &str) -> Value {
    json!({
        "app.kubernetes.io/name": name,
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/version": "1.42.0",
        "app.kubernetes.io/managed-by": "Helm",
    })
}

fn annotations() -> Value {
    json!({
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "9090",
        "checksum/config": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "kubectl.kubernetes.io/restartedAt": "2026-01-01T12:00:00Z",
    })
}

fn config(name: &str) -> Value {
    json!({"name": "config", "configMap": {"name": name}})
}

fn spec(name: &str, cpu: usize) -> Value {
    json!({
        "containers": containers(name, cpu),
        "volumes": [config(name)],
        "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "fsGroup": 1000},
    })
}

/// A `DaemonSet` of [`NAMESPACE`]; its own controller makes the pods.
pub(crate) fn daemon_set(number: usize) -> Value {
    let name = format!("agent-{number}");
    let mut spec = spec(&name, DAEMON);
    spec["tolerations"] = json!([{"operator": "Exists"}]);
    json!({
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels(&name)},
        "spec": {
            "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
            "template": {"metadata": {"labels": labels(&name), "annotations": annotations()}, "spec": spec},
        },
    })
}

/// Which pods one owner has: those of a slot on neighbouring nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) name: String,
    pub(crate) namespace: &'static str,
    /// Whether the pods have names and claims of their own.
    pub(crate) stateful: bool,
    pub(crate) pods: usize,
    pub(crate) cpu: usize,
}

impl Owner {
    /// The owner of the pods in `slot` on `pods` nodes; `number` tells it from every other.
    pub(crate) fn new(deal: &Deal, slot: usize, number: usize, pods: usize) -> Self {
        let stateful = slot < deal.stateful;
        Self {
            name: format!("{}-{number:04}", if stateful { "store" } else { "service" }),
            namespace: TEAMS[number % TEAMS.len()],
            stateful,
            pods,
            cpu: deal.cpu(slot),
        }
    }

    /// The owner of the samples' pods.
    pub(crate) fn of_newcomers(samples: usize) -> Self {
        Self {
            name: NEWCOMERS.to_owned(),
            namespace: NAMESPACE,
            stateful: false,
            pods: samples,
            cpu: NEWCOMER,
        }
    }

    /// Its kind.
    pub(crate) const fn kind(&self) -> &'static str {
        if self.stateful { "StatefulSet" } else { "ReplicaSet" }
    }

    fn labels(&self) -> Value {
        let mut labels = labels(&self.name);
        if self.stateful {
            labels["controller-revision-hash"] = json!(format!("{}-7d4c9f6b58", self.name));
        } else {
            labels["pod-template-hash"] = json!("7d4c9f6b58");
        }
        labels
    }

    /// The `ReplicaSet` or `StatefulSet` itself.
    pub(crate) fn object(&self) -> Value {
        let Self { name, namespace, stateful, pods, cpu } = self;
        let mut object = json!({
            "apiVersion": "apps/v1",
            "kind": self.kind(),
            "metadata": {"name": name, "namespace": namespace, "labels": labels(name)},
            "spec": {
                "replicas": pods,
                "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
                "template": {"metadata": {"labels": self.labels(), "annotations": annotations()}, "spec": spec(name, *cpu)},
            },
        });
        if *stateful {
            object["spec"]["serviceName"] = json!(name);
        }
        object
    }

    /// One of its pods, on `node` or waiting for one. `uid` is that of the owner's object.
    pub(crate) fn pod(&self, uid: &str, ordinal: usize, node: Option<&str>) -> Value {
        let Self { name, namespace, stateful, pods: _, cpu } = self;
        let mut pod = json!({
            "metadata": {
                "namespace": namespace,
                "labels": self.labels(),
                "annotations": annotations(),
                "ownerReferences": [{
                    "apiVersion": "apps/v1",
                    "kind": self.kind(),
                    "name": name,
                    "uid": uid,
                    "controller": true,
                    "blockOwnerDeletion": true,
                }],
            },
            "spec": spec(name, *cpu),
        });
        if let Some(node) = node {
            pod["spec"]["nodeName"] = json!(node);
            pod["metadata"]["annotations"][RUN_BY] = json!("bench");
        }
        if *stateful {
            let own = format!("{name}-{ordinal}");
            pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = json!(own);
            pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = json!(ordinal.to_string());
            pod["spec"]["hostname"] = json!(own);
            pod["spec"]["volumes"] = json!([config(name), {"name": "data", "persistentVolumeClaim": {"claimName": claim_name(&own)}}]);
            pod["metadata"]["name"] = json!(own);
        } else {
            pod["metadata"]["generateName"] = json!(format!("{name}-7d4c9f6b58-"));
        }
        pod
    }

    /// The status of one of its pods that runs, as a kubelet writes it.
    pub(crate) fn running(&self) -> Value {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let conditions =
            ["PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"];
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
        let container = |of: &Value| {
            json!({
                "name": of["name"],
                "image": of["image"],
                "imageID": "",
                "ready": true,
                "started": true,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
                "resources": of["resources"],
                "allocatedResources": of["resources"]["requests"],
            })
        };
        let containers = containers(&self.name, self.cpu);
        json!({"status": {
            "phase": "Running",
            "startTime": now,
            "conditions": conditions.map(condition),
            "containerStatuses": containers.as_array().into_iter().flatten().map(container).collect::<Vec<_>>(),
        }})
    }

    /// The claim of a pod with a name of its own, and the volume that it gets, which is in `zone`.
    pub(crate) fn claim(&self, ordinal: usize, zone: &str) -> (Value, Value) {
        let claim = claim_name(&format!("{}-{ordinal}", self.name));
        let volume = format!("pvc-{}-{claim}", self.namespace);
        let common = json!({
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
        });
        let mut of_claim = common.clone();
        of_claim["volumeName"] = json!(volume);
        of_claim["resources"] = json!({"requests": {"storage": "20Gi"}});
        let mut of_volume = common;
        of_volume["capacity"] = json!({"storage": "20Gi"});
        of_volume["csi"] =
            json!({"driver": "disk.csi.example.com", "volumeHandle": volume, "fsType": "ext4"});
        of_volume["claimRef"] = json!({"namespace": self.namespace, "name": claim});
        of_volume["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]},
        ]}});
        (
            json!({
                "metadata": {"name": claim, "namespace": self.namespace, "labels": {"app.kubernetes.io/name": self.name}},
                "spec": of_claim,
            }),
            json!({"metadata": {"name": volume}, "spec": of_volume}),
        )
    }
}

fn claim_name(pod: &str) -> String {
    format!("data-{pod}")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::{DaemonSet, ReplicaSet, StatefulSet};
    use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
    use serde::de::DeserializeOwned;
    use shared_crds::{NodePool, NodePoolAutoscaler};

    use super::*;

    fn read<K: DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn every_object_is_what_it_says() {
        let deal = Deal::of(1000, 30_000).unwrap();
        assert_eq!(read::<NodePool>(pool("zone-a", 250, 400)).spec.replicas, Some(250));
        read::<NodePoolAutoscaler>(autoscaler());
        read::<DaemonSet>(daemon_set(0));
        let (stateful, plain) = (Owner::new(&deal, 0, 1, 30), Owner::new(&deal, 3, 2, 30));
        read::<StatefulSet>(stateful.object());
        read::<ReplicaSet>(plain.object());
        let (claim, volume) = stateful.claim(4, "zone-b");
        let (claim, volume) = (read::<PersistentVolumeClaim>(claim), read::<PersistentVolume>(volume));
        assert_eq!(claim.spec.unwrap().volume_name, volume.metadata.name);
        let pod = read::<Pod>(stateful.pod("u", 4, Some("n")));
        let volumes = pod.spec.unwrap().volumes.unwrap();
        let claimed = volumes[1].persistent_volume_claim.clone().unwrap();
        assert_eq!(Some(claimed.claim_name), claim.metadata.name);
    }

    #[test]
    fn a_pod_that_the_bench_runs_says_what_a_kubelet_would_and_is_left_alone_by_kwok() {
        let owner = Owner::of_newcomers(1);
        let mut pod = owner.pod("u", 0, Some("n"));
        pod["status"] = owner.running()["status"].clone();
        assert!(testbed::control_plane::layout::stages().contains(RUN_BY));
        assert!(pod["metadata"]["annotations"][RUN_BY].is_string());
        assert!(owner.pod("u", 0, None)["metadata"]["annotations"][RUN_BY].is_null(), "kwok runs it");
        let status = read::<Pod>(pod).status.unwrap();
        assert_eq!(status.phase.as_deref(), Some("Running"));
        let containers = status.container_statuses.unwrap();
        assert!(containers.iter().all(|it| it.ready && it.allocated_resources.is_some()), "{containers:?}");
        assert_eq!(containers.len(), 2);
    }

    #[test]
    fn a_pod_asks_for_what_its_owner_says_and_is_selected_by_it() {
        let owner = Owner::of_newcomers(100);
        let pod = read::<Pod>(owner.pod("u", 0, None));
        let set = read::<ReplicaSet>(owner.object());
        let selected = set.spec.unwrap().selector.match_labels.unwrap();
        let labels = pod.metadata.labels.unwrap();
        assert!(selected.iter().all(|(key, value)| labels.get(key) == Some(value)));
        let asked: usize = pod
            .spec
            .unwrap()
            .containers
            .iter()
            .map(|container| {
                let requests = container.resources.clone().unwrap().requests.unwrap();
                requests["cpu"].0.trim_end_matches('m').parse::<usize>().unwrap()
            })
            .sum();
        assert_eq!(asked, NEWCOMER);
    }
}
