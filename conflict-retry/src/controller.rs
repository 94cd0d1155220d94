//! For a `kube::runtime::Controller`: a backoff per object, what to do after a write, and a cache that knows our own
//! writes.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use conflict_retry::controller::ControllerExt as _;
//! use conflict_retry::{WriteError, update};
//! use futures::StreamExt as _;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::runtime::{Controller, controller::Action, watcher};
//! use kube::{Api, ResourceExt as _};
//!
//! async fn reconcile(map: Arc<ConfigMap>, maps: Arc<Api<ConfigMap>>) -> Result<Action, WriteError> {
//!     let outcome = update(&maps, &map.name_any(), |map| {
//!         map.data.get_or_insert_default().insert("colour".into(), "blue".into());
//!     })
//!     .from(&map)
//!     .outcome()
//!     .await?;
//!     Ok(outcome.action())
//! }
//!
//! # async fn example(maps: Api<ConfigMap>) {
//! Controller::new(maps.clone(), watcher::Config::default())
//!     .run_with_backoff(reconcile, Arc::new(maps))
//!     .for_each(|_| async {})
//!     .await;
//! # }
//! ```

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::Stream;
use kube::Resource;
use kube::runtime::controller::{Action, Controller, Error};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use serde::de::DeserializeOwned;

use crate::backoff::InvalidBackoff;
use crate::outcome::Outcome;

/// The first wait after a failure. Our own value: longer than a write takes, so that a lost race is over, and short
/// enough that a passing fault is not noticed. client-go's work queue begins with 5 ms, which is less than one answer
/// of the API server takes.
const BASE: Duration = Duration::from_millis(200);
/// The longest wait. Our own value: an object that was mended elsewhere without an event is tried again within minutes.
/// client-go's work queue goes up to 1000 s.
const CAP: Duration = Duration::from_secs(300);
/// How much a wait is spread, so that objects that failed together do not come back together: 20 % more or less.
const SPREAD: f64 = 0.2;
/// When to reconcile again after a conflict that was not retried: soon, because the watch will bring the winner's version
/// anyway, and reconcile then.
const AFTER_CONFLICT: Duration = Duration::from_secs(1);

impl<T> Outcome<T> {
    /// What a reconciler returns after this outcome of its only write: wait for a change, except after a
    /// [`Conflict`](Self::Conflict). The winner's version comes with the watch, and the object is reconciled again then;
    /// the second until the requeue is for a watch that is late.
    pub fn action(&self) -> Action {
        match self {
            Self::Conflict(_) => Action::requeue(AFTER_CONFLICT),
            Self::Written(_) | Self::Unchanged(_) | Self::AlreadyDone(_) | Self::Gone | Self::Aborted => {
                Action::await_change()
            }
        }
    }
}

/// Runs a `Controller` with a backoff per object.
pub trait ControllerExt<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash,
{
    /// Like `Controller::run`, with a default [`ObjectBackoff`] as the error policy.
    fn run_with_backoff<Ctx, F, Fut, E>(
        self,
        reconcile: F,
        context: Arc<Ctx>,
    ) -> impl Stream<Item = Result<(ObjectRef<K>, Action), Error<E, watcher::Error>>>
    where
        F: FnMut(Arc<K>, Arc<Ctx>) -> Fut,
        Fut: Future<Output = Result<Action, E>> + Send + 'static,
        E: std::error::Error + Send + 'static;
}

impl<K> ControllerExt<K> for Controller<K>
where
    K: Clone + Resource + DeserializeOwned + fmt::Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + fmt::Debug + Unpin,
{
    fn run_with_backoff<Ctx, F, Fut, E>(
        self,
        reconcile: F,
        context: Arc<Ctx>,
    ) -> impl Stream<Item = Result<(ObjectRef<K>, Action), Error<E, watcher::Error>>>
    where
        F: FnMut(Arc<K>, Arc<Ctx>) -> Fut,
        Fut: Future<Output = Result<Action, E>> + Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        let backoff = ObjectBackoff::default();
        self.run(backoff.reconciler(reconcile), backoff.error_policy(), context)
    }
}

/// How long each object waits after its reconciler failed: longer with each failure in a row, and not at all once it has
/// succeeded. Cheap to clone; use one per controller.
///
/// An event for an object has it reconciled at once, whatever it waits for: kube's scheduler keeps the earliest time.
/// An object that fails again then waits longer all the same. Objects are told apart by namespace and name; only those
/// whose last reconcile failed are remembered.
#[derive(Clone, Debug)]
pub struct ObjectBackoff {
    base: Duration,
    cap: Duration,
    failures: Arc<Mutex<HashMap<Key, u32>>>,
}

/// Namespace and name.
type Key = (Option<String>, Option<String>);

/// The future of a reconciler that [`ObjectBackoff::reconciler`] wraps.
pub type Reconciling<E> = Pin<Box<dyn Future<Output = Result<Action, E>> + Send>>;

impl Default for ObjectBackoff {
    /// From 200 ms, doubled with each failure in a row, up to 5 min; 20 % more or less at random.
    fn default() -> Self {
        Self { base: BASE, cap: CAP, failures: Arc::default() }
    }
}

impl ObjectBackoff {
    /// From `base`, doubled with each failure in a row, up to `cap`; 20 % more or less at random.
    ///
    /// # Errors
    /// When `base` is zero, or longer than `cap`.
    pub fn new(base: Duration, cap: Duration) -> Result<Self, InvalidBackoff> {
        if base.is_zero() {
            return Err(InvalidBackoff::NoDelay);
        }
        if base > cap {
            return Err(InvalidBackoff::AboveCap { duration: base, cap });
        }
        Ok(Self { base, cap, failures: Arc::default() })
    }

    /// The reconciler for `Controller::run`: that of the caller, whose success resets the backoff of the object.
    pub fn reconciler<K, Ctx, F, Fut, E>(
        &self,
        mut reconcile: F,
    ) -> impl FnMut(Arc<K>, Arc<Ctx>) -> Reconciling<E> + use<K, Ctx, F, Fut, E>
    where
        K: Resource,
        F: FnMut(Arc<K>, Arc<Ctx>) -> Fut,
        Fut: Future<Output = Result<Action, E>> + Send + 'static,
        E: 'static,
    {
        let backoff = self.clone();
        move |object, context| {
            let (backoff, key) = (backoff.clone(), key(&*object));
            let reconciling = reconcile(object, context);
            Box::pin(async move {
                let result = reconciling.await;
                if result.is_ok() {
                    backoff.failures().remove(&key);
                }
                result
            })
        }
    }

    /// The error policy for `Controller::run`: the object waits as [`failed`](Self::failed) says.
    pub fn error_policy<K: Resource, E, Ctx>(
        &self,
    ) -> impl Fn(Arc<K>, &E, Arc<Ctx>) -> Action + use<K, E, Ctx> {
        let backoff = self.clone();
        move |object, _error, _context| Action::requeue(backoff.failed(&*object))
    }

    /// Counts a failure of this object, and returns how long it waits.
    pub fn failed<K: Resource>(&self, object: &K) -> Duration {
        let before = {
            let mut failures = self.failures();
            let count = failures.entry(key(object)).or_insert(0);
            *count = count.saturating_add(1);
            *count - 1
        };
        let delay = self.base.saturating_mul(2_u32.saturating_pow(before)).min(self.cap);
        delay.mul_f64(1.0 + SPREAD * rand::random::<f64>().mul_add(2.0, -1.0))
    }

    /// Forgets the failures of this object.
    pub fn succeeded<K: Resource>(&self, object: &K) {
        self.failures().remove(&key(object));
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<Key, u32>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key<K: Resource>(object: &K) -> Key {
    (object.meta().namespace.clone(), object.meta().name.clone())
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
