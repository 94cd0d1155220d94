use k8s_openapi::api::core::v1::Node;
use kube::core::ObjectMeta;
use kube::runtime::reflector::store::{self, Writer};

use super::*;

const BOUND: Duration = Duration::from_secs(1);

/// A cache and the writer that fills it.
struct Bench {
    watched: Watched<Node>,
    writer: Writer<Node>,
}

impl Bench {
    fn new() -> Self {
        let (store, writer) = store::store();
        Self { watched: Watched::new(store, Expectations::new("nodes")), writer }
    }

    fn brings(&mut self, event: &Event<Node>) {
        self.writer.apply_watcher_event(event);
        self.watched.observe(event);
    }
}

fn node(version: &str) -> Node {
    let metadata = ObjectMeta {
        name: Some("a".into()),
        uid: Some("u".into()),
        resource_version: Some(version.into()),
        ..ObjectMeta::default()
    };
    Node { metadata, ..Node::default() }
}

fn version(node: &Node) -> &str {
    node.metadata.resource_version.as_deref().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_copy_older_than_our_own_write_is_not_used() {
    let mut bench = Bench::new();
    bench.brings(&Event::Apply(node("9")));
    let object = bench.watched.object(ObjectRef::new("a"));
    assert_eq!(object.latest().as_ref().map(version), Some("9"));
    object.wrote(&node("10"));
    assert_eq!(object.latest(), None);
    let refused = bench.watched.fresh(&ObjectRef::new("a"), BOUND).await;
    assert_eq!(refused, Err(Stale(BOUND)));
    bench.brings(&Event::Apply(node("10")));
    assert_eq!(object.latest().as_ref().map(version), Some("10"));
}

#[tokio::test(start_paused = true)]
async fn fresh_waits_until_the_copy_is_no_longer_stale() {
    let mut bench = Bench::new();
    bench.brings(&Event::Apply(node("9")));
    bench.watched.expectations().wrote(&node("10"), ChangeKind::Updated);
    let (watched, of) = (bench.watched.clone(), ObjectRef::new("a"));
    let (read, ()) = tokio::join!(watched.fresh(&of, BOUND), async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        bench.brings(&Event::Apply(node("10")));
    });
    assert_eq!(read.unwrap().as_deref().map(version), Some("10"));
    assert_eq!(watched.fresh(&ObjectRef::new("other"), BOUND).await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn newer_waits_for_the_winners_version_and_ends_when_the_object_is_deleted() {
    let mut bench = Bench::new();
    bench.brings(&Event::Apply(node("9")));
    let object = bench.watched.object(ObjectRef::new("a"));
    assert_eq!(object.newer("8".into()).await.as_ref().map(version), Some("9"));
    let (newer, ()) = tokio::join!(object.newer("9".into()), async {
        tokio::task::yield_now().await;
        bench.brings(&Event::Apply(node("12")));
    });
    assert_eq!(newer.as_ref().map(version), Some("12"));
    let (newer, ()) = tokio::join!(object.newer("12".into()), async {
        tokio::task::yield_now().await;
        bench.brings(&Event::Delete(node("13")));
    });
    assert_eq!(newer, None);
}

#[tokio::test(start_paused = true)]
async fn a_created_object_that_the_watch_has_not_brought_is_waited_for() {
    let bench = Bench::new();
    let of = ObjectRef::new("a");
    assert_eq!(bench.watched.fresh(&of, BOUND).await, Ok(None));
    bench.watched.expectations().wrote(&node("10"), ChangeKind::Created);
    assert_eq!(bench.watched.fresh(&of, BOUND).await, Err(Stale(BOUND)));
}

#[test]
fn versions_that_cannot_be_compared_are_newer_when_they_differ() {
    assert!(is_newer(Some("100"), "99") && !is_newer(Some("99"), "100") && !is_newer(Some("99"), "99"));
    assert!(is_newer(Some("abc"), "abd") && !is_newer(Some("abc"), "abc") && !is_newer(None, "1"));
}
