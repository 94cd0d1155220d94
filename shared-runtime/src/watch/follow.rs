//! The loop behind a cache: list, watch, watch again, and list again when there is no other way.

use std::pin::pin;
use std::time::Duration;

use conflict_retry::freshness::Version;
use futures::StreamExt as _;
use kube::Resource;
use kube::core::WatchEvent;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::caches::Questions;
use super::decode::Decoded;
use super::health::Health;
use super::requests::Requests;
use super::{Failure, Sink, WATCH_SECONDS};
use crate::controller::RequeueBackoff;
use crate::error::chain;

/// Duration of a watch that should return a bookmark soon: the API server sends one two seconds before the end.
const BOOKMARK_SECONDS: u32 = 3;
/// Number of such watches without the bookmark before everything is listed again.
const BOOKMARK_TRIES: u32 = 3;
/// Number of refusals of a page before the list starts again.
const PAGE_TRIES: u32 = 10;
/// How long a watch may exceed its duration before it counts as dead.
const SILENCE: Duration = Duration::from_secs(3);
/// Backoff after a failure. client-go waits from 0.8 s to 30 s; here a cache that is not current stops the operator.
const RETRY: RequeueBackoff = RequeueBackoff {
    base: Duration::from_millis(200),
    max: Duration::from_secs(10),
    event_max: Duration::from_secs(10),
};

/// The reader of the changes is gone.
#[derive(Debug)]
pub(super) struct Unread;

/// How one watch ended.
enum End {
    /// In time, or because of a request to catch up; no problem.
    Well,
    /// In time, but without any event. Either the API server is old, or the version is in the future.
    Unheard,
    Failed(Failure),
}

/// The cache has to reach the cluster's version of a moment ago, because of a request to catch up, or because its watch
/// had failed and opening a new one proves nothing yet.
struct Pursuit {
    /// A request of [`super::Caches`].
    question: Option<u64>,
    newest: Version,
    tries: u32,
}

pub(super) struct Follower<W, S: Sink<W>> {
    requests: Requests,
    sink: S,
    out: mpsc::Sender<Vec<S::Out>>,
    health: Health,
    questions: Questions,
    pursuit: Option<Pursuit>,
    /// The version that the cache has reached.
    version: String,
    failures: u32,
}

impl<W, S> Follower<W, S>
where
    W: Resource<DynamicType = ()> + Clone + DeserializeOwned + Send + 'static,
    S: Sink<W>,
{
    pub(super) fn new(
        requests: Requests,
        sink: S,
        out: mpsc::Sender<Vec<S::Out>>,
        health: Health,
        questions: Questions,
    ) -> Self {
        Self { requests, sink, out, health, questions, pursuit: None, version: String::new(), failures: 0 }
    }

    pub(super) async fn run(mut self) -> Unread {
        loop {
            if self.list().await.is_err() || self.watch().await.is_err() {
                return Unread;
            }
        }
    }

    /// Lists everything. A page that fails is retried; only an expired one starts the list again.
    async fn list(&mut self) -> Result<(), Unread> {
        loop {
            // A list shows everything that was written before it began, so it answers earlier requests.
            let question = self.questions.open();
            self.sink.begin();
            match self.pages().await {
                Ok(version) => {
                    self.version = version;
                    let changes = self.sink.finish();
                    self.works();
                    if let Some(question) = question {
                        self.questions.answer(question);
                    }
                    self.pursuit = None;
                    return self.tell(changes).await;
                }
                Err(failure) => self.failed_again(&failure).await,
            }
        }
    }

    async fn pages(&mut self) -> Result<String, Failure> {
        let mut next = None;
        let mut refused = 0;
        loop {
            let page = match self.health.during(self.requests.page::<W>(next.as_deref())).await {
                Ok(page) => page,
                Err(failure) if next.is_some() && (failure.is_final() || refused >= PAGE_TRIES) => {
                    return Err(failure);
                }
                Err(failure) => {
                    refused += 1;
                    self.failed(&failure, refused).await;
                    continue;
                }
            };
            refused = 0;
            next = page.next().map(ToOwned::to_owned);
            let version = page.version().map(ToOwned::to_owned);
            for object in page.items() {
                self.sink.listed(object);
            }
            if next.is_none() {
                return version.ok_or(Failure::NoVersion);
            }
        }
    }

    /// Watches while the version is valid. Afterwards everything has to be listed.
    async fn watch(&mut self) -> Result<(), Unread> {
        let mut doubt = false;
        loop {
            let asked = self.questions.open();
            let asked = asked.filter(|_| self.pursuit.as_ref().is_none_or(|p| p.question != asked));
            if doubt || asked.is_some() {
                let newest = match self.health.during(self.requests.newest()).await {
                    Ok(newest) => newest,
                    Err(failure) => {
                        self.failed_again(&failure).await;
                        continue;
                    }
                };
                if !self.is_ahead_of_none(newest.as_ref()) {
                    self.rewound();
                    return Ok(());
                }
                let Some(newest) = newest else {
                    // Versions that cannot be compared: only a list is known to be new.
                    return Ok(());
                };
                doubt = false;
                let (before, tries) = self.pursuit.take().map_or((None, 0), |p| (p.question, p.tries));
                self.pursuit = Some(Pursuit { question: asked.or(before), newest, tries });
                self.pursue();
            }
            let ended = self.one_watch().await?;
            // Only watches without a failure and without a bookmark show that there will be none.
            if !matches!(ended, End::Failed(_)) && self.pursuit.as_mut().is_some_and(Pursuit::gives_up) {
                return Ok(());
            }
            match ended {
                End::Well => {}
                End::Unheard => doubt = self.pursuit.is_none(),
                End::Failed(failure) => {
                    let expired = failure.is_expired();
                    self.failed_again(&failure).await;
                    if expired {
                        return Ok(());
                    }
                    doubt = true;
                }
            }
        }
    }

    /// Whether this cache is not known to be ahead of the cluster: versions that cannot be compared prove nothing.
    fn is_ahead_of_none(&self, newest: Option<&Version>) -> bool {
        match (Version::parse(&self.version), newest) {
            (Some(mine), Some(newest)) => mine <= *newest,
            _ => true,
        }
    }

    fn rewound(&mut self) {
        self.sink.failed(&Failure::Rewound);
        self.sink.rewound();
        self.health.lost("the cluster's data went back in time: listing anew");
    }

    async fn one_watch(&mut self) -> Result<End, Unread> {
        let seconds = if self.pursuit.is_some() { BOOKMARK_SECONDS } else { WATCH_SECONDS };
        let lasts = Duration::from_secs(u64::from(seconds));
        let changes = self.requests.changes::<W>(&self.version, seconds);
        let events = match self.health.during(changes).await {
            Ok(events) => events,
            Err(failure) => return Ok(End::Failed(failure)),
        };
        let opened = Instant::now();
        let dead_at = opened + lasts + SILENCE;
        let mut heard = false;
        let mut events = pin!(events);
        loop {
            let event = tokio::select! {
                biased;
                event = self.health.during(tokio::time::timeout_at(dead_at, events.next())) => event,
                () = changed(&mut self.questions.asked), if self.pursuit.is_none() => return Ok(End::Well),
            };
            let event = match event {
                Ok(Some(Ok(event))) => event,
                Ok(Some(Err(failure))) => return Ok(End::Failed(failure)),
                Ok(None) if opened.elapsed() < lasts / 2 => return Ok(End::Failed(Failure::Short)),
                Ok(None) if heard => return Ok(End::Well),
                Ok(None) => return Ok(End::Unheard),
                Err(_elapsed) => return Ok(End::Failed(Failure::Silent(lasts + SILENCE))),
            };
            if let WatchEvent::Error(status) = event {
                return Ok(End::Failed(Failure::Ended(status)));
            }
            heard = true;
            self.failures = 0;
            self.take(event).await?;
        }
    }

    async fn take(&mut self, event: WatchEvent<Decoded<W>>) -> Result<(), Unread> {
        let version = match &event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                object.version(|object| object.meta().resource_version.as_deref())
            }
            WatchEvent::Bookmark(bookmark) => Some(bookmark.metadata.resource_version.as_str()),
            WatchEvent::Error(_) => None,
        };
        let version = version.filter(|version| !version.is_empty()).map(ToOwned::to_owned);
        let changes = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => self.sink.applied(object),
            WatchEvent::Deleted(object) => self.sink.deleted(object),
            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => Vec::new(),
        };
        if let Some(version) = version {
            self.version = version;
        }
        self.pursue();
        self.tell(changes).await
    }

    /// Ends the pursuit if the cache has reached its version.
    fn pursue(&mut self) {
        let mine = Version::parse(&self.version);
        if let Some(pursuit) = self.pursuit.take_if(|pursuit| mine >= Some(pursuit.newest.clone()))
            && let Some(question) = pursuit.question
        {
            self.questions.answer(question);
        }
        if self.pursuit.is_none() {
            self.works();
        }
    }

    async fn tell(&mut self, changes: Vec<S::Out>) -> Result<(), Unread> {
        if changes.is_empty() {
            return if self.out.is_closed() { Err(Unread) } else { Ok(()) };
        }
        self.out.send(changes).await.map_err(|_unsent| Unread)
    }

    fn works(&mut self) {
        self.sink.recovered();
        self.health.current();
    }

    /// Counts a failure since the last event of a watch, and waits.
    async fn failed_again(&mut self, failure: &Failure) {
        self.failures = self.failures.saturating_add(1);
        self.failed(failure, self.failures).await;
    }

    /// Reports failure number `failures`, and waits before the next attempt.
    async fn failed(&mut self, failure: &Failure, failures: u32) {
        self.sink.failed(failure);
        self.health.doubtful(chain(failure));
        let pause = RETRY.delay(failures, rand::random());
        let pause = failure.retry_after().map_or(pause, |asked| asked.min(RETRY.max).max(pause));
        self.health.during(tokio::time::sleep(pause)).await;
    }
}

impl Pursuit {
    fn gives_up(&mut self) -> bool {
        self.tries += 1;
        self.tries >= BOOKMARK_TRIES
    }
}

/// Returns on a new request; never when there is no requester left.
async fn changed(asked: &mut tokio::sync::watch::Receiver<u64>) {
    if asked.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
