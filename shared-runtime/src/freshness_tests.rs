use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::core::ObjectMeta;

use super::*;
use crate::clock::FakeClock;
use crate::metrics::Metrics;

fn write_tracker() -> (WriteTracker, FakeClock, Metrics) {
    let (clock, fake) = Clock::fake(Timestamp::UNIX_EPOCH);
    let metrics = Metrics::new("test", "0").unwrap();
    (WriteTracker::new(clock, Arc::new(metrics.writes("test").unwrap())), fake, metrics)
}

fn node(name: &str, uid: &str, version: &str) -> Node {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        resource_version: Some(version.to_owned()),
        ..ObjectMeta::default()
    };
    Node { metadata, ..Node::default() }
}

#[test]
fn writes_of_a_kind_without_a_watch_are_not_remembered() {
    let (write_tracker, _, _) = write_tracker();
    write_tracker.wrote(&node("a", "u", "10"), ChangeKind::Created);
    assert!(write_tracker.pending::<Node>().is_empty());
    assert_eq!(write_tracker.check(&node("a", "u", "9")), Freshness::Fresh);
}

#[test]
fn a_stale_read_is_seen_counted_and_healed_by_the_watch() {
    let (write_tracker, _, metrics) = write_tracker();
    let feed = write_tracker.feed::<Node>().unwrap();
    write_tracker.wrote(&node("a", "u", "10"), ChangeKind::Updated);
    assert_eq!(write_tracker.check(&node("a", "u", "9")), Freshness::Stale);
    feed.observe(&watcher::Event::Apply(node("a", "u", "10")));
    assert_eq!(write_tracker.check(&node("a", "u", "10")), Freshness::Fresh);
    let text = String::from_utf8(metrics.render().unwrap()).unwrap();
    assert!(
        text.contains(r#"conflict_retry_stale_reads_total{resource="nodes",strategy="test"} 1"#),
        "{text}"
    );
}

#[test]
fn created_and_deleted_objects_are_pending_until_the_watch_brings_them() {
    let (write_tracker, _, _) = write_tracker();
    let feed = write_tracker.feed::<Node>().unwrap();
    write_tracker.wrote(&node("a", "u", "10"), ChangeKind::Created);
    write_tracker.deleting(&node("b", "v", "8")).unwrap().acknowledged();
    let names: Vec<_> = write_tracker.pending::<Node>().into_iter().map(|p| (p.name, p.change)).collect();
    assert_eq!(names, [("a".to_owned(), ChangeKind::Created), ("b".to_owned(), ChangeKind::Deleted)]);
    feed.observe(&watcher::Event::Apply(node("a", "u", "10")));
    feed.observe(&watcher::Event::Delete(node("b", "v", "11")));
    assert!(write_tracker.pending::<Node>().is_empty());
}

#[test]
fn a_deletion_that_failed_is_taken_back() {
    let (write_tracker, _, _) = write_tracker();
    let _feed = write_tracker.feed::<Node>().unwrap();
    let deleting = write_tracker.deleting(&node("b", "v", "8"));
    assert_eq!(write_tracker.pending::<Node>().len(), 1);
    drop(deleting);
    assert!(write_tracker.pending::<Node>().is_empty());
}

#[test]
fn an_expired_expectation_is_counted() {
    let (write_tracker, fake, metrics) = write_tracker();
    let _feed = write_tracker.feed::<Node>().unwrap();
    write_tracker.wrote(&node("a", "u", "10"), ChangeKind::Created);
    fake.advance(std::time::Duration::from_secs(301));
    assert!(write_tracker.pending::<Node>().is_empty());
    let text = String::from_utf8(metrics.render().unwrap()).unwrap();
    assert!(text.contains("conflict_retry_expectations_expired_total"), "{text}");
}

#[test]
fn only_the_first_reflector_of_a_kind_feeds() {
    let (write_tracker, _, _) = write_tracker();
    assert!(write_tracker.feed::<Node>().is_some());
    assert!(write_tracker.feed::<Node>().is_none());
    assert!(write_tracker.feed::<Pod>().is_some());
}
