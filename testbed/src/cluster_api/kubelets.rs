//! The kubelets of machines in memory, as far as Cluster API sees them: each registers its Node.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::broken::Broken;
use super::{INFRASTRUCTURE_GROUP, VERSION, resource};
use crate::process_supervisor::lock;

/// How often a kubelet looks whether its Node exists.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// The kubelets of all machines.
pub(super) struct Kubelets {
    /// A client of the cluster of the machines.
    pub(super) machines: Client,
    /// A client of the cluster that the Nodes register in.
    pub(super) nodes: Client,
    pub(super) broken: Arc<Mutex<Broken>>,
}

impl Kubelets {
    /// Looks until it is told that they have `ended`.
    pub(super) async fn run(self, ended: Arc<AtomicBool>) {
        while !ended.load(Ordering::Relaxed) {
            if let Err(error) = self.heartbeat().await {
                // The API server may be busy.
                eprintln!("kubelets: {error:#}");
            }
            tokio::time::sleep(HEARTBEAT).await;
        }
    }

    /// What kubelets do: each machine has a Node, unless it is broken.
    pub(super) async fn heartbeat(&self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.nodes.clone());
        let existing = nodes.list_metadata(&ListParams::default()).await?.items;
        let kind = resource(INFRASTRUCTURE_GROUP, "DevMachine", "devmachines");
        // In this order: a machine that is there after its Node was missing may register it.
        let machines: Api<DynamicObject> = Api::all_with(self.machines.clone(), &kind);
        for machine in machines.list(&ListParams::default()).await?.items {
            let name = machine.metadata.name.clone().unwrap_or_default();
            let id = machine.data.pointer("/spec/providerID").and_then(Value::as_str);
            let exists = existing.iter().any(|node| node.metadata.name.as_deref() == Some(&name));
            let (Some(id), None, false) = (id, &machine.metadata.deletion_timestamp, exists) else {
                continue;
            };
            if lock(&self.broken).is_broken(&name) {
                continue;
            }
            let node: Node = serde_json::from_value(json!({
                "metadata": {
                    "name": name,
                    "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
                    "annotations": {"kwok.x-k8s.io/node": "fake"},
                },
                "spec": {"providerID": id},
                "status": {"nodeInfo": {
                    "kubeletVersion": VERSION, "architecture": "amd64", "operatingSystem": "linux", "bootID": "",
                    "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "machineID": "",
                    "osImage": "", "systemUUID": "",
                }},
            }))?;
            nodes.create(&PostParams::default(), &node).await?;
        }
        Ok(())
    }
}
