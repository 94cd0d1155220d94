//! Common mistakes with optimistic concurrency.

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriterFlaw {
    /// The PUT names no version, for a kind that allows that.
    NoVersion,
    /// A retry takes the version from the fresh object and the content from the first decision.
    BlindSet,
    /// A retry reads from the cache again.
    CachedReread,
    /// A lost answer is treated as a failure: the effect is written again without a check whether it is already there.
    BlindRepeat,
    /// The object that is read again is treated as the same one, whatever its UID.
    AnyUid,
    /// A run that was cancelled, perhaps before its first attempt, reports success, like client-go up to 0.36.
    SuccessOnCancel,
}
