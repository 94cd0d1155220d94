//! A kind cluster with the container engine and the kind that are installed on this machine.

use std::path::Path;
use std::process::Stdio;

use anyhow::{bail, ensure};
use e2e::control_plane::go::inform;
use e2e::control_plane::toolbox::target_directory;
use images::programs::{Build, build};
use tokio::process::Command;

use crate::suites::interrupted;
use crate::workspace;

/// The name of the cluster.
const NAME: &str = "tandem-e2e";

/// kind, and an engine that answers.
pub(crate) struct OrdinaryKind {
    /// As kind calls it.
    engine: &'static str,
}

impl OrdinaryKind {
    /// What is on `PATH` and works; `None` where something lacks.
    pub(crate) async fn find() -> Option<Self> {
        let works = async |program: &str, argument: &str| {
            let mut command = Command::new(program);
            command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().await.is_ok_and(|status| status.success())
        };
        if !works("kind", "version").await {
            return None;
        }
        for engine in ["docker", "podman"] {
            if works(engine, "info").await {
                return Some(Self { engine });
            }
        }
        None
    }

    /// Makes a cluster, loads the images, has `tests` run with its kubeconfig, and deletes it, also after Ctrl-C.
    ///
    /// # Errors
    /// When kind fails, the images cannot be built, or the tests fail.
    pub(crate) async fn run(
        &self,
        tests: impl AsyncFnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let clusters = self.kind(&["get", "clusters"]).stderr(Stdio::inherit()).output().await?;
        let clusters = String::from_utf8_lossy(&clusters.stdout).into_owned();
        if clusters.lines().any(|name| name == NAME) {
            bail!("there is a kind cluster {NAME}; if it is of no use: kind delete cluster --name {NAME}");
        }
        inform(&format!("using the kind on PATH, with {}; --own-engine makes one without them", self.engine));
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        let work = async {
            self.make(&kubeconfig).await?;
            tests(&kubeconfig).await
        };
        let result = tokio::select! {
            result = work => result,
            name = interrupted() => Err(anyhow::anyhow!("ended by {}", name?)),
        };
        let deleted = self.kind(&["delete", "cluster", "--name", NAME]).status().await;
        result?;
        ensure!(deleted?.success(), "kind cannot delete the cluster {NAME}");
        Ok(())
    }

    async fn make(&self, kubeconfig: &Path) -> anyhow::Result<()> {
        let images = tokio::task::spawn_blocking(|| {
            inform("building the operators' images");
            build(Build::for_tests(workspace::cargo(), &workspace::root(), &target_directory()))
        });
        let images = images.await??;
        let create = ["create", "cluster", "--name", NAME, "--wait", "120s", "--kubeconfig"];
        let created = self.kind(&create).arg(kubeconfig).status().await?;
        ensure!(created.success(), "kind cannot make a cluster");
        for image in images {
            let load = ["load", "image-archive", "--name", NAME];
            let loaded = self.kind(&load).arg(&image.archive).status().await?;
            ensure!(loaded.success(), "kind cannot load {}", image.archive.display());
        }
        Ok(())
    }

    /// In a process group of its own: Ctrl-C ends this program's work, and the cluster is deleted then.
    fn kind(&self, args: &[&str]) -> Command {
        let mut command = Command::new("kind");
        command.args(args).env("KIND_EXPERIMENTAL_PROVIDER", self.engine).stdin(Stdio::null());
        command.process_group(0).kill_on_drop(true);
        command
    }
}
