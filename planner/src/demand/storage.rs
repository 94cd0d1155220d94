//! Where a pod's `PersistentVolumeClaim`s let it run: every claim is either a set of alternatives of which a node must
//! satisfy one, or a reason why no node can take the pod for now.
//!
//! Each claim is checked on its own; [`super::supplies`] counts the volumes that several claims could use. The storage
//! that a place has left is not considered.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaimSpec;
use k8s_openapi::api::storage::v1::StorageClass;

use super::volumes::{self, VolumeTerms};
use crate::input::claim_info::{ClaimInfo, DEFAULT_CLASS};
use crate::input::observed::{PassInput, PassNodes, key};
use crate::input::pod_info::PodInfo;
use crate::input::volume_info::VolumeInfo;
use crate::reasons::Rejection;
use crate::requirements::constraints::{NAME_FIELD, NodeRequirement, NodeTerm, RequirementOperator};
use crate::steps;

/// The provisioner of storage classes without dynamic provisioning.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// The access mode of volumes that only one pod may use.
const ONE_POD: &str = "ReadWriteOncePod";

/// The claims, volumes and storage classes of a pass.
pub(super) struct Storage<'a> {
    claims: HashMap<(&'a str, &'a str), &'a ClaimInfo>,
    volumes: BTreeMap<&'a str, &'a VolumeInfo>,
    classes: BTreeMap<&'a str, &'a StorageClass>,
    default_class: Option<&'a StorageClass>,
    /// Volumes without a claim, by storage class and sorted by name.
    free: HashMap<&'a str, Vec<&'a VolumeInfo>>,
    /// Volumes that are reserved for a claim.
    reserved: HashMap<(&'a str, &'a str), Vec<&'a VolumeInfo>>,
    /// The nodes that the scheduler has chosen for claims, as far as they exist.
    chosen: HashSet<&'a str>,
}

/// The existing volumes of which a claim needs one.
pub(super) struct Choice<'a> {
    /// The name of their storage class.
    pub(super) class: &'a str,
    /// The smallest first, which the scheduler takes first, then by name.
    pub(super) volumes: Vec<&'a VolumeInfo>,
    /// Where the class would make one instead, if it does.
    pub(super) made: Option<VolumeTerms>,
}

impl<'a> Storage<'a> {
    pub(super) fn of(pass: PassInput<'a>) -> Self {
        let PassInput { observed, nodes, pods: _ } = pass;
        let classes: BTreeMap<_, _> = by_name(&observed.storage_classes, |class| key(&class.metadata).1);
        let volumes = by_name(&observed.volumes, |volume| &volume.name);
        let mut free: HashMap<_, Vec<_>> = HashMap::new();
        let mut reserved: HashMap<_, Vec<_>> = HashMap::new();
        for &volume in volumes.values() {
            match &volume.meant_for {
                Some(claim) => reserved.entry(claim.key()).or_default().push(volume),
                None => free.entry(&*volume.class).or_default().push(volume),
            }
        }
        Self {
            claims: observed.claims.iter().map(|claim| (claim.key(), claim.as_ref())).collect(),
            volumes,
            default_class: default_class(&classes),
            classes,
            free,
            reserved,
            chosen: chosen(&observed.claims, nodes),
        }
    }

    /// Where the volumes of a pod can be used, sorted: one of the terms of each must match a node.
    ///
    /// # Errors
    ///
    /// The first claim that no node can help.
    pub(super) fn places(&self, pod: &PodInfo) -> Result<Vec<VolumeTerms>, Rejection> {
        let namespace = pod.key().0;
        let mut places = Vec::new();
        for wanted in wanted(pod) {
            places.extend(self.claim(namespace, &wanted.name, wanted.template)?);
        }
        places.sort_unstable();
        places.dedup();
        Ok(places)
    }

    /// Like [`Self::places`], for a pod that does not have a node yet.
    ///
    /// # Errors
    ///
    /// Also for a claim that only one pod may use, if it is among those that are `taken`.
    pub(super) fn places_unless_taken(
        &self,
        pod: &PodInfo,
        taken: &HashSet<(&str, &str)>,
    ) -> Result<Vec<VolumeTerms>, Rejection> {
        let places = self.places(pod)?;
        match self.exclusive(pod).find(|claim| taken.contains(&claim.key())) {
            Some(claim) => Err(Rejection::ClaimInUse(claim.name.to_string())),
            None => Ok(places),
        }
    }

    /// The node that the scheduler has chosen for a claim of the pod whose volume is yet to be made: until then, the pod can run on
    /// no other.
    pub(super) fn chosen_node(&self, pod: &PodInfo) -> Option<&'a str> {
        let namespace = pod.key().0;
        let mut claims = wanted(pod).filter_map(|w| self.claims.get(&(namespace, w.name.as_str())).copied());
        claims.find_map(|claim| self.chosen_for(claim))
    }

    /// The node that the scheduler has chosen for a claim whose volume is yet to be made. One that has gone binds no pod: what makes
    /// the volume takes the annotation away when it does not find the node (`rescheduleProvisioning` of kube-controller-manager and
    /// of the CSI drivers' provisioner), and then the pod needs another one.
    fn chosen_for<'c>(&self, claim: &'c ClaimInfo) -> Option<&'c str> {
        claim.node.as_deref().filter(|node| claim.volume.is_none() && self.chosen.contains(node))
    }

    /// The claims that only one pod may use and that one of `pods` uses.
    pub(super) fn taken<'p>(
        &self,
        pods: impl Iterator<Item = &'p Arc<PodInfo>>,
    ) -> HashSet<(&'a str, &'a str)> {
        if !self.claims.values().any(|claim| is_exclusive(claim)) {
            return HashSet::new();
        }
        pods.flat_map(|pod| self.exclusive(pod)).map(ClaimInfo::key).collect()
    }

    /// Whether there is anything that pods could compete for.
    pub(super) fn can_run_short(&self) -> bool {
        !self.free.is_empty() || self.claims.values().any(|claim| is_exclusive(claim))
    }

    /// The claims of a pod that have no volume and wait for the pod, also those that are yet to be created.
    pub(super) fn without_volume(&self, pod: &PodInfo) -> Vec<ClaimInfo> {
        let namespace = pod.key().0;
        let claim = |wanted: Wanted<'_>| match self.claims.get(&(namespace, wanted.name.as_str())) {
            Some(claim) => {
                let is_open = claim.volume.is_none() && self.chosen_for(claim).is_none();
                is_open.then(|| ClaimInfo::clone(claim))
            }
            None => wanted.template.map(|template| ClaimInfo::to_come(namespace, &wanted.name, template)),
        };
        let mut claims: Vec<_> = wanted(pod).filter_map(claim).collect();
        claims.sort_by(|a, b| a.key().cmp(&b.key()));
        claims.dedup_by(|a, b| a.key() == b.key());
        claims
    }

    /// Whether a volume is reserved for the claim.
    pub(super) fn has_reserved(&self, claim: &ClaimInfo) -> bool {
        volumes::has_reserved(claim, self.reserved.get(&claim.key()).map_or(&[][..], Vec::as_slice))
    }

    /// The existing volumes that a claim without a volume depends on; `None` if it depends on none: its class makes
    /// volumes everywhere, or there is none.
    pub(super) fn choice(&self, claim: &ClaimInfo) -> Option<Choice<'a>> {
        let class = self.class_of(claim).ok()?;
        let made = if makes_volumes(class) { Some(volumes::allowed_topologies(class)?) } else { None };
        let class = key(&class.metadata).1;
        let mut volumes: Vec<_> = volumes::suitable(claim, self.free.get(class)?).collect();
        volumes.sort_by(|a, b| volumes::smallest_first(a, b));
        (!volumes.is_empty()).then_some(Choice { class, volumes, made })
    }

    pub(super) fn exclusive<'p>(
        &self,
        pod: &'p PodInfo,
    ) -> impl Iterator<Item = &'a ClaimInfo> + use<'_, 'a, 'p> {
        let namespace = pod.key().0;
        let claims = wanted(pod).filter_map(move |w| self.claims.get(&(namespace, w.name.as_str())).copied());
        claims.filter(|claim| is_exclusive(claim))
    }

    fn claim(
        &self,
        namespace: &str,
        name: &str,
        template: Option<&PersistentVolumeClaimSpec>,
    ) -> Result<Vec<VolumeTerms>, Rejection> {
        let Some(&claim) = self.claims.get(&(namespace, name)) else {
            // The claim of an ephemeral volume is created shortly after the pod, from the template.
            let template = template.ok_or_else(|| Rejection::ClaimNotFound(name.to_owned()))?;
            return self.unbound(&ClaimInfo::to_come(namespace, name, template));
        };
        let phase = claim.phase.as_deref();
        if phase == Some("Lost") {
            return Err(Rejection::ClaimLost(name.to_owned()));
        }
        if claim.is_being_deleted {
            return Err(Rejection::ClaimBeingDeleted(name.to_owned()));
        }
        let Some(volume) = claim.volume.as_deref() else { return self.unbound(claim) };
        // Without a status (in objects that were never on an API server) only the volume's name tells whether the claim
        // is bound.
        if phase.is_some_and(|phase| phase != "Bound") && !claim.is_bound {
            return Err(Rejection::UnboundImmediateClaim(name.to_string()));
        }
        let volume = self.volumes.get(volume).ok_or_else(|| Rejection::VolumeNotFound(volume.to_owned()))?;
        Ok(volumes::of_bound(volume))
    }

    /// The storage class of a claim that has no volume yet, which must wait for the first consumer.
    fn class_of(&self, claim: &ClaimInfo) -> Result<&'a StorageClass, Rejection> {
        let class = match claim.class.as_deref() {
            None => self.default_class,
            Some("") => None,
            Some(asked) => {
                let class = self.classes.get(asked).copied();
                Some(class.ok_or_else(|| Rejection::StorageClassNotFound(asked.to_owned()))?)
            }
        };
        let waiting = |c: &&StorageClass| c.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
        class.filter(waiting).ok_or_else(|| Rejection::UnboundImmediateClaim(claim.name.to_string()))
    }

    /// A claim that has no volume yet: its storage class must wait for the first consumer, and have volumes or
    /// provision them.
    fn unbound(&self, claim: &ClaimInfo) -> Result<Vec<VolumeTerms>, Rejection> {
        let name = &claim.name;
        let class = self.class_of(claim)?;
        let made = makes_volumes(class);
        let topologies = volumes::allowed_topologies(class);
        if let Some(node) = self.chosen_for(claim) {
            return Ok(topologies.into_iter().chain([only_on(node)]).collect());
        }
        let class = key(&class.metadata).1;
        let reserved = self.reserved.get(&claim.key()).map_or(&[][..], Vec::as_slice);
        let free = self.free.get(class).map_or(&[][..], Vec::as_slice);
        let free = volumes::free_for(claim, reserved, free);
        match (free, made) {
            (Some(free), _) if free.reserved => Ok(free.places.into_iter().collect()),
            // Existing volumes can be used where they are, and more are provisioned where the class allows.
            (Some(free), true) => Ok(topologies
                .and_then(|made| free.places.map(|there| volumes::either(made, there)))
                .into_iter()
                .collect()),
            (Some(free), false) => Ok(free.places.into_iter().collect()),
            (None, true) => Ok(topologies.into_iter().collect()),
            (None, false) => Err(Rejection::NoVolumeAvailable(name.to_string())),
        }
    }
}

/// Whether volumes of the class are made as they are needed.
fn makes_volumes(class: &StorageClass) -> bool {
    class.provisioner != NO_PROVISIONER && !class.provisioner.is_empty()
}

fn is_exclusive(claim: &ClaimInfo) -> bool {
    claim.access_modes.iter().any(|mode| **mode == *ONE_POD)
}

/// A claim that a pod names, or that is created for it.
struct Wanted<'p> {
    name: String,
    template: Option<&'p PersistentVolumeClaimSpec>,
}

fn wanted(pod: &PodInfo) -> impl Iterator<Item = Wanted<'_>> {
    let volumes = pod.spec().into_iter().flat_map(|s| s.volumes.iter().flatten());
    let mut claims = pod.claims();
    volumes.filter_map(move |volume| {
        if volume.persistent_volume_claim.is_some() {
            return Some(Wanted { name: claims.next()?.to_owned(), template: None });
        }
        let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
        let name = format!("{}-{}", pod.key().1, volume.name);
        Some(Wanted { name, template: Some(&template.spec) })
    })
}

/// The nodes among `all_nodes` that the scheduler has chosen for claims without a volume.
fn chosen<'a>(claims: &'a [Arc<ClaimInfo>], all_nodes: &'a PassNodes) -> HashSet<&'a str> {
    let unbound = claims.iter().filter(|claim| claim.volume.is_none());
    let named: HashSet<&str> = unbound.filter_map(|claim| claim.node.as_deref()).collect();
    if named.is_empty() {
        return named;
    }
    steps::count(all_nodes.len());
    all_nodes.iter().map(|node| key(&node.metadata).1).filter(|name| named.contains(name)).collect()
}

fn by_name<'a, K>(objects: &'a [Arc<K>], name: impl Fn(&'a K) -> &'a str) -> BTreeMap<&'a str, &'a K> {
    objects.iter().map(|object| (name(object), object.as_ref())).collect()
}

/// The youngest of the classes that are marked as default, as in the API server; of equal ones the first by name.
fn default_class<'a>(classes: &BTreeMap<&'a str, &'a StorageClass>) -> Option<&'a StorageClass> {
    let is_marked = |class: &&&StorageClass| {
        let annotations = class.metadata.annotations.as_ref();
        let says = |name| annotations.and_then(|a| a.get(name)).is_some_and(|value| value == "true");
        DEFAULT_CLASS.into_iter().any(says)
    };
    let marked = classes.values().filter(is_marked);
    marked.copied().reduce(|best, other| {
        let age = |c: &StorageClass| c.metadata.creation_timestamp.as_ref().map(|t| t.0);
        if age(other) > age(best) { other } else { best }
    })
}

fn only_on(node: &str) -> VolumeTerms {
    let rule = NodeRequirement {
        key: NAME_FIELD.to_owned(),
        operator: RequirementOperator::In,
        values: vec![node.to_owned()],
    };
    vec![NodeTerm { labels: vec![], fields: vec![rule] }]
}
