//! Which nodes leave, how they are drained, and when their pool lets them go, case by case.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use shared_crds::protection::DO_NOT_DISRUPT;
use shared_crds::v1alpha1::{
    AutoscalingStatus, DrainSpec, DrainTimeoutAction, NodePoolStatus, ProtectedNodes, ScaleDownPlan,
};
use shared_crds::{NodePool, names};

use super::*;
use crate::after::outcome::Applied;
use crate::input::supply::MachineState;
use crate::testing::{
    SOON, actions, annotate, at, deleted, draining, facts_after, machine, node, nodes, observed, plan,
    plan_with, pod, pods, pool, set_ready, starting, with_action,
};

fn named_victims(replicas: i32, nodes: &[&str]) -> NodePool {
    let mut pool = pool(replicas);
    pool.status = Some(NodePoolStatus {
        autoscaling: Some(AutoscalingStatus {
            scale_down: Some(ScaleDownPlan {
                decision_id: "d".into(),
                generation: pool.metadata.generation,
                target_replicas: replicas,
                nodes: nodes.iter().map(|&name| name.to_owned()).collect(),
                node_uids: nodes.iter().map(|&name| format!("uid-{name}")).collect(),
            }),
            ..AutoscalingStatus::default()
        }),
        ..NodePoolStatus::default()
    });
    pool
}

/// Records the writer of the pool's replica count in `managedFields`, as the API server does.
fn written_by(pool: &mut NodePool, manager: &str) {
    let entry = json!({ "manager": manager, "fieldsV1": { "f:spec": { "f:replicas": {} } } });
    pool.metadata.managed_fields = Some(vec![serde_json::from_value(entry).unwrap()]);
}

#[test]
fn the_nodes_that_the_autoscaler_named_are_removed_and_no_other() {
    let observed = observed(named_victims(2, &["n-001", "n-000"]), nodes(4));
    assert_eq!(with_action(&plan(&observed), &NodeAction::Cordon), ["n-000", "n-001"]);
    // Only whether they ask to be left alone is looked at.
    let named = PodReads { undecided: ["n-000", "n-001"].map(str::to_owned).into(), ..PodReads::default() };
    assert_eq!(classify(&observed).reads, named);
}

#[test]
fn a_named_node_that_asks_to_be_left_alone_stays_and_no_other_one_goes_instead() {
    let mut protected = pod("p");
    protected.metadata.annotations = Some([(DO_NOT_DISRUPT.to_owned(), "true".to_owned())].into());
    let observed = observed(named_victims(2, &["n-001", "n-000"]), nodes(4));
    let plan = plan_with(&observed, &pods([("n-000", vec![protected]), ("n-001", vec![])]));
    assert_eq!(with_action(&plan, &NodeAction::Cordon), ["n-001"]);
    assert_eq!((plan.held.len(), plan.protected.len()), (1, 1));
}

#[test]
fn named_nodes_are_ignored_at_another_count() {
    let mut pool = named_victims(2, &["n-000"]);
    pool.spec.replicas = Some(3);
    let mut nodes = nodes(4);
    nodes[3].metadata.creation_timestamp = Some(Time(at(90)));
    assert_eq!(with_action(&plan(&observed(pool, nodes)), &NodeAction::Cordon), ["n-003"]);
}

#[test]
fn at_most_the_excess_is_removed_however_many_are_named() {
    let plan = plan(&observed(named_victims(3, &["n-002", "n-001", "gone"]), nodes(4)));
    assert_eq!(with_action(&plan, &NodeAction::Cordon), ["n-002"]);
}

#[test]
fn a_newer_node_of_a_listed_name_is_not_the_listed_node() {
    let pool = named_victims(1, &["n-000"]);
    let mut nodes = nodes(2);
    nodes[0].metadata.uid = Some("another".into());
    nodes[1].metadata.creation_timestamp = Some(Time(at(60)));
    assert_eq!(with_action(&plan(&observed(pool, nodes)), &NodeAction::Cordon), ["n-001"]);
}

#[test]
fn named_nodes_are_ignored_where_another_writer_set_the_count() {
    for (writer, gone) in [("kubectl", "n-001"), (names::AUTOSCALER_OPERATOR, "n-000")] {
        let mut pool = named_victims(1, &["n-000"]);
        written_by(&mut pool, writer);
        let mut nodes = nodes(2);
        nodes[1].metadata.creation_timestamp = Some(Time(at(60)));
        assert_eq!(with_action(&plan(&observed(pool, nodes)), &NodeAction::Cordon), [gone], "{writer}");
    }
}

#[test]
fn a_list_whose_count_is_not_written_yet_orders_removals_at_its_authors_count() {
    for (writer, gone) in [("autoscaler-operator", "n-001"), ("kubectl", "n-002")] {
        let mut pool = named_victims(1, &["n-001", "n-000"]);
        pool.spec.replicas = Some(2);
        pool.metadata.generation = Some(0);
        written_by(&mut pool, writer);
        assert_eq!(
            with_action(&plan(&observed(pool.clone(), nodes(3))), &NodeAction::Cordon),
            [gone],
            "{writer}"
        );
        assert!(actions(&plan(&observed(pool, nodes(2)))).is_empty(), "{writer}: no more than are too many");
    }
}

#[test]
fn requests_are_withdrawn_before_nodes_that_are_named_for_the_next_count_only() {
    for (generation, replicas, gone) in [(1, 2, vec!["n-000"]), (0, 3, vec![])] {
        let mut pool = named_victims(2, &["n-000"]);
        (pool.spec.replicas, pool.metadata.generation) = (Some(replicas), Some(generation));
        written_by(&mut pool, names::AUTOSCALER_OPERATOR);
        let present = usize::try_from(replicas).unwrap();
        let mut observed = observed(pool, nodes(present));
        observed.supply.machines = vec![machine("m", SOON)];
        let plan = plan(&observed);
        assert_eq!(with_action(&plan, &NodeAction::Cordon), gone, "at {replicas}");
        assert_eq!(plan.withdraw.is_empty(), !gone.is_empty(), "at {replicas}");
    }
}

#[test]
fn while_the_pool_rolls_named_nodes_go_first_and_those_of_them_that_are_out_of_date_before_the_others() {
    use DisruptionReason::{Rollout, ScaleDown};
    let gone = |named: &[&str], old: usize, new: &[usize]| {
        let mut pool = named_victims(3, named);
        pool.spec.template.spec.capacity.insert("cpu".into(), Quantity("8".into()));
        let hash = pool.spec.template_hash().unwrap();
        let fresh = |index: &usize| {
            let mut node = node(*index);
            annotate(&mut node, names::TEMPLATE_HASH_ANNOTATION, &hash);
            node
        };
        let plan = plan(&observed(pool, nodes(old).into_iter().chain(new.iter().map(fresh))));
        assert!(plan.request.is_empty());
        let causes = plan.nodes.iter().filter_map(|step| Some((step.member.name().to_owned(), step.cause?)));
        causes.collect::<Vec<_>>()
    };
    let expected = |all: &[(&str, DisruptionReason)]| -> Vec<_> {
        all.iter().map(|(name, reason)| ((*name).to_owned(), *reason)).collect()
    };
    // Three and one more may be there: what is above that is too many, and another one goes for the rollout.
    let both = ["n-010", "n-001"];
    assert_eq!(gone(&both, 4, &[10]), expected(&[("n-001", ScaleDown), ("n-003", Rollout)]));
    let all = [("n-001", ScaleDown), ("n-003", Rollout), ("n-010", ScaleDown)];
    assert_eq!(gone(&both, 4, &[10, 11]), expected(&all), "three stay");
    assert_eq!(gone(&["n-000"], 4, &[]), expected(&[("n-000", Rollout)]), "none is too many");
}

#[test]
fn without_names_not_ready_nodes_are_removed_first_then_empty_ones_then_the_newest() {
    let mut all = nodes(5);
    set_ready(&mut all[1], "Unknown");
    all[4].metadata.creation_timestamp = Some(Time(at(70)));
    all[3].metadata.creation_timestamp = Some(Time(at(60)));
    let names: Vec<String> = all.iter().filter_map(|node| node.metadata.name.clone()).collect();
    let observed = observed(pool(2), all);
    assert_eq!(with_action(&plan(&observed), &NodeAction::Cordon), ["n-001", "n-003", "n-004"]);
    assert_eq!(classify(&observed).reads.undecided, names.iter().cloned().collect());
    let of = |name: &String| if name == "n-000" { vec![] } else { vec![pod("p")] };
    let pods = pods(names.iter().map(|name| (name.as_str(), of(name))));
    assert_eq!(with_action(&plan_with(&observed, &pods), &NodeAction::Cordon), ["n-000", "n-001", "n-004"]);
}

#[test]
fn of_nodes_that_are_equally_old_the_highest_slot_is_removed_first() {
    // An API server's times have whole seconds.
    let mut all = nodes(3);
    all[1].metadata.name = Some("n-0010".into());
    assert_eq!(with_action(&plan(&observed(pool(2), all.clone())), &NodeAction::Cordon), ["n-0010"]);
    assert_eq!(with_action(&plan(&observed(pool(1), all)), &NodeAction::Cordon), ["n-0010", "n-002"]);
}

#[test]
fn nodes_that_a_user_cordoned_are_removed_after_not_ready_ones_and_before_all_others() {
    let mut all = nodes(4);
    set_ready(&mut all[0], "Unknown");
    all[1].spec.as_mut().unwrap().unschedulable = Some(true);
    all[3].metadata.creation_timestamp = Some(Time(at(70)));
    assert_eq!(with_action(&plan(&observed(pool(2), all.clone())), &NodeAction::Cordon), ["n-000", "n-001"]);
    assert_eq!(with_action(&plan(&observed(pool(3), all)), &NodeAction::Cordon), ["n-000"]);
}

#[test]
fn a_node_that_asks_to_be_left_alone_stays_or_goes_last_unless_it_is_deleted_itself() {
    let mut protected_pod = pod("p");
    protected_pod.metadata.annotations = Some([(DO_NOT_DISRUPT.to_owned(), "true".to_owned())].into());
    let of_nodes = pods([
        ("n-000", vec![]),
        ("n-001", vec![]),
        ("n-002", vec![protected_pod.clone()]),
        ("n-003", vec![]),
    ]);
    let with = |policy, replicas| {
        let mut pool = pool(replicas);
        pool.spec.drain = Some(DrainSpec { protected_nodes: policy, ..DrainSpec::default() });
        let mut all = nodes(4);
        annotate(&mut all[3], "cluster-autoscaler.kubernetes.io/scale-down-disabled", "true");
        observed(pool, all)
    };
    for (policy, replicas, expected, held) in [
        (ProtectedNodes::Wait, 3, vec!["n-001"], 0),
        (ProtectedNodes::Wait, 1, vec!["n-000", "n-001"], 1),
        (ProtectedNodes::Wait, 0, vec!["n-000", "n-001"], 2),
        (ProtectedNodes::Last, 2, vec!["n-000", "n-001"], 0),
        (ProtectedNodes::Last, 1, vec!["n-000", "n-001", "n-003"], 0),
        (ProtectedNodes::Last, 0, vec!["n-000", "n-001", "n-002", "n-003"], 0),
    ] {
        let observed = with(policy, replicas);
        let plan = plan_with(&observed, &of_nodes);
        assert_eq!(with_action(&plan, &NodeAction::Cordon), expected, "{policy:?} {replicas}");
        assert_eq!((plan.held.len(), plan.requeue_at.is_some()), (held, held > 0), "{policy:?} {replicas}");
    }
    // Whose pods cannot be listed is not removed either. With its pool it goes last, and at once where no pod is left on it.
    let unread = plan_with(&with(ProtectedNodes::Wait, 2), &pods([]));
    assert!(with_action(&unread, &NodeAction::Cordon).is_empty());
    assert!(unread.held.iter().any(|(_, why)| why.contains("cannot be listed")), "{:?}", unread.held);
    let mut gone = with(ProtectedNodes::Wait, 3);
    Arc::make_mut(gone.pool.as_mut().unwrap()).metadata.deletion_timestamp = Some(Time(at(90)));
    let gone = plan_with(&gone, &of_nodes);
    assert_eq!(with_action(&gone, &NodeAction::Cordon), ["n-000", "n-001", "n-003"]);
    assert_eq!(gone.held.iter().map(|(node, _)| &**node).collect::<Vec<_>>(), ["n-002"]);

    // One that is draining already keeps the pod, until it is told to go itself.
    let leaving = |node: Node| {
        let plan = plan_with(&observed(pool(0), [node]), &pods([("n-000", vec![protected_pod.clone()])]));
        let [(_, NodeAction::Drain(DrainStep { evict, blockers, .. }))] = &actions(&plan)[..] else {
            panic!("{plan:?}")
        };
        (evict.len(), blockers.len())
    };
    assert_eq!(leaving(draining(0, 10)), (0, 1));
    assert_eq!(leaving(deleted(draining(0, 10))), (1, 0));
}

#[test]
fn a_node_that_was_given_back_rests_as_long_as_its_drain_took_and_no_other_one_goes_instead() {
    let mut pool = pool(1);
    let drain = DrainSpec {
        timeout_seconds: Some(60),
        on_timeout: DrainTimeoutAction::GiveBack,
        ..DrainSpec::default()
    };
    pool.spec.drain = Some(drain);
    let mut all = nodes(2);
    annotate(&mut all[1], names::GIVEN_BACK_ANNOTATION, &at(50).to_string());
    let mut observed = observed(pool, all);
    let rests = plan(&observed);
    assert!(actions(&rests).is_empty(), "{:?}", actions(&rests));
    assert_eq!(rests.requeue_at, Some(at(110)));
    let facts = facts_after(&observed, &rests, &Applied::default());
    assert_eq!((facts.given_back.as_slice(), facts.all_ready()), (&["n-001".to_owned()][..], true));
    observed.now = at(110);
    assert_eq!(with_action(&plan(&observed), &NodeAction::Cordon), ["n-001"]);
    // When it is wanted again, nothing is left of that.
    observed.now = at(100);
    Arc::make_mut(observed.pool.as_mut().unwrap()).spec.replicas = Some(2);
    assert_eq!(with_action(&plan(&observed), &NodeAction::Tidy), ["n-001"]);
    Arc::make_mut(observed.pool.as_mut().unwrap()).spec.replicas = Some(1);
    // A pool that is deleted, or no longer gives nodes back, waits for nothing.
    observed.now = at(100);
    let pool = Arc::make_mut(observed.pool.as_mut().unwrap());
    pool.spec.drain.as_mut().unwrap().on_timeout = DrainTimeoutAction::Force;
    assert_eq!(with_action(&plan(&observed), &NodeAction::Cordon), ["n-001"]);
}

#[test]
fn an_empty_node_that_was_just_cordoned_is_visited_again_when_it_may_be_removed() {
    let mut observed = observed(pool(0), [draining(0, 99)]);
    let empty = pods([("n-000", vec![])]);
    let waits = plan_with(&observed, &empty);
    assert_eq!(actions(&waits), [("n-000".to_owned(), NodeAction::Drain(DrainStep::default()))]);
    assert_eq!(Applied::default().next_visit(&waits, at(100)), Some(at(101)));
    observed.now = at(101);
    assert_eq!(actions(&plan_with(&observed, &empty)), [("n-000".to_owned(), NodeAction::Remove)]);
}

#[test]
fn a_drain_is_cancelled_when_the_node_is_wanted_again() {
    let observed = observed(pool(2), [draining(0, 10), draining(1, 20), deleted(draining(2, 30))]);
    let plan = plan_with(&observed, &pods(["n-000", "n-001", "n-002"].map(|name| (name, vec![pod("p")]))));
    assert_eq!(with_action(&plan, &NodeAction::Uncordon), ["n-000", "n-001"]);
    assert!(plan.request.is_empty());
}

#[test]
fn the_drain_that_started_last_is_cancelled_first() {
    let plan = plan(&observed(pool(1), [draining(0, 10), draining(1, 20)]));
    assert_eq!(with_action(&plan, &NodeAction::Uncordon), ["n-001"]);
}

#[test]
fn a_deleted_node_is_drained_and_replaced() {
    let plan = plan(&observed(pool(2), [deleted(node(0)), node(1)]));
    assert_eq!(actions(&plan), [("n-000".to_owned(), NodeAction::Cordon)]);
    assert_eq!(plan.request.len(), 1);
}

#[test]
fn a_node_is_removed_once_its_pods_are_gone() {
    let observed = observed(pool(1), [draining(0, 10), node(1)]);
    assert_eq!(with_action(&plan(&observed), &NodeAction::Remove), Vec::<String>::new());
    let empty = plan_with(&observed, &pods([("n-000", vec![])]));
    assert_eq!(actions(&empty), [("n-000".to_owned(), NodeAction::Remove)]);
}

#[test]
fn a_recent_list_saves_a_read_unless_the_node_would_be_removed_on_it() {
    let mut observed = observed(pool(1), [draining(0, 10), draining(1, 10), draining(2, 10), node(3)]);
    observed.recent = pods([("n-000", vec![]), ("n-001", vec![pod("p")]), ("n-003", vec![])]);
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let reads =
        PodReads { recent: names(&["n-001"]), draining: names(&["n-000", "n-002"]), ..PodReads::default() };
    assert_eq!(classify(&observed).reads, reads);
    observed.pool = Some(Arc::new(pool(4)));
    assert_eq!(classify(&observed).reads, PodReads::default(), "all drains are cancelled");
}

#[test]
fn the_finalizers_that_keep_a_node_are_named_also_where_the_clock_was_set_back_after_its_deletion() {
    let mut foreign = deleted(draining(0, 10));
    foreign.metadata.finalizers = Some(vec!["example.com/x".into()]);
    foreign.metadata.deletion_timestamp = Some(Time(at(3700)));
    let waits = plan_with(&observed(pool(0), [foreign]), &pods([("n-000", vec![])]));
    let step = DrainStep::waits(Blocker::Finalizers(vec!["example.com/x".into()]), false);
    assert_eq!(actions(&waits), [("n-000".to_owned(), NodeAction::Drain(step))]);
}

#[test]
fn a_deleted_node_with_foreign_finalizers_only_is_drained_and_then_waits() {
    let mut foreign = deleted(draining(0, 10));
    foreign.metadata.finalizers = Some(vec!["example.com/x".into()]);
    foreign.metadata.deletion_timestamp = Some(Time(at(90)));
    let mut observed = observed(pool(0), [foreign]);
    for (now, is_ordinary) in [(149, true), (150, false)] {
        observed.now = at(now);
        let step = DrainStep::waits(Blocker::Finalizers(vec!["example.com/x".into()]), is_ordinary);
        let waits = plan_with(&observed, &pods([("n-000", vec![])]));
        assert_eq!(actions(&waits), [("n-000".to_owned(), NodeAction::Drain(step))], "at {now}");
        assert_eq!(
            Applied::default().next_visit(&waits, at(now)),
            Some(at(now + 30)),
            "an event says when it is gone"
        );
    }
    // The client that ends its machine keeps it meanwhile.
    observed.supply.machines = vec![machine("n-000", MachineState::Deleting)];
    let ending = plan_with(&observed, &pods([("n-000", vec![])]));
    assert_eq!(actions(&ending), [("n-000".to_owned(), NodeAction::Wait)]);
}

#[test]
fn a_drain_timeout_of_zero_means_no_limit() {
    let mut pool = pool(0);
    pool.spec.drain = Some(DrainSpec { timeout_seconds: Some(0), ..DrainSpec::default() });
    let plan = plan_with(&observed(pool, [draining(0, 10)]), &pods([("n-000", vec![pod("p")])]));
    assert!(matches!(actions(&plan)[0].1, NodeAction::Drain(_)));
}

#[test]
fn a_pool_being_deleted_drains_every_node_and_loses_its_finalizer_last() {
    let mut pool = pool(3);
    pool.metadata.deletion_timestamp = Some(Time(at(90)));
    let mut busy = observed(pool.clone(), nodes(2));
    busy.supply.machines = vec![machine("m", SOON)];
    let plan_busy = plan(&busy);
    assert_eq!(with_action(&plan_busy, &NodeAction::Cordon).len(), 2);
    assert_eq!((plan_busy.pool, plan_busy.withdraw.len()), (PoolStep::Keep, 1));
    assert_eq!(plan(&observed(pool, [])).pool, PoolStep::RemoveFinalizer);
}

#[test]
fn a_pool_keeps_its_finalizer_while_a_machine_of_it_is_listed_or_the_machines_are_not_known() {
    let mut pool = pool(1);
    pool.metadata.deletion_timestamp = Some(Time(at(90)));
    let mut observed = observed(pool, []);
    observed.supply.machines = vec![machine("m", SOON)];
    let first = plan(&observed);
    assert_eq!((first.pool, &first.withdraw[..]), (PoolStep::Keep, &["m".to_owned()][..]));
    observed.supply.machines.clear();
    observed.supply.is_unknown = true;
    assert_eq!(plan(&observed).pool, PoolStep::Keep);
    observed.supply.is_unknown = false;
    assert_eq!(plan(&observed).pool, PoolStep::RemoveFinalizer);
}

#[test]
fn a_node_without_the_finalizer_gets_it_before_it_leaves() {
    let without = |mut node: Node| {
        node.metadata.finalizers = None;
        node
    };
    let excess = plan(&observed(pool(0), [without(node(0)), node(1)]));
    assert_eq!(
        actions(&excess),
        [("n-000".to_owned(), NodeAction::Adopt), ("n-001".to_owned(), NodeAction::Cordon)]
    );
    let mut observed = observed(pool(1), [without(starting(0))]);
    observed.now = at(10_000);
    let late = plan_with(&observed, &pods([("n-000", vec![])]));
    assert_eq!(actions(&late), [("n-000".to_owned(), NodeAction::Adopt)]);
    assert!(late.request.is_empty(), "it still counts");
}

#[test]
fn a_node_that_stays_although_a_rule_would_remove_it_says_why() {
    let mut silent = node(0);
    set_ready(&mut silent, "Unknown");
    let unhealthy = plan(&observed(pool(2), [silent, node(1)]));
    let why = unhealthy.nodes[0].waits.as_deref().unwrap();
    assert!(why.starts_with("is unhealthy (Ready is Unknown since"), "{why}");
    assert_eq!(
        (unhealthy.nodes[0].action.clone(), unhealthy.nodes[1].waits.as_deref()),
        (NodeAction::Keep, None)
    );

    let mut pool = pool(0);
    pool.spec.drain = Some(DrainSpec { protected_nodes: ProtectedNodes::Wait, ..DrainSpec::default() });
    let mut all = nodes(2);
    annotate(&mut all[1], "cluster-autoscaler.kubernetes.io/scale-down-disabled", "true");
    let too_many = plan_with(&observed(pool, all), &pods([("n-000", vec![])]));
    assert_eq!(with_action(&too_many, &NodeAction::Cordon), ["n-000"]);
    let why = too_many.nodes[1].waits.as_deref().unwrap();
    assert!(why.contains("has the annotation"), "{why}");
    assert_eq!(too_many.nodes[0].waits, None);
}
