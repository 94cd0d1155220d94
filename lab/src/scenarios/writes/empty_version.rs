//! A PUT with an empty resourceVersion: the reaction of each endpoint.

use std::fmt::Debug;

use anyhow::{Context as _, Result};
use conflict_retry::{Outcome, ScaleView, Subresource, WriteError, WriteOptions, once};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::code;
use crate::context::{Actor, ScenarioContext};
use crate::event::Table;
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "empty-version",
    title: "An update without a resourceVersion: ConfigMaps and /scale accept it, Leases and custom resources refuse it",
    rows: &["4i"],
    refutes: &["empty-version-ignores"],
    lesson: "What an empty resourceVersion means depends on the kind and the endpoint, so do not rely on it.\nSend the version that you read; if only you write the value, patch or apply it instead.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// The name of both objects.
const NAME: &str = "workers";

/// The API server's message for a PUT without a version, of a kind that wants one.
const REFUSAL: &str = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let (alice, bob) = (ctx.actor("alice").await?, ctx.actor("bob").await?);
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": NAME}, "data": {"colour": "red"}}))?;
    ctx.set(&map).await?;
    let mut table = Table::new(&["PUT without a version", "answer", "what became of the other's change"]);
    built_in(ctx, &alice, &bob, &mut table).await?;
    refusing(ctx, &alice, &bob, &mut table).await?;
    custom(ctx, &alice, &bob, &mut table).await?;
    scale(ctx, &alice, &bob, &mut table).await?;
    ctx.table(table);
    with_put_once(ctx, &alice).await
}

#[expect(clippy::disallowed_methods, reason = "shows the bare PUT")]
async fn built_in(ctx: &ScenarioContext, alice: &Actor, bob: &Actor, table: &mut Table) -> Result<()> {
    ctx.say(
        "A ConfigMap. Alice reads it, Bob adds a key, and Alice PUTs her copy with the version taken out.",
    );
    let maps = alice.api::<ConfigMap>();
    let mut copy = maps.get(NAME).await?;
    let patch = Patch::Merge(json!({"data": {"size": "large"}}));
    let between = bob.api::<ConfigMap>().patch(NAME, &PatchParams::default(), &patch).await?;
    copy.metadata.resource_version = None;
    copy.data.get_or_insert_default().insert("colour".into(), "blue".into());
    let answer = code(&maps.replace(NAME, &PostParams::default(), &copy).await);
    let data = ctx.stored::<ConfigMap>(NAME).await?.data.unwrap_or_default();
    ctx.check_eq("it is taken: 200", &answer, &200);
    ctx.check(
        "Bob's key was stored and is gone, without an error",
        between.data.is_some_and(|data| data.contains_key("size")) && !data.contains_key("size"),
    );
    table.row(&[&"a ConfigMap", &"200", &"lost"]);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "shows the bare PUT")]
async fn refusing(ctx: &ScenarioContext, alice: &Actor, bob: &Actor, table: &mut Table) -> Result<()> {
    ctx.say("Each built-in kind decides that for itself. A Lease, by which controllers elect a leader, in the same way:");
    let lease: Lease =
        serde_json::from_value(json!({"metadata": {"name": NAME}, "spec": {"holderIdentity": "nobody"}}))?;
    ctx.set(&lease).await?;
    let leases = alice.api::<Lease>();
    let mut copy = leases.get(NAME).await?;
    let patch = Patch::Merge(json!({"spec": {"holderIdentity": "bob"}}));
    bob.api::<Lease>().patch(NAME, &PatchParams::default(), &patch).await?;
    copy.metadata.resource_version = None;
    copy.spec.get_or_insert_default().holder_identity = Some("alice".to_owned());
    let answer = leases.replace(NAME, &PostParams::default(), &copy).await;
    ctx.check_eq("it is refused with 422", &code(&answer), &422);
    ctx.check("the server asks for the version", says(&answer, REFUSAL));
    let holder = ctx.stored::<Lease>(NAME).await?.spec.and_then(|spec| spec.holder_identity);
    ctx.check_eq("and Bob is still the holder", &holder.as_deref(), &Some("bob"));
    table.row(&[&"a Lease", &"422 Invalid", &"kept"]);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "shows the bare PUTs")]
async fn custom(ctx: &ScenarioContext, alice: &Actor, bob: &Actor, table: &mut Table) -> Result<()> {
    ctx.say("A custom resource, in the same way: the object itself, then its status.");
    ctx.set(&pool(NAME, 3)).await?;
    let pools = alice.api::<Pool>();
    let mut copy = pools.get(NAME).await?;
    let patch = Patch::Merge(json!({"spec": {"machine": "large"}}));
    bob.api::<Pool>().patch(NAME, &PatchParams::default(), &patch).await?;
    copy.metadata.resource_version = None;
    copy.spec.replicas = Some(9);
    copy.status = Some(serde_json::from_value(json!({"ready": 9}))?);
    let object = pools.replace(NAME, &PostParams::default(), &copy).await;
    let status = pools.replace_status(NAME, &PostParams::default(), &copy).await;
    for (what, answer) in [("a custom resource", object), ("its /status", status)] {
        ctx.check_eq(&format!("{what}: it is refused with 422"), &code(&answer), &422);
        ctx.check(&format!("{what}: the server asks for the version"), says(&answer, REFUSAL));
        table.row(&[&what, &"422 Invalid", &"kept"]);
    }
    let stored = ctx.stored::<Pool>(NAME).await?;
    ctx.check("nothing of it was written, and Bob's change is there", {
        stored.spec.replicas == Some(3)
            && stored.spec.machine.as_deref() == Some("large")
            && stored.status.is_none()
    });
    Ok(())
}

fn says<T: Debug>(answer: &Result<T, kube::Error>, text: &str) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.message.contains(text))
}

#[expect(clippy::disallowed_methods, reason = "shows the bare PUT")]
async fn scale(ctx: &ScenarioContext, alice: &Actor, bob: &Actor, table: &mut Table) -> Result<()> {
    ctx.say("The same custom resource through /scale. Alice reads the count 3, Bob sets 5, and Alice PUTs 4 without a version.");
    let pools = alice.api::<Pool>();
    let mut scale = pools.get_scale(NAME).await?;
    let patch = Patch::Merge(json!({"spec": {"replicas": 5}}));
    let between = bob.api::<Pool>().patch_scale(NAME, &PatchParams::default(), &patch).await?;
    scale.metadata.resource_version = None;
    scale.spec.get_or_insert_default().replicas = Some(4);
    let answer = code(&pools.replace_scale(NAME, &PostParams::default(), &scale).await);
    let stored = ctx.stored::<Pool>(NAME).await?.spec.replicas;
    ctx.check_eq("it is taken: 200", &answer, &200);
    ctx.check_eq(
        "Bob's 5 was stored and is gone, without an error: now it is 4",
        &(between.spec.and_then(|spec| spec.replicas), stored),
        &(Some(5), Some(4)),
    );
    table.row(&[&"its /scale", &"200", &"lost"]);
    Ok(())
}

async fn with_put_once(ctx: &ScenarioContext, alice: &Actor) -> Result<()> {
    ctx.say(
        "conflict_retry takes none of them: a copy without a version is refused before anything is sent.",
    );
    let options = WriteOptions::new("alice");
    let mut map = ctx.stored::<ConfigMap>(NAME).await?;
    map.metadata.resource_version = Some(String::new());
    let mut copy = ctx.stored::<Pool>(NAME).await?;
    copy.metadata.resource_version = None;
    let view = ScaleView::of(&copy, copy.spec.replicas, None);
    let before = alice.counts().requests;
    let pools = alice.api::<Pool>();
    let map = once::put(&alice.api(), NAME, Subresource::Main, &options, &map).await;
    let status = once::put(&pools, NAME, Subresource::Status, &options, &copy).await;
    let object = once::put(&pools, NAME, Subresource::Main, &options, &copy).await;
    let scale = once::put_scale(&pools, NAME, &options, &view, 7).await;
    ctx.check("once::put of the ConfigMap is refused", is_refused(&map));
    ctx.check(
        "once::put of the custom resource and of its status are refused",
        is_refused(&object) && is_refused(&status),
    );
    ctx.check("once::put_scale is refused", is_refused(&scale));
    ctx.check_eq("no request was sent", &(alice.counts().requests - before), &0);
    let refusal = scale.err().context("it was not refused")?;
    ctx.quote(&refusal.to_string());
    Ok(())
}

fn is_refused<T>(answer: &Result<Outcome<T>, WriteError>) -> bool {
    matches!(answer, Err(WriteError::Refused { .. }))
}
