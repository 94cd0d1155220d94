//! For use inside [`kube::runtime::Controller`]: a backoff per object, an [`Action`] for each [`Outcome`], and no
//! reconcile from a copy that is older than our own write.
//!
//! kube's `error_policy` is told of failures only, and keeps no count: a controller that answers each failure with the
//! same requeue hammers an object that cannot succeed ([kube#1916], [kube#297], [kube#314]). [`ObjectBackoff`] counts
//! per object, and [`ControllerExt::run_with_backoff`] is `Controller::run` with the default one:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use conflict_retry::controller::ControllerExt as _;
//! use conflict_retry::{WriteError, update};
//! use futures::StreamExt as _;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::runtime::controller::Action;
//! use kube::runtime::{Controller, watcher};
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
//!
//! [kube#1916]: https://github.com/kube-rs/kube/issues/1916
//! [kube#297]: https://github.com/kube-rs/kube/issues/297
//! [kube#314]: https://github.com/kube-rs/kube/issues/314

use std::collections::HashMap;
use std::fmt::Debug;
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
use tokio::time::Instant;

use crate::freshness::{Expectations, Freshness};
use crate::outcome::Outcome;

/// First wait of the default backoff. client-go begins with 5 ms (`DefaultTypedControllerRateLimiter`), because a write
/// conflict reaches its work queue. Here conflicts and lost answers are retried before a reconcile fails. What is left
/// seldom passes within the first second, in which client-go tries seven times.
const BASE: Duration = Duration::from_secs(1);

/// Longest wait of the default backoff: the kubelet's for a container that crashes (`MaxContainerBackOff`), which people
/// know. client-go's is 1000 s.
const CAP: Duration = Duration::from_secs(300);

/// Largest share by which a wait is shortened at random, so that objects that failed together, when a server went away,
/// do not come back together. Our own choice; client-go has no jitter here.
const JITTER: f64 = 0.2;

/// How long failures are kept at least after the last one: longer than a reconcile takes.
const KEPT: Duration = Duration::from_secs(600);

/// When an object is looked at again if the watch does not bring it earlier: after a conflict, and when its copy is
/// older than our own write. Our own choice. The watch usually brings the awaited version within milliseconds; this is
/// for an object of another kind that is not watched, and for a watch that is late or broken.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The future of a reconcile that is watched by [`ObjectBackoff::reconciler`] or [`fresh_only`].
pub type Reconciling<E> = Pin<Box<dyn Future<Output = Result<Action, E>> + Send>>;

/// Namespace, name and UID: an object that was deleted and created again has not failed yet.
type Key = (Option<String>, String, Option<String>);

/// How long to wait after a failed reconcile: longer with each failure of the object, and from the start again after a
/// success. Cheap to clone; the clones count together. Objects are told apart by their UID, so that one will do for
/// several controllers.
///
/// A wait is `base · 2ⁿ` after `n` earlier failures, at most `cap`, shortened at random by up to a fifth. By default
/// `base` is 1 s and `cap` 5 min.
///
/// A wait is not a floor. kube's scheduler keeps one entry per object, at the *earliest* time that was asked for, and
/// an event of the watch asks for "now": a change of the object, or of one that it owns, is reconciled at once. A
/// reconcile that changes its object (a status that says when it failed) and then fails is therefore repeated at once,
/// forever: write what stays the same from one failure to the next.
///
/// Objects that succeed are forgotten. One that failed and was deleted is never reconciled again; it is forgotten ten
/// minutes, or twice `cap`, after its last failure.
#[derive(Clone, Debug)]
pub struct ObjectBackoff(Arc<Mutex<Failing>>);

/// What [`ControllerExt::run_with_backoff`] returns: what `Controller::run` does.
pub type Reconciled<K, E> = Result<(ObjectRef<K>, Action), Error<E, watcher::Error>>;

/// Runs a `Controller` with a backoff per object.
pub trait ControllerExt<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash,
{
    /// `Controller::run` with a default [`ObjectBackoff`].
    fn run_with_backoff<Ctx, F, Fut, E>(
        self,
        reconcile: F,
        context: Arc<Ctx>,
    ) -> impl Stream<Item = Reconciled<K, E>>
    where
        F: FnMut(Arc<K>, Arc<Ctx>) -> Fut,
        Fut: Future<Output = Result<Action, E>> + Send + 'static,
        E: std::error::Error + Send + 'static;
}

impl<K> ControllerExt<K> for Controller<K>
where
    K: Clone + Resource + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Debug + Unpin,
{
    fn run_with_backoff<Ctx, F, Fut, E>(
        self,
        reconcile: F,
        context: Arc<Ctx>,
    ) -> impl Stream<Item = Reconciled<K, E>>
    where
        F: FnMut(Arc<K>, Arc<Ctx>) -> Fut,
        Fut: Future<Output = Result<Action, E>> + Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        let backoff = ObjectBackoff::default();
        self.run(backoff.reconciler(reconcile), backoff.error_policy(), context)
    }
}

/// Why an [`ObjectBackoff`] was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidObjectBackoff {
    /// The first wait is zero, and would stay so.
    #[error("the first wait is zero, so that a failing object is tried without a pause; give some time")]
    NoWait,
    /// The first wait is longer than the cap.
    #[error("the first wait {base:?} is longer than the cap {cap:?}; raise the cap or shorten the wait")]
    AboveCap {
        /// The first wait.
        base: Duration,
        /// The cap on each wait.
        cap: Duration,
    },
}

impl Default for ObjectBackoff {
    fn default() -> Self {
        Self::unchecked(BASE, CAP)
    }
}

impl ObjectBackoff {
    /// Waits from `base` to `cap`.
    pub fn new(base: Duration, cap: Duration) -> Result<Self, InvalidObjectBackoff> {
        if base.is_zero() {
            return Err(InvalidObjectBackoff::NoWait);
        }
        if base > cap {
            return Err(InvalidObjectBackoff::AboveCap { base, cap });
        }
        Ok(Self::unchecked(base, cap))
    }

    fn unchecked(base: Duration, cap: Duration) -> Self {
        Self(Arc::new(Mutex::new(Failing { base, cap, objects: HashMap::new(), swept: Instant::now() })))
    }

    /// The reconciler for [`Controller::run`]: `reconcile`, after whose success the
    /// object's failures are forgotten.
    pub fn reconciler<K, Ctx, F, Fut, E>(
        &self,
        mut reconcile: F,
    ) -> impl FnMut(Arc<K>, Arc<Ctx>) -> Reconciling<E> + use<K, Ctx, F, Fut, E>
    where
        K: Resource,
        F: FnMut(Arc<K>, Arc<Ctx>) -> Fut,
        Fut: Future<Output = Result<Action, E>> + Send + 'static,
        E: Send + 'static,
    {
        let backoff = self.clone();
        move |object: Arc<K>, context: Arc<Ctx>| -> Reconciling<E> {
            let (backoff, of) = (backoff.clone(), key(&*object));
            let reconciling = reconcile(object, context);
            Box::pin(async move {
                let result = reconciling.await;
                if result.is_ok() {
                    backoff.lock().objects.remove(&of);
                }
                result
            })
        }
    }

    /// The error policy for [`Controller::run`]: counts the failure, and requeues. One
    /// that looks at the error as well calls [`Self::failed`].
    pub fn error_policy<K, E, Ctx>(&self) -> impl Fn(Arc<K>, &E, Arc<Ctx>) -> Action + use<K, E, Ctx>
    where
        K: Resource,
    {
        let backoff = self.clone();
        move |object: Arc<K>, _error: &E, _context: Arc<Ctx>| Action::requeue(backoff.failed(&*object))
    }

    /// Counts a failure of the object, and returns how long to wait.
    pub fn failed<K: Resource>(&self, object: &K) -> Duration {
        self.lock().failed(key(object), Instant::now(), rand::random::<f64>())
    }

    /// Forgets the failures of the object.
    pub fn succeeded<K: Resource>(&self, object: &K) {
        self.lock().objects.remove(&key(object));
    }

    /// How often the object has failed since its last success.
    pub fn failures<K: Resource>(&self, object: &K) -> u32 {
        self.lock().objects.get(&key(object)).map_or(0, |failures| failures.count)
    }

    fn lock(&self) -> MutexGuard<'_, Failing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The objects whose last reconcile failed. Pure: the time and the random number are arguments.
#[derive(Debug)]
struct Failing {
    base: Duration,
    cap: Duration,
    objects: HashMap<Key, Failures>,
    /// When deleted objects were last looked for.
    swept: Instant,
}

/// The failures of one object.
#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
}

impl Failing {
    /// `random` is a uniform value in `[0, 1)`.
    fn failed(&mut self, of: Key, now: Instant, random: f64) -> Duration {
        self.sweep(now);
        let failures = self.objects.entry(of).or_insert(Failures { count: 0, last: now });
        let factor = 2_u32.checked_pow(failures.count);
        let wait = factor.and_then(|factor| self.base.checked_mul(factor));
        let wait = wait.map_or(self.cap, |wait| wait.min(self.cap));
        *failures = Failures { count: failures.count.saturating_add(1), last: now };
        wait.saturating_sub(wait.mul_f64(JITTER * random))
    }

    /// Forgets objects that have not failed for longer than any wait: they do not exist any more.
    fn sweep(&mut self, now: Instant) {
        let kept = self.cap.saturating_mul(2).max(KEPT);
        if now.saturating_duration_since(self.swept) < kept {
            return;
        }
        self.swept = now;
        self.objects.retain(|_, failures| now.saturating_duration_since(failures.last) < kept);
    }
}

fn key<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    (meta.namespace.clone(), meta.name.clone().unwrap_or_default(), meta.uid.clone())
}

/// Reads your own writes in a [`Controller`]: `reconcile` is not called with a copy that is
/// older than a write recorded in `writes`. The object is requeued instead; the watch brings the write before that.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use conflict_retry::controller::{ObjectBackoff, fresh_only};
/// # use conflict_retry::freshness::{Expectations, Watched};
/// # use conflict_retry::{WriteError, update};
/// # use futures::StreamExt as _;
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use kube::runtime::controller::Action;
/// # use kube::runtime::reflector::ObjectRef;
/// # use kube::runtime::{Controller, watcher};
/// # use kube::{Api, ResourceExt as _};
/// struct Context {
///     maps: Api<ConfigMap>,
///     watched: Watched<ConfigMap>,
/// }
///
/// async fn reconcile(map: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, WriteError> {
///     let cached = context.watched.object(ObjectRef::from_obj(&*map));
///     let outcome = update(&context.maps, &map.name_any(), |map| {
///         map.data.get_or_insert_default().insert("colour".into(), "blue".into());
///     })
///     // Records the write, too.
///     .from(cached.source())
///     .outcome()
///     .await?;
///     Ok(outcome.action())
/// }
///
/// # async fn example(maps: Api<ConfigMap>, backoff: ObjectBackoff) {
/// let controller = Controller::new(maps.clone(), watcher::Config::default());
/// let watched = Watched::new(controller.store(), Expectations::new("configmaps"));
/// let reconciler = fresh_only(watched.expectations(), backoff.reconciler(reconcile));
/// controller
///     .run(reconciler, backoff.error_policy(), Arc::new(Context { maps, watched }))
/// #   .for_each(|_| async {}).await;
/// # }
/// ```
///
/// A controller keeps its watch to itself, so `writes` learns what the watch has brought from the copies that are
/// reconciled: these come from the controller's store, which only moves forward, and a store that holds one version has
/// been brought everything older. Nothing else may feed `writes`. Two things are worse than with the events themselves:
/// after a conflict a `Watched` source may read live, and `Watched::fresh` does not notice the event of the object that
/// is being reconciled. A write whose object the watch drops (it left the selector, or was deleted) is forgotten with the next
/// reconcile of a newer object, or with a warning after five minutes.
///
/// Put it around [`ObjectBackoff::reconciler`], not inside: what was not reconciled has not succeeded.
pub fn fresh_only<K, Ctx, F, E>(
    writes: &Expectations,
    mut reconcile: F,
) -> impl FnMut(Arc<K>, Arc<Ctx>) -> Reconciling<E> + use<K, Ctx, F, E>
where
    K: Resource,
    F: FnMut(Arc<K>, Arc<Ctx>) -> Reconciling<E>,
    E: Send + 'static,
{
    let writes = writes.clone();
    move |object: Arc<K>, context: Arc<Ctx>| -> Reconciling<E> {
        writes.applied(&*object);
        match writes.check(&*object) {
            Freshness::Fresh => reconcile(object, context),
            Freshness::Stale => Box::pin(async { Ok(Action::requeue(LOOK_AGAIN)) }),
        }
    }
}

impl<T> Outcome<T> {
    /// What a reconciler returns after this write, if it has nothing else to wait for.
    ///
    /// A goal that is met, an object that is gone and a decision not to write need nothing until something changes. A
    /// conflict is looked at again after 1 s, or when the watch brings what the other writer wrote, which is earlier;
    /// the decision is then made anew.
    pub const fn action(&self) -> Action {
        match self {
            Self::Written(_) | Self::Unchanged(_) | Self::AlreadyDone(_) | Self::Gone | Self::Aborted => {
                Action::await_change()
            }
            Self::Conflict(_) => Action::requeue(LOOK_AGAIN),
        }
    }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
