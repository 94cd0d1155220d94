//! What a failed list blocks, and what an unreadable node blocks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use machine_providers::provisioner::Provisioner;
use machine_providers::testing::{Scripted, ScriptedAnswer, answer, running};
use machine_providers::{Deletion, MachineRequest, Progress, ProviderError};
use node_lifecycle::supply::{Machine, MachineState};
use node_lifecycle::testing::{
    at, cluster, draining, key, machine, node, pod, pool, shared, slot, supply, with_action,
};
use node_lifecycle::{Classified, NodeAction, PoolStep, classify, plan};
use serde_json::{Value, json};
use shared_crds::v1alpha1::DrainSpec;
use shared_runtime::clock::FakeClock;
use shared_runtime::controller::Step;

use super::*;
use crate::pod_reads::{FAILURES_LIMIT, ReadsEnd, choose, pods};
use crate::reconcile::reconcile;
use crate::testing::{TestContext, failure, success};

/// A server with these nodes. `pods(node)` are a node's pods, or `None` for an error.
fn server(nodes: Vec<Node>, mut pods: impl FnMut(&str) -> Option<Vec<Pod>> + Send + 'static) -> TestContext {
    TestContext::new(move |path, _| {
        if let Some((_, node)) = path.split_once("/pods?&fieldSelector=spec.nodeName%3D") {
            return match pods(node) {
                Some(pods) => {
                    (200, json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods }))
                }
                None => failure(429, "TooManyRequests", "too many requests, please try again later"),
            };
        }
        if path.starts_with("/api/v1/nodes?") {
            return (200, json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": nodes }));
        }
        success_for(path)
    })
}

/// The answer to a write.
fn success_for(path: &str) -> (u16, Value) {
    match path.strip_prefix("/api/v1/nodes/") {
        Some(_) => (200, serde_json::to_value(node(9)).unwrap()),
        None if path.contains("/nodepools/") => {
            let mut written = pool(0);
            written.metadata.resource_version = Some("2".into());
            (200, serde_json::to_value(written).unwrap())
        }
        None => success(),
    }
}

fn lines(requests: &[String], verb: &str, part: &str) -> Vec<String> {
    requests.iter().filter(|line| line.starts_with(verb) && line.contains(part)).cloned().collect()
}

/// The steps of a pass before its plan is made.
async fn read(test: &TestContext) -> (Observed, Classified, ObservedPods) {
    let Seen { observed, .. } = observe(&test.ctx, &key()).await.unwrap().unwrap();
    let mut classified = classify(&observed);
    choose(&test.ctx, &observed, &mut classified);
    let pods = pods(&test.ctx, &observed, &classified.reads, ReadsEnd::from_now(&test.ctx)).await;
    (observed, classified, pods)
}

#[tokio::test]
async fn a_failed_list_blocks_its_own_node_and_no_other() {
    let nodes: Vec<Node> = (0..10).map(|index| draining(index, -100)).collect();
    let test = server(nodes, |node| (node != "n-003").then(|| vec![pod(&format!("on-{node}"))]));
    let test = test.with_pool(pool(0));
    let (_, _, pods) = read(&test).await;
    assert!(pods.is_incomplete && !pods.by_node.contains_key("n-003"));
    assert_eq!(pods.by_node.len(), 9);

    // The test's cache of nodes is empty, so they are read live again.
    test.ctx.invalidate(&key());
    let (ctx, requests) = test.into_parts();
    let step = reconcile(ctx, key()).await.unwrap();
    assert!(matches!(step, Step::ContinueAfter(delay) if delay <= Duration::from_secs(2)), "{step:?}");
    let evictions = lines(&requests(), "POST", "/eviction");
    assert_eq!(evictions.len(), 9, "{evictions:?}");
    assert!(evictions.iter().all(|line| !line.contains("on-n-003")));
}

#[tokio::test]
async fn where_no_pods_can_be_listed_few_are_asked_for_and_less_and_less_often() {
    let test = server((0..60).map(node).collect(), |_| None).with_pool(pool(0));
    let time = test.time.clone();
    let (ctx, requests) = test.into_parts();
    for (passes, expected) in [(1, 2), (2, 4), (3, 8), (4, 15), (5, 15)] {
        // The test's cache of nodes is empty, so they are read live again.
        ctx.invalidate(&key());
        let step = reconcile(Arc::clone(&ctx), key()).await.unwrap();
        // The first one writes the status.
        assert_eq!(step, Step::RequeueAfter(Duration::from_secs(expected)));
        let lists = lines(&requests(), "GET", "/pods?");
        assert!(lists.len() <= passes * FAILURES_LIMIT, "{} lists in {passes} passes", lists.len());
        time.advance(Duration::from_secs(expected));
    }
}

#[tokio::test]
async fn a_node_is_not_removed_on_an_old_list_when_the_live_one_fails() {
    let mut answers = 0;
    let test = server(vec![draining(0, -100)], move |_| {
        answers += 1;
        (answers == 1).then(Vec::new)
    });
    let test = test.with_pool(pool(0));
    // Some time later: the margin since the node was cordoned has passed.
    read(&test).await;
    test.time.advance(Duration::from_secs(60));
    test.ctx.drains.record_list("n-000", &shared(vec![]));
    test.ctx.invalidate(&key());
    let (observed, classified, pods) = read(&test).await;
    assert!(observed.recent.of("n-000").is_some() && pods.is_incomplete);
    assert_eq!(with_action(&plan(&observed, classified, &pods), &NodeAction::Remove), Vec::<String>::new());
    assert!(lines(&test.requests(), "DELETE", "nodes").is_empty());
}

#[tokio::test]
async fn a_node_whose_last_pod_is_given_up_is_not_removed_on_an_old_list_either() {
    let mut ending = pod("db");
    ending.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let mut timed = pool(0);
    timed.spec.drain = Some(DrainSpec { timeout_seconds: Some(1), ..DrainSpec::default() });
    let test = server(vec![draining(0, -100)], move |_| Some(vec![ending.clone()])).with_pool(timed);
    // The end of the pod is not confirmed, and half a second after a list it is not expected to be any more.
    for (wait, lists, is_removed) in [(0, 1, false), (9_500, 2, false), (500, 3, true)] {
        test.time.advance(Duration::from_millis(wait));
        test.ctx.invalidate(&key());
        let (observed, classified, pods) = read(&test).await;
        let removed = with_action(&plan(&observed, classified, &pods), &NodeAction::Remove);
        assert_eq!(
            (lines(&test.requests(), "GET", "/pods?").len(), !removed.is_empty()),
            (lists, is_removed)
        );
    }
}

#[tokio::test]
async fn time_that_passes_while_pods_are_listed_removes_no_node_on_an_old_list() {
    let ending = |node: &str| {
        let mut ending = pod("db");
        ending.metadata.uid = Some(format!("db-on-{node}"));
        ending.metadata.deletion_timestamp = Some(Time(at(-100)));
        ending
    };
    let mut timed = pool(0);
    timed.spec.drain = Some(DrainSpec { timeout_seconds: Some(1), ..DrainSpec::default() });
    let slow: Arc<Mutex<Option<FakeClock>>> = Arc::default();
    let clock = slow.clone();
    let test = server(vec![draining(0, -100), draining(1, -100)], move |node| {
        if let Some(clock) = &*clock.lock().unwrap() {
            clock.advance(Duration::from_secs(1));
        }
        Some(vec![ending(node)])
    });
    let test = test.with_pool(timed);
    read(&test).await;
    test.time.advance(Duration::from_millis(9_500));
    test.ctx.invalidate(&key());
    read(&test).await;
    // The pods of the second node are listed again, which takes a second. After it the pod is not expected to end any
    // more, but the list of the first node is that old, too.
    test.ctx.drains.drop_list("n-001");
    *slow.lock().unwrap() = Some(test.time.clone());
    test.ctx.invalidate(&key());
    let (observed, classified, pods) = read(&test).await;
    assert_eq!((classified.reads.recent.len(), classified.reads.draining.len()), (1, 1));
    assert_eq!(with_action(&plan(&observed, classified, &pods), &NodeAction::Remove), ["n-001"]);
}

#[tokio::test]
async fn of_many_draining_nodes_few_are_listed_and_the_others_have_their_turn_later() {
    let nodes: Vec<Node> = (0..100).map(|index| draining(index, -100)).collect();
    let test = server(nodes, |node| Some(vec![pod(&format!("on-{node}"))])).with_pool(pool(0));
    let (observed, classified, pods) = read(&test).await;
    assert_eq!((pods.by_node.len(), pods.waiting.len(), pods.deferred.len()), (18, 50, 32));
    assert!(!pods.is_incomplete, "nothing failed");
    let plan = plan(&observed, classified, &pods);
    let evicts = |step: &NodeAction| matches!(step, NodeAction::Drain(step) if !step.evict.is_empty());
    assert_eq!(plan.nodes.iter().filter(|step| evicts(&step.action)).count(), 18);
    for _ in 0..60 {
        test.time.advance(Duration::from_secs(2));
        test.ctx.invalidate(&key());
        read(&test).await;
    }
    let requests = test.requests();
    let listed: BTreeSet<&String> = requests.iter().filter(|line| line.contains("/pods?")).collect();
    assert_eq!(listed.len(), 100, "a drain that stands still lets the others have their turn");
    let lists = lines(&requests, "GET", "/pods?").len();
    assert!(lists <= 18 + 9 * 120, "{lists} lists in two minutes");
}

#[tokio::test]
async fn the_lists_of_a_pass_have_one_deadline_and_what_is_not_read_by_then_is_unread() {
    let slow: Arc<Mutex<Option<FakeClock>>> = Arc::default();
    let clock = slow.clone();
    let test = server((0..12).map(|index| draining(index, -100)).collect(), move |_| {
        if let Some(clock) = &*clock.lock().unwrap() {
            clock.advance(Duration::from_secs(10));
        }
        Some(vec![pod("db")])
    });
    let test = test.with_pool(pool(0));
    *slow.lock().unwrap() = Some(test.time.clone());
    let (_, _, pods) = read(&test).await;
    let asked = lines(&test.requests(), "GET", "/pods?").len();
    assert!(pods.is_incomplete && asked < 12, "{asked} lists of 10 s each");
}

/// A node in the pool's first slot that cannot be read.
fn odd() -> Value {
    let mut node = serde_json::to_value(node(0)).unwrap();
    node["metadata"]["name"] = slot(0).into();
    node["status"]["conditions"] = "what is this?".into();
    node
}

#[tokio::test]
async fn the_slot_of_an_unreadable_node_is_neither_requested_nor_given_up() {
    let live = || {
        TestContext::new(|path, _| match path {
            path if path.starts_with("/api/v1/nodes?") => {
                (200, json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [odd()] }))
            }
            path => success_for(path),
        })
    };
    let planned = async |pool: NodePool| {
        let (observed, classified, pods) = read(&live().with_pool(pool)).await;
        (plan(&observed, classified, &pods), observed.now)
    };
    let (enough, _) = planned(pool(1)).await;
    assert_eq!(enough.request, Vec::<String>::new(), "the node is there, although it cannot be read");
    let (missing, _) = planned(pool(2)).await;
    assert_eq!(missing.request, [slot(1)]);

    let mut unset = pool(0);
    unset.spec.replicas = None;
    assert_eq!(planned(unset).await.0.fill, None, "how many there are is not known");

    let mut deleted = pool(0);
    deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let (kept, now) = planned(deleted).await;
    assert_eq!(kept.pool, PoolStep::Keep, "it is not known that there is no node left");
    assert!(kept.requeue_at.is_some_and(|at| at > now), "no event reports that it is gone");
}

/// A provider with a machine in the pool's first slot, whose kubelet registers its Node.
struct OneRuns;

impl Scripted for OneRuns {
    fn on_list(&self) -> ScriptedAnswer<'_, Vec<ListedMachine>> {
        answer(Ok(vec![ListedMachine { cluster: Some(cluster().to_string()), ..running(&slot(0)) }]))
    }
}

#[tokio::test]
async fn a_machine_whose_node_has_another_name_and_cannot_be_read_is_neither_withdrawn_nor_given_up() {
    for (name, replicas, may_be_hidden) in
        [("ip-10-0-0-1", 0, true), ("ip-10-0-0-1", 1, true), ("", 1, false)]
    {
        let mut node = odd();
        if !name.is_empty() {
            node["metadata"]["name"] = name.into();
        }
        let test = TestContext::new(move |path, _| match path {
            path if path.starts_with("/api/v1/nodes?") => {
                (200, json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [node] }))
            }
            path => success_for(path),
        });
        let mut test = test.with_pool(pool(replicas));
        test.ctx.provisioner = Arc::new(Provisioner::with(cluster(), vec![Box::new(OneRuns)]));
        for _ in 0..2 {
            let (observed, classified, pods) = read(&test).await;
            assert_eq!(observed.may_be_hidden, may_be_hidden, "{name} of {replicas}");
            let planned = plan(&observed, classified, &pods);
            assert_eq!((planned.withdraw, planned.timed_out), (vec![], vec![]), "{name} of {replicas}");
            test.time.advance(Duration::from_secs(900));
            // So that they are read live again.
            test.ctx.invalidate(&key());
        }
    }
}

#[test]
fn a_node_may_be_hidden_unless_its_name_is_that_of_its_machine() {
    let with = |source| Supply { source, machines: vec![machine("m", MachineState::Running)], ..supply() };
    let may_hide = |source, names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        may_hide(&with(source), names.iter())
    };
    assert!(!may_hide(Ok(NodeSource::Kubelet), &[]) && !may_hide(Ok(NodeSource::Kubelet), &["m"]));
    assert!(may_hide(Ok(NodeSource::Kubelet), &["m", "ip-10-0-0-1"]));
    assert!(may_hide(Err(String::new()), &["ip-10-0-0-1"]), "of a pool that is gone it is not known");
    assert!(!may_hide(Ok(NodeSource::Operator { provider_id_prefix: "kwok://" }), &["ip-10-0-0-1"]));
}

#[test]
fn a_node_that_becomes_readable_or_unreadable_while_the_cache_is_read_is_not_missed() {
    let name = node(0).metadata.name.unwrap();
    for (what, before, stored, after, is_unreadable) in [
        ("it became readable just after the store was read", true, false, false, true),
        ("it became unreadable just before that", false, false, true, true),
        ("it became readable just before that", true, true, false, false),
        ("it became unreadable just after that", false, true, true, false),
    ] {
        let is_read = std::cell::Cell::new(false);
        let stored = || {
            is_read.set(true);
            if stored { vec![Arc::new(node(0))] } else { vec![] }
        };
        let unreadable = || {
            let is_it = if is_read.get() { after } else { before };
            is_it.then(|| name.clone()).into_iter().collect()
        };
        let (stored, unreadable) = in_cache(stored, unreadable);
        assert_eq!((stored.len(), unreadable.len()), if is_unreadable { (0, 1) } else { (1, 0) }, "{what}");
    }
}

#[test]
fn a_machine_whose_node_is_in_another_pool_is_not_the_pools() {
    let of_pool = |index: usize, pool: &str| {
        let mut node = node(index);
        node.spec.as_mut().unwrap().provider_id = Some(format!("x://{index}"));
        node.metadata.labels.as_mut().unwrap().insert(names::MEMBER_LABEL.into(), pool.into());
        Arc::new(node)
    };
    let mut supply = supply();
    let listed = |index| Machine {
        provider_id: Some(format!("x://{index}")),
        ..machine(&format!("m-{index}"), MachineState::Running)
    };
    supply.machines = (0..3).map(listed).collect();
    drop_machines_of_others(&mut supply, &[of_pool(0, &key().name), of_pool(1, "other")], &key());
    let left: Vec<_> = supply.machines.iter().map(|machine| &*machine.name).collect();
    assert_eq!(left, ["m-0", "m-2"]);
}

/// A provider that lists one machine, which will never run, and counts its deletions; `None` where it may not be deleted.
struct Failing(Option<Arc<AtomicUsize>>);

impl Scripted for Failing {
    fn on_create(&self, _: MachineRequest<'_>) -> ScriptedAnswer<'_, Option<Timestamp>> {
        panic!("the failure has a backoff")
    }

    fn on_list(&self) -> ScriptedAnswer<'_, Vec<ListedMachine>> {
        let failed = ListedMachine {
            progress: Progress::Failed(ProviderError::Transient("no power".to_owned())),
            cluster: Some(cluster().to_string()),
            ..running(&slot(0))
        };
        answer(Ok(vec![failed]))
    }

    fn on_delete(&self, _: &str) -> ScriptedAnswer<'_, Deletion> {
        let deletions = self.0.as_ref().expect("nothing is deleted while a pool is observed");
        deletions.fetch_add(1, Ordering::Relaxed);
        answer(Ok(Deletion::Started))
    }
}

#[tokio::test]
async fn a_failed_machine_is_found_by_observing_and_deleted_by_the_pass_alone() {
    let with = |deletions| {
        let mut test = server(vec![], |_| None).with_pool(pool(1));
        test.ctx.provisioner = Arc::new(Provisioner::with(cluster(), vec![Box::new(Failing(deletions))]));
        test
    };
    let test = with(None);
    let Seen { observed, findings } = observe(&test.ctx, &key()).await.unwrap().unwrap();
    assert_eq!((observed.supply.failed.len(), findings.failures.len()), (1, 1));
    assert!(observed.supply.failure.is_some(), "the plan knows what will be recorded");
    assert_eq!(test.ctx.provisioner.last_failure(&key()), None);
    let planned = plan(&observed, classify(&observed), &ObservedPods::default());
    assert_eq!(planned.failed, observed.supply.failed);
    assert!(planned.request.is_empty() && planned.withdraw.is_empty());

    let deletions = Arc::<AtomicUsize>::default();
    let (ctx, _) = with(Some(Arc::clone(&deletions))).into_parts();
    reconcile(Arc::clone(&ctx), key()).await.unwrap();
    assert_eq!(deletions.load(Ordering::Relaxed), 1);
    assert_eq!(ctx.provisioner.last_failure(&key()).unwrap(), observed.supply.failure.unwrap());
}

/// A provider with two machines that run, and how often it was asked for them.
struct Steady(Arc<AtomicUsize>);

impl Scripted for Steady {
    fn source(&self) -> NodeSource {
        NodeSource::Operator { provider_id_prefix: "kwok://" }
    }

    fn on_create(&self, _: MachineRequest<'_>) -> ScriptedAnswer<'_, Option<Timestamp>> {
        panic!("the pool has as many nodes as it wants")
    }

    fn on_list(&self) -> ScriptedAnswer<'_, Vec<ListedMachine>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let of_slot =
            |number| ListedMachine { cluster: Some(cluster().to_string()), ..running(&slot(number)) };
        answer(Ok((0..2).map(of_slot).collect()))
    }

    fn on_delete(&self, _: &str) -> ScriptedAnswer<'_, Deletion> {
        answer(Ok(Deletion::Gone))
    }
}

#[tokio::test]
async fn a_drain_that_waits_asks_the_provider_four_times_a_minute_and_no_node_goes_by_a_list_of_a_moment_ago()
{
    let of_slot = |mut node: Node, number: usize| {
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert(names::MACHINE_LABEL.to_owned(), slot(number));
        node.metadata.resource_version = Some("1".to_owned());
        node
    };
    let nodes = vec![of_slot(node(0), 0), of_slot(draining(1, -100), 1)];
    let (is_free, lists) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let has_no_pod = Arc::clone(&is_free);
    let list = |kind: &str, items: Value| json!({ "kind": kind, "apiVersion": "v1", "metadata": {}, "items": items });
    let mut test = TestContext::new(move |path, _| match path {
        path if path.contains("/pods?") => {
            let pods = if has_no_pod.load(Ordering::Relaxed) { vec![] } else { vec![pod("web")] };
            (200, list("PodList", json!(pods)))
        }
        path if path.starts_with("/api/v1/nodes?") => (200, list("NodeList", json!(nodes))),
        path if path.contains("/volumeattachments") => (200, list("VolumeAttachmentList", json!([]))),
        path if path.contains("/eviction") => failure(403, "Forbidden", "a policy keeps it"),
        path => success_for(path),
    })
    .with_pool(pool(1));
    test.ctx.provisioner = Arc::new(Provisioner::with(cluster(), vec![Box::new(Steady(Arc::clone(&lists)))]));
    let time = test.time.clone();
    let (ctx, requests) = test.into_parts();
    let pass = async || {
        // The test's cache of nodes is empty, so they are read live again.
        ctx.invalidate(&key());
        reconcile(Arc::clone(&ctx), key()).await
    };
    let (mut waited, mut passes) = (Duration::ZERO, 0);
    while waited < Duration::from_secs(300) && passes < 1000 {
        let step = pass().await.unwrap();
        let (Step::RequeueAfter(wait) | Step::ContinueAfter(wait)) = step else { panic!("{step:?}") };
        time.advance(wait);
        waited += wait;
        passes += 1;
    }
    let made = lists.load(Ordering::Relaxed);
    assert!(passes >= 50 && (20..=25).contains(&made), "{made} lists in {passes} passes");
    is_free.store(true, Ordering::Relaxed);
    for _ in 0..20 {
        let before = lists.load(Ordering::Relaxed);
        // How the pass ends is not the point: the server's answers are none of a node that goes.
        _ = pass().await;
        if !lines(&requests(), "DELETE", "/nodes/n-001").is_empty() {
            assert_eq!(lists.load(Ordering::Relaxed), before + 1, "the node goes by what is so now");
            return;
        }
        time.advance(Duration::from_secs(4));
    }
    panic!("the node stays: {:?}", requests());
}
