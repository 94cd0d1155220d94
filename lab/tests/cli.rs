//! The command's answers to bad input, and that it leaves nothing on a user's cluster.

#![expect(clippy::unwrap_used, reason = "tests, and what only they call")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use testbed::cluster::{Cluster, ClusterOptions};
use testbed::wait::eventually;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// Time limit of any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn lab(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn run(args: &[&str]) -> Output {
    let mut command = lab(args);
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A cluster in the role of a user's, and a lock on it, because each test checks what is left on it.
async fn users_cluster() -> (&'static Cluster, MutexGuard<'static, ()>) {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    static LOCK: Mutex<()> = Mutex::const_new(());
    testbed::process_supervisor::served_by(Path::new(env!("CARGO_BIN_EXE_lab")));
    let options = ClusterOptions { scheduler: false, kwok: false, ..ClusterOptions::private() };
    let cluster = CLUSTER.get_or_try_init(|| Cluster::start(options)).await.unwrap();
    (cluster, testbed::waiting::for_others(LOCK.lock()).await)
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

async fn nothing_is_left(cluster: &Cluster) -> Result<()> {
    let client = cluster.client().await?;
    eventually(PATIENCE, "nothing of the lab is left", async || {
        let all = ListParams::default();
        let definitions = Api::<CustomResourceDefinition>::all(client.clone()).list_metadata(&all).await?;
        let namespaces = Api::<Namespace>::all(client.clone()).list_metadata(&all).await?;
        let definitions = definitions.items.into_iter().map(|definition| definition.metadata);
        let namespaces = namespaces.items.into_iter().map(|namespace| namespace.metadata);
        let left: Vec<_> = definitions
            .chain(namespaces)
            .filter_map(|metadata| metadata.name)
            .filter(|name| name.contains("lab.tandem.dev") || name.starts_with("tandem-lab"))
            .collect();
        if left.is_empty() { Ok(Some(())) } else { bail!("{left:?} are left") }
    })
    .await
}

#[tokio::test]
async fn an_unknown_scenario_is_answered_with_the_nearest_one() {
    let output = run(&["generatoin"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("did you mean generation?"), "{}", stderr(&output));
}

#[tokio::test]
async fn the_list_and_the_index_need_no_cluster() {
    let listed = run(&[]).await;
    assert!(listed.status.success() && String::from_utf8_lossy(&listed.stdout).contains("generation"));
    let index = run(&["--index", "--json"]).await;
    let index: Value = serde_json::from_slice(&index.stdout).unwrap();
    assert!(index["2a"].as_array().unwrap().contains(&json!("generation")), "{index}");
    for (word, option) in [("list", [].as_slice()), ("index", ["--index"].as_slice())] {
        let (by_word, by_option) = (run(&[word]).await, run(option).await);
        assert!(by_word.status.success() && by_word.stdout == by_option.stdout, "{word}: {by_word:?}");
    }
}

#[tokio::test]
async fn a_cluster_that_cannot_be_reached_is_named() {
    let missing = run(&["conflict", "--kubeconfig", "nowhere/kubeconfig"]).await;
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        stderr(&missing).contains("cannot read the kubeconfig nowhere/kubeconfig"),
        "{}",
        stderr(&missing)
    );
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    // Port 1 of the loopback address, on which no server listens.
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    });
    std::fs::write(&file, text.to_string()).unwrap();
    let silent = run(&["conflict", "--kubeconfig", path(&file)]).await;
    assert_eq!(silent.status.code(), Some(2));
    assert!(stderr(&silent).contains("does not answer"), "{}", stderr(&silent));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_users_cluster_is_left_as_it_was() {
    let (cluster, _lock) = users_cluster().await;
    let output =
        run(&["conflict", "generation", "no-op", "--kubeconfig", path(cluster.kubeconfig_path())]).await;
    assert!(output.status.success(), "{}", stderr(&output));
    nothing_is_left(cluster).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_scenario_leaves_nothing() {
    let (cluster, _lock) = users_cluster().await;
    let child = lab(&["generation", "--kubeconfig", path(cluster.kubeconfig_path())]).spawn().unwrap();
    let namespaces = Api::<Namespace>::all(cluster.client().await.unwrap());
    eventually(PATIENCE, "the scenario has begun", async || {
        Ok(namespaces.get_opt("tandem-lab-generation").await?)
    })
    .await
    .unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGINT).unwrap();
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("error: interrupted; what had been made is taken away"), "{said}");
    nothing_is_left(cluster).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "the setup of a test")]
async fn a_namespace_that_exists_is_left_alone() {
    let (cluster, _lock) = users_cluster().await;
    let namespaces = Api::<Namespace>::all(cluster.client().await.unwrap());
    let theirs: Namespace = serde_json::from_value(json!({"metadata": {"name": "taken-conflict"}})).unwrap();
    namespaces.create(&PostParams::default(), &theirs).await.unwrap();
    let kubeconfig = path(cluster.kubeconfig_path());
    let output = run(&["conflict", "--kubeconfig", kubeconfig, "--namespace", "taken"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("the namespace taken-conflict exists already"), "{}", stderr(&output));
    let kept = namespaces.get("taken-conflict").await.unwrap();
    assert!(kept.metadata.deletion_timestamp.is_none(), "the user's namespace is being deleted");
    nothing_is_left(cluster).await.unwrap();
    let _ = namespaces.delete("taken-conflict", &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "the setup of a test")]
async fn rights_that_are_missing_are_named_and_nothing_is_done() {
    let (cluster, _lock) = users_cluster().await;
    let accounts = Api::<ServiceAccount>::namespaced(cluster.client().await.unwrap(), "default");
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "reader"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let kubeconfig = cluster.kubeconfig_for_service_account("default", "reader").await.unwrap();
    let output = run(&["conflict", "--kubeconfig", path(&kubeconfig)]).await;
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    let check = || -> Result<()> {
        ensure!(
            said.contains("this kubeconfig may not: get namespaces, list namespaces, create namespaces"),
            "{said}"
        );
        ensure!(said.contains("create customresourcedefinitions.apiextensions.k8s.io"), "{said}");
        Ok(())
    };
    check().unwrap();
    nothing_is_left(cluster).await.unwrap();
}

#[tokio::test]
async fn impossible_requests_are_refused_before_anything_is_started() {
    let nowhere = ["conflict", "--report", "/nonexistent/page.html"];
    let foreign = ["etcd-revision", "--kubeconfig", "nowhere"];
    let pages = ["conflict", "--kubeconfig", "nowhere", "--write-pages"];
    for (args, said) in [
        (nowhere.as_slice(), "cannot write /nonexistent/page.html"),
        (&foreign, "etcd-revision needs the embedded control plane"),
        (&pages, "pages are written from the embedded control plane"),
        (&["conflict", "--namespace", "Foo_Bar"], "cannot begin the name of a namespace"),
        (&["conflict", "--namespace", &"x".repeat(60)], "is too long"),
        (&["--report", "page.html"], "name a scenario, or say --all"),
        (&["--bill", "bill.svg"], "name a scenario, or say --all"),
        (&["conflict", "--bill", "bill.svg"], "are for the scenario strategies"),
        (&["strategies", "--markdown", "/nonexistent/page.md"], "cannot read /nonexistent/page.md"),
        (&["strategies", "--markdown", "Cargo.toml"], "Cargo.toml has no marks"),
        (
            &["strategies", "--bill", "bill.svg", "--markdown", "../docs/benchmarks/strategies.md"],
            "have to be in one directory",
        ),
        (&["nonsense"], "there is no scenario called \"nonsense\" ("),
        (&["CONFLICT"], "did you mean conflict?"),
    ] {
        let output = run(args).await;
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(said), "{args:?}: {}", stderr(&output));
    }
}

#[tokio::test]
async fn a_timeline_is_made_of_a_log_and_says_what_is_on_it() {
    let directory = tempfile::tempdir().unwrap();
    let (log, page) = (directory.path().join("audit.log"), directory.path().join("page.html"));
    let event = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "stage": "ResponseComplete", "verb": "update",
        "user": {"username": "alice"}, "objectRef": {"resource": "pools", "namespace": "a", "name": "x"},
        "responseStatus": {"code": 200}, "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
        "stageTimestamp": "2026-01-01T00:00:00.004000Z",
    });
    std::fs::write(&log, format!("{event}\nnot an event\n")).unwrap();
    let output = run(&["timeline", path(&log), "--object", "pools", "--out", path(&page)]).await;
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).starts_with("warning: 1 line of "), "{}", stderr(&output));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.ends_with("page.html: 1 request by 1 writer about 1 object, none of them answered 409\n"),
        "{said}"
    );
    assert!(std::fs::read_to_string(&page).unwrap().contains("pools/x"));
}

#[tokio::test]
async fn a_page_does_not_take_the_place_of_its_log() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit.log");
    std::fs::write(&log, "{}").unwrap();
    let output = run(&["timeline", path(&log), "--object", "pools", "--out", path(&log)]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("would take the place of the log"), "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "{}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scenario_that_is_named_twice_is_played_once() {
    let (cluster, _lock) = users_cluster().await;
    let kubeconfig = path(cluster.kubeconfig_path());
    let output = run(&["conflict", "conflict", "--kubeconfig", kubeconfig, "--json"]).await;
    let played: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(played.as_array().map(Vec::len), Some(1), "{}", stderr(&output));
    nothing_is_left(cluster).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "the setup of a test")]
async fn definitions_of_another_lab_are_left_alone() {
    let (cluster, _lock) = users_cluster().await;
    let definitions = Api::<CustomResourceDefinition>::all(cluster.client().await.unwrap());
    let theirs = lab::pool::definitions().unwrap().remove(0);
    let name = theirs.metadata.name.clone().unwrap();
    definitions.create(&PostParams::default(), &theirs).await.unwrap();
    let output = run(&["conflict", "--kubeconfig", path(cluster.kubeconfig_path())]).await;
    assert_eq!(output.status.code(), Some(2));
    let said = format!("the definition {name} exists already");
    assert!(stderr(&output).contains(&said), "{}", stderr(&output));
    let kept = definitions.get(&name).await.unwrap();
    assert!(kept.metadata.deletion_timestamp.is_none(), "the other lab's definition is being deleted");
    let _ = definitions.delete(&name, &DeleteParams::default()).await.unwrap();
    nothing_is_left(cluster).await.unwrap();
}
