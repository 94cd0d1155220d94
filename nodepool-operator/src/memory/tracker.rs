//! Measures for how long this process has observed nodes and pods in their current state, with a monotonic clock.
//!
//! It is a memory and decides nothing: the plan uses it in addition to the wall clock ([`NodeTimes`], [`PodTimes`]). A
//! restart empties it, so a timeout then takes its full time once more.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use node_lifecycle::observed_time::{
    ConditionKey, ConditionTimes, MachineTimes, NodeTime, NodeTimes, PodTimes,
};
use node_lifecycle::ready::is_ready;
use node_lifecycle::supply::Machine;
use node_lifecycle::{Pods, PoolKey, health};
use shared_crds::names;
use shared_crds::v1alpha1::RepairCondition;
use shared_runtime::clock::Clock;

/// The observations, by pool. A node that has the Ready annotation and is not draining needs no entry.
pub(crate) struct Tracker {
    clock: Clock,
    pools: Mutex<HashMap<PoolKey, Tracked>>,
}

#[derive(Default)]
struct Tracked {
    nodes: HashMap<String, TrackedNode>,
    /// By the name of their node: a node whose pods could not be listed keeps what is known about them.
    terminating_pods: HashMap<String, HashMap<String, Duration>>,
    /// Since when each draining node, by name, has been without pods.
    emptied: HashMap<String, Duration>,
    /// The conditions of unhealthy nodes, by UID: since when each has been observed, and its own time.
    conditions: HashMap<String, HashMap<ConditionKey, (Timestamp, Duration)>>,
    /// Since when each machine, by name, has been listed without a Node.
    machines: HashMap<String, Duration>,
    /// The hash of the pool's template, and since when it has been that.
    template: Option<(Option<String>, Duration)>,
}

#[derive(Clone, Debug, Default)]
struct TrackedNode {
    was_ready: bool,
    not_ready_since: Option<Duration>,
    lost_since: Option<Duration>,
    /// The drain annotation, and since when it has been observed.
    draining_since: Option<(String, Duration)>,
    /// The same for the annotation that it was given back.
    given_back_since: Option<(String, Duration)>,
}

impl Tracker {
    /// Creates an empty tracker.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, pools: Mutex::default() }
    }

    /// Records the pool's current nodes, forgets those that are gone, and returns for how long each has been in its
    /// state. The machine of a node that `is_missed` is not listed.
    pub(crate) fn record_nodes(
        &self,
        key: &PoolKey,
        nodes: &[Arc<Node>],
        is_missed: impl Fn(&Node) -> bool,
    ) -> NodeTimes {
        let now = self.clock.monotonic();
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let tracked = pools.entry(key.clone()).or_default();
        let mut before = std::mem::take(&mut tracked.nodes);
        for node in nodes {
            let Some(uid) = &node.metadata.uid else { continue };
            let known = before.remove(uid).unwrap_or_default();
            tracked.nodes.extend(known.seen(node, is_missed(node), now).map(|node| (uid.clone(), node)));
        }
        let draining: HashSet<&str> = nodes
            .iter()
            .filter(|node| drain_mark(node).is_some())
            .filter_map(|node| node.metadata.name.as_deref())
            .collect();
        tracked.terminating_pods.retain(|node, _| draining.contains(node.as_str()));
        tracked.emptied.retain(|node, _| draining.contains(node.as_str()));
        let times = tracked.nodes.iter().map(|(uid, node)| (uid.clone(), node.time(now))).collect();
        if tracked.nodes.is_empty() && tracked.machines.is_empty() && tracked.conditions.is_empty() {
            pools.remove(key);
        }
        NodeTimes(times)
    }

    /// Records which of `conditions` hold for the pool's current nodes, and returns for how long each has. A condition that
    /// changed and changed back meanwhile begins again.
    pub(crate) fn record_conditions(
        &self,
        key: &PoolKey,
        nodes: &[Arc<Node>],
        conditions: &[RepairCondition],
    ) -> ConditionTimes {
        let now = self.clock.monotonic();
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let tracked = pools.entry(key.clone()).or_default();
        let mut before = std::mem::take(&mut tracked.conditions);
        for node in nodes {
            let Some(uid) = &node.metadata.uid else { continue };
            let known = before.remove(uid).unwrap_or_default();
            let seen = |(condition, since): (&RepairCondition, Timestamp)| {
                let key = health::key(condition);
                let first =
                    known.get(&key).filter(|(known, _)| *known == since).map_or(now, |(_, first)| *first);
                (key, (since, first))
            };
            let holding: HashMap<_, _> = health::holding(conditions, node).into_iter().map(seen).collect();
            if !holding.is_empty() {
                tracked.conditions.insert(uid.clone(), holding);
            }
        }
        let times = |of_node: &HashMap<ConditionKey, (Timestamp, Duration)>| {
            of_node.iter().map(|(key, (_, first))| (key.clone(), passed(*first, now))).collect()
        };
        ConditionTimes(
            tracked.conditions.iter().map(|(uid, of_node)| (uid.clone(), times(of_node))).collect(),
        )
    }

    /// The same for the current pods of draining nodes.
    pub(crate) fn record_pods(&self, key: &PoolKey, pods: &BTreeMap<String, Pods>) -> PodTimes {
        let now = self.clock.monotonic();
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(tracked) = pools.get_mut(key) else { return PodTimes::default() };
        let mut times = BTreeMap::new();
        for (node, pods) in pods {
            let before = tracked.terminating_pods.remove(node).unwrap_or_default();
            let terminating = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some());
            let since: HashMap<String, Duration> = terminating
                .filter_map(|pod| pod.metadata.uid.clone())
                .map(|uid| {
                    let since = before.get(&uid).copied().unwrap_or(now);
                    (uid, since)
                })
                .collect();
            times.extend(since.iter().map(|(uid, since)| (uid.clone(), passed(*since, now))));
            if !since.is_empty() {
                tracked.terminating_pods.insert(node.clone(), since);
            }
        }
        PodTimes(times)
    }

    /// Records which of the `listed` nodes no pod keeps any more, and returns for how long that has been so. What is known of
    /// a node whose pods were not listed stays.
    pub(crate) fn record_emptied<'a>(
        &self,
        key: &PoolKey,
        listed: impl Iterator<Item = &'a String>,
        emptied: &BTreeSet<String>,
    ) -> BTreeMap<String, SignedDuration> {
        let now = self.clock.monotonic();
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(tracked) = pools.get_mut(key) else { return BTreeMap::new() };
        for node in listed.filter(|node| !emptied.contains(*node)) {
            tracked.emptied.remove(node);
        }
        let mut times = BTreeMap::new();
        for node in emptied {
            let since = *tracked.emptied.entry(node.clone()).or_insert(now);
            times.insert(node.clone(), passed(since, now));
        }
        times
    }

    /// Records the pool's machines that have no Node, and returns for how long that has been so; and for how long the `hash` of the
    /// pool's template has been what it is, as far as that was looked at while there were such machines. Both are measured at the same
    /// time: of a machine and a template that were found together, none is older than the other.
    pub(crate) fn record_machines<'a>(
        &self,
        key: &PoolKey,
        machines: impl Iterator<Item = &'a Machine>,
        hash: impl FnOnce() -> Option<String>,
    ) -> (MachineTimes, SignedDuration) {
        let mut machines = machines.peekable();
        let hash = machines.peek().is_some().then(hash);
        let now = self.clock.monotonic();
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if hash.is_none() && !pools.contains_key(key) {
            return (MachineTimes::default(), SignedDuration::ZERO);
        }
        let tracked = pools.entry(key.clone()).or_default();
        let before = std::mem::take(&mut tracked.machines);
        let since =
            |machine: &Machine| (machine.name.clone(), before.get(&machine.name).copied().unwrap_or(now));
        tracked.machines = machines.map(since).collect();
        let times = tracked.machines.iter().map(|(name, since)| (name.clone(), passed(*since, now)));
        let times = MachineTimes(times.collect());
        let template_time = hash.map_or(SignedDuration::ZERO, |hash| tracked.template_time(hash, now));
        (times, template_time)
    }

    /// Drops everything about a pool that is gone.
    pub(crate) fn forget(&self, key: &PoolKey) {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

impl Tracked {
    /// Records the hash of the pool's template, and returns for how long it has been that.
    fn template_time(&mut self, hash: Option<String>, now: Duration) -> SignedDuration {
        let known = self.template.take().filter(|(known, _)| *known == hash);
        let (_, since) = self.template.insert(known.unwrap_or((hash, now)));
        passed(*since, now)
    }
}

impl TrackedNode {
    /// The entry after another observation; `None` when there is nothing to remember.
    fn seen(self, node: &Node, is_missed: bool, now: Duration) -> Option<Self> {
        let Self { was_ready, not_ready_since, lost_since, draining_since, given_back_since } = self;
        let ready = is_ready(node);
        let marked = annotation(node, names::READY_TIME_ANNOTATION).is_some();
        let since = |known: Option<(String, Duration)>, mark: Option<&str>| {
            let mark = mark?;
            known.filter(|(known, _)| known == mark).or_else(|| Some((mark.to_owned(), now)))
        };
        let after = Self {
            was_ready: !marked && (was_ready || ready),
            not_ready_since: (!marked && !ready).then(|| not_ready_since.unwrap_or(now)),
            lost_since: (is_missed && !ready).then(|| lost_since.unwrap_or(now)),
            draining_since: since(draining_since, drain_mark(node)),
            given_back_since: since(given_back_since, annotation(node, names::GIVEN_BACK_ANNOTATION)),
        };
        let is_known = [
            after.was_ready,
            after.not_ready_since.is_some(),
            after.lost_since.is_some(),
            after.draining_since.is_some(),
            after.given_back_since.is_some(),
        ];
        is_known.contains(&true).then_some(after)
    }

    fn time(&self, now: Duration) -> NodeTime {
        let since = |since: Option<Duration>| since.map(|since| passed(since, now)).unwrap_or_default();
        NodeTime {
            was_ready: self.was_ready,
            not_ready: since(self.not_ready_since),
            lost: self.lost_since.map(|since| passed(since, now)),
            draining: since(self.draining_since.as_ref().map(|(_, since)| *since)),
            given_back: since(self.given_back_since.as_ref().map(|(_, since)| *since)),
        }
    }
}

fn annotation<'a>(node: &'a Node, name: &str) -> Option<&'a str> {
    node.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// The annotation of a drain that has started: a node that was uncordoned by hand is not being drained.
fn drain_mark(node: &Node) -> Option<&str> {
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    annotation(node, names::DRAIN_STARTED_ANNOTATION).filter(|_| cordoned)
}

fn passed(since: Duration, now: Duration) -> SignedDuration {
    SignedDuration::try_from(now.saturating_sub(since)).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use node_lifecycle::testing::{SOON, at, draining, key, machine, node, pod, set_ready, shared, starting};
    use shared_crds::v1alpha1::RepairSpec;

    use super::*;

    fn seconds(seconds: i64) -> SignedDuration {
        SignedDuration::from_secs(seconds)
    }

    fn one(node: Node) -> [Arc<Node>; 1] {
        [Arc::new(node)]
    }

    fn look(tracker: &Tracker, node: &Node) -> NodeTime {
        tracker.record_nodes(&key(), &one(node.clone()), |_| false).of_node(node)
    }

    #[test]
    fn time_counts_from_the_first_observation_and_not_by_the_wall_clock() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let tracker = Tracker::new(clock);
        let (fresh, leaving) = (starting(0), draining(1, 5));
        assert_eq!(look(&tracker, &fresh), NodeTime::default());
        time.advance(Duration::from_secs(7));
        assert_eq!(look(&tracker, &fresh).not_ready, seconds(7));
        // An observation without the node: it is gone, and a node of the same name would be another one.
        assert_eq!(look(&tracker, &leaving), NodeTime::default());
        time.advance(Duration::from_secs(3));
        assert_eq!(look(&tracker, &leaving).draining, seconds(3));
        assert_eq!(look(&tracker, &draining(1, 9)).draining, seconds(0), "that is another drain");
        assert_eq!(look(&tracker, &fresh).not_ready, seconds(0));
    }

    #[test]
    fn a_node_that_was_observed_ready_is_remembered_until_it_is_annotated() {
        let (clock, _time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let tracker = Tracker::new(clock);
        let mut fresh = starting(0);
        assert!(!look(&tracker, &fresh).was_ready);
        set_ready(&mut fresh, "True");
        assert!(look(&tracker, &fresh).was_ready);
        set_ready(&mut fresh, "Unknown");
        assert!(look(&tracker, &fresh).was_ready);
        assert_eq!(look(&tracker, &node(0)), NodeTime::default());
        assert!(tracker.pools.lock().unwrap().is_empty(), "a pool at rest takes no room");
    }

    #[test]
    fn a_machine_is_missed_for_as_long_as_its_node_is_not_ready() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let tracker = Tracker::new(clock);
        let mut node = node(0);
        let mut lost = |status: &str, is_missed: bool| {
            set_ready(&mut node, status);
            let lost = tracker.record_nodes(&key(), &one(node.clone()), |_| is_missed).of_node(&node).lost;
            time.advance(Duration::from_secs(4));
            lost
        };
        assert_eq!(lost("True", true), None);
        assert_eq!(lost("Unknown", true), Some(seconds(0)));
        assert_eq!(lost("Unknown", true), Some(seconds(4)));
        assert_eq!(lost("Unknown", false), None);
        assert_eq!(lost("Unknown", true), Some(seconds(0)));
    }

    #[test]
    fn a_template_is_measured_from_its_last_change_while_machines_have_no_node() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let tracker = Tracker::new(clock);
        let look = |hash: &str, machines: &[Machine]| {
            let (_, seen) = tracker.record_machines(&key(), machines.iter(), || Some(hash.to_owned()));
            time.advance(Duration::from_secs(4));
            seen
        };
        assert_eq!(look("a", &[]), seconds(0));
        assert!(tracker.pools.lock().unwrap().is_empty(), "a pool at rest takes no room");
        let machines = [machine("m", SOON)];
        let seen = ["a", "a", "b", "b", "a"].map(|hash| look(hash, &machines));
        assert_eq!(seen, [0, 4, 0, 4, 0].map(seconds));
    }

    #[test]
    fn of_a_machine_and_a_template_that_are_found_together_none_is_older() {
        let tracker = Tracker::new(Clock::system());
        let listed = [machine("m", SOON)];
        for _ in 0..100 {
            let (machines, template) =
                tracker.record_machines(&key(), listed.iter(), || Some("a".to_owned()));
            assert_eq!(machines.of_machine("m"), template);
        }
    }

    #[test]
    fn a_machine_without_a_node_is_measured_from_the_first_list_that_has_it() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let tracker = Tracker::new(clock);
        let waited = |names: &[&str]| {
            let machines: Vec<_> = names.iter().map(|name| machine(name, SOON)).collect();
            let (MachineTimes(times), _) = tracker.record_machines(&key(), machines.iter(), || None);
            time.advance(Duration::from_secs(4));
            times.into_iter().map(|(name, time)| format!("{name} {}", time.as_secs())).collect::<Vec<_>>()
        };
        assert_eq!(waited(&[]), [""; 0]);
        assert!(tracker.pools.lock().unwrap().is_empty(), "a pool at rest takes no room");
        assert_eq!(waited(&["a"]), ["a 0"]);
        assert_eq!(waited(&["a", "b"]), ["a 4", "b 0"]);
        assert_eq!(waited(&["b"]), ["b 4"]);
        assert_eq!(waited(&["a", "b"]), ["a 0", "b 8"]);
    }

    #[test]
    fn a_condition_is_measured_while_it_lasts_and_a_healthy_node_takes_no_room() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let tracker = Tracker::new(clock);
        let unknown = &RepairSpec::default().conditions;
        let look = |status: &str, changed: i64| {
            let mut node = node(0);
            set_ready(&mut node, status);
            let conditions = node.status.as_mut().unwrap().conditions.as_mut().unwrap();
            conditions[0].last_transition_time = Some(Time(at(changed)));
            let nodes = one(node);
            let times = tracker.record_conditions(&key(), &nodes, unknown);
            tracker.record_nodes(&key(), &nodes, |_| false);
            time.advance(Duration::from_secs(4));
            let times = times.of_node(&nodes[0]).cloned().unwrap_or_default();
            times
                .into_iter()
                .map(|((_, status), time)| format!("{} {}", status.as_str(), time.as_secs()))
                .collect::<Vec<_>>()
        };
        assert_eq!(look("True", 0), [""; 0]);
        assert_eq!(look("Unknown", 5), ["Unknown 0"]);
        assert_eq!(look("Unknown", 5), ["Unknown 4"]);
        assert_eq!(look("Unknown", 9), ["Unknown 0"], "it was something else meanwhile");
        assert_eq!(look("False", 9), ["False 0"]);
        assert_eq!(look("True", 9), [""; 0]);
        assert!(tracker.pools.lock().unwrap().is_empty());
    }

    #[test]
    fn a_node_without_pods_is_measured_until_it_has_pods_again() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let tracker = Tracker::new(clock);
        let nodes = one(draining(0, 5));
        let name = "n-000".to_owned();
        let look = |listed: bool, emptied: bool| {
            tracker.record_nodes(&key(), &nodes, |_| false);
            let emptied = emptied.then(|| name.clone()).into_iter().collect();
            let times = tracker.record_emptied(&key(), listed.then_some(&name).into_iter(), &emptied);
            time.advance(Duration::from_secs(4));
            times.get(&name).map(SignedDuration::as_secs)
        };
        assert_eq!(look(true, true), Some(0));
        assert_eq!(look(false, false), None);
        assert_eq!(look(true, true), Some(8));
        assert_eq!(look(true, false), None);
        assert_eq!(look(true, true), Some(0));
        tracker.record_nodes(&key(), &one(node(0)), |_| false);
        assert_eq!(look(true, true), Some(0), "that is another drain");
    }

    #[test]
    fn a_terminating_pod_is_remembered_while_its_node_cannot_be_listed() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let tracker = Tracker::new(clock);
        let nodes = one(draining(0, 5));
        let mut ending = pod("web");
        ending.metadata.deletion_timestamp = Some(Time(at(30)));
        let pods = BTreeMap::from([("n-000".to_owned(), shared(vec![ending, pod("stays")]))]);
        let look = |pods: &BTreeMap<String, Pods>| {
            tracker.record_nodes(&key(), &nodes, |_| false);
            let PodTimes(times) = tracker.record_pods(&key(), pods);
            time.advance(Duration::from_secs(4));
            times.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(look(&pods), [("uid-web".to_owned(), seconds(0))]);
        assert_eq!(look(&BTreeMap::new()), []);
        assert_eq!(look(&pods), [("uid-web".to_owned(), seconds(8))]);
        assert_eq!(look(&BTreeMap::from([("n-000".to_owned(), shared(vec![]))])), []);
        assert_eq!(look(&pods), [("uid-web".to_owned(), seconds(0))]);
    }
}
