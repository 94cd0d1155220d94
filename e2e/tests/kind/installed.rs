//! `helm install` as a user types it.

use std::cell::Cell;

use anyhow::ensure;
use serde_json::Value;
use testbed::audit::{AuditLog, ObjectKey};
use testbed::cluster::Cluster;
use testbed::operators::OperatorKind;
use testbed::tandem::chart;
use testbed::terms::LeaderTerm;
use testbed::wait::{PATIENCE, eventually};
use toolbox::tools::Tool;

use crate::release::{
    NAMESPACE, POOL, UNINSTALL, checked, install, json, make, make_namespace, node_uids, nodes_are_ready,
    scale, uninstall, upgrade, what_runs,
};
use crate::{Turn, begin};

/// Checks that each operator runs twice, that no container had to be started again, and that it is the image made here.
async fn runs_what_was_made(turn: &Turn) {
    let pods = json(&turn.cluster, &["get", "pods", "--namespace", NAMESPACE]).await;
    let pods = pods["items"].as_array().unwrap();
    assert_eq!(pods.len(), 4, "two replicas of each operator: {pods:#?}");
    for pod in pods {
        let status = &pod["status"]["containerStatuses"][0];
        // With how it ended before, and why.
        assert_eq!(status["restartCount"], Value::from(0), "{status:#}");
        assert_eq!(status["ready"], Value::from(true), "{status:#}");
        let image = status["image"].as_str().unwrap();
        assert!(image.ends_with(concat!("-operator:", env!("CARGO_PKG_VERSION"))), "{image}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_is_installed_with_its_images_under_the_restricted_level() {
    let Some(turn) = begin().await else { return };
    install(&turn.cluster).await;
    runs_what_was_made(&turn).await;
    let test = ["test", "tandem", "--namespace", NAMESPACE, "--timeout", "180s"];
    turn.cluster.helm(&test).await.unwrap();
    uninstall(&turn.cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_test_of_the_chart_says_why_a_release_does_not_work() {
    let Some(turn) = begin().await else { return };
    let cluster = &turn.cluster;
    install(cluster).await;
    // Without its right to the lease, the operator runs and is not ready. What it waits for stands nowhere in the API.
    let role = "tandem-autoscaler-operator-lease";
    cluster.kubectl(&["delete", "role", role, "--namespace", NAMESPACE]).await.unwrap();
    let may = ["get", "leases/tandem-autoscaler-operator", "--namespace", NAMESPACE];
    eventually(PATIENCE, "the API server knows that the right is gone", || async {
        let may = cluster.can_i((NAMESPACE, "tandem-autoscaler-operator"), &may).await?;
        Ok((!may).then_some(()))
    })
    .await
    .unwrap();
    let deployment = "deployment/tandem-autoscaler-operator";
    cluster.kubectl(&["rollout", "restart", deployment, "--namespace", NAMESPACE]).await.unwrap();
    let test = ["test", "tandem", "--namespace", NAMESPACE, "--timeout", "180s"];
    let failed = match cluster.helm(&test).await {
        Err(failed) => failed,
        Ok(said) => panic!("{said}\n{}", what_runs(cluster).await),
    };
    let said = cluster.kubectl(&["logs", "tandem-test", "--namespace", NAMESPACE]).await.unwrap();
    for words in [
        "tandem-nodepool-operator: 2 of 2 replicas ready",
        "leases.coordination.k8s.io",
        "the release tandem is not ready",
    ] {
        assert!(said.contains(words), "no {words}: {said}\n{failed:#}");
    }
    uninstall(cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_critical_pods_need_a_quota_there_is_none_without_that_of_the_chart_and_the_check_says_so() {
    let Some(turn) = begin().await else { return };
    if turn.kind().is_none() {
        return;
    }
    let cluster = &turn.cluster;
    make_namespace(cluster).await;
    let chart = chart();
    let install = ["install", "tandem", chart.to_str().unwrap(), "--namespace", NAMESPACE];
    let without = ["--set", "priorityClassQuota.enabled=false"];
    cluster.helm(&[&install[..], &without].concat()).await.unwrap();
    let said = checked(turn.place.kubeconfig(), 10).await;
    for name in ["nodepool", "autoscaler"] {
        let words = format!("tandem-{name}-operator: 0 of 2 replicas ready\n  ReplicaFailure: ");
        assert!(said.contains(&words), "{said}");
    }
    assert!(said.contains("insufficient quota to match these scopes"), "{said}");
    uninstall(cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_pods_get_nodes_and_the_nodes_go_again_with_the_operators_as_pods() {
    let Some(turn) = begin().await else { return };
    let cluster = &turn.cluster;
    install(cluster).await;
    make(cluster, "demo", DEMO).await;
    let has = async |deployment: u64, nodes: usize| {
        let replicas = format!("--replicas={deployment}");
        cluster.kubectl(&["scale", "--namespace", "demo", "deployment/web", &replicas]).await.unwrap();
        let what = format!("{deployment} pods run on {nodes} nodes");
        let settled = eventually(PATIENCE, &what, || async {
            let pool = json(cluster, &["get", "nodepools.tandem.dev/workers", "--namespace", "demo"]).await;
            let ready = pool["status"]["readyReplicas"].as_u64().unwrap_or(0);
            let pods = json(cluster, &["get", "deployments/web", "--namespace", "demo"]).await;
            let running = pods["status"]["readyReplicas"].as_u64().unwrap_or(0);
            let found = json(cluster, &["get", "nodes", "--selector", "tandem.dev/nodepool=workers"]).await;
            let found = found["items"].as_array().map_or(0, Vec::len);
            let expected = (deployment, u64::try_from(nodes)?, nodes);
            ensure!(
                (running, ready, found) == expected,
                "{running} pods, {ready} of {found} nodes ready: {}",
                pool["status"]
            );
            Ok(Some(()))
        });
        if let Err(error) = settled.await {
            panic!("{error:#}\n{}", what_runs(cluster).await);
        }
    };
    // A pod asks for one of the 3.9 cores that a node has for pods.
    has(7, 3).await;
    has(1, 1).await;
    has(0, 0).await;
    runs_what_was_made(&turn).await;
    cluster.kubectl(&["delete", "namespace", "demo", "--timeout=180s"]).await.unwrap();
    uninstall(cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_and_their_nodes_outlive_an_upgrade_and_an_uninstall_and_the_next_install_takes_them_up() {
    let Some(turn) = begin().await else { return };
    let cluster = &turn.cluster;
    let written = Written::begin(&turn);
    install(cluster).await;
    make(cluster, "kept", &format!("{POOL}{AUTOSCALER}")).await;
    nodes_are_ready(cluster, 2).await;
    let before = node_uids(cluster).await;

    // New Pods take the place of the old ones, one of each operator at a time.
    upgrade_at_work(cluster, written.as_ref()).await;
    scale(cluster, 3).await;
    nodes_are_ready(cluster, 3).await;

    // Where it is asked to, an uninstall names the pool first, and does nothing.
    upgrade(cluster, &chart(), &["--set", "uninstall.whilePoolsExist=Refuse"]).await;
    let (uninstalled, said) = uninstall_says(cluster).await;
    assert!(!uninstalled && said.contains("kept/kept: 3 nodes"), "{said}");
    runs_what_was_made(&turn).await;
    for kind in ["clusterrole", "clusterrolebinding", "serviceaccount", "job"] {
        let left = ["get", kind, "tandem-left-behind", "--namespace", NAMESPACE, "--ignore-not-found"];
        assert_eq!(cluster.kubectl(&left).await.unwrap(), "", "the {kind} of the Job stays");
    }
    // Helm takes the release for one that is being uninstalled, and upgrades it no more before it is taken back.
    let back = ["rollback", "tandem", "3", "--namespace", NAMESPACE, "--wait", "--timeout", "180s"];
    cluster.helm(&back).await.unwrap();
    upgrade(cluster, &chart(), &["--set", "uninstall.whilePoolsExist=Report"]).await;

    let (uninstalled, said) = uninstall_says(cluster).await;
    assert!(uninstalled && said.contains("kept/kept: 3 nodes"), "{said}");
    cluster.kubectl(&["delete", "namespace", NAMESPACE, "--timeout=180s"]).await.unwrap();
    let kept = node_uids(cluster).await;
    assert!(kept.len() == 3 && before.iter().all(|uid| kept.contains(uid)), "{before:?} {kept:?}");
    scale(cluster, 1).await;

    install(cluster).await;
    nodes_are_ready(cluster, 1).await;
    let left = node_uids(cluster).await;
    assert!(kept.contains(&left[0]), "{left:?} is not one of {kept:?}");
    cluster.kubectl(&["delete", "namespace", "kept", "--timeout=180s"]).await.unwrap();
    assert_eq!(node_uids(cluster).await, Vec::<String>::new());
    uninstall(cluster).await;
    // Until the end, also one that was replaced and had not ended.
    if let Some(written) = written {
        for operator in OPERATORS {
            let terms = written.terms(operator);
            // Of the first install, of the upgrades, and of the second install.
            assert!(terms.len() >= 3, "{terms:?}");
        }
    }
}

const OPERATORS: [OperatorKind; 2] = [OperatorKind::NodePool, OperatorKind::Autoscaler];

/// What the operators have written since a place in the audit log of the kind cluster.
struct Written {
    audit: AuditLog,
    from: u64,
}

impl Written {
    /// From now on; `None` on a cluster of the user's.
    fn begin(turn: &Turn) -> Option<Self> {
        let audit = turn.place.kind()?.audit_log();
        let from = audit.end().unwrap();
        Some(Self { audit, from })
    }

    /// The terms of the leaders so far; panics where two led at the same time.
    fn terms(&self, operator: OperatorKind) -> Vec<LeaderTerm> {
        let events = self.audit.follow_from(self.from).read_new().unwrap();
        let [group, resource, namespace] = ["coordination.k8s.io", "leases", NAMESPACE].map(str::to_owned);
        let lease = ObjectKey { group, resource, namespace, name: format!("tandem-{}", operator.name()) };
        LeaderTerm::all(&events, &lease, operator).unwrap()
    }
}

/// Upgrades while both operators always have something to write, and checks that old replicas led, and then new ones, one at a time.
async fn upgrade_at_work(cluster: &Cluster, written: Option<&Written>) {
    let old = operators_pods(cluster).await;
    let round = Cell::new(0);
    let work = async || {
        round.set(round.get() + 1);
        give_work(cluster, round.get()).await;
    };
    // For as long as the old ones lead there has to be something that they wrote.
    work().await;
    let new_pods =
        ["nodepoolOperator", "autoscalerOperator"].map(|of| format!("{of}.podAnnotations.upgraded=yes"));
    let values = ["--set", &*new_pods[0], "--set", &*new_pods[1]];
    let chart = chart();
    let mut upgraded = std::pin::pin!(upgrade(cluster, &chart, &values));
    loop {
        tokio::select! {
            () = &mut upgraded => break,
            () = work() => {}
        }
    }
    let Some(written) = written else { return };
    for operator in OPERATORS {
        let what = format!("a new replica of {} leads, and writes", operator.name());
        let terms = eventually(PATIENCE, &what, || async {
            work().await;
            let terms = written.terms(operator);
            let is_new = terms.last().is_some_and(|term| term.writes > 0 && !old.contains(&term.pod));
            ensure!(is_new, "{terms:?}");
            Ok(Some(terms))
        });
        let terms = match terms.await {
            Ok(terms) => terms,
            Err(error) => panic!("{error:#}\n{}", what_runs(cluster).await),
        };
        // The control: the old ones are recognised, and had work.
        assert!(terms.iter().any(|term| term.writes > 0 && old.contains(&term.pod)), "{old:?} {terms:?}");
    }
}

/// Changes what both operators have to report on. Neither change asks for another number of nodes.
async fn give_work(cluster: &Cluster, round: i32) {
    let most = serde_json::json!({"spec": {"maxReplicas": 5 + round}});
    let cutoff = serde_json::json!({"spec": {"expendablePodsPriorityCutoff": -10 - round}});
    for (object, change) in
        [("nodepools.tandem.dev/kept", most), ("nodepoolautoscalers.tandem.dev/idle", cutoff)]
    {
        let change = change.to_string();
        let patch = ["patch", object, "--namespace", "kept", "--type", "merge", "--patch", &*change];
        cluster.kubectl(&patch).await.unwrap();
    }
}

/// The names of the Pods of both operators.
async fn operators_pods(cluster: &Cluster) -> Vec<String> {
    let pods = json(cluster, &["get", "pods", "--namespace", NAMESPACE]).await;
    let pods = pods["items"].as_array().unwrap();
    pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Whether Helm has uninstalled the release, and what it said: what a hook prints comes on standard error.
async fn uninstall_says(cluster: &Cluster) -> (bool, String) {
    let mut helm = cluster.command(Tool::Helm).await.unwrap();
    let output = helm.args(UNINSTALL).output().await.unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// It selects no pool, and reports so.
const AUTOSCALER: &str = r#"
---
apiVersion: tandem.dev/v1alpha1
kind: NodePoolAutoscaler
metadata: {name: idle}
spec: {nodePoolSelector: {matchLabels: {scaled: "yes"}}}
"#;

const DEMO: &str = include_str!("../../../testbed/manifests/demo.yaml");
