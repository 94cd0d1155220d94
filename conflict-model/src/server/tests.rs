//! The rules one by one, as measured. `e2e/tests/conformance.rs` checks them against the real server.

use super::*;

const SPEC: Spec = Spec::with_max(5);

fn body(replicas: Option<i32>) -> Body {
    Body { meta: Meta::default(), spec: Spec { replicas, ..SPEC }, status: None }
}

fn put(version: Option<ModelVersion>, uid: Option<Uid>, replicas: Option<i32>) -> Request {
    Request::Put { on: ModelEndpoint::Main, version, uid, body: body(replicas) }
}

fn merge(on: ModelEndpoint, version: Option<ModelVersion>, change: RequestedChange) -> Request {
    Request::Merge { on, version, uid: None, change }
}

fn scale_patch(test: Test, operation: ModelOperation) -> Request {
    Request::JsonPatch { scale: true, test, operation }
}

/// An object with UID 1 and version 1.
fn stored(replicas: Option<i32>) -> Server {
    let (server, answer) =
        Server::new(Unconditional::Refused).answer(&Request::Create { body: body(replicas) });
    assert_eq!((answer.code, answer.moved, answer.generation_delta), (201, true, 1));
    server
}

/// The code, whether the version moved, and by how much the generation moved.
fn of(server: Server, request: Request) -> (u16, bool, i64) {
    let answer = server.answer(&request).1;
    (answer.code, answer.moved, answer.generation_delta)
}

#[test]
fn a_put_needs_the_current_version_and_uid() {
    let server = stored(Some(2));
    assert_eq!(of(server, put(Some(1), Some(1), Some(3))), (200, true, 1));
    assert_eq!(of(server, put(Some(1), None, Some(2))), (200, false, 0), "nothing changes");
    assert_eq!(of(server, put(None, None, Some(3))), (422, false, 0), "no version");
    let reason = |request: Request| server.answer(&request).1.reason;
    assert_eq!(reason(put(Some(7), None, Some(3))), Reason::Conflict(Conflict::Version));
    assert_eq!(reason(put(Some(1), Some(7), Some(3))), Reason::Conflict(Conflict::Uid));
    assert_eq!(
        reason(put(Some(7), Some(7), Some(3))),
        Reason::Conflict(Conflict::Uid),
        "the UID comes first"
    );
    assert_eq!(of(server, put(Some(1), None, Some(9))), (422, false, 0), "out of bounds");
    let unconditional = Server::new(Unconditional::Allowed).answer(&Request::Create { body: body(None) }).0;
    assert_eq!(of(unconditional, put(None, None, Some(3))), (200, true, 1));
}

#[test]
fn a_status_write_moves_only_the_version_and_each_endpoint_drops_the_fields_of_the_other() {
    let server = stored(Some(2));
    assert_eq!(
        of(server, merge(ModelEndpoint::Status, None, RequestedChange::Ready(Some(1)))),
        (200, true, 0)
    );
    assert_eq!(
        of(server, merge(ModelEndpoint::Main, None, RequestedChange::Ready(Some(1)))),
        (200, false, 0)
    );
    assert_eq!(
        of(server, merge(ModelEndpoint::Status, None, RequestedChange::Replicas(Some(3)))),
        (200, false, 0)
    );
    assert_eq!(of(server, merge(ModelEndpoint::Main, None, RequestedChange::Label(Some(1)))), (200, true, 0));
    assert_eq!(
        of(server, merge(ModelEndpoint::Main, Some(7), RequestedChange::Label(Some(1)))),
        (409, false, 0)
    );
}

#[test]
fn a_uid_in_a_patch_guards_the_object_but_neither_status_nor_scale() {
    let server = stored(Some(2));
    let patch = |on, change| Request::Merge { on, version: None, uid: Some(7), change };
    assert_eq!(of(server, patch(ModelEndpoint::Main, RequestedChange::Label(Some(1)))), (422, false, 0));
    assert_eq!(of(server, patch(ModelEndpoint::Status, RequestedChange::Ready(Some(1)))), (200, true, 0));
    assert_eq!(
        of(server, Request::MergeScale { version: None, uid: Some(7), replicas: Some(3) }),
        (200, true, 1)
    );
    assert_eq!(of(server, Request::PutScale { version: None, uid: Some(7), replicas: 3 }), (409, false, 0));
    assert_eq!(of(server, scale_patch(Test::Uid(7), ModelOperation::Add(3))), (422, false, 0));
}

#[test]
fn a_scale_omits_zero_and_cannot_show_an_unset_count() {
    let (unset, zero, two) = (stored(None), stored(Some(0)), stored(Some(2)));
    assert_eq!(of(unset, Request::GetScale), (500, false, 0));
    assert_eq!(of(zero, Request::GetScale), (200, false, 0));
    for (server, test, holds) in [
        (unset, Test::Replicas(i32::MIN), true),
        (unset, Test::EmptySpec, false),
        (zero, Test::Replicas(0), false),
        (zero, Test::EmptySpec, true),
        (two, Test::Replicas(2), true),
        (two, Test::EmptySpec, false),
        (two, Test::Generation(1), false),
        (two, Test::Version(1), true),
    ] {
        let code = if holds { 200 } else { 422 };
        assert_eq!(of(server, scale_patch(test, ModelOperation::Add(3))).0, code, "{test:?} of {server:?}");
    }
    assert_eq!(of(unset, Request::MergeScale { version: None, uid: None, replicas: None }), (400, false, 0));
    assert_eq!(of(two, Request::PutScale { version: None, uid: None, replicas: 3 }), (200, true, 1));
    assert_eq!(of(two, Request::PutScale { version: Some(7), uid: None, replicas: 3 }), (409, false, 0));
    assert_eq!(of(two, Request::PutScale { version: None, uid: None, replicas: 9 }), (422, false, 0));
}

#[test]
fn a_scale_write_without_a_change_may_move_the_version() {
    let same = Request::PutScale { version: None, uid: None, replicas: 2 };
    let (once, answer) = stored(Some(2)).answer(&same);
    assert!(answer.moved, "the entry of managedFields is split");
    let (twice, answer) = once.answer(&same);
    assert!(answer.moved, "and half of it dropped");
    assert!(!twice.answer(&same).1.moved, "after that there is nothing more to change");
    // A count that was first written through `/scale` has an entry of its own.
    let scaled = stored(None).answer(&same).0;
    assert_eq!(of(scaled, same), (200, false, 0));
}

#[test]
fn a_deletion_waits_for_the_finalizer_and_checks_its_preconditions() {
    let server = stored(None);
    assert_eq!(of(server, Request::Delete { version: None, uid: Some(7) }), (409, false, 0));
    assert_eq!(of(server, Request::Delete { version: Some(7), uid: None }), (409, false, 0));
    let gone = server.answer(&Request::Delete { version: Some(1), uid: Some(1) }).0;
    assert_eq!(gone.object, None);
    assert_eq!(of(gone, put(Some(1), Some(1), None)), (404, false, 0));
    let recreated = gone.answer(&Request::Create { body: body(None) }).0;
    assert_eq!(recreated.object.map(|object| object.uid), Some(2));
    assert_eq!(of(recreated, Request::Create { body: body(None) }), (409, false, 0));
    assert_eq!(
        of(recreated, Request::Create { body: body(Some(9)) }),
        (422, false, 0),
        "validation comes first"
    );

    let held = server.answer(&merge(ModelEndpoint::Main, None, RequestedChange::Finalizer(true))).0;
    let delete = Request::Delete { version: None, uid: None };
    assert_eq!(of(held, delete), (200, true, 1));
    let deleting = held.answer(&delete).0;
    assert_eq!(of(deleting, delete), (200, false, 0));
    assert_eq!(
        deleting.answer(&merge(ModelEndpoint::Main, None, RequestedChange::Finalizer(false))).0.object,
        None
    );
}

#[test]
fn two_managers_conflict_only_when_they_apply_the_same_field_differently() {
    let apply = |manager, force, values| Request::Apply {
        manager,
        force,
        version: None,
        uid: None,
        status: Status { conditions: Some(Conditions { values, swapped: false }), ..Status::default() },
    };
    let first = stored(None).answer(&apply(Manager::Alpha, false, [Some(true), None])).0;
    assert_eq!(of(first, apply(Manager::Alpha, false, [Some(true), None])), (200, false, 0), "again");
    assert_eq!(of(first, apply(Manager::Beta, false, [Some(true), None])), (200, true, 0), "owned by both");
    let second = first.answer(&apply(Manager::Beta, false, [None, Some(true)])).0;
    let values = |server: Server| {
        server.object.and_then(|object| object.status?.conditions).map(|conditions| conditions.values)
    };
    assert_eq!(values(second), Some([Some(true), Some(true)]));
    let reason = second.answer(&apply(Manager::Beta, false, [Some(false), Some(true)])).1.reason;
    assert_eq!(reason, Reason::Conflict(Conflict::FieldManager));
    assert_eq!(of(second, apply(Manager::Beta, true, [Some(false), Some(true)])), (200, true, 0));
    // A field that is not applied any more is removed.
    let less = second.answer(&apply(Manager::Beta, false, [Some(true), None])).0;
    assert_eq!(values(less), Some([Some(true), None]));
}

#[test]
fn a_patch_at_a_generation_tests_only_the_generation_and_the_list() {
    let at = |generation, list, set| Request::PatchAtGeneration { generation, list, set };
    let bare = stored(Some(3));
    assert_eq!(of(bare, at(1, ListTest::Nothing, Set::Replicas(2))), (200, true, 1));
    assert_eq!(of(bare, at(2, ListTest::Nothing, Set::Replicas(2))), (422, false, 0), "another generation");
    assert_eq!(
        of(bare, at(1, ListTest::Absent, Set::List(Some(1)))),
        (422, false, 0),
        "there is no status that could hold it"
    );
    let reported = bare.answer(&merge(ModelEndpoint::Status, None, RequestedChange::Ready(Some(3)))).0;
    let named = reported.answer(&at(1, ListTest::Absent, Set::List(Some(1)))).0;
    assert_eq!(
        of(named, at(1, ListTest::Absent, Set::List(Some(2)))),
        (422, false, 0),
        "there is a list already"
    );
    assert_eq!(of(named, at(1, ListTest::Is(1), Set::List(Some(2)))), (200, true, 0));
    assert_eq!(of(named, at(1, ListTest::Is(2), Set::Replicas(2))), (422, false, 0), "another list");
    let churned = named.answer(&merge(ModelEndpoint::Status, None, RequestedChange::Ready(Some(2)))).0;
    assert_eq!(
        of(churned, at(1, ListTest::Is(1), Set::Replicas(2))),
        (200, true, 1),
        "status moves no generation"
    );
    assert_eq!(of(named, at(1, ListTest::Is(1), Set::List(None))), (200, true, 0));
    assert_eq!(of(reported, at(1, ListTest::Absent, Set::List(None))), (422, false, 0), "nothing to remove");
}
