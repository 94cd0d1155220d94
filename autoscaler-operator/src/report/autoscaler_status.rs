//! The status of a `NodePoolAutoscaler`, from a plan. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use shared_crds::{
    NodePoolAutoscaler,
    conditions::{self, ConditionType, Reason, Statement},
    v1alpha1::{AutoscalerMode, NodePoolAutoscalerStatus, PoolSummary},
};

use crate::{
    apply::Outcome,
    plan::{
        Fate, Plan, PoolDecision, bounds::replicas, observed::key, reasons::PoolReason, selection::selects,
    },
};

/// Pools that a status can list: `maxItems` of `status.pools`.
const LISTED_POOLS: usize = 100;

/// What the status of `autoscaler` should be. `outcomes` are in the order of the plan's pools.
pub fn status(
    autoscaler: &NodePoolAutoscaler,
    plan: &Plan,
    outcomes: &[Outcome],
    now: &Time,
) -> NodePoolAutoscalerStatus {
    let existing = autoscaler.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let generation = autoscaler.metadata.generation;
    let selected: Vec<_> = plan
        .pools
        .iter()
        .zip(outcomes)
        .filter(|(decision, _)| selects(autoscaler, &decision.object))
        .collect();
    let summary = |(decision, _): &(&PoolDecision, &Outcome)| PoolSummary {
        name: key(&decision.object.metadata).1.to_owned(),
        current_replicas: decision.current.max(0),
        desired_replicas: decision.desired.max(0),
        reason: decision.reason.as_str().to_owned(),
    };
    let statements = statements(autoscaler, &selected);
    NodePoolAutoscalerStatus {
        conditions: statements.iter().map(|s| conditions::set(existing, s, generation, now)).collect(),
        observed_generation: generation,
        selected_pools: Some(replicas(selected.len())),
        pending_pods: Some(replicas(waiting(plan, &selected))),
        pools: selected.iter().take(LISTED_POOLS).map(summary).collect(),
    }
}

/// Pods that wait for a node of the selected pools: those planned onto one, and those that nothing takes.
fn waiting(plan: &Plan, selected: &[(&PoolDecision, &Outcome)]) -> usize {
    let planned = selected.iter().filter(|(decision, _)| decision.is_planned());
    let ids: Vec<_> = planned.map(|(decision, _)| id(decision)).collect();
    let waits = |fate: &Fate| match fate {
        Fate::Fits { pool, .. } | Fate::TriggersScaleUp { pool } => ids.contains(pool),
        Fate::Unschedulable { .. } => !ids.is_empty(),
    };
    plan.pods.iter().filter(|pod| waits(&pod.fate)).count()
}

fn id(decision: &PoolDecision) -> String {
    let (namespace, name) = key(&decision.object.metadata);
    format!("{namespace}/{name}")
}

fn statements(autoscaler: &NodePoolAutoscaler, selected: &[(&PoolDecision, &Outcome)]) -> Vec<Statement> {
    use ConditionType::{Ready, Reconciling, Stalled};
    let settled = || Statement::new(Reconciling, false, Reason::Settled, "nothing to do");
    let moving = || Statement::new(Stalled, false, Reason::Settled, "nothing waits for a person");
    let ambiguous: Vec<_> = selected
        .iter()
        .filter(|(d, _)| d.reason == PoolReason::AmbiguousSelector)
        .map(|(d, _)| key(&d.object.metadata).1)
        .collect();
    let failing: Vec<_> = selected
        .iter()
        .filter(|(_, o)| matches!(o, Outcome::Failed(_)))
        .map(|(d, _)| key(&d.object.metadata).1)
        .collect();
    if !ambiguous.is_empty() {
        let message = format!(
            "another NodePoolAutoscaler selects {} too; change one spec.nodePoolSelector, nobody plans them until then",
            ambiguous.join(", ")
        );
        return vec![
            Statement::new(Ready, false, Reason::AmbiguousSelector, message.clone()),
            settled(),
            Statement::new(Stalled, true, Reason::AmbiguousSelector, message),
        ];
    }
    if autoscaler.spec.mode == AutoscalerMode::Off {
        return vec![
            Statement::new(Ready, true, Reason::AutoscalerOff, "no decisions are made"),
            settled(),
            moving(),
        ];
    }
    if selected.is_empty() {
        let message = "spec.nodePoolSelector matches no NodePool of this namespace";
        return vec![Statement::new(Ready, false, Reason::NoPoolSelected, message), settled(), moving()];
    }
    if !failing.is_empty() {
        let message =
            format!("the decision about {} could not be written; it is tried again", failing.join(", "));
        return vec![
            Statement::new(Ready, false, Reason::FailedUpdateScale, message.clone()),
            Statement::new(Reconciling, true, Reason::FailedUpdateScale, message),
            moving(),
        ];
    }
    let ready = match autoscaler.spec.mode {
        AutoscalerMode::Recommend => {
            Statement::new(Ready, true, Reason::RecommendOnly, "decisions are reported and not written")
        }
        AutoscalerMode::Auto | AutoscalerMode::Off => {
            Statement::new(Ready, true, Reason::Planning, "every selected pool is planned")
        }
    };
    vec![ready, settled(), moving()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::{fixtures::World, plan_for_cluster};

    #[test]
    fn every_autoscaler_that_selects_a_contested_pool_says_so_also_one_that_is_off() {
        let world = |modes: &[&str]| {
            modes
                .iter()
                .fold(World::new(), |world, mode| world.autoscaler(mode, json!({ "mode": mode })))
                .pool("a", json!({}))
        };
        for (modes, expected) in [
            (&["Auto", "Off"][..], ["AmbiguousSelector", "AmbiguousSelector"].as_slice()),
            (&["Off"], &["AutoscalerOff"]),
            (&["Auto"], &["Planning"]),
        ] {
            let world = world(modes);
            let plan = plan_for_cluster(&world.observed);
            let now = Time(world.observed.now);
            let said = |autoscaler: &std::sync::Arc<NodePoolAutoscaler>| {
                let conditions = status(autoscaler, &plan, &[Outcome::Settled], &now).conditions;
                conditions.into_iter().find(|c| c.type_ == "Ready").unwrap().reason
            };
            assert_eq!(world.observed.autoscalers.iter().map(said).collect::<Vec<_>>(), expected);
        }
    }
}
