//! Replaces an external metrics adapter, such as KEDA's or Prometheus's: one number, which the test sets; and a
//! `HorizontalPodAutoscaler` that scales a pool by it.
//!
//! It is an extension API server as far as the aggregation layer requires: TLS, one group for discovery, one resource
//! to get.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use crate::cluster::Cluster;

/// The name of every metric of this server.
const METRIC: &str = "queue-length";
const GROUP_VERSION: &str = "external.metrics.k8s.io/v1beta1";

/// The flag of kube-controller-manager with which its `HorizontalPodAutoscaler`s sync every second.
pub const QUICK: &str = "--horizontal-pod-autoscaler-sync-period=1s";

/// Scales `pool` to as many nodes as the metric's value, immediately in both directions, and never to zero: a
/// `HorizontalPodAutoscaler` treats a count of zero that it has not written itself as "autoscaling disabled".
///
/// # Errors
/// Never: the literal below is such an object.
pub fn autoscaler(pool: &str) -> Result<HorizontalPodAutoscaler> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": pool},
        "spec": {
            "scaleTargetRef": {"apiVersion": "tandem.dev/v1alpha1", "kind": "NodePool", "name": pool},
            "minReplicas": 1,
            "maxReplicas": 8,
            "metrics": [{"type": "External", "external": {
                "metric": {"name": METRIC},
                "target": {"type": "AverageValue", "averageValue": "1"},
            }}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    }))?)
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct MetricsServer {
    value: Arc<AtomicU32>,
    listening: JoinHandle<()>,
}

impl MetricsServer {
    /// Starts it and registers it with the aggregation layer of `cluster`. It stays registered: while no such server runs, no
    /// namespace of that cluster can be deleted.
    ///
    /// # Errors
    /// When the aggregation layer does not reach it.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (value, tls) = (Arc::new(AtomicU32::new(0)), acceptor()?);
        let listening = tokio::spawn(listen(listener, tls, Arc::clone(&value)));
        register(cluster, port).await?;
        Ok(Self { value, listening })
    }

    /// Sets the value of the metric.
    pub fn set(&self, value: u32) {
        self.value.store(value, Ordering::Relaxed);
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// The aggregation layer finds an extension server through a Service. A Service for an external name is reached at that
/// name, so neither a cluster address nor endpoints are needed, which may not be on the loopback.
async fn register(cluster: &Cluster, port: u16) -> Result<()> {
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "metrics", "namespace": "kube-system"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
            "spec": {
                "group": "external.metrics.k8s.io", "version": "v1beta1",
                "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"name": "metrics", "namespace": "kube-system", "port": port},
                // The certificate is generated for this run, and the data is not secret.
                "insecureSkipTLSVerify": true,
            },
        },
    ]});
    cluster.kubectl_with_input(&["apply", "--filename", "-"], &objects.to_string()).await?;
    let wait =
        ["wait", "--for=condition=Available", "--timeout=180s", "apiservice/v1beta1.external.metrics.k8s.io"];
    cluster.kubectl(&wait).await.context("the aggregation layer does not reach the metrics server")?;
    Ok(())
}

fn acceptor() -> Result<TlsAcceptor> {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key.into())?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn listen(listener: TcpListener, tls: TlsAcceptor, value: Arc<AtomicU32>) {
    // The connections end with the listener, because it owns them.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((connection, _)) = listener.accept().await {
        let (tls, value) = (tls.clone(), Arc::clone(&value));
        connections.spawn(async move {
            if let Ok(connection) = tls.accept(connection).await {
                // A client that closes the connection does not matter to the test.
                serve(connection, &value).await.ok();
            }
        });
    }
}

/// Answers one request after the other; none has a body.
async fn serve(connection: impl AsyncRead + AsyncWrite + Unpin, value: &AtomicU32) -> Result<()> {
    let mut connection = BufReader::new(connection);
    loop {
        let mut line = String::new();
        ensure!(connection.read_line(&mut line).await? > 0, "closed");
        let path = line.split(' ').nth(1).context("no request line")?.to_owned();
        while line.trim() != "" {
            line.clear();
            connection.read_line(&mut line).await?;
        }
        let (status, body) = match answer(&path, value.load(Ordering::Relaxed)) {
            Some(body) => ("200 OK", body.to_string()),
            None => ("404 Not Found", String::new()),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        connection.write_all(format!("{head}{body}").as_bytes()).await?;
        connection.flush().await?;
    }
}

fn answer(path: &str, value: u32) -> Option<Value> {
    let path = path.split('?').next().unwrap_or_default();
    let rest = path.strip_prefix("/apis/")?.strip_prefix(GROUP_VERSION)?;
    if rest.is_empty() {
        return Some(json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION,
            "resources": [{
                "name": METRIC, "singularName": "", "namespaced": true,
                "kind": "ExternalMetricValueList", "verbs": ["get"],
            }],
        }));
    }
    rest.ends_with(METRIC).then(|| {
        json!({
            "kind": "ExternalMetricValueList", "apiVersion": GROUP_VERSION, "metadata": {},
            "items": [{
                "metricName": METRIC, "metricLabels": {}, "value": value.to_string(),
                "timestamp": jiff::Timestamp::now().to_string(),
            }],
        })
    })
}
