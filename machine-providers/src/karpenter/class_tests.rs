//! A claim and its `NodeClass`, on an API server that keeps both: when a machine is out of date because of it.

use std::sync::Arc;

use http::request;
use serde_json::{Value, json};
use shared_crds::names::NODE_CLASS_HASH_ANNOTATION;

use super::tests::{serve, spec, writer};
use super::*;
use crate::hands::api_server;
use crate::testing::{at, cluster, failure, key};

/// The API server, with claims and the `NodeClass` `small`.
struct World {
    claims: Mutex<BTreeMap<String, Value>>,
    /// The answer to a read of the `NodeClass`.
    class: Mutex<(u16, Value)>,
    /// The paths of the requests that were not about claims.
    reads: Mutex<Vec<String>>,
}

impl World {
    fn answer(&self, parts: &request::Parts, body: &[u8]) -> (u16, Value) {
        let path = parts.uri.path();
        if path.contains("nodeclaims") {
            return serve(&self.claims, parts, body);
        }
        self.reads.lock().unwrap().push(path.to_owned());
        match path {
            "/apis" => (200, groups()),
            "/apis/example.com/v2" => (200, resources()),
            "/apis/example.com/v2/metals/small" => self.class.lock().unwrap().clone(),
            _ => failure(404, "NotFound", "the server could not find the requested resource"),
        }
    }

    fn say(&self, answer: (u16, Value)) {
        *self.class.lock().unwrap() = answer;
    }

    /// Changes the annotations of the claim `name`.
    fn annotate(&self, name: &str, change: impl FnOnce(&mut serde_json::Map<String, Value>)) {
        let mut claims = self.claims.lock().unwrap();
        let claim = claims.get_mut(name).unwrap();
        change(claim["metadata"]["annotations"].as_object_mut().unwrap());
    }

    fn hash_of(&self, name: &str) -> Option<String> {
        let claims = self.claims.lock().unwrap();
        claims[name]["metadata"]["annotations"][NODE_CLASS_HASH_ANNOTATION].as_str().map(str::to_owned)
    }
}

fn groups() -> Value {
    let version = json!({ "groupVersion": "example.com/v2", "version": "v2" });
    let group = json!({ "name": "example.com", "versions": [version], "preferredVersion": version });
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [group] })
}

fn resources() -> Value {
    let of = |name: &str| json!({ "name": name, "singularName": "metal", "namespaced": false, "kind": "Metal", "verbs": ["get"] });
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "example.com/v2",
        "resources": [of("metals"), of("metals/status")],
    })
}

/// The `NodeClass` with these disks and images.
fn class(disks: &[&str], images: &[&str]) -> (u16, Value) {
    let images: Vec<_> = images.iter().map(|id| json!({ "id": id })).collect();
    let class = json!({
        "apiVersion": "example.com/v2", "kind": "Metal", "metadata": { "name": "small" },
        "spec": { "disks": disks }, "status": { "amis": images, "subnets": [{ "id": "s" }] },
    });
    (200, class)
}

/// Karpenter on an API server with this answer to a read of the `NodeClass`.
fn world(class: (u16, Value)) -> (Karpenter, Arc<World>) {
    let world =
        Arc::new(World { claims: Mutex::default(), class: Mutex::new(class), reads: Mutex::default() });
    let served = Arc::clone(&world);
    let client = api_server(move |parts, body| served.answer(&parts, body).into());
    (Karpenter::new(client.clone(), writer(client), cluster()), world)
}

async fn create(karpenter: &Karpenter, name: &str) -> Result<(), ProviderError> {
    let (pool, spec) = (key(), spec());
    let request = MachineRequest { pool: &pool, name, spec: &spec, existing: 0 };
    karpenter.create(request, at(0)).await.map(|_time| ())
}

/// The names of the machines that are out of date.
async fn outdated(karpenter: &Karpenter) -> Vec<String> {
    let listed = karpenter.list(&key(), at(0)).await.unwrap();
    listed.into_iter().filter(|machine| machine.is_outdated).map(|machine| machine.name).collect()
}

#[tokio::test]
async fn a_machine_of_a_node_class_that_says_something_else_now_is_out_of_date() {
    let before = || class(&["a", "b"], &["ami-1", "ami-2"]);
    for (what, after, is_outdated) in [
        ("the same", before(), false),
        ("another spec", class(&["a", "c"], &["ami-1", "ami-2"]), true),
        ("another image", class(&["a", "b"], &["ami-1", "ami-3"]), true),
        ("another order", class(&["b", "a"], &["ami-2", "ami-1"]), false),
        ("images are being looked for", class(&["a", "b"], &[]), false),
        ("it is missing", failure(404, "NotFound", "there is none"), false),
        ("it is forbidden", failure(403, "Forbidden", "no right to get metals"), false),
        ("it is broken", failure(500, "InternalError", "the conversion failed"), false),
    ] {
        let (karpenter, world) = world(before());
        create(&karpenter, "m").await.unwrap();
        world.say(after);
        assert_eq!(!outdated(&karpenter).await.is_empty(), is_outdated, "{what}");
        // Nothing stays of it.
        world.say(before());
        assert_eq!(outdated(&karpenter).await, [""; 0], "{what}");
        world.say(class(&["z"], &["ami-9"]));
        assert_eq!(outdated(&karpenter).await, ["m"], "{what}");
    }
}

#[tokio::test]
async fn a_machine_that_is_made_after_the_change_is_up_to_date_and_only_the_others_are_not() {
    let (karpenter, world) = world(class(&["a"], &["ami-1"]));
    create(&karpenter, "m-0").await.unwrap();
    create(&karpenter, "m-1").await.unwrap();
    world.say(class(&["a"], &["ami-2"]));
    create(&karpenter, "m-2").await.unwrap();
    assert_eq!(outdated(&karpenter).await, ["m-0", "m-1"]);
    assert_eq!(world.hash_of("m-0"), world.hash_of("m-1"));
    assert_ne!(world.hash_of("m-0"), world.hash_of("m-2"));
}

#[tokio::test]
async fn a_claim_without_a_known_hash_is_up_to_date_and_gets_none() {
    let (karpenter, world) = world(class(&["a"], &["ami-1"]));
    for name in ["earlier", "later", "other-api"] {
        create(&karpenter, name).await.unwrap();
    }
    world.annotate("earlier", |all| {
        all.remove(NODE_CLASS_HASH_ANNOTATION);
    });
    for (name, text) in [("later", "v2:v2:spec=0"), ("other-api", "v1:v1beta1:spec=0")] {
        world.annotate(name, |all| {
            all.insert(NODE_CLASS_HASH_ANNOTATION.to_owned(), json!(text));
        });
    }
    world.say(class(&["z"], &["ami-9"]));
    assert_eq!(outdated(&karpenter).await, [""; 0]);
    assert_eq!(world.hash_of("earlier"), None);
}

#[tokio::test]
async fn the_condition_drifted_makes_a_machine_out_of_date_whatever_the_node_class_says() {
    let (karpenter, world) = world(class(&["a"], &["ami-1"]));
    create(&karpenter, "m").await.unwrap();
    let drifted = json!({
        "type": "Drifted", "status": "True", "reason": "NodeClassDrift", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    world.claims.lock().unwrap().get_mut("m").unwrap()["status"]["conditions"] = json!([drifted]);
    assert_eq!(outdated(&karpenter).await, ["m"]);
}

#[tokio::test]
async fn a_machine_is_made_also_when_its_node_class_cannot_be_read_and_why_is_said_until_it_runs() {
    for (answer, why) in [
        (failure(403, "Forbidden", "no right to get metals"), "no right to get metals"),
        (failure(404, "NotFound", "there is none"), "has none of that kind and name"),
    ] {
        let (karpenter, world) = world(answer);
        create(&karpenter, "m").await.unwrap();
        assert_eq!(world.hash_of("m"), None);
        let said = karpenter.trouble(&key()).unwrap_or_default();
        let start =
            "the NodeClass Metal.example.com/small cannot be read, so a change of it replaces no node: ";
        assert!(said.starts_with(start) && said.contains(why), "{said}");
        // The claims of this API server are registered as soon as they are listed.
        assert_eq!(outdated(&karpenter).await, [""; 0]);
        assert_eq!(karpenter.trouble(&key()), None, "the machine runs");
        world.say(class(&["a"], &["ami-1"]));
        create(&karpenter, "n").await.unwrap();
        assert!(world.hash_of("n").is_some() && karpenter.trouble(&key()).is_none());
    }
}

#[tokio::test]
async fn an_api_server_that_is_busy_says_nothing_about_the_node_class() {
    let (karpenter, world) = world(class(&["a"], &["ami-1"]));
    create(&karpenter, "m").await.unwrap();
    world.say(failure(429, "TooManyRequests", "busy"));
    let error = karpenter.list(&key(), at(0)).await.unwrap_err();
    assert!(matches!(error, ProviderError::Throttled(..)), "{error:?}");
    // A claim without a hash would never be out of date, so none is made.
    assert_eq!(create(&karpenter, "n").await, Err(error));
    assert_eq!(world.claims.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_node_class_is_looked_for_once_and_read_once_for_each_list() {
    let (karpenter, world) = world(class(&["a"], &["ami-1"]));
    assert_eq!(karpenter.list(&key(), at(0)).await, Ok(Vec::new()));
    assert_eq!(*world.reads.lock().unwrap(), [""; 0], "there is no claim to compare");
    for name in ["m-0", "m-1", "m-2"] {
        create(&karpenter, name).await.unwrap();
    }
    let class_path = "/apis/example.com/v2/metals/small";
    let made = ["/apis", "/apis/example.com/v2", class_path, class_path, class_path];
    assert_eq!(std::mem::take(&mut *world.reads.lock().unwrap()), made);
    karpenter.list(&key(), at(0)).await.unwrap();
    assert_eq!(std::mem::take(&mut *world.reads.lock().unwrap()), [class_path]);
    // Its definition may have another version by now.
    world.say(failure(404, "NotFound", "the server could not find the requested resource"));
    karpenter.list(&key(), at(0)).await.unwrap();
    world.say(class(&["a"], &["ami-1"]));
    karpenter.list(&key(), at(0)).await.unwrap();
    assert_eq!(*world.reads.lock().unwrap(), [class_path, "/apis", "/apis/example.com/v2", class_path]);
}
