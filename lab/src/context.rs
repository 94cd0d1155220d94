//! Where a scenario is played: a namespace on a real API server, actors whose requests are written down, a narrator, and
//! claims that are checked.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::cluster::Cluster;
use kube::api::PostParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::event::{RecordedRequest, Table, TranscriptEvent, What};
use crate::request_recorder::{OnRequest, RequestRecorder};

/// `OnRequest` of every event as it happens.
pub type EventSink = Arc<dyn Fn(&TranscriptEvent) + Send + Sync>;

/// How long anything may take that only has to happen some time, on a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A scenario's share of the world.
pub struct ScenarioContext {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    namespace: String,
    script: Arc<Script>,
}

/// What has happened so far.
struct Script {
    began: Instant,
    audience: EventSink,
    events: Mutex<Events>,
}

#[derive(Default)]
struct Events {
    all: Vec<TranscriptEvent>,
    /// How many parts are under way whose order differs from run to run.
    racing: u32,
}

impl Script {
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
        (self.audience)(&event);
    }

    fn races(&self, more: bool) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.racing = if more { events.racing + 1 } else { events.racing.saturating_sub(1) };
    }
}

impl ScenarioContext {
    /// A stage in `namespace`, which exists.
    pub fn new(cluster: Arc<Cluster>, namespace: String, audience: EventSink) -> Self {
        let script = Script { began: Instant::now(), audience, events: Mutex::default() };
        Self { cluster, namespace, script: Arc::new(script) }
    }

    /// The namespace's name.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The narrator: what is about to happen, in a sentence or two.
    pub fn say(&self, text: &str) {
        self.script.add(What::Say { text: text.to_owned() });
    }

    /// An actor did something that is no request.
    pub fn act(&self, actor: &str, text: &str) {
        self.script.add(What::Act { actor: actor.to_owned(), text: text.to_owned() });
    }

    /// What was measured, and is the same in every run.
    pub fn table(&self, table: Table) {
        self.script.add(What::Table(table));
    }

    /// What was measured, and differs from run to run: shown live, not on the page.
    pub fn live_table(&self, table: Table) {
        self.script.add_as(What::Table(table), true);
    }

    /// What a program printed, and prints in every run.
    pub fn quote(&self, text: &str) {
        self.script.add(What::Quote { text: text.trim_end().to_owned() });
    }

    /// What a program printed, and prints otherwise the next time: shown live, not on the page.
    pub fn live_quote(&self, text: &str) {
        self.script.add_as(What::Quote { text: text.trim_end().to_owned() }, true);
    }

    /// A claim: the scenario fails, at its end, when it does not hold. The text must be the same in every run.
    pub fn check(&self, claim: &str, holds: bool) {
        self.script.add(What::Check { claim: claim.to_owned(), holds });
    }

    /// As [`Self::check`], showing live what was `found`.
    pub fn check_eq<T: PartialEq + Debug>(&self, claim: &str, found: &T, wanted: &T) {
        if found != wanted {
            let text = format!("found {found:?}, wanted {wanted:?}");
            self.script.add_as(What::Quote { text }, true);
        }
        self.check(claim, found == wanted);
    }

    /// Somebody who sends requests, each of which is written down.
    pub async fn actor(&self, name: &str) -> Result<Actor> {
        let mut config = self.cluster.client_config().await?;
        // A hidden repetition of a request would be told as one, and counted as one.
        config.default_retry = false;
        self.actor_with(name, config)
    }

    /// As [`Self::actor`], with the identity and the settings in `config`.
    pub fn actor_with(&self, name: &str, config: kube::Config) -> Result<Actor> {
        let script = Arc::clone(&self.script);
        let sent = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&sent);
        let hears: OnRequest = Arc::new(move |request: RecordedRequest| {
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
            script.add(What::Request(Box::new(request)));
        });
        let recorder = RequestRecorder { actor: name.to_owned(), hears };
        let builder = kube::client::ClientBuilder::try_from(config).context("cannot make a client")?;
        let client = builder.with_layer(&recorder).build();
        Ok(Actor { name: name.to_owned(), namespace: self.namespace.clone(), client, sent })
    }

    /// A client whose requests nobody sees: for setting the stage, and for asking what is so.
    pub async fn backstage(&self) -> Result<Client> {
        self.cluster.client().await
    }

    /// Creates an object backstage.
    #[expect(clippy::disallowed_methods, reason = "setting the scene is no controller's write")]
    pub async fn set<K>(&self, object: &K) -> Result<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let api = Api::<K>::namespaced(self.backstage().await?, &self.namespace);
        let created = api.create(&PostParams::default(), object).await;
        created.with_context(|| format!("cannot create a {}", K::kind(&())))
    }

    /// What the API server holds, asked backstage.
    pub async fn stored<K>(&self, name: &str) -> Result<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let api = Api::<K>::namespaced(self.backstage().await?, &self.namespace);
        api.get(name).await.with_context(|| format!("cannot read {name}"))
    }

    /// Requests and acts in `part` come in another order, or another number, in every run: they are shown live, and the
    /// page says `what` instead.
    pub async fn racing<T>(&self, what: &str, part: impl Future<Output = T>) -> T {
        self.say(what);
        self.script.races(true);
        let result = part.await;
        self.script.races(false);
        result
    }

    /// Everything so far.
    pub fn events(&self) -> Vec<TranscriptEvent> {
        self.script.events.lock().unwrap_or_else(PoisonError::into_inner).all.clone()
    }
}

/// Somebody who sends requests. Derefs to the client.
#[derive(Clone)]
pub struct Actor {
    name: String,
    namespace: String,
    client: Client,
    sent: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl Actor {
    /// Who it is.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The stage's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The stage's objects of a kind, through this actor's eyes.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The client, whose requests are written down.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Everything it has sent.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many requests it has sent, how many of them were writes that were granted, and how many met a 409.
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

/// What an actor has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Requests, reads included.
    pub requests: usize,
    /// Writes that were granted.
    pub written: usize,
    /// Requests that were answered 409.
    pub conflicts: usize,
}
