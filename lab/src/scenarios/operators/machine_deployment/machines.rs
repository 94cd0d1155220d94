//! The `MachineDeployment` of the scenario, its machines and their load, as they are on the server.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::cluster_api;
use testbed::test_env::is_ready;
use testbed::wait::eventually;

use super::super::tandem::Tandem;

/// Name of the `MachineDeployment`.
pub(super) const WORKERS: &str = "workers";
/// Time limit of a step of Cluster API, which looks at a drain again after 20 seconds.
pub(super) const MACHINE_PATIENCE: Duration = Duration::from_secs(120);
/// Annotation on a `Machine`: it goes before those without when its `MachineSet` shrinks.
const DELETE: &str = "cluster.x-k8s.io/delete-machine";
/// The condition by which a machine is let in: a readiness gate of the template.
const LET_IN: &str = "lab.tandem.dev/LetIn";
/// Label on a `Machine` with the name of its `MachineSet`.
const SET_LABEL: &str = "cluster.x-k8s.io/set-name";

/// A `Machine`.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// Its name.
    pub(super) name: String,
    /// Whether it carries the mark of the one that goes next.
    pub(super) is_marked: bool,
    /// Its Node's name; `None` while it has not joined.
    pub(super) node: Option<String>,
    set: String,
    is_going: bool,
    is_let_in: bool,
}

impl Machine {
    fn of(object: &DynamicObject) -> Self {
        let text = |pointer: &str| object.data.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let label = |key: &str| object.metadata.labels.as_ref().and_then(|all| all.get(key)).cloned();
        Self {
            name: object.metadata.name.clone().unwrap_or_default(),
            is_marked: object.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(DELETE)),
            node: text("/status/nodeRef/name"),
            set: label(SET_LABEL).unwrap_or_default(),
            is_going: object.metadata.deletion_timestamp.is_some(),
            is_let_in: holds(object, LET_IN),
        }
    }
}

/// The machines of the scenario.
pub(super) struct Workers<'a> {
    /// Tandem, and the context.
    pub(super) tandem: &'a Tandem<'a>,
}

impl<'a> Workers<'a> {
    /// Creates the `MachineDeployment` with 4 machines that are let in.
    pub(super) async fn create(tandem: &'a Tandem<'a>) -> Result<Self> {
        let ctx = tandem.ctx;
        cluster_api::create(&ctx.cluster, ctx.namespace(), WORKERS).await?;
        let workers = Self { tandem };
        let gates = json!([{"conditionType": LET_IN}]);
        workers
            .patch(&json!({"spec": {"replicas": 4, "template": {"spec": {"readinessGates": gates}}}}))
            .await?;
        workers.all_let_in(4).await?;
        Ok(workers)
    }

    /// Runs `count` pods, each on a node of its own.
    pub(super) async fn load(&self, count: usize) -> Result<()> {
        let apart = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}},
        ]});
        let web: Deployment = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {
                "replicas": count,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {
                        "affinity": {"podAntiAffinity": apart},
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{"name": "app", "image": "example.invalid/app"}],
                    },
                },
            },
        }))?;
        self.tandem.ctx.set(&web).await?;
        self.tandem.pods_run(count).await
    }

    async fn all_machines(&self) -> Result<Api<DynamicObject>> {
        let ctx = self.tandem.ctx;
        Ok(cluster_api::machines(ctx.unrecorded_client().await?, ctx.namespace()))
    }

    async fn deployments(&self) -> Result<Api<DynamicObject>> {
        let ctx = self.tandem.ctx;
        Ok(cluster_api::deployments(ctx.unrecorded_client().await?, ctx.namespace()))
    }

    /// The `MachineDeployment`.
    pub(super) async fn deployment(&self) -> Result<DynamicObject> {
        Ok(self.deployments().await?.get(WORKERS).await?)
    }

    /// The number that it keeps.
    pub(super) async fn number(&self) -> Result<i64> {
        let number = self.deployment().await?.data.pointer("/spec/replicas").and_then(Value::as_i64);
        number.context("the MachineDeployment has no number")
    }

    /// Its machines, in the order of their names.
    pub(super) async fn machines(&self) -> Result<Vec<Machine>> {
        let all = self.all_machines().await?.list(&ListParams::default()).await?;
        let mut all: Vec<Machine> = all.iter().map(Machine::of).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// The nodes of the cluster.
    async fn nodes(&self) -> Result<Vec<Node>> {
        Ok(Api::<Node>::all(self.tandem.ctx.unrecorded_client().await?)
            .list(&ListParams::default())
            .await?
            .items)
    }

    /// The names of the nodes that are cordoned.
    pub(super) async fn cordoned(&self) -> Result<BTreeSet<String>> {
        let cordoned = |node: &Node| node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
        let nodes = self.nodes().await?.into_iter().filter(cordoned);
        Ok(nodes.filter_map(|node| node.metadata.name).collect())
    }

    /// The names of the nodes that are Ready.
    async fn ready_nodes(&self) -> Result<BTreeSet<String>> {
        let ready = self.nodes().await?.into_iter().filter(is_ready);
        Ok(ready.filter_map(|node| node.metadata.name).collect())
    }

    async fn pods(&self) -> Result<Vec<Pod>> {
        let ctx = self.tandem.ctx;
        let pods = Api::<Pod>::namespaced(ctx.unrecorded_client().await?, ctx.namespace());
        Ok(pods.list(&ListParams::default()).await?.items)
    }

    /// Those of `machines` on whose node a pod is.
    pub(super) async fn with_pod(&self, machines: &[Machine]) -> Result<Vec<Machine>> {
        let pods = self.pods().await?.into_iter();
        let busy: BTreeSet<String> = pods.filter_map(|pod| pod.spec?.node_name).collect();
        let has_pod = |machine: &&Machine| machine.node.as_ref().is_some_and(|node| busy.contains(node));
        Ok(machines.iter().filter(has_pod).cloned().collect())
    }

    /// Waits until Cluster API has seen the number and there are `wanted` machines, none of which is going, and each has a
    /// Ready node.
    pub(super) async fn settles(&self, wanted: usize) -> Result<Vec<Machine>> {
        let what = format!("the MachineDeployment has {wanted} machines, and none is going");
        eventually(MACHINE_PATIENCE, &what, || async {
            let (machines, ready) = (self.machines().await?, self.ready_nodes().await?);
            let is_up = |machine: &Machine| {
                !machine.is_going && machine.node.as_ref().is_some_and(|node| ready.contains(node))
            };
            let deployment = self.deployment().await?;
            let status = &deployment.data["status"];
            let is_seen = status["observedGeneration"].as_i64() == deployment.metadata.generation
                && status["replicas"] == wanted;
            let is_so = is_seen && machines.len() == wanted && machines.iter().all(is_up);
            ensure!(is_so, "{machines:?}, ready {ready:?}, {status}");
            Ok(Some(machines))
        })
        .await
    }

    /// Lets every machine in until there are `wanted` of one template, all available, and nothing rolls out. Returns the
    /// names of those that were let in.
    pub(super) async fn all_let_in(&self, wanted: usize) -> Result<BTreeSet<String>> {
        let let_in = std::sync::Mutex::new(BTreeSet::new());
        let what = format!("{wanted} machines are let in, and nothing rolls out");
        eventually(MACHINE_PATIENCE, &what, || async {
            for machine in
                self.machines().await?.iter().filter(|machine| !machine.is_let_in && !machine.is_going)
            {
                self.let_in(machine).await?;
                let_in
                    .lock()
                    .map_err(|_poisoned| anyhow::anyhow!("a look panicked"))?
                    .insert(machine.name.clone());
            }
            let deployment = self.deployment().await?;
            let status = &deployment.data["status"];
            let is_over = status["observedGeneration"].as_i64() == deployment.metadata.generation
                && status["availableReplicas"] == wanted
                && status["upToDateReplicas"] == wanted
                && status["replicas"] == wanted
                && !holds(&deployment, "RollingOut");
            ensure!(is_over, "{status}");
            Ok(Some(()))
        })
        .await?;
        let_in.into_inner().map_err(|_poisoned| anyhow::anyhow!("a look panicked"))
    }

    /// Waits until the rollout stands: the `old` machines are there, and a new one with a Ready node that is not let in.
    pub(super) async fn stands_after(&self, old: &[Machine]) -> Result<Vec<Machine>> {
        eventually(MACHINE_PATIENCE, "the rollout waits for its first machine", || async {
            let deployment = self.deployment().await?;
            let is_rolling = holds(&deployment, "RollingOut");
            let is_seen =
                deployment.data["status"]["observedGeneration"].as_i64() == deployment.metadata.generation;
            let machines = self.machines().await?;
            let ready = self.ready_nodes().await?;
            let has_joined =
                machines.iter().all(|it| it.node.as_ref().is_some_and(|node| ready.contains(node)));
            let is_kept =
                old.iter().all(|it| machines.iter().any(|now| now.name == it.name && !now.is_going));
            let stands = is_rolling && is_seen && has_joined && is_kept && machines.len() == old.len() + 1;
            ensure!(stands, "RollingOut {is_rolling}, {machines:?}");
            Ok(Some(machines))
        })
        .await
    }

    /// Waits until `waiting` of `count` pods have no node, and the others run.
    pub(super) async fn pods_waiting(&self, count: usize, waiting: usize) -> Result<()> {
        eventually(MACHINE_PATIENCE, &format!("{waiting} of {count} pods wait for a node"), || async {
            let phases: Vec<_> = self.pods().await?.into_iter().filter_map(|pod| pod.status?.phase).collect();
            let of = |wanted: &str| phases.iter().filter(|phase| *phase == wanted).count();
            if (of("Running"), of("Pending"), phases.len()) == (count - waiting, waiting, count) {
                return Ok(Some(()));
            }
            bail!("{phases:?}")
        })
        .await
    }

    /// Lets a machine in: sets the condition that its readiness gate names.
    #[expect(
        clippy::disallowed_methods,
        reason = "the part of the lab, and the condition has no other writer"
    )]
    async fn let_in(&self, machine: &Machine) -> Result<()> {
        let condition = json!({
            "type": LET_IN, "status": "True", "reason": "LetIn", "message": "",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        });
        let patch = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "status": {"conditions": [condition]},
        });
        let params = PatchParams::apply("lab");
        match self.all_machines().await?.patch_status(&machine.name, &params, &Patch::Apply(patch)).await {
            // Or it has gone meanwhile.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            answer => Ok(answer.map(drop)?),
        }
    }

    /// What a scaler does before it lowers the number.
    pub(super) async fn drain_and_mark(&self, machine: &Machine) -> Result<()> {
        let node = machine.node.as_deref().context("the machine has no node")?;
        self.tandem.kubectl(&["drain", node, "--ignore-daemonsets", "--timeout=60s"]).await?;
        let (machine, mark) =
            (format!("machines.cluster.x-k8s.io/{}", machine.name), format!("{DELETE}=bob"));
        self.tandem.kubectl(&["annotate", &machine, &mark]).await.map(drop)
    }

    /// Takes that back.
    pub(super) async fn unmark_and_uncordon(&self, machine: &Machine) -> Result<()> {
        let (object, mark) = (format!("machines.cluster.x-k8s.io/{}", machine.name), format!("{DELETE}-"));
        self.tandem.kubectl(&["annotate", &object, &mark]).await?;
        let node = machine.node.as_deref().context("the machine has no node")?;
        self.tandem.kubectl(&["uncordon", node]).await.map(drop)
    }

    /// Sets or removes an annotation of the `MachineDeployment`.
    pub(super) async fn annotate(&self, key: &str, value: Option<&str>) -> Result<()> {
        self.patch(&json!({"metadata": {"annotations": {key: value}}})).await
    }

    /// Sets the template of the machines' infrastructure.
    pub(super) async fn set_template(&self, name: &str) -> Result<()> {
        self.patch(&json!({"spec": {"template": {"spec": {"infrastructureRef": {"name": name}}}}})).await
    }

    #[expect(clippy::disallowed_methods, reason = "a user changes a field that has no other writer")]
    async fn patch(&self, patch: &Value) -> Result<()> {
        self.deployments().await?.patch(WORKERS, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }
}

/// The number of machines of the old and of the new `MachineSet`, which is that of `new`.
pub(super) fn by_set(machines: &[Machine], new: &Machine) -> [(&'static str, usize); 2] {
    let of_new = machines.iter().filter(|machine| machine.set == new.set).count();
    [("of the old template", machines.len() - of_new), ("of the new template", of_new)]
}

/// Whether this condition of an object is `True`.
fn holds(object: &DynamicObject, condition: &str) -> bool {
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|all| all.iter().any(|it| it["type"] == condition && it["status"] == "True"))
}

/// Deletes what has machines, while the controllers that end those still run.
pub(super) async fn clear(tandem: &Tandem<'_>) -> Result<()> {
    for kinds in ["deployments", "nodepools.tandem.dev", "machinedeployments", "clusters.cluster.x-k8s.io"] {
        tandem.kubectl(&["delete", kinds, "--all", "--wait", "--timeout=90s"]).await?;
    }
    Ok(())
}
