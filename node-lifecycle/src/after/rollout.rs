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
use crate::count::rollout_waits::{self, RolloutWait};
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
    /// Why no node may go for it, by the budgets of `spec.disruption` and because nodes ask to be left alone; `None` while one may,
    /// or goes and its drain is not stuck.
    pub waits: Option<RolloutWait>,
    /// It has made no progress for as long as `spec.rollout.progressDeadlineSeconds`.
    pub is_stuck: bool,
}

impl RolloutFacts {
    /// Counts the nodes of `pool` after a pass with this `plan`: those that stay, and those that are `drained` because they were out
    /// of date. All that are being disrupted are in the `account`.
    pub(crate) fn count(
        observed: &Observed,
        pool: &NodePool,
        plan: &Plan,
        staying: &[&Member],
        drained: &[&Member],
        account: &Account,
    ) -> Option<Self> {
        let now = observed.now;
        let criteria = OutdatedCriteria::of(pool, now);
        let (old, new): (Vec<&Member>, Vec<&Member>) =
            staying.iter().partition(|member| member.outdated.is_some());
        let outdated = old.len() + drained.len();
        if outdated == 0 {
            return None;
        }
        let past_hard_age = old.iter().chain(drained).filter(|member| member.is_past_hard_age).count();
        let available = new.into_iter().filter(|member| criteria.is_available(member)).count();
        let spec = pool.spec.rollout.clone().unwrap_or_default();
        let is_active = pool.metadata.deletion_timestamp.is_none() && spec.type_ != RolloutType::OnDelete;
        let before = pool.status.as_ref().and_then(|status| status.rollout.as_ref());
        let nodes = old.iter().filter_map(|it| Some((it.name().to_owned(), criteria.outdated_node(it)?)));
        let nodes: BTreeMap<String, OutdatedNode> = nodes.collect();
        let protected = protected(observed, pool, plan, &old);
        let going = drained.iter().filter(|member| !rollout::is_stuck(observed, member)).count();
        let may_go = rollout::may_go_now(&nodes, account, &protected) + going;
        let is_due = is_active && !pool.spec.paused;
        let waits =
            if is_due && may_go == 0 { rollout_waits::waits(&nodes, account, &protected) } else { None };
        let record = plan.template_hash.as_ref().filter(|_| is_due).map(|hash| {
            let (outdated_nodes, available_nodes) = (number(outdated), number(available));
            let may_go_nodes = Some(number(may_go));
            let begins = RolloutStatus {
                template_hash: hash.clone(),
                outdated_nodes,
                may_go_nodes,
                available_nodes,
                progress_time: Time(second(now)),
            };
            before.filter(|before| before.template_hash == *hash).map_or(begins.clone(), |before| {
                // The time begins anew when a wait ends.
                let progressed = outdated_nodes < before.outdated_nodes
                    || available_nodes > before.available_nodes
                    || (before.may_go_nodes == Some(0) && may_go > 0);
                RolloutStatus {
                    available_nodes: available_nodes.max(before.available_nodes),
                    progress_time: if progressed {
                        begins.progress_time
                    } else {
                        before.progress_time.clone()
                    },
                    ..begins
                }
            })
        });
        let is_stuck = record.as_ref().filter(|_| waits.is_none()).is_some_and(|record| {
            let patience = SignedDuration::from_secs(i64::from(spec.progress_deadline_seconds));
            record.progress_time.0.checked_add(patience).is_ok_and(|deadline| deadline <= now)
        });
        Some(Self { outdated, staying: old.len(), past_hard_age, is_active, record, waits, is_stuck })
    }
}

/// Which of the `old` nodes are known to ask to be left alone, with what this pass has found.
fn protected(observed: &Observed, pool: &NodePool, plan: &Plan, old: &[&Member]) -> BTreeMap<String, String> {
    let mut protected =
        removal_protection::protected(observed, pool, old.iter().copied(), &ObservedPods::default());
    if DrainLimits::of(pool).holds_protected {
        let found = plan.protected.iter().filter(|(name, _)| old.iter().any(|it| it.name() == name));
        protected.extend(found.cloned());
    }
    protected
}

/// Kubernetes writes times as whole seconds.
fn second(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}
