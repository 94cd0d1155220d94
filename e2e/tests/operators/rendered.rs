//! What the chart renders, and what it shows as examples, before the API server's strict validation.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::path::Path;

use serde::Deserialize;
use testbed::cluster::Cluster;
use testbed::prometheus_operator;
use testbed::tandem::{Release, chart};
use testbed::test_env::{PATIENCE, RELEASE_NAMESPACE};
use testbed::wait::eventually;
use tokio::process::Command;
use toolbox::programs::{Features, build_binaries};

use super::install::PLACES;

/// The part of Chart.yaml that Artifact Hub reads.
#[derive(Deserialize)]
struct Chart {
    annotations: Annotations,
}

#[derive(Deserialize)]
struct Annotations {
    #[serde(rename = "artifacthub.io/crds")]
    definitions: String,
    #[serde(rename = "artifacthub.io/crdsExamples")]
    examples: String,
}

#[derive(Deserialize)]
struct Definition {
    name: String,
    kind: String,
    version: String,
}

/// Has the API server check manifests without storing them, with an error for each field that it does not know.
async fn is_strictly_valid(cluster: &Cluster, file: &Path) -> anyhow::Result<String> {
    let strict = ["apply", "--dry-run=server", "--validate=strict", "-f"];
    cluster.kubectl(&[&strict[..], &[file.to_str().unwrap()]].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_chart_renders_passes_strict_validation() {
    let cluster = &PLACES.take().await.unwrap();
    // The definitions stay.
    let release = Release::install(cluster, RELEASE_NAMESPACE, &[]).await.unwrap();
    release.uninstall(cluster).await.unwrap();
    let team = cluster.kubectl(&["get", "namespace", "team-a", "--ignore-not-found"]).await.unwrap();
    if team.is_empty() {
        cluster.kubectl(&["create", "namespace", "team-a"]).await.unwrap();
    }
    // `helm test` makes it before its Pod.
    let account =
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: tandem-test, namespace: tandem-system}";
    cluster.kubectl_with_input(&["apply", "-f", "-"], account).await.unwrap();
    let definitions = prometheus_operator::definitions().await.unwrap();
    for plural in ["servicemonitors", "podmonitors"] {
        let file = definitions.join(format!("monitoring.coreos.com_{plural}.yaml"));
        // An annotation cannot hold a definition of that size.
        cluster.kubectl(&["apply", "--server-side", "-f", file.to_str().unwrap()]).await.unwrap();
        let name = format!("crd/{plural}.monitoring.coreos.com");
        cluster.kubectl(&["wait", "--for=condition=Established", &name, "--timeout=180s"]).await.unwrap();
    }
    // Discovery, from which kubectl knows them, includes them a little later.
    let monitors = ["get", "servicemonitors,podmonitors", "--all-namespaces"];
    eventually(PATIENCE, "the monitors are served", async || Ok(Some(cluster.kubectl(&monitors).await?)))
        .await
        .unwrap();
    let mut goldens = 0;
    for entry in std::fs::read_dir(chart().join("../golden")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        if !path.to_str().unwrap().ends_with(".golden.yaml") {
            continue;
        }
        goldens += 1;
        is_strictly_valid(cluster, &path).await.unwrap();
        // The control: a misspelt field in the same file is refused by its name.
        let misspelt = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
        std::fs::write(misspelt.path(), text.replacen("readOnlyRootFilesystem", "readOnlyRotFilesystem", 1))
            .unwrap();
        let refusal = is_strictly_valid(cluster, misspelt.path()).await.unwrap_err();
        assert!(format!("{refusal:#}").contains("readOnlyRotFilesystem"), "{refusal:#}");
    }
    assert_eq!(goldens, 3);
    cluster.mark_reusable();
}

/// Of the whole release, what needs no build.
#[tokio::test(flavor = "multi_thread")]
async fn the_manifest_of_a_release_passes_strict_validation() {
    let cluster = &PLACES.take().await.unwrap();
    // The definitions and the namespace stay.
    let release = Release::install(cluster, RELEASE_NAMESPACE, &[]).await.unwrap();
    release.uninstall(cluster).await.unwrap();
    // As `cargo xtask` builds it.
    let built = build_binaries("the task runner", &["xtask"], Features::Own).await;
    let xtask = built.unwrap().join("xtask");
    let directory = tempfile::tempdir().unwrap();
    let made = directory.path().join("dist");
    let mut command = Command::new(xtask);
    command.args(["release", "--manifest-only", "--allow-dirty", "--directory"]).arg(&made);
    let output = command.kill_on_drop(true).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let manifest = made.join("install.yaml");
    let said = is_strictly_valid(cluster, &manifest).await.unwrap();
    for name in [
        "namespace/tandem-system",
        "customresourcedefinition.apiextensions.k8s.io/nodepools.tandem.dev",
        "deployment.apps/tandem-nodepool-operator",
        "deployment.apps/tandem-autoscaler-operator",
    ] {
        assert!(said.lines().any(|line| line.starts_with(&format!("{name} "))), "no {name}: {said}");
    }
    // What Helm runs at its own moments is no part of it.
    assert!(!std::fs::read_to_string(manifest).unwrap().contains("helm.sh/hook"));
    cluster.mark_reusable();
}

/// What `docs/guides/quickstart.yaml` has a user apply, in the cluster of the quickstart.
#[tokio::test(flavor = "multi_thread")]
async fn the_manifest_of_the_quickstart_passes_strict_validation() {
    let cluster = &PLACES.take().await.unwrap();
    let release = Release::install(cluster, RELEASE_NAMESPACE, &[]).await.unwrap();
    is_strictly_valid(cluster, &chart().join("../../docs/guides/quickstart.yaml")).await.unwrap();
    release.uninstall(cluster).await.unwrap();
    cluster.mark_reusable();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_artifact_hub_shows_is_what_the_chart_installs() {
    let cluster = &PLACES.take().await.unwrap();
    let _release = Release::install(cluster, RELEASE_NAMESPACE, &[]).await.unwrap();
    let text = std::fs::read_to_string(chart().join("Chart.yaml")).unwrap();
    let Annotations { definitions, examples } = serde_saphyr::from_str::<Chart>(&text).unwrap().annotations;
    let definitions: Vec<Definition> = serde_saphyr::from_str(&definitions).unwrap();
    for Definition { name, kind, version } in &definitions {
        let served = cluster
            .kubectl(&["get", "crd", name, "-o", "jsonpath={.spec.names.kind} {.spec.versions[*].name}"])
            .await
            .unwrap();
        assert_eq!(served, format!("{kind} {version}"));
    }
    let installed =
        cluster.kubectl(&["get", "crd", "-o", "name", "-l", "app.kubernetes.io/name=tandem"]).await.unwrap();
    assert_eq!(installed.lines().count(), definitions.len(), "{installed}");
    let examples: Vec<serde_json::Value> = serde_saphyr::from_str(&examples).unwrap();
    assert_eq!(examples.len(), definitions.len());
    for example in examples {
        let file = tempfile::NamedTempFile::with_suffix(".json").unwrap();
        std::fs::write(file.path(), example.to_string()).unwrap();
        is_strictly_valid(cluster, file.path()).await.unwrap();
    }
    cluster.mark_reusable();
}
