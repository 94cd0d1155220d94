//! Leader election on a `Lease` that cannot elect two leaders: every write of the lease carries the version that was
//! read, so of two candidates one gets a conflict; and the holder stops by itself, on its own clock, before another
//! candidate may take over.
//!
//! `lease` (pure) decides which process holds the lease; `fence` defines what a process may do without it.

mod lease;
mod usable;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

pub use self::lease::{InvalidTiming, Timing};
use self::lease::{JITTER_FACTOR, LeaseState, Watcher};
use self::usable::Usable;
use crate::clock::Clock;
use crate::error::{Categorised, chain};
use crate::fence::Fence;
use crate::metrics::Metrics;
use crate::readiness::Gate;
use crate::write::{Created, Outcome, Writer, WriterError};

/// The lease, and this process's identity.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Identity of this process; unique, also among restarts of one Pod.
    pub identity: String,
    /// The lease times.
    pub timing: Timing,
}

/// How a candidacy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a process that has lost the lease must stop"]
pub enum Ended {
    /// It was told to end; a lease that it held has been released.
    Released,
    /// It was the leader and could not renew in time.
    Lost,
}

/// A candidate for the lease.
pub struct Elector {
    api: Api<Lease>,
    writer: Writer,
    config: LeaseConfig,
    fence: Fence,
    clock: Clock,
    metrics: Metrics,
    watcher: Watcher,
    usable: Usable,
    /// The holder or error of the last log line, so that each is logged once.
    said: String,
}

/// Closes a fence when dropped.
struct CloseOnDrop(Fence);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The result of one attempt.
enum Try {
    /// This process holds the lease, as stored now.
    Won(Box<Lease>),
    /// Another process holds it, or the attempt met a conflict.
    Not,
}

impl Elector {
    /// A candidate. `writer` must be the one without a fence ([`Writer::for_lease`]): the lease is what opens the fence.
    pub fn new(
        client: kube::Client,
        writer: Writer,
        config: LeaseConfig,
        fence: Fence,
        clock: Clock,
        metrics: Metrics,
    ) -> Self {
        let api = Api::namespaced(client, &config.namespace);
        let (watcher, usable) = (Watcher::default(), Usable::default());
        Self { api, writer, config, fence, clock, metrics, watcher, usable, said: String::new() }
    }

    /// Keeps `gate` closed while the lease cannot be used.
    #[must_use]
    pub fn ready_by(mut self, gate: Gate) -> Self {
        self.usable = Usable::new(gate);
        self
    }

    /// [`Elector::run`] in a task of its own. However it ends, also by a panic, the fence is closed then: the lease is
    /// not renewed any more, and the process must not continue as if it was.
    pub fn spawn(self, release: CancellationToken) -> JoinHandle<Ended> {
        let closes = CloseOnDrop(self.fence.clone());
        tokio::spawn(async move {
            let ended = self.run(release).await;
            drop(closes);
            ended
        })
    }

    /// Acquires the lease and renews it, until `release` is cancelled or the lease is lost. Updates the fence
    /// accordingly.
    pub async fn run(mut self, release: CancellationToken) -> Ended {
        let timing = self.config.timing;
        let (mut held, began) = loop {
            let began = self.clock.boottime();
            let tried = tokio::select! {
                () = release.cancelled() => return Ended::Released,
                tried = tokio::time::timeout(timing.renew_deadline, self.acquire()) => tried,
            };
            match self.result_of(tried) {
                Some(Try::Won(lease)) => {
                    self.fence.renewed(began + timing.renew_deadline, began + timing.lease_duration);
                    break (lease, began);
                }
                Some(Try::Not) | None => self.fence.stands_by(),
            }
            // As in client-go: candidates that wait for one lease do not all check at the same time.
            let pause = timing.retry_period.mul_f64(1.0 + JITTER_FACTOR * rand::random::<f64>());
            tokio::select! {
                () = release.cancelled() => return Ended::Released,
                () = tokio::time::sleep(pause) => {}
            }
        };
        info!(lease = %self.config.name, namespace = %self.config.namespace, identity = %self.config.identity, "leading");
        self.metrics.leading(true);
        let ended = self.lead(&mut held, began, &release).await;
        self.metrics.leading(false);
        ended
    }

    /// Renews the lease until told to stop or too late.
    async fn lead(
        &mut self,
        held: &mut Lease,
        mut renewed_at: Duration,
        release: &CancellationToken,
    ) -> Ended {
        let timing = self.config.timing;
        loop {
            let deadline = renewed_at + timing.renew_deadline;
            tokio::select! {
                () = release.cancelled() => {
                    self.fence.close();
                    self.release(held).await;
                    return Ended::Released;
                }
                () = tokio::time::sleep(timing.retry_period.min(deadline.saturating_sub(self.clock.boottime()))) => {}
            }
            let began = self.clock.boottime();
            let left = deadline.saturating_sub(began);
            let tried = tokio::time::timeout(left, self.renew(held)).await;
            match self.result_of(tried) {
                Some(Try::Won(lease)) => {
                    *held = *lease;
                    renewed_at = began;
                    self.fence.renewed(began + timing.renew_deadline, began + timing.lease_duration);
                }
                Some(Try::Not) => {
                    warn!(lease = %self.config.name, "another replica has taken the lease");
                    self.fence.close();
                    return Ended::Lost;
                }
                None if self.clock.boottime() >= deadline => {
                    warn!(lease = %self.config.name, after = ?timing.renew_deadline, "could not renew the lease in time");
                    self.fence.close();
                    return Ended::Lost;
                }
                None => {}
            }
        }
    }

    /// Reads the lease once, and takes it if it is free.
    async fn acquire(&mut self) -> Result<Try, TryError> {
        let LeaseConfig { namespace, name, identity, timing } = &self.config;
        let Some(current) = self.api.get_opt(name).await? else {
            let now = self.clock.monotonic();
            if self.watcher.judge_absent(identity, timing.lease_duration, now) != LeaseState::Free {
                return Ok(Try::Not);
            }
            let lease = lease::new(namespace, name, identity, *timing, self.clock.now());
            return Ok(match self.writer.create(&self.api, &lease).await? {
                Created::Created(lease) => Try::Won(Box::new(lease)),
                Created::AlreadyExists => Try::Not,
            });
        };
        match self.watcher.judge(&current, identity, timing.lease_duration, self.clock.monotonic()) {
            LeaseState::Mine | LeaseState::Free => self.put(&current).await,
            LeaseState::Held { by } => {
                if self.said != by {
                    info!(lease = %name, leader = %by, "standing by");
                    self.said = by;
                }
                Ok(Try::Not)
            }
        }
    }

    /// Renews at the version of the last renewal. After a conflict the lease is read once: another writer (of a label,
    /// for instance) changed the version, an answer to our write was lost, or another candidate took the lease.
    async fn renew(&mut self, held: &Lease) -> Result<Try, TryError> {
        if let won @ Try::Won(_) = self.put(held).await? {
            return Ok(won);
        }
        let LeaseConfig { name, identity, timing, .. } = &self.config;
        let Some(current) = self.api.get_opt(name).await? else {
            return Ok(Try::Not);
        };
        match self.watcher.judge(&current, identity, timing.lease_duration, self.clock.monotonic()) {
            LeaseState::Mine => match self.put(&current).await? {
                won @ Try::Won(_) => Ok(won),
                // Two conflicts in a row: the lease is not lost yet, the next period tries again.
                Try::Not => Err(TryError::Contended),
            },
            LeaseState::Free | LeaseState::Held { .. } => Ok(Try::Not),
        }
    }

    async fn put(&self, current: &Lease) -> Result<Try, TryError> {
        let LeaseConfig { identity, timing, .. } = &self.config;
        let lease = lease::renewed(current, identity, *timing, self.clock.now());
        Ok(match self.writer.replace(&self.api, &lease).await? {
            Outcome::Written(lease) | Outcome::AlreadyDone(lease) => Try::Won(Box::new(lease)),
            Outcome::Unchanged(_) | Outcome::Conflict(_) | Outcome::Gone | Outcome::Aborted => Try::Not,
        })
    }

    /// Releases the lease at its version: if another process holds it by now, this changes nothing.
    async fn release(&self, held: &Lease) {
        let lease = lease::released(held, self.clock.now());
        let released =
            tokio::time::timeout(self.config.timing.retry_period, self.writer.replace(&self.api, &lease))
                .await;
        match released {
            Ok(Ok(Outcome::Written(_) | Outcome::AlreadyDone(_))) => {
                info!(lease = %self.config.name, "lease released");
            }
            Ok(Ok(other)) => debug!(outcome = other.label(), "the lease was not ours to release any more"),
            Ok(Err(failed)) => warn!(error = %chain(&failed), "could not release the lease, it will expire"),
            Err(_) => warn!("could not release the lease in time, it will expire"),
        }
    }

    /// The result of the attempt, if there is one; of failures in a row, each kind is logged once.
    fn result_of(
        &mut self,
        tried: Result<Result<Try, TryError>, tokio::time::error::Elapsed>,
    ) -> Option<Try> {
        let LeaseConfig { namespace, name, timing, .. } = &self.config;
        let now = self.clock.monotonic();
        let failed = match tried {
            Ok(Ok(tried)) => {
                if matches!(tried, Try::Won(_)) {
                    // The next failure is another one, also where it is of the same kind.
                    self.said.clear();
                }
                self.metrics.lease_usable(true);
                if self.usable.works(now) {
                    info!(lease = %name, %namespace, "the lease can be used, this replica is a candidate");
                }
                return Some(tried);
            }
            Ok(Err(failed)) => failed,
            Err(_) => TryError::Timeout,
        };
        let (category, advice, error) = (failed.category(), failed.advice(), chain(&failed));
        if self.said != category {
            category.clone_into(&mut self.said);
            warn!(lease = %name, %namespace, category, advice, error, "cannot read or write the lease");
        }
        let reason = format!("cannot use lease {namespace}/{name} ({category}): {error}; {advice}");
        if self.usable.fails(reason, now, timing.lease_duration) {
            self.metrics.lease_usable(false);
            warn!(lease = %name, %namespace, category, "not ready: without the lease this replica takes over from none");
        }
        None
    }
}

/// Why an attempt had no result.
#[derive(Debug, thiserror::Error)]
enum TryError {
    #[error("cannot read the lease")]
    Read(#[from] kube::Error),
    #[error("cannot write the lease")]
    Write(#[from] WriterError),
    #[error("the lease changed twice while it was being renewed")]
    Contended,
    #[error("the API server did not answer in time")]
    Timeout,
}

impl TryError {
    /// What the user can do about it.
    fn advice(&self) -> &'static str {
        match self.category() {
            "forbidden" => {
                "allow get, create and update on leases in API group \"coordination.k8s.io\", or pass --leader-elect=false"
            }
            "unauthorized" => "check the token or certificate this process runs with",
            "not_found" => "create the namespace, or choose another with --lease-namespace",
            _ => "trying again",
        }
    }
}

impl Categorised for TryError {
    fn category(&self) -> &'static str {
        match self {
            Self::Read(failed) => crate::error::client_category(failed),
            Self::Write(failed) => failed.category(),
            Self::Contended => "conflict",
            Self::Timeout => "timeout",
        }
    }
}

/// The identity of this process: the name of the Pod or the host, and a random part, so that a container that was
/// restarted in its Pod does not treat its predecessor's lease as its own.
pub fn identity(host: &str, random: u32) -> String {
    format!("{host}_{random:08x}")
}

/// The defaults of [`Timing`] in client-go. The holder stops if the lease cannot be read or written for longer than
/// this.
pub const DEFAULT_TIMING: Timing = Timing {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};

#[cfg(test)]
#[path = "leader_tests.rs"]
mod tests;
