//! The one loop of the front door: read, decide, write; after a conflict read *live*, decide *again*, write.
//!
//! A retry never repeats an old decision. What is read, decided and sent is an [`Exchange`]'s business.

use tracing::instrument;

use super::track::{Failed, Track};
use crate::classify::Class;
use crate::observe::{Subresource, Verb};
use crate::options::WriteOptions;
use crate::outcome::{Failure, Outcome, WriteError};

/// What one operation reads, decides and sends.
pub(super) trait Exchange {
    /// What a decision is made from.
    type Seen;
    /// What is sent.
    type Body;
    /// What the server answers.
    type Written;

    /// The request that writes.
    fn verb(&self) -> Verb;
    /// Where it goes.
    fn subresource(&self) -> Subresource;
    /// Whether a retry starts with a live read. Without one, a conflict ends the operation: the same body would only
    /// meet it again.
    fn reads(&self) -> bool {
        true
    }
    /// Reads live: never from a cache of the API server, let alone from one of ours.
    fn read(&mut self) -> impl Future<Output = Result<Self::Seen, kube::Error>> + Send;
    /// The identity of what was seen, if known.
    fn uid(seen: &Self::Seen) -> Option<&str>;
    /// The version of what was seen, if known.
    fn version(seen: &Self::Seen) -> Option<&str>;
    /// What to do about it.
    fn decide(&mut self, seen: Self::Seen) -> Result<Move<Self::Body, Self::Written>, WriteError>;
    /// Writes.
    fn send(&mut self, body: &Self::Body) -> impl Future<Output = Result<Self::Written, kube::Error>> + Send;
}

/// A decision.
pub(super) enum Move<B, W> {
    /// Write this.
    Send(B),
    /// The goal is met already.
    Keep(W),
    /// Do not write.
    Abort,
}

/// Runs `exchange` to an outcome, beginning with `base` instead of a live read when there is one.
#[instrument(level = "debug", skip_all, fields(verb = %exchange.verb(), subresource = exchange.subresource().label()))]
pub(super) async fn run<X: Exchange>(
    exchange: &mut X,
    options: &WriteOptions,
    base: Option<X::Seen>,
) -> Result<Outcome<X::Written>, WriteError> {
    let mut track = Track::begin(options, exchange.subresource())?;
    let mut uid: Option<String> = None;
    let mut refused_version: Option<String> = None;
    let mut next = base;
    loop {
        let seen = match next.take() {
            Some(seen) => seen,
            None if exchange.reads() => match track.call(Verb::Get, exchange.read()).await? {
                Ok(seen) => seen,
                Err(failed) => match settle(&track, failed, true) {
                    Ok(outcome) => return Ok(outcome),
                    Err(failed) => {
                        track.pause(failed).await?;
                        continue;
                    }
                },
            },
            None => exchange.read().await.map_err(|error| WriteError::Rejected {
                verb: Verb::Get,
                subresource: exchange.subresource(),
                class: Class::of(Verb::Get, &error),
                source: Box::new(Failure::Api(error)),
            })?,
        };
        if let Some(found) = X::uid(&seen)
            && uid.get_or_insert_with(|| found.to_owned()) != found
        {
            return Ok(Outcome::Gone);
        }
        let version = X::version(&seen).map(str::to_owned);
        let body = match exchange.decide(seen)? {
            Move::Send(body) => body,
            Move::Keep(object) if track.maybe_written() => return Ok(Outcome::AlreadyDone(object)),
            Move::Keep(object) => return Ok(Outcome::Unchanged(object)),
            Move::Abort => return Ok(Outcome::Aborted),
        };
        let failed = match track.call(exchange.verb(), exchange.send(&body)).await? {
            Ok(object) => return Ok(Outcome::Written(object)),
            Err(failed) => failed,
        };
        if failed.class == Class::TestFailed {
            // The guard was made from this very version and the object has not moved: it is not the guard that failed,
            // so another attempt would fail the same way.
            if version.is_some() && version == refused_version {
                return Err(track.reject(failed));
            }
            refused_version = version;
        }
        match settle(&track, failed, exchange.reads()) {
            Ok(outcome) => return Ok(outcome),
            Err(failed) => track.pause(failed).await?,
        }
    }
}

/// Makes a single attempt: a conflict is handed back.
pub(super) async fn once<T>(
    options: &WriteOptions,
    verb: Verb,
    subresource: Subresource,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<Outcome<T>, WriteError> {
    let mut track = Track::begin(options, subresource)?;
    match track.call(verb, request).await? {
        Ok(object) => Ok(Outcome::Written(object)),
        Err(failed) => settle(&track, failed, false).map_err(|failed| track.reject(failed)),
    }
}

/// Turns failures that are outcomes into outcomes; a conflict is one only when it is not going to be retried.
fn settle<T>(track: &Track<'_>, failed: Failed, retries_conflicts: bool) -> Result<Outcome<T>, Failed> {
    match (&failed.class, failed.failure) {
        (Class::NotFound | Class::Deleted | Class::UidMismatch, failure) => {
            track.settled(failed.verb, &failed.class);
            drop(failure);
            Ok(Outcome::Gone)
        }
        (Class::Conflict | Class::TestFailed, Failure::Api(kube::Error::Api(status)))
            if !retries_conflicts =>
        {
            track.settled(failed.verb, &failed.class);
            Ok(Outcome::Conflict(status))
        }
        (_, failure) => Err(Failed { verb: failed.verb, class: failed.class, failure }),
    }
}
