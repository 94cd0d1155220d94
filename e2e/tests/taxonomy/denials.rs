//! A webhook that denies with the code of a conflict: the code is the webhook's choice, and says nothing of the object.

use conflict_retry::{Class, UpdateDecision, Verb};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testbed::admission_webhook::AdmissionWebhook;
use testbed::wait::eventually;

use crate::bench::{Bench, PATIENCE, Table, cached, make, typed};

/// Denied with 409, with the reason of a stale version and without a reason: neither is a conflict, and neither is retried.
pub(crate) async fn denials(bench: &Bench, table: &mut Table) {
    let hooks = Api::<ValidatingWebhookConfiguration>::all(bench.admin.clone());
    let maps = &bench.set_up::<ConfigMap>();
    let watched = &bench.watched::<ConfigMap>();
    let options = &table.options();
    for (name, reason) in [("denied-conflict", "Conflict"), ("denied-unexplained", "")] {
        let status = json!({"code": 409, "reason": reason, "message": "another release is in progress"});
        let webhook = AdmissionWebhook::denying(&bench.cluster, &status).await.unwrap();
        make(&hooks, configuration(name, &webhook)).await;
        let fresh: ConfigMap = typed(json!({"metadata": {"name": name, "labels": {"hook": name}}}));
        let answer = eventually(PATIENCE, "the webhook is called", async || {
            Ok(maps.create(&PostParams { dry_run: true, ..PostParams::default() }, &fresh).await.err())
        });
        let answer = answer.await.unwrap();
        let case = format!("a webhook denies with 409 \"{reason}\", POST");
        table.answer(&case, Verb::Create, Err::<(), _>(answer), 409, &Class::Forbidden);
        let call = conflict_retry::once::create(watched, options, &fresh);
        table.call("create", call, "error: forbidden", "create!forbidden").await;

        // The webhook is asked about this one from now on.
        let there = format!("{name}-there");
        let map = bench.map(&there).await;
        let label = |map: &mut ConfigMap| {
            map.labels_mut().insert("hook".to_owned(), name.to_owned());
            UpdateDecision::Write
        };
        let mut labelled = map.clone();
        let _ = label(&mut labelled);
        let answer = maps.replace(&there, &PostParams::default(), &labelled).await;
        let case = format!("a webhook denies with 409 \"{reason}\", PUT");
        table.answer(&case, Verb::Put, answer, 409, &Class::Forbidden);
        let call =
            conflict_retry::update(watched, &there, label).put().with(options).from(cached(&map)).outcome();
        table.call("update", call, "error: forbidden", "put!forbidden").await;
        let call = conflict_retry::update(watched, &there, label).with(options).from(cached(&map)).outcome();
        table.call("update by a patch", call, "error: forbidden", "merge_patch!forbidden").await;

        let _ = hooks.delete(name, &DeleteParams::default()).await.unwrap();
        table.check("nothing was created", maps.get_opt(name).await.unwrap().is_none());
        let after = maps.get(&there).await.unwrap();
        table.check("nothing was changed", after.resource_version() == map.resource_version());
    }
}

/// Calls `webhook` for the `ConfigMap`s that have its name as their label.
fn configuration(name: &str, webhook: &AdmissionWebhook) -> Value {
    json!({
        "metadata": {"name": name},
        "webhooks": [{
            "name": format!("{name}.example.com"),
            "clientConfig": webhook.client_config(),
            "objectSelector": {"matchLabels": {"hook": name}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}],
            "failurePolicy": "Fail",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }],
    })
}
