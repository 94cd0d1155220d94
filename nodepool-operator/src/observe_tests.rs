//! What one list that fails holds up, and what not.

use kube::runtime::{reflector::store, watcher};
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_runtime::controller::Step;

use super::*;
use crate::{
    plan::testing::{draining, key, node, pod, pool},
    reconcile::reconcile,
    testing::{Bench, failure, success},
};

/// A server with these nodes, whose pods are `pods(node)`, or an error.
fn server(nodes: Vec<Node>, mut pods: impl FnMut(&str) -> Option<Vec<Pod>> + Send + 'static) -> Bench {
    Bench::new(move |path, _| {
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

/// Puts the pool into the context's cache.
fn with_pool(bench: &mut Bench, mut pool: NodePool) {
    pool.metadata.resource_version = Some("1".into());
    let (reader, mut writer) = store();
    writer.apply_watcher_event(&watcher::Event::Apply(pool));
    bench.ctx.pools = reader;
}

fn names(asked: &[String], verb: &str, part: &str) -> Vec<String> {
    asked.iter().filter(|line| line.starts_with(verb) && line.contains(part)).cloned().collect()
}

#[tokio::test]
async fn a_list_that_fails_holds_up_its_own_node_and_no_other() {
    let nodes: Vec<Node> = (0..10).map(|index| draining(index, -100)).collect();
    let mut bench = server(nodes, |node| (node != "n-003").then(|| vec![pod(&format!("on-{node}"))]));
    with_pool(&mut bench, pool(0));
    let seen = observe(&bench.ctx, &key()).await.unwrap().unwrap();
    assert!(seen.has_unread && !seen.observed.pods.contains_key("n-003"));
    assert_eq!(seen.observed.pods.len(), 9);

    // The test's cache of nodes is empty, so they are read live again.
    bench.ctx.doubt(&key());
    let (ctx, asked) = bench.into_parts();
    let step = reconcile(ctx, key()).await.unwrap();
    assert!(matches!(step, Step::RequeueAfter(delay) if delay <= Duration::from_secs(2)), "{step:?}");
    let evictions = names(&asked(), "POST", "/eviction");
    assert_eq!(evictions.len(), 9, "{evictions:?}");
    assert!(evictions.iter().all(|line| !line.contains("on-n-003")));
}

#[tokio::test]
async fn a_node_is_not_removed_on_an_old_list_when_the_live_one_fails() {
    let mut answers = 0;
    let mut bench = server(vec![draining(0, -100)], move |_| {
        answers += 1;
        (answers == 1).then(Vec::new)
    });
    with_pool(&mut bench, pool(0));
    // As after a while: the margin since the node was closed has passed.
    observe(&bench.ctx, &key()).await.unwrap();
    bench.time.advance(Duration::from_secs(60));
    bench.ctx.drains.saw("n-000", &[]);
    bench.ctx.doubt(&key());
    let seen = observe(&bench.ctx, &key()).await.unwrap().unwrap();
    assert!(seen.has_unread);
    assert_eq!(plan::removed(&seen.observed), Vec::<String>::new());
    assert!(names(&bench.asked(), "DELETE", "nodes").is_empty());
}
