//! Which pools that are gone have left their nodes and machines behind by their users' wish. A machine whose Node was released looks
//! like one that never got a Node, and those of a pool that is gone are deleted.
//!
//! A restart forgets it, and visits no such pool: it has neither an object nor nodes.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use futures::{Stream, StreamExt as _};
use node_lifecycle::PoolKey;
use node_lifecycle::on_delete::is_orphaning;
use shared_crds::NodePool;
use shared_runtime::reflect::Change;

/// The pools that were last seen being deleted without their nodes.
#[derive(Debug, Default)]
pub(crate) struct Orphans(Mutex<HashSet<PoolKey>>);

impl Orphans {
    /// Records what the pool says, which is `None` when it is gone. Returns whether it has left its nodes and machines behind.
    pub(crate) fn look(&self, key: &PoolKey, pool: Option<&NodePool>) -> bool {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match pool {
            Some(pool) if is_orphaning(pool) => {
                left.insert(key.clone());
                false
            }
            Some(_) => {
                left.remove(key);
                false
            }
            None => left.contains(key),
        }
    }
}

/// The same `changes`, each recorded: a process that becomes the leader has to know what it has not done itself.
pub(crate) fn recorded(
    changes: impl Stream<Item = Change<NodePool>> + Send + 'static,
    orphans: Arc<Orphans>,
) -> impl Stream<Item = Change<NodePool>> + Send + 'static {
    changes.inspect(move |change| {
        if let Some(pool) = change.object() {
            orphans.look(&PoolKey::of_pool(pool), Some(&**pool));
        }
    })
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, stream};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use node_lifecycle::testing::{at, key, pool};
    use shared_crds::names;

    use super::*;

    #[test]
    fn a_pool_that_is_gone_has_left_its_nodes_if_that_was_the_last_thing_it_said() {
        let orphans = Orphans::default();
        let mut leaves = pool(1);
        leaves.metadata.annotations = Some([(names::ON_DELETE_ANNOTATION.into(), "Orphan".into())].into());
        assert!(!orphans.look(&key(), Some(&leaves)) && !orphans.look(&key(), None), "it was not deleted");
        leaves.metadata.deletion_timestamp = Some(Time(at(90)));
        assert!(!orphans.look(&key(), Some(&leaves)), "it is not gone");
        assert!(orphans.look(&key(), None) && orphans.look(&key(), None));
        let other = PoolKey { name: "other".into(), ..key() };
        assert!(!orphans.look(&other, None));
        // Another pool of the same name.
        assert!(!orphans.look(&key(), Some(&pool(1))) && !orphans.look(&key(), None));
    }

    #[test]
    fn a_process_that_only_watches_knows_it_too() {
        let orphans = Arc::<Orphans>::default();
        let mut leaves = pool(1);
        leaves.metadata.annotations = Some([(names::ON_DELETE_ANNOTATION.into(), "Orphan".into())].into());
        leaves.metadata.deletion_timestamp = Some(Time(at(90)));
        let changes = stream::iter([Change::Applied(Arc::new(pool(1))), Change::Deleted(Arc::new(leaves))]);
        let passed = recorded(changes, Arc::clone(&orphans)).collect::<Vec<_>>().now_or_never().unwrap();
        assert_eq!(passed.len(), 2);
        assert!(orphans.look(&key(), None));
    }
}
