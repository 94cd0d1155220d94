//! Invalid `NodePool`s are rejected by a real API server, with a message that tells what to do. No operator runs.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shared_crds::NodePool;
use testbed::cluster::{Cluster, TestNamespace};
use testbed::wait::{PATIENCE, eventually};
use testbed::{objects, tandem};

async fn cluster() -> &'static Cluster {
    tandem::definitions_only().await.unwrap()
}

async fn namespace() -> TestNamespace {
    cluster().await.namespace("validation").await.unwrap()
}

/// A valid pool with `change` merged into it, as kubectl would apply it.
fn manifest(change: &Value) -> String {
    let mut pool = serde_json::to_value(objects::pool("x", 1, 5)).unwrap();
    json_patch(&mut pool, change);
    serde_json::to_string(&pool).unwrap()
}

/// An RFC 7386 merge.
fn json_patch(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            json_patch(target.as_object_mut().unwrap().entry(key).or_insert(Value::Null), value);
        }
    }
}

async fn apply(namespace: &TestNamespace, change: &Value) -> Result<String, String> {
    let args = ["--namespace", namespace.name(), "apply", "--filename", "-"];
    cluster().await.kubectl_with_input(&args, &manifest(change)).await.map_err(|error| format!("{error:#}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_refused_and_the_message_names_the_field() {
    let namespace = namespace().await;
    let capacity = |value: Value| json!({"spec": {"template": {"spec": {"capacity": value}}}});
    let label = |key: &str| json!({"spec": {"template": {"metadata": {"labels": {key: "x"}}}}});
    let max_unhealthy = |value: Value| json!({"spec": {"repair": {"maxUnhealthy": value}}});
    let unhealthy = |type_: &str, status: &str| {
        let condition = json!({"type": type_, "status": status, "seconds": 60});
        json!({"spec": {"repair": {"conditions": [condition]}}})
    };
    let rollout = |rollout: Value| json!({"spec": {"rollout": rollout}});
    let budget = |budget: Value| json!({"spec": {"disruption": {"budgets": [budget]}}});
    for (change, expected) in [
        (json!({"spec": {"minReplicas": 7}}), "minReplicas must not be above maxReplicas"),
        (json!({"spec": {"replicas": 9}}), "replicas must lie between minReplicas and maxReplicas"),
        (json!({"spec": {"replicas": 0}}), "replicas must lie between minReplicas and maxReplicas"),
        (json!({"spec": {"replicas": -1}}), "spec.replicas"),
        (json!({"spec": {"maxReplicas": null}}), "spec.maxReplicas: Required value"),
        (json!({"spec": {"provider": {"simulated": null}}}), "exactly one provider must be set"),
        (
            json!({"spec": {"provider": {"simulated": {"failurePercent": 101}}}}),
            "spec.provider.simulated.failurePercent",
        ),
        (capacity(json!({"memory": null})), "capacity must name at least cpu and memory"),
        (capacity(json!({"cpu": "four"})), "spec.template.spec.capacity.cpu"),
        (capacity(json!({"cpu": "-4"})), "spec.template.spec.capacity.cpu"),
        (
            json!({"spec": {"template": {"spec": {"reserved": {"nvidia.com/gpu": "1"}}}}}),
            "reserved may only name resources that capacity names",
        ),
        (
            json!({"spec": {"template": {"spec": {"taints": [{"key": "a", "effect": "NoWay"}]}}}}),
            "spec.template.spec.taints[0].effect",
        ),
        (
            json!({"spec": {"template": {"metadata": {"labels": {"tandem.dev/nodepool": "other"}}}}}),
            "belong to the operators",
        ),
        (label("node-role.kubernetes.io/control-plane"), "use a prefix of your own"),
        (label("node-restriction.kubernetes.io/trusted"), "a kubelet may set itself"),
        (label("sigs.k8s.io/x"), "a kubelet may set itself"),
        (rollout(json!({"maxSurge": 0})), "maxSurge and maxUnavailable must not both be 0"),
        (rollout(json!({"maxSurge": "0%", "maxUnavailable": "0%"})), "must not both be 0"),
        (rollout(json!({"maxSurge": "101%"})), "maxSurge must be a number of nodes or a percentage"),
        (rollout(json!({"maxSurge": -1})), "maxSurge must be a number of nodes or a percentage"),
        (rollout(json!({"maxUnavailable": 3_000_000_000_i64})), "maxUnavailable must be a number of nodes"),
        (rollout(json!({"minReadySeconds": 1800})), "progressDeadlineSeconds must be above minReadySeconds"),
        (
            rollout(json!({"minReadySeconds": 90, "maxAgeSeconds": 90})),
            "maxAgeSeconds must be above minReadySeconds",
        ),
        (
            rollout(json!({"maxAgeSeconds": 90, "hardMaxAgeSeconds": 89})),
            "hardMaxAgeSeconds must not be below maxAgeSeconds",
        ),
        (
            rollout(json!({"minReadySeconds": 90, "hardMaxAgeSeconds": 90})),
            "hardMaxAgeSeconds must be above minReadySeconds",
        ),
        (
            rollout(json!({"type": "OnDelete", "hardMaxAgeSeconds": 90})),
            "hardMaxAgeSeconds needs type RollingUpdate",
        ),
        (
            json!({"spec": {"drain": {"loadBalancerDrainSeconds": 3601}}}),
            "spec.drain.loadBalancerDrainSeconds",
        ),
        (rollout(json!({"type": "Recreate"})), "Unsupported value"),
        (max_unhealthy(json!(0)), "maxUnhealthy must be a number above 0"),
        (max_unhealthy(json!("0%")), "maxUnhealthy must be a number above 0"),
        (max_unhealthy(json!("101%")), "a percentage from 1% to 100%"),
        (max_unhealthy(json!("20")), "a percentage from 1% to 100%"),
        (max_unhealthy(json!("x")), "a percentage from 1% to 100%"),
        (unhealthy("Ready", "True"), "Ready True is the state of a healthy node"),
        (
            budget(json!({"nodes": -1})),
            "nodes must be a number from 0 to 100000 or a percentage from 0% to 100%",
        ),
        (budget(json!({"nodes": 3_000_000_000_i64})), "nodes must be a number from 0 to 100000"),
        (budget(json!({"nodes": "101%"})), "nodes must be a number from 0 to 100000 or a percentage"),
        (budget(json!({"nodes": "5"})), "spec.disruption.budgets[0].nodes in body should match '%$'"),
        (budget(json!({"nodes": 1, "schedule": "0 22 * * *"})), "set both or neither"),
        (budget(json!({"nodes": 1, "timeZone": "UTC"})), "set schedule too, or leave timeZone out"),
        (budget(json!({"nodes": 1, "effect": "AllowOnly"})), "AllowOnly allows disruption in windows"),
        (
            budget(
                json!({"nodes": 0, "effect": "AllowOnly", "schedule": "0 22 * * *", "durationSeconds": 60}),
            ),
            "AllowOnly with 0 nodes would never allow any",
        ),
        (budget(json!({"nodes": 1, "reasons": ["Repair", "Repair"]})), "Duplicate value"),
        (json!({"spec": {"maxReplica": 3}}), "unknown field"),
    ] {
        let refusal = apply(&namespace, &change).await.expect_err(&format!("{change} was accepted"));
        assert!(refusal.contains(expected), "{change}:\nexpected {expected:?} in\n{refusal}");
    }
    // The control: the pool that all of these were derived from is accepted.
    apply(&namespace, &json!({})).await.unwrap();
    for max in [json!(1), json!("1%"), json!("100%")] {
        apply(&namespace, &max_unhealthy(max)).await.unwrap();
    }
    for (type_, status) in [("Ready", "False"), ("Ready", "Unknown"), ("KernelDeadlock", "True")] {
        apply(&namespace, &unhealthy(type_, status)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_that_planning_from_zero_needs_are_accepted_as_many_as_fit() {
    let namespace = namespace().await;
    let mut labels = json!({
        "kubernetes.io/arch": "arm64",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/region": "r",
        "topology.kubernetes.io/zone": "a",
        "failure-domain.beta.kubernetes.io/zone": "a",
        "node.kubernetes.io/instance-type": "large",
        "gpu.node.kubernetes.io/model": "x",
    });
    // The longest possible keys, as many as possible (`pool` exists too): the server's limit on the cost of a rule must
    // not reject them.
    let prefix = format!("{}.{}.{}.{}", "a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(61));
    for number in labels.as_object().unwrap().len()..63 {
        labels[format!("{prefix}/{number:0>63}")] = json!("x".repeat(63));
    }
    apply(&namespace, &json!({"spec": {"template": {"metadata": {"labels": labels}}}})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn disruption_budgets_are_accepted_as_many_as_fit() {
    let namespace = namespace().await;
    let windows = |number: i32| {
        json!({
            "nodes": if number % 2 == 0 { json!(number) } else { json!(format!("{number}%")) },
            "effect": if number == 0 { "Limit" } else { "AllowOnly" },
            "reasons": ["ScaleDown", "Rollout", "Repair", "Expiry"],
            "schedule": "0 22 * * *",
            "timeZone": "Europe/Berlin",
            "durationSeconds": 28_800,
        })
    };
    let budgets: Vec<_> = (0..31).map(windows).chain([json!({"nodes": 1})]).collect();
    apply(&namespace, &json!({"spec": {"disruption": {"budgets": budgets}}})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_move_within_the_bounds_only_and_bounds_move_freely() {
    let namespace = namespace().await;
    let client = cluster().await.client().await.unwrap();
    let pools = Api::<NodePool>::namespaced(client, namespace.name());
    let mut pool = objects::pool("x", 1, 5);
    pool.spec.replicas = Some(4);
    pools.create(&PostParams::default(), &pool).await.unwrap();
    let scale = async |replicas: u32| {
        let replicas = format!("--replicas={replicas}");
        let args = ["--namespace", namespace.name(), "scale", "npool/x", &replicas];
        cluster().await.kubectl(&args).await.map_err(|error| format!("{error:#}"))
    };
    scale(5).await.unwrap();
    for outside in [0, 6] {
        let refusal = scale(outside).await.expect_err("scaled beyond the bounds");
        assert!(refusal.contains("choose a number within the bounds"), "{refusal}");
    }
    // The bounds alone may move past the count: the operators clamp it and report that.
    let merge = async |patch: Value| pools.patch("x", &PatchParams::default(), &Patch::Merge(patch)).await;
    merge(json!({"spec": {"maxReplicas": 3}})).await.unwrap();
    // An unrelated change is accepted while the count is outside; another count outside is not.
    merge(json!({"spec": {"paused": true}})).await.unwrap();
    assert!(scale(4).await.is_err());
    scale(3).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_describes_every_field() {
    // The API server publishes its OpenAPI document some seconds after it serves the CRD.
    let explain = async |what: &[&str]| {
        let args = [&["explain"], what].concat();
        let published = async || Ok(Some(cluster().await.kubectl(&args).await?));
        eventually(PATIENCE, "the schema is published", published).await.unwrap()
    };
    let text = explain(&["npool.spec", "--recursive"]).await;
    for field in ["replicas", "minReplicas", "template", "provider", "provisioningTimeoutSeconds"] {
        assert!(text.contains(field), "{field} is missing in\n{text}");
    }
    let text = explain(&["npool"]).await;
    assert!(text.contains("NodePool is a set of nodes that are alike"), "{text}");
}
