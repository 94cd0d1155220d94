//! Tandem on a cluster, as a user gets it: the chart, installed by Helm, and both operators with the identities,
//! arguments and environment that the chart gives their pods.
//!
//! There is no image registry here, so the operators run as processes instead of containers. Everything else comes from
//! the chart: a missing RBAC rule or a wrong flag fails here as it would in a pod.

mod pod;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::ListParams;
use tokio::sync::OnceCell;

use crate::cluster::{Cluster, ClusterOptions};
use crate::operators::{OperatorKind, OperatorProcess};
use crate::process_supervisor::Exit;
use crate::wait::{EXITS, PATIENCE, eventually};

pub use pod::{Pod, default_memory_limit};

/// Discovery includes a new CRD within seconds, on a machine that has time for it.
const SERVED: Duration = PATIENCE;

/// A release of the chart.
pub struct Release {
    namespace: String,
    name: String,
}

/// The path of the chart in the workspace that this crate was built from.
pub fn chart() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/tandem"))
}

impl Release {
    /// Installs the chart as `tandem` into `namespace`, or upgrades it, with `values` as `key=value` settings, and
    /// returns when the custom resources are served.
    ///
    /// The Deployments get no pods: their images do not exist yet.
    ///
    /// # Errors
    /// Helm's error, when it fails.
    pub async fn install(cluster: &Cluster, namespace: &str, values: &[String]) -> Result<Self> {
        let chart = chart();
        let chart = chart.to_str().context("the path of the chart is not text")?;
        let mut args =
            vec!["upgrade", "--install", "tandem", chart, "--namespace", namespace, "--create-namespace"];
        for value in ["nodepoolOperator.replicas=0", "autoscalerOperator.replicas=0"]
            .into_iter()
            .chain(values.iter().map(String::as_str))
        {
            args.extend(["--set", value]);
        }
        // The API server checks each object. Without this, Helm also reads the schemas of all kinds: two fifths of its processor time.
        args.push("--disable-openapi-validation");
        cluster.helm(&args).await?;
        served(cluster).await?;
        Ok(Self::named(namespace))
    }

    /// The release in `namespace`, whether or not it is complete.
    pub fn named(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: "tandem".to_owned() }
    }

    /// The namespace it is in.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The first replica of `operator`, as the chart describes its pod.
    ///
    /// # Errors
    /// When the release contains no such Deployment, or more than one.
    pub async fn pod(&self, cluster: &Cluster, operator: OperatorKind) -> Result<Pod> {
        let deployments = Api::<Deployment>::namespaced(cluster.client().await?, &self.namespace);
        let (instance, component) = (&self.name, operator.name());
        let labels = format!("app.kubernetes.io/instance={instance},app.kubernetes.io/component={component}");
        let mut found = deployments.list(&ListParams::default().labels(&labels)).await?.items;
        ensure!(found.len() == 1, "{} Deployments are labelled {labels}, not one", found.len());
        Pod::of(&found.remove(0), &self.namespace, operator)
    }

    /// Starts one replica of both operators.
    ///
    /// # Errors
    /// When one cannot be started.
    pub async fn start(&self, cluster: &Cluster) -> Result<RunningOperators> {
        Ok(RunningOperators {
            node_pool: self.pod(cluster, OperatorKind::NodePool).await?.start(cluster).await?,
            autoscaler: self.pod(cluster, OperatorKind::Autoscaler).await?.start(cluster).await?,
        })
    }

    /// Removes the release. The CRDs stay, and with them all objects, as the chart guarantees.
    ///
    /// # Errors
    /// Helm's error.
    pub async fn uninstall(&self, cluster: &Cluster) -> Result<()> {
        cluster.helm(&["uninstall", &self.name, "--namespace", &self.namespace, "--wait"]).await?;
        Ok(())
    }
}

/// The shared cluster of a test binary whose tests need the custom resources but neither operators nor nodes: etcd, the
/// API server, and the CRDs.
///
/// # Errors
/// When it does not start.
pub async fn definitions_only() -> Result<&'static Cluster> {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    let start = || async {
        let cluster = Cluster::start(ClusterOptions::api_only()).await?;
        install_definitions(&cluster).await?;
        Ok(cluster)
    };
    CLUSTER.get_or_try_init(start).await
}

/// Installs only the CRDs, for tests that need no operator.
///
/// # Errors
/// When the API server rejects them.
pub async fn install_definitions(cluster: &Cluster) -> Result<()> {
    let crds = shared_crds::yaml()?;
    cluster.kubectl_with_input(&["apply", "--server-side", "--filename", "-"], &crds).await?;
    served(cluster).await
}

/// Waits until the API server serves the custom resources under their short names. A CRD is established shortly before
/// it appears in discovery, which kubectl uses.
async fn served(cluster: &Cluster) -> Result<()> {
    let all = ["get", "npool,npa", "--all-namespaces"];
    eventually(SERVED, "the custom resources are served", async || Ok(Some(cluster.kubectl(&all).await?)))
        .await?;
    Ok(())
}

/// Both running operators.
pub struct RunningOperators {
    /// The `NodePool` operator, which creates nodes.
    pub node_pool: OperatorProcess,
    /// The Autoscaler, which decides how many.
    pub autoscaler: OperatorProcess,
}

impl RunningOperators {
    /// Checks that both are running.
    ///
    /// # Errors
    /// When one has ended, with its exit and the end of its log.
    pub fn check_alive(&self) -> Result<()> {
        self.node_pool.check_alive()?;
        self.autoscaler.check_alive()
    }

    /// Checks that both are running. One that ended because it lost its lease is started again, once, as its Deployment
    /// would: where many control planes share two cores, an API server may be silent for longer than the renew deadline.
    ///
    /// # Errors
    /// When one has ended for another reason, or for this one a second time, with its exit and the end of its log.
    pub async fn keep_alive(&self) -> Result<()> {
        for operator in [&self.node_pool, &self.autoscaler] {
            if operator.exit() == Some(Exit::Code(1)) && operator.lost_leases()? == 1 {
                eprintln!("an operator lost its lease and is started again:\n{}", operator.log_tail());
                operator.start_next().await?;
            }
        }
        self.check_alive()
    }

    /// Asks both to stop and waits for them.
    ///
    /// # Errors
    /// When one had to be killed, or ended with a code other than 0.
    pub async fn stop(&self) -> Result<()> {
        for operator in [&self.autoscaler, &self.node_pool] {
            let exit = operator.stop(EXITS).await?;
            ensure!(exit == Exit::Code(0), "an operator stopped with {exit}:\n{}", operator.log_tail());
        }
        Ok(())
    }
}
