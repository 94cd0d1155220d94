//! What is remembered of nodes that ask to be left alone, and what rollouts make of it over time.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;
use node_lifecycle::facts::Facts;
use node_lifecycle::testing::{at, done, facts_after, key, nodes, observed, pod, pool, protect_pod, shared};
use node_lifecycle::{Observed, ObservedPods, Plan, classify};
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::RolloutSpec;
use shared_runtime::clock::FakeClock;

use super::*;

fn found(node: &str) -> [(String, String); 1] {
    [(node.to_owned(), "asks for it".to_owned())]
}

#[test]
fn a_node_is_listed_again_half_a_minute_after_its_pods_were_and_counts_as_protected_until_then() {
    let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
    let protections = Protections::new(clock);
    let known = || {
        let known = protections.known(&key());
        (known.protected.into_keys().collect::<Vec<_>>(), known.stale.into_iter().collect::<Vec<_>>())
    };
    let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    protections.record(&key(), found("a"));
    time.advance(Duration::from_secs(20));
    protections.record(&key(), found("b"));
    assert_eq!(known(), (names(&["a", "b"]), names(&[])));
    time.advance(Duration::from_secs(10));
    assert_eq!(known(), (names(&["a", "b"]), names(&["a"])));
    protections.record(&key(), found("a"));
    assert_eq!(known(), (names(&["a", "b"]), names(&[])));
    time.advance(Duration::from_secs(80));
    assert_eq!(known(), (names(&["a"]), names(&["a"])), "it is forgotten some time later");
    time.advance(Duration::from_secs(10));
    assert_eq!(known(), (names(&[]), names(&[])));
    assert!(protections.pools.lock().unwrap().is_empty());
    protections.record(&key(), found("a"));
    protections.forget(&key());
    assert_eq!(known(), (names(&[]), names(&[])));
}

#[test]
fn that_a_node_does_not_ask_is_known_for_half_a_minute_and_until_it_does() {
    let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
    let protections = Protections::new(clock);
    let known = || {
        let known = protections.known(&key());
        (known.protected.len(), known.unprotected.len())
    };
    protections.record_unprotected(&key(), ["a".to_owned(), "b".to_owned()]);
    assert_eq!(known(), (0, 2));
    protections.record(&key(), found("a"));
    assert_eq!(known(), (1, 1));
    time.advance(Duration::from_secs(30));
    assert_eq!(known(), (1, 0));
    protections.record_unprotected(&key(), ["a".to_owned()]);
    assert_eq!(known(), (0, 1));
}

#[test]
fn a_list_that_fails_changes_nothing_of_what_was_found_and_is_remembered_until_one_succeeds() {
    let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
    let protections = Protections::new(clock);
    protections.record(&key(), found("b"));
    for node in ["c", "b", "a"] {
        time.advance(Duration::from_secs(1));
        protections.record_unread(&key(), [node.to_owned()]);
    }
    let failed = || protections.known(&key()).failed_lists;
    assert_eq!(failed(), ["c", "b", "a"]);
    assert_eq!(protections.known(&key()).protected.len(), 1);
    protections.record(&key(), found("b"));
    assert_eq!(failed(), ["c", "a"]);
    protections.record_unprotected(&key(), ["a".to_owned()]);
    assert_eq!(failed(), ["c"]);
    time.advance(FAILED_KEPT_FOR);
    assert!(failed().is_empty() && protections.pools.lock().unwrap().is_empty());
}

#[test]
fn of_many_protected_nodes_all_are_looked_at() {
    let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
    let protections = Protections::new(clock);
    let mut seen = BTreeSet::new();
    // In each second the first three that are not known to be protected are listed.
    for _ in 0..1000 {
        let known = protections.known(&key());
        let is_known = |node: &String| known.protected.contains_key(node) && !known.stale.contains(node);
        let all = (0..900).map(|index| format!("n-{index:03}"));
        let listed: Vec<_> = all.filter(|node| !is_known(node)).take(3).collect();
        seen.extend(listed.iter().cloned());
        protections.record(&key(), listed.into_iter().map(|node| (node, "asks for it".to_owned())));
        time.advance(Duration::from_secs(1));
    }
    assert_eq!(seen.len(), 900);
}

/// A pool in a rollout and the operator's memory of it, in virtual time. Nothing is carried out.
struct Waiting {
    seen: Observed,
    protections: Protections,
    clock: Clock,
    time: FakeClock,
}

/// One pass.
struct Pass {
    /// When it was, in seconds.
    second: u64,
    /// The nodes whose pods it asked for.
    listed: BTreeSet<String>,
    plan: Plan,
    facts: Facts,
}

impl Waiting {
    /// A pool of `count` nodes, all out of date, that may have one more, and so many `unavailable`.
    fn new(count: usize, unavailable: i32) -> Self {
        let (clock, time) = Clock::fake(at(100));
        let mut pool = pool(i32::try_from(count).unwrap());
        pool.spec.template.spec.capacity.insert("cpu".to_owned(), Quantity("8".to_owned()));
        pool.spec.rollout = Some(RolloutSpec {
            max_surge: IntOrString::Int(1),
            max_unavailable: IntOrString::Int(unavailable),
            ..RolloutSpec::default()
        });
        let protections = Protections::new(clock.clone());
        Self { seen: observed(pool, nodes(count)), protections, clock, time }
    }

    /// A pass whose status is written, and the time until the next one. `pods` of a node are `None` where they cannot be listed.
    fn pass(&mut self, pods: impl Fn(&str) -> Option<Vec<Pod>>) -> Pass {
        let KnownProtections { protected, stale, unprotected, failed_lists } = self.protections.known(&key());
        let now = self.clock.now();
        self.seen = Observed { protected, stale, unprotected, failed_lists, now, ..self.seen.clone() };
        let classified = classify(&self.seen);
        let listed = classified.reads.undecided.clone();
        let by_node = listed.iter().filter_map(|node| Some((node.clone(), shared(pods(node)?)))).collect();
        let read = ObservedPods { by_node, ..ObservedPods::default() };
        let plan = node_lifecycle::plan(&self.seen, classified, &read);
        self.protections.record(&key(), plan.protected.iter().cloned());
        self.protections.record_unprotected(&key(), plan.unprotected.iter().cloned());
        self.protections.record_unread(&key(), plan.unread.iter().cloned());
        let facts = facts_after(&self.seen, &plan, &done(&plan));
        let mut pool = self.seen.pool.as_deref().unwrap().clone();
        pool.status.get_or_insert_default().rollout =
            facts.rollout.as_ref().and_then(|rollout| rollout.record.clone());
        self.seen.pool = Some(Arc::new(pool));
        let second = self.clock.monotonic().as_secs();
        let wait = plan.requeue_at.map_or(Duration::from_secs(60), |next| self.clock.until(next));
        self.time.advance(wait.max(Duration::from_secs(1)));
        Pass { second, listed, plan, facts }
    }

    /// The passes of so many seconds.
    fn passes(&mut self, seconds: u64, pods: impl Fn(&str) -> Option<Vec<Pod>>) -> Vec<Pass> {
        let end = self.clock.monotonic() + Duration::from_secs(seconds);
        let mut passes = Vec::new();
        while self.clock.monotonic() < end {
            passes.push(self.pass(&pods));
        }
        passes
    }
}

/// A pod that asks to be left alone.
fn asking() -> Vec<Pod> {
    let mut pod = pod("a");
    protect_pod(&mut pod);
    vec![pod]
}

#[test]
fn a_rollout_that_waits_for_many_protected_nodes_says_the_same_for_half_an_hour_with_few_lists() {
    const SETTLED: u64 = 60;
    const HALF_AN_HOUR: u64 = 1800;
    for (count, unavailable) in [(1, 0), (9, 0), (40, 0), (60, 0), (130, 0), (1, 1), (40, 1), (130, 1)] {
        let mut waiting = Waiting::new(count, unavailable);
        let passes = waiting.passes(HALF_AN_HOUR, |_| Some(asking()));
        let settled: Vec<&Pass> = passes.iter().filter(|pass| pass.second >= SETTLED).collect();
        let first = &settled[0].facts;
        let waits = first.rollout.as_ref().and_then(|rollout| rollout.waits.as_ref());
        assert_eq!(waits.map(|waits| waits.reason), Some(Reason::WaitsForProtected), "{count}");
        for Pass { second, plan, facts, .. } in &settled {
            assert_eq!((facts, plan.request.len()), (first, 0), "{count} nodes, at {second}");
        }
        assert!(passes.iter().all(|pass| pass.listed.len() <= 50), "{count}");
        let listed: usize = settled.iter().map(|pass| pass.listed.len()).sum();
        let rounds = usize::try_from(HALF_AN_HOUR / 30).unwrap();
        assert!((count * 10..=count * rounds).contains(&listed), "{count}: {listed}");
        // What changes is found soon.
        let last = format!("n-{:03}", count - 1);
        let free =
            waiting.passes(200, |node| if node == last { Some(vec![pod("a")]) } else { Some(asking()) });
        let requested = free.iter().find(|pass| pass.plan.request.len() == 1).unwrap();
        let waits = &requested.facts.rollout.as_ref().unwrap().waits;
        assert!(waits.is_none(), "{count}: {waits:?}");
    }
}

#[test]
fn nodes_whose_pods_cannot_be_listed_keep_no_others_from_being_looked_at() {
    let mut waiting = Waiting::new(40, 0);
    // The order of removal begins with the highest slot.
    let unreadable = |node: &str| node >= "n-010";
    let passes = waiting.passes(300, |node| if unreadable(node) { None } else { Some(vec![pod("a")]) });
    let requested = passes.iter().position(|pass| !pass.plan.request.is_empty());
    assert!(requested.is_some_and(|passes| passes <= 4), "{requested:?}");
    let first = passes.iter().take(3).flat_map(|pass| &pass.listed).collect::<BTreeSet<_>>();
    assert_eq!(first.len(), 30, "each pass tries others");
}

/// Otherwise each pass would write a status, which brings the next pass, and its lists, at once.
#[test]
fn of_nodes_that_are_too_many_and_whose_pods_cannot_be_listed_the_same_is_said_in_every_pass() {
    for count in [10, 60, 130] {
        let mut waiting = Waiting::new(count, 0);
        waiting.seen.pool = Some(Arc::new(pool(0)));
        let passes = waiting.passes(120, |_| None);
        let first = &passes[0].facts;
        assert!(!first.held.is_empty(), "{count}");
        for Pass { second, facts, .. } in &passes {
            assert_eq!(facts, first, "{count} nodes, at {second}");
        }
    }
}
