//! An operator's token in other hands: the API server refuses, field by field, what the operator does not own.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::conditions::ConditionType;
use shared_crds::names::POOL_FINALIZER;
use shared_crds::ownership::{self, Owner};
use testbed::cluster::{Cluster, ClusterOptions};
use testbed::objects;
use testbed::places::Places;
use testbed::tandem::Release;
use testbed::test_env::RELEASE_NAMESPACE;

/// Their own control plane: what is written here is not for operators to act on.
pub(super) static PLACES: Places = Places::new(1, ClusterOptions::private);

pub(super) const WRITERS: [(Owner, &str); 2] = [
    (Owner::NodepoolOperator, "tandem-nodepool-operator"),
    (Owner::AutoscalerOperator, "tandem-autoscaler-operator"),
];

/// What came of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Stored,
    /// The API server has put back what was there, as a default.
    Unchanged,
    /// By the firewall, and by nothing else.
    Refused,
    /// The value does not fit the schema, so the firewall was not asked.
    Invalid,
}

pub(super) fn verdict<T>(answer: Result<T, kube::Error>) -> Verdict {
    match answer {
        Ok(_) => Verdict::Stored,
        Err(kube::Error::Api(status)) if status.is_forbidden() && status.message.contains("does not own") => {
            Verdict::Refused
        }
        Err(kube::Error::Api(status)) if status.is_invalid() => Verdict::Invalid,
        Err(other) => panic!("{other}"),
    }
}

fn pools(client: Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client, namespace, &ApiResource::erase::<NodePool>(&()))
}

/// Installs the release, and returns when the API server has its roles and each of its policies: it reads them now and
/// then, and one may come after another.
pub(super) async fn install(cluster: &Cluster) {
    Release::install(cluster, RELEASE_NAMESPACE, &[]).await.unwrap();
    let namespace = cluster.namespace("in-force").await.unwrap();
    let admin = Api::<NodePool>::namespaced(cluster.client().await.unwrap(), namespace.name());
    admin.create(&PostParams::default(), &objects::pool("x", 0, 1)).await.unwrap();
    let claims = json!({"tandem.dev/left-over": "true"});
    for (client, annotations) in [
        (cluster.client_for_service_account(RELEASE_NAMESPACE, WRITERS[0].1).await.unwrap(), json!({})),
        (kubelet(cluster, "nobodys").await, claims),
    ] {
        let node = json!({"metadata": {"name": "nobodys", "annotations": annotations}});
        let node: Node = serde_json::from_value(node).unwrap();
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let nodes = Api::<Node>::all(client);
        refuses("Nodes", async || nodes.create(&dry, &node).await.map(drop)).await;
    }
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    // A field of the user, which neither owns.
    let foreign = Patch::Merge(json!({"spec": {"maxReplicas": 2}}));
    for (_, account) in WRITERS {
        let client = cluster.client_for_service_account(RELEASE_NAMESPACE, account).await.unwrap();
        let api = pools(client, namespace.name());
        refuses(account, async || api.patch("x", &dry, &foreign).await.map(drop)).await;
    }
}

/// Waits until the firewall refuses this write. Before that its writer may have no right to it yet, or no policy is asked.
async fn refuses(what: &str, write: impl AsyncFn() -> Result<(), kube::Error>) {
    testbed::wait::eventually(
        testbed::test_env::PATIENCE,
        &format!("the policy of {what} holds"),
        async || match write().await {
            Err(kube::Error::Api(status)) if status.message.contains("does not own") => Ok(Some(())),
            other => anyhow::bail!("{other:?}"),
        },
    )
    .await
    .unwrap();
}

/// The client of the kubelet of this node.
pub(super) async fn kubelet(cluster: &Cluster, name: &str) -> Client {
    let mut config = cluster.client_config().await.unwrap();
    config.auth_info.impersonate = Some(format!("system:node:{name}"));
    config.auth_info.impersonate_groups = Some(vec!["system:nodes".to_owned()]);
    Client::try_from(config).unwrap()
}

/// A value that fits the schema, with every field of it.
fn example(schema: &JSONSchemaProps) -> Value {
    if let Some(first) = schema.enum_.as_ref().and_then(|values| values.first()) {
        return first.0.clone();
    }
    match (schema.type_.as_deref(), &schema.properties) {
        (Some("object"), Some(properties)) => {
            properties.iter().map(|(name, schema)| (name.clone(), example(schema))).collect()
        }
        (Some("object"), None) => json!({"a": "1"}),
        (Some("array"), _) => {
            use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray::Schema;
            match &schema.items {
                Some(Schema(items)) => json!([example(items)]),
                _ => json!([]),
            }
        }
        (Some("integer" | "number"), _) => {
            let minimum = schema.minimum.map(|minimum| minimum.to_string());
            json!(minimum.and_then(|minimum| minimum.parse::<i64>().ok()).unwrap_or(1))
        }
        (Some("boolean"), _) => json!(true),
        (Some("string"), _) if schema.format.as_deref() == Some("date-time") => json!("2026-01-01T00:00:00Z"),
        _ => json!("1"),
    }
}

/// Another value of the same type, where the schema does not say more.
fn other(value: &Value) -> Value {
    match value {
        Value::Bool(is) => json!(!is),
        Value::Number(number) => json!(number.as_i64().unwrap_or(0) + 1),
        Value::String(text) if text.contains('T') && text.ends_with('Z') => json!("2026-01-02T00:00:00Z"),
        Value::String(text) => json!(format!("{text}1")),
        Value::Array(_) => json!([]),
        Value::Object(_) | Value::Null => json!({}),
    }
}

/// The schema of the field at this JSON pointer, and `None` of one whose schema is not in the CRD, as of `metadata`.
fn schema_at<'a>(schema: &'a JSONSchemaProps, pointer: &str) -> Option<&'a JSONSchemaProps> {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray::Schema;
    let Some((key, rest)) = pointer.strip_prefix('/').map(|path| path.split_once('/').unwrap_or((path, "")))
    else {
        return Some(schema);
    };
    let below = match &schema.items {
        Some(Schema(items)) => items,
        _ => schema.properties.as_ref()?.get(key)?,
    };
    schema_at(below, &if rest.is_empty() { String::new() } else { format!("/{rest}") })
}

/// Another value that the schema lists, of a field that has a list.
fn other_listed(schema: &JSONSchemaProps, pointer: &str, value: &Value) -> Option<Value> {
    let listed = schema_at(schema, pointer)?.enum_.as_ref()?;
    listed.iter().map(|listed| listed.0.clone()).find(|listed| listed != value)
}

/// The first number or text below `value` on its path from there, changed.
fn changed(value: &Value) -> Value {
    match value {
        Value::Object(map) => map.iter().take(1).map(|(key, below)| (key.clone(), changed(below))).collect(),
        value => other(value),
    }
}

/// Every leaf below `value`, as JSON pointers.
fn leaves(value: &Value, at: &str, found: &mut BTreeMap<String, Value>) {
    let escape = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, below) in map {
                leaves(below, &format!("{at}/{}", escape(key)), found);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (place, below) in list.iter().enumerate() {
                leaves(below, &format!("{at}/{place}"), found);
            }
        }
        leaf => {
            found.insert(at.to_owned(), leaf.clone());
        }
    }
}

/// Whether the contract gives the field at this pointer to `writer`.
fn owns(writer: Owner, pool: &Value, pointer: &str) -> bool {
    let path = pointer.trim_start_matches('/').replace('/', ".");
    if let Some(rest) = path.strip_prefix("status.conditions.") {
        let place: usize = rest.split('.').next().unwrap().parse().unwrap();
        let type_ = pool["status"]["conditions"][place]["type"].as_str().unwrap();
        let known = ConditionType::ALL.iter().find(|known| known.as_str() == type_);
        return known.and_then(|known| known.owner_on_node_pool()) == Some(writer);
    }
    ownership::rule_for(&path).is_some_and(|rule| rule.may_write(writer, false))
}

fn pool_schema() -> JSONSchemaProps {
    let crd = shared_crds::all().unwrap().remove(0);
    crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap()
}

/// A pool that has every field of its status, and a condition of every type.
async fn full_pool(cluster: &Cluster, namespace: &str) -> Value {
    let admin = cluster.client().await.unwrap();
    let mut pool = objects::pool("x", 1, 3);
    pool.metadata.labels = Some(BTreeMap::from([("team".to_owned(), "a".to_owned())]));
    pool.metadata.annotations = Some(BTreeMap::from([("note".to_owned(), "a".to_owned())]));
    pool.metadata.finalizers = Some(vec!["example.org/other".to_owned()]);
    Api::<NodePool>::namespaced(admin.clone(), namespace)
        .create(&PostParams::default(), &pool)
        .await
        .unwrap();
    let mut status = example(&pool_schema().properties.unwrap()["status"]);
    let condition = |type_: &str| json!({"type": type_, "status": "True", "reason": "Test", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let mut types: Vec<&str> = ConditionType::ALL.iter().map(|type_| type_.as_str()).collect();
    types.push("example.org/Other");
    status["conditions"] = types.into_iter().map(condition).collect();
    let patch = Patch::Merge(json!({"status": status}));
    let stored = pools(admin, namespace).patch_status("x", &PatchParams::default(), &patch).await.unwrap();
    serde_json::to_value(stored).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_token_changes_no_leaf_of_a_pool_that_is_not_the_operators() {
    let cluster = &PLACES.take().await.unwrap();
    install(cluster).await;
    let schema = pool_schema();
    for (writer, account) in WRITERS {
        let namespace = cluster.namespace("fields").await.unwrap();
        let pool = full_pool(cluster, namespace.name()).await;
        let client = cluster.client_for_service_account(RELEASE_NAMESPACE, account).await.unwrap();
        let api = pools(client, namespace.name());
        let mut found = BTreeMap::new();
        for part in ["spec", "status", "metadata"] {
            leaves(&pool[part], &format!("/{part}"), &mut found);
        }
        // The API server's own, which no writer can change.
        found.retain(|pointer, _| {
            let own = ["managedFields", "creationTimestamp", "generation", "name", "resourceVersion", "uid"];
            // With another type, a condition is another one.
            let key = pointer.starts_with("/status/conditions/") && pointer.ends_with("/type");
            !key && !own.iter().any(|name| pointer.starts_with(&format!("/metadata/{name}")))
        });
        assert!(found.len() > 60, "{}", found.len());
        let mut seen: BTreeMap<(bool, Verdict), usize> = BTreeMap::new();
        for (pointer, value) in &found {
            let mut values = vec![other(value)];
            // A quantity.
            values.extend(value.as_str().map(|text| json!(format!("1{text}"))));
            values.extend(other_listed(&schema, pointer, value));
            let replace = |value: Value| json!([{"op": "replace", "path": pointer, "value": value}]);
            let remove = json!([{"op": "remove", "path": pointer}]);
            let changes = values.into_iter().map(replace).chain([remove]);
            let own = owns(writer, &pool, pointer);
            let (mut refused, mut said) = (false, String::new());
            for change in changes {
                let patch: json_patch::Patch = serde_json::from_value(change).unwrap();
                let (patch, params) =
                    (Patch::<()>::Json(patch), PatchParams { dry_run: true, ..PatchParams::default() });
                let answer = if pointer.starts_with("/status") {
                    api.patch_status("x", &params, &patch).await
                } else {
                    api.patch("x", &params, &patch).await
                };
                if let Err(error) = &answer {
                    said = error.to_string();
                }
                let same = answer.as_ref().is_ok_and(|stored| {
                    let stored = serde_json::to_value(stored).unwrap();
                    stored.pointer(pointer) == Some(value)
                });
                let verdict = if same { Verdict::Unchanged } else { verdict(answer) };
                assert!(verdict != Verdict::Stored || own, "{account} has changed {pointer}");
                assert!(
                    verdict != Verdict::Refused || !own,
                    "{account} may not change {pointer}, which is its own"
                );
                refused |= verdict == Verdict::Refused;
                *seen.entry((own, verdict)).or_default() += 1;
            }
            assert!(
                own || refused,
                "no change of {pointer} by {account} fits the schema, so nothing was asked: {said}"
            );
        }
        println!("{account}: (own, verdict): {seen:?}");
    }
    cluster.mark_reusable();
}

/// As each of the operators' write strategies writes: a patch that tests, a merge patch, an apply by force, and the whole object.
#[tokio::test(flavor = "multi_thread")]
async fn an_operators_token_is_refused_in_every_way_to_write() {
    let cluster = &PLACES.take().await.unwrap();
    install(cluster).await;
    for ((_, account), foreign) in WRITERS.into_iter().zip(["autoscaling", "readyReplicas"]) {
        let namespace = cluster.namespace("ways").await.unwrap();
        let pool = full_pool(cluster, namespace.name()).await;
        let client = cluster.client_for_service_account(RELEASE_NAMESPACE, account).await.unwrap();
        let api = pools(client, namespace.name());
        let plain = PatchParams::default();
        let pointer = format!("/status/{foreign}");
        let guarded: json_patch::Patch = serde_json::from_value(json!([
            {"op": "test", "path": "/metadata/generation", "value": pool["metadata"]["generation"]},
            {"op": "remove", "path": pointer},
        ]))
        .unwrap();
        let guarded = api.patch_status("x", &plain, &Patch::<()>::Json(guarded)).await;
        assert_eq!(verdict(guarded), Verdict::Refused, "{account} patches with a test");
        let merged = api.patch_status("x", &plain, &Patch::Merge(json!({"status": {foreign: null}}))).await;
        assert_eq!(verdict(merged), Verdict::Refused, "{account} patches");
        let mut applied =
            json!({"apiVersion": "tandem.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "x"}});
        applied["status"] = json!({foreign: changed(&pool["status"][foreign])});
        let forced = PatchParams::apply("anyone").force();
        let applied = api.patch_status("x", &forced, &Patch::Apply(applied)).await;
        assert_eq!(verdict(applied), Verdict::Refused, "{account} applies");
        let mut whole: DynamicObject = api.get("x").await.unwrap();
        whole.data["status"].as_object_mut().unwrap().remove(foreign);
        let replaced = api.replace_status("x", &PostParams::default(), &whole).await;
        assert_eq!(verdict(replaced), Verdict::Refused, "{account} replaces");
        // The control, each way: what the operator owns.
        let own = if foreign == "autoscaling" { "readyReplicas" } else { "autoscaling" };
        let mut whole: DynamicObject = api.get("x").await.unwrap();
        whole.data["status"].as_object_mut().unwrap().remove(own);
        let replaced = api.replace_status("x", &PostParams::default(), &whole).await;
        assert_eq!(verdict(replaced), Verdict::Stored, "{account} replaces its own");
    }
    cluster.mark_reusable();
}

/// The object itself, which an operator may patch and not replace: with a test, by a merge, and by an apply with force.
#[tokio::test(flavor = "multi_thread")]
async fn an_operators_token_is_refused_the_spec_of_a_pool_in_every_way_to_patch() {
    let cluster = &PLACES.take().await.unwrap();
    install(cluster).await;
    let owned = [
        json!({"metadata": {"finalizers": ["example.org/other", POOL_FINALIZER]}}),
        json!({"spec": {"replicas": 2}}),
    ];
    for ((_, account), own) in WRITERS.into_iter().zip(owned) {
        let namespace = cluster.namespace("spec").await.unwrap();
        let pool = full_pool(cluster, namespace.name()).await;
        let client = cluster.client_for_service_account(RELEASE_NAMESPACE, account).await.unwrap();
        let api = pools(client, namespace.name());
        let plain = PatchParams::default();
        let guarded: json_patch::Patch = serde_json::from_value(json!([
            {"op": "test", "path": "/metadata/generation", "value": pool["metadata"]["generation"]},
            {"op": "replace", "path": "/spec/maxReplicas", "value": 99},
        ]))
        .unwrap();
        let guarded = api.patch("x", &plain, &Patch::<()>::Json(guarded)).await;
        assert_eq!(verdict(guarded), Verdict::Refused, "{account} patches with a test");
        // More machines, machines of a program, and another label of nodes.
        for spec in [
            json!({"maxReplicas": 99}),
            json!({"provider": {"simulated": null, "exec": {"name": "rack", "parameters": {"a": "b"}}}}),
            json!({"template": {"metadata": {"labels": {"team": "b"}}}}),
        ] {
            let merged = api.patch("x", &plain, &Patch::Merge(json!({"spec": spec}))).await;
            assert_eq!(verdict(merged), Verdict::Refused, "{account} patches {spec}");
        }
        let applied = json!({
            "apiVersion": "tandem.dev/v1alpha1",
            "kind": "NodePool",
            "metadata": {"name": "x"},
            "spec": {"maxReplicas": 99},
        });
        let forced = PatchParams::apply("anyone").force();
        let applied = api.patch("x", &forced, &Patch::Apply(applied)).await;
        assert_eq!(verdict(applied), Verdict::Refused, "{account} applies");
        // The control: what the operator owns.
        let stored = api.patch("x", &plain, &Patch::Merge(own)).await;
        assert_eq!(verdict(stored), Verdict::Stored, "{account} patches its own");
    }
    cluster.mark_reusable();
}
