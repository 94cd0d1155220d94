//! What becomes of the nodes and machines of a pool that is deleted, as the pool's annotation says.

use shared_crds::{NodePool, names};

use crate::Observed;

/// What becomes of a pool's nodes when it is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnDelete {
    /// They are drained, and their machines deleted.
    Drain,
    /// They keep running, in no pool, and their machines stay.
    Orphan,
    /// The annotation has this value, which says neither: the deletion waits, so that nothing is lost by a misspelling.
    Unknown(String),
}

impl OnDelete {
    /// What the annotation of `pool` says. Without one it is [`Self::Drain`].
    pub fn of(pool: &NodePool) -> Self {
        let annotations = pool.metadata.annotations.as_ref();
        match annotations.and_then(|all| all.get(names::ON_DELETE_ANNOTATION)).map(String::as_str) {
            None | Some("Drain") => Self::Drain,
            Some("Orphan") => Self::Orphan,
            Some(other) => Self::Unknown(other.to_owned()),
        }
    }

    /// The same for a pool that is being deleted; `None` for every other one.
    pub(crate) fn due(pool: &NodePool) -> Option<Self> {
        pool.metadata.deletion_timestamp.as_ref().map(|_deleted| Self::of(pool))
    }
}

/// Whether the pool is being deleted, and leaves its nodes and machines where they are.
pub fn is_orphaning(pool: &NodePool) -> bool {
    OnDelete::due(pool) == Some(OnDelete::Orphan)
}

/// Whether the pool is being deleted, and does not say in words that are known what becomes of its nodes.
pub(crate) fn waits(pool: &NodePool) -> bool {
    matches!(OnDelete::due(pool), Some(OnDelete::Unknown(_)))
}

impl Observed {
    /// Whether no machine of the pool is deleted, because its nodes outlive it by its user's wish. A machine whose Node was released
    /// looks like one that never got a Node.
    pub(crate) fn leaves_machines(&self) -> bool {
        self.pool.as_deref().map_or(self.is_orphaned, is_orphaning)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::testing::{at, pool};

    #[test]
    fn only_the_exact_word_orphans_and_only_a_pool_that_is_being_deleted() {
        let unknown = |value: &str| OnDelete::Unknown(value.to_owned());
        for (value, expected) in [
            (None, OnDelete::Drain),
            (Some("Drain"), OnDelete::Drain),
            (Some("Orphan"), OnDelete::Orphan),
            (Some("orphan"), unknown("orphan")),
            (Some("Orphan "), unknown("Orphan ")),
            (Some("true"), unknown("true")),
            (Some(""), unknown("")),
        ] {
            let mut pool = pool(1);
            pool.metadata.annotations =
                value.map(|value| [(names::ON_DELETE_ANNOTATION.to_owned(), value.to_owned())].into());
            assert_eq!((OnDelete::of(&pool), OnDelete::due(&pool)), (expected.clone(), None), "{value:?}");
            assert!(!is_orphaning(&pool), "{value:?}");
            pool.metadata.deletion_timestamp = Some(Time(at(90)));
            assert_eq!(OnDelete::due(&pool), Some(expected), "{value:?}");
            assert_eq!(is_orphaning(&pool), value == Some("Orphan"), "{value:?}");
        }
    }
}
