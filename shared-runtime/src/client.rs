//! The connection to the API server: configuration, middleware of every request, and errors with advice.
//!
//! Nothing is read from or written to the cluster here.

use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::USER_AGENT;
use http::{HeaderValue, Method, Request, Response, Uri};
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tower::{BoxError, Layer, Service};
use tracing::info;

use crate::cli::ConnectionArgs;
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::proxy::{self, InvalidProxy};

/// Longer than the API server lets any ordinary request run (`--request-timeout`, 60 s): a server that has not answered
/// by then never will. Writes have a tighter bound of their own. A watch gets its answer as soon as it is opened.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(65);

/// Longer than kube's watcher waits on a silent watch before it ends it (295 s).
const READ_TIMEOUT: Duration = Duration::from_secs(310);

/// Set in every Pod, next to its service account's token.
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";

/// The client cannot be created. An API server that does not answer is no such error: that may change by itself.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The given file does not exist or cannot be read.
    #[error("cannot read the kubeconfig {}; check --kubeconfig", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of reading it.
        source: Box<KubeconfigError>,
    },
    /// Neither a kubeconfig nor a service account.
    #[error("no cluster to connect to: pass --kubeconfig, set KUBECONFIG, or run in a Pod")]
    NoCluster(#[source] Box<KubeconfigError>),
    /// The given context is not in the kubeconfig.
    #[error("the kubeconfig has no context {wanted:?}; it has {}; choose one with --context", list(.known))]
    NoContext {
        /// The requested context.
        wanted: String,
        /// The contexts of the kubeconfig.
        known: Vec<String>,
    },
    /// The kubeconfig names no context, or the contents of its context cannot be used.
    #[error("the kubeconfig cannot be used; check the context it names, or choose one with --context")]
    Unusable(#[source] Box<KubeconfigError>),
    /// The kubeconfig or the environment names a proxy that cannot be used.
    #[error(transparent)]
    Proxy(#[from] InvalidProxy),
    /// A proxy variable cannot be read.
    #[error("cannot use the proxy of the environment; check HTTPS_PROXY and NO_PROXY")]
    ProxyVariables(#[source] Box<KubeconfigError>),
    /// The Pod's service account cannot be used.
    #[error("cannot use the Pod's service account; is automountServiceAccountToken off?")]
    InCluster(#[source] kube::config::InClusterError),
    /// A certificate or key cannot be used.
    #[error("cannot set up the connection; check the certificates and keys of the kubeconfig")]
    Setup(#[source] Box<kube::Error>),
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// A client for the cluster that the flags, or the environment, name. `name` and `version` form the user agent, which
/// the API server's audit log shows.
pub async fn connect(
    args: &ConnectionArgs,
    name: &str,
    version: &str,
    clock: Clock,
    metrics: Metrics,
) -> Result<Client, ClientError> {
    let mut config = config(args).await?;
    // By default kube retries 429, 503 and 504 for every verb by itself, for minutes. A repeated PUT conflicts with
    // itself, and an eviction that a PodDisruptionBudget blocks is never reported. `conflict-retry` and the controllers
    // retry where it is correct.
    config.default_retry = false;
    // Ends a list whose body stalls, and a watch over a connection that died silently.
    config.read_timeout = Some(READ_TIMEOUT);
    // The pod's name distinguishes replicas in the API server's audit log; they share an account.
    let pod = std::env::var("POD_NAME").map(|pod| format!(" ({pod})")).unwrap_or_default();
    let agent = format!("{name}/{version}{pod}");
    if let Ok(agent) = HeaderValue::try_from(agent) {
        config.headers.push((USER_AGENT, agent));
    }
    // Without the user and the password that may precede the host.
    let proxy = config.proxy_url.as_ref().and_then(|proxy| proxy.host());
    info!(cluster = %config.cluster_url, proxy, "connecting");
    let builder = ClientBuilder::try_from(config).map_err(|failed| ClientError::Setup(Box::new(failed)))?;
    Ok(builder.with_layer(&Requests { clock, metrics }).build())
}

/// The kubeconfig that the flags, or the environment, name; `None` where the Pod's service account is used.
pub(crate) fn kubeconfig(args: &ConnectionArgs) -> Result<Option<Kubeconfig>, ClientError> {
    match &args.kubeconfig {
        Some(path) => read(path).map(Some),
        None if args.context.is_none() && std::env::var_os(IN_CLUSTER).is_some() => Ok(None),
        None => Kubeconfig::read().map(Some).map_err(|failed| ClientError::NoCluster(Box::new(failed))),
    }
}

async fn config(args: &ConnectionArgs) -> Result<Config, ClientError> {
    let Some(kubeconfig) = kubeconfig(args)? else {
        // Proxy variables are for traffic out of the cluster, and its API server is inside.
        return Config::incluster().map_err(ClientError::InCluster);
    };
    if let Some(wanted) = &args.context {
        let known: Vec<_> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
        if !known.contains(wanted) {
            return Err(ClientError::NoContext { wanted: wanted.clone(), known });
        }
    }
    let configured = proxy::of_kubeconfig(&kubeconfig, args.context.as_deref());
    let options = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
    let mut config =
        Config::from_custom_kubeconfig(without_proxies(kubeconfig), &options).await.map_err(|failed| {
            match failed {
                KubeconfigError::ParseProxyUrl(_) | KubeconfigError::ParseNoProxy(_) => {
                    ClientError::ProxyVariables(Box::new(failed))
                }
                _ => ClientError::Unusable(Box::new(failed)),
            }
        })?;
    config.proxy_url =
        proxy::choose(configured.as_deref(), &config.cluster_url, |name| std::env::var(name).ok())?;
    Ok(config)
}

/// Removes the proxies, so that [`proxy`] and not kube reports an invalid one, with the place where it is configured.
fn without_proxies(mut kubeconfig: Kubeconfig) -> Kubeconfig {
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        cluster.proxy_url = None;
    }
    kubeconfig
}

fn read(path: &Path) -> Result<Kubeconfig, ClientError> {
    Kubeconfig::read_from(path)
        .map_err(|source| ClientError::Unreadable { path: path.to_owned(), source: Box::new(source) })
}

/// Counts every request by verb and status code, and bounds the wait for its answer.
#[derive(Clone, Debug)]
struct Requests {
    clock: Clock,
    metrics: Metrics,
}

impl<S> Layer<S> for Requests {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, requests: self.clone() }
    }
}

/// No answer came within [`RESPONSE_TIMEOUT`].
#[derive(Debug, thiserror::Error)]
#[error("the API server did not answer within {RESPONSE_TIMEOUT:?}")]
struct NoAnswer;

#[derive(Clone, Debug)]
struct Counted<S> {
    inner: S,
    requests: Requests,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>, Future: Send + 'static>,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let verb = verb(request.method(), request.uri());
        let Requests { clock, metrics } = self.requests.clone();
        let began = clock.monotonic();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answered = match tokio::time::timeout(RESPONSE_TIMEOUT, answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(NoAnswer.into()),
            };
            let took = (verb != "watch").then(|| clock.monotonic().saturating_sub(began));
            match &answered {
                Ok(response) => metrics.api_request(verb, response.status().as_str(), took),
                Err(_) => metrics.api_request(verb, "error", took),
            }
            answered
        })
    }
}

fn verb(method: &Method, uri: &Uri) -> &'static str {
    let is_watch = || {
        uri.query().is_some_and(|query| query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1")))
    };
    match *method {
        Method::GET if is_watch() => "watch",
        Method::GET => "get",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(kubeconfig: &Path, context: Option<&str>) -> ConnectionArgs {
        ConnectionArgs { kubeconfig: Some(kubeconfig.to_owned()), context: context.map(ToOwned::to_owned) }
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named_with_the_flag() {
        let failed = config(&args(Path::new("no/such/file"), None)).await.unwrap_err();
        assert_eq!(failed.to_string(), "cannot read the kubeconfig no/such/file; check --kubeconfig");
    }

    #[tokio::test]
    async fn an_unknown_context_is_answered_with_the_known_ones() {
        let path = std::env::temp_dir().join(format!("tandem-kubeconfig-{}", std::process::id()));
        let text = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
                    contexts: [{name: one, context: {cluster: c}}, {name: two, context: {cluster: c}}]\n";
        std::fs::write(&path, text).unwrap();
        let failed = config(&args(&path, Some("three"))).await.unwrap_err();
        assert_eq!(
            failed.to_string(),
            "the kubeconfig has no context \"three\"; it has one, two; choose one with --context"
        );
        assert!(
            matches!(config(&args(&path, None)).await, Err(ClientError::Unusable(_))),
            "no current context"
        );
        assert!(config(&args(&path, Some("two"))).await.is_ok());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_watch_is_told_from_a_list() {
        let uri = |text: &'static str| Uri::from_static(text);
        assert_eq!(verb(&Method::GET, &uri("/api/v1/nodes?watch=true&x=1")), "watch");
        assert_eq!(verb(&Method::GET, &uri("/api/v1/nodes?limit=500")), "get");
        assert_eq!(verb(&Method::PATCH, &uri("/x")), "patch");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_never_comes_is_an_error_and_counted() {
        let metrics = Metrics::new("test", "0").unwrap();
        let requests = Requests { clock: Clock::system(), metrics: metrics.clone() };
        let silent =
            tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, BoxError>>());
        let mut service = requests.layer(silent);
        let failed = service.call(Request::new(Body::empty())).await.unwrap_err();
        assert_eq!(failed.to_string(), "the API server did not answer within 65s");
        let text = String::from_utf8(metrics.render().unwrap()).unwrap();
        assert!(text.contains(r#"tandem_api_requests_total{code="error",verb="get"} 1"#), "{text}");
    }
}
