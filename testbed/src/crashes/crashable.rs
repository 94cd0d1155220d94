//! Operators of which one may be killed, and the pools that it works on.
//!
//! It runs without leader election, so that each of its many lives begins at once.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::v1alpha1::{ClusterApiProvider, ExecProvider, MachineDeploymentReference, ProviderSpec};

use super::maker::NodeMaker;
use crate::cluster_api::{self, ClusterApi, SetState, WITH_CLUSTER_API};
use crate::end_state::{EndState, MachinesOf};
use crate::fault_proxy::FaultProxy;
use crate::machines::{Machines, PROGRAM};
use crate::objects;
use crate::operators::OperatorKind;
use crate::test_env::{EXITS, PATIENCE, TestEnv};
use crate::wait::eventually;

/// For how long nothing is written when the work is done.
const AT_REST: Duration = Duration::from_secs(3);

/// The operators, of which one may be killed.
pub struct Crashable {
    /// Where they run. The requests of the `NodePool` operator go through `proxy`.
    pub env: TestEnv,
    /// What holds back the answer to its last write.
    pub proxy: FaultProxy,
    /// The machines, where a program makes them.
    pub machines: Option<Machines>,
    /// The controllers of the sets of machines, where those make them.
    cluster_api: Option<ClusterApi>,
}

impl Crashable {
    /// Starts both operators.
    ///
    /// # Errors
    /// When one cannot be started.
    pub async fn begin(prefix: &str, maker: NodeMaker) -> Result<Self> {
        let mut machines = if maker == NodeMaker::Kubelets { Some(Machines::new()?) } else { None };
        let mut values = machines.as_ref().map(Machines::values).unwrap_or_default();
        values.push("nodepoolOperator.extraArgs[0]=--leader-elect=false".to_owned());
        let (mut env, cluster_api) = if maker == NodeMaker::Set {
            let (env, controllers) = begin_with_sets(prefix, values).await?;
            (env, Some(controllers))
        } else {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            (TestEnv::begin(prefix, &values).await?, None)
        };
        if let Some(machines) = &mut machines {
            machines.start_kubelets(env.cluster).await?;
        }
        let proxy = FaultProxy::start(env.cluster).await?;
        env.operators.node_pool.stop(EXITS).await?;
        let pod = env.release.pod(env.cluster, OperatorKind::NodePool).await?;
        env.operators.node_pool = pod.start_through(env.cluster, &proxy).await?;
        Ok(Self { env, proxy, machines, cluster_api })
    }

    fn machines_of(&self) -> MachinesOf<'_> {
        match (&self.machines, &self.cluster_api) {
            (Some(program), _) => MachinesOf::Program(program),
            (None, Some(_)) => MachinesOf::Set,
            (None, None) => MachinesOf::Nothing,
        }
    }

    /// Creates a pool whose spec has these fields, too.
    pub(super) async fn pool(&self, name: &str, spec: &Value) -> Result<()> {
        let mut pool = objects::pool(name, 0, 9);
        match self.machines_of() {
            MachinesOf::Nothing => {}
            MachinesOf::Program(_) => {
                let exec = ExecProvider { name: PROGRAM.to_owned(), ..ExecProvider::default() };
                pool.spec.provider = ProviderSpec { exec: Some(exec), ..ProviderSpec::default() };
            }
            MachinesOf::Set => {
                cluster_api::create_deployment(self.env.cluster, self.env.namespace(), name).await?;
                let machine_deployment_ref = MachineDeploymentReference { name: name.to_owned() };
                let cluster_api = Some(ClusterApiProvider { machine_deployment_ref });
                pool.spec.provider = ProviderSpec { cluster_api, ..ProviderSpec::default() };
            }
        }
        let mut pool = serde_json::to_value(pool)?;
        pool["spec"]["template"]["metadata"]["annotations"] = json!({"example.com/note": "x"});
        json_patch::merge(&mut pool["spec"], spec);
        self.env.create(&serde_json::from_value::<NodePool>(pool)?).await?;
        Ok(())
    }

    /// A budget for the pods of the workload that is called like `pool`.
    pub(super) async fn budget(&self, pool: &str, least: i32) -> Result<()> {
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"name": pool},
            "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": pool}}},
        }))?;
        self.env.create(&budget).await?;
        Ok(())
    }

    /// Changes it.
    pub(super) async fn budget_becomes(&self, pool: &str, least: i32) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"minAvailable": least}}));
        self.env.api::<PodDisruptionBudget>().patch(pool, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until there are `wanted` pods of the workload that is called like `pool`, all running.
    pub(super) async fn running(&self, pool: &str, wanted: usize) -> Result<()> {
        eventually(PATIENCE, &format!("{wanted} pods of {pool} run"), async || {
            let pods = self.pods(pool).await?;
            let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
            let running = pods.iter().filter(|pod| phase(pod).as_deref() == Some("Running")).count();
            ensure!(running == wanted && pods.len() == wanted, "{running} of {} run", pods.len());
            Ok(Some(()))
        })
        .await
    }

    async fn pods(&self, pool: &str) -> Result<Vec<Pod>> {
        let of_pool = ListParams::default().labels(&format!("app={pool}"));
        Ok(self.env.api::<Pod>().list(&of_pool).await?.items)
    }

    /// What there is of `pool` now.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn state(&self, pool: &str) -> Result<EndState> {
        EndState::read(&self.env, pool, self.machines_of()).await
    }

    /// Checks that Cluster API has nothing more to do for `pool`: it goes on when the operator has ended.
    async fn check_settled(&self, pool: &str) -> Result<()> {
        if self.cluster_api.is_none() {
            return Ok(());
        }
        SetState::read(&self.env.client, self.env.namespace(), pool).await?.check_settled()
    }

    /// Waits until nothing has been written for a while.
    pub async fn quiet(&self) {
        self.proxy.writes().quiet(AT_REST).await;
    }

    /// The state of `pool` when nothing more is written, which has to be `expected`, if there is anything to compare with.
    ///
    /// # Errors
    /// When it is not, with every difference.
    pub async fn at_rest(&self, pool: &str, expected: Option<&EndState>) -> Result<EndState> {
        eventually(PATIENCE, &format!("{pool} is at rest"), async || {
            self.check_settled(pool).await?;
            let before = self.state(pool).await?;
            before.check(expected.unwrap_or(&before))?;
            self.quiet().await;
            let after = self.state(pool).await?;
            after.check(&before)?;
            Ok(Some(after))
        })
        .await
    }

    /// Deletes `pool` and its workload, also after work that has failed, and waits until nothing of them is left.
    pub(super) async fn clear(&self, pool: &str) -> Result<()> {
        self.env
            .kubectl(&["delete", "pdb,deployments,statefulsets", pool, "--ignore-not-found", "--wait=false"])
            .await?;
        let (patches, released) =
            (PatchParams::default(), Patch::Merge(json!({"metadata": {"finalizers": null}})));
        for pod in self.pods(pool).await?.iter().filter(|pod| !pod.finalizers().is_empty()) {
            self.env.api::<Pod>().patch(&pod.name_any(), &patches, &released).await?;
        }
        self.env.kubectl(&["delete", "npool", pool, "--ignore-not-found", "--wait=false"]).await?;
        if self.cluster_api.is_some() {
            self.delete_set(pool).await?;
        }
        eventually(PATIENCE, &format!("nothing of {pool} is left"), async || {
            self.state(pool).await?.check(&EndState::nothing())?;
            Ok(Some(()))
        })
        .await
    }

    /// Deletes the `MachineDeployment` of a pool that goes, after it: without the set the operator would not know that the machines
    /// of the nodes are gone.
    async fn delete_set(&self, pool: &str) -> Result<()> {
        eventually(PATIENCE, &format!("{pool} is gone with its machines"), async || {
            self.state(pool).await?.check_gone()?;
            Ok(Some(()))
        })
        .await?;
        let delete = ["delete", "machinedeployments", pool, "--ignore-not-found", "--wait=false"];
        self.env.kubectl(&delete).await?;
        Ok(())
    }

    /// Deletes the pools and what would hold their nodes, and ends the test.
    ///
    /// # Errors
    /// When a pool, a machine or an operator does not go.
    pub async fn end(self) -> Result<()> {
        let (params, all) = (DeleteParams::default(), ListParams::default());
        self.env.api::<PodDisruptionBudget>().delete_collection(&params, &all).await?;
        self.env.kubectl(&["delete", "deployments,statefulsets", "--all"]).await?;
        self.env.api::<NodePool>().delete_collection(&params, &all).await?;
        eventually(PATIENCE, "every pool is gone", async || {
            let pools = self.env.api::<NodePool>().list(&all).await?.items;
            ensure!(pools.is_empty(), "{} are there", pools.len());
            Ok(Some(()))
        })
        .await?;
        let machines = self.machines.as_ref().map_or_else(|| Ok(Vec::new()), Machines::names)?;
        ensure!(machines.is_empty(), "machines are left: {machines:?}");
        let Some(controllers) = self.cluster_api else { return self.env.end().await };
        let machines = cluster_api::machines(self.env.client.clone(), self.env.namespace());
        let left = machines.list(&all).await?.items.len();
        ensure!(left == 0, "{left} Machines are left");
        // Their controllers have to take their finalizers off before the namespace can go.
        for kind in ["machinedeployments", "clusters.cluster.x-k8s.io"] {
            self.env.kubectl(&["delete", kind, "--all", "--timeout=180s"]).await?;
        }
        self.env.end().await?;
        controllers.stop(PATIENCE).await
    }
}

/// Both operators, and Cluster API with a `Cluster` whose sets of machines come with the pools.
async fn begin_with_sets(prefix: &str, mut values: Vec<String>) -> Result<(TestEnv, ClusterApi)> {
    values.push("providers.clusterApi.enabled=true".to_owned());
    let env = TestEnv::begin_with(&WITH_CLUSTER_API, prefix, async |cluster| {
        cluster_api::install(cluster).await?;
        Ok(values)
    });
    let env = env.await?;
    let controllers = cluster_api::start(env.cluster).await?;
    let created = cluster_api::create_cluster(env.cluster, env.cluster, env.namespace()).await;
    created.with_context(|| {
        let (core, infrastructure) = (controllers.core.log_tail(), controllers.infrastructure.log_tail());
        format!("the logs of Cluster API end with\n{core}\n{infrastructure}")
    })?;
    Ok((env, controllers))
}
