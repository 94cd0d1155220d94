//! Requests that the API server refuses: conflicts, missing objects, invalid bodies, missing rights.

use conflict_retry::{
    Class, FieldConflict, ScaleGuard, ScaleView, Source, Subresource, UpdateDecision, Verb,
};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
    VersionMatch,
};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::json;
use shared_crds::NodePool;
use testbed::objects;
use testbed::wait::eventually;

use crate::bench::{
    AGENT, Bench, NAMESPACE, PATIENCE, Table, applied, cached, connect, grow, json_patch, make, report,
    scale_body, scale_of, to, typed, versioned,
};

/// A PUT, a merge patch, a deletion or an apply from a version that is no longer the stored one.
pub(crate) async fn stale_versions(bench: &Bench, table: &mut Table) {
    use Class::Conflict;
    let options = &table.options();
    let (pools, watched) = (&bench.set_up::<NodePool>(), &bench.watched::<NodePool>());
    let old = bench.pool("stale").await;
    bench.touch("stale").await;
    let (post, patch) = (&PostParams::default(), &PatchParams::default());
    let (mut spec, mut status) = (old.clone(), old.clone());
    let (_, _) = (grow(&mut spec), report(&mut status));

    table.answer("stale version, PUT", Verb::Put, pools.replace("stale", post, &spec).await, 409, &Conflict);
    let call =
        conflict_retry::update(watched, "stale", grow).put().with(options).from(cached(&old)).outcome();
    table.call("update", call, "written", "put!conflict get put").await;
    bench.touch("stale").await;
    let call = conflict_retry::once::put(watched, "stale", Subresource::Main, options, &spec);
    table.call("put_once", call, "conflict", "put!conflict").await;
    let once = &table.once();
    let call = conflict_retry::update(watched, "stale", grow).put().with(once).from(cached(&old)).outcome();
    table.call("update, one attempt allowed", call, "error: exhausted(conflict)", "put!conflict").await;

    let answer = pools.replace_status("stale", post, &status).await;
    table.answer("stale version, PUT /status", Verb::Put, answer, 409, &Conflict);
    let call = conflict_retry::update_status(watched, "stale", report)
        .put()
        .with(options)
        .from(cached(&old))
        .outcome();
    table.call("update_status", call, "written", "put!conflict get put").await;

    let answer = pools.replace_scale("stale", post, &scale_body(&old, 3)).await;
    table.answer("stale version, PUT /scale", Verb::Put, answer, 409, &Conflict);
    let call = conflict_retry::scale(watched, "stale", to(3))
        .guarded_by(ScaleGuard::VersionByPut)
        .with(options)
        .from(Source::Copy(scale_of(&old)))
        .outcome();
    table.call("scale_put", call, "written", "put!conflict get put").await;
    let seen = &scale_of(&old);
    let call = conflict_retry::once::put_scale(watched, "stale", options, seen, 4);
    table.call("scale_put_once", call, "conflict", "put!conflict").await;

    let body = versioned(&old, json!({"spec": {"maxReplicas": 9}}));
    table.answer(
        "stale version, merge patch",
        Verb::MergePatch,
        pools.patch("stale", patch, &body).await,
        409,
        &Conflict,
    );
    let want = |_: &NodePool| Some(json!({"spec": {"maxReplicas": 20}}));
    let call = conflict_retry::merge_patch(watched, "stale", want).with(options).from(cached(&old)).outcome();
    table.call("merge_patch", call, "written", "merge_patch!conflict get merge_patch").await;

    let body = versioned(&old, json!({"status": {"readyReplicas": 9}}));
    let answer = pools.patch_status("stale", patch, &body).await;
    table.answer("stale version, merge patch /status", Verb::MergePatch, answer, 409, &Conflict);
    let want = |_: &NodePool| Some(json!({"status": {"readyReplicas": 20}}));
    let call = conflict_retry::merge_patch(watched, "stale", want)
        .on(Subresource::Status)
        .with(options)
        .from(cached(&old))
        .outcome();
    table.call("merge_patch", call, "written", "merge_patch!conflict get merge_patch").await;

    let body = versioned(&old, json!({"spec": {"replicas": 4}}));
    let answer = pools.patch_scale("stale", patch, &body).await;
    table.answer("stale version, merge patch /scale", Verb::MergePatch, answer, 409, &Conflict);
    let call = conflict_retry::scale(watched, "stale", to(4))
        .guarded_by(ScaleGuard::Version)
        .with(options)
        .from(Source::Copy(scale_of(&old)))
        .outcome();
    table.call("scale_merge", call, "written", "merge_patch!conflict get merge_patch").await;
    // The guard on the count ignores the version and checks only the count.
    let seen = ScaleView { replicas: Some(4), ..scale_of(&old) };
    let call =
        conflict_retry::scale(watched, "stale", to(5)).with(options).from(Source::Copy(seen)).outcome();
    table.call("scale, from the right count and an old version", call, "written", "json_patch").await;

    let labels = json!({"example.com/own": "yes"});
    let mut body = applied("stale", &json!({}));
    body["metadata"]["labels"] = labels;
    body["metadata"]["resourceVersion"] = json!(old.resource_version());
    let answer = pools.patch("stale", &PatchParams::apply("taxonomy"), &Patch::Apply(&body)).await;
    table.answer("stale version, apply that names one", Verb::Apply, answer, 409, &Conflict);
    let call = conflict_retry::apply(watched, "stale", &body).with(options).outcome();
    table.call("apply", call, "conflict", "apply!conflict").await;

    let version = Preconditions { resource_version: old.resource_version(), uid: None };
    let params = DeleteParams::default().preconditions(version);
    let answer = pools.delete("stale", &params).await;
    table.answer("stale version, DELETE", Verb::Delete, answer, 409, &Conflict);
    let call = conflict_retry::once::delete(watched, "stale", options, &params);
    table.call("delete", call, "conflict", "delete!conflict").await;
}

/// Server-side apply of fields that another manager owns.
pub(crate) async fn field_managers(bench: &Bench, table: &mut Table) {
    let options = &table.options();
    let (pools, watched) = (&bench.set_up::<NodePool>(), &bench.watched::<NodePool>());
    bench.pool("owned").await;
    let owner = PatchParams::apply("other-manager").force();
    let spec = |count: i32| applied("owned", &json!({"spec": {"maxReplicas": count}}));
    let status = |count: i32| applied("owned", &json!({"status": {"readyReplicas": count}}));
    pools.patch("owned", &owner, &Patch::Apply(spec(8))).await.unwrap();
    pools.patch_status("owned", &owner, &Patch::Apply(status(8))).await.unwrap();
    let of =
        |field: &str| Class::FieldManager { conflicts: vec![FieldConflict::new("other-manager", field)] };
    let me = PatchParams::apply("taxonomy");

    let answer = pools.patch("owned", &me, &Patch::Apply(spec(9))).await;
    table.answer("a field manager's field, apply", Verb::Apply, answer, 409, &of(".spec.maxReplicas"));
    let body = spec(9);
    let call = conflict_retry::apply(watched, "owned", &body).with(options).outcome();
    table.call("apply", call, "error: field_manager", "apply!field_manager").await;
    let force = options.clone().with_force(true);
    let call = conflict_retry::apply(watched, "owned", &body).with(&force).outcome();
    table.call("apply, by force", call, "written", "apply").await;

    let answer = pools.patch_status("owned", &me, &Patch::Apply(status(9))).await;
    table.answer(
        "a field manager's field, apply /status",
        Verb::Apply,
        answer,
        409,
        &of(".status.readyReplicas"),
    );
    let body = status(9);
    let call = conflict_retry::apply_status(watched, "owned", &body).with(options).outcome();
    table.call("apply_status", call, "error: field_manager", "apply!field_manager").await;
    let body = status(8);
    let call = conflict_retry::apply_status(watched, "owned", &body).with(options).outcome();
    table.call("apply_status of the same value", call, "written", "apply").await;
}

/// The name is the same, but the object is another one.
pub(crate) async fn other_uids(bench: &Bench, table: &mut Table) {
    use Class::UidMismatch;
    let options = &table.options();
    let (pools, watched) = (&bench.set_up::<NodePool>(), &bench.watched::<NodePool>());
    let former = bench.pool("again").await;
    let _ = pools.delete("again", &DeleteParams::default()).await.unwrap();
    let current = bench.pool("again").await;
    let (post, patch) = (&PostParams::default(), &PatchParams::default());
    // Only the identity differs, so the version cannot be the reason for the refusal.
    let mut mistaken = current.clone();
    mistaken.metadata.uid = former.uid();
    let (mut spec, mut status) = (mistaken.clone(), mistaken.clone());
    let (_, _) = (grow(&mut spec), report(&mut status));

    let answer = pools.replace("again", post, &spec).await;
    table.answer("another UID, PUT", Verb::Put, answer, 409, &UidMismatch);
    let call =
        conflict_retry::update(watched, "again", grow).put().with(options).from(cached(&mistaken)).outcome();
    table.call("update", call, "gone", "put!uid_mismatch").await;
    let call =
        conflict_retry::update(watched, "again", grow).put().with(options).from(cached(&former)).outcome();
    table.call("update, from the former object", call, "gone", "put!uid_mismatch").await;
    let call = conflict_retry::once::put(watched, "again", Subresource::Main, options, &spec);
    table.call("put_once", call, "gone", "put!uid_mismatch").await;

    let answer = pools.replace_status("again", post, &status).await;
    table.answer("another UID, PUT /status", Verb::Put, answer, 409, &UidMismatch);
    let call = conflict_retry::update_status(watched, "again", report)
        .put()
        .with(options)
        .from(cached(&former))
        .outcome();
    table.call("update_status, from the former object", call, "gone", "put!uid_mismatch").await;

    let answer = pools.replace_scale("again", post, &scale_body(&mistaken, 3)).await;
    table.answer("another UID, PUT /scale", Verb::Put, answer, 409, &UidMismatch);
    let call = conflict_retry::scale(watched, "again", to(3))
        .guarded_by(ScaleGuard::VersionByPut)
        .with(options)
        .from(Source::Copy(scale_of(&mistaken)))
        .outcome();
    table.call("scale_put", call, "gone", "put!uid_mismatch").await;
    let call = conflict_retry::scale(watched, "again", to(3))
        .with(options)
        .from(Source::Copy(scale_of(&former)))
        .outcome();
    table.call("scale, from the former object", call, "gone", "json_patch!test_failed get").await;

    let body = Patch::Merge(json!({"metadata": {"uid": former.uid()}, "spec": {"maxReplicas": 9}}));
    let answer = pools.patch("again", patch, &body).await;
    table.answer("another UID, merge patch", Verb::MergePatch, answer, 422, &UidMismatch);
    // The patch carries the version of the former object.
    let want = |_: &NodePool| Some(json!({"spec": {"maxReplicas": 9}}));
    let call =
        conflict_retry::merge_patch(watched, "again", want).with(options).from(cached(&former)).outcome();
    table.call("merge_patch, from the former object", call, "gone", "merge_patch!conflict get").await;

    let mut body = applied("again", &json!({}));
    body["metadata"]["uid"] = json!(former.uid());
    body["metadata"]["labels"] = json!({"example.com/own": "yes"});
    let answer = pools.patch("again", &PatchParams::apply("taxonomy"), &Patch::Apply(&body)).await;
    table.answer("another UID, apply", Verb::Apply, answer, 422, &UidMismatch);
    let call = conflict_retry::apply(watched, "again", &body).with(options).outcome();
    table.call("apply", call, "gone", "apply!uid_mismatch").await;
    // Ownership is checked first, so the UID is not checked.
    body["spec"] = json!({"paused": true});
    let answer = pools.patch("again", &PatchParams::apply("taxonomy"), &Patch::Apply(&body)).await;
    let owner = FieldConflict::new("unknown", ".spec.paused");
    let class = Class::FieldManager { conflicts: vec![owner] };
    table.answer("another UID, apply of another's field", Verb::Apply, answer, 409, &class);
    let call = conflict_retry::apply(watched, "again", &body).with(options).outcome();
    table.call("apply", call, "error: field_manager", "apply!field_manager").await;
    let mut body = applied("again", &json!({"status": {"readyReplicas": 1}}));
    body["metadata"]["uid"] = json!(former.uid());
    let call = conflict_retry::apply_status(watched, "again", &body).with(options).outcome();
    table.call("apply_status: the server ignores the UID", call, "written", "apply").await;

    let params =
        DeleteParams::default().preconditions(Preconditions { uid: former.uid(), resource_version: None });
    let answer = pools.delete("again", &params).await;
    table.answer("another UID, DELETE", Verb::Delete, answer, 409, &UidMismatch);
    let call = conflict_retry::once::delete(watched, "again", options, &params);
    table.call("delete", call, "conflict", "delete!uid_mismatch").await;
    let left = pools.get("again").await.unwrap();
    table.check("the current object was spared", left.uid() == current.uid() && left.spec.max_replicas == 5);
}

/// The object does not exist, or it already exists.
pub(crate) async fn missing_and_existing(bench: &Bench, table: &mut Table) {
    let options = &table.options();
    let (pools, watched) = (&bench.set_up::<NodePool>(), &bench.watched::<NodePool>());
    let (post, patch) = (&PostParams::default(), &PatchParams::default());
    let former = bench.pool("gone").await;
    let _ = pools.delete("gone", &DeleteParams::default()).await.unwrap();
    let mut spec = former.clone();
    let _ = grow(&mut spec);

    table.answer("missing, GET", Verb::Get, pools.get("gone").await, 404, &Class::NotFound);
    let call = conflict_retry::update(watched, "gone", grow).put().with(options).outcome();
    table.call("update", call, "gone", "get!not_found").await;
    let call = conflict_retry::scale(watched, "gone", to(3)).with(options).outcome();
    table.call("scale", call, "gone", "get!not_found get!not_found").await;

    let answer = pools.replace("gone", post, &spec).await;
    table.answer("deleted since it was read, PUT", Verb::Put, answer, 404, &Class::NotFound);
    let call =
        conflict_retry::update(watched, "gone", grow).put().with(options).from(cached(&former)).outcome();
    table.call("update", call, "gone", "put!not_found").await;
    let call = conflict_retry::update_status(watched, "gone", report)
        .put()
        .with(options)
        .from(cached(&former))
        .outcome();
    table.call("update_status", call, "gone", "put!not_found get!not_found").await;
    let call = conflict_retry::once::put(watched, "gone", Subresource::Main, options, &spec);
    table.call("put_once", call, "gone", "put!not_found").await;
    let answer = pools.replace_scale("gone", post, &scale_body(&former, 3)).await;
    table.answer("deleted since it was read, PUT /scale", Verb::Put, answer, 404, &Class::NotFound);
    let call = conflict_retry::scale(watched, "gone", to(3))
        .guarded_by(ScaleGuard::VersionByPut)
        .with(options)
        .from(Source::Copy(scale_of(&former)))
        .outcome();
    table.call("scale_put", call, "gone", "put!not_found get!not_found").await;
    let call = conflict_retry::scale(watched, "gone", to(3))
        .with(options)
        .from(Source::Copy(scale_of(&former)))
        .outcome();
    table.call("scale", call, "gone", "json_patch!not_found get!not_found").await;

    let body = versioned(&former, json!({"spec": {"maxReplicas": 9}}));
    let answer = pools.patch("gone", patch, &body).await;
    table.answer("deleted since it was read, merge patch", Verb::MergePatch, answer, 404, &Class::NotFound);
    let want = |_: &NodePool| Some(json!({"spec": {"maxReplicas": 9}}));
    let call =
        conflict_retry::merge_patch(watched, "gone", want).with(options).from(cached(&former)).outcome();
    table.call("merge_patch", call, "gone", "merge_patch!not_found").await;
    let operations = json!([{"op": "add", "path": "/spec/paused", "value": true}]);
    let call = conflict_retry::once::json_patch(watched, "gone", Subresource::Main, options, &operations);
    table.call("json_patch", call, "gone", "json_patch!not_found").await;

    let answer = pools.delete("gone", &DeleteParams::default()).await;
    table.answer("missing, DELETE", Verb::Delete, answer, 404, &Class::NotFound);
    let params = DeleteParams::default();
    let call = conflict_retry::once::delete(watched, "gone", options, &params);
    table.call("delete", call, "gone", "delete!not_found").await;
    let maps = &bench.watched::<Pod>();
    let call = conflict_retry::once::evict(maps, "gone", options, None);
    table.call("evict", call, "gone", "evict!not_found").await;

    let body = applied("gone", &json!({"status": {"readyReplicas": 1}}));
    let answer = pools.patch_status("gone", &PatchParams::apply("taxonomy"), &Patch::Apply(&body)).await;
    table.answer("missing, apply /status", Verb::Apply, answer, 404, &Class::NotFound);
    let call = conflict_retry::apply_status(watched, "gone", &body).with(options).outcome();
    table.call("apply_status", call, "gone", "apply!not_found get!not_found").await;
    let mut body = applied("gone", &json!({"spec": objects::pool("gone", 1, 5).spec}));
    body["metadata"]["uid"] = json!(former.uid());
    let answer = pools.patch("gone", &PatchParams::apply("taxonomy"), &Patch::Apply(&body)).await;
    table.answer("missing, apply that names a UID", Verb::Apply, answer, 409, &Class::Deleted);
    let call = conflict_retry::apply(watched, "gone", &body).with(options).outcome();
    table.call("apply", call, "gone", "apply!deleted").await;
    table.check("nothing was created", pools.get_opt("gone").await.unwrap().is_none());

    // A kind that a PUT may create: the UID shows that this one must not be created.
    let leases = &bench.set_up::<Lease>();
    let former = make(leases, json!({"metadata": {"name": "gone"}})).await;
    let _ = leases.delete("gone", &DeleteParams::default()).await.unwrap();
    let mut changed = former.clone();
    let _ = hold(&mut changed);
    let answer = leases.replace("gone", post, &changed).await;
    table.answer("deleted since it was read, PUT of a Lease", Verb::Put, answer, 409, &Class::Deleted);
    let watched = &bench.watched::<Lease>();
    let call =
        conflict_retry::update(watched, "gone", hold).put().with(options).from(cached(&former)).outcome();
    table.call("update", call, "gone", "put!deleted").await;
    table.check("nothing was created", leases.get_opt("gone").await.unwrap().is_none());

    let map = bench.map("there").await;
    let mut fresh = map.clone();
    fresh.metadata = typed(json!({"name": "there"}));
    let answer = bench.set_up::<ConfigMap>().create(post, &fresh).await;
    table.answer("existing, POST", Verb::Create, answer, 409, &Class::AlreadyExists);
    let maps = &bench.watched::<ConfigMap>();
    let call = conflict_retry::once::create(maps, options, &fresh);
    table.call("create", call, "error: already_exists", "create!already_exists").await;
    fresh.metadata.name = Some("new".to_owned());
    let call = conflict_retry::once::create(maps, options, &fresh);
    table.call("create of another", call, "created", "create").await;
}

pub(crate) fn hold(lease: &mut Lease) -> UpdateDecision {
    lease.spec.get_or_insert_default().holder_identity = Some("taxonomy".to_owned());
    UpdateDecision::Write
}

/// JSON Patch: a failed guard, and errors that look like one.
pub(crate) async fn json_patches(bench: &Bench, table: &mut Table) {
    use Class::TestFailed;
    let options = &table.options();
    let (pools, watched) = (&bench.set_up::<NodePool>(), &bench.watched::<NodePool>());
    let pool = bench.pool("patched").await;
    let params = &PatchParams::default();
    let failing = json!([
        {"op": "test", "path": "/metadata/generation", "value": 99},
        {"op": "add", "path": "/spec/paused", "value": true},
    ]);
    let nowhere = json!([{"op": "remove", "path": "/spec/nothing/here"}]);
    for (case, operations) in [("a test that fails", &failing), ("a path that is missing", &nowhere)] {
        let body = json_patch(operations.clone());
        let answer = pools.patch("patched", params, &body).await;
        table.answer(&format!("{case}, JSON Patch"), Verb::JsonPatch, answer, 422, &TestFailed);
        let call =
            conflict_retry::once::json_patch(watched, "patched", Subresource::Main, options, operations);
        table.call("json_patch", call, "conflict", "json_patch!test_failed").await;
        let answer = pools.patch_status("patched", params, &body).await;
        table.answer(&format!("{case}, JSON Patch /status"), Verb::JsonPatch, answer, 422, &TestFailed);
        let call =
            conflict_retry::once::json_patch(watched, "patched", Subresource::Status, options, operations);
        table.call("json_patch", call, "conflict", "json_patch!test_failed").await;
    }
    let body = json_patch(json!([{"op": "test", "path": "/spec/replicas", "value": 4}]));
    let answer = pools.patch_scale("patched", params, &body).await;
    table.answer("a test that fails, JSON Patch /scale", Verb::JsonPatch, answer, 422, &TestFailed);
    let seen = ScaleView { replicas: Some(4), ..scale_of(&pool) };
    let call =
        conflict_retry::scale(watched, "patched", to(3)).with(options).from(Source::Copy(seen)).outcome();
    table.call("scale, from a wrong count", call, "written", "json_patch!test_failed get json_patch").await;
}

/// Writes that the schema, its CEL rules or a policy refuse.
pub(crate) async fn invalid(bench: &Bench, table: &mut Table) {
    use Class::Invalid;
    let options = &table.options();
    let (pools, watched) = (&bench.set_up::<NodePool>(), &bench.watched::<NodePool>());
    let (post, patch) = (&PostParams::default(), &PatchParams::default());
    let pool = bench.pool("bad").await;
    let crossed = |pool: &mut NodePool| {
        pool.spec.min_replicas = 99;
        UpdateDecision::Write
    };
    let mut bad = pool.clone();
    let _ = crossed(&mut bad);

    table.answer("a CEL rule, PUT", Verb::Put, pools.replace("bad", post, &bad).await, 422, &Invalid);
    let call = conflict_retry::update(watched, "bad", crossed).put().with(options).outcome();
    table.call("update", call, "error: invalid", "get put!invalid").await;
    let body = Patch::Merge(json!({"spec": {"minReplicas": 99}}));
    let answer = pools.patch("bad", patch, &body).await;
    table.answer("a CEL rule, merge patch", Verb::MergePatch, answer, 422, &Invalid);
    let want = |_: &NodePool| Some(json!({"spec": {"minReplicas": 99}}));
    let call = conflict_retry::merge_patch(watched, "bad", want).with(options).outcome();
    table.call("merge_patch", call, "error: invalid", "get merge_patch!invalid").await;
    let operations = json!([{"op": "replace", "path": "/spec/minReplicas", "value": 99}]);
    let answer = pools.patch("bad", patch, &json_patch(operations.clone())).await;
    table.answer("a CEL rule, JSON Patch", Verb::JsonPatch, answer, 422, &Invalid);
    let call = conflict_retry::once::json_patch(watched, "bad", Subresource::Main, options, &operations);
    table.call("json_patch", call, "error: invalid", "json_patch!invalid").await;
    let body = applied("bad", &json!({"spec": {"minReplicas": 99}}));
    let answer = pools.patch("bad", &PatchParams::apply("taxonomy").force(), &Patch::Apply(&body)).await;
    table.answer("a CEL rule, apply", Verb::Apply, answer, 422, &Invalid);
    let force = options.clone().with_force(true);
    let call = conflict_retry::apply(watched, "bad", &body).with(&force).outcome();
    table.call("apply", call, "error: invalid", "apply!invalid").await;

    let answer = pools.replace_scale("bad", post, &scale_body(&pool, 99)).await;
    table.answer("a CEL rule, PUT /scale", Verb::Put, answer, 422, &Invalid);
    let call = conflict_retry::scale(watched, "bad", to(99))
        .guarded_by(ScaleGuard::VersionByPut)
        .with(options)
        .outcome();
    table.call("scale_put", call, "error: invalid", "get put!invalid").await;
    let operations = json!([{"op": "replace", "path": "/spec/replicas", "value": 99}]);
    let answer = pools.patch_scale("bad", patch, &json_patch(operations)).await;
    table.answer("a CEL rule, JSON Patch /scale", Verb::JsonPatch, answer, 422, &Invalid);
    let call = conflict_retry::scale(watched, "bad", to(99))
        .with(options)
        .from(Source::Copy(scale_of(&pool)))
        .outcome();
    table.call("scale", call, "error: invalid", "json_patch!invalid").await;

    let answer = pools.patch("bad", patch, &Patch::Merge(json!({"spec": {"maxReplicas": "many"}}))).await;
    table.answer("a type of the schema, merge patch", Verb::MergePatch, answer, 422, &Invalid);
    let operations = json!([{"op": "replace", "path": "/spec/maxReplicas", "value": "many"}]);
    let answer = pools.patch("bad", patch, &json_patch(operations.clone())).await;
    table.answer("a type of the schema, JSON Patch", Verb::JsonPatch, answer, 422, &Invalid);
    let call = conflict_retry::once::json_patch(watched, "bad", Subresource::Main, options, &operations);
    table.call("json_patch", call, "error: invalid", "json_patch!invalid").await;

    bad = pool.clone();
    let _ = grow(&mut bad);
    bad.metadata.resource_version = None;
    table.answer("no version, PUT", Verb::Put, pools.replace("bad", post, &bad).await, 422, &Invalid);
    let call =
        conflict_retry::update(watched, "bad", crossed).put().with(options).from(cached(&bad)).outcome();
    table.call("update, from a copy without version", call, "error: refused", "").await;
    let call = conflict_retry::once::put(watched, "bad", Subresource::Main, options, &bad);
    table.call("put_once", call, "error: refused", "").await;

    // A policy may refuse the result of a patch; that is not a failed `test`.
    for (name, reason, code, class, ending) in [
        ("refused", "Invalid", 422, Invalid, "invalid"),
        ("forbidden", "Forbidden", 403, Class::Forbidden, "forbidden"),
    ] {
        policy(bench, name, reason).await;
        let operations = json!([{"op": "add", "path": "/data/answer", "value": name}]);
        let body = json_patch(operations.clone());
        bench.map(name).await;
        let maps = &bench.set_up::<ConfigMap>();
        eventually(PATIENCE, "the policy is heeded", async || {
            let dry = PatchParams { dry_run: true, ..PatchParams::default() };
            Ok(maps.patch(name, &dry, &body).await.is_err().then_some(()))
        })
        .await
        .unwrap();
        let answer = maps.patch(name, patch, &body).await;
        table.answer(&format!("a policy ({reason}), JSON Patch"), Verb::JsonPatch, answer, code, &class);
        let watched = &bench.watched::<ConfigMap>();
        let call = conflict_retry::once::json_patch(watched, name, Subresource::Main, options, &operations);
        let (ending, request) = (format!("error: {ending}"), format!("json_patch!{ending}"));
        table.call("json_patch", call, &ending, &request).await;
    }
}

/// Refuses every `ConfigMap` whose answer is `name`.
pub(crate) async fn policy(bench: &Bench, name: &str, reason: &str) {
    let rule = json!({"expression": format!("!has(object.data) || !('answer' in object.data) || object.data.answer != '{name}'"), "reason": reason});
    let resources =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}]);
    let policy = json!({
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": resources},
            "validations": [rule],
        },
    });
    make(&Api::<ValidatingAdmissionPolicy>::all(bench.admin.clone()), policy).await;
    let binding =
        json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    make(&Api::<ValidatingAdmissionPolicyBinding>::all(bench.admin.clone()), binding).await;
}

pub(crate) fn dynamic(
    client: &Client,
    namespace: &str,
    group: &str,
    kind: &str,
    plural: &str,
) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(group, "v1", kind);
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, plural))
}

/// Requests that the API server does not serve, does not support, or does not read.
pub(crate) async fn not_served(bench: &Bench, table: &mut Table) {
    use Class::{NotFound, NotServed, Other};
    let options = &table.options();
    let (post, patch) = (&PostParams::default(), &PatchParams::default());
    let ghosts = dynamic(&bench.admin, NAMESPACE, "example.org", "Ghost", "ghosts");
    table.answer("an unknown resource, GET", Verb::Get, ghosts.get("x").await, 404, &NotServed);
    let ghosts = &dynamic(&bench.observed, NAMESPACE, "example.org", "Ghost", "ghosts");
    let call = conflict_retry::update(ghosts, "x", |_| UpdateDecision::Write).put().with(options).outcome();
    table.call("update", call, "error: not_served", "get!not_served").await;
    let body = json!({"apiVersion": "example.org/v1", "kind": "Ghost", "metadata": {"name": "x"}});
    let call = conflict_retry::apply(ghosts, "x", &body).with(options).outcome();
    table.call("apply", call, "error: not_served", "apply!not_served").await;
    let params = DeleteParams::default();
    let call = conflict_retry::once::delete(ghosts, "x", options, &params);
    table.call("delete", call, "error: not_served", "delete!not_served").await;

    let map = bench.map("plain").await;
    let maps = &bench.set_up::<ConfigMap>();
    let answer = maps.replace_subresource("status", "plain", post, &map).await;
    table.answer("an unknown subresource, PUT /status", Verb::Put, answer, 404, &NotServed);
    let watched = &bench.watched::<ConfigMap>();
    let want = |_: &ConfigMap| Some(json!({"status": {"a": 1}}));
    let call =
        conflict_retry::merge_patch(watched, "plain", want).on(Subresource::Status).with(options).outcome();
    table.call("merge_patch", call, "error: not_served", "get merge_patch!not_served").await;
    table.answer(
        "an unknown subresource, GET /scale",
        Verb::Get,
        maps.get_scale("plain").await,
        404,
        &NotServed,
    );
    let call = conflict_retry::scale(watched, "plain", to(3)).with(options).outcome();
    table.call("scale", call, "error: not_served", "get!not_served").await;

    let widgets = &widgets(bench).await;
    let answer = widgets.get_scale("big").await;
    // The server answers as if the object were missing: the answer does not distinguish the two.
    table.answer("a CRD without scale, GET /scale", Verb::Get, answer, 404, &NotFound);
    let watched_widgets = &dynamic(&bench.observed, NAMESPACE, "example.com", "Widget", "widgets");
    // Only a read of the object itself does.
    let call = conflict_retry::scale(watched_widgets, "big", to(3)).with(options).outcome();
    table.call("scale", call, "error: not_served", "get!not_found get").await;
    let call = conflict_retry::update_status(watched_widgets, "big", |widget| {
        widget.data["status"] = json!({"a": 1});
        UpdateDecision::Write
    })
    .put()
    .with(options)
    .outcome();
    table.call("update_status", call, "error: not_served", "get put!not_found get").await;

    let elsewhere = Api::<ConfigMap>::namespaced(bench.admin.clone(), "no-such-namespace");
    let fresh: ConfigMap = typed(json!({"metadata": {"name": "x"}}));
    table.answer(
        "a missing namespace, POST",
        Verb::Create,
        elsewhere.create(post, &fresh).await,
        404,
        &Class::NamespaceNotFound,
    );
    let elsewhere = Api::<ConfigMap>::namespaced(bench.observed.clone(), "no-such-namespace");
    let call = conflict_retry::once::create(&elsewhere, options, &fresh);
    table.call("create", call, "error: namespace_not_found", "create!namespace_not_found").await;

    let strategic = Patch::Strategic(json!({"spec": {}}));
    let answer = bench.set_up::<NodePool>().patch("bad", patch, &strategic).await;
    table.answer("a strategic merge patch of a CRD", Verb::MergePatch, answer, 415, &Other);
    let empty = Api::<ConfigMap>::namespaced(bench.admin.clone(), NAMESPACE);
    let at = ListParams {
        resource_version: Some("x".into()),
        version_match: Some(VersionMatch::Exact),
        ..ListParams::default()
    };
    table.answer("a version that is none", Verb::Get, empty.list(&at).await, 400, &Other);
}

/// A kind without subresources whose objects may contain anything, and one object of it.
pub(crate) async fn widgets(bench: &Bench) -> Api<DynamicObject> {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [version],
        },
    });
    make(&Api::<CustomResourceDefinition>::all(bench.admin.clone()), definition).await;
    let widgets = dynamic(&bench.admin, NAMESPACE, "example.com", "Widget", "widgets");
    let widget: DynamicObject =
        typed(json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "big"}}));
    eventually(PATIENCE, "widgets are served", async || {
        Ok(Some(widgets.create(&PostParams::default(), &widget).await?))
    })
    .await
    .unwrap();
    widgets
}

/// Requests without the necessary rights.
pub(crate) async fn no_rights(bench: &Bench, table: &mut Table) {
    use Class::{Forbidden, Unauthorized};
    let options = &table.options();
    let pool = bench.pool("locked").await;
    let mut changed = pool.clone();
    let _ = grow(&mut changed);
    let account = bench.cluster.kubeconfig_for_service_account(NAMESPACE, "no-rights").await.unwrap();
    let no_rights = connect(&account, "no-rights", |_| {}).await;
    let answer = Api::<NodePool>::namespaced(no_rights, NAMESPACE)
        .replace("locked", &PostParams::default(), &changed)
        .await;
    table.answer("no right to, PUT", Verb::Put, answer, 403, &Forbidden);
    let pools = &Api::<NodePool>::namespaced(connect(&account, AGENT, |_| {}).await, NAMESPACE);
    let call = conflict_retry::update(pools, "locked", grow).put().with(options).outcome();
    table.call("update", call, "error: forbidden", "get!forbidden").await;
    let call =
        conflict_retry::update(pools, "locked", grow).put().with(options).from(cached(&pool)).outcome();
    table.call("update, from a copy", call, "error: forbidden", "put!forbidden").await;
    let call = conflict_retry::scale(pools, "locked", to(3))
        .with(options)
        .from(Source::Copy(scale_of(&pool)))
        .outcome();
    table.call("scale", call, "error: forbidden", "json_patch!forbidden").await;
    let body = applied("locked", &json!({"status": {"readyReplicas": 1}}));
    let call = conflict_retry::apply_status(pools, "locked", &body).with(options).outcome();
    table.call("apply_status", call, "error: forbidden", "apply!forbidden").await;

    let bad = |config: &mut Config| config.auth_info.token = Some("not-a-token".to_owned().into());
    let stranger = connect(bench.cluster.kubeconfig_path(), "stranger", bad).await;
    let answer = Api::<NodePool>::namespaced(stranger, NAMESPACE).get("locked").await;
    table.answer("a bad token, GET", Verb::Get, answer, 401, &Unauthorized);
    let stranger = connect(bench.cluster.kubeconfig_path(), AGENT, bad).await;
    let pools = &Api::<NodePool>::namespaced(stranger, NAMESPACE);
    let call =
        conflict_retry::update(pools, "locked", grow).put().with(options).from(cached(&pool)).outcome();
    table.call("update, from a copy", call, "error: unauthorized", "put!unauthorized").await;

    // No controller completes the deletion here, because no controller manager runs.
    let namespaces = Api::<Namespace>::all(bench.admin.clone());
    make(&namespaces, json!({"metadata": {"name": "ending"}})).await;
    let _ = namespaces.delete("ending", &DeleteParams::default()).await.unwrap();
    let fresh: ConfigMap = typed(json!({"metadata": {"name": "x"}}));
    let ending = Api::<ConfigMap>::namespaced(bench.admin.clone(), "ending");
    let answer = eventually(PATIENCE, "the namespace takes nothing more", async || {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        Ok(ending.create(&dry, &fresh).await.err())
    })
    .await
    .unwrap();
    let class = Class::NamespaceTerminating;
    table.answer("a namespace that ends, POST", Verb::Create, Err::<(), _>(answer), 403, &class);
    let ending = &Api::<ConfigMap>::namespaced(bench.observed.clone(), "ending");
    let call = conflict_retry::once::create(ending, options, &fresh);
    let requests = "create!namespace_terminating";
    table.call("create", call, "error: namespace_terminating", requests).await;
}
