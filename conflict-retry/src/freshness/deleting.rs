//! A deletion between its announcement and its acknowledgement.

use super::Expectations;
use super::expectations::Key;

/// A running deletion, from [`Expectations::deleting`]. Until this is dropped, the object counts as deleted: a cached
/// copy of it is stale.
///
/// If it is dropped without [`Self::acknowledged`], the deletion counts as not made, even when its caller was cancelled
/// or its answer was lost. The cache may then contain a deleted object until the watch catches up; acknowledged
/// deletions are not affected.
#[derive(Debug)]
#[must_use = "say that the deletion was acknowledged; dropped, it counts as not made"]
pub struct Deleting {
    expectations: Expectations,
    key: Key,
    uid: Option<String>,
    acknowledged: bool,
}

impl Deleting {
    pub(super) fn announce(expectations: Expectations, key: Key, uid: Option<String>) -> Self {
        if let Some(uid) = &uid {
            expectations.with(|writes, now| writes.announce(key.clone(), uid, now));
        }
        Self { expectations, key, uid, acknowledged: false }
    }

    /// Call this when the server has deleted the object. An object that still waits for its finalizers is not deleted:
    /// record the object with its deletion timestamp through [`Expectations::wrote`] instead.
    pub fn acknowledged(mut self) {
        self.acknowledged = true;
    }
}

impl Drop for Deleting {
    fn drop(&mut self) {
        if let Some(uid) = &self.uid {
            self.expectations.with(|writes, _| writes.answered(&self.key, uid, self.acknowledged));
        }
    }
}
