//! Merge patches with an optimistic lock: a small body with the resourceVersion it was decided from.

use kube::Api;
use serde_json::{Value, json};

use super::object::{self, Place, Way};
use super::write_loop::Move;
use super::{Writable, guard, wire};
use crate::freshness::Source;
use crate::operation::{Subresource, Verb};
use crate::options::WriteOptions;
use crate::outcome::{Outcome, Refusal, WriteError};

/// Merge-patches an object. After each conflict it decides again from a fresh live read.
///
/// `decide` returns the fields to change, or `None` when there is nothing to do. The resourceVersion of the object
/// passed to `decide` is added to the patch, so any change in between is a conflict; the patch must not contain
/// identity fields itself. A patch that would change nothing is not sent. The removal of a field that is not in the
/// object is sent, because the Rust type may not know the field, unless it is in `metadata`. `subresource` is
/// [`Subresource::Main`] or [`Subresource::Status`]; for `/scale` see [`crate::scale_merge`]. For `source` and for what
/// `decide` must not do, see [`crate::update`].
pub async fn merge_patch<K, F>(
    api: &Api<K>,
    name: &str,
    subresource: Subresource,
    options: &WriteOptions,
    source: Source<'_, K>,
    decide: F,
) -> Result<Outcome<K>, WriteError>
where
    K: Writable,
    F: FnMut(&K) -> Option<Value> + Send,
{
    object::write(Place { api, name, subresource, options }, source, Merge(decide)).await
}

struct Merge<F>(F);

impl<K, F> Way<K> for Merge<F>
where
    K: Writable,
    F: FnMut(&K) -> Option<Value> + Send,
{
    const VERB: Verb = Verb::MergePatch;
    type Body = Value;

    fn check(&self, subresource: Subresource) -> Result<(), Refusal> {
        let instead = "is for the object itself or its status; use the functions for the scale";
        object::or_its_status(subresource, instead)
    }

    fn decide(&mut self, seen: K, subresource: Subresource) -> Result<Move<Value, K>, Refusal> {
        let Some(patch) = (self.0)(&seen) else {
            return Ok(Move::Keep(seen));
        };
        let fields = guard::patch(patch, subresource)?;
        let version = guard::version(seen.meta().resource_version.as_deref())?.to_owned();
        if guard::is_noop_patch(&serde_json::to_value(&seen).map_err(Refusal::Encode)?, &fields) {
            return Ok(Move::Keep(seen));
        }
        let mut body = Value::Object(fields);
        match body.get_mut("metadata") {
            Some(Value::Object(metadata)) => {
                metadata.insert("resourceVersion".to_owned(), Value::String(version));
            }
            _ => body["metadata"] = json!({ "resourceVersion": version }),
        }
        Ok(Move::Send(body))
    }

    fn send(place: &Place<'_, K>, body: &Value) -> impl Future<Output = Result<K, kube::Error>> + Send {
        wire::merge(place.api, place.name, place.subresource, place.options, body)
    }
}
