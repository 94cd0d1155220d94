//! Runs `cargo xtask dev up`, `status` and `down`, with a directory of their own: a user may keep a control plane in the usual
//! one. It is ended however the scenario ends.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use testbed::cluster::{Cluster, Detached};
use testbed::wait::eventually;
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use crate::context::{PATIENCE, ScenarioContext};

/// Time limit until a control plane is ready, on a busy machine.
pub(super) const READY_WITHIN: Duration = Duration::from_secs(120);
/// Time limit of one command: longer than the check allows, so that a slow one is measured.
const LIMIT: Duration = Duration::from_secs(180);

/// The control plane of `dev up`.
struct DevCluster {
    /// The program that `cargo xtask dev` builds and runs.
    program: PathBuf,
    directory: PathBuf,
}

impl DevCluster {
    /// Runs `cargo xtask dev` with this command, and returns what it prints.
    async fn run(&self, command: &str) -> Result<String> {
        let running = Command::new(&self.program)
            .args(["dev", command, "--directory"])
            .arg(&self.directory)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = timeout(LIMIT, running).await;
        let output = output.with_context(|| format!("dev {command} did not end within {LIMIT:?}"))??;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "dev {command} failed: {}", said.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for DevCluster {
    /// When the scenario fails or is interrupted, nothing else would end it.
    fn drop(&mut self) {
        Cluster::stop_detached(&self.directory).ok();
    }
}

/// Starts one, which has these `programs`, and ends it.
pub(super) async fn show(ctx: &ScenarioContext, programs: &[String]) -> Result<()> {
    ctx.say("`cargo xtask dev up` starts a control plane and installs Tandem's chart. It needs no container runtime and no image: the programs are built once, from a pinned Go module. The command ends, and the control plane goes on. This scenario runs the program behind `cargo xtask`, with `--directory`, so that it leaves alone a control plane that you may have.");
    let program = testbed::programs::cluster_tasks().await?;
    let dev = DevCluster { program, directory: ctx.cluster.root().join("dev") };
    let running = up(ctx, &dev).await?;
    works(ctx, &dev, &running, programs).await?;
    down(ctx, &dev, &running).await
}

async fn up(ctx: &ScenarioContext, dev: &DevCluster) -> Result<Detached> {
    let began = Instant::now();
    let printed = dev.run("up").await?;
    let took = began.elapsed();
    let running =
        Cluster::detached(&dev.directory)?.context("dev up has ended, and no control plane runs")?;
    ctx.act("cargo", "xtask dev up");
    ctx.quote(&printed.replace(text(&dev.directory)?, "DIRECTORY").replace(text(&running.root)?, "ROOT"));
    ctx.live_quote(&format!("it took {:.1} s", took.as_secs_f64()));
    ctx.check("all of that took less than two minutes; the terminal shows how long", took < READY_WITHIN);
    Ok(running)
}

async fn works(
    ctx: &ScenarioContext,
    dev: &DevCluster,
    running: &Detached,
    programs: &[String],
) -> Result<()> {
    ctx.say("The command has ended. What does it leave running?");
    let mut found: Vec<String> = running.pids.iter().map(|(name, _)| name.clone()).collect();
    found.sort();
    ctx.check_eq(
        "etcd, the API server, the controllers, the scheduler and kwok",
        &found.as_slice(),
        &programs,
    );
    ctx.check("each of these processes exists", running.pids.iter().all(|(_, pid)| exists(*pid)));
    let status = dev.run("status").await?;
    ctx.check(
        "`cargo xtask dev status` names its kubeconfig and each of the programs",
        status.contains(text(&running.kubeconfig)?) && programs.iter().all(|name| status.contains(name)),
    );
    let cluster = Cluster::attach(&dev.directory)?;
    let ready = cluster.kubectl(&["get", "--raw", "/readyz"]).await?;
    ctx.check_eq("with that kubeconfig, kubectl gets the answer that it is ready", &ready.as_str(), &"ok");
    let definitions = cluster.kubectl(&["get", "customresourcedefinitions", "--output=name"]).await?;
    let has = |name: &str| definitions.lines().any(|line| line.ends_with(&format!("/{name}.tandem.dev")));
    ctx.check("the chart's resources are served", has("nodepools") && has("nodepoolautoscalers"));
    Ok(())
}

async fn down(ctx: &ScenarioContext, dev: &DevCluster, running: &Detached) -> Result<()> {
    let printed = dev.run("down").await?;
    ctx.act("cargo", "xtask dev down");
    ctx.quote(&printed);
    let is_gone = eventually(PATIENCE, "the control plane of dev up is gone", || async {
        let left: Vec<_> = running.pids.iter().filter(|(_, pid)| exists(*pid)).collect();
        if left.is_empty() && !running.root.exists() { Ok(Some(())) } else { bail!("{left:?} are left") }
    });
    ctx.check("no process and no file of it is left", is_gone.await.is_ok());
    Ok(())
}

/// Whether there is such a process.
fn exists(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("the path is not text")
}
