//! `PodDisruptionBudget`s: which one covers a pod, and how many more of its pods may be evicted.
//!
//! What the Eviction API would answer, read from the budgets as they are; the caller keeps account of used disruptions.
//! See <https://kubernetes.io/docs/tasks/run-application/configure-pdb/>.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use shared_crds::QualifiedName;

use crate::index::{Indexed, index_type};
use crate::input::observed::key;
use crate::input::pod_info::PodInfo;
use crate::input::{pods, selection};
use crate::numbers;

/// Index of a budget in [`Budgets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BudgetId(pub(crate) usize);
index_type!(BudgetId);

/// The policy under which the eviction of a pod that is not ready never counts as a disruption.
const ALWAYS_ALLOW: &str = "AlwaysAllow";

/// Every `PodDisruptionBudget` of a pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budgets {
    objects: Indexed<BudgetId, Arc<PodDisruptionBudget>>,
    of_namespace: BTreeMap<String, Vec<BudgetId>>,
}

/// The disruptions that the eviction of a pod uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionCost {
    /// None: no budget covers the pod, or the API does not check it.
    Nothing,
    /// One disruption of this budget.
    One(BudgetId),
    /// The API refuses the eviction, because these two (or more) budgets match the pod.
    Refused(BudgetId, BudgetId),
}

impl Budgets {
    /// The budgets of a pass, in any order.
    pub(crate) fn of(objects: &[Arc<PodDisruptionBudget>]) -> Self {
        let mut objects = objects.to_vec();
        objects.sort_by(|a, b| key(&a.metadata).cmp(&key(&b.metadata)));
        let objects = Indexed::from(objects);
        let mut of_namespace: BTreeMap<String, Vec<BudgetId>> = BTreeMap::new();
        for (id, object) in objects.enumerated() {
            of_namespace.entry(key(&object.metadata).0.to_owned()).or_default().push(id);
        }
        Self { objects, of_namespace }
    }

    /// Whether a budget matches the pod, however many disruptions it allows.
    pub(crate) fn protects(&self, pod: &PodInfo) -> bool {
        self.matching(pod).next().is_some()
    }

    /// The disruptions that the eviction of `pod` uses.
    pub(crate) fn eviction_cost(&self, pod: &PodInfo) -> EvictionCost {
        // The API checks no budget for pods that never ran or are being deleted.
        if pods::phase(pod) == Some("Pending") || pod.deleted().is_some() {
            return EvictionCost::Nothing;
        }
        let mut matching = self.matching(pod);
        match (matching.next(), matching.next()) {
            (Some(one), Some(other)) => EvictionCost::Refused(one, other),
            (Some(one), None) if self.lets_unready_go(one) && pods::is_unready(pod) => EvictionCost::Nothing,
            (Some(one), None) => EvictionCost::One(one),
            (None, _) => EvictionCost::Nothing,
        }
    }

    /// How many disruptions a budget allows now. One whose controller has not observed its latest generation allows
    /// none.
    pub(crate) fn allowed(&self, id: BudgetId) -> usize {
        let current = |status: &&PodDisruptionBudgetStatus| {
            let seen = status.observed_generation.unwrap_or(i64::MAX);
            seen >= self.objects[id].metadata.generation.unwrap_or(0)
        };
        let status = self.objects[id].status.as_ref().filter(current);
        let allowed = status.and_then(|status| status.disruptions_allowed);
        allowed.map_or(0, numbers::count)
    }

    /// `namespace/name` of a budget.
    pub(crate) fn name(&self, id: BudgetId) -> String {
        QualifiedName::of(&self.objects[id].metadata).to_string()
    }

    /// The disruptions that each budget allows, in the order of their ids.
    pub(crate) fn allowances(&self) -> Indexed<BudgetId, usize> {
        self.objects.indexes().map(|id| self.allowed(id)).collect()
    }

    /// An empty selector matches all pods of the namespace, an absent one matches none.
    fn matching<'a>(&'a self, pod: &'a PodInfo) -> impl Iterator<Item = BudgetId> + 'a {
        let namespace = pod.key().0;
        let matches = |&id: &BudgetId| {
            let selector = self.objects[id].spec.as_ref().and_then(|spec| spec.selector.as_ref());
            selector.is_some_and(|selector| selection::matches(selector, Some(pod.labels())))
        };
        self.of_namespace.get(namespace).into_iter().flatten().copied().filter(matches)
    }

    /// Whether a pod that is not ready may be evicted without a disruption: always with policy `AlwaysAllow`, and while
    /// enough others are ready with the default one, `IfHealthyBudget`.
    fn lets_unready_go(&self, id: BudgetId) -> bool {
        let object = &self.objects[id];
        let policy = object.spec.as_ref().and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
        policy == Some(ALWAYS_ALLOW)
            || object.status.as_ref().is_some_and(|status| {
                let desired = status.desired_healthy.unwrap_or(0);
                desired > 0 && status.current_healthy.unwrap_or(0) >= desired
            })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::merged;

    fn budget(name: &str, spec: &Value, status: &Value) -> Arc<PodDisruptionBudget> {
        let object = json!({ "metadata": { "name": name, "namespace": "apps", "generation": 2 }, "spec": spec, "status": status });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn status(allowed: i32) -> Value {
        json!({ "disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 3, "expectedPods": 3 })
    }

    fn pod(change: Value) -> PodInfo {
        let base = json!({ "metadata": { "name": "p", "namespace": "apps", "labels": { "app": "web" } },
            "spec": { "containers": [] }, "status": { "phase": "Running" } });
        serde_json::from_value(merged(base, change)).unwrap()
    }

    #[test]
    fn an_empty_selector_matches_all_pods_of_the_namespace_and_an_absent_one_none() {
        for (selector, namespace, eviction_cost) in [
            (json!({ "selector": {} }), "apps", EvictionCost::One(BudgetId(0))),
            (json!({ "selector": {} }), "other", EvictionCost::Nothing),
            (json!({}), "apps", EvictionCost::Nothing),
            (
                json!({ "selector": { "matchLabels": { "app": "web" } } }),
                "apps",
                EvictionCost::One(BudgetId(0)),
            ),
            (json!({ "selector": { "matchLabels": { "app": "db" } } }), "apps", EvictionCost::Nothing),
            (
                json!({ "selector": { "matchExpressions": [{ "key": "app", "operator": "In", "values": ["web"] }] } }),
                "apps",
                EvictionCost::One(BudgetId(0)),
            ),
            (
                json!({ "selector": { "matchExpressions": [{ "key": "app", "operator": "Exists" }], "matchLabels": { "a": "b" } } }),
                "apps",
                EvictionCost::Nothing,
            ),
        ] {
            let budgets = Budgets::of(&[budget("b", &selector, &status(1))]);
            let pod = pod(json!({ "metadata": { "namespace": namespace } }));
            assert_eq!(budgets.eviction_cost(&pod), eviction_cost, "{selector} in {namespace}");
            assert_eq!(budgets.protects(&pod), eviction_cost != EvictionCost::Nothing);
        }
    }

    #[test]
    fn a_pod_under_two_budgets_is_refused_unless_the_api_asks_none() {
        let all = json!({ "selector": {} });
        let budgets = Budgets::of(&[budget("b", &all, &status(1)), budget("a", &all, &status(1))]);
        assert_eq!(budgets.eviction_cost(&pod(json!({}))), EvictionCost::Refused(BudgetId(0), BudgetId(1)));
        assert_eq!(
            (budgets.name(BudgetId(0)), budgets.name(BudgetId(1))),
            ("apps/a".to_owned(), "apps/b".to_owned())
        );
        let pending = json!({ "status": { "phase": "Pending" } });
        assert_eq!(budgets.eviction_cost(&pod(pending)), EvictionCost::Nothing);
        let going = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        assert_eq!(budgets.eviction_cost(&pod(going)), EvictionCost::Nothing);
    }

    #[test]
    fn a_pod_that_is_not_ready_goes_for_nothing_where_the_policy_says_so() {
        let unready = || pod(json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } }));
        let healthy = |current: i32, desired: i32| {
            merged(status(0), json!({ "currentHealthy": current, "desiredHealthy": desired }))
        };
        for (policy, status, eviction_cost) in [
            (json!("AlwaysAllow"), healthy(0, 3), EvictionCost::Nothing),
            (json!("IfHealthyBudget"), healthy(2, 3), EvictionCost::One(BudgetId(0))),
            (json!("IfHealthyBudget"), healthy(3, 3), EvictionCost::Nothing),
            (Value::Null, healthy(3, 3), EvictionCost::Nothing),
            (Value::Null, healthy(0, 0), EvictionCost::One(BudgetId(0))),
        ] {
            let spec = json!({ "selector": {}, "unhealthyPodEvictionPolicy": policy });
            let budgets = Budgets::of(&[budget("b", &spec, &status)]);
            assert_eq!(budgets.eviction_cost(&unready()), eviction_cost, "{policy} {status}");
            assert_eq!(
                budgets.eviction_cost(&pod(json!({}))),
                EvictionCost::One(BudgetId(0)),
                "a ready pod always counts"
            );
        }
    }

    #[test]
    fn a_budget_allows_what_its_controller_says_once_it_has_seen_the_budget_as_it_is() {
        for (status, allowed) in [
            (status(2), 2),
            (status(-1), 0),
            (Value::Null, 0),
            (merged(status(2), json!({ "observedGeneration": 1 })), 0),
            (merged(status(2), json!({ "observedGeneration": 2 })), 2),
        ] {
            let budgets = Budgets::of(&[budget("b", &json!({ "selector": {} }), &status)]);
            assert_eq!(*budgets.allowances(), [allowed], "{status}");
        }
    }
}
