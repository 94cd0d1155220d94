//! One list, then the changes after it, for as long as the process lives: what feeds a cache.
//!
//! kube's watcher does the same and hides what an operator has to know before it removes a machine: up to which version it
//! has come, whether the connection is still alive, and which objects it left out. Therefore this one:
//!
//! - **is never silent for long.** A watch lasts [`WATCH_SECONDS`]; the API server says how far it has come (a bookmark)
//!   two seconds before its end. One of which nothing is heard is dead, whatever the connection says.
//! - **catches up when asked** ([`Caches`]): it asks for the newest version there is and goes on until it holds that.
//! - **goes back with the cluster.** After etcd was restored from a backup, versions are lower than they were, and a watch
//!   from before waits for a future that does not come. It is found out when nothing is heard, and all is listed anew.
//! - **reads each object for itself** ([`Decoded`]): one that cannot be read is named, and its deletion is noticed.
//! - **repeats a page, not a list**, when the API server is busy.

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
pub(crate) use self::requests::list;
use crate::error::{client_category, status_category};
use crate::liveness::Liveness;
use crate::metrics::Metrics;
use crate::readiness::Gate;

/// How long one watch lasts before it is opened anew from where it ended. The longer, the later a dead one is noticed; the
/// shorter, the more requests a cluster has that does nothing (ten kinds: two in three seconds).
const WATCH_SECONDS: u32 = 15;

/// Batches of changes that wait to be taken; a cache whose reader does not keep up waits for it.
const BATCHES: usize = 64;

/// Takes in what a watch brings. `Out` is what came of it, for whoever reads the stream.
pub(crate) trait Sink<W>: Send + 'static {
    /// What is told of a change.
    type Out: Send + 'static;

    /// A list begins, perhaps again from its start.
    fn begin(&mut self);
    /// The list holds this.
    fn listed(&mut self, object: Decoded<W>);
    /// That was the list. Whatever was not in it is gone.
    fn finish(&mut self) -> Vec<Self::Out>;
    /// The object is new or was changed.
    fn applied(&mut self, object: Decoded<W>) -> Vec<Self::Out>;
    /// The object is gone.
    fn deleted(&mut self, object: Decoded<W>) -> Vec<Self::Out>;
    /// The cluster's data is older than it was: no version from before means anything. A list follows.
    fn rewound(&mut self);
    /// A request failed, or its answer broke off.
    fn failed(&mut self, failure: &Failure);
    /// Requests work again.
    fn recovered(&mut self);
}

/// Why a list or watch came to nothing. It is always tried again.
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
    /// The name under which it is counted.
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

    /// Whether the version that was asked for is too old: all has to be listed.
    fn is_expired(&self) -> bool {
        self.category() == "expired"
    }

    /// Whether asking for the same again will never help: the request itself is refused, and neither for who asks nor because
    /// the API server is busy.
    fn is_final(&self) -> bool {
        match self {
            Self::List(kube::Error::Api(status)) => {
                (400..500).contains(&status.code) && !matches!(status.code, 401 | 403 | 408 | 429)
            }
            _ => false,
        }
    }

    /// What the API server asks to wait.
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

/// Feeds `sink` with the objects that `api` and the selectors of `config` name, and brings what it makes of them. It never
/// ends by itself; it ends when the stream is dropped. `gate` is open while the cache is current.
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
