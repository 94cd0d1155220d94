//! Slow admission webhooks: a slow one still works, and one that is too slow is reported.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use e2e::cluster::Cluster;
use e2e::objects;
use e2e::test_env::{PATIENCE, TestEnv};
use e2e::wait::eventually;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

const NAME: &str = "slow.example.org";

/// A webhook that is called for every new Node, and admits it after a delay.
struct SlowWebhook {
    delay: watch::Sender<Duration>,
    configurations: Api<ValidatingWebhookConfiguration>,
}

impl SlowWebhook {
    async fn install(cluster: &Cluster, delay: Duration) -> Self {
        // The API server's certificate is valid for this machine, and its authority is available.
        let pki = cluster.root().join("pki");
        let chain = CertificateDer::pem_file_iter(pki.join("apiserver.crt")).unwrap();
        let key = PrivateKeyDer::from_pem_file(pki.join("apiserver.key")).unwrap();
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain.map(Result::unwrap).collect(), key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let delay = watch::Sender::new(delay);
        tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(config)), delay.subscribe()));
        let configurations = Api::all(cluster.client().await.unwrap());
        let authority = ByteString(std::fs::read(pki.join("ca.crt")).unwrap());
        configurations.create(&PostParams::default(), &configuration(address, &authority)).await.unwrap();
        Self { delay, configurations }
    }

    async fn remove(self) {
        self.configurations.delete(NAME, &DeleteParams::default()).await.unwrap();
    }
}

fn configuration(address: SocketAddr, authority: &ByteString) -> ValidatingWebhookConfiguration {
    serde_json::from_value(json!({
        "metadata": {"name": NAME},
        "webhooks": [{
            "name": NAME,
            "clientConfig": {"url": format!("https://{address}/"), "caBundle": authority},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nodes"]}],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 30,
        }],
    }))
    .unwrap()
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, delay: watch::Receiver<Duration>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, delay) = (acceptor.clone(), delay.clone());
        // The client may have closed the connection before the answer: that is what this test needs.
        tokio::spawn(async move { answer(stream, acceptor, delay).await.ok() });
    }
}

async fn answer(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    mut delay: watch::Receiver<Duration>,
) -> anyhow::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head)?.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap_or("0").trim().parse()?];
    stream.read_exact(&mut body).await?;
    let request: Value = serde_json::from_slice(&body)?;
    let asked = tokio::time::Instant::now();
    // A shorter delay also applies to requests that are already waiting.
    let waits = async {
        loop {
            let until = asked + *delay.borrow_and_update();
            if tokio::time::timeout_at(until, delay.changed()).await.is_err() {
                break;
            }
        }
    };
    waits.await;
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": request["request"]["uid"], "allowed": true},
    })
    .to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
    let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{review}", review.len());
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    Ok(())
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
    let pool = env.settles("slow", 3).await.unwrap();
    webhook.remove().await;
    let conditions = pool.status.unwrap().conditions;
    let healthy = conditions.iter().find(|condition| condition.type_ == "ProvisioningHealthy").unwrap();
    assert_eq!(healthy.status, "True", "{healthy:?}");
    env.end().await.unwrap();
}
