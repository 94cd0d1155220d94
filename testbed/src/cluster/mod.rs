//! A Kubernetes cluster for a test or a demo: a private control plane, or an explicitly named cluster.
//!
//! It must not depend on Tandem: its callers install CRDs, charts and operators.

mod commands;
mod detached;
mod identity;
mod namespace;
mod private;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tempfile::TempDir;
use tokio::sync::OnceCell;
use toolbox::tools::{Tool, Toolbox};

use crate::audit::AuditLog;
use crate::control_plane::layout::AuditScope;
use crate::control_plane::locate::{BinarySource, locate};
use crate::process_supervisor::ProcessSupervisor;

pub use detached::Detached;
pub use namespace::TestNamespace;
pub use private::Backup;
use private::Private;

/// Environment variable: set to any value, it keeps the directory of a private control plane, logs included, for
/// debugging.
pub const KEEP_VARIABLE: &str = "TANDEM_KEEP";

/// What kind of cluster to start.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Where it comes from; `None` uses the environment ([`locate`]).
    pub source: Option<BinarySource>,
    /// Whether kube-scheduler runs (private only).
    pub scheduler: bool,
    /// Whether kube-controller-manager runs (private only).
    pub controller_manager: bool,
    /// Whether kwok simulates the kubelets of nodes annotated `kwok.x-k8s.io/node: fake` (private only).
    pub kwok: bool,
    /// Additional flags of the API server (private only).
    pub api_server_flags: Vec<String>,
    /// Additional flags of kube-controller-manager (private only).
    pub controller_manager_flags: Vec<String>,
    /// Additional flags of kwok (private only).
    pub kwok_flags: Vec<String>,
    /// What the audit log has the contents of (private only).
    pub audit_scope: AuditScope,
    /// Where the programs are found or built.
    pub toolbox: Toolbox,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            source: None,
            scheduler: true,
            controller_manager: true,
            kwok: true,
            api_server_flags: Vec::new(),
            controller_manager_flags: Vec::new(),
            kwok_flags: Vec::new(),
            audit_scope: AuditScope::Ordinary,
            toolbox: Toolbox::from_environment(),
        }
    }
}

impl ClusterOptions {
    /// A private control plane, whatever the environment holds: for tests that read its audit log or stop it.
    pub fn private() -> Self {
        Self { source: Some(BinarySource::Private), ..Self::default() }
    }

    /// Only etcd and the API server: enough for conflicts, and fast.
    pub fn api_only() -> Self {
        Self { scheduler: false, controller_manager: false, kwok: false, ..Self::private() }
    }
}

/// A running cluster. Dropping it ends the programs it started.
pub struct Cluster {
    kubeconfig: PathBuf,
    toolbox: Toolbox,
    backing: Backing,
}

enum Backing {
    /// A cluster that this harness does not run; the directory is for our own files.
    Foreign(TempDir),
    Private(Private),
    /// Left running by an earlier process; the open connection shows that it is alive.
    Attached {
        root: PathBuf,
        _connection: ProcessSupervisor,
    },
}

impl Cluster {
    /// Starts a control plane, or connects to the named cluster, and returns when it is ready.
    ///
    /// # Errors
    /// With a message that tells what to do: nothing to build with, a program that ended (with the end of its log), a
    /// cluster that does not answer.
    pub async fn start(options: ClusterOptions) -> Result<Self> {
        let source = match &options.source {
            Some(source) => source.clone(),
            None => locate(None, |name| std::env::var_os(name))?,
        };
        match source {
            BinarySource::Private => {
                let toolbox = options.toolbox.clone();
                let private = Private::start(&options).await?;
                Ok(Self { kubeconfig: private.kubeconfig(), toolbox, backing: Backing::Private(private) })
            }
            BinarySource::Foreign(kubeconfig) => {
                let directory = tempfile::Builder::new().prefix("tandem-").tempdir()?;
                Self::foreign(kubeconfig, options.toolbox, directory).await
            }
        }
    }

    /// Connects to the cluster of a kubeconfig that this harness did not make, or made another way. Files of its own are below
    /// `directory`, which goes with the programs of the test, also when the test is killed.
    ///
    /// # Errors
    /// When it cannot be read, or the cluster does not answer.
    pub async fn of(kubeconfig: &Path, directory: &Path) -> Result<Self> {
        // Whatever KUBEBUILDER_ASSETS holds: envtest has no Helm.
        let toolbox = Toolbox { assets: None, ..Toolbox::from_environment() };
        let directory = tempfile::Builder::new().prefix("cluster-").tempdir_in(directory)?;
        Self::foreign(kubeconfig.to_owned(), toolbox, directory).await
    }

    async fn foreign(kubeconfig: PathBuf, toolbox: Toolbox, directory: TempDir) -> Result<Self> {
        let answer = client_of(&kubeconfig).await?.apiserver_version().await;
        answer.with_context(|| format!("the cluster of {} does not answer", kubeconfig.display()))?;
        Ok(Self { kubeconfig, toolbox, backing: Backing::Foreign(directory) })
    }

    /// The shared cluster of a test binary, started by the first caller. It ends with the process, however that ends. A
    /// [`Client`] belongs to the Tokio runtime it was created on, so each test creates its own.
    ///
    /// # Errors
    /// Same as [`Cluster::start`].
    pub async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<Cluster> = OnceCell::const_new();
        SHARED.get_or_try_init(|| Self::start(ClusterOptions::default())).await
    }

    /// A client with all rights that never retries a request by itself: a test must count exactly the requests it sent.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn client(&self) -> Result<Client> {
        client_of(&self.kubeconfig).await
    }

    /// The administrator's client configuration, for a client with additional layers. Without hidden retries, too.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn client_config(&self) -> Result<Config> {
        config_of(&self.kubeconfig).await
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig
    }

    /// Whether the control plane is private: only then is there an audit log, and can it be stopped.
    pub fn is_embedded(&self) -> bool {
        !matches!(self.backing, Backing::Foreign(_))
    }

    /// The API server's audit log; `None` on a cluster that this harness does not run.
    pub fn audit_log(&self) -> Option<AuditLog> {
        match &self.backing {
            Backing::Foreign(_) => None,
            Backing::Private(_) | Backing::Attached { .. } => {
                Some(AuditLog::new(self.root().join("audit.log")))
            }
        }
    }

    /// etcd's address, in plain HTTP; `None` unless this process started the control plane. For tests of what the API
    /// server stores.
    pub fn etcd(&self) -> Option<String> {
        match &self.backing {
            Backing::Private(private) => Some(format!("http://127.0.0.1:{}", private.ports().etcd)),
            Backing::Foreign(_) | Backing::Attached { .. } => None,
        }
    }

    /// A directory for the run's own files; it is removed with the cluster.
    pub fn root(&self) -> &Path {
        match &self.backing {
            Backing::Foreign(directory) => directory.path(),
            Backing::Private(private) => private.layout().root(),
            Backing::Attached { root, _connection } => root,
        }
    }

    /// How long the start took; `None` unless this process started the control plane.
    pub fn startup(&self) -> Option<Duration> {
        match &self.backing {
            Backing::Private(private) => Some(private.startup()),
            Backing::Foreign(_) | Backing::Attached { .. } => None,
        }
    }

    /// The process ids of the control plane's programs, by name; empty unless this process started it.
    pub fn pids(&self) -> Vec<(String, u32)> {
        match &self.backing {
            Backing::Private(private) => private.pids(),
            Backing::Foreign(_) | Backing::Attached { .. } => Vec::new(),
        }
    }

    /// Checks that every program of the control plane still runs.
    ///
    /// # Errors
    /// When one has ended, with its exit and the end of its log.
    pub fn check_alive(&self) -> Result<()> {
        match &self.backing {
            Backing::Private(private) => private.check_alive(),
            Backing::Foreign(_) | Backing::Attached { .. } => Ok(()),
        }
    }

    /// Stops the API server. etcd keeps running, so nothing is lost.
    ///
    /// # Errors
    /// On a cluster that this process did not start.
    pub async fn stop_api_server(&self) -> Result<()> {
        self.private()?.stop_api_server().await
    }

    /// Starts the API server again, on the same port, and waits until it is ready.
    ///
    /// # Errors
    /// On a cluster that this process did not start, or when it does not become ready.
    pub async fn start_api_server(&self) -> Result<()> {
        self.private()?.start_api_server().await
    }

    /// Stops the API server and starts it again.
    ///
    /// # Errors
    /// Same as [`Cluster::start_api_server`].
    pub async fn restart_api_server(&self) -> Result<()> {
        self.stop_api_server().await?;
        self.start_api_server().await
    }

    /// Copies etcd's data, for [`Cluster::restore`]. The API server and etcd are stopped and started again.
    ///
    /// # Errors
    /// On a cluster that this process did not start, or when one of them does not stop or start.
    pub async fn back_up(&self) -> Result<Backup> {
        self.private()?.back_up().await
    }

    /// Restores the cluster's data: versions are lower than before, as after a restore that does not raise them.
    ///
    /// # Errors
    /// Same as [`Cluster::back_up`].
    pub async fn restore(&self, backup: &Backup) -> Result<()> {
        self.private()?.restore(backup).await
    }

    /// Ends the programs that this process started and waits until they are gone. Dropping does the same, but cannot
    /// report errors.
    ///
    /// # Errors
    /// When a program could not be ended in time.
    pub async fn stop(self) -> Result<()> {
        match self.backing {
            Backing::Private(private) => tokio::task::spawn_blocking(move || private.close()).await?,
            Backing::Foreign(_) | Backing::Attached { .. } => Ok(()),
        }
    }

    /// Like [`Cluster::stop`], for a cluster that is never dropped. It blocks, because a drop needs it; requests fail from then on.
    ///
    /// # Errors
    /// Same as [`Cluster::stop`].
    pub(crate) fn close(&self) -> Result<()> {
        match &self.backing {
            Backing::Private(private) => private.close(),
            Backing::Foreign(_) | Backing::Attached { .. } => Ok(()),
        }
    }

    /// Whether a controller creates default service accounts here; this is assumed for a cluster that this harness does
    /// not run.
    fn has_controllers(&self) -> bool {
        match &self.backing {
            Backing::Private(private) => private.runs(Tool::ControllerManager),
            Backing::Foreign(_) | Backing::Attached { .. } => true,
        }
    }

    fn private(&self) -> Result<&Private> {
        match &self.backing {
            Backing::Private(private) => Ok(private),
            Backing::Foreign(_) => {
                bail!("the API server of a cluster that this harness did not start is not stopped")
            }
            Backing::Attached { .. } => bail!("the control plane was started by another process"),
        }
    }
}

async fn client_of(kubeconfig: &Path) -> Result<Client> {
    Client::try_from(config_of(kubeconfig).await?).context("cannot make a client")
}

async fn config_of(kubeconfig: &Path) -> Result<Config> {
    let read = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("cannot read the kubeconfig {}", kubeconfig.display()))?;
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("cannot use the kubeconfig {}", kubeconfig.display()))?;
    config.default_retry = false;
    Ok(config)
}
