//! Conflicts in a number that is known beforehand: Bob writes right before Alice's PUT, as often as he is told to.
//!
//! No race: her PUT is held until his answer is there, so that the requests come in the same order in every run.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use conflict_retry::{Outcome, Source, UpdateDecision, WriteError, WriteOptions, update};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;
use tower::service_fn;

use crate::context::{Actor, ScenarioContext};
use crate::pool::{Pool, pool};

/// How many replicas Alice wants; the pool is made with 3.
pub(super) const GOAL: i32 = 5;

/// A pool, Alice, who wants to write it, and Bob, who comes first.
pub(super) struct Contest {
    /// Who wants to write.
    pub(super) alice: Actor,
    /// The pool's name.
    pub(super) name: &'static str,
    namespace: String,
    client: Client,
    rival: Rival,
}

impl Contest {
    /// Makes the pool `name`. For now, Bob stays away.
    pub(super) async fn new(ctx: &ScenarioContext, name: &'static str) -> Result<Self> {
        ctx.set(&pool(name, 3)).await?;
        let alice = ctx.actor("alice").await?;
        let bob = ctx.actor("bob").await?;
        let rival = Rival {
            pools: bob.api(),
            name,
            coming: Arc::default(),
            writes: Arc::default(),
            burst: Arc::default(),
        };
        let client = behind(&rival, alice.client(), ctx.namespace());
        Ok(Self { alice, name, namespace: ctx.namespace().to_owned(), client, rival })
    }

    /// Bob writes before each of Alice's next `times` PUTs to the pool.
    pub(super) fn interfere(&self, times: u32) {
        self.rival.coming.store(times, Ordering::SeqCst);
    }

    /// From his first write on Bob is busy for `lasts`, by his clock: he writes before each PUT that comes until then.
    pub(super) fn keep_busy(&self, lasts: Duration) {
        *self.rival.burst() = Some(Burst { lasts, until: None, outlasted: false });
    }

    /// Whether a PUT came when Bob's busy time was over.
    pub(super) fn is_outlasted(&self) -> bool {
        self.rival.burst().is_some_and(|burst| burst.outlasted)
    }

    /// How many of Bob's writes are still to come.
    pub(super) fn to_come(&self) -> u32 {
        self.rival.coming.load(Ordering::SeqCst)
    }

    /// Alice's client, whose PUTs Bob gets ahead of.
    pub(super) fn pools(&self) -> Api<Pool> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// One attempt with kube's bare verbs: read, change, write with the version that was read.
    #[expect(clippy::disallowed_methods, reason = "what a loop by hand is made of")]
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

    /// Whether the API server holds what Alice wants.
    pub(super) async fn is_written(&self, ctx: &ScenarioContext) -> Result<bool> {
        Ok(ctx.stored::<Pool>(self.name).await?.spec.replicas == Some(GOAL))
    }
}

/// A busy time of Bob's.
#[derive(Clone, Copy)]
struct Burst {
    lasts: Duration,
    until: Option<Instant>,
    outlasted: bool,
}

impl Burst {
    /// Whether Bob is busy at `now`; it begins with the first question.
    fn goes_on(&mut self, now: Instant) -> bool {
        let until = *self.until.get_or_insert(now + self.lasts);
        self.outlasted |= now >= until;
        now < until
    }
}

#[derive(Clone)]
struct Rival {
    pools: Api<Pool>,
    name: &'static str,
    coming: Arc<AtomicU32>,
    writes: Arc<AtomicU32>,
    burst: Arc<Mutex<Option<Burst>>>,
}

impl Rival {
    fn burst(&self) -> MutexGuard<'_, Option<Burst>> {
        self.burst.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is to write once more.
    fn comes(&self) -> bool {
        if let Some(burst) = self.burst().as_mut() {
            return burst.goes_on(Instant::now());
        }
        let left = self.coming.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.is_ok()
    }

    /// Writes a note, if it is to come once more.
    #[expect(clippy::disallowed_methods, reason = "somebody who does not look at versions")]
    async fn interfere(&self) -> Result<(), kube::Error> {
        if !self.comes() {
            return Ok(());
        }
        let number = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        let patch = Patch::Merge(json!({"spec": {"note": format!("bob's {number}")}}));
        self.pools.patch(self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

/// `client`, whose PUTs to the rival's pool wait until the rival has had a turn.
fn behind(rival: &Rival, client: Client, namespace: &str) -> Client {
    let rival = rival.clone();
    let service = service_fn(move |request: http::Request<Body>| {
        let (client, rival) = (client.clone(), rival.clone());
        async move {
            let is_put = request.method() == http::Method::PUT;
            if is_put && request.uri().path().split('/').any(|part| part == rival.name) {
                rival.interfere().await?;
            }
            client.send(request).await
        }
    });
    Client::new(service, namespace)
}

/// Alice's task for `update`: 5 replicas, whatever else is in the pool.
pub(super) async fn goal(
    pools: &Api<Pool>,
    name: &str,
    options: &WriteOptions,
) -> Result<Outcome<Pool>, WriteError> {
    update(pools, name, options, Source::Live, |pool| {
        pool.spec.replicas = Some(GOAL);
        UpdateDecision::Write
    })
    .await
}

/// An owner that no server takes, because it has no UID.
pub(super) fn owner_without_uid() -> OwnerReference {
    let (api_version, kind, name) = ("v1".to_owned(), "ConfigMap".to_owned(), "settings".to_owned());
    OwnerReference { api_version, kind, name, ..OwnerReference::default() }
}
