//! Runs the operators as separate processes, from the released binaries.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use toolbox::programs::{Features, build_binaries};

use crate::audit::Event;
use crate::cluster::Cluster;
use crate::control_plane::ready;
use crate::frozen;
use crate::process_supervisor::{Exit, ProcessSupervisor, ProgramSpec, Running, Signal, lock};

/// Number of log lines at the end of an error about an operator.
const TAIL: usize = 25;

/// What an operator says last that ends because it lost its lease: `OperatorError::LostLease` of `shared-runtime`.
const LOST_LEASE: &str = "this replica lost its lease";

/// One of Tandem's operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperatorKind {
    /// Creates the nodes of a `NodePool`.
    NodePool,
    /// Decides how many nodes a pool should have.
    Autoscaler,
}

impl OperatorKind {
    /// The name of the package and of the binary.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodePool => "nodepool-operator",
            Self::Autoscaler => "autoscaler-operator",
        }
    }

    /// Whether this `replica` of it sent the request, before or after a restart.
    pub fn has_sent(self, event: &Event, replica: usize) -> bool {
        event.user_agent.contains(&format!("({}-{replica})", self.name()))
    }

    /// The binary, built once per process, in the profile of the calling binary.
    ///
    /// # Errors
    /// When Cargo cannot build it; the message contains Cargo's output.
    pub async fn binary(self) -> Result<PathBuf> {
        static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
        let binary = BUILT.get_or_try_init(build).await?.join(self.name());
        if !binary.is_file() {
            bail!("cargo built the package {} but no binary {}", self.name(), binary.display());
        }
        Ok(binary)
    }
}

async fn build() -> Result<PathBuf> {
    let (node_pool, autoscaler) = (OperatorKind::NodePool.name(), OperatorKind::Autoscaler.name());
    build_binaries("the operators", &[node_pool, autoscaler], Features::of_caller()?).await
}

/// How an operator is started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The operator to start.
    pub operator: OperatorKind,
    /// Its arguments, such as those that the chart renders.
    pub args: Vec<String>,
    /// Variables added to its environment.
    pub env: Vec<(String, String)>,
    /// The identity it runs under; see [`Cluster::kubeconfig_for_service_account`].
    pub kubeconfig: PathBuf,
    /// The most memory, in bytes, that it and the programs that it starts may have: what the chart says, also for a debug
    /// build. That has less than 10 MiB of its own, and the 45 MiB of its binary are pages that the kernel can take back.
    pub memory_limit: Option<u64>,
}

/// A running operator. It is killed when this is dropped, and when the test ends in any other way.
pub struct OperatorProcess {
    supervisor: ProcessSupervisor,
    running: Mutex<Running>,
    /// The specification to start it again with the same name and log.
    spec: ProgramSpec,
}

impl OperatorProcess {
    /// Starts an operator on `cluster`, with its log in the cluster's directory. It may not be ready yet, and may even
    /// have ended: wait for its effects, and see [`OperatorProcess::check_alive`].
    ///
    /// # Errors
    /// When its binary cannot be built or started.
    pub async fn start(cluster: &Cluster, launch: Launch) -> Result<Self> {
        let path = launch.operator.binary().await?;
        let kubeconfig = launch.kubeconfig.display().to_string();
        let mut env = vec![("KUBECONFIG".to_owned(), kubeconfig)];
        env.extend(launch.env);
        let (name, memory_limit) = (launch.operator.name(), launch.memory_limit);
        Self::start_limited(cluster, name, &path, launch.args, env, memory_limit).await
    }

    /// Starts any program like an operator, without a limit of memory.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start_program(
        cluster: &Cluster,
        name: &str,
        path: &Path,
        args: Vec<String>,
        env: Vec<(String, String)>,
    ) -> Result<Self> {
        Self::start_limited(cluster, name, path, args, env, None).await
    }

    async fn start_limited(
        cluster: &Cluster,
        name: &str,
        path: &Path,
        args: Vec<String>,
        env: Vec<(String, String)>,
        memory_limit: Option<u64>,
    ) -> Result<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let name = format!("{name}-{}", STARTED.fetch_add(1, Ordering::Relaxed));
        let log = cluster.root().join(format!("{name}.log"));
        let spec = ProgramSpec { name, path: path.to_owned(), args, env, log, memory_limit };
        // It has its own supervisor, so that it also works on a cluster that this process did not start.
        let supervisor = ProcessSupervisor::spawn(None)?;
        let running = supervisor.start(spec.clone()).await?;
        Ok(Self { supervisor, running: Mutex::new(running), spec })
    }

    fn running(&self) -> Running {
        lock(&self.running).clone()
    }

    /// The operator's own process id.
    pub fn pid(&self) -> u32 {
        self.running().pid
    }

    /// How it ended; `None` while it runs.
    pub fn exit(&self) -> Option<Exit> {
        self.running().exit()
    }

    /// Waits until it ends.
    pub async fn wait(&self) -> Exit {
        self.running().wait().await
    }

    /// Kills it like a power failure: none of its code runs any more when this returns.
    ///
    /// # Errors
    /// When the operating system rejects the signal.
    pub async fn kill_9(&self) -> Result<Exit> {
        self.running().kill().await
    }

    /// Asks it to stop and waits up to `patience`.
    ///
    /// # Errors
    /// When it had to be killed, with the end of its log.
    pub async fn stop(&self, patience: Duration) -> Result<Exit> {
        let running = self.running();
        running.signal(Signal::Terminate).await?;
        if let Ok(exit) = tokio::time::timeout(patience, running.wait()).await {
            return Ok(exit);
        }
        running.kill().await?;
        bail!("{} did not stop within {patience:?}\n{}", self.spec.name, self.log_tail())
    }

    /// Sends a signal, for example [`Signal::Freeze`] to make a leader miss its renewals: after it, no thread runs.
    ///
    /// # Errors
    /// When the operating system rejects it.
    pub async fn signal(&self, signal: Signal) -> Result<()> {
        self.running().signal(signal).await?;
        match signal {
            Signal::Freeze => frozen::stopped(self.pid()).await,
            Signal::Terminate | Signal::Kill | Signal::Continue => Ok(()),
        }
    }

    /// Starts it again with the same arguments, after it has ended.
    ///
    /// # Errors
    /// When it is still running or cannot be started.
    pub async fn start_again(&mut self) -> Result<()> {
        self.start_next().await
    }

    /// Kills it, unless it has ended, calls `between` while nothing of it runs, and starts it again: also for a test that
    /// uses it meanwhile.
    ///
    /// # Errors
    /// When it cannot be killed or started, and those of `between`.
    pub async fn kill_and_restart<T>(&self, between: impl FnOnce() -> Result<T>) -> Result<T> {
        self.kill_9().await?;
        let result = between()?;
        self.start_next().await?;
        Ok(result)
    }

    /// Starts it once more, with the same name and log.
    pub(crate) async fn start_next(&self) -> Result<()> {
        let next = self.supervisor.start(self.spec.clone()).await?;
        *lock(&self.running) = next;
        Ok(())
    }

    /// Checks that it is running.
    ///
    /// # Errors
    /// When it has ended, with its exit and the end of its log.
    pub fn check_alive(&self) -> Result<()> {
        match self.exit() {
            None => Ok(()),
            Some(exit) => bail!("{} ended with {exit}\n{}", self.spec.name, self.log_tail()),
        }
    }

    /// How often it has ended because it lost its lease, as its log says.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub(crate) fn lost_leases(&self) -> Result<usize> {
        let log = std::fs::read(&self.spec.log)
            .with_context(|| format!("cannot read {}", self.spec.log.display()))?;
        let is_end = |line: &&str| line.starts_with("error: ") && line.contains(LOST_LEASE);
        Ok(String::from_utf8_lossy(&log).lines().filter(is_end).count())
    }

    /// The sum over all series of a metric with these `labels` (`key="value"`), from its current `/metrics`.
    ///
    /// # Errors
    /// When its admin server does not listen or does not answer with metrics.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> Result<f64> {
        let text = self.scrape().await?;
        let series =
            text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.split_once("} "));
        let meant = series.filter(|(found, _)| labels.iter().all(|label| found.contains(label)));
        meant.map(|(_, value)| value.parse::<f64>().with_context(|| format!("{name} is {value}"))).sum()
    }

    /// The body of `/readyz`: `None` while it is ready, otherwise what it waits for, one gate per line.
    ///
    /// # Errors
    /// When its admin server does not listen.
    pub async fn waits_for(&self) -> Result<Option<String>> {
        let (head, body) = self.ask("/readyz").await?;
        Ok((!head.contains(" 200 ")).then_some(body))
    }

    /// The body of `/readyz`, while it is ready: `ok`, and what works only in part, one a line.
    ///
    /// # Errors
    /// When its admin server does not listen, or it is not ready.
    pub async fn readyz(&self) -> Result<String> {
        let (head, body) = self.ask("/readyz").await?;
        if !head.contains(" 200 ") {
            bail!("/readyz answered {head}: {body}");
        }
        Ok(body)
    }

    async fn scrape(&self) -> Result<String> {
        let (head, body) = self.ask("/metrics").await?;
        if !head.contains(" 200 ") {
            bail!("/metrics answered {head}");
        }
        Ok(body)
    }

    /// Head and body of the admin server's answer.
    async fn ask(&self, path: &str) -> Result<(String, String)> {
        let log = std::fs::read_to_string(&self.spec.log).context("cannot read the operator's log")?;
        let line =
            log.lines().rfind(|line| line.contains("admin server listens")).context("no admin server yet")?;
        let address: String = line
            .split("127.0.0.1:")
            .nth(1)
            .unwrap_or_default()
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        let mut stream =
            TcpStream::connect(format!("127.0.0.1:{address}")).await.context("no admin server")?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer of the admin server")?;
        Ok((head.to_owned(), body.to_owned()))
    }

    /// The path of its log.
    pub fn log_path(&self) -> &Path {
        &self.spec.log
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        ready::tail(&self.spec.log, TAIL)
    }
}
