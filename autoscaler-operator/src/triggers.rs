//! Which changes of a cache trigger a pass. Only changes that cannot affect a plan are filtered out.

use std::collections::HashMap;

use futures::{Stream, StreamExt as _, future};
use kube::{Resource, ResourceExt as _};
use shared_runtime::reflect::Change;

/// Changes of `spec`: the API server counts them in `metadata.generation`. The status of a `DaemonSet` changes with
/// each of its pods, which are watched themselves.
pub(crate) fn of_specs<K>(
    changes: impl Stream<Item = Change<K>> + Send + 'static,
) -> impl Stream<Item = Change<K>> + Send + 'static
where
    K: Resource + Send + Sync + 'static,
{
    let mut generations = HashMap::new();
    changes.filter(move |change| {
        let uid = |object: &K| object.uid().unwrap_or_default();
        let is_new = match change {
            Change::Applied(object) => {
                let generation = object.meta().generation;
                generations.insert(uid(object), generation) != Some(generation)
            }
            Change::Deleted(object) => {
                generations.remove(&uid(object));
                true
            }
            Change::Unreadable(unreadable) => {
                generations.remove(unreadable.uid.as_deref().unwrap_or_default());
                true
            }
        };
        future::ready(is_new)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::executor::block_on;
    use futures::stream;
    use k8s_openapi::api::apps::v1::DaemonSet;
    use shared_runtime::reflect::Unreadable;

    use super::*;

    #[test]
    fn changes_of_status_are_held_back_and_changes_of_spec_and_deletions_are_not() {
        let set = |generation| {
            let mut set = DaemonSet::default();
            set.metadata.uid = Some("u".to_owned());
            set.metadata.generation = Some(generation);
            Arc::new(set)
        };
        let changes = [
            Change::Applied(set(1)),
            Change::Applied(set(1)),
            Change::Applied(set(2)),
            Change::Deleted(set(2)),
            Change::Applied(set(2)),
        ];
        let through: Vec<_> = block_on(of_specs(stream::iter(changes)).collect());
        assert_eq!(
            through,
            [
                Change::Applied(set(1)),
                Change::Applied(set(2)),
                Change::Deleted(set(2)),
                Change::Applied(set(2))
            ]
        );
    }
    #[test]
    fn a_spec_that_can_be_read_again_comes_through_although_it_is_as_it_was() {
        let mut set = DaemonSet::default();
        set.metadata.uid = Some("u".to_owned());
        set.metadata.generation = Some(1);
        let (set, odd) = (
            Arc::new(set),
            Unreadable {
                namespace: Some("default".to_owned()),
                name: "odd".to_owned(),
                uid: Some("u".to_owned()),
                version: None,
                node_name: None,
                error: "spec: is odd".to_owned(),
            },
        );
        let changes = [
            Change::Applied(Arc::clone(&set)),
            Change::Unreadable(Arc::new(odd)),
            Change::Applied(Arc::clone(&set)),
            Change::Applied(set),
        ];
        assert_eq!(block_on(of_specs(stream::iter(changes)).count()), 3);
    }
}
