//! Filters out irrelevant changes: a watch returns every update of an object, and most of them come from other writers.

use std::collections::HashMap;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use kube::Resource;
use kube::runtime::reflector::ObjectRef;

use crate::reflect::Change;

/// The changes for which `same` of the previous and the current object is false. First occurrences and deletions always
/// pass; a repeated list produces nothing that has not changed.
///
/// Reading the cache, not the stream, remains correct: the cache also holds what was filtered out here. Only objects
/// that the cache holds anyway are kept.
pub fn material<K>(
    changes: impl Stream<Item = Change<K>> + Send + 'static,
    same: impl Fn(&K, &K) -> bool + Send + 'static,
) -> impl Stream<Item = Change<K>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
{
    let mut known = HashMap::new();
    changes.filter(move |change| std::future::ready(learn(&mut known, change, &same)))
}

fn learn<K: Resource<DynamicType = ()> + Clone>(
    known: &mut HashMap<ObjectRef<K>, Arc<K>>,
    change: &Change<K>,
    same: impl Fn(&K, &K) -> bool,
) -> bool {
    match change {
        Change::Unreadable(unreadable) => {
            // The last known version is outdated, also if the object comes back unchanged.
            known.remove(&unreadable.key());
            true
        }
        Change::Deleted(gone) => {
            known.remove(&ObjectRef::from_obj(&**gone));
            true
        }
        Change::Applied(now) => {
            let before = known.insert(ObjectRef::from_obj(&**now), Arc::clone(now));
            before.is_none_or(|before| before.meta().uid != now.meta().uid || !same(&before, now))
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, stream};
    use k8s_openapi::api::core::v1::{Node, NodeSpec};
    use kube::core::ObjectMeta;

    use super::*;
    use crate::reflect::Unreadable;

    fn node(uid: &str, version: &str, unschedulable: bool) -> Arc<Node> {
        let metadata = ObjectMeta {
            name: Some("a".into()),
            uid: Some(uid.into()),
            resource_version: Some(version.into()),
            ..ObjectMeta::default()
        };
        let spec = NodeSpec { unschedulable: Some(unschedulable), ..NodeSpec::default() };
        Arc::new(Node { metadata, spec: Some(spec), ..Node::default() })
    }

    fn unreadable() -> Change<Node> {
        Change::Unreadable(Arc::new(Unreadable {
            namespace: None,
            name: "a".into(),
            uid: Some("1".into()),
            version: Some("2".into()),
            node_name: None,
            error: "spec: is odd".into(),
        }))
    }

    /// The versions that pass when only the spec matters; `?` for unreadable objects.
    fn through(changes: Vec<Change<Node>>) -> Vec<String> {
        let material = material(stream::iter(changes), |a, b| a.spec == b.spec);
        let kept: Vec<_> = material.collect().now_or_never().unwrap();
        kept.iter()
            .map(|change| match change.object() {
                Some(node) => node.metadata.resource_version.clone().unwrap(),
                None => "?".to_owned(),
            })
            .collect()
    }

    #[test]
    fn only_what_matters_comes_through_and_is_compared_with_the_last_seen() {
        let applied = |version: &str, closed| Change::Applied(node("1", version, closed));
        let changes = [("1", false), ("2", false), ("3", true), ("4", true), ("5", false)];
        assert_eq!(
            through(changes.map(|(version, closed)| applied(version, closed)).into()),
            ["1", "3", "5"]
        );
    }

    #[test]
    fn a_namesake_and_a_deletion_always_come_through() {
        let changes = vec![
            Change::Applied(node("1", "1", false)),
            Change::Applied(node("2", "2", false)),
            Change::Deleted(node("2", "3", false)),
            Change::Applied(node("2", "4", false)),
        ];
        assert_eq!(through(changes), ["1", "2", "3", "4"]);
    }

    #[test]
    fn what_becomes_readable_again_comes_through_although_it_is_as_it_was() {
        let applied = |version: &str| Change::Applied(node("1", version, false));
        let changes = vec![applied("1"), unreadable(), unreadable(), applied("3"), applied("4")];
        assert_eq!(through(changes), ["1", "?", "?", "3"]);
    }
}
