//! Topology spread constraints: where they allow another pod, on nodes that exist and on new ones.

use super::bits::ClosedBy;
use super::filters::NodeOrTemplate;
use super::model::ClusterSnapshot;
use super::node_class::NodeClassId;
use super::rules::PlacementRule;
use crate::reasons::Rejection;
use crate::requirements::pod_class::TopologySpread;

impl ClusterSnapshot {
    /// Whether the domain of the node class can take another pod.
    pub(super) fn keeps_skew(&self, spread: &TopologySpread, node_class: NodeClassId) -> bool {
        let counts = &self.counts[spread.topology_count];
        self.node_classes.list[node_class].has(counts.domain_kind)
            && is_within(
                spread,
                self.in_domain(spread.topology_count, node_class),
                counts.least(spread.min_domains),
            )
    }

    /// The numbers of pods from which single nodes are closed, where the host name is the key.
    pub(super) fn uneven_hosts(&self, rule: &PlacementRule) -> impl Iterator<Item = ClosedBy> {
        rule.spreads_here.iter().map(|spread| {
            let least = self.counts[spread.topology_count].least(spread.min_domains);
            let most = spread.max_skew.saturating_add(least);
            ClosedBy::AtLeast(
                spread.topology_count,
                (most + 1).saturating_sub(u32::from(spread.matches_itself)),
            )
        })
    }

    /// The constraint that keeps a pod off the target, which may be a new node.
    pub(super) fn too_uneven(
        &self,
        rule: &PlacementRule,
        node_class: NodeClassId,
        target: NodeOrTemplate,
    ) -> Option<Rejection> {
        let of = &self.node_classes.list[node_class];
        let new = matches!(target, NodeOrTemplate::Template(_));
        for spread in rule.spreads.iter().chain(&rule.spreads_here) {
            let counts = &self.counts[spread.topology_count];
            let key = || self.rules.key(spread.topology_count).to_owned();
            if !of.has(counts.domain_kind) {
                return Some(Rejection::TopologyKeyMissing(key()));
            }
            let domain = of.domain(counts.domain_kind);
            // A new node can add a new domain, without pods.
            let brings =
                new && of.counts(spread.topology_count) && domain.is_none_or(|d| counts.nodes[d] == 0);
            let count = self.around(spread.topology_count, node_class, target);
            let least = if brings { 0 } else { counts.least(spread.min_domains) };
            if !is_within(spread, count, least) {
                return Some(Rejection::TopologySpreadConflict(key()));
            }
        }
        None
    }
}

/// Whether one more pod in a domain with `count` stays within the maximum skew.
fn is_within(spread: &TopologySpread, count: u32, least: u32) -> bool {
    u64::from(count) + u64::from(spread.matches_itself) <= u64::from(spread.max_skew) + u64::from(least)
}
