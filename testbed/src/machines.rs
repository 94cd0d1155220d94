//! Machines that register their Nodes themselves, made by the program of `docs/providers/exec.md`: a machine is a file,
//! and a task here plays the kubelets of all of them. kwok runs their pods.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::test_env::TestEnv;

/// The name that pools use for the program.
pub const PROGRAM: &str = "directory";

/// The program of the documentation.
const DOCUMENTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/providers/exec/directory.sh");

/// What is in the file of a machine whose kubelet registers its Node in another cluster.
const ELSEWHERE: &str = "elsewhere";

/// How often a kubelet looks whether its Node exists: a real one notices with its next heartbeat.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// How often a test looks whether the program has done something.
const LOOK: Duration = Duration::from_millis(10);

/// The program and its machines. Everything ends when this is dropped.
pub struct Machines {
    directory: TempDir,
    kubelets: Option<JoinHandle<()>>,
    may_register: Arc<AtomicBool>,
}

impl Machines {
    /// No machine yet.
    ///
    /// # Errors
    /// When the program cannot be written.
    pub fn new() -> Result<Self> {
        Self::new_in(&std::env::temp_dir())
    }

    /// Like [`Machines::new`], with the machines in a new directory below `parent`.
    ///
    /// # Errors
    /// Same as [`Machines::new`].
    pub fn new_in(parent: &Path) -> Result<Self> {
        let directory = tempfile::tempdir_in(parent).context("no directory for the machines")?;
        let machines = Self { directory, kubelets: None, may_register: Arc::new(AtomicBool::new(true)) };
        machines.tell_the_truth()?;
        Ok(machines)
    }

    /// The values of the chart that configure the program.
    pub fn values(&self) -> Vec<String> {
        vec![
            format!("providers.exec[0].name={PROGRAM}"),
            format!("providers.exec[0].path={}", self.program().display()),
        ]
    }

    fn program(&self) -> PathBuf {
        self.directory.path().join("program")
    }

    fn all(&self) -> PathBuf {
        self.directory.path().join("machines")
    }

    /// From now on the program is this shell script.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn answer(&self, script: &str) -> Result<()> {
        toolbox::executable::write(&self.program(), format!("#!/bin/sh\n{script}\n"))
    }

    /// From now on the program is the documented one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn tell_the_truth(&self) -> Result<()> {
        self.answer(&format!("DIRECTORY={} exec {DOCUMENTED}", self.all().display()))
    }

    /// From now on the program is the documented one after these lines of shell, which find the request in `$request`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn answer_after(&self, lines: &str) -> Result<()> {
        self.answer(&format!(
            "request=$(cat)\n{lines}\nprintf '%s\\n' \"$request\" | DIRECTORY={} {DOCUMENTED}",
            self.all().display()
        ))
    }

    /// From now on the program is the documented one, except that it does not answer once it has made or deleted its `nth`
    /// machine, counted from one and from the last call of [`Machines::unanswered`], nor any after that: it waits until the
    /// operator that runs it is dead. An operator runs several at once; they make and delete machines one after the other, and
    /// after the `nth` one no more.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn answer_changes_before(&self, nth: usize) -> Result<()> {
        let (all, changes) = (self.all(), self.changes());
        self.answer(&format!(
            r#"request=$(cat)
field() {{ printf '%s\n' "$request" | sed -n "s/^  \"$1\": \"\(.*\)\",*\$/\1/p"; }}
machine={all}/$(field namespace)/$(field pool)/$(field machine)
is_there() {{ [ -f "$machine" ] && echo yes; }}
operation=$(field operation)
case $operation in
create | delete)
    exec 9>{changes}.lock
    flock 9
    # Who had it before may have waited for the operator's end.
    kill -0 $PPID || exit 1
    ;;
esac
before=$(is_there)
answer=$(printf '%s\n' "$request" | DIRECTORY={all} {DOCUMENTED})
if [ "$before" != "$(is_there)" ]; then
    echo "$operation" >>{changes}
    if [ {nth} -eq 1 ] || [ "$(wc -l <{changes})" -ge {nth} ]; then
        looks=0
        while [ $looks -lt 400 ] && kill -0 $PPID; do sleep 0.05; looks=$((looks + 1)); done
        exit 1
    fi
fi
printf '%s\n' "$answer""#,
            all = all.display(),
            changes = changes.display(),
        ))
    }

    /// What the program has done since the last call, of which it does not answer the last one. Only what it does after
    /// [`Machines::answer_changes_before`] is in it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn unanswered(&self) -> Result<Vec<String>> {
        let path = self.changes();
        if !path.exists() {
            return Ok(Vec::new());
        }
        // Another one may add to it meanwhile.
        let taken = path.with_extension("taken");
        std::fs::rename(&path, &taken)?;
        Ok(std::fs::read_to_string(&taken)?.lines().map(String::from).collect())
    }

    /// Waits until the program has made or deleted this many machines since the last call of [`Machines::unanswered`].
    pub async fn changed(&self, times: usize) {
        while std::fs::read_to_string(self.changes()).map_or(0, |text| text.lines().count()) < times {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn changes(&self) -> PathBuf {
        self.directory.path().join("unanswered")
    }

    /// The names of the machines, of all pools, sorted.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn names(&self) -> Result<Vec<String>> {
        machines_in(&self.all(), |_| true)
    }

    /// When the machine of this name was made; `None` when it is not there. So it is told from an earlier one of its name.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn made(&self, namespace: &str, pool: &str, machine: &str) -> Result<Option<SystemTime>> {
        match std::fs::metadata(self.all().join(namespace).join(pool).join(machine)) {
            Ok(file) => Ok(Some(file.modified()?)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Adds a machine that nobody asked for now.
    ///
    /// # Errors
    /// When it cannot be added.
    pub fn add(&self, env: &TestEnv, pool: &str, machine: &str) -> Result<()> {
        self.record(env, pool, machine, "")
    }

    /// Adds a machine that registers no Node in this cluster, or records whose it is. It carries `cluster`; with `None` it
    /// carries none, as those that were made before machines carried any.
    ///
    /// # Errors
    /// When it cannot be added.
    pub fn add_elsewhere(
        &self,
        env: &TestEnv,
        pool: &str,
        machine: &str,
        cluster: Option<&str>,
    ) -> Result<()> {
        self.record(env, pool, machine, &format!("\n{}\n{ELSEWHERE}\n", cluster.unwrap_or_default()))
    }

    /// Takes away a machine.
    ///
    /// # Errors
    /// When it is not there.
    pub fn remove(&self, env: &TestEnv, pool: &str, machine: &str) -> Result<()> {
        Ok(std::fs::remove_file(self.all().join(env.namespace()).join(pool).join(machine))?)
    }

    fn record(&self, env: &TestEnv, pool: &str, machine: &str, text: &str) -> Result<()> {
        let pool = self.all().join(env.namespace()).join(pool);
        std::fs::create_dir_all(&pool)?;
        let path = pool.join(machine);
        std::fs::write(&path, text).with_context(|| format!("{}", path.display()))
    }

    /// Ends a machine behind the operator's back: its provider does not list it any more.
    ///
    /// # Errors
    /// When there is no such machine.
    pub fn power_off(&self, env: &TestEnv, pool: &str, machine: &str) -> Result<()> {
        let path = self.all().join(env.namespace()).join(pool).join(machine);
        std::fs::remove_file(&path).with_context(|| format!("{}", path.display()))
    }

    /// Whether machines without a Node register one.
    pub fn register(&self, may_register: bool) {
        self.may_register.store(may_register, Ordering::Relaxed);
    }

    /// Starts to play the kubelets: each machine has a Node, with a name of its own, and gets another one when that is
    /// gone.
    ///
    /// # Errors
    /// When the cluster has no kubeconfig.
    pub async fn start_kubelets(&mut self, cluster: &Cluster) -> Result<()> {
        let (config, all, may) = (cluster.client_config().await?, self.all(), Arc::clone(&self.may_register));
        self.kubelets = Some(tokio::spawn(async move {
            loop {
                if may.load(Ordering::Relaxed)
                    && let Err(error) = heartbeat(&config, &all).await
                {
                    // The API server may be busy, and the machine may have gone meanwhile.
                    eprintln!("kubelets: {error:#}");
                }
                tokio::time::sleep(HEARTBEAT).await;
            }
        }));
        Ok(())
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        if let Some(kubelets) = &self.kubelets {
            kubelets.abort();
        }
    }
}

/// The provider ID of a machine, as the program lists it.
pub fn provider_id(machine: &str) -> String {
    format!("directory://{machine}")
}

/// The name that the kubelet of a machine gives its Node. It is not the name of the machine: on real hosts it seldom is.
pub fn host_name(machine: &str) -> String {
    format!("host-of-{machine}")
}

/// Whether a machine with this file registers its Node here. One that has just gone does not.
fn is_here(path: &Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.lines().nth(2) != Some(ELSEWHERE))
}

fn machines_in(all: &Path, is_meant: impl Fn(&Path) -> bool) -> Result<Vec<String>> {
    let below = |path: &Path| -> Result<Vec<PathBuf>> {
        if !path.exists() {
            return Ok(Vec::new());
        }
        std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect()
    };
    let mut names = Vec::new();
    for namespace in below(all)? {
        for pool in below(&namespace)? {
            let machines = below(&pool)?;
            let machines = machines.iter().filter(|path| is_meant(path));
            names.extend(machines.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())));
        }
    }
    names.sort();
    Ok(names)
}

async fn heartbeat(config: &kube::Config, all: &Path) -> Result<()> {
    let nodes: Api<Node> = Api::all(Client::try_from(config.clone())?);
    let existing = nodes.list_metadata(&ListParams::default()).await?.items;
    // In this order: a machine that is there after its Node was missing may register it. In the other one, it may have
    // gone meanwhile, and a kubelet ends with its machine.
    let machines = machines_in(all, is_here)?;
    let exists = |name: &str| existing.iter().any(|node| node.metadata.name.as_deref() == Some(name));
    for machine in machines.iter().filter(|machine| !exists(&host_name(machine))) {
        let name = host_name(machine);
        let mut config = config.clone();
        config.auth_info.impersonate = Some(format!("system:node:{name}"));
        config.auth_info.impersonate_groups = Some(vec!["system:nodes".to_owned()]);
        let node: Node = serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "spec": {"providerID": provider_id(machine)},
        }))?;
        Api::all(Client::try_from(config)?).create(&PostParams::default(), &node).await?;
    }
    Ok(())
}
