//! What `clusterctl move` does in the cluster that it moves objects away from.

use anyhow::{Result, ensure};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::objects::CLUSTER;
use super::{GROUP, INFRASTRUCTURE_GROUP, machines, resource};
use crate::cluster::Cluster;
use crate::wait::{PATIENCE, eventually};

/// Pauses the `Cluster` of the namespace, and then removes its objects without what their controllers do at the end of one: the
/// machines run on.
///
/// # Errors
/// When the API server rejects a write, or an object does not go.
pub async fn move_away(cluster: &Cluster, namespace: &str) -> Result<()> {
    let client = cluster.client().await?;
    let api = |group: &str, kind: &str, plural: &str| {
        Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource(group, kind, plural))
    };
    let clusters = api(GROUP, "Cluster", "clusters");
    let pause = Patch::Merge(json!({"spec": {"paused": true}}));
    clusters.patch(CLUSTER, &PatchParams::default(), &pause).await?;
    let machines = machines(client.clone(), namespace);
    eventually(PATIENCE, "every Machine is paused", async || {
        for machine in machines.list(&ListParams::default()).await?.items {
            let conditions = machine.data.pointer("/status/conditions").and_then(Value::as_array);
            let is_paused = |it: &Value| it["type"] == "Paused" && it["status"] == "True";
            ensure!(conditions.is_some_and(|all| all.iter().any(is_paused)), "{}", machine.data["status"]);
        }
        Ok(Some(()))
    })
    .await?;
    // From the owners down, so that none of them makes another machine.
    for objects in [
        api(GROUP, "MachineDeployment", "machinedeployments"),
        api(GROUP, "MachineSet", "machinesets"),
        machines,
        api(INFRASTRUCTURE_GROUP, "DevMachine", "devmachines"),
        clusters,
        api(INFRASTRUCTURE_GROUP, "DevCluster", "devclusters"),
    ] {
        remove_all(&objects).await?;
    }
    Ok(())
}

async fn remove_all(objects: &Api<DynamicObject>) -> Result<()> {
    let without_finalizers = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    for object in objects.list(&ListParams::default()).await?.items {
        let name = object.metadata.name.unwrap_or_default();
        objects.patch(&name, &PatchParams::default(), &without_finalizers).await?;
        objects.delete(&name, &DeleteParams::default()).await?;
        eventually(PATIENCE, &format!("{name} is gone"), async || {
            Ok(objects.get_opt(&name).await?.is_none().then_some(()))
        })
        .await?;
    }
    Ok(())
}
