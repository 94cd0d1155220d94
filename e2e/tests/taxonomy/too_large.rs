//! Objects that are too large for etcd, for the gRPC message that carries them there, and for the API server.

use conflict_retry::{Class, UpdateDecision, Verb};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::bench::{Bench, NAMESPACE, Table};
use crate::refused::dynamic;

/// The widget of [`not_served`](crate::refused::not_served), with a text of so many bytes, by every kind of write.
pub(crate) async fn too_large(bench: &Bench, table: &mut Table) {
    use Class::TooLarge;
    let options = &table.options();
    let widgets = &dynamic(&bench.admin, NAMESPACE, "example.com", "Widget", "widgets");
    let watched = &dynamic(&bench.observed, NAMESPACE, "example.com", "Widget", "widgets");
    for (case, size, code) in [
        ("too big for etcd", 1_900_000, 500),
        ("too big to reach etcd", 2_900_000, 500),
        ("too big for the API server", 4_000_000, 413),
    ] {
        let spec = json!({"text": "x".repeat(size)});
        let mut widget = widgets.get("big").await.unwrap();
        widget.data = json!({"spec": spec});
        let answer = widgets.replace("big", &PostParams::default(), &widget).await;
        table.answer(&format!("{case}, PUT"), Verb::Put, answer, code, &TooLarge);
        let body = Patch::Merge(json!({"spec": spec}));
        let answer = widgets.patch("big", &PatchParams::default(), &body).await;
        table.answer(&format!("{case}, merge patch"), Verb::MergePatch, answer, code, &TooLarge);
        let body = json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "big"}, "spec": spec,
        });
        let answer = widgets.patch("big", &PatchParams::apply("taxonomy"), &Patch::Apply(&body)).await;
        table.answer(&format!("{case}, apply"), Verb::Apply, answer, code, &TooLarge);

        let grown = |widget: &mut DynamicObject| {
            widget.data = json!({"spec": spec});
            UpdateDecision::Write
        };
        let call = conflict_retry::update(watched, "big", grown).put().with(options).outcome();
        table.call("update, by PUT", call, "error: too_large", "get put!too_large").await;
        let call = conflict_retry::update(watched, "big", grown).with(options).outcome();
        table.call("update", call, "error: too_large", "get merge_patch!too_large").await;
        let call = conflict_retry::apply(watched, "big", &body).with(options).outcome();
        table.call("apply", call, "error: too_large", "apply!too_large").await;
    }
    let stored = widgets.get("big").await.unwrap();
    table.check("nothing was stored", stored.data.get("spec").is_none());
}
