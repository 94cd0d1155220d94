use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use shared_crds::names;

use super::*;
use crate::plan::supply::MachineState;
use crate::plan::testing::{deleted, draining, machine, node, observed, plan, pool};

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
    made_by("exec.rack", &mut observed);
    assert!(!is_believed(&observed, "n-000"));
    made_by("exec.other", &mut observed);
    assert!(is_believed(&observed, "n-000"));
}

#[test]
fn nodes_that_the_operator_makes_are_their_machines() {
    let mut observed = listing(vec![draining(0, 0)], &[], Completeness::Unknown);
    observed.supply.source = Ok(NodeSource::Operator { provider_id_prefix: "kwok://" });
    assert!(is_believed(&observed, "n-000"));
}
