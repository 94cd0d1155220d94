//! The write loop behind the public functions: read, decide, write; after a conflict read *live*, decide *again*,
//! write.
//!
//! A retry never repeats an old decision. A [`WriteSteps`] defines what is read, decided and sent.

mod steps;

use tracing::instrument;

use self::steps::{acknowledged, at_hand, decide, read_live, wait, watched};
use super::Writable;
use super::operation_state::{Failed, OperationState};
use super::snapshot::Snapshot;
use super::target::WriteTarget;
use crate::classify::Class;
use crate::freshness::Source;
use crate::operation::{ReadSource, Subresource, Verb};
use crate::outcome::{Outcome, Refusal, RequestFailure, WriteError};

/// What to do with the object that was read.
pub enum WriteDecision<Body, Object, Failure> {
    /// Write this body.
    Send(Body),
    /// The goal is already met.
    Keep(Object),
    /// Do not write.
    Abort,
    /// The caller's closure failed. Do not write.
    Fail(Failure),
    /// The copy does not hold enough to decide: read live, and decide again.
    ReadLive,
}

/// The decision of a kind of write.
pub(super) type Decided<K, W> =
    Result<WriteDecision<<W as WriteSteps<K>>::Body, Object<K, W>, <W as WriteSteps<K>>::Failure>, Refusal>;

/// The object of a kind of write, as callers hold copies of it, and as the server answers a write.
pub(super) type Object<K, W> = <<W as WriteSteps<K>>::Seen as Snapshot<K>>::Object;

/// What one kind of write reads, decides and sends.
pub trait WriteSteps<K: Writable>: Send + Sized {
    /// What a decision is based on.
    type Seen: Snapshot<K>;
    /// The body of the write.
    type Body: Send + Sync;
    /// Why the caller's closure failed.
    type Failure: From<WriteError> + Send;

    /// The verb of the write, for reports.
    fn verb(&self) -> Verb;
    /// The verb of the request with this body.
    fn verb_of(&self, _body: &Self::Body) -> Verb {
        self.verb()
    }
    /// Rejects a request that is wrong whatever the object holds.
    fn check(&self, _target: WriteTarget<'_, K>) -> Result<(), Refusal> {
        Ok(())
    }
    /// Whether the object is created when it does not exist.
    fn creates(&self) -> bool {
        false
    }
    /// Decides what to do with the object that was read.
    fn decide(&mut self, seen: Self::Seen, target: WriteTarget<'_, K>) -> Decided<K, Self>;
    /// Decides what to do when there is no object. Called only if [`Self::creates`].
    fn decide_absent(&mut self, _target: WriteTarget<'_, K>) -> Decided<K, Self> {
        Ok(WriteDecision::Abort)
    }
    /// The field that the last decision may have overwritten without looking at it.
    fn overwritten(&mut self) -> Option<String> {
        None
    }
    /// What the server certainly ignored of the last decision, sent as `body`. `is_unmoved`: it has stored nothing of it.
    fn ignored(
        &self,
        _target: WriteTarget<'_, K>,
        _body: &Self::Body,
        _answer: &Object<K, Self>,
        _is_unmoved: bool,
    ) -> Option<Refusal> {
        None
    }
    /// Sends one request.
    fn send(
        target: WriteTarget<'_, K>,
        body: &Self::Body,
    ) -> impl Future<Output = Result<Object<K, Self>, kube::Error>> + Send;
    /// Writes until there is an outcome.
    fn run(
        self,
        target: WriteTarget<'_, K>,
        source: Source<'_, Object<K, Self>>,
    ) -> impl Future<Output = Result<Finished<Object<K, Self>>, Self::Failure>> + Send {
        run(self, target, source)
    }
}

/// How a write ended, and whether an answer was lost on the way, so that an attempt may have been executed.
pub struct Finished<T> {
    pub(super) outcome: Outcome<T>,
    pub(super) maybe_written: bool,
}

/// The outcome of a write, or why the caller's closure failed.
type Ended<K, W> = Result<Outcome<Object<K, W>>, <W as WriteSteps<K>>::Failure>;

/// Writes `target` until there is an outcome. The first read comes from `source`.
#[instrument(level = "debug", skip_all, fields(name = target.name, verb = %kind.verb(), subresource = target.subresource.label()))]
pub(super) async fn run<K: Writable, W: WriteSteps<K>>(
    mut kind: W,
    target: WriteTarget<'_, K>,
    source: Source<'_, Object<K, W>>,
) -> Result<Finished<Object<K, W>>, W::Failure> {
    let mut state = OperationState::begin(target.options, target.operation(kind.verb()));
    // Boxed: the future of a request is large, and a caller should not carry it in every future that may write.
    let result = Box::pin(rounds(&mut kind, target, &mut state, &source)).await;
    if let (Source::Watched(cache), Ok(Ok(Outcome::Written(written) | Outcome::AlreadyDone(written)))) =
        (&source, &result)
    {
        cache.wrote(written);
    }
    let maybe_written = state.maybe_written();
    if maybe_written && matches!(result, Ok(Err(_))) {
        tracing::warn!(
            name = target.name,
            "the closure failed after an attempt that may have been carried out"
        );
    }
    let label = |ended: &Ended<K, W>| ended.as_ref().map_or("closure_failed", Outcome::label);
    state.end(result, label)?.map(|outcome| Finished { outcome, maybe_written })
}

async fn rounds<K: Writable, W: WriteSteps<K>>(
    kind: &mut W,
    target: WriteTarget<'_, K>,
    state: &mut OperationState<'_>,
    source: &Source<'_, Object<K, W>>,
) -> Result<Ended<K, W>, WriteError> {
    target.check()?;
    kind.check(target)?;
    state.ready(target).await?;
    let mut uid: Option<String> = None;
    let mut refused_version: Option<String> = None;
    let mut next = at_hand::<K, W>(state, source);
    loop {
        let (seen, from) = if let Some((seen, from)) = next.take() {
            (Some(seen), from)
        } else {
            match read_live::<K, W>(state, target, uid.as_deref(), kind.creates()).await? {
                Ok(seen) => (seen, ReadSource::Live),
                Err(outcome) => return Ok(Ok(outcome)),
            }
        };
        state.read(from);
        let found = seen.as_ref().and_then(|seen| seen.uid());
        if let Some(found) = found
            && uid.get_or_insert_with(|| found.to_owned()) != found
        {
            if !kind.creates() {
                return Ok(Ok(Outcome::Gone));
            }
            uid = Some(found.to_owned());
        }
        let version = seen.as_ref().and_then(|seen| seen.version()).map(str::to_owned);
        let body = match decide(kind, target, seen).map_err(|reason| state.refused(reason))? {
            WriteDecision::Send(body) => body,
            WriteDecision::Keep(object) if state.maybe_written() => {
                return Ok(Ok(Outcome::AlreadyDone(object)));
            }
            WriteDecision::Keep(object) => return Ok(Ok(Outcome::Unchanged(object))),
            WriteDecision::Abort => return Ok(Ok(Outcome::Aborted)),
            WriteDecision::Fail(failure) => return Ok(Err(failure)),
            WriteDecision::ReadLive => continue,
        };
        // A copy that waited for the rate limiter may be old. The token is for the read, if that is live now.
        if from != ReadSource::Live && state.waited_to_write().await? {
            next = watched::<K, W>(source);
            continue;
        }
        if let Some(path) = kind.overwritten() {
            state.overwrote(&path);
        }
        let verb = kind.verb_of(&body);
        let mut failed = match state.call(verb, W::send(target, &body)).await? {
            Ok(object) => {
                let read = version.as_deref();
                return acknowledged::<K, W>(kind, state, source, target, &body, read, object).map(Ok);
            }
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
        if kind.creates() && appeared_or_vanished(verb, &failed.class) {
            // A lost race like any other: what is there now is read and decided from.
            failed.class = Class::Conflict;
        }
        let lost_a_race = matches!(failed.class, Class::Conflict | Class::TestFailed);
        let failed = match as_outcome(state, target, failed, uid.as_deref(), true).await? {
            Ok(outcome) => return Ok(Ok(outcome)),
            Err(failed) => failed,
        };
        let lost_to = version.filter(|_| lost_a_race);
        next = wait::<K, W>(state, source, failed, lost_to).await?;
    }
}

/// Whether another writer has created, deleted or recreated the object since it was read.
fn appeared_or_vanished(verb: Verb, class: &Class) -> bool {
    match class {
        Class::AlreadyExists => verb == Verb::Create,
        Class::NotFound | Class::Deleted | Class::UidMismatch => verb != Verb::Create,
        _ => false,
    }
}

/// Sends one request that needs no read, unless `body` is rejected. It retries after a fault but never after a
/// conflict: the same body would only conflict again. After a lost answer it retries only if `may_repeat` allows it: a
/// body with a resourceVersion would conflict with its own write. What cannot be read has arrived, and is not asked for
/// again. `ignored` is what the server has certainly dropped of the body.
pub(super) async fn repeat<T, K: Writable, B: Clone, F: Future<Output = Result<T, kube::Error>>>(
    target: WriteTarget<'_, K>,
    verb: Verb,
    body: Result<B, Refusal>,
    may_repeat: impl FnOnce(&B) -> bool,
    ignored: impl Fn(&B, &T) -> Option<Refusal>,
    send: impl Fn(B) -> F,
) -> Result<Finished<T>, WriteError> {
    let mut state = OperationState::begin(target.options, target.operation(verb));
    let result = Box::pin(async {
        target.check()?;
        let body = body?;
        let may_repeat = may_repeat(&body);
        state.ready(target).await?;
        let mut was_found = false;
        loop {
            let failed = match state.call(verb, send(body.clone())).await? {
                Ok(object) => {
                    return match ignored(&body, &object) {
                        Some(reason) => Err(WriteError::Refused { reason, maybe_written: true }),
                        None => Ok(Outcome::Written(object)),
                    };
                }
                Err(failed) => failed,
            };
            let is_unreadable = matches!(failed.failure, RequestFailure::Api(kube::Error::SerdeError(_)));
            if failed.class == Class::Ambiguous && (is_unreadable || !may_repeat) {
                return Err(state.reject(failed));
            }
            match as_outcome(&mut state, target, failed, None, false).await {
                // It is there, or there again: it may have been created after this request, and before it was looked for.
                Err(WriteError::Rejected { class: Class::NotServed, .. }) if !was_found => was_found = true,
                ended => match ended? {
                    Ok(outcome) => return Ok(outcome),
                    Err(failed) => state.pause(failed).await?,
                },
            }
        }
    })
    .await;
    let maybe_written = state.maybe_written();
    state.end(result, Outcome::label).map(|outcome| Finished { outcome, maybe_written })
}

/// What a single attempt does.
pub(super) enum Single<F, T> {
    /// Sends this request.
    Send(F),
    /// Nothing: the goal is already met.
    Keep(T),
}

/// Makes a single attempt if `planned` holds a request; a conflict is returned to the caller.
pub(super) async fn once<T, K: Writable, F: Future<Output = Result<T, kube::Error>>>(
    target: WriteTarget<'_, K>,
    verb: Verb,
    planned: Result<Single<F, T>, Refusal>,
) -> Result<Outcome<T>, WriteError> {
    let mut state = OperationState::begin(target.options, target.operation(verb));
    let result = Box::pin(async {
        target.check()?;
        let request = match planned? {
            Single::Send(request) => request,
            Single::Keep(object) => return Ok(Outcome::Unchanged(object)),
        };
        state.ready(target).await?;
        match state.call(verb, request).await? {
            Ok(object) => Ok(Outcome::Written(object)),
            Err(failed) => as_outcome(&mut state, target, failed, None, false)
                .await?
                .map_err(|failed| state.reject(failed)),
        }
    })
    .await;
    state.end(result, Outcome::label)
}

/// Turns failures that are outcomes into outcomes; a conflict is an outcome only when it is not going to be retried.
async fn as_outcome<T, K: Writable>(
    state: &mut OperationState<'_>,
    target: WriteTarget<'_, K>,
    failed: Failed,
    uid: Option<&str>,
    retries_conflicts: bool,
) -> Result<Result<Outcome<T>, Failed>, WriteError> {
    // A read of the object itself tells that it is missing. A subresource may be missing instead.
    let is_subresource = failed.verb.is_write() || target.subresource == Subresource::Scale;
    if failed.class == Class::NotFound && state.writes_subresource() && is_subresource {
        state.settled(failed.verb, &failed.class);
        return match state.call(Verb::Get, target.find()).await? {
            Ok(found) if uid.is_some() && found.metadata.uid.as_deref() != uid => Ok(Ok(Outcome::Gone)),
            // The CRD declares no such subresource; the server answers as if the object were missing.
            Ok(_) => Err(state.refuse(Failed { class: Class::NotServed, ..failed })),
            // A writer that may write nothing but the subresource may not look. What the server has said counts then.
            Err(missing)
                if matches!(missing.class, Class::NotFound | Class::Forbidden)
                    && !missing.failure.is_undecided() =>
            {
                state.settled(missing.verb, &missing.class);
                Ok(Ok(Outcome::Gone))
            }
            Err(unknown) => Ok(Err(unknown)),
        };
    }
    Ok(match (&failed.class, failed.failure) {
        // What a creation does not find is another object.
        (Class::NotFound | Class::Deleted | Class::UidMismatch, failure) if failed.verb != Verb::Create => {
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
