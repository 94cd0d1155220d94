//! One list, then the changes after it, for as long as the process lives: the source of a cache.
//!
//! kube's watcher does the same and hides what an operator has to know before it removes a machine: which version it
//! has reached, whether the connection is alive, and which objects it left out. Therefore this one:
//!
//! - **is never silent for long.** A watch lasts [`WATCH_SECONDS`]; two seconds before its end the API server reports
//!   its current version (a bookmark). A watch without any event is dead, whatever the state of the connection.
//! - **catches up on request** ([`Caches`]): it requests the newest version and continues until it has reached it.
//! - **goes back with the cluster.** After etcd was restored from a backup, versions are lower, and an old watch waits
//!   for a future that does not come. This is detected when there are no events, and everything is listed again.
//! - **decodes each object separately** ([`Decoded`]): an unreadable one is reported, and its deletion is noticed.
//! - **retries a page, not a list**, when the API server is busy.

mod caches;
mod decode;
mod follow;
mod health;
mod requests;

#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::time::Duration;

use futures::Stream;
use kube::core::Status;
use kube::runtime::watcher::Config;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

pub use self::caches::Caches;
pub use self::decode::{Decoded, Unreadable};
use self::follow::Follower;
use self::health::Health;
use self::requests::Requests;
pub(crate) use self::requests::{list, list_in_pages};
use crate::error::{client_category, status_category};
use crate::liveness::Liveness;
use crate::metrics::Metrics;
use crate::readiness::Gate;

/// Duration of one watch before it is opened again from where it ended. The longer, the later a dead one is noticed;
/// the shorter, the more requests an idle cluster has (ten kinds: two in three seconds).
const WATCH_SECONDS: u32 = 15;

/// Number of batches of changes that wait for the reader; a cache with a slow reader waits.
const BATCHES: usize = 64;

/// Receives what a watch delivers. `Out` is the result, for the reader of the stream.
pub(crate) trait Sink<W>: Send + 'static {
    /// The item that reports a change.
    type Out: Send + 'static;

    /// A list begins, perhaps again from its start.
    fn begin(&mut self);
    /// The list contains this object.
    fn listed(&mut self, object: Decoded<W>);
    /// The list is complete. Every object that was not in it is gone.
    fn finish(&mut self) -> Vec<Self::Out>;
    /// The object is new or was changed.
    fn applied(&mut self, object: Decoded<W>) -> Vec<Self::Out>;
    /// The object is gone.
    fn deleted(&mut self, object: Decoded<W>) -> Vec<Self::Out>;
    /// The cluster's data is older than before: no earlier version is valid. A list follows.
    fn rewound(&mut self);
    /// A request failed, or its answer was interrupted.
    fn failed(&mut self, failure: &Failure);
    /// Requests work again.
    fn recovered(&mut self);
}

/// Why a list or watch failed. It is always retried.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("cannot list")]
    List(#[source] kube::Error),
    #[error("a page of the list took longer than {} s", .0.as_secs())]
    SlowList(Duration),
    #[error("the list says no resource version")]
    NoVersion,
    #[error("cannot watch")]
    Watch(#[source] kube::Error),
    #[error("the watch was not opened within {} s", .0.as_secs())]
    Unopened(Duration),
    #[error("the API server ended the watch: {}", .0.message)]
    Ended(Box<Status>),
    #[error("the API server ended the watch at once")]
    Short,
    #[error("nothing was heard of the watch for {} s", .0.as_secs())]
    Silent(Duration),
    #[error(
        "the newest version of the cluster is older than one that was seen; was etcd restored from a backup?"
    )]
    Rewound,
}

impl Failure {
    /// The category in the metrics.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::List(failed) | Self::Watch(failed) => client_category(failed),
            Self::Ended(status) => status_category(status.code),
            Self::SlowList(_) | Self::Unopened(_) => "timeout",
            Self::Silent(_) => "silent",
            Self::Rewound => "rewound",
            Self::NoVersion | Self::Short => "other",
        }
    }

    /// Whether the requested version is too old: everything has to be listed.
    fn is_expired(&self) -> bool {
        self.category() == "expired"
    }

    /// Whether a repetition of the request will never succeed: the request itself is refused, and neither for lack of
    /// permission nor because the API server is busy.
    fn is_final(&self) -> bool {
        match self {
            Self::List(kube::Error::Api(status)) => {
                (400..500).contains(&status.code) && !matches!(status.code, 401 | 403 | 408 | 429)
            }
            _ => false,
        }
    }

    /// The delay that the API server requests.
    fn retry_after(&self) -> Option<Duration> {
        let (Self::List(kube::Error::Api(status))
        | Self::Watch(kube::Error::Api(status))
        | Self::Ended(status)) = self
        else {
            return None;
        };
        let seconds = status.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
    }
}

/// Feeds `sink` with the objects that `api` and the selectors of `config` name, and returns the stream of its results.
/// It never ends by itself; it ends when the stream is dropped. `gate` is open while the cache is current.
pub(crate) fn follow<W, S>(
    api: Api<W>,
    config: &Config,
    sink: S,
    caches: &Caches,
    gate: Gate,
    metrics: &Metrics,
    liveness: &Liveness,
) -> impl Stream<Item = S::Out> + Send + 'static + use<W, S>
where
    W: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    S: Sink<W>,
{
    let (out, mut batches) = mpsc::channel(BATCHES);
    let health = Health::new(W::plural(&()).into_owned(), gate, metrics.clone(), liveness);
    let follower = Follower::new(Requests::new(api, config), sink, out, health, caches.register());
    let task = AbortOnDropHandle::new(tokio::spawn(follower.run()));
    let batches = futures::stream::poll_fn(move |context| {
        // The task lives as long as the stream.
        let _ = &task;
        batches.poll_recv(context)
    });
    futures::StreamExt::flat_map(batches, futures::stream::iter)
}
