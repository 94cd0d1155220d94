//! Karpenter and Tandem: how each one is installed, started and stopped. Only one runs at a time.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use testbed::cluster::Cluster;
use testbed::karpenter;
use testbed::memory::{self, Field};
use testbed::operators::{OperatorKind, OperatorProcess};
use testbed::tandem::{Release, RunningOperators};

use super::objects::{self, NAME};
use crate::cpu;

/// Namespace of Karpenter's service account and Lease.
const KARPENTER: &str = "karpenter";
/// Namespace of Tandem's release.
const TANDEM: &str = "tandem-system";
/// How long a program may take to start, to become ready, or to stop.
const PATIENCE: Duration = Duration::from_secs(120);
/// The same for kubectl.
const TIMEOUT: &str = "--timeout=120s";

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Autoscaler {
    Karpenter,
    Tandem,
}

impl Autoscaler {
    pub(crate) const BOTH: [Self; 2] = [Self::Karpenter, Self::Tandem];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Karpenter => "Karpenter",
            Self::Tandem => "Tandem",
        }
    }

    /// Its users in the audit log.
    pub(crate) fn users(self) -> Vec<String> {
        let account = |namespace: &str, name: &str| format!("system:serviceaccount:{namespace}:{name}");
        match self {
            Self::Karpenter => vec![account(KARPENTER, KARPENTER)],
            Self::Tandem => [OperatorKind::NodePool, OperatorKind::Autoscaler]
                .map(|operator| account(TANDEM, &format!("tandem-{}", operator.name())))
                .into(),
        }
    }
}

/// Builds the programs of both, so that nothing is built while something is measured.
pub(crate) async fn build() -> Result<()> {
    karpenter::binary().await?;
    for operator in [OperatorKind::NodePool, OperatorKind::Autoscaler] {
        operator.binary().await?;
    }
    Ok(())
}

/// Both as they are installed on the control plane; none runs.
pub(crate) struct Installed {
    release: Release,
    /// Karpenter's kubeconfig.
    kubeconfig: PathBuf,
}

impl Installed {
    /// Installs Tandem's chart and Karpenter's definitions, with a service account for Karpenter.
    pub(crate) async fn on(cluster: &Cluster) -> Result<Self> {
        let release = Release::install(cluster, TANDEM, &[]).await?;
        karpenter::install(cluster).await?;
        apply(cluster, None, &karpenter_account()).await?;
        let kubeconfig = cluster.kubeconfig_for_service_account(KARPENTER, KARPENTER).await?;
        Ok(Self { release, kubeconfig })
    }

    /// Starts one of them.
    pub(crate) async fn start(&self, cluster: &Cluster, which: Autoscaler) -> Result<Running> {
        let processes = match which {
            Autoscaler::Karpenter => {
                let process = karpenter::start_as(cluster, &self.kubeconfig, KARPENTER).await?;
                vec![("karpenter", process)]
            }
            Autoscaler::Tandem => {
                let RunningOperators { node_pool, autoscaler } = self.release.start(cluster).await?;
                vec![
                    (OperatorKind::Autoscaler.name(), autoscaler),
                    (OperatorKind::NodePool.name(), node_pool),
                ]
            }
        };
        Ok(Running { which, processes })
    }
}

/// The account has all rights: what an account may do costs no request, and this says nothing about Karpenter's own roles.
fn karpenter_account() -> Value {
    let rbac = "rbac.authorization.k8s.io";
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KARPENTER}},
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": KARPENTER, "namespace": KARPENTER},
        },
        {
            "apiVersion": format!("{rbac}/v1"),
            "kind": "ClusterRoleBinding",
            "metadata": {"name": KARPENTER},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": KARPENTER, "namespace": KARPENTER}],
        },
    ]})
}

async fn apply(cluster: &Cluster, namespace: Option<&str>, objects: &Value) -> Result<()> {
    let mut args = vec!["apply", "--server-side", "--filename", "-"];
    args.extend(namespace.into_iter().flat_map(|namespace| ["--namespace", namespace]));
    cluster.kubectl_with_input(&args, &objects.to_string()).await?;
    Ok(())
}

/// The one that runs.
pub(crate) struct Running {
    pub(crate) which: Autoscaler,
    /// Its processes by name.
    processes: Vec<(&'static str, OperatorProcess)>,
}

impl Running {
    /// Makes its pool, of at most `most` nodes where it has such a bound, and waits until it reports the pool as ready: it
    /// has been elected then, and works.
    pub(crate) async fn make_pool(&self, cluster: &Cluster, namespace: &str, most: usize) -> Result<()> {
        let (pool, kinds) = match self.which {
            Autoscaler::Karpenter => (objects::karpenter_pool(), &["nodepools.karpenter.sh"][..]),
            Autoscaler::Tandem => {
                let kinds = &["nodepools.tandem.dev", "nodepoolautoscalers.tandem.dev"][..];
                (objects::tandem_pool(most), kinds)
            }
        };
        apply(cluster, Some(namespace), &pool).await?;
        for kind in kinds {
            let object = format!("{kind}/{NAME}");
            let args = ["wait", "--namespace", namespace, "--for=condition=Ready", TIMEOUT, object.as_str()];
            cluster.kubectl(&args).await.with_context(|| format!("{object} is not ready"))?;
        }
        Ok(())
    }

    /// Deletes its pool and waits until it is gone.
    pub(crate) async fn delete_pool(&self, cluster: &Cluster, namespace: &str) -> Result<()> {
        let kinds = match self.which {
            Autoscaler::Karpenter => "nodepools.karpenter.sh",
            Autoscaler::Tandem => "nodepoolautoscalers.tandem.dev,nodepools.tandem.dev",
        };
        cluster.kubectl(&["delete", kinds, NAME, "--namespace", namespace, TIMEOUT]).await?;
        Ok(())
    }

    /// Checks that all of its processes run.
    pub(crate) fn check_alive(&self) -> Result<()> {
        self.processes.iter().try_for_each(|(_, process)| process.check_alive())
    }

    /// The processor time of its processes so far, in seconds.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        self.processes.iter().map(|(_, process)| cpu::seconds(process.pid())).sum()
    }

    /// The most that each of its processes ever had resident, in MiB.
    pub(crate) fn peaks(&self) -> Result<Vec<(&'static str, f64)>> {
        let peak = |(name, process): &(&'static str, OperatorProcess)| {
            Ok((*name, memory::of(&process.pid().to_string(), Field::Peak)?))
        };
        self.processes.iter().map(peak).collect()
    }

    /// The ends of its logs.
    pub(crate) fn log_tails(&self) -> String {
        self.processes.iter().map(|(name, process)| format!("{name}:\n{}\n", process.log_tail())).collect()
    }

    /// Stops it.
    pub(crate) async fn stop(&self) -> Result<()> {
        for (name, process) in &self.processes {
            process.stop(PATIENCE).await.with_context(|| format!("{name} does not stop"))?;
        }
        Ok(())
    }
}

/// Checks that no object of either is left, and no node: the other one would meet them.
pub(crate) async fn nothing_is_left(cluster: &Cluster) -> Result<()> {
    let kinds = "nodes,nodeclaims.karpenter.sh,nodepools.karpenter.sh,nodepools.tandem.dev,nodepoolautoscalers.tandem.dev";
    let left = cluster.kubectl(&["get", kinds, "--all-namespaces", "--output=name"]).await?;
    ensure!(
        left.trim().is_empty(),
        "left behind: {}",
        left.split_whitespace().collect::<Vec<_>>().join(", ")
    );
    Ok(())
}
