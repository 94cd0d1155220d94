//! A private control plane: starts its programs in order, restarts the API server, and ends with its supervisor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;
use tokio::time::Instant;
use toolbox::messages::inform;
use toolbox::tools::{Executable, Tool};

use super::{ClusterOptions, KEEP_VARIABLE, client_of};
use crate::control_plane::components::Components;
use crate::control_plane::layout::Layout;
use crate::control_plane::pki::{Identity, write_identities};
use crate::control_plane::ports::{Ports, was_taken};
use crate::control_plane::ready;
use crate::process_supervisor::{ProcessSupervisor, Running, lock};

/// Maximum number of start attempts, when another process takes a port between its choice and its use.
const PORT_ATTEMPTS: u32 = 3;
/// How long an API server may take to finish its requests.
const API_SERVER_STOP: Duration = Duration::from_secs(20);

/// The running programs.
pub(super) struct Private {
    layout: Layout,
    ports: Ports,
    supervisor: ProcessSupervisor,
    programs: Mutex<BTreeMap<Tool, Running>>,
    startup: Duration,
}

/// Creates the supervisor for the control plane in a directory.
pub(super) type MakeSupervisor<'a> = &'a (dyn Fn(&Path) -> Result<ProcessSupervisor> + Sync);

impl Private {
    pub(super) async fn start(options: &ClusterOptions) -> Result<Self> {
        let keep = std::env::var_os(KEEP_VARIABLE).is_some();
        Self::start_with(options, &|root| {
            if keep {
                inform(&format!("{KEEP_VARIABLE} is set: logs stay in {}", root.display()));
            }
            ProcessSupervisor::spawn((!keep).then_some(root))
        })
        .await
    }

    pub(super) async fn start_with(options: &ClusterOptions, supervisor: MakeSupervisor<'_>) -> Result<Self> {
        let wanted: Vec<Tool> = [
            (Tool::Etcd, true),
            (Tool::ApiServer, true),
            (Tool::ControllerManager, options.controller_manager),
            (Tool::Scheduler, options.scheduler),
            (Tool::Kwok, options.kwok),
        ]
        .into_iter()
        .filter_map(|(tool, wanted)| wanted.then_some(tool))
        .collect();
        let executables = options.toolbox.find(&wanted).await?;
        let tools: Vec<(Tool, Executable)> = wanted.into_iter().zip(executables).collect();
        let mut attempt = 1;
        loop {
            match Self::try_start(options, &tools, supervisor).await {
                Err(error) if was_taken(&format!("{error:#}")) && attempt < PORT_ATTEMPTS => attempt += 1,
                Err(error) if was_taken(&format!("{error:#}")) => {
                    return Err(error.context(format!(
                        "the control plane's ports were taken by others {PORT_ATTEMPTS} times in a row: \
                         something on this machine opens ports very fast"
                    )));
                }
                done => return done.context("the control plane did not start"),
            }
        }
    }

    async fn try_start(
        options: &ClusterOptions,
        tools: &[(Tool, Executable)],
        supervisor: MakeSupervisor<'_>,
    ) -> Result<Self> {
        let began = Instant::now();
        let directory =
            tempfile::Builder::new().prefix("tandem-").tempdir().context("no private directory")?;
        // From here on the supervisor removes the directory, even when this process is killed.
        let supervisor = supervisor(directory.path())?;
        let root = directory.keep();
        let components = match prepare(&root, options) {
            Ok(components) => components,
            Err(error) => {
                supervisor.close().context(format!("after {error:#}"))?;
                return Err(error);
            }
        };
        let (layout, ports) = (components.layout.clone(), components.ports);
        match bring_up(&components, tools, &supervisor).await {
            Ok(programs) => Ok(Self {
                layout,
                ports,
                supervisor,
                programs: Mutex::new(programs),
                startup: began.elapsed(),
            }),
            Err(error) => {
                supervisor.close().context(format!("after {error:#}"))?;
                Err(error)
            }
        }
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.layout.kubeconfig(Identity::Admin.file())
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn ports(&self) -> Ports {
        self.ports
    }

    pub(super) fn startup(&self) -> Duration {
        self.startup
    }

    pub(super) fn pids(&self) -> Vec<(String, u32)> {
        self.programs().into_iter().map(|program| (program.spec.name, program.pid)).collect()
    }

    pub(super) fn runs(&self, tool: Tool) -> bool {
        lock(&self.programs).contains_key(&tool)
    }

    pub(super) fn check_alive(&self) -> Result<()> {
        ready::alive(&self.programs())
    }

    pub(super) async fn stop_api_server(&self) -> Result<()> {
        self.api_server()?.stop(API_SERVER_STOP).await.map(|_| ())
    }

    pub(super) async fn start_api_server(&self) -> Result<()> {
        let stopped = self.api_server()?;
        if stopped.exit().is_some() {
            let started = self.supervisor.start(stopped.spec).await?;
            lock(&self.programs).insert(Tool::ApiServer, started);
        }
        ready::api_server(&client_of(&self.kubeconfig()).await?, &self.programs()).await
    }

    fn api_server(&self) -> Result<Running> {
        lock(&self.programs).get(&Tool::ApiServer).cloned().context("there is no API server")
    }

    pub(super) async fn back_up(&self) -> Result<Backup> {
        let backup = tempfile::tempdir_in(self.layout.root()).context("no place for a backup")?;
        let (from, to) = (self.layout.etcd_data(), backup.path().to_owned());
        self.while_etcd_is_down(move || copy(&from, &to)).await?;
        Ok(Backup(backup))
    }

    pub(super) async fn restore(&self, backup: &Backup) -> Result<()> {
        let (from, to) = (backup.0.path().to_owned(), self.layout.etcd_data());
        self.while_etcd_is_down(move || {
            std::fs::remove_dir_all(&to)?;
            copy(&from, &to)
        })
        .await
    }

    async fn while_etcd_is_down(&self, work: impl FnOnce() -> std::io::Result<()>) -> Result<()> {
        self.stop_api_server().await?;
        let etcd = lock(&self.programs).get(&Tool::Etcd).cloned().context("there is no etcd")?;
        etcd.stop(API_SERVER_STOP).await?;
        work().context("cannot copy what etcd holds")?;
        let started = self.supervisor.start(etcd.spec).await?;
        lock(&self.programs).insert(Tool::Etcd, started);
        self.start_api_server().await
    }

    fn programs(&self) -> Vec<Running> {
        lock(&self.programs).values().cloned().collect()
    }

    pub(super) async fn stay(&self) -> Result<()> {
        self.supervisor.stay().await
    }

    pub(super) fn close(&self) -> Result<()> {
        self.supervisor.close()
    }
}

/// etcd's data at some time. It is removed with the cluster's directory, or when this is dropped.
pub struct Backup(TempDir);

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &place)?;
        } else {
            std::fs::copy(entry.path(), place)?;
        }
    }
    Ok(())
}

/// Writes the files that the programs read into the directory.
fn prepare(root: &Path, options: &ClusterOptions) -> Result<Components> {
    let layout = Layout::create(root, options.audit_scope)?;
    let ports = Ports::free()?;
    write_identities(&layout, ports.api_server)?;
    Ok(Components {
        layout,
        ports,
        api_server_flags: options.api_server_flags.clone(),
        controller_manager_flags: options.controller_manager_flags.clone(),
        kwok_flags: options.kwok_flags.clone(),
    })
}

/// Starts etcd and the API server, then the programs that need them.
async fn bring_up(
    components: &Components,
    tools: &[(Tool, Executable)],
    supervisor: &ProcessSupervisor,
) -> Result<BTreeMap<Tool, Running>> {
    let (first, rest): (Vec<_>, Vec<_>) =
        tools.iter().partition(|(tool, _)| matches!(tool, Tool::Etcd | Tool::ApiServer));
    let mut programs = BTreeMap::new();
    for (tool, executable) in first {
        programs.insert(*tool, supervisor.start(components.spec(*tool, executable)).await?);
    }
    let client = client_of(&components.layout.kubeconfig(Identity::Admin.file())).await?;
    ready::api_server(&client, &running(&programs)).await?;
    for (tool, executable) in rest {
        programs.insert(*tool, supervisor.start(components.spec(*tool, executable)).await?);
    }
    if programs.contains_key(&Tool::ControllerManager) {
        ready::controllers(&client, &running(&programs)).await?;
    }
    ready::alive(&running(&programs))?;
    Ok(programs)
}

fn running(programs: &BTreeMap<Tool, Running>) -> Vec<Running> {
    programs.values().cloned().collect()
}
