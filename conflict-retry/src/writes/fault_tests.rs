//! Failures behind the API server, answered by the scripted server: admission, and a store without room.

use std::time::Duration;

use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use serde_json::{Value, json};

use super::tests::{Reply, error, map, maps, object, ok, options, put_new, scripted, verbs, wants};
use super::*;
use crate::classify::Class;
use crate::freshness::Source;
use crate::operation::Subresource;
use crate::outcome::WriteError;
use crate::policy::RetryPolicy;

fn answer(code: u16, reason: &str, message: &str, details: &Value) -> Reply {
    let status = json!({
        "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message,
        "details": details,
    });
    Reply::Json(code, status)
}

/// A webhook that fails closed and cannot be called.
pub(super) fn webhook_fault() -> Reply {
    let error = "failed calling webhook \"w\": failed to call webhook: EOF";
    let message = format!("Internal error occurred: {error}");
    answer(500, "InternalError", &message, &json!({"causes": [{"message": error}]}))
}

/// A 409 about a quota: of admission, or about the object that is written.
fn quota_conflict() -> Reply {
    let message = "Operation cannot be fulfilled on resourcequotas \"q\": the object has been modified; please apply your changes to the latest version and try again";
    answer(409, "Conflict", message, &json!({"name": "q", "kind": "resourcequotas"}))
}

#[tokio::test(start_paused = true)]
async fn a_gateways_fault_does_not_say_that_nothing_was_written() {
    for code in [408, 507, 520, 524, 599] {
        // JSON text is no `Status`: to kube it is a page.
        let page = || Reply::Json(code, json!("a page"));
        let (api, seen) = maps(vec![page()]);
        let failed = once::create(&api, &options(), &object("1", "new")).await.unwrap_err();
        assert_eq!((failed.category(), verbs(&seen).len()), ("unknown", 1), "{code}");
        assert!(failed.maybe_written(), "{code}");
        let (api, _) = maps(vec![page(), ok(map("2", "new"))]);
        let outcome = put_new(&api, &options()).await.unwrap();
        assert_eq!(outcome.label(), "already_done", "{code}: it is looked up");
    }
}

/// The answer of a server that has not read its roles yet.
fn without_roles() -> Reply {
    let message = "configmaps \"m\" is forbidden: User \"u\" cannot patch resource \"configmaps\" in API group \"\" in the namespace \"ns\": RBAC: clusterrole.rbac.authorization.k8s.io \"r\" not found";
    answer(403, "Forbidden", message, &json!({"name": "m", "kind": "configmaps"}))
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_not_judged_is_asked_again_but_not_for_ever() {
    let not_ready = answer(
        403,
        "Forbidden",
        "configmaps \"m\" is forbidden: not yet ready to handle request",
        &json!({}),
    );
    let (api, seen) =
        maps(vec![without_roles(), ok(map("1", "old")), not_ready, ok(map("1", "old")), ok(map("2", "new"))]);
    let outcome = put_new(&api, &options()).await.unwrap();
    assert_eq!((outcome.label(), verbs(&seen).len()), ("written", 5));

    let (api, seen) = maps((0..9).map(|_| without_roles()).collect());
    let failed = update(&api, "m", wants("new")).with(&options()).await.unwrap_err();
    assert_eq!((failed.category(), verbs(&seen).len()), ("forbidden", 9));
    assert!(failed.is_undecided() && !failed.maybe_written(), "{failed:?}");

    let (api, seen) = maps(vec![error(403, "Forbidden")]);
    let failed = put_new(&api, &options()).await.unwrap_err();
    assert_eq!((failed.category(), verbs(&seen).len()), ("forbidden", 1), "a judgement is believed");
    assert!(!failed.is_undecided());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_one_also_where_the_policy_does_not_let_it_ask_again() {
    let short = RetryPolicy::default().with_deadline(Some(Duration::from_nanos(1)));
    for policy in [RetryPolicy::once(), short] {
        let options = options().with_policy(policy);
        let (api, seen) = maps(vec![without_roles()]);
        let failed = put_new(&api, &options).await.unwrap_err();
        assert!(matches!(failed, WriteError::Rejected { class: Class::Forbidden, .. }), "{failed:?}");
        assert_eq!((failed.category(), verbs(&seen).len()), ("forbidden", 1));
        assert!(failed.is_undecided() && !failed.maybe_written());
        // What another attempt may resolve was given up.
        let (api, _) = maps(vec![webhook_fault()]);
        assert_eq!(put_new(&api, &options).await.unwrap_err().category(), "exhausted");
    }
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_admission_could_not_judge_was_not_made() {
    for reply in [webhook_fault(), quota_conflict()] {
        let (api, seen) = maps(vec![reply]);
        let failed = once::create(&api, &options(), &object("1", "new")).await.unwrap_err();
        assert_eq!((failed.category(), verbs(&seen).len()), ("transient", 1));
        assert!(failed.is_admission_fault() && !failed.maybe_written(), "{failed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_about_a_quota_is_the_writers_own_where_a_quota_is_written() {
    let quota = |version: &str, hard: &str| {
        json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": "q", "namespace": "ns", "uid": "u1", "resourceVersion": version},
            "spec": {"hard": {"pods": hard}},
        })
    };
    let (client, seen) = scripted(vec![quota_conflict()]);
    let quotas = Api::<ResourceQuota>::namespaced(client, "ns");
    let wanted: ResourceQuota = serde_json::from_value(quota("1", "5")).unwrap();
    let outcome = once::put(&quotas, "q", Subresource::Main, &options(), &wanted).await.unwrap();
    assert_eq!((outcome.label(), verbs(&seen).len()), ("conflict", 1));

    let (client, seen) = scripted(vec![quota_conflict(), ok(quota("2", "3")), ok(quota("3", "5"))]);
    let quotas = Api::<ResourceQuota>::namespaced(client, "ns");
    let seen_before: ResourceQuota = serde_json::from_value(quota("1", "3")).unwrap();
    let outcome = update(&quotas, "q", |quota| {
        quota.spec.clone_from(&wanted.spec);
        UpdateDecision::Write
    })
    .put()
    .with(&options())
    .from(Source::Copy(seen_before))
    .outcome()
    .await
    .unwrap();
    assert_eq!(outcome.label(), "written");
    assert_eq!(verbs(&seen), ["PUT", "GET", "PUT"]);

    // Of any other object it is a fault of admission, and the loop reads again.
    let (api, seen) = maps(vec![quota_conflict(), ok(map("1", "new"))]);
    let outcome = put_new(&api, &options()).await.unwrap();
    assert_eq!((outcome.label(), verbs(&seen).len()), ("unchanged", 2));
}

#[tokio::test(start_paused = true)]
async fn a_missing_role_does_not_mean_that_its_binding_is_gone() {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let missing = |kind: &str, name: &str| {
        let message = format!("{kind}.{GROUP} \"{name}\" not found");
        answer(404, "NotFound", &message, &json!({"name": name, "group": GROUP, "kind": kind}))
    };
    let role = || missing("clusterrole", "r");
    let copy: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "b", "namespace": "ns", "uid": "u1", "resourceVersion": "1"},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "r"},
    }))
    .unwrap();
    let label = |binding: &mut RoleBinding| {
        binding.metadata.labels.get_or_insert_default().insert("a".to_owned(), "b".to_owned());
    };
    let (client, seen) = scripted(vec![missing("rolebindings", "b"), role(), role(), role()]);
    let bindings = Api::<RoleBinding>::namespaced(client, "ns");
    let body = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"});
    for failed in [
        create_or_update(&bindings, &copy, label).outcome().await.unwrap_err(),
        update(&bindings, "b", label).from(&copy).outcome().await.unwrap_err(),
        apply(&bindings, "b", &body).outcome().await.unwrap_err(),
    ] {
        assert!(failed.category() == "other" && !failed.maybe_written(), "{failed:?}");
    }
    assert_eq!(verbs(&seen), ["GET", "POST", "PATCH", "PATCH"]);

    // Nor does any other object that a creation does not find.
    let (api, _) = maps(vec![error(404, "NotFound"), error(404, "NotFound")]);
    let failed = create_or_update(&api, &object("", "new"), |_| {}).outcome().await.unwrap_err();
    assert_eq!(failed.category(), "not_found");
}

#[tokio::test(start_paused = true)]
async fn a_full_store_ends_a_write_at_once_and_the_write_may_be_the_one_that_filled_it() {
    let full = Reply::Json(
        500,
        json!({"kind": "Status", "status": "Failure", "code": 500, "message": "etcdserver: mvcc: database space exceeded"}),
    );
    let (api, seen) = maps(vec![full]);
    let failed = put_new(&api, &options()).await.unwrap_err();
    assert!(matches!(failed, WriteError::Rejected { class: Class::StorageFull, maybe_written: true, .. }));
    assert_eq!((failed.category(), verbs(&seen).len()), ("storage_full", 1));
    assert!(!failed.is_admission_fault());
}
