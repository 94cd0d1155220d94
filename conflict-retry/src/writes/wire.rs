//! Single requests: the only module of this crate that calls kube's write verbs. No retry, no timeout, no decision. An answer
//! that is no object is an error.
#![expect(
    clippy::disallowed_methods,
    reason = "these are the write functions that the rest of the workspace is told to use"
)]

use either::Either;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use kube::Api;
use kube::api::{DeleteParams, Patch};
use kube::core::Status;
use kube::core::subresource::Scale;
use serde_json::Value;

use super::{Writable, answer};
use crate::operation::Subresource;
use crate::options::WriteOptions;

type Answer<T> = Result<T, kube::Error>;

pub(super) async fn put<K: Writable>(
    api: &Api<K>,
    name: &str,
    subresource: Subresource,
    options: &WriteOptions,
    object: &K,
) -> Answer<K> {
    let params = options.post_params();
    let stored = match subresource {
        Subresource::Main => api.replace(name, &params, object).await,
        other => api.replace_subresource(other.label(), name, &params, object).await,
    };
    answer::named(stored, K::meta)
}

pub(super) async fn merge<K: Writable>(
    api: &Api<K>,
    name: &str,
    subresource: Subresource,
    options: &WriteOptions,
    body: &Value,
) -> Answer<K> {
    patch(api, name, subresource, &options.patch_params(), &Patch::Merge(body)).await
}

pub(super) async fn apply<K: Writable>(
    api: &Api<K>,
    name: &str,
    subresource: Subresource,
    options: &WriteOptions,
    body: &Value,
) -> Answer<K> {
    patch(api, name, subresource, &options.apply_params(), &Patch::Apply(body)).await
}

pub(super) async fn json_patch<K: Writable>(
    api: &Api<K>,
    name: &str,
    subresource: Subresource,
    options: &WriteOptions,
    operations: &Value,
) -> Answer<K> {
    let patch_body = json(operations)?;
    patch(api, name, subresource, &options.patch_params(), &patch_body).await
}

pub(super) async fn scale_json_patch<K: Writable>(
    api: &Api<K>,
    name: &str,
    options: &WriteOptions,
    operations: &Value,
) -> Answer<Scale> {
    answer::scale(api.patch_scale(name, &options.patch_params(), &json(operations)?).await)
}

pub(super) async fn scale_merge<K: Writable>(
    api: &Api<K>,
    name: &str,
    options: &WriteOptions,
    body: &Value,
) -> Answer<Scale> {
    answer::scale(api.patch_scale(name, &options.patch_params(), &Patch::Merge(body)).await)
}

pub(super) async fn scale_put<K: Writable>(
    api: &Api<K>,
    name: &str,
    options: &WriteOptions,
    scale: &Scale,
) -> Answer<Scale> {
    answer::scale(api.replace_scale(name, &options.post_params(), scale).await)
}

pub(super) async fn create<K: Writable>(api: &Api<K>, options: &WriteOptions, object: &K) -> Answer<K> {
    let created = api.create(&options.post_params(), object).await;
    if answer::is_to_be_named(object.meta()) { answer::named(created, K::meta) } else { created }
}

pub(super) async fn delete<K: Writable>(
    api: &Api<K>,
    name: &str,
    params: &DeleteParams,
) -> Answer<Either<K, Status>> {
    match api.delete(name, params).await? {
        Either::Left(object) => answer::named(Ok(object), K::meta).map(Either::Left),
        Either::Right(status) => answer::successful(Ok(status)).map(Either::Right),
    }
}

/// Not `Api::evict`: kube 5.0 sends the delete options under a name that the server does not know, so that a UID
/// precondition is silently dropped (measured on v1.36).
pub(super) async fn evict(
    api: &Api<Pod>,
    name: &str,
    options: &WriteOptions,
    eviction: &Eviction,
) -> Answer<Status> {
    answer::successful(api.create_subresource("eviction", name, &options.post_params(), eviction).await)
}

async fn patch<K: Writable>(
    api: &Api<K>,
    name: &str,
    subresource: Subresource,
    params: &kube::api::PatchParams,
    body: &Patch<&Value>,
) -> Answer<K> {
    let stored = match subresource {
        Subresource::Main => api.patch(name, params, body).await,
        other => api.patch_subresource(other.label(), name, params, body).await,
    };
    answer::named(stored, K::meta)
}

/// The type of JSON Patch documents belongs to a crate that kube does not re-export; it is obtained by type inference.
fn json(operations: &Value) -> Result<Patch<&Value>, kube::Error> {
    serde_json::from_value(operations.clone()).map(Patch::Json).map_err(|error| {
        // Encoding fails before anything is sent, which a decoding error would not express.
        kube::Error::BuildRequest(kube::core::request::Error::SerializeBody(error))
    })
}
