//! The provider whose machines are those of a `MachineDeployment` of Cluster API. It names its machines itself and keeps a
//! number of them, which is one more field that several writers share: it is written through `/scale`, at the version
//! that was read, and only while it is the number that the decision was made from.
//!
//! To remove a machine: mark it, then lower the number by one. Cluster API takes a marked machine first, **but not while it
//! rolls out** (kubernetes/autoscaler#8494: the marked machine survives and another one goes). So nothing is lowered then.

mod connection;
#[cfg(test)]
mod duties_tests;
#[cfg(test)]
pub(super) mod hands;
pub mod management;
mod objects;
mod observed;
#[cfg(test)]
pub(super) mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use node_lifecycle::keys::PoolKey;
use node_lifecycle::supply::{NodeSource, Size};
use shared_crds::names::NODEPOOL_OPERATOR;
use shared_crds::v1alpha1::ProviderSpec;
use shared_runtime::write::Outcome;
use tokio::sync::Mutex;

use self::management::{Connection, Connections, Management};
use self::objects::{DEPLOYMENT_LABEL, Machine, MachineDeployment};
use self::observed::Observed;
use super::api_errors::Advice;
use super::{Deletion, ProviderError, SizedList, SizedProvider};

/// What comes before the name of the `MachineDeployment` in `ProviderSpec::reference`.
const PREFIX: &str = "clusterApi.";

/// What to tell the user about Cluster API's objects.
const ADVICE: Advice = Advice {
    absent: "the cluster has no MachineDeployments (cluster.x-k8s.io/v1beta2 or v1beta1): install Cluster API, or name its \
             cluster with --cluster-api-kubeconfig",
    forbidden: "the chart's value providers.clusterApi.enabled grants the rights",
};

/// Cluster API, by its objects in one cluster.
pub(crate) struct ClusterApi {
    management: Connections,
    /// The number that this process wrote last: for an object that was made without one, the API server does not record who
    /// wrote it.
    written: SyncMutex<HashMap<(PoolKey, String), i32>>,
    /// Removals from one set are decided one after the other: each reads what the one before it wrote. Those from another set do
    /// not wait for them, because an answer may take as long as a call may.
    removals: SyncMutex<HashMap<SetKey, Arc<Mutex<()>>>>,
}

/// A `MachineDeployment` of the management cluster.
#[derive(PartialEq, Eq, Hash)]
struct SetKey {
    namespace: String,
    name: String,
}

impl ClusterApi {
    /// The provider whose objects are in this management cluster.
    pub(crate) fn new(management: Management) -> Self {
        Self {
            management: Connections::new(management),
            written: SyncMutex::default(),
            removals: SyncMutex::default(),
        }
    }

    fn written(&self, pool: &PoolKey, name: &str) -> Option<i32> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.get(&(pool.clone(), name.to_owned())).copied()
    }

    /// What the removals from the set `name` hold, one after the other.
    fn removals(&self, pool: &PoolKey, name: &str) -> Arc<Mutex<()>> {
        let mut removals = self.removals.lock().unwrap_or_else(PoisonError::into_inner);
        let set = SetKey { namespace: pool.namespace.clone(), name: name.to_owned() };
        Arc::clone(removals.entry(set).or_default())
    }

    /// Sets the number of machines from `observed` to `target`.
    async fn resize(
        &self,
        to: &Connection,
        pool: &PoolKey,
        deployment: &MachineDeployment,
        target: i32,
    ) -> Result<(), ProviderError> {
        let (api, observed) = (to.deployments(pool), Some(deployment.replicas()));
        match to.writer.resize(&api, deployment, observed, target).await {
            Ok(Outcome::Written(_) | Outcome::AlreadyDone(_) | Outcome::Unchanged(_)) => {
                let key = (pool.clone(), deployment.metadata.name.clone().unwrap_or_default());
                self.written.lock().unwrap_or_else(PoisonError::into_inner).insert(key, target);
                Ok(())
            }
            Ok(Outcome::Gone) => Ok(()),
            Ok(Outcome::Conflict(_) | Outcome::Aborted) => Err(ProviderError::Conflict),
            Err(error) => Err(ADVICE.of_write(&error)),
        }
    }
}

fn name_of(machine: &Machine) -> &str {
    machine.metadata.name.as_deref().unwrap_or_default()
}

/// Why nothing is done to a machine that is not of the set `name`: the mark would let its own set remove it first, and without a
/// drain, and the number of this one would fall although it has lost nothing. Nor is it said to be gone.
fn of_no_such_set(machine: &str, name: &str) -> ProviderError {
    ProviderError::Transient(format!(
        "the Machine {machine} is not one of MachineDeployment {name}, by its label {DEPLOYMENT_LABEL}, and is left alone"
    ))
}

/// The name of the `number`th machine that was asked for and does not exist yet.
fn promised(deployment: &str, number: usize) -> String {
    // No object can have it.
    format!("{deployment}+{number}")
}

/// Whether `machine` is the name of one that was asked for and did not exist yet.
fn is_promised(deployment: &str, machine: &str) -> bool {
    machine.strip_prefix(deployment).is_some_and(|rest| rest.starts_with('+'))
}

impl SizedProvider for ClusterApi {
    fn deployment<'a>(&self, reference: &'a str) -> Option<&'a str> {
        reference.strip_prefix(PREFIX)
    }

    fn kind(&self) -> &'static str {
        "clusterApi"
    }

    fn node_source(&self, spec: &ProviderSpec) -> Result<NodeSource, ProviderError> {
        let is_meant = spec.cluster_api.is_some();
        is_meant
            .then_some(NodeSource::Kubelet)
            .ok_or_else(|| ProviderError::Invalid("clusterApi is not set".to_owned()))
    }

    fn list<'a>(
        &'a self,
        pool: &'a PoolKey,
        name: &'a str,
    ) -> BoxFuture<'a, Result<SizedList, ProviderError>> {
        async move {
            let management = self.management.current().await?;
            let observed = management.observe(pool, name).await;
            if matches!(observed, Err(ProviderError::Absent(_))) {
                self.management.forget().await;
            }
            let observed = observed?;
            let deployment = &observed.deployment;
            if let Some(why) = deployment.refusal() {
                return Err(why);
            }
            let duties = observed.duties(management.health_checks(pool).await?.as_deref());
            let removals_wait = observed.removals_wait(&[]);
            let machines = observed.listed(name);
            let size = Size {
                replicas: deployment.replicas(),
                generation: deployment.metadata.generation.unwrap_or_default(),
            };
            let own = |_: &i32| NODEPOOL_OPERATOR.to_owned();
            let written = || self.written(pool, name).filter(|written| *written == size.replicas);
            let size_writer = deployment.replicas_writer().or_else(|| written().as_ref().map(own));
            let rolling = deployment.rolling_out().map(|how| format!("MachineDeployment {name}: {how}"));
            let capacity = deployment.capacity();
            let completeness = observed.completeness();
            Ok(SizedList {
                size,
                size_writer,
                capacity,
                machines,
                removals_wait,
                rolling,
                duties,
                completeness,
            })
        }
        .boxed()
    }

    fn grow<'a>(
        &'a self,
        pool: &'a PoolKey,
        name: &'a str,
        from: Size,
        by: i32,
    ) -> BoxFuture<'a, Result<(), ProviderError>> {
        async move {
            let management = self.management.current().await?;
            let Observed { deployment, .. } = management.observe(pool, name).await?;
            if let Some(why) = deployment.refusal() {
                return Err(why);
            }
            if deployment.replicas() != from.replicas {
                return Err(ProviderError::Conflict);
            }
            self.resize(&management, pool, &deployment, from.replicas.saturating_add(by)).await
        }
        .boxed()
    }

    fn shrink<'a>(
        &'a self,
        pool: &'a PoolKey,
        name: &'a str,
        from: Size,
        without: &'a [String],
    ) -> BoxFuture<'a, Result<(), ProviderError>> {
        async move {
            let removals = self.removals(pool, name);
            let _one = removals.lock().await;
            let management = self.management.current().await?;
            let before = management.observe(pool, name).await?;
            if let Some(why) = before.deployment.refusal() {
                return Err(why);
            }
            for machine in
                before.machines.iter().filter(|machine| without.iter().any(|it| it == name_of(machine)))
            {
                management.mark(pool, machine).await?;
            }
            // Read after the marks, which change the version.
            let after = management.observe(pool, name).await?;
            let wait = after.removals_wait(without);
            let Observed { deployment, .. } = after;
            let is_same = deployment.replicas() == from.replicas
                && deployment.metadata.generation == Some(from.generation);
            if wait.is_some() || !is_same {
                return Err(ProviderError::Conflict);
            }
            // Those of another provider, which the pool had before, cost this set none of its own.
            let is_own = |it: &&String| {
                is_promised(name, it) || before.machines.iter().any(|own| name_of(own) == **it)
            };
            let by = i32::try_from(without.iter().filter(is_own).count()).unwrap_or(i32::MAX);
            if by == 0 {
                return Ok(());
            }
            self.resize(&management, pool, &deployment, from.replicas.saturating_sub(by).max(0)).await
        }
        .boxed()
    }

    fn delete<'a>(
        &'a self,
        pool: &'a PoolKey,
        name: &'a str,
        machine: &'a str,
    ) -> BoxFuture<'a, Result<Deletion, ProviderError>> {
        async move {
            let removals = self.removals(pool, name);
            let _one = removals.lock().await;
            let management = self.management.current().await?;
            let found =
                management.machines(pool).get_opt(machine).await.map_err(|error| ADVICE.of_read(&error))?;
            let Some(found) = found else { return Ok(Deletion::Gone) };
            if !found.is_of(name) {
                return Err(of_no_such_set(machine, name));
            }
            if found.is_going() {
                return Ok(Deletion::Started);
            }
            let before = management.observe(pool, name).await?;
            if let Some(why) = before.deployment.refusal() {
                return Err(why);
            }
            management.mark(pool, &found).await?;
            let observed = management.observe(pool, name).await?;
            let unmarked = observed.staying().filter(|it| !it.is_marked()).count();
            let wanted = observed.deployment.replicas();
            // A number that was lowered before, and whose answer was lost, is not lowered again.
            let is_due = usize::try_from(wanted).unwrap_or_default() > unmarked;
            let is_calm = observed.removals_wait(&[machine.to_owned()]).is_none();
            if is_due && is_calm {
                self.resize(&management, pool, &observed.deployment, wanted.saturating_sub(1)).await?;
            }
            Ok(Deletion::Started)
        }
        .boxed()
    }

    fn keep<'a>(&'a self, pool: &'a PoolKey, machine: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        async move {
            let management = self.management.current().await?;
            let found =
                management.machines(pool).get_opt(machine).await.map_err(|error| ADVICE.of_read(&error))?;
            match found.filter(|machine| machine.is_marked() && !machine.is_going()) {
                Some(machine) => management.patch(pool, &machine, machine.unmark()).await,
                None => Ok(()),
            }
        }
        .boxed()
    }
}
