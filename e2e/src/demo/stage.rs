//! Where the demo plays: the cluster, the chart, the operators, a namespace; and how all of it goes again.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{Options, Screen};
use crate::audit::Event;
use crate::cluster::{self, Cluster};
use crate::control_plane::locate::Source;
use crate::control_plane::toolbox::Tool;
use crate::operators::OperatorProcess;
use crate::tandem::{Operators, Release};

/// The namespace of the chart's release.
const RELEASE_NAMESPACE: &str = "tandem-system";
/// The namespace of the pool and its load.
pub(super) const NAMESPACE: &str = "tandem-demo";
/// What is applied.
const MANIFEST: &str = include_str!("../../manifests/demo.yaml");

/// A cluster with Tandem on it.
pub(super) struct Stage {
    pub(super) cluster: Cluster,
    pub(super) release: Release,
    pub(super) operators: Operators,
    /// Plays the kubelets on a cluster that has no kwok of ours.
    _kwok: Option<OperatorProcess>,
}

impl Stage {
    /// Starts or finds the cluster, installs the chart, starts the operators.
    pub(super) async fn new(screen: &Screen, options: &Options) -> Result<Self> {
        screen.part("Setting the stage");
        let source = options.kubeconfig.clone().map(Source::Foreign);
        let cluster = Cluster::start(cluster::Options { source, ..cluster::Options::default() }).await?;
        let version = cluster.client().await?.apiserver_version().await?.git_version;
        match cluster.startup() {
            Some(took) => screen
                .say("cluster", &format!("a real control plane, Kubernetes {version}, up in {took:.1?}")),
            None => screen.say("cluster", &format!("yours, Kubernetes {version}")),
        }
        let kwok = if cluster.is_embedded() { None } else { Some(kwok(&cluster).await?) };
        let values = [format!("writeStrategy={}", options.write_strategy)];
        let release = Release::install(&cluster, RELEASE_NAMESPACE, &values).await?;
        screen.say(
            "helm",
            &format!(
                "installed charts/tandem into {RELEASE_NAMESPACE}, writeStrategy={}",
                options.write_strategy
            ),
        );
        let operators = release.start(&cluster).await?;
        screen.say(
            "operators",
            "nodepool-operator and autoscaler-operator run, each under the chart's own ServiceAccount",
        );
        cluster.kubectl(&["create", "namespace", NAMESPACE]).await?;
        cluster.kubectl_with_input(&["apply", "--namespace", NAMESPACE, "--filename", "-"], MANIFEST).await?;
        screen.say("kubectl", "applied a NodePool (0 to 12 nodes), a NodePoolAutoscaler and a Deployment");
        Ok(Self { cluster, release, operators, _kwok: kwok })
    }

    /// What the API server wrote down, where that can be read.
    pub(super) fn events(&self) -> Option<Result<Vec<Event>>> {
        Some(self.cluster.audit_log()?.read_all())
    }

    /// Takes away what was put there. Pools go while their operator still runs, because it is what drains them.
    pub(super) async fn clear(self, screen: &Screen) -> Result<()> {
        let Self { cluster, release, operators, _kwok } = self;
        if !cluster.is_embedded() {
            let delete = ["delete", "namespace", NAMESPACE, "--wait=true", "--timeout=120s"];
            cluster
                .kubectl(&delete)
                .await
                .context("the demo's namespace is left behind; delete it by hand")?;
        }
        operators.stop().await?;
        if !cluster.is_embedded() {
            release.uninstall(&cluster).await?;
            screen.say("helm", "uninstalled; the custom resource definitions stay, as the chart promises (kubectl delete crd …)");
        }
        cluster.stop().await?;
        screen.say("demo", "everything the demo started has ended");
        Ok(())
    }
}

/// kwok for somebody else's cluster: the program from the Go module, with the stages of the tests.
async fn kwok(cluster: &Cluster) -> Result<OperatorProcess> {
    let toolbox = cluster::Options::default().toolbox;
    let stages = toolbox.module.join("stages");
    let found = toolbox.find(&[Tool::Kwok]).await?.pop().context("the toolbox is empty")?;
    let mut args = found.first_args;
    args.push(format!("--kubeconfig={}", cluster.kubeconfig_path().display()));
    args.push("--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".to_owned());
    args.push("--node-lease-duration-seconds=40".to_owned());
    for stage in ["node.yaml", "pod.yaml"] {
        args.push(format!("--config={}", stages.join(stage).display()));
    }
    OperatorProcess::start_program(cluster, "kwok", &found.path, args, Vec::new()).await
}

/// How long a step of the story may take before something is wrong. Nodes take up to three seconds each, and this
/// machine may be busy.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);
