//! What the condition says. Pure: the time is an argument.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt as _;
use shared_crds::NodePool;

use crate::contract::WITHIN_BUDGET;

// guide: wish
/// Annotations of the pool's owner. They are read, and never written.
const PRICE: &str = "example.com/price-per-node-hour";
const BUDGET: &str = "example.com/budget-per-hour";
// end

/// The condition as the pool has it.
pub(crate) fn present(pool: &NodePool) -> Option<&Condition> {
    pool.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == WITHIN_BUDGET)
}

// guide: report
/// The condition as it should be.
pub(crate) fn within_budget(pool: &NodePool, now: &Time) -> Condition {
    // What another controller reports. It is read, and never written.
    let nodes = pool.status.as_ref().and_then(|status| status.replicas).unwrap_or_default();
    let (status, reason, message) = match (amount(pool, PRICE), amount(pool, BUDGET)) {
        (Some(price), Some(budget)) => {
            let cost = price * f64::from(nodes);
            let message = format!("{nodes} nodes cost {cost:.2} an hour, {budget:.2} is allowed");
            if cost <= budget { ("True", "Affordable", message) } else { ("False", "OverBudget", message) }
        }
        _ => ("Unknown", "NotPriced", format!("the annotations {PRICE} and {BUDGET} are not two amounts")),
    };
    // The time moves when the status flips, and not with each report: equal facts are an equal condition.
    let same = present(pool).filter(|present| present.status == status);
    Condition {
        type_: WITHIN_BUDGET.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: pool.metadata.generation,
        last_transition_time: same
            .map_or_else(|| now.clone(), |present| present.last_transition_time.clone()),
    }
}
// end

fn amount(pool: &NodePool, annotation: &str) -> Option<f64> {
    let amount: f64 = pool.annotations().get(annotation)?.trim().parse().ok()?;
    (amount.is_finite() && amount >= 0.0).then_some(amount)
}
