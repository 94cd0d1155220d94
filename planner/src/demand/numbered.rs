//! Values without duplicates, each with a number.

use std::collections::HashMap;
use std::hash::Hash;

use crate::index::{IndexType, Indexed};

/// Different values, numbered in the order of first use: the number is the index.
#[derive(Debug)]
pub(super) struct Numbered<I, T> {
    numbers: HashMap<T, I>,
    pub(super) all: Indexed<I, T>,
}

impl<I, T> Default for Numbered<I, T> {
    fn default() -> Self {
        Self { numbers: HashMap::new(), all: Indexed::default() }
    }
}

impl<I: IndexType, T: Clone + Eq + Hash> Numbered<I, T> {
    /// The number of a value; the next one if it is new.
    pub(super) fn number(&mut self, value: T) -> I {
        if let Some(&number) = self.numbers.get(&value) {
            return number;
        }
        let number = self.all.push(value.clone());
        self.numbers.insert(value, number);
        number
    }
}
