//! A pool whose replicas must not be written affects only itself: the other pools are served as usual.

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use shared_crds::NodePool;
use testbed::audit::Event;
use testbed::objects;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

use super::{has_count, unschedulable};

/// The policy's message.
const REFUSAL: &str = "the budget of this team is spent";

/// After this many consecutive refusals the next attempt waits for six seconds at least, and later ones for up to a minute.
const MANY: usize = 8;

/// In how many of these waits the test tries to have two pods served. A later one is longer, so that a busy machine gets it done, too.
const WAITS: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_may_not_be_written_does_not_slow_the_others() {
    let env = TestEnv::begin("refused", &[]).await.unwrap();
    for pool in ["refused", "served"] {
        env.create(&objects::pool(pool, 0, 10)).await.unwrap();
    }
    env.create(&objects::autoscaler("all", 600)).await.unwrap();
    for pool in ["refused", "served"] {
        has_count(&env, pool, 0).await;
        env.settles(pool, 0).await.unwrap();
    }
    let policy = Policy::begin(&env, "refused").await.unwrap();
    let start = env.audit().unwrap().end().unwrap();
    env.create(&objects::deployment("waits", "refused", 1, "1")).await.unwrap();
    let refusals = |events: &[Event]| scales(&env, events, "refused", 422).len();
    let often = |events: &[Event]| (refusals(events) >= MANY).then_some(());
    env.audit().unwrap().wait_for(start, PATIENCE, "the pool is refused many times", often).await.unwrap();

    // The other pool grows twice while the refused one waits: passes that waited for it would try its write again.
    let so_far = || refusals(&env.audit().unwrap().follow_from(start).read_new().unwrap());
    let mut served = 0;
    for wait in 1.. {
        let refused = so_far();
        for _ in 0..2 {
            served += 1;
            // Each needs a node of its own.
            env.create(&objects::deployment(&format!("web-{served}"), "served", 1, "3")).await.unwrap();
            let grown =
                |events: &[Event]| (scales(&env, events, "served", 200).len() >= served).then_some(());
            env.audit().unwrap().wait_for(start, PATIENCE, "the other pool grows", grown).await.unwrap();
        }
        if so_far() == refused {
            break;
        }
        assert!(wait < WAITS, "each time with the refused pool\n{}", env.operators.autoscaler.log_tail());
        let (now, what) = (so_far(), "the pool is refused once more");
        let again = |events: &[Event]| (refusals(events) > now).then_some(());
        env.audit().unwrap().wait_for(start, PATIENCE, what, again).await.unwrap();
    }
    // Nor does a pass with a refused write count as failed: then the next one would wait for five seconds, whatever happens. On a
    // busy machine a pass may fail for another reason.
    let log = std::fs::read_to_string(env.operators.autoscaler.log_path()).unwrap();
    let said = |what: &str| log.lines().filter(|line| line.contains(what) && line.contains(REFUSAL)).count();
    assert_eq!(said("reconcile failed"), 0, "{}", env.operators.autoscaler.log_tail());
    // The control: the log has the server's message where a write fails.
    assert_ne!(said("write failed"), 0, "{}", env.operators.autoscaler.log_tail());
    env.settles("served", i32::try_from(served).unwrap()).await.unwrap();

    // The pool reports the error with the server's message, and is not retried in a tight loop.
    let able = able(&env, "False").await.unwrap();
    assert!(able.contains(REFUSAL), "{able}");
    unschedulable(&env, "waits", 1).await;
    let all = env.audit().unwrap().follow_from(start).read_new().unwrap();
    assert!(refusals(&all) < 3 * MANY, "{} refusals", refusals(&all));

    // Once the cause is gone the pool is served, immediately if the pool itself changes, and reports it.
    policy.end().await.unwrap();
    env.kubectl(&["label", "npool/refused", "budget=granted"]).await.unwrap();
    env.settles("refused", 1).await.unwrap();
    self::able(&env, "True").await.unwrap();
    env.end().await.unwrap();
}

/// The answers with `code` to the Autoscaler's writes of the replicas of `pool`.
pub(super) fn scales<'a>(env: &TestEnv, events: &'a [Event], pool: &str, code: u16) -> Vec<&'a Event> {
    let key = env.key(pool);
    let of_pool = events.iter().filter(|event| event.is_write() && event.object.as_ref() == Some(&key));
    // Of the object itself, the Autoscaler writes only the count.
    let scales = of_pool.filter(|event| matches!(&*event.subresource, "" | "scale") && event.code == code);
    scales.filter(|event| event.user.contains("autoscaler")).collect()
}

/// Waits until the condition `AbleToScale` of the refused pool has this status, and returns its message.
async fn able(env: &TestEnv, status: &str) -> Result<String> {
    eventually(PATIENCE, &format!("AbleToScale is {status}"), async || {
        let conditions = env.pool("refused").await?.status.unwrap_or_default().conditions;
        let able = conditions.into_iter().find(|c| c.type_ == "AbleToScale").context("no AbleToScale")?;
        ensure!(able.status == status, "{able:?}");
        Ok(Some(able.message))
    })
    .await
}

/// A policy that refuses every write to the replicas of one pool.
pub(super) struct Policy {
    policies: Api<ValidatingAdmissionPolicy>,
    bindings: Api<ValidatingAdmissionPolicyBinding>,
    pools: Api<NodePool>,
    name: String,
    pool: String,
}

impl Policy {
    pub(super) async fn begin(env: &TestEnv, pool: &str) -> Result<Self> {
        let name = format!("refuses-{}", env.namespace());
        let here = json!({"matchLabels": {"kubernetes.io/metadata.name": env.namespace()}});
        let scale = json!({"apiGroups": ["tandem.dev"], "apiVersions": ["*"], "operations": ["UPDATE"],
            "resources": ["nodepools", "nodepools/scale"]});
        // An unset count is absent both in the object and in its scale.
        let same = "has(object.spec.replicas) == has(oldObject.spec.replicas) && (!has(object.spec.replicas) || \
                    object.spec.replicas == oldObject.spec.replicas)";
        let policy = serde_json::from_value(json!({"metadata": {"name": name}, "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"namespaceSelector": here, "resourceRules": [scale]},
            "validations": [{"expression": format!("object.metadata.name != '{pool}' || ({same})"), "message": REFUSAL}],
        }}))?;
        let binding = serde_json::from_value(json!({"metadata": {"name": name}, "spec": {
            "policyName": name, "validationActions": ["Deny"],
        }}))?;
        let policies = Api::all(env.client.clone());
        let bindings = Api::all(env.client.clone());
        policies.create(&PostParams::default(), &policy).await?;
        bindings.create(&PostParams::default(), &binding).await?;
        let this = Self { policies, bindings, pools: env.api(), name, pool: pool.to_owned() };
        // The API server gets its policies from a watch, shortly after.
        eventually(PATIENCE, "the policy is in force", async || match this.probe().await {
            Err(kube::Error::Api(status)) if status.message.contains(REFUSAL) => Ok(Some(())),
            other => bail!("a write was answered: {other:?}"),
        })
        .await?;
        Ok(this)
    }

    /// A write that changes nothing: a dry run passes admission like any other write.
    async fn probe(&self) -> Result<(), kube::Error> {
        let options = PatchParams { dry_run: true, ..PatchParams::default() };
        let patch = Patch::Merge(json!({"spec": {"replicas": 1}}));
        self.pools.patch_scale(&self.pool, &options, &patch).await.map(drop)
    }

    pub(super) async fn end(self) -> Result<()> {
        self.bindings.delete(&self.name, &DeleteParams::default()).await?;
        self.policies.delete(&self.name, &DeleteParams::default()).await?;
        eventually(PATIENCE, "the policy is gone", async || Ok(Some(self.probe().await?))).await
    }
}
