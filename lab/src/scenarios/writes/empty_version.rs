//! A PUT with an empty resourceVersion: what each endpoint makes of it.

use std::fmt::Debug;

use anyhow::{Context as _, Result};
use conflict_retry::{Outcome, ScaleView, Subresource, WriteError, WriteOptions, put_once, scale_put_once};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::code;
use crate::event::Table;
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};
use crate::stage::{Actor, Stage};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "empty-version",
    title: "A PUT without a version: a ConfigMap takes it, a custom resource refuses it, its /scale takes it",
    rows: &["4i"],
    refutes: &["empty-version-ignores"],
    lesson: "What an empty resourceVersion means depends on the kind and the endpoint, so do not rely on either.\nSend the version that was read; if the value is yours alone, patch or apply it instead.",
    needs: Needs::ApiServer,
    run: |stage| Box::pin(run(stage)),
};

/// The name of both objects.
const NAME: &str = "workers";

/// What the API server says to a PUT of a custom resource without a version.
const REFUSAL: &str = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";

async fn run(stage: &Stage) -> Result<()> {
    let (alice, bob) = (stage.actor("alice").await?, stage.actor("bob").await?);
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": NAME}, "data": {"colour": "red"}}))?;
    stage.set(&map).await?;
    let mut table = Table::new(&["PUT without a version", "answer", "what became of the other's change"]);
    built_in(stage, &alice, &bob, &mut table).await?;
    custom(stage, &alice, &bob, &mut table).await?;
    scale(stage, &alice, &bob, &mut table).await?;
    stage.table(table);
    front_door(stage, &alice).await
}

#[expect(clippy::disallowed_methods, reason = "shows the bare PUT")]
async fn built_in(stage: &Stage, alice: &Actor, bob: &Actor, table: &mut Table) -> Result<()> {
    stage.say(
        "A ConfigMap. Alice reads it, Bob adds a key, and Alice PUTs her copy with the version taken out.",
    );
    let maps = alice.api::<ConfigMap>();
    let mut copy = maps.get(NAME).await?;
    let patch = Patch::Merge(json!({"data": {"size": "large"}}));
    let between = bob.api::<ConfigMap>().patch(NAME, &PatchParams::default(), &patch).await?;
    copy.metadata.resource_version = None;
    copy.data.get_or_insert_default().insert("colour".into(), "blue".into());
    let answer = code(&maps.replace(NAME, &PostParams::default(), &copy).await);
    let data = stage.stored::<ConfigMap>(NAME).await?.data.unwrap_or_default();
    stage.check_eq("it is taken: 200", &answer, &200);
    stage.check(
        "Bob's key was stored and is gone, without a word",
        between.data.is_some_and(|data| data.contains_key("size")) && !data.contains_key("size"),
    );
    table.row(&[&"a ConfigMap", &"200", &"lost"]);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "shows the bare PUTs")]
async fn custom(stage: &Stage, alice: &Actor, bob: &Actor, table: &mut Table) -> Result<()> {
    stage.say("A custom resource, in the same way: the object itself, then its status.");
    stage.set(&pool(NAME, 3)).await?;
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
        stage.check_eq(&format!("{what}: it is refused with 422"), &code(&answer), &422);
        stage.check(&format!("{what}: the server asks for the version"), says(&answer, REFUSAL));
        table.row(&[&what, &"422 Invalid", &"kept"]);
    }
    let stored = stage.stored::<Pool>(NAME).await?;
    stage.check("nothing of it was written, and Bob's change is there", {
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
async fn scale(stage: &Stage, alice: &Actor, bob: &Actor, table: &mut Table) -> Result<()> {
    stage.say("The same custom resource through /scale. Alice reads the count 3, Bob sets 5, and Alice PUTs 4 without a version.");
    let pools = alice.api::<Pool>();
    let mut scale = pools.get_scale(NAME).await?;
    let patch = Patch::Merge(json!({"spec": {"replicas": 5}}));
    let between = bob.api::<Pool>().patch_scale(NAME, &PatchParams::default(), &patch).await?;
    scale.metadata.resource_version = None;
    scale.spec.get_or_insert_default().replicas = Some(4);
    let answer = code(&pools.replace_scale(NAME, &PostParams::default(), &scale).await);
    let stored = stage.stored::<Pool>(NAME).await?.spec.replicas;
    stage.check_eq("it is taken: 200", &answer, &200);
    stage.check_eq(
        "Bob's 5 was stored and is gone, without a word: now it is 4",
        &(between.spec.and_then(|spec| spec.replicas), stored),
        &(Some(5), Some(4)),
    );
    table.row(&[&"its /scale", &"200", &"lost"]);
    Ok(())
}

async fn front_door(stage: &Stage, alice: &Actor) -> Result<()> {
    stage.say(
        "conflict_retry takes none of them: a copy without a version is refused before anything is sent.",
    );
    let options = WriteOptions::new("alice");
    let mut map = stage.stored::<ConfigMap>(NAME).await?;
    map.metadata.resource_version = Some(String::new());
    let mut copy = stage.stored::<Pool>(NAME).await?;
    copy.metadata.resource_version = None;
    let view = ScaleView::of(&copy, copy.spec.replicas, None);
    let before = alice.counts().requests;
    let pools = alice.api::<Pool>();
    let map = put_once(&alice.api(), NAME, Subresource::Main, &options, &map).await;
    let status = put_once(&pools, NAME, Subresource::Status, &options, &copy).await;
    let object = put_once(&pools, NAME, Subresource::Main, &options, &copy).await;
    let scale = scale_put_once(&pools, NAME, &options, &view, 7).await;
    stage.check("put_once of the ConfigMap is refused", is_refused(&map));
    stage.check(
        "put_once of the custom resource and of its status are refused",
        is_refused(&object) && is_refused(&status),
    );
    stage.check("scale_put_once is refused", is_refused(&scale));
    stage.check_eq("no request was sent", &(alice.counts().requests - before), &0);
    let refusal = scale.err().context("it was not refused")?;
    stage.quote(&refusal.to_string());
    Ok(())
}

fn is_refused<T>(answer: &Result<Outcome<T>, WriteError>) -> bool {
    matches!(answer, Err(WriteError::Refused { .. }))
}
