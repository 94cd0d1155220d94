//! A quota whose usage admission never writes in time: whenever it tries, another writer is faster. A webhook for the
//! quota's status is that other writer, so no race decides about the result.

use std::sync::Arc;

use anyhow::bail;
use conflict_retry::{Class, Verb};
use e2e::cluster::Cluster;
use e2e::wait::eventually;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ResourceQuota};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

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
    make(&webhooks, faster_writer(&bench.cluster, quotas).await).await;

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

/// A webhook for the quota's status that writes the quota before it admits anything. Returns its configuration.
async fn faster_writer(cluster: &Cluster, quotas: Api<ResourceQuota>) -> Value {
    // The API server's certificate is valid for this machine, and its authority is available.
    let pki = cluster.root().join("pki");
    let chain = CertificateDer::pem_file_iter(pki.join("apiserver.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(pki.join("apiserver.key")).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, quotas) = (acceptor.clone(), quotas.clone());
            // A connection without a request, or one that ends early, is of no interest.
            tokio::spawn(async move { overtake(stream, acceptor, quotas).await.ok() });
        }
    });
    let authority = ByteString(std::fs::read(pki.join("ca.crt")).unwrap());
    json!({
        "metadata": {"name": WEBHOOK},
        "webhooks": [{
            "name": WEBHOOK,
            "clientConfig": {"url": format!("https://{address}/"), "caBundle": authority},
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

/// Answers one review, after a write that makes the reviewed one stale.
async fn overtake(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    quotas: Api<ResourceQuota>,
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
    let note =
        json!({"metadata": {"annotations": {"example.com/note": format!("{:x}", rand::random::<u64>())}}});
    quotas.patch(QUOTA, &PatchParams::default(), &Patch::Merge(note)).await?;
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
