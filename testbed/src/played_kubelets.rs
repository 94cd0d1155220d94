//! kwok beside a cluster that has real kubelets: it plays those of nodes without machines.

use std::path::Path;

use anyhow::{Context as _, Result};
use tempfile::TempDir;
use toolbox::tools::{Tool, Toolbox};

use crate::control_plane::layout;
use crate::process_supervisor::{ProcessSupervisor, ProgramSpec, Running};

/// kwok, until it is dropped.
pub struct PlayedKubelets {
    _kwok: Running,
    _supervisor: ProcessSupervisor,
    directory: TempDir,
}

impl PlayedKubelets {
    /// A directory that goes with kwok, also when the test is killed.
    pub fn directory(&self) -> &Path {
        self.directory.path()
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
        let args = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--config={}", stages.display()),
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".to_owned(),
            "--node-lease-duration-seconds=40".to_owned(),
        ];
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
        Ok(Self { _kwok: kwok.await?, _supervisor: supervisor, directory })
    }
}
