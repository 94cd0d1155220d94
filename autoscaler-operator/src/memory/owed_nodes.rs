//! For how long pools have lacked nodes without a new one coming, measured with a monotonic clock.
//!
//! A restart empties it, so that nodes are counted on for their full time once more.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use planner::input::nodes;
use shared_crds::{NodePool, QualifiedName};

/// The measurements, by the pool's UID.
#[derive(Debug, Default)]
pub(crate) struct OwedNodes(Mutex<HashMap<String, Owed>>);

#[derive(Clone, Copy, Debug)]
struct Owed {
    since: Duration,
    seen: Seen,
}

/// What a new node changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    count: usize,
    newest: Option<Timestamp>,
}

impl OwedNodes {
    /// For how long each of `pools` has lacked nodes, at `now` of the monotonic clock. Pools that lack none or are paused
    /// are left out, and those not among `pools` are forgotten.
    pub(crate) fn record(
        &self,
        pools: &[Arc<NodePool>],
        nodes: &[Arc<Node>],
        now: Duration,
    ) -> BTreeMap<String, SignedDuration> {
        let mut by_pool: HashMap<(&str, &str), Seen> = HashMap::new();
        for node in nodes.iter().filter(|node| !nodes::is_leaving(node)) {
            let Some(pool) = nodes::pool_of(node) else { continue };
            let seen = by_pool.entry(pool).or_default();
            seen.count += 1;
            seen.newest = seen.newest.max(nodes::created(node));
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut owing = HashMap::new();
        for pool in pools {
            let QualifiedName { namespace, name } = QualifiedName::of(&pool.metadata);
            let seen = by_pool.get(&(namespace, name)).copied().unwrap_or_default();
            let wanted = pool.spec.replicas_or(i32::try_from(seen.count).unwrap_or(i32::MAX));
            // No node comes for a pool that is paused, so the time begins when it is not any more.
            let is_owed =
                !pool.spec.paused && usize::try_from(wanted).is_ok_and(|wanted| wanted > seen.count);
            let Some(uid) = pool.metadata.uid.clone().filter(|_| is_owed) else { continue };
            let before = known.get(&uid).filter(|owed| !seen.has_gained_on(owed.seen));
            let since = before.map_or(now, |owed| owed.since);
            owing.insert(uid, Owed { since, seen });
        }
        *known = owing;
        let passed = |since: Duration| SignedDuration::try_from(now.saturating_sub(since));
        known
            .iter()
            .map(|(uid, owed)| (uid.clone(), passed(owed.since).unwrap_or(SignedDuration::MAX)))
            .collect()
    }
}

impl Seen {
    /// Whether a node has come since `before`.
    fn has_gained_on(self, before: Self) -> bool {
        self.count > before.count || self.newest > before.newest
    }
}

#[cfg(test)]
mod tests {
    use planner::fixtures::TestCluster;
    use serde_json::{Value, json};

    use super::*;

    /// What happens, when, the count that is wanted, the nodes that exist, and the seconds that were measured.
    type Step<'a> = (&'a str, u64, i32, &'a [(&'a str, &'a str)], Option<i64>);

    fn cluster(replicas: i32, nodes: &[(&str, &str)]) -> TestCluster {
        let pool = json!({ "metadata": { "uid": "u" }, "spec": { "replicas": replicas, "maxReplicas": 10 } });
        let created = |at: &str| json!({ "metadata": { "creationTimestamp": format!("2026-01-01T{at}Z") } });
        let add = |cluster: TestCluster, (name, at): &(&str, &str)| cluster.node("a", name, created(at));
        nodes.iter().fold(TestCluster::eager().pool("a", pool), add)
    }

    #[test]
    fn the_time_runs_while_nodes_are_missing_and_begins_anew_with_each_that_comes() {
        let owed = OwedNodes::default();
        let old = ("n1", "11:00:00");
        let steps: [Step<'_>; 8] = [
            ("none is missing", 0, 1, &[old], None),
            ("first seen", 10, 3, &[old], Some(0)),
            ("still missing", 40, 3, &[old], Some(30)),
            ("more are wanted", 50, 4, &[old], Some(40)),
            ("one goes", 60, 4, &[], Some(50)),
            ("one comes", 70, 4, &[("n2", "11:30:00")], Some(0)),
            ("one is replaced", 90, 4, &[("n3", "11:40:00")], Some(0)),
            ("none is wanted any more", 100, 1, &[("n3", "11:40:00")], None),
        ];
        for (what, second, replicas, nodes, expected) in steps {
            let observed = cluster(replicas, nodes).observed;
            let times = owed.record(&observed.pools, &observed.nodes, Duration::from_secs(second));
            assert_eq!(times.get("u").map(SignedDuration::as_secs), expected, "{what}");
        }
        let again = cluster(3, &[]).observed;
        assert_eq!(owed.record(&[], &again.nodes, Duration::from_secs(110)).len(), 0);
        let times = owed.record(&again.pools, &again.nodes, Duration::from_secs(120));
        assert_eq!(times["u"], SignedDuration::ZERO, "a pool that was gone is another one");
    }

    #[test]
    fn nodes_that_leave_are_missing_and_an_unset_count_or_a_paused_pool_owes_none() {
        let owed = OwedNodes::default();
        let drained: Value = json!({ "metadata": { "annotations": { "tandem.dev/drain-start-time": "2026-01-01T11:59:00Z" } } });
        let pool = json!({ "metadata": { "uid": "u" }, "spec": { "replicas": 1 } });
        let mut observed = TestCluster::eager().pool("a", pool).node("a", "n", drained).observed;
        assert_eq!(owed.record(&observed.pools, &observed.nodes, Duration::ZERO).len(), 1);
        let mut none = |change: fn(&mut NodePool)| {
            change(Arc::make_mut(&mut observed.pools[0]));
            assert_eq!(owed.record(&observed.pools, &observed.nodes, Duration::ZERO).len(), 0);
        };
        none(|pool| pool.spec.paused = true);
        none(|pool| (pool.spec.paused, pool.spec.replicas) = (false, None));
    }
}
