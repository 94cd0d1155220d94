//! Indexes as types of their own, and lists that take only their own kind: the compiler refuses any other index.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Index, IndexMut};

/// A type that is nothing but an index; [`index_type`] implements it.
pub(crate) trait IndexType: Copy {
    /// The index of the item with this number.
    fn at(number: usize) -> Self;
    /// The number of the item.
    fn number(self) -> usize;
}

/// Makes a tuple struct of one `usize` an [`IndexType`].
macro_rules! index_type {
    ($name:ident) => {
        impl $crate::index::IndexType for $name {
            fn at(number: usize) -> Self {
                Self(number)
            }

            fn number(self) -> usize {
                self.0
            }
        }
    };
}

pub(crate) use index_type;

/// Index of a pool in the pools of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PoolIndex(pub(crate) usize);
index_type!(PoolIndex);

/// Index of an existing node in the nodes of a pass. In the snapshot it is a `NodeIndex`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PassNodeIndex(pub(crate) usize);
index_type!(PassNodeIndex);

/// Index of a pod in the pods of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodIndex(pub(crate) usize);
index_type!(PodIndex);

/// A list whose items only indexes of the type `I` find. What needs no index is there as for any slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Indexed<I, T> {
    items: Vec<T>,
    index: PhantomData<I>,
}

impl<I: IndexType, T> Indexed<I, T> {
    /// The index that the next item will have.
    pub(crate) fn next(&self) -> I {
        I::at(self.items.len())
    }

    /// The indexes of all items.
    pub(crate) fn indexes(&self) -> impl ExactSizeIterator<Item = I> + DoubleEndedIterator + use<I, T> {
        (0..self.items.len()).map(I::at)
    }

    /// The indexes of the items from `first` on.
    pub(crate) fn indexes_from(&self, first: I) -> impl ExactSizeIterator<Item = I> + use<I, T> {
        (first.number()..self.items.len()).map(I::at)
    }

    /// All items with their indexes.
    pub(crate) fn enumerated(&self) -> impl ExactSizeIterator<Item = (I, &T)> + Clone {
        self.items.iter().enumerate().map(|(number, item)| (I::at(number), item))
    }

    /// The item with this index, if there is one.
    pub(crate) fn get(&self, index: I) -> Option<&T> {
        self.items.get(index.number())
    }

    /// Adds an item at the end, and returns its index.
    pub(crate) fn push(&mut self, item: T) -> I {
        let index = self.next();
        self.items.push(item);
        index
    }

    /// Removes the last item.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.items.pop()
    }
}

impl<I, T> Default for Indexed<I, T> {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl<I, T> From<Vec<T>> for Indexed<I, T> {
    fn from(items: Vec<T>) -> Self {
        Self { items, index: PhantomData }
    }
}

impl<I, T> FromIterator<T> for Indexed<I, T> {
    fn from_iter<S: IntoIterator<Item = T>>(items: S) -> Self {
        Self::from(Vec::from_iter(items))
    }
}

impl<I, T> Deref for Indexed<I, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<I, T> DerefMut for Indexed<I, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items
    }
}

impl<I: IndexType, T> Index<I> for Indexed<I, T> {
    type Output = T;

    fn index(&self, index: I) -> &T {
        &self.items[index.number()]
    }
}

impl<I: IndexType, T> IndexMut<I> for Indexed<I, T> {
    fn index_mut(&mut self, index: I) -> &mut T {
        &mut self.items[index.number()]
    }
}

impl<I, T> IntoIterator for Indexed<I, T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'a, I, T> IntoIterator for &'a Indexed<I, T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl<'a, I, T> IntoIterator for &'a mut Indexed<I, T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter_mut()
    }
}
