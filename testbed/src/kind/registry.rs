//! A container registry in the network of the engine, which asks for a password, and from which the nodes pull.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::process::Command;

use super::NODES;
use super::engine::Engine;
use crate::control_plane::go_program::GoProgram;
use crate::process_supervisor::{ProcessSupervisor, ProgramSpec, Running};
use crate::wait::eventually;

/// go-containerregistry's registry, with a password.
pub const REGISTRY: GoProgram = GoProgram {
    module: "registry",
    package: "tandem.dev/testbed/registry",
    takes: "half a minute on two cores",
    cgo: false,
};

/// Until it listens.
const STARTS: Duration = Duration::from_secs(60);

/// No other program is in that network.
const PORT: u16 = 5000;

/// Serves images from memory, until it is dropped.
pub struct Registry {
    /// Its name in references of images.
    pub host: String,
    /// The only user.
    pub user: &'static str,
    /// The user's password.
    pub password: &'static str,
    program: PathBuf,
    engine_pid: u32,
    _process: Running,
    _supervisor: ProcessSupervisor,
}

/// Has go-containerregistry compare every digest and size of an image's layout, and of its archive, and returns the layout's digest.
///
/// # Errors
/// When one is wrong, the two are not the same image, or the program cannot be built.
pub async fn validate(layout: &Path, archive: &Path) -> Result<String> {
    let mut program = Command::new(REGISTRY.find().await?);
    let output = program.arg("validate").arg(layout).arg(archive).output().await;
    let output = output.context("cannot run the registry's program")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Registry {
    /// Starts it at `gateway`, and tells the nodes that it speaks HTTP.
    pub(super) async fn start(engine: &Engine, gateway: &str) -> Result<Self> {
        let program = REGISTRY.find().await?;
        let (host, user, password) = (format!("{gateway}:{PORT}"), "puller", "open sesame");
        let supervisor = ProcessSupervisor::spawn(None)?;
        let inside = ["--target", &engine.pid().to_string(), "--net", "--"].map(str::to_owned);
        let serve = [
            program.display().to_string(),
            "serve".to_owned(),
            format!("--listen={host}"),
            format!("--user={user}"),
            format!("--password={password}"),
        ];
        let log = engine.directory().join("registry.log");
        let process = supervisor.start(ProgramSpec {
            name: "registry".to_owned(),
            path: PathBuf::from("/usr/bin/nsenter"),
            args: inside.into_iter().chain(serve).collect(),
            env: Vec::new(),
            log: log.clone(),
            memory_limit: None,
        });
        let process = process.await?;
        let ready = eventually(STARTS, "the registry listens", || async {
            if let Some(exit) = process.exit() {
                bail!("it ended with {exit}: {}", std::fs::read_to_string(&log).unwrap_or_default());
            }
            Ok(std::fs::read_to_string(&log)?.contains(&host).then_some(()))
        });
        ready.await?;
        let directory = format!("/etc/containerd/certs.d/{host}");
        let script =
            format!(r#"mkdir -p '{directory}' && echo '[host."http://{host}"]' >'{directory}/hosts.toml'"#);
        for node in NODES {
            engine.docker(&["exec", node, "sh", "-c", &script]).await?;
        }
        let engine_pid = engine.pid();
        Ok(Self { host, user, password, program, engine_pid, _process: process, _supervisor: supervisor })
    }

    /// Pushes an OCI layout, and returns the digest that the registry calls it by.
    ///
    /// # Errors
    /// When the layout cannot be read, or the registry refuses it.
    pub async fn push(&self, layout: &Path, repository: &str) -> Result<String> {
        let output = Command::new("nsenter")
            .args(["--target", &self.engine_pid.to_string(), "--net", "--"])
            .arg(&self.program)
            .args(["push", &format!("--user={}", self.user), &format!("--password={}", self.password)])
            .arg(layout)
            .arg(format!("{}/{repository}", self.host))
            .output()
            .await
            .context("cannot run nsenter")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}
