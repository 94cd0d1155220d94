//! Random nodes and pools: zones, racks, sizes, labels, taints; some nodes lack labels that most have.

use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::names::{TEMPLATE_HASH_ANNOTATION, member_labels};

use super::seeded_rng::SeededRng;

/// The label of a node's zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The label of a node's own name.
pub const HOST: &str = "kubernetes.io/hostname";
/// A topology domain that Kubernetes does not know.
pub const RACK: &str = "example.com/rack";
/// The taint of a cordoned node.
pub const CORDON: &str = "node.kubernetes.io/unschedulable";
/// A resource that Kubernetes does not know.
pub const GPU: &str = "example.com/gpu";
/// Every topology key that a constraint may use.
pub const KEYS: [&str; 3] = [ZONE, HOST, RACK];
/// The existing zones.
pub const ZONES: [&str; 3] = ["za", "zb", "zc"];
/// Claims in each namespace that are bound only when a pod uses them, if ever: `late-0` and so on.
pub const LATE_CLAIMS: usize = 4;
/// The provisioner of the classes whose volumes are created on demand.
pub const PROVISIONER: &str = "example.com/conformance";
/// The provisioner of the class that has only existing volumes.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// The storage class that has one volume in a cluster.
pub const SCARCE: &str = "scarce";
/// The label of pools by which the autoscaler selects them.
pub const SELECTED: (&str, &str) = ("conformance", "yes");

/// A node that belongs to no pool.
pub fn node(rng: &mut SeededRng, name: &str) -> Value {
    let mut labels = random_labels(rng);
    // A node without its own name as a label is in no domain of that key.
    if !rng.one_in(8) {
        labels[HOST] = json!(name);
    }
    let mut node = ready(name, &labels, &capacity(rng), &taints(rng));
    if rng.one_in(5) {
        node["spec"]["unschedulable"] = json!(true);
        // The node lifecycle controller, which does not run here, would add the corresponding taint. It matters to
        // topology spread constraints that honour taints.
        if let Some(taints) = node["spec"]["taints"].as_array_mut() {
            taints.push(json!({"key": CORDON, "effect": "NoSchedule"}));
        }
    }
    node
}

/// A node in its own zone that hardly any pod tolerates: whether it counts as a domain to spread over depends on the
/// policy.
pub fn frozen(name: &str) -> Value {
    let capacity = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    let taints = json!([{"key": "frozen", "effect": "NoSchedule"}]);
    ready(name, &json!({ZONE: "zd", HOST: name}), &capacity, &taints)
}

/// A pool without nodes.
pub fn pool(rng: &mut SeededRng, namespace: &str, name: &str) -> Value {
    let taints = if rng.one_in(4) { taints(rng) } else { json!([]) };
    let mut labels = random_labels(rng);
    labels["pool-size"] = json!(rng.pick(&["small", "large"]));
    json!({
        "apiVersion": "tandem.dev/v1alpha1",
        "kind": "NodePool",
        "metadata": {"namespace": namespace, "name": name, "labels": {SELECTED.0: SELECTED.1}},
        "spec": {
            "replicas": 0,
            "minReplicas": 0,
            "maxReplicas": 1 + rng.below(4),
            "template": {
                "metadata": {"labels": labels},
                "spec": {"capacity": capacity(rng), "taints": taints},
            },
            "provider": {"simulated": {}},
        },
    })
}

/// A `DaemonSet` that runs on every node, whatever its taints.
pub fn daemon_set(rng: &mut SeededRng, namespace: &str) -> Value {
    let container = json!({
        "name": "daemon", "image": "none",
        "resources": {"requests": {"cpu": rng.pick(&["100m", "300m"]), "memory": "128Mi"}},
        "ports": [{"containerPort": 8080, "hostPort": 8080, "protocol": "TCP"}],
    });
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"namespace": namespace, "name": "daemon", "uid": "daemon"},
        "spec": {
            "selector": {"matchLabels": {"daemon": "yes"}},
            "template": {
                "metadata": {"labels": {"daemon": "yes"}},
                "spec": {
                    "containers": [container], "tolerations": [{"operator": "Exists"}],
                    "terminationGracePeriodSeconds": 0,
                },
            },
        },
    })
}

/// The pod of a `DaemonSet` on `node`.
pub fn daemon(set: &Value, node: &str) -> Value {
    let template = &set["spec"]["template"];
    let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
    pod["metadata"]["namespace"] = set["metadata"]["namespace"].clone();
    pod["metadata"]["name"] = json!(format!("daemon-{node}"));
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "daemon", "uid": "daemon", "controller": true}]);
    pod["spec"]["nodeName"] = json!(node);
    pod
}

/// Storage classes: created anywhere, created in some places, taken from existing volumes, bound before a pod is placed,
/// and with one volume only.
pub fn storage_classes() -> [Value; 5] {
    let class = |name: &str, provisioner: &str, mode: &str| {
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": provisioner,
            "reclaimPolicy": "Retain",
            "volumeBindingMode": mode,
        })
    };
    let waits = "WaitForFirstConsumer";
    let mut somewhere = class("somewhere", PROVISIONER, waits);
    let is_in = |key: &str, values: &[&str]| json!({"key": key, "values": values});
    somewhere["allowedTopologies"] = json!([
        {"matchLabelExpressions": [is_in(ZONE, &["za"])]},
        {"matchLabelExpressions": [is_in(ZONE, &["zb"]), is_in(RACK, &["r1", "r2"])]},
    ]);
    [
        class("anywhere", PROVISIONER, waits),
        somewhere,
        class("local", NO_PROVISIONER, waits),
        class("at-once", PROVISIONER, "Immediate"),
        class(SCARCE, NO_PROVISIONER, waits),
    ]
}

/// A claim without a volume.
pub fn late_claim(rng: &mut SeededRng, namespace: &str, name: &str) -> Value {
    let modes = ["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"];
    let classes = ["anywhere", "somewhere", "somewhere", "local", "local", "local", "at-once"];
    json!({
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "accessModes": [rng.pick(&modes)],
            "resources": {"requests": {"storage": rng.pick(&["1Gi", "3Gi"])}},
            "storageClassName": rng.pick(&classes),
        },
    })
}

/// A volume without a claim, in a zone or on the host called `host`.
pub fn free_volume(rng: &mut SeededRng, name: &str, host: &str) -> Value {
    let (key, value) = if rng.one_in(3) { (HOST, host) } else { (ZONE, *rng.pick(&ZONES)) };
    let shared = ["ReadWriteOnce", "ReadWriteMany"];
    let modes = if rng.one_in(3) { &["ReadWriteOncePod"][..] } else { &shared[rng.below(2)..] };
    json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": modes,
            "capacity": {"storage": rng.pick(&["1Gi", "5Gi"])},
            "storageClassName": rng.pick(&["local", "local", "somewhere"]),
            "persistentVolumeReclaimPolicy": "Retain",
            "nfs": {"server": "none", "path": "/"},
            "nodeAffinity": only(key, value),
        },
    })
}

/// The node affinity of a volume that can be used where `key` is `value`.
pub fn only(key: &str, value: &str) -> Value {
    let term = json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]});
    json!({"required": {"nodeSelectorTerms": [term]}})
}

/// The autoscaler that plans the pools, and removes no node during the test.
pub fn autoscaler(namespace: &str) -> Value {
    json!({
        "apiVersion": "tandem.dev/v1alpha1",
        "kind": "NodePoolAutoscaler",
        "metadata": {"namespace": namespace, "name": "conformance"},
        "spec": {
            "nodePoolSelector": {"matchLabels": {SELECTED.0: SELECTED.1}},
            "mode": "Auto",
            "scaleDown": {"unneededSeconds": 86_400, "delayAfterAddSeconds": 86_400},
        },
    })
}

/// A node of `pool`, as the simulated provider creates it.
pub fn machine(pool: &Value, name: &str) -> Value {
    let template = &pool["spec"]["template"];
    let mut labels = template["metadata"]["labels"].clone();
    labels["kubernetes.io/os"] = json!("linux");
    labels["kubernetes.io/arch"] = json!("amd64");
    labels["kwok.x-k8s.io/node"] = json!("fake");
    labels[HOST] = json!(name);
    let part = |part: &str| pool["metadata"][part].as_str().unwrap_or_default();
    for (key, value) in member_labels(part("namespace"), part("name")) {
        labels[key] = json!(value);
    }
    ready(name, &labels, &template["spec"]["capacity"], &template["spec"]["taints"])
}

/// Notes on a node of `pool` from which template it was made, as the provider does: only such nodes show the planner what
/// a new one will have. `None` when the pool cannot be read.
pub fn note_template(pool: &Value, node: &mut Value) -> Option<()> {
    let pool: NodePool = serde_json::from_value(pool.clone()).ok()?;
    let hash = pool.spec.template_hash()?;
    node["metadata"]["annotations"] = json!({TEMPLATE_HASH_ANNOTATION: hash});
    Some(())
}

/// A Ready node with all of `capacity` for pods.
pub fn ready(name: &str, labels: &Value, capacity: &Value, taints: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn random_labels(rng: &mut SeededRng) -> Value {
    let mut labels = json!({});
    let mut maybe = |absent: usize, key: &str, values: &[&str]| {
        if !rng.one_in(absent) {
            labels[key] = json!(rng.pick(values));
        }
    };
    maybe(7, ZONE, &ZONES);
    maybe(4, RACK, &["r1", "r2", "r3", "r4"]);
    maybe(3, "disk", &["ssd", "hdd"]);
    // Numbers for `Gt` and `Lt`, and one value that is not a number.
    maybe(4, "generation", &["1", "2", "3", "x"]);
    labels
}

fn capacity(rng: &mut SeededRng) -> Value {
    let mut capacity = json!({
        "cpu": rng.pick(&["1", "2", "4"]),
        "memory": rng.pick(&["2Gi", "4Gi", "8Gi"]),
        "ephemeral-storage": rng.pick(&["10Gi", "20Gi"]),
        "pods": rng.pick(&["3", "5", "110"]),
    });
    if rng.one_in(4) {
        capacity[GPU] = json!(rng.pick(&["1", "2"]));
    }
    capacity
}

fn taints(rng: &mut SeededRng) -> Value {
    let mut taints = Vec::new();
    if rng.one_in(4) {
        taints.push(json!({"key": "dedicated", "value": rng.pick(&["red", "blue"]), "effect": "NoSchedule"}));
    }
    if rng.one_in(5) {
        taints.push(json!({"key": "maintenance", "effect": "NoExecute"}));
    }
    // Keeps no pod away.
    if rng.one_in(5) {
        taints.push(json!({"key": "crowded", "effect": "PreferNoSchedule"}));
    }
    Value::Array(taints)
}
