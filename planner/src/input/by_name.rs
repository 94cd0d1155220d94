//! The objects of a pass, sorted by name. A pass begins with this, so that the order in which the caches list them
//! makes no difference.
//!
//! Most objects are the same from pass to pass: they keep the order they had, and only new ones are compared. On a
//! large cluster with hardly any changes, sorting all of them again was most of the cost of a pass.

use std::mem;
use std::sync::Arc;

use super::addresses::ByAddress;
use crate::index::{IndexType, Indexed};
use crate::steps;

/// The sorted objects of the last pass.
#[derive(Debug)]
pub(crate) struct ByName<I, K> {
    last: Arc<Indexed<I, Arc<K>>>,
}

impl<I, K> Default for ByName<I, K> {
    fn default() -> Self {
        Self { last: Arc::default() }
    }
}

impl<I: IndexType, K> ByName<I, K> {
    /// Sorts `objects`, whose names are unique.
    pub(crate) fn sorted(
        &mut self,
        objects: &[Arc<K>],
        key: impl Fn(&K) -> (&str, &str),
    ) -> Arc<Indexed<I, Arc<K>>> {
        let places: ByAddress<usize, usize> = self.last.iter().map(address).zip(0_usize..).collect();
        let mut stays = vec![false; self.last.len()];
        let mut new = Vec::new();
        steps::count(self.last.len() + objects.len());
        for object in objects {
            match places.get(&address(object)) {
                Some(&place) => stays[place] = true,
                None => new.push((key(object), object)),
            }
        }
        if new.is_empty() && stays.iter().all(|&stays| stays) {
            return Arc::clone(&self.last);
        }
        // With the names at hand, so that a comparison does not dereference the objects.
        new.sort_by_key(|(name, _)| {
            steps::count(1);
            *name
        });
        let last = Arc::unwrap_or_clone(mem::take(&mut self.last));
        let known: Vec<_> = last.into_iter().zip(stays).filter_map(|(o, stays)| stays.then_some(o)).collect();
        let place = |name: (&str, &str)| known.partition_point(|object| key(object) < name);
        let new: Vec<_> = new.into_iter().map(|(name, object)| (place(name), object)).collect();
        self.last = Arc::new(merged(known, new).into());
        Arc::clone(&self.last)
    }
}

/// Inserts each of `new` before the entry of `known` at its given position, first to last.
fn merged<K>(known: Vec<Arc<K>>, new: Vec<(usize, &Arc<K>)>) -> Vec<Arc<K>> {
    let mut sorted = Vec::with_capacity(known.len() + new.len());
    let (mut known, mut taken) = (known.into_iter(), 0);
    for (place, object) in new {
        sorted.extend(known.by_ref().take(place - taken));
        sorted.push(Arc::clone(object));
        taken = place;
    }
    sorted.extend(known);
    sorted
}

/// The address of an object. No other object can have it while an `Arc` keeps this one alive.
fn address<K>(object: &Arc<K>) -> usize {
    Arc::as_ptr(object).addr()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::index::PodIndex;

    #[derive(Debug)]
    struct Named(u8);

    fn key(named: &Named) -> (&str, &str) {
        ("ns", ["a", "ab", "b", "c", "d", "e", "f", "g"][usize::from(named.0)])
    }

    fn addresses(objects: &[Arc<Named>]) -> Vec<usize> {
        objects.iter().map(address).collect()
    }

    proptest! {
        /// Each pass has some of eight names, in any order, and some objects are new ones with an old name.
        #[test]
        fn whatever_was_there_before_the_order_is_that_of_the_names(
            passes in vec((vec(any::<bool>(), 8), vec(any::<bool>(), 8), any::<prop::sample::Index>()), 1..8)
        ) {
            let mut by_name = ByName::<PodIndex, _>::default();
            let mut cache: Vec<_> = (0..8).map(|name| Arc::new(Named(name))).collect();
            for (present, replaced, first) in passes {
                for (object, _) in cache.iter_mut().zip(replaced).filter(|(_, replaced)| *replaced) {
                    *object = Arc::new(Named(object.0));
                }
                let there = cache.iter().zip(present).filter(|(_, present)| *present);
                let mut objects: Vec<_> = there.map(|(object, _)| Arc::clone(object)).collect();
                let expected = addresses(&objects);
                if !objects.is_empty() {
                    let first = first.index(objects.len());
                    objects.rotate_left(first);
                }
                prop_assert_eq!(addresses(&by_name.sorted(&objects, key)), expected);
            }
        }
    }

    #[test]
    fn where_nothing_has_changed_nothing_is_made() {
        let mut by_name = ByName::<PodIndex, _>::default();
        let objects: Vec<_> = [1, 0].map(|name| Arc::new(Named(name))).into();
        let first = by_name.sorted(&objects, key);
        assert!(Arc::ptr_eq(&first, &by_name.sorted(&objects, key)));
        assert!(!Arc::ptr_eq(&first, &by_name.sorted(&objects[1..], key)));
    }
}
