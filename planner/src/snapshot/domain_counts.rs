//! How many pods each topology count counts in each domain, and the minimum over the domains.

use std::collections::BTreeMap;

use super::rules::{DomainId, DomainKind};
use crate::index::Indexed;

/// The counts of one topology count. Those over the host name are kept on the nodes; their levels and total are here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DomainCounts {
    pub(super) domain_kind: DomainKind,
    /// Number of pods in each domain.
    pub(super) pods: Indexed<DomainId, u32>,
    /// Number of counted nodes in each domain; only maintained if a spread constraint uses the topology count.
    pub(super) nodes: Indexed<DomainId, u32>,
    /// Number of pods in all domains.
    pub(super) total: u64,
    /// Only maintained if a spread constraint uses the topology count.
    pub(super) levels: Option<Levels>,
}

/// How many domains have which count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Levels {
    /// Number of domains.
    domains: usize,
    /// Number of domains with pods.
    filled: usize,
    /// How many of those have which count.
    by_count: BTreeMap<u32, usize>,
}

impl DomainCounts {
    pub(super) fn new(domain_kind: DomainKind, domains: usize, spread: bool) -> Self {
        Self {
            domain_kind,
            pods: vec![0; domains].into(),
            nodes: vec![0; domains].into(),
            total: 0,
            levels: spread.then(Levels::default),
        }
    }

    /// The count of a domain changed from `before` to `after`.
    pub(super) fn moved(&mut self, before: u32, after: u32) {
        self.total = self.total.saturating_sub(u64::from(before)).saturating_add(u64::from(after));
        if let Some(levels) = &mut self.levels {
            levels.moved(before, after);
        }
    }

    /// A counted node was added.
    pub(super) fn joined(&mut self, domain: Option<DomainId>) {
        let Some(levels) = &mut self.levels else { return };
        let first = domain.is_none_or(|domain| {
            self.nodes[domain] += 1;
            self.nodes[domain] == 1
        });
        levels.domains += usize::from(first);
    }

    /// A counted node was removed; its pods were removed before.
    pub(super) fn left(&mut self, domain: Option<DomainId>) {
        let Some(levels) = &mut self.levels else { return };
        let last = domain.is_none_or(|domain| {
            self.nodes[domain] = self.nodes[domain].saturating_sub(1);
            self.nodes[domain] == 0
        });
        levels.domains = levels.domains.saturating_sub(usize::from(last));
    }

    /// The minimum over the domains; zero while there are fewer domains than `min_domains`.
    pub(super) fn least(&self, min_domains: u32) -> u32 {
        self.levels.as_ref().map_or(0, |levels| levels.least(min_domains))
    }

    /// How many domains the spread constraints see.
    pub(super) fn domains(&self) -> usize {
        self.levels.as_ref().map_or(0, |levels| levels.domains)
    }
}

impl Levels {
    fn moved(&mut self, before: u32, after: u32) {
        if before > 0 {
            self.filled = self.filled.saturating_sub(1);
            if let Some(domains) = self.by_count.get_mut(&before) {
                *domains -= 1;
                if *domains == 0 {
                    self.by_count.remove(&before);
                }
            }
        }
        if after > 0 {
            self.filled += 1;
            *self.by_count.entry(after).or_default() += 1;
        }
    }

    fn least(&self, min_domains: u32) -> u32 {
        let few = u32::try_from(self.domains).is_ok_and(|domains| domains < min_domains);
        if few || self.domains > self.filled {
            0
        } else {
            self.by_count.first_key_value().map_or(0, |(&count, _)| count)
        }
    }
}
