//! Writes of `spec.replicas`: one meaning, four strategies. Three write `/scale`, with the object's resourceVersion as
//! precondition; `guarded` writes the object, with its generation as precondition.

use conflict_retry::{Outcome, PatchDecision, ScaleDecision, ScaleView, Source, Subresource, WriteOptions};
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
            WriteStrategy::Lazy => conflict_retry::scale_put_once(api, name, options, &view, target).await,
            WriteStrategy::Retry => conflict_retry::scale_put(api, name, options, Source::Live, again).await,
            WriteStrategy::Patch => {
                conflict_retry::scale_merge(api, name, options, Source::Copy(view), again).await
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
    let mut failed = None;
    let decide = |pool: &NodePool| match list_tests(pool) {
        Ok(now) if now == before => match decide(pool.spec.replicas) {
            ScaleDecision::Abort => PatchDecision::Abort,
            // The decision was made from the whole spec: from its bounds, its template, and whether it is paused.
            ScaleDecision::Set(target)
                if pool.spec.replicas != Some(target)
                    && pool.metadata.generation != cached.metadata.generation =>
            {
                PatchDecision::Abort
            }
            ScaleDecision::Set(target) if pool.spec.replicas != Some(target) => {
                // `add` replaces a member that exists and creates one that does not.
                let change = json!({ "op": "add", "path": "/spec/replicas", "value": target });
                PatchDecision::Patch(now.into_iter().chain([change]).collect())
            }
            ScaleDecision::Set(_) | ScaleDecision::Keep => PatchDecision::Keep,
        },
        Ok(_) => PatchDecision::Abort,
        Err(error) => {
            failed = Some(error);
            PatchDecision::Abort
        }
    };
    let (main, source) = (Subresource::Main, Source::Copy(cached.clone()));
    let outcome = conflict_retry::patch_at_generation(api, name, main, options, source, decide).await?;
    let view = |pool: NodePool| ScaleView::of(&pool, pool.spec.replicas, None);
    failed.map_or_else(|| Ok(outcome.map(view)), |error| Err(error.into()))
}

/// The tests that the list of victims is that of `pool`.
fn list_tests(pool: &NodePool) -> Result<Vec<Value>, serde_json::Error> {
    let status = serde_json::to_value(pool.status.clone().unwrap_or_default())?;
    Ok(guarded::tests(GUARDED, Current { status: &status, is_set: pool.status.is_some() }))
}
