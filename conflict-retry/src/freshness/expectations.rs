//! The process's own writes of one kind that the watch has not brought yet. Pure: time is an argument.
//!
//! A write is settled by the first of these events:
//! - the watch brings any object of the kind at the write's version or a later one. Events of one watch are ordered by
//!   version, so everything older has been brought too;
//! - for a deletion: the event of that object's deletion, or an object of the same name with another UID;
//! - a list that *began* after the write has been received completely (lists are quorum reads);
//! - after five minutes, so that a write that the watch can never bring (it moved the object out of the selector before
//!   the watch saw it) does not block forever.
//!
//! A settled write is kept a little longer: a caller may still hold a copy taken from the cache just before.
//!
//! A deletion is announced before it is sent and recorded in addition to earlier writes: if it fails, those remain
//! valid.

use std::collections::HashMap;
use std::time::Duration;

use super::version::Version;

/// Namespace and name.
pub(super) type Key = (Option<String>, String);

/// `ReplicaSet`'s controller gives up on its expectations after the same time (`ExpectationsTimeout`).
const EXPIRY: Duration = Duration::from_secs(300);

/// How long a settled write is kept for callers with an older copy: longer than a reconcile needs until it checks its
/// copy.
const LINGER: Duration = Duration::from_secs(10);

/// Maximum number of writes remembered per kind: bounds memory, and is far above what a burst leaves open at a time.
const MOST: usize = 10_000;

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// The object was created.
    Created,
    /// The object was updated.
    Updated,
    /// The object was deleted.
    Deleted,
}

/// A write that the watch has not brought yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingWrite {
    /// The object's namespace; `None` for a cluster-scoped kind.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
    /// What the write did.
    pub change: ChangeKind,
}

/// The open state of a write: when it was recorded and when the watch brought it.
#[derive(Debug)]
struct Open {
    /// How many lists had begun when the write was recorded.
    lists: u64,
    at: Duration,
    /// When the watch brought the write; `None` before that.
    closed: Option<Duration>,
}

/// What happens to an entry at a given time.
#[derive(Debug, PartialEq, Eq)]
enum Age {
    Kept,
    Forgotten,
    Expired,
}

impl Open {
    const fn age(&self, now: Duration) -> Age {
        match self.closed {
            Some(closed) if now.saturating_sub(closed).as_nanos() < LINGER.as_nanos() => Age::Kept,
            Some(_) => Age::Forgotten,
            None if now.saturating_sub(self.at).as_nanos() < EXPIRY.as_nanos() => Age::Kept,
            None => Age::Expired,
        }
    }

    fn close(&mut self, now: Duration) {
        self.closed.get_or_insert(now);
    }
}

/// The last acknowledged write of an object.
#[derive(Debug)]
struct Write {
    uid: Option<String>,
    version: Version,
    change: ChangeKind,
    open: Open,
}

/// An announced deletion.
#[derive(Debug)]
struct Deletion {
    uid: String,
    /// Announcements without an answer so far.
    unanswered: usize,
    acknowledged: bool,
    open: Open,
}

/// The open and recently settled writes of one kind.
#[derive(Debug, Default)]
pub(super) struct OwnWrites {
    writes: HashMap<Key, Write>,
    deletions: HashMap<Key, Deletion>,
    seen: Option<Version>,
    listing: Option<Version>,
    lists: u64,
}

impl OwnWrites {
    pub(super) fn record(
        &mut self,
        key: Key,
        uid: Option<&str>,
        version: Version,
        change: ChangeKind,
        now: Duration,
    ) {
        if self.writes.get(&key).is_some_and(|known| known.version >= version) {
            return;
        }
        let mut open = self.open(now);
        if self.seen.as_ref().is_some_and(|seen| *seen >= version) {
            // The event arrived before the answer.
            open.close(now);
        }
        make_room(&mut self.writes, &key, |write| write.open.at);
        let uid = uid.map(ToOwned::to_owned);
        self.writes.insert(key, Write { uid, version, change, open });
    }

    /// A deletion is about to be sent; [`Self::answered`] must follow.
    pub(super) fn announce(&mut self, key: Key, uid: &str, now: Duration) {
        if let Some(known) = self.deletions.get_mut(&key)
            && known.uid == uid
            && known.open.closed.is_none()
        {
            known.unanswered += 1;
            return;
        }
        let open = self.open(now);
        make_room(&mut self.deletions, &key, |deletion| deletion.open.at);
        self.deletions
            .insert(key, Deletion { uid: uid.to_owned(), unanswered: 1, acknowledged: false, open });
    }

    /// An announced deletion has its answer, or will never get one. It is forgotten when no announcement of it is left
    /// and the server has acknowledged none.
    pub(super) fn answered(&mut self, key: &Key, uid: &str, acknowledged: bool) {
        let Some(known) = self.deletions.get_mut(key).filter(|known| known.uid == uid) else {
            return;
        };
        known.unanswered = known.unanswered.saturating_sub(1);
        known.acknowledged |= acknowledged;
        if known.unanswered == 0 && !known.acknowledged && known.open.closed.is_none() {
            self.deletions.remove(key);
        }
    }

    /// Whether a cached object with this UID and version is older than our write of it.
    pub(super) fn is_stale(&self, key: &Key, uid: Option<&str>, version: Option<&str>) -> bool {
        if self.deletions.get(key).is_some_and(|deletion| Some(deletion.uid.as_str()) == uid) {
            return true;
        }
        let Some(write) = self.writes.get(key) else {
            return false;
        };
        version.and_then(Version::parse).is_some_and(|cached| cached < write.version)
    }

    /// An object that was written and then deleted is pending as deleted.
    pub(super) fn pending(&self) -> Vec<PendingWrite> {
        let is_open = |open: &Open| open.closed.is_none();
        let deleted = self.deletions.iter().filter(|(_, deletion)| is_open(&deletion.open));
        let mut pending: Vec<_> = deleted.map(|(key, _)| to_pending(key, ChangeKind::Deleted)).collect();
        let written = self.writes.iter().filter(|(_, write)| is_open(&write.open));
        pending.extend(
            written
                .filter(|(key, _)| !self.deletions.get(*key).is_some_and(|deletion| is_open(&deletion.open)))
                .map(|(key, write)| to_pending(key, write.change)),
        );
        pending.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        pending
    }

    /// Forgets entries that are too old, and returns those that the watch never brought.
    pub(super) fn expire(&mut self, now: Duration) -> Vec<PendingWrite> {
        let mut expired = Vec::new();
        let mut is_kept = |key: &Key, open: &Open, change| {
            let age = open.age(now);
            if age == Age::Expired {
                expired.push(to_pending(key, change));
            }
            age == Age::Kept
        };
        self.writes.retain(|key, write| is_kept(key, &write.open, write.change));
        self.deletions.retain(|key, deletion| is_kept(key, &deletion.open, ChangeKind::Deleted));
        expired
    }

    pub(super) fn list_began(&mut self) {
        self.lists += 1;
        self.listing = None;
    }

    pub(super) fn listed(&mut self, version: Option<&str>) {
        self.listing = self.listing.take().max(version.and_then(Version::parse));
    }

    pub(super) fn list_ended(&mut self, now: Duration) {
        let lists = self.lists;
        for open in self.opens().filter(|open| open.lists < lists) {
            open.close(now);
        }
        let listed = self.listing.take();
        self.reached(listed, now);
    }

    pub(super) fn applied(&mut self, key: &Key, uid: Option<&str>, version: Option<&str>, now: Duration) {
        if let Some(deletion) = self.deletions.get_mut(key)
            && Some(deletion.uid.as_str()) != uid
        {
            deletion.open.close(now);
        }
        self.reached(version.and_then(Version::parse), now);
    }

    pub(super) fn deleted(&mut self, key: &Key, uid: Option<&str>, version: Option<&str>, now: Duration) {
        if let Some(deletion) = self.deletions.get_mut(key)
            && Some(deletion.uid.as_str()) == uid
        {
            deletion.open.close(now);
        }
        if let Some(write) = self.writes.get_mut(key)
            && write.uid.as_deref() == uid
        {
            write.open.close(now);
        }
        self.reached(version.and_then(Version::parse), now);
    }

    pub(super) fn rewound(&mut self) {
        *self = Self { lists: self.lists, ..Self::default() };
    }

    fn reached(&mut self, version: Option<Version>, now: Duration) {
        if version <= self.seen {
            return;
        }
        if let Some(seen) = &version {
            for write in self.writes.values_mut().filter(|write| write.version <= *seen) {
                write.open.close(now);
            }
        }
        self.seen = version;
    }

    const fn open(&self, now: Duration) -> Open {
        Open { lists: self.lists, at: now, closed: None }
    }

    fn opens(&mut self) -> impl Iterator<Item = &mut Open> {
        let writes = self.writes.values_mut().map(|write| &mut write.open);
        writes.chain(self.deletions.values_mut().map(|deletion| &mut deletion.open))
    }
}

/// Removes the oldest entry when there is no room for another one.
fn make_room<T>(entries: &mut HashMap<Key, T>, newcomer: &Key, at: impl Fn(&T) -> Duration) {
    if entries.len() < MOST || entries.contains_key(newcomer) {
        return;
    }
    let oldest = entries.iter().min_by_key(|(_, entry)| at(entry)).map(|(key, _)| key.clone());
    if let Some(oldest) = oldest {
        entries.remove(&oldest);
    }
}

fn to_pending(key: &Key, change: ChangeKind) -> PendingWrite {
    let (namespace, name) = key;
    PendingWrite { namespace: namespace.clone(), name: name.clone(), change }
}

#[cfg(test)]
#[path = "expectations_tests.rs"]
mod tests;
