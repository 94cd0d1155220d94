//! The entrance of a pass: equal pods get one id. What comes later is found out once for each id, not for each pod.
//!
//! Two pods are equal if they have one shape, volumes in the same places, and are both being deleted or both not. One
//! shape means one object: the cache gives it to all pods that agree in everything but what is a pod's own
//! ([`PodShapes`](crate::input::pod_info::PodShapes)). A pod that has not been through a cache is equal to no other,
//! which costs time and changes no result.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;

use super::numbered::Numbered;
use super::supplies::PodVolumes;
use crate::demand::pod_requirements::PodRequirements;
use crate::index::{Indexed, index_type};
use crate::input::addresses::ByAddress;
use crate::input::pod_info::{PodInfo, PodShape, ShapeId};

/// Index of an [`InternedPod`] in [`InternedPods`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct InternedPodId(usize);
index_type!(InternedPodId);

/// Index of [`PodRequirements`] in [`InternedPods`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RequirementsId(usize);
index_type!(RequirementsId);

/// Index of [`PodVolumes`] in [`InternedPods`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PlacesId(usize);
index_type!(PlacesId);

/// The shapes of the last pass, with what was read from each. A pod that has not changed has the same shape in the next
/// pass, and is not read again. The pods of `DaemonSet`s are made anew in each pass, and read again.
///
/// It only saves time: results are the same with a [`PodInterner`] of earlier passes and with an empty one.
#[derive(Debug, Default)]
pub(crate) struct PodInterner {
    shapes: ByAddress<ShapeId, InternedShape>,
    /// The requirements of all shapes, without duplicates: equal ones are one object.
    all_requirements: HashSet<Arc<PodRequirements>>,
    /// Whether a pass has begun and not ended.
    in_pass: bool,
}

#[derive(Debug)]
struct InternedShape {
    /// Only kept alive, never read: while it is there, no other shape has its id.
    _shape: PodShape,
    requirements: Arc<PodRequirements>,
    used: Used,
}

/// What the current pass uses a shape for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Used {
    Not,
    /// For pods that are left out, or that do not have the id below.
    Read,
    /// The id of those pods that can be anywhere and stay, which almost all pods do. In four bytes, because there may be
    /// as many shapes as pods.
    As(u32),
}

/// Pods that are all equal.
#[derive(Debug)]
pub(super) struct InternedPod<'p> {
    pub(super) shape: &'p PodShape,
    /// Their requirements.
    pub(super) requirements: RequirementsId,
    /// The places of their volumes.
    pub(super) places: PlacesId,
    /// Whether they are being deleted.
    pub(super) leaving: bool,
}

/// The different pods of a pass.
#[derive(Debug, Default)]
pub(super) struct InternedPods<'p> {
    /// In order of first use.
    pub(super) all: Indexed<InternedPodId, InternedPod<'p>>,
    /// The different requirements, in order of first use.
    pub(super) all_requirements: Indexed<RequirementsId, Arc<PodRequirements>>,
    /// The different places and needs of volumes.
    pub(super) places: Indexed<PlacesId, PodVolumes>,
}

impl PodInterner {
    /// Begins a pass.
    pub(super) fn pass<'p>(&mut self) -> Interning<'_, 'p> {
        // The ids of a pass that did not end are still there: it panicked.
        if mem::replace(&mut self.in_pass, true) {
            *self = Self { in_pass: true, ..Self::default() };
        }
        let mut places = Numbered::default();
        places.number(ANYWHERE);
        Interning {
            interner: self,
            read: HashMap::new(),
            requirements: HashMap::new(),
            places,
            others: HashMap::new(),
            found: InternedPods::default(),
        }
    }

    /// The number of shapes.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shapes.len()
    }
}

/// The places of pods without volumes.
const ANYWHERE: PodVolumes = PodVolumes { places: Vec::new(), needs: Vec::new() };

/// What the requirements of a pod depend on: its shape without labels, and values of labels.
type Origin = (usize, Vec<Option<String>>);

/// A pass, while its pods are interned.
pub(super) struct Interning<'i, 'p> {
    interner: &'i mut PodInterner,
    /// Requirements that were read in this pass. Pods of a `StatefulSet` have a shape each and differ in their labels
    /// only.
    read: HashMap<Origin, Arc<PodRequirements>>,
    /// The index of requirements, by their address.
    requirements: HashMap<usize, RequirementsId>,
    places: Numbered<PlacesId, PodVolumes>,
    /// Ids of pods that have volumes in certain places, or are being deleted.
    others: HashMap<(ShapeId, PlacesId, bool), InternedPodId>,
    found: InternedPods<'p>,
}

impl<'p> Interning<'_, 'p> {
    /// The id of a pod. `places` returns where the volumes of a pod with these requirements can be; `None` leaves it out
    /// of the pass.
    pub(super) fn id(
        &mut self,
        pod: &'p PodInfo,
        places: impl FnOnce(&PodRequirements) -> Option<PodVolumes>,
    ) -> Option<InternedPodId> {
        let shape = pod.shape();
        let PodInterner { shapes, all_requirements, in_pass: _ } = &mut *self.interner;
        let interned = shapes.entry(shape.id()).or_insert_with(|| InternedShape {
            _shape: shape.clone(),
            requirements: requirements(shape, &mut self.read, all_requirements),
            used: Used::Not,
        });
        if interned.used == Used::Not {
            interned.used = Used::Read;
        }
        let places = places(&interned.requirements)?;
        let leaving = pod.deleted().is_some();
        let is_usual = places == ANYWHERE && !leaving;
        if let (Used::As(id), true) = (interned.used, is_usual) {
            return Some(InternedPodId(id as usize));
        }
        let places = self.places.number(places);
        let next = self.found.all.next();
        if is_usual {
            interned.used = u32::try_from(next.0).map_or(Used::Read, Used::As);
        } else if let Some(&id) = self.others.get(&(shape.id(), places, leaving)) {
            return Some(id);
        } else {
            self.others.insert((shape.id(), places, leaving), next);
        }
        let all_requirements = &mut self.found.all_requirements;
        let address = Arc::as_ptr(&interned.requirements).addr();
        let requirements = *self
            .requirements
            .entry(address)
            .or_insert_with(|| all_requirements.push(Arc::clone(&interned.requirements)));
        self.found.all.push(InternedPod { shape, requirements, places, leaving });
        Some(next)
    }

    /// Ends the pass: shapes that it did not use are dropped.
    pub(super) fn end(self) -> InternedPods<'p> {
        let Self { interner, read, places, found, .. } = self;
        drop(read);
        interner.shapes.retain(|_, shape| mem::replace(&mut shape.used, Used::Not) != Used::Not);
        interner.all_requirements.retain(|requirements| Arc::strong_count(requirements) > 1);
        interner.in_pass = false;
        InternedPods { places: places.all, ..found }
    }
}

/// The requirements of pods with a new shape.
fn requirements(
    shape: &PodShape,
    read: &mut HashMap<Origin, Arc<PodRequirements>>,
    all_requirements: &mut HashSet<Arc<PodRequirements>>,
) -> Arc<PodRequirements> {
    let origin = (shape.id().without_labels(), PodRequirements::own_labels(shape));
    let requirements = read.entry(origin).or_insert_with(|| {
        let requirements = PodRequirements::of(shape);
        if let Some(known) = all_requirements.get(&requirements) {
            return Arc::clone(known);
        }
        let requirements = Arc::new(requirements);
        all_requirements.insert(Arc::clone(&requirements));
        requirements
    });
    Arc::clone(requirements)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::merged;
    use crate::input::transform;
    use crate::requirements::constraints::NodeTerm;

    fn pods<const N: usize>(changes: [Value; N]) -> [PodInfo; N] {
        let base = json!({ "metadata": { "namespace": "x" }, "spec": { "containers": [] } });
        let mut keep = transform::pods();
        changes.map(|change| keep(serde_json::from_value(merged(base.clone(), change)).unwrap()))
    }

    fn ids<'p>(interning: &mut Interning<'_, 'p>, pods: &'p [PodInfo]) -> Vec<usize> {
        pods.iter().map(|pod| interning.id(pod, |_| Some(ANYWHERE)).unwrap().0).collect()
    }

    #[test]
    fn equal_pods_have_one_id() {
        let labelled = |value: &str| json!({ "metadata": { "labels": { "a": value } } });
        let going = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        let pods =
            pods([json!({ "metadata": { "name": "p" } }), going, json!({}), labelled("1"), labelled("2")]);
        let mut interner = PodInterner::default();
        let mut interning = interner.pass();
        assert_eq!(ids(&mut interning, &pods), [0, 1, 0, 2, 3]);
        assert_eq!(interning.id(&pods[1], |_| Some(ANYWHERE)), Some(InternedPodId(1)));
        let somewhere = PodVolumes { places: vec![vec![NodeTerm::default()]], needs: vec![] };
        for id in [4, 4] {
            assert_eq!(
                interning.id(&pods[0], |_| Some(somewhere.clone())),
                Some(InternedPodId(id)),
                "its volumes are elsewhere"
            );
        }
        assert_eq!(interning.id(&pods[0], |_| None), None);
        let InternedPods { all, all_requirements, places } = interning.end();
        assert_eq!((all.len(), all_requirements.len()), (5, 1));
        let first = &all[InternedPodId(0)];
        assert_eq!((&places[first.places], &places[all[InternedPodId(4)].places]), (&ANYWHERE, &somewhere));
        assert_eq!([first.leaving, all[InternedPodId(1)].leaving], [false, true]);
        assert_eq!(interner.len(), 3);
    }

    #[test]
    fn labels_are_a_reason_to_read_a_shape_only_where_requirements_take_them_over() {
        let of = |keys: Value, label: &str| {
            let spread = json!({ "labelSelector": {}, "topologyKey": "zone", "maxSkew": 1, "matchLabelKeys": keys,
                "whenUnsatisfiable": "DoNotSchedule" });
            json!({ "metadata": { "labels": { "a": label } }, "spec": { "topologySpreadConstraints": [spread] } })
        };
        for (keys, different) in [(json!(["a"]), 2), (json!(["b"]), 1), (json!([]), 1)] {
            let pods = pods(["1", "2"].map(|label| of(keys.clone(), label)));
            let mut interner = PodInterner::default();
            let mut interning = interner.pass();
            assert_eq!(ids(&mut interning, &pods), [0, 1]);
            assert_eq!(interning.read.len(), different, "{keys}");
            assert_eq!(interning.end().all_requirements.len(), different, "{keys}");
        }
    }

    #[test]
    fn a_pass_that_does_not_end_leaves_no_ids_behind() {
        let pods = pods(["1", "2"].map(|label| json!({ "metadata": { "labels": { "a": label } } })));
        let mut interner = PodInterner::default();
        ids(&mut interner.pass(), &pods);
        let mut interning = interner.pass();
        assert_eq!(ids(&mut interning, &pods[1..]), [0]);
        assert_eq!(interning.end().all.len(), 1);
    }

    #[test]
    fn what_was_read_is_kept_for_the_next_pass_and_no_longer() {
        let pods = pods(["1", "2"].map(|label| json!({ "metadata": { "labels": { "a": label } } })));
        let mut interner = PodInterner::default();
        let mut interning = interner.pass();
        ids(&mut interning, &pods);
        interning.end();
        for (present, kept) in [(&pods[..], 2), (&pods[1..], 1), (&[], 0)] {
            let mut interning = interner.pass();
            ids(&mut interning, present);
            assert!(interning.read.is_empty());
            interning.end();
            assert_eq!(interner.len(), kept);
        }
    }
}
