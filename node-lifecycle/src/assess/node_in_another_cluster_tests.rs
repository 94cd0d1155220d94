use k8s_openapi::api::core::v1::{NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;
use crate::input::observed_time::MachineTimes;
use crate::input::supply::{MachineState, NodeSource, Size};
use crate::testing::{facts, node, observed, plan, pool, set_ready, with_action};
use crate::{NodeAction, Plan, testing};

/// A pool of `replicas` with these nodes, and running machines without Nodes, seen so for `seconds`.
fn pool_of(replicas: i32, nodes: Vec<Node>, machines: &[&str], seconds: i64) -> Observed {
    let mut observed = observed(pool(replicas), nodes);
    observed.supply.source = Ok(NodeSource::Kubelet);
    let machine = |name: &&str| Machine {
        provider_id: Some(format!("x://{name}")),
        ..testing::machine(name, MachineState::Running)
    };
    observed.supply.machines = machines.iter().map(machine).collect();
    let waited = SignedDuration::from_secs(seconds);
    observed.machine_times = MachineTimes(machines.iter().map(|name| ((*name).to_owned(), waited)).collect());
    observed
}

/// The same where the provider has found the Node of the first machine, and keeps a number of machines.
fn with_node_reference(replicas: i32, nodes: Vec<Node>, machines: &[&str], seconds: i64) -> Observed {
    let mut observed = pool_of(replicas, nodes, machines, seconds);
    observed.supply.size = Some(Size { replicas: i32::try_from(machines.len()).unwrap(), generation: 1 });
    observed.supply.machines[0].known_as.node = Some("far".to_owned());
    observed
}

/// A Ready Node of no pool, under another provider ID.
fn stranger(name: &str, hostname: Option<&str>, address: Option<&str>) -> Arc<Node> {
    let mut node = Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(format!("uid-{name}")),
            labels: hostname.map(|host| [(HOSTNAME_LABEL.to_owned(), host.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec { provider_id: Some("k3s://host".to_owned()), ..NodeSpec::default() }),
        status: None,
    };
    set_ready(&mut node, "True");
    let address =
        address.map(|address| NodeAddress { type_: "InternalIP".to_owned(), address: address.to_owned() });
    let status: &mut NodeStatus = node.status.get_or_insert_default();
    status.addresses = address.map(|address| vec![address]);
    Arc::new(node)
}

fn removes(plan: &Plan) -> [usize; 3] {
    [plan.withdraw.len(), plan.timed_out.len(), with_action(plan, &NodeAction::Cordon).len()]
}

#[test]
fn a_machine_whose_node_its_provider_has_found_is_neither_withdrawn_nor_given_up() {
    assert_eq!(removes(&plan(&pool_of(0, vec![], &["m"], 5))), [1, 0, 0], "one without a Node anywhere");
    assert_eq!(removes(&plan(&pool_of(1, vec![], &["m"], 86_400))), [0, 1, 0]);
    for replicas in [0, 1] {
        let observed = with_node_reference(replicas, vec![], &["m"], 86_400);
        assert_eq!(removes(&plan(&observed)), [0, 0, 0], "{replicas} replicas");
    }
    let mut gone = with_node_reference(1, vec![], &["m"], 86_400);
    gone.pool = None;
    assert_eq!(removes(&plan(&gone)), [0, 0, 0]);
}

#[test]
fn no_other_node_goes_or_comes_in_the_place_of_such_a_machine() {
    let observed = with_node_reference(1, vec![node(0)], &["m"], 86_400);
    assert_eq!(removes(&plan(&observed)), [0, 0, 0]);
    let observed = with_node_reference(2, vec![node(0)], &["m"], 86_400);
    assert_eq!((removes(&plan(&observed)), plan(&observed).request.len()), ([0, 0, 0], 0));
    // It goes on with nodes that are here.
    assert_eq!(plan(&with_node_reference(3, vec![node(0)], &["m"], 86_400)).request.len(), 1);
    assert_eq!(removes(&plan(&with_node_reference(1, vec![node(0), node(1)], &["m"], 5))), [0, 0, 1]);
}

#[test]
fn where_all_nodes_are_elsewhere_no_more_machines_are_requested() {
    assert_eq!(plan(&pool_of(3, vec![], &["m"], 5)).request.len(), 2);
    assert_eq!(plan(&with_node_reference(3, vec![], &["m"], 5)).request.len(), 0);
}

#[test]
fn a_ready_node_under_another_id_that_has_the_name_or_an_address_of_a_machine_keeps_it() {
    let removed = |known_as: &[&str], node: Arc<Node>| {
        let mut observed = pool_of(0, vec![], &["m"], 86_400);
        observed.supply.machines[0].known_as.addresses = known_as.iter().map(ToString::to_string).collect();
        observed.lookalikes = vec![node];
        plan(&observed).withdraw.len() + plan(&observed).timed_out.len()
    };
    assert_eq!(removed(&[], stranger("m", None, None)), 0);
    assert_eq!(removed(&[], stranger("ip-10", Some("m"), None)), 0);
    assert_eq!(removed(&["10.0.0.7"], stranger("ip-10", None, Some("10.0.0.7"))), 0);
    assert_eq!(removed(&["10.0.0.8"], stranger("ip-10", None, Some("10.0.0.7"))), 1);
    let mut silent = (*stranger("m", None, None)).clone();
    set_ready(&mut silent, "Unknown");
    assert_eq!(removed(&[], Arc::new(silent)), 1, "nothing runs there any more");
}

#[test]
fn it_is_said_after_a_minute_with_both_provider_ids() {
    assert_eq!(facts(&with_node_reference(1, vec![], &["m"], 59)).elsewhere, None);
    let said = facts(&with_node_reference(1, vec![], &["m"], 60)).elsewhere.unwrap();
    assert!(said.contains("x://m") && said.contains("Node far") && said.contains("no such Node"), "{said}");
    let mut observed = pool_of(1, vec![], &["m", "o"], 60);
    observed.lookalikes = vec![stranger("m", None, None)];
    let said = facts(&observed).elsewhere.unwrap();
    assert!(
        said.contains("x://m") && said.contains("k3s://host") && said.contains("--provider-id"),
        "{said}"
    );
}
