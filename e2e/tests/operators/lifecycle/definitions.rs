//! A definition that is older than the operators, and one that is replaced while they run.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use shared_crds::v1alpha1::NodePoolStatus;
use testbed::cluster::ClusterOptions;
use testbed::objects;
use testbed::places::Places;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

/// Their own control planes: a definition that a failed test leaves behind would be that of the next test.
static PLACES: Places = Places::new(1, ClusterOptions::private);

const CRD: &str = "nodepools.tandem.dev";

/// Removes these fields of a status from the installed definition.
async fn remove_from_definition(env: &TestEnv, fields: &[&str]) {
    let paths = fields.iter().map(|field| {
        let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
        json!({ "op": "remove", "path": format!("{status}/{field}") })
    });
    let patch = Value::from(paths.collect::<Vec<_>>()).to_string();
    env.cluster.kubectl(&["patch", "crd", CRD, "--type=json", "--patch", &patch]).await.unwrap();
}

async fn status(env: &TestEnv, pool: &str) -> NodePoolStatus {
    env.pool(pool).await.unwrap().status.unwrap()
}

/// A pool whose two nodes cannot be drained: until its budget is deleted, a rollout stays at the first.
async fn held_pool(env: &TestEnv, pool: &str) {
    let mut object = objects::pool(pool, 0, 9);
    object.spec.replicas = Some(2);
    env.create(&object).await.unwrap();
    env.settles(pool, 2).await.unwrap();
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": pool},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": pool}}},
    }))
    .unwrap();
    env.create(&budget).await.unwrap();
    env.create(&objects::deployment(pool, pool, 2, "3")).await.unwrap();
    env.pods_run(2).await.unwrap();
}

async fn change_template(env: &TestEnv, pool: &str, cpu: &str) {
    let other_machines = json!({ "template": { "spec": { "capacity": { "cpu": cpu } } } });
    env.patch_pool(pool, &other_machines).await.unwrap();
}

async fn an_older_definition_is_said_and_the_rest_is_reported(env: &TestEnv) {
    held_pool(env, "old").await;
    assert_eq!(env.operators.node_pool.readyz().await.unwrap(), "ok\n");
    remove_from_definition(env, &["rollout", "disruption"]).await;
    change_template(env, "old", "6").await;

    let lacks = "lacks status.disruption, status.rollout";
    env.says("old", "CrdCurrent", ("False", "CrdOutdated", lacks)).await.unwrap();
    env.says("old", "RollingOut", ("True", "", "")).await.unwrap();
    env.says("old", "Reconciling", ("True", "DrainBlocked", "")).await.unwrap();
    env.says("old", "Ready", ("False", "RollingOut", "")).await.unwrap();
    eventually(PATIENCE, "the change is reported as observed", async || {
        let pool = env.pool("old").await?;
        let observed = pool.status.and_then(|status| status.observed_generation);
        ensure!(observed == pool.metadata.generation, "{observed:?} of {:?}", pool.metadata.generation);
        Ok(Some(()))
    })
    .await
    .unwrap();
    let missing = status(env, "old").await;
    assert_eq!((missing.rollout, missing.disruption), (None, None));
    for operator in [&env.operators.node_pool, &env.operators.autoscaler] {
        eventually(PATIENCE, "each operator says it", async || {
            let said = operator.readyz().await?;
            ensure!(said.starts_with("ok\n") && said.contains(lacks), "{said}");
            let count = operator.metric("tandem_crd_fields_missing", &[&format!("crd=\"{CRD}\"")]).await?;
            ensure!((count - 2.0).abs() < 0.1, "{count} fields");
            // The Autoscaler applies no field that is missing, so it learns it when it looks the next time.
            Ok(Some(()))
        })
        .await
        .unwrap();
        let log = std::fs::read_to_string(operator.log_path()).unwrap();
        assert_eq!(log.lines().filter(|line| line.contains(lacks)).count(), 1, "{log}");
    }

    let whole = shared_crds::yaml().unwrap();
    let args = ["apply", "--server-side", "--force-conflicts", "--filename", "-"];
    env.cluster.kubectl_with_input(&args, &whole).await.unwrap();
    eventually(PATIENCE, "the fields come back", async || {
        let status = env.pool("old").await?.status.context("no status")?;
        let is_outdated = status.conditions.iter().any(|it| it.type_ == "CrdCurrent");
        ensure!(status.rollout.is_some() && status.disruption.is_some() && !is_outdated, "{status:?}");
        Ok(Some(()))
    })
    .await
    .map_err(|error| error.context(env.operators.node_pool.log_tail()))
    .unwrap();
    assert_eq!(env.operators.node_pool.readyz().await.unwrap(), "ok\n");

    env.api::<PodDisruptionBudget>().delete("old", &DeleteParams::default()).await.unwrap();
    env.says("old", "RollingOut", ("False", "UpToDate", "")).await.unwrap();
    env.settles("old", 2).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_lacks_fields_is_said_and_the_rest_of_the_status_is_written() {
    for strategy in ["guarded", "patch"] {
        let value = format!("writeStrategy={strategy}");
        let env = TestEnv::begin_at(&PLACES, "older-crd", &[&value]).await.unwrap();
        an_older_definition_is_said_and_the_rest_is_reported(&env).await;
        env.end().await.unwrap();
    }
}
