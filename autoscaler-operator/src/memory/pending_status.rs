//! Decisions that were written to pools and are in no status yet.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use planner::PoolDecision;
use shared_crds::NodePool;
use shared_crds::v1alpha1::AutoscalingStatus;
use shared_runtime::write::{Outcome, WriterError};

use crate::status::pool_status::{DecisionState, Scaled};

/// Decisions that were written and are in no status yet, by the pool's UID: the write of the status met a conflict or
/// failed. The next pass decides nothing new, and without this it would have nothing to report.
#[derive(Debug, Default)]
pub(crate) struct PendingStatus(Mutex<HashMap<String, Scaled>>);

impl PendingStatus {
    pub(crate) fn remember(&self, decision: &PoolDecision, scaled: Scaled) -> DecisionState {
        self.with(|known| known.insert(uid(decision), scaled.clone()));
        DecisionState::Scaled(scaled)
    }

    pub(crate) fn recall(&self, decision: &PoolDecision) -> Option<Scaled> {
        self.with(|known| known.get(&uid(decision)).cloned())
    }

    pub(crate) fn forget(&self, decision: &PoolDecision) {
        self.with(|known| known.remove(&uid(decision)));
    }

    /// Records the result of a status write with `state`. If the status reports something else, the written decision
    /// stays unreported.
    pub(crate) fn reported<T>(
        &self,
        decision: &PoolDecision,
        state: &DecisionState,
        ended: &Result<Outcome<T>, WriterError>,
    ) {
        let reports_it = matches!(state, DecisionState::Scaled(_));
        match ended {
            Ok(Outcome::Gone) => self.forget(decision),
            Ok(outcome) if reports_it && outcome.is_met() => self.forget(decision),
            Ok(
                Outcome::Written(_)
                | Outcome::AlreadyDone(_)
                | Outcome::Unchanged(_)
                | Outcome::Conflict(_)
                | Outcome::Aborted,
            )
            | Err(_) => {}
        }
    }

    /// What the status of `pools` does not report yet, by UID. `pools` are all existing pools; entries of others are
    /// dropped.
    pub(crate) fn missing_in(&self, pools: &[Arc<NodePool>]) -> BTreeMap<String, AutoscalingStatus> {
        let exists = |uid: &String| pools.iter().any(|pool| pool.metadata.uid.as_ref() == Some(uid));
        self.with(|known| known.retain(|uid, _| exists(uid)));
        let status = |pool: &Arc<NodePool>| {
            let uid = pool.metadata.uid.clone()?;
            let before = pool.status.as_ref().and_then(|s| s.autoscaling.clone()).unwrap_or_default();
            let status = self.with(|known| known.get(&uid).map(|scaled| scaled.recorded_in(&before)))?;
            Some((uid, status))
        };
        pools.iter().filter_map(status).collect()
    }

    fn with<T>(&self, act: impl FnOnce(&mut HashMap<String, Scaled>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn uid(decision: &PoolDecision) -> String {
    decision.object.metadata.uid.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use planner::fixtures::{NOW, Read as _, TestCluster};
    use planner::plan_for_cluster;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_decision_that_no_status_reports_yet_counts_in_the_next_pass() {
        let identified = |uid: &str| json!({ "metadata": { "uid": uid } });
        let cluster = TestCluster::new()
            .autoscaler("x", json!({}))
            .pool("a", identified("1"))
            .pool("b", identified("2"));
        let mut cluster = cluster.pending("p", 1, "4", &json!({}));
        let plan = plan_for_cluster(&cluster.observed);
        let (grown, other) =
            if plan.desired("a") == 1 { (plan.pool("a"), "b") } else { (plan.pool("b"), "a") };
        let now = Time(NOW.parse().unwrap());

        let pending = PendingStatus::default();
        assert!(pending.missing_in(&cluster.observed.pools).is_empty());
        pending.remember(grown, Scaled::of(grown, &now));
        let missing = pending.missing_in(&cluster.observed.pools);
        assert_eq!(missing.keys().collect::<Vec<_>>(), [&uid(grown)], "not {other}");
        assert_eq!(missing[&uid(grown)].last_scale_up_time, Some(now.clone()));

        cluster.observed.unreported = missing;
        let pool =
            cluster.observed.pools.iter().find(|pool| pool.metadata.uid.as_deref() == Some(&uid(grown)));
        let remembered = cluster.observed.remembered(pool.unwrap()).unwrap();
        assert_eq!(remembered.last_scale_up_time, Some(now));

        pending.forget(grown);
        assert!(pending.missing_in(&cluster.observed.pools).is_empty());
    }

    #[test]
    fn a_written_decision_is_remembered_until_a_status_reports_it_or_its_pool_is_gone() {
        let identified = |uid: &str| json!({ "metadata": { "uid": uid } });
        let cluster = TestCluster::eager().pool("a", identified("1")).pending("p", 1, "4", &json!({}));
        let plan = plan_for_cluster(&cluster.observed);
        let grown = plan.pool("a");
        let scaled = Scaled::of(grown, &Time(NOW.parse().unwrap()));
        let pools = &cluster.observed.pools;
        let (reporting, other) = (DecisionState::Scaled(scaled.clone()), DecisionState::Failed("no".into()));
        for (what, state, ended, kept) in [
            ("it was reported", &reporting, Outcome::Written(()), false),
            ("it was reported already", &reporting, Outcome::Unchanged(()), false),
            ("it was written by an attempt before", &reporting, Outcome::AlreadyDone(()), false),
            ("the status was not written", &reporting, Outcome::Conflict(Box::default()), true),
            ("it was not to be written", &reporting, Outcome::Aborted, true),
            ("something else was reported", &other, Outcome::Written(()), true),
            ("the pool is gone", &other, Outcome::Gone, false),
        ] {
            let pending = PendingStatus::default();
            pending.remember(grown, scaled.clone());
            pending.reported(grown, state, &Ok(ended));
            assert_eq!(pending.recall(grown).is_some(), kept, "{what}");
        }
        let pending = PendingStatus::default();
        pending.remember(grown, scaled);
        assert_eq!(pending.missing_in(pools).len(), 1);
        pending.missing_in(&[]);
        assert!(pending.recall(grown).is_none(), "its pool was deleted");
    }
}
