//! The guards that a mutant can lack.

/// One missing guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperatorFlaw {
    /// The count is guarded by its value, through `/scale`: a value can return.
    CountGuard,
    /// The list is announced by a forced apply, which has no guard.
    ForcedApply,
    /// The write of the count does not test whether its own list is still announced.
    UnpairedCount,
    /// A list is followed whichever writer wrote the count it belongs to.
    AnyWriter,
    /// A list is ignored at every count but its own, even if its author wrote the current count.
    OwnCountOnly,
    /// A list whose count has not arrived is followed even if the spec has changed since the list was made.
    AnySpec,
    /// A list names slots, and the next node in a slot has the same name.
    SlotNames,
    /// All guards are missing, as in an earlier implementation.
    Everything,
}
