//! The examples of `conflict-retry`, as programs, on a real API server.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use testbed::cluster::TestNamespace;
use testbed::control_plane::ports::free_port;
use testbed::{objects, programs, tandem};
use tokio::process::Command;

/// How long an example may take.
const PATIENCE: Duration = Duration::from_secs(180);

/// A place to run examples in: a namespace, and a kubeconfig with it as the default.
struct Place {
    namespace: TestNamespace,
    kubeconfig: PathBuf,
    programs: PathBuf,
    _directory: tempfile::TempDir,
}

impl Place {
    async fn new(prefix: &str) -> Self {
        let programs = programs::examples().await.unwrap();
        let cluster = tandem::definitions_only().await.unwrap();
        let namespace = cluster.namespace(prefix).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let text = std::fs::read_to_string(cluster.kubeconfig_path()).unwrap();
        let mut config: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        config["contexts"][0]["context"]["namespace"] = json!(namespace.name());
        let kubeconfig = directory.path().join("kubeconfig");
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        Self { namespace, kubeconfig, programs, _directory: directory }
    }

    fn api<K>(&self, client: kube::Client) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(client, self.namespace.name())
    }

    async fn run(&self, name: &str, args: &[&str]) -> Output {
        let mut command = Command::new(self.programs.join(name));
        command.args(args).env("KUBECONFIG", &self.kubeconfig).kill_on_drop(true);
        tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap()
    }

    /// What it prints; it must succeed.
    async fn prints(&self, name: &str, args: &[&str]) -> String {
        let output = self.run(name, args).await;
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

async fn client() -> kube::Client {
    tandem::definitions_only().await.unwrap().client().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_writers_lose_nothing() {
    let place = Place::new("two-writers").await;
    let printed = place.prints("two_writers", &[]).await;
    assert!(printed.contains("100 writes, ") && printed.contains("nothing lost"), "{printed}");
    let conflicts: u32 = printed.split(' ').nth(4).unwrap().parse().unwrap();
    assert!(conflicts > 0, "they never met: {printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_keeps_what_others_report() {
    let place = Place::new("status").await;
    let deployments: Api<Deployment> = place.api(client().await);
    let missing = place.run("status", &["web"]).await;
    assert!(!missing.status.success());
    let text = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(text.contains("Gone"), "{text}");
    deployments.create(&PostParams::default(), &objects::deployment("web", "none", 1, "1")).await.unwrap();
    assert!(place.prints("status", &["web"]).await.contains("the count is Some(1)"));
    assert!(place.prints("status", &["web"]).await.contains("the count is Some(1)"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_holds_an_object_until_it_is_cleaned_up() {
    let place = Place::new("finalizer").await;
    let printed = place.prints("finalizer", &["rented"]).await;
    assert_eq!(printed, "rented is held\ncleaning up after rented\nrented is let go: true\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_without_a_watch_respects_what_a_user_changed() {
    let place = Place::new("no-watch").await;
    assert_eq!(place.prints("no_watch", &[]).await, "web has Some(2) replicas\n");
    let client = client().await;
    let (deployments, maps): (Api<Deployment>, Api<ConfigMap>) =
        (place.api(client.clone()), place.api(client));
    let (params, more) = (PatchParams::default(), json!({"spec": {"replicas": 5}}));
    deployments.patch("web", &params, &Patch::Merge(more)).await.unwrap();
    assert_eq!(place.prints("no_watch", &[]).await, "web has Some(5) replicas\n");
    maps.patch("settings", &params, &Patch::Merge(json!({"data": {"replicas": "many"}}))).await.unwrap();
    let refused = place.run("no_watch", &[]).await;
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("Replicas(ParseIntError"), "{text}");
    assert_eq!(deployments.get("web").await.unwrap().spec.unwrap().replicas, Some(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_paints_what_it_is_to_paint() {
    let place = Place::new("painter").await;
    let maps: Api<ConfigMap> = place.api(client().await);
    for name in ["a", "b"] {
        let map =
            json!({"metadata": {"name": name, "labels": {"paint": "wanted"}}, "data": {"colour": "red"}});
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    }
    let printed = place.prints("controller", &["--once"]).await;
    assert!(printed.contains("painted a") && printed.contains("painted b"), "{printed}");
    for name in ["a", "b"] {
        assert_eq!(maps.get(name).await.unwrap().data.unwrap()["colour"], "blue");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_common_jobs_leave_the_same_with_kube_alone() {
    let place = Place::new("jobs").await;
    let wanted = "(Some(\"dark\"), Some(\"blue\"), Some(3), Some(1), true, true)\n";
    for _ in 0..2 {
        assert_eq!(place.prints("jobs", &[]).await, wanted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_api_server_a_program_ends_with_what_is_wrong() {
    let place = Place::new("dead").await;
    // Nothing listens there: the port was free a moment ago.
    let port = free_port().unwrap();
    let text = std::fs::read_to_string(&place.kubeconfig).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["clusters"][0]["cluster"]["server"] = json!(format!("https://127.0.0.1:{port}"));
    std::fs::write(&place.kubeconfig, config.to_string()).unwrap();
    let output = place.run("no_watch", &[]).await;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("Exhausted") && text.contains("Connection refused"), "{text}");
}
