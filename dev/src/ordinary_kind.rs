//! A kind cluster with the container engine and the kind that are installed on this machine.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use images::WrittenImage;
use images::programs::{Build, build};
use tokio::process::Command;
use tokio::time::timeout;
use toolbox::messages::inform;
use toolbox::process_group::{ProcessGroup, interrupted};
use toolbox::workspace;

/// How long an engine may take to say that it is there.
const ANSWERS: Duration = Duration::from_secs(10);
/// How long the deletion of a cluster may take.
const DELETED: Duration = Duration::from_secs(120);

/// kind, and an engine that answers.
pub(crate) struct OrdinaryKind {
    /// As kind calls it.
    engine: &'static str,
    /// The name of the cluster, which no other run has.
    cluster: String,
}

impl OrdinaryKind {
    /// What is on `PATH` and works; `None` where something lacks.
    pub(crate) async fn find() -> Option<Self> {
        let works = async |program: &str, argument: &str| {
            let mut command = Command::new(program);
            command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let answer = timeout(ANSWERS, command.kill_on_drop(true).status()).await;
            answer.is_ok_and(|status| status.is_ok_and(|status| status.success()))
        };
        if !works("kind", "version").await {
            return None;
        }
        for engine in ["docker", "podman"] {
            if works(engine, "info").await {
                return Some(Self { engine, cluster: format!("tandem-e2e-{}", std::process::id()) });
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
        inform(&format!("using the kind on PATH, with {}; --own-engine makes one without them", self.engine));
        inform("building the operators' images");
        let images =
            build(Build::for_tests(workspace::cargo(), &workspace::root(), &workspace::target_directory()))?;
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        let work = async {
            self.make(&kubeconfig, &images).await?;
            tests(&kubeconfig).await
        };
        let result = tokio::select! {
            result = work => result,
            name = interrupted() => Err(name.map_or_else(anyhow::Error::from, |name| anyhow!("ended by {name}"))),
        };
        let name = &self.cluster;
        let deleted = timeout(DELETED, self.kind(&["delete", "cluster", "--name", name])).await;
        if !matches!(deleted, Ok(Ok(()))) {
            inform(&format!("the cluster is still there: kind delete cluster --name {name}"));
        }
        result?;
        deleted?
    }

    async fn make(&self, kubeconfig: &Path, images: &[WrittenImage]) -> anyhow::Result<()> {
        let kubeconfig = kubeconfig.display().to_string();
        let (cluster, file) = (["--name", &self.cluster], ["--kubeconfig", &kubeconfig]);
        self.kind(&[&["create", "cluster", "--wait", "120s"], &cluster[..], &file].concat()).await?;
        for image in images {
            let archive = image.archive.display().to_string();
            self.kind(&[&["load", "image-archive", &archive], &cluster[..]].concat()).await?;
        }
        Ok(())
    }

    /// Runs kind. In a process group of its own: after Ctrl-C the cluster is deleted, and nothing makes a part of it any more.
    async fn kind(&self, args: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new("kind");
        command.args(args).env("KIND_EXPERIMENTAL_PROVIDER", self.engine).stdin(Stdio::null());
        let status = ProcessGroup::run(&mut command).await?;
        ensure!(status.success(), "kind {} ended with {status}", args.join(" "));
        Ok(())
    }
}
