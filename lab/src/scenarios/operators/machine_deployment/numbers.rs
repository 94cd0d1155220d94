//! Two scalers that write the number of a `MachineDeployment`: what the server refuses, and what it records.

use anyhow::{Context as _, Result};
use conflict_retry::{Class, Verb, is_conflict};
use kube::api::PostParams;
use kube::core::subresource::Scale;
use serde_json::json;

use super::machines::{WORKERS, Workers};
use super::{deployments, scale_from_to};
use crate::context::Actor;

/// Annotation on an object that Cluster API's controllers leave alone.
const PAUSED: &str = "cluster.x-k8s.io/paused";

/// Begins and ends with 3 machines.
pub(super) async fn play(workers: &Workers<'_>, alice: &Actor, bob: &Actor) -> Result<()> {
    let ctx = workers.tandem.ctx;
    ctx.say("Two clients scale one MachineDeployment. It is paused meanwhile, so that no machine is created or deleted. Alice reads the count, 3, and wants 5. Bob sets 4.");
    workers.annotate(PAUSED, Some("")).await?;
    let seen = deployments(alice).get_scale(WORKERS).await?;
    scale_from_to(bob, 3, 4).await?;
    let version = seen.metadata.resource_version.as_deref();
    let answer = replace(alice, version.context("no version")?, 5).await;
    ctx.check(
        "her PUT to /scale at the version that she read is refused with 409",
        answer.is_err_and(|error| is_conflict(&error)),
    );
    let answer = scale_from_to(alice, 3, 5).await;
    ctx.check_eq(
        "a JSON Patch that tests her 3 is refused with 422",
        &answer.err().map(|error| Class::of(Verb::JsonPatch, &error)),
        &Some(Class::TestFailed),
    );
    let answer = replace(alice, "", 5).await;
    ctx.check("a PUT without a version is granted", answer.is_ok());
    ctx.check_eq("and Bob's 4 is lost without a word", &workers.number().await?, &5);
    writers(workers).await?;
    scale_from_to(alice, 5, 3).await?;
    workers.annotate(PAUSED, None).await
}

/// Who wrote the number, by `managedFields`.
async fn writers(workers: &Workers<'_>) -> Result<()> {
    let ctx = workers.tandem.ctx;
    let deployment = workers.deployment().await?;
    let mut found = Vec::new();
    for entry in deployment.metadata.managed_fields.iter().flatten() {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        if fields.is_some_and(|fields| fields.pointer("/f:spec/f:replicas").is_some()) {
            found.push(json!({
                "manager": entry.manager, "subresource": entry.subresource, "operation": entry.operation,
                "time": entry.time,
            }));
        }
    }
    let wanted = json!({"manager": "alice", "subresource": "scale", "operation": "Update", "time": null});
    ctx.check_eq(
        "managedFields names the last writer of the number, Alice through /scale, and not when: there is no time",
        &found,
        &vec![wanted],
    );
    Ok(())
}

/// A PUT to `/scale` at this version; an empty one is left out.
#[expect(clippy::disallowed_methods, reason = "the naive half: a bare PUT to /scale")]
async fn replace(actor: &Actor, version: &str, replicas: i32) -> Result<Scale, kube::Error> {
    let mut scale = Scale::default();
    scale.metadata.name = Some(WORKERS.to_owned());
    scale.metadata.namespace = Some(actor.namespace().to_owned());
    scale.metadata.resource_version = (!version.is_empty()).then(|| version.to_owned());
    scale.spec.get_or_insert_default().replicas = Some(replicas);
    let params = PostParams { field_manager: Some(actor.name().to_owned()), ..PostParams::default() };
    deployments(actor).replace_scale(WORKERS, &params, &scale).await
}
