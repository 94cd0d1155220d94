//! Docker's daemon in namespaces of its own. Nothing of it is seen on the machine but its socket, and nothing of it is left
//! when it ends, however that happens.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;
use tokio::process::Command;
use toolbox::workspace::target_directory;

use crate::debian;
use crate::file_lock::FileLock;
use crate::process_supervisor::{ProcessSupervisor, ProgramSpec, Running};
use crate::wait::eventually;

/// What the daemon needs, with the libraries that not every machine has.
const PACKAGES: [&str; 15] = [
    "containerd",
    "docker.io",
    "iptables",
    "libdevmapper1.02.1",
    "libip4tc2",
    "libip6tc2",
    "libmnl0",
    "libnetfilter-conntrack3",
    "libnfnetlink0",
    "libnftnl11",
    "libseccomp2",
    "libxtables12",
    "mmdebstrap",
    "runc",
    "tini",
];

/// How long the daemon may take until it answers.
const STARTS: Duration = Duration::from_secs(180);

/// Docker's command line at the engine's socket, and other programs that call it.
#[derive(Clone, Debug)]
pub(super) struct Docker {
    packages: PathBuf,
    directory: PathBuf,
}

/// A running container engine.
pub(super) struct Engine {
    client: Docker,
    directory: TempDir,
    process: Running,
    _supervisor: ProcessSupervisor,
    /// There is one directory of images, which one daemon can use.
    _turn: FileLock,
}

impl Engine {
    /// Starts the daemon, and removes containers that an earlier run could not.
    ///
    /// # Errors
    /// When a package cannot be had, or the daemon does not start; the end of its log is in the message.
    pub(super) async fn start() -> Result<Self> {
        let packages = debian::unpacked("kind-engine", &PACKAGES).await?;
        let images = target_directory().join("kind-images");
        let turn = FileLock::one_of(&target_directory().join("turns/kind"), 1).await?;
        std::fs::create_dir_all(&images).with_context(|| format!("cannot create {}", images.display()))?;
        let directory = tempfile::Builder::new().prefix("tandem-kind-").tempdir()?;
        let supervisor = ProcessSupervisor::spawn(Some(directory.path()))?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("kind/engine.sh");
        let args =
            [&script, &packages, &images, directory.path()].map(|path: &Path| path.display().to_string());
        let process = supervisor.start(ProgramSpec {
            name: "dockerd".to_owned(),
            path: PathBuf::from("/bin/sh"),
            args: args.to_vec(),
            env: Vec::new(),
            log: directory.path().join("dockerd.log"),
            memory_limit: None,
        });
        let process = process.await?;
        let client = Docker { packages, directory: directory.path().to_owned() };
        let engine = Self { client, directory, process, _supervisor: supervisor, _turn: turn };
        let answers = eventually(STARTS, "the container engine answers", || async {
            engine.check_alive()?;
            engine.docker(&["version"]).await.map(Some)
        });
        answers.await?;
        engine.sweep().await?;
        Ok(engine)
    }

    /// Where its socket, its log and files of the cluster are; it goes with the engine.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Debian's packages, unpacked.
    pub(super) fn packages(&self) -> &Path {
        &self.client.packages
    }

    /// Docker's command line, for one that outlives a borrow of the engine.
    pub(super) fn client(&self) -> Docker {
        self.client.clone()
    }

    fn check_alive(&self) -> Result<()> {
        match self.process.exit() {
            None => Ok(()),
            Some(exit) => {
                let log = std::fs::read_to_string(self.directory().join("dockerd.log")).unwrap_or_default();
                bail!("the container engine ended with {exit}:\n{}", tail(&log))
            }
        }
    }

    /// Removes what the run before has left in the directory of images: it ended with all its processes, and told no daemon.
    async fn sweep(&self) -> Result<()> {
        let left = self.docker(&["ps", "--all", "--quiet"]).await?;
        let left: Vec<&str> = left.split_whitespace().collect();
        if !left.is_empty() {
            self.docker(&[&["rm", "--force", "--volumes"], &*left].concat()).await?;
        }
        self.docker(&["volume", "prune", "--force"]).await?;
        self.docker(&["image", "prune", "--force"]).await?;
        Ok(())
    }

    /// Runs Docker's command line.
    ///
    /// # Errors
    /// When it fails, with its standard error.
    pub(super) async fn docker(&self, args: &[&str]) -> Result<String> {
        self.client.run(args).await
    }

    /// Runs a program in the network of the engine.
    ///
    /// # Errors
    /// When it fails, with its standard error.
    pub(super) async fn run_inside(&self, program: &Path, args: &[&str]) -> Result<String> {
        let mut command = self.client.command(Path::new("nsenter"));
        command.arg("--target").arg(self.process.pid.to_string()).args(["--net", "--"]).arg(program);
        output(&mut command, args).await
    }

    /// Runs a script that calls Docker, for as long as it takes.
    ///
    /// # Errors
    /// When it fails, with the end of its standard error.
    pub(super) async fn script(&self, script: &Path, args: &[String]) -> Result<()> {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut command = self.client.command(Path::new("sh"));
        output(command.arg(script), &args).await.map(|_| ())
    }

    /// The process whose network the containers are in.
    pub(super) const fn pid(&self) -> u32 {
        self.process.pid
    }
}

impl Docker {
    /// Runs it.
    ///
    /// # Errors
    /// When it fails, with its standard error.
    pub(super) async fn run(&self, args: &[&str]) -> Result<String> {
        output(&mut self.command(&self.packages.join("usr/bin/docker")), args).await
    }

    /// A command that finds it.
    fn command(&self, program: &Path) -> Command {
        let mut path = vec![self.packages.join("usr/bin"), self.packages.join("usr/sbin")];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let mut command = Command::new(program);
        command
            .env("DOCKER_HOST", format!("unix://{}/docker.sock", self.directory.display()))
            .env("HOME", &self.directory)
            .env("PATH", std::env::join_paths(path).unwrap_or_default())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }
}

async fn output(command: &mut Command, args: &[&str]) -> Result<String> {
    let output = command.args(args).output().await.context("cannot run a program of the engine")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} failed:\n{}", args.join(" "), tail(&said));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The last twenty lines.
pub(super) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().collect();
    lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
}
