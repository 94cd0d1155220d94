//! Nodes that register themselves: when they become nodes of the pool, and what is written then.

use std::sync::Arc;

use json_patch::{Patch, PatchOperation};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::core::v1::{NodeSpec, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::SignedDuration;
use serde_json::json;
use shared_crds::names::{self, KUBELETS_LABELS};
use shared_crds::places::EXAMPLES;
use shared_crds::v1alpha1::{ExecProvider, NodePoolStatus, ProviderSpec, ProvisioningStatus};

use super::*;
use crate::after::outcome::{ActionOutcome, Applied, AppliedAction};
use crate::input::observed_time::{MachineTimes, NodeTime, NodeTimes};
use crate::input::supply::{KnownAs, Machine, MachineState, NodeSource, Size};
use crate::testing::{self, at, done, facts_after, key, node, observed, plan, pool, set_ready, with_action};

/// A pool of `replicas` whose machines register themselves, with these machines running under IDs `x://NAME`.
fn pool_of(replicas: i32, machines: &[&str]) -> Observed {
    let mut pool = pool(replicas);
    let exec = ExecProvider { name: "rack".into(), ..ExecProvider::default() };
    pool.spec.provider = ProviderSpec { exec: Some(exec), ..ProviderSpec::default() };
    let mut observed = observed(pool, []);
    observed.supply.source = Ok(NodeSource::Kubelet);
    let machine = |name: &&str| Machine {
        name: (*name).to_owned(),
        state: MachineState::Running,
        provider_id: Some(format!("x://{name}")),
        is_marked: false,
        template_hash: None,
        is_outdated: false,
        known_as: KnownAs::default(),
    };
    observed.supply.machines = machines.iter().map(machine).collect();
    observed
}

/// A Node as a kubelet registers it, for `machine`.
fn registered(name: &str, machine: &str) -> Arc<Node> {
    Arc::new(Node {
        metadata: ObjectMeta {
            name: Some(name.into()),
            uid: Some(format!("uid-{name}")),
            labels: Some([("kubernetes.io/arch".to_owned(), "arm64".to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec { provider_id: Some(format!("x://{machine}")), ..NodeSpec::default() }),
        ..Node::default()
    })
}

/// A node of the pool that no other provider is known to have made.
fn of_rack(index: usize) -> Node {
    let mut node = node(index);
    node.metadata.labels.as_mut().unwrap().remove(names::PROVIDER_LABEL);
    node
}

/// The node after its only join step.
fn joined(plan: &Plan) -> Node {
    let [step] = &plan.join[..] else { panic!("{:?}", plan.join) };
    let Patch(operations) = serde_json::from_value(step.patch.clone()).unwrap();
    let absent =
        |operation: &PatchOperation| matches!(operation, PatchOperation::Test(test) if test.value.is_null());
    let rest: Vec<_> = operations.into_iter().filter(|operation| !absent(operation)).collect();
    let mut json = serde_json::to_value(&*step.node).unwrap();
    json_patch::patch(&mut json, &rest).unwrap();
    serde_json::from_value(json).unwrap()
}

#[test]
fn a_node_joins_by_the_provider_id_of_a_machine_and_counts_all_the_time() {
    let mut observed = pool_of(1, &["m"]);
    let before = plan(&observed);
    assert!(before.join.is_empty() && before.request.is_empty() && before.register.is_empty());
    assert_eq!(before.requeue_at, Some(at(105)), "the provider may learn the provider ID later");

    observed.registered = vec![registered("host-7", "m")];
    let during = plan(&observed);
    assert!(during.request.is_empty() && during.withdraw.is_empty());
    let node = joined(&during);
    assert_eq!(node.metadata.finalizers, Some(vec![names::NODE_FINALIZER.to_owned()]));
    assert_eq!(PoolKey::of_node(&node), Some(key()));
    assert_eq!(names::machine_of(&node.metadata), Some("m"));
    let labels = node.metadata.labels.clone().unwrap();
    assert_eq!(labels[names::PROVIDER_LABEL], "exec.rack");
    let mut applied = done(&during);
    applied.record("host-7", AppliedAction::Join, ActionOutcome::Done);
    let facts = facts_after(&observed, &during, &applied);
    assert_eq!((facts.staying, facts.in_flight, facts.up_to_date), (1, 0, 1));

    observed.registered.clear();
    observed.nodes = vec![Arc::new(node)];
    let after = plan(&observed);
    assert!(after.join.is_empty() && after.request.is_empty() && after.withdraw.is_empty());
    assert_eq!(facts_after(&observed, &after, &done(&after)), facts);
}

#[test]
fn a_node_gets_the_labels_annotations_and_taints_of_the_template_and_keeps_its_own() {
    let mut observed = pool_of(1, &["m"]);
    let mut pool = (**observed.pool.as_ref().unwrap()).clone();
    pool.spec.template = serde_json::from_value(json!({
        "metadata": { "labels": { "tier": "gpu", "kubernetes.io/arch": "amd64" }, "annotations": { "note": "x" } },
        "spec": {
            "capacity": { "cpu": "4", "memory": "8Gi" },
            "taints": [{ "key": "gpu", "value": "yes", "effect": "NoSchedule" }, { "key": "a", "effect": "NoExecute" }],
            "startupTaints": [{ "key": "cni", "effect": "NoSchedule" }],
        },
    }))
    .unwrap();
    observed.pool = Some(Arc::new(pool));
    for (taints, expected) in [
        (None, vec!["gpu=yes", "a=", "cni="]),
        (Some(vec![("not-ready", ""), ("gpu", "no")]), vec!["not-ready=", "gpu=no", "a=", "cni="]),
    ] {
        let mut node = (*registered("n", "m")).clone();
        let taint = |(key, value): (&str, &str)| Taint {
            key: key.into(),
            value: Some(value.into()),
            effect: "NoSchedule".into(),
            time_added: None,
        };
        node.spec.as_mut().unwrap().taints = taints.map(|all| all.into_iter().map(taint).collect());
        observed.registered = vec![Arc::new(node)];
        let node = joined(&plan(&observed));
        let taints = node.spec.unwrap().taints.unwrap();
        let shown =
            taints.iter().map(|taint| format!("{}={}", taint.key, taint.value.clone().unwrap_or_default()));
        assert_eq!(shown.collect::<Vec<_>>(), expected);
        let labels = node.metadata.labels.unwrap();
        assert_eq!((&*labels["tier"], &*labels["kubernetes.io/arch"]), ("gpu", "arm64"));
        let annotations = node.metadata.annotations.unwrap();
        assert!(annotations["note"] == "x" && annotations.contains_key(names::TEMPLATE_HASH_ANNOTATION));
    }
}

#[test]
fn no_node_goes_in_place_of_a_surplus_one_that_is_about_to_join() {
    // Replicas, nodes, machines without a Node, and what goes.
    for (replicas, nodes, without_node, victims, withdrawn) in
        [(1, 1, 0, 0, 0), (1, 3, 0, 2, 0), (2, 1, 1, 0, 1), (1, 1, 1, 0, 1), (0, 2, 0, 2, 0)]
    {
        let names: Vec<String> = (0..without_node).map(|slot| format!("w-{slot}")).collect();
        let machines: Vec<&str> = names.iter().map(String::as_str).chain(["late"]).collect();
        let mut observed = pool_of(replicas, &machines);
        observed.nodes = (0..nodes).map(|index| Arc::new(of_rack(index))).collect();
        observed.registered = vec![registered("host-7", "late")];
        let plan = plan(&observed);
        let case = format!("{replicas} wanted, {nodes} nodes, {without_node} machines");
        assert_eq!(with_action(&plan, &NodeAction::Cordon).len(), victims, "{case}");
        assert_eq!((plan.withdraw.len(), plan.join.len()), (withdrawn, 1), "{case}");
    }
}

#[test]
fn a_machine_whose_node_has_registered_is_drained_and_not_withdrawn() {
    let mut observed = pool_of(0, &["m", "n"]);
    observed.registered = vec![registered("host-7", "m")];
    let plan = plan(&observed);
    assert_eq!((plan.withdraw, plan.join.len()), (vec!["n".to_owned()], 1));

    let mut node = (*registered("host-7", "m")).clone();
    let labels = node.metadata.labels.as_mut().unwrap();
    labels
        .extend(names::member_labels(&key().namespace, &key().name).map(|(key, value)| (key.into(), value)));
    labels.insert(names::MACHINE_LABEL.into(), "m".into());
    node.metadata.finalizers = Some(vec![names::NODE_FINALIZER.into()]);
    observed.registered.clear();
    observed.nodes = vec![Arc::new(node)];
    assert_eq!(with_action(&testing::plan(&observed), &NodeAction::Cordon), ["host-7"]);
}

#[test]
fn a_machine_that_two_nodes_claim_to_be_is_left_alone() {
    let mut observed = pool_of(0, &["m"]);
    observed.registered = vec![registered("a", "m"), registered("b", "m")];
    observed.machine_times = MachineTimes([("m".to_owned(), SignedDuration::from_hours(24))].into());
    let plan = plan(&observed);
    assert!(plan.join.is_empty() && plan.withdraw.is_empty() && plan.timed_out.is_empty());
}

#[test]
fn a_node_of_no_machine_of_the_pool_does_not_join() {
    let mut observed = pool_of(1, &["m"]);
    observed.registered = vec![registered("a", "other")];
    assert!(plan(&observed).join.is_empty());
    observed.supply.machines[0].state = MachineState::Deleting;
    observed.registered = vec![registered("a", "m")];
    let plan = plan(&observed);
    assert!(plan.join.is_empty(), "its machine is about to go");
    assert_eq!(plan.request.len(), 1, "and does not count");
    assert_ne!(plan.request, ["m"]);
}

#[test]
fn a_node_whose_machine_is_gone_is_replaced_after_a_minute_unless_the_list_is_empty() {
    let lost = |seconds: Option<i64>| {
        let mut observed = pool_of(1, &["other"]);
        let mut node = of_rack(0);
        set_ready(&mut node, "Unknown");
        let time = NodeTime { lost: seconds.map(SignedDuration::from_secs), ..NodeTime::default() };
        observed.times = NodeTimes([(node.metadata.uid.clone().unwrap(), time)].into());
        observed.nodes = vec![Arc::new(node)];
        observed
    };
    let mut observed = lost(Some(60));
    assert!(observed.lists_others_only(&observed.nodes[0]));
    assert_eq!(with_action(&plan(&observed), &NodeAction::ReplaceLost), ["n-000"]);
    for seconds in [None, Some(59)] {
        assert_eq!(with_action(&plan(&lost(seconds)), &NodeAction::ReplaceLost), [""; 0], "{seconds:?}");
    }
    assert_eq!(plan(&lost(Some(50))).requeue_at, Some(at(105)), "the machine in flight is asked for first");
    observed.supply.machines[0].name = "n-000".into();
    assert!(!observed.lists_others_only(&observed.nodes[0]));
    observed.supply.machines.clear();
    assert!(!observed.lists_others_only(&observed.nodes[0]), "an empty list says nothing");
    observed.supply = pool_of(1, &["other"]).supply;
    observed.supply.is_unknown = true;
    assert!(!observed.lists_others_only(&observed.nodes[0]));
}

#[test]
fn a_node_that_a_withdrawn_machine_leaves_is_deleted() {
    let mut observed = pool_of(0, &[]);
    observed.registered = vec![registered("a", "m")];
    observed.supply.deleted_ids = ["x://m".to_owned()].into();
    let plan = plan(&observed);
    assert_eq!((plan.left_over.len(), plan.join.len()), (1, 0));
}

#[test]
fn a_machine_that_never_registers_is_given_up_after_the_provisioning_timeout() {
    let waited = |seconds| MachineTimes([("m".to_owned(), SignedDuration::from_secs(seconds))].into());
    let mut observed = pool_of(1, &["m"]);
    observed.machine_times = waited(899);
    let before = plan(&observed);
    assert_eq!((before.timed_out, before.requeue_at), (vec![], Some(at(101))));
    observed.machine_times = waited(900);
    let after = plan(&observed);
    assert_eq!((after.timed_out, after.withdraw), (vec!["m".to_owned()], vec![]));

    // A Node that cannot be read may be the one of this machine.
    observed.may_be_hidden = true;
    assert!(plan(&observed).timed_out.is_empty());
    let mut pool = (**observed.pool.as_ref().unwrap()).clone();
    pool.spec.replicas = Some(0);
    observed.pool = Some(Arc::new(pool));
    assert!(plan(&observed).withdraw.is_empty());
    observed.may_be_hidden = false;
    observed.machine_times = waited(0);
    assert_eq!(plan(&observed).withdraw, ["m"]);
}

#[test]
fn a_machine_of_an_earlier_template_is_withdrawn_once_the_template_has_settled() {
    let of = |hash: Option<&str>, template: i64, machine: i64| {
        let mut seen = pool_of(1, &["m"]);
        seen.supply.machines[0].template_hash = hash.map(str::to_owned);
        seen.template_time = SignedDuration::from_secs(template);
        seen.machine_times = MachineTimes([("m".to_owned(), SignedDuration::from_secs(machine))].into());
        seen
    };
    let mut before = (**pool_of(1, &[]).pool.as_ref().unwrap()).clone();
    let own = before.spec.template_hash().unwrap();
    before.spec.template.spec.capacity.insert("cpu".into(), Quantity("8".into()));
    let earlier = before.spec.template_hash().unwrap();
    for (what, hash, template, machine, is_withdrawn) in [
        ("it is older than the template", Some(&*earlier), 60, 61, true),
        ("the template may change again", Some(&*earlier), 59, 899, false),
        ("it was asked for since", Some(&*earlier), 60, 60, false),
        ("it is of this template", Some(&*own), 60, 61, false),
        ("its hash is of another version", Some("v0-0123456789abcdef"), 60, 61, false),
        ("its provider does not say it", None, 60, 61, false),
    ] {
        let seen = of(hash, template, machine);
        let plan = plan(&seen);
        assert_eq!((plan.withdraw.len(), plan.request.len()), (usize::from(is_withdrawn), 0), "{what}");
        assert!(!is_withdrawn || plan.requeue_at == Some(at(101)), "{what}: {:?}", plan.requeue_at);
    }
    let is_kept = |change: fn(&mut Observed)| {
        let mut seen = of(Some(&earlier), 60, 61);
        change(&mut seen);
        plan(&seen).withdraw.is_empty()
    };
    assert!(is_kept(|seen| seen.supply.size = Some(Size { replicas: 1, generation: 1 })));
    assert!(is_kept(|seen| seen.may_be_hidden = true));
    assert!(is_kept(|seen| seen.supply.removals_wait = Some("it is being changed".to_owned())));
    // It makes room for another one when it is gone.
    let mut gone = of(Some(&earlier), 60, 61);
    gone.supply.machines[0].state = MachineState::Deleting;
    assert_eq!(plan(&gone).request.len(), 1);
}

#[test]
fn of_machines_that_are_too_many_those_of_an_earlier_template_go() {
    let mut seen = pool_of(1, &["m", "n"]);
    let mut before = (**seen.pool.as_ref().unwrap()).clone();
    before.spec.template.spec.capacity.insert("cpu".into(), Quantity("8".into()));
    seen.supply.machines[0].template_hash = before.spec.template_hash();
    let seconds = SignedDuration::from_secs;
    seen.template_time = seconds(60);
    seen.machine_times = MachineTimes([("m".to_owned(), seconds(61)), ("n".to_owned(), seconds(30))].into());
    let plan = plan(&seen);
    assert_eq!((plan.withdraw, plan.request.len()), (vec!["m".to_owned()], 0));
}

#[test]
fn one_machine_of_an_earlier_template_makes_room_and_the_others_when_a_node_of_the_present_one_has_come() {
    let mut seen = pool_of(4, &["m", "n", "o"]);
    let pool = (**seen.pool.as_ref().unwrap()).clone();
    let own = pool.spec.template_hash();
    let mut before = pool;
    before.spec.template.spec.capacity.insert("cpu".into(), Quantity("8".into()));
    for machine in &mut seen.supply.machines {
        machine.template_hash = before.spec.template_hash();
    }
    let seconds = SignedDuration::from_secs;
    seen.template_time = seconds(60);
    let times = [("m", 63), ("n", 62), ("o", 61)].map(|(name, time)| (name.to_owned(), seconds(time)));
    seen.machine_times = MachineTimes(times.into());
    assert_eq!(plan(&seen).withdraw, ["m"], "the present template has shown nothing yet");
    seen.supply.machines[0].template_hash = own.clone();
    seen.machine_times.0.insert("m".to_owned(), seconds(5));
    assert!(plan(&seen).withdraw.is_empty(), "one of it is on its way");
    let mut come = of_rack(1);
    testing::annotate(&mut come, names::TEMPLATE_HASH_ANNOTATION, &own.unwrap());
    seen.nodes.push(Arc::new(come));
    let mut withdrawn = plan(&seen).withdraw;
    withdrawn.sort();
    assert_eq!(withdrawn, ["n", "o"]);
}

#[test]
fn the_provider_is_asked_now_and_then_whether_its_machines_are_still_there() {
    let observed = pool_of(0, &[]);
    assert_eq!(plan(&observed).requeue_at, Some(at(160)));
    let mut starting = pool_of(1, &["m"]);
    for (until, next) in [(Some(at(130)), 130), (Some(at(90)), 105), (None, 105)] {
        starting.supply.machines[0].state = MachineState::Starting { until };
        assert_eq!(plan(&starting).requeue_at, Some(at(next)), "{until:?}");
    }
}

#[test]
fn a_pool_keeps_its_finalizer_while_a_machine_is_listed_or_may_still_come() {
    let deleted = |machines: &[&str]| {
        let mut observed = pool_of(0, machines);
        let mut pool = (**observed.pool.as_ref().unwrap()).clone();
        pool.metadata.deletion_timestamp = Some(Time(at(50)));
        observed.pool = Some(Arc::new(pool));
        observed
    };
    assert_eq!(plan(&deleted(&[])).pool, PoolStep::RemoveFinalizer);
    let mut ending = deleted(&["m"]);
    ending.supply.machines[0].state = MachineState::Deleting;
    let after = plan(&ending);
    assert_eq!((after.pool, after.requeue_at), (PoolStep::Keep, Some(at(105))));
    let mut uncertain = deleted(&[]);
    uncertain.supply.uncertain_until = Some(at(103));
    let after = plan(&uncertain);
    assert_eq!((after.pool, after.requeue_at), (PoolStep::Keep, Some(at(103))));
}

#[test]
fn nothing_is_made_or_removed_while_the_spec_names_another_provider_than_made_the_nodes() {
    let mut observed = pool_of(1, &["m"]);
    let mut member = node(0);
    member.metadata.labels.as_mut().unwrap().insert(names::PROVIDER_LABEL.into(), "simulated".into());
    observed.nodes = vec![Arc::new(member)];
    observed.supply.former = ["simulated".to_owned()].into();
    observed.registered = vec![registered("host-7", "m")];
    let frozen = plan(&observed);
    let invalid = frozen.stalled.unwrap().message;
    assert!(invalid.contains("to exec.rack while the pool has nodes or machines of simulated"), "{invalid}");
    assert!(frozen.join.is_empty() && frozen.withdraw.is_empty() && frozen.request.is_empty());
    assert!(frozen.nodes.iter().all(|step| step.action == NodeAction::Keep));

    let mut pool = (**observed.pool.as_ref().unwrap()).clone();
    pool.metadata.deletion_timestamp = Some(Time(at(50)));
    observed.pool = Some(Arc::new(pool));
    assert_eq!(with_action(&plan(&observed), &NodeAction::Cordon).len(), 1, "a deleted pool is drained");
}

#[test]
fn a_provider_with_more_machines_than_it_was_asked_for_lets_growth_wait() {
    let asked_for = |machines: i32, listed: usize| {
        let names: Vec<String> = (0..listed).map(|index| format!("m-{index}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut observed = pool_of(1, &names);
        let pool = Arc::make_mut(observed.pool.as_mut().unwrap());
        let provisioning = ProvisioningStatus { machines: Some(machines), ..ProvisioningStatus::default() };
        pool.status = Some(NodePoolStatus { provisioning: Some(provisioning), ..NodePoolStatus::default() });
        observed
    };
    let frozen = plan(&asked_for(0, 4));
    let stall = frozen.stalled.clone().unwrap();
    assert_eq!(stall.reason, Reason::TooManyMachines);
    assert!(stall.message.contains("lists 3 machines more than it was asked for"), "{}", stall.message);
    assert!(frozen.withdraw.is_empty() && frozen.request.is_empty() && frozen.join.is_empty());
    // It goes on when the pool wants them, and while no more come than a lost answer may bring.
    assert_eq!(plan(&asked_for(0, 3)).withdraw.len(), 2);
    // Those of a pool that was made smaller were asked for.
    assert_eq!(plan(&asked_for(4, 4)).withdraw.len(), 3);
    // A provider that keeps a number has it judged by its writer.
    let mut sized = asked_for(0, 4);
    sized.supply.size = Some(Size { replicas: 4, generation: 1 });
    assert_eq!(plan(&sized).stalled, None);
    // What was recorded stays until then, so that the next pass finds the same.
    let observed = asked_for(0, 4);
    let remembered = testing::facts(&observed).remembered(observed.pool.as_deref().unwrap());
    assert_eq!(remembered.unwrap().machines, Some(0));
    let observed = asked_for(4, 4);
    let remembered = testing::facts(&observed).remembered(observed.pool.as_deref().unwrap());
    assert_eq!(remembered.unwrap().machines, Some(1));
}

#[test]
fn machines_that_are_withdrawn_and_still_listed_as_they_were_are_not_taken_for_ones_that_were_not_asked_for()
{
    let names = ["m-0", "m-1", "m-2"];
    let mut observed = pool_of(0, &names);
    let with_record = |observed: &mut Observed, provisioning: ProvisioningStatus| {
        let pool = Arc::make_mut(observed.pool.as_mut().unwrap());
        pool.status = Some(NodePoolStatus { provisioning: Some(provisioning), ..NodePoolStatus::default() });
    };
    with_record(&mut observed, ProvisioningStatus { machines: Some(3), ..ProvisioningStatus::default() });
    for (outcome, expected) in [(ActionOutcome::Ending, 3), (ActionOutcome::Done, 0)] {
        let planned = plan(&observed);
        assert_eq!((planned.withdraw.len(), &planned.stalled), (3, &None));
        let mut applied = Applied::default();
        for name in &planned.withdraw {
            applied.record(name, AppliedAction::Withdraw, outcome.clone());
        }
        let facts = facts_after(&observed, &planned, &applied);
        let remembered = facts.remembered(observed.pool.as_deref().unwrap()).unwrap_or_default();
        assert_eq!((remembered.machines, facts.in_flight), (Some(expected), 0), "{outcome:?}");
        with_record(&mut observed, remembered);
    }
}

#[test]
fn the_node_of_a_machine_of_an_earlier_template_is_out_of_date() {
    let mut observed = pool_of(1, &["m"]);
    observed.supply.machines[0].template_hash = Some("v2-earlier".into());
    observed.registered = vec![registered("host-7", "m")];
    let node = joined(&plan(&observed));
    assert_eq!(node.metadata.annotations.as_ref().unwrap()[names::TEMPLATE_HASH_ANNOTATION], "v2-earlier");
    observed.registered.clear();
    observed.nodes = vec![Arc::new(node)];
    assert_eq!(testing::facts(&observed).rollout.map(|rollout| rollout.outdated), Some(1));
}

#[test]
fn a_node_that_says_where_or_what_its_machine_is_keeps_that_when_it_joins() {
    let labels = EXAMPLES.into_iter().chain(["kubernetes.io/hostname", "tier"]);
    for (label, own) in labels.flat_map(|label| [(label, Some("b")), (label, None)]) {
        let mut observed = pool_of(1, &["m"]);
        let pool = Arc::make_mut(observed.pool.as_mut().unwrap());
        let labels = &mut pool.spec.template.metadata.get_or_insert_default().labels;
        labels.insert(label.to_owned(), "a".to_owned());
        let mut node = registered("host-7", "m");
        let labels = Arc::make_mut(&mut node).metadata.labels.as_mut().unwrap();
        labels.extend(own.map(|own| (label.to_owned(), own.to_owned())));
        let before = labels.get(label).cloned();
        observed.registered = vec![node];
        let of_template = Some("a".to_owned());
        let expected = match label {
            "tier" => of_template,
            _ if KUBELETS_LABELS.contains(&label) => before,
            _ => before.or(of_template),
        };
        let joined = joined(&plan(&observed)).metadata.labels.unwrap();
        assert_eq!(joined.get(label), expected.as_ref(), "{label} {own:?}");
    }
}
