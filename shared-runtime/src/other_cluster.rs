//! The connection to a cluster that is not the operator's own.

use std::path::Path;

use kube::Client;

use crate::cli::ConnectionArgs;
use crate::client::{self, ClientError};
use crate::clock::Clock;
use crate::credentials::{self, Fingerprint};
use crate::metrics::Metrics;
use crate::write::Writer;

/// Connects to another cluster than the operator's own. Cheap to clone.
#[derive(Clone)]
pub struct OtherCluster {
    name: &'static str,
    version: &'static str,
    clock: Clock,
    metrics: Metrics,
    writer: Writer,
}

impl OtherCluster {
    /// `name` and `version` form the user agent. `writer` is that of the operator's own cluster.
    pub fn new(
        name: &'static str,
        version: &'static str,
        clock: Clock,
        metrics: Metrics,
        writer: Writer,
    ) -> Self {
        Self { name, version, clock, metrics, writer }
    }

    /// A client and a writer for the current context of `kubeconfig`. The writer has the fence and the metrics of the
    /// operator's own.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read or used. A cluster that does not answer is no error here.
    pub async fn connect(&self, kubeconfig: &Path) -> Result<(Client, Writer), ClientError> {
        let args = ConnectionArgs { kubeconfig: Some(kubeconfig.to_owned()), context: None };
        let (clock, metrics) = (self.clock.clone(), self.metrics.clone());
        let client = client::connect(&args, self.name, self.version, clock, metrics).await?;
        Ok((client.clone(), self.writer.with_client(client)))
    }

    /// Tells the credentials that [`Self::connect`] reads now from others: those of the current context of `kubeconfig`. `None` while they
    /// cannot be read.
    pub fn fingerprint(kubeconfig: &Path) -> Option<Fingerprint> {
        let args = ConnectionArgs { kubeconfig: Some(kubeconfig.to_owned()), context: None };
        Fingerprint::of(&client::kubeconfig(&args).ok()??, None)
    }

    /// Whether `client`, which [`Self::connect`] has returned, has a client certificate of a credential plugin that is about to run out.
    pub fn runs_out(&self, client: &Client) -> bool {
        credentials::runs_out(client, self.clock.now())
    }
}
