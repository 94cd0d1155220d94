//! Writes of whole objects that have one writer: nodes, leases, finalizers, evictions. One attempt each, except the
//! merge patch; the reconcile is the retry.

use conflict_retry::{
    DeleteOutcome, EvictOutcome, Outcome, ScaleView, Source, Subresource, Writable, WriteError,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    DeleteOptions, ObjectMeta, Preconditions as MetaPreconditions,
};
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Resource};
use serde_json::Value;
use tracing::instrument;

use super::{Writer, WriterError};
use crate::freshness::ChangeKind;

/// The result of a creation.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "an object of that name may have been there already"]
pub enum Created<K> {
    /// This is what the server stored.
    Created(K),
    /// An object of that name exists; perhaps our own, if an answer was lost.
    AlreadyExists,
}

impl Writer {
    /// Creates an object, in one attempt. An existing one of that name is an outcome: it may be our own.
    #[instrument(skip_all, fields(kind = %K::kind(&()), name = object.meta().name))]
    pub async fn create<K>(&self, api: &Api<K>, object: &K) -> Result<Created<K>, WriterError>
    where
        K: Writable + Resource<DynamicType = ()>,
    {
        let options = self.begin()?;
        match conflict_retry::once::create(api, &options, object).await {
            Ok(created) => {
                self.write_tracker.wrote(&created, ChangeKind::Created);
                Ok(Created::Created(created))
            }
            Err(failed) if failed.is_already_exists() => Ok(Created::AlreadyExists),
            Err(failed) => Err(failed.into()),
        }
    }

    /// Deletes exactly this object: another one of the same name is not (`Conflict`).
    #[instrument(skip_all, fields(kind = %K::kind(&()), name = object.meta().name))]
    pub async fn delete<K>(&self, api: &Api<K>, object: &K) -> Result<DeleteOutcome<K>, WriterError>
    where
        K: Writable + Resource<DynamicType = ()>,
    {
        let preconditions = Preconditions { uid: object.meta().uid.clone(), ..Preconditions::default() };
        self.delete_if(api, object, preconditions).await
    }

    /// Deletes this object in its observed version: one that has changed since is not (`Conflict`). For a deletion that
    /// a change by another writer can make unwanted: it may be carried out long after it was sent.
    #[instrument(skip_all, fields(kind = %K::kind(&()), name = object.meta().name))]
    pub async fn delete_unchanged<K>(&self, api: &Api<K>, object: &K) -> Result<DeleteOutcome<K>, WriterError>
    where
        K: Writable + Resource<DynamicType = ()>,
    {
        let ObjectMeta { uid, resource_version, .. } = object.meta().clone();
        self.delete_if(api, object, Preconditions { uid, resource_version }).await
    }

    async fn delete_if<K>(
        &self,
        api: &Api<K>,
        object: &K,
        preconditions: Preconditions,
    ) -> Result<DeleteOutcome<K>, WriterError>
    where
        K: Writable + Resource<DynamicType = ()>,
    {
        let options = self.begin()?;
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        // Dropped on every return path except the one that acknowledges it.
        let deleting = self.write_tracker.deleting(object);
        let outcome = conflict_retry::once::delete(api, name_of(object)?, &options, &params).await?;
        match &outcome {
            DeleteOutcome::Deleted => {
                if let Some(deleting) = deleting {
                    deleting.acknowledged();
                }
            }
            DeleteOutcome::Terminating(marked) => self.write_tracker.wrote(&**marked, ChangeKind::Updated),
            // When it is gone, another writer deleted it, and the event may already have been delivered.
            DeleteOutcome::Gone | DeleteOutcome::Conflict(_) => {}
        }
        Ok(outcome)
    }

    /// Sends a JSON Patch once. Include a `test` in it; where one fails, or a path does not exist, the result is
    /// [`Outcome::Conflict`].
    #[instrument(skip_all, fields(kind = %K::kind(&()), name = object.meta().name))]
    pub async fn json_patch<K>(
        &self,
        api: &Api<K>,
        object: &K,
        patch: Value,
    ) -> Result<Outcome<K>, WriterError>
    where
        K: Writable + Resource<DynamicType = ()>,
    {
        let options = self.begin()?;
        let main = Subresource::Main;
        let answer = conflict_retry::once::json_patch(api, name_of(object)?, main, &options, &patch).await;
        self.updated(answer)
    }

    /// Sends a merge patch at the version that it was decided from. `decide` is called with `cached` first and with the
    /// fresh object after every conflict; `None` means nothing to do.
    #[instrument(skip_all, fields(kind = %K::kind(&()), name = cached.meta().name))]
    pub async fn merge_patch<K>(
        &self,
        api: &Api<K>,
        cached: &K,
        decide: impl FnMut(&K) -> Option<Value> + Send,
    ) -> Result<Outcome<K>, WriterError>
    where
        K: Writable + Resource<DynamicType = ()>,
    {
        let options = self.begin()?;
        let (name, base) = (name_of(cached)?, Source::Copy(cached.clone()));
        let answer = conflict_retry::merge_patch(api, name, decide).with(&options).from(base).outcome().await;
        self.updated(answer)
    }

    /// Replaces an object at the version it carries, once.
    #[instrument(skip_all, fields(kind = %K::kind(&()), name = object.meta().name))]
    pub async fn replace<K>(&self, api: &Api<K>, object: &K) -> Result<Outcome<K>, WriterError>
    where
        K: Writable + Resource<DynamicType = ()>,
    {
        let options = self.begin()?;
        let main = Subresource::Main;
        let answer = conflict_retry::once::put(api, name_of(object)?, main, &options, object).await;
        self.updated(answer)
    }

    /// Sets the replicas of an object through its `/scale`, at the version of `object`, once. `observed` is its current
    /// number.
    #[instrument(skip_all, fields(kind = %K::kind(&()), name = object.meta().name))]
    pub async fn resize<K>(
        &self,
        api: &Api<K>,
        object: &K,
        observed: Option<i32>,
        target: i32,
    ) -> Result<Outcome<ScaleView>, WriterError>
    where
        K: Writable + Resource<DynamicType = ()>,
    {
        let options = self.begin()?;
        let view = ScaleView::of(object, observed, None);
        Ok(conflict_retry::once::put_scale(api, name_of(object)?, &options, &view, target).await?)
    }

    /// Evicts exactly this pod through the Eviction API, which honours `PodDisruptionBudget`s.
    #[instrument(skip_all, fields(namespace = pod.metadata.namespace, name = pod.metadata.name))]
    pub async fn evict(&self, api: &Api<Pod>, pod: &Pod) -> Result<EvictOutcome, WriterError> {
        let options = self.begin()?;
        let preconditions =
            MetaPreconditions { uid: pod.metadata.uid.clone(), ..MetaPreconditions::default() };
        let exactly = DeleteOptions { preconditions: Some(preconditions), ..DeleteOptions::default() };
        Ok(conflict_retry::once::evict(api, name_of(pod)?, &options, Some(exactly)).await?)
    }

    fn updated<K>(&self, answer: Result<Outcome<K>, WriteError>) -> Result<Outcome<K>, WriterError>
    where
        K: Writable + Resource<DynamicType = ()>,
    {
        let outcome = answer?;
        if let Outcome::Written(object) | Outcome::AlreadyDone(object) = &outcome {
            self.write_tracker.wrote(object, ChangeKind::Updated);
        }
        Ok(outcome)
    }
}

fn name_of<K: Resource>(object: &K) -> Result<&str, WriterError> {
    object.meta().name.as_deref().ok_or(WriterError::Unnamed("name"))
}
