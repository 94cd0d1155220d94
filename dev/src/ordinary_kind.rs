//! A kind cluster with the container engine and the kind that are installed on this machine.

use std::path::{Path, PathBuf};
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
    program: PathBuf,
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
                let cluster = format!("tandem-e2e-{}", std::process::id());
                return Some(Self { program: PathBuf::from("kind"), engine, cluster });
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
        self.with_cluster(&images, tests).await
    }

    async fn with_cluster(
        &self,
        images: &[WrittenImage],
        tests: impl AsyncFnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        let work = async {
            self.make(&kubeconfig, images).await?;
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
        let mut command = Command::new(&self.program);
        command.args(args).env("KIND_EXPERIMENTAL_PROVIDER", self.engine).stdin(Stdio::null());
        let status = ProcessGroup::run(&mut command).await?;
        ensure!(status.success(), "kind {} ended with {status}", args.join(" "));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anyhow::Result;
    use toolbox::executable;

    use super::*;

    /// What kind was called with, whether the tests ran, and how all of it ended.
    struct Played {
        calls: Vec<String>,
        ran: bool,
        result: Result<()>,
    }

    /// With a kind that writes down its calls, and fails in those that begin with the word `fails`.
    async fn played(fails: &str, tests: Result<()>) -> Played {
        let directory = tempfile::tempdir().unwrap();
        let [program, log] = ["kind", "log"].map(|name| directory.path().join(name));
        let script = format!(
            "#!/bin/sh\necho \"$KIND_EXPERIMENTAL_PROVIDER: $*\" >>{}\n[ \"$1\" != \"{fails}\" ]\n",
            log.display()
        );
        executable::write(&program, script).unwrap();
        let kind = OrdinaryKind { program, engine: "podman", cluster: "x".to_owned() };
        let image = WrittenImage {
            reference: String::new(),
            digest: String::new(),
            layout: PathBuf::new(),
            archive: PathBuf::from("/a.tar"),
            size: 0,
        };
        let ran = Cell::new(false);
        let result = kind
            .with_cluster(&[image], async |_: &Path| {
                ran.set(true);
                tests
            })
            .await;
        let calls = std::fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect();
        Played { calls, ran: ran.get(), result }
    }

    const DELETED: &str = "podman: delete cluster --name x";

    #[tokio::test]
    async fn a_cluster_is_made_gets_the_images_and_is_deleted_after_the_tests() {
        let Played { calls, ran, result } = played("nothing", Ok(())).await;
        result.unwrap();
        assert!(ran);
        let [made, loaded, deleted] = &calls[..] else { panic!("{calls:?}") };
        assert!(made.starts_with("podman: create cluster --wait 120s --name x --kubeconfig /"), "{made}");
        assert_eq!([loaded, deleted], ["podman: load image-archive /a.tar --name x", DELETED]);
    }

    #[tokio::test]
    async fn whatever_fails_is_said_and_the_cluster_is_deleted() {
        let red = played("nothing", Err(anyhow!("a test failed"))).await;
        assert_eq!(red.result.unwrap_err().to_string(), "a test failed");
        assert_eq!((red.calls.len(), red.calls.last().map(String::as_str)), (3, Some(DELETED)));
        // A part of the cluster may be there also if it was not made.
        for step in ["create", "load"] {
            let Played { calls, ran, result } = played(step, Ok(())).await;
            let error = result.unwrap_err().to_string();
            assert!(error.starts_with(&format!("kind {step} ")), "{error}");
            assert_eq!((ran, calls.last().map(String::as_str)), (false, Some(DELETED)));
        }
        let kept = played("delete", Ok(())).await;
        assert!(kept.ran && kept.result.unwrap_err().to_string().starts_with("kind delete cluster"));
    }
}
