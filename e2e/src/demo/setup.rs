//! The demo's setup: the cluster, the chart, the operators, a namespace; and how all of it is removed again.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

use super::{DemoOptions, Screen};
use crate::audit::Event;
use crate::cluster;
use crate::cluster::Cluster;
use crate::control_plane::locate::BinarySource;
use crate::control_plane::toolbox::Tool;
use crate::operators::OperatorProcess;
use crate::tandem::{Release, RunningOperators};

/// The namespace of the chart's release.
const RELEASE_NAMESPACE: &str = "tandem-system";
/// The namespace of the pool and its load.
pub(super) const NAMESPACE: &str = "tandem-demo";
/// The applied manifest.
const MANIFEST: &str = include_str!("../../manifests/demo.yaml");

/// A cluster with Tandem on it, as far as the setup has got.
pub(super) struct Setup {
    pub(super) cluster: Cluster,
    release: Option<Release>,
    operators: Option<RunningOperators>,
    /// Simulates the kubelets on a cluster without our own kwok.
    kwok: Option<OperatorProcess>,
}

impl Setup {
    /// Starts or finds the cluster. On a cluster that this harness does not run, it fails if Tandem or a demo exists
    /// already.
    pub(super) async fn new(screen: &Screen, options: &DemoOptions) -> Result<Self> {
        screen.part("Setting up");
        let source = options.kubeconfig.clone().map(BinarySource::Foreign);
        let cluster =
            Cluster::start(cluster::ClusterOptions { source, ..cluster::ClusterOptions::default() }).await?;
        let version = cluster.client().await?.apiserver_version().await?.git_version;
        match cluster.startup() {
            Some(took) => {
                screen
                    .say("cluster", &format!("a real control plane, Kubernetes {version}, up in {took:.1?}"));
            }
            None => screen.say("cluster", &format!("yours, Kubernetes {version}")),
        }
        if !cluster.is_embedded() {
            let namespaces = Api::<Namespace>::all(cluster.client().await?);
            for name in [RELEASE_NAMESPACE, NAMESPACE] {
                let found = namespaces.get_opt(name).await.context("cannot read the cluster's namespaces")?;
                ensure!(
                    found.is_none(),
                    "the cluster has a namespace {name} already; the demo would take over what is in it. Use another \
                     cluster, or delete what is left of an earlier demo: kubectl delete namespace {NAMESPACE}; \
                     helm uninstall tandem --namespace {RELEASE_NAMESPACE}; kubectl delete namespace {RELEASE_NAMESPACE}"
                );
            }
        }
        Ok(Self { cluster, release: None, operators: None, kwok: None })
    }

    /// Installs the chart, starts the operators, applies the manifest.
    pub(super) async fn fill(&mut self, screen: &Screen, options: &DemoOptions) -> Result<()> {
        let cluster = &self.cluster;
        if !cluster.is_embedded() {
            self.kwok = Some(kwok(cluster).await?);
        }
        let values = [format!("writeStrategy={}", options.write_strategy)];
        // Helm may fail half-way, so there is something to clean up from here on.
        self.release = Some(Release::named(RELEASE_NAMESPACE));
        let release = Release::install(cluster, RELEASE_NAMESPACE, &values).await?;
        let strategy = &options.write_strategy;
        screen.say(
            "helm",
            &format!("installed charts/tandem into {RELEASE_NAMESPACE}, writeStrategy={strategy}"),
        );
        self.operators = Some(release.start(cluster).await?);
        screen.say(
            "operators",
            "nodepool-operator and autoscaler-operator run, each under the chart's own ServiceAccount",
        );
        cluster.kubectl(&["create", "namespace", NAMESPACE]).await?;
        cluster.kubectl_with_input(&["apply", "--namespace", NAMESPACE, "--filename", "-"], MANIFEST).await?;
        screen.say("kubectl", "applied a NodePool (0 to 12 nodes), a NodePoolAutoscaler and a Deployment");
        Ok(())
    }

    /// The events of the audit log; `None` where it cannot be read.
    pub(super) fn events(&self) -> Option<Result<Vec<Event>>> {
        Some(self.cluster.audit_log()?.read_all())
    }

    /// Copies the audit log, if it can be read.
    pub(super) fn keep_audit_log(&self, to: &Path) -> Result<()> {
        let log = self.cluster.audit_log().context("this cluster's audit log cannot be read")?;
        std::fs::copy(log.path(), to)
            .with_context(|| format!("cannot write the audit log to {}", to.display()))?;
        Ok(())
    }

    /// Checks that both operators run.
    pub(super) fn check_alive(&self) -> Result<()> {
        self.operators.as_ref().map_or(Ok(()), RunningOperators::check_alive)
    }

    /// The ends of both operators' logs.
    pub(super) fn log_tails(&self) -> String {
        let tails = self.operators.as_ref();
        tails.map_or_else(String::new, |both| {
            format!("{}\n{}", both.node_pool.log_tail(), both.autoscaler.log_tail())
        })
    }

    /// Removes everything that was set up, as far as possible: a failing step does not prevent the others. Pools are
    /// deleted while their operator still runs, because it drains them.
    pub(super) async fn clear(self, screen: &Screen) -> Result<()> {
        let Self { cluster, release, operators, kwok } = self;
        let mut failed = Vec::new();
        let mut done = |step: Result<()>| failed.extend(step.err().map(|error| format!("{error:#}")));
        if !cluster.is_embedded() {
            let delete = |name: &'static str| {
                let cluster = &cluster;
                let args =
                    ["delete", "namespace", name, "--ignore-not-found", "--wait=true", "--timeout=120s"];
                async move { cluster.kubectl(&args).await.map(drop) }
            };
            done(delete(NAMESPACE).await);
            if let Some(operators) = &operators {
                done(operators.stop().await);
            }
            if let Some(release) = release {
                done(release.uninstall(&cluster).await);
                done(delete(RELEASE_NAMESPACE).await);
                screen
                    .say("helm", "uninstalled; the custom resource definitions stay, as the chart promises");
            }
        } else if let Some(operators) = &operators {
            done(operators.stop().await);
        }
        drop(kwok);
        done(cluster.stop().await);
        ensure!(failed.is_empty(), "something of the demo is left behind:\n{}", failed.join("\n"));
        screen.say("demo", "everything the demo started has ended");
        Ok(())
    }
}

/// The command that renders a stored audit log.
pub(super) fn timeline_command(log: &Path) -> String {
    format!("cargo lab timeline {} --object nodepools --object nodes --namespace {NAMESPACE}", log.display())
}

/// kwok for a cluster that this harness does not run: the program from the Go module, with the stages of the tests.
async fn kwok(cluster: &Cluster) -> Result<OperatorProcess> {
    let toolbox = cluster::ClusterOptions::default().toolbox;
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

/// Time limit of a step of the demo. Nodes take up to three seconds each, and the machine may be busy.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);
