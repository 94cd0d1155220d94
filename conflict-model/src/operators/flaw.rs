//! The guards that can be missing.

/// One missing guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// The count is guarded by its value, through `/scale`: a value can come back.
    CountGuard,
    /// The list is announced by a forced apply, which nothing guards.
    ForcedApply,
    /// The write of the count does not ask whether its own list still stands.
    UnpairedCount,
    /// A list is followed whoever wrote the count that it is for.
    AnyWriter,
    /// A list is passed over at every count but its own, also where its author wrote the count that is there.
    OwnCountOnly,
    /// A list whose count has not come is followed whatever of the spec has changed since it was made.
    AnySpec,
    /// A list names slots, and a slot's next node has the same name.
    SlotNames,
    /// All of them: as it was once.
    Everything,
}
