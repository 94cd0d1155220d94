//! The README's quickstart: its commands as they are printed, and kwok as a Pod, which its manifest brings.
//!
//! The first command makes the images, and the second one the cluster: both are made already when a test begins, by the same functions and
//! with more of kind's flags. kwok's image, which a user's kind pulls, is made here from the kwok of the other tests.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use images::WrittenImage;
use images::debian;
use images::layout::{Entry, Image};
use jiff::Timestamp;
use testbed::cluster::Cluster;
use testbed::kind::Kind;
use testbed::wait::{PATIENCE, eventually};
use tokio::task::spawn_blocking;
use toolbox::tools::{Tool, Toolbox};
use toolbox::workspace::target_directory;

use crate::place::workspace;
use crate::release::{json, make_namespace, uninstall, what_runs};
use crate::{Turn, begin};

const README: &str = include_str!("../../../README.md");
const MANIFEST: &str = include_str!("../../../docs/guides/quickstart.yaml");

/// The loader and the C library, with which the kwok of the tests is linked.
const LIBRARIES: [&str; 2] = if cfg!(target_arch = "aarch64") {
    ["lib/ld-linux-aarch64.so.1", "lib/aarch64-linux-gnu/libc.so.6"]
} else {
    ["lib64/ld-linux-x86-64.so.2", "lib/x86_64-linux-gnu/libc.so.6"]
};

/// What the README says below its heading, before the commands, in them, and after them.
fn quickstart() -> [&'static str; 3] {
    let section = README.split("\n## ").find(|section| section.starts_with("Quickstart on kind"));
    let parts: Vec<&str> = section.unwrap().split("```").collect();
    parts.try_into().unwrap()
}

/// A command with this beginning that is in the text after the commands.
fn mentioned(beginning: &str) -> Vec<&'static str> {
    let [_, _, after] = quickstart();
    let mut spans = after.split('`').skip(1).step_by(2);
    spans.find(|span| span.starts_with(beginning)).unwrap().split(' ').collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quickstart_of_the_readme_works_as_printed_with_kwok_as_a_pod() {
    let Some(turn) = begin().await else { return };
    let cluster = &turn.cluster;
    if turn.kind().is_none() {
        return;
    }
    let outcome = story(&turn).await;
    let mut seen = String::new();
    if outcome.is_err() {
        let log = ["logs", "deployment/kwok", "--namespace", "default", "--tail=20"];
        let log = cluster.kubectl(&log).await.unwrap_or_else(|error| format!("{error:#}"));
        seen = format!("{}\nkwok:\n{log}", what_runs(cluster).await);
    }
    // Its pool is in no namespace that a later test would remove. The other kwok plays again by now.
    let manifest = workspace().unwrap().join("docs/guides/quickstart.yaml");
    let delete = ["delete", "--ignore-not-found", "--timeout=180s", "--filename", manifest.to_str().unwrap()];
    let deleted = cluster.kubectl(&delete).await;
    if let Err(error) = outcome {
        panic!("{error:#}\n{seen}");
    }
    deleted.unwrap();
    uninstall(cluster).await;
}

async fn story(turn: &Turn) -> Result<()> {
    let cluster = &turn.cluster;
    let kind = turn.kind().context("there is no kind")?;
    let [_, block, _] = quickstart();
    let commands: Vec<Vec<&str>> = block
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .map(|line| line.split(' ').collect())
        .collect();
    let [image, create, load, install, apply] = &commands[..] else { panic!("{commands:?}") };
    assert_eq!(image.join(" "), "cargo xtask image");
    assert_eq!(create.join(" "), "kind create cluster --name tandem");

    kwok(turn).await?;
    // Cargo's target directory may be elsewhere.
    let target = target_directory();
    let here = |word: &&str| match word.strip_prefix("target/") {
        Some(below) => target.join(below).display().to_string(),
        None => (*word).to_owned(),
    };
    let load: Vec<String> = load.iter().map(here).collect();
    take_off(turn, kind, &load).await?;
    kind.run(&load.iter().skip(1).map(String::as_str).collect::<Vec<_>>()).await?;
    // What is there already, `--create-namespace` leaves as it is. This one is removed when the test fails.
    make_namespace(cluster).await;
    as_printed(cluster, Tool::Helm, install).await?;
    let _other = turn.place.kubelets().freeze().await?;
    as_printed(cluster, Tool::Kubectl, apply).await?;
    settled(cluster, 7, 3).await?;
    let listed = as_printed(cluster, Tool::Kubectl, &mentioned("kubectl get")).await?;
    let simulated = listed.lines().filter(|line| line.starts_with("node/workers-")).count();
    ensure!(simulated == 3, "{listed}");
    as_printed(cluster, Tool::Kubectl, &mentioned("kubectl scale")).await?;
    settled(cluster, 0, 0).await
}

/// Takes the images of these archives off the nodes: other tests have them there already, and a command that loads only one would do.
async fn take_off(turn: &Turn, kind: &Kind, archives: &[String]) -> Result<()> {
    let images = turn.place.images().iter();
    let images: Vec<&WrittenImage> =
        images.filter(|image| archives.iter().any(|archive| Path::new(archive) == image.archive)).collect();
    ensure!(images.len() == 2, "{archives:?} are not the images of both operators");
    let nodes = kind.run(&["get", "nodes", "--name", "tandem"]).await?;
    for node in nodes.split_whitespace() {
        for image in &images {
            kind.in_node(node, &["crictl", "rmi", &image.reference]).await?;
        }
    }
    Ok(())
}

/// Runs a command of the README in the root of the workspace, and returns its output.
async fn as_printed(cluster: &Cluster, tool: Tool, words: &[&str]) -> Result<String> {
    let (program, args) = words.split_first().context("an empty command")?;
    ensure!(*program == tool.name(), "{program} is not {}", tool.name());
    let output = cluster.command(tool).await?.args(args).current_dir(workspace()?).output().await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", words.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits until so many pods run on so many nodes of the pool.
async fn settled(cluster: &Cluster, pods: u64, nodes: usize) -> Result<()> {
    let what = format!("{pods} pods run on {nodes} nodes, with kwok as a Pod");
    let settled = eventually(PATIENCE, &what, || async {
        let web = json(cluster, &["get", "deployments/web", "--namespace", "default"]).await;
        let running = web["status"]["readyReplicas"].as_u64().unwrap_or(0);
        let found = json(cluster, &["get", "nodes", "--selector", "tandem.dev/nodepool=workers"]).await;
        let found = found["items"].as_array().map_or(0, Vec::len);
        let kwok = json(cluster, &["get", "pods", "--namespace", "default", "--selector", "app=kwok"]).await;
        let kwok = &kwok["items"][0]["status"];
        ensure!((running, found) == (pods, nodes), "{running} pods, {found} nodes, kwok: {kwok:#}");
        Ok(Some(()))
    });
    settled.await
}

/// Makes kwok's image under the name that the manifest has, and loads it into the nodes.
async fn kwok(turn: &Turn) -> Result<()> {
    let reference =
        MANIFEST.lines().find_map(|line| line.trim().strip_prefix("image: registry.k8s.io/kwok/"));
    let reference = format!("registry.k8s.io/kwok/{}", reference.context("the manifest has no kwok")?);
    // Whatever KUBEBUILDER_ASSETS holds: envtest has no kwok.
    let toolbox = Toolbox { assets: None, ..Toolbox::from_environment() };
    let program = toolbox.find(&[Tool::Kwok]).await?.pop().context("the toolbox is empty")?.path;
    let directory = tempfile::tempdir()?;
    let layout = directory.path().join("kwok");
    let written = spawn_blocking(move || image(&program)?.write(&reference, &layout)).await??;
    turn.kind().context("there is no kind")?.load(&written.archive).await
}

/// As the published one, which has Alpine around the program: it runs as root.
fn image(program: &Path) -> Result<Image> {
    let libraries = debian::take(&target_directory().join("image-packages"), &["libc6"], &LIBRARIES)?;
    let mut entries = libraries.entries;
    entries.push(Entry::file("usr/local/bin/kwok", 0o755, std::fs::read(program)?));
    Ok(Image {
        entries,
        entrypoint: vec!["/usr/local/bin/kwok".to_owned()],
        path: "/usr/local/bin".to_owned(),
        user: "0:0".to_owned(),
        labels: BTreeMap::new(),
        created: Timestamp::UNIX_EPOCH,
    })
}
