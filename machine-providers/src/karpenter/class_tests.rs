//! A claim and its `NodeClass`, on an API server that keeps both: when a machine is out of date because of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::request;
use serde_json::{Value, json};
use shared_crds::names::NODE_CLASS_HASH_ANNOTATION;

use super::tests::{serve, spec, writer};
use super::*;
use crate::hands::{Answer, api_server};
use crate::testing::{at, cluster, failure, key};

const CLASS_PATH: &str = "/apis/example.com/v2/metals/small";

/// The code of an answer that does not arrive.
const NO_ANSWER: u16 = 0;

/// The API server, with claims and the `NodeClass` `small`.
struct World {
    claims: Mutex<BTreeMap<String, Value>>,
    /// The answer to a read of the `NodeClass`.
    class: Mutex<(u16, Value)>,
    /// Whether the API server knows the kind of the `NodeClass`.
    is_known: AtomicBool,
    /// The paths of the requests that were not about claims.
    reads: Mutex<Vec<String>>,
}

impl World {
    fn answer(&self, parts: &request::Parts, body: &[u8]) -> Answer {
        let path = parts.uri.path();
        if path.contains("nodeclaims") {
            return serve(&self.claims, parts, body).into();
        }
        self.reads.lock().unwrap().push(path.to_owned());
        let is_known = self.is_known.load(Ordering::Relaxed);
        match path {
            "/apis" => (200, groups(is_known)).into(),
            "/apis/example.com/v2" if is_known => (200, resources()).into(),
            CLASS_PATH if is_known => match self.class.lock().unwrap().clone() {
                (NO_ANSWER, _) => Answer::Lost,
                answer => answer.into(),
            },
            _ => Answer::Text(404, "404 page not found".to_owned()),
        }
    }

    /// Whether the API server knows the kind of the `NodeClass` from now on.
    fn know(&self, is_known: bool) {
        self.is_known.store(is_known, Ordering::Relaxed);
    }

    /// The paths of the requests since this was asked last that were not about claims.
    fn reads(&self) -> Vec<String> {
        std::mem::take(&mut *self.reads.lock().unwrap())
    }

    /// Launches the machine of the claim `name` from this image.
    fn launch(&self, name: &str, image: &str) {
        self.claims.lock().unwrap().get_mut(name).unwrap()["status"]["imageID"] = json!(image);
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

fn groups(is_known: bool) -> Value {
    let version = json!({ "groupVersion": "example.com/v2", "version": "v2" });
    let group = json!({ "name": "example.com", "versions": [version], "preferredVersion": version });
    let groups = if is_known { vec![group] } else { Vec::new() };
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
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
    let world = World {
        claims: Mutex::default(),
        class: Mutex::new(class),
        is_known: AtomicBool::new(true),
        reads: Mutex::default(),
    };
    let world = Arc::new(world);
    (karpenter(&world), world)
}

/// A new process.
fn karpenter(world: &Arc<World>) -> Karpenter {
    let served = Arc::clone(world);
    let client = api_server(move |parts, body| served.answer(&parts, body));
    Karpenter::new(client.clone(), writer(client), cluster())
}

/// The API server's answer when the `NodeClass` is not there.
fn missing() -> (u16, Value) {
    let (code, mut answer) = failure(404, "NotFound", "metals.example.com \"small\" not found");
    answer["details"] = json!({ "name": "small", "group": "example.com", "kind": "metals" });
    (code, answer)
}

fn forbidden() -> (u16, Value) {
    failure(403, "Forbidden", "no right to get metals")
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
        ("an image is not found for a moment", class(&["a", "b"], &["ami-1"]), false),
        ("one more image", class(&["a", "b"], &["ami-1", "ami-2", "ami-3"]), false),
        ("it is missing", missing(), false),
        ("it is forbidden", forbidden(), false),
    ] {
        let (karpenter, world) = world(before());
        create(&karpenter, "m").await.unwrap();
        world.launch("m", "ami-2");
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
    for name in ["m-0", "m-1"] {
        world.launch(name, "ami-1");
    }
    world.say(class(&["a"], &["ami-2"]));
    create(&karpenter, "m-2").await.unwrap();
    world.launch("m-2", "ami-2");
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
    for (name, text) in [("later", "v2:v2::spec=0"), ("other-api", "v1:v1beta1::spec=0")] {
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
    for (answer, why) in
        [(forbidden(), "no right to get metals"), (missing(), "has none of that kind and name")]
    {
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
async fn an_api_server_that_is_busy_or_broken_says_nothing_about_the_node_class() {
    let (karpenter, world) = world(class(&["a"], &["ami-1"]));
    create(&karpenter, "m").await.unwrap();
    world.say(class(&["b"], &["ami-1"]));
    assert_eq!(outdated(&karpenter).await, ["m"]);
    for code in [429, 500, 502, 503, 504, 599, NO_ANSWER] {
        world.say(failure(code, "Failure", "the conversion failed"));
        let error = karpenter.list(&key(), at(0)).await.unwrap_err();
        let is_meant = match code {
            429 => matches!(error, ProviderError::Throttled(..)),
            NO_ANSWER => matches!(error, ProviderError::Unreachable(_)),
            _ => matches!(error, ProviderError::Transient(_)),
        };
        assert!(is_meant, "{code}: {error:?}");
        // A claim without a hash would never be out of date, so none is made.
        assert_eq!(create(&karpenter, "n").await, Err(error));
        assert_eq!(world.claims.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_node_class_that_cannot_be_read_any_more_leaves_a_running_rollout_as_it_is() {
    for (what, answer, is_known) in [
        ("forbidden", forbidden(), true),
        ("missing", missing(), true),
        ("the API server does not know its kind", missing(), false),
    ] {
        let (karpenter, world) = world(class(&["a"], &["ami-1"]));
        create(&karpenter, "old").await.unwrap();
        world.say(class(&["b"], &["ami-1"]));
        create(&karpenter, "new").await.unwrap();
        world.say(answer);
        world.know(is_known);
        // Where its kind is not known, the second list looks for it.
        for _ in 0..2 {
            assert_eq!(outdated(&karpenter).await, ["old"], "{what}");
        }
        create(&karpenter, "newer").await.unwrap();
        assert_eq!(world.hash_of("newer"), world.hash_of("new"), "{what}");
        assert_eq!(outdated(&karpenter).await, ["old"], "{what}");
        let restarted = self::karpenter(&world);
        assert_eq!(outdated(&restarted).await, [""; 0], "{what}: what was never read says nothing");
    }
}

#[tokio::test]
async fn a_new_default_in_the_definition_of_the_node_class_replaces_nothing_until_it_is_edited() {
    let of = |disks: &[&str], generation: i64| {
        let (code, mut class) = class(disks, &["ami-1"]);
        class["metadata"] = json!({ "name": "small", "uid": "u", "generation": generation });
        (code, class)
    };
    let (karpenter, world) = world(of(&["a"], 1));
    create(&karpenter, "m").await.unwrap();
    world.say(of(&["a", "default"], 1));
    assert_eq!(outdated(&karpenter).await, [""; 0]);
    world.say(of(&["a", "default", "b"], 2));
    assert_eq!(outdated(&karpenter).await, ["m"]);
}

#[tokio::test]
async fn a_node_class_is_looked_for_once_and_read_once_for_each_list() {
    for answer in [class(&["a"], &["ami-1"]), forbidden(), missing()] {
        let (karpenter, world) = world(answer.clone());
        assert_eq!(karpenter.list(&key(), at(0)).await, Ok(Vec::new()));
        assert_eq!(world.reads(), [""; 0], "there is no claim to compare");
        for name in ["m-0", "m-1", "m-2"] {
            create(&karpenter, name).await.unwrap();
        }
        let made = ["/apis", "/apis/example.com/v2", CLASS_PATH, CLASS_PATH, CLASS_PATH];
        assert_eq!(world.reads(), made, "{answer:?}");
    }
}

#[tokio::test]
async fn a_node_class_is_looked_for_again_when_its_kind_is_not_served_any_more() {
    let (karpenter, world) = world(class(&["a"], &["ami-1"]));
    create(&karpenter, "m").await.unwrap();
    world.reads();
    karpenter.list(&key(), at(0)).await.unwrap();
    assert_eq!(world.reads(), [CLASS_PATH]);
    // Its definition may have another version by now.
    world.say(failure(404, "NotFound", "the server could not find the requested resource"));
    karpenter.list(&key(), at(0)).await.unwrap();
    world.say(class(&["a"], &["ami-1"]));
    karpenter.list(&key(), at(0)).await.unwrap();
    assert_eq!(world.reads(), [CLASS_PATH, "/apis", "/apis/example.com/v2", CLASS_PATH]);
}
