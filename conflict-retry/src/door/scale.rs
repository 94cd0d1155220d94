//! Writes of a replica count through `/scale`: three ways to guard one decision.
//!
//! Measured on kube-apiserver v1.36, for custom resources: a count of zero is left out of the body; for an unset count
//! `GET` answers 500, while a patch sees the smallest 32-bit integer in its place, which a `test` can name.

use kube::Api;
use kube::core::ObjectMeta;
use kube::core::subresource::{Scale, ScaleSpec};
use serde_json::{Value, json};

use super::cycle::{self, Exchange, Move};
use super::target::Target;
use super::view::ScaleView;
use super::{Writable, guard, wire};
use crate::classify::is_scale_unset;
use crate::freshness::Source;
use crate::operation::{Subresource, Verb};
use crate::options::WriteOptions;
use crate::outcome::{Outcome, Refusal, WriteError};

/// What the API server shows to a patch where a custom resource's count is unset (`math.MinInt32`).
const UNSET: i32 = i32::MIN;

/// What was decided about a replica count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleDecision {
    /// Set it to this (unless it is that already).
    Set(i32),
    /// It is right as it is.
    Keep,
    /// Do not write.
    Abort,
}

/// Sets a replica count, guarded by the count that the decision was made from: a JSON Patch with `test`.
///
/// Only a change of the count itself (or another object of the same name) makes the guard fail; writes to status or
/// to other fields do not. It then reads `/scale` live and asks `decide` again. A copy in `source` is what a cache knows, which
/// saves the first read.
///
/// The guard is a value, and a value comes back: a request that is carried out late (its sender gave it up, its leader was
/// deposed) undoes a count that somebody has changed and changed back since. Where that matters, and a right to patch the
/// object can be had, use [`crate::patch_at_generation`]; [`scale_put`] and [`scale_merge`] are immune as well, and meet a
/// conflict with every other write. A scale shows nothing else that never comes back.
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

/// Sets a replica count by PUT, guarded by the object's version: every change of the object in between is a conflict.
/// After one it reads `/scale` live and asks `decide` again. A copy in `source` needs a resource
/// version.
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

/// As [`scale_put`], by a merge patch that carries the object's version.
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

/// PUTs `replicas` once, guarded by the version of `base`; a conflict is [`Outcome::Conflict`]. A base without a version
/// is refused, because the server takes such a PUT as unconditional.
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
    cycle::once(Target::new(api, name), options, Verb::Put, Subresource::Scale, decided).await
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
        cycle::run(&mut self, target, options, source).await
    }
}

impl<K, F> Exchange for Scaling<'_, K, F>
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
        // The version (and the UID, without which a namesake could not be told) has to come from the object itself.
        // Reading the count once more afterwards makes sure that it was unset at that version, or that the version is
        // stale by now and the write a conflict.
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

/// The patch that sets `target` only if the count still is what was seen, in the object that was seen.
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
