//! Server-side apply: writes the fields the caller owns, without reading first. The server merges, so writers of
//! different fields never conflict.

use std::sync::Arc;

use kube::Api;
use serde::Serialize;
use serde_json::Value;

use super::snapshot::Whole;
use super::target::WriteTarget;
use super::write::Write;
use super::write_loop::{Decided, Finished, WriteDecision, WriteSteps};
use super::{Writable, sent_status, wire, write_loop};
use crate::freshness::Source;
use crate::operation::{Subresource, Verb};
use crate::outcome::{Refusal, WriteError};

/// Applies `body` to an object as the options' field manager, which then owns exactly the fields in `body`.
///
/// `body` holds `apiVersion`, `kind` and only the fields that the caller owns. Fields that other managers own with
/// other values are a [`WriteError::FieldManager`], which lists them and is never retried;
/// [`WriteOptions::with_force`](crate::WriteOptions::with_force) takes them over. A missing object is **created**,
/// unless the body has a `metadata.uid`: then the object is gone. A body with `metadata.resourceVersion` is applied to
/// that version only, otherwise it is a conflict, which is not retried. The server checks ownership first: when both
/// are wrong, the result is [`WriteError::FieldManager`]. On a kind with a status subresource the server drops a `status` in
/// `body`, which is an error although the rest is written: use [`apply_status`].
pub fn apply<'a, K: Writable, B: Serialize + Sync + ?Sized>(
    api: &'a Api<K>,
    name: &'a str,
    body: &'a B,
) -> Write<'a, K, Apply<'a, B>> {
    Write::new(api, name, Subresource::Main, Apply(body))
}

/// Like [`apply`], for `/status`. A missing object is not created. The server ignores a UID in the body here, so a
/// recreated object of the same name is not detected; compare the UID of the returned object where it matters.
pub fn apply_status<'a, K: Writable, B: Serialize + Sync + ?Sized>(
    api: &'a Api<K>,
    name: &'a str,
    body: &'a B,
) -> Write<'a, K, Apply<'a, B>> {
    Write::new(api, name, Subresource::Status, Apply(body))
}

/// The kind of write of [`apply`] and [`apply_status`].
pub struct Apply<'a, B: ?Sized>(&'a B);

impl<K: Writable, B: Serialize + Sync + ?Sized> WriteSteps<K> for Apply<'_, B> {
    type Seen = Whole<K>;
    type Body = Arc<Value>;
    type Failure = WriteError;

    fn verb(&self) -> Verb {
        Verb::Apply
    }

    /// The same whatever the object holds.
    fn decide(&mut self, _seen: Whole<K>, _target: WriteTarget<'_, K>) -> Decided<K, Self> {
        checked(self.0).map(WriteDecision::Send)
    }

    fn send(
        target: WriteTarget<'_, K>,
        body: &Arc<Value>,
    ) -> impl Future<Output = Result<K, kube::Error>> + Send {
        wire::apply(target.api, target.name, target.subresource, target.options, body)
    }

    /// Without any read: the body states the whole goal.
    async fn run(
        self,
        target: WriteTarget<'_, K>,
        _source: Source<'_, K>,
    ) -> Result<Finished<K>, WriteError> {
        let may_repeat = |body: &Arc<Value>| body.pointer("/metadata/resourceVersion").is_none();
        let ignored = |body: &Arc<Value>, answer: &K| sent_status::dropped(target.subresource, body, answer);
        let send = |body: Arc<Value>| async move { <Self as WriteSteps<K>>::send(target, &body).await };
        write_loop::repeat(target, Verb::Apply, checked(self.0), may_repeat, ignored, send).await
    }
}

fn checked<B: Serialize + ?Sized>(body: &B) -> Result<Arc<Value>, Refusal> {
    let body = serde_json::to_value(body).map_err(Refusal::Encode)?;
    let is_named = |field: &str| body.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    if !is_named("apiVersion") || !is_named("kind") {
        return Err(Refusal::Body("of an apply lacks apiVersion or kind; add both"));
    }
    if body.pointer("/metadata/managedFields").is_some() {
        return Err(Refusal::Body("of an apply carries metadata.managedFields; leave it out"));
    }
    Ok(Arc::new(body))
}
