//! An admission webhook that admits everything, after something that the test wants to happen in between, or denies
//! everything.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::cluster::Cluster;

/// A running webhook. Dropping it ends it.
#[derive(Debug)]
pub struct AdmissionWebhook {
    address: SocketAddr,
    authority: ByteString,
    listening: JoinHandle<()>,
}

impl AdmissionWebhook {
    /// Starts it for the API server of `cluster`. `before` runs for each review, before the answer.
    ///
    /// # Errors
    /// When the cluster has no certificates, or nothing can listen.
    pub async fn start<F, Fut>(cluster: &Cluster, before: F) -> Result<Self>
    where
        F: Fn() -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self::serve(cluster, before, json!({"allowed": true})).await
    }

    /// Starts one that denies everything, with `status` as its reason.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub async fn denying(cluster: &Cluster, status: &Value) -> Result<Self> {
        let verdict = json!({"allowed": false, "status": status});
        Self::serve(cluster, || std::future::ready(Ok(())), verdict).await
    }

    async fn serve<F, Fut>(cluster: &Cluster, before: F, verdict: Value) -> Result<Self>
    where
        F: Fn() -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        // The API server's certificate is valid for this machine, and its authority is available.
        let pki = cluster.root().join("pki");
        let chain = CertificateDer::pem_file_iter(pki.join("apiserver.crt"))?.collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_file(pki.join("apiserver.key"))?;
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
        let authority = ByteString(std::fs::read(pki.join("ca.crt")).context("no certificate authority")?);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let listening = tokio::spawn(listen(listener, TlsAcceptor::from(Arc::new(config)), before, verdict));
        Ok(Self { address, authority, listening })
    }

    /// The `clientConfig` of a webhook configuration.
    pub fn client_config(&self) -> Value {
        json!({"url": format!("https://{}/", self.address), "caBundle": self.authority})
    }
}

impl Drop for AdmissionWebhook {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn listen<F, Fut>(listener: TcpListener, tls: TlsAcceptor, before: F, verdict: Value)
where
    F: Fn() -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<()>> + Send + 'static,
{
    // The connections end with the listener, because it owns them.
    let mut connections = JoinSet::new();
    while let Ok((connection, _)) = listener.accept().await {
        let (tls, before, verdict) = (tls.clone(), before.clone(), verdict.clone());
        connections.spawn(async move {
            // A client that goes away before the answer is what some tests need.
            if let Ok(connection) = tls.accept(connection).await {
                admit(connection, before, verdict).await.ok();
            }
        });
    }
}

/// Answers one review.
async fn admit<F, Fut>(
    mut connection: impl AsyncRead + AsyncWrite + Unpin,
    before: F,
    mut verdict: Value,
) -> Result<()>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<()>>,
{
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await?);
    }
    let head = String::from_utf8(head)?.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.context("no length")?.trim().parse()?];
    connection.read_exact(&mut body).await?;
    let request: Value = serde_json::from_slice(&body)?;
    before().await?;
    verdict["uid"] = request["request"]["uid"].clone();
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": verdict,
    })
    .to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
    let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{review}", review.len());
    connection.write_all(answer.as_bytes()).await?;
    connection.shutdown().await?;
    Ok(())
}
