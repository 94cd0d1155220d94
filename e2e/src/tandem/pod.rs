//! A Deployment's pod, as a process: with the arguments and environment that the kubelet would set.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::EnvVar;

use crate::cluster::Cluster;
use crate::fault_proxy::FaultProxy;
use crate::operators::{Launch, OperatorKind, OperatorProcess};

/// A pod of an operator, as the chart describes it.
#[derive(Clone, Debug)]
pub struct Pod {
    /// The operator that it runs.
    pub operator: OperatorKind,
    /// The pod's service account.
    pub service_account: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name, which distinguishes the replicas.
    pub name: String,
    args: Vec<String>,
    env: Vec<EnvVar>,
}

impl Pod {
    /// Reads the pod template of `deployment`.
    ///
    /// # Errors
    /// When the template lacks a field that an operator's pod needs.
    pub(super) fn of(deployment: &Deployment, namespace: &str, operator: OperatorKind) -> Result<Self> {
        let spec = deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.template.spec.as_ref())
            .context("no pod template")?;
        let container = spec.containers.first().context("no container")?;
        Ok(Self {
            operator,
            service_account: spec.service_account_name.clone().context("no service account")?,
            namespace: namespace.to_owned(),
            name: format!("{}-0", operator.name()),
            args: container.args.clone().unwrap_or_default(),
            env: container.env.clone().unwrap_or_default(),
        })
    }

    /// The same pod with another name, for a second replica.
    #[must_use]
    pub fn replica(mut self, number: usize) -> Self {
        self.name = format!("{}-{number}", self.operator.name());
        self
    }

    /// Starts it with the pod's service account.
    ///
    /// # Errors
    /// When the account gets no token or the binary cannot be built or started.
    pub async fn start(&self, cluster: &Cluster) -> Result<OperatorProcess> {
        let kubeconfig =
            cluster.kubeconfig_for_service_account(&self.namespace, &self.service_account).await?;
        let launch = Launch { operator: self.operator, args: self.args()?, env: self.env()?, kubeconfig };
        OperatorProcess::start(cluster, launch).await
    }

    /// Like [`Pod::start`], but all of its requests go through `proxy`.
    ///
    /// # Errors
    /// Same as [`Pod::start`].
    pub async fn start_through(&self, cluster: &Cluster, proxy: &FaultProxy) -> Result<OperatorProcess> {
        let kubeconfig =
            cluster.kubeconfig_for_service_account(&self.namespace, &self.service_account).await?;
        let kubeconfig = proxy.kubeconfig(&kubeconfig)?;
        let launch = Launch { operator: self.operator, args: self.args()?, env: self.env()?, kubeconfig };
        OperatorProcess::start(cluster, launch).await
    }

    /// The environment, with the pod's fields filled in.
    ///
    /// # Errors
    /// When the chart takes a value from a source that this harness does not support.
    pub fn env(&self) -> Result<Vec<(String, String)>> {
        self.env
            .iter()
            .map(|var| {
                let value = match (&var.value, field(var)) {
                    (Some(value), _) => value.clone(),
                    (None, Some("metadata.name")) => self.name.clone(),
                    (None, Some("metadata.namespace")) => self.namespace.clone(),
                    (None, from) => {
                        bail!("the chart takes {} from {from:?}, which is unknown here", var.name)
                    }
                };
                Ok((var.name.clone(), value))
            })
            .collect()
    }

    /// The arguments, with `$(NAME)` replaced like the kubelet does. One argument differs from the chart: a pod has its
    /// own address and a process does not, so the admin server uses any free port of the loopback address.
    ///
    /// # Errors
    /// Same as [`Pod::env`].
    pub fn args(&self) -> Result<Vec<String>> {
        let env = self.env()?;
        let mut args: Vec<String> = self
            .args
            .iter()
            .filter(|arg| !arg.starts_with("--admin-address"))
            .map(|arg| {
                env.iter().fold(arg.clone(), |arg, (name, value)| arg.replace(&format!("$({name})"), value))
            })
            .collect();
        args.push("--admin-address=127.0.0.1:0".to_owned());
        Ok(args)
    }
}

fn field(var: &EnvVar) -> Option<&str> {
    Some(var.value_from.as_ref()?.field_ref.as_ref()?.field_path.as_str())
}
