//! The own writes of one kind that the watch has not brought yet. Pure: time is an argument.
//!
//! A write is settled by whichever comes first:
//! - the watch brings any object of the kind at the write's version or a later one. Events of one watch come in the order
//!   of versions, so everything older has been brought too;
//! - for a deletion: the event of that object's deletion, or an object of the same name with another UID;
//! - a list that *began* after the write has been taken in whole (lists are quorum reads);
//! - five minutes, so that a write the watch can never bring (it moved the object out of the selector before anybody
//!   saw it) does not block for ever.
//!
//! A settled write is kept a little longer: somebody may still hold a copy taken from the cache just before.

use std::collections::HashMap;
use std::time::Duration;

use super::version::Version;

/// Namespace and name.
pub(super) type Key = (Option<String>, String);

/// `ReplicaSet`'s controller gives up on its expectations after the same time (`ExpectationsTimeout`).
const EXPIRY: Duration = Duration::from_secs(300);

/// How long a settled write is kept for those who hold an older copy: longer than a reconcile that asks takes to ask.
const LINGER: Duration = Duration::from_secs(10);

/// Most writes remembered per kind: a bound on memory, far above what a burst leaves open at a time.
const MOST: usize = 10_000;

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// The object is new.
    Created,
    /// The object was changed.
    Updated,
    /// The object is gone.
    Deleted,
}

/// A write that the watch has not brought yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pending {
    /// Namespace, for a namespaced kind.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// What was done to it.
    pub change: ChangeKind,
}

/// What the watch has to bring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    AtLeast(Version),
    Absent,
}

impl Goal {
    pub(super) fn at_least(version: &str) -> Option<Self> {
        Version::parse(version).map(Self::AtLeast)
    }
}

#[derive(Debug)]
struct Entry {
    uid: Option<String>,
    goal: Goal,
    change: ChangeKind,
    /// How many lists had begun when the write was recorded.
    lists: u64,
    at: Duration,
    /// When the watch had brought the write.
    settled: Option<Duration>,
}

/// The writes of one kind.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: HashMap<Key, Entry>,
    seen: Option<Version>,
    listing: Option<Version>,
    lists: u64,
}

impl Ledger {
    pub(super) fn record(
        &mut self,
        key: Key,
        uid: Option<&str>,
        goal: Goal,
        change: ChangeKind,
        now: Duration,
    ) {
        let mut settled = None;
        if let Goal::AtLeast(version) = &goal {
            let known = self.entries.get(&key).map(|entry| &entry.goal);
            if matches!(known, Some(Goal::AtLeast(later)) if later >= version) {
                return;
            }
            if self.seen.as_ref().is_some_and(|seen| seen >= version) {
                // The event was faster than the answer.
                settled = Some(now);
            }
        }
        if self.entries.len() >= MOST && !self.entries.contains_key(&key) {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.at).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                self.entries.remove(&oldest);
            }
        }
        let uid = uid.map(ToOwned::to_owned);
        self.entries.insert(key, Entry { uid, goal, change, lists: self.lists, at: now, settled });
    }

    pub(super) fn forget_deletion(&mut self, key: &Key) {
        if self.entries.get(key).is_some_and(|entry| entry.goal == Goal::Absent) {
            self.entries.remove(key);
        }
    }

    /// Whether a cached object with this UID and version is older than our write of it.
    pub(super) fn is_stale(&self, key: &Key, uid: Option<&str>, version: Option<&str>) -> bool {
        let Some(entry) = self.entries.get(key) else {
            return false;
        };
        match &entry.goal {
            Goal::Absent => entry.uid.as_deref() == uid,
            Goal::AtLeast(floor) => version.and_then(Version::parse).is_some_and(|cached| cached < *floor),
        }
    }

    pub(super) fn pending(&self) -> Vec<Pending> {
        let open = self.entries.iter().filter(|(_, entry)| entry.settled.is_none());
        let mut pending: Vec<_> = open.map(|(key, entry)| to_pending(key, entry)).collect();
        pending.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        pending
    }

    /// Forgets what is too old, and says which of it the watch never brought.
    pub(super) fn expire(&mut self, now: Duration) -> Vec<Pending> {
        let mut expired = Vec::new();
        self.entries.retain(|key, entry| match entry.settled {
            Some(settled) => now.saturating_sub(settled) < LINGER,
            None if now.saturating_sub(entry.at) < EXPIRY => true,
            None => {
                expired.push(to_pending(key, entry));
                false
            }
        });
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
        self.settle(now, |_, entry| entry.lists < lists);
        let listed = self.listing.take();
        self.reached(listed, now);
    }

    pub(super) fn applied(&mut self, key: &Key, uid: Option<&str>, version: Option<&str>, now: Duration) {
        self.settle(now, |of, entry| of == key && entry.goal == Goal::Absent && entry.uid.as_deref() != uid);
        self.reached(version.and_then(Version::parse), now);
    }

    pub(super) fn deleted(&mut self, key: &Key, uid: Option<&str>, version: Option<&str>, now: Duration) {
        self.settle(now, |of, entry| of == key && entry.uid.as_deref() == uid);
        self.reached(version.and_then(Version::parse), now);
    }

    fn reached(&mut self, version: Option<Version>, now: Duration) {
        if version <= self.seen {
            return;
        }
        if let Some(seen) = &version {
            self.settle(now, |_, entry| matches!(&entry.goal, Goal::AtLeast(floor) if floor <= seen));
        }
        self.seen = version;
    }

    fn settle(&mut self, now: Duration, is_brought: impl Fn(&Key, &Entry) -> bool) {
        for (key, entry) in &mut self.entries {
            if entry.settled.is_none() && is_brought(key, entry) {
                entry.settled = Some(now);
            }
        }
    }
}

fn to_pending((namespace, name): &Key, entry: &Entry) -> Pending {
    Pending { namespace: namespace.clone(), name: name.clone(), change: entry.change }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn a() -> Key {
        (None, "a".to_owned())
    }

    fn floor(version: &str) -> Goal {
        Goal::at_least(version).unwrap()
    }

    #[test]
    fn an_older_copy_is_stale_and_the_written_one_is_fresh() {
        let mut ledger = Ledger::default();
        ledger.record(a(), Some("u"), floor("10"), ChangeKind::Updated, NOW);
        assert!(ledger.is_stale(&a(), Some("u"), Some("9")));
        assert!(!ledger.is_stale(&a(), Some("u"), Some("10")));
        assert!(!ledger.is_stale(&(None, "b".to_owned()), Some("v"), Some("1")));
    }

    #[test]
    fn any_later_event_of_the_kind_settles_a_write() {
        let mut ledger = Ledger::default();
        ledger.record(a(), Some("u"), floor("10"), ChangeKind::Created, NOW);
        ledger.applied(&(None, "b".to_owned()), Some("v"), Some("9"), NOW);
        assert_eq!(ledger.pending().len(), 1);
        ledger.applied(&(None, "b".to_owned()), Some("v"), Some("11"), NOW);
        assert!(ledger.pending().is_empty());
    }

    #[test]
    fn an_event_faster_than_the_answer_leaves_nothing_behind() {
        let mut ledger = Ledger::default();
        ledger.applied(&a(), Some("u"), Some("10"), NOW);
        ledger.record(a(), Some("u"), floor("10"), ChangeKind::Created, NOW);
        assert!(ledger.pending().is_empty());
        ledger.record(a(), Some("u"), Goal::Absent, ChangeKind::Deleted, NOW);
        ledger.deleted(&a(), Some("u"), Some("12"), NOW);
        assert!(ledger.pending().is_empty());
    }

    #[test]
    fn a_deleted_object_in_the_cache_is_stale_and_its_successor_is_not() {
        let mut ledger = Ledger::default();
        ledger.record(a(), Some("u"), Goal::Absent, ChangeKind::Deleted, NOW);
        assert!(ledger.is_stale(&a(), Some("u"), Some("9")));
        assert!(!ledger.is_stale(&a(), Some("v"), Some("12")));
        ledger.applied(&a(), Some("v"), Some("12"), NOW);
        assert!(ledger.pending().is_empty());
    }

    #[test]
    fn only_a_list_that_began_after_the_write_settles_it() {
        let mut ledger = Ledger::default();
        ledger.list_began();
        ledger.record(a(), Some("u"), Goal::Absent, ChangeKind::Deleted, NOW);
        ledger.list_ended(NOW);
        assert_eq!(ledger.pending().len(), 1, "the list may have been read before the deletion");
        ledger.list_began();
        assert_eq!(ledger.pending().len(), 1, "the list has not been taken in yet");
        ledger.list_ended(NOW);
        assert!(ledger.pending().is_empty());
    }

    #[test]
    fn versions_in_a_list_count_only_when_it_is_whole() {
        let mut ledger = Ledger::default();
        ledger.list_began();
        ledger.record(a(), Some("u"), floor("10"), ChangeKind::Created, NOW);
        ledger.listed(Some("12"));
        assert_eq!(ledger.pending().len(), 1);
        ledger.list_ended(NOW);
        assert!(ledger.pending().is_empty());
    }

    #[test]
    fn a_later_write_raises_the_floor_and_an_earlier_answer_does_not_lower_it() {
        let mut ledger = Ledger::default();
        ledger.record(a(), Some("u"), floor("20"), ChangeKind::Updated, NOW);
        ledger.record(a(), Some("u"), floor("10"), ChangeKind::Updated, NOW);
        assert!(ledger.is_stale(&a(), Some("u"), Some("15")));
    }

    #[test]
    fn a_write_the_watch_never_brings_is_forgotten_after_five_minutes() {
        let mut ledger = Ledger::default();
        ledger.record(a(), Some("u"), floor("10"), ChangeKind::Created, NOW);
        assert!(ledger.expire(EXPIRY.saturating_sub(Duration::from_secs(1))).is_empty());
        assert_eq!(ledger.expire(EXPIRY).len(), 1);
        assert!(ledger.pending().is_empty());
    }

    #[test]
    fn a_copy_taken_before_the_watch_brought_the_write_is_still_stale() {
        let mut ledger = Ledger::default();
        ledger.record(a(), Some("u"), floor("10"), ChangeKind::Updated, NOW);
        ledger.applied(&a(), Some("u"), Some("10"), NOW);
        assert!(ledger.pending().is_empty());
        assert!(ledger.is_stale(&a(), Some("u"), Some("9")));
        assert!(!ledger.is_stale(&a(), Some("u"), Some("10")));
        assert!(ledger.expire(LINGER).is_empty());
        assert!(ledger.entries.is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let mut ledger = Ledger::default();
        for n in 0..MOST + 10 {
            let now = Duration::from_millis(u64::try_from(n).unwrap());
            ledger.record((None, format!("n{n}")), None, floor("10"), ChangeKind::Created, now);
        }
        assert_eq!(ledger.entries.len(), MOST);
        assert!(!ledger.entries.contains_key(&(None, "n0".to_owned())));
    }
}
