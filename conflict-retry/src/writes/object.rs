//! What PUT, merge patch and JSON Patch of an object have in common: the object is read as a whole, and a later
//! decision can be based on what was written.

use kube::Api;

use super::target::Target;
use super::write_loop::{self, Move, WriteOperation};
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
    /// The verb of the write.
    const VERB: Verb;
    /// The body of the write.
    type Body: Sync;

    /// Rejects a request that is wrong whatever the object holds.
    fn check(&self, _subresource: Subresource) -> Result<(), Refusal> {
        Ok(())
    }
    /// Decides what to do with the object that was read, which is the requested one.
    fn decide(&mut self, seen: K, subresource: Subresource) -> Result<Move<Self::Body, K>, Refusal>;
    /// The field that the last decision may have overwritten without looking at it.
    fn overwritten(&mut self) -> Option<String> {
        None
    }
    fn send(place: &Place<'_, K>, body: &Self::Body) -> impl Future<Output = Result<K, kube::Error>> + Send;
}

/// Writes an object until there is an outcome. The first read comes from `source`.
pub(super) async fn write<K: Writable, W: Way<K>>(
    place: Place<'_, K>,
    source: Source<'_, K>,
    way: W,
) -> Result<Outcome<K>, WriteError> {
    let (target, options) = (Target::new(place.api, place.name), place.options);
    write_loop::run(&mut Writing { place, way }, target, options, source).await
}

/// Rejects subresources other than the object itself and its status, with `otherwise` as the message.
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

impl<K: Writable, W: Way<K>> WriteOperation for Writing<'_, K, W> {
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
