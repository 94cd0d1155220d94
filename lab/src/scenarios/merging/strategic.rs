//! Strategic merge patches: which resources accept them.

use anyhow::{Context as _, Result, bail};
use conflict_retry::{Source, WriteOptions};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::context::{Actor, ScenarioContext};
use crate::event::version;
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "strategic-merge",
    title: "A strategic merge patch works on built-in kinds only; a custom resource answers 415",
    rows: &["4g"],
    refutes: &["strategic-merge"],
    lesson: "For a custom resource, use a merge patch with the resourceVersion instead of a strategic merge patch.\nOn a built-in kind both check the version in the same way.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

const NAME: &str = "workers";

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let alice = ctx.actor("alice").await?;
    let bob = ctx.actor("bob").await?;
    custom(ctx, &alice, &bob).await?;
    built_in(ctx, &alice, &bob).await
}

#[expect(
    clippy::disallowed_methods,
    reason = "the naive half: a strategic merge patch as the tutorials have it"
)]
async fn custom(ctx: &ScenarioContext, alice: &Actor, bob: &Actor) -> Result<()> {
    let seen = ctx.set(&pool(NAME, 3)).await?;
    ctx.say("Alice sends a strategic merge patch with the version she read to a pool, which is a custom resource.");
    let body = with_version(seen.metadata.resource_version.as_deref(), json!({"spec": {"replicas": 5}}))?;
    let answer = alice.api::<Pool>().patch(NAME, &PatchParams::default(), &Patch::Strategic(body)).await;
    let Err(kube::Error::Api(status)) = answer else {
        bail!("a strategic merge patch of a custom resource was taken");
    };
    ctx.check_eq(
        "the answer is 415 UnsupportedMediaType",
        &(status.code, status.reason.as_str()),
        &(415, "UnsupportedMediaType"),
    );
    ctx.say("conflict_retry::merge_patch sends a merge patch with the version. Alice wants 5, or 2 if they are large. Bob has made them large meanwhile, and she has an old copy.");
    let merge = Patch::Merge(json!({"spec": {"machine": "large"}}));
    bob.api::<Pool>().patch(NAME, &PatchParams::default(), &merge).await?;
    let options = WriteOptions::new("alice");
    let pools = alice.api::<Pool>();
    let source = Source::Copy(seen);
    let outcome = conflict_retry::merge_patch(&pools, NAME, |pool: &Pool| {
        let wanted = if pool.spec.machine.as_deref() == Some("large") { 2 } else { 5 };
        Some(json!({"spec": {"replicas": wanted}}))
    })
    .with(&options)
    .from(source)
    .outcome()
    .await?;
    let pool = outcome.met().context("it was not written")?;
    ctx.check_eq(
        "its version is checked, and she decides again from the newest pool",
        &(alice.counts().conflicts, pool.spec.replicas, pool.spec.machine.as_deref()),
        &(1, Some(2), Some("large")),
    );
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "each kind of patch is shown bare, by itself")]
async fn built_in(ctx: &ScenarioContext, alice: &Actor, bob: &Actor) -> Result<()> {
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": NAME}, "data": {"colour": "red"}}))?;
    ctx.set(&map).await?;
    ctx.say("A ConfigMap takes it. Bob writes between Alice's two patches, which carry the same version.");
    let maps = alice.api::<ConfigMap>();
    let seen = maps.get(NAME).await?.metadata.resource_version.context("no version")?;
    let patch = |key: &str| -> Result<Patch<Value>> {
        Ok(Patch::Strategic(with_version(Some(&seen), json!({"data": {key: "blue"}}))?))
    };
    let fresh = maps.patch(NAME, &PatchParams::default(), &patch("colour")?).await;
    ctx.check(&format!("from {}, the newest: granted", version(&seen)), fresh.is_ok());
    let other = Patch::Strategic(json!({"data": {"size": "small"}}));
    bob.api::<ConfigMap>().patch(NAME, &PatchParams::default(), &other).await?;
    let Err(kube::Error::Api(status)) = maps.patch(NAME, &PatchParams::default(), &patch("shape")?).await
    else {
        bail!("a stale strategic merge patch was taken");
    };
    ctx.check_eq(
        "from the same version, now old: 409",
        &(status.code, status.reason.as_str()),
        &(409, "Conflict"),
    );
    Ok(())
}

fn with_version(version: Option<&str>, mut body: Value) -> Result<Value> {
    body["metadata"] = json!({"resourceVersion": version.context("no version")?});
    Ok(body)
}
