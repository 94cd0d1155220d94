//! When the pods of a pool that cannot be written go to another pool, which may be dearer: at once when the write is
//! denied, and otherwise only when the fault lasts.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use shared_crds::NodePool;
use shared_crds::v1alpha1::Expander;
use testbed::audit::Event;
use testbed::control_plane::ports::free_port;
use testbed::fault_proxy::{FaultProxy, InjectedRefusal};
use testbed::objects;
use testbed::operators::OperatorKind;
use testbed::test_env::{EXITS, PATIENCE, TestEnv};
use testbed::wait::eventually;

use super::has_count;
use super::refused::{Policy, scales};

/// How long a fault lasts that is over soon.
const MOMENT: Duration = Duration::from_secs(2);

/// A fault that lasts for so long sends pods to another pool.
const LASTING: Duration = Duration::from_secs(30);

/// It is met in so many attempts at least, also where each takes long.
const LASTING_ATTEMPTS: usize = 3;

/// Two pools without nodes that take the same pods, of which `dear` is the last resort.
async fn two_pools(env: &TestEnv) {
    for (name, weight) in [("cheap", 10), ("dear", 1)] {
        let mut pool = objects::pool(name, 0, 10);
        pool.spec.weight = Some(weight);
        let labels = &mut pool.spec.template.metadata.get_or_insert_default().labels;
        labels.insert("pool".to_owned(), "either".to_owned());
        env.create(&pool).await.unwrap();
    }
    let mut autoscaler = objects::autoscaler("all", 600);
    autoscaler.spec.expander = Expander::Priority;
    env.create(&autoscaler).await.unwrap();
    for name in ["cheap", "dear"] {
        has_count(env, name, 0).await;
        env.settles(name, 0).await.unwrap();
    }
}

/// A pod that needs a node of its own.
async fn pod(env: &TestEnv, name: &str) {
    env.create(&objects::deployment(name, "either", 1, "3")).await.unwrap();
}

/// Replaces the Autoscaler by one whose requests go through a proxy.
async fn behind_a_proxy(env: &mut TestEnv) -> FaultProxy {
    let proxy = FaultProxy::start(env.cluster).await.unwrap();
    let replica = env.release.pod(env.cluster, OperatorKind::Autoscaler).await.unwrap();
    env.operators.autoscaler.stop(EXITS).await.unwrap();
    env.operators.autoscaler = replica.start_through(env.cluster, &proxy).await.unwrap();
    proxy
}

/// Every request about the object `cheap` itself, and none about its status.
fn of_cheap(code: u16) -> InjectedRefusal {
    InjectedRefusal { target: "/nodepools/cheap?".to_owned(), code, one_in: 1 }
}

/// Checks that `dear` never grew.
fn stayed_small(env: &TestEnv) {
    let events = env.events().unwrap();
    let grown = scales(env, &events, "dear", 200);
    assert!(grown.is_empty(), "{grown:#?}\n{}", env.operators.autoscaler.log_tail());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_that_is_over_in_a_moment_sends_no_pods_to_another_pool() {
    let mut env = TestEnv::begin("moment", &[]).await.unwrap();
    let proxy = behind_a_proxy(&mut env).await;
    two_pools(&env).await;
    for (code, nodes) in [(500, 1), (401, 2), (403, 3), (429, 4), (503, 5)] {
        proxy.refuse(of_cheap(code));
        pod(&env, &format!("web-{code}")).await;
        eventually(PATIENCE, &format!("writes are answered with {code}"), async || {
            env.operators.keep_alive().await?;
            Ok((proxy.refused() >= 2).then_some(()))
        })
        .await
        .unwrap();
        tokio::time::sleep(MOMENT).await;
        stayed_small(&env);
        proxy.stop_refusing();
        env.settles("cheap", nodes).await.unwrap();
        env.says("cheap", "AbleToScale", ("True", "", "")).await.unwrap();
    }
    stayed_small(&env);
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_that_lasts_sends_pods_to_another_pool_and_the_pool_says_so() {
    let mut env = TestEnv::begin("lasts", &[]).await.unwrap();
    let proxy = behind_a_proxy(&mut env).await;
    two_pools(&env).await;
    // The control: how long a pod's node takes here.
    let asked = Instant::now();
    pod(&env, "before").await;
    env.settles("cheap", 1).await.unwrap();
    let usual = asked.elapsed();
    proxy.refuse(of_cheap(500));
    let began = Instant::now();
    pod(&env, "web").await;
    env.says("cheap", "AbleToScale", ("False", "FailedUpdateScale", "refused by the test")).await.unwrap();
    env.settles("dear", 1).await.unwrap();
    assert!(began.elapsed() >= LASTING, "after {:?}", began.elapsed());
    let other = ("False", "FailedUpdateScale", "other pools are used for now");
    env.says("cheap", "AbleToScale", other).await.unwrap();
    // What is known of the fault is not found out again for each pod: that takes many attempts, and one shows that it still lasts.
    let (found_out, asked) = (proxy.refused(), Instant::now());
    pod(&env, "more").await;
    env.settles("dear", 2).await.unwrap();
    let (again, took) = (proxy.refused() - found_out, asked.elapsed());
    assert!(2 * again <= found_out, "{again} requests were refused, after {found_out} for the first pod");
    assert!(took < LASTING / 2 + usual * 3, "after {took:?}, where {usual:?} are usual");
    proxy.stop_refusing();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_write_sends_pods_to_another_pool_at_once() {
    let env = TestEnv::begin("denied", &[]).await.unwrap();
    two_pools(&env).await;
    let policy = Policy::begin(&env, "cheap").await.unwrap();
    let start = env.audit().unwrap().end().unwrap();
    pod(&env, "web").await;
    let answered = |events: &[Event]| {
        let grown = scales(&env, events, "dear", 200).first()?.received;
        let mut denied = scales(&env, events, "cheap", 422);
        denied.retain(|event| event.received < grown);
        let first = denied.iter().map(|event| event.completed).min()?;
        Some((denied.len(), Duration::try_from(grown.duration_since(first)).unwrap_or_default()))
    };
    let (denied, took) =
        env.audit().unwrap().wait_for(start, PATIENCE, "the other pool grows", answered).await.unwrap();
    // A fault that has to last is met for that long and that often, on any machine. A denial is met once, and again only where the next
    // pass begins later than the pause ends.
    let at_once = denied < LASTING_ATTEMPTS || took < LASTING / 2;
    assert!(at_once, "{denied} denials in {took:?}\n{}", env.operators.autoscaler.log_tail());
    env.settles("dear", 1).await.unwrap();
    policy.end().await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_is_down_for_a_moment_sends_no_pods_to_another_pool() {
    let env = TestEnv::begin("webhook", &[]).await.unwrap();
    two_pools(&env).await;
    let webhook = DeadWebhook::begin(&env).await.unwrap();
    let start = env.audit().unwrap().end().unwrap();
    pod(&env, "web").await;
    let failed = |events: &[Event]| (scales(&env, events, "cheap", 500).len() >= 2).then_some(());
    env.audit().unwrap().wait_for(start, PATIENCE, "the webhook cannot be called", failed).await.unwrap();
    tokio::time::sleep(MOMENT).await;
    stayed_small(&env);
    webhook.end().await.unwrap();
    env.settles("cheap", 1).await.unwrap();
    stayed_small(&env);
    env.end().await.unwrap();
}

/// A webhook whose port is dead, so that the writes of `cheap` fail closed.
struct DeadWebhook {
    configurations: Api<ValidatingWebhookConfiguration>,
    pools: Api<NodePool>,
    name: String,
}

impl DeadWebhook {
    async fn begin(env: &TestEnv) -> Result<Self> {
        let port = free_port()?;
        let name = format!("dead-{}.example.org", env.namespace());
        let here = json!({"matchLabels": {"kubernetes.io/metadata.name": env.namespace()}});
        let configuration = serde_json::from_value(json!({
            "metadata": {"name": name},
            "webhooks": [{
                "name": name,
                "clientConfig": {"url": format!("https://127.0.0.1:{port}/")},
                "namespaceSelector": here,
                "rules": [{"apiGroups": ["tandem.dev"], "apiVersions": ["*"], "operations": ["UPDATE"],
                    "resources": ["nodepools", "nodepools/scale"]}],
                "matchConditions": [{"name": "cheap", "expression": "request.name == 'cheap'"}],
                "failurePolicy": "Fail",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
            }],
        }))?;
        let configurations = Api::all(env.client.clone());
        configurations.create(&PostParams::default(), &configuration).await?;
        let this = Self { configurations, pools: env.api(), name };
        eventually(PATIENCE, "the webhook is called", async || match this.probe().await {
            Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook") => {
                Ok(Some(()))
            }
            other => bail!("a write was answered: {other:?}"),
        })
        .await?;
        Ok(this)
    }

    /// A write that changes nothing.
    async fn probe(&self) -> Result<(), kube::Error> {
        let options = PatchParams { dry_run: true, ..PatchParams::default() };
        self.pools.patch_scale("cheap", &options, &Patch::Merge(json!({"spec": {"replicas": 1}}))).await?;
        Ok(())
    }

    async fn end(self) -> Result<()> {
        self.configurations.delete(&self.name, &DeleteParams::default()).await?;
        eventually(PATIENCE, "the webhook is gone", async || Ok(Some(self.probe().await?))).await
    }
}
