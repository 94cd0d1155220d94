//! Runs every program of the cures, naive and right, beside a rival on a real API server.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, WatchParams};
use lab::context::PATIENCE;
use lab::cures::judge::judge;
use lab::cures::task::{TASKS, Task};
use lab::cures::{Form, Language, play, regions};
use lab::forgetting::forget_versions_before;
use libtest_mimic::{Arguments, Trial};
use testbed::cluster::{Cluster, ClusterOptions};
use testbed::wait::eventually;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

/// Programs that run at the same time: most wait.
const AT_ONCE: usize = 4;

fn main() -> Result<ExitCode> {
    if testbed::process_supervisor::serve_if_asked()? {
        return Ok(ExitCode::SUCCESS);
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(AT_ONCE);
    let runtime = Arc::new(Runtime::new()?);
    let cluster: Arc<OnceCell<Cluster>> = Arc::default();
    let mut trials = vec![Trial::test("every_program_belongs_to_a_task", || {
        nothing_is_left_over().map_err(|error| format!("{error:#}").into())
    })];
    for task in &TASKS {
        for language in Language::ALL {
            for form in Form::ALL {
                if !play::exists(task, language, form) {
                    continue;
                }
                let (runtime, cluster) = (Arc::clone(&runtime), Arc::clone(&cluster));
                let name = format!("{}::{}::{}", task.id, language.name(), form.name());
                trials.push(Trial::test(name, move || {
                    let done = runtime.block_on(check(&cluster, task, language, form));
                    done.map_err(|error| format!("{error:#}").into())
                }));
            }
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if let Some(cluster) = Arc::into_inner(cluster).and_then(OnceCell::into_inner) {
        runtime.block_on(cluster.stop())?;
    }
    Ok(conclusion.exit_code())
}

async fn check(cluster: &OnceCell<Cluster>, task: &Task, language: Language, form: Form) -> Result<()> {
    let cluster = cluster.get_or_try_init(forgetful_cluster).await?;
    let namespace = format!("{}-{}-{}", task.id, language.name(), form.name());
    let _namespace = cluster.namespace_called(&namespace, &[]).await?;
    let end = play::play(cluster, &namespace, task, language, form).await?;
    judge(task.id, form, &end)
}

/// A cluster whose API server no longer knows the first versions, as one that has run for a while.
async fn forgetful_cluster() -> Result<Cluster> {
    let cluster = Cluster::start(ClusterOptions::api_only()).await?;
    let maps = Api::<ConfigMap>::all(cluster.client().await?);
    let newest = maps.list(&ListParams::default()).await?.metadata.resource_version.context("no version")?;
    forget_versions_before(&cluster, &newest).await?;
    let maps = Api::<ConfigMap>::all(cluster.client().await?);
    eventually(PATIENCE, "watches are taken again", async || {
        Ok(Some(maps.watch(&WatchParams::default().timeout(1), "0").await.map(drop)?))
    })
    .await?;
    Ok(cluster)
}

/// Both forms are there for each task in at least two languages, and no file is without a task.
fn nothing_is_left_over() -> Result<()> {
    let mut known = BTreeSet::new();
    for task in &TASKS {
        let mut languages = 0;
        for language in Language::ALL {
            let forms = Form::ALL.map(|form| play::exists(task, language, form));
            ensure!(forms[0] == forms[1], "{} has one form only in {}", task.id, language.name());
            languages += usize::from(forms[0]);
            known.extend(Form::ALL.map(|form| regions::file(task.id, language, form)));
        }
        ensure!(
            languages >= 2 || task.id == "exported-file",
            "{} has programs in {languages} languages",
            task.id
        );
    }
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for directory in ["cures/go", "cures/kubectl", "src/cures/rust"] {
        for entry in std::fs::read_dir(root.join(directory)).context("no programs")? {
            let path = entry?.path();
            let is_frame = ["main.go", "table.go", "jobs.go", ".gitignore", "go.mod", "go.sum", "mod.rs"]
                .iter()
                .any(|name| path.ends_with(name));
            ensure!(is_frame || known.contains(&path), "{} belongs to no task", path.display());
        }
    }
    Ok(())
}
