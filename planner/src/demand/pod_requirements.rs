//! The requirements of one pod, read from the pod alone: no other pods, `PersistentVolumeClaim`s or namespaces are
//! looked at here. A pod's own labels are not part of them, so that pods of one template have equal requirements.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Affinity, PodAffinityTerm, PodSpec, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::ports;
use crate::input::pod_info::PodShape;
use crate::input::pods;
use crate::requirements::constraints::{Constraints, NodeTerm};
use crate::requirements::pod_class::{HostPort, Preference};
use crate::requirements::requests;
use crate::requirements::selectors::{InvalidSelector, Selector};
use crate::resources::ExactAmounts;

/// The requirements of one pod.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct PodRequirements {
    /// The resource requests by name; or why they cannot be read.
    pub(super) request: Result<ExactAmounts, String>,
    /// The first selector that cannot be read; its term is ignored.
    pub(super) problem: Option<String>,
    /// The constraints on nodes, without those of volumes.
    pub(super) constraints: Constraints,
    /// Preferred node affinity, sorted.
    pub(super) preferred: Vec<Preference>,
    /// Host ports, sorted.
    pub(super) ports: Vec<HostPort>,
    /// Required pod affinity.
    pub(super) affinity: Vec<PodTerm>,
    /// Required pod anti-affinity.
    pub(super) anti_affinity: Vec<PodTerm>,
    /// Spread constraints with `DoNotSchedule`.
    pub(super) spreads: Vec<SpreadRule>,
    /// Whether it has volumes with a `PersistentVolumeClaim`.
    pub(super) claims: bool,
}

/// Selects pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Matcher {
    /// By labels; `None` selects no pod.
    pub(super) selector: Option<Selector>,
    /// By namespace.
    pub(super) namespaces: Namespaces,
}

/// Namespaces: the listed ones, and those that a selector matches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Namespaces {
    pub(super) listed: BTreeSet<String>,
    pub(super) selector: Option<Selector>,
}

/// One term of a pod affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PodTerm {
    pub(super) pods: Matcher,
    pub(super) key: String,
}

/// A spread constraint with `whenUnsatisfiable: DoNotSchedule`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SpreadRule {
    pub(super) pods: Matcher,
    pub(super) key: String,
    pub(super) max_skew: u32,
    pub(super) min_domains: u32,
    /// Whether only nodes that match the pod's node selector and affinity count.
    pub(super) by_affinity: bool,
    /// Whether only nodes whose taints the pod tolerates count.
    pub(super) by_taints: bool,
}

impl PodRequirements {
    /// Reads a pod.
    pub(super) fn of(shape: &PodShape) -> Self {
        let pod = shape.pod();
        let spec = pod.spec.as_ref();
        let affinity = spec.and_then(|s| s.affinity.as_ref());
        // Pods of a `DaemonSet` are neither placed nor moved. Each of them names its node, which is no reason to tell
        // nodes apart.
        let is_daemon = pods::is_daemon(pod);
        let mut reader = Reader { shape, problem: None };
        let required = reader.terms(affinity_terms(affinity));
        let anti_affinity = reader.terms(anti_affinity_terms(affinity));
        let spreads = spec.map(|spec| reader.spreads(spec)).unwrap_or_default();
        Self {
            request: requests::exact_of(pod).map_err(|problem| problem.to_string()),
            problem: reader.problem,
            constraints: if is_daemon { Constraints::default() } else { Constraints::of(pod) },
            preferred: affinity.filter(|_| !is_daemon).map(preferred).unwrap_or_default(),
            ports: spec.map(ports::of).unwrap_or_default(),
            affinity: required,
            anti_affinity,
            spreads,
            claims: spec.is_some_and(uses_claims),
        }
    }

    /// The values of the pod's own labels that its requirements take over. Pods that differ in other labels only have
    /// equal requirements.
    pub(super) fn own_labels(shape: &PodShape) -> Vec<Option<String>> {
        let spec = shape.pod().spec.as_ref();
        let spreads = spec.into_iter().flat_map(|spec| spec.topology_spread_constraints.iter().flatten());
        let of_spreads = spreads.flat_map(|constraint| &constraint.match_label_keys);
        let terms = spec.into_iter().flat_map(|spec| {
            let affinity = spec.affinity.as_ref();
            affinity_terms(affinity).iter().chain(anti_affinity_terms(affinity))
        });
        let of_terms = terms.flat_map(|term| [&term.match_label_keys, &term.mismatch_label_keys]).flatten();
        let keys = of_spreads.chain(of_terms).flatten();
        keys.map(|key| shape.labels().get(key).cloned()).collect()
    }

    /// The matchers of all constraints that depend on other pods.
    pub(super) fn matchers(&self) -> impl Iterator<Item = &Matcher> {
        let terms = self.affinity.iter().chain(&self.anti_affinity).map(|term| &term.pods);
        terms.chain(self.spreads.iter().map(|spread| &spread.pods))
    }
}

/// The required terms of pod affinity.
pub(super) fn affinity_terms(affinity: Option<&Affinity>) -> &[PodAffinityTerm] {
    let affinity = affinity.and_then(|a| a.pod_affinity.as_ref());
    affinity
        .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref())
        .unwrap_or_default()
}

/// The required terms of pod anti-affinity.
pub(super) fn anti_affinity_terms(affinity: Option<&Affinity>) -> &[PodAffinityTerm] {
    let anti_affinity = affinity.and_then(|a| a.pod_anti_affinity.as_ref());
    anti_affinity
        .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref())
        .unwrap_or_default()
}

/// The spread constraints that must hold.
pub(super) fn must_spread(spec: &PodSpec) -> impl Iterator<Item = &TopologySpreadConstraint> {
    let constraints = spec.topology_spread_constraints.iter().flatten();
    constraints.filter(|constraint| constraint.when_unsatisfiable == "DoNotSchedule")
}

/// Reads the selectors of one pod, and keeps the first problem.
struct Reader<'a> {
    shape: &'a PodShape,
    problem: Option<String>,
}

impl Reader<'_> {
    fn terms(&mut self, terms: &[PodAffinityTerm]) -> Vec<PodTerm> {
        let read: Vec<_> = terms.iter().map(|term| self.term(term)).collect();
        read.into_iter().filter_map(|term| self.noted(term)).collect()
    }

    fn spreads(&mut self, spec: &PodSpec) -> Vec<SpreadRule> {
        let read: Vec<_> = must_spread(spec).map(|constraint| self.spread(constraint)).collect();
        read.into_iter().filter_map(|spread| self.noted(spread)).collect()
    }

    fn noted<T>(&mut self, read: Result<T, InvalidSelector>) -> Option<T> {
        match read {
            Ok(read) => Some(read),
            Err(problem) => {
                self.problem.get_or_insert_with(|| problem.to_string());
                None
            }
        }
    }

    /// The pod's own namespace applies if a term names none, neither by name nor by selector.
    fn term(&self, term: &PodAffinityTerm) -> Result<PodTerm, InvalidSelector> {
        let mut selector = self.selector(term.label_selector.as_ref(), term.match_label_keys.as_deref())?;
        for key in term.mismatch_label_keys.iter().flatten() {
            if let Some(value) = self.label(key) {
                selector = selector.map(|s| s.without(key, value));
            }
        }
        let listed: BTreeSet<_> = term.namespaces.iter().flatten().cloned().collect();
        let namespaces = if listed.is_empty() && term.namespace_selector.is_none() {
            self.own_namespace()
        } else {
            Namespaces { listed, selector: term.namespace_selector.as_ref().map(Selector::read).transpose()? }
        };
        Ok(PodTerm { pods: Matcher { selector, namespaces }, key: term.topology_key.clone() })
    }

    fn spread(&self, constraint: &TopologySpreadConstraint) -> Result<SpreadRule, InvalidSelector> {
        let selector =
            self.selector(constraint.label_selector.as_ref(), constraint.match_label_keys.as_deref())?;
        let honours = |policy: Option<&String>, default: bool| policy.map_or(default, |p| p == "Honor");
        Ok(SpreadRule {
            pods: Matcher { selector, namespaces: self.own_namespace() },
            key: constraint.topology_key.clone(),
            max_skew: u32::try_from(constraint.max_skew).unwrap_or(0),
            min_domains: constraint.min_domains.map_or(1, |least| u32::try_from(least).unwrap_or(1)),
            by_affinity: honours(constraint.node_affinity_policy.as_ref(), true),
            by_taints: honours(constraint.node_taints_policy.as_ref(), false),
        })
    }

    /// The selector, with the pod's own values of `keys`. The API server merges them in too; doing it twice makes no
    /// difference.
    fn selector(
        &self,
        selector: Option<&LabelSelector>,
        keys: Option<&[String]>,
    ) -> Result<Option<Selector>, InvalidSelector> {
        let Some(mut selector) = selector.map(Selector::read).transpose()? else { return Ok(None) };
        for key in keys.unwrap_or_default() {
            if let Some(value) = self.label(key) {
                selector = selector.with(key, value);
            }
        }
        Ok(Some(selector))
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.shape.labels().get(key).map(String::as_str)
    }

    fn own_namespace(&self) -> Namespaces {
        let own = self.shape.namespace().to_owned();
        Namespaces { listed: BTreeSet::from([own]), selector: None }
    }
}

/// A preferred term without rules is ignored.
fn preferred(affinity: &Affinity) -> Vec<Preference> {
    let terms = affinity
        .node_affinity
        .iter()
        .flat_map(|a| a.preferred_during_scheduling_ignored_during_execution.iter().flatten());
    let terms = terms.map(|p| Preference { weight: p.weight, term: NodeTerm::of(&p.preference) });
    let mut preferred: Vec<_> = terms.filter(|preference| !preference.term.is_empty()).collect();
    preferred.sort_unstable();
    preferred
}

fn uses_claims(spec: &PodSpec) -> bool {
    spec.volumes.iter().flatten().any(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some())
}
