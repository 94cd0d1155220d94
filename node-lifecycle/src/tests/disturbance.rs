//! What happens to the model of a cluster in random histories.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use proptest::collection::vec;
use proptest::prelude::*;
use shared_crds::names;
use shared_crds::v1alpha1::{DrainTimeoutAction, ProtectedNodes, RolloutSpec, RolloutType};

use super::model_cluster::ModelCluster;
use crate::after::outcome::Applied;
use crate::testing::{at, set_ready};

/// What happens between passes, and how far a pass gets.
#[derive(Clone, Debug)]
pub(super) enum Disturbance {
    Scale(i32),
    DeleteNode(usize),
    BecomeReady(usize),
    Break(usize),
    RemoveFinalizer(usize),
    Budget(bool),
    Pause(bool),
    /// A node asks to be left alone, or one of its pods does, or neither any more.
    Protect(usize, Option<bool>),
    /// A volume is attached to a node, or detached.
    Attach(usize, bool),
    /// Drains have so many seconds, and are then given back or not.
    Drain(i32, bool),
    /// So many seconds pass, or the clock is set back by as many, as when the operator goes on with that of another machine. No invariant
    /// is about the clock, so all of them hold: what was written is to come then, and what the process has measured decides.
    Time(i64),
    /// The template changes: what rolls, and what changes in place.
    Template(u8, u8),
    /// How nodes are replaced: surge, missing nodes, and whether at all.
    Rollout(i32, i32, bool),
    /// At most so many nodes are disrupted at a time for the reasons of this bit set, all of them when it is empty.
    Limits(Vec<(i32, u8)>),
    /// Nodes that ask to be left alone go last, or not at all.
    Last(bool),
    /// The kubelets of new machines register their Nodes.
    Register,
    /// A pass that is carried out up to this many writes; the operator's memory is lost if it stops early.
    Pass(usize),
    /// What is remembered of protected nodes is too old.
    Forget,
    /// A node is not Ready, and its machine has not been listed for so many seconds.
    Lose(usize, i64),
    /// A machine is gone behind the operator's back, and the kubelet of its node is silent.
    Vanish(usize),
    /// The provider's list fails, or works again.
    Unlisted(bool),
    /// The creation of a machine is not answered.
    LostCreation,
    /// The provider lets no machine go.
    RemovalsWait(bool),
    /// No pods can be listed.
    Unread(bool),
    /// Machines that are deleted are still listed.
    ListsWithdrawn(bool),
    /// The pool is deleted, and gone with or without its nodes.
    DeletePool(bool),
}

/// Any of them, passes most often.
pub(super) fn disturbance() -> impl Strategy<Value = Disturbance> {
    prop_oneof![
        2 => (0..12_i32).prop_map(Disturbance::Scale),
        1 => (0..12_usize).prop_map(Disturbance::DeleteNode),
        2 => (0..12_usize).prop_map(Disturbance::BecomeReady),
        1 => (0..12_usize).prop_map(Disturbance::Break),
        1 => (0..12_usize).prop_map(Disturbance::RemoveFinalizer),
        1 => any::<bool>().prop_map(Disturbance::Budget),
        1 => prop::bool::weighted(0.2).prop_map(Disturbance::Pause),
        1 => (0..12_usize, any::<Option<bool>>()).prop_map(|(node, asks)| Disturbance::Protect(node, asks)),
        1 => (0..12_usize, any::<bool>()).prop_map(|(node, attach)| Disturbance::Attach(node, attach)),
        // Long enough for a pass that evicts.
        1 => (prop_oneof![Just(0), 4..20_i32], any::<bool>()).prop_map(|(timeout, back)| Disturbance::Drain(timeout, back)),
        2 => prop_oneof![0..5_i64, Just(1000), -300..0_i64].prop_map(Disturbance::Time),
        1 => (4..7_u8, 0..3_u8).prop_map(|(cpus, label)| Disturbance::Template(cpus, label)),
        1 => (0..3_i32, 0..3_i32, prop::bool::weighted(0.2))
            .prop_map(|(surge, missing, on_delete)| Disturbance::Rollout(surge, missing, on_delete)),
        1 => vec((0..4_i32, 0..16_u8), 0..3).prop_map(Disturbance::Limits),
        1 => any::<bool>().prop_map(Disturbance::Last),
        2 => Just(Disturbance::Register),
        6 => prop_oneof![Just(usize::MAX), 0..6_usize].prop_map(Disturbance::Pass),
    ]
}

/// What keeps a pass from carrying out what is due: of the provider, and of the rights that it has.
fn outage() -> impl Strategy<Value = Disturbance> {
    prop_oneof![
        1 => Just(Disturbance::Forget),
        2 => (0..12_usize, prop_oneof![Just(0), Just(59), Just(60), Just(1000)])
            .prop_map(|(node, seconds)| Disturbance::Lose(node, seconds)),
        2 => (0..12_usize).prop_map(Disturbance::Vanish),
        2 => any::<bool>().prop_map(Disturbance::Unlisted),
        1 => Just(Disturbance::LostCreation),
        2 => any::<bool>().prop_map(Disturbance::RemovalsWait),
        2 => any::<bool>().prop_map(Disturbance::Unread),
        1 => any::<bool>().prop_map(Disturbance::ListsWithdrawn),
        1 => prop::bool::weighted(0.2).prop_map(Disturbance::DeletePool),
    ]
}

/// Any of them, and outages.
pub(super) fn disturbance_or_outage() -> impl Strategy<Value = Disturbance> {
    prop_oneof![3 => disturbance(), 2 => outage()]
}

/// The result of the pass, if it is one.
pub(super) fn disturb(cluster: &mut ModelCluster, disturbance: &Disturbance) -> Applied {
    let nth = |cluster: &ModelCluster, index: usize| cluster.nodes.keys().nth(index).cloned();
    let status = |cluster: &mut ModelCluster, index: usize, status: &str| {
        if let Some(node) = nth(cluster, index).and_then(|name| cluster.nodes.get_mut(&name)) {
            set_ready(node, status);
        }
    };
    match *disturbance {
        Disturbance::Scale(replicas) => cluster.pool.spec.replicas = Some(replicas),
        Disturbance::DeleteNode(index) => {
            if let Some(node) = nth(cluster, index).and_then(|name| cluster.nodes.get(&name).cloned()) {
                cluster.delete(&node.metadata.name.clone().unwrap(), &node);
            }
        }
        Disturbance::BecomeReady(index) => status(cluster, index, "True"),
        Disturbance::Break(index) => status(cluster, index, "Unknown"),
        Disturbance::RemoveFinalizer(index) => {
            if let Some(node) = nth(cluster, index).and_then(|name| cluster.nodes.get_mut(&name)) {
                node.metadata.finalizers = None;
            }
            cluster.sweep();
        }
        Disturbance::Budget(blocks) => cluster.budget_blocks = blocks,
        Disturbance::Pause(paused) => cluster.pool.spec.paused = paused,
        Disturbance::Protect(index, asks) => {
            if let Some(name) = nth(cluster, index) {
                cluster.protect(&name, asks == Some(true), asks == Some(false));
            }
        }
        Disturbance::Attach(index, attach) => {
            if let Some(name) = nth(cluster, index) {
                if attach {
                    cluster.attached.insert(name)
                } else {
                    cluster.attached.remove(&name)
                };
            }
        }
        Disturbance::Drain(timeout, is_given_back) => {
            let on_timeout =
                if is_given_back { DrainTimeoutAction::GiveBack } else { DrainTimeoutAction::Force };
            let timeout_seconds = Some(timeout);
            let drain = cluster.pool.spec.drain.get_or_insert_default();
            (drain.timeout_seconds, drain.on_timeout) = (timeout_seconds, on_timeout);
        }
        Disturbance::Time(seconds) if seconds < 0 => cluster.set_back(-seconds),
        Disturbance::Time(seconds) => cluster.second += seconds,
        Disturbance::Template(cpus, label) => cluster.change_template(cpus, label),
        Disturbance::Rollout(surge, missing, on_delete) => {
            cluster.pool.spec.rollout = Some(RolloutSpec {
                type_: if on_delete { RolloutType::OnDelete } else { RolloutType::RollingUpdate },
                ..rollout(surge, missing)
            });
        }
        Disturbance::Limits(ref limits) => cluster.limit(limits),
        Disturbance::Last(is_last) => {
            let policy = if is_last { ProtectedNodes::Last } else { ProtectedNodes::Wait };
            cluster.pool.spec.drain.get_or_insert_default().protected_nodes = policy;
        }
        Disturbance::Register => cluster.register(),
        Disturbance::Pass(writes) => {
            let plan = cluster.plan();
            let applied = cluster.apply(&plan, writes);
            if writes != usize::MAX && !cluster.registers_itself {
                cluster.machines.clear();
            }
            return applied;
        }
        Disturbance::Forget => {
            cluster.found.clear();
            cluster.free.clear();
        }
        Disturbance::Lose(index, seconds) => {
            status(cluster, index, "Unhealthy");
            if let Some(name) = nth(cluster, index) {
                cluster.lost.insert(name, cluster.second - seconds);
            }
        }
        Disturbance::Vanish(index) => {
            status(cluster, index, "Unknown");
            let gone = nth(cluster, index).and_then(|name| cluster.nodes.get(&name).cloned());
            if let Some(machine) = gone.as_ref().and_then(|node| names::machine_of(&node.metadata)) {
                cluster.machines.remove(machine);
            }
        }
        Disturbance::Unlisted(is_unlisted) => cluster.is_unlisted = is_unlisted,
        Disturbance::LostCreation => cluster.uncertain_until = Some(cluster.second + 120),
        Disturbance::RemovalsWait(wait) => cluster.removals_wait = wait,
        Disturbance::Unread(is_unread) => cluster.pods_unread = is_unread,
        Disturbance::ListsWithdrawn(is_listed) => cluster.lists_withdrawn = is_listed,
        Disturbance::DeletePool(is_gone) => {
            cluster.pool.metadata.deletion_timestamp.get_or_insert(Time(at(cluster.second)));
            cluster.is_gone |= is_gone;
        }
    }
    Applied::default()
}

/// Nodes more, and missing, while nodes are replaced.
pub(super) fn rollout(surge: i32, missing: i32) -> RolloutSpec {
    RolloutSpec {
        max_surge: IntOrString::Int(surge),
        max_unavailable: IntOrString::Int(missing),
        ..RolloutSpec::default()
    }
}
