//! Describes a request to the API server: its verb and the part of the object it addresses.

use std::fmt;

/// The kind of request that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// A live read.
    Get,
    /// A whole-object replacement.
    Put,
    /// An RFC 6902 patch, usually guarded by `test` operations.
    JsonPatch,
    /// An RFC 7386 patch.
    MergePatch,
    /// A server-side apply.
    Apply,
    /// A creation.
    Create,
    /// A deletion.
    Delete,
    /// An eviction through the Eviction API.
    Evict,
}

impl Verb {
    /// Whether the request changes an object.
    pub const fn is_write(self) -> bool {
        !matches!(self, Self::Get)
    }

    /// A stable name for metric labels: lower case, with underscores.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::JsonPatch => "json_patch",
            Self::MergePatch => "merge_patch",
            Self::Apply => "apply",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Evict => "evict",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// The part of an object that a request addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Subresource {
    /// The object itself.
    Main,
    /// `/status`.
    Status,
    /// `/scale`.
    Scale,
    /// `/eviction`.
    Eviction,
}

impl Subresource {
    /// A stable name for metric labels, as the API server's metrics spell it (empty for the object itself).
    pub const fn label(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Eviction => "eviction",
        }
    }
}

/// Where an attempt took the object from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadSource {
    /// The copy passed by the caller.
    Copy,
    /// A cache that a watch feeds.
    Watch,
    /// A request to the API server.
    Live,
}

impl ReadSource {
    /// A stable name for metric labels: lower case.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Watch => "watch",
            Self::Live => "live",
        }
    }
}

/// A write, as reported to the observer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operation {
    /// The resource's name as in the API server's paths: plural and lower case.
    pub resource: String,
    /// The part of the object that is written.
    pub subresource: Subresource,
    /// The verb of the write.
    pub verb: Verb,
}
