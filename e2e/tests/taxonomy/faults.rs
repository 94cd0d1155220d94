//! Requests that fail without a definite answer: throttled, timed out, lost answers, a server that goes away.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use conflict_retry::{
    Class, Outcome, RetryPolicy, Subresource, UpdateDecision, Verb, WriteError, WriteOptions,
};
use futures::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{
    DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, VersionMatch, WatchEvent,
    WatchParams,
};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::{Value, json};
use shared_crds::NodePool;
use testbed::control_plane::ports::free_port;
use testbed::frozen::FrozenProcess;
use testbed::lossy_proxy::{Loss, LossyProxy};
use testbed::wait::eventually;

use crate::bench::{
    AGENT, Bench, Counts, Ending, FUTURE, GIVEN_UP, NAMESPACE, PATIENCE, SERVER_TIMEOUT, Table, applied,
    cached, colour, connect, grow, make, typed,
};
use crate::creations::{AGAIN, BETWEEN_REQUESTS};
use crate::refused::dynamic;

/// Too many requests: priority and fairness with room for one request, which is taken.
pub(crate) async fn throttled(bench: &Bench, table: &mut Table) {
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
    // The wait for a future version takes 3 s, and the only seat. Other errors are not about the seat: the API server may not know the
    // account's rights yet.
    let take_the_seat = async || {
        eventually(PATIENCE, "the seat is taken", async || {
            let sitter = crowd.clone();
            let sitting = tokio::spawn(async move { sitter.get_with("busy", &GetParams::at(FUTURE)).await });
            while !sitting.is_finished() {
                match crowd.get("busy").await {
                    Err(kube::Error::Api(status)) if status.code == 429 => {
                        return Ok(Some((sitting, kube::Error::Api(status))));
                    }
                    Err(error) => bail!("{error}"),
                    Ok(_) => {}
                }
            }
            bail!("no request was turned away")
        })
        .await
        .unwrap()
    };
    let pools = &Api::<NodePool>::namespaced(connect(&account, AGENT, |_| {}).await, NAMESPACE);
    let (mut sitting, turned_away) = take_the_seat().await;
    // The server sends `Retry-After: 1` in a header, and kube's client drops it.
    let class = Class::Throttled { retry_after: None };
    table.answer("no seat (priority and fairness)", Verb::Get, Err::<(), _>(turned_away), 429, &class);
    let once = &table.once();
    let counts = &table.counts.clone();
    let call = async {
        loop {
            let outcome = conflict_retry::update(pools, "busy", grow).put().with(once).outcome().await;
            if !sitting.is_finished() {
                return outcome;
            }
            // The machine was so busy that the seat became free before: once more.
            (sitting, _) = take_the_seat().await;
            counts.take();
        }
    };
    table.call("update, one attempt allowed", call, "error: exhausted(throttled)", "get!throttled").await;
    let body = applied("busy", &json!({"status": {"readyReplicas": 1}}));
    let call = async {
        loop {
            let outcome = conflict_retry::apply_status(pools, "busy", &body).with(once).outcome().await;
            if !sitting.is_finished() {
                return outcome;
            }
            (sitting, _) = take_the_seat().await;
            counts.take();
        }
    };
    table
        .call("apply_status, one attempt allowed", call, "error: exhausted(throttled)", "apply!throttled")
        .await;
    let answer = sitting.await.unwrap();
    table.answer("a version of the future, GET", Verb::Get, answer, 504, &Class::Ambiguous);

    let options = &table.options();
    let (outcome, sent) = loop {
        let (sitting, _) = take_the_seat().await;
        counts.take();
        let outcome = conflict_retry::update(pools, "busy", grow).put().with(options).outcome().await;
        let sent = counts.take();
        let turned_away = sent.starts_with("get!throttled");
        let was_free = sitting.is_finished() && !turned_away;
        let _ = sitting.await.unwrap();
        if !was_free {
            break (outcome, sent);
        }
    };
    let rejected = sent.split(' ').take_while(|request| *request == "get!throttled").count();
    table.check(&format!("update: {} by {sent}", outcome.ending()), {
        matches!(outcome, Ok(Outcome::Written(_))) && rejected > 0 && sent.ends_with("get!throttled get put")
    });
}

/// A pod that one `PodDisruptionBudget` selects, one that two select, and one that none selects.
pub(crate) async fn evictions(bench: &Bench, table: &mut Table) {
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
    let call = conflict_retry::once::evict(watched, "held", options, None);
    table.call("evict", call, &format!("blocked({asked:?})"), "evict!throttled").await;
    budget.status = Some(typed(json!({
        "observedGeneration": budget.metadata.generation,
        "currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1,
    })));
    budgets.replace_status("all", &PostParams::default(), &budget).await.unwrap();
    let class = Class::Throttled { retry_after: None };
    table.answer("a budget without room, eviction", Verb::Evict, evict("held").await, 429, &class);
    let call = conflict_retry::once::evict(watched, "held", options, None);
    table.call("evict", call, "blocked(None)", "evict!throttled").await;
    let second = json!({"metadata": {"name": "too"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "held"}}}});
    make(budgets, second).await;
    table.answer("two budgets, eviction", Verb::Evict, evict("held").await, 500, &Class::Other);
    let call = conflict_retry::once::evict(watched, "held", options, None);
    table.call("evict", call, "error: other", "evict!other").await;
    let call = conflict_retry::once::evict(watched, "free", options, None);
    table.call("evict of a pod that no budget holds", call, "evicted", "evict").await;
}

/// Versions that the API server no longer has. The write functions never request one.
pub(crate) async fn expired(bench: &Bench, table: &mut Table) {
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
pub(crate) async fn unavailable(bench: &Bench, table: &mut Table) {
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
    let things = &dynamic(&bench.observed, NAMESPACE, "nowhere.example.com", "Thing", "things");
    let body = json!({"apiVersion": "nowhere.example.com/v1", "kind": "Thing", "metadata": {"name": "x"}});
    let few = &table.options().with_policy(RetryPolicy::default().with_max_attempts(3.try_into().unwrap()));
    let call = conflict_retry::apply(things, "x", &body).with(few).outcome();
    // A write's 503 in plain text could come from any proxy, so it leaves open whether the write was executed.
    let requests = "apply!ambiguous apply!ambiguous apply!ambiguous";
    table.call("apply, three attempts allowed", call, "error: exhausted(ambiguous)", requests).await;
    let call = conflict_retry::update(things, "x", |_| UpdateDecision::Write).put().with(few).outcome();
    let requests = "get!transient get!transient get!transient";
    table.call("update, three attempts allowed", call, "error: exhausted(transient)", requests).await;
    let operations = json!([{"op": "add", "path": "/spec/paused", "value": true}]);
    let call = conflict_retry::once::json_patch(things, "x", Subresource::Main, few, &operations);
    table.call("json_patch", call, "error: unknown", "json_patch!ambiguous").await;
    let _ = services.delete("v1.nowhere.example.com", &DeleteParams::default()).await.unwrap();
}

/// A webhook that is down, and one that hangs: the API server gives up on the webhook, or on the request.
pub(crate) async fn webhooks(bench: &Bench, table: &mut Table) {
    // The kernel accepts the connection; no process ever answers.
    let deaf = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let hangs = deaf.local_addr().unwrap().port();
    // The listener is dropped at once, so the port refuses.
    let closed_port = free_port().unwrap();
    let hook = |name: &str, seconds: u64, port: u16| {
        json!({
            "name": format!("{name}.example.com"),
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": seconds,
            "clientConfig": {"url": format!("https://127.0.0.1:{port}/")},
            "objectSelector": {"matchLabels": {"hook": name}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}],
        })
    };
    let hooks = Api::<ValidatingWebhookConfiguration>::all(bench.admin.clone());
    let webhooks = json!([hook("short", 1, hangs), hook("long", 30, hangs), hook("dead", 10, closed_port)]);
    make(&hooks, json!({"metadata": {"name": "taxonomy"}, "webhooks": webhooks})).await;
    let maps = &bench.set_up::<ConfigMap>();
    let of =
        |name: &str| -> ConfigMap { typed(json!({"metadata": {"name": name, "labels": {"hook": name}}})) };
    let answer = eventually(PATIENCE, "the webhook is called", async || {
        Ok(maps.create(&PostParams { dry_run: true, ..PostParams::default() }, &of("short")).await.err())
    });
    let answer = answer.await.unwrap();
    let class = Class::Transient { retry_after: None };
    table.answer("a webhook that hangs, POST", Verb::Create, Err::<(), _>(answer), 500, &class);
    let patient = &table.options().with_attempt_timeout(SERVER_TIMEOUT * 2);
    let watched = &bench.watched::<ConfigMap>();
    let call = async { conflict_retry::once::create(watched, patient, &of("short")).await };
    table.call("create", call, "error: transient", "create!transient").await;

    let answer = maps.create(&PostParams::default(), &of("dead")).await;
    table.answer("a webhook that is down, POST", Verb::Create, answer, 500, &class);
    let call = async { conflict_retry::once::create(watched, patient, &of("dead")).await };
    table.call("create", call, "error: transient", "create!transient").await;
    // The webhook is asked about this one from now on.
    let map = bench.map("labelled").await;
    let label = |map: &mut ConfigMap| {
        map.labels_mut().insert("hook".to_owned(), "dead".to_owned());
        UpdateDecision::Write
    };
    let few = &table.options().with_policy(RetryPolicy::default().with_max_attempts(2.try_into().unwrap()));
    let call =
        conflict_retry::update(watched, "labelled", label).put().with(few).from(cached(&map)).outcome();
    let requests = "put!transient get put!transient";
    table.call("update, two attempts allowed", call, "error: exhausted(transient)", requests).await;

    let answer = maps.create(&PostParams::default(), &of("long")).await;
    table.answer(
        "a webhook that outlasts the request, POST",
        Verb::Create,
        answer,
        GIVEN_UP,
        &Class::Ambiguous,
    );
    let call = async { conflict_retry::once::create(watched, patient, &of("long")).await };
    table.call("create", call, "error: unknown", "create!ambiguous").await;
    let _ = hooks.delete("taxonomy", &DeleteParams::default()).await.unwrap();
    for name in ["short", "dead", "long"] {
        table.check(&format!("{name}: nothing was created"), maps.get_opt(name).await.unwrap().is_none());
    }
    let after = maps.get("labelled").await.unwrap();
    table.check("nothing was changed", after.resource_version() == map.resource_version());
}

/// An etcd that is full: it refuses every write that needs room.
pub(crate) async fn full(bench: &Bench, table: &mut Table) {
    use Class::StorageFull;
    let address = bench.cluster.etcd().unwrap().parse().unwrap();
    let etcd = &Client::try_from(Config::new(address)).unwrap();
    // etcd itself raises this alarm when it exceeds its quota, and it is the alarm that makes it refuse.
    let alarm = async |action: &str| {
        let body = json!({"action": action, "alarm": "NOSPACE"}).to_string().into_bytes();
        let request = http::Request::post("/v3/maintenance/alarm").body(body).unwrap();
        etcd.request::<Value>(request).await.unwrap();
    };
    let (map, _) = (bench.map("full").await, bench.map("spare").await);
    let mut changed = map.clone();
    let _ = colour(&mut changed);
    let fresh: ConfigMap = typed(json!({"metadata": {"name": "fresh"}}));
    let (maps, watched) = (&bench.set_up::<ConfigMap>(), &bench.watched::<ConfigMap>());
    let (options, post) = (&table.options(), &PostParams::default());

    alarm("ACTIVATE").await;
    table.answer("a full store, POST", Verb::Create, maps.create(post, &fresh).await, 500, &StorageFull);
    let call = conflict_retry::once::create(watched, options, &fresh);
    table.call("create", call, "error: storage_full", "create!storage_full").await;
    table.answer(
        "a full store, PUT",
        Verb::Put,
        maps.replace("full", post, &changed).await,
        500,
        &StorageFull,
    );
    let call =
        conflict_retry::update(watched, "full", colour).put().with(options).from(cached(&map)).outcome();
    table.call("update", call, "error: storage_full", "put!storage_full").await;
    // A deletion needs no room.
    let params = DeleteParams::default();
    let call = conflict_retry::once::delete(watched, "spare", options, &params);
    table.call("delete", call, "deleted", "delete").await;
    alarm("DEACTIVATE").await;
    table.check("nothing was created", maps.get_opt("fresh").await.unwrap().is_none());
    let call =
        conflict_retry::update(watched, "full", colour).put().with(options).from(cached(&map)).outcome();
    table.call("update, when there is room again", call, "written", "put").await;
}

/// An `update` through a proxy that loses something of it, by a client of its own.
struct LossyUpdate {
    name: String,
    agent: String,
    /// Where the audit log ended before.
    start: u64,
    outcome: Result<Outcome<ConfigMap>, WriteError>,
}

impl LossyUpdate {
    async fn play(
        bench: &Bench,
        proxy: &LossyProxy,
        options: &WriteOptions,
        loss: Loss,
        number: usize,
    ) -> Self {
        let name = format!("{loss:?}-{number}").to_lowercase();
        let map = bench.map(&name).await;
        let agent = format!("lossy-{name}");
        let port = proxy.address().port();
        let url = |config: &mut Config| {
            config.cluster_url = format!("https://127.0.0.1:{port}").parse().unwrap();
        };
        let client = connect(bench.cluster.kubeconfig_path(), &agent, url).await;
        let maps = Api::<ConfigMap>::namespaced(client, NAMESPACE);
        let audit = bench.cluster.audit_log().unwrap();
        let before = audit.end().unwrap();
        // The same connection is used again: the write is lost, not a handshake.
        maps.get(&name).await.unwrap();
        // The read may be logged after its answer, and is none of the requests that are compared.
        let is_logged = audit.wait_for(before, PATIENCE, "the read is in the audit log", |events| {
            events.iter().any(|event| event.user_agent == agent).then_some(())
        });
        is_logged.await.unwrap();
        let start = audit.end().unwrap();
        proxy.lose(loss);
        let outcome = conflict_retry::update(&maps, &name, colour)
            .put()
            .with(options)
            .from(cached(&map))
            .outcome()
            .await;
        assert!(proxy.has_lost());
        Self { name, agent, start, outcome }
    }
}

/// Answers that are lost, and a server that is down. Requests here go through a proxy, so they are compared with the
/// audit log case by case.
pub(crate) async fn lost(bench: &Bench, table: &mut Table) {
    let audit = bench.cluster.audit_log().unwrap();
    let proxy = LossyProxy::start(free_port().unwrap(), bench.server()).await.unwrap();
    let port = proxy.address().port();
    let url = |config: &mut Config| {
        config.cluster_url = format!("https://127.0.0.1:{port}").parse().unwrap();
    };
    // Long enough for a write on a busy machine, short enough to wait for.
    let timeout = SERVER_TIMEOUT;
    let counts = Arc::new(Counts::default());
    let options = &WriteOptions::new("lossy").with_observer(counts.clone()).with_attempt_timeout(timeout);
    let rows = [
        (Loss::Request, "written", "put!ambiguous get put", "get update:200"),
        (Loss::Answer, "already_done", "put!ambiguous get", "update:200 get"),
        (Loss::SilentAnswer, "already_done", "put!ambiguous get", "update:200 get"),
    ];
    for (loss, ending, requests, at_the_server) in rows {
        let mut again = 0;
        let LossyUpdate { name, agent, start, outcome } = loop {
            let update = LossyUpdate::play(bench, &proxy, options, loss, again).await;
            if !proxy.has_lost_a_handshake() {
                break update;
            }
            counts.take();
            again += 1;
            assert!(again < AGAIN, "each time the connection was not free yet");
        };
        let (found, sent) = (outcome.ending(), counts.take());
        let stored = bench.set_up::<ConfigMap>().get(&name).await.unwrap();
        let right = (found.as_str(), sent.as_str()) == (ending, requests)
            && stored.data.as_ref().is_some_and(|data| data["k"] == "blue")
            && outcome.unwrap().met().is_some_and(|met| met.resource_version() == stored.resource_version());
        table.check(&format!("lost {loss:?}: update -> {found} by {sent}"), right);
        let reached = audit
            .wait_for(start, PATIENCE, "the audit log is complete", |events| {
                let mut ours: Vec<_> = events.iter().filter(|event| event.user_agent == agent).collect();
                // Of two requests, the later one may be logged first.
                ours.sort_by_key(|event| event.received);
                let seen: Vec<_> = ours
                    .iter()
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
    let mut again = 0;
    let answer = loop {
        maps.get("once").await.unwrap();
        tokio::time::sleep(BETWEEN_REQUESTS).await;
        proxy.lose(Loss::Answer);
        let answer = maps.replace("once", &PostParams::default(), &changed).await;
        if !proxy.has_lost_a_handshake() {
            break answer;
        }
        again += 1;
        assert!(again < AGAIN, "each time the connection was not free yet");
    };
    table.answer("a lost answer, PUT", Verb::Put, answer, 0, &Class::Ambiguous);
    changed = bench.set_up().get("once").await.unwrap();
    table.check("the write was carried out", changed.data.as_ref().is_some_and(|data| data["k"] == "blue"));
    // The connection went with that answer: without another read, the handshake of a new one would be lost.
    again = 0;
    let outcome = loop {
        maps.get("once").await.unwrap();
        tokio::time::sleep(BETWEEN_REQUESTS).await;
        proxy.lose(Loss::Answer);
        let outcome = conflict_retry::once::put(&maps, "once", Subresource::Main, options, &changed).await;
        if !proxy.has_lost_a_handshake() {
            break outcome;
        }
        counts.take();
        again += 1;
        assert!(again < AGAIN, "each time the connection was not free yet");
    };
    let (found, sent) = (outcome.ending(), counts.take());
    table.check(
        &format!("put_once: {found} by {sent}"),
        (&*found, &*sent) == ("error: unknown", "put!ambiguous"),
    );

    // Nothing was sent, but the error does not show that: it counts as in doubt, which costs only a read.
    let cold = connect(bench.cluster.kubeconfig_path(), "lossy-cold", url).await;
    proxy.lose(Loss::Request);
    let answer =
        Api::<ConfigMap>::namespaced(cold, NAMESPACE).replace("once", &PostParams::default(), &changed).await;
    assert!(proxy.has_lost_a_handshake());
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
    let outcome = conflict_retry::update(&maps, "once", colour).put().with(&few).outcome().await;
    let (found, sent) = (outcome.ending(), counts.take());
    let wanted = ("error: exhausted(transient)", "get!transient get!transient");
    table.check(&format!("update, two attempts allowed: {found} by {sent}"), (&*found, &*sent) == wanted);
    let back = async {
        eventually(PATIENCE, "the update has been refused", async || {
            Ok(counts.seen().contains("put!transient").then_some(()))
        })
        .await
        .unwrap();
        LossyProxy::start(port, bench.server()).await.unwrap()
    };
    let mut base = changed.clone();
    base.data.get_or_insert_default().insert("k".to_owned(), "red".to_owned());
    let (outcome, _proxy) = tokio::join!(
        conflict_retry::update(&maps, "once", |map| {
            map.data.get_or_insert_default().insert("k".to_owned(), "green".to_owned());
            UpdateDecision::Write
        })
        .put()
        .with(options)
        .from(cached(&base))
        .outcome(),
        back
    );
    let (found, sent) = (outcome.ending(), counts.take());
    let right = found == "written" && sent.starts_with("put!transient") && sent.ends_with(" get put");
    table.check(&format!("update, until it is back: {found} by {sent}"), right);
}

/// A frozen etcd: the API server gives the request up, and the transaction that it has sent may still be executed.
pub(crate) async fn frozen(bench: &Bench, table: &mut Table) {
    let (_, etcd) = bench.cluster.pids().into_iter().find(|(name, _)| name == "etcd").unwrap();
    let map = bench.map("frozen").await;
    let mut changed = map.clone();
    let _ = colour(&mut changed);
    let maps = bench.set_up::<ConfigMap>();
    let frozen = FrozenProcess::freeze(etcd).await.unwrap();
    let answer = maps.replace("frozen", &PostParams::default(), &changed).await;
    table.answer("a store that does not answer, PUT", Verb::Put, answer, GIVEN_UP, &Class::Ambiguous);
    frozen.resume().unwrap();
    let after =
        eventually(PATIENCE, "etcd is back", async || Ok(Some(maps.get("frozen").await?))).await.unwrap();
    let done = after.resource_version() != map.resource_version();
    table
        .lines
        .push(format!("    (the PUT that was given up was {}carried out)", if done { "" } else { "not " }));

    let base = after;
    let counts = Arc::new(Counts::default());
    let options = &WriteOptions::new("frozen")
        .with_observer(counts.clone())
        .with_attempt_timeout(SERVER_TIMEOUT * 2)
        .with_policy(RetryPolicy::default().with_deadline(Some(PATIENCE * 2)));
    let client = connect(bench.cluster.kubeconfig_path(), "frozen", |_| {}).await;
    let watched = Api::<ConfigMap>::namespaced(client, NAMESPACE);
    let frozen = FrozenProcess::freeze(etcd).await.unwrap();
    let thaw = async {
        eventually(PATIENCE, "the PUT is given up", async || {
            Ok(counts.seen().contains("put!ambiguous").then_some(()))
        })
        .await
        .unwrap();
        frozen.resume().unwrap();
    };
    let (outcome, ()) = tokio::join!(
        conflict_retry::update(&watched, "frozen", |map| {
            map.data.get_or_insert_default().insert("k".to_owned(), "green".to_owned());
            UpdateDecision::Write
        })
        .put()
        .with(options)
        .from(cached(&base))
        .outcome(),
        thaw
    );
    let (found, sent) = (outcome.ending(), counts.take());
    let stored = maps.get("frozen").await.unwrap();
    let met = stored.data.as_ref().is_some_and(|data| data["k"] == "green");
    let right =
        sent.starts_with("put!ambiguous") && ["written", "already_done"].contains(&found.as_str()) && met;
    table.check(&format!("update: {found} by {sent}"), right);
}

/// An etcd that dies in the middle of two writes. Nothing here is usable after that.
pub(crate) async fn killed(bench: &Bench, table: &mut Table) {
    let (_, etcd) = bench.cluster.pids().into_iter().find(|(name, _)| name == "etcd").unwrap();
    let map = bench.map("killed").await;
    let mut changed = map.clone();
    let _ = colour(&mut changed);
    let maps = &bench.set_up::<ConfigMap>();
    let counts = Arc::new(Counts::default());
    let two = RetryPolicy::default().with_max_attempts(2.try_into().unwrap());
    let options = &WriteOptions::new("killed").with_observer(counts.clone()).with_policy(two);
    let client = connect(bench.cluster.kubeconfig_path(), "killed", |_| {}).await;
    let watched = &Api::<ConfigMap>::namespaced(client, NAMESPACE);
    let frozen = FrozenProcess::freeze(etcd).await.unwrap();
    let death = async {
        // Both writes are with etcd by then. If they were not, the API server would give them up for another reason,
        // with the same meaning: no row depends on it.
        tokio::time::sleep(Duration::from_secs(1)).await;
        frozen.kill().unwrap();
    };
    let params = PostParams::default();
    let (answer, outcome, ()) = tokio::join!(
        maps.replace("killed", &params, &changed),
        conflict_retry::update(watched, "killed", colour).put().with(options).from(cached(&map)).outcome(),
        death
    );
    table.answer("a store that dies, PUT", Verb::Put, answer, GIVEN_UP, &Class::Ambiguous);
    let (found, sent) = (outcome.ending(), counts.take());
    let wanted = ("error: exhausted(ambiguous)", "put!ambiguous get!ambiguous");
    let right = (&*found, &*sent) == wanted && outcome.unwrap_err().maybe_written();
    table.check(&format!("update, two attempts allowed: {found}, maybe written, by {sent}"), right);
}

/// An API server that is stopped and started.
pub(crate) async fn restarted(bench: &Bench, table: &mut Table) {
    let map = bench.map("restarted").await;
    let counts = Arc::new(Counts::default());
    let patient = RetryPolicy::default().with_deadline(Some(PATIENCE * 2));
    let options = &WriteOptions::new("restarted").with_observer(counts.clone()).with_policy(patient);
    let client = connect(bench.cluster.kubeconfig_path(), "restarted", |_| {}).await;
    let maps = &Api::<ConfigMap>::namespaced(client, NAMESPACE);
    bench.cluster.stop_api_server().await.unwrap();
    let (outcome, started) = tokio::join!(
        conflict_retry::update(maps, "restarted", colour).put().with(options).from(cached(&map)).outcome(),
        bench.cluster.start_api_server()
    );
    started.unwrap();
    let (found, sent) = (outcome.ending(), counts.take());
    let right = found == "written" && sent.starts_with("put!transient") && sent.ends_with(" get put");
    table.lines.push("an API server that is stopped and started".to_owned());
    table.check(&format!("update: {found} by {sent}"), right);
}
