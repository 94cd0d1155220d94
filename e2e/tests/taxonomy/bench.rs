//! What every case needs: the cluster, the clients, the table of what was seen, and small objects.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conflict_retry::{
    AttemptEvent, Class, DeleteOutcome, EvictOutcome, FinishedEvent, Observer, Outcome, RetryPolicy,
    ScaleDecision, ScaleView, Source, UpdateDecision, Verb, Writable, WriteError, WriteOptions,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::NamespaceResourceScope;
use kube::core::subresource::Scale;
use kube::{Api, Client, Config, Resource, ResourceExt as _};
use serde_json::{Value, json};
use shared_crds::NodePool;
use testbed::cluster::{Cluster, ClusterOptions};
use testbed::{objects, tandem};

/// How long a change that the API server gets from a watch may take to become effective.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The API server's request timeout. Well above the duration of any request here, including the wait for a future
/// version (3 s), and short, because two cases wait until it expires.
pub(crate) const SERVER_TIMEOUT: Duration = Duration::from_secs(8);
/// The user agent of the write functions' client, so that the audit log distinguishes its requests from those that set
/// a case up.
pub(crate) const AGENT: &str = "write-functions";
/// Represents the code of a request that the server gave up: 504, or 500 when its store failed, or none, because a
/// server that has already begun an answer can only break the connection.
pub(crate) const GIVEN_UP: u16 = u16::MAX;
/// The namespace of all cases.
pub(crate) const NAMESPACE: &str = "taxonomy";
/// No object here ever reaches this version.
pub(crate) const FUTURE: &str = "9000000000000000";

/// A copy to start from.
pub(crate) fn cached<K: Clone>(copy: &K) -> Source<'static, K> {
    Source::Copy(copy.clone())
}

/// Records each request that the write functions report: `put`, or `put!conflict` for one that failed.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) since_taken: Mutex<Vec<String>>,
    pub(crate) all: Mutex<Vec<(Verb, Option<&'static str>)>>,
    /// Number of requests of the last operation, as reported at its end.
    pub(crate) summed_up: Mutex<u32>,
}

impl Observer for Counts {
    fn attempt(&self, event: &AttemptEvent<'_>) {
        let failed = event.class.map(|class| format!("!{}", class.label())).unwrap_or_default();
        self.since_taken.lock().unwrap().push(format!("{}{failed}", event.verb));
        self.all.lock().unwrap().push((event.verb, event.class.map(Class::label)));
    }

    fn finished(&self, event: &FinishedEvent<'_>) {
        *self.summed_up.lock().unwrap() = event.requests;
    }
}

impl Counts {
    pub(crate) fn take(&self) -> String {
        std::mem::take(&mut *self.since_taken.lock().unwrap()).join(" ")
    }

    pub(crate) fn seen(&self) -> String {
        self.since_taken.lock().unwrap().join(" ")
    }
}

/// How a call of a write function ended, in one word.
pub(crate) trait Ending {
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
pub(crate) struct Table {
    pub(crate) lines: Vec<String>,
    pub(crate) wrong: Vec<String>,
    pub(crate) counts: Arc<Counts>,
}

impl Table {
    pub(crate) fn new() -> Self {
        let head = format!("{:<48} {:>4} {:<20} {}", "case", "HTTP", "reason", "class");
        Self { lines: vec![head], wrong: Vec::new(), counts: Arc::default() }
    }

    pub(crate) fn options(&self) -> WriteOptions {
        WriteOptions::new("taxonomy").with_observer(self.counts.clone())
    }

    /// Options with one attempt, without retries.
    pub(crate) fn once(&self) -> WriteOptions {
        self.options().with_policy(RetryPolicy::once())
    }

    /// Checks an error and its class. The code 0 means "no answer".
    pub(crate) fn answer<T: Debug>(
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
    pub(crate) async fn call<T: Ending>(
        &mut self,
        call: &str,
        ending: impl Future<Output = T>,
        expected: &str,
        requests: &str,
    ) {
        self.counts.take();
        let found = ending.await.ending();
        let sent = self.counts.take();
        let summed_up = std::mem::take(&mut *self.counts.summed_up.lock().unwrap());
        if usize::try_from(summed_up) != Ok(sent.split_whitespace().count()) {
            self.wrong(&format!("{call}: {summed_up} requests at the end, but [{sent}]"));
        }
        self.lines.push(format!("    {call:<44} -> {found:<28} {}: {sent}", sent.split_whitespace().count()));
        if (found.as_str(), sent.as_str()) != (expected, requests) {
            self.wrong(&format!("{call}: {found} by [{sent}], not {expected} by [{requests}]"));
        }
    }

    pub(crate) fn wrong(&mut self, what: &str) {
        let before = self.lines.last().unwrap();
        let what = format!("{what}\n    (after: {before})");
        self.lines.push(format!("  ^ WRONG: {what}"));
        self.wrong.push(what);
    }

    pub(crate) fn check(&mut self, what: &str, holds: bool) {
        if holds {
            self.lines.push(format!("    {what}"));
        } else {
            self.wrong(&format!("it is not so that {what}"));
        }
    }
}

pub(crate) fn shown(class: &Class) -> String {
    match class {
        Class::FieldManager { conflicts } => format!("{}: {}", class.label(), conflicts[0]),
        Class::Throttled { retry_after: Some(told) } | Class::Transient { retry_after: Some(told) } => {
            format!("{} ({told:?})", class.label())
        }
        _ => class.label().to_owned(),
    }
}

pub(crate) fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(crate) async fn make<K: Writable>(api: &Api<K>, value: Value) -> K {
    api.create(&PostParams::default(), &typed(value)).await.unwrap()
}

/// A client with an identity from `kubeconfig` and the user agent `agent`, without retries.
pub(crate) async fn connect(kubeconfig: &Path, agent: &str, change: impl FnOnce(&mut Config)) -> Client {
    let read = Kubeconfig::read_from(kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    config.headers.push((http::header::USER_AGENT, agent.parse().unwrap()));
    change(&mut config);
    Client::try_from(config).unwrap()
}

/// The cluster of a case, its namespace, and two clients: one that sets cases up and one that is observed.
pub(crate) struct Bench {
    pub(crate) cluster: Cluster,
    pub(crate) admin: Client,
    pub(crate) observed: Client,
}

impl Bench {
    pub(crate) async fn start() -> Self {
        let options = ClusterOptions {
            api_server_flags: vec![
                format!("--request-timeout={SERVER_TIMEOUT:?}"),
                // Old versions are compacted within seconds instead of minutes.
                "--etcd-compaction-interval=2s".to_owned(),
            ],
            ..ClusterOptions::api_only()
        };
        let cluster = Cluster::start(options).await.unwrap();
        tandem::install_definitions(&cluster).await.unwrap();
        let admin = cluster.client().await.unwrap();
        let observed = connect(cluster.kubeconfig_path(), AGENT, |_| {}).await;
        // It ends with the cluster.
        make(&Api::<Namespace>::all(admin.clone()), json!({"metadata": {"name": NAMESPACE}})).await;
        let bench = Self { cluster, admin, observed };
        make(&bench.set_up::<ServiceAccount>(), json!({"metadata": {"name": "default"}})).await;
        make(&bench.set_up::<ServiceAccount>(), json!({"metadata": {"name": "no-rights"}})).await;
        bench
    }

    pub(crate) fn set_up<K: Namespaced>(&self) -> Api<K> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    pub(crate) fn watched<K: Namespaced>(&self) -> Api<K> {
        Api::namespaced(self.observed.clone(), NAMESPACE)
    }

    pub(crate) fn server(&self) -> SocketAddr {
        let read = Kubeconfig::read_from(self.cluster.kubeconfig_path()).unwrap();
        let url = read.clusters[0].cluster.clone().unwrap().server.unwrap();
        url.strip_prefix("https://").unwrap().parse().unwrap()
    }

    /// A pool with 2 replicas.
    pub(crate) async fn pool(&self, name: &str) -> NodePool {
        let mut pool = objects::pool(name, 1, 5);
        pool.spec.replicas = Some(2);
        self.set_up().create(&PostParams::default(), &pool).await.unwrap()
    }

    pub(crate) async fn map(&self, name: &str) -> ConfigMap {
        make(&self.set_up(), json!({"metadata": {"name": name}, "data": {"k": "0"}})).await
    }

    /// A write by another writer: it moves the version and changes no field that any case uses.
    pub(crate) async fn touch(&self, name: &str) {
        let note = format!("{:x}", rand::random::<u64>());
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"example.com/note": note}}}));
        self.set_up::<NodePool>().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }
}

pub(crate) trait Namespaced:
    Writable + Resource<Scope = NamespaceResourceScope, DynamicType = ()>
{
}
impl<K: Writable + Resource<Scope = NamespaceResourceScope, DynamicType = ()>> Namespaced for K {}

/// The goals for the write functions. Each differs from the state of a pool created here.
pub(crate) fn grow(pool: &mut NodePool) -> UpdateDecision {
    pool.spec.max_replicas = pool.spec.max_replicas.max(6) + 1 - pool.spec.max_replicas % 2;
    UpdateDecision::Write
}

pub(crate) fn report(pool: &mut NodePool) -> UpdateDecision {
    pool.status.get_or_insert_default().ready_replicas = Some(7);
    UpdateDecision::Write
}

pub(crate) fn colour(map: &mut ConfigMap) -> UpdateDecision {
    map.data.get_or_insert_default().insert("k".to_owned(), "blue".to_owned());
    UpdateDecision::Write
}

pub(crate) fn to(count: i32) -> impl FnMut(&ScaleView) -> ScaleDecision + Send {
    move |_| ScaleDecision::Set(count)
}

pub(crate) fn scale_of(pool: &NodePool) -> ScaleView {
    ScaleView::of(pool, pool.spec.replicas, None)
}

pub(crate) fn scale_body(pool: &NodePool, replicas: i32) -> Scale {
    typed(json!({
        "metadata": {
            "name": pool.name_any(), "namespace": pool.namespace(),
            "uid": pool.uid(), "resourceVersion": pool.resource_version(),
        },
        "spec": {"replicas": replicas},
    }))
}

pub(crate) fn versioned(pool: &NodePool, mut patch: Value) -> Patch<Value> {
    patch["metadata"] = json!({"resourceVersion": pool.resource_version()});
    Patch::Merge(patch)
}

pub(crate) fn applied(name: &str, more: &Value) -> Value {
    let mut body =
        json!({"apiVersion": "tandem.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": name}});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

pub(crate) fn json_patch(operations: Value) -> Patch<Value> {
    Patch::Json(serde_json::from_value(operations).unwrap())
}
