//! Answers that depend on the moment.

use std::num::NonZeroU32;

use anyhow::{Context as _, Result};
use conflict_retry::{
    EvictOutcome, RetryPolicy, Source, UpdateDecision, WriteError, WriteOptions, evict, update,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Patch, PatchParams};
use kube::{Api, Config};
use serde_json::json;

use super::person::VISITOR;
use super::{Expected, NAME, Trial, word};
use crate::context::ScenarioContext;
use crate::event::Table;

/// Name of the pod, and of the budget that holds it.
const WEB: &str = "web";

/// Nothing listens there, unless somebody has set up a service that has been out of use for decades.
const NOBODY: &str = "http://127.0.0.1:1";

pub(super) async fn all(ctx: &ScenarioContext, table: &mut Table) -> Result<()> {
    hold_a_pod(ctx).await?;
    let trial = Trial::of_alice(ctx).await?;
    let ended = evict(&trial.actor.api::<Pod>(), WEB, &trial.options, None).await;
    let expected = Expected {
        what: "eviction: a budget holds the pod",
        code: 429,
        class: "throttled",
        ends: "blocked",
        requests: 1,
        deserves: "wait, and try again",
    };
    trial.end(ctx, table, &expected, ended.as_ref().map_or_else(WriteError::category, EvictOutcome::label));

    let mut config = Config::new(NOBODY.parse()?);
    config.default_retry = false;
    let trial = Trial::new(ctx.actor_with("alice", config)?);
    let twice = RetryPolicy::default().with_max_attempts(NonZeroU32::MIN.saturating_add(1));
    let options: WriteOptions = trial.options.clone().with_policy(twice.with_deadline(None));
    let ended = update(&trial.pools(), NAME, &options, Source::Live, |_| UpdateDecision::Write).await;
    let expected = Expected {
        what: "nobody answers at the address",
        code: 0,
        class: "transient",
        ends: "exhausted",
        requests: 2,
        deserves: "wait, and try again",
    };
    trial.end(ctx, table, &expected, word(&ended));
    Ok(())
}

/// A pod that counts as running, and a budget that asks for it. No kubelet and no scheduler is needed.
#[expect(clippy::disallowed_methods, reason = "sets the scene")]
async fn hold_a_pod(ctx: &ScenarioContext) -> Result<()> {
    let labels = json!({"app": WEB});
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": WEB, "labels": labels},
        "spec": {
            "serviceAccountName": VISITOR,
            "automountServiceAccountToken": false,
            "schedulerName": "nobody",
            "containers": [{"name": WEB, "image": "never-pulled"}],
        },
    }))?;
    ctx.set(&pod).await?;
    let pods = Api::<Pod>::namespaced(ctx.unrecorded_client().await?, ctx.namespace());
    // One that is pending would be let go whatever the budget says.
    let running = Patch::Merge(json!({"status": {"phase": "Running"}}));
    pods.patch_status(WEB, &PatchParams::default(), &running).await.context("the pod does not run")?;
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": WEB},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
    }))?;
    ctx.set(&budget).await?;
    Ok(())
}
