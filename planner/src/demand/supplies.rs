//! Things of which the cluster has few, whatever the node, and for which pending pods compete: free volumes that no
//! class would make more of, and claims that only one pod may use. Without competition there is no supply, and nothing
//! to count.
//!
//! A claim that several pending pods share takes one volume for all of them, with the first that finds a place.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::storage::{Choice, Storage};
use super::volumes::{VolumeTerms, smallest_first};
use crate::index::Indexed;
use crate::input::claim_info::ClaimInfo;
use crate::input::pod_info::PodInfo;
use crate::input::volume_info::VolumeInfo;
use crate::reasons::Rejection;
use crate::requirements::pod_class::{Need, SupplyId};

/// Where the volumes of a pod can be, and what it needs of the supplies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PodVolumes {
    /// One of the terms of each must match a node.
    pub(super) places: Vec<VolumeTerms>,
    /// One unit of one of the supplies of each; those with the fewest alternatives first.
    pub(super) needs: Vec<Need>,
}

/// A supply, before its places are a constraint set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LimitedSupply {
    /// One of these must match a node; `None` is everywhere.
    pub(super) places: Option<VolumeTerms>,
    /// How many pods, or claims, it is enough for.
    pub(super) units: usize,
    /// If not empty, the pods share one unit of one of these: they use the same claim.
    pub(super) one_of: Need,
    /// What a pod is told for which none is left.
    pub(super) used_up: Rejection,
}

/// The supplies that the pending pods of a pass compete for, and those whose nomination is believed.
#[derive(Debug, Default)]
pub(super) struct Supplies<'a> {
    pub(super) all: Indexed<SupplyId, LimitedSupply>,
    /// The supply of a claim that only one pod may use, by namespace and name.
    exclusive: HashMap<(&'a str, &'a str), SupplyId>,
    /// What claims without a volume need, by namespace and name.
    unbound: HashMap<(String, String), Need>,
}

/// Claims without a volume that could use the same volumes.
struct Wish<'a> {
    claims: BTreeSet<(String, String)>,
    example: ClaimInfo,
    choice: Choice<'a>,
}

impl<'a> Supplies<'a> {
    /// Finds out what `pending` pods compete for; those whose nomination is believed are among them.
    pub(super) fn of<'p>(storage: &Storage<'a>, pending: impl Iterator<Item = &'p PodInfo>) -> Self {
        let mut supplies = Self::default();
        if !storage.can_run_short() {
            return supplies;
        }
        let mut exclusive: BTreeMap<(&'a str, &'a str), usize> = BTreeMap::new();
        let mut unbound: BTreeMap<(String, String), (ClaimInfo, usize)> = BTreeMap::new();
        for pod in pending {
            let claims: BTreeSet<_> = storage.exclusive(pod).map(ClaimInfo::key).collect();
            for claim in claims {
                *exclusive.entry(claim).or_default() += 1;
            }
            for claim in storage.without_volume(pod) {
                let key = (claim.namespace.to_string(), claim.name.to_string());
                unbound.entry(key).or_insert((claim, 0)).1 += 1;
            }
        }
        for (claim, _) in exclusive.into_iter().filter(|(_, users)| *users > 1) {
            let used_up = Rejection::ClaimInUse(claim.1.to_owned());
            let supply =
                supplies.all.push(LimitedSupply { places: None, units: 1, one_of: Need::new(), used_up });
            supplies.exclusive.insert(claim, supply);
        }
        let shared = unbound.iter().filter(|(_, (_, users))| *users > 1);
        let shared: BTreeSet<(String, String)> = shared.map(|(key, _)| key.clone()).collect();
        let wishes = wishes(storage, unbound.into_iter().map(|(key, (claim, _))| (key, claim)));
        supplies.share_out(&wishes, &shared);
        supplies
    }

    /// Makes supplies of the volumes that more than one claim could use. Volumes that the same claims can use in the
    /// same places are one supply. Those of small volumes come first: kube-scheduler takes the smallest that a claim can use at a node,
    /// and leaves large ones to claims that need them. `shared` are the claims that several pods use.
    fn share_out(&mut self, wishes: &[Wish<'a>], shared: &BTreeSet<(String, String)>) {
        let mut wished_by: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, wish) in wishes.iter().enumerate() {
            wish.choice.volumes.iter().for_each(|volume| wished_by.entry(&volume.name).or_default().push(at));
        }
        let by = |volume: &VolumeInfo| wished_by.get(&*volume.name).map_or(&[][..], Vec::as_slice);
        let claims =
            |volume: &VolumeInfo| -> usize { by(volume).iter().map(|&at| wishes[at].claims.len()).sum() };
        let is_contested = |wish: &&Wish<'a>| wish.choice.volumes.iter().any(|volume| claims(volume) > 1);
        let contested: Vec<&Wish<'a>> = wishes.iter().filter(is_contested).collect();

        let mut volumes: Vec<&'a VolumeInfo> =
            contested.iter().flat_map(|wish| wish.choice.volumes.iter().copied()).collect();
        volumes.sort_by(|a, b| smallest_first(a, b));
        volumes.dedup_by(|a, b| a.name == b.name);
        let mut known: BTreeMap<(&Option<VolumeTerms>, &[usize]), SupplyId> = BTreeMap::new();
        let mut supply_of: BTreeMap<&str, SupplyId> = BTreeMap::new();
        for volume in volumes {
            let supply = *known.entry((&volume.places, by(volume))).or_insert_with(|| {
                let used_up = Rejection::VolumesUsedUp(volume.class.to_string());
                let (places, one_of) = (volume.places.clone(), Need::new());
                self.all.push(LimitedSupply { places, units: 0, one_of, used_up })
            });
            self.all[supply].units += 1;
            supply_of.insert(&volume.name, supply);
        }

        for wish in contested {
            let mut need: Need =
                wish.choice.volumes.iter().filter_map(|v| supply_of.get(&*v.name).copied()).collect();
            need.sort_unstable();
            need.dedup();
            if let Some(made) = &wish.choice.made {
                let used_up = Rejection::VolumesUsedUp(wish.choice.class.to_owned());
                need.push(self.all.push(LimitedSupply {
                    places: Some(made.clone()),
                    units: usize::MAX,
                    one_of: Need::new(),
                    used_up,
                }));
            }
            for claim in &wish.claims {
                let mut need = need.clone();
                if shared.contains(claim) {
                    let used_up = Rejection::VolumesUsedUp(wish.choice.class.to_owned());
                    need =
                        vec![self.all.push(LimitedSupply { places: None, units: 0, one_of: need, used_up })];
                }
                self.unbound.insert(claim.clone(), need);
            }
        }
    }

    /// What a pending pod needs.
    pub(super) fn needs(&self, storage: &Storage<'a>, pod: &PodInfo) -> Vec<Need> {
        if self.all.is_empty() {
            return Vec::new();
        }
        let exclusive = storage.exclusive(pod).filter_map(|claim| self.exclusive.get(&claim.key()).copied());
        let exclusive: BTreeSet<SupplyId> = exclusive.collect();
        let mut needs: Vec<Need> = exclusive.into_iter().map(|supply| vec![supply]).collect();
        for claim in storage.without_volume(pod) {
            let key = (claim.namespace.to_string(), claim.name.to_string());
            needs.extend(self.unbound.get(&key).cloned());
        }
        let alternatives =
            |need: &Need| -> usize { need.iter().map(|&supply| self.all[supply].one_of.len().max(1)).sum() };
        needs.sort_by(|a, b| (alternatives(a), a).cmp(&(alternatives(b), b)));
        needs
    }
}

/// Claims that ask for the same are one wish, so that volumes are compared once for all pods of a `StatefulSet`.
fn wishes<'a>(
    storage: &Storage<'a>,
    claims: impl Iterator<Item = ((String, String), ClaimInfo)>,
) -> Vec<Wish<'a>> {
    let mut wishes: Vec<Wish<'a>> = Vec::new();
    for (key, claim) in claims {
        if storage.has_reserved(&claim) {
            continue;
        }
        if let Some(wish) = wishes.iter_mut().find(|wish| asks_the_same(&wish.example, &claim)) {
            wish.claims.insert(key);
        } else if let Some(choice) = storage.choice(&claim) {
            wishes.push(Wish { claims: BTreeSet::from([key]), example: claim, choice });
        }
    }
    wishes
}

fn asks_the_same(a: &ClaimInfo, b: &ClaimInfo) -> bool {
    a.class == b.class
        && a.storage == b.storage
        && a.mode == b.mode
        && a.access_modes == b.access_modes
        && a.selector == b.selector
}
