//! The object as the server stores it, reduced to what decides the answers.

use super::ownership::Owners;
use super::status::Status;

/// Members of [`Spec::tokens`].
pub const TOKENS: usize = 3;

/// Which of all objects that ever had the name: 1 for the first.
pub type Uid = u32;

/// A state of the store; grows with every write that is stored.
pub type Version = u64;

/// A stored object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// Told apart from its namesakes by this.
    pub uid: Uid,
    /// The write that made this state: `metadata.resourceVersion`.
    pub version: Version,
    /// `metadata.generation`: 1 at first.
    pub generation: i64,
    /// Whether it is marked for deletion and waits for its finalizer.
    pub deleting: bool,
    /// The part of `metadata` that writers may change.
    pub meta: Meta,
    /// What is wanted.
    pub spec: Spec,
    /// What was observed; `None` until somebody writes it.
    pub status: Option<Status>,
    /// Who owns which field of `status`: `metadata.managedFields`.
    pub owners: Owners,
}

/// The part of `metadata` that writers may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Meta {
    /// The value of the one label, if it is there.
    pub label: Option<u8>,
    /// Whether a finalizer holds the object.
    pub finalizer: bool,
}

/// What is wanted. `minReplicas` is 0 throughout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// `spec.replicas`; may be unset.
    pub replicas: Option<i32>,
    /// `spec.maxReplicas`: the bound that validation holds a changed `replicas` to.
    pub max_replicas: i32,
    /// A field for everybody to change: how often each token is in it. On the real server these are labels of the pool's
    /// template.
    pub tokens: [u8; TOKENS],
}

impl Spec {
    /// A spec of nothing but its bound.
    pub const fn with_max(max_replicas: i32) -> Self {
        Self { replicas: None, max_replicas, tokens: [0; TOKENS] }
    }

    /// Whether the schema and its CEL rules let `self` take the place of `old`.
    pub fn is_valid_after(&self, old: Option<&Self>) -> bool {
        let kept = |replicas| old.is_some_and(|old| old.replicas == Some(replicas));
        let bounded =
            |replicas| replicas >= 0 && (kept(replicas) || (0..=self.max_replicas).contains(&replicas));
        self.max_replicas >= 0 && self.replicas.is_none_or(bounded)
    }
}
