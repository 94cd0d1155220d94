//! Invariants over random histories: the plan is carried out, wholly or in part, on a small model of nodes, machines
//! and pods, with users and crashes as disturbances.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use proptest::collection::vec;
use proptest::prelude::*;
use shared_crds::names;
use shared_crds::v1alpha1::{DrainTimeoutAction, RepairSpec, RolloutType};

use super::disturbance::{Disturbance, disturb, disturbance, disturbance_or_outage, rollout};
use super::model_cluster::ModelCluster;
use super::*;
use crate::after::outcome::{Applied, AppliedAction};
use crate::assess::node_states::NodeReadiness;
use crate::input::supply::{MachineState, ProvisioningFailure};
use crate::testing::{ALWAYS, at, facts_after, machine, set_ready};

/// More passes than any history needs to come to rest: a dozen nodes, replaced one by one.
pub(super) const MANY_PASSES: usize = 400;

/// How long in seconds a new node of a rollout takes to be Ready: some passes.
const SLOW_START: i64 = 5;

/// After how many seconds a drain of a node that is too many holds up no rollout.
const STUCK_AFTER: i64 = 60;

/// Number of the nodes that are too many and have been drained for that long.
fn stuck(cluster: &ModelCluster) -> usize {
    let members =
        cluster.members().map(|node| Member::read(&Arc::new(node.clone()), at(cluster.second), ALWAYS));
    let late = at(cluster.second - STUCK_AFTER);
    let since = |member: &Member| member.leaving.and_then(|leaving| leaving.drain_started);
    let is_stuck = |member: &Member| {
        member.cause.reason() == Some(DisruptionReason::ScaleDown)
            && since(member).is_some_and(|since| since <= late)
    };
    members.filter(is_stuck).count()
}

/// Ends everything that keeps nodes.
fn calm(cluster: &mut ModelCluster) {
    cluster.budget_blocks = false;
    cluster.pool.spec.paused = false;
    let rollout = cluster.pool.spec.rollout.get_or_insert_default();
    rollout.type_ = RolloutType::RollingUpdate;
    let disruption = cluster.pool.spec.disruption.get_or_insert_default();
    disruption.budgets.retain(|budget| budget.nodes != IntOrString::Int(0));
    cluster.attached.clear();
    cluster.failure = None;
    cluster.broken.clear();
    cluster.found.clear();
    for name in cluster.nodes.keys().cloned().collect::<Vec<_>>() {
        cluster.protect(&name, false, false);
    }
}

/// Runs passes until nothing more is planned. Nodes become Ready as with a machine's kubelet.
pub(super) fn run_until_idle(cluster: &mut ModelCluster) -> usize {
    for pass in 0..MANY_PASSES {
        cluster.register();
        for node in cluster.nodes.values_mut() {
            set_ready(node, "True");
        }
        let plan = cluster.plan();
        let idle = plan.nodes.iter().all(|step| step.action == NodeAction::Keep)
            && plan.request.is_empty()
            && plan.withdraw.is_empty()
            && plan.register.is_empty()
            && plan.join.is_empty()
            && cluster.observe().in_flight().next().is_none()
            // A node that was given back is drained again some time later.
            && cluster.staying() <= cluster.wanted()
            && (cluster.registers_itself
                || Applied::default().next_visit(&plan, at(cluster.second)).is_none());
        if idle {
            return pass;
        }
        cluster.apply(&plan, usize::MAX);
        cluster.second += 2;
    }
    MANY_PASSES
}

/// One pass, in which every node is Ready.
pub(super) fn pass_with_ready_nodes(cluster: &mut ModelCluster) {
    cluster.register();
    cluster.become_ready(0);
    let plan = cluster.plan();
    cluster.apply(&plan, usize::MAX);
    cluster.second += 2;
}

/// Whether the node was made from the template of a new model.
pub(super) fn is_of_first_template(node: &Node) -> bool {
    let hash = testing::pool(0).spec.template_hash();
    node.metadata.annotations.as_ref().and_then(|all| all.get(names::TEMPLATE_HASH_ANNOTATION))
        == hash.as_ref()
}

/// What may happen during a rollout, to the node with this index.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    None,
    Protect(usize, bool),
    Break(usize),
    Mend,
    Budget(bool),
    /// The provider fails for some seconds, for lack of quota or not.
    Fail(bool, i64),
    Scale(i32),
    Template(u8),
    /// As long passes as a blocked drain may hold up a rollout.
    Wait,
}

fn trouble() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        6 => Just(Trouble::None),
        1 => (0..8_usize, any::<bool>()).prop_map(|(node, asks)| Trouble::Protect(node, asks)),
        1 => (0..8_usize).prop_map(Trouble::Break),
        1 => Just(Trouble::Mend),
        1 => any::<bool>().prop_map(Trouble::Budget),
        1 => (any::<bool>(), 0..6_i64).prop_map(|(quota, seconds)| Trouble::Fail(quota, seconds)),
        1 => (0..8_i32).prop_map(Trouble::Scale),
        1 => (4..7_u8).prop_map(Trouble::Template),
        1 => Just(Trouble::Wait),
    ]
}

impl Trouble {
    fn happens(self, cluster: &mut ModelCluster) {
        let nth = |index: usize| cluster.nodes.keys().nth(index).cloned();
        match self {
            Self::None => {}
            Self::Protect(index, asks) => {
                if let Some(name) = nth(index) {
                    cluster.protect(&name, asks, false);
                }
            }
            Self::Break(index) => {
                if let Some(name) = nth(index) {
                    // Not long enough for a repair, which has no regard to what is available.
                    set_ready(cluster.nodes.get_mut(&name).unwrap(), "Unhealthy");
                    cluster.broken.insert(name);
                }
            }
            Self::Mend => cluster.broken.clear(),
            Self::Budget(blocks) => cluster.budget_blocks = blocks,
            Self::Fail(quota, seconds) => {
                let reason = if quota { Reason::QuotaExceeded } else { Reason::ProviderUnreachable };
                let retry_at = at(cluster.second + seconds);
                cluster.failure = Some(ProvisioningFailure { reason, message: String::new(), retry_at });
            }
            Self::Scale(replicas) => {
                cluster.pool.spec.replicas = Some(replicas.min(cluster.pool.spec.max_replicas));
            }
            Self::Template(cpus) => cluster.change_template(cpus, cpus),
            Self::Wait => cluster.second += STUCK_AFTER,
        }
    }
}

/// Every node has what a new one would have.
fn all_up_to_date(cluster: &ModelCluster) -> bool {
    let label =
        |node: &Node| node.metadata.labels.as_ref().and_then(|all| all.get("example.com/label")).cloned();
    let wanted =
        cluster.pool.spec.template.metadata.clone().unwrap_or_default().labels.remove("example.com/label");
    let hash = cluster.pool.spec.template_hash();
    cluster.members().all(|node| {
        let own = node.metadata.annotations.as_ref().and_then(|all| all.get(names::TEMPLATE_HASH_ANNOTATION));
        own == hash.as_ref() && label(node) == wanted
    })
}

/// Whether a pass leads to no more nodes than are wanted, and the surge, and those that it keeps although they are not wanted.
fn keeps_to_what_is_wanted(cluster: &mut ModelCluster, disturbance: &Disturbance) -> Result<(), String> {
    let before = cluster.promised();
    let applied = disturb(cluster, disturbance);
    if !matches!(disturbance, Disturbance::Pass(_)) {
        return Ok(());
    }
    let (wanted, after) = (cluster.wanted(), cluster.promised());
    let spec = cluster.pool.spec.rollout.clone().unwrap_or_default();
    // Those that are given back were counted before their drain, and so was one that is wanted again, as far as too few stayed.
    let (returned, needed) = (applied.count(AppliedAction::Uncordon), wanted.saturating_sub(before));
    let kept = applied.count(AppliedAction::GiveBack) + returned.min(needed);
    let most = (wanted + spec.surge(wanted)).max(before + kept);
    if after <= most { Ok(()) } else { Err(format!("{after} promised, {wanted} wanted, {before} before")) }
}

/// All three were drained; when one is wanted again, the time of the other two drains is over.
#[test]
fn a_node_that_is_wanted_again_and_those_that_are_given_back_stay_together() {
    use Disturbance::{Drain, Pass, Register, Scale, Time};
    let mut cluster = ModelCluster::new(true);
    let all = || Pass(usize::MAX);
    let history = [
        Scale(3),
        all(),
        Scale(0),
        Time(3),
        Register,
        all(),
        all(),
        Scale(1),
        Time(1000),
        Drain(4, true),
        all(),
    ];
    for disturbance in &history {
        keeps_to_what_is_wanted(&mut cluster, disturbance).unwrap();
    }
    assert_eq!(cluster.promised(), 3);
}

/// The clock is set back while nodes start and others are drained: neither waits until it has caught up.
#[test]
fn a_clock_that_is_set_back_holds_up_neither_starts_nor_drains() {
    use Disturbance::{Drain, Pass, Register, Scale, Time};
    for registers_itself in [true, false] {
        let mut cluster = ModelCluster::new(registers_itself);
        let all = || Pass(usize::MAX);
        let history =
            [Scale(4), all(), Time(3), Register, all(), Drain(4, true), Scale(2), all(), Time(-300), all()];
        for disturbance in &history {
            keeps_to_what_is_wanted(&mut cluster, disturbance).unwrap();
        }
        let passes = run_until_idle(&mut cluster);
        assert!(passes < 20, "{passes} passes of two seconds");
        assert_eq!((cluster.nodes.len(), cluster.staying()), (2, 2));
    }
}

/// Each pod has a budget that lets it never go, and drains that take too long are given back.
#[test]
fn where_every_drain_is_blocked_pods_of_a_few_nodes_are_evicted_at_a_time_and_of_each_in_turn() {
    const REST: i32 = 20;
    for (surge, missing) in [(1, 0), (0, 1), (1, 1), (2, 1)] {
        let mut cluster = ModelCluster::new(true);
        cluster.pool.spec.replicas = Some(5);
        cluster.pool.spec.rollout = Some(rollout(surge, missing));
        assert!(run_until_idle(&mut cluster) < MANY_PASSES);
        let drain = cluster.pool.spec.drain.get_or_insert_default();
        (drain.timeout_seconds, drain.on_timeout) = (Some(REST), DrainTimeoutAction::GiveBack);
        cluster.budget_blocks = true;
        cluster.change_template(8, 0);
        let mut evictions: Vec<(i64, String)> = Vec::new();
        for _ in 0..100 {
            for step in cluster.plan().nodes {
                if matches!(&step.action, NodeAction::Drain(drain) if !drain.evict.is_empty()) {
                    evictions.push((cluster.second, step.member.name().to_owned()));
                }
            }
            pass_with_ready_nodes(&mut cluster);
        }
        let nodes = |begin: i64, end: i64| -> BTreeSet<&String> {
            evictions.iter().filter(|(at, _)| (begin..end).contains(at)).map(|(_, node)| node).collect()
        };
        let most = usize::try_from(surge + missing).unwrap();
        for (begin, _) in &evictions {
            let of_period = nodes(*begin, begin + i64::from(REST));
            assert!(of_period.len() <= most, "{of_period:?} with {surge} and {missing}");
        }
        assert!(nodes(0, i64::MAX).len() >= 4, "{evictions:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_pass_leads_to_more_nodes_than_are_wanted(history in vec(disturbance(), 1..40), registers_itself in any::<bool>()) {
        let mut cluster = ModelCluster::new(registers_itself);
        for disturbance in &history {
            let kept = keeps_to_what_is_wanted(&mut cluster, disturbance);
            prop_assert!(kept.is_ok(), "{kept:?}");
        }
    }

    #[test]
    fn no_pass_disrupts_more_nodes_than_a_limit_allows(
        replicas in 1..8_i32,
        limits in vec((0..4_i32, 0..16_u8), 0..3),
        history in vec(disturbance(), 1..60),
        registers_itself in any::<bool>(),
    ) {
        let mut cluster = ModelCluster::new(registers_itself);
        cluster.pool.spec.replicas = Some(replicas);
        prop_assert!(run_until_idle(&mut cluster) < MANY_PASSES);
        cluster.limit(&limits);
        for disturbance in &history {
            if !matches!(disturbance, Disturbance::Break(_) | Disturbance::Pass(_)) {
                cluster.become_ready(SLOW_START);
            }
            let before: Vec<_> = cluster.disrupted();
            disturb(&mut cluster, disturbance);
            let after = cluster.disrupted();
            for budget in cluster.pool.spec.disruption_budgets() {
                let count = |reasons: &[DisruptionReason]| reasons.iter().filter(|it| budget.concerns(**it)).count();
                let most = budget.nodes_of(cluster.wanted()).unwrap().max(count(&before));
                prop_assert!(count(&after) <= most, "{after:?} with {budget:?}, before {before:?}");
            }
        }
    }

    #[test]
    fn nodes_that_have_failed_are_replaced_within_one_bound(
        replicas in 1..20_i32,
        history in vec(disturbance_or_outage(), 1..60),
        registers_itself in any::<bool>(),
    ) {
        let mut cluster = ModelCluster::new(registers_itself);
        cluster.pool.spec.replicas = Some(replicas);
        prop_assert!(run_until_idle(&mut cluster) < MANY_PASSES);
        for disturbance in &history {
            disturb(&mut cluster, disturbance);
            let plan = cluster.plan();
            let is_replaced = |step: &&NodeStep| matches!(step.action, NodeAction::ReplaceLost | NodeAction::Repair);
            let replaced = plan.nodes.iter().filter(is_replaced).count();
            let is_going = |member: &Member| member.leaving.is_some_and(|it| it.deleting && !it.is_out_of_service());
            let ending = plan.nodes.iter().map(|step| &step.member).filter(|member| {
                member.has_finalizer
                    && member.readiness == NodeReadiness::NotReady
                    && ready::is_silent(&member.node)
                    && is_going(member)
            });
            let bound = RepairSpec::default().bound(plan.wanted);
            let failed = replaced + ending.count();
            let is_deleting = cluster.pool.metadata.deletion_timestamp.is_some();
            prop_assert!(is_deleting || replaced == 0 || failed <= bound, "{failed} of {}", plan.wanted);
        }
    }

    #[test]
    fn a_pass_that_changes_nothing_is_not_repeated_at_once(
        is_large in prop::bool::weighted(0.1),
        history in vec(disturbance_or_outage(), 1..60),
        registers_itself in any::<bool>(),
    ) {
        let mut cluster = ModelCluster::new(registers_itself);
        if is_large {
            cluster.pool.spec.replicas = Some(60);
            prop_assert!(run_until_idle(&mut cluster) < MANY_PASSES);
        }
        for disturbance in &history {
            disturb(&mut cluster, disturbance);
            let (before, plan) = (cluster.state(), cluster.plan());
            let mut after = cluster.clone();
            let applied = after.apply(&plan, usize::MAX);
            let next = applied.next_visit(&plan, at(cluster.second));
            prop_assert!(
                after.state() != before || next.is_none_or(|next| next > at(cluster.second)),
                "again at once: {:?}", actions_now(&cluster),
            );
        }
    }

    #[test]
    fn every_node_has_exactly_one_action(history in vec(disturbance(), 1..40), registers_itself in any::<bool>()) {
        let mut cluster = ModelCluster::new(registers_itself);
        for disturbance in &history {
            disturb(&mut cluster, disturbance);
            let plan = cluster.plan();
            let planned: Vec<_> = plan.nodes.iter().map(|step| step.member.name().to_owned()).collect();
            let existing: Vec<_> = cluster.members().map(|node| node.metadata.name.clone().unwrap()).collect();
            prop_assert_eq!(planned, existing);
        }
    }

    #[test]
    fn a_pass_counts_what_the_next_one_finds(
        history in vec(disturbance(), 1..40),
        writes in 0..8_usize,
        registers_itself in any::<bool>(),
    ) {
        let mut cluster = ModelCluster::new(registers_itself);
        for disturbance in &history {
            disturb(&mut cluster, disturbance);
            let (observed, plan) = (cluster.observe(), cluster.plan());
            // A node without a finalizer is gone at once when it is deleted, which the pass does not know.
            let lost = plan.nodes.iter().filter(|step| step.action == NodeAction::Replace && !step.member.has_finalizer).count();
            let applied = cluster.apply(&plan, writes);
            let facts = facts_after(&observed, &plan, &applied);
            prop_assert_eq!(facts.staying, facts.ready + facts.starting + facts.not_ready);
            let next = cluster.plan();
            let found = facts_after(&cluster.observe(), &next, &Applied::default());
            prop_assert_eq!(found.staying + found.leaving, cluster.members().count());
            // Nodes that the next one lists first may ask to be left alone.
            if lost == 0 && next.protected.is_empty() {
                prop_assert_eq!(facts, found);
            }
        }
    }

    #[test]
    fn from_any_state_the_pool_reaches_what_is_wanted(history in vec(disturbance(), 1..40), registers_itself in any::<bool>()) {
        let mut cluster = ModelCluster::new(registers_itself);
        for disturbance in &history {
            disturb(&mut cluster, disturbance);
        }
        calm(&mut cluster);
        prop_assert!(run_until_idle(&mut cluster) < MANY_PASSES, "{:?}", actions_now(&cluster));
        prop_assert_eq!(cluster.nodes.len(), cluster.wanted());
        prop_assert!(!registers_itself || cluster.machines.len() == cluster.wanted(), "{:?}", cluster.machines);
        prop_assert_eq!(cluster.staying(), cluster.wanted());
        prop_assert!(all_up_to_date(&cluster));
        for node in cluster.nodes.values() {
            prop_assert_ne!(node.spec.as_ref().unwrap().unschedulable, Some(true));
            prop_assert!(node.metadata.finalizers.iter().flatten().any(|f| f == names::NODE_FINALIZER));
        }
    }

    #[test]
    fn a_rollout_never_has_more_nodes_or_fewer_ready_ones_than_it_may(
        wanted in 1..6_i32,
        surge in 0..3_i32,
        missing in 0..3_i32,
        max_replicas in 1..8_i32,
        trouble in vec((trouble(), prop_oneof![Just(usize::MAX), 0..5_usize]), 0..30),
        registers_itself in any::<bool>(),
        template in 5..7_u8,
    ) {
        prop_assume!(surge + missing > 0);
        let mut cluster = ModelCluster::new(registers_itself);
        cluster.pool.spec.replicas = Some(wanted.min(max_replicas));
        cluster.pool.spec.max_replicas = max_replicas;
        cluster.pool.spec.rollout = Some(rollout(surge, missing));
        prop_assert!(run_until_idle(&mut cluster) < MANY_PASSES);
        cluster.change_template(template, 1);
        for (trouble, writes) in trouble {
            trouble.happens(&mut cluster);
            cluster.register();
            cluster.become_ready(SLOW_START);
            let (all_before, ready_before, stuck) = (cluster.all(), cluster.ready(), stuck(&cluster));
            let plan = cluster.plan();
            cluster.apply(&plan, writes);

            let wanted = cluster.wanted();
            let room = usize::try_from(max_replicas).unwrap().saturating_sub(wanted);
            let has_no_quota = cluster.failure.as_ref().is_some_and(|it| it.reason == Reason::QuotaExceeded);
            let surge = usize::try_from(surge).unwrap().min(room);
            let one = usize::from(surge <= stuck || has_no_quota);
            let missing = usize::try_from(missing).unwrap().min(wanted).max(one);
            let (all, ready) = (cluster.all(), cluster.ready());
            prop_assert!(all <= (wanted + surge).max(all_before), "{all} of {wanted}, surge {surge}, before {all_before}");
            let least = ready_before.min(wanted.saturating_sub(missing));
            // A node that is too many goes whatever the others are.
            let is_too_many = |step: &&NodeStep| step.cause == Some(DisruptionReason::ScaleDown);
            let ready = ready + plan.nodes.iter().filter(is_too_many).count();
            prop_assert!(ready >= least, "{ready} ready, before {ready_before}, {wanted} wanted, {missing} may be missing");
            cluster.second += 2;
        }
        calm(&mut cluster);
        prop_assert!(run_until_idle(&mut cluster) < MANY_PASSES, "{:?}", actions_now(&cluster));
        prop_assert!(all_up_to_date(&cluster), "{:?}", actions_now(&cluster));
        prop_assert_eq!((cluster.staying(), cluster.nodes.len()), (cluster.wanted(), cluster.wanted()));
    }

    #[test]
    fn a_node_that_asks_to_be_left_alone_keeps_no_other_one(
        replicas in 0..5_i32,
        max_replicas in 5..7_i32,
        surge in 0..3_i32,
        registers_itself in any::<bool>(),
    ) {
        let mut cluster = ModelCluster::new(registers_itself);
        cluster.pool.spec.replicas = Some(5);
        cluster.pool.spec.max_replicas = max_replicas;
        cluster.pool.spec.rollout = Some(rollout(surge, 1));
        prop_assert!(run_until_idle(&mut cluster) < MANY_PASSES);
        let protected = cluster.nodes.keys().next().unwrap().clone();
        cluster.protect(&protected, true, false);
        cluster.change_template(6, 0);
        for _ in 0..MANY_PASSES / 4 {
            pass_with_ready_nodes(&mut cluster);
        }
        cluster.pool.spec.replicas = Some(replicas);
        for _ in 0..MANY_PASSES / 4 {
            pass_with_ready_nodes(&mut cluster);
        }
        // The one that stays, and its successor where there is room for it.
        let wanted = usize::try_from(replicas).unwrap();
        let names: Vec<&String> = cluster.nodes.keys().collect();
        prop_assert!(cluster.nodes.contains_key(&protected));
        prop_assert!(cluster.nodes.len() <= wanted + 1, "{names:?} of {wanted}");
        let new = cluster.nodes.values().filter(|node| !is_of_first_template(node)).count();
        prop_assert!(new + 1 >= wanted.min(usize::try_from(max_replicas).unwrap()), "{new} new ones of {wanted}");
    }

    #[test]
    fn a_burst_that_is_repeated_from_a_stale_cache_creates_no_excess_node(first in 0..8_usize, wanted in 0..8_i32) {
        let mut cluster = ModelCluster::new(false);
        cluster.pool.spec.replicas = Some(wanted);
        let old = cluster.observe();
        for observed in [old.clone(), old] {
            cluster.machines.clear();
            let plan_requests = cluster.plan_from(&observed);
            cluster.apply(&plan_requests, usize::MAX);
            let mut running = observed;
            running.supply.machines = plan_requests
                .request
                .iter()
                .map(|name| machine(name, MachineState::Running))
                .collect();
            let burst = cluster.plan_from(&running);
            cluster.apply(&burst, first);
            cluster.apply(&burst, usize::MAX);
        }
        prop_assert_eq!(cluster.nodes.len(), usize::try_from(wanted).unwrap());
    }
}

fn actions_now(cluster: &ModelCluster) -> Vec<(String, NodeAction)> {
    testing::actions(&cluster.plan())
}
