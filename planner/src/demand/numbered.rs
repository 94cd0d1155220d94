//! Values without duplicates, each with a number.

use std::collections::HashMap;
use std::hash::Hash;

/// Different values, numbered in the order of first use: the number is the index.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    numbers: HashMap<T, usize>,
    pub(super) all: Vec<T>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { numbers: HashMap::new(), all: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    /// The number of a value; the next one if it is new.
    pub(super) fn number(&mut self, value: T) -> usize {
        if let Some(&number) = self.numbers.get(&value) {
            return number;
        }
        self.all.push(value.clone());
        self.numbers.insert(value, self.all.len() - 1);
        self.all.len() - 1
    }
}
