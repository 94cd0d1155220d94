//! The provider for machines that a program of the administrator makes: one process per request, JSON in and out.
//!
//! The program is trusted with the machines and not with the cluster: what it lists is checked by the caller, and its
//! output is bounded. A pool can only name a program. The protocol is documented in `docs/providers/exec.md`.

mod program;
mod protocol;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::v1alpha1::ProviderSpec;

pub(crate) use self::program::Program;
use self::protocol::{CreateAnswer, DeleteAnswer, DeletionState, ListAnswer, Operation, Request};
use super::{Deletion, ListedMachine, MachineRequest, NamedProvider, ProviderError};
use crate::plan::supply::{Completeness, NodeSource};
use crate::plan::{ClusterId, PoolKey};

/// One configured program.
#[derive(Debug)]
pub(crate) struct Exec {
    program: Program,
    reference: String,
    cluster: ClusterId,
    /// The pools whose last list was said to be complete.
    complete: Mutex<BTreeSet<PoolKey>>,
}

impl Exec {
    /// The provider that asks `program`, for `cluster`.
    pub(crate) fn new(program: Program, cluster: ClusterId) -> Self {
        let reference = format!("exec.{}", program.name());
        Self { reference, program, cluster, complete: Mutex::default() }
    }

    fn complete(&self) -> MutexGuard<'_, BTreeSet<PoolKey>> {
        // One entry at a time is changed, so a panic elsewhere leaves nothing that could do harm.
        self.complete.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask<A: protocol::Answer>(
        &self,
        pool: &PoolKey,
        operation: Operation<'_>,
    ) -> Result<A, ProviderError> {
        let request = Request::new(&self.cluster, pool, operation);
        let output = self.program.run(&request.text()).await?;
        protocol::read(&output).map_err(|error| self.program.named(error))
    }
}

fn in_seconds(now: Timestamp, seconds: Option<u32>) -> Option<Timestamp> {
    now.checked_add(SignedDuration::from_secs(i64::from(seconds?))).ok()
}

impl NamedProvider for Exec {
    fn reference(&self) -> &str {
        &self.reference
    }

    fn node_source(&self, spec: &ProviderSpec) -> Result<NodeSource, ProviderError> {
        let is_meant = spec.exec.as_ref().is_some_and(|exec| exec.name == self.program.name());
        is_meant.then_some(NodeSource::Kubelet).ok_or_else(|| {
            ProviderError::Invalid(format!("it does not name the program {}", self.program.name()))
        })
    }

    fn completeness(&self, pool: &PoolKey) -> Completeness {
        if self.complete().contains(pool) { Completeness::Stated } else { Completeness::Unknown }
    }

    fn create<'a>(
        &'a self,
        request: MachineRequest<'a>,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Option<Timestamp>, ProviderError>> {
        async move {
            self.node_source(&request.spec.provider)?;
            let operation = Operation::create(request.spec, request.name);
            let CreateAnswer { ready_in_seconds } = self.ask(request.pool, operation).await?;
            Ok(in_seconds(now, ready_in_seconds))
        }
        .boxed()
    }

    fn list<'a>(
        &'a self,
        pool: &'a PoolKey,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<ListedMachine>, ProviderError>> {
        async move {
            self.complete().remove(pool);
            let ListAnswer { machines, complete } = self.ask(pool, Operation::List).await?;
            if complete {
                self.complete().insert(pool.clone());
            }
            Ok(machines
                .into_iter()
                .map(|machine| machine.listed(|seconds| in_seconds(now, seconds)))
                .collect())
        }
        .boxed()
    }

    fn delete<'a>(
        &'a self,
        pool: &'a PoolKey,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Deletion, ProviderError>> {
        async move {
            let DeleteAnswer { state } = self.ask(pool, Operation::Delete { machine: name }).await?;
            Ok(match state {
                DeletionState::Gone => Deletion::Gone,
                DeletionState::Deleting => Deletion::Started,
            })
        }
        .boxed()
    }

    fn forget(&self, pool: &PoolKey) {
        self.complete().remove(pool);
    }
}
