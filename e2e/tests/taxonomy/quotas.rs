//! A quota whose usage admission never writes in time: whenever it tries, another writer is faster. A webhook for the
//! quota's status is that other writer, so no race decides about the result.

use anyhow::bail;
use conflict_retry::{Class, Verb};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ResourceQuota};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testbed::admission_webhook::AdmissionWebhook;
use testbed::wait::eventually;

use crate::bench::{Bench, PATIENCE, Table, make, typed};

/// The namespace that has a quota.
const COUNTED: &str = "counted";
const QUOTA: &str = "all";
const WEBHOOK: &str = "faster.example.com";

/// A creation that admission cannot count, because it loses every race for the quota.
pub(crate) async fn quota_races(bench: &Bench, table: &mut Table) {
    make(&Api::<Namespace>::all(bench.admin.clone()), json!({"metadata": {"name": COUNTED}})).await;
    let quotas = Api::<ResourceQuota>::namespaced(bench.admin.clone(), COUNTED);
    let hard = json!({"count/configmaps": "1000"});
    let mut quota = make(&quotas, json!({"metadata": {"name": QUOTA}, "spec": {"hard": hard}})).await;
    // No controller counts what is there: the test takes its role.
    quota.status = Some(typed(json!({"hard": hard, "used": {"count/configmaps": "0"}})));
    quotas.replace_status(QUOTA, &PostParams::default(), &quota).await.unwrap();
    let webhooks = Api::<ValidatingWebhookConfiguration>::all(bench.admin.clone());
    let webhook = AdmissionWebhook::start(&bench.cluster, move || overtake(quotas.clone())).await.unwrap();
    make(&webhooks, configuration(&webhook)).await;

    let maps = Api::<ConfigMap>::namespaced(bench.admin.clone(), COUNTED);
    let fresh: ConfigMap = typed(json!({"metadata": {"name": "x"}}));
    // A dry run would not write the usage.
    let answer = eventually(PATIENCE, "the quota and the webhook are heeded", async || {
        match maps.create(&PostParams::default(), &fresh).await {
            Ok(_) => {
                let _ = maps.delete("x", &DeleteParams::default()).await?;
                bail!("it was created")
            }
            Err(kube::Error::Api(status)) if status.code != 409 => bail!("{status:?}"),
            Err(error) => Ok(Some(error)),
        }
    })
    .await
    .unwrap();
    if let kube::Error::Api(status) = &answer {
        let named = status.details.as_ref().map(|details| (details.kind.as_str(), details.name.as_str()));
        table.check("the answer names the quota", named == Some(("resourcequotas", QUOTA)));
    }
    let class = Class::Transient { retry_after: None };
    table.answer("a race for a quota, POST", Verb::Create, Err::<(), _>(answer), 409, &class);
    let watched = &Api::<ConfigMap>::namespaced(bench.observed.clone(), COUNTED);
    let options = &table.options();
    let call = conflict_retry::once::create(watched, options, &fresh);
    table.call("create", call, "error: transient", "create!transient").await;
    table.check("nothing was created", maps.get_opt("x").await.unwrap().is_none());

    let _ = webhooks.delete(WEBHOOK, &DeleteParams::default()).await.unwrap();
    let created = eventually(PATIENCE, "the same creation succeeds", async || {
        Ok(Some(maps.create(&PostParams::default(), &fresh).await?))
    });
    table.check("the same creation succeeds when admission can count it", created.await.is_ok());
}

/// Calls `webhook` for the status of the namespace's quota.
fn configuration(webhook: &AdmissionWebhook) -> Value {
    json!({
        "metadata": {"name": WEBHOOK},
        "webhooks": [{
            "name": WEBHOOK,
            "clientConfig": webhook.client_config(),
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": COUNTED}},
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"],
                "resources": ["resourcequotas/status"],
            }],
            "failurePolicy": "Fail",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }],
    })
}

/// Makes the write stale that is being reviewed.
async fn overtake(quotas: Api<ResourceQuota>) -> anyhow::Result<()> {
    let note =
        json!({"metadata": {"annotations": {"example.com/note": format!("{:x}", rand::random::<u64>())}}});
    quotas.patch(QUOTA, &PatchParams::default(), &Patch::Merge(note)).await?;
    Ok(())
}
