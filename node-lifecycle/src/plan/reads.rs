//! Which of the pods that a plan asks for are listed in this pass: those of drains that have a place, and no more than may be
//! listed now. What is not listed waits, and nothing is concluded from that.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::{Classified, PodReads};

/// From this age on a list of a draining node is made anew as soon as another one may be made: half of the drain's polling
/// interval, so that a pass that comes a little early is not postponed.
pub(crate) const LIST_INTERVAL: Duration = Duration::from_secs(1);

impl Classified {
    /// The nodes that are to be drained now, in the order in which their drains began.
    pub fn drains(&self) -> Vec<String> {
        let asked = |name: &str| self.reads.recent.contains(name) || self.reads.draining.contains(name);
        let mut drains: Vec<_> = self
            .members
            .iter()
            .filter(|member| asked(member.name()))
            .map(|member| (member.leaving.and_then(|leaving| leaving.drain_started), member.name()))
            .collect();
        drains.sort();
        drains.into_iter().map(|(_, name)| name.to_owned()).collect()
    }
}

impl PodReads {
    /// The same where only the drains of the nodes `held` go on.
    #[must_use]
    pub fn of_places(mut self, held: &BTreeSet<String>) -> Self {
        let all = self.recent.union(&self.draining);
        self.waiting = all.filter(|node| !held.contains(*node)).cloned().collect();
        self.recent.retain(|node| held.contains(node));
        self.draining.retain(|node| held.contains(node));
        self
    }

    /// The draining nodes that should be listed now, first those without a list that is sufficient, then those whose list is
    /// oldest. `age` is that of a node's last list.
    pub fn due(&self, age: impl Fn(&str) -> Option<Duration>) -> Vec<String> {
        let age = |node: &str| age(node).unwrap_or(Duration::MAX);
        let recent = self.recent.iter().filter(|node| age(node) >= LIST_INTERVAL);
        let mut due: Vec<&String> = self.draining.iter().chain(recent).collect();
        due.sort_by_key(|node| (self.recent.contains(*node), std::cmp::Reverse(age(node))));
        due.into_iter().cloned().collect()
    }

    /// The same where of the draining nodes only these are `listed`.
    #[must_use]
    pub fn listing(mut self, listed: &[String]) -> Self {
        let listed: BTreeSet<String> = listed.iter().cloned().collect();
        self.deferred.extend(self.draining.difference(&listed).cloned());
        self.recent.retain(|node| !listed.contains(node));
        self.draining = listed;
        self
    }

    /// How many nodes are to be listed that are not draining.
    pub fn others(&self) -> usize {
        self.unverified.union(&self.undecided).count()
    }

    /// The same where only so many of them are listed.
    #[must_use]
    pub fn listing_others(mut self, count: usize) -> Self {
        let all: Vec<String> = self.unverified.iter().chain(&self.undecided).cloned().collect();
        let mut listed = BTreeSet::new();
        for node in all {
            if listed.len() < count || listed.contains(&node) {
                listed.insert(node);
            } else {
                self.deferred.insert(node);
            }
        }
        self.unverified.retain(|node| listed.contains(node));
        self.undecided.retain(|node| listed.contains(node));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{draining, observed, plan_with, pods, pool, with_action};
    use crate::{Blocker, DrainStep, NodeAction, ObservedPods, classify};

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn of_the_drains_with_a_place_those_are_listed_first_that_have_no_list_and_then_the_oldest() {
        let reads = PodReads {
            recent: names(&["a", "b", "c", "x"]),
            draining: names(&["d", "e", "y"]),
            ..PodReads::default()
        };
        let reads = reads.of_places(&names(&["a", "b", "c", "d", "e"]));
        assert_eq!(reads.waiting, names(&["x", "y"]));
        let age = |node: &str| {
            let millis = match node {
                "a" => 1000,
                "b" => 5000,
                "c" => 999,
                "d" => 500,
                _ => return None,
            };
            Some(Duration::from_millis(millis))
        };
        let due = reads.due(age);
        assert_eq!(due, ["e", "d", "b", "a"]);
        let some = reads.clone().listing(&due[..1]);
        assert_eq!((some.draining, some.recent), (names(&["e"]), names(&["a", "b", "c"])));
        assert_eq!(some.deferred, names(&["d"]), "a list that is old is still one, and none is none");
        let most = reads.listing(&due[..3]);
        assert_eq!((most.draining, most.recent), (names(&["b", "d", "e"]), names(&["a", "c"])));
        assert!(most.deferred.is_empty());
    }

    #[test]
    fn of_the_other_nodes_so_many_are_listed_and_the_rest_is_not_asked_yet() {
        let reads =
            PodReads { undecided: names(&["a", "b", "z"]), unverified: names(&["z"]), ..PodReads::default() };
        assert_eq!(reads.others(), 3);
        let some = reads.listing_others(2);
        assert_eq!((some.undecided, some.unverified), (names(&["a", "z"]), names(&["z"])));
        assert_eq!(some.deferred, names(&["b"]));
    }

    #[test]
    fn a_node_that_waits_for_a_place_says_so_and_one_that_is_listed_later_waits() {
        let observed = observed(pool(0), [draining(0, 5), draining(1, 6), draining(2, 4)]);
        assert_eq!(classify(&observed).drains(), ["n-002", "n-000", "n-001"]);
        let seen = ObservedPods {
            waiting: names(&["n-001"]),
            deferred: names(&["n-002"]),
            ..pods([("n-000", vec![])])
        };
        let plan = plan_with(&observed, &seen);
        let place = NodeAction::Drain(DrainStep::waits(Blocker::Place, true));
        assert_eq!(with_action(&plan, &NodeAction::Remove), ["n-000"]);
        assert_eq!(with_action(&plan, &place), ["n-001"]);
        assert_eq!(with_action(&plan, &NodeAction::Wait), ["n-002"]);
    }

    #[test]
    fn a_drain_is_cancelled_also_while_it_waits() {
        let observed = observed(pool(1), [draining(0, 5)]);
        let seen = ObservedPods { waiting: names(&["n-000"]), ..ObservedPods::default() };
        assert_eq!(with_action(&plan_with(&observed, &seen), &NodeAction::Uncordon), ["n-000"]);
    }
}
