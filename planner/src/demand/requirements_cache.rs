//! A cache of the requirements of pods from earlier passes. A pod that has not changed is the same object in the next
//! pass, and is not read again.
//!
//! It only saves time: results are the same with a [`RequirementsCache`] of earlier passes and with an empty one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::demand::interner::PodInterner;
use crate::demand::pod_requirements::PodRequirements;
use crate::input::pod_info::{PodShape, ShapeId};
use crate::input::pods;

/// The requirements of the pod shapes of the last pass.
#[derive(Debug, Default)]
pub struct RequirementsCache {
    /// By shape id. The entry keeps the shape alive, so its id is not reused.
    shapes: HashMap<ShapeId, Remembered>,
    /// All requirements, without duplicates.
    all_requirements: HashSet<Arc<PodRequirements>>,
    /// Shapes read in this pass, to find equal shapes.
    interner: PodInterner,
    pass: u64,
}

#[derive(Debug)]
struct Remembered {
    /// Only kept alive, never read.
    _shape: PodShape,
    requirements: Arc<PodRequirements>,
    /// The last pass that used it.
    pass: u64,
}

impl RequirementsCache {
    /// The requirements of pods with this shape. Equal requirements are one object.
    pub(super) fn requirements(&mut self, shape: &PodShape) -> Arc<PodRequirements> {
        if let Some(remembered) = self.shapes.get_mut(&shape.id()) {
            remembered.pass = self.pass;
            return Arc::clone(&remembered.requirements);
        }
        let requirements = if pods::is_daemon(shape.pod()) {
            // The interner does not compare the owners of pods, and less is read of a daemon's pod.
            self.only(PodRequirements::of(shape))
        } else if let Some(requirements) = self.interner.find(shape) {
            requirements
        } else {
            let requirements = self.only(PodRequirements::of(shape));
            self.interner.remember(shape, &requirements);
            requirements
        };
        let remembered =
            Remembered { _shape: shape.clone(), requirements: Arc::clone(&requirements), pass: self.pass };
        self.shapes.insert(shape.id(), remembered);
        requirements
    }

    fn only(&mut self, requirements: PodRequirements) -> Arc<PodRequirements> {
        if let Some(known) = self.all_requirements.get(&requirements) {
            return Arc::clone(known);
        }
        let requirements = Arc::new(requirements);
        self.all_requirements.insert(Arc::clone(&requirements));
        requirements
    }

    /// Drops the entries that this pass did not use.
    pub(super) fn end_pass(&mut self) {
        let pass = self.pass;
        self.interner = PodInterner::default();
        self.shapes.retain(|_, remembered| remembered.pass == pass);
        self.all_requirements.retain(|requirements| Arc::strong_count(requirements) > 1);
        self.pass += 1;
    }

    /// The number of cached shapes.
    pub fn len(&self) -> usize {
        self.shapes.len()
    }

    /// Whether no shape is cached.
    pub fn is_empty(&self) -> bool {
        self.shapes.is_empty()
    }
}
