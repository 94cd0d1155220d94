//! What a decision is based on: [`Snapshot`], an object, an object with its stored JSON, or a scale.

use kube::Api;
use kube::api::GetParams;
use kube::core::Request;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::target::WriteTarget;
use super::view::ScaleView;
use super::{Writable, answer};
use crate::classify::is_scale_unset;

/// What a decision is based on: an object, or its scale.
pub trait Snapshot<K>: Sized + Send {
    /// The object, as callers hold copies of it, and as the server answers a write.
    type Object: Clone + Send + Sync;

    /// The snapshot of a copy that the caller holds.
    fn of(copy: Self::Object) -> Self;
    /// Reads live: never from the API server's watch cache, nor from a local one.
    fn read(target: WriteTarget<'_, K>) -> impl Future<Output = Result<Self, kube::Error>> + Send;
    /// The object's UID; `None` when unknown.
    fn uid(&self) -> Option<&str>;
    /// The object's resourceVersion; `None` when unknown.
    fn version(&self) -> Option<&str>;
    /// The resourceVersion of a copy; `None` when unknown.
    fn version_of(copy: &Self::Object) -> Option<&str>;
    /// Whether the object is being deleted. Its last finalizer goes without a new version.
    fn is_deleting(_copy: &Self::Object) -> bool {
        false
    }
}

/// An object as its Rust type knows it.
pub struct Whole<K>(pub(super) K);

impl<K: Writable> Snapshot<K> for Whole<K> {
    type Object = K;

    fn of(copy: K) -> Self {
        Self(copy)
    }

    async fn read(target: WriteTarget<'_, K>) -> Result<Self, kube::Error> {
        target.api.get(target.name).await.map(Self)
    }

    fn uid(&self) -> Option<&str> {
        self.0.meta().uid.as_deref()
    }

    fn version_of(copy: &K) -> Option<&str> {
        copy.meta().resource_version.as_deref()
    }

    fn is_deleting(copy: &K) -> bool {
        copy.meta().deletion_timestamp.is_some()
    }

    fn version(&self) -> Option<&str> {
        self.0.meta().resource_version.as_deref()
    }
}

/// An object as its Rust type knows it and, when it was read live, as the server sent it.
pub struct Raw<K> {
    pub(super) object: K,
    /// `None` for a copy of the caller, which may lack fields that its type does not know.
    pub(super) stored: Option<Value>,
}

impl<K: Writable> Snapshot<K> for Raw<K> {
    type Object = K;

    fn of(copy: K) -> Self {
        Self { object: copy, stored: None }
    }

    async fn read(target: WriteTarget<'_, K>) -> Result<Self, kube::Error> {
        let stored: Value = read_as(target.api, target.name).await?;
        let object = K::deserialize(&stored).map_err(kube::Error::SerdeError)?;
        Ok(Self { object, stored: Some(stored) })
    }

    fn uid(&self) -> Option<&str> {
        self.object.meta().uid.as_deref()
    }

    fn version_of(copy: &K) -> Option<&str> {
        copy.meta().resource_version.as_deref()
    }

    fn is_deleting(copy: &K) -> bool {
        copy.meta().deletion_timestamp.is_some()
    }

    fn version(&self) -> Option<&str> {
        self.object.meta().resource_version.as_deref()
    }
}

impl<K: Writable> Snapshot<K> for ScaleView {
    type Object = Self;

    fn of(copy: Self) -> Self {
        copy
    }

    async fn read(target: WriteTarget<'_, K>) -> Result<Self, kube::Error> {
        let (api, name) = (target.api, target.name);
        match api.get_scale(name).await {
            Err(error) if is_scale_unset(&error) => {}
            read => return answer::scale(read).map(Self::from),
        }
        // The resourceVersion (and the UID, without which another object of the same name is not detected) must come
        // from the object itself. Reading the count once more afterwards ensures that it was unset at that version, or
        // that the version is stale by now and the write will conflict.
        let meta = target.find().await?;
        match api.get_scale(name).await {
            Err(error) if is_scale_unset(&error) => Ok(Self::of(&meta, None, None)),
            read => answer::scale(read).map(Self::from),
        }
    }

    fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    fn version_of(copy: &Self) -> Option<&str> {
        copy.resource_version.as_deref()
    }

    fn version(&self) -> Option<&str> {
        self.resource_version.as_deref()
    }
}

/// Reads an object as a type other than its own.
async fn read_as<K: Writable, T: DeserializeOwned>(api: &Api<K>, name: &str) -> Result<T, kube::Error> {
    let (request, params) = (Request::new(api.resource_url()), GetParams::default());
    let request =
        if K::metadata_api() { request.get_metadata(name, &params) } else { request.get(name, &params) };
    let mut request = request.map_err(kube::Error::BuildRequest)?;
    // As kube names the spans of its own reads.
    request.extensions_mut().insert("get");
    api.clone().into_client().request(request).await
}
