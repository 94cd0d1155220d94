//! The observed part of the object.

/// Conditions that [`Status::conditions`] can hold.
pub const CONDITIONS: usize = 2;

/// The observed state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status {
    /// `status.readyReplicas`.
    pub ready: Option<i32>,
    /// `status.conditions`. An empty list and an absent one are different.
    pub conditions: Option<Conditions>,
    /// The decision whose list of nodes is announced, in a single field. On the real server, where the list has its own
    /// fields, conformance compares `status.selector` instead.
    pub list: Option<u8>,
}

/// A list-map of conditions, keyed by type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Conditions {
    /// For each type its `status`; `None` when it is absent.
    pub values: [Option<bool>; CONDITIONS],
    /// Whether the second type comes before the first: the list keeps its original order.
    pub swapped: bool,
}

impl Status {
    /// The value of condition number `which`; `None` when it or the list is absent.
    pub fn condition(&self, which: usize) -> Option<bool> {
        self.conditions.and_then(|list| list.values.get(which).copied().flatten())
    }
}
