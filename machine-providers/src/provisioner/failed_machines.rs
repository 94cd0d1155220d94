//! The deletion of machines that will never run, or have to be asked to go again.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::jiff::Timestamp;
use node_lifecycle::keys::PoolKey;
use node_lifecycle::supply::FailedMachine;
use tokio::time::Instant;

use super::Provisioner;
use crate::{Deletion, ProviderError};

/// No further deletion starts after this time. The list shows what is left once more.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Number of concurrent deletions.
const PARALLEL: usize = 4;

impl Provisioner {
    /// Deletes the machines `failed`, and returns what failed of that. If a machine stays, or cannot be deleted, that costs the
    /// pool the slot and no more: a failure that may be about one machine is returned once.
    pub(super) async fn delete_failed(
        &self,
        key: &PoolKey,
        failed: &[FailedMachine],
        now: Timestamp,
    ) -> Vec<ProviderError> {
        let deadline = Instant::now() + TIME_LIMIT;
        let delete = |machine: FailedMachine| async move {
            if Instant::now() >= deadline {
                return (machine, Ok(Deletion::Started));
            }
            let deleted = self.delete_listed(key, &machine, now).await;
            (machine, deleted)
        };
        let calls: Vec<_> = failed.iter().cloned().map(delete).collect();
        let mut calls = stream::iter(calls).buffer_unordered(PARALLEL);
        let mut failures = Vec::new();
        while let Some((machine, deleted)) = calls.next().await {
            match deleted {
                Ok(Deletion::Gone | Deletion::Started | Deletion::HandedOver)
                | Err(ProviderError::Conflict) => {}
                Err(error) if error.may_be_of_one_machine() && !machine.is_new => {}
                Err(error) => failures.push(error),
            }
        }
        failures
    }

    async fn delete_listed(
        &self,
        key: &PoolKey,
        machine: &FailedMachine,
        now: Timestamp,
    ) -> Result<Deletion, ProviderError> {
        self.may_change()?;
        self.lists.changing(key);
        self.unending.asked(key, &machine.provider, &machine.name, now);
        self.delete_at(key, &machine.provider, &machine.name, now).await
    }
}
