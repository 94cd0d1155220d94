//! Slow admission webhooks: a slow one still works, and one that is too slow is reported.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::time::Duration;

use anyhow::bail;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use testbed::admission_webhook::AdmissionWebhook;
use testbed::cluster::Cluster;
use testbed::objects;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;
use tokio::sync::watch;

const NAME: &str = "slow.example.org";

/// A webhook that is called for every new Node, and admits it after a delay.
struct SlowWebhook {
    delay: watch::Sender<Duration>,
    configurations: Api<ValidatingWebhookConfiguration>,
    _webhook: AdmissionWebhook,
}

impl SlowWebhook {
    async fn install(cluster: &Cluster, delay: Duration) -> Self {
        let delay = watch::Sender::new(delay);
        let heard = delay.subscribe();
        let webhook = AdmissionWebhook::start(cluster, move || wait(heard.clone())).await.unwrap();
        let configurations = Api::all(cluster.client().await.unwrap());
        configurations.create(&PostParams::default(), &configuration(&webhook)).await.unwrap();
        Self { delay, configurations, _webhook: webhook }
    }

    async fn remove(self) {
        self.configurations.delete(NAME, &DeleteParams::default()).await.unwrap();
    }
}

fn configuration(webhook: &AdmissionWebhook) -> ValidatingWebhookConfiguration {
    serde_json::from_value(json!({
        "metadata": {"name": NAME},
        "webhooks": [{
            "name": NAME,
            "clientConfig": webhook.client_config(),
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nodes"]}],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 30,
        }],
    }))
    .unwrap()
}

/// Waits for the delay; a shorter one also applies to what is already waiting.
async fn wait(mut delay: watch::Receiver<Duration>) -> anyhow::Result<()> {
    let asked = tokio::time::Instant::now();
    loop {
        let until = asked + *delay.borrow_and_update();
        if tokio::time::timeout_at(until, delay.changed()).await.is_err() {
            return Ok(());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_made_through_a_slow_webhook_and_one_that_is_too_slow_is_reported() {
    let env = TestEnv::begin("slow", &[]).await.unwrap();
    let webhook = SlowWebhook::install(env.cluster, Duration::from_secs(6)).await;
    env.create(&objects::pool("slow", 2, 3)).await.unwrap();
    env.settles("slow", 2).await.unwrap();

    webhook.delay.send_replace(Duration::from_secs(25));
    env.kubectl(&["patch", "npool/slow", "--type=merge", "--patch={\"spec\":{\"replicas\":3}}"])
        .await
        .unwrap();
    eventually(PATIENCE, "the pool reports the cause", async || {
        let status = env.pool("slow").await?.status.unwrap_or_default();
        let condition = status.conditions.iter().find(|condition| condition.type_ == "ProvisioningHealthy");
        match condition {
            Some(it) if it.status == "False" && it.message.contains("admission webhook") => Ok(Some(())),
            other => bail!("{other:?}"),
        }
    })
    .await
    .unwrap();

    // The pool recovers as soon as the webhook does.
    webhook.delay.send_replace(Duration::ZERO);
    env.settles("slow", 3).await.unwrap();
    env.says("slow", "ProvisioningHealthy", ("True", "", "")).await.unwrap();
    webhook.remove().await;
    env.end().await.unwrap();
}
