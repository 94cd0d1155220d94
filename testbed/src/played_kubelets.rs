//! kwok beside a cluster that has real kubelets: it plays those of nodes without machines.

use std::path::Path;

use anyhow::{Context as _, Result};
use tempfile::TempDir;
use toolbox::tools::{Tool, Toolbox};

use crate::control_plane::layout;
use crate::frozen::FrozenProcess;
use crate::process_supervisor::{ProcessSupervisor, ProgramSpec, Running};

/// Which nodes kwok plays beside real ones: those that ask for it by an annotation. And how long their heartbeats count.
const PLAYED: [&str; 2] =
    ["--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake", "--node-lease-duration-seconds=40"];

/// kwok, until it is dropped.
pub struct PlayedKubelets {
    kwok: Running,
    _supervisor: ProcessSupervisor,
    directory: TempDir,
}

impl PlayedKubelets {
    /// A directory that goes with kwok, also when the test is killed.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Stops it until what is returned is dropped: what is played then, another kwok plays.
    ///
    /// # Errors
    /// When it has ended.
    pub async fn freeze(&self) -> Result<FrozenProcess> {
        FrozenProcess::freeze(self.kwok.pid).await
    }

    /// Starts it for the cluster of a kubeconfig. It leaves nodes alone that do not ask for it by an annotation.
    ///
    /// # Errors
    /// When kwok cannot be built or started.
    pub async fn start(kubeconfig: &Path) -> Result<Self> {
        // Whatever KUBEBUILDER_ASSETS holds: envtest has no kwok.
        let toolbox = Toolbox { assets: None, ..Toolbox::from_environment() };
        let kwok = toolbox.find(&[Tool::Kwok]).await?.pop().context("the toolbox is empty")?;
        let directory = tempfile::Builder::new().prefix("tandem-kwok-").tempdir()?;
        let stages = directory.path().join("stages.yaml");
        std::fs::write(&stages, layout::stages())?;
        let files =
            [format!("--kubeconfig={}", kubeconfig.display()), format!("--config={}", stages.display())];
        let args = files.into_iter().chain(PLAYED.map(str::to_owned)).collect();
        let supervisor = ProcessSupervisor::spawn(Some(directory.path()))?;
        let kwok = supervisor.start(ProgramSpec {
            name: "kwok".to_owned(),
            path: kwok.path,
            args,
            // kwok reads settings from the home directory, which must not be the user's.
            env: vec![("HOME".to_owned(), directory.path().display().to_string())],
            log: directory.path().join("kwok.log"),
            memory_limit: None,
        });
        Ok(Self { kwok: kwok.await?, _supervisor: supervisor, directory })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const DEMO: &str = include_str!("../manifests/demo.yaml");
    const QUICKSTART: &str = include_str!("../../docs/guides/quickstart.yaml");
    const MODULE: &str = include_str!("../control-plane/go.mod");
    const STAGES: [&str; 3] = [
        include_str!("../control-plane/stages/kwok.yaml"),
        include_str!("../control-plane/stages/node.yaml"),
        include_str!("../control-plane/stages/pod.yaml"),
    ];

    fn objects(manifest: &str) -> Vec<Value> {
        manifest.split("\n---\n").map(|object| serde_saphyr::from_str(object).unwrap()).collect()
    }

    fn named(objects: &[Value], kind: &str, name: &str) -> Value {
        let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        objects.iter().find(is_it).unwrap().clone()
    }

    /// Its kwok runs as a Pod in one test on kind only. What it does is what kwok does in the others.
    #[test]
    fn the_quickstart_has_the_demos_pool_and_the_kwok_of_the_tests() {
        let (demo, quickstart) = (objects(DEMO), objects(QUICKSTART));
        for (kind, name) in [("NodePool", "workers"), ("NodePoolAutoscaler", "all"), ("Deployment", "web")] {
            let mut object = named(&quickstart, kind, name);
            if kind == "Deployment" {
                // It begins with load, where the demo makes it later.
                assert_eq!(object["spec"]["replicas"].take(), json!(7));
                object["spec"]["replicas"] = json!(0);
            }
            assert_eq!(object, named(&demo, kind, name), "{kind} {name}");
        }
        let container =
            &named(&quickstart, "Deployment", "kwok")["spec"]["template"]["spec"]["containers"][0];
        let version = MODULE.lines().find_map(|line| line.trim().strip_prefix("sigs.k8s.io/kwok ")).unwrap();
        let version = version.split(' ').next().unwrap();
        assert_eq!(container["image"], format!("registry.k8s.io/kwok/kwok:{version}"));
        let args: Vec<&str> = [&["--config=/etc/kwok/stages.yaml"][..], &PLAYED].concat();
        assert_eq!(container["args"], json!(args));
        let stages = named(&quickstart, "ConfigMap", "kwok")["data"]["stages.yaml"].take();
        assert_eq!(stages, STAGES.join("---\n"));
    }
}
