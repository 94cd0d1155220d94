//! Writes of `spec.replicas`: one meaning, four strategies. Three write `/scale`, with the object's resourceVersion as
//! precondition; `guarded` writes the object, with its generation as precondition.

use conflict_retry::{Outcome, PatchDecision, ScaleDecision, ScaleGuard, ScaleView, Source, WriteOptions};
use kube::Api;
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::ownership::GUARDED;
use tracing::instrument;

use super::guarded::{self, Current};
use super::{WriteStrategy, Writer, WriterError};
use crate::freshness::ChangeKind;

impl Writer {
    /// Sets `spec.replicas` of a pool to the result of `decide`, and returns the current value (`None`: unset).
    /// `decide` gets the replicas of the write's precondition, from `cached` first and fresh ones after every conflict.
    #[instrument(skip_all, fields(name = cached.metadata.name, strategy = %self.strategy))]
    pub async fn replicas(
        &self,
        cached: &NodePool,
        decide: impl FnMut(Option<i32>) -> ScaleDecision + Send,
    ) -> Result<Outcome<Option<i32>>, WriterError> {
        let options = self.begin()?;
        let namespace = cached.metadata.namespace.as_deref().ok_or(WriterError::Unnamed("namespace"))?;
        let name = cached.metadata.name.as_deref().ok_or(WriterError::Unnamed("name"))?;
        let api: Api<NodePool> = Api::namespaced(self.client.clone(), namespace);
        let outcome = self.scale(&options, &api, name, cached, decide).await?;
        if let Outcome::Written(view) | Outcome::AlreadyDone(view) = &outcome {
            self.write_tracker.wrote_version(cached, view.resource_version.as_deref(), ChangeKind::Updated);
        }
        Ok(outcome.map(|view| view.replicas))
    }

    async fn scale(
        &self,
        options: &WriteOptions,
        api: &Api<NodePool>,
        name: &str,
        cached: &NodePool,
        mut decide: impl FnMut(Option<i32>) -> ScaleDecision + Send,
    ) -> Result<Outcome<ScaleView>, WriterError> {
        let current = cached.status.as_ref().and_then(|status| status.replicas);
        let view = ScaleView::of(cached, cached.spec.replicas, current);
        let target = match decide(view.replicas) {
            ScaleDecision::Abort => return Ok(Outcome::Aborted),
            ScaleDecision::Set(target) if view.replicas != Some(target) => target,
            ScaleDecision::Set(_) | ScaleDecision::Keep => return Ok(Outcome::Unchanged(view)),
        };
        let again = |view: &ScaleView| decide(view.replicas);
        let outcome = match self.strategy {
            WriteStrategy::Lazy => conflict_retry::once::put_scale(api, name, options, &view, target).await,
            WriteStrategy::Retry => {
                conflict_retry::scale(api, name, again)
                    .guarded_by(ScaleGuard::VersionByPut)
                    .with(options)
                    .outcome()
                    .await
            }
            WriteStrategy::Patch => {
                conflict_retry::scale(api, name, again)
                    .guarded_by(ScaleGuard::Version)
                    .with(options)
                    .from(Source::Copy(view))
                    .outcome()
                    .await
            }
            WriteStrategy::Guarded => {
                return replicas_at_generation(options, api, name, cached, decide).await;
            }
        };
        Ok(outcome?)
    }
}

/// `guarded`: a patch of the object, because a scale has no precondition that cannot recur: the number itself can. It
/// also tests the list of victims: the number and the list belong together, so the number is not written while another
/// list is in the status.
async fn replicas_at_generation(
    options: &WriteOptions,
    api: &Api<NodePool>,
    name: &str,
    cached: &NodePool,
    mut decide: impl FnMut(Option<i32>) -> ScaleDecision + Send,
) -> Result<Outcome<ScaleView>, WriterError> {
    let before = list_tests(cached)?;
    let decide = |pool: &NodePool| {
        let now = list_tests(pool)?;
        if now != before {
            return Ok::<_, WriterError>(PatchDecision::Abort);
        }
        let is_changed = pool.metadata.generation != cached.metadata.generation;
        Ok(match decide(pool.spec.replicas) {
            ScaleDecision::Abort => PatchDecision::Abort,
            ScaleDecision::Set(target) if pool.spec.replicas == Some(target) => PatchDecision::Keep,
            ScaleDecision::Keep => PatchDecision::Keep,
            // The decision was made from the whole spec: from its bounds, its template, and whether it is paused.
            ScaleDecision::Set(_) if is_changed => PatchDecision::Abort,
            ScaleDecision::Set(target) => {
                // `add` replaces a member that exists and creates one that does not.
                let change = json!({ "op": "add", "path": "/spec/replicas", "value": target });
                PatchDecision::Patch(now.into_iter().chain([change]).collect())
            }
        })
    };
    let outcome = conflict_retry::patch_at_generation(api, name, decide)
        .with(options)
        .from(Source::Copy(cached.clone()))
        .outcome()
        .await?;
    Ok(outcome.map(|pool| ScaleView::of(&pool, pool.spec.replicas, None)))
}

/// The tests that the list of victims is that of `pool`.
fn list_tests(pool: &NodePool) -> Result<Vec<Value>, serde_json::Error> {
    let status = serde_json::to_value(pool.status.clone().unwrap_or_default())?;
    Ok(guarded::tests(GUARDED, Current { status: &status, is_set: pool.status.is_some() }))
}
