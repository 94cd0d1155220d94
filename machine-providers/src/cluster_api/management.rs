//! The cluster that holds Cluster API's objects: that of the pools, or another one that a kubeconfig names, and the version
//! in which its API server serves them.

use std::path::PathBuf;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use kube::Client;
use kube::client::Body;
use shared_runtime::error::chain;
use shared_runtime::other_cluster::OtherCluster;
use shared_runtime::write::Writer;
use tokio::sync::Mutex;
use tower::{BoxError, Service};

use super::{ADVICE, ProviderError};

/// The group of Cluster API's objects.
const GROUP: &str = "cluster.x-k8s.io";
/// The version that the types here have.
const VERSION: &str = "v1beta2";
/// The version that Cluster API before 1.11 serves. The fields that are used here are the same.
const FORMER_VERSION: &str = "v1beta1";

/// Where Cluster API's objects are.
pub enum Management {
    /// In the cluster of the pools.
    Own(Client, Writer),
    /// In the cluster that a kubeconfig names.
    Other {
        /// The kubeconfig, which may come, or change, while the operator runs.
        kubeconfig: PathBuf,
        /// How to connect to that cluster.
        connect: OtherCluster,
    },
}

/// A client and a writer for that cluster.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) writer: Writer,
}

/// The connection, kept while the kubeconfig is the same.
pub(super) struct Connections {
    management: Management,
    current: Mutex<Option<(Vec<u8>, Connection)>>,
}

impl Connections {
    pub(super) fn new(management: Management) -> Self {
        Self { management, current: Mutex::default() }
    }

    /// Connects anew with the next call: the API server may have ceased to serve the version that was found.
    pub(super) async fn forget(&self) {
        *self.current.lock().await = None;
    }

    /// The connection for a call. It is made anew when the kubeconfig has changed: credentials are renewed.
    pub(super) async fn current(&self) -> Result<Connection, ProviderError> {
        let kubeconfig = match &self.management {
            Management::Own(..) => Vec::new(),
            Management::Other { kubeconfig, connect: _ } => {
                std::fs::read(kubeconfig).map_err(|error| {
                    let path = kubeconfig.display();
                    ProviderError::Unreachable(format!(
                        "cannot read the kubeconfig {path} of the management cluster: {error}; check --cluster-api-kubeconfig"
                    ))
                })?
            }
        };
        let mut current = self.current.lock().await;
        if let Some((of, connection)) = &*current
            && *of == kubeconfig
        {
            return Ok(connection.clone());
        }
        let (client, writer) = match &self.management {
            Management::Own(client, writer) => (client.clone(), writer.clone()),
            Management::Other { kubeconfig, connect } => {
                connect.connect(kubeconfig).await.map_err(|error| {
                    let path = kubeconfig.display();
                    ProviderError::Unreachable(format!(
                        "cannot use the kubeconfig {path} of the management cluster: {}; check --cluster-api-kubeconfig",
                        chain(&error)
                    ))
                })?
            }
        };
        let client = match served(&client).await? {
            VERSION => client,
            version => in_version(&client, version),
        };
        let connection = Connection { client: client.clone(), writer: writer.with_client(client) };
        *current = Some((kubeconfig, connection.clone()));
        Ok(connection)
    }
}

/// The version in which the API server serves Cluster API's objects: the newer one, if it has both.
async fn served(client: &Client) -> Result<&'static str, ProviderError> {
    let groups = client.list_api_groups().await.map_err(|error| ADVICE.of_read(&error))?.groups;
    let group = groups.into_iter().find(|group| group.name == GROUP);
    let served = |version: &&str| {
        let versions = group.iter().flat_map(|group| &group.versions);
        versions.into_iter().any(|served| served.version == *version)
    };
    let version = [VERSION, FORMER_VERSION].into_iter().find(|version| served(version));
    version.ok_or_else(|| ProviderError::Absent(ADVICE.absent.to_owned()))
}

/// The same client, with requests for [`VERSION`] of Cluster API's objects made for `version`.
fn in_version(client: &Client, version: &'static str) -> Client {
    Client::new(InVersion { client: client.clone(), version }, client.default_namespace().to_owned())
}

#[derive(Clone)]
struct InVersion {
    client: Client,
    version: &'static str,
}

impl Service<Request<Body>> for InVersion {
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;
    type Response = Response<Body>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(uri) = renamed(request.uri(), self.version) {
            *request.uri_mut() = uri;
        }
        let client = self.client.clone();
        Box::pin(async move { client.send(request).await.map_err(Into::into) })
    }
}

/// The path of a request with the version replaced; `None` for one of something else.
fn renamed(uri: &Uri, version: &str) -> Option<Uri> {
    let rest = uri.path_and_query()?.as_str().strip_prefix(&format!("/apis/{GROUP}/{VERSION}/"))?;
    let mut parts = uri.clone().into_parts();
    parts.path_and_query =
        Some(PathAndQuery::try_from(format!("/apis/{GROUP}/{version}/{rest}").as_str()).ok()?);
    Uri::from_parts(parts).ok()
}
