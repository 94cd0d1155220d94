//! What was read of pods in earlier passes. A pod that has not changed is the same object in the next pass, and is not
//! read again.
//!
//! Only saves time: results are the same with a [`RequirementsCache`] of earlier passes and with an empty one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::demand::interner::PodInterner;
use crate::demand::pod_requirements::PodRequirements;
use crate::input::pod_info::{PodShape, ShapeId};
use crate::input::pods;

/// The readings of the shapes of the last pass.
#[derive(Debug, Default)]
pub struct RequirementsCache {
    /// Holding the shape keeps its id from being given to another.
    shapes: HashMap<ShapeId, Remembered>,
    /// Every reading once.
    all_requirements: HashSet<Arc<PodRequirements>>,
    /// Shapes read in this pass, for others that look like them.
    interner: PodInterner,
    pass: u64,
}

#[derive(Debug)]
struct Remembered {
    /// Held, never read.
    _shape: PodShape,
    requirements: Arc<PodRequirements>,
    /// The last pass that asked for it.
    pass: u64,
}

impl RequirementsCache {
    /// What pods of the shape say. Equal readings are one object.
    pub(super) fn requirements(&mut self, shape: &PodShape) -> Arc<PodRequirements> {
        if let Some(remembered) = self.shapes.get_mut(&shape.id()) {
            remembered.pass = self.pass;
            return Arc::clone(&remembered.requirements);
        }
        let requirements = if pods::is_daemon(shape.pod()) {
            // PodInterner are not asked who made them, and less is read of what a daemon's pod says.
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

    /// Forgets what this pass did not ask for.
    pub(super) fn end_pass(&mut self) {
        let pass = self.pass;
        self.interner = PodInterner::default();
        self.shapes.retain(|_, remembered| remembered.pass == pass);
        self.all_requirements.retain(|requirements| Arc::strong_count(requirements) > 1);
        self.pass += 1;
    }

    /// How many shapes are remembered.
    pub fn len(&self) -> usize {
        self.shapes.len()
    }

    /// Whether no shape is remembered.
    pub fn is_empty(&self) -> bool {
        self.shapes.is_empty()
    }
}
