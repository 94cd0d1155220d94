//! An unchanged object whose stored form changes: the server writes it again.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testbed::wait::eventually;

use crate::context::{Actor, PATIENCE, ScenarioContext};
use crate::event::Table;
use crate::pool::GROUP;

/// The definition that this scenario creates, changes, and deletes.
const DEFINITION: &str = "notes.lab.tandem.dev";
/// The object's name.
const NAME: &str = "hello";

/// Changes the storage version under an object, and sends the object as it is.
#[expect(clippy::disallowed_methods, reason = "a definition that only this scenario writes")]
pub(super) async fn changes(ctx: &ScenarioContext, alice: &Actor) -> Result<()> {
    ctx.say("And there is how an object is encoded. A third kind is defined, Note, which the server takes as v1 and as v2, and stores as v1.");
    let definitions = Api::<CustomResourceDefinition>::all(ctx.unrecorded_client().await?);
    let definition = serde_json::from_value(definition(&run_label(ctx).await?))?;
    definitions.create(&PostParams::default(), &definition).await.context("cannot make the definition")?;
    let played = play(ctx, alice, &definitions).await;
    let removed = definitions.delete(DEFINITION, &DeleteParams::default()).await;
    played?;
    removed.context("cannot take the definition away").map(drop)
}

#[expect(clippy::disallowed_methods, reason = "shows the bare PUT")]
async fn play(
    ctx: &ScenarioContext,
    alice: &Actor,
    definitions: &Api<CustomResourceDefinition>,
) -> Result<()> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1", "Note"), "notes");
    let unseen =
        Api::<DynamicObject>::namespaced_with(ctx.unrecorded_client().await?, ctx.namespace(), &resource);
    eventually(PATIENCE, "notes are served", async || {
        Ok(Some(unseen.list(&ListParams::default().limit(1)).await?))
    })
    .await?;
    let notes = Api::<DynamicObject>::namespaced_with(alice.client(), ctx.namespace(), &resource);
    let note = DynamicObject::new(NAME, &resource).data(json!({"spec": {"text": "hello"}}));
    let made = notes.create(&PostParams::default(), &note).await?;
    let put = async |note: &DynamicObject| notes.replace(NAME, &PostParams::default(), note).await;
    let mut table = Table::new(&["Alice PUTs the note as it is", "version"]);
    let same = put(&made).await?;
    table.row(&[&"stored as v1", &version_change(&made, &same)]);
    ctx.check_eq(
        "sent again as it is, the version stays",
        &same.resource_version(),
        &made.resource_version(),
    );

    let stored_as_v2 = Patch::Merge(json!({"spec": {"versions": versions("v2")}}));
    definitions.patch(DEFINITION, &PatchParams::default(), &stored_as_v2).await?;
    let what = "Now the definition says: stored as v2. It says nothing else, and the note is not changed. Alice PUTs it as it is, until the server goes by the new definition.";
    let rewritten = async {
        eventually(PATIENCE, "the storage version changes", async || {
            let answer = put(&made).await?;
            if answer.resource_version() == made.resource_version() {
                bail!("the version stays")
            }
            Ok(Some(answer))
        })
        .await
    };
    let moved = ctx.racing(what, rewritten).await?;
    table.row(&[&"stored as v2 from now on", &version_change(&made, &moved)]);
    ctx.check(
        "one of them moves the version: the server has stored the same note anew",
        moved.resource_version() != made.resource_version(),
    );
    ctx.check(
        "content, generation and managedFields are as they were",
        (&moved.data, moved.metadata.generation, moved.managed_fields())
            == (&made.data, made.metadata.generation, made.managed_fields()),
    );
    let again = put(&moved).await?;
    table.row(&[&"once more", &version_change(&moved, &again)]);
    ctx.check_eq("once more, and it stays again", &again.resource_version(), &moved.resource_version());
    ctx.table(table);
    ctx.say("By the source of the API server a new encryption key has the same effect, which is not shown here. One article reports a no-op update that moved the version from 19022 to 19023; which of these moved it, if any, is not known.");
    Ok(())
}

fn version_change(before: &DynamicObject, after: &DynamicObject) -> &'static str {
    if after.resource_version() == before.resource_version() { "stays" } else { "moves" }
}

/// The run's label for the definition, so that it is removed from a user's cluster even after an interruption.
async fn run_label(ctx: &ScenarioContext) -> Result<BTreeMap<String, String>> {
    let namespaces = Api::<Namespace>::all(ctx.unrecorded_client().await?);
    let labels =
        namespaces.get(ctx.namespace()).await.context("the scenario's namespace is gone")?.metadata.labels;
    let of_run = labels.into_iter().flatten().filter(|(key, _)| key == crate::cluster_pool::RUN_LABEL);
    Ok(of_run.collect())
}

fn definition(labels: &BTreeMap<String, String>) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": DEFINITION, "labels": labels},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": "Note", "plural": "notes", "singular": "note"},
            "versions": versions("v1"),
        },
    })
}

/// Two versions that differ only in their names; one of them is stored.
fn versions(stored: &str) -> Value {
    let text = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": text}}});
    ["v1", "v2"]
        .map(|name| json!({"name": name, "served": true, "storage": name == stored, "schema": schema}))
        .into_iter()
        .collect()
}
