use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::json;
use shared_crds::v1alpha1::{AutoscalingStatus, NodePoolStatus};

use super::*;
use crate::input::supply::Size;
use crate::testing::{at, pool, supply};

/// A pool of 3 whose operator wrote 3 machines, with this contest in its status.
fn written(contested: Option<ContestedMachines>, policy: OnContested) -> NodePool {
    let mut pool = pool(3);
    pool.status = Some(NodePoolStatus {
        provisioning: Some(ProvisioningStatus {
            machines: Some(3),
            contested,
            ..ProvisioningStatus::default()
        }),
        autoscaling: Some(AutoscalingStatus { on_contested: Some(policy), ..AutoscalingStatus::default() }),
        ..NodePoolStatus::default()
    });
    pool
}

fn sized(replicas: i32, writer: Option<&str>) -> Supply {
    let size = Some(Size { replicas, generation: 1 });
    Supply { size, size_writer: writer.map(str::to_owned), ..supply() }
}

fn record(machines: i32, since: i64) -> ContestedMachines {
    ContestedMachines {
        machines,
        writer: "kubectl".to_owned(),
        since_time: Time(at(since)),
        pool_replicas: Some(3),
    }
}

/// The pool's number as this manager set it.
fn set_by(pool: &mut NodePool, manager: &str, replicas: i32) {
    pool.spec.replicas = Some(replicas);
    pool.metadata.managed_fields = Some(vec![ManagedFieldsEntry {
        manager: Some(manager.to_owned()),
        fields_v1: Some(FieldsV1(json!({ "f:spec": { "f:replicas": {} } }))),
        ..ManagedFieldsEntry::default()
    }]);
}

#[test]
fn a_number_is_the_operators_where_it_is_the_first_or_the_same_or_named_so() {
    let mut first = written(None, OnContested::Yield);
    first.status.as_mut().unwrap().provisioning = None;
    for (pool, supply, expected) in [
        (&first, sized(7, Some("kubectl")), 7),
        (&written(None, OnContested::Yield), sized(3, Some("kubectl")), 3),
        (&written(None, OnContested::Yield), sized(2, Some(NODEPOOL_OPERATOR)), 2),
    ] {
        let writer = MachinesWriter::of(pool, &supply, at(0));
        assert_eq!(writer, MachinesWriter { written: Some(expected), contest: None });
    }
    assert_eq!(MachinesWriter::of(&first, &supply(), at(0)), MachinesWriter::default());
}

#[test]
fn a_number_that_was_recorded_before_the_clock_was_set_back_is_kept_from_now_on() {
    let pool = written(Some(record(5, 3700)), OnContested::Yield);
    for (supply, machines) in [(sized(5, Some("kubectl")), 3), (sized(2, Some(NODEPOOL_OPERATOR)), 2)] {
        let found = MachinesWriter::of(&pool, &supply, at(100));
        let contest = found.held().unwrap();
        assert_eq!((found.written, &contest.record), (Some(machines), &record(5, 100)));
        assert_eq!(contest.until(), at(700));
    }
}

#[test]
fn another_writers_number_is_recorded_once_with_its_name() {
    let pool = written(None, OnContested::Yield);
    let found = MachinesWriter::of(&pool, &sized(5, Some("kubectl")), at(100));
    let contest = found.held().unwrap();
    assert_eq!((found.written, &contest.record, contest.is_new), (Some(3), &record(5, 100), true));
    let pool = written(Some(record(5, 100)), OnContested::Yield);
    let again = MachinesWriter::of(&pool, &sized(5, Some("kubectl")), at(200));
    assert_eq!(again.held().map(|it| (&it.record, it.is_new)), Some((&record(5, 100), false)));
    // A further number begins anew, and one without a name has another writer.
    let other = MachinesWriter::of(&pool, &sized(6, None), at(300));
    let contest = other.contest.unwrap();
    assert_eq!(
        (contest.writer(), contest.record.since_time.0, contest.is_new),
        ("another writer", at(300), true)
    );
    assert_eq!(
        MachinesWriter::of(&pool, &sized(3, Some("kubectl")), at(300)).contest,
        None,
        "it was put back"
    );
}

#[test]
fn a_number_is_kept_for_ten_minutes_or_until_a_person_sets_the_pools_own() {
    let supply = sized(5, Some("kubectl"));
    let of = |pool: &NodePool, second| MachinesWriter::of(pool, &supply, at(second));
    let mut pool = written(Some(record(5, 100)), OnContested::Yield);
    assert!(of(&pool, 699).held().is_some());
    let accepted = MachinesWriter { written: Some(5), contest: None };
    assert_eq!(of(&pool, 700), accepted);
    for (manager, replicas, ends) in
        [("kubectl", 3, false), ("kubectl", 4, true), (AUTOSCALER_OPERATOR, 4, false)]
    {
        set_by(&mut pool, manager, replicas);
        assert_eq!(of(&pool, 200).held().is_none(), ends, "{manager} {replicas}");
    }
    // Where no writer is recorded, it is the Autoscaler's in a pool that has one.
    pool.metadata.managed_fields = None;
    assert!(of(&pool, 200).held().is_some());
    pool.status.as_mut().unwrap().autoscaling = None;
    assert!(of(&pool, 200).held().is_none());
}

#[test]
fn a_number_that_is_reclaimed_is_never_held_and_remembered_for_ten_minutes() {
    let pool = written(Some(record(5, 100)), OnContested::Reclaim);
    let theirs = MachinesWriter::of(&pool, &sized(5, Some("kubectl")), at(9_000));
    assert!(
        theirs.held().is_none() && theirs.contest.is_some(),
        "it stands in the way until it is overwritten"
    );
    let own = |second| MachinesWriter::of(&pool, &sized(3, Some(NODEPOOL_OPERATOR)), at(second)).contest;
    assert_eq!(own(699).map(|it| it.record.machines), Some(5));
    assert_eq!(own(700), None);
}

#[test]
fn the_bounds_hold_for_another_writers_number_too() {
    let mut pool = written(Some(record(50, 100)), OnContested::Yield);
    pool.spec.max_replicas = 10;
    let mut observed = crate::testing::observed(pool, []);
    observed.now = at(200);
    observed.supply = sized(50, Some("kubectl"));
    let wanted = |observed: &crate::Observed| {
        crate::count::sizing::wanted(observed, observed.pool.as_deref().unwrap(), &[])
    };
    assert_eq!(wanted(&observed), 10);
    // The operator has written that bound: the number of the pool's own is still not the one that counts.
    observed.supply = sized(10, Some(NODEPOOL_OPERATOR));
    assert_eq!(wanted(&observed), 10);
    observed.now = at(700);
    assert_eq!(wanted(&observed), 3);
}
