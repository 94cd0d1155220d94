//! The model of the API server (`conflict-model`) and a real one get the same random requests, and must give the same
//! answers: code, reason, whether the version moved, the change of the generation, and the stored object.
//!
//! A failure prints the seed and the whole sequence; `CONFORMANCE_SEED=7` runs only that one,
//! `CONFORMANCE_SEED=100..900` runs other seeds than the default.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use conflict_model::server::{
    Body, Conditions, ListTest, Manager, Meta, ModelEndpoint, ModelOperation, ModelVersion, Object, Request,
    RequestedChange, Server, ServerAnswer, Set, Spec, Status, Test, Uid, Unconditional,
};
use kube::Client;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Map, Value, json};
use testbed::cluster::Cluster;
use testbed::tandem;

/// Seeds of the sequences of a default run.
const SEEDS: std::ops::Range<u64> = 0..60;

/// Number of requests in a sequence.
const LENGTH: usize = 25;

/// Environment variable that selects other seeds.
const SEED_VARIABLE: &str = "CONFORMANCE_SEED";

/// The label and the finalizer that [`Meta`] models.
const LABEL: &str = "label";
const FINALIZER: &str = "example.com/hold";

/// Types of the two conditions.
const CONDITION_TYPES: [&str; 2] = ["First", "Second"];

/// A UID that no object has.
const NO_OBJECT: &str = "00000000-0000-0000-0000-000000000000";

/// A version as the real server counts them, long before any write of the tests.
const ANCIENT: &str = "1";

/// The answer of one server; both servers must give the same.
#[derive(Debug, PartialEq)]
struct Said {
    code: u16,
    reason: String,
    moved: bool,
    generation_delta: i64,
    /// The stored object after the request, as JSON, without the fields that only one of the servers can know.
    stored: Option<String>,
}

/// A real pool under test, and the real values of the model's versions and UIDs.
struct Real {
    client: Client,
    path: String,
    versions: BTreeMap<ModelVersion, String>,
    uids: BTreeMap<Uid, String>,
    stored: Option<Value>,
}

/// A raw HTTP request.
struct Wire {
    verb: &'static str,
    subresource: &'static str,
    content: &'static str,
    manager: Manager,
    force: bool,
    body: Option<Value>,
}

impl Real {
    fn version(&self, version: ModelVersion) -> &str {
        self.versions.get(&version).map_or(ANCIENT, String::as_str)
    }

    /// The server's `managedFields`.
    fn owners(&self) -> String {
        self.stored.as_ref().map(|object| object["metadata"]["managedFields"].to_string()).unwrap_or_default()
    }

    fn uid(&self, uid: Uid) -> &str {
        self.uids.get(&uid).map_or(NO_OBJECT, String::as_str)
    }

    /// The `metadata` of a body with a version and a UID, or neither.
    fn identity(&self, version: Option<ModelVersion>, uid: Option<Uid>) -> Map<String, Value> {
        let mut metadata = Map::new();
        if let Some(version) = version {
            metadata.insert("resourceVersion".to_owned(), self.version(version).into());
        }
        if let Some(uid) = uid {
            metadata.insert("uid".to_owned(), self.uid(uid).into());
        }
        metadata
    }

    /// A whole object.
    fn object(identity: &Map<String, Value>, body: &Body) -> Value {
        let mut object = json!({
            "apiVersion": "tandem.dev/v1alpha1",
            "kind": "NodePool",
            "metadata": identity,
            "spec": {
                "minReplicas": 0,
                "maxReplicas": body.spec.max_replicas,
                "template": {
                    "metadata": {"labels": tokens(body.spec.tokens)},
                    "spec": {"capacity": {"cpu": "4", "memory": "16Gi"}},
                },
                "provider": {"simulated": {}},
            },
        });
        object["metadata"]["name"] = "x".into();
        if let Some(label) = body.meta.label {
            object["metadata"]["labels"] = json!({LABEL: label.to_string()});
        }
        if body.meta.finalizer {
            object["metadata"]["finalizers"] = json!([FINALIZER]);
        }
        if let Some(replicas) = body.spec.replicas {
            object["spec"]["replicas"] = replicas.into();
        }
        if let Some(status) = &body.status {
            object["status"] = status_value(status);
        }
        object
    }

    fn wire(&self, request: &Request) -> Wire {
        let wire = |verb, subresource, content, body| Wire {
            verb,
            subresource,
            content,
            manager: Manager::Updater,
            force: false,
            body,
        };
        let (json, merge) = ("application/json", "application/merge-patch+json");
        match *request {
            Request::Get => wire("GET", "", json, None),
            Request::GetScale => wire("GET", "/scale", json, None),
            Request::Create { ref body } => wire("POST", "", json, Some(Self::object(&Map::new(), body))),
            Request::Put { on, version, uid, ref body } => {
                let object = Self::object(&self.identity(version, uid), body);
                wire("PUT", subresource(on), json, Some(object))
            }
            Request::PutScale { version, uid, replicas } => {
                let mut scale = json!({
                    "apiVersion": "autoscaling/v1",
                    "kind": "Scale",
                    "metadata": self.identity(version, uid),
                    "spec": {"replicas": replicas},
                });
                scale["metadata"]["name"] = "x".into();
                wire("PUT", "/scale", json, Some(scale))
            }
            Request::Merge { on, version, uid, change } => {
                let mut patch = changed(change);
                for (key, value) in self.identity(version, uid) {
                    patch["metadata"][key] = value;
                }
                wire("PATCH", subresource(on), merge, Some(patch))
            }
            Request::MergeScale { version, uid, replicas } => {
                let mut patch = json!({"metadata": self.identity(version, uid)});
                if let Some(replicas) = replicas {
                    patch["spec"] = json!({"replicas": replicas});
                }
                wire("PATCH", "/scale", merge, Some(patch))
            }
            Request::JsonPatch { scale, test, operation } => {
                let test = match test {
                    Test::Nothing => None,
                    Test::Version(version) => {
                        Some(("/metadata/resourceVersion", self.version(version).into()))
                    }
                    Test::Generation(generation) => Some(("/metadata/generation", generation.into())),
                    Test::Uid(uid) => Some(("/metadata/uid", self.uid(uid).into())),
                    Test::Replicas(replicas) => Some(("/spec/replicas", replicas.into())),
                    Test::EmptySpec => Some(("/spec", json!({}))),
                };
                let test =
                    test.map(|(path, value): (_, Value)| json!({"op": "test", "path": path, "value": value}));
                let path = "/spec/replicas";
                let operation = match operation {
                    ModelOperation::Nothing => None,
                    ModelOperation::Add(replicas) => {
                        Some(json!({"op": "add", "path": path, "value": replicas}))
                    }
                    ModelOperation::Replace(replicas) => {
                        Some(json!({"op": "replace", "path": path, "value": replicas}))
                    }
                    ModelOperation::Remove => Some(json!({"op": "remove", "path": path})),
                };
                let operations = Value::Array(test.into_iter().chain(operation).collect());
                let subresource = if scale { "/scale" } else { "" };
                wire("PATCH", subresource, "application/json-patch+json", Some(operations))
            }
            Request::PatchAtGeneration { generation, list, set } => {
                let test = |path: &str, value: Value| json!({"op": "test", "path": path, "value": value});
                let path = format!("/status/{LIST}");
                let list = match list {
                    ListTest::Nothing => None,
                    ListTest::Absent => Some(test(&path, Value::Null)),
                    ListTest::Is(list) => Some(test(&path, list_value(list))),
                };
                let (subresource, change) = match set {
                    Set::Replicas(replicas) => {
                        ("", json!({"op": "add", "path": "/spec/replicas", "value": replicas}))
                    }
                    Set::List(Some(list)) => {
                        ("/status", json!({"op": "add", "path": path, "value": list_value(list)}))
                    }
                    Set::List(None) => ("/status", json!({"op": "remove", "path": path})),
                };
                let generation = test("/metadata/generation", generation.into());
                let operations = [Some(generation), list, Some(change)].into_iter().flatten().collect();
                wire("PATCH", subresource, "application/json-patch+json", Some(operations))
            }
            Request::Apply { manager, force, version, uid, ref status } => {
                let mut config = json!({
                    "apiVersion": "tandem.dev/v1alpha1",
                    "kind": "NodePool",
                    "metadata": self.identity(version, uid),
                    "status": status_value(status),
                });
                config["metadata"]["name"] = "x".into();
                let apply = wire("PATCH", "/status", "application/apply-patch+yaml", Some(config));
                Wire { manager, force, ..apply }
            }
            Request::Delete { version, uid } => {
                let options = json!({
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "preconditions": self.identity(version, uid),
                });
                wire("DELETE", "", json, Some(options))
            }
        }
    }

    /// Sends the request, and reads the stored object. A new version is mapped to the model's version.
    async fn answer(&mut self, request: &Request, model: &Server) -> (Said, String) {
        let wire = self.wire(request);
        let (code, answer) = self.send(&wire).await;
        let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
        let failed = code >= 400;
        let before = self.stored.take();
        let (found, stored) = self.send(&Wire { verb: "GET", subresource: "", body: None, ..wire }).await;
        self.stored = (found == 200).then_some(stored);
        let version = |object: &Option<Value>| {
            object.as_ref().map(|object| object["metadata"]["resourceVersion"].as_str().unwrap().to_owned())
        };
        let generation = |object: &Option<Value>| {
            object.as_ref().map_or(0, |object| object["metadata"]["generation"].as_i64().unwrap())
        };
        if let (Some(here), Some(there)) = (&self.stored, &model.object) {
            let uid = here["metadata"]["uid"].as_str().unwrap();
            self.versions.entry(there.version).or_insert_with(|| version(&self.stored).unwrap());
            self.uids.entry(there.uid).or_insert_with(|| uid.to_owned());
        }
        let said = Said {
            code,
            reason: if failed { text("reason") } else { String::new() },
            moved: version(&before) != version(&self.stored),
            generation_delta: generation(&self.stored) - generation(&before),
            stored: self.stored.as_ref().map(|object| self.comparable(object).to_string()),
        };
        (said, text("message"))
    }

    async fn send(&self, wire: &Wire) -> (u16, Value) {
        let name = if wire.verb == "POST" { "" } else { "/x" };
        let mut uri = format!("{}{name}{}", self.path, wire.subresource);
        if wire.verb != "GET" && wire.verb != "DELETE" {
            write!(uri, "?fieldManager={:?}", wire.manager).unwrap();
            uri.push_str(if wire.force { "&force=true" } else { "" });
        }
        let body = wire.body.as_ref().map(|body| serde_json::to_vec(body).unwrap()).unwrap_or_default();
        let request = http::Request::builder()
            .method(wire.verb)
            .uri(uri)
            .header(http::header::CONTENT_TYPE, wire.content)
            .body(kube::client::Body::from(body))
            .unwrap();
        let answer = self.client.send(request).await.unwrap();
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect_bytes().await.unwrap();
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// A real object with the model's version and UID, and without the fields that the model omits.
    fn comparable(&self, object: &Value) -> Value {
        let metadata = &object["metadata"];
        let known = |text: &Value, name: Option<u64>| name.map_or_else(|| text.clone(), Value::from);
        let version = self.versions.iter().find(|(_, real)| *real == &metadata["resourceVersion"]);
        let uid = self.uids.iter().find(|(_, real)| *real == &metadata["uid"]);
        json!({
            "uid": known(&metadata["uid"], uid.map(|(uid, _)| u64::from(*uid))),
            "version": known(&metadata["resourceVersion"], version.map(|(version, _)| *version)),
            "generation": metadata["generation"],
            "deleting": metadata.get("deletionTimestamp").is_some(),
            "label": metadata["labels"][LABEL],
            "finalizers": metadata.get("finalizers").cloned().unwrap_or_else(|| json!([])),
            "replicas": object["spec"]["replicas"],
            "maxReplicas": object["spec"]["maxReplicas"],
            "tokens": object["spec"]["template"]["metadata"]["labels"],
            "status": object.get("status"),
        })
    }
}

/// A modelled object in the same form.
fn comparable(object: &Object) -> Value {
    json!({
        "uid": object.uid,
        "version": object.version,
        "generation": object.generation,
        "deleting": object.deleting,
        "label": object.meta.label.map(|label| label.to_string()),
        "finalizers": if object.meta.finalizer { json!([FINALIZER]) } else { json!([]) },
        "replicas": object.spec.replicas,
        "maxReplicas": object.spec.max_replicas,
        "tokens": tokens(object.spec.tokens),
        "status": object.status.as_ref().map(status_value),
    })
}

fn subresource(on: ModelEndpoint) -> &'static str {
    match on {
        ModelEndpoint::Main => "",
        ModelEndpoint::Status => "/status",
    }
}

fn tokens(tokens: [u8; 3]) -> Value {
    json!({"t0": tokens[0].to_string(), "t1": tokens[1].to_string(), "t2": tokens[2].to_string()})
}

fn status_value(status: &Status) -> Value {
    let mut value = json!({});
    if let Some(ready) = status.ready {
        value["readyReplicas"] = ready.into();
    }
    if let Some(conditions) = status.conditions {
        value["conditions"] = conditions_value(conditions);
    }
    if let Some(list) = status.list {
        value[LIST] = list_value(list);
    }
    value
}

/// The field that represents the announced list: one leaf, as in the model.
const LIST: &str = "selector";

fn list_value(list: u8) -> Value {
    format!("list={list}").into()
}

fn conditions_value(conditions: Conditions) -> Value {
    let mut list: Vec<Value> = CONDITION_TYPES
        .iter()
        .zip(conditions.values)
        .filter_map(|(kind, value)| {
            value.map(|value| {
                json!({
                    "type": kind,
                    "status": if value { "True" } else { "False" },
                    "reason": "Measured",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            })
        })
        .collect();
    if conditions.swapped {
        list.reverse();
    }
    Value::Array(list)
}

fn changed(change: RequestedChange) -> Value {
    match change {
        RequestedChange::Replicas(replicas) => json!({"spec": {"replicas": replicas}}),
        RequestedChange::MaxReplicas(max) => json!({"spec": {"maxReplicas": max}}),
        RequestedChange::Tokens(all) => json!({"spec": {"template": {"metadata": {"labels": tokens(all)}}}}),
        RequestedChange::Label(label) => {
            json!({"metadata": {"labels": {LABEL: label.map(|label| label.to_string())}}})
        }
        RequestedChange::Finalizer(true) => json!({"metadata": {"finalizers": [FINALIZER]}}),
        RequestedChange::Finalizer(false) => json!({"metadata": {"finalizers": null}}),
        RequestedChange::Ready(ready) => json!({"status": {"readyReplicas": ready}}),
        RequestedChange::Conditions(conditions) => {
            json!({"status": {"conditions": conditions.map(conditions_value)}})
        }
    }
}

/// Generates requests that are meaningful in the current state: most versions and UIDs are the current ones.
struct Generator {
    random: SmallRng,
    seen: Vec<Object>,
}

impl Generator {
    fn one_in(&mut self, n: u32) -> bool {
        self.random.random_range(0..n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.random_range(0..from.len())]
    }

    /// The current version, an earlier one, or none.
    fn version(&mut self, now: Option<Object>) -> Option<ModelVersion> {
        match self.random.random_range(0..10) {
            0..5 => now.map(|object| object.version),
            5..8 => Some(self.former().map_or(0, |object| object.version)),
            _ => None,
        }
    }

    fn uid(&mut self, now: Option<Object>) -> Option<Uid> {
        match self.random.random_range(0..10) {
            0..5 => None,
            5..9 => now.map(|object| object.uid),
            _ => Some(self.former().map_or(0, |object| object.uid.wrapping_sub(1))),
        }
    }

    fn former(&mut self) -> Option<Object> {
        if self.seen.is_empty() {
            return None;
        }
        let all = self.seen.clone();
        Some(self.pick(&all))
    }

    /// 9 is above every bound, -1 is below.
    fn replicas(&mut self) -> i32 {
        self.pick(&[0, 0, 1, 2, 3, 9, -1])
    }

    fn maybe_replicas(&mut self) -> Option<i32> {
        if self.one_in(4) { None } else { Some(self.replicas()) }
    }

    fn tokens(&mut self) -> [u8; 3] {
        [0; 3].map(|_| self.random.random_range(0..2))
    }

    fn label(&mut self) -> Option<u8> {
        self.pick(&[None, Some(0), Some(1)])
    }

    fn conditions(&mut self) -> Conditions {
        let values = [0; 2].map(|_| self.pick(&[None, Some(false), Some(true)]));
        Conditions { values, swapped: false }
    }

    fn status(&mut self) -> Status {
        let ready = self.pick(&[None, Some(0), Some(1)]);
        let conditions = if self.one_in(4) { None } else { Some(self.conditions()) };
        let list = self.pick(&[None, None, Some(1), Some(2)]);
        Status { ready, conditions, list }
    }

    /// An earlier or the current state of the object, possibly changed; or a new one.
    fn body(&mut self, now: Option<Object>) -> Body {
        let base = if self.one_in(3) { self.former() } else { now };
        let mut body = base.map_or(
            Body {
                meta: Meta::default(),
                spec: Spec { replicas: None, max_replicas: 5, tokens: [0; 3] },
                status: None,
            },
            |object| Body { meta: object.meta, spec: object.spec, status: object.status },
        );
        match self.random.random_range(0..8) {
            0 => body.spec.replicas = self.maybe_replicas(),
            1 => body.spec.max_replicas = self.pick(&[2, 5]),
            2 => body.spec.tokens = self.tokens(),
            3 => body.meta.label = self.label(),
            4 => body.meta.finalizer = self.one_in(2),
            5 | 6 => body.status = Some(self.status()),
            _ => {}
        }
        body
    }

    fn change(&mut self) -> (ModelEndpoint, RequestedChange) {
        let change = match self.random.random_range(0..8) {
            0 => RequestedChange::Replicas(self.maybe_replicas()),
            1 => RequestedChange::MaxReplicas(self.pick(&[-1, 2, 5])),
            2 => RequestedChange::Tokens(self.tokens()),
            3 => RequestedChange::Label(self.label()),
            4 => RequestedChange::Finalizer(self.one_in(2)),
            5 => RequestedChange::Ready(self.pick(&[None, Some(0), Some(1)])),
            _ => RequestedChange::Conditions(if self.one_in(4) { None } else { Some(self.conditions()) }),
        };
        let of_status = matches!(change, RequestedChange::Ready(_) | RequestedChange::Conditions(_));
        // One in six goes to the endpoint that drops the change.
        let on = if of_status == self.one_in(6) { ModelEndpoint::Main } else { ModelEndpoint::Status };
        (on, change)
    }

    fn json_patch(&mut self, now: Option<Object>) -> Request {
        let replicas = now.and_then(|object| object.spec.replicas);
        let test = match self.random.random_range(0..8) {
            0 => Test::Nothing,
            1 => Test::Version(self.version(now).unwrap_or(0)),
            2 => Test::Generation(now.map_or(1, |object| object.generation) - i64::from(self.one_in(3))),
            3 => Test::Uid(self.uid(now).unwrap_or(0)),
            4 => Test::EmptySpec,
            5 => Test::Replicas(self.pick(&[i32::MIN, 0, 1])),
            _ => Test::Replicas(replicas.unwrap_or(i32::MIN)),
        };
        let operation = match self.random.random_range(0..6) {
            0 if test != Test::Nothing => ModelOperation::Nothing,
            1 => ModelOperation::Replace(self.replicas()),
            2 => ModelOperation::Remove,
            _ => ModelOperation::Add(self.replicas()),
        };
        Request::JsonPatch { scale: self.one_in(2), test, operation }
    }

    fn patch_at_generation(&mut self, now: Option<Object>) -> Request {
        let generation = now.map_or(1, |object| object.generation) - i64::from(self.one_in(4));
        let stands = now.and_then(|object| object.status).and_then(|status| status.list);
        let list = match self.random.random_range(0..6) {
            0 => ListTest::Nothing,
            1 => ListTest::Absent,
            2 => ListTest::Is(self.pick(&[1, 2])),
            _ => stands.into(),
        };
        let set = match self.random.random_range(0..4) {
            0 => Set::List(None),
            1 => Set::List(Some(self.pick(&[1, 2]))),
            _ => Set::Replicas(self.replicas()),
        };
        Request::PatchAtGeneration { generation, list, set }
    }

    fn request(&mut self, now: Option<Object>) -> Request {
        if now.is_none() && !self.one_in(4) {
            return Request::Create { body: self.body(None) };
        }
        let (version, uid) = (self.version(now), self.uid(now));
        match self.random.random_range(0..46) {
            0 => Request::Get,
            1..3 => Request::GetScale,
            3 => Request::Create { body: self.body(now) },
            4..12 => {
                let on = if self.one_in(2) { ModelEndpoint::Main } else { ModelEndpoint::Status };
                Request::Put { on, version, uid, body: self.body(now) }
            }
            12..15 => Request::PutScale { version, uid, replicas: self.replicas() },
            15..21 => {
                let (on, change) = self.change();
                Request::Merge { on, version, uid, change }
            }
            21..24 => Request::MergeScale { version, uid, replicas: self.maybe_replicas() },
            24..31 => self.json_patch(now),
            31..38 => {
                let mut status = self.status();
                // An empty apply would own the fields' parents, which the model omits.
                status.conditions = status.conditions.filter(|list| *list != Conditions::default());
                if status == Status::default() {
                    status.ready = Some(1);
                }
                let manager = self.pick(&[Manager::Alpha, Manager::Beta]);
                Request::Apply { manager, force: self.one_in(3), version, uid, status }
            }
            38..40 => Request::Delete { version, uid },
            _ => self.patch_at_generation(now),
        }
    }
}

/// An apply to `/status` with the UID of another object of the same name that changes nothing is treated as a change
/// before it is dropped: it renews the time of the manager's entry, by which entries are sorted, so it may or may not
/// move the version. A model without a clock cannot predict this, so that request is sent without the UID.
fn settled(model: &Server, request: Request) -> Request {
    match request {
        Request::Apply { manager, force, version, uid: Some(uid), status }
            if model.object.is_none_or(|object| object.uid != uid) && !model.answer(&request).1.moved =>
        {
            Request::Apply { manager, force, version, uid: None, status }
        }
        request => request,
    }
}

/// Sends the requests generated from `seed` to both servers. Returns how often each kind of answer occurred, or the
/// sequence up to the first difference.
async fn compare(
    cluster: &Cluster,
    mut model: Server,
    seed: u64,
) -> Result<BTreeMap<(u16, String, bool), usize>, String> {
    let namespace = cluster.namespace("conformance").await.unwrap();
    let mut real = Real {
        client: cluster.client().await.unwrap(),
        path: format!("/apis/tandem.dev/v1alpha1/namespaces/{}/nodepools", namespace.name()),
        versions: BTreeMap::new(),
        uids: BTreeMap::new(),
        stored: None,
    };
    let mut generator = Generator { random: SmallRng::seed_from_u64(seed), seen: Vec::new() };
    let mut tally = BTreeMap::new();
    let mut report = format!("{SEED_VARIABLE}={seed}\n");
    let mut differed = false;
    for step in 0..LENGTH {
        let request = settled(&model, generator.request(model.object));
        let wire = real.wire(&request);
        let owners = real.owners();
        let (next, ServerAnswer { code, reason, moved, generation_delta }) = model.answer(&request);
        model = next;
        let stored = model.object.as_ref().map(|object| comparable(object).to_string());
        let expected = Said { code, reason: reason.word().to_owned(), moved, generation_delta, stored };
        let (said, message) = real.answer(&request, &model).await;
        let body = wire.body.map(|body| body.to_string()).unwrap_or_default();
        writeln!(report, "{step}: {request:?}\n   {} {} {body}", wire.verb, wire.subresource).unwrap();
        writeln!(report, "   the server: {said:?} {message}").unwrap();
        if said != expected {
            writeln!(report, "   the model:  {expected:?}\n   {reason:?} {:?}", model.object).unwrap();
            writeln!(report, "   managedFields before: {owners}\n   managedFields after:  {}", real.owners())
                .unwrap();
            differed = true;
            break;
        }
        generator.seen.extend(model.object);
        *tally.entry((said.code, said.reason, said.moved)).or_insert(0) += 1;
    }
    // No other component removes the finalizer.
    let hold = Request::Merge {
        on: ModelEndpoint::Main,
        version: None,
        uid: None,
        change: RequestedChange::Finalizer(false),
    };
    real.answer(&hold, &model).await;
    if differed { Err(report) } else { Ok(tally) }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_answers_as_the_server_does() {
    let cluster = tandem::definitions_only().await.unwrap();
    let chosen = std::env::var(SEED_VARIABLE).ok().map(|text| match text.split_once("..") {
        Some((from, to)) => from.parse().unwrap()..to.parse().unwrap(),
        None => text.parse().unwrap()..text.parse::<u64>().unwrap() + 1,
    });
    let usual = chosen.is_none();
    let seeds = chosen.unwrap_or(SEEDS);
    let mut tally: BTreeMap<(u16, String, bool), usize> = BTreeMap::new();
    for seed in seeds {
        match compare(cluster, Server::new(Unconditional::Refused), seed).await {
            Ok(of_one) => {
                for (kind, times) in of_one {
                    *tally.entry(kind).or_default() += times;
                }
            }
            Err(report) => panic!("the model and the server differ:\n{report}"),
        }
    }
    println!("answers, all alike:");
    for ((code, reason, moved), times) in &tally {
        println!("{times:5}  {code} {reason:14} {}", if *moved { "moved" } else { "" });
    }
    if !usual {
        return;
    }
    // Every kind of answer must occur.
    for kind in [
        (200, "", false),
        (200, "", true),
        (201, "", true),
        (400, "BadRequest", false),
        (404, "NotFound", false),
        (409, "AlreadyExists", false),
        (409, "Conflict", false),
        (422, "Invalid", false),
        (500, "InternalError", false),
    ] {
        let kind = (kind.0, kind.1.to_owned(), kind.2);
        assert!(tally.contains_key(&kind), "{kind:?} was never answered");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_with_one_wrong_rule_is_caught() {
    let cluster = tandem::definitions_only().await.unwrap();
    // As if a custom resource could be PUT without a version.
    for seed in SEEDS {
        if let Err(report) = compare(cluster, Server::new(Unconditional::Allowed), seed).await {
            let last = report.lines().rfind(|line| line.contains("the server:")).unwrap();
            assert!(last.contains("must be specified for an update"), "{report}");
            return;
        }
    }
    panic!("the server takes a PUT without a version, or no sequence has one");
}
