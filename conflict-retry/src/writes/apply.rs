//! Server-side apply: writes the fields the caller owns, without reading first. The server merges, so writers of
//! different fields never conflict.

use std::sync::Arc;

use kube::Api;
use serde::Serialize;
use serde_json::Value;

use super::target::Target;
use super::{Writable, wire, write_loop};
use crate::operation::{Subresource, Verb};
use crate::options::WriteOptions;
use crate::outcome::{Outcome, Refusal, WriteError};

/// Applies `body` to an object as the options' field manager, which then owns exactly the fields in `body`.
///
/// `body` holds `apiVersion`, `kind` and only the fields that the caller owns. Fields that other managers own with
/// other values are a [`WriteError::FieldManager`], which lists them and is never retried; [`WriteOptions::with_force`]
/// takes them over. A missing object is **created**, unless the body has a `metadata.uid`: then the result is
/// [`Outcome::Gone`]. A body with `metadata.resourceVersion` is applied to that version only, otherwise the result is
/// [`Outcome::Conflict`]. The server checks ownership first: when both are wrong, the result is
/// [`WriteError::FieldManager`].
pub async fn apply<K: Writable, B: Serialize + Sync + ?Sized>(
    api: &Api<K>,
    name: &str,
    options: &WriteOptions,
    body: &B,
) -> Result<Outcome<K>, WriteError> {
    send(api, name, Subresource::Main, options, body).await
}

/// Like [`apply`], for `/status`. A missing object is [`Outcome::Gone`]. The server ignores a UID in the body here, so
/// a recreated object of the same name is not detected; compare the UID of the returned object where it matters.
pub async fn apply_status<K: Writable, B: Serialize + Sync + ?Sized>(
    api: &Api<K>,
    name: &str,
    options: &WriteOptions,
    body: &B,
) -> Result<Outcome<K>, WriteError> {
    send(api, name, Subresource::Status, options, body).await
}

async fn send<K: Writable, B: Serialize + Sync + ?Sized>(
    api: &Api<K>,
    name: &str,
    subresource: Subresource,
    options: &WriteOptions,
    body: &B,
) -> Result<Outcome<K>, WriteError> {
    let may_repeat = |body: &Arc<Value>| body.pointer("/metadata/resourceVersion").is_none();
    let send = |body: Arc<Value>| async move { wire::apply(api, name, subresource, options, &body).await };
    let target = Target::new(api, name);
    write_loop::repeat(target, options, Verb::Apply, subresource, checked(body), may_repeat, send).await
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
