//! Those who wait for a pool, as the programs that users run: what Helm 4 with `--wait`, and so kstatus, and `kubectl wait` make of a
//! rollout that waits, ends or fails. `nodepool-operator/src/status/verdict_tests.rs` has every row of the table in
//! `docs/guides/operations.md`.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::test_env::{EXITS, PATIENCE, TestEnv};

/// The name of the release, of its chart, and of the pool in it.
const NAME: &str = "web";

/// How long Helm waits for a pool that only has to be seen by the operator to say why it is not ready.
const ONE_PASS: Duration = Duration::from_secs(30);

/// How long kubectl waits for what does not come.
const IN_VAIN: Duration = Duration::from_secs(5);

/// What Helm adds to its error when its time was up, and only then.
const HELM_TIMED_OUT: &str = "context deadline exceeded";

/// A chart of one `NodePool`, as an application would bring it.
struct PoolChart(TempDir);

impl PoolChart {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let chart = json!({ "apiVersion": "v2", "name": NAME, "version": "1.0.0" });
        std::fs::write(directory.path().join("Chart.yaml"), chart.to_string()).unwrap();
        std::fs::create_dir(directory.path().join("templates")).unwrap();
        Self(directory)
    }

    /// `helm install` or `helm upgrade`, with `--wait`: a pool of two nodes with this in its spec.
    async fn helm(&self, verb: &str, env: &TestEnv, spec: &Value, timeout: Duration) -> Result<String> {
        let mut pool = json!({
            "apiVersion": "tandem.dev/v1alpha1",
            "kind": "NodePool",
            "metadata": { "name": NAME },
            "spec": {
                "minReplicas": 2,
                "maxReplicas": 9,
                "template": { "spec": { "capacity": { "cpu": "4", "memory": "16Gi", "pods": "110" } } },
                "provider": { "simulated": {} },
            },
        });
        json_patch::merge(&mut pool["spec"], spec);
        std::fs::write(self.0.path().join("templates/pool.yaml"), pool.to_string())?;
        let chart = self.0.path().to_str().unwrap();
        let timeout = format!("{}s", timeout.as_secs());
        let args =
            [verb, NAME, chart, "--namespace", env.namespace(), "--wait", "--timeout", timeout.as_str()];
        env.cluster.helm(&args).await
    }

    /// The error of a `helm upgrade --wait` to this, which names the pool and what kstatus makes of it.
    async fn fails(&self, env: &TestEnv, spec: &Value, timeout: Duration, status: &str) -> String {
        let said = format!("{:#}", self.helm("upgrade", env, spec, timeout).await.unwrap_err());
        let verdict =
            format!("resource NodePool/{}/{NAME} not ready. status: {status}, message: ", env.namespace());
        assert!(said.contains(&verdict), "no {verdict:?} in\n{said}");
        said
    }
}

/// `kubectl wait` for a condition of the pool.
async fn kubectl_wait(env: &TestEnv, condition: &str, timeout: Duration) -> Result<String> {
    let pool = format!("nodepool/{NAME}");
    let condition = format!("--for=condition={condition}");
    let timeout = format!("--timeout={}s", timeout.as_secs());
    env.kubectl(&["wait", &pool, &condition, &timeout]).await
}

/// `kubectl wait` for `Ready`, which waits until its time is up.
async fn kubectl_waits_for_ready(env: &TestEnv) {
    let said = format!("{:#}", kubectl_wait(env, "Ready", IN_VAIN).await.unwrap_err());
    assert!(said.contains("timed out waiting for the condition"), "{said}");
}

async fn uids(env: &TestEnv) -> BTreeSet<String> {
    env.nodes(NAME).await.unwrap().iter().filter_map(Node::uid).collect()
}

/// A template whose nodes have that many processors, which replaces those of another one.
fn machines(cpu: &str) -> Value {
    json!({ "template": { "spec": { "capacity": { "cpu": cpu } } } })
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_and_kubectl_wait_for_a_rollout_that_waits_and_helm_gives_up_one_that_has_failed() {
    let env = TestEnv::begin("clients", &[]).await.unwrap();
    let chart = PoolChart::new();
    chart.helm("install", &env, &json!({}), PATIENCE).await.unwrap();
    // Helm may have looked before the operator did: see the other test.
    kubectl_wait(&env, "Ready", PATIENCE).await.unwrap();
    let first = uids(&env).await;
    assert_eq!(first.len(), 2);

    // No budget lets a node go: in progress for both, until their time is up.
    let mut held = machines("6");
    held["disruption"] = json!({ "budgets": [{ "nodes": 0, "reasons": ["Rollout"] }] });
    let said = chart.fails(&env, &held, ONE_PASS, "InProgress").await;
    for part in [HELM_TIMED_OUT, "2 nodes are out of date", "spec.disruption.budgets[0] holds Rollout"] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
    kubectl_waits_for_ready(&env).await;
    for condition in ["Stalled=False", "Ready=False", "Reconciling", "RollingOut=False"] {
        kubectl_wait(&env, condition, PATIENCE).await.unwrap();
    }
    assert_eq!(uids(&env).await, first, "no node went");

    // The budget is gone. When Helm returns, it is done.
    chart.helm("upgrade", &env, &machines("6"), PATIENCE).await.unwrap();
    let second = uids(&env).await;
    assert!(second.len() == 2 && second.is_disjoint(&first), "{second:?} after {first:?}");
    kubectl_wait(&env, "Ready", PATIENCE).await.unwrap();

    // New nodes never come: failed for Helm, which does not wait any longer; kubectl does.
    let mut broken = machines("8");
    broken["provider"] = json!({ "simulated": { "neverRegisterPercent": 100 } });
    broken["rollout"] = json!({ "progressDeadlineSeconds": 3 });
    let said = chart.fails(&env, &broken, PATIENCE, "Failed").await;
    assert!(said.contains("2 nodes are out of date, and there has been no progress since"), "{said}");
    assert!(!said.contains(HELM_TIMED_OUT), "{said}");
    kubectl_waits_for_ready(&env).await;
    kubectl_wait(&env, "Stalled", PATIENCE).await.unwrap();
    assert_eq!(uids(&env).await, second, "no node went");

    // Back again: Helm does not take the failure of the spec before for one of this.
    chart.helm("upgrade", &env, &machines("6"), PATIENCE).await.unwrap();
    kubectl_wait(&env, "Stalled=False", PATIENCE).await.unwrap();
    assert_eq!(uids(&env).await, second);
    env.end().await.unwrap();
}

/// kstatus takes an object without conditions for one of a kind that has none.
#[tokio::test(flavor = "multi_thread")]
async fn helm_does_not_wait_for_a_pool_that_no_operator_has_seen_and_kubectl_does() {
    let mut env = TestEnv::begin("unseen", &[]).await.unwrap();
    env.operators.node_pool.stop(EXITS).await.unwrap();
    let chart = PoolChart::new();
    chart.helm("install", &env, &json!({}), PATIENCE).await.unwrap();
    let status = env.pool(NAME).await.unwrap().status.unwrap_or_default();
    assert_eq!((status.observed_generation, uids(&env).await.len()), (None, 0));
    kubectl_waits_for_ready(&env).await;

    env.operators.node_pool.start_again().await.unwrap();
    kubectl_wait(&env, "Ready", PATIENCE).await.unwrap();
    assert_eq!(uids(&env).await.len(), 2);
    env.end().await.unwrap();
}
