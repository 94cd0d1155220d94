//! Every way in which the API server refuses, delays or loses a write, provoked on a real one: the form of the error,
//! its [`Class`], how the write functions handle it, and how many requests that costs. No operator runs.
//!
//! One test goes through all cases, because the table that it prints (`--nocapture`) is read as a whole; wrong rows are
//! collected, and fail it at the end. Finally the API server's audit log is compared with the requests that the write
//! functions reported to their observer.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::fmt::Debug;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::bail;
use conflict_retry::{
    AttemptEvent, Class, Decision, DeleteOutcome, EvictOutcome, FieldConflict, FinishedEvent, Observer,
    Outcome, RetryPolicy, ScaleDecision, ScaleView, Source, Subresource, Verb, Writable, WriteError,
    WriteOptions,
};
use e2e::cluster::{Cluster, Options};
use e2e::droproxy::{Droproxy, Loss};
use e2e::wait::eventually;
use e2e::{objects, tandem};
use futures::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GetParams, ListParams, Patch, PatchParams, PostParams,
    Preconditions, VersionMatch, WatchEvent, WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::subresource::Scale;
use kube::core::{GroupVersionKind, NamespaceResourceScope};
use kube::{Api, Client, Config, Resource, ResourceExt as _};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use shared_crds::NodePool;

/// How long a change that the API server gets from a watch may take to become effective.
const PATIENCE: Duration = Duration::from_secs(30);
/// The API server's request timeout. Well above the duration of any request here, including the wait for a future
/// version (3 s), and short, because two cases wait until it expires.
const SERVER_TIMEOUT: Duration = Duration::from_secs(8);
/// The user agent of the write functions' client, so that the audit log distinguishes its requests from those that set
/// a case up.
const AGENT: &str = "front-door";
/// Represents the code of a request that the server gave up: 504, or 500 when its store failed, or none, because a
/// server that has already begun an answer can only break the connection.
const GIVEN_UP: u16 = u16::MAX;
/// The namespace of all cases.
const NAMESPACE: &str = "taxonomy";
/// No object here ever reaches this version.
const FUTURE: &str = "9000000000000000";

/// A copy to start from.
fn cached<K: Clone>(copy: &K) -> Source<'static, K> {
    Source::Copy(copy.clone())
}

/// Records each request that the write functions report: `put`, or `put!conflict` for one that failed.
#[derive(Default)]
struct Tally {
    since_taken: Mutex<Vec<String>>,
    all: Mutex<Vec<(Verb, Option<&'static str>)>>,
    /// Number of requests of the last operation, as reported at its end.
    summed_up: Mutex<u32>,
}

impl Observer for Tally {
    fn attempt(&self, event: &AttemptEvent<'_>) {
        let failed = event.class.map(|class| format!("!{}", class.label())).unwrap_or_default();
        self.since_taken.lock().unwrap().push(format!("{}{failed}", event.verb));
        self.all.lock().unwrap().push((event.verb, event.class.map(Class::label)));
    }

    fn finished(&self, event: &FinishedEvent<'_>) {
        *self.summed_up.lock().unwrap() = event.requests;
    }
}

impl Tally {
    fn take(&self) -> String {
        std::mem::take(&mut *self.since_taken.lock().unwrap()).join(" ")
    }

    fn seen(&self) -> String {
        self.since_taken.lock().unwrap().join(" ")
    }
}

/// How a call of a write function ended, in one word.
trait Ending {
    fn ending(&self) -> String;
}

impl<T> Ending for Outcome<T> {
    fn ending(&self) -> String {
        self.label().to_owned()
    }
}

impl<K> Ending for DeleteOutcome<K> {
    fn ending(&self) -> String {
        match self {
            Self::Deleted => "deleted",
            Self::Terminating(_) => "terminating",
            Self::Gone => "gone",
            Self::Conflict(_) => "conflict",
        }
        .to_owned()
    }
}

impl Ending for EvictOutcome {
    fn ending(&self) -> String {
        match self {
            Self::Evicted => "evicted".to_owned(),
            Self::Blocked { retry_after, .. } => format!("blocked({retry_after:?})"),
            Self::Gone => "gone".to_owned(),
            Self::Conflict(_) => "conflict".to_owned(),
        }
    }
}

/// The result of `create`.
impl Ending for ConfigMap {
    fn ending(&self) -> String {
        "created".to_owned()
    }
}

impl<T: Ending> Ending for Result<T, WriteError> {
    fn ending(&self) -> String {
        match self {
            Ok(outcome) => outcome.ending(),
            Err(error @ WriteError::Exhausted { .. }) => {
                format!("error: exhausted({})", error.class().unwrap().label())
            }
            Err(error) => format!("error: {}", error.category()),
        }
    }
}

/// The table, and its wrong rows.
struct Table {
    lines: Vec<String>,
    wrong: Vec<String>,
    tally: Arc<Tally>,
}

impl Table {
    fn new() -> Self {
        let head = format!("{:<48} {:>4} {:<20} {}", "case", "HTTP", "reason", "class");
        Self { lines: vec![head], wrong: Vec::new(), tally: Arc::default() }
    }

    fn options(&self) -> WriteOptions {
        WriteOptions::new("taxonomy").with_observer(self.tally.clone())
    }

    /// Options with one attempt, without retries.
    fn once(&self) -> WriteOptions {
        self.options().with_policy(RetryPolicy::once())
    }

    /// Checks an error and its class. The code 0 means "no answer".
    fn answer<T: Debug>(
        &mut self,
        case: &str,
        verb: Verb,
        answer: Result<T, kube::Error>,
        code: u16,
        class: &Class,
    ) {
        let error = match answer {
            Ok(value) => return self.wrong(&format!("{case}: no error but {value:?}")),
            Err(error) => error,
        };
        let (seen, reason, message) = match &error {
            kube::Error::Api(status) => (status.code, status.reason.as_str(), status.message.as_str()),
            _ => (0, "", ""),
        };
        let found = Class::of(verb, &error);
        self.lines.push(format!("{case:<48} {seen:>4} {reason:<20} {}", shown(&found)));
        let as_expected = seen == code || (code == GIVEN_UP && [0, 500, 504].contains(&seen));
        if !as_expected || found != *class {
            self.wrong(&format!("{case}: {seen} {found:?}, not {code} {class:?}: {message} {error:?}"));
        }
    }

    /// Checks how a call of a write function ends and which requests it sends.
    async fn door<T: Ending>(
        &mut self,
        call: &str,
        ending: impl Future<Output = T>,
        expected: &str,
        requests: &str,
    ) {
        self.tally.take();
        let found = ending.await.ending();
        let sent = self.tally.take();
        let summed_up = std::mem::take(&mut *self.tally.summed_up.lock().unwrap());
        if usize::try_from(summed_up) != Ok(sent.split_whitespace().count()) {
            self.wrong(&format!("{call}: {summed_up} requests at the end, but [{sent}]"));
        }
        self.lines.push(format!("    {call:<44} -> {found:<28} {}: {sent}", sent.split_whitespace().count()));
        if (found.as_str(), sent.as_str()) != (expected, requests) {
            self.wrong(&format!("{call}: {found} by [{sent}], not {expected} by [{requests}]"));
        }
    }

    fn wrong(&mut self, what: &str) {
        let before = self.lines.last().unwrap();
        let what = format!("{what}\n    (after: {before})");
        self.lines.push(format!("  ^ WRONG: {what}"));
        self.wrong.push(what);
    }

    fn check(&mut self, what: &str, holds: bool) {
        if holds {
            self.lines.push(format!("    {what}"));
        } else {
            self.wrong(&format!("it is not so that {what}"));
        }
    }
}

fn shown(class: &Class) -> String {
    match class {
        Class::FieldManager { conflicts } => format!("{}: {}", class.label(), conflicts[0]),
        Class::Throttled { retry_after: Some(told) } | Class::Transient { retry_after: Some(told) } => {
            format!("{} ({told:?})", class.label())
        }
        _ => class.label().to_owned(),
    }
}

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

async fn make<K: Writable>(api: &Api<K>, value: Value) -> K {
    api.create(&PostParams::default(), &typed(value)).await.unwrap()
}

/// A client with an identity from `kubeconfig` and the user agent `agent`, without retries.
async fn connect(kubeconfig: &Path, agent: &str, change: impl FnOnce(&mut Config)) -> Client {
    let read = Kubeconfig::read_from(kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    config.headers.push((http::header::USER_AGENT, agent.parse().unwrap()));
    change(&mut config);
    Client::try_from(config).unwrap()
}

/// The cluster of a case, its namespace, and two clients: one that sets cases up and one that is observed.
struct Bench {
    cluster: Cluster,
    admin: Client,
    door: Client,
}

impl Bench {
    async fn start() -> Self {
        let options = Options {
            api_server_flags: vec![
                format!("--request-timeout={SERVER_TIMEOUT:?}"),
                // Old versions are compacted within seconds instead of minutes.
                "--etcd-compaction-interval=2s".to_owned(),
            ],
            ..Options::api_only()
        };
        let cluster = Cluster::start(options).await.unwrap();
        tandem::install_definitions(&cluster).await.unwrap();
        let admin = cluster.client().await.unwrap();
        let door = connect(cluster.kubeconfig_path(), AGENT, |_| {}).await;
        // It ends with the cluster.
        make(&Api::<Namespace>::all(admin.clone()), json!({"metadata": {"name": NAMESPACE}})).await;
        let bench = Self { cluster, admin, door };
        make(&bench.set_up::<ServiceAccount>(), json!({"metadata": {"name": "default"}})).await;
        make(&bench.set_up::<ServiceAccount>(), json!({"metadata": {"name": "nobody"}})).await;
        bench
    }

    fn set_up<K: Namespaced>(&self) -> Api<K> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    fn watched<K: Namespaced>(&self) -> Api<K> {
        Api::namespaced(self.door.clone(), NAMESPACE)
    }

    fn server(&self) -> SocketAddr {
        let read = Kubeconfig::read_from(self.cluster.kubeconfig_path()).unwrap();
        let url = read.clusters[0].cluster.clone().unwrap().server.unwrap();
        url.strip_prefix("https://").unwrap().parse().unwrap()
    }

    /// A pool with 2 replicas.
    async fn pool(&self, name: &str) -> NodePool {
        let mut pool = objects::pool(name, 1, 5);
        pool.spec.replicas = Some(2);
        self.set_up().create(&PostParams::default(), &pool).await.unwrap()
    }

    async fn map(&self, name: &str) -> ConfigMap {
        make(&self.set_up(), json!({"metadata": {"name": name}, "data": {"k": "0"}})).await
    }

    /// A write by another writer: it moves the version and changes no field that any case uses.
    async fn touch(&self, name: &str) {
        let note = format!("{:x}", rand::random::<u64>());
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"example.com/note": note}}}));
        self.set_up::<NodePool>().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }
}

trait Namespaced: Writable + Resource<Scope = NamespaceResourceScope, DynamicType = ()> {}
impl<K: Writable + Resource<Scope = NamespaceResourceScope, DynamicType = ()>> Namespaced for K {}

/// The goals for the write functions. Each differs from the state of a pool created here.
fn grow(pool: &mut NodePool) -> Decision {
    pool.spec.max_replicas = pool.spec.max_replicas.max(6) + 1 - pool.spec.max_replicas % 2;
    Decision::Write
}

fn report(pool: &mut NodePool) -> Decision {
    pool.status.get_or_insert_default().ready_replicas = Some(7);
    Decision::Write
}

fn colour(map: &mut ConfigMap) -> Decision {
    map.data.get_or_insert_default().insert("k".to_owned(), "blue".to_owned());
    Decision::Write
}

fn to(count: i32) -> impl FnMut(&ScaleView) -> ScaleDecision + Send {
    move |_| ScaleDecision::Set(count)
}

fn scale_of(pool: &NodePool) -> ScaleView {
    ScaleView::of(pool, pool.spec.replicas, None)
}

fn scale_body(pool: &NodePool, replicas: i32) -> Scale {
    typed(json!({
        "metadata": {
            "name": pool.name_any(), "namespace": pool.namespace(),
            "uid": pool.uid(), "resourceVersion": pool.resource_version(),
        },
        "spec": {"replicas": replicas},
    }))
}

fn versioned(pool: &NodePool, mut patch: Value) -> Patch<Value> {
    patch["metadata"] = json!({"resourceVersion": pool.resource_version()});
    Patch::Merge(patch)
}

fn applied(name: &str, more: &Value) -> Value {
    let mut body =
        json!({"apiVersion": "tandem.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": name}});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

fn json_patch(operations: Value) -> Patch<Value> {
    Patch::Json(serde_json::from_value(operations).unwrap())
}

/// A PUT, a merge patch, a deletion or an apply from a version that is no longer the stored one.
async fn stale_versions(bench: &Bench, table: &mut Table) {
    use Class::Conflict;
    let options = &table.options();
    let (pools, door) = (&bench.set_up::<NodePool>(), &bench.watched::<NodePool>());
    let old = bench.pool("stale").await;
    bench.touch("stale").await;
    let (post, patch) = (&PostParams::default(), &PatchParams::default());
    let (mut spec, mut status) = (old.clone(), old.clone());
    let (_, _) = (grow(&mut spec), report(&mut status));

    table.answer("stale version, PUT", Verb::Put, pools.replace("stale", post, &spec).await, 409, &Conflict);
    let call = conflict_retry::update(door, "stale", options, cached(&old), grow);
    table.door("update", call, "written", "put!conflict get put").await;
    bench.touch("stale").await;
    let call = conflict_retry::put_once(door, "stale", Subresource::Main, options, &spec);
    table.door("put_once", call, "conflict", "put!conflict").await;
    let once = &table.once();
    let call = conflict_retry::update(door, "stale", once, cached(&old), grow);
    table.door("update, one attempt allowed", call, "error: exhausted(conflict)", "put!conflict").await;

    let answer = pools.replace_status("stale", post, &status).await;
    table.answer("stale version, PUT /status", Verb::Put, answer, 409, &Conflict);
    let call = conflict_retry::update_status(door, "stale", options, cached(&old), report);
    table.door("update_status", call, "written", "put!conflict get put").await;

    let answer = pools.replace_scale("stale", post, &scale_body(&old, 3)).await;
    table.answer("stale version, PUT /scale", Verb::Put, answer, 409, &Conflict);
    let call = conflict_retry::scale_put(door, "stale", options, Source::Copy(scale_of(&old)), to(3));
    table.door("scale_put", call, "written", "put!conflict get put").await;
    let seen = &scale_of(&old);
    let call = conflict_retry::scale_put_once(door, "stale", options, seen, 4);
    table.door("scale_put_once", call, "conflict", "put!conflict").await;

    let body = versioned(&old, json!({"spec": {"maxReplicas": 9}}));
    table.answer(
        "stale version, merge patch",
        Verb::MergePatch,
        pools.patch("stale", patch, &body).await,
        409,
        &Conflict,
    );
    let want = |_: &NodePool| Some(json!({"spec": {"maxReplicas": 20}}));
    let call = conflict_retry::merge_patch(door, "stale", Subresource::Main, options, cached(&old), want);
    table.door("merge_patch", call, "written", "merge_patch!conflict get merge_patch").await;

    let body = versioned(&old, json!({"status": {"readyReplicas": 9}}));
    let answer = pools.patch_status("stale", patch, &body).await;
    table.answer("stale version, merge patch /status", Verb::MergePatch, answer, 409, &Conflict);
    let want = |_: &NodePool| Some(json!({"status": {"readyReplicas": 20}}));
    let call = conflict_retry::merge_patch(door, "stale", Subresource::Status, options, cached(&old), want);
    table.door("merge_patch", call, "written", "merge_patch!conflict get merge_patch").await;

    let body = versioned(&old, json!({"spec": {"replicas": 4}}));
    let answer = pools.patch_scale("stale", patch, &body).await;
    table.answer("stale version, merge patch /scale", Verb::MergePatch, answer, 409, &Conflict);
    let call = conflict_retry::scale_merge(door, "stale", options, Source::Copy(scale_of(&old)), to(4));
    table.door("scale_merge", call, "written", "merge_patch!conflict get merge_patch").await;
    // The guard on the count ignores the version and checks only the count.
    let seen = ScaleView { replicas: Some(4), ..scale_of(&old) };
    let call = conflict_retry::scale(door, "stale", options, Source::Copy(seen), to(5));
    table.door("scale, from the right count and an old version", call, "written", "json_patch").await;

    let labels = json!({"example.com/own": "yes"});
    let mut body = applied("stale", &json!({}));
    body["metadata"]["labels"] = labels;
    body["metadata"]["resourceVersion"] = json!(old.resource_version());
    let answer = pools.patch("stale", &PatchParams::apply("taxonomy"), &Patch::Apply(&body)).await;
    table.answer("stale version, apply that names one", Verb::Apply, answer, 409, &Conflict);
    let call = conflict_retry::apply(door, "stale", options, &body);
    table.door("apply", call, "conflict", "apply!conflict").await;

    let version = Preconditions { resource_version: old.resource_version(), uid: None };
    let params = DeleteParams::default().preconditions(version);
    let answer = pools.delete("stale", &params).await;
    table.answer("stale version, DELETE", Verb::Delete, answer, 409, &Conflict);
    let call = conflict_retry::delete(door, "stale", options, &params);
    table.door("delete", call, "conflict", "delete!conflict").await;
}

/// Server-side apply of fields that another manager owns.
async fn field_managers(bench: &Bench, table: &mut Table) {
    let options = &table.options();
    let (pools, door) = (&bench.set_up::<NodePool>(), &bench.watched::<NodePool>());
    bench.pool("owned").await;
    let owner = PatchParams::apply("somebody").force();
    let spec = |count: i32| applied("owned", &json!({"spec": {"maxReplicas": count}}));
    let status = |count: i32| applied("owned", &json!({"status": {"readyReplicas": count}}));
    pools.patch("owned", &owner, &Patch::Apply(spec(8))).await.unwrap();
    pools.patch_status("owned", &owner, &Patch::Apply(status(8))).await.unwrap();
    let of = |field: &str| Class::FieldManager { conflicts: vec![FieldConflict::new("somebody", field)] };
    let me = PatchParams::apply("taxonomy");

    let answer = pools.patch("owned", &me, &Patch::Apply(spec(9))).await;
    table.answer("a field manager's field, apply", Verb::Apply, answer, 409, &of(".spec.maxReplicas"));
    let body = spec(9);
    let call = conflict_retry::apply(door, "owned", options, &body);
    table.door("apply", call, "error: field_manager", "apply!field_manager").await;
    let force = options.clone().with_force(true);
    let call = conflict_retry::apply(door, "owned", &force, &body);
    table.door("apply, by force", call, "written", "apply").await;

    let answer = pools.patch_status("owned", &me, &Patch::Apply(status(9))).await;
    table.answer(
        "a field manager's field, apply /status",
        Verb::Apply,
        answer,
        409,
        &of(".status.readyReplicas"),
    );
    let body = status(9);
    let call = conflict_retry::apply_status(door, "owned", options, &body);
    table.door("apply_status", call, "error: field_manager", "apply!field_manager").await;
    let body = status(8);
    let call = conflict_retry::apply_status(door, "owned", options, &body);
    table.door("apply_status of the same value", call, "written", "apply").await;
}

/// The name is the same, but the object is another one.
async fn other_uids(bench: &Bench, table: &mut Table) {
    use Class::UidMismatch;
    let options = &table.options();
    let (pools, door) = (&bench.set_up::<NodePool>(), &bench.watched::<NodePool>());
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
    let call = conflict_retry::update(door, "again", options, cached(&mistaken), grow);
    table.door("update", call, "gone", "put!uid_mismatch").await;
    let call = conflict_retry::update(door, "again", options, cached(&former), grow);
    table.door("update, from the former object", call, "gone", "put!uid_mismatch").await;
    let call = conflict_retry::put_once(door, "again", Subresource::Main, options, &spec);
    table.door("put_once", call, "gone", "put!uid_mismatch").await;

    let answer = pools.replace_status("again", post, &status).await;
    table.answer("another UID, PUT /status", Verb::Put, answer, 409, &UidMismatch);
    let call = conflict_retry::update_status(door, "again", options, cached(&former), report);
    table.door("update_status, from the former object", call, "gone", "put!uid_mismatch").await;

    let answer = pools.replace_scale("again", post, &scale_body(&mistaken, 3)).await;
    table.answer("another UID, PUT /scale", Verb::Put, answer, 409, &UidMismatch);
    let call = conflict_retry::scale_put(door, "again", options, Source::Copy(scale_of(&mistaken)), to(3));
    table.door("scale_put", call, "gone", "put!uid_mismatch").await;
    let call = conflict_retry::scale(door, "again", options, Source::Copy(scale_of(&former)), to(3));
    table.door("scale, from the former object", call, "gone", "json_patch!test_failed get").await;

    let body = Patch::Merge(json!({"metadata": {"uid": former.uid()}, "spec": {"maxReplicas": 9}}));
    let answer = pools.patch("again", patch, &body).await;
    table.answer("another UID, merge patch", Verb::MergePatch, answer, 422, &UidMismatch);
    // The patch carries the version of the former object.
    let want = |_: &NodePool| Some(json!({"spec": {"maxReplicas": 9}}));
    let call = conflict_retry::merge_patch(door, "again", Subresource::Main, options, cached(&former), want);
    table.door("merge_patch, from the former object", call, "gone", "merge_patch!conflict get").await;

    let mut body = applied("again", &json!({}));
    body["metadata"]["uid"] = json!(former.uid());
    body["metadata"]["labels"] = json!({"example.com/own": "yes"});
    let answer = pools.patch("again", &PatchParams::apply("taxonomy"), &Patch::Apply(&body)).await;
    table.answer("another UID, apply", Verb::Apply, answer, 422, &UidMismatch);
    let call = conflict_retry::apply(door, "again", options, &body);
    table.door("apply", call, "gone", "apply!uid_mismatch").await;
    // Ownership is checked first, so the UID is not checked.
    body["spec"] = json!({"paused": true});
    let answer = pools.patch("again", &PatchParams::apply("taxonomy"), &Patch::Apply(&body)).await;
    let owner = FieldConflict::new("unknown", ".spec.paused");
    let class = Class::FieldManager { conflicts: vec![owner] };
    table.answer("another UID, apply of another's field", Verb::Apply, answer, 409, &class);
    let call = conflict_retry::apply(door, "again", options, &body);
    table.door("apply", call, "error: field_manager", "apply!field_manager").await;
    let mut body = applied("again", &json!({"status": {"readyReplicas": 1}}));
    body["metadata"]["uid"] = json!(former.uid());
    let call = conflict_retry::apply_status(door, "again", options, &body);
    table.door("apply_status: the server ignores the UID", call, "written", "apply").await;

    let params =
        DeleteParams::default().preconditions(Preconditions { uid: former.uid(), resource_version: None });
    let answer = pools.delete("again", &params).await;
    table.answer("another UID, DELETE", Verb::Delete, answer, 409, &UidMismatch);
    let call = conflict_retry::delete(door, "again", options, &params);
    table.door("delete", call, "conflict", "delete!uid_mismatch").await;
    let left = pools.get("again").await.unwrap();
    table.check("the current object was spared", left.uid() == current.uid() && left.spec.max_replicas == 5);
}

/// The object does not exist, or it already exists.
async fn missing_and_existing(bench: &Bench, table: &mut Table) {
    let options = &table.options();
    let (pools, door) = (&bench.set_up::<NodePool>(), &bench.watched::<NodePool>());
    let (post, patch) = (&PostParams::default(), &PatchParams::default());
    let former = bench.pool("gone").await;
    let _ = pools.delete("gone", &DeleteParams::default()).await.unwrap();
    let mut spec = former.clone();
    let _ = grow(&mut spec);

    table.answer("missing, GET", Verb::Get, pools.get("gone").await, 404, &Class::NotFound);
    let call = conflict_retry::update(door, "gone", options, Source::Live, grow);
    table.door("update", call, "gone", "get!not_found").await;
    let call = conflict_retry::scale(door, "gone", options, Source::Live, to(3));
    table.door("scale", call, "gone", "get!not_found get!not_found").await;

    let answer = pools.replace("gone", post, &spec).await;
    table.answer("deleted since it was read, PUT", Verb::Put, answer, 404, &Class::NotFound);
    let call = conflict_retry::update(door, "gone", options, cached(&former), grow);
    table.door("update", call, "gone", "put!not_found").await;
    let call = conflict_retry::update_status(door, "gone", options, cached(&former), report);
    table.door("update_status", call, "gone", "put!not_found get!not_found").await;
    let call = conflict_retry::put_once(door, "gone", Subresource::Main, options, &spec);
    table.door("put_once", call, "gone", "put!not_found").await;
    let answer = pools.replace_scale("gone", post, &scale_body(&former, 3)).await;
    table.answer("deleted since it was read, PUT /scale", Verb::Put, answer, 404, &Class::NotFound);
    let call = conflict_retry::scale_put(door, "gone", options, Source::Copy(scale_of(&former)), to(3));
    table.door("scale_put", call, "gone", "put!not_found get!not_found").await;
    let call = conflict_retry::scale(door, "gone", options, Source::Copy(scale_of(&former)), to(3));
    table.door("scale", call, "gone", "json_patch!not_found get!not_found").await;

    let body = versioned(&former, json!({"spec": {"maxReplicas": 9}}));
    let answer = pools.patch("gone", patch, &body).await;
    table.answer("deleted since it was read, merge patch", Verb::MergePatch, answer, 404, &Class::NotFound);
    let want = |_: &NodePool| Some(json!({"spec": {"maxReplicas": 9}}));
    let call = conflict_retry::merge_patch(door, "gone", Subresource::Main, options, cached(&former), want);
    table.door("merge_patch", call, "gone", "merge_patch!not_found").await;
    let operations = json!([{"op": "add", "path": "/spec/paused", "value": true}]);
    let call = conflict_retry::json_patch(door, "gone", Subresource::Main, options, &operations);
    table.door("json_patch", call, "gone", "json_patch!not_found").await;

    let answer = pools.delete("gone", &DeleteParams::default()).await;
    table.answer("missing, DELETE", Verb::Delete, answer, 404, &Class::NotFound);
    let params = DeleteParams::default();
    let call = conflict_retry::delete(door, "gone", options, &params);
    table.door("delete", call, "gone", "delete!not_found").await;
    let maps = &bench.watched::<Pod>();
    let call = conflict_retry::evict(maps, "gone", options, None);
    table.door("evict", call, "gone", "evict!not_found").await;

    let body = applied("gone", &json!({"status": {"readyReplicas": 1}}));
    let answer = pools.patch_status("gone", &PatchParams::apply("taxonomy"), &Patch::Apply(&body)).await;
    table.answer("missing, apply /status", Verb::Apply, answer, 404, &Class::NotFound);
    let call = conflict_retry::apply_status(door, "gone", options, &body);
    table.door("apply_status", call, "gone", "apply!not_found get!not_found").await;
    let mut body = applied("gone", &json!({"spec": objects::pool("gone", 1, 5).spec}));
    body["metadata"]["uid"] = json!(former.uid());
    let answer = pools.patch("gone", &PatchParams::apply("taxonomy"), &Patch::Apply(&body)).await;
    table.answer("missing, apply that names a UID", Verb::Apply, answer, 409, &Class::Deleted);
    let call = conflict_retry::apply(door, "gone", options, &body);
    table.door("apply", call, "gone", "apply!deleted").await;
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
    let call = conflict_retry::update(watched, "gone", options, cached(&former), hold);
    table.door("update", call, "gone", "put!deleted").await;
    table.check("nothing was created", leases.get_opt("gone").await.unwrap().is_none());

    let map = bench.map("there").await;
    let mut fresh = map.clone();
    fresh.metadata = typed(json!({"name": "there"}));
    let answer = bench.set_up::<ConfigMap>().create(post, &fresh).await;
    table.answer("existing, POST", Verb::Create, answer, 409, &Class::AlreadyExists);
    let maps = &bench.watched::<ConfigMap>();
    let call = conflict_retry::create(maps, options, &fresh);
    table.door("create", call, "error: already_exists", "create!already_exists").await;
    fresh.metadata.name = Some("new".to_owned());
    let call = conflict_retry::create(maps, options, &fresh);
    table.door("create of another", call, "created", "create").await;
}

fn hold(lease: &mut Lease) -> Decision {
    lease.spec.get_or_insert_default().holder_identity = Some("taxonomy".to_owned());
    Decision::Write
}

/// JSON Patch: a failed guard, and errors that look like one.
async fn json_patches(bench: &Bench, table: &mut Table) {
    use Class::TestFailed;
    let options = &table.options();
    let (pools, door) = (&bench.set_up::<NodePool>(), &bench.watched::<NodePool>());
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
        let call = conflict_retry::json_patch(door, "patched", Subresource::Main, options, operations);
        table.door("json_patch", call, "conflict", "json_patch!test_failed").await;
        let answer = pools.patch_status("patched", params, &body).await;
        table.answer(&format!("{case}, JSON Patch /status"), Verb::JsonPatch, answer, 422, &TestFailed);
        let call = conflict_retry::json_patch(door, "patched", Subresource::Status, options, operations);
        table.door("json_patch", call, "conflict", "json_patch!test_failed").await;
    }
    let body = json_patch(json!([{"op": "test", "path": "/spec/replicas", "value": 4}]));
    let answer = pools.patch_scale("patched", params, &body).await;
    table.answer("a test that fails, JSON Patch /scale", Verb::JsonPatch, answer, 422, &TestFailed);
    let seen = ScaleView { replicas: Some(4), ..scale_of(&pool) };
    let call = conflict_retry::scale(door, "patched", options, Source::Copy(seen), to(3));
    table.door("scale, from a wrong count", call, "written", "json_patch!test_failed get json_patch").await;
}

/// Writes that the schema, its CEL rules or a policy refuse.
async fn invalid(bench: &Bench, table: &mut Table) {
    use Class::Invalid;
    let options = &table.options();
    let (pools, door) = (&bench.set_up::<NodePool>(), &bench.watched::<NodePool>());
    let (post, patch) = (&PostParams::default(), &PatchParams::default());
    let pool = bench.pool("bad").await;
    let crossed = |pool: &mut NodePool| {
        pool.spec.min_replicas = 99;
        Decision::Write
    };
    let mut bad = pool.clone();
    let _ = crossed(&mut bad);

    table.answer("a CEL rule, PUT", Verb::Put, pools.replace("bad", post, &bad).await, 422, &Invalid);
    let call = conflict_retry::update(door, "bad", options, Source::Live, crossed);
    table.door("update", call, "error: invalid", "get put!invalid").await;
    let body = Patch::Merge(json!({"spec": {"minReplicas": 99}}));
    let answer = pools.patch("bad", patch, &body).await;
    table.answer("a CEL rule, merge patch", Verb::MergePatch, answer, 422, &Invalid);
    let want = |_: &NodePool| Some(json!({"spec": {"minReplicas": 99}}));
    let call = conflict_retry::merge_patch(door, "bad", Subresource::Main, options, Source::Live, want);
    table.door("merge_patch", call, "error: invalid", "get merge_patch!invalid").await;
    let operations = json!([{"op": "replace", "path": "/spec/minReplicas", "value": 99}]);
    let answer = pools.patch("bad", patch, &json_patch(operations.clone())).await;
    table.answer("a CEL rule, JSON Patch", Verb::JsonPatch, answer, 422, &Invalid);
    let call = conflict_retry::json_patch(door, "bad", Subresource::Main, options, &operations);
    table.door("json_patch", call, "error: invalid", "json_patch!invalid").await;
    let body = applied("bad", &json!({"spec": {"minReplicas": 99}}));
    let answer = pools.patch("bad", &PatchParams::apply("taxonomy").force(), &Patch::Apply(&body)).await;
    table.answer("a CEL rule, apply", Verb::Apply, answer, 422, &Invalid);
    let force = options.clone().with_force(true);
    let call = conflict_retry::apply(door, "bad", &force, &body);
    table.door("apply", call, "error: invalid", "apply!invalid").await;

    let answer = pools.replace_scale("bad", post, &scale_body(&pool, 99)).await;
    table.answer("a CEL rule, PUT /scale", Verb::Put, answer, 422, &Invalid);
    let call = conflict_retry::scale_put(door, "bad", options, Source::Live, to(99));
    table.door("scale_put", call, "error: invalid", "get put!invalid").await;
    let operations = json!([{"op": "replace", "path": "/spec/replicas", "value": 99}]);
    let answer = pools.patch_scale("bad", patch, &json_patch(operations)).await;
    table.answer("a CEL rule, JSON Patch /scale", Verb::JsonPatch, answer, 422, &Invalid);
    let call = conflict_retry::scale(door, "bad", options, Source::Copy(scale_of(&pool)), to(99));
    table.door("scale", call, "error: invalid", "json_patch!invalid").await;

    let answer = pools.patch("bad", patch, &Patch::Merge(json!({"spec": {"maxReplicas": "many"}}))).await;
    table.answer("a type of the schema, merge patch", Verb::MergePatch, answer, 422, &Invalid);
    let operations = json!([{"op": "replace", "path": "/spec/maxReplicas", "value": "many"}]);
    let answer = pools.patch("bad", patch, &json_patch(operations.clone())).await;
    table.answer("a type of the schema, JSON Patch", Verb::JsonPatch, answer, 422, &Invalid);
    let call = conflict_retry::json_patch(door, "bad", Subresource::Main, options, &operations);
    table.door("json_patch", call, "error: invalid", "json_patch!invalid").await;

    bad = pool.clone();
    let _ = grow(&mut bad);
    bad.metadata.resource_version = None;
    table.answer("no version, PUT", Verb::Put, pools.replace("bad", post, &bad).await, 422, &Invalid);
    let call = conflict_retry::update(door, "bad", options, cached(&bad), crossed);
    table.door("update, from a copy without version", call, "error: refused", "").await;
    let call = conflict_retry::put_once(door, "bad", Subresource::Main, options, &bad);
    table.door("put_once", call, "error: refused", "").await;

    // A policy may refuse the result of a patch; that is not a failed `test`.
    for (name, reason, code, class, ending) in [
        ("refused", "Invalid", 422, Invalid, "invalid"),
        ("forbidden", "Forbidden", 403, Class::Forbidden, "forbidden"),
    ] {
        policy(bench, name, reason).await;
        let operations = json!([{"op": "add", "path": "/data/verdict", "value": name}]);
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
        let call = conflict_retry::json_patch(watched, name, Subresource::Main, options, &operations);
        let (ending, request) = (format!("error: {ending}"), format!("json_patch!{ending}"));
        table.door("json_patch", call, &ending, &request).await;
    }
}

/// Refuses every `ConfigMap` whose verdict is `name`.
async fn policy(bench: &Bench, name: &str, reason: &str) {
    let rule = json!({"expression": format!("!has(object.data) || !('verdict' in object.data) || object.data.verdict != '{name}'"), "reason": reason});
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

fn dynamic(client: &Client, namespace: &str, group: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(group, "v1", kind);
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, plural))
}

/// Requests that the API server does not serve, does not support, or does not read.
async fn not_served(bench: &Bench, table: &mut Table) {
    use Class::{NotFound, NotServed, Other};
    let options = &table.options();
    let (post, patch) = (&PostParams::default(), &PatchParams::default());
    let ghosts = dynamic(&bench.admin, NAMESPACE, "example.org", "Ghost", "ghosts");
    table.answer("an unknown resource, GET", Verb::Get, ghosts.get("x").await, 404, &NotServed);
    let ghosts = &dynamic(&bench.door, NAMESPACE, "example.org", "Ghost", "ghosts");
    let call = conflict_retry::update(ghosts, "x", options, Source::Live, |_| Decision::Write);
    table.door("update", call, "error: not_served", "get!not_served").await;
    let body = json!({"apiVersion": "example.org/v1", "kind": "Ghost", "metadata": {"name": "x"}});
    let call = conflict_retry::apply(ghosts, "x", options, &body);
    table.door("apply", call, "error: not_served", "apply!not_served").await;
    let params = DeleteParams::default();
    let call = conflict_retry::delete(ghosts, "x", options, &params);
    table.door("delete", call, "error: not_served", "delete!not_served").await;

    let map = bench.map("plain").await;
    let maps = &bench.set_up::<ConfigMap>();
    let answer = maps.replace_subresource("status", "plain", post, &map).await;
    table.answer("an unknown subresource, PUT /status", Verb::Put, answer, 404, &NotServed);
    let watched = &bench.watched::<ConfigMap>();
    let want = |_: &ConfigMap| Some(json!({"status": {"a": 1}}));
    let call =
        conflict_retry::merge_patch(watched, "plain", Subresource::Status, options, Source::Live, want);
    table.door("merge_patch", call, "error: not_served", "get merge_patch!not_served").await;
    table.answer(
        "an unknown subresource, GET /scale",
        Verb::Get,
        maps.get_scale("plain").await,
        404,
        &NotServed,
    );
    let call = conflict_retry::scale(watched, "plain", options, Source::Live, to(3));
    table.door("scale", call, "error: not_served", "get!not_served").await;

    let widgets = &widgets(bench).await;
    let answer = widgets.get_scale("big").await;
    // The server answers as if the object were missing: the answer does not distinguish the two.
    table.answer("a CRD without scale, GET /scale", Verb::Get, answer, 404, &NotFound);
    let doors = &dynamic(&bench.door, NAMESPACE, "example.com", "Widget", "widgets");
    // Only a read of the object itself does.
    let call = conflict_retry::scale(doors, "big", options, Source::Live, to(3));
    table.door("scale", call, "error: not_served", "get!not_found get").await;
    let call = conflict_retry::update_status(doors, "big", options, Source::Live, |widget| {
        widget.data["status"] = json!({"a": 1});
        Decision::Write
    });
    table.door("update_status", call, "error: not_served", "get put!not_found get").await;

    let elsewhere = Api::<ConfigMap>::namespaced(bench.admin.clone(), "no-such-namespace");
    let fresh: ConfigMap = typed(json!({"metadata": {"name": "x"}}));
    table.answer(
        "a missing namespace, POST",
        Verb::Create,
        elsewhere.create(post, &fresh).await,
        404,
        &NotFound,
    );
    let elsewhere = Api::<ConfigMap>::namespaced(bench.door.clone(), "no-such-namespace");
    let call = conflict_retry::create(&elsewhere, options, &fresh);
    table.door("create", call, "error: not_found", "create!not_found").await;

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

    // Too large for etcd, and too large for the API server.
    for (case, size, code) in [
        ("too big for etcd", 1_900_000, 500),
        ("too big to reach etcd", 2_900_000, 500),
        ("too big for the API server", 4_000_000, 413),
    ] {
        let mut widget = widgets.get("big").await.unwrap();
        widget.data = json!({"spec": {"text": "x".repeat(size)}});
        let answer = widgets.replace("big", post, &widget).await;
        table.answer(&format!("{case}, PUT"), Verb::Put, answer, code, &Other);
        let call = conflict_retry::update(doors, "big", options, Source::Live, |widget| {
            widget.data = json!({"spec": {"text": "x".repeat(size)}});
            Decision::Write
        });
        table.door("update", call, "error: other", "get put!other").await;
    }
}

/// A kind without subresources whose objects may contain anything, and one object of it.
async fn widgets(bench: &Bench) -> Api<DynamicObject> {
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
async fn no_rights(bench: &Bench, table: &mut Table) {
    use Class::{Forbidden, Unauthorized};
    let options = &table.options();
    let pool = bench.pool("locked").await;
    let mut changed = pool.clone();
    let _ = grow(&mut changed);
    let account = bench.cluster.kubeconfig_for_service_account(NAMESPACE, "nobody").await.unwrap();
    let nobody = connect(&account, "nobody", |_| {}).await;
    let answer = Api::<NodePool>::namespaced(nobody, NAMESPACE)
        .replace("locked", &PostParams::default(), &changed)
        .await;
    table.answer("no right to, PUT", Verb::Put, answer, 403, &Forbidden);
    let pools = &Api::<NodePool>::namespaced(connect(&account, AGENT, |_| {}).await, NAMESPACE);
    let call = conflict_retry::update(pools, "locked", options, Source::Live, grow);
    table.door("update", call, "error: forbidden", "get!forbidden").await;
    let call = conflict_retry::update(pools, "locked", options, cached(&pool), grow);
    table.door("update, from a copy", call, "error: forbidden", "put!forbidden").await;
    let call = conflict_retry::scale(pools, "locked", options, Source::Copy(scale_of(&pool)), to(3));
    table.door("scale", call, "error: forbidden", "json_patch!forbidden").await;
    let body = applied("locked", &json!({"status": {"readyReplicas": 1}}));
    let call = conflict_retry::apply_status(pools, "locked", options, &body);
    table.door("apply_status", call, "error: forbidden", "apply!forbidden").await;

    let bad = |config: &mut Config| config.auth_info.token = Some("not-a-token".to_owned().into());
    let stranger = connect(bench.cluster.kubeconfig_path(), "stranger", bad).await;
    let answer = Api::<NodePool>::namespaced(stranger, NAMESPACE).get("locked").await;
    table.answer("a bad token, GET", Verb::Get, answer, 401, &Unauthorized);
    let stranger = connect(bench.cluster.kubeconfig_path(), AGENT, bad).await;
    let pools = &Api::<NodePool>::namespaced(stranger, NAMESPACE);
    let call = conflict_retry::update(pools, "locked", options, cached(&pool), grow);
    table.door("update, from a copy", call, "error: unauthorized", "put!unauthorized").await;

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
    table.answer("a namespace that ends, POST", Verb::Create, Err::<(), _>(answer), 403, &Forbidden);
    let ending = &Api::<ConfigMap>::namespaced(bench.door.clone(), "ending");
    let call = conflict_retry::create(ending, options, &fresh);
    table.door("create", call, "error: forbidden", "create!forbidden").await;
}

/// Too many requests: priority and fairness with room for one request, which is taken.
async fn throttled(bench: &Bench, table: &mut Table) {
    make(&bench.set_up::<ServiceAccount>(), json!({"metadata": {"name": "many"}})).await;
    let role = json!({
        "metadata": {"name": "taxonomy-many"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "many", "namespace": NAMESPACE}],
    });
    make(&Api::<ClusterRoleBinding>::all(bench.admin.clone()), role).await;
    let limited = json!({
        "nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"},
    });
    let level = json!({"metadata": {"name": "taxonomy"}, "spec": {"type": "Limited", "limited": limited}});
    make(&Api::<PriorityLevelConfiguration>::all(bench.admin.clone()), level).await;
    let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}]);
    let who = json!([{"kind": "ServiceAccount", "serviceAccount": {"namespace": NAMESPACE, "name": "many"}}]);
    let flow = json!({
        "metadata": {"name": "taxonomy"},
        "spec": {
            "matchingPrecedence": 2,
            "priorityLevelConfiguration": {"name": "taxonomy"},
            "rules": [{"subjects": who, "resourceRules": everything}],
        },
    });
    make(&Api::<FlowSchema>::all(bench.admin.clone()), flow).await;

    bench.pool("busy").await;
    let account = bench.cluster.kubeconfig_for_service_account(NAMESPACE, "many").await.unwrap();
    let crowd = Api::<NodePool>::namespaced(connect(&account, "crowd", |_| {}).await, NAMESPACE);
    // The wait for a future version takes 3 s, and the only seat.
    let take_the_seat = async || {
        eventually(PATIENCE, "the seat is taken", async || {
            let sitter = crowd.clone();
            let sitting = tokio::spawn(async move { sitter.get_with("busy", &GetParams::at(FUTURE)).await });
            while !sitting.is_finished() {
                if let Err(error) = crowd.get("busy").await {
                    return Ok(Some((sitting, error)));
                }
            }
            bail!("nobody was turned away")
        })
        .await
        .unwrap()
    };
    let pools = &Api::<NodePool>::namespaced(connect(&account, AGENT, |_| {}).await, NAMESPACE);
    let (sitting, turned_away) = take_the_seat().await;
    // The server sends `Retry-After: 1` in a header, and kube's client drops it.
    let class = Class::Throttled { retry_after: None };
    table.answer("no seat (priority and fairness)", Verb::Get, Err::<(), _>(turned_away), 429, &class);
    let once = &table.once();
    let call = conflict_retry::update(pools, "busy", once, Source::Live, grow);
    table.door("update, one attempt allowed", call, "error: exhausted(throttled)", "get!throttled").await;
    let body = applied("busy", &json!({"status": {"readyReplicas": 1}}));
    let call = conflict_retry::apply_status(pools, "busy", once, &body);
    table
        .door("apply_status, one attempt allowed", call, "error: exhausted(throttled)", "apply!throttled")
        .await;
    let answer = sitting.await.unwrap();
    table.answer("a version of the future, GET", Verb::Get, answer, 504, &Class::Ambiguous);

    let (sitting, _) = take_the_seat().await;
    let options = &table.options();
    table.tally.take();
    let outcome = conflict_retry::update(pools, "busy", options, Source::Live, grow).await;
    let sent = table.tally.take();
    let rejected = sent.split(' ').take_while(|request| *request == "get!throttled").count();
    table.check(&format!("update: {} by {sent}", outcome.ending()), {
        matches!(outcome, Ok(Outcome::Written(_))) && rejected > 0 && sent.ends_with("get!throttled get put")
    });
    let _ = sitting.await.unwrap();
}

/// A pod that one `PodDisruptionBudget` selects, one that two select, and one that none selects.
async fn evictions(bench: &Bench, table: &mut Table) {
    let options = &table.options();
    let pods = &bench.set_up::<Pod>();
    let budgets = &bench.set_up::<PodDisruptionBudget>();
    let budget = json!({
        "metadata": {"name": "all"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "held"}}},
    });
    let mut budget = make(budgets, budget).await;
    for (name, app) in [("held", "held"), ("free", "free")] {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": app}},
            "spec": {"containers": [{"name": "c", "image": "example.invalid/c"}], "terminationGracePeriodSeconds": 0},
        });
        make(pods, pod).await;
        let running =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(running)).await.unwrap();
    }
    let evict = async |name: &str| {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        pods.create_subresource::<Value, Value>("eviction", name, &PostParams::default(), &body).await
    };
    let watched = &bench.watched::<Pod>();
    // No controller has processed the PodDisruptionBudget, and none will: the test takes its role.
    let asked = Some(Duration::from_secs(10));
    let class = Class::Throttled { retry_after: asked };
    table.answer("a budget not yet counted, eviction", Verb::Evict, evict("held").await, 429, &class);
    let call = conflict_retry::evict(watched, "held", options, None);
    table.door("evict", call, &format!("blocked({asked:?})"), "evict!throttled").await;
    budget.status = Some(typed(json!({
        "observedGeneration": budget.metadata.generation,
        "currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1,
    })));
    budgets.replace_status("all", &PostParams::default(), &budget).await.unwrap();
    let class = Class::Throttled { retry_after: None };
    table.answer("a budget without room, eviction", Verb::Evict, evict("held").await, 429, &class);
    let call = conflict_retry::evict(watched, "held", options, None);
    table.door("evict", call, "blocked(None)", "evict!throttled").await;
    let second = json!({"metadata": {"name": "too"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "held"}}}});
    make(budgets, second).await;
    table.answer("two budgets, eviction", Verb::Evict, evict("held").await, 500, &Class::Other);
    let call = conflict_retry::evict(watched, "held", options, None);
    table.door("evict", call, "error: other", "evict!other").await;
    let call = conflict_retry::evict(watched, "free", options, None);
    table.door("evict of a pod that no budget holds", call, "evicted", "evict").await;
}

/// Versions that the API server no longer has. The write functions never request one.
async fn expired(bench: &Bench, table: &mut Table) {
    use Class::Gone;
    let maps = &bench.set_up::<ConfigMap>();
    let page = maps.list(&ListParams::default().limit(1)).await.unwrap();
    let token = page.metadata.continue_.unwrap();
    // Compaction needs revisions to compact.
    let old = page.metadata.resource_version.unwrap();
    let exact = ListParams {
        resource_version: Some(old),
        version_match: Some(VersionMatch::Exact),
        ..ListParams::default()
    };
    let mut note = 0;
    loop {
        note += 1;
        let patch = Patch::Merge(json!({"data": {"note": note.to_string()}}));
        maps.patch("plain", &PatchParams::default(), &patch).await.unwrap();
        let rest = maps.list(&ListParams::default().limit(1).continue_token(&token)).await;
        if let Err(error) = rest {
            table.answer("an old page, LIST", Verb::Get, Err::<(), _>(error), 410, &Gone);
            break;
        }
        assert!(note < 600, "nothing was compacted");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let answer = eventually(PATIENCE, "the old version is gone", async || Ok(maps.list(&exact).await.err()));
    table.answer("an old version, LIST", Verb::Get, Err::<(), _>(answer.await.unwrap()), 410, &Gone);
    // The watch cache of pools began with the CRD, after version 1.
    let pools = bench.set_up::<NodePool>();
    let mut events = Box::pin(pools.watch(&WatchParams::default(), "1").await.unwrap());
    let answer = match events.next().await {
        Some(Ok(WatchEvent::Error(status))) => Err(kube::Error::Api(status)),
        other => other.unwrap(),
    };
    table.answer("an old version, WATCH", Verb::Get, answer, 410, &Gone);
}

/// An extension API server that does not exist.
async fn unavailable(bench: &Bench, table: &mut Table) {
    let services = Api::<APIService>::all(bench.admin.clone());
    let service = json!({
        "metadata": {"name": "v1.nowhere.example.com"},
        "spec": {
            "group": "nowhere.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 1,
            "insecureSkipTLSVerify": true,
            "service": {"name": "nothing", "namespace": NAMESPACE},
        },
    });
    make(&services, service).await;
    let things = dynamic(&bench.admin, NAMESPACE, "nowhere.example.com", "Thing", "things");
    let answer = eventually(PATIENCE, "the API server knows of the service", async || {
        match things.get("x").await.unwrap_err() {
            kube::Error::Api(status) if status.code == 404 => bail!("{status:?}"),
            error => Ok(Some(error)),
        }
    })
    .await
    .unwrap();
    let class = Class::Transient { retry_after: None };
    table.answer("an API service that is down, GET", Verb::Get, Err::<(), _>(answer), 503, &class);
    let things = &dynamic(&bench.door, NAMESPACE, "nowhere.example.com", "Thing", "things");
    let body = json!({"apiVersion": "nowhere.example.com/v1", "kind": "Thing", "metadata": {"name": "x"}});
    let few = &table.options().with_policy(RetryPolicy::default().with_max_attempts(3.try_into().unwrap()));
    let call = conflict_retry::apply(things, "x", few, &body);
    // A write's 503 in plain text could come from any proxy, so it leaves open whether the write was executed.
    let requests = "apply!ambiguous apply!ambiguous apply!ambiguous";
    table.door("apply, three attempts allowed", call, "error: exhausted(ambiguous)", requests).await;
    let call = conflict_retry::update(things, "x", few, Source::Live, |_| Decision::Write);
    let requests = "get!transient get!transient get!transient";
    table.door("update, three attempts allowed", call, "error: exhausted(transient)", requests).await;
    let operations = json!([{"op": "add", "path": "/spec/paused", "value": true}]);
    let call = conflict_retry::json_patch(things, "x", Subresource::Main, few, &operations);
    table.door("json_patch", call, "error: unknown", "json_patch!ambiguous").await;
    let _ = services.delete("v1.nowhere.example.com", &DeleteParams::default()).await.unwrap();
}

/// A webhook that hangs: the API server gives up on the webhook, or on the request.
async fn webhooks(bench: &Bench, table: &mut Table) {
    // The kernel accepts the connection; no process ever answers.
    let deaf = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let hook = |name: &str, seconds: u64| {
        json!({
            "name": format!("{name}.example.com"),
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": seconds,
            "clientConfig": {"url": format!("https://127.0.0.1:{}/", deaf.local_addr().unwrap().port())},
            "objectSelector": {"matchLabels": {"hook": name}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}],
        })
    };
    let hooks = Api::<ValidatingWebhookConfiguration>::all(bench.admin.clone());
    let webhooks = json!([hook("short", 1), hook("long", 30)]);
    make(&hooks, json!({"metadata": {"name": "taxonomy"}, "webhooks": webhooks})).await;
    let maps = &bench.set_up::<ConfigMap>();
    let of =
        |name: &str| -> ConfigMap { typed(json!({"metadata": {"name": name, "labels": {"hook": name}}})) };
    let answer = eventually(PATIENCE, "the webhook is called", async || {
        Ok(maps.create(&PostParams { dry_run: true, ..PostParams::default() }, &of("short")).await.err())
    });
    let answer = answer.await.unwrap();
    table.answer("a webhook that hangs, POST", Verb::Create, Err::<(), _>(answer), 500, &Class::Other);
    let patient = &table.options().with_attempt_timeout(SERVER_TIMEOUT * 2);
    let watched = &bench.watched::<ConfigMap>();
    let call = async { conflict_retry::create(watched, patient, &of("short")).await };
    table.door("create", call, "error: other", "create!other").await;
    let answer = maps.create(&PostParams::default(), &of("long")).await;
    table.answer(
        "a webhook that outlasts the request, POST",
        Verb::Create,
        answer,
        GIVEN_UP,
        &Class::Ambiguous,
    );
    let call = async { conflict_retry::create(watched, patient, &of("long")).await };
    table.door("create", call, "error: unknown", "create!ambiguous").await;
    let _ = hooks.delete("taxonomy", &DeleteParams::default()).await.unwrap();
    table.check("nothing was created", maps.get_opt("long").await.unwrap().is_none());
}

/// Answers that are lost, and a server that is down. Requests here go through a proxy, so they are compared with the
/// audit log case by case.
async fn lost(bench: &Bench, table: &mut Table) {
    let audit = bench.cluster.audit_log().unwrap();
    let proxy = Droproxy::start(0, bench.server()).await.unwrap();
    let port = proxy.address().port();
    let url = |config: &mut Config| {
        config.cluster_url = format!("https://127.0.0.1:{port}").parse().unwrap();
    };
    // Long enough for a write on a busy machine, short enough to wait for.
    let timeout = Duration::from_secs(3);
    let tally = Arc::new(Tally::default());
    let options = &WriteOptions::new("lossy").with_observer(tally.clone()).with_attempt_timeout(timeout);
    let rows = [
        (Loss::Request, "written", "put!ambiguous get put", "get update:200"),
        (Loss::Answer, "already_done", "put!ambiguous get", "update:200 get"),
        (Loss::SilentAnswer, "already_done", "put!ambiguous get", "update:200 get"),
    ];
    for (loss, ending, requests, at_the_server) in rows {
        let name = format!("{loss:?}").to_lowercase();
        let map = bench.map(&name).await;
        let agent = format!("lossy-{name}");
        let client = connect(bench.cluster.kubeconfig_path(), &agent, url).await;
        let maps = Api::<ConfigMap>::namespaced(client, NAMESPACE);
        // The same connection is used again: the write is lost, not a handshake.
        maps.get(&name).await.unwrap();
        let start = audit.end().unwrap();
        proxy.lose(loss);
        let outcome = conflict_retry::update(&maps, &name, options, cached(&map), colour).await;
        assert!(proxy.has_lost());
        let (found, sent) = (outcome.ending(), tally.take());
        let stored = bench.set_up::<ConfigMap>().get(&name).await.unwrap();
        let right = (found.as_str(), sent.as_str()) == (ending, requests)
            && stored.data.as_ref().is_some_and(|data| data["k"] == "blue")
            && outcome.unwrap().met().is_some_and(|met| met.resource_version() == stored.resource_version());
        table.check(&format!("lost {loss:?}: update -> {found} by {sent}"), right);
        let reached = audit
            .wait_for(start, PATIENCE, "the audit log is complete", |events| {
                let ours = events.iter().filter(|event| event.user_agent == agent);
                let seen: Vec<_> = ours
                    .map(|event| {
                        let code = if event.is_write() { format!(":{}", event.code) } else { String::new() };
                        format!("{}{code}", event.verb)
                    })
                    .collect();
                (seen.len() >= 2).then(|| seen.join(" "))
            })
            .await
            .unwrap();
        table.check(&format!("the server saw: {reached}"), reached == at_the_server);
    }

    // One attempt, without a read that looks the result up.
    let map = bench.map("once").await;
    let mut changed = map.clone();
    let _ = colour(&mut changed);
    let client = connect(bench.cluster.kubeconfig_path(), "lossy-once", url).await;
    let maps = Api::<ConfigMap>::namespaced(client, NAMESPACE);
    maps.get("once").await.unwrap();
    proxy.lose(Loss::Answer);
    let answer = maps.replace("once", &PostParams::default(), &changed).await;
    table.answer("a lost answer, PUT", Verb::Put, answer, 0, &Class::Ambiguous);
    changed = bench.set_up().get("once").await.unwrap();
    table.check("the write was carried out", changed.data.as_ref().is_some_and(|data| data["k"] == "blue"));
    proxy.lose(Loss::Answer);
    let outcome = conflict_retry::put_once(&maps, "once", Subresource::Main, options, &changed).await;
    let (found, sent) = (outcome.ending(), tally.take());
    table.check(
        &format!("put_once: {found} by {sent}"),
        (&*found, &*sent) == ("error: unknown", "put!ambiguous"),
    );

    // Nothing was sent, but the error does not show that: it counts as in doubt, which costs only a read.
    let cold = connect(bench.cluster.kubeconfig_path(), "lossy-cold", url).await;
    proxy.lose(Loss::Request);
    let answer =
        Api::<ConfigMap>::namespaced(cold, NAMESPACE).replace("once", &PostParams::default(), &changed).await;
    table.answer("a handshake that breaks, PUT", Verb::Put, answer, 0, &Class::Ambiguous);

    // No process listens any more; later one does.
    drop(proxy);
    let answer = eventually(PATIENCE, "the port refuses", async || match maps.get("once").await {
        Ok(_) => Ok(None),
        Err(error) if Class::of(Verb::Get, &error) == Class::Ambiguous => bail!("{error:?}"),
        Err(error) => Ok(Some(error)),
    });
    let class = Class::Transient { retry_after: None };
    table.answer("a refused connection", Verb::Get, Err::<(), _>(answer.await.unwrap()), 0, &class);
    let few = options.clone().with_policy(RetryPolicy::default().with_max_attempts(2.try_into().unwrap()));
    let outcome = conflict_retry::update(&maps, "once", &few, Source::Live, colour).await;
    let (found, sent) = (outcome.ending(), tally.take());
    let wanted = ("error: exhausted(transient)", "get!transient get!transient");
    table.check(&format!("update, two attempts allowed: {found} by {sent}"), (&*found, &*sent) == wanted);
    let back = async {
        eventually(PATIENCE, "the update has been refused", async || {
            Ok(tally.seen().contains("put!transient").then_some(()))
        })
        .await
        .unwrap();
        Droproxy::start(port, bench.server()).await.unwrap()
    };
    let mut base = changed.clone();
    base.data.get_or_insert_default().insert("k".to_owned(), "red".to_owned());
    let (outcome, _proxy) = tokio::join!(
        conflict_retry::update(&maps, "once", options, cached(&base), |map| {
            map.data.get_or_insert_default().insert("k".to_owned(), "green".to_owned());
            Decision::Write
        }),
        back
    );
    let (found, sent) = (outcome.ending(), tally.take());
    let right = found == "written" && sent.starts_with("put!transient") && sent.ends_with(" get put");
    table.check(&format!("update, until it is back: {found} by {sent}"), right);
}

/// A frozen etcd: the API server gives the request up, and the transaction that it has sent may still be executed.
async fn frozen(bench: &Bench, table: &mut Table) {
    let (_, pid) = bench.cluster.pids().into_iter().find(|(name, _)| name == "etcd").unwrap();
    let etcd = Frozen(Pid::from_raw(i32::try_from(pid).unwrap()));
    let map = bench.map("frozen").await;
    let mut changed = map.clone();
    let _ = colour(&mut changed);
    let maps = bench.set_up::<ConfigMap>();
    etcd.send(Signal::SIGSTOP);
    let answer = maps.replace("frozen", &PostParams::default(), &changed).await;
    table.answer("a store that does not answer, PUT", Verb::Put, answer, GIVEN_UP, &Class::Ambiguous);
    etcd.send(Signal::SIGCONT);
    let after =
        eventually(PATIENCE, "etcd is back", async || Ok(Some(maps.get("frozen").await?))).await.unwrap();
    let done = after.resource_version() != map.resource_version();
    table
        .lines
        .push(format!("    (the PUT that was given up was {}carried out)", if done { "" } else { "not " }));

    let base = after;
    let tally = Arc::new(Tally::default());
    let options = &WriteOptions::new("frozen")
        .with_observer(tally.clone())
        .with_attempt_timeout(SERVER_TIMEOUT * 2)
        .with_policy(RetryPolicy::default().with_deadline(Some(PATIENCE * 2)));
    let client = connect(bench.cluster.kubeconfig_path(), "frozen", |_| {}).await;
    let watched = Api::<ConfigMap>::namespaced(client, NAMESPACE);
    etcd.send(Signal::SIGSTOP);
    let thaw = async {
        eventually(PATIENCE, "the PUT is given up", async || {
            Ok(tally.seen().contains("put!ambiguous").then_some(()))
        })
        .await
        .unwrap();
        etcd.send(Signal::SIGCONT);
    };
    let (outcome, ()) = tokio::join!(
        conflict_retry::update(&watched, "frozen", options, cached(&base), |map| {
            map.data.get_or_insert_default().insert("k".to_owned(), "green".to_owned());
            Decision::Write
        }),
        thaw
    );
    let (found, sent) = (outcome.ending(), tally.take());
    let stored = maps.get("frozen").await.unwrap();
    let met = stored.data.as_ref().is_some_and(|data| data["k"] == "green");
    let right =
        sent.starts_with("put!ambiguous") && ["written", "already_done"].contains(&found.as_str()) && met;
    table.check(&format!("update: {found} by {sent}"), right);
}

/// An etcd that dies in the middle of two writes. Nothing here is usable after that.
async fn killed(bench: &Bench, table: &mut Table) {
    let (_, pid) = bench.cluster.pids().into_iter().find(|(name, _)| name == "etcd").unwrap();
    let etcd = Frozen(Pid::from_raw(i32::try_from(pid).unwrap()));
    let map = bench.map("killed").await;
    let mut changed = map.clone();
    let _ = colour(&mut changed);
    let maps = &bench.set_up::<ConfigMap>();
    let tally = Arc::new(Tally::default());
    let two = RetryPolicy::default().with_max_attempts(2.try_into().unwrap());
    let options = &WriteOptions::new("killed").with_observer(tally.clone()).with_policy(two);
    let client = connect(bench.cluster.kubeconfig_path(), "killed", |_| {}).await;
    let watched = &Api::<ConfigMap>::namespaced(client, NAMESPACE);
    etcd.send(Signal::SIGSTOP);
    let death = async {
        // Both writes are with etcd by then. If they were not, the API server would give them up for another reason,
        // with the same meaning: no row depends on it.
        tokio::time::sleep(Duration::from_secs(1)).await;
        etcd.send(Signal::SIGKILL);
    };
    let params = PostParams::default();
    let (answer, outcome, ()) = tokio::join!(
        maps.replace("killed", &params, &changed),
        conflict_retry::update(watched, "killed", options, cached(&map), colour),
        death
    );
    table.answer("a store that dies, PUT", Verb::Put, answer, GIVEN_UP, &Class::Ambiguous);
    let (found, sent) = (outcome.ending(), tally.take());
    let wanted = ("error: exhausted(ambiguous)", "put!ambiguous get!ambiguous");
    let right = (&*found, &*sent) == wanted && outcome.unwrap_err().maybe_written();
    table.check(&format!("update, two attempts allowed: {found}, maybe written, by {sent}"), right);
}

/// An API server that is stopped and started.
async fn restarted(bench: &Bench, table: &mut Table) {
    let map = bench.map("restarted").await;
    let tally = Arc::new(Tally::default());
    let patient = RetryPolicy::default().with_deadline(Some(PATIENCE * 2));
    let options = &WriteOptions::new("restarted").with_observer(tally.clone()).with_policy(patient);
    let client = connect(bench.cluster.kubeconfig_path(), "restarted", |_| {}).await;
    let maps = &Api::<ConfigMap>::namespaced(client, NAMESPACE);
    bench.cluster.stop_api_server().await.unwrap();
    let (outcome, started) = tokio::join!(
        conflict_retry::update(maps, "restarted", options, cached(&map), colour),
        bench.cluster.start_api_server()
    );
    started.unwrap();
    let (found, sent) = (outcome.ending(), tally.take());
    let right = found == "written" && sent.starts_with("put!transient") && sent.ends_with(" get put");
    table.lines.push("an API server that is stopped and started".to_owned());
    table.check(&format!("update: {found} by {sent}"), right);
}

/// A stopped process, which is continued at the end, however the test ends.
struct Frozen(Pid);

impl Frozen {
    fn send(&self, signal: Signal) {
        kill(self.0, signal).unwrap();
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        kill(self.0, Signal::SIGCONT).ok();
    }
}

/// Compares the API server's audit log with the requests reported to the observer, in order.
async fn check_against_the_audit_log(bench: &Bench, table: &mut Table) {
    let told: Vec<(&str, bool)> = table
        .tally
        .all
        .lock()
        .unwrap()
        .iter()
        // An unauthenticated request is logged at a stage that the audit policy omits.
        .filter(|(_, failed)| *failed != Some(Class::Unauthorized.label()))
        .map(|(verb, failed)| {
            let verb = match verb {
                Verb::Get => "get",
                Verb::Put => "update",
                Verb::JsonPatch | Verb::MergePatch | Verb::Apply => "patch",
                Verb::Create | Verb::Evict => "create",
                Verb::Delete => "delete",
                other => unreachable!("{other} is not in this test"),
            };
            (verb, failed.is_none())
        })
        .collect();
    let audit = bench.cluster.audit_log().unwrap();
    let same = audit.wait_for(0, Duration::from_secs(10), "the log agrees", |events| {
        let ours = events.iter().filter(|event| event.user_agent == AGENT);
        let logged: Vec<_> = ours.map(|event| (event.verb.as_str(), event.succeeded())).collect();
        (logged == told).then_some(())
    });
    if same.await.is_ok() {
        table.lines.push(format!("the audit log agrees about all {} requests", told.len()));
        return;
    }
    let events = audit.read_all().unwrap();
    let ours = events.iter().filter(|event| event.user_agent == AGENT);
    let logged: Vec<_> = ours.map(|event| (event.verb.as_str(), event.succeeded())).collect();
    let at = logged.iter().zip(&told).position(|(a, b)| a != b);
    table.wrong(&format!("{} logged, {} told, first difference at {at:?}", logged.len(), told.len()));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_error_has_its_class_and_every_write_its_outcome() {
    let bench = &Bench::start().await;
    let table = &mut Table::new();
    stale_versions(bench, table).await;
    field_managers(bench, table).await;
    other_uids(bench, table).await;
    missing_and_existing(bench, table).await;
    json_patches(bench, table).await;
    invalid(bench, table).await;
    not_served(bench, table).await;
    no_rights(bench, table).await;
    throttled(bench, table).await;
    evictions(bench, table).await;
    expired(bench, table).await;
    unavailable(bench, table).await;
    webhooks(bench, table).await;
    check_against_the_audit_log(bench, table).await;
    lost(bench, table).await;
    frozen(bench, table).await;
    restarted(bench, table).await;
    killed(bench, table).await;
    println!("{}", table.lines.join("\n"));
    assert!(table.wrong.is_empty(), "{} wrong:\n{}", table.wrong.len(), table.wrong.join("\n"));
}

/// Tries the write functions on a kind: on its own object, as typed or dynamic data.
async fn tried<K: Writable>(api: &Api<K>, object: Value, part: &Part) {
    let object: K = typed(object);
    let name = &object.meta().name.clone().unwrap();
    let options = WriteOptions::new("kinds");
    conflict_retry::create(api, &options, &object).await.unwrap();
    if let Subresource::Scale = part.subresource {
        return scaled(api, name).await;
    }
    let tally = Arc::new(Tally::default());
    let options = &options.with_observer(tally.clone());
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
        Decision::Write
    };
    let outcome = if status {
        conflict_retry::update_status(api, name, options, cached(&stale), set).await
    } else {
        conflict_retry::update(api, name, options, cached(&stale), set).await
    };
    assert_eq!((&*outcome.ending(), &*tally.take()), ("written", "put!conflict get put"));
    is(first).await;
    let outcome = if status {
        conflict_retry::update_status(api, name, options, Source::Live, set).await
    } else {
        conflict_retry::update(api, name, options, Source::Live, set).await
    };
    assert_eq!((&*outcome.ending(), &*tally.take()), ("unchanged", "get"));

    let mut patch = json!({});
    put_in(&mut patch, part.path, second);
    let want = |_: &K| Some(patch.clone());
    let outcome =
        conflict_retry::merge_patch(api, name, part.subresource, options, cached(&stale), want).await;
    let requests = "merge_patch!conflict get merge_patch";
    assert_eq!((&*outcome.ending(), &*tally.take()), ("written", requests));
    is(second).await;
}

/// A scale from a wrong count, and then one without a change.
async fn scaled<K: Writable>(api: &Api<K>, name: &str) {
    let tally = Arc::new(Tally::default());
    let options = &WriteOptions::new("kinds").with_observer(tally.clone());
    let seen = ScaleView { replicas: Some(4), ..ScaleView::of(&api.get(name).await.unwrap(), Some(4), None) };
    for count in [0, 3] {
        let outcome = conflict_retry::scale(api, name, options, Source::Copy(seen.clone()), to(count)).await;
        let requests = "json_patch!test_failed get json_patch";
        assert_eq!((&*outcome.ending(), &*tally.take()), ("written", requests));
        let stored = api.get_scale(name).await.unwrap().spec.unwrap().replicas.unwrap_or_default();
        assert_eq!(stored, count);
    }
    let outcome = conflict_retry::scale(api, name, options, Source::Live, to(3)).await;
    assert_eq!((&*outcome.ending(), &*tally.take()), ("unchanged", "get"));
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
async fn a_finalizer_holds_a_deletion_until_the_front_door_takes_it_away() {
    let cluster = tandem::definitions_only().await.unwrap();
    let namespace = cluster.namespace("kinds").await.unwrap();
    let pools = &Api::<NodePool>::namespaced(cluster.client().await.unwrap(), namespace.name());
    let tally = Arc::new(Tally::default());
    let options = &WriteOptions::new("kinds").with_observer(tally.clone());
    let mut held = objects::pool("held", 0, 5);
    held.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    conflict_retry::create(pools, options, &held).await.unwrap();
    let ended = conflict_retry::delete(pools, "held", options, &DeleteParams::default()).await;
    assert_eq!(ended.ending(), "terminating");
    tally.take();
    let freed = conflict_retry::update(pools, "held", options, Source::Live, |pool| {
        pool.finalizers_mut().clear();
        Decision::Write
    });
    assert_eq!((&*freed.await.ending(), &*tally.take()), ("written", "get put"));
    let freed = conflict_retry::update(pools, "held", options, Source::Live, grow);
    assert_eq!((&*freed.await.ending(), &*tally.take()), ("gone", "get!not_found"));
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
