//! Backoff of pools whose provider fails to create the requested nodes: for how long the planner does not count on
//! them.
//!
//! Computed in each pass from the pool's status, so it survives a restart and needs no memory of its own. A write that
//! met a conflict is no failure of the provider and is ignored here.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::NodePool;
use shared_crds::v1alpha1::{AutoscalingStatus, ProvisioningFailureStatus};

use crate::input::earlier_status;
use crate::time::later;

/// Seconds after the last failure at which a pool without missing nodes may be tried again: Cluster Autoscaler's
/// `--initial-node-group-backoff-duration`. There is no longer backoff: while nodes are missing, the `NodePool`
/// operator itself retries at the provider, and reports as soon as the provider creates one.
const PAUSE_SECONDS: i32 = 300;
/// Seconds that the provider has to answer a new attempt, before the failure of the previous one counts again.
const ATTEMPT_SECONDS: i32 = 60;

/// The reason of a pool whose missing nodes do not come.
const OVERDUE: &str = "NodesOverdue";

/// A pool in backoff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolBackoff {
    /// The reason that the `NodePool` operator reports, or that its nodes are overdue.
    pub reason: String,
    /// The message that the `NodePool` operator reports.
    pub message: String,
    /// When the backoff ends; `None` if it lasts until the provider creates a node.
    pub until: Option<Timestamp>,
}

/// Whether a pool's provider works.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolHealth {
    /// The backoff, while the pool is in one.
    pub backoff: Option<PoolBackoff>,
    /// When that may change because time passes.
    pub next: Option<Timestamp>,
}

/// The missing nodes of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwedNodes {
    /// How many are missing.
    pub count: usize,
    /// For how long that has been so without a new node; `None` if it was not observed.
    pub observed: Option<SignedDuration>,
}

/// Whether `pool` is in backoff at `now`. `autoscaling` is its remembered status.
pub(crate) fn health(
    pool: &NodePool,
    autoscaling: Option<&AutoscalingStatus>,
    owed: OwedNodes,
    now: Timestamp,
) -> PoolHealth {
    let Some(failure) = failure(pool) else { return overdue(pool, owed, now) };
    let owed = owed.count;
    let failed = failure.since_time.0;
    let asked = autoscaling.and_then(|a| a.last_scale_up_time.as_ref()).map(|time| time.0);
    let attempt = asked.filter(|asked| *asked > failed).map(|asked| later(asked, ATTEMPT_SECONDS));
    if let Some(answered) = attempt.filter(|answered| *answered > now) {
        return PoolHealth { backoff: None, next: Some(answered) };
    }
    let until = (owed == 0).then(|| later(asked.map_or(failed, |asked| asked.max(failed)), PAUSE_SECONDS));
    if until.is_some_and(|until| until <= now) {
        return PoolHealth::default();
    }
    let ProvisioningFailureStatus { reason, message, .. } = failure;
    PoolHealth { backoff: Some(PoolBackoff { reason, message, until }), next: until }
}

/// Nodes that do not come although the status does not say why: the `NodePool` operator is down or may not create them. They
/// are counted on for as long as a node may take to start.
fn overdue(pool: &NodePool, owed: OwedNodes, now: Timestamp) -> PoolHealth {
    let Some(observed) = owed.observed.filter(|_| owed.count > 0) else { return PoolHealth::default() };
    let seconds = pool.spec.provisioning_timeout_seconds;
    let left = SignedDuration::from_secs(i64::from(seconds)).checked_sub(observed).unwrap_or_default();
    if left > SignedDuration::ZERO {
        return PoolHealth { backoff: None, next: now.checked_add(left).ok() };
    }
    let message = format!(
        "{} nodes are missing, and none has come for {seconds} s (spec.provisioningTimeoutSeconds); is \
         nodepool-operator running, and may it create nodes?",
        owed.count
    );
    PoolHealth { backoff: Some(PoolBackoff { reason: OVERDUE.to_owned(), message, until: None }), next: None }
}

/// Why the pool's provider makes no nodes, as the `NodePool` operator reports it.
fn failure(pool: &NodePool) -> Option<ProvisioningFailureStatus> {
    let provisioning = pool.status.as_ref()?.provisioning.as_ref();
    provisioning
        .and_then(|provisioning| provisioning.failure.clone())
        .or_else(|| earlier_status::failure(pool))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FAILED: &str = "2026-01-01T11:00:00Z";

    fn pool(is_healthy: bool, asked: Option<&str>) -> NodePool {
        let mut pool = json!({ "metadata": { "name": "p" }, "spec": { "maxReplicas": 9, "provider": {},
            "template": { "spec": { "capacity": {} } } }, "status": { "provisioning": {} } });
        if !is_healthy {
            pool["status"]["provisioning"]["failure"] =
                json!({ "reason": "QuotaExceeded", "message": "no more than 3", "sinceTime": FAILED });
        }
        if let Some(asked) = asked {
            pool["status"]["autoscaling"] = json!({ "lastScaleUpTime": asked });
        }
        serde_json::from_value(pool).unwrap()
    }

    fn at(time: &str) -> Timestamp {
        format!("2026-01-01T{time}Z").parse().unwrap()
    }

    #[test]
    fn a_pool_is_left_out_while_its_provider_fails_and_tried_again_after_a_pause() {
        for (what, is_healthy, asked, owed, now, expected) in [
            ("a provider that makes nodes", true, None, 3, "11:00:01", None),
            ("nodes are owed", false, None, 3, "11:00:01", Some(None)),
            ("nodes are owed for hours", false, None, 3, "18:00:00", Some(None)),
            ("the failure is older than the request", false, Some("11:10:00"), 3, "11:10:59", None),
            ("the answer does not come", false, Some("11:10:00"), 3, "11:11:00", Some(None)),
            ("no node is owed", false, None, 0, "11:04:59", Some(Some("11:05:00"))),
            ("the pause is over", false, None, 0, "11:05:00", None),
            (
                "the pause after the last attempt",
                false,
                Some("11:10:00"),
                0,
                "11:12:00",
                Some(Some("11:15:00")),
            ),
            ("an attempt before the failure", false, Some("10:59:00"), 0, "11:01:00", Some(Some("11:05:00"))),
        ] {
            let asked = asked.map(|time: &str| format!("2026-01-01T{time}Z"));
            let pool = pool(is_healthy, asked.as_deref());
            let autoscaling = pool.status.as_ref().and_then(|status| status.autoscaling.as_ref());
            let owed = OwedNodes { count: owed, observed: Some(SignedDuration::MAX) };
            let owed = if is_healthy { OwedNodes { observed: None, ..owed } } else { owed };
            let found = health(&pool, autoscaling, owed, at(now));
            assert_eq!(found.backoff.map(|b| b.until), expected.map(|until| until.map(at)), "{what}");
        }
    }

    #[test]
    fn a_pool_without_a_status_is_counted_on() {
        let mut pool = pool(false, None);
        pool.status = None;
        let owed = OwedNodes { count: 3, observed: None };
        assert_eq!(health(&pool, None, owed, at("11:00:00")), PoolHealth::default());
    }

    #[test]
    fn missing_nodes_that_do_not_come_are_counted_on_for_the_time_that_a_node_may_take() {
        let mut pool = pool(true, None);
        pool.spec.provisioning_timeout_seconds = 60;
        let of = |count, seconds| {
            let observed = Some(SignedDuration::from_secs(seconds));
            health(&pool, None, OwedNodes { count, observed }, at("11:00:00"))
        };
        assert_eq!(of(0, 1000), PoolHealth::default(), "no node is missing");
        assert_eq!(of(2, 59), PoolHealth { backoff: None, next: Some(at("11:00:01")) });
        let late = of(2, 60).backoff.unwrap();
        assert_eq!((late.reason.as_str(), late.until), ("NodesOverdue", None));
        assert!(late.message.contains("2 nodes are missing"), "{}", late.message);
    }
}
