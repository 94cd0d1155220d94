//! A node with a real kubelet, made because the Autoscaler decided so, by a program that the operator runs in its Pod.

use anyhow::ensure;
use testbed::cluster::Cluster;
use testbed::kind::{Kind, MachineService};
use testbed::tandem::chart;
use testbed::wait::{PATIENCE, eventually};

use crate::begin;
use crate::release::{NAMESPACE, install_with, json, make, make_namespace, uninstall, what_runs};

/// What the administrator adds to the chart: the program, from a `ConfigMap`, and where the machines are made.
const VALUES: &str = r#"
providers:
  exec: [{ name: kind, path: /opt/kind/run }]
nodepoolOperator:
  extraEnv: [{ name: MACHINES, value: "http://ADDRESS/" }]
  extraVolumes: [{ name: kind, configMap: { name: kind-program, defaultMode: 0555 } }]
  extraVolumeMounts: [{ name: kind, mountPath: /opt/kind }]
"#;

/// The whole program: the service speaks the protocol itself.
const PROGRAM: &str = r#"#!/bin/sh
exec curl --silent --show-error --fail-with-body --max-time 25 --header 'content-type: application/json' --data-binary @- "$MACHINES"
"#;

/// The pod fits nowhere but on a node of the pool. Its image is on every node: busybox, which the sandboxes run.
const MANIFEST: &str = r#"
apiVersion: tandem.dev/v1alpha1
kind: NodePool
metadata: {name: real, labels: {scaled: "yes"}}
spec:
  minReplicas: 0
  maxReplicas: 3
  template:
    metadata: {labels: {pool: real}}
    spec: {capacity: {cpu: "1", memory: 1Gi, pods: "20"}}
  provider: {exec: {name: kind}}
---
apiVersion: tandem.dev/v1alpha1
kind: NodePoolAutoscaler
metadata: {name: all}
spec:
  nodePoolSelector: {matchLabels: {scaled: "yes"}}
  mode: Auto
  scaleDown: {unneededSeconds: 2, delayAfterAddSeconds: 0}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {pool: real}
      terminationGracePeriodSeconds: 1
      containers:
        - name: web
          image: registry.k8s.io/pause:3.10
          imagePullPolicy: Never
          command: [/bin/busybox, sh, -c, "echo runs on $(/bin/busybox hostname); exec /bin/busybox sleep 1000000"]
          resources: {requests: {cpu: 100m, memory: 32Mi}}
"#;

/// Installs the chart with the program, and starts what makes the machines, which ends when this is dropped.
pub(crate) async fn install_with_machines(cluster: &Cluster, kind: &Kind, more: &[&str]) -> MachineService {
    let machines = kind.machines().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    make_namespace(cluster).await;
    let program = format!("--from-file=run={}", file("run", PROGRAM));
    cluster
        .kubectl(&["create", "configmap", "kind-program", "--namespace", NAMESPACE, &program])
        .await
        .unwrap();
    let values = file("values.yaml", &VALUES.replace("ADDRESS", &machines.address.to_string()));
    install_with(cluster, &chart(), &[&["--values", &*values], more].concat()).await;
    machines
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_fits_nowhere_runs_on_a_real_kubelet_that_the_autoscaler_asked_for() {
    let Some(turn) = begin().await else { return };
    let cluster = &turn.cluster;
    let Some(kind) = turn.kind() else { return };
    let _machines = install_with_machines(cluster, kind, &[]).await;
    make(cluster, "real", MANIFEST).await;

    until(cluster, "the pod runs on a kubelet of the pool", || async {
        let web = json(cluster, &["get", "deployments/web", "--namespace", "real"]).await;
        ensure!(web["status"]["readyReplicas"] == 1, "{}", web["status"]);
        Ok(Some(()))
    })
    .await;
    let nodes = json(cluster, &["get", "nodes", "--selector", "tandem.dev/nodepool=real"]).await;
    assert_eq!(nodes["items"].as_array().map(Vec::len), Some(1), "{nodes:#}");
    let kubelet = &nodes["items"][0]["status"]["nodeInfo"];
    assert!(kubelet["containerRuntimeVersion"].as_str().unwrap().starts_with("containerd://"), "{kubelet}");
    // Only a kubelet knows this.
    let said = cluster.kubectl(&["logs", "--namespace", "real", "deployments/web"]).await.unwrap();
    assert!(said.starts_with("runs on web-"), "{said}");
    the_image_with_tools_is_what_it_says(cluster).await;

    cluster.kubectl(&["scale", "--namespace", "real", "deployment/web", "--replicas=0"]).await.unwrap();
    until(cluster, "the node is given back", || async {
        let nodes = json(cluster, &["get", "nodes"]).await;
        let left = nodes["items"].as_array().map_or(0, Vec::len);
        ensure!(left == 2, "{left} nodes");
        Ok(Some(()))
    })
    .await;
    cluster.kubectl(&["delete", "namespace", "real", "--timeout=180s"]).await.unwrap();
    uninstall(cluster).await;
}

/// Runs the tools of the image `tandem-exec` in a Pod of the operator, and checks that what a program leaves there is reaped.
async fn the_image_with_tools_is_what_it_says(cluster: &Cluster) {
    let selector = "app.kubernetes.io/component=nodepool-operator";
    let pods = json(cluster, &["get", "pods", "--namespace", NAMESPACE, "--selector", selector]).await;
    let pod = pods["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    let sh = async |script: &str| {
        let exec = ["exec", "--namespace", NAMESPACE, &*pod, "--", "sh", "-c", script];
        cluster.kubectl(&exec).await.unwrap()
    };
    // A library that one of them does not find would end it.
    let said = sh("curl --version && jq --version && ssh -V 2>&1 && cat /proc/1/comm").await;
    for words in ["curl ", "\njq-", "\nOpenSSH_", "\ntini"] {
        assert!(said.contains(words), "no {words}: {said}");
    }

    // The shell ends first, so that process 1 inherits what it has started.
    let orphan = sh("sleep 1000 </dev/null >/dev/null 2>&1 & echo $!").await;
    let orphan = orphan.trim();
    let state = format!("cat /proc/{orphan}/status 2>/dev/null || echo gone");
    until(cluster, "process 1 inherits what a program leaves", || async {
        let state = sh(&state).await;
        ensure!(state.contains("PPid:\t1\n"), "{state}");
        Ok(Some(()))
    })
    .await;
    sh(&format!("kill -9 {orphan}")).await;
    // A zombie would still be there.
    until(cluster, "what a program leaves is reaped", || async {
        let state = sh(&state).await;
        ensure!(state == "gone\n", "{state}");
        Ok(Some(()))
    })
    .await;
}

/// Waits, and shows what runs when it is in vain.
async fn until<F: Future<Output = anyhow::Result<Option<()>>>>(
    cluster: &Cluster,
    what: &str,
    look: impl FnMut() -> F,
) {
    if let Err(error) = eventually(PATIENCE, what, look).await {
        panic!("{error:#}\n{}", what_runs(cluster).await);
    }
}
