//! Limits how often the pods of a draining node are listed and evicted, independent of how often the pool is
//! reconciled.
//!
//! A pass within the interval reuses what the last one observed and was answered, so it comes to the same result
//! without a request. This is a cache and decides nothing. A restart empties it, which costs one more request per pod.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use shared_runtime::clock::Clock;

use crate::outcome::Blocked;

/// Minimum interval between two lists of one node's pods: half of the drain's polling interval, so that a pass that
/// comes a little early is not postponed.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum interval between two attempts for a pod after a refusal: a little less than the polling interval of a
/// blocked drain.
const REFUSED_INTERVAL: Duration = Duration::from_secs(4);

/// For how long a refusal or a failed attempt is remembered. Until then the pod is tried after pods without one.
const REFUSED_MEMORY: Duration = Duration::from_secs(300);

/// Recent pod lists and recent eviction and deletion results.
pub(crate) struct Drains {
    clock: Clock,
    listed: Mutex<HashMap<String, (Duration, Vec<Pod>)>>,
    asked: Mutex<HashMap<(Way, String), (Duration, Answer)>>,
}

/// How a pod is removed. The result of one way says nothing about the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    /// Evict, which a `PodDisruptionBudget` may refuse.
    Evict,
    /// Delete.
    Delete,
}

/// The result of an eviction or deletion of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The pod is terminating or already gone.
    Going,
    /// The request was refused; the pod stays for now.
    Refused(Blocked),
    /// There was no answer, or one that says nothing about the pod.
    None,
}

impl Answer {
    /// For how long the answer is kept.
    const fn memory(&self) -> Duration {
        match self {
            Self::Going => LIST_INTERVAL,
            Self::Refused(_) | Self::None => REFUSED_MEMORY,
        }
    }

    const fn interval(&self) -> Duration {
        match self {
            Self::Going => LIST_INTERVAL,
            Self::Refused(_) => REFUSED_INTERVAL,
            Self::None => Duration::ZERO,
        }
    }
}

impl Drains {
    /// Creates an empty memory.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, listed: Mutex::default(), asked: Mutex::default() }
    }

    /// The pods of those `nodes` that were listed recently, by node.
    pub(crate) fn seen<'a>(&self, nodes: impl Iterator<Item = &'a str>) -> BTreeMap<String, Vec<Pod>> {
        let now = self.clock.monotonic();
        let listed = lock(&self.listed);
        let recent = |node: &str| {
            let (at, pods) = listed.get(node)?;
            is_recent(*at, now, LIST_INTERVAL).then(|| (node.to_owned(), pods.clone()))
        };
        nodes.filter_map(recent).collect()
    }

    /// Records the listed pods of a draining node.
    pub(crate) fn saw(&self, node: &str, pods: &[Pod]) {
        let now = self.clock.monotonic();
        let mut listed = lock(&self.listed);
        listed.retain(|_, (at, _)| is_recent(*at, now, LIST_INTERVAL));
        listed.insert(node.to_owned(), (now, pods.to_vec()));
    }

    /// Drops the listed pods of a node that is cordoned only now: a list from before does not show that the node is
    /// empty.
    pub(crate) fn drop_list(&self, node: &str) {
        lock(&self.listed).remove(node);
    }

    /// The recent result of an eviction or deletion of `pod`; `None` if it is due for another attempt.
    pub(crate) fn answer(&self, way: Way, pod: &Pod) -> Option<Answer> {
        let now = self.clock.monotonic();
        let asked = lock(&self.asked);
        let (at, answer) = asked.get(&(way, pod.metadata.uid.clone()?))?;
        is_recent(*at, now, answer.interval()).then(|| answer.clone())
    }

    /// `pods` in the order of attempts. A pass may run out of time, and pods that were refused at the last attempt, and
    /// usually are again, would otherwise keep the others from ever being attempted.
    pub(crate) fn in_turn<'a>(&self, way: Way, pods: &'a [Pod]) -> Vec<&'a Pod> {
        let asked = lock(&self.asked);
        let stayed = |pod: &&Pod| {
            let known = asked.get(&(way, pod.metadata.uid.clone()?));
            known.filter(|(_, answer)| *answer != Answer::Going).map(|(at, _)| *at)
        };
        let mut pods: Vec<&Pod> = pods.iter().collect();
        pods.sort_by_cached_key(stayed);
        pods
    }

    /// Records the result of an eviction or deletion of `pod`.
    pub(crate) fn answered(&self, way: Way, pod: &Pod, answer: Answer) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        let now = self.clock.monotonic();
        let mut asked = lock(&self.asked);
        asked.retain(|_, (at, answer)| is_recent(*at, now, answer.memory()));
        asked.insert((way, uid), (now, answer));
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

    use super::*;
    use crate::plan::PodName;
    use crate::plan::testing::pod;

    #[test]
    fn a_list_serves_the_passes_of_a_second_unless_the_node_is_closed_anew() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let drains = Drains::new(clock);
        let seen = || drains.seen(["a", "b"].into_iter());
        drains.saw("a", &[pod("web")]);
        assert_eq!(seen().keys().collect::<Vec<_>>(), ["a"]);
        time.advance(Duration::from_millis(999));
        assert_eq!(seen().len(), 1);
        time.advance(Duration::from_millis(1));
        assert!(seen().is_empty());
        drains.saw("a", &[]);
        drains.drop_list("a");
        assert!(seen().is_empty());
    }

    #[test]
    fn a_pod_that_was_refused_is_left_in_peace_longer_than_one_that_goes() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let drains = Drains::new(clock);
        let named = |name: &str| {
            let mut pod = pod(name);
            pod.metadata.uid = Some(name.into());
            pod
        };
        let (going, stuck) = (named("going"), named("stuck"));
        let refused =
            Answer::Refused(Blocked { node: "a".into(), pod: PodName::of(&stuck), message: "budget".into() });
        drains.answered(Way::Evict, &going, Answer::Going);
        drains.answered(Way::Evict, &stuck, refused.clone());
        assert_eq!(
            (drains.answer(Way::Evict, &going), drains.answer(Way::Evict, &stuck)),
            (Some(Answer::Going), Some(refused.clone()))
        );
        time.advance(Duration::from_secs(1));
        assert_eq!(
            (drains.answer(Way::Evict, &going), drains.answer(Way::Evict, &stuck)),
            (None, Some(refused.clone()))
        );
        time.advance(Duration::from_secs(3));
        assert_eq!(drains.answer(Way::Evict, &stuck), None);
        drains.answered(Way::Evict, &stuck, refused);
        assert_eq!(drains.answer(Way::Delete, &stuck), None, "an eviction's answer is none to a deletion");
    }
}
