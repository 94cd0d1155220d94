//! What the writes of an object have in common, whether it is put, merged or patched: it is read as a whole, and what was
//! written is what a later decision may be made from.

use kube::Api;

use super::cycle::{self, Exchange, Move};
use super::target::Target;
use super::{Writable, guard};
use crate::freshness::Source;
use crate::operation::{Subresource, Verb};
use crate::options::WriteOptions;
use crate::outcome::{Outcome, Refusal, WriteError};

/// The object, and how it is written.
pub(super) struct Place<'a, K> {
    pub(super) api: &'a Api<K>,
    pub(super) name: &'a str,
    pub(super) subresource: Subresource,
    pub(super) options: &'a WriteOptions,
}

/// One way to write an object.
pub(super) trait Way<K>: Send {
    /// The request that writes.
    const VERB: Verb;
    /// What is sent.
    type Body: Sync;

    /// What is wrong with the request whatever is seen.
    fn check(&self, _subresource: Subresource) -> Result<(), Refusal> {
        Ok(())
    }
    /// What to do about what was seen, which is the object that was asked for.
    fn decide(&mut self, seen: K, subresource: Subresource) -> Result<Move<Self::Body, K>, Refusal>;
    /// The field of the last decision that may have been decided blindly.
    fn overwritten(&mut self) -> Option<String> {
        None
    }
    /// Writes.
    fn send(place: &Place<'_, K>, body: &Self::Body) -> impl Future<Output = Result<K, kube::Error>> + Send;
}

/// Writes an object to an outcome, beginning with what `source` has.
pub(super) async fn write<K: Writable, W: Way<K>>(
    place: Place<'_, K>,
    source: Source<'_, K>,
    way: W,
) -> Result<Outcome<K>, WriteError> {
    let (target, options) = (Target::new(place.api, place.name), place.options);
    cycle::run(&mut Writing { place, way }, target, options, source).await
}

/// Refuses what is not for the object itself or its status, with what is said of it.
pub(super) fn or_its_status(subresource: Subresource, otherwise: &'static str) -> Result<(), Refusal> {
    if matches!(subresource, Subresource::Main | Subresource::Status) {
        Ok(())
    } else {
        Err(Refusal::Body(otherwise))
    }
}

struct Writing<'a, K, W> {
    place: Place<'a, K>,
    way: W,
}

impl<K: Writable, W: Way<K>> Exchange for Writing<'_, K, W> {
    type Seen = K;
    type Body = W::Body;
    type Written = K;

    fn verb(&self) -> Verb {
        W::VERB
    }

    fn subresource(&self) -> Subresource {
        self.place.subresource
    }

    fn check(&self) -> Result<(), Refusal> {
        self.way.check(self.place.subresource)
    }

    fn read(&mut self) -> impl Future<Output = Result<K, kube::Error>> + Send {
        self.place.api.get(self.place.name)
    }

    fn uid(seen: &K) -> Option<&str> {
        seen.meta().uid.as_deref()
    }

    fn version(seen: &K) -> Option<&str> {
        seen.meta().resource_version.as_deref()
    }

    fn as_seen(written: &K) -> Option<&K> {
        Some(written)
    }

    fn decide(&mut self, seen: K) -> Result<Move<W::Body, K>, Refusal> {
        guard::named(&seen, self.place.api, self.place.name)?;
        self.way.decide(seen, self.place.subresource)
    }

    fn overwritten(&mut self) -> Option<String> {
        self.way.overwritten()
    }

    fn send(&mut self, body: &W::Body) -> impl Future<Output = Result<K, kube::Error>> + Send {
        W::send(&self.place, body)
    }
}
