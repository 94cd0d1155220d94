//! Creations whose request or answer is lost: one object is made, and the outcome says what is known. The requests go through
//! a proxy, so they are compared with the audit log case by case.

use std::sync::Arc;
use std::time::Duration;

use conflict_retry::{WriteError, WriteOptions};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Config, ResourceExt as _};
use serde_json::json;
use testbed::lossy_proxy::{Loss, LossyProxy};

use crate::bench::{
    Bench, Counts, Ending, NAMESPACE, PATIENCE, SERVER_TIMEOUT, Table, colour, connect, typed,
};

/// How long a connection usually takes until it is free for the next request. Where it takes longer, on a busy machine, a new one is
/// opened, and its handshake is lost instead: the case is played again.
pub(crate) const BETWEEN_REQUESTS: Duration = Duration::from_millis(100);

/// How often a case is played at most.
pub(crate) const AGAIN: usize = 20;

/// An object to be created through the proxy, by a client of its own: the audit log tells its requests from all others.
struct Creation<'a> {
    bench: &'a Bench,
    agent: String,
    fresh: ConfigMap,
    maps: Api<ConfigMap>,
    counts: Arc<Counts>,
    options: WriteOptions,
    /// Where the audit log ended before.
    start: u64,
}

impl<'a> Creation<'a> {
    async fn new(bench: &'a Bench, proxy: &LossyProxy, call: &str, loss: Loss) -> Self {
        let name = format!("{call}-{loss:?}").to_lowercase();
        let agent = format!("lossy-{name}");
        let port = proxy.address().port();
        let url = |config: &mut Config| {
            config.cluster_url = format!("https://127.0.0.1:{port}").parse().unwrap();
        };
        let client = connect(bench.cluster.kubeconfig_path(), &agent, url).await;
        let counts = Arc::new(Counts::default());
        let options =
            WriteOptions::new("lossy").with_observer(counts.clone()).with_attempt_timeout(SERVER_TIMEOUT);
        Self {
            bench,
            agent,
            fresh: typed(json!({"metadata": {"name": name}, "data": {"k": "blue"}})),
            maps: Api::namespaced(client, NAMESPACE),
            counts,
            options,
            start: bench.cluster.audit_log().unwrap().end().unwrap(),
        }
    }

    /// The object as it is stored.
    async fn stored(&self) -> Option<ConfigMap> {
        self.bench.set_up::<ConfigMap>().get_opt(&self.fresh.name_any()).await.unwrap()
    }

    /// The requests that have reached the API server, writes with its answer, once they are as many as `wanted` has.
    async fn reached(&self, wanted: &str) -> String {
        let count = wanted.split(' ').count();
        let audit = self.bench.cluster.audit_log().unwrap();
        let reached = audit.wait_for(self.start, PATIENCE, "the audit log is complete", |events| {
            let mut ours: Vec<_> = events.iter().filter(|event| event.user_agent == self.agent).collect();
            // Of two requests, the later one may be logged first.
            ours.sort_by_key(|event| event.received);
            let seen: Vec<_> = ours
                .iter()
                .map(|event| {
                    let code = if event.is_write() { format!(":{}", event.code) } else { String::new() };
                    format!("{}{code}", event.verb)
                })
                .collect();
            (seen.len() >= count).then(|| seen.join(" "))
        });
        reached.await.unwrap()
    }
}

/// `create_or_update` looks up what became of its creation before it repeats it.
pub(crate) async fn ensured(bench: &Bench, table: &mut Table) {
    let proxy = LossyProxy::start(0, bench.server()).await.unwrap();
    let looked_up = "get!not_found create!ambiguous get";
    let repeated = "get!not_found create!ambiguous get!not_found create";
    for (loss, ending, requests, at_the_server) in [
        (Loss::Request, "written", repeated, "get get create:201"),
        (Loss::Answer, "already_done", looked_up, "get create:201 get"),
        (Loss::SilentAnswer, "already_done", looked_up, "get create:201 get"),
    ] {
        let mut again = 0;
        let (case, outcome) = loop {
            let case = Creation::new(bench, &proxy, &format!("ensured-{again}"), loss).await;
            let mut is_first = true;
            let change = |map: &mut ConfigMap| {
                // Between the read that finds nothing and the creation.
                if std::mem::take(&mut is_first) {
                    std::thread::sleep(BETWEEN_REQUESTS);
                    proxy.lose(loss);
                }
                colour(map)
            };
            let outcome = conflict_retry::create_or_update(&case.maps, &case.fresh, change)
                .with(&case.options)
                .outcome()
                .await;
            assert!(proxy.has_lost());
            if !proxy.has_lost_a_handshake() {
                break (case, outcome);
            }
            again += 1;
            assert!(again < AGAIN, "each time the connection was not free yet");
        };
        let (found, sent) = (outcome.ending(), case.counts.take());
        let stored = case.stored().await.unwrap();
        let right = (&*found, &*sent) == (ending, requests)
            && outcome.unwrap().met().is_some_and(|met| met.metadata == stored.metadata);
        table.check(&format!("lost {loss:?}: create_or_update -> {found} by {sent}"), right);
        let reached = case.reached(at_the_server).await;
        table.check(&format!("the server saw: {reached}"), reached == at_the_server);
    }
}

/// `once::create` says that it does not know. Called again, it creates what is missing, or finds what it has created.
pub(crate) async fn created_once(bench: &Bench, table: &mut Table) {
    let proxy = LossyProxy::start(0, bench.server()).await.unwrap();
    let found_there = ("error: already_exists", "create!already_exists");
    for (loss, again, at_the_server) in [
        (Loss::Request, ("created", "create"), "get create:201"),
        (Loss::Answer, found_there, "get create:201 create:409"),
        (Loss::SilentAnswer, found_there, "get create:201 create:409"),
    ] {
        let mut lost = 0;
        let (case, outcome) = loop {
            let case = Creation::new(bench, &proxy, &format!("created-{lost}"), loss).await;
            // The same connection is used again: the creation is lost, not a handshake.
            assert!(case.maps.get_opt(&case.fresh.name_any()).await.unwrap().is_none());
            tokio::time::sleep(BETWEEN_REQUESTS).await;
            proxy.lose(loss);
            let outcome = conflict_retry::once::create(&case.maps, &case.options, &case.fresh).await;
            assert!(proxy.has_lost());
            if !proxy.has_lost_a_handshake() {
                break (case, outcome);
            }
            lost += 1;
            assert!(lost < AGAIN, "each time the connection was not free yet");
        };
        let (found, sent) = (outcome.ending(), case.counts.take());
        let right = (&*found, &*sent) == ("error: unknown", "create!ambiguous")
            && outcome.is_err_and(|error| error.maybe_written());
        table.check(&format!("lost {loss:?}: create -> {found}, maybe written, by {sent}"), right);
        let first = case.stored().await;
        table.check("only a lost answer has left it", first.is_some() == (loss != Loss::Request));

        let outcome = conflict_retry::once::create(&case.maps, &case.options, &case.fresh).await;
        let (found, sent) = (outcome.ending(), case.counts.take());
        let is_own = outcome.as_ref().is_err_and(WriteError::is_already_exists) == first.is_some();
        let right = (&*found, &*sent) == again && is_own;
        table.check(&format!("create again -> {found} by {sent}"), right);
        let stored = case.stored().await.unwrap();
        let same = first.is_none_or(|first| first.metadata == stored.metadata);
        table.check("there is one object, as it was created", same);
        let reached = case.reached(at_the_server).await;
        table.check(&format!("the server saw: {reached}"), reached == at_the_server);
    }
}
