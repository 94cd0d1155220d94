//! The status of a `NodePoolAutoscaler`, from a plan. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use planner::input::{key, selects};
use planner::{BoundsConflict, PoolDecision, PoolReason, ScalingPlan, Schedules, SchedulingResult, replicas};
use shared_crds::conditions::{self, ConditionType, Reason, Statement};
use shared_crds::v1alpha1::{AutoscalerMode, NodePoolAutoscalerStatus, PoolSummary};
use shared_crds::{NodePoolAutoscaler, QualifiedName};

use crate::outcome::PoolOutcome;

/// Maximum number of pools in a status: `maxItems` of `status.pools`.
const LISTED_POOLS: usize = 100;

/// The wanted status of `autoscaler`. `outcomes` are in the order of the plan's pools; `outdated_crd` is what is said about
/// the installed definition if that lacks fields.
pub(crate) fn status(
    autoscaler: &NodePoolAutoscaler,
    plan: &ScalingPlan,
    outcomes: &[PoolOutcome],
    outdated_crd: Option<&Statement>,
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
    let summary = |(decision, _): &(&PoolDecision, &PoolOutcome)| PoolSummary {
        name: key(&decision.object.metadata).1.to_owned(),
        current_replicas: decision.current.max(0),
        desired_replicas: decision.desired.max(0),
        reason: decision.reason.as_str().to_owned(),
    };
    let schedules = Schedules::of(&autoscaler.spec.schedules, now.0);
    let mut statements = statements(autoscaler, &selected);
    if !schedules.problems.is_empty() {
        statements = invalid(statements, &schedules.problems);
    }
    if !autoscaler.spec.schedules.is_empty() {
        statements.push(followed(&schedules, &selected));
    }
    statements.extend(outdated_crd.cloned());
    NodePoolAutoscalerStatus {
        conditions: statements.iter().map(|s| conditions::set(existing, s, generation, now)).collect(),
        observed_generation: generation,
        selected_pools: Some(replicas(selected.len())),
        pending_pods: Some(replicas(waiting(plan, &selected))),
        pools: selected.iter().take(LISTED_POOLS).map(summary).collect(),
    }
}

/// The number of pods that wait for a node of the selected pools: those planned onto one, and those that no pool takes.
fn waiting(plan: &ScalingPlan, selected: &[(&PoolDecision, &PoolOutcome)]) -> usize {
    let planned = selected.iter().filter(|(decision, _)| decision.is_planned());
    let ids: Vec<_> =
        planned.map(|(decision, _)| QualifiedName::of(&decision.object.metadata).to_string()).collect();
    let waits = |result: &SchedulingResult| match result {
        SchedulingResult::Fits { pool, .. } | SchedulingResult::TriggersScaleUp { pool } => {
            ids.contains(pool)
        }
        SchedulingResult::Unschedulable { .. } => !ids.is_empty(),
    };
    plan.pods.iter().filter(|pod| waits(&pod.result)).count()
}

fn statements(autoscaler: &NodePoolAutoscaler, selected: &[(&PoolDecision, &PoolOutcome)]) -> Vec<Statement> {
    use ConditionType::{Ready, Reconciling, Stalled};
    let settled = || Statement::new(Reconciling, false, Reason::Settled, "nothing to do");
    let moving = || Statement::new(Stalled, false, Reason::Settled, "no user action is required");
    let ambiguous: Vec<_> = selected
        .iter()
        .filter(|(d, _)| d.reason == PoolReason::AmbiguousSelector)
        .map(|(d, _)| key(&d.object.metadata).1)
        .collect();
    let failing: Vec<_> =
        selected.iter().filter(|(_, o)| o.is_refused()).map(|(d, _)| key(&d.object.metadata).1).collect();
    if !ambiguous.is_empty() {
        let message = format!(
            "another NodePoolAutoscaler selects {} too; these NodePools are not scaled until only one spec.nodePoolSelector matches them",
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

/// Invalid schedules wait for the user, while everything else continues. A condition that already waits for the user is
/// not overwritten.
fn invalid(statements: Vec<Statement>, problems: &[String]) -> Vec<Statement> {
    use ConditionType::{Ready, Stalled};
    let message = format!("{}; it is ignored until then", problems.join("; "));
    let stalled = statements.iter().any(|s| s.type_ == Stalled && s.status == Some(true));
    let over = |statement: Statement| match statement.type_ {
        Ready if !stalled => Statement::new(Ready, false, Reason::InvalidSchedule, message.clone()),
        Stalled if !stalled => Statement::new(Stalled, true, Reason::InvalidSchedule, message.clone()),
        _ => statement,
    };
    statements.into_iter().map(over).collect()
}

/// Whether all schedules are followed as written.
fn followed(schedules: &Schedules, selected: &[(&PoolDecision, &PoolOutcome)]) -> Statement {
    let say =
        |status, reason, message| Statement::new(ConditionType::SchedulesValid, status, reason, message);
    let pools = |conflict| {
        let of = selected.iter().filter(move |(decision, _)| decision.conflict == Some(conflict));
        of.map(|(decision, _)| key(&decision.object.metadata).1).collect::<Vec<_>>().join(", ")
    };
    let names = schedules.bounds.names.join(", ");
    let (crossing, beyond) = (pools(BoundsConflict::Cross), pools(BoundsConflict::BeyondPool));
    if !schedules.problems.is_empty() {
        say(false, Reason::InvalidSchedule, schedules.problems.join("; "))
    } else if schedules.bounds.crosses() {
        let message = format!(
            "schedules {names} are active together and set a lower bound above the upper one; the lower one applies. Change their times or their bounds"
        );
        say(false, Reason::SchedulesCross, message)
    } else if !crossing.is_empty() {
        let message = format!(
            "schedule {names} sets one bound beyond the other bound of {crossing}; the lower one applies. Let the schedule set both"
        );
        say(false, Reason::SchedulesCross, message)
    } else if beyond.is_empty() {
        say(true, Reason::SchedulesRead, "every schedule is in effect as written".to_owned())
    } else {
        let message = format!(
            "schedule {names} goes beyond spec.minReplicas or spec.maxReplicas of {beyond}, which apply to every writer; widen the bounds of the pools"
        );
        say(false, Reason::BeyondPoolBounds, message)
    }
}

#[cfg(test)]
mod tests {
    use planner::fixtures::TestCluster;
    use planner::plan_for_cluster;
    use serde_json::json;
    use shared_crds::reported::{NODE_POOL_AUTOSCALER, is_reported};

    use super::*;

    #[test]
    fn every_autoscaler_that_selects_a_contested_pool_says_so_also_one_that_is_off() {
        let cluster = |modes: &[&str]| {
            modes
                .iter()
                .fold(TestCluster::new(), |cluster, mode| cluster.autoscaler(mode, json!({ "mode": mode })))
                .pool("a", json!({}))
        };
        for (modes, expected) in [
            (&["Auto", "Off"][..], ["AmbiguousSelector", "AmbiguousSelector"].as_slice()),
            (&["Off"], &["AutoscalerOff"]),
            (&["Auto"], &["Planning"]),
        ] {
            let cluster = cluster(modes);
            let plan = plan_for_cluster(&cluster.observed);
            let now = Time(cluster.observed.now);
            let said = |autoscaler: &std::sync::Arc<NodePoolAutoscaler>| {
                let conditions = status(autoscaler, &plan, &[PoolOutcome::Settled], None, &now).conditions;
                conditions.into_iter().find(|c| c.type_ == "Ready").unwrap().reason
            };
            assert_eq!(cluster.observed.autoscalers.iter().map(said).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn schedules_that_cannot_be_followed_as_they_stand_are_named_in_a_condition() {
        let schedule = |name: &str, change: serde_json::Value| {
            let base = json!({ "name": name, "schedule": "0 0 * * *", "durationSeconds": 86_400 });
            planner::fixtures::merged(base, change)
        };
        for (schedules, ready, followed, said) in [
            (json!([]), "True/Planning", None, ""),
            (
                json!([schedule("a", json!({ "minReplicas": 2 }))]),
                "True/Planning",
                Some("True/SchedulesRead"),
                "",
            ),
            (
                json!([schedule("a", json!({ "minReplicas": 2, "timeZone": "Mars/Base" }))]),
                "False/InvalidSchedule",
                Some("False/InvalidSchedule"),
                "schedule a: \"Mars/Base\" is no time zone",
            ),
            (
                json!([
                    schedule("a", json!({ "minReplicas": 4 })),
                    schedule("b", json!({ "maxReplicas": 3 }))
                ]),
                "True/Planning",
                Some("False/SchedulesCross"),
                "schedules a, b are active together",
            ),
            (
                json!([schedule("a", json!({ "minReplicas": 7 }))]),
                "True/Planning",
                Some("False/SchedulesCross"),
                "schedule a sets one bound beyond the other bound of p",
            ),
            (
                json!([schedule("a", json!({ "minReplicas": 2, "maxReplicas": 9 }))]),
                "True/Planning",
                Some("False/BeyondPoolBounds"),
                "schedule a goes beyond spec.minReplicas or spec.maxReplicas of p",
            ),
            (
                json!([schedule(
                    "a",
                    json!({ "schedule": "0 0 1 2 *", "minReplicas": 7, "maxReplicas": 6 })
                )]),
                "True/Planning",
                Some("True/SchedulesRead"),
                "",
            ),
        ] {
            let cluster = TestCluster::new()
                .autoscaler("x", json!({ "schedules": schedules }))
                .pool("p", json!({ "spec": { "replicas": 2, "minReplicas": 1, "maxReplicas": 5 } }));
            let plan = plan_for_cluster(&cluster.observed);
            let now = Time(cluster.observed.now);
            let conditions =
                status(&cluster.observed.autoscalers[0], &plan, &[PoolOutcome::Settled], None, &now)
                    .conditions;
            for c in &conditions {
                let is_known = is_reported(NODE_POOL_AUTOSCALER, &c.type_, &c.status, &c.reason);
                assert!(is_known, "{}={}/{}", c.type_, c.status, c.reason);
            }
            let find = |type_: &str| conditions.iter().find(|c| c.type_ == type_);
            let short = |type_: &str| find(type_).map(|c| format!("{}/{}", c.status, c.reason));
            assert_eq!(short("Ready").as_deref(), Some(ready), "{schedules}");
            assert_eq!(short("SchedulesValid").as_deref(), followed, "{schedules}");
            assert_eq!(
                short("Stalled").is_some_and(|s| s.starts_with("True")),
                ready.starts_with("False"),
                "{schedules}"
            );
            if let Some(condition) = find("SchedulesValid") {
                assert!(condition.message.contains(said), "{}", condition.message);
            }
        }
    }
}
