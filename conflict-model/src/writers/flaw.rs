//! The mistakes that are made with optimistic concurrency.

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// The PUT names no version, where the kind allows that.
    NoVersion,
    /// A retry takes the version from the fresh object and the content from the first decision.
    BlindSet,
    /// A retry reads from the cache again.
    CachedReread,
    /// A lost answer is taken for a failure: the effect is made once more, without a look whether it is there.
    BlindRepeat,
    /// The object that is read again is taken for the same, whatever its UID.
    AnyUid,
    /// A run that was cancelled, perhaps before its first attempt, reports success, as client-go's did up to 0.36.
    SuccessOnCancel,
}
