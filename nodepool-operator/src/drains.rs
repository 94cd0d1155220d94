//! How often the pods of a draining node are looked at and asked to go, however often the pool is visited.
//!
//! A pass inside the interval works with what the last one saw and was told, so that it comes to the same result without
//! a request. It is a memory and decides nothing; a restart forgets it, which costs one more request per pod.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use shared_runtime::clock::Clock;

use crate::plan::Blocked;

/// The pods of one node are not listed more often: half of the drain's own pace, so that a pass that comes a little early
/// is not put off.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
/// No pod is asked more often to go after it was refused: a little less than a blocked drain's own pace.
const REFUSED_INTERVAL: Duration = Duration::from_secs(4);

/// So long it is known that a pod was refused, or that asking for it failed: until then it is asked after those that
/// were not.
const REFUSED_MEMORY: Duration = Duration::from_secs(300);

/// What was seen and asked lately.
pub struct Drains {
    clock: Clock,
    listed: Mutex<HashMap<String, (Duration, Vec<Pod>)>>,
    asked: Mutex<HashMap<(Way, String), (Duration, Answer)>>,
}

/// How a pod is made to go. What it answered to the one says nothing about the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// It is evicted, which its budgets may refuse.
    Evict,
    /// It is deleted.
    Delete,
}

/// What came of asking a pod to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It goes, or it is gone.
    Going,
    /// It stays for now.
    Refused(Blocked),
    /// No answer came, or one that says nothing of the pod.
    None,
}

impl Answer {
    /// For how long it is of any interest.
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
    /// Remembers nothing yet.
    pub fn new(clock: Clock) -> Self {
        Self { clock, listed: Mutex::default(), asked: Mutex::default() }
    }

    /// The pods of those of `nodes` that were listed lately.
    pub fn seen(&self, nodes: &[String]) -> BTreeMap<String, Vec<Pod>> {
        let now = self.clock.monotonic();
        let listed = lock(&self.listed);
        let recent = |node: &String| {
            let (at, pods) = listed.get(node)?;
            is_recent(*at, now, LIST_INTERVAL).then(|| (node.clone(), pods.clone()))
        };
        nodes.iter().filter_map(recent).collect()
    }

    /// The pods of a draining node were listed.
    pub fn saw(&self, node: &str, pods: &[Pod]) {
        let now = self.clock.monotonic();
        let mut listed = lock(&self.listed);
        listed.retain(|_, (at, _)| is_recent(*at, now, LIST_INTERVAL));
        listed.insert(node.to_owned(), (now, pods.to_vec()));
    }

    /// The node is closed only now: what was on it before is no reason to think it empty.
    pub fn closed(&self, node: &str) {
        lock(&self.listed).remove(node);
    }

    /// What this pod answered lately.
    pub fn answer(&self, way: Way, pod: &Pod) -> Option<Answer> {
        let now = self.clock.monotonic();
        let asked = lock(&self.asked);
        let (at, answer) = asked.get(&(way, pod.metadata.uid.clone()?))?;
        is_recent(*at, now, answer.interval()).then(|| answer.clone())
    }

    /// `pods` in the order in which they are asked: a pass may run out of time, and those that did not go when they were
    /// last asked, and do not as a rule, would keep the others from ever being asked.
    pub fn in_turn<'a>(&self, way: Way, pods: &'a [Pod]) -> Vec<&'a Pod> {
        let asked = lock(&self.asked);
        let stayed = |pod: &&Pod| {
            let known = asked.get(&(way, pod.metadata.uid.clone()?));
            known.filter(|(_, answer)| *answer != Answer::Going).map(|(at, _)| *at)
        };
        let mut pods: Vec<&Pod> = pods.iter().collect();
        pods.sort_by_cached_key(stayed);
        pods
    }

    /// It answered.
    pub fn answered(&self, way: Way, pod: &Pod, answer: Answer) {
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
        let nodes = ["a".to_owned(), "b".to_owned()];
        drains.saw("a", &[pod("web")]);
        assert_eq!(drains.seen(&nodes).keys().collect::<Vec<_>>(), ["a"]);
        time.advance(Duration::from_millis(999));
        assert_eq!(drains.seen(&nodes).len(), 1);
        time.advance(Duration::from_millis(1));
        assert!(drains.seen(&nodes).is_empty());
        drains.saw("a", &[]);
        drains.closed("a");
        assert!(drains.seen(&nodes).is_empty());
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
