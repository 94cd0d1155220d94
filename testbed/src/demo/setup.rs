//! The demo's setup: the cluster, what makes the machines, the chart, the operators, a namespace; and how all of it is
//! removed again.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use shared_crds::names::MACHINE_LABEL;
use toolbox::tools::Tool;

use super::machinery::{MachineStates, Machinery};
use super::maker::Maker;
use super::names::{NAMESPACE, NODE_POOL_OPERATOR};
use super::{DemoOptions, Screen};
use crate::audit::Event;
use crate::cluster;
use crate::cluster::Cluster;
use crate::control_plane::locate::{BinarySource, locate};
use crate::operators::OperatorProcess;
use crate::tandem::{Release, RunningOperators};

/// The namespace of the chart's release.
const RELEASE_NAMESPACE: &str = "tandem-system";

/// A cluster with Tandem on it, as far as the setup has got.
pub(super) struct Setup {
    pub(super) cluster: Cluster,
    pub(super) maker: Maker,
    machinery: Option<Machinery>,
    release: Option<Release>,
    operators: Option<RunningOperators>,
    /// Simulates the kubelets on a cluster without our own kwok.
    kwok: Option<OperatorProcess>,
}

impl Setup {
    /// Builds what is missing, and starts or finds the cluster. On a cluster that this harness does not run, it fails if
    /// Tandem or a demo exists already.
    pub(super) async fn new(screen: &Screen, options: &DemoOptions) -> Result<Self> {
        let source = locate(options.kubeconfig.as_deref(), |name| std::env::var_os(name))?;
        options.provider.check_cluster(matches!(source, BinarySource::Foreign(_)))?;
        screen.part("Setting up");
        let (maker, why) = Maker::of(options.provider);
        if let Some(why) = why {
            screen.say("kubelets", &format!("no real ones: {why}"));
        }
        maker.build().await?;
        let source = Some(source);
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
        Ok(Self { cluster, maker, machinery: None, release: None, operators: None, kwok: None })
    }

    /// Installs the chart, starts the operators, applies the manifest.
    pub(super) async fn fill(&mut self, screen: &Screen, options: &DemoOptions) -> Result<()> {
        let cluster = &self.cluster;
        if !cluster.is_embedded() {
            self.kwok = Some(kwok(cluster).await?);
        }
        let machinery = self.machinery.insert(Machinery::start(self.maker, cluster, screen).await?);
        let mut values = machinery.values();
        values.push(format!("writeStrategy={}", options.write_strategy));
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
        machinery.furnish(cluster, screen).await?;
        let manifest = self.maker.manifest();
        cluster
            .kubectl_with_input(&["apply", "--namespace", NAMESPACE, "--filename", "-"], &manifest)
            .await?;
        let most = self.maker.story().most;
        screen.say(
            "kubectl",
            &format!("applied a NodePool (0 to {most} nodes), a NodePoolAutoscaler and a Deployment"),
        );
        if self.maker != Maker::Simulated {
            Screen::quote(&self.maker.stanza());
        }
        Ok(())
    }

    /// The machines; `None` where there are only Nodes.
    pub(super) async fn machines(&self, client: &Client) -> Result<Option<MachineStates>> {
        match &self.machinery {
            None | Some(Machinery::Simulated) => Ok(None),
            Some(machinery) => machinery.machines(client).await.map(Some),
        }
    }

    /// Prints the machines and their Nodes.
    pub(super) async fn show_machines(&self) -> Result<()> {
        let Some(machines) = self.machines(&self.cluster.client().await?).await? else { return Ok(()) };
        if let Some(command) = self.machinery.as_ref().and_then(Machinery::kubectl) {
            let command = [&["--namespace", NAMESPACE], command].concat();
            Screen::quote(&self.cluster.kubectl(&command).await?);
        } else {
            let names: Vec<String> = machines.into_keys().collect();
            Screen::quote(&format!("MACHINE\n{}", names.join("\n")));
        }
        let label = MACHINE_LABEL.replace('.', "\\.");
        let columns = format!(
            "--output=custom-columns=NODE:.metadata.name,MACHINE:.metadata.labels.{label},PROVIDER-ID:.spec.providerID"
        );
        Screen::quote(&self.cluster.kubectl(&["get", "nodes", &columns]).await?);
        Ok(())
    }

    /// Kills the `NodePool` operator like a power failure, and starts it again.
    pub(super) async fn kill_node_pool_operator(&mut self, screen: &Screen) -> Result<()> {
        let operator = &mut self.operators.as_mut().context("no operator runs")?.node_pool;
        let exit = operator.kill_9().await?;
        operator.start_again().await?;
        screen.say(
            "operators",
            &format!(
                "{NODE_POOL_OPERATOR} was killed ({exit}), and started again; it leads when its lease has run out, after 15 s"
            ),
        );
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

    /// Checks that both operators run, and what makes the machines.
    pub(super) async fn keep_alive(&self) -> Result<()> {
        if let Some(operators) = &self.operators {
            operators.keep_alive().await?;
        }
        self.machinery.as_ref().map_or(Ok(()), Machinery::check_alive)
    }

    /// The ends of all logs.
    pub(super) fn log_tails(&self) -> String {
        let both = self.operators.as_ref();
        let operators = both.map(|both| [both.node_pool.log_tail(), both.autoscaler.log_tail()]);
        let all = operators.into_iter().flatten().chain(self.machinery.as_ref().map(Machinery::log_tail));
        all.collect::<Vec<_>>().join("\n")
    }

    /// Removes everything that was set up, as far as possible: a failing step does not prevent the others. Pools are
    /// deleted while their operator still runs, because it drains them.
    pub(super) async fn clear(self, screen: &Screen) -> Result<()> {
        let Self { cluster, maker: _, machinery, release, operators, kwok } = self;
        let mut failed = Vec::new();
        let mut done = |step: Result<()>| failed.extend(step.err().map(|error| format!("{error:#}")));
        if cluster.is_embedded() {
            done(stop(operators).await);
        } else {
            let delete = |name: &'static str| {
                let cluster = &cluster;
                let args =
                    ["delete", "namespace", name, "--ignore-not-found", "--wait=true", "--timeout=180s"];
                async move { cluster.kubectl(&args).await.map(drop) }
            };
            done(delete(NAMESPACE).await);
            done(stop(operators).await);
            if let Some(release) = release {
                done(release.uninstall(&cluster).await);
                done(delete(RELEASE_NAMESPACE).await);
                screen
                    .say("helm", "uninstalled; the custom resource definitions stay, as the chart promises");
            }
        }
        // After the operators, which would have it make machines again.
        if let Some(machinery) = machinery {
            done(machinery.stop().await);
        }
        drop(kwok);
        done(cluster.stop().await);
        ensure!(failed.is_empty(), "something of the demo is left behind:\n{}", failed.join("\n"));
        screen.say("demo", "everything the demo started has ended");
        Ok(())
    }
}

/// Stops both operators. Where one has ended before, that is the story's doing or its error, and the other one is killed.
async fn stop(operators: Option<RunningOperators>) -> Result<()> {
    match operators {
        Some(both) if both.check_alive().is_ok() => both.stop().await,
        Some(_) | None => Ok(()),
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

/// Time limit of a step of the demo. Simulated nodes take up to three seconds each, other controllers work in rounds of
/// several seconds, and the machine may be busy.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);
