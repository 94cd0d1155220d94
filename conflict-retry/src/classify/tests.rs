//! Answers of a real API server (v1.36), and client-go's own test vectors.

use std::io;

use serde_json::{Value, json};

use super::*;

fn status(value: Value) -> Status {
    serde_json::from_value(value).unwrap()
}

fn conflict(message: &str) -> Status {
    status(json!({
        "status": "Failure", "reason": "Conflict", "code": 409, "message": message,
        "details": {"name": "n", "group": "t.dev", "kind": "pools"},
    }))
}

/// The status that kube creates for an answer without a JSON body.
fn bare(code: u16) -> Status {
    Status::failure("page", "Failed to parse error data").with_code(code)
}

#[test]
fn every_409_has_its_own_meaning() {
    let stale = "Operation cannot be fulfilled on pools.t.dev \"n\": the object has been modified; please apply your changes to the latest version and try again";
    let recreated = "Operation cannot be fulfilled on pools.t.dev \"n\": StorageError: invalid object, Code: 4, Key: /registry/t.dev/pools/default/n, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: bad, UID in object meta: 0c62";
    let deleted = "Operation cannot be fulfilled on pools.t.dev \"n\": StorageError: invalid object, Code: 4, Key: /registry/t.dev/pools/default/n, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: 0c62, UID in object meta: ";
    let delete_uid = "Operation cannot be fulfilled on Pool.t.dev \"n\": the UID in the precondition (bad) does not match the UID in record (0c62). The object might have been deleted and then recreated";
    let delete_version = "Operation cannot be fulfilled on Pool.t.dev \"n\": the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (254). The object might have been modified";
    let store_version = "Operation cannot be fulfilled on pools.t.dev \"n\": StorageError: invalid object, Code: 4, Key: /registry/t.dev/pools/default/n, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: ResourceVersion in precondition: 1, ResourceVersion in object meta: 254";
    let apply_missing = "Operation cannot be fulfilled on pools.t.dev \"zz\": uid mismatch: the provided object specified uid abc, and no existing object was found";
    for (message, class) in [
        (stale, Class::Conflict),
        (recreated, Class::UidMismatch),
        (deleted, Class::Deleted),
        (delete_uid, Class::UidMismatch),
        (delete_version, Class::Conflict),
        (apply_missing, Class::Deleted),
        (store_version, Class::Conflict),
    ] {
        assert_eq!(Class::of_status(Verb::Put, &conflict(message)), class, "{message}");
    }
    let exists = status(
        json!({"reason": "AlreadyExists", "code": 409, "message": "pools.t.dev \"n\" already exists"}),
    );
    assert_eq!(Class::of_status(Verb::Create, &exists), Class::AlreadyExists);
}

#[test]
fn a_field_managers_conflict_names_manager_and_field() {
    let answer = status(json!({
        "reason": "Conflict", "code": 409, "message": "Apply failed with 2 conflicts: …",
        "details": {"causes": [
            {"reason": "FieldManagerConflict", "message": "conflict with \"a\" with subresource \"status\"", "field": ".status.msg"},
            {"reason": "FieldManagerConflict", "message": "conflict with \"kubectl\" using t.dev/v1", "field": ".spec.note"},
        ]},
    }));
    let class = Class::of_status(Verb::Apply, &answer);
    let Class::FieldManager { conflicts } = &class else { panic!("{class:?}") };
    let shown: Vec<_> = conflicts.iter().map(ToString::to_string).collect();
    assert_eq!(shown, [".status.msg (owned by a)", ".spec.note (owned by kubectl)"]);
    assert_eq!(class.cause(), None, "retrying cannot help");
}

#[test]
fn a_422_is_a_failed_test_only_after_a_json_patch_and_without_an_explanation() {
    let rejected = status(json!({
        "reason": "Invalid", "code": 422, "details": {},
        "message": "the server rejected our request due to an error in our request",
    }));
    assert_eq!(Class::of_status(Verb::JsonPatch, &rejected), Class::TestFailed);
    assert_eq!(Class::of_status(Verb::Put, &rejected), Class::Invalid);
    let cel = status(json!({
        "reason": "Invalid", "code": 422, "message": "Pool.t.dev \"n\" is invalid: spec: Invalid value: too many",
        "details": {"name": "n", "kind": "Pool", "causes": [{"reason": "FieldValueInvalid", "field": "spec"}]},
    }));
    assert_eq!(Class::of_status(Verb::JsonPatch, &cel), Class::Invalid);
    let message = "admission webhook \"w.example.org\" denied the request: no";
    for details in [json!(null), json!({})] {
        let webhook = status(json!({"code": 422, "message": message, "details": details}));
        assert_eq!(Class::of_status(Verb::JsonPatch, &webhook), Class::Invalid, "{details}");
    }
}

#[test]
fn an_immutable_uid_means_another_object_of_the_same_name() {
    let answer = |fields: &[&str]| {
        let causes: Vec<_> =
            fields.iter().map(|field| json!({"reason": "FieldValueInvalid", "field": field})).collect();
        status(
            json!({"reason": "Invalid", "code": 422, "details": {"name": "n", "kind": "Pool", "causes": causes}}),
        )
    };
    assert_eq!(Class::of_status(Verb::Apply, &answer(&["metadata.uid", "metadata.uid"])), Class::UidMismatch);
    assert_eq!(Class::of_status(Verb::Apply, &answer(&["metadata.uid", "spec"])), Class::Invalid);
}

#[test]
fn a_404_of_an_object_is_not_a_404_of_the_whole_resource() {
    let object =
        status(json!({"reason": "NotFound", "code": 404, "details": {"name": "zz", "kind": "pools"}}));
    assert_eq!(Class::of_status(Verb::Put, &object), Class::NotFound);
    let path = status(json!({"reason": "NotFound", "code": 404, "details": {}}));
    assert_eq!(Class::of_status(Verb::Put, &path), Class::NotServed);
    assert_eq!(Class::of_status(Verb::Put, &bare(404)), Class::NotServed);
}

#[test]
fn faults_are_classified_by_whether_the_request_may_have_been_executed() {
    let unavailable =
        status(json!({"reason": "ServiceUnavailable", "code": 503, "details": {"retryAfterSeconds": 1}}));
    let retry_after = Some(Duration::from_secs(1));
    assert_eq!(Class::of_status(Verb::Put, &unavailable), Class::Transient { retry_after });
    let unreachable =
        status(json!({"reason": "ServerTimeout", "code": 500, "details": {"retryAfterSeconds": 1}}));
    assert_eq!(Class::of_status(Verb::Put, &unreachable), Class::Transient { retry_after });
    let throttled = status(json!({"reason": "TooManyRequests", "code": 429}));
    assert_eq!(Class::of_status(Verb::Put, &throttled), Class::Throttled { retry_after: None });
    let timeout = status(json!({"reason": "Timeout", "code": 504}));
    assert_eq!(Class::of_status(Verb::Put, &timeout), Class::Ambiguous);
    let etcd =
        status(json!({"reason": "InternalError", "code": 500, "message": "etcdserver: request timed out"}));
    assert_eq!(Class::of_status(Verb::Put, &etcd), Class::Ambiguous);
    for (code, class) in [
        (502, Class::Ambiguous),
        (503, Class::Ambiguous),
        (504, Class::Ambiguous),
        (429, Class::Throttled { retry_after: None }),
        (401, Class::Unauthorized),
        (403, Class::Forbidden),
        (410, Class::Gone),
        (418, Class::Other),
    ] {
        assert_eq!(Class::of_status(Verb::Put, &bare(code)), class, "{code}");
    }
    assert_eq!(Class::of_status(Verb::Get, &bare(503)), Class::Transient { retry_after: None });
}

#[test]
fn a_request_on_a_refused_connection_was_not_executed_but_on_a_reset_one_it_may_have_been() {
    let service = |kind: io::ErrorKind| kube::Error::Service(Box::new(io::Error::from(kind)));
    let refused = Class::of(Verb::Put, &service(io::ErrorKind::ConnectionRefused));
    assert_eq!(refused, Class::Transient { retry_after: None });
    for kind in [
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::UnexpectedEof,
        io::ErrorKind::TimedOut,
        io::ErrorKind::HostUnreachable,
        io::ErrorKind::NetworkUnreachable,
    ] {
        assert_eq!(Class::of(Verb::Put, &service(kind)), Class::Ambiguous, "{kind}");
    }
    let nested = io::Error::other(io::Error::from(io::ErrorKind::ConnectionRefused));
    let nested = kube::Error::Service(Box::new(nested));
    assert_eq!(Class::of(Verb::Put, &nested), Class::Transient { retry_after: None });
}

#[test]
fn is_conflict_answers_as_client_go_does() {
    let is = |status: Status| is_conflict(&kube::Error::Api(status.boxed()));
    assert!(is(conflict("x")));
    assert!(is(status(json!({"reason": "Conflict"}))), "the reason alone is enough");
    assert!(is(status(json!({"code": 409}))), "so is the code without a known reason");
    assert!(is(bare(409)));
    assert!(!is(status(json!({"reason": "AlreadyExists", "code": 409}))));
    assert!(!is(status(json!({"reason": "NotFound", "code": 409}))), "a known reason outweighs the code");
    assert!(!is(status(json!({"code": 404}))));
    assert!(!is_conflict(&kube::Error::TlsRequired));
}

#[test]
fn a_bare_409_means_already_exists_after_a_creation_only() {
    assert_eq!(Class::of_status(Verb::Create, &bare(409)), Class::AlreadyExists);
    assert_eq!(Class::of_status(Verb::Put, &bare(409)), Class::Conflict);
    let stale = conflict("the object has been modified");
    assert_eq!(Class::of_status(Verb::Create, &stale), Class::Conflict, "a reason of its own");
}

#[test]
fn unset_replicas_are_distinguished_from_a_fault() {
    let error =
        |message: &str| kube::Error::Api(Status::failure(message, "InternalError").with_code(500).boxed());
    assert!(is_scale_unset(&error(
        "Internal error occurred: the spec replicas field \".spec.replicas\" does not exist"
    )));
    assert!(!is_scale_unset(&error("Internal error occurred: the webhook does not exist")));
}

#[test]
fn an_undecodable_answer_or_a_missing_one_from_etcd_leaves_a_write_in_doubt() {
    let unreadable = || kube::Error::SerdeError(serde_json::from_str::<u8>("x").unwrap_err());
    assert_eq!(Class::of(Verb::Put, &unreadable()), Class::Ambiguous);
    assert_eq!(Class::of(Verb::Get, &unreadable()), Class::Undecodable);
    let no_text = || kube::Error::FromUtf8(String::from_utf8("ä".bytes().skip(1).collect()).unwrap_err());
    assert_eq!(Class::of(Verb::Put, &no_text()), Class::Ambiguous);
    assert_eq!(Class::of(Verb::Get, &no_text()), Class::Undecodable);
    let internal = |message: &str| Status::failure(message, "InternalError").with_code(500);
    for message in [
        "rpc error: code = Unavailable desc = error reading from server: EOF",
        "etcdserver: request timed out",
    ] {
        assert_eq!(Class::of_status(Verb::Put, &internal(message)), Class::Ambiguous, "{message}");
    }
    let unknown = internal("Internal error occurred: resource quota evaluation timed out");
    assert_eq!(Class::of_status(Verb::Put, &unknown), Class::Other);
}

#[test]
fn an_etcd_error_without_a_reason_leaves_a_write_in_doubt() {
    // As v1.36 answers: code 500 and a message, nothing else.
    let of = |message: &str| {
        Class::of_status(Verb::Put, &status(json!({"status": "Failure", "code": 500, "message": message})))
    };
    for message in [
        "rpc error: code = Unavailable desc = error reading from server: connection reset by peer",
        "etcdserver: leader changed",
    ] {
        assert_eq!(of(message), Class::Ambiguous, "{message}");
    }
    let two_budgets =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!(of(two_budgets), Class::Other);
}

#[test]
fn a_request_that_is_too_large_says_so_and_is_not_sent_again() {
    let of = |code: u16, reason: &str, message: &str| {
        let answer = json!({"status": "Failure", "code": code, "reason": reason, "message": message});
        Class::of_status(Verb::MergePatch, &status(answer))
    };
    // As v1.36 answers: the API server itself, etcd, the gRPC message on the way there; the last ones are proxies.
    for (code, reason, message) in [
        (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728"),
        (500, "", "etcdserver: request is too large"),
        (
            500,
            "",
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2900215 vs. 2097152)",
        ),
        (
            500,
            "InternalError",
            "Internal error occurred: rpc error: code = Unknown desc = etcdserver: request is too large",
        ),
        (413, "", "<html><head><title>413 Request Entity Too Large</title></head></html>"),
    ] {
        let class = of(code, reason, message);
        assert_eq!(class, Class::TooLarge, "{code} {message}");
        assert_eq!((class.label(), class.cause()), ("too_large", None));
        assert!(class.advice().contains("smaller"), "{}", class.advice());
    }
    assert_eq!(Class::of_status(Verb::Put, &bare(413)), Class::TooLarge);
    // A webhook's text may quote etcd's: it has judged the request.
    let denial = "admission webhook \"w.example.org\" denied the request: etcdserver: request is too large";
    assert_eq!(of(500, "InternalError", denial), Class::Other);
}

#[test]
fn an_answer_that_cannot_be_decoded_says_where_to_look() {
    let class = Class::of(Verb::Get, &kube::Error::SerdeError(serde_json::from_str::<u8>("x").unwrap_err()));
    assert_eq!((class.label(), class.cause()), ("undecodable", None));
    assert!(class.advice().contains("Rust type"), "{}", class.advice());
}

/// A 409 of admission: `UpdateQuotaStatus` failed, and the request passes its error on.
fn quota_race(message: &str) -> Status {
    status(json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": "Conflict", "details": {"name": "q", "kind": "resourcequotas"}, "code": 409,
    }))
}

#[test]
fn a_lost_race_for_a_quota_did_not_execute_the_request() {
    let moved = "Operation cannot be fulfilled on resourcequotas \"q\": the object has been modified; please apply your changes to the latest version and try again";
    let recreated = "Operation cannot be fulfilled on resourcequotas \"q\": StorageError: invalid object, Code: 4, Key: /registry/resourcequotas/default/q, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: 0c62, UID in object meta: 1d73";
    for (message, own) in [(moved, Class::Conflict), (recreated, Class::UidMismatch)] {
        let status = quota_race(message);
        for verb in [Verb::Create, Verb::Put, Verb::MergePatch, Verb::JsonPatch, Verb::Apply] {
            let class = Class::of_status(verb, &status);
            assert_eq!(class, Class::Transient { retry_after: None }, "{verb} {message}");
        }
        assert!(admission::is_fault(&status), "{message}");
        // Only where a quota is written is the conflict about the object of the request.
        assert_eq!(of_quota_write(Verb::Put, "resourcequotas", &status), Some(own), "{message}");
        assert_eq!(of_quota_write(Verb::Create, "resourcequotas", &status), None, "{message}");
        assert_eq!(of_quota_write(Verb::Put, "pools", &status), None, "{message}");
    }
    let of_another_group = status(json!({
        "reason": "Conflict", "code": 409, "message": "the object has been modified",
        "details": {"name": "q", "group": "t.dev", "kind": "resourcequotas"},
    }));
    assert_eq!(Class::of_status(Verb::Put, &of_another_group), Class::Conflict);
    let exists = status(json!({
        "reason": "AlreadyExists", "code": 409, "message": "resourcequotas \"q\" already exists",
        "details": {"name": "q", "kind": "resourcequotas"},
    }));
    assert_eq!(Class::of_status(Verb::Create, &exists), Class::AlreadyExists);
    assert!(!admission::is_fault(&exists));
}

#[test]
fn a_namespace_that_is_being_deleted_is_not_a_missing_right() {
    let details = |causes: Value| json!({"name": "x", "kind": "configmaps", "causes": causes});
    let forbidden = |message: &str, causes: Value| {
        status(json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": "Forbidden", "details": details(causes), "code": 403,
        }))
    };
    let terminating = forbidden(
        "configmaps \"x\" is forbidden: unable to create new content in namespace ending because it is being terminated",
        json!([{
            "reason": "NamespaceTerminating", "message": "namespace ending is being terminated",
            "field": "metadata.namespace",
        }]),
    );
    let class = Class::of_status(Verb::Create, &terminating);
    assert_eq!(class, Class::NamespaceTerminating);
    assert_eq!((class.label(), class.cause()), ("namespace_terminating", None));
    let quota = "configmaps \"x\" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=1, limited: count/configmaps=1";
    assert_eq!(Class::of_status(Verb::Create, &forbidden(quota, json!([]))), Class::Forbidden);
}

#[test]
fn a_webhook_that_cannot_be_called_executed_nothing_whatever_its_text_quotes() {
    let internal = |error: &str| {
        status(json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": format!("Internal error occurred: {error}"), "reason": "InternalError",
            "details": {"causes": [{"message": error}]}, "code": 500,
        }))
    };
    for error in [
        "failed calling webhook \"w.example.org\": failed to call webhook: Post \"https://127.0.0.1:1/?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection refused",
        "failed calling webhook \"w.example.org\": failed to call webhook: Post \"https://127.0.0.1:1/?timeout=1s\": context deadline exceeded",
        "failed calling webhook \"w.example.org\": failed to call webhook: Post \"https://w.ns.svc:443/?timeout=10s\": rpc error: code = Unavailable desc = etcdserver: mvcc: database space exceeded",
        "failed calling webhook \"w.example.org\": received invalid webhook response: webhook returned response.patchType but not response.patch",
        "failed calling webhook \"w.example.org\": Post \"https://w.ns.svc:443/?timeout=10s\": no endpoints available for service \"w\"",
    ] {
        let status = internal(error);
        let class = Class::of_status(Verb::Put, &status);
        assert_eq!(class, Class::Transient { retry_after: None }, "{error}");
        assert!(admission::is_fault(&status), "{error}");
    }
    // A webhook that answers has judged, whatever it says.
    let denial = "admission webhook \"w.example.org\" denied the request: failed calling webhook \"v\": rpc error: code = Unavailable desc = etcdserver: leader changed";
    for reason in ["InternalError", ""] {
        let status = status(json!({"reason": reason, "code": 500, "message": denial}));
        assert_eq!(Class::of_status(Verb::Put, &status), Class::Other, "{reason}");
        assert!(!admission::is_fault(&status), "{reason}");
    }
}

#[test]
fn a_webhook_that_denies_with_a_code_of_the_servers_own_says_nothing_of_the_object() {
    let denial = |code: u16, reason: &str, details: &Value| {
        let message = "admission webhook \"w.example.org\" denied the request: the team has no budget";
        status(json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": reason, "code": code, "details": details,
        }))
    };
    for (code, reason, class) in [
        (400, "BadRequest", Class::Forbidden),
        (403, "Forbidden", Class::Forbidden),
        (404, "NotFound", Class::Forbidden),
        (409, "Conflict", Class::Forbidden),
        (409, "AlreadyExists", Class::Forbidden),
        (410, "Gone", Class::Forbidden),
        (502, "", Class::Forbidden),
        (503, "ServiceUnavailable", Class::Forbidden),
        (504, "Timeout", Class::Forbidden),
        (401, "Unauthorized", Class::Unauthorized),
        (413, "RequestEntityTooLarge", Class::TooLarge),
        (422, "Invalid", Class::Invalid),
        (429, "TooManyRequests", Class::Throttled { retry_after: None }),
        (500, "InternalError", Class::Other),
    ] {
        // The server passes on what the webhook gives; most give no reason.
        for reason in [reason, ""] {
            let status = denial(code, reason, &json!({"name": "n", "kind": "pools"}));
            for verb in [Verb::Create, Verb::Put, Verb::MergePatch, Verb::JsonPatch, Verb::Apply] {
                assert_eq!(Class::of_status(verb, &status), class, "{code} {reason} {verb}");
            }
        }
    }
    // Nor do its details, which are the webhook's choice, too.
    let quota = denial(409, "Conflict", &json!({"name": "q", "kind": "resourcequotas"}));
    assert_eq!(Class::of_status(Verb::Put, &quota), Class::Forbidden);
    assert_eq!(of_quota_write(Verb::Put, "resourcequotas", &quota), None);
    assert!(!admission::is_fault(&quota));
    let uid = denial(422, "Invalid", &json!({"causes": [{"field": "metadata.uid"}]}));
    assert_eq!(Class::of_status(Verb::Apply, &uid), Class::Invalid);
}

#[test]
fn a_full_etcd_is_neither_in_doubt_nor_worth_a_retry() {
    // As v1.36 answers, whose client drops the gRPC code; the second text is that of a server in between.
    for message in [
        "etcdserver: mvcc: database space exceeded",
        "rpc error: code = ResourceExhausted desc = etcdserver: mvcc: database space exceeded",
    ] {
        for reason in ["", "InternalError"] {
            let full = status(json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": message, "reason": reason, "code": 500,
            }));
            let class = Class::of_status(Verb::Put, &full);
            assert_eq!(class, Class::StorageFull, "{message}");
            assert_eq!((class.label(), class.cause()), ("storage_full", None));
        }
    }
}

#[test]
fn an_update_without_a_version_is_invalid() {
    let missing = status(json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "pools.t.dev \"n\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update",
        "reason": "Invalid", "code": 422,
        "details": {"name": "n", "group": "t.dev", "kind": "pools", "causes": [{
            "reason": "FieldValueInvalid", "message": "Invalid value: 0: must be specified for an update",
            "field": "metadata.resourceVersion",
        }]},
    }));
    assert_eq!(Class::of_status(Verb::Put, &missing), Class::Invalid);
}
