//! The status of a pool whose `NodePool` operator is of an earlier release: it says in conditions what has fields now. The two operators
//! are not upgraded in the same moment, and `simulate` is given objects that were saved before.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use shared_crds::NodePool;
use shared_crds::conditions::ConditionType;
use shared_crds::v1alpha1::{ProvisioningFailureStatus, ReplacementState, ReplacementStatus};

/// Why the pool's provider makes no nodes, from the condition; `None` where it makes them, or nothing is known.
pub(crate) fn failure(pool: &NodePool) -> Option<ProvisioningFailureStatus> {
    let condition = condition(pool, ConditionType::ProvisioningHealthy).filter(|it| it.status == "False")?;
    Some(ProvisioningFailureStatus {
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        observed_generation: condition.observed_generation,
        since_time: condition.last_transition_time.clone(),
    })
}

/// Whether the pool's nodes are being replaced, from the condition; `None` where nothing is known.
pub(crate) fn replacement(pool: &NodePool) -> Option<ReplacementStatus> {
    let condition = condition(pool, ConditionType::RollingOut)?;
    let state = match &*condition.status {
        "True" => ReplacementState::Active,
        "False" => ReplacementState::Inactive,
        _ => ReplacementState::Unknown,
    };
    Some(ReplacementStatus { state, observed_generation: condition.observed_generation })
}

fn condition(pool: &NodePool, of: ConditionType) -> Option<&Condition> {
    pool.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == of.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(kind: &str, status: &str) -> NodePool {
        serde_json::from_value(json!({
            "metadata": { "name": "p" },
            "spec": { "maxReplicas": 9, "provider": {}, "template": { "spec": { "capacity": {} } } },
            "status": { "conditions": [{ "type": kind, "status": status, "reason": "Why", "message": "m", "observedGeneration": 3,
                "lastTransitionTime": "2026-01-01T00:00:00Z" }] },
        }))
        .unwrap()
    }

    #[test]
    fn conditions_stand_for_the_fields_that_an_earlier_release_did_not_write() {
        let failed = failure(&pool("ProvisioningHealthy", "False")).unwrap();
        assert_eq!((failed.reason.as_str(), failed.message.as_str()), ("Why", "m"));
        assert_eq!(
            (failed.observed_generation, failed.since_time.0.to_string()),
            (Some(3), "2026-01-01T00:00:00Z".to_owned())
        );
        assert_eq!(failure(&pool("ProvisioningHealthy", "True")), None);
        assert_eq!(failure(&pool("Ready", "False")), None);
        for (status, expected) in [
            ("True", ReplacementState::Active),
            ("False", ReplacementState::Inactive),
            ("Unknown", ReplacementState::Unknown),
        ] {
            let found = replacement(&pool("RollingOut", status)).unwrap();
            assert_eq!((found.state, found.observed_generation), (expected, Some(3)));
        }
        assert_eq!(replacement(&pool("Ready", "True")), None);
    }
}
