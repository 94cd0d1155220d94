//! Writes a replica count through `/scale`: three ways to guard one decision.
//!
//! Measured on kube-apiserver v1.36, for custom resources: a count of zero is omitted from the body. For an unset count
//! `GET` answers 500, while a patch sees the smallest 32-bit integer instead, which a `test` can compare with.

use kube::Api;
use kube::core::ObjectMeta;
use kube::core::subresource::{Scale, ScaleSpec};
use serde_json::{Value, json};

use super::target::Target;
use super::view::ScaleView;
use super::write_loop::{self, Move, WriteOperation};
use super::{Writable, guard, wire};
use crate::classify::is_scale_unset;
use crate::freshness::Source;
use crate::operation::{Subresource, Verb};
use crate::options::WriteOptions;
use crate::outcome::{Outcome, Refusal, WriteError};

/// What the API server shows to a patch when a custom resource's count is unset (`math.MinInt32`).
const UNSET: i32 = i32::MIN;

/// What to do with a replica count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleDecision {
    /// Set it to this value; nothing is sent if it already has this value.
    Set(i32),
    /// The count is already as wanted; send nothing.
    Keep,
    /// Do not write.
    Abort,
}

/// Sets a replica count, guarded by the count that the decision was based on: a JSON Patch with a `test`.
///
/// Only a change of the count itself (or another object of the same name) makes the guard fail; writes to status or to
/// other fields do not. When it fails, `/scale` is read live and `decide` is called again. A copy in `source` is the
/// cached state, which saves the first read.
///
/// The guard is a value, and a value can return: a request that is executed late (its sender gave up on it, its leader
/// was deposed) undoes a count that another writer has changed and changed back since. Where that matters, and the
/// writer can get the right to patch the object, use [`crate::patch_at_generation`]. [`scale_put`] and [`scale_merge`]
/// are immune as well, but conflict with every other write. A scale has no other field that never returns to an earlier
/// value.
pub async fn scale<K, F>(
    api: &Api<K>,
    name: &str,
    options: &WriteOptions,
    source: Source<'_, ScaleView>,
    decide: F,
) -> Result<Outcome<ScaleView>, WriteError>
where
    K: Writable,
    F: FnMut(&ScaleView) -> ScaleDecision + Send,
{
    Scaling { api, name, guard: Guard::Count, options, decide }.run(source).await
}

/// Sets a replica count by PUT, guarded by the object's resourceVersion: every change of the object in between is a
/// conflict. After a conflict `/scale` is read live and `decide` is called again. A copy in `source` needs a
/// resourceVersion.
pub async fn scale_put<K, F>(
    api: &Api<K>,
    name: &str,
    options: &WriteOptions,
    source: Source<'_, ScaleView>,
    decide: F,
) -> Result<Outcome<ScaleView>, WriteError>
where
    K: Writable,
    F: FnMut(&ScaleView) -> ScaleDecision + Send,
{
    Scaling { api, name, guard: Guard::Put, options, decide }.run(source).await
}

/// Like [`scale_put`], with a merge patch that carries the object's resourceVersion.
pub async fn scale_merge<K, F>(
    api: &Api<K>,
    name: &str,
    options: &WriteOptions,
    source: Source<'_, ScaleView>,
    decide: F,
) -> Result<Outcome<ScaleView>, WriteError>
where
    K: Writable,
    F: FnMut(&ScaleView) -> ScaleDecision + Send,
{
    Scaling { api, name, guard: Guard::Merge, options, decide }.run(source).await
}

/// PUTs `replicas` once, guarded by the resourceVersion of `base`; a conflict is [`Outcome::Conflict`]. A base without
/// a resourceVersion is rejected, because the server treats such a PUT as unconditional.
pub async fn scale_put_once<K: Writable>(
    api: &Api<K>,
    name: &str,
    options: &WriteOptions,
    base: &ScaleView,
    replicas: i32,
) -> Result<Outcome<ScaleView>, WriteError> {
    let send = |body| async move { wire::scale_put(api, name, options, &body).await.map(ScaleView::from) };
    let decided = if base.replicas == Some(replicas) {
        Ok(Move::Keep(base.clone()))
    } else {
        checked(replicas).and_then(|target| put_body(name, base, target)).map(|body| Move::Send(send(body)))
    };
    write_loop::once(Target::new(api, name), options, Verb::Put, Subresource::Scale, decided).await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guard {
    Count,
    Put,
    Merge,
}

enum Body {
    Operations(Value),
    Whole(Box<Scale>),
    Merge(Value),
}

struct Scaling<'a, K, F> {
    api: &'a Api<K>,
    name: &'a str,
    guard: Guard,
    options: &'a WriteOptions,
    decide: F,
}

impl<K, F> Scaling<'_, K, F>
where
    K: Writable,
    F: FnMut(&ScaleView) -> ScaleDecision + Send,
{
    async fn run(mut self, source: Source<'_, ScaleView>) -> Result<Outcome<ScaleView>, WriteError> {
        let (target, options) = (Target::new(self.api, self.name), self.options);
        write_loop::run(&mut self, target, options, source).await
    }
}

impl<K, F> WriteOperation for Scaling<'_, K, F>
where
    K: Writable,
    F: FnMut(&ScaleView) -> ScaleDecision + Send,
{
    type Seen = ScaleView;
    type Body = Body;
    type Written = ScaleView;

    fn verb(&self) -> Verb {
        match self.guard {
            Guard::Count => Verb::JsonPatch,
            Guard::Put => Verb::Put,
            Guard::Merge => Verb::MergePatch,
        }
    }

    fn subresource(&self) -> Subresource {
        Subresource::Scale
    }

    async fn read(&mut self) -> Result<ScaleView, kube::Error> {
        match self.api.get_scale(self.name).await {
            Err(error) if is_scale_unset(&error) => {}
            answer => return answer.map(ScaleView::from),
        }
        // The resourceVersion (and the UID, without which another object of the same name is not detected) must come
        // from the object itself. Reading the count once more afterwards ensures that it was unset at that version, or
        // that the version is stale by now and the write will conflict.
        let meta = self.api.get_metadata(self.name).await?;
        match self.api.get_scale(self.name).await {
            Err(error) if is_scale_unset(&error) => Ok(ScaleView::of(&meta, None, None)),
            answer => answer.map(ScaleView::from),
        }
    }

    fn uid(seen: &ScaleView) -> Option<&str> {
        seen.uid.as_deref()
    }

    fn version(seen: &ScaleView) -> Option<&str> {
        seen.resource_version.as_deref()
    }

    fn as_seen(written: &ScaleView) -> Option<&ScaleView> {
        Some(written)
    }

    fn decide(&mut self, seen: ScaleView) -> Result<Move<Body, ScaleView>, Refusal> {
        let target = match (self.decide)(&seen) {
            ScaleDecision::Abort => return Ok(Move::Abort),
            ScaleDecision::Set(target) if seen.replicas != Some(target) => checked(target)?,
            ScaleDecision::Set(_) | ScaleDecision::Keep => return Ok(Move::Keep(seen)),
        };
        Ok(Move::Send(match self.guard {
            Guard::Count => Body::Operations(guarded_operations(&seen, target)),
            Guard::Put => Body::Whole(Box::new(put_body(self.name, &seen, target)?)),
            Guard::Merge => {
                let version = guard::version(seen.resource_version.as_deref())?;
                Body::Merge(json!({
                    "metadata": { "resourceVersion": version },
                    "spec": { "replicas": target },
                }))
            }
        }))
    }

    async fn send(&mut self, body: &Body) -> Result<ScaleView, kube::Error> {
        let Self { api, name, options, .. } = self;
        match body {
            Body::Operations(operations) => wire::scale_json_patch(api, name, options, operations).await,
            Body::Whole(scale) => wire::scale_put(api, name, options, scale).await,
            Body::Merge(patch) => wire::scale_merge(api, name, options, patch).await,
        }
        .map(ScaleView::from)
    }
}

/// The patch that sets `target` only if the object and its count are still the observed ones.
fn guarded_operations(seen: &ScaleView, target: i32) -> Value {
    let mut operations = Vec::with_capacity(3);
    if let Some(uid) = &seen.uid {
        operations.push(json!({ "op": "test", "path": "/metadata/uid", "value": uid }));
    }
    operations.push(match seen.replicas {
        Some(0) => json!({ "op": "test", "path": "/spec", "value": {} }),
        Some(count) => json!({ "op": "test", "path": "/spec/replicas", "value": count }),
        None => json!({ "op": "test", "path": "/spec/replicas", "value": UNSET }),
    });
    // `add` replaces a member that exists and creates one that does not.
    operations.push(json!({ "op": "add", "path": "/spec/replicas", "value": target }));
    Value::Array(operations)
}

fn put_body(name: &str, seen: &ScaleView, target: i32) -> Result<Scale, Refusal> {
    let version = guard::version(seen.resource_version.as_deref())?;
    Ok(Scale {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            uid: seen.uid.clone(),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(ScaleSpec { replicas: Some(target) }),
        status: None,
    })
}

fn checked(replicas: i32) -> Result<i32, Refusal> {
    if replicas < 0 { Err(Refusal::Replicas(replicas)) } else { Ok(replicas) }
}

#[cfg(test)]
#[path = "scale_tests.rs"]
mod tests;
