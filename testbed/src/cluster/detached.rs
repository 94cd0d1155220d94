//! A control plane that keeps running when the command that started it ends (`cargo xtask dev up`), and that later
//! commands find again.
//!
//! It is reached through its supervisor's socket and never by process id, which may belong to another process by then.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use toolbox::tools::Toolbox;

use super::private::Private;
use super::{Backing, Cluster, ClusterOptions};
use crate::control_plane::layout::write;
use crate::process_supervisor::ProcessSupervisor;

/// The state of a detached control plane; stored as `state.json` in the directory passed to
/// [`Cluster::start_detached`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// The directory of the control plane, logs included. It is removed when the control plane ends.
    pub root: PathBuf,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The programs and their process ids, for information only.
    pub pids: Vec<(String, u32)>,
}

impl Cluster {
    /// Starts a control plane that outlives this process, and stores its location in `directory`.
    ///
    /// # Errors
    /// When one from this directory is already running, or for the same reasons as [`Cluster::start`].
    pub async fn start_detached(directory: &Path, options: ClusterOptions) -> Result<Detached> {
        if let Some(running) = Self::detached(directory)? {
            bail!("a control plane runs already: its kubeconfig is {}", running.kubeconfig.display());
        }
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let log = directory.join("supervisor.log");
        let started = Private::start_with(&options, &|root| {
            ProcessSupervisor::spawn_detached(&socket(root), root, &log)
        })
        .await?;
        let state = Detached {
            root: started.layout().root().to_owned(),
            kubeconfig: started.kubeconfig(),
            pids: started.pids(),
        };
        // Until here it ends with this process, because no later command could find it.
        write(&state_file(directory), &serde_json::to_string_pretty(&state)?)?;
        started.stay().await?;
        Ok(state)
    }

    /// The control plane that was started from `directory`; `None` when none is running.
    ///
    /// # Errors
    /// When its state file is invalid.
    pub fn detached(directory: &Path) -> Result<Option<Detached>> {
        let Some(state) = Self::state(directory)? else { return Ok(None) };
        Ok(ProcessSupervisor::connect(&socket(&state.root)).is_ok().then_some(state))
    }

    /// The stored state of the last control plane that was started from `directory`.
    fn state(directory: &Path) -> Result<Option<Detached>> {
        let path = state_file(directory);
        let Ok(text) = std::fs::read_to_string(&path) else { return Ok(None) };
        serde_json::from_str(&text).map(Some).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Connects to the control plane that was started from `directory`. Dropping the result leaves it running.
    ///
    /// # Errors
    /// When none is running.
    pub fn attach(directory: &Path) -> Result<Self> {
        let running = Self::detached(directory)?;
        let state = running.with_context(|| format!("no control plane runs from {}", directory.display()))?;
        let connection = ProcessSupervisor::connect(&socket(&state.root))?;
        Ok(Self {
            kubeconfig: state.kubeconfig,
            toolbox: Toolbox::from_environment(),
            backing: Backing::Attached { root: state.root, _connection: connection },
        })
    }

    /// Ends the control plane that was started from `directory`. Returns whether there was one.
    ///
    /// # Errors
    /// When it could not be ended in time.
    pub fn stop_detached(directory: &Path) -> Result<bool> {
        let running = Self::detached(directory)?;
        if let Some(state) = &running {
            ProcessSupervisor::connect(&socket(&state.root))?.close()?;
        } else if let Some(state) = Self::state(directory)? {
            // Its supervisor was killed, so its directory has not been removed.
            let is_ours =
                state.root.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tandem-"));
            if is_ours && state.root.is_dir() {
                std::fs::remove_dir_all(&state.root)
                    .with_context(|| format!("cannot remove {}", state.root.display()))?;
            }
        }
        for left in [state_file(directory), directory.join("supervisor.log")] {
            // Absent when nothing was started.
            std::fs::remove_file(left).ok();
        }
        Ok(running.is_some())
    }
}

fn state_file(directory: &Path) -> PathBuf {
    directory.join("state.json")
}

/// Inside the control plane's directory, which only its owner may access: a user with access to the socket can start
/// programs.
fn socket(root: &Path) -> PathBuf {
    root.join("supervisor.sock")
}
