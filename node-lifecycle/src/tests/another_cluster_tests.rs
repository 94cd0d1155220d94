//! Machines that are another cluster's: neither counted nor deleted; and more machines than were asked for at first sight.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use shared_crds::v1alpha1::{
    ExecProvider, NodePoolStatus, ProviderSpec, ProvisioningStatus, SimulatedProvider,
};

use super::*;
use crate::input::observed_time::MachineTimes;
use crate::input::slots::Slots;
use crate::input::supply::{MachineState, NodeSource};
use crate::testing::{at, cluster, draining, facts, key, machine, node, observed, plan, pool, with_action};

/// A pool of `replicas` with so many nodes, that has asked for so many machines, and so many without a Node.
fn asked_for(asked: Option<i32>, replicas: i32, nodes: usize, without_node: usize) -> Observed {
    let mut pool = pool(replicas);
    let exec = ExecProvider { name: "rack".into(), ..ExecProvider::default() };
    pool.spec.provider = ProviderSpec { exec: Some(exec), ..ProviderSpec::default() };
    let status = |machines| {
        let provisioning = ProvisioningStatus { machines: Some(machines), ..ProvisioningStatus::default() };
        NodePoolStatus { provisioning: Some(provisioning), ..NodePoolStatus::default() }
    };
    pool.status = asked.map(status);
    let of_rack = |index| {
        let mut node = node(index);
        node.metadata.labels.as_mut().unwrap().remove(names::PROVIDER_LABEL);
        node
    };
    let mut observed = observed(pool, (0..nodes).map(of_rack));
    observed.supply.source = Ok(NodeSource::Kubelet);
    let of_nodes = (0..nodes).map(|index| format!("n-{index:03}"));
    let others = (0..without_node).map(|index| format!("m-{index}"));
    observed.supply.machines =
        of_nodes.chain(others).map(|name| machine(&name, MachineState::Running)).collect();
    observed
}

fn deleted(mut observed: Observed) -> Observed {
    let pool = Arc::make_mut(observed.pool.as_mut().unwrap());
    pool.metadata.deletion_timestamp = Some(Time(at(50)));
    observed
}

/// The plan changes nothing and says this.
fn assert_frozen(observed: &Observed, reason: Reason, text: &str) {
    let plan = plan(observed);
    let stall = plan.stalled.unwrap_or_else(|| panic!("not frozen: {text}"));
    assert_eq!(stall.reason, reason);
    assert!(stall.message.contains(text), "{}", stall.message);
    assert!(plan.withdraw.is_empty() && plan.request.is_empty() && plan.timed_out.is_empty());
    assert!(plan.nodes.iter().all(|step| step.action == NodeAction::Keep));
    assert_eq!(plan.fill, None);
}

#[test]
fn a_new_pool_that_finds_more_machines_than_it_asks_for_deletes_none() {
    let text = "lists 49 machines more than it was asked for";
    assert_frozen(&asked_for(None, 1, 0, 50), Reason::TooManyMachines, text);
    let mut without_record = asked_for(None, 1, 0, 50);
    Arc::make_mut(without_record.pool.as_mut().unwrap()).status = Some(NodePoolStatus::default());
    assert_frozen(&without_record, Reason::TooManyMachines, text);
    // As many as a lost answer may bring, and those of nodes, are known.
    assert_eq!(plan(&asked_for(None, 1, 0, 3)).withdraw.len(), 2);
    assert_eq!(with_action(&plan(&asked_for(None, 1, 50, 0)), &NodeAction::Cordon).len(), 49);
}

#[test]
fn what_a_frozen_pool_has_asked_for_stays_recorded() {
    let observed = asked_for(Some(0), 0, 0, 50);
    assert_frozen(&observed, Reason::TooManyMachines, "lists 50 machines more than it was asked for");
    let remembered = facts(&observed).remembered(observed.pool.as_deref().unwrap());
    assert_eq!(remembered.and_then(|it| it.machines), Some(0), "the next pass finds the same");
}

#[test]
fn a_pool_with_machines_that_were_not_asked_for_shrinks_and_drains_and_its_growth_alone_waits() {
    let mut observed = asked_for(Some(4), 2, 4, 5);
    let mut leaving = draining(7, -100);
    leaving.metadata.labels.as_mut().unwrap().remove(names::PROVIDER_LABEL);
    observed.nodes.push(Arc::new(leaving));
    observed.supply.machines.push(machine("n-007", MachineState::Running));
    let lowered = plan(&observed);
    let stall = lowered.stalled.clone().unwrap();
    assert_eq!(stall.reason, Reason::TooManyMachines);
    assert!(
        stall.message.contains("lists 5 machines more than it was asked for: delete them there, or raise")
    );
    assert_eq!(with_action(&lowered, &NodeAction::Cordon).len(), 2, "of its nodes, two are too many");
    let step = lowered.nodes.iter().find(|step| step.member.name() == "n-007").unwrap();
    assert!(!matches!(step.action, NodeAction::Wait | NodeAction::Keep), "{:?}", step.action);
    assert!(lowered.withdraw.is_empty() && lowered.timed_out.is_empty() && lowered.join.is_empty());
    // As many as there are nodes stay asked for, so that the next pass takes none of the others for one of them.
    let remembered = facts(&observed).remembered(observed.pool.as_deref().unwrap());
    assert_eq!(remembered.and_then(|it| it.machines), Some(2));
    let smaller = asked_for(Some(2), 2, 2, 5);
    let next = plan(&smaller);
    assert_eq!((next.stalled.unwrap().reason, next.withdraw), (Reason::TooManyMachines, vec![]));
    // They stand for no node, and none is made in the place of one that is missing.
    let missing = plan(&asked_for(Some(2), 2, 1, 5));
    assert!(missing.request.is_empty() && missing.register.is_empty());
    assert!(missing.nodes.iter().all(|step| step.action == NodeAction::Keep));
}

#[test]
fn a_machine_whose_node_does_not_come_is_given_up() {
    let mut observed = asked_for(Some(2), 2, 1, 1);
    observed.machine_times = MachineTimes([("m-0".to_owned(), SignedDuration::from_secs(899))].into());
    assert_eq!(plan(&observed).timed_out, Vec::<String>::new());
    observed.machine_times = MachineTimes([("m-0".to_owned(), SignedDuration::from_secs(900))].into());
    assert_eq!(plan(&observed).timed_out, ["m-0"]);
}

#[test]
fn the_machines_of_a_pool_go_with_it_however_many() {
    let own = plan(&deleted(asked_for(None, 1, 0, 50)));
    assert_eq!((own.withdraw.len(), own.stalled), (50, None));
    let mut gone = asked_for(Some(3), 3, 1, 2);
    gone.pool = None;
    assert_eq!(plan(&gone).withdraw.len(), 2);
}

#[test]
fn another_clusters_machines_do_not_count_and_their_names_are_not_used() {
    let slots = Slots::of(&cluster(), &key());
    let name = |number: usize| format!("{}{number}", slots.prefix());
    let mut observed = asked_for(Some(0), 2, 0, 0);
    observed.supply.foreign = [(name(0), "the cluster there".to_owned())].into();
    let made = plan(&observed);
    assert_eq!((made.request, made.stalled), (vec![name(1), name(2)], None));
    assert_eq!(plan(&deleted(observed)).pool, PoolStep::RemoveFinalizer);
}

#[test]
fn nodes_with_names_of_another_cluster_keep_them_and_are_not_replaced() {
    let mut restored = node(0);
    restored.metadata.name = Some("web-00000-0".into());
    let mut pool = pool(2);
    pool.spec.provider.simulated = Some(SimulatedProvider::default());
    let plan = plan(&observed(pool, [restored]));
    assert!(plan.nodes.iter().all(|step| step.action == NodeAction::Keep), "{:?}", plan.nodes);
    assert_eq!(plan.request, [format!("{}0", testing::prefix())]);
}

#[test]
fn a_pool_whose_nodes_have_machines_of_another_cluster_is_frozen() {
    let mut observed = asked_for(Some(2), 1, 2, 0);
    observed.supply.machines.clear();
    observed.supply.foreign = [("n-001".to_owned(), "the cluster old".to_owned())].into();
    let text = "the machine n-001 of the node n-001 carries the cluster old, and this cluster is here";
    assert_frozen(&observed, Reason::AnotherCluster, text);
    observed.supply.foreign.clear();
    assert_eq!(with_action(&plan(&observed), &NodeAction::Cordon).len(), 1);
}
