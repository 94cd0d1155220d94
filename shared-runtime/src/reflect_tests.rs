use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::core::{ObjectMeta, Status};

use super::*;
use crate::clock::Clock;

fn mirror() -> (Store<Node>, Mirror<Node>, Watching) {
    let (clock, _) = Clock::fake(Timestamp::UNIX_EPOCH);
    let metrics = Metrics::new("test", "0").unwrap();
    let watching = Watching {
        floors: Floors::new(clock, Arc::new(conflict_retry::observe::Silent)),
        metrics,
        readiness: Readiness::default(),
    };
    let (store, mirror) = Mirror::new(&watching, watching.floors.feed::<Node>().map(observer));
    (store, mirror, watching)
}

fn node(name: &str, uid: &str) -> Node {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        managed_fields: Some(vec![ManagedFieldsEntry::default()]),
        ..ObjectMeta::default()
    };
    Node { metadata, spec: Some(k8s_openapi::api::core::v1::NodeSpec::default()), ..Node::default() }
}

fn said(changes: &[Change<Node>]) -> Vec<String> {
    let mut said: Vec<_> = changes
        .iter()
        .map(|change| match change {
            Change::Applied(object) => format!("+{}", object.name_any()),
            Change::Deleted(object) => format!("-{}", object.name_any()),
        })
        .collect();
    said.sort();
    said
}

fn list(mirror: &mut Mirror<Node>, nodes: &[Node]) -> Vec<String> {
    let mut changes = mirror.take(Ok(Event::Init));
    for node in nodes {
        changes.extend(mirror.take(Ok(Event::InitApply(node.clone()))));
    }
    assert!(changes.is_empty(), "nothing is told before the store holds the list");
    said(&mirror.take(Ok(Event::InitDone)))
}

#[test]
fn a_list_is_told_when_the_store_holds_it_and_opens_the_gate() {
    let (store, mut mirror, watching) = mirror();
    assert_eq!(watching.readiness.waiting_for().len(), 1);
    assert_eq!(list(&mut mirror, &[node("a", "1"), node("b", "2")]), ["+a", "+b"]);
    assert_eq!(store.len(), 2);
    assert!(watching.readiness.waiting_for().is_empty());
}

#[test]
fn deletions_are_told_also_those_the_watch_missed() {
    let (_, mut mirror, _) = mirror();
    list(&mut mirror, &[node("a", "1"), node("b", "2"), node("c", "3")]);
    assert_eq!(said(&mirror.take(Ok(Event::Delete(node("a", "1"))))), ["-a"]);
    // b vanished and c was replaced by a namesake while the watch was away.
    assert_eq!(list(&mut mirror, &[node("c", "4")]), ["+c", "-b", "-c"]);
}

#[test]
fn what_nobody_reads_is_not_kept() {
    let mut keep = pruned(|node: &mut Node| node.spec = None);
    for event in [Event::Apply, Event::Delete, Event::InitApply] {
        let (Event::Apply(kept) | Event::Delete(kept) | Event::InitApply(kept)) =
            converted(event(node("a", "1")), &mut keep)
        else {
            panic!("the object is gone")
        };
        assert_eq!(kept.metadata.uid.as_deref(), Some("1"));
        assert!(kept.metadata.managed_fields.as_ref().is_none_or(Vec::is_empty));
        assert!(kept.spec.is_none());
    }
    assert!(matches!(converted(Event::Init, &mut keep), Event::Init));
    assert!(matches!(converted(Event::InitDone, &mut keep), Event::InitDone));
}

#[test]
fn of_managed_fields_only_who_wrote_replicas_is_kept() {
    let entry = |manager: &str, fields: serde_json::Value| ManagedFieldsEntry {
        manager: Some(manager.to_owned()),
        fields_v1: Some(FieldsV1(fields)),
        ..ManagedFieldsEntry::default()
    };
    let mut entries = vec![
        entry("helm", json!({ "f:spec": { "f:template": {} } })),
        entry("kubectl", json!({ "f:spec": { "f:replicas": {} }, "f:metadata": {} })),
        ManagedFieldsEntry::default(),
    ];
    replicas_writers(&mut entries);
    assert_eq!(entries, [entry("kubectl", json!({ "f:spec": { "f:replicas": {} } }))]);
}

#[test]
fn failures_are_counted_by_category_and_change_nothing() {
    let (store, mut mirror, watching) = mirror();
    list(&mut mirror, &[node("a", "1")]);
    let forbidden = || Box::new(Status { code: 403, ..Status::default() });
    assert!(mirror.take(Err(watcher::Error::WatchError(forbidden()))).is_empty());
    assert!(mirror.take(Err(watcher::Error::WatchError(forbidden()))).is_empty());
    assert_eq!(mirror.failing, Some("forbidden"));
    assert_eq!(store.len(), 1);
    let text = String::from_utf8(watching.metrics.render().unwrap()).unwrap();
    assert!(
        text.contains(
            r#"tandem_watch_errors_total{category="forbidden",controller="test",resource="nodes"} 2"#
        ),
        "{text}"
    );
    mirror.take(Ok(Event::Apply(node("a", "1"))));
    assert_eq!(mirror.failing, None);
}
