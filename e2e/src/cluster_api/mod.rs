//! Cluster API's real controllers, with the in-memory machines of its own development provider. What such a machine lacks
//! is played here: the kubelet that registers its Node; kwok runs the pods.

mod broken;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::config::Kubeconfig;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use self::broken::Broken;
use crate::cluster::{Cluster, ClusterOptions};
use crate::control_plane::go::KUBERNETES_VERSION;
use crate::control_plane::go_program::GoProgram;
use crate::control_plane::toolbox::target_directory;
use crate::file_lock::FileLock;
use crate::operators::OperatorProcess;
use crate::places::Places;
use crate::process_supervisor::lock;
use crate::wait::eventually;

const MODULE: &str = "cluster-api";
const CORE: GoProgram = GoProgram {
    module: MODULE,
    package: "sigs.k8s.io/cluster-api/core",
    takes: "4 to 9 minutes on two cores",
};
const INFRASTRUCTURE: GoProgram = GoProgram {
    module: MODULE,
    package: "sigs.k8s.io/cluster-api/test/infrastructure/docker",
    takes: "a minute more",
};

/// The group of `MachineDeployment`s and `Machine`s.
pub const GROUP: &str = "cluster.x-k8s.io";

/// Namespace and name of the service account of [`ClusterApi::core`], which also writes what Tandem writes.
pub const CORE_ACCOUNT: (&str, &str) = ("capi-system", "capi-manager");

/// The annotation by which a machine goes first.
pub const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";

/// Control planes with Cluster API's definitions.
pub static WITH_CLUSTER_API: Places = Places::one_beside(ClusterOptions::private);

/// Name of the `Cluster` whose workers are the nodes of the control plane itself.
const CLUSTER: &str = "self";

/// A control plane that Cluster API does not manage: it is there already.
const STAND_IN: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: standincontrolplanes.controlplane.cluster.x-k8s.io
  labels: {cluster.x-k8s.io/v1beta2: v1beta2}
spec:
  group: controlplane.cluster.x-k8s.io
  names: {kind: StandInControlPlane, plural: standincontrolplanes, singular: standincontrolplane, listKind: StandInControlPlaneList}
  scope: Namespaced
  versions:
    - name: v1beta2
      served: true
      storage: true
      subresources: {status: {}}
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// Version of the machines and of their kubelets. Where the two differ, Cluster API replaces the machine.
const VERSION: &str = KUBERNETES_VERSION;

/// The port for debugging that the controllers of in-memory machines listen on, at every address: their flags do not choose
/// it (`DefaultDebugPort` in Cluster API's `infrastructure/inmemory/pkg/server`).
const DEBUG_PORT: u16 = 19000;

/// How often a kubelet looks whether its Node exists.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// How long controllers that were stopped may hold their port.
const ENDS: Duration = Duration::from_secs(10);

/// Both controllers, and the kubelets of their machines. Everything ends when this is dropped.
pub struct ClusterApi {
    /// The controllers of clusters and machines.
    pub core: OperatorProcess,
    /// The controllers of in-memory machines.
    pub infrastructure: OperatorProcess,
    kubelets: JoinHandle<()>,
    ended: Arc<AtomicBool>,
    broken: Arc<Mutex<Broken>>,
    _only: FileLock,
}

impl Drop for ClusterApi {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.kubelets.abort();
    }
}

/// Builds both controllers if they are missing: for minutes, which is said.
///
/// # Errors
/// When one cannot be built; the message tells what to install.
pub async fn build() -> Result<()> {
    CORE.find().await?;
    INFRASTRUCTURE.find().await?;
    Ok(())
}

/// Installs Cluster API's definitions.
///
/// # Errors
/// When the API server rejects them, or the modules cannot be had.
pub async fn install(cluster: &Cluster) -> Result<()> {
    if cluster.kubectl(&["get", "crd/standincontrolplanes.controlplane.cluster.x-k8s.io"]).await.is_ok() {
        // By a test before this one: they are large, and the API server works for half a minute on them.
        return Ok(());
    }
    let (core, test) = ("sigs.k8s.io/cluster-api", "sigs.k8s.io/cluster-api/test");
    for (module, below) in [
        (core, "core/config/crd/bases"),
        (core, "bootstrap/kubeadm/config/crd/bases"),
        (test, "infrastructure/docker/config/crd/bases"),
    ] {
        let directory = CORE.sources_of(module).await?.join(below);
        let directory = directory.to_str().context("the path of the module is not text")?;
        cluster.kubectl(&["apply", "--server-side", "--force-conflicts", "--filename", directory]).await?;
    }
    let all = cluster.kubectl(&["get", "crd", "--output=name"]).await?;
    let own: Vec<&str> = all.lines().filter(|name| name.ends_with("cluster.x-k8s.io")).collect();
    let label = [&["label", "--overwrite"][..], &own, &["cluster.x-k8s.io/v1beta2=v1beta2"]].concat();
    cluster.kubectl(&label).await?;
    cluster.kubectl(&[&["wait", "--for=condition=Established", "--timeout=60s"], &own[..]].concat()).await?;
    // Last: it shows that the others are there.
    cluster.kubectl_with_input(&["apply", "--server-side", "--filename", "-"], STAND_IN).await?;
    let stand_in = "crd/standincontrolplanes.controlplane.cluster.x-k8s.io";
    cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", stand_in]).await?;
    Ok(())
}

/// Starts both controllers as administrators of the cluster, and the kubelets. Waits for another process of this checkout
/// that runs them.
///
/// # Errors
/// When one cannot be built or started, or another checkout runs them on this machine.
pub async fn start(cluster: &Cluster) -> Result<ClusterApi> {
    let only = FileLock::one_of(&target_directory().join("turns/cluster-api"), 1).await?;
    // Those of the last one may be on their way out.
    let free = async || check_free(DEBUG_PORT).map(Some);
    eventually(ENDS, "the controllers can start", free).await?;
    // No webhook is registered, but their server wants a certificate.
    let certificates = cluster.root().join("webhooks");
    std::fs::create_dir_all(&certificates)?;
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    std::fs::write(certificates.join("tls.crt"), certified.cert.pem())?;
    std::fs::write(certificates.join("tls.key"), certified.signing_key.serialize_pem())?;
    // The accounts have the names that Cluster API's own manifests give them.
    let start = async |name: &str, program: GoProgram, (namespace, account): (&str, &str)| {
        let binary = program.find().await?;
        let kubeconfig = cluster.kubeconfig_for_controller(namespace, account).await?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let args = [
            &*format!("--webhook-cert-dir={}", certificates.display()),
            &*format!("--webhook-port={port}"),
            // Any free port, or none: nobody asks them.
            "--health-addr=127.0.0.1:0",
            "--diagnostics-address=127.0.0.1:0",
            "--insecure-diagnostics=true",
            "--leader-elect=false",
            "--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields",
        ];
        let env = vec![("KUBECONFIG".to_owned(), kubeconfig.display().to_string())];
        let args = args.map(str::to_owned).to_vec();
        OperatorProcess::start_program(cluster, name, &binary, args, env).await
    };
    let core = start("cluster-api", CORE, CORE_ACCOUNT).await?;
    let infrastructure =
        start("cluster-api-machines", INFRASTRUCTURE, ("capd-system", "capd-manager")).await?;
    let (client, ended) = (cluster.client().await?, Arc::new(AtomicBool::new(false)));
    // The API server is not ready to list objects of a new kind as soon as it is established.
    let broken = Arc::new(Mutex::new(Broken::default()));
    let first = async || heartbeat(&client, &broken).await.map(Some);
    eventually(Duration::from_secs(60), "the machines can be listed", first).await?;
    let (told, those) = (Arc::clone(&ended), Arc::clone(&broken));
    let kubelets = tokio::spawn(async move {
        while !told.load(Ordering::Relaxed) {
            if let Err(error) = heartbeat(&client, &those).await {
                // The API server may be busy.
                eprintln!("kubelets: {error:#}");
            }
            tokio::time::sleep(HEARTBEAT).await;
        }
    });
    Ok(ClusterApi { core, infrastructure, kubelets, ended, broken, _only: only })
}

/// Checks that nobody listens on a port.
///
/// # Errors
/// When somebody does; the message says who may, and what to do.
fn check_free(port: u16) -> Result<()> {
    let listener = std::net::TcpListener::bind(("0.0.0.0", port));
    listener.map(drop).with_context(|| {
        format!(
            "Cluster API's in-memory machines need port {port} of this machine, and it is taken: another demo or test of \
             Cluster API is running; wait until it has ended"
        )
    })
}

impl ClusterApi {
    /// Checks that both controllers run.
    ///
    /// # Errors
    /// When one has ended, with its exit and the end of its log.
    pub fn check_alive(&self) -> Result<()> {
        self.core.check_alive()?;
        self.infrastructure.check_alive()
    }

    /// The kubelets of this many machines that come next do not start.
    pub fn break_next(&self, machines: usize) {
        lock(&self.broken).next = machines;
    }

    /// Stops the controllers.
    ///
    /// # Errors
    /// When one has to be killed.
    pub async fn stop(self, patience: Duration) -> Result<()> {
        self.core.stop(patience).await?;
        self.infrastructure.stop(patience).await?;
        Ok(())
    }
}

/// A kind of Cluster API's, without its types.
fn resource(group: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: group.to_owned(),
        version: "v1beta2".to_owned(),
        api_version: format!("{group}/v1beta2"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// The `Machine`s of a namespace.
pub fn machines(client: Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client, namespace, &resource(GROUP, "Machine", "machines"))
}

/// The `MachineDeployment`s of a namespace.
pub fn deployments(client: Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client, namespace, &resource(GROUP, "MachineDeployment", "machinedeployments"))
}

/// What kubelets do: each machine has a Node, unless it is broken.
async fn heartbeat(client: &Client, broken: &Mutex<Broken>) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let existing = nodes.list_metadata(&ListParams::default()).await?.items;
    let kind = resource("infrastructure.cluster.x-k8s.io", "DevMachine", "devmachines");
    // In this order: a machine that is there after its Node was missing may register it.
    let machines: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    for machine in machines.list(&ListParams::default()).await?.items {
        let name = machine.metadata.name.clone().unwrap_or_default();
        let id = machine.data.pointer("/spec/providerID").and_then(Value::as_str);
        let exists = existing.iter().any(|node| node.metadata.name.as_deref() == Some(&name));
        let (Some(id), None, false) = (id, &machine.metadata.deletion_timestamp, exists) else { continue };
        if lock(broken).is_broken(&name) {
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

/// Creates a `Cluster` in the namespace whose nodes are those of the control plane itself, and a `MachineDeployment` `name`
/// without machines.
///
/// # Errors
/// When the API server rejects an object, or the `Cluster` is not ready in time.
pub async fn create(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    let admin = Kubeconfig::read_from(cluster.kubeconfig_path())?;
    let target = admin.clusters.first().and_then(|named| named.cluster.clone()).context("no cluster")?;
    let user = admin.auth_infos.first().and_then(|named| named.auth_info.clone()).context("no user")?;
    let authority = std::fs::read(target.certificate_authority.context("no certificate authority")?)?;
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": CLUSTER,
        "clusters": [{"name": CLUSTER, "cluster": {
            "server": target.server,
            "certificate-authority-data": k8s_openapi::ByteString(authority),
        }}],
        "users": [{"name": CLUSTER, "user": {"token": user_token(&user)?}}],
        "contexts": [{"name": CLUSTER, "context": {"cluster": CLUSTER, "user": CLUSTER}}],
    });
    let labels = json!({"cluster.x-k8s.io/cluster-name": CLUSTER});
    let infrastructure = "infrastructure.cluster.x-k8s.io";
    let control_plane = "controlplane.cluster.x-k8s.io";
    let version = |group: &str| format!("{group}/v1beta2");
    let objects = [
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
                    "infrastructureRef": {"apiGroup": infrastructure, "kind": "DevMachineTemplate", "name": "small"},
                },
            },
        }}),
    ];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let apply = ["--namespace", namespace, "apply", "--server-side", "--filename", "-"];
    cluster.kubectl_with_input(&apply, &list).await?;
    let status = json!({"status": {
        "externalManagedControlPlane": true, "initialized": true, "ready": true,
        "initialization": {"controlPlaneInitialized": true},
    }});
    let (object, patch) = (format!("standincontrolplane/{CLUSTER}"), format!("--patch={status}"));
    let patch = ["--namespace", namespace, "patch", &object, "--subresource=status", "--type=merge", &patch];
    cluster.kubectl(&patch).await?;
    let kind = resource(GROUP, "Cluster", "clusters");
    let clusters: Api<DynamicObject> = Api::namespaced_with(cluster.client().await?, namespace, &kind);
    eventually(Duration::from_secs(60), "the Cluster is ready", async || {
        let cluster = clusters.get(CLUSTER).await?;
        let ready = |field: &str| cluster.data.pointer(field) == Some(&json!(true));
        let is_ready = ready("/status/initialization/infrastructureProvisioned")
            && ready("/status/initialization/controlPlaneInitialized");
        anyhow::ensure!(is_ready, "{}", cluster.data["status"]);
        Ok(Some(()))
    })
    .await
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_is_named_with_what_to_do() {
        let taken = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = check_free(port).unwrap_err().to_string();
        assert!(error.contains(&format!("need port {port} of")) && error.ends_with("has ended"), "{error}");
        drop(taken);
        check_free(port).unwrap();
    }
}
