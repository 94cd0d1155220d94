//! Merge patches that the caller builds, with an optimistic lock: a small body with the resourceVersion it was decided
//! from.

use kube::Api;
use serde_json::Value;

use super::decide::IntoDecision;
use super::kind::{PatchesAPart, ReadsFirst};
use super::snapshot::Whole;
use super::target::WriteTarget;
use super::update::with_version;
use super::write::Write;
use super::write_loop::{Decided, WriteDecision, WriteSteps};
use super::{Writable, guard, sent_status, wire};
use crate::operation::{Subresource, Verb};
use crate::outcome::Refusal;

/// Merge-patches an object with a patch that you build: for a field that your type does not know, and to remove one
/// whatever the object holds. [`crate::update`] builds the patch from what has changed, and is shorter otherwise.
///
/// `decide` returns the fields to change, or `None` when there is nothing to do, or a `Result` of that. The resourceVersion of the object
/// passed to `decide` is added to the patch, so any change in between is a conflict, after which `decide` is called
/// again with a fresh live read; the patch must not contain identity fields itself. A patch that would change nothing
/// is not sent. The removal of a field that is not in the object is sent, because the Rust type may not know the field,
/// unless it is in `metadata`. [`on`](Write::on) sets another subresource: [`Subresource::Status`]. Without that, the server
/// drops a `status` of a kind with a status subresource, which is an error although the rest is written. For what `decide`
/// must not do, see [`crate::update`].
pub fn merge_patch<'a, K, F, D>(api: &'a Api<K>, name: &'a str, decide: F) -> Write<'a, K, MergePatch<F>>
where
    K: Writable,
    F: FnMut(&K) -> D + Send,
    D: IntoDecision<Option<Value>>,
{
    Write::new(api, name, Subresource::Main, MergePatch(decide))
}

/// The kind of write of [`merge_patch`].
pub struct MergePatch<F>(F);

impl<F> ReadsFirst for MergePatch<F> {}

impl<F> PatchesAPart for MergePatch<F> {}

impl<K, F, D> WriteSteps<K> for MergePatch<F>
where
    K: Writable,
    F: FnMut(&K) -> D + Send,
    D: IntoDecision<Option<Value>>,
{
    type Seen = Whole<K>;
    type Body = Value;
    type Failure = D::Error;

    fn verb(&self) -> Verb {
        Verb::MergePatch
    }

    fn check(&self, target: WriteTarget<'_, K>) -> Result<(), Refusal> {
        target.is_object_or_status("is for the object itself or its status; use `scale` for the scale")
    }

    fn decide(&mut self, seen: Whole<K>, target: WriteTarget<'_, K>) -> Decided<K, Self> {
        let Whole(seen) = seen;
        guard::named(&seen, target.api, target.name)?;
        let patch = match (self.0)(&seen).into_decision() {
            Err(failure) => return Ok(WriteDecision::Fail(failure)),
            Ok(None) => return Ok(WriteDecision::Keep(seen)),
            Ok(Some(patch)) => patch,
        };
        let fields = guard::patch(patch, target.subresource)?;
        let version = guard::version(seen.meta().resource_version.as_deref())?;
        if guard::is_noop_patch(&serde_json::to_value(&seen).map_err(Refusal::Encode)?, &fields) {
            return Ok(WriteDecision::Keep(seen));
        }
        let body = with_version(fields, version);
        Ok(WriteDecision::Send(body))
    }

    fn ignored(
        &self,
        target: WriteTarget<'_, K>,
        body: &Value,
        answer: &K,
        _is_unmoved: bool,
    ) -> Option<Refusal> {
        sent_status::dropped(target.subresource, body, answer)
    }

    fn send(target: WriteTarget<'_, K>, body: &Value) -> impl Future<Output = Result<K, kube::Error>> + Send {
        wire::merge(target.api, target.name, target.subresource, target.options, body)
    }
}
