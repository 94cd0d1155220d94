//! Limits how often the pods of a draining node are listed and evicted, independent of how often the pool is
//! reconciled.
//!
//! A pass within the interval reuses what the last one observed and was answered, so it comes to the same result
//! without a request. This is a cache and decides nothing. A restart empties it, which costs one more request per pod.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use node_lifecycle::Pods;
use node_lifecycle::outcome::Blocked;
use shared_runtime::clock::Clock;

/// For how long a list is sufficient for anything but the removal of its node, while no newer one can be made.
const LIST_KEPT_FOR: Duration = Duration::from_secs(10);
/// Minimum interval between two attempts for a pod after a refusal: a little less than the polling interval of a
/// blocked drain.
const REFUSED_INTERVAL: Duration = Duration::from_secs(4);

/// With so many refused pods, the interval becomes longer than that, so that all of them together are not tried more often than
/// 50 times a second. A refused eviction costs the API server as much as one that succeeds, and writes to its audit log.
const REFUSED_AT_MINIMUM: u32 = 200;

/// Minimum interval between two texts in the annotation that says what a drain waits for.
const NOTE_INTERVAL: Duration = Duration::from_secs(60);

/// For how long a refusal or a failed attempt is remembered. Until then the pod is tried after pods without one.
const REFUSED_KEPT_FOR: Duration = Duration::from_secs(300);

/// Recent pod lists and recent eviction and deletion results.
pub(crate) struct Drains {
    clock: Clock,
    listed: Mutex<HashMap<String, (Duration, Pods)>>,
    results: Mutex<Results>,
    /// When each node was last annotated with what its drain waits for.
    noted: Mutex<HashMap<String, Duration>>,
}

/// Recent results of evictions and deletions, by pod UID.
#[derive(Default)]
struct Results {
    by_pod: HashMap<(PodRemoval, String), (Duration, RemovalResult)>,
    /// How many of them are refusals, when the last one was recorded.
    refused: u32,
}

/// How a pod is removed. The result of one method says nothing about the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PodRemoval {
    /// Evict, which a `PodDisruptionBudget` may refuse.
    Evict,
    /// Delete.
    Delete,
}

/// The result of an eviction or deletion of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RemovalResult {
    /// The pod is terminating or already gone.
    Terminating,
    /// The request was refused; the pod stays for now.
    Refused(Blocked),
    /// There was no answer, or one that says nothing about the pod.
    Unknown,
}

impl RemovalResult {
    /// For how long the result is kept.
    const fn kept_for(&self) -> Duration {
        match self {
            Self::Terminating => LIST_KEPT_FOR,
            Self::Refused(_) | Self::Unknown => REFUSED_KEPT_FOR,
        }
    }

    /// Until the pod is tried again, when `refused` pods are refused.
    fn interval(&self, refused: u32) -> Duration {
        match self {
            // A list of before does not show it.
            Self::Terminating => LIST_KEPT_FOR,
            Self::Refused(_) => (REFUSED_INTERVAL * refused / REFUSED_AT_MINIMUM).max(REFUSED_INTERVAL),
            Self::Unknown => Duration::ZERO,
        }
    }
}

impl Drains {
    /// Creates an empty memory.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, listed: Mutex::default(), results: Mutex::default(), noted: Mutex::default() }
    }

    /// The pods of those `nodes` that were listed recently, by node.
    pub(crate) fn recent_lists<'a>(&self, nodes: impl Iterator<Item = &'a str>) -> BTreeMap<String, Pods> {
        let now = self.clock.monotonic();
        let listed = lock(&self.listed);
        let recent = |node: &str| {
            let (at, pods) = listed.get(node)?;
            is_recent(*at, now, LIST_KEPT_FOR).then(|| (node.to_owned(), Arc::clone(pods)))
        };
        nodes.filter_map(recent).collect()
    }

    /// How old the last list of the node is; `None` if there is none that can still be used.
    pub(crate) fn age(&self, node: &str) -> Option<Duration> {
        let now = self.clock.monotonic();
        lock(&self.listed).get(node).map(|(at, _)| now.saturating_sub(*at)).filter(|age| *age < LIST_KEPT_FOR)
    }

    /// Records the listed pods of a draining node.
    pub(crate) fn record_list(&self, node: &str, pods: &Pods) {
        let now = self.clock.monotonic();
        let mut listed = lock(&self.listed);
        listed.retain(|_, (at, _)| is_recent(*at, now, LIST_KEPT_FOR));
        listed.insert(node.to_owned(), (now, Arc::clone(pods)));
    }

    /// Drops the listed pods of a node that is cordoned only now: a list from before does not show that the node is
    /// empty.
    pub(crate) fn drop_list(&self, node: &str) {
        lock(&self.listed).remove(node);
    }

    /// The recent result of an eviction or deletion of `pod`; `None` if it is due for another attempt.
    pub(crate) fn recent_result(&self, method: PodRemoval, pod: &Pod) -> Option<RemovalResult> {
        let now = self.clock.monotonic();
        let results = lock(&self.results);
        let (at, result) = results.by_pod.get(&(method, pod.metadata.uid.clone()?))?;
        is_recent(*at, now, result.interval(results.refused)).then(|| result.clone())
    }

    /// Whether that was attempted, however it ended, and not too long ago to remember.
    pub(crate) fn was_tried(&self, method: PodRemoval, pod: &Pod) -> bool {
        let key = pod.metadata.uid.clone().map(|uid| (method, uid));
        key.is_some_and(|key| lock(&self.results).by_pod.contains_key(&key))
    }

    /// Whether the annotation of the node that says what its drain waits for may be rewritten.
    pub(crate) fn may_note_again(&self, node: &str) -> bool {
        let now = self.clock.monotonic();
        lock(&self.noted).get(node).is_none_or(|at| !is_recent(*at, now, NOTE_INTERVAL))
    }

    /// Records that it was written.
    pub(crate) fn noted(&self, node: &str) {
        let now = self.clock.monotonic();
        let mut noted = lock(&self.noted);
        noted.retain(|_, at| is_recent(*at, now, NOTE_INTERVAL));
        noted.insert(node.to_owned(), now);
    }

    /// `pods` in the order of attempts. A pass may run out of time, and pods that were refused at the last attempt, and
    /// usually are again, would otherwise keep the others from ever being attempted.
    pub(crate) fn in_order_of_attempts<'a>(&self, method: PodRemoval, pods: &'a [Arc<Pod>]) -> Vec<&'a Pod> {
        let results = lock(&self.results);
        // A deletion is preceded by an eviction.
        let methods = [method, PodRemoval::Evict];
        let stayed = |pod: &&Pod| {
            let uid = pod.metadata.uid.as_ref()?;
            let known = methods.iter().filter_map(|method| results.by_pod.get(&(*method, uid.clone())));
            known.filter(|(_, result)| *result != RemovalResult::Terminating).map(|(at, _)| *at).max()
        };
        let mut pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
        pods.sort_by_cached_key(stayed);
        pods
    }

    /// Records the result of an eviction or deletion of `pod`.
    pub(crate) fn record_result(&self, method: PodRemoval, pod: &Pod, result: RemovalResult) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        let now = self.clock.monotonic();
        let mut results = lock(&self.results);
        let Results { by_pod, refused } = &mut *results;
        by_pod.insert((method, uid), (now, result));
        *refused = 0;
        by_pod.retain(|_, (at, result)| {
            let is_kept = is_recent(*at, now, result.kept_for());
            *refused += u32::from(is_kept && matches!(result, RemovalResult::Refused(_)));
            is_kept
        });
    }
}

fn is_recent(at: Duration, now: Duration, interval: Duration) -> bool {
    now.saturating_sub(at) < interval
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use node_lifecycle::testing::{pod, shared};
    use node_lifecycle::{Blocker, PodName};

    use super::*;

    #[test]
    fn a_list_serves_the_passes_of_ten_seconds_unless_the_node_is_cordoned_again() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let drains = Drains::new(clock);
        let seen = || drains.recent_lists(["a", "b"].into_iter());
        drains.record_list("a", &shared(vec![pod("web")]));
        assert_eq!(seen().keys().collect::<Vec<_>>(), ["a"]);
        time.advance(Duration::from_millis(9_999));
        assert_eq!(seen().len(), 1);
        assert_eq!(drains.age("a"), Some(Duration::from_millis(9_999)));
        time.advance(Duration::from_millis(1));
        assert!(seen().is_empty() && drains.age("a").is_none());
        drains.record_list("a", &shared(vec![]));
        drains.drop_list("a");
        assert!(seen().is_empty());
    }

    fn refused_of(pod: &Pod) -> RemovalResult {
        let by = Blocker::Pod(PodName::of(pod), "budget".into());
        RemovalResult::Refused(Blocked { node: "a".into(), by })
    }

    #[test]
    fn all_refused_pods_together_are_tried_fifty_times_a_second_at_most() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let drains = Drains::new(clock);
        let pods: Vec<Pod> = (0..1500)
            .map(|number| {
                let mut pod = pod(&number.to_string());
                pod.metadata.uid = Some(number.to_string());
                pod
            })
            .collect();
        let try_due = |result: fn(&Pod) -> RemovalResult| {
            let due = |pod: &&Pod| drains.recent_result(PodRemoval::Evict, pod).is_none();
            let due: Vec<&Pod> = pods.iter().filter(due).collect();
            for pod in &due {
                drains.record_result(PodRemoval::Evict, pod, result(pod));
            }
            due.len()
        };
        let mut tried = 0;
        for _ in 0..300 {
            time.advance(Duration::from_secs(1));
            tried += try_due(refused_of);
        }
        // All of them at first, and then each every 30 s.
        assert_eq!(tried, 1500 * 10);
        // The fewer are left, the more often each is tried.
        time.advance(Duration::from_secs(30));
        assert_eq!(
            try_due(|pod| {
                let number: u32 = pod.metadata.name.as_deref().unwrap().parse().unwrap();
                if number < 1400 { RemovalResult::Terminating } else { refused_of(pod) }
            }),
            1500
        );
        time.advance(Duration::from_secs(4));
        assert_eq!(try_due(refused_of), 100);
    }

    #[test]
    fn a_refused_pod_is_retried_while_a_terminating_one_is_waited_for() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let drains = Drains::new(clock);
        let named = |name: &str| {
            let mut pod = pod(name);
            pod.metadata.uid = Some(name.into());
            pod
        };
        let (going, stuck) = (named("going"), named("stuck"));
        let refused = refused_of(&stuck);
        drains.record_result(PodRemoval::Evict, &going, RemovalResult::Terminating);
        drains.record_result(PodRemoval::Evict, &stuck, refused.clone());
        assert_eq!(
            (
                drains.recent_result(PodRemoval::Evict, &going),
                drains.recent_result(PodRemoval::Evict, &stuck)
            ),
            (Some(RemovalResult::Terminating), Some(refused.clone()))
        );
        time.advance(Duration::from_secs(4));
        assert_eq!(
            (
                drains.recent_result(PodRemoval::Evict, &going),
                drains.recent_result(PodRemoval::Evict, &stuck)
            ),
            (Some(RemovalResult::Terminating), None)
        );
        time.advance(Duration::from_secs(6));
        assert_eq!(drains.recent_result(PodRemoval::Evict, &going), None);
        drains.record_result(PodRemoval::Evict, &stuck, refused);
        assert_eq!(
            drains.recent_result(PodRemoval::Delete, &stuck),
            None,
            "an eviction's result is none for a deletion"
        );
    }
}
