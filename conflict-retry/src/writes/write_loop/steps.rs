//! The parts of one round: where the object comes from, what is decided, and what follows an answer.

use super::super::Writable;
use super::super::operation_state::{Failed, OperationState};
use super::super::snapshot::Snapshot;
use super::super::target::WriteTarget;
use super::{Decided, Object, WriteSteps, as_outcome};
use crate::classify::Class;
use crate::freshness::Source;
use crate::operation::{ReadSource, Verb};
use crate::outcome::{Outcome, WriteError};

/// An object that a decision can be based on, and where it comes from.
pub(super) type Snapshotted<K, W> = (<W as WriteSteps<K>>::Seen, ReadSource);

/// The copy that the first decision is based on; `None` to read live.
pub(super) fn at_hand<K: Writable, W: WriteSteps<K>>(
    state: &mut OperationState<'_>,
    source: &Source<'_, Object<K, W>>,
) -> Option<Snapshotted<K, W>> {
    match source {
        Source::Live => None,
        Source::Copy(copy) => Some((W::Seen::of(copy.clone()), ReadSource::Copy)),
        Source::Watched(_) => {
            state.watched();
            watched::<K, W>(source)
        }
    }
}

/// What the watch has brought last; `None` without a watch, or while it has brought nothing.
pub(super) fn watched<K: Writable, W: WriteSteps<K>>(
    source: &Source<'_, Object<K, W>>,
) -> Option<Snapshotted<K, W>> {
    match source {
        Source::Watched(cache) => cache.latest().map(|seen| (W::Seen::of(seen), ReadSource::Watch)),
        Source::Copy(_) | Source::Live => None,
    }
}

/// Reads live until there is an answer: the object, `None` if there is none and the write `creates` it, or the outcome.
pub(super) async fn read_live<K: Writable, W: WriteSteps<K>>(
    state: &mut OperationState<'_>,
    target: WriteTarget<'_, K>,
    uid: Option<&str>,
    creates: bool,
) -> Result<Result<Option<W::Seen>, Outcome<Object<K, W>>>, WriteError> {
    loop {
        let failed = match state.call(Verb::Get, <W::Seen as Snapshot<K>>::read(target)).await? {
            Ok(seen) => return Ok(Ok(Some(seen))),
            Err(failed) => failed,
        };
        if failed.class == Class::NotFound && creates {
            state.settled(failed.verb, &failed.class);
            return Ok(Ok(None));
        }
        match as_outcome(state, target, failed, uid, true).await? {
            Ok(outcome) => return Ok(Err(outcome)),
            Err(failed) => state.pause(failed).await?,
        }
    }
}

pub(super) fn decide<K: Writable, W: WriteSteps<K>>(
    kind: &mut W,
    target: WriteTarget<'_, K>,
    seen: Option<W::Seen>,
) -> Decided<K, W> {
    match seen {
        Some(seen) => kind.decide(seen, target),
        None => kind.decide_absent(target),
    }
}

/// How a write ends that the server has acknowledged, and that was decided from the version `read`: refused, if the server
/// ignored a part of the `body`. What it has stored of the rest is ours.
pub(super) fn acknowledged<K: Writable, W: WriteSteps<K>>(
    kind: &W,
    state: &OperationState<'_>,
    source: &Source<'_, Object<K, W>>,
    target: WriteTarget<'_, K>,
    body: &W::Body,
    read: Option<&str>,
    answer: Object<K, W>,
) -> Result<Outcome<Object<K, W>>, WriteError> {
    // The version is still the one that was read: the server has stored nothing, because to it the object was as wanted.
    let is_unmoved = read.is_some() && W::Seen::version_of(&answer) == read && !W::Seen::is_deleting(&answer);
    if let Some(reason) = kind.ignored(target, body, &answer, is_unmoved) {
        if let (Source::Watched(cache), false) = (source, is_unmoved) {
            cache.wrote(&answer);
        }
        let maybe_written = !is_unmoved || state.maybe_written();
        return Err(WriteError::Refused { reason, maybe_written });
    }
    Ok(match (is_unmoved, state.maybe_written()) {
        (false, _) => Outcome::Written(answer),
        (true, true) => Outcome::AlreadyDone(answer),
        (true, false) => Outcome::Unchanged(answer),
    })
}

/// Waits after an attempt that failed. One that lost a race to another writer, which has replaced the version `lost_to`,
/// waits for what the watch brings. After a lost answer the object is read live; so is everything that the watch cannot tell.
pub(super) async fn wait<K: Writable, W: WriteSteps<K>>(
    state: &mut OperationState<'_>,
    source: &Source<'_, Object<K, W>>,
    failed: Failed,
    lost_to: Option<String>,
) -> Result<Option<Snapshotted<K, W>>, WriteError> {
    match (source, lost_to) {
        (Source::Watched(cache), Some(version)) if !state.maybe_written() => {
            let newest = state.wait_for_newer(failed, *cache, version, W::Seen::version_of).await?;
            Ok(newest.map(|seen| (W::Seen::of(seen), ReadSource::Watch)))
        }
        _ => {
            state.pause(failed).await?;
            Ok(None)
        }
    }
}
