//! The pools that are gone although Nodes carry their names: which of them this process has ended itself, and what it has said of the
//! others.
//!
//! A Node that turns up when the deletion of its pool has ended was created by a request that the API server carried out late: its answer
//! was lost, and every Node was gone when the pool was let go. Nodes of other pools that are gone stay: their pool lost its finalizer to
//! another client, and no user has decided about them. A restart forgets the difference, and such a Node stays too.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use node_lifecycle::PoolKey;
use shared_crds::NodePool;
use shared_runtime::clock::Clock;

/// For how long after its pool a Node may still come. An API server gives a request up after a minute (`--request-timeout`), and its
/// watch shows what was written within seconds.
const LATE: Duration = Duration::from_secs(5 * 60);

/// For how long machines of a pool that is gone are looked for which cannot be listed, or do not go. Longer than most outages: nothing
/// else ends them, and they cost money. Where a right is missing, it would have no end.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(60 * 60);

/// What is known of pools that are gone.
pub(crate) struct GonePools {
    clock: Clock,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// When this process has let go of a pool whose last node was gone.
    ended: HashMap<PoolKey, Ended>,
    /// The nodes of which was said that they stay.
    said: HashMap<PoolKey, BTreeSet<String>>,
    /// Since when machines of it have been looked for, by the monotonic clock.
    looked_for: HashMap<PoolKey, Duration>,
}

/// When that was, by both clocks.
#[derive(Clone, Copy)]
struct Ended {
    monotonic: Duration,
    time: Timestamp,
}

impl GonePools {
    /// Knows nothing.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the pool was let go because its last node was gone.
    pub(crate) fn ended(&self, key: PoolKey) {
        let now = self.clock.monotonic();
        let mut known = self.known();
        known.ended.retain(|_, at| now.saturating_sub(at.monotonic) < LATE);
        known.ended.insert(key, Ended { monotonic: now, time: self.clock.now() });
    }

    /// When this process has ended the pool, if that was a moment ago. `pool` is what there is now: another one of its name ends that.
    pub(crate) fn just_ended(&self, key: &PoolKey, pool: Option<&NodePool>) -> Option<Timestamp> {
        let now = self.clock.monotonic();
        let mut known = self.known();
        if pool.is_some_and(|pool| pool.metadata.deletion_timestamp.is_none()) {
            known.ended.remove(key);
        }
        if pool.is_some() {
            known.looked_for.remove(key);
        }
        let ended = known.ended.get(key).filter(|at| now.saturating_sub(at.monotonic) < LATE)?;
        pool.is_none().then_some(ended.time)
    }

    /// Whether it was not said yet that these `nodes` of a pool that is gone stay. It counts as said from now on.
    pub(crate) fn is_news(&self, key: &PoolKey, nodes: BTreeSet<String>) -> bool {
        if nodes.is_empty() {
            return false;
        }
        let mut known = self.known();
        let is_said = known.said.get(key).is_some_and(|said| nodes.is_subset(said));
        known.said.insert(key.clone(), nodes);
        !is_said
    }

    /// Whether machines of the pool have been looked for long enough. The first call begins.
    pub(crate) fn is_given_up(&self, key: &PoolKey) -> bool {
        let now = self.clock.monotonic();
        let since = *self.known().looked_for.entry(key.clone()).or_insert(now);
        now.saturating_sub(since) >= GIVEN_UP_AFTER
    }

    /// Drops what was said of the pool, and since when machines of it were looked for: it has neither nodes nor machines any more.
    pub(crate) fn forget(&self, key: &PoolKey) {
        let mut known = self.known();
        known.said.remove(key);
        known.looked_for.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use node_lifecycle::testing::{at, key, pool};

    use super::*;

    #[test]
    fn a_pool_has_just_ended_for_a_while_unless_there_is_another_one() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let gone = GonePools::new(clock);
        assert_eq!(gone.just_ended(&key(), None), None);
        gone.ended(key());
        let mut going = pool(1);
        going.metadata.deletion_timestamp = Some(Time(at(90)));
        assert_eq!(gone.just_ended(&key(), Some(&going)), None, "the cache has it still");
        assert_eq!(gone.just_ended(&key(), None), Some(Timestamp::UNIX_EPOCH));
        time.advance(LATE);
        assert_eq!(gone.just_ended(&key(), None), None);
        gone.ended(key());
        assert_eq!(gone.just_ended(&key(), Some(&pool(1))), None);
        assert_eq!(gone.just_ended(&key(), None), None);
    }

    #[test]
    fn machines_are_looked_for_for_an_hour_from_the_first_time_on() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let gone = GonePools::new(clock);
        time.advance(GIVEN_UP_AFTER);
        assert!(!gone.is_given_up(&key()));
        time.advance(GIVEN_UP_AFTER / 2);
        assert!(!gone.is_given_up(&key()));
        time.advance(GIVEN_UP_AFTER / 2);
        assert!(gone.is_given_up(&key()));
        assert_eq!(gone.just_ended(&key(), Some(&pool(1))), None);
        assert!(!gone.is_given_up(&key()), "there was another pool of the name");
        time.advance(GIVEN_UP_AFTER);
        gone.forget(&key());
        assert!(!gone.is_given_up(&key()));
    }

    #[test]
    fn that_nodes_stay_is_said_once_and_of_others_again() {
        let gone = GonePools::new(Clock::fake(Timestamp::UNIX_EPOCH).0);
        let nodes = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert!(!gone.is_news(&key(), nodes(&[])));
        assert!(gone.is_news(&key(), nodes(&["a", "b"])) && !gone.is_news(&key(), nodes(&["a", "b"])));
        assert!(!gone.is_news(&key(), nodes(&["b"])), "one has gone");
        assert!(gone.is_news(&key(), nodes(&["b", "c"])));
        gone.forget(&key());
        assert!(gone.is_news(&key(), nodes(&["b", "c"])));
    }
}
