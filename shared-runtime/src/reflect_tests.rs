use std::sync::Mutex;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::core::{ObjectMeta, Status};

use super::*;
use crate::clock::Clock;

fn mirror() -> (Store<Node>, Mirror<Node>, Watching) {
    let (clock, _) = Clock::fake(Timestamp::UNIX_EPOCH);
    let metrics = Metrics::new("test", "0").unwrap();
    let watching = Watching {
        liveness: Liveness::new(clock.clone()),
        write_tracker: WriteTracker::new(clock, Arc::new(conflict_retry::observe::NoopObserver)),
        metrics,
        readiness: Readiness::default(),
        unreadable: UnreadableObjects::default(),
        caches: Caches::default(),
    };
    let (store, mirror) = Mirror::new(&watching, watching.write_tracker.feed::<Node>().map(observer));
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
            Change::Unreadable(object) => format!("?{object}"),
        })
        .collect();
    said.sort();
    said
}

fn list(mirror: &mut Mirror<Node>, nodes: &[Node]) -> Vec<String> {
    mirror.begin();
    for node in nodes {
        mirror.listed(node.clone());
    }
    said(&mirror.finish())
}

fn unreadable(name: &str) -> Unreadable {
    Unreadable {
        namespace: None,
        name: name.to_owned(),
        uid: None,
        version: None,
        node_name: None,
        error: "spec: is odd".to_owned(),
    }
}

#[test]
fn a_list_is_told_when_the_store_holds_it() {
    let (store, mut mirror, _) = mirror();
    mirror.begin();
    mirror.listed(node("a", "1"));
    mirror.listed(node("b", "2"));
    assert_eq!(store.len(), 0);
    assert_eq!(said(&mirror.finish()), ["+a", "+b"]);
    assert_eq!(store.len(), 2);
}

#[test]
fn deletions_are_told_also_those_the_watch_missed() {
    let (_, mut mirror, _) = mirror();
    list(&mut mirror, &[node("a", "1"), node("b", "2"), node("c", "3")]);
    assert_eq!(said(&mirror.deleted(node("a", "1"))), ["-a"]);
    // b was deleted and c was replaced by another object of the same name while the watch was interrupted.
    assert_eq!(list(&mut mirror, &[node("c", "4")]), ["+c", "-b", "-c"]);
}

#[test]
fn an_object_that_cannot_be_read_leaves_the_store_and_is_counted_until_it_goes_or_can_be_read() {
    let (store, mut mirror, watching) = mirror();
    let known = || watching.unreadable.get::<Node>(None, "a");
    let count = || {
        let text = String::from_utf8(watching.metrics.render().unwrap()).unwrap();
        let line = r#"tandem_unreadable_objects{controller="test",resource="nodes"} "#;
        text.split(line).nth(1).unwrap().chars().next().unwrap()
    };
    list(&mut mirror, &[node("a", "1"), node("b", "2")]);
    assert_eq!(said(&mirror.applied_unreadable(unreadable("a"), None)), ["?a"]);
    assert_eq!((store.len(), known().unwrap().error.as_str(), count()), (1, "spec: is odd", '1'));
    assert_eq!(said(&mirror.applied(node("a", "1"))), ["+a"]);
    assert_eq!((store.len(), known(), count()), (2, None, '0'));

    mirror.applied_unreadable(unreadable("a"), None);
    assert_eq!(said(&mirror.deleted_unreadable(&unreadable("a"))), ["?a"], "a reader looks for it");
    assert_eq!((store.len(), known(), count()), (1, None, '0'));

    mirror.begin();
    mirror.listed_unreadable(unreadable("a"));
    assert_eq!(said(&mirror.finish()), ["-b", "?a"]);
    assert!(known().is_some());
    assert_eq!(list(&mut mirror, &[]), ["?a"], "it is gone");
    assert!(known().is_none());
}

/// A reader that finds an object in neither place treats it as gone, so each step has an order: it is added to the new
/// place before it leaves the old one.
#[test]
fn an_object_that_becomes_unreadable_or_readable_again_is_in_one_place_at_every_moment() {
    type Steps = fn(&mut Mirror<Node>);
    let by_list: Steps = |mirror| {
        mirror.begin();
        mirror.listed_unreadable(unreadable("a"));
        mirror.finish();
    };
    let by_watch: Steps = |mirror| {
        mirror.applied_unreadable(unreadable("a"), None);
    };
    let again_by_list: Steps = |mirror| {
        list(mirror, &[node("a", "1")]);
    };
    let again_by_watch: Steps = |mirror| {
        mirror.applied(node("a", "1"));
    };
    // Whether the store and the list of unreadable objects contain it when the store has applied each event.
    let (readable, both, unread) = ((true, false), (true, true), (false, true));
    for (lost, seen_lost) in [(by_list, vec![readable, unread]), (by_watch, vec![unread])] {
        let found_again = [(again_by_list, vec![unread, unread, both]), (again_by_watch, vec![both])];
        for (found, seen_found) in found_again {
            let (store, mut mirror, watching) = mirror();
            list(&mut mirror, &[node("a", "1")]);
            let seen = Arc::new(Mutex::new(Vec::new()));
            let (looks, unreadable) = (Arc::clone(&seen), watching.unreadable.clone());
            let there = move || {
                (store.get(&ObjectRef::new("a")).is_some(), unreadable.get::<Node>(None, "a").is_some())
            };
            let look = there.clone();
            mirror.observer = Some(Box::new(move |_| looks.lock().unwrap().push(look())));
            lost(&mut mirror);
            assert_eq!((std::mem::take(&mut *seen.lock().unwrap()), there()), (seen_lost.clone(), unread));
            found(&mut mirror);
            assert_eq!((std::mem::take(&mut *seen.lock().unwrap()), there()), (seen_found, readable));
        }
    }
}

#[test]
fn what_stands_in_for_an_object_that_cannot_be_read_is_kept_until_it_goes() {
    let (store, mut mirror, watching) = mirror();
    assert_eq!(said(&mirror.applied_unreadable(unreadable("a"), Some(node("a", "1")))), ["?a"]);
    assert_eq!((store.len(), watching.unreadable.of::<Node>().len()), (1, 1));
    assert_eq!(said(&mirror.deleted_unreadable(&unreadable("a"))), ["-a"]);
    assert_eq!((store.len(), watching.unreadable.of::<Node>().len()), (0, 0));
}

#[test]
fn fields_that_are_not_read_are_not_kept() {
    let mut keep = transformed(|node: &mut Node| node.spec = None);
    let kept = keep(node("a", "1"));
    assert_eq!(kept.metadata.uid.as_deref(), Some("1"));
    assert!(kept.metadata.managed_fields.as_ref().is_none_or(Vec::is_empty));
    assert!(kept.spec.is_none());
}

#[test]
fn of_managed_fields_only_who_wrote_replicas_is_kept() {
    let entry = |manager: &str, fields: serde_json::Value| ManagedFieldsEntry {
        manager: Some(manager.to_owned()),
        fields_v1: Some(FieldsV1(fields)),
        ..ManagedFieldsEntry::default()
    };
    let mut entries = vec![
        entry("autoscaler-operator", json!({ "f:status": { "f:autoscaling": { "f:scaleDown": {} } } })),
        entry("helm", json!({ "f:spec": { "f:template": {} } })),
        entry("kubectl", json!({ "f:spec": { "f:replicas": {} }, "f:metadata": {} })),
        ManagedFieldsEntry::default(),
    ];
    owners(&mut entries);
    assert_eq!(entries, [entry("kubectl", json!({ "f:spec": { "f:replicas": {} } }))]);
}

#[test]
fn failures_are_counted_by_category_and_change_nothing() {
    let (store, mut mirror, watching) = mirror();
    list(&mut mirror, &[node("a", "1")]);
    let forbidden = || Failure::Ended(Box::new(Status { code: 403, ..Status::default() }));
    mirror.failed(&forbidden());
    mirror.failed(&forbidden());
    assert_eq!(mirror.failing, Some("forbidden"));
    assert_eq!(store.len(), 1);
    let text = String::from_utf8(watching.metrics.render().unwrap()).unwrap();
    assert!(
        text.contains(
            r#"tandem_watch_errors_total{category="forbidden",controller="test",resource="nodes"} 2"#
        ),
        "{text}"
    );
    mirror.recovered();
    assert_eq!(mirror.failing, None);
}
