//! Both operators and a third writer write to one pool at a high rate, with each write strategy. The audit log then
//! shows that no acknowledged write is lost, no writer changes a field of another owner, and conflicts drop to none.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use shared_crds::NodePool;
use shared_crds::names::{AUTOSCALER_OPERATOR, NODEPOOL_OPERATOR};
use shared_crds::ownership::{self, Owner};
use testbed::audit::Event;
use testbed::concurrent_writer::ConcurrentWriter;
use testbed::lost_update_check::LostUpdateCheck;
use testbed::operators::OperatorKind;
use testbed::request_costs::RequestCosts;
use testbed::test_env::{EXITS, PATIENCE, TestEnv};
use testbed::wait::eventually;
use testbed::waiting;
use testbed::write_effects::WriteEffects;
use testbed::{guards, objects};
use tokio::sync::Mutex;

/// Writes per second by the concurrent writer, in addition to those of both operators. A read and a write take some 10
/// ms. On a machine too busy for this rate it leaves the others three quarters of the time, so that `retry` and `patch`
/// stay within their budgets.
const CONCURRENT_RATE: u64 = 20;

/// A strategy is judged by its number of attempts, and on a machine that also runs another such test it needs more.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Load is added and removed while all writers write. Returns the operators' requests and conflicts.
async fn under_load(strategy: &str) -> RequestCosts {
    let _alone = waiting::for_others(ONE_AT_A_TIME.lock()).await;
    let env = TestEnv::begin(strategy, &[&format!("writeStrategy={strategy}")]).await.unwrap();
    env.create(&objects::pool("busy", 0, 20)).await.unwrap();
    env.create(&objects::autoscaler("all", 1)).await.unwrap();
    env.create(&objects::deployment("web", "busy", 0, "2")).await.unwrap();
    let writer = ConcurrentWriter::start(env.api(), "busy", CONCURRENT_RATE, 20, 7);

    let deployments = env.api::<Deployment>();
    for (pods, nodes) in [(10, 5), (24, 12), (0, 0)] {
        let patch = Patch::Merge(json!({"spec": {"replicas": pods}}));
        deployments.patch_scale("web", &PatchParams::default(), &patch).await.unwrap();
        env.pods_run(usize::try_from(pods).unwrap()).await.unwrap();
        env.settles("busy", nodes).await.unwrap();
    }

    let report = writer.finish().await.unwrap();
    let pool = env.pool("busy").await.unwrap();
    report.check_kept(&pool).unwrap();
    managers_keep_to_their_fields(&pool);

    let key = env.key("busy");
    let last: u64 = pool.metadata.resource_version.clone().unwrap().parse().unwrap();
    let written = |events: &[Event]| {
        let seen =
            events.iter().filter(|event| event.object.as_ref() == Some(&key)).filter_map(Event::version);
        (seen.max() >= Some(last)).then_some(())
    };
    let audit = env.audit().unwrap();
    audit.wait_for(0, PATIENCE, "the audit log holds the pool's last version", written).await.unwrap();
    let events = env.events().unwrap();
    let chain = LostUpdateCheck::of(&events, &key);
    chain.check_unbroken().unwrap();
    assert!(chain.checked > 10, "only {} writes named their base", chain.checked);
    let effects = WriteEffects::of(&events, &key);
    effects.check_owned().unwrap();
    let ours: Vec<&Event> = events.iter().filter(|event| event.object.as_ref() == Some(&key)).collect();
    operators_use_the_strategy(strategy, &ours);
    let refused = guards::false_conflicts(&events, &key);
    assert!(refused.is_empty(), "guards failed that held:\n{}", refused.join("\n"));
    let costs = RequestCosts::of(&events, |object| *object == key);
    println!("{strategy}: {} versions, {} changes\n{costs}", chain.versions, effects.changes);
    env.end().await.unwrap();
    costs
}

/// `managedFields` must agree with the ownership contract.
pub(super) fn managers_keep_to_their_fields(pool: &NodePool) {
    let mut seen = 0;
    for entry in pool.metadata.managed_fields.iter().flatten() {
        let owner = match entry.manager.as_deref() {
            Some(NODEPOOL_OPERATOR) => Owner::NodepoolOperator,
            Some(AUTOSCALER_OPERATOR) => Owner::AutoscalerOperator,
            _ => continue,
        };
        let fields = serde_json::to_value(entry.fields_v1.as_ref().unwrap()).unwrap();
        let Some(status) = fields.get("f:status").and_then(|status| status.as_object()) else {
            continue;
        };
        for field in
            status.keys().filter_map(|key| key.strip_prefix("f:")).filter(|field| *field != "conditions")
        {
            seen += 1;
            let rule = ownership::rule_for(&format!("status.{field}")).unwrap();
            assert_eq!(rule.owner, owner, "{:?} manages status.{field}", entry.manager);
        }
        for condition in
            status.get("f:conditions").and_then(|c| c.as_object()).into_iter().flat_map(|map| map.keys())
        {
            let is_own = ownership::conditions(owner).any(|own| condition.contains(&format!("\"{own}\"")));
            assert!(is_own || condition == ".", "{:?} manages the condition {condition}", entry.manager);
        }
    }
    assert!(seen > 3, "managedFields shows only {seen} fields of the operators");
}

/// Each strategy is recognised by its requests: the audit log must match the flag.
fn operators_use_the_strategy(strategy: &str, events: &[&Event]) {
    let by_operators = |event: &&&Event| {
        let name = event.writer();
        name.ends_with(NODEPOOL_OPERATOR) || name.ends_with(AUTOSCALER_OPERATOR)
    };
    let reads = events.iter().filter(by_operators).filter(|event| event.verb == "get").count();
    let refused =
        events.iter().filter(by_operators).filter(|event| event.is_write() && !event.succeeded()).count();
    let writes = events.iter().filter(by_operators).filter(|event| {
        // On the object itself the Autoscaler writes only the count, and the NodePool operator only its finalizer.
        let shared = ["status", "scale"].contains(&event.subresource.as_str())
            || (event.subresource.is_empty() && event.writer().ends_with(AUTOSCALER_OPERATOR));
        shared && event.is_write() && event.succeeded()
    });
    let mut seen = BTreeMap::<(&str, &str), usize>::new();
    for write in writes {
        *seen.entry((write.writer(), write.subresource.as_str())).or_default() += 1;
        let body = write.request.as_ref().unwrap();
        let is_apply = body.get("apiVersion").is_some() && write.base_version().is_none();
        let matches = match (strategy, write.subresource.as_str()) {
            ("lazy" | "retry", _) => write.verb == "update" && write.base_version().is_some(),
            ("patch", _) => write.verb == "patch" && body.is_object() && write.base_version().is_some(),
            ("guarded", "") => write.verb == "patch" && tests_generation(body),
            ("guarded", "status") => write.verb == "patch" && (is_apply || tests_generation(body)),
            _ => false,
        };
        assert!(matches, "not what {strategy} does: {} {} {body}", write.verb, write.subresource);
    }
    assert_eq!(seen.len(), 3, "status of both operators and scale of one: {seen:?}");
    match strategy {
        "retry" => assert!(reads > 10, "retry reads live before it writes; it read {reads} times"),
        "lazy" => assert_eq!(reads, 0, "lazy never reads before it writes"),
        // However busy the machine is: reads happen only to decide again after a refused write.
        "guarded" => assert!(
            reads <= refused,
            "guarded reads after a refusal only; it read {reads} times and was refused {refused} times"
        ),
        _ => {}
    }
}

/// Whether a JSON Patch applies to one generation of the object only.
fn tests_generation(body: &serde_json::Value) -> bool {
    let test = |operation: &serde_json::Value| {
        operation["op"] == "test" && operation["path"] == "/metadata/generation"
    };
    body.as_array().is_some_and(|operations| operations.iter().any(test))
}

/// Requests of the two operators that the API server refused because of other writers: 409, and the 422 of a failed
/// guard.
fn operators_conflicts(costs: &RequestCosts) -> u64 {
    let of = |name: &str| {
        let own = costs.totals.iter().filter(|row| row.writer.ends_with(name));
        own.map(|row| row.conflicts + row.invalid).sum::<u64>()
    };
    of(NODEPOOL_OPERATOR) + of(AUTOSCALER_OPERATOR)
}

#[tokio::test(flavor = "multi_thread")]
async fn guarded_writes_conflict_with_a_changed_spec_only_and_lose_nothing() {
    let costs = under_load("guarded").await;
    // The concurrent writer changes bounds, which decisions are based on; its changes of labels and annotations must
    // not cause conflicts.
    let conflicts = costs.totals.iter().filter(|row| !row.writer.contains("admin")).map(|row| row.conflicts);
    assert_eq!(conflicts.sum::<u64>(), 0, "\n{costs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lazy_writes_conflict_and_lose_nothing() {
    // With dozens of foreign writes a second, a cached copy is usually stale.
    let costs = under_load("lazy").await;
    assert!(operators_conflicts(&costs) > 0, "\n{costs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn retried_writes_lose_nothing() {
    under_load("retry").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versioned_patches_lose_nothing() {
    under_load("patch").await;
}

/// Both operators handle a new pool at the same time, and a guard that there is no status yet would fail after the
/// first status write.
#[tokio::test(flavor = "multi_thread")]
async fn the_count_of_a_pool_without_status_waits_for_one_and_for_no_other_writer() {
    let mut env = TestEnv::begin("newpool", &[]).await.unwrap();
    let node_pool_operator = env.release.pod(env.cluster, OperatorKind::NodePool).await.unwrap();
    env.operators.node_pool.stop(EXITS).await.unwrap();
    env.create(&objects::deployment("web", "new", 1, "2")).await.unwrap();
    let pods = env.api::<Pod>();
    eventually(PATIENCE, "the pod has no place", async || {
        let pods = pods.list(&ListParams::default()).await?;
        let conditions = pods.items.into_iter().filter_map(|pod| pod.status?.conditions).flatten();
        let mut reasons = conditions.filter_map(|condition| condition.reason);
        Ok(reasons.any(|reason| reason == "Unschedulable").then_some(()))
    })
    .await
    .unwrap();
    env.create(&objects::autoscaler("all", 60)).await.unwrap();
    let mut pool = objects::pool("new", 0, 2);
    pool.spec.replicas = Some(0);
    env.create(&pool).await.unwrap();

    eventually(PATIENCE, "the Autoscaler scales it while no other writer is running", async || {
        Ok((env.pool("new").await?.spec.replicas == Some(1)).then_some(()))
    })
    .await
    .unwrap();
    env.operators.node_pool = node_pool_operator.start(env.cluster).await.unwrap();
    env.settles("new", 1).await.unwrap();
    let events = env.events().unwrap();
    let key = env.key("new");
    let written = events.iter().filter(|event| event.object.as_ref() == Some(&key));
    let guards: Vec<_> = written
        .filter(|event| event.subresource.is_empty() && event.writer().ends_with(AUTOSCALER_OPERATOR))
        .filter_map(|event| Some(event.request.as_ref()?.as_array()?.iter().map(|test| &test["path"])))
        .flatten()
        .collect();
    assert!(guards.contains(&&json!("/spec/replicas")), "{guards:?}");
    assert!(!guards.contains(&&json!("/status")), "{guards:?}");
    env.end().await.unwrap();
}

/// A user, `GitOps` or a faulty controller keeps writing fields that no operator reads.
#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_foreign_writes_is_no_storm_of_passes() {
    let env = TestEnv::begin("storm", &[]).await.unwrap();
    let mut pool = objects::pool("stormy", 0, 3);
    pool.spec.replicas = Some(2);
    env.create(&pool).await.unwrap();
    env.settles("stormy", 2).await.unwrap();
    let operator = &env.operators.node_pool;
    let passes =
        async || operator.metric("tandem_reconcile_total", &["controller=\"nodepool\""]).await.unwrap();
    let pools = env.api::<NodePool>();
    let patch = async |value: serde_json::Value| {
        let _ = pools.patch("stormy", &PatchParams::default(), &Patch::Merge(value)).await.unwrap();
    };

    // Two new nodes may still cause some.
    let before = eventually(PATIENCE, "no pass for three seconds", async || {
        let before = passes().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let after = passes().await;
        if after > before {
            bail!("{before} passes, and {after} three seconds later")
        }
        Ok(Some(before))
    })
    .await
    .unwrap();
    assert!(before >= 2.0, "{before} passes made two nodes");
    for count in 0..200 {
        patch(json!({"metadata": {"annotations": {"example.com/storm": count.to_string()}}})).await;
    }
    // Once a relevant change has been observed, everything before it has been observed too.
    patch(json!({"spec": {"maxReplicas": 4}})).await;
    let generation = pools.get("stormy").await.unwrap().metadata.generation;
    eventually(PATIENCE, "the change of the spec is observed", async || {
        let observed = pools.get("stormy").await?.status.and_then(|status| status.observed_generation);
        if observed == generation { Ok(Some(())) } else { bail!("{observed:?}") }
    })
    .await
    .unwrap();
    let storm = passes().await - before;
    // One for the spec, one for the event of the status write, and those that two new nodes may still cause.
    assert!((1.0..=6.0).contains(&storm), "{storm} passes for 200 foreign writes and one change of the spec");
    env.end().await.unwrap();
}
