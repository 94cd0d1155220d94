//! The snapshot of a pass before anything is placed, and in which order its nodes are searched.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::bits::{Bits, CLOSED};
use super::domain_counts::DomainCounts;
use super::index::FitIndex;
use super::model::{Bucket, BucketId, ClusterSnapshot, Template};
use super::node_class::{NodeClassId, NodeClasses};
use super::node_index::Place;
use super::rules::{DomainKind, PlacementRules};
use super::setup::{NodeSetup, Setup};
use super::supplies::Supplies;
use crate::index::{Indexed, PoolIndex};
use crate::requirements::node_profile::NodeProfile;
use crate::requirements::pod_class::{ConstraintSetId, HostPort, TopologyCountId};
use crate::steps;

impl ClusterSnapshot {
    /// The snapshot of a pass before anything is placed.
    pub(crate) fn new(setup: Setup<'_>) -> Self {
        let Setup { constraint_sets, classes, topology_counts, supplies, pending, nodes, templates } = setup;
        let taken = nodes.iter().flat_map(|node| &node.ports);
        let of_templates = templates.iter().flatten().flat_map(|template| &template.ports);
        let mut rules = PlacementRules::of(classes, topology_counts, taken.chain(of_templates));
        let mut node_classes = NodeClasses::new(constraint_sets, &rules);
        let mut node_class =
            |profile: &NodeProfile| node_classes.of(profile, constraint_sets, topology_counts, &rules);
        let of_nodes: Vec<_> = nodes.iter().map(|node| node_class(&node.profile)).collect();
        let of_templates: Vec<_> =
            templates.iter().map(|template| template.as_ref().map(|t| node_class(&t.profile))).collect();
        let counts: Indexed<TopologyCountId, _> = rules
            .domain_kinds
            .enumerated()
            .map(|(topology_count, &domain_kind)| {
                let domains =
                    if let DomainKind::Key(key) = domain_kind { node_classes.values(key) } else { 0 };
                DomainCounts::new(domain_kind, domains, rules.spread[topology_count])
            })
            .collect();
        let profiles = node_classes.list.iter().map(|node_class| &node_class.profile);
        let supplies = Supplies::of(supplies, constraint_sets, profiles);
        steps::count(classes.len() + topology_counts.len());
        let mut snapshot = Self {
            supplies,
            constraint_sets: constraint_sets.clone(),
            classes: std::mem::take(&mut rules.classes).into_iter().map(Arc::new).collect(),
            counts,
            spread: rules.spread.indexes().filter(|&topology_count| rules.spread[topology_count]).collect(),
            rules,
            node_classes,
            nodes: Vec::with_capacity(nodes.len()).into(),
            buckets: Indexed::default(),
            order: Vec::new(),
            templates: Indexed::default(),
            bits: Bits::default(),
            journal: Vec::new(),
        };
        let mut buckets = BTreeMap::new();
        for (node, node_class) in nodes.into_iter().zip(of_nodes) {
            snapshot.add_node(node, node_class, &mut buckets);
        }
        for (template, node_class) in templates.into_iter().zip(of_templates) {
            let pool = snapshot.templates.next();
            let template = template.zip(node_class).map(|(template, node_class)| Template {
                bucket: snapshot.bucket(Place::Planned(pool), node_class, &mut buckets),
                node_class,
                increments: snapshot.raised(&template.ports, template.increments),
                free: template.free,
            });
            snapshot.templates.push(template);
        }
        snapshot.rebuild_indexes();
        snapshot.sort_buckets(pending);
        snapshot
    }

    fn add_node(
        &mut self,
        node: NodeSetup,
        node_class: NodeClassId,
        buckets: &mut BTreeMap<BucketKey, BucketId>,
    ) {
        let NodeSetup { place, profile: _, free, pods, ports, increments, open } = node;
        let bucket = self.bucket(place, node_class, buckets);
        let increments = self.raised(&ports, increments);
        let ix = self.insert(place, bucket, node_class, free, increments);
        for (class, count) in pods {
            self.lay(ix, class, count);
        }
        if !open {
            self.nodes[ix].closed |= CLOSED;
        }
    }

    fn raised(&self, ports: &[HostPort], besides: Vec<TopologyCountId>) -> Vec<TopologyCountId> {
        let mut topology_counts = self.rules.incremented_by(ports);
        topology_counts.extend(besides);
        topology_counts
    }

    fn bucket(
        &mut self,
        place: Place,
        node_class: NodeClassId,
        known: &mut BTreeMap<BucketKey, BucketId>,
    ) -> BucketId {
        let key = match place {
            Place::Node(_) => (0, None, node_class),
            Place::Upcoming(pool) => (1, Some(pool), node_class),
            Place::Planned(pool) => (2, Some(pool), node_class),
        };
        *known.entry(key).or_insert_with(|| {
            self.buckets.push(Bucket {
                node_class,
                sample: place,
                nodes: Vec::new(),
                index: FitIndex::default(),
            })
        })
    }

    /// Existing nodes come before upcoming ones and those before planned ones. Within each tier those come first that
    /// admit the fewest constraint sets of pending pods, so that pods with a choice leave the other nodes to pods
    /// without one.
    fn sort_buckets(&mut self, pending: &Indexed<ConstraintSetId, bool>) {
        let mut sought: Indexed<NodeClassId, usize> = vec![0; self.node_classes.list.len()].into();
        for constraint_set in self.constraint_sets.indexes() {
            if pending.get(constraint_set) != Some(&true) {
                continue;
            }
            let admitting = self.node_classes.admitting(constraint_set, &self.constraint_sets);
            steps::count(sought.len());
            for node_class in sought.indexes() {
                sought[node_class] += usize::from(admitting.contains(node_class));
            }
        }
        let buckets = &self.buckets;
        let tier = |place: Place| match place {
            Place::Node(_) => 0,
            Place::Upcoming(_) => 1,
            Place::Planned(_) => 2,
        };
        self.order = buckets.indexes().collect();
        self.order.sort_by_key(|&b| (tier(buckets[b].sample), sought[buckets[b].node_class], b));
    }
}

/// Tier of the node, pool if it does not exist yet, node class.
type BucketKey = (u8, Option<PoolIndex>, NodeClassId);
