//! What the conditions say after a pass in which something was left alone.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use node_lifecycle::Observed;
use node_lifecycle::outcome::Applied;
use node_lifecycle::testing::{
    annotate, at, deleted, done, facts, facts_after, node, nodes, observed, plan_with, pod, pods, pool,
    pool_with, protect_pod, slot, starting,
};
use shared_crds::conditions::{ConditionType, Reason};
use shared_crds::names;
use shared_crds::v1alpha1::{DrainSpec, ProtectedNodes};

use super::statements;

#[test]
fn the_conditions_name_the_unreadable_node_and_what_waits_for_it() {
    use ConditionType::{Ready, Reconciling, ReplicasClamped, Stalled};
    let reported = |observed: &Observed, type_| {
        let (pool, facts) = (observed.pool.as_deref().unwrap(), facts(observed));
        let all = statements(pool, &facts, &Applied::default());
        let one = all.into_iter().find(|statement| statement.type_ == type_).unwrap();
        (one.status, one.reason, one.message)
    };
    let cannot = format!("cannot read node {}", slot(0));
    let whole = pool_with(Some(3), 2, 1);
    let (_, reason, message) = reported(&whole, Ready);
    assert_eq!(
        (reason, message.as_str()),
        (Reason::Unreadable, "2 of 3 nodes are ready, 1 unreadable"),
        "nothing is being made"
    );
    for (type_, status) in [(Reconciling, false), (Stalled, true)] {
        let (is, reason, message) = reported(&whole, type_);
        assert_eq!((is, reason), (Some(status), Reason::Unreadable));
        assert!(message.contains(&cannot), "{message}");
    }
    let (_, reason, message) = reported(&pool_with(None, 1, 2), ReplicasClamped);
    assert_eq!(reason, Reason::ReplicasUnset);
    assert!(
        message.contains("not filled in") && message.contains(&format!("{cannot} (and 1 more)")),
        "{message}"
    );

    let mut deleted = pool_with(Some(1), 0, 1);
    Arc::make_mut(deleted.pool.as_mut().unwrap()).metadata.deletion_timestamp = Some(Time(deleted.now));
    let (_, reason, message) = reported(&deleted, Reconciling);
    assert!(reason == Reason::Deleting && message.contains(&cannot), "{message}");
    assert!(reported(&deleted, Ready).2.ends_with("1 node left"));

    let (growing, reason, message) = reported(&pool_with(Some(3), 1, 1), Reconciling);
    assert_eq!((growing, reason), (Some(true), Reason::Provisioning));
    assert!(message.contains("1 unreadable"), "{message}");
    assert_eq!(reported(&pool_with(Some(2), 2, 0), Stalled).0, Some(false));
}

#[test]
fn a_paused_pool_says_that_its_deletion_waits() {
    let mut pool = pool(5);
    pool.spec.paused = true;
    pool.metadata.deletion_timestamp = Some(Time(at(90)));
    pool.metadata.finalizers = Some(vec![names::POOL_FINALIZER.into()]);
    let observed = observed(pool.clone(), [node(0), deleted(node(1)), starting(2)]);
    let reported = statements(&pool, &facts(&observed), &Applied::default());
    let reconciling = reported.iter().find(|s| s.reason == Reason::Paused).unwrap();
    assert!(reconciling.message.contains("the deletion of the pool waits"), "{}", reconciling.message);
}

#[test]
fn a_node_that_stays_because_it_asks_to_be_left_alone_is_named() {
    let mut protected_pod = pod("p");
    protect_pod(&mut protected_pod);
    let of_nodes =
        pods([("n-000", vec![]), ("n-001", vec![]), ("n-002", vec![protected_pod]), ("n-003", vec![])]);
    for (policy, replicas, held) in [
        (ProtectedNodes::Wait, 3, 0),
        (ProtectedNodes::Wait, 1, 1),
        (ProtectedNodes::Wait, 0, 2),
        (ProtectedNodes::Last, 2, 0),
        (ProtectedNodes::Last, 1, 0),
        (ProtectedNodes::Last, 0, 0),
    ] {
        let mut pool = pool(replicas);
        pool.spec.drain = Some(DrainSpec { protected_nodes: policy, ..DrainSpec::default() });
        let mut all = nodes(4);
        annotate(&mut all[3], "cluster-autoscaler.kubernetes.io/scale-down-disabled", "true");
        let observed = observed(pool, all);
        let plan = plan_with(&observed, &of_nodes);
        let said = statements(
            observed.pool.as_deref().unwrap(),
            &facts_after(&observed, &plan, &Applied::default()),
            &Applied::default(),
        );
        let is_named = said.iter().any(|it| it.message.contains(" stays, because it has"));
        assert_eq!(is_named, held > 0, "{policy:?} {replicas}");
    }
}

#[test]
fn a_pool_that_is_deleted_says_how_many_nodes_leave_now_and_what_the_others_wait_for() {
    let mut pool = pool(3);
    pool.metadata.deletion_timestamp = Some(Time(at(90)));
    let observed = observed(pool.clone(), nodes(3));
    let busy = pods(["n-000", "n-001", "n-002"].map(|name| (name, vec![pod("p")])));
    let plan = plan_with(&observed, &busy);
    let applied = done(&plan);
    let said = statements(&pool, &facts_after(&observed, &plan, &applied), &applied);
    let of = |type_| said.iter().find(|it| it.type_ == type_).unwrap();
    let (ready, reconciling) = (of(ConditionType::Ready), of(ConditionType::Reconciling));
    assert_eq!(ready.message, "the pool is being deleted, 3 nodes left: 1 leaving now, 2 later");
    assert_eq!((reconciling.status, reconciling.reason), (Some(true), Reason::Deleting));
    let why = "node n-000 (and 1 node more) stays, because it has to wait: of a pool that is deleted 1 node leaves at a time";
    assert!(reconciling.message.contains(why), "{}", reconciling.message);
}
