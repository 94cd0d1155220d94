//! The write loop behind the public functions: read, decide, write; after a conflict read *live*, decide *again*,
//! write.
//!
//! A retry never repeats an old decision. A [`WriteOperation`] defines what is read, decided and sent.

use tracing::instrument;

use super::Writable;
use super::operation_state::{Failed, OperationState};
use super::target::Target;
use crate::classify::Class;
use crate::freshness::Source;
use crate::operation::{ReadSource, Subresource, Verb};
use crate::options::WriteOptions;
use crate::outcome::{Outcome, Refusal, RequestFailure, WriteError};

/// What one operation reads, decides and sends.
pub(super) trait WriteOperation {
    /// The object that a decision is based on.
    type Seen: Clone;
    /// The body of the write.
    type Body;
    /// The server's answer to the write.
    type Written;

    /// The verb of the write.
    fn verb(&self) -> Verb;
    /// The part of the object that is written.
    fn subresource(&self) -> Subresource;
    /// Reads live: never from the API server's watch cache, nor from a local one.
    fn read(&mut self) -> impl Future<Output = Result<Self::Seen, kube::Error>> + Send;
    /// The UID of the object that was read, if known.
    fn uid(seen: &Self::Seen) -> Option<&str>;
    /// The resourceVersion of the object that was read, if known.
    fn version(seen: &Self::Seen) -> Option<&str>;
    /// The written object, in the form that a later decision can be based on.
    fn as_seen(written: &Self::Written) -> Option<&Self::Seen>;
    /// The field that the last decision may have overwritten without looking at it.
    fn overwritten(&mut self) -> Option<String> {
        None
    }
    /// Decides what to do with the object that was read.
    fn decide(&mut self, seen: Self::Seen) -> Result<Move<Self::Body, Self::Written>, Refusal>;
    /// Rejects a request that is wrong whatever the object holds.
    fn check(&self) -> Result<(), Refusal> {
        Ok(())
    }
    fn send(&mut self, body: &Self::Body) -> impl Future<Output = Result<Self::Written, kube::Error>> + Send;
}

/// The result of a decision.
pub(super) enum Move<B, W> {
    /// Write this body.
    Send(B),
    /// The goal is already met.
    Keep(W),
    /// Do not write.
    Abort,
}

/// Runs `operation` on the object called `name` until it has an outcome. The first read comes from `source`.
#[instrument(level = "debug", skip_all, fields(name = target.name, verb = %operation.verb(), subresource = operation.subresource().label()))]
pub(super) async fn run<X: WriteOperation, K: Writable>(
    operation: &mut X,
    target: Target<'_, K>,
    options: &WriteOptions,
    source: Source<'_, X::Seen>,
) -> Result<Outcome<X::Written>, WriteError> {
    let mut state =
        OperationState::begin(options, target.operation(operation.subresource(), operation.verb()));
    // Boxed: the future of a request is large, and a caller should not carry it in every future that may write.
    let result = Box::pin(rounds(operation, target, &mut state, &source)).await;
    if let (Source::Watched(cache), Ok(Outcome::Written(written) | Outcome::AlreadyDone(written))) =
        (&source, &result)
        && let Some(written) = X::as_seen(written)
    {
        cache.wrote(written);
    }
    state.end(result, Outcome::label)
}

async fn rounds<X: WriteOperation, K: Writable>(
    operation: &mut X,
    target: Target<'_, K>,
    state: &mut OperationState<'_>,
    source: &Source<'_, X::Seen>,
) -> Result<Outcome<X::Written>, WriteError> {
    target.check()?;
    operation.check()?;
    state.ready(target).await?;
    let mut uid: Option<String> = None;
    let mut refused_version: Option<String> = None;
    let mut next = match source {
        Source::Live => None,
        Source::Copy(copy) => Some((copy.clone(), ReadSource::Copy)),
        Source::Watched(cache) => {
            state.watched();
            cache.latest().map(|seen| (seen, ReadSource::Watch))
        }
    };
    loop {
        let (seen, from) = match next.take() {
            Some(known) => known,
            None => match state.call(Verb::Get, operation.read()).await? {
                Ok(seen) => (seen, ReadSource::Live),
                Err(failed) => match as_outcome(state, target, failed, true).await? {
                    Ok(outcome) => return Ok(outcome),
                    Err(failed) => {
                        state.pause(failed).await?;
                        continue;
                    }
                },
            },
        };
        state.read(from);
        if let Some(found) = X::uid(&seen)
            && uid.get_or_insert_with(|| found.to_owned()) != found
        {
            return Ok(Outcome::Gone);
        }
        let version = X::version(&seen).map(str::to_owned);
        let body = match operation.decide(seen).map_err(|reason| state.refused(reason))? {
            Move::Send(body) => body,
            Move::Keep(object) if state.maybe_written() => return Ok(Outcome::AlreadyDone(object)),
            Move::Keep(object) => return Ok(Outcome::Unchanged(object)),
            Move::Abort => return Ok(Outcome::Aborted),
        };
        if let Some(path) = operation.overwritten() {
            state.overwrote(&path);
        }
        let failed = match state.call(operation.verb(), operation.send(&body)).await? {
            Ok(object) => return Ok(Outcome::Written(object)),
            Err(failed) => failed,
        };
        if failed.class == Class::TestFailed {
            // The guard was built from this very version and the object has not changed since: it was not the guard
            // that failed, so another attempt would fail the same way.
            if version.is_some() && version == refused_version {
                return Err(state.reject(failed));
            }
            refused_version.clone_from(&version);
        }
        let lost_a_race = matches!(failed.class, Class::Conflict | Class::TestFailed);
        let failed = match as_outcome(state, target, failed, true).await? {
            Ok(outcome) => return Ok(outcome),
            Err(failed) => failed,
        };
        // After a lost answer the object is read live; so is everything that the watch cannot tell.
        match (source, version) {
            (Source::Watched(cache), Some(version)) if lost_a_race && !state.maybe_written() => {
                let newest = state.wait_for_newer(failed, *cache, version, X::version).await?;
                next = newest.map(|seen| (seen, ReadSource::Watch));
            }
            _ => state.pause(failed).await?,
        }
    }
}

/// Sends one request that needs no read, unless `body` is rejected. It retries after a fault but never after a
/// conflict: the same body would only conflict again. After a lost answer it retries only if `may_repeat` allows it: a
/// body with a resourceVersion would conflict with its own write.
pub(super) async fn repeat<T, K: Writable, B: Clone, F: Future<Output = Result<T, kube::Error>>>(
    target: Target<'_, K>,
    options: &WriteOptions,
    verb: Verb,
    subresource: Subresource,
    body: Result<B, Refusal>,
    may_repeat: impl FnOnce(&B) -> bool,
    send: impl Fn(B) -> F,
) -> Result<Outcome<T>, WriteError> {
    let mut state = OperationState::begin(options, target.operation(subresource, verb));
    let result = Box::pin(async {
        target.check()?;
        let body = body?;
        let may_repeat = may_repeat(&body);
        state.ready(target).await?;
        loop {
            let failed = match state.call(verb, send(body.clone())).await? {
                Ok(object) => return Ok(Outcome::Written(object)),
                Err(failed) => failed,
            };
            if failed.class == Class::Ambiguous && !may_repeat {
                return Err(state.reject(failed));
            }
            match as_outcome(&mut state, target, failed, false).await? {
                Ok(outcome) => return Ok(outcome),
                Err(failed) => state.pause(failed).await?,
            }
        }
    })
    .await;
    state.end(result, Outcome::label)
}

/// Makes a single attempt if `decided` holds a request; a conflict is returned to the caller.
pub(super) async fn once<T, K: Writable, F: Future<Output = Result<T, kube::Error>>>(
    target: Target<'_, K>,
    options: &WriteOptions,
    verb: Verb,
    subresource: Subresource,
    decided: Result<Move<F, T>, Refusal>,
) -> Result<Outcome<T>, WriteError> {
    let mut state = OperationState::begin(options, target.operation(subresource, verb));
    let result = Box::pin(async {
        target.check()?;
        let request = match decided? {
            Move::Send(request) => request,
            Move::Keep(object) => return Ok(Outcome::Unchanged(object)),
            Move::Abort => return Ok(Outcome::Aborted),
        };
        state.ready(target).await?;
        match state.call(verb, request).await? {
            Ok(object) => Ok(Outcome::Written(object)),
            Err(failed) => {
                as_outcome(&mut state, target, failed, false).await?.map_err(|failed| state.reject(failed))
            }
        }
    })
    .await;
    state.end(result, Outcome::label)
}

/// Turns failures that are outcomes into outcomes; a conflict is an outcome only when it is not going to be retried.
async fn as_outcome<T, K: Writable>(
    state: &mut OperationState<'_>,
    target: Target<'_, K>,
    failed: Failed,
    retries_conflicts: bool,
) -> Result<Result<Outcome<T>, Failed>, WriteError> {
    if failed.class == Class::NotFound && state.writes_subresource() {
        state.settled(failed.verb, &failed.class);
        return match state.call(Verb::Get, target.find()).await? {
            // The CRD declares no such subresource; the server answers as if the object were missing.
            Ok(_) => Err(state.refuse(Failed { class: Class::NotServed, ..failed })),
            Err(missing) if missing.class == Class::NotFound => {
                state.settled(missing.verb, &missing.class);
                Ok(Ok(Outcome::Gone))
            }
            Err(unknown) => Ok(Err(unknown)),
        };
    }
    Ok(match (&failed.class, failed.failure) {
        (Class::NotFound | Class::Deleted | Class::UidMismatch, failure) => {
            state.settled(failed.verb, &failed.class);
            drop(failure);
            Ok(Outcome::Gone)
        }
        (Class::Conflict | Class::TestFailed, RequestFailure::Api(kube::Error::Api(status)))
            if !retries_conflicts =>
        {
            state.settled(failed.verb, &failed.class);
            Ok(Outcome::Conflict(status))
        }
        (_, failure) => Err(Failed { verb: failed.verb, class: failed.class, failure }),
    })
}
