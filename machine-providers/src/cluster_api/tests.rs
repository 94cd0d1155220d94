//! The provider against an API server that is one closure, which keeps what is written. How Cluster API and a real API server
//! treat it is in the end-to-end tests.

use node_lifecycle::supply::{Completeness, KnownAs};
use std::sync::{Arc, Mutex as SyncMutex};

use http::{Method, Request, Response};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use shared_crds::ownership::Owner;
use shared_runtime::clock::Clock;
use shared_runtime::write::{WriteStrategy, Writer};

use super::*;
use crate::ListedMachine;
use crate::api_errors::whole;
use crate::testing::{failure, key};

/// The objects of the management cluster.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    deployment: Value,
    pub(super) machines: Vec<Value>,
    sets: Vec<Value>,
    resized: Vec<i64>,
    /// The versions that the API server has.
    served: Vec<&'static str>,
    /// The paths of the requests for Cluster API's objects.
    paths: Vec<String>,
    /// The health checks, or the code of the answer.
    pub(super) checks: Result<Vec<Value>, u16>,
    /// What the API server answers instead, if anything.
    fails: Option<u16>,
}

/// Cluster API for the contract: its objects, and the hand of its controllers.
pub(crate) struct Bench {
    pub(crate) provider: ClusterApi,
    objects: Shared,
}

/// A set `md` without machines.
pub(crate) fn bench() -> Bench {
    let objects = objects(0, &[]);
    Bench { provider: provider(&objects), objects }
}

impl Bench {
    /// What Cluster API's controllers do.
    pub(crate) fn act(&self) {
        self.objects.lock().unwrap().act();
    }

    /// The machines that exist are not listed any more, or are again.
    pub(crate) fn hide(&self, hidden: &mut Vec<Value>) {
        std::mem::swap(&mut self.objects.lock().unwrap().machines, hidden);
    }

    /// Every further request is answered with this code.
    pub(crate) fn fail(&self, code: Option<u16>) {
        self.objects.lock().unwrap().fails = code;
    }
}

impl Objects {
    /// What Cluster API's controllers do: as many machines as the number says, marked ones go first.
    pub(super) fn act(&mut self) {
        let Self { deployment, machines, .. } = self;
        deployment["status"]["observedGeneration"] = deployment["metadata"]["generation"].clone();
        let wanted = usize::try_from(deployment["spec"]["replicas"].as_i64().unwrap()).unwrap();
        let of_others = machines.extract_if(.., |machine| !is_of_set(machine)).collect::<Vec<_>>();
        machines.sort_by_key(|machine| machine["metadata"]["annotations"][DELETE].is_string());
        machines.truncate(wanted);
        let unused =
            |machines: &[Value], name: &str| machines.iter().all(|it| it["metadata"]["name"] != name);
        for name in ["a", "b", "c", "d"] {
            if machines.len() < wanted && unused(machines, name) {
                machines.push(machine(name));
            }
        }
        deployment["status"]["replicas"] = json!(machines.len());
        machines.extend(of_others);
    }
}

pub(super) type Shared = Arc<SyncMutex<Objects>>;

fn deployment(replicas: i32) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
        "metadata": { "name": "md", "namespace": "default", "uid": "md-uid", "resourceVersion": "7", "generation": 3 },
        "spec": { "replicas": replicas },
        "status": { "observedGeneration": 3, "conditions": [] },
    })
}

pub(super) fn machine(name: &str) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": "1",
            "labels": { SET: "md" }, "annotations": { "note": "x" } },
        "spec": { "providerID": format!("x://{name}") }, "status": { "phase": "Running" },
    })
}

fn condition(type_: &str, status: &str) -> Value {
    json!({ "type": type_, "status": status, "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

pub(super) fn objects(replicas: i32, machines: &[&str]) -> Shared {
    let machines = machines.iter().map(|name| machine(name)).collect();
    Arc::new(SyncMutex::new(Objects {
        deployment: deployment(replicas),
        machines,
        sets: vec![],
        resized: vec![],
        served: vec!["v1beta1", "v1beta2"],
        paths: vec![],
        checks: Err(404),
        fails: None,
    }))
}

pub(super) fn provider(objects: &Shared) -> ClusterApi {
    let objects = Arc::clone(objects);
    let service = tower::service_fn(move |request: Request<Body>| {
        let objects = Arc::clone(&objects);
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect_bytes().await.unwrap();
            let (code, answer) = serve(&mut objects.lock().unwrap(), &parts, &bytes);
            Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()))
        }
    });
    let client = Client::new(service, "default");
    ClusterApi::new(Management::Own(client.clone(), writer(client)))
}

pub(super) fn writer(client: Client) -> Writer {
    let (clock, _) = Clock::fake(Timestamp::UNIX_EPOCH);
    let (owner, strategy) = (Owner::NodepoolOperator, WriteStrategy::Guarded);
    Writer::new(client, owner, strategy, &clock, shared_runtime::write::unobserved()).unwrap()
}

/// The API server's answer to which groups it has.
fn groups(served: &[&str]) -> (u16, Value) {
    let version =
        |version: &&str| json!({ "groupVersion": format!("cluster.x-k8s.io/{version}"), "version": version });
    let versions: Vec<Value> = served.iter().map(version).collect();
    let group = json!({ "name": "cluster.x-k8s.io", "versions": versions });
    let all = if served.is_empty() { json!([]) } else { json!([group]) };
    (200, json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": all }))
}

fn list(kind: &str, items: &[Value]) -> (u16, Value) {
    let list = json!({ "kind": format!("{kind}List"), "apiVersion": "cluster.x-k8s.io/v1beta2", "metadata": {},
        "items": items });
    (200, list)
}

/// Whether the machine is one of `md`, which every list selects.
fn is_of_set(machine: &Value) -> bool {
    machine["metadata"]["labels"][SET] == "md"
}

pub(super) fn serve(objects: &mut Objects, parts: &http::request::Parts, body: &[u8]) -> (u16, Value) {
    if let Some(code) = objects.fails {
        return failure(code, "Broken", "it is broken");
    }
    if parts.uri.path() == "/apis" {
        return groups(&objects.served);
    }
    objects.paths.push(parts.uri.path().to_owned());
    let of_served =
        |version: &&str| parts.uri.path().starts_with(&format!("/apis/cluster.x-k8s.io/{version}/"));
    if !objects.served.iter().any(of_served) {
        return failure(404, "NotFound", "the server could not find the requested resource");
    }
    let path = parts.uri.path().rsplit_once("/namespaces/default/").unwrap().1;
    let body = || serde_json::from_slice::<Value>(body).unwrap();
    match (&parts.method, path) {
        (&Method::GET, "machinedeployments/md") => (200, objects.deployment.clone()),
        (&Method::GET, "machines") => {
            let of_set: Vec<_> =
                objects.machines.iter().filter(|machine| is_of_set(machine)).cloned().collect();
            list("Machine", &of_set)
        }
        (&Method::GET, "machinehealthchecks") => match &objects.checks {
            Ok(checks) => list("MachineHealthCheck", checks),
            Err(code) => failure(*code, "NoList", "they are not listed"),
        },
        (&Method::GET, "machinesets") => list("MachineSet", &objects.sets),
        (&Method::PUT, "machinedeployments/md/scale") => {
            let (scale, current) = (body(), &mut objects.deployment);
            if scale["metadata"]["resourceVersion"] != current["metadata"]["resourceVersion"] {
                return failure(409, "Conflict", "it has changed");
            }
            current["spec"]["replicas"] = scale["spec"]["replicas"].clone();
            current["metadata"]["resourceVersion"] = json!("8");
            objects.resized.push(scale["spec"]["replicas"].as_i64().unwrap_or_default());
            (200, scale)
        }
        (method, path) => {
            let name = path.strip_prefix("machines/").unwrap_or("none");
            let Some(machine) = objects.machines.iter_mut().find(|it| it["metadata"]["name"] == name) else {
                return failure(404, "NotFound", "there is none");
            };
            if method == Method::PATCH {
                json_patch::patch(machine, &serde_json::from_value::<json_patch::Patch>(body()).unwrap())
                    .unwrap();
            }
            (200, machine.clone())
        }
    }
}

fn marked(objects: &Shared) -> Vec<String> {
    let objects = objects.lock().unwrap();
    let marked = objects.machines.iter().filter(|it| it["metadata"]["annotations"][DELETE].is_string());
    marked.map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

pub(super) const DELETE: &str = "cluster.x-k8s.io/delete-machine";
pub(super) const SET: &str = "cluster.x-k8s.io/deployment-name";
const NO_DRAIN: &str = "machine.cluster.x-k8s.io/exclude-node-draining";

async fn states(provider: &ClusterApi) -> Vec<String> {
    let listed = provider.list(&key(), "md").await.unwrap();
    let state = |(machine, is_marked): (ListedMachine, bool)| {
        let mark = if is_marked { " marked" } else { "" };
        format!("{} {:?}{mark}", machine.name, machine.progress)
    };
    listed.machines.into_iter().map(state).collect()
}

#[tokio::test]
async fn machines_that_are_promised_count_and_have_names_that_no_object_can_have() {
    let objects = objects(3, &["a"]);
    objects.lock().unwrap().machines[0]["status"]["phase"] = json!("Provisioning");
    assert_eq!(
        states(&provider(&objects)).await,
        ["a Starting(None)", "md+0 Starting(None)", "md+1 Starting(None)"]
    );
}

#[tokio::test]
async fn a_removal_marks_the_machine_and_lowers_the_number_once() {
    let objects = objects(2, &["a", "b"]);
    let provider = provider(&objects);
    for _ in 0..3 {
        // The second time, the answer to the first may have been lost.
        assert_eq!(provider.delete(&key(), "md", "a").await, Ok(Deletion::Started));
    }
    assert_eq!((marked(&objects), objects.lock().unwrap().resized.clone()), (vec!["a".to_owned()], vec![1]));
    assert!(objects.lock().unwrap().machines[0]["metadata"]["annotations"][NO_DRAIN].is_string());
    assert_eq!(states(&provider).await, ["a Deleting", "b Running"]);
    assert_eq!(provider.delete(&key(), "md", "never").await, Ok(Deletion::Gone));
}

#[tokio::test]
async fn two_removals_lower_the_number_by_two() {
    let objects = objects(3, &["a", "b", "c"]);
    let provider = provider(&objects);
    for name in ["a", "b", "a", "b"] {
        assert_eq!(provider.delete(&key(), "md", name).await, Ok(Deletion::Started));
    }
    assert_eq!(objects.lock().unwrap().resized, [2, 1]);
}

#[tokio::test]
async fn nothing_is_lowered_while_it_rolls_out() {
    let rolling = |change: fn(&mut Objects)| {
        let objects = objects(2, &["a", "b"]);
        change(&mut objects.lock().unwrap());
        objects
    };
    for (what, objects) in [
        (
            "condition",
            rolling(|it| it.deployment["status"]["conditions"] = json!([condition("RollingOut", "True")])),
        ),
        ("generation", rolling(|it| it.deployment["metadata"]["generation"] = json!(4))),
        (
            "two sets",
            rolling(|it| {
                let set = json!({ "metadata": { "name": "s" }, "spec": { "replicas": 1 } });
                it.sets = vec![set.clone(), set];
            }),
        ),
    ] {
        let provider = provider(&objects);
        let listed = provider.list(&key(), "md").await.unwrap();
        assert!(listed.removals_wait.is_some_and(|why| why.contains("rolling out")), "{what}");
        assert_eq!(provider.delete(&key(), "md", "a").await, Ok(Deletion::Started), "{what}");
        let without = ["b".to_owned()];
        let shrunk = provider.shrink(&key(), "md", listed.size, &without).await;
        assert_eq!(shrunk, Err(ProviderError::Conflict), "{what}");
        assert_eq!(objects.lock().unwrap().resized, [0_i64; 0], "{what}");
    }
    let calm = provider(&rolling(|_| {})).list(&key(), "md").await.unwrap();
    assert_eq!(calm.removals_wait, None);
}

#[tokio::test]
async fn a_number_that_another_writer_has_changed_is_not_written() {
    let objects = objects(2, &["a", "b"]);
    let provider = provider(&objects);
    let size = provider.list(&key(), "md").await.unwrap().size;
    objects.lock().unwrap().deployment["spec"]["replicas"] = json!(5);
    assert_eq!(provider.grow(&key(), "md", size, 1).await, Err(ProviderError::Conflict));
    assert_eq!(provider.shrink(&key(), "md", size, &["a".to_owned()]).await, Err(ProviderError::Conflict));
    assert_eq!(objects.lock().unwrap().resized, [0_i64; 0]);
}

#[tokio::test]
async fn growing_and_withdrawing_write_the_number_that_was_decided() {
    let objects = objects(2, &["a", "b"]);
    let provider = provider(&objects);
    let size = async || provider.list(&key(), "md").await.unwrap().size;
    provider.grow(&key(), "md", size().await, 3).await.unwrap();
    assert_eq!(objects.lock().unwrap().resized, [5]);
    // Two that are only promised, and one that exists.
    let without = ["md+0", "md+1", "b"].map(str::to_owned);
    provider.shrink(&key(), "md", size().await, &without).await.unwrap();
    assert_eq!(marked(&objects), ["b"]);
    assert_eq!(objects.lock().unwrap().resized, [5, 2]);
}

#[tokio::test]
async fn a_mark_that_is_ours_is_taken_off_and_that_of_a_person_stays() {
    let objects = objects(2, &["a", "b"]);
    {
        let mut objects = objects.lock().unwrap();
        objects.machines[0]["metadata"]["annotations"] =
            json!({ DELETE: "tandem.dev", NO_DRAIN: "", "note": "x" });
        objects.machines[1]["metadata"]["annotations"] = json!({ DELETE: "yes" });
    }
    let provider = provider(&objects);
    assert_eq!(states(&provider).await, ["a Running marked", "b Running"]);
    for name in ["a", "b", "never"] {
        provider.keep(&key(), name).await.unwrap();
    }
    assert_eq!(marked(&objects), ["b"]);
    assert_eq!(objects.lock().unwrap().machines[0]["metadata"]["annotations"], json!({ "note": "x" }));
}

#[tokio::test]
async fn that_a_person_wants_no_drain_of_a_machine_outlives_our_mark() {
    let objects = objects(2, &["a", "b"]);
    let by_person = json!({ NO_DRAIN: "true" });
    objects.lock().unwrap().machines[0]["metadata"]["annotations"] = by_person.clone();
    let provider = provider(&objects);
    provider.delete(&key(), "md", "a").await.unwrap();
    assert_eq!(
        objects.lock().unwrap().machines[0]["metadata"]["annotations"],
        json!({ DELETE: "tandem.dev", NO_DRAIN: "true" })
    );
    provider.keep(&key(), "a").await.unwrap();
    assert_eq!(objects.lock().unwrap().machines[0]["metadata"]["annotations"], by_person);
}

#[tokio::test]
async fn a_deployment_that_cannot_be_scaled_is_said() {
    let topology = json!([{ "manager": "capi-topology", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": { "f:spec": { "f:replicas": {} } } }]);
    let owned = json!({ "topology.cluster.x-k8s.io/owned": "" });
    let by_autoscaler = json!({ "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "3" });
    for (change, text) in [
        (json!({ "status": { "conditions": [condition("Paused", "True")] } }), "is paused"),
        (json!({ "spec": { "paused": true } }), "is paused"),
        (json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": "" } } }), "is paused"),
        (json!({ "metadata": { "annotations": by_autoscaler } }), "Cluster Autoscaler scales it"),
        (
            json!({ "metadata": { "labels": owned, "managedFields": topology } }),
            "the topology of its Cluster",
        ),
    ] {
        let objects = objects(2, &["a", "b"]);
        let (provider, key) = (provider(&objects), key());
        let size = provider.list(&key, "md").await.unwrap().size;
        json_patch::merge(&mut objects.lock().unwrap().deployment, &change);
        let without = ["b".to_owned()];
        for error in [
            provider.list(&key, "md").await.unwrap_err(),
            provider.delete(&key, "md", "a").await.unwrap_err(),
            provider.grow(&key, "md", size, 1).await.unwrap_err(),
            provider.shrink(&key, "md", size, &without).await.unwrap_err(),
        ] {
            assert!(error.to_string().contains(text), "{error}");
        }
        assert_eq!((marked(&objects), objects.lock().unwrap().resized.clone()), (vec![], vec![]));
    }
    let objects = objects(1, &["a"]);
    let error = provider(&objects).list(&key(), "none").await.unwrap_err();
    assert!(error.to_string().contains("there is no MachineDeployment default/none"), "{error}");
}

#[tokio::test]
async fn the_newest_version_that_the_api_server_has_is_used_for_every_request() {
    for (served, used) in
        [(vec!["v1beta1", "v1beta2"], "v1beta2"), (vec!["v1beta2"], "v1beta2"), (vec!["v1beta1"], "v1beta1")]
    {
        let objects = objects(2, &["a", "b"]);
        objects.lock().unwrap().served = served;
        let provider = provider(&objects);
        assert_eq!(states(&provider).await, ["a Running", "b Running"]);
        provider.delete(&key(), "md", "a").await.unwrap();
        let paths = objects.lock().unwrap().paths.clone();
        let prefix = format!("/apis/cluster.x-k8s.io/{used}/namespaces/default/");
        assert!(paths.len() > 5 && paths.iter().all(|path| path.starts_with(&prefix)), "{paths:?}");
        assert_eq!(objects.lock().unwrap().resized, [1]);
    }
    // v1beta1 has the conditions of v1beta2 in a place of their own.
    let objects = objects(2, &["a", "b"]);
    objects.lock().unwrap().deployment["status"] = json!({ "observedGeneration": 3,
        "conditions": [{ "type": "Available", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        "v1beta2": { "conditions": [condition("RollingOut", "True")] } });
    objects.lock().unwrap().served = vec!["v1beta1"];
    let listed = provider(&objects).list(&key(), "md").await.unwrap();
    assert!(listed.removals_wait.is_some_and(|why| why.contains("rolling out")));
}

#[tokio::test]
async fn one_that_waits_for_deletions_is_lowered_while_machines_are_out_of_date() {
    let on_delete = json!({ "type": "OnDelete" });
    for (field, strategy) in [("rollout", json!({ "strategy": on_delete })), ("strategy", on_delete.clone())]
    {
        let objects = objects(2, &["a", "b"]);
        {
            let mut all = objects.lock().unwrap();
            all.deployment["status"]["conditions"] = json!([condition("RollingOut", "True")]);
            all.deployment["spec"][field] = strategy;
        }
        let provider = provider(&objects);
        assert_eq!(provider.list(&key(), "md").await.unwrap().removals_wait, None, "{field}");
        provider.delete(&key(), "md", "a").await.unwrap();
        assert_eq!(objects.lock().unwrap().resized, [1], "{field}");
        // Cluster API takes machines of either set.
        let set = json!({ "metadata": { "name": "s" }, "spec": { "replicas": 1 } });
        objects.lock().unwrap().sets = vec![set.clone(), set];
        let listed = provider.list(&key(), "md").await.unwrap();
        assert!(listed.removals_wait.is_some_and(|why| why.contains("2 of its MachineSets")), "{field}");
    }
}

#[tokio::test]
async fn another_version_that_is_served_from_now_on_is_found() {
    let objects = objects(1, &["a"]);
    let provider = provider(&objects);
    for (served, lists) in [("v1beta1", true), ("v1beta2", false), ("v1beta2", true)] {
        objects.lock().unwrap().served = vec![served];
        let listed = provider.list(&key(), "md").await;
        assert_eq!(listed.is_ok(), lists, "{served} {listed:?}");
    }
}

#[tokio::test]
async fn a_cluster_without_cluster_api_and_a_kubeconfig_that_cannot_be_used_are_said() {
    let objects = objects(0, &[]);
    objects.lock().unwrap().served = vec![];
    let missing = provider(&objects).list(&key(), "md").await.unwrap_err();
    assert!(
        matches!(&missing, ProviderError::Absent(why) if why.contains("--cluster-api-kubeconfig")),
        "{missing}"
    );
    // It may be installed later.
    objects.lock().unwrap().served = vec!["v1beta2"];
    assert!(provider(&objects).list(&key(), "md").await.is_ok());
}

#[tokio::test]
async fn the_writer_of_the_number_is_the_last_by_the_api_server_or_this_process() {
    let entry = |manager: &str, second: i64| {
        json!({ "manager": manager, "operation": "Update", "fieldsV1": { "f:spec": { "f:replicas": {} } },
            "time": Timestamp::from_second(second).unwrap().to_string() })
    };
    let objects = objects(2, &["a", "b"]);
    let provider = provider(&objects);
    let writer = async || provider.list(&key(), "md").await.unwrap().size_writer;
    assert_eq!(writer().await, None, "it was made without a number");
    let size = provider.list(&key(), "md").await.unwrap().size;
    provider.grow(&key(), "md", size, 1).await.unwrap();
    assert_eq!(writer().await.as_deref(), Some("nodepool-operator"));
    objects.lock().unwrap().deployment["spec"]["replicas"] = json!(7);
    assert_eq!(writer().await, None);
    for (entries, last) in [
        (vec![entry("helm", 9), entry("kubectl", 8)], "helm"),
        (vec![entry("helm", 9), entry("nodepool-operator", 8)], "nodepool-operator"),
    ] {
        objects.lock().unwrap().deployment["metadata"]["managedFields"] = json!(entries);
        assert_eq!(writer().await.as_deref(), Some(last));
    }
}

#[tokio::test]
async fn nothing_is_removed_while_cluster_api_chooses_what_another_writer_has_taken_away() {
    let objects = objects(1, &["a", "b", "c"]);
    let provider = provider(&objects);
    let listed = provider.list(&key(), "md").await.unwrap();
    assert!(listed.removals_wait.is_some_and(|why| why.contains("choosing 2 of the machines")));
    assert_eq!(provider.delete(&key(), "md", "a").await, Ok(Deletion::Started));
    assert_eq!(objects.lock().unwrap().resized, [0_i64; 0]);
}

#[tokio::test]
async fn the_capacity_of_a_machine_is_what_the_scale_from_zero_annotations_say() {
    let objects = objects(0, &[]);
    let of = |what: &str| format!("capacity.cluster-autoscaler.kubernetes.io/{what}");
    objects.lock().unwrap().deployment["metadata"]["annotations"] = json!({
        of("cpu"): "16", of("memory"): "128G", of("ephemeral-disk"): "100Gi", of("maxPods"): "200",
        of("gpu-type"): "example.com/gpu", of("gpu-count"): "2", of("labels"): "zone=a", "note": "x",
    });
    let capacity = async || {
        let listed = provider(&objects).list(&key(), "md").await.unwrap().capacity;
        listed
            .into_iter()
            .map(|(resource, amount)| format!("{resource}={}", amount.0))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(capacity().await, "cpu=16 ephemeral-storage=100Gi example.com/gpu=2 memory=128G pods=200");
    objects.lock().unwrap().deployment["metadata"]["annotations"] =
        json!({ of("cpu"): "many", of("memory"): "1Gi" });
    assert_eq!(capacity().await, "memory=1Gi");
}

#[tokio::test]
async fn nothing_is_lowered_while_another_writer_has_marked_another_machine() {
    let objects = objects(3, &["a", "b", "c"]);
    let mark = |value: Value| objects.lock().unwrap().machines[1]["metadata"]["annotations"] = value;
    mark(json!({ DELETE: "yes" }));
    let provider = provider(&objects);
    let listed = provider.list(&key(), "md").await.unwrap();
    let why = listed.removals_wait.unwrap();
    assert!(why.contains("Machine b") && why.contains("take the annotation off"), "{why}");
    assert_eq!(provider.delete(&key(), "md", "a").await, Ok(Deletion::Started));
    let shrunk = provider.shrink(&key(), "md", listed.size, &["a".to_owned()]).await;
    assert_eq!((shrunk, objects.lock().unwrap().resized.len()), (Err(ProviderError::Conflict), 0));
    // The marked one itself may go, and so may the other one when the mark is off.
    assert_eq!(provider.delete(&key(), "md", "b").await, Ok(Deletion::Started));
    assert_eq!(objects.lock().unwrap().resized, [2]);
    assert_eq!(provider.delete(&key(), "md", "a").await, Ok(Deletion::Started));
    assert_eq!(objects.lock().unwrap().resized, [2, 1], "it had waited");
}

#[tokio::test]
async fn the_node_that_cluster_api_has_found_and_the_addresses_are_listed() {
    let objects = objects(1, &["a"]);
    objects.lock().unwrap().machines[0]["status"] = json!({ "phase": "Running", "nodeRef": { "name": "far" },
        "addresses": [{ "type": "InternalIP", "address": "10.0.0.7" }, { "type": "Hostname", "address": "a.local" }] });
    let (machine, _) = provider(&objects).list(&key(), "md").await.unwrap().machines.remove(0);
    let addresses = ["10.0.0.7", "a.local"].map(str::to_owned).into();
    assert_eq!(machine.known_as, KnownAs { node: Some("far".to_owned()), addresses });
}

#[tokio::test]
async fn a_list_is_complete_when_the_controller_counts_as_many_machines() {
    for (status, expected) in [
        (json!({ "observedGeneration": 3, "replicas": 1 }), Completeness::Stated),
        (json!({ "observedGeneration": 3, "replicas": 2 }), Completeness::Unknown),
        (json!({ "observedGeneration": 2, "replicas": 1 }), Completeness::Unknown),
        (json!({ "observedGeneration": 3 }), Completeness::Unknown),
        (Value::Null, Completeness::Unknown),
    ] {
        let objects = objects(1, &["a"]);
        objects.lock().unwrap().deployment["status"] = status.clone();
        let listed = provider(&objects).list(&key(), "md").await.unwrap();
        assert_eq!(listed.completeness, expected, "{status}");
    }
}

#[tokio::test]
async fn a_machine_of_another_set_is_not_marked_and_lowers_no_number() {
    let objects = objects(3, &["a", "b"]);
    let foreign = |name: &str, labels: Value| {
        let mut foreign = machine(name);
        foreign["metadata"]["labels"] = labels;
        foreign
    };
    let foreign = [foreign("theirs", json!({ SET: "other" })), foreign("unowned", Value::Null)];
    objects.lock().unwrap().machines.extend(foreign);
    let provider = provider(&objects);
    for name in ["theirs", "unowned"] {
        // One more machine is on its way, so the number is higher than that of the machines.
        let error = provider.delete(&key(), "md", name).await.unwrap_err();
        assert!(matches!(&error, ProviderError::Transient(why) if why.contains("is left alone")), "{error}");
    }
    assert_eq!((marked(&objects), objects.lock().unwrap().resized.clone()), (vec![], vec![]));
}

#[tokio::test]
async fn machines_of_another_provider_cost_the_set_none_of_its_own() {
    let objects = objects(2, &["a", "b"]);
    let provider = provider(&objects);
    let size = provider.list(&key(), "md").await.unwrap().size;
    let former = ["web-12345-0", "other+0"].map(str::to_owned);
    provider.shrink(&key(), "md", size, &former).await.unwrap();
    assert_eq!((marked(&objects), objects.lock().unwrap().resized.clone()), (vec![], vec![]));
    let mixed = ["web-12345-0", "b"].map(str::to_owned);
    provider.shrink(&key(), "md", size, &mixed).await.unwrap();
    assert_eq!((marked(&objects), objects.lock().unwrap().resized.clone()), (vec!["b".to_owned()], vec![1]));
}

#[tokio::test]
async fn a_list_that_says_that_it_is_a_part_is_an_error() {
    let part = json!({ "kind": "MachineList", "apiVersion": "cluster.x-k8s.io/v1beta2",
        "metadata": { "continue": "more" }, "items": [machine("a")] });
    let error = whole(serde_json::from_value::<kube::api::ObjectList<Machine>>(part).unwrap()).unwrap_err();
    assert!(error.to_string().contains("only a part"), "{error}");
}
