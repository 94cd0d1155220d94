//! The provider for machines that a program of the administrator makes: one process per request, JSON in and out.
//!
//! The program is trusted with the machines and not with the cluster: what it lists is checked by the caller, and its
//! output is bounded. A pool can only name a program. The protocol is documented in `docs/providers/exec.md`.

#[cfg(test)]
pub(super) mod hands;
mod program;
mod protocol;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeSet;
use std::num::NonZeroU8;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use node_lifecycle::keys::{ClusterId, PoolKey};
use node_lifecycle::supply::{Completeness, NodeSource};
use shared_crds::v1alpha1::ProviderSpec;
use tokio::sync::Semaphore;

pub use self::program::{InvalidProgram, Program};
use self::protocol::{CreateAnswer, DeleteAnswer, DeletionState, ListAnswer, Operation, Request, Unanswered};
use super::{Deletion, ListedMachine, MachineRequest, NamedProvider, ProviderError};

/// How many processes of one program run at the same time by default. They share the memory limit of the operator's container.
pub const MAX_CONCURRENT: NonZeroU8 = NonZeroU8::MIN.saturating_add(3);
/// How long a process may run.
const RUN_LIMIT: Duration = Duration::from_secs(30);
/// How long a request waits until its process may start: as long as two that hang. That is not time of the process.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// One configured program.
#[derive(Debug)]
pub struct Exec {
    program: Program,
    reference: String,
    cluster: ClusterId,
    /// The pools whose last list was said to be complete.
    complete: Mutex<BTreeSet<PoolKey>>,
    most: NonZeroU8,
    /// One place for each process; the requests of all pools wait in turn.
    places: Semaphore,
}

impl Exec {
    /// The provider that asks `program`, for `cluster`.
    pub fn new(program: Program, cluster: ClusterId) -> Self {
        Self {
            reference: format!("exec.{}", program.name()),
            program,
            cluster,
            complete: Mutex::default(),
            most: MAX_CONCURRENT,
            places: Semaphore::new(usize::from(MAX_CONCURRENT.get())),
        }
    }

    /// The same with so many processes at the same time at most.
    #[must_use]
    pub fn at_most(self, most: NonZeroU8) -> Self {
        Self { most, places: Semaphore::new(usize::from(most.get())), ..self }
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
        let busy = || {
            let (most, limit) = (self.most, WAIT_LIMIT.as_secs());
            let message = format!("{most} of its processes run already, and none has ended within {limit} s");
            self.program.named(ProviderError::Busy(message))
        };
        // It is never closed.
        let Ok(Ok(_place)) = tokio::time::timeout(WAIT_LIMIT, self.places.acquire()).await else {
            return Err(busy());
        };
        let is_change = operation.is_change();
        let text = Request::new(&self.cluster, pool, operation).text();
        let output = match tokio::time::timeout(RUN_LIMIT, self.program.run(&text)).await {
            Ok(output) => output,
            Err(_elapsed) => {
                let message = format!("no answer within {} s", RUN_LIMIT.as_secs());
                Err(Unanswered::Failed(ProviderError::Unreachable(message)))
            }
        };
        let answer = output.and_then(|output| protocol::read(&output));
        answer.map_err(|unanswered| self.program.named(unanswered.into_error(is_change)))
    }
}

fn in_seconds(now: Timestamp, seconds: Option<u32>) -> Option<Timestamp> {
    now.checked_add(SignedDuration::from_secs(i64::from(seconds?))).ok()
}

impl NamedProvider for Exec {
    fn reference(&self) -> &str {
        &self.reference
    }

    fn has_call_rate(&self) -> bool {
        true
    }

    fn call_limit(&self) -> Duration {
        // A second more: the process's own limit says more about it.
        WAIT_LIMIT + RUN_LIMIT + Duration::from_secs(1)
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
            let ListAnswer { machines, complete, revision } = self.ask(pool, Operation::List).await?;
            if complete {
                self.complete().insert(pool.clone());
            }
            let current = revision.as_deref().filter(|revision| !revision.is_empty());
            Ok(machines
                .into_iter()
                .map(|machine| machine.listed(current, |seconds| in_seconds(now, seconds)))
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
