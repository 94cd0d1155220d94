//! A real kind cluster: a control plane and two workers in containers, with kubelets that run Pods. Linux and root only, and without
//! any container registry.
//!
//! All of it runs in namespaces of its own, in an engine that ends with this process.

mod engine;
mod forward;
mod inside;
mod machines;
mod node_image;
mod registry;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use kube::config::Kubeconfig;
use toolbox::workspace::target_directory;

use crate::audit::AuditLog;
use crate::cluster::Cluster;
use crate::control_plane::layout;
use crate::real_nodes;
use engine::Engine;
use forward::Forward;
pub use machines::MachineService;
pub use registry::{REGISTRY, Registry, validate};

/// The name of the cluster, in a Docker engine that has no other one.
const NAME: &str = "tandem";

/// The nodes, as kind names them. The last one is off until it is asked for: see [`Kind::machines`].
const NODES: [&str; 3] = ["tandem-control-plane", "tandem-worker", SPARE];
const SPARE: &str = "tandem-worker2";

/// How kind makes the cluster. Its own network plugin cannot be built from Go modules alone, so each node gets a part of the Pods'
/// network here, and a route to the others'. Kubernetes refuses cgroup v1 unless it is asked for.
/// The tests share the nodes, so what one has pulled with a password is there for the next one without. The size of the audit log is in
/// megabytes: tests read it from a place that they remember, so it must not be rotated.
const CONFIG: &str = r#"
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
networking:
  disableDefaultCNI: true
containerdConfigPatches:
- |
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/etc/containerd/certs.d"
kubeadmConfigPatches:
- |
  kind: ClusterConfiguration
  apiVersion: kubeadm.k8s.io/v1beta4
  apiServer:
    extraArgs:
    - {name: audit-policy-file, value: /etc/tandem/audit-policy.yaml}
    - {name: audit-log-path, value: /etc/tandem/audit.log}
    - {name: audit-log-maxsize, value: "100000"}
    - {name: admission-control-config-file, value: /etc/tandem/admission.yaml}
    extraVolumes:
    - {name: audit, hostPath: /etc/tandem, mountPath: /etc/tandem, pathType: Directory}
- |
  kind: KubeletConfiguration
  apiVersion: kubelet.config.k8s.io/v1beta1
  failCgroupV1: false
  imagePullCredentialsVerificationPolicy: NeverVerify
nodes:
- role: control-plane
  extraMounts:
  - {hostPath: DIRECTORY/0.conflist, containerPath: /etc/cni/net.d/10-kind.conflist, readOnly: true}
  - {hostPath: DIRECTORY/audit, containerPath: /etc/tandem}
- role: worker
  extraMounts: [{hostPath: DIRECTORY/1.conflist, containerPath: /etc/cni/net.d/10-kind.conflist, readOnly: true}]
- role: worker
  extraMounts: [{hostPath: DIRECTORY/2.conflist, containerPath: /etc/cni/net.d/10-kind.conflist, readOnly: true}]
"#;

/// As on GKE: critical Pods only where a quota permits them. Not `system-node-critical`: the mirror Pods of the control plane come before
/// any quota can be made.
const ADMISSION: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchScopes: [{scopeName: PriorityClass, operator: In, values: [system-cluster-critical]}]
";

/// Permits those of the cluster itself.
const QUOTA: &str = "
apiVersion: v1
kind: ResourceQuota
metadata: {name: critical, namespace: kube-system}
spec:
  hard: {pods: 100}
  scopeSelector:
    matchExpressions: [{scopeName: PriorityClass, operator: In, values: [system-cluster-critical]}]
";

/// The network of one node's Pods.
const NETWORK: &str = r#"{"cniVersion": "1.0.0", "name": "kind", "plugins": [
  {"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.NUMBER.0/24"}]],
   "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
"#;

/// Why there can be no kind cluster here; `None` when there can be.
pub fn unavailable() -> Option<&'static str> {
    real_nodes::unavailable()
}

/// Builds what a cluster is made of, if it is missing: for minutes, which is said.
///
/// # Errors
/// When something cannot be had or built.
pub async fn build() -> Result<()> {
    node_image::KIND.find().await?;
    REGISTRY.find().await?;
    node_image::find(&Engine::start().await?).await?;
    Ok(())
}

/// A kind cluster.
pub struct Kind {
    engine: Engine,
    program: PathBuf,
    kubeconfig: PathBuf,
    _port: Forward,
}

impl Kind {
    /// Makes a cluster, and returns when its nodes are ready. What it needs is built once: for minutes, which is said.
    ///
    /// # Errors
    /// When something cannot be had or built, or kind fails; the end of its output is in the message.
    pub async fn start() -> Result<Self> {
        let program = node_image::KIND.find().await?;
        let engine = Engine::start().await?;
        let image = node_image::find(&engine).await?;
        let directory = engine.directory();
        // Not in the directory of this run: the next daemon would make what it lacks of a container that it still knows.
        let network = target_directory().join("kind-network");
        let audit = network.join("audit");
        std::fs::create_dir_all(&audit).with_context(|| format!("cannot create {}", audit.display()))?;
        std::fs::write(audit.join("audit-policy.yaml"), layout::AUDIT_POLICY)?;
        std::fs::write(audit.join("admission.yaml"), ADMISSION)?;
        // That of the run before.
        std::fs::write(audit.join("audit.log"), "")?;
        for number in 0..NODES.len() {
            let file = network.join(format!("{number}.conflist"));
            std::fs::write(file, NETWORK.replace("NUMBER", &number.to_string()))?;
        }
        let config = directory.join("kind.yaml");
        std::fs::write(&config, CONFIG.replace("DIRECTORY", &network.display().to_string()))?;
        let inner = directory.join("kubeconfig-inside");
        let paths = [&config, &inner].map(|path| path.display().to_string());
        let args = ["create", "cluster", "--name", NAME, "--image", &image, "--wait", "180s", "--retain"];
        let args = [&args[..], &["--config", &paths[0], "--kubeconfig", &paths[1]]].concat();
        engine.run_inside(&program, &args).await.context("kind cannot make a cluster")?;
        // The next daemon would start them again before they are swept.
        engine.docker(&[&["update", "--restart", "no"][..], &NODES].concat()).await?;
        route(&engine).await?;
        let kubeconfig = directory.join("kubeconfig");
        let port = forward(&engine, &inner, &kubeconfig).await?;
        let kind = Self { engine, program, kubeconfig, _port: port };
        kind.cluster().await?.kubectl_with_input(&["apply", "-f", "-"], QUOTA).await?;
        kind.power_off_the_spare().await?;
        Ok(kind)
    }

    /// Ends the kubelet of the spare node, which is no node of the cluster then. Its pods go first: one that is left would
    /// be there again with the node, and a pod of kube-system keeps a node from being given back.
    async fn power_off_the_spare(&self) -> Result<()> {
        let cluster = self.cluster().await?;
        cluster
            .kubectl(&["drain", SPARE, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s"])
            .await?;
        machines::switch(&self.engine.client(), SPARE, false).await?;
        cluster.kubectl(&["delete", "node", SPARE, "--timeout=180s"]).await?;
        let coredns =
            ["rollout", "status", "deployment/coredns", "--namespace=kube-system", "--timeout=180s"];
        cluster.kubectl(&coredns).await.context("coredns does not run without the spare node")?;
        Ok(())
    }

    /// A service that makes machines, which is one: the spare node. Pods reach it at its address.
    ///
    /// # Errors
    /// When it cannot listen in the network of the engine.
    pub async fn machines(&self) -> Result<MachineService> {
        let gateway = self.gateway().await?;
        let address =
            gateway.parse().with_context(|| format!("{gateway:?} is not the address of a gateway"))?;
        MachineService::start(&self.engine, address, SPARE).await
    }

    /// A container registry that the nodes can pull from.
    ///
    /// # Errors
    /// When it cannot be built, or cannot listen in the network of the engine.
    pub async fn registry(&self) -> Result<Registry> {
        Registry::start(&self.engine, &self.gateway().await?).await
    }

    /// The address by which the nodes reach what listens in the network of the engine.
    async fn gateway(&self) -> Result<String> {
        let format = "{{range .NetworkSettings.Networks}}{{.Gateway}}{{end}}";
        Ok(self.engine.docker(&["inspect", "--format", format, NODES[0]]).await?.trim().to_owned())
    }

    /// The API server's audit log.
    pub fn audit_log(&self) -> AuditLog {
        AuditLog::new(target_directory().join("kind-network/audit/audit.log"))
    }

    /// Runs a command in a node, and returns its output.
    ///
    /// # Errors
    /// When it fails, with its standard error.
    pub async fn in_node(&self, node: &str, command: &[&str]) -> Result<String> {
        self.engine.docker(&[&["exec", node], command].concat()).await
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    async fn cluster(&self) -> Result<Cluster> {
        Cluster::of(&self.kubeconfig, self.engine.directory()).await
    }

    /// Loads the images of an archive into all nodes.
    ///
    /// # Errors
    /// When kind fails.
    pub async fn load(&self, archive: &Path) -> Result<()> {
        let archive = archive.to_str().context("the path of an image is not text")?;
        self.run(&["load", "image-archive", archive, "--name", NAME])
            .await
            .context("kind cannot load an image")?;
        Ok(())
    }

    /// Loads an archive into the container engine, as a user types `docker load`, and returns the ID by which the engine calls `reference`
    /// then. Afterwards the engine does not have it any more.
    ///
    /// # Errors
    /// When Docker fails, or has not loaded that image.
    pub async fn docker_load(&self, archive: &Path, reference: &str) -> Result<String> {
        let archive = archive.to_str().context("the path of an image is not text")?;
        self.engine.docker(&["load", "--input", archive]).await.context("docker cannot load an image")?;
        let id = self.engine.docker(&["image", "inspect", "--format", "{{.Id}}", reference]).await?;
        self.engine.docker(&["image", "rm", reference]).await?;
        Ok(id.trim().to_owned())
    }

    /// Runs kind with these arguments, where it finds this cluster, and returns its output.
    ///
    /// # Errors
    /// When it fails, with its standard error.
    pub async fn run(&self, args: &[&str]) -> Result<String> {
        self.engine.run_inside(&self.program, args).await
    }
}

/// Tells each node where the others' Pods are.
async fn route(engine: &Engine) -> Result<()> {
    for (number, other) in NODES.iter().enumerate() {
        let format = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
        let address = engine.docker(&["inspect", "--format", format, other]).await?;
        let network = format!("10.244.{number}.0/24");
        for node in NODES.iter().filter(|node| *node != other) {
            engine.docker(&["exec", node, "ip", "route", "replace", &network, "via", address.trim()]).await?;
        }
    }
    Ok(())
}

/// Opens a port to the API server, and writes the kubeconfig that uses it.
async fn forward(engine: &Engine, inner: &Path, outer: &Path) -> Result<Forward> {
    let mut kubeconfig = Kubeconfig::read_from(inner).context("kind has written no kubeconfig")?;
    let cluster = kubeconfig.clusters.first_mut().and_then(|named| named.cluster.as_mut());
    let cluster = cluster.context("kind's kubeconfig names no cluster")?;
    let server = cluster.server.clone().unwrap_or_default();
    let address: SocketAddr =
        server.trim_start_matches("https://").parse().context("kind's API server has no address")?;
    let port = Forward::open(engine.pid(), address).await?;
    cluster.server = Some(format!("https://{}", port.address));
    std::fs::write(outer, serde_saphyr::to_string(&kubeconfig)?)?;
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audit_log_is_never_rotated() {
        // By itself, the API server begins another file after 100 megabytes.
        let size =
            CONFIG.lines().find_map(|line| line.trim().strip_prefix("- {name: audit-log-maxsize, value: "));
        assert_eq!(size, Some("\"100000\"}"));
    }
}
