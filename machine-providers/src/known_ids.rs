//! The provider IDs of machines: which pool a Node belongs to that has just registered, and which Nodes are left of machines
//! that are gone; and which machines would be made from something else now.
//!
//! All of it is in memory, and made again from the providers' lists.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use node_lifecycle::keys::PoolKey;
use node_lifecycle::supply::Machine;

/// How long after the deletion of a machine its kubelet's last request may still create a Node.
const LATE_NODE: SignedDuration = SignedDuration::from_mins(10);

/// How long the last request of a kubelet may be under way when its machine is gone.
const LAST_REQUEST: SignedDuration = SignedDuration::from_secs(5);

#[derive(Debug, Default)]
struct Ids {
    /// The pool and the name of each listed machine.
    listed: HashMap<String, (PoolKey, String)>,
    /// Machines that were deleted, and since when no list has shown them.
    deleted: HashMap<String, (PoolKey, Option<Timestamp>)>,
    /// Machines with a Node whose deletion has begun, by pool and name.
    ending: HashSet<(PoolKey, String)>,
    /// By pool, the machines with a Node that their provider was ending by itself when a list showed them last.
    seen_ending: HashMap<PoolKey, BTreeSet<String>>,
    /// By pool, the machines that the last list called outdated.
    outdated: HashMap<PoolKey, BTreeSet<String>>,
}

/// The provider IDs of every pool's machines.
#[derive(Debug, Default)]
pub(super) struct KnownIds(Mutex<Ids>);

impl KnownIds {
    fn ids(&self) -> MutexGuard<'_, Ids> {
        // What is remembered is advisory, so a panic elsewhere leaves nothing that could do harm.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the list of a pool's machines. Returns the IDs of those that were deleted and are gone.
    pub(super) fn record_list(
        &self,
        key: &PoolKey,
        machines: &[Machine],
        now: Timestamp,
    ) -> BTreeSet<String> {
        let mut ids = self.ids();
        ids.listed.retain(|_, (pool, _)| pool != key);
        let of =
            |machine: &Machine| Some((machine.provider_id.clone()?, (key.clone(), machine.name.clone())));
        ids.listed.extend(machines.iter().filter_map(of));
        let outdated = machines.iter().filter(|machine| machine.is_outdated);
        ids.outdated.insert(key.clone(), outdated.map(|machine| machine.name.clone()).collect());
        let Ids { listed, deleted, ending: _, seen_ending: _, outdated: _ } = &mut *ids;
        deleted.retain(|id, (pool, since)| {
            match listed.get(id) {
                // A provider may give an ID away again as soon as its machine is gone: the next Node that has it is another machine's.
                Some((other, _)) if *other != *pool => return false,
                Some(_) if pool == key => *since = None,
                None if pool == key => {
                    // A time to come was recorded before the clock was set back.
                    *since = Some(since.map_or(now, |since| since.min(now)));
                }
                Some(_) | None => {}
            }
            since.is_none_or(|since| since.checked_add(LATE_NODE).is_ok_and(|end| end > now))
        });
        let gone = deleted.iter().filter(|(_, (pool, since))| pool == key && since.is_some());
        gone.map(|(id, _)| id.clone()).collect()
    }

    /// Records that a machine without a Node is deleted.
    pub(super) fn deleted(&self, key: &PoolKey, name: &str) {
        let mut ids = self.ids();
        let named = |(_, (pool, other)): &(&String, &(PoolKey, String))| pool == key && other == name;
        if let Some((id, _)) = ids.listed.iter().find(named) {
            let id = id.clone();
            ids.deleted.insert(id, (key.clone(), None));
        }
    }

    /// Records that the deletion of a machine has begun.
    pub(super) fn begins_to_end(&self, key: &PoolKey, name: &str) {
        self.ids().ending.insert((key.clone(), name.to_owned()));
    }

    /// Whether this process has seen the deletion of the machine begin.
    pub(super) fn has_begun_to_end(&self, key: &PoolKey, name: &str) -> bool {
        self.ids().ending.contains(&(key.clone(), name.to_owned()))
    }

    /// Records that it is certain that the machine is gone.
    pub(super) fn gone(&self, key: &PoolKey, name: &str) {
        self.ids().ending.remove(&(key.clone(), name.to_owned()));
    }

    /// Records that what was seen of the machine's end matters no more: its Node is gone, or its name is used again.
    pub(super) fn ended(&self, key: &PoolKey, name: &str) {
        let mut ids = self.ids();
        ids.ending.remove(&(key.clone(), name.to_owned()));
        if let Some(seen) = ids.seen_ending.get_mut(key) {
            seen.remove(name);
        }
    }

    /// Records that a list of the pool's provider shows these machines, and that it is ending some of them by itself. Of one that it
    /// does not show, what was seen last stands.
    pub(super) fn record_ending<'a>(
        &self,
        key: &PoolKey,
        shown: impl Iterator<Item = &'a str>,
        ending: BTreeSet<String>,
    ) {
        let mut ids = self.ids();
        let seen = ids.seen_ending.entry(key.clone()).or_default();
        for name in shown {
            seen.remove(name);
        }
        seen.extend(ending);
        if seen.is_empty() {
            ids.seen_ending.remove(key);
        }
    }

    /// The pool's machines with a Node that their provider was ending by itself when a list showed them last.
    pub(super) fn seen_ending(&self, key: &PoolKey) -> BTreeSet<String> {
        self.ids().seen_ending.get(key).cloned().unwrap_or_default()
    }

    /// Until when the Node of a machine that has just gone may still appear; `None` when none may.
    pub(super) fn uncertain_until(&self, key: &PoolKey, now: Timestamp) -> Option<Timestamp> {
        let ids = self.ids();
        let since =
            ids.deleted.values().filter(|(pool, _)| pool == key).filter_map(|(_, since)| *since).max();
        since?.checked_add(LAST_REQUEST).ok().filter(|until| *until > now)
    }

    /// The pool that lists, or has deleted, a machine with this provider ID.
    pub(super) fn pool_of(&self, id: &str) -> Option<PoolKey> {
        let ids = self.ids();
        let listed = ids.listed.get(id).map(|(pool, _)| pool);
        listed.or_else(|| ids.deleted.get(id).map(|(pool, _)| pool)).cloned()
    }

    /// The machines of the pool that its last list called outdated. While it cannot be listed, they are so still.
    pub(super) fn outdated(&self, key: &PoolKey) -> BTreeSet<String> {
        self.ids().outdated.get(key).cloned().unwrap_or_default()
    }

    /// Drops everything about a pool that is gone.
    pub(super) fn forget(&self, key: &PoolKey) {
        let mut ids = self.ids();
        ids.outdated.remove(key);
        ids.seen_ending.remove(key);
        ids.listed.retain(|_, (pool, _)| pool != key);
        ids.deleted.retain(|_, (pool, _)| pool != key);
        ids.ending.retain(|(pool, _)| pool != key);
    }
}

#[cfg(test)]
mod tests {
    use node_lifecycle::supply::{KnownAs, MachineState};

    use super::*;
    use crate::testing::{at, key};

    fn machine(name: &str, id: &str) -> Machine {
        Machine {
            name: name.to_owned(),
            state: MachineState::Running,
            provider_id: Some(id.to_owned()),
            is_marked: false,
            template_hash: None,
            is_outdated: false,
            known_as: KnownAs::default(),
        }
    }

    #[test]
    fn an_id_is_that_of_a_deleted_machine_from_when_it_is_no_longer_listed_for_ten_minutes() {
        let (ids, none) = (KnownIds::default(), BTreeSet::new());
        let both = [machine("a", "x://a"), machine("b", "x://b")];
        assert_eq!(ids.record_list(&key(), &both, at(0)), none);
        assert_eq!(ids.pool_of("x://a"), Some(key()));
        ids.deleted(&key(), "a");
        assert_eq!(ids.record_list(&key(), &both, at(1)), none, "it is being deleted");
        let rest = &both[1..];
        let gone = BTreeSet::from(["x://a".to_owned()]);
        assert_eq!(ids.uncertain_until(&key(), at(1)), None);
        assert_eq!(ids.record_list(&key(), rest, at(2)), gone);
        assert_eq!(ids.uncertain_until(&key(), at(2)), Some(at(7)));
        assert_eq!(ids.uncertain_until(&key(), at(7)), None);
        assert_eq!(ids.pool_of("x://a"), Some(key()));
        assert_eq!(ids.record_list(&key(), rest, at(601)), gone);
        assert_eq!(ids.record_list(&key(), &both, at(601)), none, "the name is used again");
        assert_eq!(ids.record_list(&key(), rest, at(602)), gone);
        assert_eq!(ids.record_list(&key(), rest, at(1202)), none);
        assert_eq!(ids.pool_of("x://a"), None);
    }

    #[test]
    fn an_id_that_the_machine_of_another_pool_has_now_is_not_that_of_a_deleted_one() {
        let (ids, none) = (KnownIds::default(), BTreeSet::new());
        let other = PoolKey { namespace: "default".to_owned(), name: "other".to_owned() };
        ids.record_list(&key(), &[machine("a", "x://100")], at(0));
        ids.deleted(&key(), "a");
        assert_eq!(ids.record_list(&key(), &[], at(1)), BTreeSet::from(["x://100".to_owned()]));
        ids.record_list(&other, &[machine("b", "x://100")], at(2));
        assert_eq!(ids.record_list(&key(), &[], at(3)), none, "its Node is the other pool's");
        assert_eq!(ids.pool_of("x://100"), Some(other));
    }

    #[test]
    fn a_clock_that_is_set_back_makes_no_node_of_a_deleted_machine_awaited_for_longer() {
        let ids = KnownIds::default();
        ids.record_list(&key(), &[machine("a", "x://a")], at(3600));
        ids.deleted(&key(), "a");
        ids.record_list(&key(), &[], at(3600));
        let gone = BTreeSet::from(["x://a".to_owned()]);
        assert_eq!(ids.record_list(&key(), &[], at(10)), gone);
        assert_eq!(ids.uncertain_until(&key(), at(10)), Some(at(15)));
        assert_eq!(ids.uncertain_until(&key(), at(15)), None);
        assert_eq!(ids.record_list(&key(), &[], at(609)), gone);
        assert_eq!(ids.record_list(&key(), &[], at(610)), BTreeSet::new());
    }

    #[test]
    fn a_machine_that_vanishes_by_itself_was_not_deleted() {
        let ids = KnownIds::default();
        ids.record_list(&key(), &[machine("a", "x://a")], at(0));
        assert_eq!(ids.record_list(&key(), &[], at(1)), BTreeSet::new());
    }
}
