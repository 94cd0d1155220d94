//! Which nodes are being drained now: at most so many of all pools at a time. The others are closed and wait.
//!
//! A drain keeps its place while its pods change. One whose pods have not changed for a while hands its place to one that waits,
//! and goes to the end of the queue: a budget that lets nothing go blocks its own nodes and no others. The pool with the fewest
//! places is first. A restart empties it; the nodes ask again, in the order in which their drains began.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use shared_runtime::clock::Clock;

use crate::plan::PoolKey;

/// For how long a drain keeps its place although nothing changes and others wait: a little longer than the default grace
/// period of a pod.
const PATIENCE: Duration = Duration::from_secs(40);
/// After this time without a pass that asks for it a drain has no place any more: its pool fails, or is gone.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// The drains that have a place, and those that wait for one.
pub(crate) struct Places {
    clock: Clock,
    most: usize,
    drains: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// The number of the next one that comes to the end.
    next: u64,
    /// By the name of their node.
    drains: BTreeMap<String, Drain>,
}

struct Drain {
    pool: PoolKey,
    asked: Duration,
    number: u64,
    place: Option<Place>,
}

struct Place {
    /// When the pods changed last.
    changed: Duration,
    /// The number of pods, and how many of them are terminating; `None` until they are listed.
    pods: Option<(usize, usize)>,
}

/// The places of a pool.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Its nodes that have one.
    pub nodes: BTreeSet<String>,
    /// Number of places that are taken by all pools.
    pub all: usize,
}

impl Places {
    /// As many places as `most`, all free.
    pub(crate) fn new(clock: Clock, most: usize) -> Self {
        Self { clock, most, drains: Mutex::default() }
    }

    /// The places of the pool whose nodes `wanted` are to be drained, in this order where they are new. Its other nodes give
    /// theirs back.
    pub(crate) fn take(&self, key: &PoolKey, wanted: &[String]) -> Held {
        let now = self.clock.monotonic();
        let mut queue = self.drains.lock().unwrap_or_else(PoisonError::into_inner);
        let names: BTreeSet<&String> = wanted.iter().collect();
        queue.drains.retain(|node, drain| match &drain.pool {
            pool if pool == key => names.contains(node),
            _ => now.saturating_sub(drain.asked) < FORGOTTEN_AFTER,
        });
        for node in wanted {
            queue.ask(key, node, now);
        }
        queue.hand_over(now, self.most);
        queue.assign(now, self.most);
        let held = queue.drains.iter().filter(|(_, drain)| drain.place.is_some());
        let own = held.clone().filter(|(_, drain)| drain.pool == *key);
        Held { nodes: own.map(|(node, _)| node.clone()).collect(), all: held.count() }
    }

    /// Notes the pods of a node that were listed now.
    pub(crate) fn listed<'a>(&self, node: &str, pods: impl ExactSizeIterator<Item = &'a Pod>) {
        let now = self.clock.monotonic();
        let all = pods.len();
        let terminating = pods.filter(|pod| pod.metadata.deletion_timestamp.is_some()).count();
        let mut queue = self.drains.lock().unwrap_or_else(PoisonError::into_inner);
        let place = queue.drains.get_mut(node).and_then(|drain| drain.place.as_mut());
        if let Some(place) = place.filter(|place| place.pods != Some((all, terminating))) {
            *place = Place { changed: now, pods: Some((all, terminating)) };
        }
    }

    /// Frees the places of a pool that is gone.
    pub(crate) fn forget(&self, key: &PoolKey) {
        let mut queue = self.drains.lock().unwrap_or_else(PoisonError::into_inner);
        queue.drains.retain(|_, drain| drain.pool != *key);
    }
}

impl Queue {
    fn ask(&mut self, key: &PoolKey, node: &str, now: Duration) {
        if let Some(drain) = self.drains.get_mut(node) {
            drain.pool.clone_from(key);
            drain.asked = now;
        } else {
            let number = self.number();
            let drain = Drain { pool: key.clone(), asked: now, number, place: None };
            self.drains.insert(node.to_owned(), drain);
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Takes the place of as many drains as wait for one, of those whose pods have not changed for a while.
    fn hand_over(&mut self, now: Duration, most: usize) {
        let taken = self.drains.values().filter(|drain| drain.place.is_some()).count();
        let waiting = (self.drains.len() - taken).saturating_sub(most.saturating_sub(taken));
        let is_idle = |place: &Place| now.saturating_sub(place.changed) >= PATIENCE;
        let idle = self.drains.iter().filter_map(|(node, drain)| {
            let place = drain.place.as_ref().filter(|place| is_idle(place))?;
            Some((place.changed, drain.number, node.clone()))
        });
        let mut idle: Vec<_> = idle.collect();
        idle.sort();
        for (_, _, node) in idle.into_iter().take(waiting) {
            let number = self.number();
            if let Some(drain) = self.drains.get_mut(&node) {
                drain.place = None;
                drain.number = number;
            }
        }
    }

    /// Gives the free places to those that wait.
    fn assign(&mut self, now: Duration, most: usize) {
        let mut places: BTreeMap<PoolKey, usize> = BTreeMap::new();
        let mut waiting: BTreeMap<PoolKey, Vec<(u64, String)>> = BTreeMap::new();
        for (node, drain) in &self.drains {
            if drain.place.is_some() {
                *places.entry(drain.pool.clone()).or_default() += 1;
            } else {
                waiting.entry(drain.pool.clone()).or_default().push((drain.number, node.clone()));
            }
        }
        for of_pool in waiting.values_mut() {
            of_pool.sort_by(|a, b| b.cmp(a));
        }
        let free = most.saturating_sub(places.values().sum());
        for _ in 0..free {
            let first = waiting.iter_mut().filter(|(_, of_pool)| !of_pool.is_empty());
            let first = first.min_by_key(|(pool, of_pool)| {
                let number = of_pool.last().map(|(number, _)| *number);
                (places.get(*pool).copied().unwrap_or_default(), number)
            });
            let Some((pool, of_pool)) = first else { return };
            *places.entry(pool.clone()).or_default() += 1;
            if let Some(drain) = of_pool.pop().and_then(|(_, node)| self.drains.get_mut(&node)) {
                drain.place = Some(Place { changed: now, pods: None });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use shared_runtime::clock::FakeClock;

    use super::*;
    use crate::plan::testing::{key, pod};

    fn places(most: usize) -> (Places, FakeClock) {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        (Places::new(clock, most), time)
    }

    fn other() -> PoolKey {
        PoolKey { namespace: "other".into(), name: "p".into() }
    }

    fn take(places: &Places, key: &PoolKey, wanted: &[&str]) -> Vec<String> {
        let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
        places.take(key, &wanted).nodes.into_iter().collect()
    }

    #[test]
    fn a_drain_keeps_its_place_until_it_is_over_and_the_next_in_order_follows() {
        let (places, time) = places(2);
        assert_eq!(take(&places, &key(), &["c", "a", "b"]), ["a", "c"]);
        time.advance(Duration::from_secs(39));
        assert_eq!(take(&places, &key(), &["a", "b", "c"]), ["a", "c"]);
        assert_eq!(take(&places, &key(), &["b", "c"]), ["b", "c"]);
        assert_eq!(take(&places, &key(), &[]), Vec::<String>::new());
    }

    #[test]
    fn a_drain_that_stands_still_hands_its_place_on_and_one_whose_pods_change_does_not() {
        let (places, time) = places(2);
        let all = ["a", "b", "c", "d"];
        let pods = [pod("x"), pod("y")];
        assert_eq!(take(&places, &key(), &all), ["a", "b"]);
        for left in [2, 1] {
            places.listed("a", pods[..left].iter());
            places.listed("b", pods.iter());
            time.advance(Duration::from_secs(30));
        }
        assert_eq!(take(&places, &key(), &all), ["a", "c"], "b has stood still for a minute");
        time.advance(Duration::from_secs(60));
        assert_eq!(take(&places, &key(), &all), ["b", "d"], "each has its turn");
        time.advance(Duration::from_secs(60));
        assert_eq!(take(&places, &key(), &["b", "d"]), ["b", "d"], "nothing waits");
    }

    #[test]
    fn a_pool_with_many_drains_leaves_the_next_place_to_one_that_has_none() {
        let (places, time) = places(3);
        let many = ["a", "b", "c", "d", "e"];
        assert_eq!(take(&places, &key(), &many), ["a", "b", "c"]);
        assert_eq!(take(&places, &other(), &["z"]), Vec::<String>::new());
        assert_eq!(take(&places, &key(), &many[1..]), ["b", "c"]);
        assert_eq!(take(&places, &other(), &["z"]), ["z"]);
        places.forget(&other());
        assert_eq!(take(&places, &key(), &many[1..]), ["b", "c", "d"]);
        time.advance(Duration::from_secs(120));
        assert_eq!(take(&places, &other(), &["z"]), ["z"], "that pool has not asked for long");
    }

    #[test]
    fn blocked_drains_of_many_pools_all_come_to_their_turn() {
        let (places, time) = places(5);
        let pools: Vec<PoolKey> =
            (0..4).map(|index| PoolKey { namespace: "x".into(), name: format!("p{index}") }).collect();
        let of_pool = |pool: usize| (0..10).map(move |node| format!("n-{pool}-{node}")).collect::<Vec<_>>();
        let mut seen = BTreeSet::new();
        for _ in 0..60 {
            let mut now = 0;
            for (index, pool) in pools.iter().enumerate() {
                let held = places.take(pool, &of_pool(index));
                assert!(held.all <= 5);
                now += held.nodes.len();
                seen.extend(held.nodes);
            }
            assert!(now <= 10, "places are handed on between the passes of two pools");
            time.advance(Duration::from_secs(10));
        }
        assert_eq!(seen.len(), 40);
    }
}
