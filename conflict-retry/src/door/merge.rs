//! Merge patches under an optimistic lock: a small body that carries the version it was decided from.

use kube::Api;
use serde_json::{Value, json};

use super::cycle::{self, Exchange, Move};
use super::target::Target;
use super::{Writable, guard, wire};
use crate::freshness::Source;
use crate::observe::{Subresource, Verb};
use crate::options::WriteOptions;
use crate::outcome::{Outcome, Refusal, WriteError};

/// Merge-patches an object, deciding again from a fresh live read after each conflict.
///
/// `decide` returns the fields to change, or `None` when there is nothing to do. The resource version of the object it
/// looked at is added to the patch, so that any change in between is a conflict; the patch must not name identity fields
/// itself. A patch that would change nothing is not sent; the removal of a field that is not seen is, because the type may
/// not know it, unless it is in `metadata`. `subresource` is [`Subresource::Main`] or
/// [`Subresource::Status`]; for `/scale` see [`crate::scale_merge`]. As to `source` and to what `decide` must not do, see
/// [`crate::update`].
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
    let target = Target::new(api, name);
    cycle::run(&mut Merge { api, name, subresource, options, decide }, target, options, source).await
}

struct Merge<'a, K, F> {
    api: &'a Api<K>,
    name: &'a str,
    subresource: Subresource,
    options: &'a WriteOptions,
    decide: F,
}

impl<K, F> Exchange for Merge<'_, K, F>
where
    K: Writable,
    F: FnMut(&K) -> Option<Value> + Send,
{
    type Seen = K;
    type Body = Value;
    type Written = K;

    fn verb(&self) -> Verb {
        Verb::MergePatch
    }

    fn subresource(&self) -> Subresource {
        self.subresource
    }

    fn check(&self) -> Result<(), Refusal> {
        if matches!(self.subresource, Subresource::Main | Subresource::Status) {
            return Ok(());
        }
        Err(Refusal::Body("is for the object itself or its status; use the functions for the scale"))
    }

    fn read(&mut self) -> impl Future<Output = Result<K, kube::Error>> + Send {
        self.api.get(self.name)
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

    fn decide(&mut self, seen: K) -> Result<Move<Value, K>, Refusal> {
        guard::named(&seen, self.api, self.name)?;
        let Some(patch) = (self.decide)(&seen) else {
            return Ok(Move::Keep(seen));
        };
        let fields = guard::patch(patch, self.subresource)?;
        let version = guard::version(Self::version(&seen))?.to_owned();
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

    fn send(&mut self, body: &Value) -> impl Future<Output = Result<K, kube::Error>> + Send {
        wire::merge(self.api, self.name, self.subresource, self.options, body)
    }
}
