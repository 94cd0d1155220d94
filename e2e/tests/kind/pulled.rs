//! Images from a registry: by digest, and with a password.

use std::path::Path;

use anyhow::{Context as _, ensure};
use testbed::cluster::Cluster;
use testbed::kind::Registry;
use testbed::tandem::chart;
use testbed::wait::{PATIENCE, eventually};

use crate::begin;
use crate::release::{NAMESPACE, checked, install_with, json, make_namespace, uninstall};

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_pulls_its_images_by_digest_from_a_registry_with_a_password() {
    let Some(turn) = begin().await else { return };
    let (cluster, Some(kind)) = (&turn.cluster, turn.kind()) else { return };
    let registry = kind.registry().await.unwrap();
    let mut values = vec![format!("global.image.registry={}", registry.host)];
    let mut digests = Vec::new();
    for (image, component) in turn.place.images().iter().zip(["nodepoolOperator", "autoscalerOperator"]) {
        let name = format!("{}:1", image.reference.split_once('/').unwrap().1.split(':').next().unwrap());
        let stored = registry.push(&image.layout, &name).await.unwrap();
        // What was written is what others call it by.
        assert_eq!(stored, image.digest);
        values.push(format!("{component}.image.digest={stored}"));
        digests.push(stored);
    }
    let values: Vec<&str> = values.iter().flat_map(|value| ["--set", value]).collect();
    make_namespace(cluster).await;

    // Without the password nothing is pulled, and the program of `helm test` says so of each operator. Its Pod cannot: it has the same
    // image.
    let chart = chart();
    let args = ["install", "tandem", chart.to_str().unwrap(), "--namespace", NAMESPACE];
    cluster.helm(&[&args, &*values].concat()).await.unwrap();
    let why = refused(cluster).await;
    assert!(why.contains("401"), "{why}");
    for operator in ["nodepool", "autoscaler"] {
        says_why(turn.place.kubeconfig(), &format!("tandem-{operator}-operator")).await;
    }
    cluster
        .helm(&["uninstall", "tandem", "--namespace", NAMESPACE, "--wait", "--timeout", "180s"])
        .await
        .unwrap();

    secret(cluster, &registry).await;
    let with_secret = [&["--set", "global.image.pullSecrets[0].name=pull"], &*values].concat();
    install_with(cluster, &chart, &with_secret).await;
    let pods = json(cluster, &["get", "pods", "--namespace", NAMESPACE]).await;
    for pod in pods["items"].as_array().unwrap() {
        let id = pod["status"]["containerStatuses"][0]["imageID"].as_str().unwrap();
        assert!(digests.iter().any(|digest| id.ends_with(digest)), "{id} is none of {digests:?}");
    }
    uninstall(cluster).await;
}

async fn secret(cluster: &Cluster, registry: &Registry) {
    let arguments = [
        format!("--docker-server={}", registry.host),
        format!("--docker-username={}", registry.user),
        format!("--docker-password={}", registry.password),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let create = ["create", "secret", "docker-registry", "pull", "--namespace", NAMESPACE];
    cluster.kubectl(&[&create, &*arguments].concat()).await.unwrap();
}

/// Waits until the check names, below an operator, what its Pods wait for, why that fails, and what to do.
async fn says_why(kubeconfig: &Path, operator: &str) {
    let what = format!("the check says why {operator} is not pulled");
    let said = eventually(PATIENCE, &what, || async {
        let said = checked(kubeconfig, 1).await;
        let head = format!("{operator}: 0 of 2 replicas ready\n");
        let below = said.split_once(&head).with_context(|| said.clone())?.1;
        let pods: Vec<&str> = below.lines().take_while(|line| line.starts_with(' ')).collect();
        let says = |line: &&str| ["ErrImagePull", "401"].iter().all(|word| line.contains(*word));
        ensure!(pods.iter().any(says), "{said}");
        ensure!(pods.iter().any(|line| line.contains("global.image.pullSecrets")), "{said}");
        Ok(Some(()))
    });
    said.await.unwrap();
}

/// What a kubelet says of a Pod whose image it may not pull.
async fn refused(cluster: &Cluster) -> String {
    let looked = eventually(PATIENCE, "a kubelet says why it cannot pull", || async {
        let events = cluster.kubectl(&["get", "events", "--namespace", NAMESPACE]).await?;
        Ok(events.lines().find(|line| line.contains("Failed to pull image")).map(str::to_owned))
    });
    looked.await.unwrap()
}
