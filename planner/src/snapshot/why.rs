//! Why a node, or a new node of a pool, takes no pod of a kind: the first of the scheduler's filters that says no.

use super::bits::CLOSED;
use super::place::is_within;
use super::rules::{CountedBy, PlacementRule};
use super::{ClusterSnapshot, NodeIndex};
use crate::reasons::Rejection;
use crate::requirements::pod_class::PodClassId;
use crate::requirements::predicates;
use crate::resources::Resource;

/// What is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeOrTemplate {
    /// A node.
    Node(NodeIndex),
    /// A new node of that pool, if it were opened now.
    Template(usize),
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementError {
    /// It takes no pod at all, or nothing is known of it.
    Closed,
    /// Taints, labels, ports, or other pods.
    Rejected(Rejection),
    /// It has not enough of this free.
    Short(Resource),
}

impl ClusterSnapshot {
    /// Why it takes no pod of this kind; `None` when it does. Bounds of pools are not looked at.
    pub fn why_not(&self, kind: PodClassId, target: NodeOrTemplate) -> Option<PlacementError> {
        let rule = &self.kinds[kind];
        let (family, free) = match target {
            NodeOrTemplate::Node(node) => {
                let node = &self.nodes[node];
                if node.closed & CLOSED != 0 {
                    return Some(PlacementError::Closed);
                }
                (node.family, &node.free)
            }
            NodeOrTemplate::Template(pool) => match self.templates.get(pool) {
                Some(Some(template)) => (template.family, &template.free),
                _ => return Some(PlacementError::Closed),
            },
        };
        let profile = &self.families.list[family].profile;
        if let Err(rejection) = predicates::admits(&self.classes[rule.class], profile) {
            return Some(PlacementError::Rejected(rejection));
        }
        let taken = self.taken_port(rule, target).map(PlacementError::Rejected);
        taken
            .or_else(|| free.shortage(&rule.request).map(PlacementError::Short))
            .or_else(|| self.too_uneven(rule, family, target).map(PlacementError::Rejected))
            .or_else(|| self.too_near_or_far(rule, family, target).map(PlacementError::Rejected))
    }

    /// Whether an empty new node of the pool would take a pod of this kind if there were no other pods.
    pub fn could_take(&mut self, kind: PodClassId, pool: usize) -> bool {
        let rule = std::sync::Arc::clone(&self.kinds[kind]);
        let Some(Some(template)) = self.templates.get(pool) else { return false };
        let family = template.family;
        template.free.fits(&rule.request, 1) == 1
            && self.families.admitting(rule.class, &self.classes)[family]
    }

    /// Whether a new node of the pool would take a pod of this kind.
    pub fn would_take(&mut self, kind: PodClassId, pool: usize) -> bool {
        if !self.could_take(kind, pool) {
            return false;
        }
        let rule = &self.kinds[kind];
        let Some(Some(template)) = self.templates.get(pool) else { return false };
        if template.raises.iter().any(|&tally| self.counts[tally].ground != CountedBy::Ports) {
            // What runs on the new node may raise the least of a spread too: only the node itself can tell.
            let mark = self.mark();
            let takes =
                self.open(pool).is_some_and(|node| self.why_not(kind, NodeOrTemplate::Node(node)).is_none());
            self.undo_to(mark);
            return takes;
        }
        let (family, target) = (template.family, NodeOrTemplate::Template(pool));
        self.taken_port(rule, target).is_none()
            && self.too_uneven(rule, family, target).is_none()
            && self.too_near_or_far(rule, family, target).is_none()
    }

    /// The count of a tally over single nodes.
    fn here(&self, tally: usize, target: NodeOrTemplate) -> u32 {
        match target {
            NodeOrTemplate::Node(node) => super::change::count_of(&self.nodes[node], tally),
            NodeOrTemplate::Template(_) => self.brought(tally, target),
        }
    }

    /// What a new node adds to a tally by itself, since daemons run on it.
    fn brought(&self, tally: usize, target: NodeOrTemplate) -> u32 {
        let NodeOrTemplate::Template(pool) = target else { return 0 };
        let raises = |t: &super::Template| {
            let counts = self.families.list[t.family].counts(tally);
            if counts { t.raises.iter().filter(|&&raised| raised == tally).count() } else { 0 }
        };
        let count = self.templates[pool].as_ref().map_or(0, raises);
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// The count of a tally where a node is, or would be.
    fn around(&self, tally: usize, family: usize, target: NodeOrTemplate) -> u32 {
        let counts = &self.counts[tally];
        match self.families.list[family].domain(counts.ground) {
            Some(domain) => counts.pods[domain].saturating_add(self.brought(tally, target)),
            None => self.here(tally, target),
        }
    }

    fn taken_port(&self, rule: &PlacementRule, target: NodeOrTemplate) -> Option<Rejection> {
        let mut ports = rule.apart_here.iter().filter(|&&tally| self.here(tally, target) > 0);
        let named = |&tally: &usize| self.rules.ports.iter().find(|(_, id)| **id == tally);
        let (port, _) = ports.find_map(named)?;
        Some(Rejection::HostPortConflict(format!("{}/{}", port.port, port.protocol)))
    }

    fn too_uneven(&self, rule: &PlacementRule, family: usize, target: NodeOrTemplate) -> Option<Rejection> {
        let of = &self.families.list[family];
        let new = matches!(target, NodeOrTemplate::Template(_));
        for spread in rule.spreads.iter().chain(&rule.spreads_here) {
            let counts = &self.counts[spread.tally];
            let key = || self.rules.key(spread.tally).to_owned();
            if !of.has(counts.ground) {
                return Some(Rejection::TopologyKeyMissing(key()));
            }
            let domain = of.domain(counts.ground);
            // A new node can bring a new domain, with no pods.
            let brings = new && of.counts(spread.tally) && domain.is_none_or(|d| counts.nodes[d] == 0);
            let count = self.around(spread.tally, family, target);
            let least = if brings { 0 } else { counts.least(spread.min_domains) };
            if !is_within(spread, count, least) {
                return Some(Rejection::TopologySpreadConflict(key()));
            }
        }
        None
    }

    fn too_near_or_far(
        &self,
        rule: &PlacementRule,
        family: usize,
        target: NodeOrTemplate,
    ) -> Option<Rejection> {
        let of = &self.families.list[family];
        let count = |tally: usize| self.around(tally, family, target);
        if let Some(near) = &rule.near {
            let tallies = || near.tallies.iter().chain(&near.tallies_here);
            if let Some(&tally) = tallies().find(|&&tally| !of.has(self.counts[tally].ground)) {
                return Some(Rejection::TopologyKeyMissing(self.rules.key(tally).to_owned()));
            }
            if !self.begins(near) && tallies().any(|&tally| count(tally) == 0) {
                return Some(Rejection::PodAffinityMismatch);
            }
        }
        let apart = rule.apart.iter().chain(&rule.apart_here);
        apart.copied().any(|tally| count(tally) > 0).then_some(Rejection::PodAntiAffinityConflict)
    }
}
