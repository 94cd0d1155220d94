//! A deletion between its announcement and its answer.

use super::Floors;
use super::ledger::Key;

/// A deletion under way, from [`Floors::deleting`]. Until it is dropped, the object counts as deleted: a cached copy of it
/// is stale.
///
/// Dropped without [`Self::acknowledged`], the deletion counts as not made, also when its caller was cancelled or its answer
/// lost. The cache may then show an object that is gone, for as long as the watch takes; nothing that was acknowledged is
/// taken back by that.
#[derive(Debug)]
#[must_use = "say that the deletion was acknowledged; dropped, it counts as not made"]
pub struct Deleting {
    floors: Floors,
    key: Key,
    uid: Option<String>,
    acknowledged: bool,
}

impl Deleting {
    pub(super) fn announce(floors: Floors, key: Key, uid: Option<String>) -> Self {
        if let Some(uid) = &uid {
            floors.with(|ledger, now| ledger.announce(key.clone(), uid, now));
        }
        Self { floors, key, uid, acknowledged: false }
    }

    /// The server has deleted the object. One that lives on until its finalizers are done is not deleted: record the marked
    /// object with [`Floors::wrote`] instead.
    pub fn acknowledged(mut self) {
        self.acknowledged = true;
    }
}

impl Drop for Deleting {
    fn drop(&mut self) {
        if let Some(uid) = &self.uid {
            self.floors.with(|ledger, _| ledger.answered(&self.key, uid, self.acknowledged));
        }
    }
}
