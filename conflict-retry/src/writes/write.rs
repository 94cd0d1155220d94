//! [`Write`]: a write that is sent when it is awaited.

use std::fmt;
use std::pin::Pin;
use std::sync::LazyLock;

use kube::Api;

use super::Writable;
use super::kind::{PatchesAPart, ReadsFirst, WriteKind};
use super::target::{WriteTarget, resource};
use super::write_loop::Finished;
use crate::freshness::Source;
use crate::operation::Subresource;
use crate::options::WriteOptions;
use crate::outcome::{Outcome, WriteError};

/// The options of a write that is given none.
static DEFAULT_OPTIONS: LazyLock<WriteOptions> = LazyLock::new(WriteOptions::default);

/// A write that is sent when it is awaited.
///
/// `.await` gives the object as stored, also when it was as wanted already. An object that does not exist is the error
/// [`WriteError::Gone`]. [`outcome`](Self::outcome) tells these apart instead. To spawn, join or box it, or to map its
/// error, take `.into_future()` first.
#[must_use = "a write is sent when it is awaited"]
pub struct Write<'a, K: Writable, W: WriteKind<K>> {
    pub(super) api: &'a Api<K>,
    pub(super) name: &'a str,
    pub(super) subresource: Subresource,
    pub(super) options: Option<&'a WriteOptions>,
    pub(super) source: Source<'a, W::Object>,
    pub(super) kind: W,
}

impl<'a, K: Writable, W: WriteKind<K>> Write<'a, K, W> {
    pub(super) fn new(api: &'a Api<K>, name: &'a str, subresource: Subresource, kind: W) -> Self {
        Self { api, name, subresource, options: None, source: Source::Live, kind }
    }

    /// Writes with these options: field manager, retry policy, time limits, observer, protection. Without them, the
    /// field manager is the program's name and everything else has its default.
    pub fn with(mut self, options: &'a WriteOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// Tells how the write ended, with a missing object and a decision not to write as outcomes rather than errors.
    pub async fn outcome(self) -> Result<Outcome<W::Object>, W::Failure> {
        Ok(self.finish().await?.outcome)
    }

    async fn finish(self) -> Result<Finished<W::Object>, W::Failure> {
        let options = self.options.unwrap_or(&DEFAULT_OPTIONS);
        let target = WriteTarget::new(self.api, self.name, self.subresource, options);
        self.kind.carry_out(target, self.source).await
    }

    /// The object, or the error that matches the outcome.
    async fn object(self) -> Result<W::Object, W::Failure> {
        let (api, name) = (self.api, self.name);
        let Finished { outcome, maybe_written } = self.finish().await?;
        let error = match outcome {
            Outcome::Written(object) | Outcome::Unchanged(object) | Outcome::AlreadyDone(object) => {
                return Ok(object);
            }
            Outcome::Gone => {
                let resource = resource(api.resource_url()).to_owned();
                WriteError::Gone { resource, name: name.to_owned(), maybe_written }
            }
            Outcome::Aborted => WriteError::Aborted { maybe_written },
            Outcome::Conflict(status) => WriteError::Conflict { status },
        };
        Err(error.into())
    }
}

impl<'a, K: Writable, W: WriteKind<K> + ReadsFirst> Write<'a, K, W> {
    /// Sets where the object comes from: a live read (the default), a copy such as the `Arc` that a reconciler is
    /// given, or a cache that a watch feeds. See [`Source`].
    pub fn from(mut self, source: impl Into<Source<'a, W::Object>>) -> Self {
        self.source = source.into();
        self
    }
}

impl<K: Writable, W: WriteKind<K> + PatchesAPart> Write<'_, K, W> {
    /// Patches this part of the object: the object itself (the default) or its status.
    pub fn on(mut self, subresource: Subresource) -> Self {
        self.subresource = subresource;
        self
    }
}

impl<'a, K, W> IntoFuture for Write<'a, K, W>
where
    K: Writable,
    W: WriteKind<K> + Send + 'a,
{
    type Output = Result<W::Object, W::Failure>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.object())
    }
}

impl<K: Writable, W: WriteKind<K>> fmt::Debug for Write<'_, K, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Write")
            .field("resource", &self.api.resource_url())
            .field("name", &self.name)
            .field("subresource", &self.subresource)
            .field("options", &self.options)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
