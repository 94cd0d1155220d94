//! The objects of a `Cluster` with its `MachineDeployment`s.

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::DynamicObject;
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use super::{GROUP, INFRASTRUCTURE_GROUP, VERSION, resource};
use crate::cluster::Cluster;
use crate::wait::{PATIENCE, eventually};

/// Name of the `Cluster`: its workers are the nodes of a control plane that is there already.
pub const CLUSTER: &str = "self";

/// Creates a `Cluster` in the namespace whose nodes are those of the control plane itself, and a `MachineDeployment` `name`
/// without machines.
///
/// # Errors
/// When the API server rejects an object, or the `Cluster` is not ready in time.
pub async fn create(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    create_for(cluster, cluster, namespace, name).await
}

/// Like [`create`], with the objects in `cluster`, for nodes in `workload`.
///
/// # Errors
/// Same as [`create`].
pub async fn create_for(cluster: &Cluster, workload: &Cluster, namespace: &str, name: &str) -> Result<()> {
    create_cluster(cluster, workload, namespace).await?;
    create_deployment(cluster, namespace, name).await
}

/// Creates a `Cluster` in the namespace of `cluster`, for nodes in `workload`, without any `MachineDeployment`.
///
/// # Errors
/// Same as [`create`].
pub async fn create_cluster(cluster: &Cluster, workload: &Cluster, namespace: &str) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects(&kubeconfig(workload)?)});
    apply(cluster, namespace, &list).await?;
    let status = json!({"status": {
        "externalManagedControlPlane": true, "initialized": true, "ready": true,
        "initialization": {"controlPlaneInitialized": true},
    }});
    let (object, patch) = (format!("standincontrolplane/{CLUSTER}"), format!("--patch={status}"));
    let patch = ["--namespace", namespace, "patch", &object, "--subresource=status", "--type=merge", &patch];
    cluster.kubectl(&patch).await?;
    let kind = resource(GROUP, "Cluster", "clusters");
    let clusters: Api<DynamicObject> = Api::namespaced_with(cluster.client().await?, namespace, &kind);
    eventually(PATIENCE, "the Cluster is ready", async || {
        let cluster = clusters.get(CLUSTER).await?;
        let ready = |field: &str| cluster.data.pointer(field) == Some(&json!(true));
        let is_ready = ready("/status/initialization/infrastructureProvisioned")
            && ready("/status/initialization/controlPlaneInitialized");
        anyhow::ensure!(is_ready, "{}", cluster.data["status"]);
        Ok(Some(()))
    })
    .await
}

/// Creates a `MachineDeployment` `name` without machines in the namespace, of the `Cluster` that is there.
///
/// # Errors
/// When the API server rejects it.
pub async fn create_deployment(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    apply(cluster, namespace, &deployment(name)).await
}

async fn apply(cluster: &Cluster, namespace: &str, object: &Value) -> Result<()> {
    let apply = ["--namespace", namespace, "apply", "--server-side", "--filename", "-"];
    cluster.kubectl_with_input(&apply, &object.to_string()).await?;
    Ok(())
}

/// The kubeconfig with which Cluster API finds the Nodes of `workload`.
fn kubeconfig(workload: &Cluster) -> Result<Value> {
    let admin = Kubeconfig::read_from(workload.kubeconfig_path())?;
    let target = admin.clusters.first().and_then(|named| named.cluster.clone()).context("no cluster")?;
    let user = admin.auth_infos.first().and_then(|named| named.auth_info.clone()).context("no user")?;
    let authority = std::fs::read(target.certificate_authority.context("no certificate authority")?)?;
    Ok(json!({
        "apiVersion": "v1", "kind": "Config", "current-context": CLUSTER,
        "clusters": [{"name": CLUSTER, "cluster": {
            "server": target.server,
            "certificate-authority-data": k8s_openapi::ByteString(authority),
        }}],
        "users": [{"name": CLUSTER, "user": {"token": user_token(&user)?}}],
        "contexts": [{"name": CLUSTER, "context": {"cluster": CLUSTER, "user": CLUSTER}}],
    }))
}

/// The `Cluster` and what it needs, in an order in which they may be created.
fn objects(kubeconfig: &Value) -> Vec<Value> {
    let labels = json!({"cluster.x-k8s.io/cluster-name": CLUSTER});
    let infrastructure = INFRASTRUCTURE_GROUP;
    let control_plane = "controlplane.cluster.x-k8s.io";
    let version = |group: &str| format!("{group}/v1beta2");
    vec![
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("{CLUSTER}-kubeconfig"), "labels": labels},
            "type": "cluster.x-k8s.io/secret", "stringData": {"value": kubeconfig.to_string()}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "boot", "labels": labels},
            "type": "cluster.x-k8s.io/secret", "stringData": {"value": "#!/bin/true"}}),
        json!({"apiVersion": version(infrastructure), "kind": "DevCluster", "metadata": {"name": CLUSTER, "annotations": {"note": "its controller wants some"}},
            "spec": {"backend": {"inMemory": {}}}}),
        json!({"apiVersion": version(control_plane), "kind": "StandInControlPlane", "metadata": {"name": CLUSTER},
            "spec": {}}),
        json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": CLUSTER}, "spec": {
            "infrastructureRef": {"apiGroup": infrastructure, "kind": "DevCluster", "name": CLUSTER},
            "controlPlaneRef": {"apiGroup": control_plane, "kind": "StandInControlPlane", "name": CLUSTER},
            "controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443},
        }}),
        template("small"),
        template("small-2"),
    ]
}

/// A `MachineDeployment` without machines.
fn deployment(name: &str) -> Value {
    json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "metadata": {
        "name": name,
        // They look at the version of the control plane, and the stand-in has none.
        "annotations": {"machineset.cluster.x-k8s.io/skip-preflight-checks": "All"},
    }, "spec": {
        "clusterName": CLUSTER,
        "replicas": 0,
        "selector": {"matchLabels": {"cluster.x-k8s.io/cluster-name": CLUSTER, "set": name}},
        "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
        "template": {
            "metadata": {"labels": {"cluster.x-k8s.io/cluster-name": CLUSTER, "set": name}},
            "spec": {
                "clusterName": CLUSTER,
                "version": VERSION,
                "bootstrap": {"dataSecretName": "boot"},
                "infrastructureRef": {"apiGroup": INFRASTRUCTURE_GROUP, "kind": "DevMachineTemplate", "name": "small"},
            },
        },
    }})
}

/// A machine that starts in a second.
fn template(name: &str) -> Value {
    json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "DevMachineTemplate", "metadata": {"name": name},
        "spec": {"template": {"spec": {"backend": {"inMemory": {
            "vm": {"provisioning": {"startupDuration": "1s"}},
            "node": {"provisioning": {"startupDuration": "1s"}},
        }}}}},
    })
}

fn user_token(user: &kube::config::AuthInfo) -> Result<String> {
    // The token is a secret to kube's types, and this one is that of a control plane that lives for a test.
    let value = serde_json::to_value(user)?;
    Ok(value["token"].as_str().context("the user has no token")?.to_owned())
}
