//! Every write function on every kind.

use std::sync::Arc;

use conflict_retry::{ScaleView, Source, Subresource, UpdateDecision, Writable, WriteOptions};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use shared_crds::NodePool;
use testbed::{objects, tandem};

use crate::bench::{Counts, Ending, cached, grow, to, typed};

/// Tries the write functions on a kind: on its own object, as typed or dynamic data.
async fn tried<K: Writable>(api: &Api<K>, object: Value, part: &Part) {
    let object: K = typed(object);
    let name = &object.meta().name.clone().unwrap();
    let options = WriteOptions::new("kinds");
    conflict_retry::once::create(api, &options, &object).await.unwrap();
    if let Subresource::Scale = part.subresource {
        return scaled(api, name).await;
    }
    let counts = Arc::new(Counts::default());
    let options = &options.with_observer(counts.clone());
    let status = part.subresource == Subresource::Status;
    let stale = api.get(name).await.unwrap();
    let touch = async || {
        let note = json!({"metadata": {"annotations": {"note": format!("{:x}", rand::random::<u64>())}}});
        api.patch(name, &PatchParams::default(), &Patch::Merge(note)).await.unwrap()
    };
    let is = async |value: &Value| {
        let stored = serde_json::to_value(api.get(name).await.unwrap()).unwrap();
        assert_eq!(stored.pointer(part.path), Some(value), "{}", part.path);
    };

    touch().await;
    let [first, second] = &part.values;
    let set = |object: &mut K| {
        let mut value = serde_json::to_value(&*object).unwrap();
        put_in(&mut value, part.path, first);
        *object = serde_json::from_value(value).unwrap();
        UpdateDecision::Write
    };
    let outcome = if status {
        conflict_retry::update_status(api, name, set).put().with(options).from(cached(&stale)).outcome().await
    } else {
        conflict_retry::update(api, name, set).put().with(options).from(cached(&stale)).outcome().await
    };
    assert_eq!((&*outcome.ending(), &*counts.take()), ("written", "put!conflict get put"));
    is(first).await;
    let outcome = if status {
        conflict_retry::update_status(api, name, set).put().with(options).outcome().await
    } else {
        conflict_retry::update(api, name, set).put().with(options).outcome().await
    };
    assert_eq!((&*outcome.ending(), &*counts.take()), ("unchanged", "get"));

    // What has changed, as a merge patch, from the same old copy.
    let mut back = |object: &mut K| {
        let mut value = serde_json::to_value(&*object).unwrap();
        put_in(&mut value, part.path, second);
        *object = serde_json::from_value(value).unwrap();
    };
    let copied = serde_json::to_value(&stale).unwrap();
    let has_entries = copied.pointer(part.path).and_then(Value::as_array).is_some_and(|it| !it.is_empty());
    // A list of objects is changed as the server has it, which a copy does not tell.
    let requests = if has_entries { "get merge_patch" } else { "merge_patch!conflict get merge_patch" };
    let outcome = if status {
        conflict_retry::update_status(api, name, &mut back).with(options).from(cached(&stale)).outcome().await
    } else {
        conflict_retry::update(api, name, &mut back).with(options).from(cached(&stale)).outcome().await
    };
    assert_eq!((&*outcome.ending(), &*counts.take()), ("written", requests));
    is(second).await;

    let mut patch = json!({});
    put_in(&mut patch, part.path, first);
    let want = |_: &K| Some(patch.clone());
    let requests = "merge_patch!conflict get merge_patch";
    let outcome = conflict_retry::merge_patch(api, name, want)
        .on(part.subresource)
        .with(options)
        .from(cached(&stale))
        .outcome()
        .await;
    assert_eq!((&*outcome.ending(), &*counts.take()), ("written", requests));
    is(first).await;
}

/// A scale from a wrong count, and then one without a change.
async fn scaled<K: Writable>(api: &Api<K>, name: &str) {
    let counts = Arc::new(Counts::default());
    let options = &WriteOptions::new("kinds").with_observer(counts.clone());
    let seen = ScaleView { replicas: Some(4), ..ScaleView::of(&api.get(name).await.unwrap(), Some(4), None) };
    for count in [0, 3] {
        let outcome = conflict_retry::scale(api, name, to(count))
            .with(options)
            .from(Source::Copy(seen.clone()))
            .outcome()
            .await;
        let requests = "json_patch!test_failed get json_patch";
        assert_eq!((&*outcome.ending(), &*counts.take()), ("written", requests));
        let stored = api.get_scale(name).await.unwrap().spec.unwrap().replicas.unwrap_or_default();
        assert_eq!(stored, count);
    }
    let outcome = conflict_retry::scale(api, name, to(3)).with(options).outcome().await;
    assert_eq!((&*outcome.ending(), &*counts.take()), ("unchanged", "get"));
}

/// Sets the value at `path`, creating the objects on the way there.
fn put_in(object: &mut Value, path: &str, value: &Value) {
    let place = path.split('/').skip(1).fold(object, |place, key| &mut place[key]);
    *place = value.clone();
}

/// What is written: the place, and two values for it.
struct Part {
    subresource: Subresource,
    path: &'static str,
    values: [Value; 2],
}

fn node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n-{:x}", rand::random::<u64>())}})
}

fn pool() -> Value {
    let mut pool = objects::pool(&format!("p-{:x}", rand::random::<u64>()), 0, 5);
    pool.spec.replicas = Some(2);
    serde_json::to_value(pool).unwrap()
}

/// Tries `of_nodes` on nodes, which have no namespace, and `of_pools` on pools, which have one; typed and dynamic.
async fn on_every_kind(of_nodes: &Part, of_pools: &Part) {
    let cluster = tandem::definitions_only().await.unwrap();
    let namespace = cluster.namespace("kinds").await.unwrap();
    let client = cluster.client().await.unwrap();
    tried(&Api::<Node>::all(client.clone()), node(), of_nodes).await;
    let nodes = Api::<DynamicObject>::all_with(client.clone(), &ApiResource::erase::<Node>(&()));
    tried(&nodes, node(), of_nodes).await;
    on_pools(&client, namespace.name(), of_pools).await;
}

async fn on_pools(client: &Client, namespace: &str, part: &Part) {
    tried(&Api::<NodePool>::namespaced(client.clone(), namespace), pool(), part).await;
    let kind = ApiResource::erase::<NodePool>(&());
    let pools = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &kind);
    tried(&pools, pool(), part).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spec_is_written_whatever_the_kind() {
    let spec = |path, values| Part { subresource: Subresource::Main, path, values };
    let taint = |key: &str| json!([{"key": key, "effect": "NoSchedule"}]);
    let of_nodes = spec("/spec/taints", [taint("red"), taint("blue")]);
    let of_pools = spec("/spec/maxReplicas", [json!(7), json!(9)]);
    on_every_kind(&of_nodes, &of_pools).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_is_written_whatever_the_kind() {
    let status = |path, values| Part { subresource: Subresource::Status, path, values };
    let of_nodes = status("/status/phase", [json!("Pending"), json!("Running")]);
    let of_pools = status("/status/readyReplicas", [json!(1), json!(2)]);
    on_every_kind(&of_nodes, &of_pools).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_are_written_whatever_the_kind() {
    let labels = || Part {
        subresource: Subresource::Main,
        path: "/metadata/labels/colour",
        values: [json!("red"), json!("blue")],
    };
    on_every_kind(&labels(), &labels()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn finalizers_are_written_whatever_the_kind() {
    let values = [json!(["example.com/a"]), json!(["example.com/a", "example.com/b"])];
    let finalizers =
        || Part { subresource: Subresource::Main, path: "/metadata/finalizers", values: values.clone() };
    on_every_kind(&finalizers(), &finalizers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_holds_a_deletion_until_the_write_function_takes_it_away() {
    let cluster = tandem::definitions_only().await.unwrap();
    let namespace = cluster.namespace("kinds").await.unwrap();
    let pools = &Api::<NodePool>::namespaced(cluster.client().await.unwrap(), namespace.name());
    let counts = Arc::new(Counts::default());
    let options = &WriteOptions::new("kinds").with_observer(counts.clone());
    let mut held = objects::pool("held", 0, 5);
    held.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    conflict_retry::once::create(pools, options, &held).await.unwrap();
    let ended = conflict_retry::once::delete(pools, "held", options, &DeleteParams::default()).await;
    assert_eq!(ended.ending(), "terminating");
    counts.take();
    let freed = conflict_retry::update(pools, "held", |pool| {
        pool.finalizers_mut().clear();
        UpdateDecision::Write
    })
    .put()
    .with(options)
    .outcome();
    assert_eq!((&*freed.await.ending(), &*counts.take()), ("written", "get put"));
    let freed = conflict_retry::update(pools, "held", grow).put().with(options).outcome();
    assert_eq!((&*freed.await.ending(), &*counts.take()), ("gone", "get!not_found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_is_written_whatever_the_kind() {
    let cluster = tandem::definitions_only().await.unwrap();
    let namespace = cluster.namespace("kinds").await.unwrap();
    let client = cluster.client().await.unwrap();
    let scale = &Part { subresource: Subresource::Scale, path: "", values: [json!(null), json!(null)] };
    on_pools(&client, namespace.name(), scale).await;
    let deployment = || serde_json::to_value(objects::deployment("web", "none", 2, "1")).unwrap();
    tried(&Api::<Deployment>::namespaced(client.clone(), namespace.name()), deployment(), scale).await;
    let mut other = deployment();
    other["metadata"]["name"] = json!("dynamic");
    let kind = ApiResource::erase::<Deployment>(&());
    tried(&Api::<DynamicObject>::namespaced_with(client, namespace.name(), &kind), other, scale).await;
}

/// Sends a status together with a change of the labels to the object itself, in every way: the labels are written, the status is
/// not, and the call says so.
async fn loses_a_status<K: Writable>(api: &Api<K>, object: &Value, status: &Value) {
    let counts = Arc::new(Counts::default());
    let options = &WriteOptions::new("statuses").with_observer(counts.clone());
    let fresh = |call: &str| {
        let mut object = object.clone();
        object["metadata"]["name"] = json!(format!("{call}-{:x}", rand::random::<u64>()));
        object
    };
    let change = |call: &str| json!({"metadata": {"labels": {"call": call}}, "status": status});
    let changed = |object: &K, call: &str| {
        let mut value = serde_json::to_value(object).unwrap();
        put_in(&mut value, "/metadata/labels", &json!({"call": call}));
        put_in(&mut value, "/status", status);
        typed::<K>(value)
    };
    for (call, requests) in [
        ("update", "get merge_patch"),
        ("update-put", "get put"),
        ("merge-patch", "get merge_patch"),
        ("apply", "apply"),
        ("apply-new", "apply"),
        ("ensure", "get merge_patch"),
        ("ensure-new", "get!not_found create"),
    ] {
        let object = fresh(call);
        let name = object["metadata"]["name"].as_str().unwrap();
        if !call.ends_with("-new") {
            api.create(&PostParams::default(), &typed(object.clone())).await.unwrap();
        }
        let set = |object: &mut K| {
            *object = changed(object, call);
            UpdateDecision::Write
        };
        let ended = match call {
            "update" => conflict_retry::update(api, name, set).with(options).outcome().await,
            "update-put" => conflict_retry::update(api, name, set).put().with(options).outcome().await,
            "merge-patch" => {
                let patch = |_: &K| Some(change(call));
                conflict_retry::merge_patch(api, name, patch).with(options).outcome().await
            }
            "apply" | "apply-new" => {
                // All of it: what an apply creates needs what is required.
                let mut body = object.clone();
                body["metadata"]["labels"] = json!({"call": call});
                body["status"] = status.clone();
                conflict_retry::apply(api, name, &body).with(options).outcome().await
            }
            _ => {
                let initial = changed(&typed(object.clone()), call);
                conflict_retry::create_or_update(api, &initial, set).with(options).outcome().await
            }
        };
        assert_eq!(counts.take(), requests, "{call}");
        assert!(ended.is_err(), "{call} lost a status and says nothing");
        let error = ended.err().unwrap();
        let says = "refused: the change touches `status`, which a write to Main drops; write it elsewhere";
        assert_eq!(error.to_string(), says, "{call}");
        assert!(error.maybe_written(), "{call}");
        let stored = serde_json::to_value(api.get(name).await.unwrap()).unwrap();
        assert_eq!(stored["metadata"]["labels"]["call"], json!(call), "{call}: the rest is written");
        for (field, value) in status.as_object().unwrap() {
            assert_ne!(
                stored.pointer(&format!("/status/{field}")),
                Some(value),
                "{call}: the status is stored"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_the_server_drops_is_an_error_of_every_write_function() {
    let cluster = tandem::definitions_only().await.unwrap();
    let namespace = cluster.namespace("kinds").await.unwrap();
    let client = cluster.client().await.unwrap();
    let mut object = pool();
    object["metadata"] = json!({});
    let status = json!({"readyReplicas": 7});
    loses_a_status(&Api::<NodePool>::namespaced(client.clone(), namespace.name()), &object, &status).await;
    let kind = ApiResource::erase::<NodePool>(&());
    let pools = Api::<DynamicObject>::namespaced_with(client.clone(), namespace.name(), &kind);
    loses_a_status(&pools, &object, &status).await;
    let mut object = serde_json::to_value(objects::deployment("web", "none", 2, "1")).unwrap();
    object["metadata"] = json!({});
    let status = json!({"readyReplicas": 7});
    loses_a_status(&Api::<Deployment>::namespaced(client, namespace.name()), &object, &status).await;
}
