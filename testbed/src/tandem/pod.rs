//! A Deployment's pod, as a process: with the arguments and environment that the kubelet would set.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, EnvVar, ResourceRequirements};
use serde::Deserialize as _;
use shared_crds::quantity::Exact;

use super::chart;
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
    /// The most memory that it may have, in bytes, where the chart limits it.
    pub memory_limit: Option<u64>,
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
            memory_limit: memory_limit(container)?,
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
        self.start_with(cluster, kubeconfig).await
    }

    /// Like [`Pod::start`], but all of its requests go through `proxy`.
    ///
    /// # Errors
    /// Same as [`Pod::start`].
    pub async fn start_through(&self, cluster: &Cluster, proxy: &FaultProxy) -> Result<OperatorProcess> {
        let kubeconfig =
            cluster.kubeconfig_for_service_account(&self.namespace, &self.service_account).await?;
        let kubeconfig = proxy.kubeconfig(&kubeconfig)?;
        self.start_with(cluster, kubeconfig).await
    }

    async fn start_with(&self, cluster: &Cluster, kubeconfig: PathBuf) -> Result<OperatorProcess> {
        let (args, env, memory_limit) = (self.args()?, self.env()?, self.memory_limit);
        let launch = Launch { operator: self.operator, args, env, kubeconfig, memory_limit };
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

fn memory_limit(container: &Container) -> Result<Option<u64>> {
    container.resources.as_ref().map_or(Ok(None), limit_of)
}

/// The memory limit that the chart's own values give an operator, in bytes: for one that is started without a release.
///
/// # Errors
/// When the values cannot be read or have no such limit.
pub fn default_memory_limit(operator: OperatorKind) -> Result<u64> {
    let values = chart().join("values.yaml");
    let text =
        std::fs::read_to_string(&values).with_context(|| format!("cannot read {}", values.display()))?;
    let values: serde_json::Value = serde_saphyr::from_str(&text)?;
    let key = match operator {
        OperatorKind::NodePool => "nodepoolOperator",
        OperatorKind::Autoscaler => "autoscalerOperator",
    };
    let resources = ResourceRequirements::deserialize(&values[key]["resources"])?;
    limit_of(&resources)?.with_context(|| format!("{key} has no memory limit"))
}

fn limit_of(resources: &ResourceRequirements) -> Result<Option<u64>> {
    let Some(limit) = resources.limits.as_ref().and_then(|limits| limits.get("memory")) else {
        return Ok(None);
    };
    Ok(Some(u64::try_from(Exact::parse(&limit.0)?.units())?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_memory_limit_of_the_container_is_the_pods() {
        for (resources, expected) in [
            (json!({"limits": {"memory": "256Mi"}, "requests": {"memory": "64Mi"}}), Some(256 << 20)),
            (json!({"requests": {"memory": "64Mi"}}), None),
            (json!({"limits": {"cpu": "1"}}), None),
        ] {
            let container = json!({"name": "operator", "resources": resources});
            let container: Container = serde_json::from_value(container).unwrap();
            assert_eq!(memory_limit(&container).unwrap(), expected, "{resources}");
        }
    }

    #[test]
    fn the_chart_limits_both_operators() {
        for operator in [OperatorKind::NodePool, OperatorKind::Autoscaler] {
            assert!(default_memory_limit(operator).unwrap() >= 64 << 20, "{}", operator.name());
        }
    }
}
