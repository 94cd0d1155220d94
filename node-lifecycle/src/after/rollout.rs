//! How far a rollout has come after a pass, and whether it waits.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::NodePool;
use shared_crds::disruption::Account;
use shared_crds::v1alpha1::{RolloutStatus, RolloutType};

use crate::assess::drain_limits::DrainLimits;
use crate::assess::membership::Member;
use crate::assess::outdated::{OutdatedCriteria, OutdatedNode};
use crate::assess::removal_protection;
use crate::count::rollout;
use crate::count::rollout_waits::{self, RolloutNodes, RolloutWait};
use crate::input::numbers::number;
use crate::{Observed, ObservedPods, Plan};

/// How far a rollout has come.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutFacts {
    /// Number of nodes that are out of date, those included that are drained because of it.
    pub outdated: usize,
    /// Number of staying nodes that are out of date.
    pub staying: usize,
    /// Number of those out of date that are older than `spec.rollout.hardMaxAgeSeconds`.
    pub past_hard_age: usize,
    /// Whether they are replaced.
    pub is_active: bool,
    /// What `status.rollout` says; `None` where none goes on.
    pub record: Option<RolloutStatus>,
    /// Why no node may go for it, by the budgets of `spec.disruption`, because nodes ask to be left alone, or because drains that do not
    /// get on keep their places; `None` while one may, or goes and its drain is not stuck.
    pub waits: Option<RolloutWait>,
    /// It has made no progress for as long as `spec.rollout.progressDeadlineSeconds`.
    pub is_stuck: bool,
}

impl RolloutFacts {
    /// Counts the `nodes` of `pool` after a pass with this `plan`. All that are being disrupted are in the `account`.
    pub(crate) fn count(
        observed: &Observed,
        pool: &NodePool,
        plan: &Plan,
        nodes: RolloutNodes<'_>,
        account: &Account,
    ) -> Option<Self> {
        let now = observed.now;
        let criteria = OutdatedCriteria::of(pool, now);
        let (old, new): (Vec<&Member>, Vec<&Member>) =
            nodes.staying.iter().partition(|member| member.outdated.is_outdated());
        let drained = nodes.drained();
        let outdated = old.len() + drained.len();
        if outdated == 0 {
            return None;
        }
        let past_hard_age =
            old.iter().chain(&drained).filter(|member| member.outdated.is_past_hard_age()).count();
        let available = new.into_iter().filter(|member| criteria.is_available(member)).count();
        let is_active =
            pool.metadata.deletion_timestamp.is_none() && criteria.spec.type_ != RolloutType::OnDelete;
        let is_due = is_active && !pool.spec.paused;
        let staying = old.iter().filter_map(|it| Some((it.name().to_owned(), criteria.outdated_node(it)?)));
        let staying: BTreeMap<String, OutdatedNode> = staying.collect();
        let protected = protected(observed, pool, plan, &old);
        let going = drained.iter().filter(|member| !rollout::is_stuck(observed, member)).count();
        let allowed = rollout::may_go_now(&staying, account, &protected);
        let waits = if is_due && going == 0 {
            let refused =
                if allowed == 0 { rollout_waits::waits(&staying, account, &protected) } else { None };
            let for_drain =
                || rollout_waits::waits_for_drain(observed, pool, nodes, &staying, account, &protected);
            refused.or_else(for_drain)
        } else {
            None
        };
        let may_go = if waits.is_some() { 0 } else { allowed + going };
        let record = plan.template_hash.as_ref().filter(|_| is_due).map(|hash| {
            let begins = RolloutStatus {
                template_hash: hash.clone(),
                outdated_nodes: number(outdated),
                may_go_nodes: Some(number(may_go)),
                available_nodes: number(available),
                progress_time: Time(second(now)),
            };
            recorded(pool, begins)
        });
        let is_stuck = record.as_ref().filter(|_| waits.is_none()).is_some_and(|record| {
            let patience = SignedDuration::from_secs(i64::from(criteria.spec.progress_deadline_seconds));
            record.progress_time.0.checked_add(patience).is_ok_and(|deadline| deadline <= now)
        });
        Some(Self { outdated, staying: old.len(), past_hard_age, is_active, record, waits, is_stuck })
    }
}

/// What is recorded of a rollout that would have made progress now: its time goes on if it has made none since the last record.
fn recorded(pool: &NodePool, begins: RolloutStatus) -> RolloutStatus {
    let before = pool.status.as_ref().and_then(|status| status.rollout.as_ref());
    let Some(before) = before.filter(|before| before.template_hash == begins.template_hash) else {
        return begins;
    };
    // The time begins anew when a wait ends.
    let has_waited = before.may_go_nodes == Some(0) && begins.may_go_nodes != Some(0);
    let progressed = begins.outdated_nodes < before.outdated_nodes
        || begins.available_nodes > before.available_nodes
        || has_waited;
    // A time to come was written before the clock was set back: the rollout has its time from now on.
    let before_now = Time(before.progress_time.0.min(begins.progress_time.0));
    RolloutStatus {
        available_nodes: begins.available_nodes.max(before.available_nodes),
        progress_time: if progressed { begins.progress_time } else { before_now },
        ..begins
    }
}

/// Which of the `old` nodes are known to ask to be left alone, with what this pass has found.
fn protected(observed: &Observed, pool: &NodePool, plan: &Plan, old: &[&Member]) -> BTreeMap<String, String> {
    let mut protected =
        removal_protection::protected(observed, pool, old.iter().copied(), &ObservedPods::default());
    if DrainLimits::of(pool).holds_protected {
        protected.retain(|name, _| !plan.unprotected.contains(name));
        let found = plan.protected.iter().filter(|(name, _)| old.iter().any(|it| it.name() == name));
        protected.extend(found.cloned());
    }
    protected
}

/// Kubernetes writes times as whole seconds.
fn second(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}
