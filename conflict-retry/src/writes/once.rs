//! Single attempts, each with a classified error: for what needs no loop, and for a controller that leaves the retry to
//! its work queue.

use std::time::Duration;

use either::Either;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use kube::Api;
use kube::api::DeleteParams;
use kube::core::{ObjectMeta, Status};
use serde_json::Value;

use super::operation_state::{Failed, OperationState};
use super::target::WriteTarget;
use super::view::ScaleView;
use super::write_loop::{self, Single};
use super::{Writable, guard, scale, wire};
use crate::classify::Class;
use crate::operation::{Subresource, Verb};
use crate::options::WriteOptions;
use crate::outcome::{DeleteOutcome, EvictOutcome, Outcome, Refusal, RequestFailure, WriteError};

/// The cause in the Eviction API's answer when a `PodDisruptionBudget` blocks a pod (`policyv1.DisruptionBudgetCause`).
const DISRUPTION_BUDGET: &str = "DisruptionBudget";
/// Minimum time limit of an eviction. The server itself retries an eviction without a `PodDisruptionBudget` that meets
/// a conflict or an unmet precondition, twenty times half a second apart, before it answers (measured: 10.2 s on
/// v1.36).
const EVICTION_TIMEOUT: Duration = Duration::from_secs(15);

/// Creates `object` and returns it as stored. If an object of that name already exists, the result is an error that
/// [`WriteError::is_already_exists`] recognises; the existing object may be the caller's own, if an earlier answer was
/// lost.
pub async fn create<K: Writable>(api: &Api<K>, options: &WriteOptions, object: &K) -> Result<K, WriteError> {
    let name = object.meta().name.as_deref().unwrap_or_default();
    let target = WriteTarget::new(api, name, Subresource::Main, options);
    let mut state = OperationState::begin(options, target.operation(Verb::Create));
    let result = Box::pin(async {
        guard::encodable(object)?;
        state.ready(target).await?;
        let answer = state.call(Verb::Create, wire::create(api, options, object)).await?;
        answer.map_err(|failed| state.reject(failed))
    })
    .await;
    state.end(result, |_| "created")
}

/// Deletes an object. Pass the observed UID in `params` as a precondition, so that another object of the same name is
/// not deleted.
pub async fn delete<K: Writable>(
    api: &Api<K>,
    name: &str,
    options: &WriteOptions,
    params: &DeleteParams,
) -> Result<DeleteOutcome<K>, WriteError> {
    let target = WriteTarget::new(api, name, Subresource::Main, options);
    let mut state = OperationState::begin(options, target.operation(Verb::Delete));
    let result = Box::pin(async {
        target.check()?;
        state.ready(target).await?;
        let failed = match state.call(Verb::Delete, wire::delete(api, name, params)).await? {
            Ok(Either::Left(object)) if is_waiting(object.meta()) => {
                return Ok(DeleteOutcome::Terminating(Box::new(object)));
            }
            Ok(_) => return Ok(DeleteOutcome::Deleted),
            Err(failed) => failed,
        };
        Ok(match precondition(&state, failed)? {
            Unmet::Gone => DeleteOutcome::Gone,
            Unmet::Conflict(status) => DeleteOutcome::Conflict(status),
        })
    })
    .await;
    state.end(result, DeleteOutcome::label)
}

/// Sends a caller-built JSON Patch once. Guard it with `test` operations: a failed test is [`Outcome::Conflict`], and
/// so is a path that does not exist, because the server answers both the same way.
pub async fn json_patch<K: Writable>(
    api: &Api<K>,
    name: &str,
    subresource: Subresource,
    options: &WriteOptions,
    operations: &Value,
) -> Result<Outcome<K>, WriteError> {
    let planned = if operations.is_array() {
        Ok(Single::Send(wire::json_patch(api, name, subresource, options, operations)))
    } else {
        Err(Refusal::Body("of a JSON Patch is not an array; give a list of operations"))
    };
    write_loop::once(WriteTarget::new(api, name, subresource, options), Verb::JsonPatch, planned).await
}

/// PUTs `object` once and unchanged. A conflict is [`Outcome::Conflict`]. A copy without a resourceVersion is rejected,
/// because for many kinds the server would then overwrite whatever is stored.
pub async fn put<K: Writable>(
    api: &Api<K>,
    name: &str,
    subresource: Subresource,
    options: &WriteOptions,
    object: &K,
) -> Result<Outcome<K>, WriteError> {
    let planned = guard::whole::<K>()
        .and_then(|()| guard::named(object, api, name))
        .and_then(|()| guard::encodable(object))
        .and_then(|()| guard::version(object.meta().resource_version.as_deref()))
        .map(|_version| Single::Send(wire::put(api, name, subresource, options, object)));
    write_loop::once(WriteTarget::new(api, name, subresource, options), Verb::Put, planned).await
}

/// PUTs the replica count `count` once, guarded by the resourceVersion of `seen`; a conflict is [`Outcome::Conflict`].
/// A view without a resourceVersion is rejected, because the server treats such a PUT as unconditional.
pub async fn put_scale<K: Writable>(
    api: &Api<K>,
    name: &str,
    options: &WriteOptions,
    seen: &ScaleView,
    count: i32,
) -> Result<Outcome<ScaleView>, WriteError> {
    let send = |body| async move { wire::scale_put(api, name, options, &body).await.map(ScaleView::from) };
    let planned = if seen.replicas == Some(count) {
        Ok(Single::Keep(seen.clone()))
    } else {
        scale::checked(count)
            .and_then(|count| scale::put_body(name, seen, count))
            .map(|body| Single::Send(send(body)))
    };
    write_loop::once(WriteTarget::new(api, name, Subresource::Scale, options), Verb::Put, planned).await
}

/// Evicts a pod through the Eviction API, which respects `PodDisruptionBudget`s. Pass the observed UID in
/// `delete_options` as a precondition, so that another pod of the same name is not evicted.
///
/// Use a client with `Config::default_retry = false`: kube's own retry layer repeats a blocked eviction (429) for
/// minutes before this function gets the answer. An eviction gets at least 15 s, because the server may take 10 s to
/// answer, but never beyond the hard deadline of the options ([`WriteOptions::with_hard_deadline`]).
pub async fn evict(
    api: &Api<Pod>,
    name: &str,
    options: &WriteOptions,
    delete_options: Option<DeleteOptions>,
) -> Result<EvictOutcome, WriteError> {
    let eviction = Eviction {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        delete_options,
    };
    let timeout = options.attempt_timeout(Verb::Evict).max(EVICTION_TIMEOUT);
    let options = &options.clone().with_attempt_timeout(timeout);
    let target = WriteTarget::new(api, name, Subresource::Eviction, options);
    let mut state = OperationState::begin(options, target.operation(Verb::Evict));
    let result = Box::pin(async {
        target.check()?;
        state.ready(target).await?;
        let request = wire::evict(api, name, options, &eviction);
        let Err(failed) = state.call(Verb::Evict, request).await? else {
            return Ok(EvictOutcome::Evicted);
        };
        if let Class::Throttled { retry_after } = failed.class
            && let Some(message) = budget(&failed.failure)
        {
            state.settled(failed.verb, &failed.class);
            return Ok(EvictOutcome::Blocked { message, retry_after });
        }
        Ok(match precondition(&state, failed)? {
            Unmet::Gone => EvictOutcome::Gone,
            Unmet::Conflict(status) => EvictOutcome::Conflict(status),
        })
    })
    .await;
    state.end(result, EvictOutcome::label)
}

/// Whether an object that was returned for its deletion still exists. The API server marks a pod also if it deletes it at
/// once, because it runs nowhere yet or the caller leaves it no time, and returns what it has deleted: marked, with no
/// seconds left and nothing to wait for (`Store.Delete` of v1.36).
fn is_waiting(meta: &ObjectMeta) -> bool {
    let is_over =
        meta.deletion_grace_period_seconds == Some(0) && meta.finalizers.as_ref().is_none_or(Vec::is_empty);
    meta.deletion_timestamp.is_some() && !is_over
}

/// Why an object was not deleted, other than by an error.
enum Unmet {
    Gone,
    Conflict(Box<Status>),
}

fn precondition(state: &OperationState<'_>, failed: Failed) -> Result<Unmet, WriteError> {
    let Failed { verb, class, failure } = failed;
    match (class, failure) {
        (class @ (Class::NotFound | Class::Deleted), _) => {
            state.settled(verb, &class);
            Ok(Unmet::Gone)
        }
        (class @ (Class::Conflict | Class::UidMismatch), RequestFailure::Api(kube::Error::Api(status))) => {
            state.settled(verb, &class);
            Ok(Unmet::Conflict(status))
        }
        (class, failure) => Err(state.reject(Failed { verb, class, failure })),
    }
}

/// The message of the `PodDisruptionBudget` that blocks a pod; `None` when no budget blocks it.
fn budget(failure: &RequestFailure) -> Option<String> {
    let RequestFailure::Api(kube::Error::Api(status)) = failure else {
        return None;
    };
    let causes = &status.details.as_ref()?.causes;
    causes.iter().find(|cause| cause.reason == DISRUPTION_BUDGET).map(|cause| cause.message.clone())
}
