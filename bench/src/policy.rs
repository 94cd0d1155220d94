//! The measured policies.

/// One way to increment, and the program that does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// `conflict-retry`'s default policy, reads fed by a watch.
    Watched,
    /// `conflict-retry`'s `update` as it is: live reads only.
    Live,
    /// `conflict-retry` with client-go's `DefaultRetry`.
    CompatRetry,
    /// `conflict-retry` with client-go's `DefaultBackoff`.
    CompatBackoff,
    /// client-go itself.
    GoRetry,
    /// client-go itself.
    GoBackoff,
    /// A JSON Patch of the writer's own field, guarded by its old value.
    Guarded,
    /// A merge patch of the writer's own field.
    Merge,
    /// A server-side apply of the writer's own field.
    Apply,
}

impl Policy {
    /// In the order of a round.
    pub(crate) const ALL: [Self; 9] = [
        Self::Watched,
        Self::GoRetry,
        Self::Live,
        Self::GoBackoff,
        Self::CompatRetry,
        Self::CompatBackoff,
        Self::Guarded,
        Self::Merge,
        Self::Apply,
    ];

    /// The program.
    pub(crate) const fn writer(self) -> &'static str {
        match self {
            Self::GoRetry | Self::GoBackoff => "client-go",
            Self::Watched
            | Self::Live
            | Self::CompatRetry
            | Self::CompatBackoff
            | Self::Guarded
            | Self::Merge
            | Self::Apply => "conflict-retry",
        }
    }

    /// What it does after a conflict, or what makes conflicts impossible.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Watched => "default, watch-fed",
            Self::Live => "default, live reads",
            Self::CompatRetry | Self::GoRetry => "DefaultRetry",
            Self::CompatBackoff | Self::GoBackoff => "DefaultBackoff",
            Self::Guarded => "own field, guarded patch",
            Self::Merge => "own field, merge patch",
            Self::Apply => "own field, apply",
        }
    }

    /// A short name for flags and for objects.
    pub(crate) const fn slug(self) -> &'static str {
        match self {
            Self::Watched => "watched",
            Self::Live => "live",
            Self::CompatRetry => "compat-retry",
            Self::CompatBackoff => "compat-backoff",
            Self::GoRetry => "go-retry",
            Self::GoBackoff => "go-backoff",
            Self::Guarded => "guarded",
            Self::Merge => "merge",
            Self::Apply => "apply",
        }
    }
}
