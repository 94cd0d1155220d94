//! Upgrades and rollbacks with a live pool.

use anyhow::Context as _;
use images::before;
use serde_json::Value;
use testbed::tandem::chart;
use toolbox::messages::inform;
use toolbox::workspace::cargo;
use toolbox::workspace::target_directory;

use crate::place::workspace;
use crate::release::{
    NAMESPACE, POOL, install_with, json, make, make_namespace, node_uids, nodes_are_ready, scale, uninstall,
    upgrade,
};
use crate::{Turn, begin};

/// Each step leaves a release that works: it is asked for another number of nodes, and those that stay are the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_live_pool_outlives_an_upgrade_from_the_commit_before_and_the_way_back() {
    let Some(turn) = begin().await else { return };
    let (cluster, Some(kind)) = (&turn.cluster, turn.kind()) else { return };
    let old = tokio::task::spawn_blocking(|| {
        inform("building the operators of the commit before");
        before::build(cargo(), &workspace()?, &target_directory())
    });
    let old = old.await.unwrap();
    let old = old.context("the commit before").unwrap();
    for image in &old.images {
        kind.load(&image.archive).await.unwrap();
    }
    let tag = format!("global.image.tag={}", before::TAG);
    let old_operators = ["--set", &*tag];
    let without_crds = ["--set", "crds.enabled=false"];

    make_namespace(cluster).await;
    install_with(cluster, &old.chart, &old_operators).await;
    run_images_of(&turn, before::TAG).await;
    make(cluster, "kept", POOL).await;
    nodes_are_ready(cluster, 2).await;
    let first = node_uids(cluster).await;

    // Newer operators with the older definitions.
    upgrade(cluster, &chart(), &without_crds).await;
    run_images_of(&turn, env!("CARGO_PKG_VERSION")).await;
    scale(cluster, 3).await;
    nodes_are_ready(cluster, 3).await;
    // With their own.
    upgrade(cluster, &chart(), &[]).await;
    scale(cluster, 4).await;
    nodes_are_ready(cluster, 4).await;
    // Older operators with the newer definitions.
    upgrade(cluster, &old.chart, &[old_operators, without_crds].concat()).await;
    run_images_of(&turn, before::TAG).await;
    scale(cluster, 5).await;
    nodes_are_ready(cluster, 5).await;
    // All of the first release.
    let back = ["rollback", "tandem", "1", "--namespace", NAMESPACE, "--wait", "--timeout", "180s"];
    cluster.helm(&back).await.unwrap();
    run_images_of(&turn, before::TAG).await;
    let last = node_uids(cluster).await;
    assert!(first.iter().all(|uid| last.contains(uid)), "{first:?} {last:?}");
    scale(cluster, 0).await;
    nodes_are_ready(cluster, 0).await;

    cluster.kubectl(&["delete", "namespace", "kept", "--timeout=180s"]).await.unwrap();
    uninstall(cluster).await;
}

/// Checks which operators run.
async fn run_images_of(turn: &Turn, tag: &str) {
    let deployments = json(&turn.cluster, &["get", "deployments", "--namespace", NAMESPACE]).await;
    let images: Vec<&Value> = deployments["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|deployment| &deployment["spec"]["template"]["spec"]["containers"][0]["image"])
        .collect();
    let expected = format!(":{tag}");
    assert!(
        images.len() == 2 && images.iter().all(|image| image.as_str().unwrap().ends_with(&expected)),
        "{images:?}"
    );
}
