//! Answers that depend on the current state of the cluster.

use std::num::NonZeroU32;

use anyhow::{Context as _, Result};
use conflict_retry::{EvictOutcome, RetryPolicy, UpdateDecision, WriteError, WriteOptions, once, update};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Patch, PatchParams};
use kube::{Api, Config};
use serde_json::json;

use super::identity::NO_RIGHTS;
use super::{ErrorCase, Expected, NAME, label};
use crate::context::ScenarioContext;
use crate::event::Table;

/// Name of the pod, and of the disruption budget that protects it.
const WEB: &str = "web";

/// No server listens on this port, which belongs to a service that has been out of use for decades.
const NO_SERVER: &str = "http://127.0.0.1:1";

pub(super) async fn all(ctx: &ScenarioContext, table: &mut Table) -> Result<()> {
    hold_a_pod(ctx).await?;
    let case = ErrorCase::of_alice(ctx).await?;
    let ended = once::evict(&case.actor.api::<Pod>(), WEB, &case.options, None).await;
    let expected = Expected {
        what: "eviction: a budget holds the pod",
        code: 429,
        class: "throttled",
        ends: "blocked",
        requests: 1,
        deserves: "wait, and try again",
    };
    case.end(ctx, table, &expected, ended.as_ref().map_or_else(WriteError::category, EvictOutcome::label));

    let mut config = Config::new(NO_SERVER.parse()?);
    config.default_retry = false;
    let case = ErrorCase::new(ctx.actor_with("alice", config)?);
    let twice = RetryPolicy::default().with_max_attempts(NonZeroU32::MIN.saturating_add(1));
    let options: WriteOptions = case.options.clone().with_policy(twice.with_deadline(None));
    let ended = update(&case.pools(), NAME, |_| UpdateDecision::Write).put().with(&options).outcome().await;
    let expected = Expected {
        what: "no server answers at the port",
        code: 0,
        class: "transient",
        ends: "exhausted",
        requests: 2,
        deserves: "wait, and try again",
    };
    case.end(ctx, table, &expected, label(&ended));
    Ok(())
}

/// A pod that counts as running, and a budget that requires it. Neither a kubelet nor a scheduler is needed.
#[expect(clippy::disallowed_methods, reason = "the setup is not a controller's write")]
async fn hold_a_pod(ctx: &ScenarioContext) -> Result<()> {
    let labels = json!({"app": WEB});
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": WEB, "labels": labels},
        "spec": {
            "serviceAccountName": NO_RIGHTS,
            "automountServiceAccountToken": false,
            "schedulerName": "none",
            "containers": [{"name": WEB, "image": "never-pulled"}],
        },
    }))?;
    ctx.set(&pod).await?;
    let pods = Api::<Pod>::namespaced(ctx.unrecorded_client().await?, ctx.namespace());
    // A pending pod could be evicted whatever the budget says.
    let running = Patch::Merge(json!({"status": {"phase": "Running"}}));
    pods.patch_status(WEB, &PatchParams::default(), &running).await.context("the pod does not run")?;
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": WEB},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
    }))?;
    ctx.set(&budget).await?;
    Ok(())
}
