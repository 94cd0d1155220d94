//! Writing `spec.replicas` through `/scale`: one meaning, four strategies.

use conflict_retry::{ScaleDecision, ScaleView, Subresource};
use kube::{Api, Resource as _};
use shared_crds::NodePool;
use tracing::instrument;

use super::{Door, Write, WriteError, WriteStrategy, Written};
use crate::freshness::{self, ChangeKind};

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
        let write = self.begin(NodePool::plural(&()), Subresource::Scale.label(), self.strategy.as_str())?;
        let namespace = cached.metadata.namespace.as_deref().ok_or(WriteError::Unnamed("namespace"))?;
        let name = cached.metadata.name.as_deref().ok_or(WriteError::Unnamed("name"))?;
        let api: Api<NodePool> = Api::namespaced(self.client.clone(), namespace);
        let result = write.end(self.scale(&write, &api, name, cached, decide).await, Written::label);
        if let Ok(Written::Changed(view)) = &result {
            let (uid, version) = (view.uid.as_deref(), view.resource_version.as_deref());
            self.floors.wrote_version::<NodePool>(freshness::key(cached), uid, version, ChangeKind::Updated);
        }
        Ok(result?.map(|view| view.replicas.unwrap_or_default()))
    }

    async fn scale(
        &self,
        write: &Write,
        api: &Api<NodePool>,
        name: &str,
        cached: &NodePool,
        mut decide: impl FnMut(Option<i32>) -> ReplicasDecision + Send,
    ) -> Result<Written<ScaleView>, WriteError> {
        let options = &write.options;
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
            WriteStrategy::Retry => conflict_retry::scale_put(api, name, options, None, again).await,
            WriteStrategy::Patch => conflict_retry::scale_merge(api, name, options, Some(view), again).await,
            WriteStrategy::Guarded => conflict_retry::scale(api, name, options, Some(view), again).await,
        };
        Ok(outcome?.into())
    }
}
