//! What one kind of write reads, decides and sends: [`WriteKind`], and what a decision is based on: [`Snapshot`].

use kube::Api;
use kube::api::GetParams;
use kube::core::Request;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Writable;
use super::target::WriteTarget;
use super::view::ScaleView;
use super::write_loop;
use crate::classify::is_scale_unset;
use crate::freshness::Source;
use crate::operation::Verb;
use crate::outcome::{Outcome, Refusal, WriteError};

/// What to do with the object that was read.
pub enum Decision<Body, Object, Failure> {
    /// Write this body.
    Send(Body),
    /// The goal is already met.
    Keep(Object),
    /// Do not write.
    Abort,
    /// The caller's closure failed. Do not write.
    Fail(Failure),
    /// The copy does not hold enough to decide: read live, and decide again.
    ReadLive,
}

/// The decision of a kind of write.
pub(super) type Decided<K, W> =
    Result<Decision<<W as WriteKind<K>>::Body, Object<K, W>, <W as WriteKind<K>>::Failure>, Refusal>;

/// The object of a kind of write, as callers hold copies of it, and as the server answers a write.
pub(super) type Object<K, W> = <<W as WriteKind<K>>::Seen as Snapshot<K>>::Object;

/// A kind of write that decides from an object that was read.
pub trait ReadsFirst {}

/// What one kind of write reads, decides and sends.
pub trait WriteKind<K: Writable>: Send + Sized {
    /// What a decision is based on.
    type Seen: Snapshot<K>;
    /// The body of the write.
    type Body: Send + Sync;
    /// Why the caller's closure failed.
    type Failure: From<WriteError> + Send;

    /// The verb of the write, for reports.
    fn verb(&self) -> Verb;
    /// The verb of the request with this body.
    fn verb_of(&self, _body: &Self::Body) -> Verb {
        self.verb()
    }
    /// Rejects a request that is wrong whatever the object holds.
    fn check(&self, _target: WriteTarget<'_, K>) -> Result<(), Refusal> {
        Ok(())
    }
    /// Whether the object is created when it does not exist.
    fn creates(&self) -> bool {
        false
    }
    /// Decides what to do with the object that was read.
    fn decide(&mut self, seen: Self::Seen, target: WriteTarget<'_, K>) -> Decided<K, Self>;
    /// Decides what to do when there is no object. Called only if [`Self::creates`].
    fn decide_absent(&mut self, _target: WriteTarget<'_, K>) -> Decided<K, Self> {
        Ok(Decision::Abort)
    }
    /// The field that the last decision may have overwritten without looking at it.
    fn overwritten(&mut self) -> Option<String> {
        None
    }
    /// Sends one request.
    fn send(
        target: WriteTarget<'_, K>,
        body: &Self::Body,
    ) -> impl Future<Output = Result<Object<K, Self>, kube::Error>> + Send;
    /// Writes until there is an outcome.
    fn run(
        self,
        target: WriteTarget<'_, K>,
        source: Source<'_, Object<K, Self>>,
    ) -> impl Future<Output = Result<Outcome<Object<K, Self>>, Self::Failure>> + Send {
        write_loop::run(self, target, source)
    }
}

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
        let object = serde_json::from_value(stored.clone()).map_err(kube::Error::SerdeError)?;
        Ok(Self { object, stored: Some(stored) })
    }

    fn uid(&self) -> Option<&str> {
        self.object.meta().uid.as_deref()
    }

    fn version_of(copy: &K) -> Option<&str> {
        copy.meta().resource_version.as_deref()
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
            answer => return answer.map(Self::from),
        }
        // The resourceVersion (and the UID, without which another object of the same name is not detected) must come
        // from the object itself. Reading the count once more afterwards ensures that it was unset at that version, or
        // that the version is stale by now and the write will conflict.
        let meta = api.get_metadata(name).await?;
        match api.get_scale(name).await {
            Err(error) if is_scale_unset(&error) => Ok(Self::of(&meta, None, None)),
            answer => answer.map(Self::from),
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
    let request = Request::new(api.resource_url()).get(name, &GetParams::default());
    let mut request = request.map_err(kube::Error::BuildRequest)?;
    // As kube names the spans of its own reads.
    request.extensions_mut().insert("get");
    api.clone().into_client().request(request).await
}
