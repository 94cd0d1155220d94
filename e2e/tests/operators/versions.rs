//! What moves `resourceVersion` and what moves `generation`, on a real API server: the basis of everything else here.
//! No operator runs.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, bail, ensure};
use conflict_retry::freshness::{Expectations, Version, Watched};
use conflict_retry::{AttemptEvent, Class, Observer, Operation, Outcome, ReadSource, UpdateDecision};
use futures::StreamExt as _;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};
use shared_crds::NodePool;
use testbed::cluster::{Cluster, TestNamespace};
use testbed::wait::PATIENCE;
use testbed::{objects, tandem};

async fn cluster() -> &'static Cluster {
    tandem::definitions_only().await.unwrap()
}

/// A pool `x` with 2 replicas in its own namespace.
async fn pool() -> (Api<NodePool>, TestNamespace) {
    let namespace = cluster().await.namespace("versions").await.unwrap();
    let pools = Api::<NodePool>::namespaced(cluster().await.client().await.unwrap(), namespace.name());
    let mut pool = objects::pool("x", 1, 5);
    pool.spec.replicas = Some(2);
    pools.create(&PostParams::default(), &pool).await.unwrap();
    (pools, namespace)
}

/// The version and the generation of `x`.
async fn at(pools: &Api<NodePool>) -> (u64, i64) {
    let metadata = pools.get_metadata("x").await.unwrap().metadata;
    (metadata.resource_version.unwrap().parse().unwrap(), metadata.generation.unwrap())
}

/// The effect of a write: whether the version moved, and by how much the generation moved.
async fn effect_of(pools: &Api<NodePool>, write: impl AsyncFnOnce()) -> (bool, i64) {
    let before = at(pools).await;
    write().await;
    let after = at(pools).await;
    assert!(after.0 >= before.0, "a version never goes back");
    (after.0 > before.0, after.1 - before.1)
}

async fn merge(pools: &Api<NodePool>, patch: Value) {
    pools.patch("x", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_persisted_change_moves_the_version_and_only_spec_moves_the_generation() {
    let (pools, _namespace) = pool().await;
    let pools = &pools;
    let status = json!({"status": {"readyReplicas": 1}});
    let rows = [
        (
            "spec",
            effect_of(pools, async || merge(pools, json!({"spec": {"maxReplicas": 6}})).await).await,
            (true, 1),
        ),
        (
            "scale",
            effect_of(pools, async || {
                let patch = Patch::Merge(json!({"spec": {"replicas": 3}}));
                pools.patch_scale("x", &PatchParams::default(), &patch).await.unwrap();
            })
            .await,
            (true, 1),
        ),
        (
            "status",
            effect_of(pools, async || {
                pools.patch_status("x", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
            })
            .await,
            (true, 0),
        ),
        (
            "the same status again",
            effect_of(pools, async || {
                pools.patch_status("x", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
            })
            .await,
            (false, 0),
        ),
        (
            "label",
            effect_of(pools, async || merge(pools, json!({"metadata": {"labels": {"a": "b"}}})).await).await,
            (true, 0),
        ),
        (
            "finalizer",
            effect_of(pools, async || {
                merge(pools, json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
            })
            .await,
            (true, 0),
        ),
        (
            "the same spec again",
            effect_of(pools, async || merge(pools, json!({"spec": {"maxReplicas": 6}})).await).await,
            (false, 0),
        ),
        (
            "the same object put back",
            effect_of(pools, async || {
                let whole = pools.get("x").await.unwrap();
                pools.replace("x", &PostParams::default(), &whole).await.unwrap();
            })
            .await,
            (false, 0),
        ),
        (
            "deletion held by a finalizer",
            effect_of(pools, async || {
                let _ = pools.delete("x", &DeleteParams::default()).await.unwrap();
            })
            .await,
            (true, 1),
        ),
    ];
    for (write, measured, expected) in rows {
        assert_eq!(measured, expected, "{write}: (version moved, generation moved by)");
    }
    merge(pools, json!({"metadata": {"finalizers": null}})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_written_through_the_main_endpoint_is_dropped() {
    let (pools, _namespace) = pool().await;
    let effect =
        effect_of(&pools, async || merge(&pools, json!({"status": {"readyReplicas": 9}})).await).await;
    assert_eq!(effect, (false, 0));
    assert_eq!(pools.get("x").await.unwrap().status, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_of_an_old_copy_is_refused_whatever_changed_since() {
    let (pools, _namespace) = pool().await;
    let mut old = pools.get("x").await.unwrap();
    // Another endpoint, another field: all of them share one version.
    let status = Patch::Merge(json!({"status": {"readyReplicas": 1}}));
    pools.patch_status("x", &PatchParams::default(), &status).await.unwrap();
    old.spec.max_replicas = 9;
    let Err(kube::Error::Api(refusal)) = pools.replace("x", &PostParams::default(), &old).await else {
        panic!("a PUT of an old copy was accepted");
    };
    assert_eq!((refusal.code, refusal.reason.as_str()), (409, "Conflict"));
    assert!(refusal.message.contains("the object has been modified"), "{}", refusal.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_on_replicas_holds_against_replicas_and_not_against_status() {
    let (pools, namespace) = pool().await;
    let client = cluster().await.client().await.unwrap();
    let namespaced = Api::<NodePool>::namespaced(client, namespace.name());
    let options = conflict_retry::WriteOptions::new("versions-test");
    let seen = pools.get("x").await.unwrap();
    let base =
        || conflict_retry::Source::Copy(conflict_retry::ScaleView::of(&seen, seen.spec.replicas, None));
    // Status moves the version; the basis of the decision is unchanged, so the first attempt is granted.
    let status = Patch::Merge(json!({"status": {"readyReplicas": 1}}));
    pools.patch_status("x", &PatchParams::default(), &status).await.unwrap();
    let mut asked = Vec::new();
    let written = conflict_retry::scale(&namespaced, "x", |view| {
        asked.push(view.replicas);
        conflict_retry::ScaleDecision::Set(4)
    })
    .with(&options)
    .from(base())
    .outcome();
    assert!(matches!(written.await.unwrap(), Outcome::Written(_)));
    assert_eq!(asked, [Some(2)]);
    // The replicas have changed since `seen`: the guard fails, and the decision is made again from the current state.
    let mut asked = Vec::new();
    let written = conflict_retry::scale(&namespaced, "x", |view| {
        asked.push(view.replicas);
        conflict_retry::ScaleDecision::Set(view.replicas.unwrap() + 1)
    })
    .with(&options)
    .from(base())
    .outcome();
    assert!(matches!(written.await.unwrap(), Outcome::Written(_)));
    assert_eq!(asked, [Some(2), Some(4)]);
    assert_eq!(pools.get("x").await.unwrap().spec.replicas, Some(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_without_replicas_has_no_scale_to_read_and_can_be_scaled_all_the_same() {
    let namespace = cluster().await.namespace("versions").await.unwrap();
    let pools = Api::<NodePool>::namespaced(cluster().await.client().await.unwrap(), namespace.name());
    pools.create(&PostParams::default(), &objects::pool("x", 1, 5)).await.unwrap();
    // The server cannot build a Scale from it, and reports that as an internal error.
    let Err(kube::Error::Api(answer)) = pools.get_scale("x").await else {
        panic!("a Scale without replicas")
    };
    assert_eq!(answer.code, 500, "{answer:?}");
    // The operators' and users' ways work: a guarded write from "unset", and kubectl.
    let options = conflict_retry::WriteOptions::new("versions-test");
    let mut asked = Vec::new();
    let written = conflict_retry::scale(&pools, "x", |view| {
        asked.push(view.replicas);
        conflict_retry::ScaleDecision::Set(2)
    })
    .with(&options)
    .outcome();
    assert!(matches!(written.await.unwrap(), Outcome::Written(_)));
    assert_eq!(asked, [None]);
    assert_eq!(pools.get_scale("x").await.unwrap().spec.unwrap().replicas, Some(2));
    pools.create(&PostParams::default(), &objects::pool("y", 1, 5)).await.unwrap();
    let args = ["--namespace", namespace.name(), "scale", "npool/y", "--replicas=3"];
    cluster().await.kubectl(&args).await.unwrap();
    assert_eq!(pools.get("y").await.unwrap().spec.replicas, Some(3));
}

/// Where attempts took their object from, and how many of them conflicted.
#[derive(Default)]
struct Counts {
    watch: AtomicU32,
    live: AtomicU32,
    conflicts: AtomicU32,
}

impl Observer for Counts {
    fn attempt(&self, event: &AttemptEvent<'_>) {
        if event.class == Some(&Class::Conflict) {
            self.conflicts.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn read(&self, _operation: &Operation, source: ReadSource) {
        let count = if source == ReadSource::Watch { &self.watch } else { &self.live };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

const COUNT: &str = "example.com/count";

/// A writer with its own client and cache: adds one, `times` times, and reads its own write after each.
async fn add_ones(name: String, namespace: String, times: u32, counts: Arc<Counts>) -> anyhow::Result<()> {
    let pools = Api::<NodePool>::namespaced(cluster().await.client().await?, &namespace);
    let (store, mut writer) = reflector::store();
    let watched = Watched::new(store.clone(), Expectations::new("nodepools"));
    let (feed, events) = (watched.clone(), watcher(pools.clone(), watcher::Config::default()));
    let watching = tokio::spawn(async move {
        let mut events = std::pin::pin!(events.default_backoff());
        while let Some(event) = events.next().await {
            if let Ok(event) = event {
                writer.apply_watcher_event(&event);
                feed.observe(&event);
            }
        }
    });
    store.wait_until_ready().await?;
    let of = ObjectRef::<NodePool>::new("x").within(&namespace);
    let object = watched.object(of.clone());
    let options = conflict_retry::WriteOptions::new(name).with_observer(counts);
    for _ in 0..times {
        let outcome = conflict_retry::update(&pools, "x", |pool| {
            let annotations = pool.metadata.annotations.get_or_insert_default();
            let count: u32 = annotations.get(COUNT).map_or(0, |count| count.parse().unwrap());
            annotations.insert(COUNT.into(), (count + 1).to_string());
            UpdateDecision::Write
        })
        .put()
        .with(&options)
        .from(object.source())
        .outcome();
        let Outcome::Written(stored) = outcome.await? else { bail!("the update ended without a write") };
        let read = watched.fresh(&of, PATIENCE).await?.context("the pool is gone")?;
        let version = |pool: &NodePool| pool.metadata.resource_version.as_deref().and_then(Version::parse);
        ensure!(version(&read) >= version(&stored), "read {read:?} after writing {stored:?}");
    }
    watching.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_that_a_watch_feeds_lose_nothing_read_their_own_writes_and_seldom_the_server() {
    const WRITERS: u32 = 8;
    const EACH: u32 = 5;
    let (pools, namespace) = pool().await;
    let counts = Arc::new(Counts::default());
    let writers = (0..WRITERS).map(|number| {
        let (name, namespace) = (format!("writer-{number}"), namespace.name().to_owned());
        tokio::spawn(add_ones(name, namespace, EACH, Arc::clone(&counts)))
    });
    for writer in futures::future::join_all(writers).await {
        writer.unwrap().unwrap();
    }
    let annotations = pools.get("x").await.unwrap().metadata.annotations.unwrap();
    assert_eq!(annotations[COUNT], (WRITERS * EACH).to_string());
    let count = |count: &AtomicU32| count.load(Ordering::Relaxed);
    let (watch, live, conflicts) = (count(&counts.watch), count(&counts.live), count(&counts.conflicts));
    println!("{watch} attempts from the watch, {live} from a live read, {conflicts} conflicts");
    assert!(conflicts > 0, "no writer met a conflict, so nothing was shown");
    assert_eq!(watch + live, WRITERS * EACH + conflicts);
    assert!(live * 2 < watch, "{live} live reads beside {watch} from the watch");
}
