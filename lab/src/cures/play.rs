//! Runs a program of a cure against a real API server, beside the rival.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use testbed::cluster::Cluster;
use testbed::control_plane::go_program::GoProgram;
use testbed::wait::eventually;
use tokio::process::Command;
use tokio::time::timeout;
use toolbox::tools::Tool;

use super::judge::End;
use super::rival::RivalProxy;
use super::task::{LOOP, Task, rival_write, set_up};
use super::{Form, Language, regions, rust};

/// The Go programs, one binary for all.
const GO: GoProgram = GoProgram {
    module: "../lab/cures/go",
    package: "tandem.dev/lab/cures",
    takes: "a minute on two cores",
    cgo: false,
};
/// Time limit of a program: far longer than any takes.
const LIMIT: Duration = Duration::from_secs(120);
/// How long a controller that has done its part is watched for further writes.
const QUIET: Duration = Duration::from_secs(3);
/// A version that no API server remembers.
const FORGOTTEN: &str = "1";

/// Whether there is such a program.
pub fn exists(task: &Task, language: Language, form: Form) -> bool {
    regions::code(task.id, language, form).is_some()
}

/// Runs it in `namespace`, which exists and is empty.
///
/// # Errors
/// When it could not be run; its own failure is in the result.
pub async fn play(
    cluster: &Cluster,
    namespace: &str,
    task: &Task,
    language: Language,
    form: Form,
) -> Result<End> {
    let client = cluster.client().await?;
    set_up(task.id, &client, namespace).await?;
    let object = format!("/namespaces/{namespace}{}", task.object);
    let proxy =
        RivalProxy::start(cluster, object, task.moment, rival_write(task.id, &client, namespace)).await?;
    let directory = tempfile::tempdir().context("no temporary directory")?;
    let kubeconfig = directory.path().join("kubeconfig");
    proxy.write_kubeconfig(&kubeconfig, namespace)?;
    let running = run(cluster, &kubeconfig, namespace, task, language, form);
    let mut end = if task.is_controller() {
        tokio::select! {
            ended = running => ended?,
            seen = has_shown(&proxy, &client, namespace, task, form) => seen.map(|()| End::default())?,
        }
    } else {
        running.await?
    };
    end.traffic = proxy.traffic().await;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    end.settings = maps.get_opt("settings").await?;
    end.fresh = maps.get_opt("fresh").await?;
    end.quiet = maps.get_opt("quiet").await?;
    end.web = Api::<Deployment>::namespaced(client, namespace).get_opt("web").await?;
    Ok(end)
}

/// Runs the program to its end.
async fn run(
    cluster: &Cluster,
    kubeconfig: &Path,
    namespace: &str,
    task: &Task,
    language: Language,
    form: Form,
) -> Result<End> {
    if language == Language::Rust {
        return rust_end(kubeconfig, namespace, task, form).await;
    }
    let directory = kubeconfig.parent().context("a file is in a directory")?;
    let mut command = command(cluster, task, language, form).await?;
    command
        .current_dir(directory)
        .env("HOME", directory)
        .env("TMPDIR", directory)
        .env("KUBECONFIG", kubeconfig)
        .env("NAMESPACE", namespace)
        .env("FROM", FORGOTTEN);
    command_end(command).await
}

/// Waits until a controller, which does not end by itself, has shown what it does: that it loops, or that it has done its
/// part and stays quiet.
async fn has_shown(
    proxy: &RivalProxy,
    client: &Client,
    namespace: &str,
    task: &Task,
    form: Form,
) -> Result<()> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    eventually(LIMIT, "the controller has done its part", async || {
        let traffic = proxy.traffic().await;
        let is_blue = || async {
            let map = maps.get("settings").await?;
            anyhow::Ok(map.data.is_some_and(|data| data.get("colour").is_some_and(|colour| colour == "blue")))
        };
        let is_done = match (task.id, form) {
            ("one-write", Form::Naive) => traffic.written > LOOP,
            ("requeue", Form::Naive) => traffic.conflicts > 0,
            _ => is_blue().await?,
        };
        Ok(is_done.then_some(()))
    })
    .await?;
    tokio::time::sleep(QUIET).await;
    Ok(())
}

async fn rust_end(kubeconfig: &Path, namespace: &str, task: &Task, form: Form) -> Result<End> {
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &options).await?;
    config.default_retry = false;
    let client = Client::try_from(config)?;
    let ended = timeout(LIMIT, rust::run(task.id, form, client, namespace, FORGOTTEN)).await;
    Ok(match ended.with_context(|| format!("{} takes too long", task.id))? {
        Ok(printed) => End { is_success: true, printed, ..End::default() },
        Err(error) => End { error: format!("{error:#}"), ..End::default() },
    })
}

/// The command of a program that is not Rust.
async fn command(cluster: &Cluster, task: &Task, language: Language, form: Form) -> Result<Command> {
    if language == Language::Kubectl {
        let kubectl = cluster.command(Tool::Kubectl).await?;
        let kubectl = kubectl.as_std();
        let arguments = kubectl.get_args().map(|argument| argument.to_string_lossy().into_owned());
        // A reader's `kubectl` is a function here, because the one of the tests may need arguments of its own.
        let words: Vec<String> =
            [kubectl.get_program().to_string_lossy().into_owned()].into_iter().chain(arguments).collect();
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let script = regions::file(task.id, language, form);
        let program = format!("kubectl() {{ {} \"$@\"; }}\n. '{}'\n", quoted.join(" "), script.display());
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(program);
        return Ok(shell);
    }
    let binary: PathBuf = GO.find().await?;
    let mut command = Command::new(binary);
    command.args([language.name(), task.id, form.name()]);
    Ok(command)
}

async fn command_end(mut command: Command) -> Result<End> {
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn();
    let child = child.context("cannot run the program")?;
    let Ok(output) = timeout(LIMIT, child.wait_with_output()).await else {
        bail!("the program takes too long")
    };
    let output = output?;
    Ok(End {
        is_success: output.status.success(),
        printed: String::from_utf8_lossy(&output.stdout).into_owned(),
        error: String::from_utf8_lossy(&output.stderr).into_owned(),
        ..End::default()
    })
}
