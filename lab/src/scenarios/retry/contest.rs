//! A fixed number of conflicts: Bob writes right before Alice's PUT, as often as the scenario requests.
//!
//! There is no race: her PUT waits until his request is answered, so the order of the requests is the same in every run.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use conflict_retry::{Outcome, UpdateDecision, WriteError, WriteOptions, update};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;
use tower::service_fn;

use crate::context::{Actor, ScenarioContext};
use crate::pool::{Pool, pool};

/// The replicas that Alice wants; the pool is created with 3.
pub(super) const GOAL: i32 = 5;

/// A pool, Alice, who writes it, and Bob, who writes before her.
pub(super) struct Contest {
    /// The writer that meets conflicts.
    pub(super) alice: Actor,
    /// The pool's name.
    pub(super) name: &'static str,
    namespace: String,
    client: Client,
    interference: Interference,
}

impl Contest {
    /// Creates the pool `name`. At first, Bob does not write.
    pub(super) async fn new(ctx: &ScenarioContext, name: &'static str) -> Result<Self> {
        ctx.set(&pool(name, 3)).await?;
        let alice = ctx.actor("alice").await?;
        let bob = ctx.actor("bob").await?;
        let interference = Interference {
            pools: bob.api(),
            name,
            coming: Arc::default(),
            writes: Arc::default(),
            burst: Arc::default(),
        };
        let client = behind(&interference, alice.client(), ctx.namespace());
        Ok(Self { alice, name, namespace: ctx.namespace().to_owned(), client, interference })
    }

    /// Bob writes before each of Alice's next `times` PUTs to the pool.
    pub(super) fn interfere(&self, times: u32) {
        self.interference.coming.store(times, Ordering::SeqCst);
    }

    /// From his first write on, Bob writes before each of Alice's PUTs for the duration `lasts`.
    pub(super) fn keep_busy(&self, lasts: Duration) {
        *self.interference.burst() = Some(Burst { lasts, ..Burst::default() });
    }

    /// The same, until Alice has waited for the duration `lasts` between her attempts. The time that requests take does not
    /// count: on a slow machine it is longer than short pauses.
    pub(super) fn keep_busy_in_pauses(&self, lasts: Duration) {
        *self.interference.burst() = Some(Burst { lasts, in_pauses: true, ..Burst::default() });
    }

    /// Whether a PUT arrived after Bob's busy time.
    pub(super) fn is_outlasted(&self) -> bool {
        self.interference.burst().is_some_and(|burst| burst.outlasted)
    }

    /// Number of Bob's remaining writes.
    pub(super) fn to_come(&self) -> u32 {
        self.interference.coming.load(Ordering::SeqCst)
    }

    /// Alice's client, before whose PUTs Bob writes.
    pub(super) fn pools(&self) -> Api<Pool> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// One attempt with kube's bare verbs: read, change, write with the version that was read.
    #[expect(clippy::disallowed_methods, reason = "the parts of a hand-written loop")]
    pub(super) async fn attempt(&self) -> Result<Pool, kube::Error> {
        let pools = self.pools();
        let mut pool = pools.get(self.name).await?;
        pool.spec.replicas = Some(GOAL);
        pools.replace(self.name, &PostParams::default(), &pool).await
    }

    /// The same with the write function.
    pub(super) async fn update(&self, options: &WriteOptions) -> Result<Outcome<Pool>, WriteError> {
        goal(&self.pools(), self.name, options).await
    }

    /// Whether Alice's value is stored.
    pub(super) async fn is_written(&self, ctx: &ScenarioContext) -> Result<bool> {
        Ok(ctx.stored::<Pool>(self.name).await?.spec.replicas == Some(GOAL))
    }
}

/// A time in which Bob writes before each PUT.
#[derive(Clone, Copy, Default)]
struct Burst {
    lasts: Duration,
    /// Whether only the time between an answer to a PUT of Alice's and her next request counts.
    in_pauses: bool,
    /// What has counted so far.
    spent: Duration,
    /// Since when the time runs, if it does.
    since: Option<Instant>,
    outlasted: bool,
}

impl Burst {
    /// Alice sends a request.
    fn sent(&mut self, now: Instant) {
        if let Some(since) = self.since {
            self.spent += now - since;
            self.since = (!self.in_pauses).then_some(now);
        }
    }

    /// Bob has been asked whether he writes before a PUT: by the clock, the time runs from the first one on.
    fn is_active(&mut self, now: Instant) -> bool {
        self.outlasted |= self.spent >= self.lasts;
        if !self.in_pauses {
            self.since.get_or_insert(now);
        }
        !self.outlasted
    }

    /// Alice's PUT was answered.
    fn answered(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }
}

#[derive(Clone)]
struct Interference {
    pools: Api<Pool>,
    name: &'static str,
    coming: Arc<AtomicU32>,
    writes: Arc<AtomicU32>,
    burst: Arc<Mutex<Option<Burst>>>,
}

impl Interference {
    fn burst(&self) -> MutexGuard<'_, Option<Burst>> {
        self.burst.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another write is due; counts it.
    fn takes_turn(&self) -> bool {
        if let Some(burst) = self.burst().as_mut() {
            return burst.is_active(Instant::now());
        }
        let left = self.coming.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.is_ok()
    }

    /// Writes a note, if another write is due.
    #[expect(clippy::disallowed_methods, reason = "a writer that does not check versions")]
    async fn interfere(&self) -> Result<(), kube::Error> {
        if !self.takes_turn() {
            return Ok(());
        }
        let number = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        let patch = Patch::Merge(json!({"spec": {"note": format!("bob's {number}")}}));
        self.pools.patch(self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

/// `client`, whose PUTs to the pool wait until Bob has written.
fn behind(interference: &Interference, client: Client, namespace: &str) -> Client {
    let interference = interference.clone();
    let service = service_fn(move |request: http::Request<Body>| {
        let (client, interference) = (client.clone(), interference.clone());
        async move {
            let is_put = request.method() == http::Method::PUT;
            if let Some(burst) = interference.burst().as_mut() {
                burst.sent(Instant::now());
            }
            if is_put && request.uri().path().split('/').any(|part| part == interference.name) {
                interference.interfere().await?;
            }
            let answer = client.send(request).await;
            if let Some(burst) = interference.burst().as_mut().filter(|_| is_put) {
                burst.answered(Instant::now());
            }
            answer
        }
    });
    Client::new(service, namespace)
}

/// Alice's task for `update`: 5 replicas, whatever the pool's other fields are.
pub(super) async fn goal(
    pools: &Api<Pool>,
    name: &str,
    options: &WriteOptions,
) -> Result<Outcome<Pool>, WriteError> {
    update(pools, name, |pool| {
        pool.spec.replicas = Some(GOAL);
        UpdateDecision::Write
    })
    .put()
    .with(options)
    .outcome()
    .await
}

/// An owner reference that every server rejects, because it has no UID.
pub(super) fn owner_without_uid() -> OwnerReference {
    let (api_version, kind, name) = ("v1".to_owned(), "ConfigMap".to_owned(), "settings".to_owned());
    OwnerReference { api_version, kind, name, ..OwnerReference::default() }
}
