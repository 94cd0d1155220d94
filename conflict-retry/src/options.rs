//! Options of every write: field manager, retry policy, time limits and observer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{PatchParams, PostParams};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::observe::{NoopObserver, Observer};
use crate::operation::Verb;
use crate::outcome::Refusal;
use crate::policy::RetryPolicy;
use crate::protect::Protection;

/// Time limit of a request that only reads. Our own limit: a read needs no admission, and the API server answers it from
/// etcd in well under a second. kube's client has no time limit for responses.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit of a request that writes. Our own limit: above the 10 s that an admission webhook may take
/// (`timeoutSeconds`, whose default that is), half the default policy's deadline, so that a lost answer leaves time to
/// look up the result, and below the 34 s after which the API server itself ends a mutating request.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// The field manager of a program whose file name is not known.
const UNNAMED: &str = "conflict-retry";

/// Longest field manager name that the API server accepts, in bytes (`FieldManagerMaxLength` in apimachinery).
const MANAGER_LENGTH: usize = 128;

/// Options of a write: field manager, retry policy, time limits and observer. Cheap to clone; keep one per controller.
#[derive(Clone)]
pub struct WriteOptions {
    field_manager: String,
    policy: RetryPolicy,
    /// Also applied to a policy that is set later.
    cancel: Option<CancellationToken>,
    attempt_timeout: Option<Duration>,
    hard_deadline: Option<Instant>,
    force: bool,
    observer: Arc<dyn Observer>,
    protection: Protection,
}

impl WriteOptions {
    /// Writes as `field_manager` (at most 128 printable characters; it appears in `metadata.managedFields`), with the
    /// default policy, 5 s per read and 15 s per write. An invalid name is rejected when it is used, before anything is
    /// sent.
    pub fn new(field_manager: impl Into<String>) -> Self {
        Self {
            field_manager: field_manager.into(),
            policy: RetryPolicy::default(),
            cancel: None,
            attempt_timeout: None,
            hard_deadline: None,
            force: false,
            observer: Arc::new(NoopObserver),
            protection: Protection::default(),
        }
    }

    /// Sets the retry policy: how long and how fast to retry.
    #[must_use]
    pub fn with_policy(mut self, policy: RetryPolicy) -> Self {
        self.policy = match &self.cancel {
            Some(token) => policy.with_cancellation(token.clone()),
            None => policy,
        };
        self
    }

    /// Stops as soon as `token` is cancelled.
    #[must_use]
    pub fn with_cancellation(mut self, token: CancellationToken) -> Self {
        self.policy = self.policy.with_cancellation(token.clone());
        self.cancel = Some(token);
        self
    }

    /// Sets how long one request may take, whether it reads or writes, before its outcome counts as unknown. Keep it well
    /// below the policy's deadline, because after a lost answer the object is read to find out the result, and above
    /// what admission webhooks may take (10 s each unless they say otherwise).
    #[must_use]
    pub fn with_attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = Some(timeout);
        self
    }

    /// Sets the time at which the last request must have ended, whatever its other time limits: the caller's right to
    /// write ends then (for example, a lease). A running request is dropped at that time, none begins after it, and no wait
    /// begins that would end after it; the run ends as if cancelled. (The deadline of a [`RetryPolicy`] lets a running
    /// request end.)
    #[must_use]
    pub fn with_hard_deadline(mut self, deadline: Instant) -> Self {
        self.hard_deadline = Some(deadline);
        self
    }

    /// Lets server-side apply take fields over from other managers instead of failing. Other writes ignore it.
    #[must_use]
    pub fn with_force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Sets the observer that receives each request.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Sets the protections that each write passes: a queue, a retry budget, a rate limiter, a circuit breaker.
    #[must_use]
    pub fn with_protection(mut self, protection: Protection) -> Self {
        self.protection = protection;
        self
    }

    pub(crate) fn protection(&self) -> &Protection {
        &self.protection
    }

    /// Rejects options with which no request can be made.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let manager = &self.field_manager;
        if manager.is_empty() || manager.len() > MANAGER_LENGTH || manager.chars().any(char::is_control) {
            return Err(Refusal::FieldManager(manager.clone()));
        }
        if self.attempt_timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(Refusal::AttemptTimeout);
        }
        Ok(())
    }

    /// The field manager name, as in `metadata.managedFields`.
    pub fn field_manager(&self) -> &str {
        &self.field_manager
    }

    pub(crate) fn policy(&self) -> &RetryPolicy {
        &self.policy
    }

    pub(crate) fn attempt_timeout(&self, verb: Verb) -> Duration {
        self.attempt_timeout.unwrap_or(if verb.is_write() { WRITE_TIMEOUT } else { READ_TIMEOUT })
    }

    /// How long a request that begins now may take; `None` when it may not begin.
    pub(crate) fn time_left(&self, verb: Verb) -> Option<Duration> {
        let timeout = self.attempt_timeout(verb);
        let Some(left) = self.hard_time_left() else { return Some(timeout) };
        (!left.is_zero()).then(|| left.min(timeout))
    }

    /// Whether a request may still begin after a wait of `delay`.
    pub(crate) fn outlasts(&self, delay: Duration) -> bool {
        self.hard_time_left().is_none_or(|left| delay < left)
    }

    /// Waits until the caller's right to write ends; forever if it does not.
    pub(crate) async fn until_hard_deadline(&self) {
        match self.hard_deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    }

    fn hard_time_left(&self) -> Option<Duration> {
        self.hard_deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    pub(crate) fn observer(&self) -> &dyn Observer {
        self.observer.as_ref()
    }

    pub(crate) fn post_params(&self) -> PostParams {
        PostParams { field_manager: Some(self.field_manager.clone()), ..PostParams::default() }
    }

    pub(crate) fn patch_params(&self) -> PatchParams {
        PatchParams { field_manager: Some(self.field_manager.clone()), ..PatchParams::default() }
    }

    pub(crate) fn apply_params(&self) -> PatchParams {
        PatchParams { force: self.force, ..self.patch_params() }
    }
}

impl Default for WriteOptions {
    /// Writes as the program's file name, which is what the API server derives a field manager from as well.
    fn default() -> Self {
        let program = std::env::current_exe().ok();
        let name = program.as_deref().and_then(std::path::Path::file_stem).and_then(std::ffi::OsStr::to_str);
        let usable = name.filter(|name| !name.is_empty() && name.len() <= MANAGER_LENGTH);
        Self::new(usable.unwrap_or(UNNAMED))
    }
}

impl fmt::Debug for WriteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteOptions")
            .field("field_manager", &self.field_manager)
            .field("policy", &self.policy)
            .field("attempt_timeout", &self.attempt_timeout)
            .field("hard_deadline", &self.hard_deadline)
            .field("force", &self.force)
            .field("protection", &self.protection)
            .finish_non_exhaustive()
    }
}
