//! Where volumes can be used, existing ones and those that a storage class would provision, as alternatives of which a
//! node must satisfy one.

use std::cmp::Ordering;

use k8s_openapi::api::core::v1::TopologySelectorTerm;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use shared_crds::quantity::Exact;

use crate::input::claim_info::ClaimInfo;
use crate::input::volume_info::VolumeInfo;
use crate::requirements::constraints::{NodeRequirement, NodeTerm, RequirementOperator};
use crate::requirements::selectors::Selector;

/// Alternatives: one of them must match.
pub(super) type VolumeTerms = Vec<NodeTerm>;

/// The labels of a volume that hold its location, the oldest first, each with the label that replaced it.
const ZONE_LABELS: [(&str, Option<&str>); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", Some("topology.kubernetes.io/zone")),
    ("failure-domain.beta.kubernetes.io/region", Some("topology.kubernetes.io/region")),
    ("topology.kubernetes.io/zone", None),
    ("topology.kubernetes.io/region", None),
];
/// Separates the zones in a volume's zone label.
const ZONE_SEPARATOR: &str = "__";

/// The mode of volumes and claims that name none.
const DEFAULT_MODE: &str = "Filesystem";

/// Where the volume that a claim is bound to can be used: as its node affinity requires, and in the zones of its
/// labels.
pub(super) fn of_bound(volume: &VolumeInfo) -> Vec<VolumeTerms> {
    let zones = ZONE_LABELS.into_iter().filter_map(|(label, newer)| {
        let value = volume.labels.as_ref()?.get(label)?;
        Some(in_zones(label, newer, value))
    });
    volume.places.clone().into_iter().chain(zones).collect()
}

/// A node without zone and region labels matches all of them.
fn in_zones(label: &str, newer: Option<&str>, value: &str) -> VolumeTerms {
    let rule =
        |key: &str, operator, values: Vec<String>| NodeRequirement { key: key.to_owned(), operator, values };
    let zones: Vec<_> = value.split(ZONE_SEPARATOR).map(str::to_owned).collect();
    let mut unlabelled: Vec<_> = ZONE_LABELS
        .map(|(key, _)| rule(key, RequirementOperator::DoesNotExist, vec![]))
        .into_iter()
        .collect();
    unlabelled.sort_unstable();
    let mut alternatives = vec![vec![rule(label, RequirementOperator::In, zones.clone())], unlabelled];
    if let Some(newer) = newer {
        alternatives.push(vec![
            rule(label, RequirementOperator::DoesNotExist, vec![]),
            rule(newer, RequirementOperator::In, zones),
        ]);
    }
    let mut terms: Vec<_> =
        alternatives.into_iter().map(|labels| NodeTerm { labels, fields: vec![] }).collect();
    terms.sort_unstable();
    terms
}

/// Where a storage class provisions volumes; `None` is everywhere.
pub(super) fn allowed_topologies(class: &StorageClass) -> Option<VolumeTerms> {
    let terms = class.allowed_topologies.as_ref().filter(|terms| !terms.is_empty())?;
    let mut terms: Vec<_> = terms.iter().map(topology).collect();
    terms.sort_unstable();
    terms.dedup();
    Some(terms)
}

fn topology(term: &TopologySelectorTerm) -> NodeTerm {
    let rules = term.match_label_expressions.iter().flatten();
    let rules = rules.map(|rule| NodeRequirement {
        key: rule.key.clone(),
        operator: RequirementOperator::In,
        values: rule.values.clone(),
    });
    let mut labels: Vec<_> = rules.collect();
    labels.sort_unstable();
    NodeTerm { labels, fields: vec![] }
}

/// Volumes that a claim could be bound to.
pub(super) struct UnboundVolumes {
    /// Whether the claim must use the volume that is reserved for it.
    pub(super) reserved: bool,
    /// Where they can be used; `None` is everywhere.
    pub(super) places: Option<VolumeTerms>,
}

/// Those of the volumes `free` that could be bound to the claim.
pub(super) fn suitable<'f, 'a: 'f>(
    claim: &'f ClaimInfo,
    free: &'f [&'a VolumeInfo],
) -> impl Iterator<Item = &'a VolumeInfo> + use<'f, 'a> {
    free.iter().copied().filter(move |volume| is_free(claim, volume) && holds(claim, volume))
}

/// Whether one of the `reserved` volumes is for this claim.
pub(super) fn has_reserved(claim: &ClaimInfo, reserved: &[&VolumeInfo]) -> bool {
    reserved.iter().any(|volume| is_same(claim, volume) && holds(claim, volume))
}

/// The order in which the scheduler takes volumes: by size, then by name.
pub(super) fn smallest_first(a: &VolumeInfo, b: &VolumeInfo) -> Ordering {
    let size = |volume: &VolumeInfo| amount(volume.capacity.as_ref());
    size(a).cmp(&size(b)).then_with(|| a.name.cmp(&b.name))
}

fn amount(quantity: Option<&Quantity>) -> Exact {
    quantity.and_then(|quantity| Exact::parse(&quantity.0).ok()).unwrap_or(Exact::ZERO)
}

/// The volumes that could be bound to `claim`: those that are `reserved` for a claim of its name, otherwise those of
/// its class that are `free`; `None` if there are none.
pub(super) fn free_for(
    claim: &ClaimInfo,
    reserved: &[&VolumeInfo],
    free: &[&VolumeInfo],
) -> Option<UnboundVolumes> {
    if let Some(volume) = reserved.iter().find(|volume| is_same(claim, volume) && holds(claim, volume)) {
        return Some(UnboundVolumes { reserved: true, places: volume.places.clone() });
    }
    let places: Vec<_> = suitable(claim, free).map(|volume| volume.places.clone()).collect();
    if places.is_empty() {
        return None;
    }
    // One volume that can be used everywhere is enough.
    let somewhere: Option<Vec<VolumeTerms>> = places.into_iter().collect();
    Some(UnboundVolumes {
        reserved: false,
        places: somewhere.map(|places| either(places.concat(), VolumeTerms::new())),
    })
}

/// Large enough, of the right mode, and not being deleted.
fn holds(claim: &ClaimInfo, volume: &VolumeInfo) -> bool {
    let (asked, offered) = (claim.mode.as_deref(), volume.mode.as_deref());
    amount(volume.capacity.as_ref()) >= amount(claim.storage.as_ref())
        && asked.unwrap_or(DEFAULT_MODE) == offered.unwrap_or(DEFAULT_MODE)
        && !volume.is_being_deleted
}

/// A claim that was deleted and recreated is not the one that the volume was reserved for.
fn is_same(claim: &ClaimInfo, volume: &VolumeInfo) -> bool {
    volume.meant_for.as_ref().is_none_or(|meant| meant.uid.is_empty() || meant.uid == claim.uid)
}

/// The claim selects it, and no other claim uses it. Without a status (in objects that were never on an API server) it
/// is free.
fn is_free(claim: &ClaimInfo, volume: &VolumeInfo) -> bool {
    let selected = claim
        .selector
        .as_ref()
        .is_none_or(|selector| Selector::read(selector).is_ok_and(|s| s.matches(volume.labels.as_ref())));
    volume.phase.as_deref().is_none_or(|phase| phase == "Available")
        && selected
        && claim.access_modes.iter().all(|mode| volume.access_modes.contains(mode))
}

/// Where one or the other can be used.
pub(super) fn either(a: VolumeTerms, b: VolumeTerms) -> VolumeTerms {
    let mut terms = [a, b].concat();
    terms.sort_unstable();
    terms.dedup();
    terms
}
