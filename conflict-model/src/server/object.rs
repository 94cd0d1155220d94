//! The object as the server stores it, reduced to what determines the answers.

use super::ownership::Owners;
use super::status::Status;

/// Number of members of [`Spec::tokens`].
pub const TOKENS: usize = 3;

/// Which of all objects of this name it is: 1 for the first.
pub type Uid = u32;

/// A state of the store; grows with every stored write.
pub type ModelVersion = u64;

/// A stored object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// Distinguishes it from other objects of the same name.
    pub uid: Uid,
    /// The write that created this state: `metadata.resourceVersion`.
    pub version: ModelVersion,
    /// `metadata.generation`: 1 at first.
    pub generation: i64,
    /// Whether it has a deletion timestamp and waits for its finalizer.
    pub deleting: bool,
    /// The part of `metadata` that writers may change.
    pub meta: Meta,
    /// The wanted state.
    pub spec: Spec,
    /// The observed state; `None` until a writer writes it.
    pub status: Option<Status>,
    /// The field managers of `status`: `metadata.managedFields`.
    pub owners: Owners,
}

/// The part of `metadata` that writers may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Meta {
    /// The value of the one label; `None` when it is absent.
    pub label: Option<u8>,
    /// Whether the object has a finalizer.
    pub finalizer: bool,
}

/// The wanted state. `minReplicas` is always 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// `spec.replicas`; may be unset.
    pub replicas: Option<i32>,
    /// `spec.maxReplicas`: the upper bound that validation applies to a changed `replicas`.
    pub max_replicas: i32,
    /// A field that every writer changes: how often each token is in it. On the real server these are labels of the
    /// pool's template.
    pub tokens: [u8; TOKENS],
}

impl Spec {
    /// A spec with only its upper bound set.
    pub const fn with_max(max_replicas: i32) -> Self {
        Self { replicas: None, max_replicas, tokens: [0; TOKENS] }
    }

    /// Whether the schema and its CEL rules accept `self` as an update of `old`.
    pub fn is_valid_after(&self, old: Option<&Self>) -> bool {
        let kept = |replicas| old.is_some_and(|old| old.replicas == Some(replicas));
        let bounded =
            |replicas| replicas >= 0 && (kept(replicas) || (0..=self.max_replicas).contains(&replicas));
        self.max_replicas >= 0 && self.replicas.is_none_or(bounded)
    }
}
