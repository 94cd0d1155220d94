//! Updates: read, change, and send what has changed, guarded by the resourceVersion that was read; or create what is
//! missing.

use kube::Api;
use serde_json::{Map, Value};

use super::decide::{IntoDecision, UpdateDecision};
use super::difference::{self, NoPatch};
use super::kind::ReadsFirst;
use super::overwrite::{self, overwritten};
use super::snapshot::Raw;
use super::target::WriteTarget;
use super::write::Write;
use super::write_loop::{Decided, WriteDecision, WriteSteps};
use super::{Writable, guard, sent_status, wire};
use crate::operation::{Subresource, Verb};
use crate::outcome::Refusal;

/// Changes an object: reads it, calls `change` with it, and sends what has changed. After each conflict it starts again
/// from a fresh live read.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # async fn example(maps: kube::Api<ConfigMap>) -> Result<(), kube::Error> {
/// let stored = conflict_retry::update(&maps, "settings", |map| {
///     map.data.get_or_insert_default().insert("colour".into(), "blue".into());
/// })
/// .await?;
/// # Ok(()) }
/// ```
///
/// What is sent is a merge patch with the resourceVersion: fields that the Rust type does not know stay as they are,
/// also within the entries of a list. To know them, a change within a list of objects needs a live read, even if a copy
/// was given. [`put`](Write::put) sends the whole object instead.
///
/// `change` may be called several times, each time with a fresh copy. It returns nothing, an [`UpdateDecision`], or a
/// `Result` of one of these, whose error ends the write and is returned. It must *decide* from the object it gets and
/// set the goal (`replicas = 5`, because of the object's current state). It must never repeat a value computed
/// elsewhere, and never count (`+= 1`): an attempt whose answer was lost may have been executed.
///
/// An unchanged object is not sent. A copy of another object, and a change of the name, namespace, UID or
/// resourceVersion, is rejected before sending. On a kind with a status subresource the server drops changes of
/// `status` made here, which is an error although what else has changed is written: use [`update_status`].
pub fn update<'a, K, F, D>(api: &'a Api<K>, name: &'a str, change: F) -> Write<'a, K, Update<'a, K, F>>
where
    K: Writable,
    F: FnMut(&mut K) -> D + Send,
    D: IntoDecision<UpdateDecision>,
{
    Write::new(api, name, Subresource::Main, Update::of(None, change))
}

/// Like [`update`], for `/status`: only `status` may change, because the server drops everything else.
pub fn update_status<'a, K, F, D>(api: &'a Api<K>, name: &'a str, change: F) -> Write<'a, K, Update<'a, K, F>>
where
    K: Writable,
    F: FnMut(&mut K) -> D + Send,
    D: IntoDecision<UpdateDecision>,
{
    Write::new(api, name, Subresource::Status, Update::of(None, change))
}

/// Makes sure that an object exists and is as wanted: creates `initial` with `change` applied to it, or changes the
/// object of that name as [`update`] does.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # async fn example(maps: kube::Api<ConfigMap>) -> Result<(), kube::Error> {
/// let mut initial = ConfigMap::default();
/// initial.metadata.name = Some("settings".into());
/// let stored = conflict_retry::create_or_update(&maps, &initial, |map| {
///     map.data.get_or_insert_default().insert("colour".into(), "blue".into());
/// })
/// .await?;
/// # Ok(()) }
/// ```
///
/// An object that appears or vanishes in between is a conflict like any other: what is there now is read and decided
/// from. A create whose answer was lost is looked up before anything is repeated. `initial` needs a name; its
/// resourceVersion and UID are ignored. Where there is no object, [`UpdateDecision::Keep`] creates `initial` as it is.
///
/// On a kind with a status subresource the server drops a `status`, also that of a new object, which is an error although
/// the rest is written: use [`update_status`] afterwards.
pub fn create_or_update<'a, K, F, D>(
    api: &'a Api<K>,
    initial: &'a K,
    change: F,
) -> Write<'a, K, Update<'a, K, F>>
where
    K: Writable,
    F: FnMut(&mut K) -> D + Send,
    D: IntoDecision<UpdateDecision>,
{
    let name = initial.meta().name.as_deref().unwrap_or_default();
    Write::new(api, name, Subresource::Main, Update::of(Some(initial), change))
}

/// The kind of write of [`update`], [`update_status`] and [`create_or_update`].
pub struct Update<'a, K, F> {
    change: F,
    /// What to create where there is no object; `None`: nothing.
    initial: Option<&'a K>,
    is_put: bool,
    /// What the last request was made from, and what it wanted.
    before: Option<overwrite::Decided>,
    /// The same of the decision that is about to be sent.
    now: Option<overwrite::Decided>,
}

/// What is sent.
pub enum UpdateBody<K> {
    /// What has changed.
    Difference(Value),
    /// The whole object.
    Whole(Box<K>),
    /// The object that did not exist.
    New(Box<K>),
}

impl<'a, K, F> Update<'a, K, F> {
    fn of(initial: Option<&'a K>, change: F) -> Self {
        Self { change, initial, is_put: false, before: None, now: None }
    }
}

impl<'a, K, F, D> Write<'a, K, Update<'a, K, F>>
where
    K: Writable,
    F: FnMut(&mut K) -> D + Send,
    D: IntoDecision<UpdateDecision>,
{
    /// Sends the whole object (a PUT) instead of what has changed. Fields that the Rust type does not know, or that a
    /// cache has pruned, are **erased**.
    ///
    /// Right for an API that takes no patches, for a value of `null` (a merge patch takes it for a removal), and for a type
    /// that is known to be complete when not even a list may cost a read.
    pub fn put(mut self) -> Self {
        self.kind.is_put = true;
        self
    }
}

impl<K, F> ReadsFirst for Update<'_, K, F> {}

impl<K, F, D> WriteSteps<K> for Update<'_, K, F>
where
    K: Writable,
    F: FnMut(&mut K) -> D + Send,
    D: IntoDecision<UpdateDecision>,
{
    type Seen = Raw<K>;
    type Body = UpdateBody<K>;
    type Failure = D::Error;

    fn verb(&self) -> Verb {
        if self.is_put { Verb::Put } else { Verb::MergePatch }
    }

    fn verb_of(&self, body: &UpdateBody<K>) -> Verb {
        if matches!(body, UpdateBody::New(_)) { Verb::Create } else { self.verb() }
    }

    fn check(&self, _target: WriteTarget<'_, K>) -> Result<(), Refusal> {
        if self.is_put || self.initial.is_some() { guard::whole::<K>() } else { Ok(()) }
    }

    fn creates(&self) -> bool {
        self.initial.is_some()
    }

    fn decide(&mut self, seen: Raw<K>, target: WriteTarget<'_, K>) -> Decided<K, Self> {
        let Raw { object, stored } = seen;
        guard::named(&object, target.api, target.name)?;
        let mut changed = object.clone();
        match (self.change)(&mut changed).into_decision() {
            Err(failure) => return Ok(WriteDecision::Fail(failure)),
            Ok(UpdateDecision::Abort) => return Ok(WriteDecision::Abort),
            Ok(UpdateDecision::Keep) => return Ok(WriteDecision::Keep(object)),
            Ok(UpdateDecision::Write) => {}
        }
        let Some(now) = guard::changed(&object, &changed, target.subresource)? else {
            return Ok(WriteDecision::Keep(object));
        };
        let version = guard::version(changed.meta().resource_version.as_deref())?;
        let body = if self.is_put {
            UpdateBody::Whole(Box::new(changed))
        } else {
            match difference::patch(&now.seen, &now.wanted, stored.as_ref()) {
                Ok(fields) => UpdateBody::Difference(with_version(fields, version)),
                Err(NoPatch::ListNotKnown) => return Ok(WriteDecision::ReadLive),
                Err(NoPatch::Refused(reason)) => return Err(reason),
            }
        };
        self.now = Some(now);
        Ok(WriteDecision::Send(body))
    }

    fn decide_absent(&mut self, target: WriteTarget<'_, K>) -> Decided<K, Self> {
        self.now = None;
        let Some(initial) = self.initial else { return Ok(WriteDecision::Abort) };
        let mut initial = initial.clone();
        initial.meta_mut().resource_version = None;
        initial.meta_mut().uid = None;
        guard::named(&initial, target.api, target.name)?;
        let mut changed = initial.clone();
        let object = match (self.change)(&mut changed).into_decision() {
            Err(failure) => return Ok(WriteDecision::Fail(failure)),
            Ok(UpdateDecision::Abort) => return Ok(WriteDecision::Abort),
            // As it was given, it is as wanted.
            Ok(UpdateDecision::Keep) => initial,
            Ok(UpdateDecision::Write) => {
                guard::identity(&initial, &changed)?;
                changed
            }
        };
        guard::encodable(&object)?;
        Ok(WriteDecision::Send(UpdateBody::New(Box::new(object))))
    }

    fn overwritten(&mut self) -> Option<String> {
        let now = self.now.take()?;
        let path = self.before.as_ref().and_then(|before| overwritten(before, &now));
        self.before = Some(now);
        path
    }

    /// A status, which a write to an object drops whose kind has a status subresource.
    fn ignored(
        &self,
        target: WriteTarget<'_, K>,
        body: &UpdateBody<K>,
        answer: &K,
        is_unmoved: bool,
    ) -> Option<Refusal> {
        let subresource = target.subresource;
        if subresource != Subresource::Main {
            return None;
        }
        if let UpdateBody::New(object) = body {
            return sent_status::dropped(subresource, &serde_json::to_value(object).ok()?, answer);
        }
        let overwrite::Decided { seen, wanted } = self.before.as_ref()?;
        let (seen, wanted) = (seen.get("status"), wanted.get("status"));
        if seen == wanted {
            return None;
        }
        // A kind without the subresource has stored another status than the one that was read.
        let is_dropped =
            is_unmoved || serde_json::to_value(answer).is_ok_and(|answer| answer.get("status") == seen);
        is_dropped.then(|| Refusal::Dropped { field: "status".to_owned(), subresource })
    }

    async fn send(target: WriteTarget<'_, K>, body: &UpdateBody<K>) -> Result<K, kube::Error> {
        let WriteTarget { api, name, subresource, options } = target;
        match body {
            UpdateBody::Difference(patch) => wire::merge(api, name, subresource, options, patch).await,
            UpdateBody::Whole(object) => wire::put(api, name, subresource, options, object).await,
            UpdateBody::New(object) => wire::create(api, options, object).await,
        }
    }
}

/// A merge patch that is a conflict if the object is not at `version` any more.
pub(super) fn with_version(mut fields: Map<String, Value>, version: &str) -> Value {
    let version = Value::String(version.to_owned());
    if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
        metadata.insert("resourceVersion".to_owned(), version);
    } else {
        let metadata = Map::from_iter([("resourceVersion".to_owned(), version)]);
        fields.insert("metadata".to_owned(), Value::Object(metadata));
    }
    Value::Object(fields)
}
