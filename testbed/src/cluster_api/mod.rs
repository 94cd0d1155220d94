//! Cluster API's real controllers, with the in-memory machines of its own development provider. What such a machine lacks
//! is played here: the kubelet that registers its Node; kwok runs the pods. The Nodes are in the control plane of the
//! controllers, or in another one: then that is the workload cluster, and the first one the management cluster.

mod broken;
mod kubelets;
mod moved;
mod objects;
mod set_state;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use tokio::task::JoinHandle;
use toolbox::go::KUBERNETES_VERSION;
use toolbox::workspace::target_directory;

use self::broken::Broken;
use self::kubelets::Kubelets;
pub use self::moved::move_away;
pub use self::objects::{CLUSTER, create, create_cluster, create_deployment, create_for};
pub use self::set_state::SetState;
use crate::cluster::{Cluster, ClusterOptions};
use crate::control_plane::go_program::GoProgram;
use crate::control_plane::ports::free_port;
use crate::file_lock::FileLock;
use crate::operators::OperatorProcess;
use crate::places::Places;
use crate::process_supervisor::lock;
use crate::wait::{PATIENCE, eventually};

const MODULE: &str = "cluster-api";
const CORE: GoProgram = GoProgram {
    module: MODULE,
    package: "sigs.k8s.io/cluster-api/core",
    takes: "4 to 9 minutes on two cores",
    cgo: true,
};
const INFRASTRUCTURE: GoProgram = GoProgram {
    module: MODULE,
    package: "sigs.k8s.io/cluster-api/test/infrastructure/docker",
    takes: "a minute more",
    cgo: true,
};

/// The group of `MachineDeployment`s and `Machine`s.
pub const GROUP: &str = "cluster.x-k8s.io";

/// Namespace and name of the service account of [`ClusterApi::core`], which also writes what Tandem writes.
pub const CORE_ACCOUNT: (&str, &str) = ("capi-system", "capi-manager");

/// The annotation by which a machine goes first.
pub const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";

/// The annotation that Cluster API puts on a Node: the name of the `MachineSet` of its machine, of which a part is random.
pub const OWNER_NAME: &str = "cluster.x-k8s.io/owner-name";

/// Control planes with Cluster API's definitions.
pub static WITH_CLUSTER_API: Places = Places::one_beside(ClusterOptions::private);

/// A second control plane for the same tests, taken after the first: for Cluster API's objects or for the Nodes of its machines.
/// No controller of Kubernetes runs there, nor the scheduler or kwok: its Nodes never become Ready, and its namespaces never go.
pub static SECOND: Places = Places::one_beside(ClusterOptions::api_only);

/// The group of Cluster API's machines in memory.
const INFRASTRUCTURE_GROUP: &str = "infrastructure.cluster.x-k8s.io";

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
    cluster.kubectl(&[&["wait", "--for=condition=Established", "--timeout=180s"], &own[..]].concat()).await?;
    // Last: it shows that the others are there.
    cluster.kubectl_with_input(&["apply", "--server-side", "--filename", "-"], STAND_IN).await?;
    let stand_in = "crd/standincontrolplanes.controlplane.cluster.x-k8s.io";
    cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=180s", stand_in]).await?;
    Ok(())
}

/// Starts both controllers as administrators of the cluster, and the kubelets, whose Nodes are there, too. Waits for another
/// process of this checkout that runs them.
///
/// # Errors
/// When one cannot be built or started, or another checkout runs them on this machine.
pub async fn start(cluster: &Cluster) -> Result<ClusterApi> {
    start_for(cluster, cluster).await
}

/// Like [`start`], with the controllers in `cluster` and the Nodes in `workload`.
///
/// # Errors
/// Same as [`start`].
pub async fn start_for(cluster: &Cluster, workload: &Cluster) -> Result<ClusterApi> {
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
        let port = free_port()?;
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
    let (ended, broken) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Broken::default())));
    let kubelets = Kubelets {
        machines: cluster.client().await?,
        nodes: workload.client().await?,
        broken: Arc::clone(&broken),
    };
    // The API server is not ready to list objects of a new kind as soon as it is established.
    let first = async || kubelets.heartbeat().await.map(Some);
    eventually(PATIENCE, "the machines can be listed", first).await?;
    let kubelets = tokio::spawn(kubelets.run(Arc::clone(&ended)));
    Ok(ClusterApi { core, infrastructure, kubelets, ended, broken, _only: only })
}

/// Checks that no program listens on a port.
///
/// # Errors
/// When one does; the message says which may, and what to do.
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

    /// The kubelet of this machine does not register its Node again when that is deleted: a real one registers it only when it starts.
    pub fn stop_registering(&self, machine: &str) {
        lock(&self.broken).add(machine);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_is_named_with_what_to_do() {
        let taken = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = check_free(port).unwrap_err().to_string();
        assert!(error.contains(&format!("need port {port} of")) && error.ends_with("has ended"), "{error}");
        // Another program of this machine may take a port that was given back, but not one after the other.
        let is_free_again = || {
            let port = std::net::TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
            check_free(port).is_ok()
        };
        assert!((0..20).any(|_| is_free_again()));
    }
}
