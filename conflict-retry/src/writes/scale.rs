//! Writes a replica count through `/scale`: three ways to guard one decision.
//!
//! Measured on kube-apiserver v1.36, for custom resources: a count of zero is omitted from the body. For an unset count
//! `GET` answers 500, while a patch sees the smallest 32-bit integer instead, which a `test` can compare with.

use kube::Api;
use kube::core::ObjectMeta;
use kube::core::subresource::{Scale, ScaleSpec};
use serde_json::{Value, json};

use super::decide::{IntoDecision, ScaleDecision};
use super::kind::ReadsFirst;
use super::target::WriteTarget;
use super::view::ScaleView;
use super::write::Write;
use super::write_loop::{Decided, WriteDecision, WriteSteps};
use super::{Writable, guard, wire};
use crate::operation::{Subresource, Verb};
use crate::outcome::Refusal;

/// What the API server shows to a patch when a custom resource's count is unset (`math.MinInt32`).
const UNSET: i32 = i32::MIN;

/// Sets a replica count, guarded by the count that the decision was based on.
///
/// ```no_run
/// # use k8s_openapi::api::apps::v1::Deployment;
/// # use conflict_retry::scale;
/// # async fn example(deployments: kube::Api<Deployment>) -> Result<(), kube::Error> {
/// scale(&deployments, "web", |seen| seen.replicas.unwrap_or(1).max(3)).await?;
/// scale(&deployments, "web", |_| 5).await?;
/// # Ok(()) }
/// ```
///
/// `decide` returns the wanted count, a [`ScaleDecision`], or a `Result` of one of these. The guard is a `test` in a JSON Patch: only a change of the count itself (or another object
/// of the same name) makes it fail; writes to status or to other fields do not. When it fails, `/scale` is read live and
/// `decide` is called again. A copy as the source saves the first read.
///
/// The guard is a value, and a value can return: a request that is executed late (its sender gave up on it, its leader
/// was deposed) undoes a count that another writer has changed and changed back since. Where that matters, and the
/// writer can get the right to patch the object, use [`crate::patch_at_generation`]. The other guards
/// ([`guarded_by`](Write::guarded_by)) are immune as well, but conflict with every other write. A scale has no other
/// field that never returns to an earlier value.
pub fn scale<'a, K, F, D>(api: &'a Api<K>, name: &'a str, decide: F) -> Write<'a, K, Scaling<F>>
where
    K: Writable,
    F: FnMut(&ScaleView) -> D + Send,
    D: IntoDecision<ScaleDecision>,
{
    Write::new(api, name, Subresource::Scale, Scaling { decide, guard: ScaleGuard::Count })
}

/// What a write of a replica count must find unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ScaleGuard {
    /// The count itself: a JSON Patch with a `test`.
    #[default]
    Count,
    /// The whole object: a merge patch with the resourceVersion. A copy as the source needs one.
    Version,
    /// The whole object: a PUT with the resourceVersion. A copy as the source needs one.
    VersionByPut,
}

/// The kind of write of [`scale`].
pub struct Scaling<F> {
    decide: F,
    guard: ScaleGuard,
}

/// What is sent.
pub enum ScaleBody {
    /// A JSON Patch.
    Operations(Value),
    /// A merge patch.
    Merge(Value),
    /// The whole scale.
    Whole(Box<Scale>),
}

impl<K, F, D> Write<'_, K, Scaling<F>>
where
    K: Writable,
    F: FnMut(&ScaleView) -> D + Send,
    D: IntoDecision<ScaleDecision>,
{
    /// Sets what must not have changed since the count was read.
    pub fn guarded_by(mut self, guard: ScaleGuard) -> Self {
        self.kind.guard = guard;
        self
    }
}

impl<F> ReadsFirst for Scaling<F> {}

impl<K, F, D> WriteSteps<K> for Scaling<F>
where
    K: Writable,
    F: FnMut(&ScaleView) -> D + Send,
    D: IntoDecision<ScaleDecision>,
{
    type Seen = ScaleView;
    type Body = ScaleBody;
    type Failure = D::Error;

    fn verb(&self) -> Verb {
        match self.guard {
            ScaleGuard::Count => Verb::JsonPatch,
            ScaleGuard::VersionByPut => Verb::Put,
            ScaleGuard::Version => Verb::MergePatch,
        }
    }

    fn decide(&mut self, seen: ScaleView, target: WriteTarget<'_, K>) -> Decided<K, Self> {
        let count = match (self.decide)(&seen).into_decision() {
            Err(failure) => return Ok(WriteDecision::Fail(failure)),
            Ok(ScaleDecision::Abort) => return Ok(WriteDecision::Abort),
            Ok(ScaleDecision::Set(count)) if seen.replicas != Some(count) => checked(count)?,
            Ok(ScaleDecision::Set(_) | ScaleDecision::Keep) => return Ok(WriteDecision::Keep(seen)),
        };
        Ok(WriteDecision::Send(match self.guard {
            ScaleGuard::Count => ScaleBody::Operations(guarded_operations(&seen, count)),
            ScaleGuard::VersionByPut => ScaleBody::Whole(Box::new(put_body(target.name, &seen, count)?)),
            ScaleGuard::Version => {
                let version = guard::version(seen.resource_version.as_deref())?;
                ScaleBody::Merge(json!({
                    "metadata": { "resourceVersion": version },
                    "spec": { "replicas": count },
                }))
            }
        }))
    }

    async fn send(target: WriteTarget<'_, K>, body: &ScaleBody) -> Result<ScaleView, kube::Error> {
        let WriteTarget { api, name, options, .. } = target;
        match body {
            ScaleBody::Operations(operations) => wire::scale_json_patch(api, name, options, operations).await,
            ScaleBody::Whole(scale) => wire::scale_put(api, name, options, scale).await,
            ScaleBody::Merge(patch) => wire::scale_merge(api, name, options, patch).await,
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

pub(super) fn put_body(name: &str, seen: &ScaleView, target: i32) -> Result<Scale, Refusal> {
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

pub(super) fn checked(replicas: i32) -> Result<i32, Refusal> {
    if replicas < 0 { Err(Refusal::Replicas(replicas)) } else { Ok(replicas) }
}

#[cfg(test)]
#[path = "scale_tests.rs"]
mod tests;
