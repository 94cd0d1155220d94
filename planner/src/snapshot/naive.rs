//! The constraints once more, as simply as possible: pod by pod, node by node, everything counted again for each query.
//! The snapshot is tested against it.

use std::collections::BTreeSet;

use super::NodeIndex;
use crate::index::Indexed;
use crate::requirements::constraints::HOSTNAME_LABEL;
use crate::requirements::node_profile::NodeProfile;
use crate::requirements::pod_class::{
    ConstraintSets, CountedNodes, HostPort, PodClass, PodClassId, PodClasses, TopologyCountId,
    TopologyCounts, TopologySpread,
};
use crate::requirements::predicates::{self, node_affinity, selector, taints};
use crate::resources::Amounts;

#[derive(Clone, Debug)]
pub(crate) struct NaiveNode {
    pub(crate) profile: NodeProfile,
    pub(crate) capacity: Amounts,
    pub(crate) ports: Vec<HostPort>,
    /// Topology counts that are raised by anything other than its pods.
    pub(crate) increments: Vec<TopologyCountId>,
    pub(crate) pods: Vec<PodClassId>,
    pub(crate) open: bool,
    pub(crate) gone: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Naive {
    pub(crate) constraint_sets: ConstraintSets,
    pub(crate) classes: PodClasses,
    pub(crate) topology_counts: TopologyCounts,
    pub(crate) nodes: Indexed<NodeIndex, NaiveNode>,
}

impl Naive {
    /// Places pods one by one, each on the first node of `order` that allows it.
    pub(crate) fn place(
        &mut self,
        class: PodClassId,
        wanted: usize,
        order: &[NodeIndex],
    ) -> Vec<(NodeIndex, usize)> {
        let mut placed: Vec<(NodeIndex, usize)> = Vec::new();
        for _ in 0..wanted {
            let Some(&node) = order.iter().find(|&&node| self.allows(class, node)) else { break };
            self.nodes[node].pods.push(class);
            match placed.last_mut() {
                Some(last) if last.0 == node => last.1 += 1,
                _ => placed.push((node, 1)),
            }
        }
        placed
    }

    /// Whether a pod of the class may go onto the node now.
    pub(crate) fn allows(&self, class: PodClassId, node: NodeIndex) -> bool {
        let (of, at) = (&self.classes[class], &self.nodes[node]);
        at.open
            && !at.gone
            && predicates::admits(&self.constraint_sets[of.constraint_set], &at.profile).is_ok()
            && self.has_room(of, node)
            && self.ports_are_free(of, node)
            && self.is_near(of, node)
            && of.anti_affinity.iter().all(|&t| self.domain(t, node).is_none_or(|d| self.count(t, &d) == 0))
            && of.spreads.iter().all(|spread| self.keeps(spread, node))
    }

    fn has_room(&self, class: &PodClass, node: NodeIndex) -> bool {
        let at = &self.nodes[node];
        let mut free = at.capacity.clone();
        at.pods.iter().for_each(|&pod| free.take(&self.classes[pod].request, 1));
        free.shortage(&class.request).is_none()
    }

    fn ports_are_free(&self, class: &PodClass, node: NodeIndex) -> bool {
        let at = &self.nodes[node];
        let mut taken = at.pods.iter().flat_map(|&pod| &self.classes[pod].ports).chain(&at.ports);
        !taken.any(|a| {
            class.ports.iter().any(|b| {
                let everywhere = a.address == "0.0.0.0" || b.address == "0.0.0.0";
                (a.port, &a.protocol) == (b.port, &b.protocol) && (everywhere || a.address == b.address)
            })
        })
    }

    fn is_near(&self, class: &PodClass, node: NodeIndex) -> bool {
        let Some(affinity) = &class.affinity else { return true };
        let domains: Vec<_> = affinity
            .topology_counts
            .iter()
            .map(|&topology_count| (topology_count, self.domain(topology_count, node)))
            .collect();
        domains.iter().all(|(_, domain)| domain.is_some())
            && (domains
                .iter()
                .all(|(topology_count, d)| d.as_ref().is_some_and(|d| self.count(*topology_count, d) > 0))
                || (affinity.matches_itself
                    && affinity
                        .topology_counts
                        .iter()
                        .all(|&topology_count| self.total(topology_count) == 0)))
    }

    fn keeps(&self, spread: &TopologySpread, node: NodeIndex) -> bool {
        let Some(own) = self.domain(spread.topology_count, node) else { return false };
        let domains: BTreeSet<_> = self
            .nodes
            .indexes()
            .filter(|&n| self.counts(spread.topology_count, n))
            .filter_map(|n| self.domain(spread.topology_count, n))
            .collect();
        let least = domains.iter().map(|domain| self.count(spread.topology_count, domain)).min().unwrap_or(0);
        let few = domains.len() < usize::try_from(spread.min_domains).unwrap();
        let least = if few { 0 } else { least };
        self.count(spread.topology_count, &own) + u32::from(spread.matches_itself) <= least + spread.max_skew
    }

    /// The node's domain; each node with a host name is a domain of its own.
    fn domain(&self, topology_count: TopologyCountId, node: NodeIndex) -> Option<String> {
        let key = &self.topology_counts[topology_count].key;
        let value = self.nodes[node].profile.labels.get(key)?;
        Some(if key == HOSTNAME_LABEL { node.0.to_string() } else { value.clone() })
    }

    fn counts(&self, topology_count: TopologyCountId, node: NodeIndex) -> bool {
        let profile = &self.nodes[node].profile;
        !self.nodes[node].gone
            && profile.labels.contains_key(&self.topology_counts[topology_count].key)
            && match &self.topology_counts[topology_count].nodes {
                CountedNodes::All => true,
                CountedNodes::Eligible { keys, labels_of, taints_of } => {
                    keys.iter().all(|key| profile.labels.contains_key(key))
                        && labels_of.is_none_or(|constraint_set| {
                            let constraint_set = &self.constraint_sets[constraint_set];
                            selector::matches(&constraint_set.selector, &profile.labels).is_ok()
                                && node_affinity::matches(constraint_set.affinity.as_deref(), profile).is_ok()
                        })
                        && taints_of.is_none_or(|constraint_set| {
                            taints::tolerated(
                                &self.constraint_sets[constraint_set].tolerations,
                                &profile.taints,
                            )
                            .is_ok()
                        })
                }
            }
    }

    fn count(&self, topology_count: TopologyCountId, domain: &str) -> u32 {
        let of_domain = |&n: &NodeIndex| self.domain(topology_count, n).as_deref() == Some(domain);
        self.nodes.indexes().filter(of_domain).map(|n| self.on(topology_count, n)).sum()
    }

    fn total(&self, topology_count: TopologyCountId) -> u32 {
        self.nodes.indexes().map(|n| self.on(topology_count, n)).sum()
    }

    fn on(&self, topology_count: TopologyCountId, node: NodeIndex) -> u32 {
        if !self.counts(topology_count, node) {
            return 0;
        }
        let raising = |pod: &&PodClassId| self.classes[**pod].increments.contains(&topology_count);
        let besides = self.nodes[node].increments.iter().filter(|&&raised| raised == topology_count).count();
        u32::try_from(self.nodes[node].pods.iter().filter(raising).count() + besides).unwrap()
    }
}
