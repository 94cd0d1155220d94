//! The provider against an API server that is one closure: what is written, and how errors read. What Karpenter does with it
//! is in the end-to-end tests, and that it does what a provider has to do is in `contract_tests`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use node_lifecycle::supply::KnownAs;
use serde_json::{Value, json};
use shared_crds::ownership::Owner;
use shared_crds::v1alpha1::{KarpenterProvider, NodeClassReference};
use shared_runtime::clock::Clock;
use shared_runtime::write::WriteStrategy;

use super::*;
use crate::Progress;
use crate::testing::{at, cluster, failure, key, pool};

pub(super) fn writer(client: Client) -> Writer {
    let (clock, _) = Clock::fake(Timestamp::UNIX_EPOCH);
    let (owner, strategy) = (Owner::NodepoolOperator, WriteStrategy::Guarded);
    Writer::new(client, owner, strategy, &clock, shared_runtime::write::unobserved()).unwrap()
}

/// Karpenter behind an API server that gives this answer to everything, and the bodies of the requests.
fn answering(answer: (u16, Value)) -> (Karpenter, Arc<Mutex<Vec<Value>>>) {
    let bodies: Arc<Mutex<Vec<Value>>> = Arc::default();
    let log = Arc::clone(&bodies);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, answer) = (Arc::clone(&log), answer.clone());
        async move {
            let bytes = request.into_body().collect_bytes().await.unwrap();
            log.lock().unwrap().extend(serde_json::from_slice::<Value>(&bytes).ok());
            Response::builder().status(answer.0).body(Body::from(answer.1.to_string().into_bytes()))
        }
    });
    let client = Client::new(service, "default");
    (Karpenter::new(client.clone(), writer(client), cluster()), bodies)
}

/// Karpenter behind an API server that keeps claims, whose Karpenter launches and registers each at once and lets it go
/// when it is deleted, because no Node holds it.
fn stored() -> Karpenter {
    let [karpenter] = stored_for([cluster()]);
    karpenter
}

/// The same for several clusters, with one back end.
pub(crate) fn stored_for<const N: usize>(clusters: [ClusterId; N]) -> [Karpenter; N] {
    let claims: Arc<Mutex<BTreeMap<String, Value>>> = Arc::default();
    let service = tower::service_fn(move |request: Request<Body>| {
        let claims = Arc::clone(&claims);
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect_bytes().await.unwrap();
            let (code, answer) = serve(&claims, &parts, &bytes);
            Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()))
        }
    });
    let client = Client::new(service, "default");
    clusters.map(|cluster| Karpenter::new(client.clone(), writer(client.clone()), cluster))
}

pub(super) fn serve(
    claims: &Mutex<BTreeMap<String, Value>>,
    parts: &http::request::Parts,
    body: &[u8],
) -> (u16, Value) {
    let mut claims = claims.lock().unwrap();
    let name = parts.uri.path().rsplit('/').next().unwrap().to_owned();
    match parts.method {
        Method::POST => {
            let mut claim: Value = serde_json::from_slice(body).unwrap();
            let name = claim["metadata"]["name"].as_str().unwrap().to_owned();
            if claims.contains_key(&name) {
                return failure(409, "AlreadyExists", "it exists");
            }
            claim["metadata"]["uid"] = json!(format!("uid-{name}"));
            claim["metadata"]["resourceVersion"] = json!("1");
            let launched = claim.clone();
            claim["status"] = json!({ "providerID": format!("x://{name}"), "conditions": [{
                "type": "Registered", "status": "True", "reason": "Registered", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }] });
            claims.insert(name, claim);
            (201, launched)
        }
        Method::DELETE => match claims.remove(&name) {
            Some(_) => (200, json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" })),
            None => failure(404, "NotFound", "there is none"),
        },
        _ if name == "nodeclaims" => {
            let query = parts.uri.query().unwrap_or_default();
            let is_meant = |claim: &&Value| {
                let labels = claim["metadata"]["labels"].as_object().unwrap();
                labels.iter().all(|(key, value)| {
                    let wanted = format!("{}%3D{}", key.replace('/', "%2F"), value.as_str().unwrap());
                    !key.starts_with("tandem.dev/") || query.contains(&wanted)
                })
            };
            let items: Vec<_> = claims.values().filter(is_meant).cloned().collect();
            let list = json!({
                "kind": "NodeClaimList", "apiVersion": "karpenter.sh/v1", "metadata": {}, "items": items,
            });
            (200, list)
        }
        _ => match claims.get(&name) {
            Some(claim) => (200, claim.clone()),
            None => failure(404, "NotFound", "there is none"),
        },
    }
}

/// A spec whose claims are of the `NodeClass` `small`, of the kind `Metal`.
pub(super) fn spec() -> NodePoolSpec {
    let node_class_ref =
        NodeClassReference { group: "example.com".into(), kind: "Metal".into(), name: "small".into() };
    let requirements =
        serde_json::from_value(json!([{ "key": "zone", "operator": "In", "values": ["a"] }])).unwrap();
    let karpenter = Some(KarpenterProvider { node_class_ref, requirements });
    let mut spec = pool(1).spec;
    spec.provider = ProviderSpec { karpenter, ..ProviderSpec::default() };
    spec.template = serde_json::from_value(json!({
        "metadata": { "labels": { "tier": "gpu" } },
        "spec": {
            "capacity": { "cpu": "4", "memory": "8Gi" },
            "reserved": { "cpu": "500m" },
            "taints": [{ "key": "gpu", "effect": "NoSchedule" }],
            "startupTaints": [{ "key": "cni", "effect": "NoExecute" }],
        },
    }))
    .unwrap();
    spec
}

#[tokio::test]
async fn a_claim_asks_for_what_the_planner_counts_on_and_never_expires() {
    let (karpenter, bodies) = answering(failure(403, "Forbidden", "no"));
    let request = MachineRequest { pool: &key(), name: "m", spec: &spec(), existing: 0 };
    assert!(matches!(karpenter.create(request, at(0)).await, Err(ProviderError::Unauthorized(_))));
    insta::assert_json_snapshot!(bodies.lock().unwrap()[0]);
}

#[tokio::test]
async fn states_follow_karpenters_conditions() {
    let claim = |name: &str, status: Value, deleted: Option<&str>| {
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "status": status,
            "metadata": { "name": name, "deletionTimestamp": deleted },
            "spec": { "nodeClassRef": { "group": "g", "kind": "k", "name": "n" } },
        })
    };
    let registered = |status: &str| {
        json!({ "providerID": "x://b", "conditions": [{
        "type": "Registered", "status": status, "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] })
    };
    let drifted = |status: &str| {
        json!({
            "type": "Drifted", "status": status, "reason": "NodeClassDrift", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let items = [
        claim("new", json!({ "providerID": "" }), None),
        claim("launched", registered("Unknown"), None),
        claim("registered", registered("True"), None),
        claim("going", registered("True"), Some("2026-01-01T00:00:00Z")),
        claim("drifted", json!({ "conditions": [drifted("True")] }), None),
        claim("as it should be", json!({ "conditions": [drifted("False")] }), None),
    ];
    let list =
        json!({ "kind": "NodeClaimList", "apiVersion": "karpenter.sh/v1", "metadata": {}, "items": items });
    let listed = answering((200, list)).0.list(&key(), at(0)).await.unwrap();
    let expected = [
        ("new", Progress::Starting(None), None),
        ("launched", Progress::Starting(None), Some("x://b")),
        ("registered", Progress::Running, Some("x://b")),
        ("going", Progress::Deleting, Some("x://b")),
        ("drifted", Progress::Starting(None), None),
        ("as it should be", Progress::Starting(None), None),
    ];
    let expected = expected.map(|(name, progress, id)| ListedMachine {
        name: name.to_owned(),
        progress,
        provider_id: id.map(str::to_owned),
        template_hash: None,
        is_outdated: name == "drifted",
        cluster: Some("here".to_owned()),
        known_as: KnownAs::default(),
    });
    assert_eq!(listed, expected);
}

#[tokio::test]
async fn errors_say_what_to_do() {
    for (answer, kind, text) in [
        (failure(404, "NotFound", "page not found"), "InvalidSpec", "install Karpenter"),
        (failure(403, "Forbidden", "no"), "ProviderUnauthorized", "providers.karpenter.enabled"),
        (failure(503, "ServiceUnavailable", "busy"), "ProvisioningFailed", "busy"),
    ] {
        let error = answering(answer).0.list(&key(), at(0)).await.unwrap_err();
        assert!(error.reason().as_str() == kind && error.to_string().contains(text), "{error}");
    }
    for (answer, kind, text) in [
        (failure(403, "Forbidden", "no"), "ProviderUnauthorized", "providers.karpenter.enabled"),
        (failure(422, "Invalid", "spec.requirements: bad"), "InvalidSpec", "spec.requirements: bad"),
    ] {
        let request = MachineRequest { pool: &key(), name: "m", spec: &spec(), existing: 0 };
        let error = answering(answer).0.create(request, at(0)).await.unwrap_err();
        assert!(error.reason().as_str() == kind && error.to_string().contains(text), "{error}");
    }
}

#[tokio::test]
async fn a_claim_that_is_not_of_the_pool_is_left_alone_and_does_not_say_that_a_machine_is_gone() {
    let karpenter = stored();
    let other = PoolKey { namespace: "other".into(), name: "web".into() };
    let (spec, key) = (spec(), key());
    let request = |pool| MachineRequest { pool, name: "m", spec: &spec, existing: 0 };
    karpenter.create(request(&other), at(0)).await.unwrap();
    let error = karpenter.create(request(&key), at(0)).await.unwrap_err();
    let error_says = |text: &str| error.to_string().contains(text);
    assert!(error_says("NodeClaim m whose labels are not those of this pool"), "{error}");
    assert!(
        error_says("set them to tandem.dev/nodepool=web,tandem.dev/nodepool-namespace=default"),
        "{error}"
    );
    // It may be this pool's, with labels that were changed.
    assert_eq!(karpenter.delete(&key, "m").await, Err(error));
    assert_eq!(karpenter.list(&other, at(0)).await.unwrap().len(), 1);
}

/// A claim that is not registered, with these conditions.
fn unregistered(name: &str, conditions: &[(&str, &str, &str, &str)]) -> Value {
    let conditions: Vec<_> = conditions
        .iter()
        .map(|(type_, status, reason, message)| {
            json!({
                "type": type_, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        })
        .collect();
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "status": { "conditions": conditions },
        "metadata": { "name": name, "uid": format!("uid-{name}") },
        "spec": { "nodeClassRef": { "group": "g", "kind": "k", "name": "n" } },
    })
}

/// Karpenter behind an API server that has these claims, taken from the front list by list, and these events.
fn saying(lists: Vec<Value>, events: (u16, Value)) -> (Karpenter, Arc<Mutex<Vec<String>>>) {
    let (lists, asked) = (Arc::new(Mutex::new(lists.into_iter())), Arc::<Mutex<Vec<String>>>::default());
    let log = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().to_string();
        let answer = if path.contains("/events") {
            log.lock().unwrap().push(path);
            events.clone()
        } else {
            let items = lists.lock().unwrap().next().unwrap();
            let list = json!({
                "kind": "NodeClaimList", "apiVersion": "karpenter.sh/v1", "metadata": {}, "items": items,
            });
            (200, list)
        };
        async move { Response::builder().status(answer.0).body(Body::from(answer.1.to_string().into_bytes())) }
    });
    let client = Client::new(service, "default");
    (Karpenter::new(client.clone(), writer(client), cluster()), asked)
}

const UNSEEN: (&str, &str, &str, &str) =
    ("Initialized", "Unknown", "AwaitingReconciliation", "object is awaiting reconciliation");

#[tokio::test]
async fn a_claim_is_explained_by_its_first_open_condition_also_when_it_is_gone() {
    let refused = ("Launched", "Unknown", "LaunchFailed", "no such subnet");
    let launched = ("Launched", "True", "Launched", "");
    let not_found = ("Registered", "Unknown", "NodeNotFound", "Node not registered");
    let first = json!([
        unregistered("m-0", &[refused, ("Registered", "Unknown", "AwaitingReconciliation", "x")]),
        unregistered("m-1", &[launched, not_found, UNSEEN]),
    ]);
    let (karpenter, asked) = saying(vec![first, json!([])], failure(500, "InternalError", "not asked for"));
    assert_eq!(karpenter.explain(&key(), "m-0").await, None, "it was never seen");
    karpenter.list(&key(), at(0)).await.unwrap();
    let words = "NodeClaim m-0: Launched is Unknown, LaunchFailed: no such subnet";
    assert_eq!(karpenter.trouble(&key()).as_deref(), Some(words));
    let boots = "NodeClaim m-1: Registered is Unknown, NodeNotFound: Node not registered";
    let [words, boots] = [words, boots].map(|words| Some(Explanation::Other(words.to_owned())));
    assert_eq!(karpenter.explain(&key(), "m-1").await, boots);
    karpenter.list(&key(), at(0)).await.unwrap();
    assert_eq!(karpenter.trouble(&key()), None, "the claims are gone");
    assert_eq!(karpenter.explain(&key(), "m-0").await, words);
    assert_eq!(karpenter.explain(&key(), "m-1").await, boots);
    assert_eq!(*asked.lock().unwrap(), [""; 0], "the conditions are enough");
    karpenter.forget(&key());
    assert_eq!(karpenter.explain(&key(), "m-0").await, None);
}

#[tokio::test]
async fn a_claim_that_went_without_a_word_is_explained_by_the_last_warning_about_it() {
    let events = |items: &[(u32, &str, &str)]| {
        let warning = |(second, reason, message): &(u32, &str, &str)| {
            json!({
                "metadata": { "name": format!("e-{second}"), "namespace": "default" },
                "involvedObject": { "kind": "NodeClaim", "name": "m-0", "uid": "uid-m-0" }, "type": "Warning",
                "reason": reason, "message": message,
                "lastTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            })
        };
        let items: Vec<_> = items.iter().map(warning).collect();
        (200, json!({ "kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": items }))
    };
    let (no_capacity, refused) = ("InsufficientCapacityError", "LaunchFailed");
    let missing = "resolving node class, metals.example.com \"n\" not found";
    let other = |words: String| Some(Explanation::Other(words));
    for (answer, expected) in [
        (
            events(&[(5, no_capacity, "no host is free"), (3, refused, "an earlier one")]),
            Some(Explanation::NoCapacity(format!("{no_capacity}: no host is free"))),
        ),
        (
            events(&[(5, refused, "no such subnet"), (3, no_capacity, "an earlier one")]),
            other(format!("{refused}: no such subnet")),
        ),
        // For Karpenter that is a lack of capacity, too; nothing would come if another node went.
        (events(&[(5, no_capacity, missing)]), other(format!("{no_capacity}: {missing}"))),
        (events(&[]), None),
        (failure(403, "Forbidden", "no right to list events"), None),
    ] {
        let claims = json!([unregistered("m-0", &[("Launched", "Unknown", UNSEEN.2, UNSEEN.3)])]);
        let (karpenter, asked) = saying(vec![claims], answer);
        karpenter.list(&key(), at(0)).await.unwrap();
        assert_eq!(karpenter.trouble(&key()), None);
        assert_eq!(karpenter.explain(&key(), "m-0").await, expected);
        let asked = asked.lock().unwrap();
        let [path] = &asked[..] else { panic!("{asked:?}") };
        assert!(path.starts_with("/api/v1/namespaces/default/events?"), "{path}");
        assert!(path.contains("involvedObject.uid%3Duid-m-0") && path.contains("type%3DWarning"), "{path}");
    }
}

#[tokio::test]
async fn karpenter_keeps_the_node_of_a_registered_claim_until_the_machine_is_gone() {
    let karpenter = stored();
    let (spec, key) = (spec(), key());
    let request = MachineRequest { pool: &key, name: "m", spec: &spec, existing: 0 };
    karpenter.create(request, at(0)).await.unwrap();
    assert_eq!(karpenter.delete(&key, "m").await, Ok(Deletion::HandedOver));
    assert_eq!(karpenter.delete(&key, "m").await, Ok(Deletion::Gone));
}

#[tokio::test]
async fn a_claim_from_before_claims_carried_a_cluster_is_this_clusters() {
    let claim = |annotations: Value| {
        let claim: NodeClaim = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": { "name": "m", "annotations": annotations },
            "spec": { "nodeClassRef": { "group": "g", "kind": "k", "name": "n" } },
        }))
        .unwrap();
        (claim.of_another(&cluster()).map(str::to_owned), claim.listed(&cluster(), None).cluster.unwrap())
    };
    assert_eq!(claim(json!({})), (None, "here".to_owned()));
    assert_eq!(claim(json!({ "tandem.dev/cluster": "here" })), (None, "here".to_owned()));
    let other = "there".to_owned();
    assert_eq!(claim(json!({ "tandem.dev/cluster": "there" })), (Some(other.clone()), other));
}
