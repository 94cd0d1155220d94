//! Whole-object updates: read, change, PUT with the resourceVersion that was read.

use kube::Api;

use super::object::{self, Place, Way};
use super::overwrite::{Decided, overwritten};
use super::target::Target;
use super::write_loop::{self, Move};
use super::{Writable, guard, wire};
use crate::freshness::Source;
use crate::operation::{Subresource, Verb};
use crate::options::WriteOptions;
use crate::outcome::{Outcome, Refusal, WriteError};

/// What a closure decided after reading, and possibly changing, the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateDecision {
    /// Write the changed object; nothing is sent if it is unchanged.
    Write,
    /// The goal is met; changes made by the closure are discarded.
    Keep,
    /// Do not write.
    Abort,
}

/// Changes an object: applies `mutate` and PUTs the result. After each conflict it starts again from a fresh live read.
///
/// `source` sets where the object comes from: a live read, an existing copy, or a cache that a watch feeds
/// ([`Source`]). `mutate` is called once per attempt, each time with a fresh copy. It must *decide* from the object it
/// gets and set the goal (`replicas = 5`, because of the object's current state). It must never repeat a value computed
/// elsewhere, and never count (`+= 1`): an attempt whose answer was lost may have been executed.
///
/// An unchanged object is not sent. A copy of another object, and a change of the name, namespace, UID or
/// resourceVersion, is rejected before sending. A deleted or recreated object is [`Outcome::Gone`]. On a kind with a
/// status subresource the server drops changes of `status` made here: use [`update_status`].
pub async fn update<K, F>(
    api: &Api<K>,
    name: &str,
    options: &WriteOptions,
    source: Source<'_, K>,
    mutate: F,
) -> Result<Outcome<K>, WriteError>
where
    K: Writable,
    F: FnMut(&mut K) -> UpdateDecision + Send,
{
    replace(api, name, Subresource::Main, options, source, mutate).await
}

/// Like [`update`], for `/status`: only `status` may change, because the server drops everything else.
pub async fn update_status<K, F>(
    api: &Api<K>,
    name: &str,
    options: &WriteOptions,
    source: Source<'_, K>,
    mutate: F,
) -> Result<Outcome<K>, WriteError>
where
    K: Writable,
    F: FnMut(&mut K) -> UpdateDecision + Send,
{
    replace(api, name, Subresource::Status, options, source, mutate).await
}

/// PUTs `object` once and unchanged, for a controller that leaves the retry to its work queue. A conflict is
/// [`Outcome::Conflict`]. A copy without a resourceVersion is rejected, because for many kinds the server would then
/// overwrite whatever is stored.
pub async fn put_once<K: Writable>(
    api: &Api<K>,
    name: &str,
    subresource: Subresource,
    options: &WriteOptions,
    object: &K,
) -> Result<Outcome<K>, WriteError> {
    let decided = guard::named(object, api, name)
        .and_then(|()| guard::version(object.meta().resource_version.as_deref()))
        .map(|_version| Move::Send(wire::put(api, name, subresource, options, object)));
    write_loop::once(Target::new(api, name), options, Verb::Put, subresource, decided).await
}

async fn replace<K, F>(
    api: &Api<K>,
    name: &str,
    subresource: Subresource,
    options: &WriteOptions,
    source: Source<'_, K>,
    mutate: F,
) -> Result<Outcome<K>, WriteError>
where
    K: Writable,
    F: FnMut(&mut K) -> UpdateDecision + Send,
{
    let replace = Replace { mutate, before: None, overwritten: None };
    object::write(Place { api, name, subresource, options }, source, replace).await
}

struct Replace<F> {
    mutate: F,
    before: Option<Decided>,
    overwritten: Option<String>,
}

impl<K, F> Way<K> for Replace<F>
where
    K: Writable,
    F: FnMut(&mut K) -> UpdateDecision + Send,
{
    const VERB: Verb = Verb::Put;
    type Body = K;

    fn decide(&mut self, seen: K, subresource: Subresource) -> Result<Move<K, K>, Refusal> {
        let mut changed = seen.clone();
        match (self.mutate)(&mut changed) {
            UpdateDecision::Abort => return Ok(Move::Abort),
            UpdateDecision::Keep => return Ok(Move::Keep(seen)),
            UpdateDecision::Write => {}
        }
        let Some(now) = guard::changed(&seen, &changed, subresource)? else {
            return Ok(Move::Keep(seen));
        };
        self.overwritten = self.before.as_ref().and_then(|before| overwritten(before, &now));
        self.before = Some(now);
        guard::version(changed.meta().resource_version.as_deref())?;
        Ok(Move::Send(changed))
    }

    fn overwritten(&mut self) -> Option<String> {
        self.overwritten.take()
    }

    fn send(place: &Place<'_, K>, body: &K) -> impl Future<Output = Result<K, kube::Error>> + Send {
        wire::put(place.api, place.name, place.subresource, place.options, body)
    }
}
