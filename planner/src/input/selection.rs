//! Which autoscaler plans which pool: selectors, modes, and the reason reported when two select one pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use shared_crds::v1alpha1::{AutoscalerMode, OnContested, ScaleDownSpec};
use shared_crds::{NodePool, NodePoolAutoscaler};

use crate::input::observed::{Recommendations, key};
use crate::reasons::PoolReason;
use crate::requirements::selectors::Selector;

/// Whether a pool is planned, and by which autoscaler.
#[derive(Clone, Debug)]
pub(crate) enum AutoscalerAssignment {
    /// This autoscaler plans it.
    Planned(Arc<NodePoolAutoscaler>),
    /// No autoscaler plans it.
    Left {
        /// Why not.
        reason: PoolReason,
        /// The autoscalers that select it, by name.
        autoscalers: Vec<String>,
    },
}

impl AutoscalerAssignment {
    /// The name of the autoscaler that plans the pool.
    pub(crate) fn autoscaler(&self) -> Option<&str> {
        match self {
            Self::Planned(autoscaler) => autoscaler.metadata.name.as_deref(),
            Self::Left { .. } => None,
        }
    }

    /// Whether decisions are written to the pool.
    pub(crate) fn acts(&self) -> bool {
        matches!(self, Self::Planned(autoscaler) if autoscaler.spec.mode == AutoscalerMode::Auto)
    }

    /// What happens to the numbers of other writers; `None` where no decision is written.
    pub(crate) fn on_contested(&self) -> Option<OnContested> {
        match self {
            Self::Planned(autoscaler) if self.acts() => Some(autoscaler.spec.on_contested),
            Self::Planned(_) | Self::Left { .. } => None,
        }
    }

    /// Pods of a lower priority are expendable: the pool does not grow for them, and they keep none of its nodes. The
    /// lowest priority there is if no autoscaler plans the pool.
    pub(crate) fn priority_cutoff(&self) -> i32 {
        match self {
            Self::Planned(autoscaler) => autoscaler.spec.expendable_pods_priority_cutoff,
            Self::Left { .. } => i32::MIN,
        }
    }

    /// Whether the autoscaler that plans the pool keeps capacity free.
    pub(crate) fn has_headroom(&self) -> bool {
        matches!(self, Self::Planned(autoscaler) if !autoscaler.spec.headroom.is_empty())
    }

    /// The rules for scale-down; the defaults if the autoscaler sets none.
    pub(crate) fn scale_down(&self) -> ScaleDownSpec {
        match self {
            Self::Planned(autoscaler) => autoscaler.spec.scale_down.clone().unwrap_or_default(),
            Self::Left { .. } => ScaleDownSpec::default(),
        }
    }
}

/// Which autoscaler plans `pool`.
pub(crate) fn assignment(
    pool: &NodePool,
    autoscalers: &[Arc<NodePoolAutoscaler>],
    recommendations: Recommendations,
) -> AutoscalerAssignment {
    let selecting: Vec<_> = autoscalers.iter().filter(|a| selects(a, pool)).collect();
    let names = || selecting.iter().filter_map(|a| a.metadata.name.clone()).collect();
    let left = |reason| AutoscalerAssignment::Left { reason, autoscalers: names() };
    match selecting.as_slice() {
        [] => left(PoolReason::NotSelected),
        [one] => match (one.spec.mode, recommendations) {
            (AutoscalerMode::Off, _) => left(PoolReason::AutoscalerOff),
            (AutoscalerMode::Recommend, Recommendations::Exclude) => left(PoolReason::RecommendOnly),
            (AutoscalerMode::Auto | AutoscalerMode::Recommend, _) => {
                AutoscalerAssignment::Planned(Arc::clone(one))
            }
        },
        // Also if one of them is off: turning it on must not make the selectors overlap.
        _ => left(PoolReason::AmbiguousSelector),
    }
}

/// Whether `autoscaler`, whatever its mode, selects `pool`. One that is being deleted selects nothing.
pub fn selects(autoscaler: &NodePoolAutoscaler, pool: &NodePool) -> bool {
    autoscaler.metadata.deletion_timestamp.is_none()
        && key(&autoscaler.metadata).0 == key(&pool.metadata).0
        && matches(&autoscaler.spec.node_pool_selector, pool.metadata.labels.as_ref())
}

/// Whether a label selector matches; one that cannot be read selects nothing.
pub(crate) fn matches(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    Selector::read(selector).is_ok_and(|selector| selector.matches(labels))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pool(labels: &Value) -> NodePool {
        serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "ns", "labels": labels },
            "spec": { "maxReplicas": 1, "provider": {}, "template": { "spec": { "capacity": {} } } } }))
        .unwrap()
    }

    fn autoscaler(name: &str, mode: &str, namespace: &str, selector: &Value) -> Arc<NodePoolAutoscaler> {
        serde_json::from_value::<NodePoolAutoscaler>(
            json!({ "metadata": { "name": name, "namespace": namespace },
            "spec": { "mode": mode, "nodePoolSelector": selector } }),
        )
        .map(Arc::new)
        .unwrap()
    }

    fn reason(assignment: &AutoscalerAssignment) -> Option<PoolReason> {
        match assignment {
            AutoscalerAssignment::Planned(_) => None,
            AutoscalerAssignment::Left { reason, .. } => Some(*reason),
        }
    }

    #[test]
    fn a_pool_is_planned_by_the_only_autoscaler_of_the_namespace_that_selects_it() {
        let all = json!({});
        let (auto, off) = (autoscaler("a", "Auto", "ns", &all), autoscaler("o", "Off", "ns", &all));
        let recommend = autoscaler("r", "Recommend", "ns", &all);
        let stranger = autoscaler("s", "Auto", "other", &all);
        for (autoscalers, recommendations, expected) in [
            (vec![], Recommendations::Include, Some(PoolReason::NotSelected)),
            (vec![&stranger], Recommendations::Include, Some(PoolReason::NotSelected)),
            (vec![&auto, &stranger], Recommendations::Include, None),
            (vec![&off], Recommendations::Include, Some(PoolReason::AutoscalerOff)),
            (vec![&auto, &off], Recommendations::Include, Some(PoolReason::AmbiguousSelector)),
            (vec![&off, &off], Recommendations::Include, Some(PoolReason::AmbiguousSelector)),
            (vec![&auto, &recommend], Recommendations::Include, Some(PoolReason::AmbiguousSelector)),
            (vec![&auto, &recommend], Recommendations::Exclude, Some(PoolReason::AmbiguousSelector)),
            (vec![&recommend], Recommendations::Include, None),
            (vec![&recommend], Recommendations::Exclude, Some(PoolReason::RecommendOnly)),
        ] {
            let autoscalers: Vec<_> = autoscalers.into_iter().cloned().collect();
            assert_eq!(reason(&assignment(&pool(&json!({})), &autoscalers, recommendations)), expected);
        }
    }

    #[test]
    fn selectors_match_as_label_selectors_do() {
        for (selector, labels, selected) in [
            (json!({}), json!({}), true),
            (json!({ "matchLabels": { "t": "a" } }), json!({ "t": "a" }), true),
            (json!({ "matchLabels": { "t": "a" } }), json!({ "t": "b" }), false),
            (
                json!({ "matchExpressions": [{ "key": "t", "operator": "In", "values": ["a", "b"] }] }),
                json!({ "t": "b" }),
                true,
            ),
            (
                json!({ "matchExpressions": [{ "key": "t", "operator": "NotIn", "values": ["a"] }] }),
                json!({}),
                true,
            ),
            (
                json!({ "matchExpressions": [{ "key": "t", "operator": "NotIn", "values": ["a"] }] }),
                json!({ "t": "a" }),
                false,
            ),
            (json!({ "matchExpressions": [{ "key": "t", "operator": "Exists" }] }), json!({}), false),
            (json!({ "matchExpressions": [{ "key": "t", "operator": "DoesNotExist" }] }), json!({}), true),
            (
                json!({ "matchExpressions": [{ "key": "t", "operator": "Gt", "values": ["1"] }] }),
                json!({ "t": "2" }),
                false,
            ),
        ] {
            let autoscaler = autoscaler("a", "Auto", "ns", &selector);
            assert_eq!(selects(&autoscaler, &pool(&labels)), selected, "{selector} on {labels}");
        }
    }
}
