//! The writers in Rust: `k` tasks, each with a client of its own.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use conflict_retry::{
    RetryError, RetryPolicy, Source, UpdateDecision, WriteError, WriteOptions, retry_on_conflict, update,
};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::counter::{Counter, part};
use crate::policy::Policy;
use crate::session::{Report, Session};
use crate::watched::Feed;
use crate::wire::{Counts, client};

/// One independent writer.
struct Writer {
    number: usize,
    counters: Api<Counter>,
    counts: Counts,
    /// The last known value of this writer's own number.
    own: i64,
}

/// All writers, kept between turns so that their connections stay open.
pub(crate) struct Writers {
    kubeconfig: PathBuf,
    namespace: String,
    idle: Vec<Writer>,
}

impl Writers {
    pub(crate) fn new(kubeconfig: PathBuf, namespace: String) -> Self {
        Self { kubeconfig, namespace, idle: Vec::new() }
    }

    /// One turn of `policy`.
    pub(crate) async fn run(&mut self, policy: Policy, session: &Session) -> Result<Report> {
        while self.idle.len() < session.starts.len() {
            let counts = Counts::default();
            let client = client(&self.kubeconfig, &counts).await?;
            let counters = Api::namespaced(client, &self.namespace);
            self.idle.push(Writer { number: self.idle.len(), counters, counts, own: 0 });
        }
        let mut ready = Vec::new();
        for mut writer in self.idle.drain(..session.starts.len()) {
            // Connections and watches are opened before anything is measured.
            let counter = writer.counters.get(&session.object).await.context("cannot read the counter")?;
            writer.own = counter.spec.parts.get(&part(writer.number)).copied().unwrap_or_default();
            let feed = match policy {
                Policy::Watched => Some(Feed::open(writer.counters.clone(), &session.object).await?),
                _ => None,
            };
            ready.push((writer, feed));
        }
        if let Some((first, _)) = ready.first() {
            // A list comes before the watch: only a change shows that the watch has begun.
            let touch = json!({"metadata": {"annotations": {"bench.tandem.dev/touched": rand::random::<u64>().to_string()}}});
            let before = first.counters.get(&session.object).await.context("cannot read the counter")?;
            let _touched =
                first.counters.patch(&session.object, &PatchParams::default(), &Patch::Merge(touch)).await?;
            for (writer, feed) in &mut ready {
                if let Some(feed) = feed {
                    feed.passes(&before).await?;
                    // The watch has taken the connection that was open; writes get another one.
                    writer.counters.get(&session.object).await.context("cannot read the counter")?;
                }
                writer.counts.take_requests();
            }
        }
        let mut report = Report::default();
        for _ in 0..session.repeat {
            sleep(Duration::from_secs_f64(session.gap_ms / 1000.0)).await;
            let mut tasks = JoinSet::new();
            let began = Instant::now();
            for ((writer, feed), starts) in ready.drain(..).zip(&session.starts) {
                let turn = Contender {
                    writer,
                    feed,
                    policy,
                    object: session.object.clone(),
                    starts: starts.clone(),
                };
                tasks.spawn(turn.run(began));
            }
            while let Some(done) = tasks.join_next().await {
                let (turn, latencies_ms, give_ups) = done.context("a writer panicked")??;
                report.add(Report { latencies_ms, give_ups, ..Report::default() });
                ready.push((turn.writer, turn.feed));
            }
            report.wall_seconds += began.elapsed().as_secs_f64();
            ready.sort_by_key(|(writer, _)| writer.number);
        }
        for (writer, _) in ready.drain(..) {
            report.requests += writer.counts.take_requests();
            report.watches += writer.counts.take_watches();
            self.idle.push(writer);
        }
        self.idle.sort_by_key(|writer| writer.number);
        Ok(report)
    }
}

/// One writer's part of a repetition.
struct Contender {
    writer: Writer,
    feed: Option<Feed>,
    policy: Policy,
    object: String,
    starts: Vec<f64>,
}

impl Contender {
    async fn run(mut self, began: Instant) -> Result<(Self, Vec<f64>, u64)> {
        let mut latencies = Vec::with_capacity(self.starts.len());
        let mut give_ups = 0;
        for start in self.starts.clone() {
            let due = began + Duration::from_secs_f64(start / 1000.0);
            sleep_until(due).await;
            while !self.increment().await? {
                give_ups += 1;
            }
            latencies.push(due.elapsed().as_secs_f64() * 1000.0);
        }
        Ok((self, latencies, give_ups))
    }

    /// Increments once; `false` means that the policy gave up.
    async fn increment(&mut self) -> Result<bool> {
        let counters = &self.writer.counters;
        match self.policy {
            Policy::Watched => {
                let feed = self.feed.as_ref().context("a watched writer without a watch")?;
                ours(counters, &self.object, feed.source()).await
            }
            Policy::Live => ours(counters, &self.object, Source::Live).await,
            Policy::CompatRetry => {
                pattern(counters, &self.object, &RetryPolicy::client_go_default_retry()).await
            }
            Policy::CompatBackoff => {
                pattern(counters, &self.object, &RetryPolicy::client_go_default_backoff()).await
            }
            Policy::Guarded | Policy::Merge | Policy::Apply => self.own_field().await,
            Policy::GoRetry | Policy::GoBackoff => Err(anyhow!("client-go runs in a program of its own")),
        }
    }

    /// Increments the number that is this writer's alone.
    async fn own_field(&mut self) -> Result<bool> {
        let part = part(self.writer.number);
        let old = self.writer.own;
        let new = old + 1;
        let params = PatchParams { field_manager: Some(part.clone()), ..PatchParams::default() };
        let counters = &self.writer.counters;
        let answer = match self.policy {
            Policy::Guarded => {
                let path = format!("/spec/parts/{part}");
                let operations = serde_json::from_value(json!([
                    {"op": "test", "path": path, "value": old},
                    {"op": "replace", "path": path, "value": new},
                ]))?;
                counters.patch(&self.object, &params, &Patch::Json::<()>(operations)).await
            }
            Policy::Apply => {
                let body = json!({
                    "apiVersion": "bench.tandem.dev/v1",
                    "kind": "Counter",
                    "spec": {"parts": {&part: new}},
                });
                // Another manager created the field: the first apply takes it over.
                counters.patch(&self.object, &params.force(), &Patch::Apply(body)).await
            }
            _ => {
                let body = json!({"spec": {"parts": {&part: new}}});
                counters.patch(&self.object, &params, &Patch::Merge(body)).await
            }
        };
        match answer {
            Ok(written) => {
                // After a lost answer, a guard made from the old value fails; the stored value decides.
                self.writer.own = written.spec.parts.get(&part).copied().unwrap_or(new);
                Ok(true)
            }
            // Under the widest bursts the server's own loop can run out of time. The goal is stated, so it is stated
            // again.
            Err(kube::Error::Api(status)) if status.code == 504 => {
                let found = counters.get(&self.object).await?;
                self.writer.own = found.spec.parts.get(&part).copied().unwrap_or(old);
                Ok(found.spec.parts.get(&part) == Some(&new))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The write function as a user calls it. A user's closure states a goal and does not count; here every answer is
/// acknowledged or the run fails at the end, when the numbers differ.
async fn ours(counters: &Api<Counter>, object: &str, source: Source<'_, Counter>) -> Result<bool> {
    let options = WriteOptions::new("bench");
    let outcome = update(counters, object, |counter| {
        counter.spec.value += 1;
        UpdateDecision::Write
    })
    .with(&options)
    .from(source)
    .outcome();
    match outcome.await {
        Ok(_) => Ok(true),
        Err(WriteError::Exhausted { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// client-go's pattern: GET, change, PUT, under `retry_on_conflict`.
async fn pattern(counters: &Api<Counter>, object: &str, policy: &RetryPolicy) -> Result<bool> {
    let done = retry_on_conflict(policy, || async {
        let mut counter = counters.get(object).await?;
        counter.spec.value += 1;
        counters.replace(object, &PostParams::default(), &counter).await
    });
    match done.await {
        Ok(_) => Ok(true),
        Err(RetryError::Exhausted { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
