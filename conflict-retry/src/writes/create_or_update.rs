//! Creates an object, or changes the one that is there.

use kube::Api;

use super::decide::{IntoDecision, UpdateDecision};
use super::snapshot::Raw;
use super::target::WriteTarget;
use super::update::{Update, UpdateBody, ignored, send};
use super::write::Write;
use super::write_loop::{Decided, ReadsFirst, WriteDecision, WriteKind};
use super::{Writable, guard};
use crate::operation::{Subresource, Verb};
use crate::outcome::Refusal;

/// Makes sure that an object exists and is as wanted: creates `initial` with `change` applied to it, or changes the
/// object of that name as [`crate::update`] does.
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
pub fn create_or_update<'a, K, F, D>(
    api: &'a Api<K>,
    initial: &'a K,
    change: F,
) -> Write<'a, K, CreateOrUpdate<'a, K, F>>
where
    K: Writable,
    F: FnMut(&mut K) -> D + Send,
    D: IntoDecision<UpdateDecision>,
{
    let name = initial.meta().name.as_deref().unwrap_or_default();
    Write::new(api, name, Subresource::Main, CreateOrUpdate { initial, update: Update::new(change) })
}

/// The kind of write of [`create_or_update`].
pub struct CreateOrUpdate<'a, K, F> {
    initial: &'a K,
    update: Update<F>,
}

impl<K, F> ReadsFirst for CreateOrUpdate<'_, K, F> {}

impl<K, F, D> WriteKind<K> for CreateOrUpdate<'_, K, F>
where
    K: Writable,
    F: FnMut(&mut K) -> D + Send,
    D: IntoDecision<UpdateDecision>,
{
    type Seen = Raw<K>;
    type Body = UpdateBody<K>;
    type Failure = D::Error;

    fn verb(&self) -> Verb {
        self.update.verb()
    }

    fn verb_of(&self, body: &UpdateBody<K>) -> Verb {
        if matches!(body, UpdateBody::New(_)) { Verb::Create } else { self.verb() }
    }

    fn creates(&self) -> bool {
        true
    }

    fn decide(&mut self, seen: Raw<K>, target: WriteTarget<'_, K>) -> Decided<K, Self> {
        self.update.decide(seen, target)
    }

    fn decide_absent(&mut self, target: WriteTarget<'_, K>) -> Decided<K, Self> {
        let mut initial = self.initial.clone();
        initial.meta_mut().resource_version = None;
        initial.meta_mut().uid = None;
        guard::named(&initial, target.api, target.name)?;
        let mut object = initial.clone();
        let object = match self.update.change(&mut object) {
            Err(failure) => return Ok(WriteDecision::Fail(failure)),
            Ok(UpdateDecision::Abort) => return Ok(WriteDecision::Abort),
            // As it was given, it is as wanted.
            Ok(UpdateDecision::Keep) => initial,
            Ok(UpdateDecision::Write) => {
                guard::identity(&initial, &object)?;
                object
            }
        };
        Ok(WriteDecision::Send(UpdateBody::New(Box::new(object))))
    }

    fn check(&self, _target: WriteTarget<'_, K>) -> Result<(), Refusal> {
        guard::whole::<K>()
    }

    fn ignored(target: WriteTarget<'_, K>, body: &UpdateBody<K>) -> Option<Refusal> {
        ignored(target.subresource, body)
    }

    fn overwritten(&mut self) -> Option<String> {
        <Update<F> as WriteKind<K>>::overwritten(&mut self.update)
    }

    fn send(
        target: WriteTarget<'_, K>,
        body: &UpdateBody<K>,
    ) -> impl Future<Output = Result<K, kube::Error>> + Send {
        send(target, body)
    }
}
