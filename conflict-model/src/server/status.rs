//! The part of the object that says what was observed.

/// Conditions that [`Status::conditions`] can hold.
pub const CONDITIONS: usize = 2;

/// What was observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status {
    /// `status.readyReplicas`.
    pub ready: Option<i32>,
    /// `status.conditions`. An empty list and an absent one are not the same.
    pub conditions: Option<Conditions>,
    /// The decision whose list of nodes is announced: a single field that says which. On the real server, where the list has
    /// fields of its own, conformance compares `status.selector` in its place.
    pub list: Option<u8>,
}

/// A list-map of conditions, keyed by type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Conditions {
    /// For each type, absent or its `status`.
    pub values: [Option<bool>; CONDITIONS],
    /// Whether the second type stands before the first: the list keeps the order it was made in.
    pub swapped: bool,
}

impl Status {
    /// The value of condition number `which`, absent when the list is.
    pub fn condition(&self, which: usize) -> Option<bool> {
        self.conditions.and_then(|list| list.values.get(which).copied().flatten())
    }
}
