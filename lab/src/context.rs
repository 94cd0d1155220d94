//! What a scenario runs in: a namespace on a real API server, actors whose requests are recorded, a narration, and claims
//! that are checked.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::PostParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use testbed::cluster::Cluster;
use tokio::time::Instant;

use crate::cost::StrategyCost;
use crate::event::{RecordedRequest, Table, TranscriptEvent, What};
use crate::request_recorder::{OnRequest, RequestRecorder};

/// Called with every event as it happens.
pub type EventSink = Arc<dyn Fn(&TranscriptEvent) + Send + Sync>;

/// Time limit, on a busy machine, of a step whose duration does not matter.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The environment of one scenario.
pub struct ScenarioContext {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    namespace: String,
    transcript: Arc<Transcript>,
}

/// What has happened so far.
struct Transcript {
    began: Instant,
    sink: EventSink,
    events: Mutex<Events>,
}

#[derive(Default)]
struct Events {
    all: Vec<TranscriptEvent>,
    /// Number of running parts whose order differs from run to run.
    racing: u32,
}

impl Transcript {
    fn add(&self, what: What) {
        self.add_as(what, false);
    }

    fn add_as(&self, what: What, live: bool) {
        let event = {
            let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
            let is_request = matches!(what, What::Request(_) | What::Act { .. });
            let live = live || (events.racing > 0 && is_request);
            let event = TranscriptEvent { at: self.began.elapsed(), live, what };
            events.all.push(event.clone());
            event
        };
        (self.sink)(&event);
    }

    fn set_racing(&self, more: bool) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.racing = if more { events.racing + 1 } else { events.racing.saturating_sub(1) };
    }
}

impl ScenarioContext {
    /// A context in `namespace`, which must exist.
    pub fn new(cluster: Arc<Cluster>, namespace: String, sink: EventSink) -> Self {
        let transcript = Transcript { began: Instant::now(), sink, events: Mutex::default() };
        Self { cluster, namespace, transcript: Arc::new(transcript) }
    }

    /// The namespace's name.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Narrates what happens next, in a sentence or two.
    pub fn say(&self, text: &str) {
        self.transcript.add(What::Say { text: text.to_owned() });
    }

    /// Adds an action of an actor that is not a request.
    pub fn act(&self, actor: &str, text: &str) {
        self.transcript.add(What::Act { actor: actor.to_owned(), text: text.to_owned() });
    }

    /// Adds a measurement that is the same in every run.
    pub fn table(&self, table: Table) {
        self.transcript.add(What::Table(table));
    }

    /// Adds a measurement that differs from run to run: shown live, not on the page.
    pub fn live_table(&self, table: Table) {
        self.transcript.add_as(What::Table(table), true);
    }

    /// Adds what each write strategy cost in this run: shown live, and drawn by `--bill`.
    pub fn costs(&self, strategies: Vec<StrategyCost>) {
        self.transcript.add_as(What::Costs { strategies }, true);
    }

    /// Adds the output of a program that is the same in every run.
    pub fn quote(&self, text: &str) {
        self.transcript.add(What::Quote { text: text.trim_end().to_owned() });
    }

    /// Adds the output of a program that differs from run to run: shown live, not on the page.
    pub fn live_quote(&self, text: &str) {
        self.transcript.add_as(What::Quote { text: text.trim_end().to_owned() }, true);
    }

    /// Adds a claim. The scenario fails at its end when it does not hold. The text must be the same in every run.
    pub fn check(&self, claim: &str, holds: bool) {
        self.transcript.add(What::Check { claim: claim.to_owned(), holds });
    }

    /// Like [`Self::check`], and shows live what was `found` if it is not what was wanted.
    pub fn check_eq<T: PartialEq + Debug>(&self, claim: &str, found: &T, wanted: &T) {
        if found != wanted {
            let text = format!("found {found:?}, wanted {wanted:?}");
            self.transcript.add_as(What::Quote { text }, true);
        }
        self.check(claim, found == wanted);
    }

    /// A new actor, whose requests are recorded.
    pub async fn actor(&self, name: &str) -> Result<Actor> {
        let mut config = self.cluster.client_config().await?;
        // The recorder sees a request once, however often the client repeats it.
        config.default_retry = false;
        self.actor_with(name, config)
    }

    /// Like [`Self::actor`], with the identity and the settings in `config`.
    pub fn actor_with(&self, name: &str, config: kube::Config) -> Result<Actor> {
        let transcript = Arc::clone(&self.transcript);
        let sent = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&sent);
        let on_request: OnRequest = Arc::new(move |request: RecordedRequest| {
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
            transcript.add(What::Request(Box::new(request)));
        });
        let recorder = RequestRecorder { actor: name.to_owned(), on_request };
        let builder = kube::client::ClientBuilder::try_from(config).context("cannot make a client")?;
        let client = builder.with_layer(&recorder).build();
        Ok(Actor { name: name.to_owned(), namespace: self.namespace.clone(), client, sent })
    }

    /// A client whose requests are not recorded: for the setup, and for reading what is stored.
    pub async fn unrecorded_client(&self) -> Result<Client> {
        self.cluster.client().await
    }

    /// Creates an object with [`Self::unrecorded_client`].
    #[expect(clippy::disallowed_methods, reason = "the setup is not a controller's write")]
    pub async fn set<K>(&self, object: &K) -> Result<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let api = Api::<K>::namespaced(self.unrecorded_client().await?, &self.namespace);
        let created = api.create(&PostParams::default(), object).await;
        created.with_context(|| format!("cannot create a {}", K::kind(&())))
    }

    /// Reads what the API server has stored, with [`Self::unrecorded_client`].
    pub async fn stored<K>(&self, name: &str) -> Result<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let api = Api::<K>::namespaced(self.unrecorded_client().await?, &self.namespace);
        api.get(name).await.with_context(|| format!("cannot read {name}"))
    }

    /// Runs `part`, whose requests and acts differ in order or number from run to run: they are shown live, and the page
    /// has the text `what` instead.
    pub async fn racing<T>(&self, what: &str, part: impl Future<Output = T>) -> T {
        self.say(what);
        self.transcript.set_racing(true);
        let result = part.await;
        self.transcript.set_racing(false);
        result
    }

    /// All events so far.
    pub fn events(&self) -> Vec<TranscriptEvent> {
        self.transcript.events.lock().unwrap_or_else(PoisonError::into_inner).all.clone()
    }
}

/// A sender of requests, all of which are recorded. Derefs to the client.
#[derive(Clone)]
pub struct Actor {
    name: String,
    namespace: String,
    client: Client,
    sent: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl Actor {
    /// The actor's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The scenario's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The API for the objects of a kind in the scenario's namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The client, whose requests are recorded.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// All requests that it has sent.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Number of requests that it has sent, of granted writes, and of 409s.
    pub fn counts(&self) -> RequestCounts {
        let mut counts = RequestCounts::default();
        for request in self.requests() {
            counts.requests += 1;
            counts.written += usize::from(request.is_write() && request.succeeded());
            counts.conflicts += usize::from(request.code == 409);
        }
        counts
    }
}

impl Deref for Actor {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Counts of an actor's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Requests, reads included.
    pub requests: usize,
    /// Writes that were granted.
    pub written: usize,
    /// Requests that were answered 409.
    pub conflicts: usize,
}
