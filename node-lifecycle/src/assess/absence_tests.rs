use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use shared_crds::names;

use super::*;
use crate::input::supply::MachineState;
use crate::testing::{
    at, deleted, draining, machine, node, observed, plan, plan_with, pod, pods, pool, set_ready,
};
use crate::{Blocker, DrainStep, NodeAction};

/// A pool of these nodes whose provider names the machines itself or not, and lists `machines`.
fn listing(nodes: Vec<Node>, machines: &[&str], completeness: Completeness) -> Observed {
    let mut observed = observed(pool(1), nodes);
    observed.supply.source = Ok(NodeSource::Kubelet);
    observed.supply.completeness = completeness;
    observed.supply.machines = machines.iter().map(|name| machine(name, MachineState::Running)).collect();
    observed
}

/// Whether it is believed that the machine of the pool's node of this name is gone.
fn is_believed(observed: &Observed, name: &str) -> bool {
    let plan = plan(observed);
    let step = plan.nodes.iter().find(|step| step.member.name() == name).unwrap();
    step.absence == Absence::Credible
}

#[test]
fn a_list_without_a_machine_is_believed_where_it_has_another_one_of_the_pool_or_is_complete() {
    use Completeness::{Certain, Stated, Unknown};
    let one = || vec![draining(0, 0)];
    let two = || vec![draining(0, 0), node(1)];
    for (nodes, machines, completeness, expected) in [
        (one(), &["n-000"][..], Unknown, true),
        (one(), &[], Unknown, false),
        (one(), &[], Stated, true),
        (one(), &[], Certain, true),
        (one(), &["of-another-cluster"], Unknown, false),
        (two(), &["n-001"], Unknown, true),
        // It looks at another cluster, and says that it sees all of it.
        (two(), &["of-another-cluster"], Stated, false),
        (two(), &[], Stated, false),
        (two(), &[], Certain, true),
    ] {
        let observed = listing(nodes.clone(), machines, completeness);
        assert_eq!(
            is_believed(&observed, "n-000"),
            expected,
            "{machines:?} {completeness:?} {}",
            nodes.len()
        );
    }
}

#[test]
fn what_the_provider_lacks_altogether_is_part_of_the_doubt() {
    let mut observed = listing(vec![draining(0, 0), node(1)], &[], Completeness::Stated);
    let why = "there is no MachineDeployment default/workers";
    let doubt = |observed: &Observed| match &plan(observed).nodes[0].absence {
        Absence::Doubtful(doubt) => doubt.clone(),
        Absence::Credible => panic!("an empty list is believed"),
    };
    assert!(doubt(&observed).starts_with("it lists none of the other 1 machines"), "{}", doubt(&observed));
    let reference = observed.pool.as_ref().unwrap().spec.provider.reference().unwrap();
    observed.supply.absent.insert(reference, why.to_owned());
    assert!(doubt(&observed).starts_with(&format!("{why}; it lists none")), "{}", doubt(&observed));
}

#[test]
fn machines_of_nodes_that_are_being_deleted_may_all_be_gone() {
    let observed = listing(vec![deleted(draining(0, 0)), deleted(draining(1, 0))], &[], Completeness::Stated);
    assert!(is_believed(&observed, "n-000") && is_believed(&observed, "n-001"));
}

#[test]
fn nothing_is_believed_of_a_provider_that_does_not_list_and_no_node_is_deleted_meanwhile() {
    let mut observed = listing(vec![draining(0, 0)], &[], Completeness::Stated);
    let made_by = |provider: &str, observed: &mut Observed| {
        let node = Arc::make_mut(&mut observed.nodes[0]);
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert(names::PROVIDER_LABEL.to_owned(), provider.to_owned());
    };
    observed.supply.unlisted.insert("exec.rack".to_owned(), "no route to host".to_owned());
    let mut unwanted = observed.clone();
    // While a pool has nodes of a former provider, nothing of it is removed, unless all of it is to go.
    Arc::make_mut(unwanted.pool.as_mut().unwrap()).metadata.deletion_timestamp = Some(Time(at(50)));
    let drained = pods([("n-000", vec![])]);
    let step = |observed: &Observed| plan_with(observed, &drained).nodes.remove(0).action;

    made_by("exec.rack", &mut observed);
    assert!(!is_believed(&observed, "n-000"));
    made_by("exec.rack", &mut unwanted);
    let waits = DrainStep::waits(Blocker::Provider("no route to host".to_owned()), true);
    assert_eq!(step(&unwanted), NodeAction::Drain(waits));

    made_by("exec.other", &mut observed);
    assert!(is_believed(&observed, "n-000"));
    made_by("exec.other", &mut unwanted);
    assert_eq!(step(&unwanted), NodeAction::Remove);
}

#[test]
fn nodes_that_the_operator_makes_are_their_machines() {
    let mut observed = listing(vec![draining(0, 0)], &[], Completeness::Unknown);
    observed.supply.source = Ok(NodeSource::Operator { provider_id_prefix: "kwok://" });
    assert!(is_believed(&observed, "n-000"));
}

/// A deleted node with a pod.
fn dead(status: &str) -> Node {
    let mut node = deleted(draining(0, 10));
    set_ready(&mut node, status);
    node
}

/// What happens to the first node of the pool, which has a pod.
fn action(observed: &Observed) -> NodeAction {
    plan_with(observed, &pods([("n-000", vec![pod("db")])])).nodes.remove(0).action
}

fn is_drained(action: &NodeAction) -> bool {
    matches!(action, NodeAction::Drain(DrainStep { evict, .. }) if evict.len() == 1)
}

#[test]
fn a_deleted_node_goes_at_once_whose_machine_is_gone_and_whose_kubelet_is_silent() {
    use Completeness::{Certain, Stated, Unknown};
    for (status, machines, completeness, is_gone) in [
        ("Unknown", &["n-001"][..], Unknown, true),
        ("Unknown", &[], Certain, true),
        // Its machine is listed: the node may be cut off with its pods running.
        ("Unknown", &["n-000", "n-001"], Stated, false),
        ("Unknown", &[], Stated, false),
        ("Unknown", &["of-another-cluster"], Unknown, false),
        // Its kubelet answers, so it runs.
        ("True", &["n-001"], Unknown, false),
        ("False", &["n-001"], Certain, false),
    ] {
        let action = action(&listing(vec![dead(status), node(1)], machines, completeness));
        assert_eq!(action == NodeAction::EndMachine, is_gone, "{status} {machines:?} {completeness:?}");
        assert_eq!(is_drained(&action), !is_gone, "{status} {machines:?} {completeness:?}: {action:?}");
    }
    assert_eq!(action(&listing(vec![dead("Unknown")], &[], Stated)), NodeAction::EndMachine);
}

#[test]
fn a_deleted_node_whose_machine_is_gone_goes_in_an_outage_too() {
    let mut observed = listing(vec![dead("Unknown"), node(1)], &["n-001"], Completeness::Unknown);
    observed.cluster_readiness = crate::ClusterReadiness { not_ready: 12, all: 20 };
    assert_eq!(action(&observed), NodeAction::EndMachine);
}

#[test]
fn a_machine_that_its_provider_was_seen_ending_is_gone_when_its_deleted_node_is_silent() {
    let mut leaves = draining(0, 10);
    set_ready(&mut leaves, "Unknown");
    let mut of_another = dead("Unknown");
    let labels = of_another.metadata.labels.get_or_insert_default();
    labels.insert(names::PROVIDER_LABEL.to_owned(), "exec.rack".to_owned());
    for (what, node, ending, is_gone) in [
        ("it was", dead("Unknown"), "n-000", true),
        ("its kubelet reports, so it was moved meanwhile", dead("True"), "n-000", false),
        ("its kubelet reports that it is not Ready", dead("False"), "n-000", false),
        ("its Node is not deleted", leaves, "n-000", false),
        ("another one was", dead("Unknown"), "n-001", false),
        ("a former provider made it", of_another, "n-000", false),
    ] {
        // As after the deletion of its namespace, and after `clusterctl move`.
        let mut observed = listing(vec![node], &[], Completeness::Unknown);
        observed.supply.seen_ending = [ending.to_owned()].into();
        assert_eq!(is_believed(&observed, "n-000"), is_gone, "{what}");
        assert_eq!(action(&observed) == NodeAction::EndMachine, is_gone, "{what}");
        observed.supply.seen_ending.clear();
        assert!(!is_believed(&observed, "n-000"), "none was seen: {what}");
    }
}

#[test]
fn a_machine_that_kubernetes_was_told_to_be_off_is_gone() {
    let mut off = dead("Unknown");
    let taint = Taint { key: names::OUT_OF_SERVICE_TAINT.to_owned(), ..Taint::default() };
    off.spec.get_or_insert_default().taints.get_or_insert_default().push(taint);
    for (node, expected) in [(off, true), (dead("Unknown"), false)] {
        assert_eq!(
            is_believed(&listing(vec![node], &[], Completeness::Unknown), "n-000"),
            expected,
            "{expected}"
        );
    }
}

#[test]
fn no_machine_is_taken_to_be_gone_without_the_list_of_the_provider_that_made_it() {
    let dead_one = || listing(vec![dead("Unknown"), node(1)], &["n-001"], Completeness::Unknown);
    assert_eq!(action(&dead_one()), NodeAction::EndMachine);
    let mut unknown = dead_one();
    unknown.supply.machines.clear();
    unknown.supply.is_unknown = true;
    unknown.supply.unlisted.insert("simulated".to_owned(), "no route to host".to_owned());
    let mut of_operator = dead_one();
    of_operator.supply.source = Ok(NodeSource::Operator { provider_id_prefix: "kwok://" });
    let mut of_another = dead_one();
    let labels = &mut Arc::make_mut(&mut of_another.nodes[0]).metadata.labels;
    labels.get_or_insert_default().insert(names::PROVIDER_LABEL.to_owned(), "exec.rack".to_owned());
    Arc::make_mut(of_another.pool.as_mut().unwrap()).metadata.deletion_timestamp =
        of_another.nodes[0].metadata.deletion_timestamp.clone();
    let mut foreign = dead_one();
    let annotations = Arc::make_mut(&mut foreign.nodes[0]).metadata.annotations.as_mut().unwrap();
    annotations.remove(names::TEMPLATE_HASH_ANNOTATION);
    for (what, observed) in [
        ("no list", unknown),
        ("the operator makes the Nodes", of_operator),
        ("made by another provider", of_another),
        ("not made for the pool", foreign),
    ] {
        let action = action(&observed);
        assert!(is_drained(&action), "{what}: {action:?}");
    }
}

#[test]
fn a_node_that_is_not_deleted_is_drained_although_its_machine_is_gone() {
    let mut node_that_leaves = draining(0, 10);
    set_ready(&mut node_that_leaves, "Unknown");
    let action = action(&listing(vec![node_that_leaves, node(1)], &["n-001"], Completeness::Unknown));
    assert!(is_drained(&action), "{action:?}");
}
