//! The requests for Cluster API's objects, apart from the number of machines.

use kube::Api;
use kube::api::ListParams;
use node_lifecycle::keys::PoolKey;
use shared_runtime::write::Outcome;

use super::management::Connection;
use super::objects::{DEPLOYMENT_LABEL, Machine, MachineDeployment, MachineHealthCheck, MachineSet};
use super::observed::Observed;
use super::{ADVICE, ProviderError};
use crate::api_errors::whole;

impl Connection {
    pub(super) fn deployments(&self, pool: &PoolKey) -> Api<MachineDeployment> {
        Api::namespaced(self.client.clone(), &pool.namespace)
    }

    pub(super) fn machines(&self, pool: &PoolKey) -> Api<Machine> {
        Api::namespaced(self.client.clone(), &pool.namespace)
    }

    /// The set `name` and its machines, as they are now.
    pub(super) async fn observe(&self, pool: &PoolKey, name: &str) -> Result<Observed, ProviderError> {
        let of_deployment = ListParams::default().labels(&format!("{DEPLOYMENT_LABEL}={name}"));
        let sets: Api<MachineSet> = Api::namespaced(self.client.clone(), &pool.namespace);
        let deployment =
            self.deployments(pool).get_opt(name).await.map_err(|error| ADVICE.of_read(&error))?;
        let namespace = &pool.namespace;
        let deployment = deployment.ok_or_else(|| {
            let message =
                format!("there is no MachineDeployment {namespace}/{name}, in the pool's own namespace");
            ProviderError::Absent(message)
        })?;
        let machines =
            self.machines(pool).list(&of_deployment).await.map_err(|error| ADVICE.of_read(&error))?;
        let machines = whole(machines)?;
        let sets = sets.list(&of_deployment).await.map_err(|error| ADVICE.of_read(&error))?;
        let sets = whole(sets)?;
        let with_machines =
            sets.iter().filter(|set| set.spec.replicas.is_some_and(|replicas| replicas > 0)).count();
        let sets = (with_machines > 1).then(|| format!("{with_machines} of its MachineSets have machines"));
        let rolling = deployment.rolling().or(sets).map(|how| {
            format!("MachineDeployment {name} is rolling out and could remove another machine than the drained one ({how})")
        });
        Ok(Observed { deployment, machines, rolling })
    }

    /// The health checks of the namespace; `None` where they may not be listed.
    pub(super) async fn health_checks(
        &self,
        pool: &PoolKey,
    ) -> Result<Option<Vec<MachineHealthCheck>>, ProviderError> {
        let checks: Api<MachineHealthCheck> = Api::namespaced(self.client.clone(), &pool.namespace);
        match checks.list(&ListParams::default()).await {
            Ok(listed) => whole(listed).map(Some),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Some(Vec::new())),
            // A role of an earlier release does not allow it.
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
            Err(error) => Err(ADVICE.of_read(&error)),
        }
    }

    /// Marks the machine as the one that goes next, unless it is, or goes already.
    pub(super) async fn mark(&self, pool: &PoolKey, machine: &Machine) -> Result<(), ProviderError> {
        if machine.is_marked() || machine.is_going() {
            return Ok(());
        }
        self.patch(pool, machine, machine.mark()).await
    }

    /// Writes `patch` to the machine, at the version that was read.
    pub(super) async fn patch(
        &self,
        pool: &PoolKey,
        machine: &Machine,
        patch: serde_json::Value,
    ) -> Result<(), ProviderError> {
        match self.writer.json_patch(&self.machines(pool), machine, patch).await {
            Ok(Outcome::Conflict(_) | Outcome::Aborted) => Err(ProviderError::Conflict),
            Ok(_) => Ok(()),
            Err(error) => Err(ADVICE.of_write(&error)),
        }
    }
}
