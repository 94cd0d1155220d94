//! The data behind the explanations: the objects, the operator's plan, and where some pools only get recommendations,
//! the plan as it would be if those were carried out.

use planner::input::key;
use planner::{Observed, PoolDecision, ScalingPlan, SchedulingResult, plan, plan_for_cluster};
use shared_crds::v1alpha1::AutoscalerMode;
use shared_crds::{NodePoolAutoscaler, QualifiedName};

use super::ExplainError;
use crate::nearest;

/// The cluster and the decisions about it.
pub(super) struct Picture<'a> {
    pub(super) observed: &'a Observed,
    /// The operator's decisions.
    pub(super) plan: ScalingPlan,
    /// What it would decide if recommendations were carried out; `None` without any.
    pub(super) advice: Option<ScalingPlan>,
}

impl<'a> Picture<'a> {
    pub(super) fn of(observed: &'a Observed) -> Self {
        let decided = plan_for_cluster(observed);
        let recommends = decided.pools.iter().any(|decision| decision.is_planned() && !decision.acts);
        Self { observed, plan: decided, advice: recommends.then(|| plan(observed)) }
    }

    /// The decision about a pool, by `namespace/name`.
    pub(super) fn decision(&self, pool: &str) -> Option<&PoolDecision> {
        self.plan.pools.iter().find(|decision| id(decision) == pool)
    }

    /// The autoscaler that plans a pool.
    pub(super) fn autoscaler(&self, decision: &PoolDecision) -> Option<&NodePoolAutoscaler> {
        let wanted = (key(&decision.object.metadata).0, decision.autoscaler.as_deref()?);
        self.observed
            .autoscalers
            .iter()
            .find(|object| key(&object.metadata) == wanted)
            .map(|object| &**object)
    }

    /// Whether the pool only gets recommendations.
    pub(super) fn only_recommends(&self, decision: &PoolDecision) -> bool {
        self.autoscaler(decision).is_some_and(|object| object.spec.mode == AutoscalerMode::Recommend)
    }

    /// The result for a pending pod.
    pub(super) fn result_of(&self, namespace: &str, name: &str) -> Option<&SchedulingResult> {
        result_of(&self.plan, namespace, name)
    }
}

/// The result for a pending pod in `plan`.
pub(super) fn result_of<'p>(
    plan: &'p ScalingPlan,
    namespace: &str,
    name: &str,
) -> Option<&'p SchedulingResult> {
    plan.pods.iter().find(|pod| pod.namespace == namespace && pod.name == name).map(|pod| &pod.result)
}

/// A decision's pool as `namespace/name`.
pub(super) fn id(decision: &PoolDecision) -> String {
    QualifiedName::of(&decision.object.metadata).to_string()
}

/// The entry of `known` that `NAME` or `NAMESPACE/NAME` means: the name alone is enough where only one namespace has
/// it.
pub(super) fn find<'a>(
    kind: &'static str,
    wanted: &str,
    known: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(&'a str, &'a str), ExplainError> {
    let known: Vec<_> = known.collect();
    let qualified = |id: &(&str, &str)| QualifiedName::from(*id).to_string();
    let exact = wanted.split_once('/');
    let found: Vec<_> =
        known.iter().filter(|id| exact.map_or(id.1 == wanted, |exact| **id == exact)).collect();
    match found.as_slice() {
        [id] => Ok(**id),
        [] => {
            let full: Vec<_> = known
                .iter()
                .map(|id| if exact.is_some() { qualified(id) } else { id.1.to_owned() })
                .collect();
            let hint = nearest::hint(wanted, full.iter().map(String::as_str));
            Err(ExplainError::NoSuch { kind, name: wanted.to_owned(), hint })
        }
        several => {
            let mut known: Vec<_> = several.iter().map(|id| qualified(id)).collect();
            known.sort();
            Err(ExplainError::Several { known: known.join(", ") })
        }
    }
}
