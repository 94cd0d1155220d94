//! The cluster that holds Cluster API's objects: that of the pools, or another one that a kubeconfig names, and the version
//! in which its API server serves them.

use std::path::PathBuf;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use kube::Client;
use kube::client::Body;
use shared_runtime::credentials::Fingerprint;
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

/// The connection, kept while its credentials are current.
pub(super) struct Connections {
    management: Management,
    current: Mutex<Option<Kept>>,
}

/// A connection, and what it was made from.
struct Kept {
    connection: Connection,
    /// The client as it was made, which knows how long its certificate is valid.
    made: Client,
    /// What it was made from, where that may change.
    from: Option<Fingerprint>,
}

impl Kept {
    /// Whether the connection may be used, where `now` is what another one would be made from.
    fn is_current(&self, management: &Management, now: Option<Fingerprint>) -> bool {
        match management {
            Management::Own(..) => true,
            Management::Other { kubeconfig: _, connect } => {
                now.is_some() && self.from == now && !connect.runs_out(&self.made)
            }
        }
    }
}

impl Connections {
    pub(super) fn new(management: Management) -> Self {
        Self { management, current: Mutex::default() }
    }

    /// Connects anew with the next call: the API server may have ceased to serve the version that was found.
    pub(super) async fn forget(&self) {
        *self.current.lock().await = None;
    }

    /// The connection for a call. It is made anew when the kubeconfig, or a certificate or key that it names, has changed, and before
    /// the client certificate of its credential plugin runs out: kube reads them once.
    pub(super) async fn current(&self) -> Result<Connection, ProviderError> {
        let from = match &self.management {
            Management::Own(..) => None,
            Management::Other { kubeconfig, connect: _ } => {
                std::fs::File::open(kubeconfig).map_err(|error| {
                    let path = kubeconfig.display();
                    ProviderError::Unreachable(format!(
                        "cannot read the kubeconfig {path} of the management cluster: {error}; check --cluster-api-kubeconfig"
                    ))
                })?;
                OtherCluster::fingerprint(kubeconfig)
            }
        };
        let mut current = self.current.lock().await;
        if let Some(kept) = &*current
            && kept.is_current(&self.management, from)
        {
            return Ok(kept.connection.clone());
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
        let made = client.clone();
        let client = match served(&client).await? {
            VERSION => client,
            version => in_version(&client, version),
        };
        let connection = Connection { client: client.clone(), writer: writer.with_client(client) };
        *current = Some(Kept { connection: connection.clone(), made, from });
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use k8s_openapi::jiff::Timestamp;
    use shared_crds::ownership::Owner;
    use shared_runtime::clock::Clock;
    use shared_runtime::metrics::Metrics;
    use shared_runtime::write::{WriteStrategy, unobserved};

    use super::*;

    /// An API server that serves Cluster API's group and nothing else, and closes each connection: its address.
    fn api_server() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let version = format!(r#"{{"groupVersion": "{GROUP}/{VERSION}", "version": "{VERSION}"}}"#);
            let group = format!(r#"{{"name": "{GROUP}", "versions": [{version}]}}"#);
            let body = format!(r#"{{"kind": "APIGroupList", "apiVersion": "v1", "groups": [{group}]}}"#);
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = [0; 4096];
                if stream.read(&mut request).unwrap_or(0) > 0 {
                    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
                }
            }
        });
        format!("http://{address}")
    }

    /// How to connect to another cluster.
    fn connect() -> OtherCluster {
        let clock = Clock::system();
        let own =
            tower::service_fn(|_: Request<Body>| async { Ok::<_, BoxError>(Response::new(Body::empty())) });
        let (owner, strategy) = (Owner::NodepoolOperator, WriteStrategy::Guarded);
        let writer = Writer::new(Client::new(own, "unused"), owner, strategy, &clock, unobserved()).unwrap();
        OtherCluster::new("test", "0", clock, Metrics::new("test", "0").unwrap(), writer)
    }

    #[tokio::test]
    async fn the_connection_is_made_anew_when_a_file_of_its_kubeconfig_changes_and_only_then() {
        let directory = tempfile::tempdir().unwrap();
        let (kubeconfig, ca) = (directory.path().join("kubeconfig"), directory.path().join("ca"));
        let server = api_server();
        let configure = |token: &str| {
            let text = format!(
                "{{apiVersion: v1, kind: Config, current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
                 clusters: [{{name: a, cluster: {{server: '{server}', certificate-authority: ca}}}}], \
                 users: [{{name: a, user: {{token: {token}}}}}]}}"
            );
            fs::write(&kubeconfig, text).unwrap();
        };
        fs::write(&ca, "# of one\n").unwrap();
        configure("one");
        let management = Management::Other { kubeconfig: kubeconfig.clone(), connect: connect() };
        let connections = Connections::new(management);
        let from = async || {
            connections.current().await.unwrap();
            connections.current.lock().await.as_ref().and_then(|kept| kept.from)
        };
        let first = from().await;
        assert!(first.is_some());
        assert_eq!(from().await, first);
        fs::write(&ca, "# of another one\n").unwrap();
        let second = from().await;
        assert!(second.is_some() && second != first);
        configure("another");
        let third = from().await;
        assert!(third.is_some() && third != second);
        if let Some(kept) = connections.current.lock().await.as_mut() {
            kept.made = kept.made.clone().with_valid_until(Some(Timestamp::UNIX_EPOCH));
        }
        from().await;
        let is_new = |kept: &Kept| kept.made.valid_until().is_none();
        assert!(connections.current.lock().await.as_ref().is_some_and(is_new), "its certificate ran out");
        fs::remove_file(&kubeconfig).unwrap();
        let Err(ProviderError::Unreachable(why)) = connections.current().await else {
            panic!("it has no kubeconfig")
        };
        assert!(why.starts_with("cannot read the kubeconfig"), "{why}");
    }
}
