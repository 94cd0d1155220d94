//! A real kind cluster: a control plane and a worker in containers, with kubelets that run Pods. Linux and root only, and without
//! any container registry.
//!
//! All of it runs in namespaces of its own, in an engine that ends with this process.

mod engine;
mod forward;
mod node_image;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use kube::config::Kubeconfig;

use crate::cluster::{Cluster, ClusterOptions};
use crate::control_plane::layout;
use crate::control_plane::locate::BinarySource;
use crate::control_plane::toolbox::{Tool, Toolbox, target_directory};
use crate::real_nodes;
use engine::Engine;
use forward::Forward;

/// The name of the cluster, in a Docker engine that has no other one.
const NAME: &str = "tandem";

/// The nodes, as kind names them.
const NODES: [&str; 2] = ["tandem-control-plane", "tandem-worker"];

/// How kind makes the cluster. Its own network plugin cannot be built from Go modules alone, so each node gets a part of the Pods'
/// network here, and a route to the other one's. Kubernetes refuses cgroup v1 unless it is asked for.
const CONFIG: &str = r"
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
networking:
  disableDefaultCNI: true
kubeadmConfigPatches:
- |
  kind: KubeletConfiguration
  apiVersion: kubelet.config.k8s.io/v1beta1
  failCgroupV1: false
nodes:
- role: control-plane
  extraMounts: [{hostPath: DIRECTORY/0.conflist, containerPath: /etc/cni/net.d/10-kind.conflist, readOnly: true}]
- role: worker
  extraMounts: [{hostPath: DIRECTORY/1.conflist, containerPath: /etc/cni/net.d/10-kind.conflist, readOnly: true}]
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
        std::fs::create_dir_all(&network).with_context(|| format!("cannot create {}", network.display()))?;
        for number in ["0", "1"] {
            let file = network.join(format!("{number}.conflist"));
            std::fs::write(file, NETWORK.replace("NUMBER", number))?;
        }
        let config = directory.join("kind.yaml");
        std::fs::write(&config, CONFIG.replace("DIRECTORY", &network.display().to_string()))?;
        let inner = directory.join("kubeconfig-inside");
        let paths = [&config, &inner].map(|path| path.display().to_string());
        let args = ["create", "cluster", "--name", NAME, "--image", &image, "--wait", "120s", "--retain"];
        let args = [&args[..], &["--config", &paths[0], "--kubeconfig", &paths[1]]].concat();
        engine.run_inside(&program, &args).await.context("kind cannot make a cluster")?;
        // The next daemon would start them again before they are swept.
        engine.docker(&[&["update", "--restart", "no"][..], &NODES].concat()).await?;
        route(&engine).await?;
        let kubeconfig = directory.join("kubeconfig");
        let port = forward(&engine, &inner, &kubeconfig).await?;
        Ok(Self { engine, program, kubeconfig, _port: port })
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A connection to the cluster.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn cluster(&self) -> Result<Cluster> {
        let source = Some(BinarySource::Foreign(self.kubeconfig.clone()));
        let toolbox = Toolbox { assets: None, ..Toolbox::from_environment() };
        Cluster::start(ClusterOptions { source, toolbox, ..ClusterOptions::default() }).await
    }

    /// Loads the images of an archive into both nodes.
    ///
    /// # Errors
    /// When kind fails.
    pub async fn load(&self, archive: &Path) -> Result<()> {
        let archive = archive.to_str().context("the path of an image is not text")?;
        let args = ["load", "image-archive", archive, "--name", NAME];
        self.engine.run_inside(&self.program, &args).await.context("kind cannot load an image")?;
        Ok(())
    }

    /// Plays the kubelets of nodes without machines with kwok, until the cluster ends.
    ///
    /// # Errors
    /// When kwok cannot be built or started.
    pub async fn play_kubelets(&self) -> Result<()> {
        let toolbox = Toolbox { assets: None, ..Toolbox::from_environment() };
        let kwok = toolbox.find(&[Tool::Kwok]).await?.pop().context("the toolbox is empty")?;
        let stages = self.engine.directory().join("stages.yaml");
        std::fs::write(&stages, layout::stages())?;
        let args = [
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--config={}", stages.display()),
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".to_owned(),
            "--node-lease-duration-seconds=40".to_owned(),
        ];
        self.engine.start_beside("kwok", kwok.path, args.to_vec()).await
    }
}

/// Tells each node where the other one's Pods are.
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
