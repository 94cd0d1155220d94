//! An object that does not fit the Rust type: neither a read nor the answer to a write can be decoded.

use std::sync::Arc;

use conflict_retry::{Class, UpdateDecision, Verb, WriteOptions};
use kube::Api;
use kube::api::{ApiResource, Patch, PatchParams};
use kube::core::{GroupVersionKind, NotUsed, Object};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::bench::{Bench, Counts, Ending, NAMESPACE, Table, cached, connect, make, typed};
use crate::refused::dynamic;

/// What the program takes a widget for. In the API server, `text` is a text.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Numbered {
    text: u32,
}

/// The API server answers 200 to each of these requests, so its audit log has no failure where the write functions have one.
pub(crate) async fn undecodable(bench: &Bench, table: &mut Table) {
    let widgets = &dynamic(&bench.admin, NAMESPACE, "example.com", "Widget", "widgets");
    let body = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "odd"}, "spec": {"text": "many"},
    });
    let widget = make(widgets, body).await;
    let client = connect(bench.cluster.kubeconfig_path(), "undecodable", |_| {}).await;
    let kind =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Widget"), "widgets");
    let mistaken: &Api<Object<Numbered, NotUsed>> = &Api::namespaced_with(client, NAMESPACE, &kind);
    table.answer(
        "an object of another type, GET",
        Verb::Get,
        mistaken.get("odd").await,
        0,
        &Class::Undecodable,
    );
    let counts = Arc::new(Counts::default());
    let options = &WriteOptions::new("undecodable").with_observer(counts.clone());
    let outcome =
        conflict_retry::update(mistaken, "odd", |_| UpdateDecision::Write).with(options).outcome().await;
    let (found, sent) = (outcome.ending(), counts.take());
    let wanted = ("error: undecodable", "get!undecodable");
    table.check(&format!("update: {found} by {sent}"), (&*found, &*sent) == wanted);

    let patch = Patch::Merge(json!({"spec": {"text": "more"}}));
    let answer = mistaken.patch("odd", &PatchParams::default(), &patch).await;
    table.answer("an object of another type, merge patch", Verb::MergePatch, answer, 0, &Class::Ambiguous);
    let stored = widgets.get("odd").await.unwrap();
    table.check("the patch was carried out", stored.data["spec"]["text"] == "more");
    // A copy that fits, at the version that is stored.
    let mut copy = json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"text": 1}});
    copy["metadata"] = serde_json::to_value(&stored.metadata).unwrap();
    let copy: Object<Numbered, NotUsed> = typed(copy);
    let outcome = conflict_retry::merge_patch(mistaken, "odd", |_: &Object<Numbered, NotUsed>| {
        Some(json!({"spec": {"text": "most"}}))
    })
    .with(options)
    .from(cached(&copy))
    .outcome()
    .await;
    let (found, sent) = (outcome.ending(), counts.take());
    let right = (&*found, &*sent) == ("error: undecodable", "merge_patch!ambiguous get!undecodable")
        && outcome.is_err_and(|error| error.maybe_written());
    table.check(&format!("merge_patch: {found}, maybe written, by {sent}"), right);
    let stored = widgets.get("odd").await.unwrap();
    let same = stored.metadata.uid == widget.metadata.uid;
    table.check("it was carried out once", same && stored.data["spec"]["text"] == "most");
}
