//! Writing `spec.replicas` through `/scale`: one meaning, four strategies.

use conflict_retry::{ScaleDecision, ScaleView, Source, WriteOptions};
use kube::Api;
use shared_crds::NodePool;
use tracing::instrument;

use super::{Door, WriteError, WriteStrategy, Written};
use crate::freshness::ChangeKind;

/// What was decided about a pool's replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicasDecision {
    /// Set them to this; if they are that already, nothing is sent.
    Set(i32),
    /// They are right as they are.
    Keep,
    /// Do not write: the decision does not hold for these replicas.
    Abort,
}

impl From<ReplicasDecision> for ScaleDecision {
    fn from(decision: ReplicasDecision) -> Self {
        match decision {
            ReplicasDecision::Set(replicas) => Self::Set(replicas),
            ReplicasDecision::Keep => Self::Keep,
            ReplicasDecision::Abort => Self::Abort,
        }
    }
}

impl Door {
    /// Makes `spec.replicas` of a pool what `decide` says, and returns what they are now. `decide` gets the replicas that
    /// the write would be guarded by (`None`: unset), from `cached` first and fresh ones after every conflict.
    #[instrument(skip_all, fields(name = cached.metadata.name, strategy = %self.strategy))]
    pub async fn replicas(
        &self,
        cached: &NodePool,
        decide: impl FnMut(Option<i32>) -> ReplicasDecision + Send,
    ) -> Result<Written<i32>, WriteError> {
        let options = self.begin()?;
        let namespace = cached.metadata.namespace.as_deref().ok_or(WriteError::Unnamed("namespace"))?;
        let name = cached.metadata.name.as_deref().ok_or(WriteError::Unnamed("name"))?;
        let api: Api<NodePool> = Api::namespaced(self.client.clone(), namespace);
        let written = self.scale(&options, &api, name, cached, decide).await?;
        if let Written::Changed(view) = &written {
            self.floors.wrote_version(cached, view.resource_version.as_deref(), ChangeKind::Updated);
        }
        Ok(written.map(|view| view.replicas.unwrap_or_default()))
    }

    async fn scale(
        &self,
        options: &WriteOptions,
        api: &Api<NodePool>,
        name: &str,
        cached: &NodePool,
        mut decide: impl FnMut(Option<i32>) -> ReplicasDecision + Send,
    ) -> Result<Written<ScaleView>, WriteError> {
        let current = cached.status.as_ref().and_then(|status| status.replicas);
        let view = ScaleView::of(cached, cached.spec.replicas, current);
        let target = match decide(view.replicas) {
            ReplicasDecision::Abort => return Ok(Written::Aborted),
            ReplicasDecision::Set(target) if view.replicas != Some(target) => target,
            ReplicasDecision::Set(_) | ReplicasDecision::Keep => return Ok(Written::Unchanged),
        };
        let again = |view: &ScaleView| decide(view.replicas).into();
        let outcome = match self.strategy {
            WriteStrategy::Lazy => conflict_retry::scale_put_once(api, name, options, &view, target).await,
            WriteStrategy::Retry => conflict_retry::scale_put(api, name, options, Source::Live, again).await,
            WriteStrategy::Patch => {
                conflict_retry::scale_merge(api, name, options, Source::Copy(view), again).await
            }
            WriteStrategy::Guarded => {
                conflict_retry::scale(api, name, options, Source::Copy(view), again).await
            }
        };
        Ok(outcome?.into())
    }
}
