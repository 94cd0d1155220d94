//! `spec.rollout.hardMaxAgeSeconds`: a node of that age goes although a budget, a closed window or a wish to be left alone would keep
//! it. One that only `maxAgeSeconds` finds too old stays, and a `PodDisruptionBudget` holds at any age.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use shared_crds::names::{DISRUPTION_REASON_ANNOTATION, DRAIN_WAITS_ANNOTATION};
use testbed::objects;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

use super::drains::{cordoned, evictions};
use super::silent::guarded_pod;
use super::{cordon_of, is_untouched};

/// The least that the schema allows.
const SOFT_AGE: i64 = 60;
/// Above it, so that a node that went at its soft age would show.
const HARD_AGE: i64 = 75;

/// A pool of one node that becomes too old, and what would keep that node.
struct Kept {
    pool: &'static str,
    budgets: Value,
    has_asking_pod: bool,
    rollout: Value,
}

/// The pools of the test, of which those that are called hard have a hard age.
fn kept() -> [Kept; 5] {
    let soft = json!({ "maxAgeSeconds": SOFT_AGE });
    let hard = json!({ "maxAgeSeconds": SOFT_AGE, "hardMaxAgeSeconds": HARD_AGE });
    let (nothing, closed) = (json!([{ "nodes": 0 }]), json!([closed_window()]));
    let of = |pool, budgets: &Value, has_asking_pod, rollout: &Value| Kept {
        pool,
        budgets: budgets.clone(),
        has_asking_pod,
        rollout: rollout.clone(),
    };
    [
        of("hard-budget", &nothing, true, &hard),
        of("hard-window", &closed, false, &hard),
        of("soft-budget", &nothing, false, &soft),
        of("soft-window", &closed, false, &soft),
        of("soft-asked", &json!([]), true, &soft),
    ]
}

/// A budget whose only window opens some twelve hours from now.
fn closed_window() -> Value {
    let hour = (Timestamp::now().to_zoned(TimeZone::UTC).hour() + 12) % 24;
    json!({ "effect": "AllowOnly", "nodes": 1, "schedule": format!("0 {hour} * * *"), "durationSeconds": 60 })
}

fn asking_pod(pool: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("job-{pool}"),
            "annotations": {"karpenter.sh/do-not-disrupt": "true"},
        },
        "spec": {
            "nodeSelector": {"pool": pool},
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "job", "image": "example.invalid/job"}],
        },
    }))
    .unwrap()
}

/// The only node of a new pool, which does not age yet.
async fn only_node(env: &TestEnv, pool: &str, budgets: &Value) -> Node {
    let mut object = objects::pool(pool, 0, 9);
    object.spec.replicas = Some(1);
    object.spec.disruption = Some(serde_json::from_value(json!({ "budgets": budgets })).unwrap());
    env.create(&object).await.unwrap();
    env.settles(pool, 1).await.unwrap();
    env.nodes(pool).await.unwrap().remove(0)
}

/// The node in its present state; `None` when it is gone, also where its name is another one's now.
async fn present(env: &TestEnv, pool: &str, node: &Node) -> anyhow::Result<Option<Node>> {
    Ok(env.nodes(pool).await?.into_iter().find(|it| it.uid() == node.uid()))
}

async fn is_replaced(env: &TestEnv, pool: &str, node: &Node) {
    eventually(PATIENCE, &format!("the first node of {pool} is replaced"), async || {
        env.operators.keep_alive().await?;
        ensure!(present(env, pool, node).await?.is_none(), "it is still there");
        Ok(Some(()))
    })
    .await
    .unwrap();
    assert!(!env.nodes(pool).await.unwrap().is_empty(), "{pool} has no node in its place");
}

/// Checks that the drain of the node began for its age, and not before its hard age.
async fn began_at_its_hard_age(env: &TestEnv, node: &Node) {
    let name = node.name_any();
    let cordon = eventually(PATIENCE, &format!("the cordon of {name} is in the audit log"), async || {
        Ok(cordon_of(&env.events()?, &name).cloned())
    })
    .await
    .unwrap();
    let created = node.metadata.creation_timestamp.clone().unwrap().0;
    let age = cordon.received.duration_since(created).as_secs();
    assert!(age >= HARD_AGE, "{name} was cordoned {age} s after it was made");
    let answer = cordon.response.unwrap();
    assert_eq!(answer["metadata"]["annotations"][DISRUPTION_REASON_ANNOTATION], "Expiry");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_goes_at_its_hard_age_whatever_keeps_it_and_at_its_soft_age_only_when_nothing_does() {
    let env = TestEnv::begin("hard-age", &[]).await.unwrap();
    let kept = kept();
    let mut first = BTreeMap::new();
    for it in &kept {
        first.insert(it.pool, only_node(&env, it.pool, &it.budgets).await);
        if it.has_asking_pod {
            env.create(&asking_pod(it.pool)).await.unwrap();
        }
    }
    env.pods_run(2).await.unwrap();
    for it in &kept {
        env.patch_pool(it.pool, &json!({ "rollout": it.rollout })).await.unwrap();
    }

    for pool in ["hard-budget", "hard-window"] {
        is_replaced(&env, pool, &first[pool]).await;
        began_at_its_hard_age(&env, &first[pool]).await;
    }
    let asked = evictions(&env.events().unwrap());
    assert!(asked.contains(&("job-hard-budget".to_owned(), 201)), "its pod was evicted: {asked:?}");

    // The others have been too old for at least fifteen seconds.
    for (pool, reason) in [
        ("soft-budget", "WaitsForBudget"),
        ("soft-window", "WaitsForBudget"),
        ("soft-asked", "WaitsForProtected"),
    ] {
        env.says(pool, "RollingOut", ("False", reason, "")).await.unwrap();
        let node = present(&env, pool, &first[pool]).await.unwrap();
        assert!(node.is_some_and(|node| !cordoned(&node)), "the node of {pool} does not stay");
    }
    // It was no more than that which kept them.
    for pool in ["soft-budget", "soft-window"] {
        env.patch_pool(pool, &json!({ "disruption": null })).await.unwrap();
    }
    env.kubectl(&["annotate", "pod", "job-soft-asked", "karpenter.sh/do-not-disrupt-"]).await.unwrap();
    for pool in ["soft-budget", "soft-window", "soft-asked"] {
        is_replaced(&env, pool, &first[pool]).await;
    }
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_budget_of_a_pod_holds_its_node_beyond_the_hard_age_and_its_annotation_does_not() {
    let env = TestEnv::begin("hard-guarded", &[]).await.unwrap();
    let first = only_node(&env, "guarded", &json!([])).await;
    guarded_pod(&env, "guarded", 1).await;
    env.kubectl(&["annotate", "pod", "db", "karpenter.sh/do-not-disrupt=true"]).await.unwrap();
    let before = env.api::<Pod>().get("db").await.unwrap();
    env.patch_pool("guarded", &json!({ "rollout": { "hardMaxAgeSeconds": SOFT_AGE } })).await.unwrap();

    // It is evicted, which no pod is whose wish counts, and its budget refuses that.
    eventually(PATIENCE, "the node says that it waits for the budget", async || {
        env.operators.keep_alive().await?;
        let node = present(&env, "guarded", &first).await?.context("the node is gone")?;
        let waits_for = node.annotations().get(DRAIN_WAITS_ANNOTATION).context("no annotation")?;
        ensure!(waits_for.contains("/db: The disruption budget db needs 1"), "{waits_for}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    is_untouched(&env, &before).await;

    env.kubectl(&["delete", "pdb", "db"]).await.unwrap();
    is_replaced(&env, "guarded", &first).await;
    env.end().await.unwrap();
}
