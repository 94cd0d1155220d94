//! The order in which groups of pending pods are placed: by priority and size, as they come, except that pods which
//! cannot share a node go first if they need more nodes than all pods together fill. Otherwise the large pods among the
//! others would fill nodes up, and the pods that cannot share would need as many nodes again. Then there is enough
//! room, and only the placement matters: so pods that are bound to a domain of more nodes come next, before other pods
//! take its room.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::model::PendingGroup;
use crate::requirements::constraints::HOSTNAME_LABEL;
use crate::requirements::pod_class::{HostPort, PodClass, PodClasses, TopologyCountId, TopologyCounts};
use crate::resources::Amounts;
use crate::steps;

/// Why two pods of a class cannot share a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Apart<'a> {
    TopologyCount(TopologyCountId),
    Port(&'a HostPort),
}

/// How freely pods can choose among domains of more than one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Liberty {
    /// They must be where other pods of the class are.
    Together,
    /// They must go to the domain with the fewest pods.
    Even,
    Free,
}

impl Liberty {
    fn of(class: &PodClass, topology_counts: &TopologyCounts) -> Self {
        let wide = |topology_count: TopologyCountId| {
            topology_counts.get(topology_count).is_some_and(|t| t.key != HOSTNAME_LABEL)
        };
        if class
            .affinity
            .iter()
            .flat_map(|affinity| &affinity.topology_counts)
            .any(|&topology_count| wide(topology_count))
        {
            Self::Together
        } else if class.spreads.iter().any(|spread| wide(spread.topology_count)) {
            Self::Even
        } else {
            Self::Free
        }
    }
}

/// Sorts `groups`, which come by priority and size. `reference` is the capacity of a large node.
pub(crate) fn order(
    groups: &mut [PendingGroup],
    classes: &PodClasses,
    topology_counts: &TopologyCounts,
    reference: &Amounts,
) {
    steps::count(groups.len());
    let mut needed: BTreeMap<Apart<'_>, usize> = BTreeMap::new();
    for group in groups.iter() {
        for anti_affinity in aparts(&classes[group.class], topology_counts) {
            *needed.entry(anti_affinity).or_default() += group.pods.len();
        }
    }
    if needed.is_empty() {
        return;
    }
    let filled = filled(groups, classes, reference);
    needed.retain(|_, nodes| *nodes > filled);
    let goes_first = |group: &PendingGroup| {
        aparts(&classes[group.class], topology_counts)
            .iter()
            .any(|anti_affinity| needed.contains_key(anti_affinity))
    };
    if needed.is_empty() {
        return;
    }
    groups.sort_by_cached_key(|group| {
        (Reverse(group.priority), !goes_first(group), Liberty::of(&classes[group.class], topology_counts))
    });
}

fn aparts<'a>(class: &'a PodClass, topology_counts: &TopologyCounts) -> Vec<Apart<'a>> {
    let own = class.anti_affinity.iter().filter(|topology_count| {
        class.increments.contains(topology_count)
            && topology_counts.get(**topology_count).is_some_and(|t| t.key == HOSTNAME_LABEL)
    });
    own.map(|&topology_count| Apart::TopologyCount(topology_count))
        .chain(class.ports.iter().map(Apart::Port))
        .collect()
}

/// How many large nodes all pods together fill, measured by the resource of which they need the most.
fn filled(groups: &[PendingGroup], classes: &PodClasses, reference: &Amounts) -> usize {
    let mut total = BTreeMap::new();
    for group in groups {
        for (resource, amount) in classes[group.class].request.iter() {
            let pods = i128::try_from(group.pods.len()).unwrap_or(i128::MAX);
            *total.entry(resource).or_insert(0_i128) += i128::from(amount).saturating_mul(pods);
        }
    }
    let nodes = |(resource, amount): (_, i128)| amount / i128::from(reference.get(resource)).max(1);
    usize::try_from(total.into_iter().map(nodes).max().unwrap_or(0)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::PodIndex;
    use crate::requirements::pod_class::{
        CountedNodes, PodAffinity, PodClassId, TopologyCount, TopologySpread,
    };
    use crate::resources::{Basic, Resource};

    fn amounts(cpu: i64) -> Amounts {
        let mut amounts = Amounts::default();
        amounts.set(Resource::Basic(Basic::Cpu), cpu);
        amounts
    }

    #[test]
    fn pods_that_are_bound_to_a_domain_go_before_others_where_there_is_room_to_spare() {
        let topology_count = |key: &str| TopologyCount { key: key.to_owned(), nodes: CountedNodes::All };
        let topology_counts = vec![topology_count(HOSTNAME_LABEL), topology_count("zone")].into();
        let (host, zone) = (TopologyCountId(0), TopologyCountId(1));
        let anti_affinity = PodClass {
            request: amounts(100),
            anti_affinity: vec![TopologyCountId(0)],
            increments: vec![TopologyCountId(0)],
            ..PodClass::default()
        };
        let affinity = |topology_count| {
            let affinity = Some(PodAffinity { topology_counts: vec![topology_count], matches_itself: true });
            PodClass { request: amounts(100), affinity, ..PodClass::default() }
        };
        let spread = |topology_count| {
            let spreads =
                vec![TopologySpread { topology_count, max_skew: 1, min_domains: 1, matches_itself: true }];
            PodClass { request: amounts(100), spreads, ..PodClass::default() }
        };
        let free = PodClass { request: amounts(100), ..PodClass::default() };
        let classes =
            vec![free, spread(host), affinity(host), spread(zone), affinity(zone), anti_affinity].into();
        for (what, apart_pods, low, expected) in [
            ("room to spare", 4, None, [5, 4, 3, 0, 1, 2]),
            ("none", 0, None, [0, 1, 2, 3, 4, 5]),
            ("a priority comes before all", 4, Some(4), [5, 3, 0, 1, 2, 4]),
        ] {
            let group = |class| PendingGroup {
                class: PodClassId(class),
                priority: if low == Some(class) { -1 } else { 0 },
                pods: vec![PodIndex(0); if class == 5 { apart_pods } else { 1 }],
            };
            let mut groups = [0, 1, 2, 3, 4, 5].map(group);
            order(&mut groups, &classes, &topology_counts, &amounts(1000));
            assert_eq!(groups.map(|group| group.class.0), expected, "{what}");
        }
    }

    #[test]
    fn pods_that_cannot_share_a_node_go_first_only_where_they_need_the_most_nodes() {
        let count = TopologyCount { key: HOSTNAME_LABEL.to_owned(), nodes: CountedNodes::All };
        let topology_counts = vec![count].into();
        let large = PodClass { request: amounts(900), ..PodClass::default() };
        let anti_affinity = PodClass {
            request: amounts(100),
            anti_affinity: vec![TopologyCountId(0)],
            increments: vec![TopologyCountId(0)],
            ..PodClass::default()
        };
        let keeps_away = PodClass { increments: vec![], ..anti_affinity.clone() };
        let port = HostPort { port: 1, protocol: "TCP".into(), address: "0.0.0.0".into() };
        let with_port = PodClass { request: amounts(100), ports: vec![port], ..PodClass::default() };
        for (what, large_pods, class, pods, priority, expected) in [
            ("more nodes than are filled", 3, &anti_affinity, 4, 0, [1, 0]),
            ("fewer", 9, &anti_affinity, 4, 0, [0, 1]),
            ("a port", 3, &with_port, 4, 0, [1, 0]),
            ("from others only", 3, &keeps_away, 4, 0, [0, 1]),
            ("of lower priority", 3, &anti_affinity, 4, -1, [0, 1]),
        ] {
            let classes = vec![large.clone(), class.clone()].into();
            let group = |class, count, priority| {
                let class = PodClassId(class);
                PendingGroup { class, priority, pods: vec![PodIndex(0); count] }
            };
            let mut groups = [group(0, large_pods, 0), group(1, pods, priority)];
            order(&mut groups, &classes, &topology_counts, &amounts(1000));
            assert_eq!(groups.map(|group| group.class.0), expected, "{what}");
        }
    }
}
