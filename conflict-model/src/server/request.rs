//! What is asked of the server, and what it answers.

use super::object::{Meta, Spec, TOKENS, Uid, Version};
use super::ownership::Manager;
use super::status::{Conditions, Status};

/// Where an object is read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// The object itself; `status` is dropped here.
    Main,
    /// `/status`; everything but `status` is dropped here.
    Status,
}

/// A request. Versions and UIDs are the preconditions a body carries; `None` leaves them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// GET of the object.
    Get,
    /// GET of `/scale`.
    GetScale,
    /// POST.
    Create {
        /// The new object; its status is dropped.
        body: Body,
    },
    /// PUT of the whole object.
    Put {
        /// Where.
        on: Endpoint,
        /// `metadata.resourceVersion`.
        version: Option<Version>,
        /// `metadata.uid`.
        uid: Option<Uid>,
        /// Everything else.
        body: Body,
    },
    /// PUT of `/scale`.
    PutScale {
        /// `metadata.resourceVersion`.
        version: Option<Version>,
        /// `metadata.uid`.
        uid: Option<Uid>,
        /// `spec.replicas`.
        replicas: i32,
    },
    /// Merge patch of one field.
    Merge {
        /// Where.
        on: Endpoint,
        /// `metadata.resourceVersion`.
        version: Option<Version>,
        /// `metadata.uid`.
        uid: Option<Uid>,
        /// The field.
        change: Change,
    },
    /// Merge patch of `/scale`.
    MergeScale {
        /// `metadata.resourceVersion`.
        version: Option<Version>,
        /// `metadata.uid`.
        uid: Option<Uid>,
        /// `spec.replicas`, or a patch that leaves it alone.
        replicas: Option<i32>,
    },
    /// JSON Patch: a `test`, then an operation.
    JsonPatch {
        /// Whether it goes to `/scale` instead of the object.
        scale: bool,
        /// What must hold.
        test: Test,
        /// What is done.
        operation: Operation,
    },
    /// JSON Patch at a generation: tests of it and perhaps of the announced list, then one change.
    PatchAtGeneration {
        /// `test /metadata/generation`.
        generation: i64,
        /// `test` of the announced list.
        list: ListTest,
        /// What is done if they hold.
        set: Set,
    },
    /// Server-side apply on `/status`.
    Apply {
        /// Who applies.
        manager: Manager,
        /// Whether fields of others are taken.
        force: bool,
        /// `metadata.resourceVersion`.
        version: Option<Version>,
        /// `metadata.uid`.
        uid: Option<Uid>,
        /// Every field the manager wants to own.
        status: Status,
    },
    /// DELETE.
    Delete {
        /// Precondition on the version.
        version: Option<Version>,
        /// Precondition on the UID.
        uid: Option<Uid>,
    },
}

/// What a PUT or a creation says, its identity apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Body {
    /// Metadata.
    pub meta: Meta,
    /// Spec.
    pub spec: Spec,
    /// Status.
    pub status: Option<Status>,
}

/// One field of a merge patch; `None` is `null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// `spec.replicas`.
    Replicas(Option<i32>),
    /// `spec.maxReplicas`.
    MaxReplicas(i32),
    /// `spec`'s tokens, all of them.
    Tokens([u8; TOKENS]),
    /// The label.
    Label(Option<u8>),
    /// The finalizers.
    Finalizer(bool),
    /// `status.readyReplicas`.
    Ready(Option<i32>),
    /// `status.conditions`: a merge patch replaces the whole list.
    Conditions(Option<Conditions>),
}

/// A `test` of a JSON Patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Test {
    /// None at all.
    Nothing,
    /// `/metadata/resourceVersion`.
    Version(Version),
    /// `/metadata/generation`; a Scale has none.
    Generation(i64),
    /// `/metadata/uid`.
    Uid(Uid),
    /// `/spec/replicas`.
    Replicas(i32),
    /// `/spec` is `{}`.
    EmptySpec,
}

/// What a [`Request::PatchAtGeneration`] asks of the announced list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListTest {
    /// Nothing.
    Nothing,
    /// That there is none: a `test` of `null`.
    Absent,
    /// That it is this one.
    Is(u8),
}

impl From<Option<u8>> for ListTest {
    fn from(list: Option<u8>) -> Self {
        list.map_or(Self::Absent, Self::Is)
    }
}

impl ListTest {
    /// Whether it holds for a status.
    pub(super) fn holds(self, status: Option<&Status>) -> bool {
        match (self, status) {
            (Self::Nothing, _) => true,
            (Self::Absent, Some(status)) => status.list.is_none(),
            (Self::Is(list), Some(status)) => status.list == Some(list),
            (Self::Absent | Self::Is(_), None) => false,
        }
    }
}

/// What a [`Request::PatchAtGeneration`] does; it goes to the endpoint of what it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Set {
    /// `add /spec/replicas`, on the object.
    Replicas(i32),
    /// `add` of the announced list, or `remove`, on `/status`.
    List(Option<u8>),
}

/// What a JSON Patch does to `/spec/replicas`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Nothing; only the test is sent, or a test of a member that is always there.
    Nothing,
    /// `add`: creates or replaces.
    Add(i32),
    /// `replace`: the same, although the RFC asks for a member that is there.
    Replace(i32),
    /// `remove`: the member must be there.
    Remove,
}

/// What a `Status` gives as its reason, or none for a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Done.
    Success,
    /// 400.
    BadRequest,
    /// 404.
    NotFound,
    /// 409 of a creation.
    AlreadyExists,
    /// 409; the server gives the three kinds the same reason and different messages. A fourth, of an object that is deleted
    /// while a write to it is under way, has no place here: requests do not overlap.
    Conflict(Conflict),
    /// 422.
    Invalid,
    /// 500.
    InternalError,
}

impl Reason {
    /// The word in the answer; empty for a success.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Success => "",
            Self::BadRequest => "BadRequest",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict(_) => "Conflict",
            Self::Invalid => "Invalid",
            Self::InternalError => "InternalError",
        }
    }
}

/// Why a 409 is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Conflict {
    /// Written from a stale version.
    Version,
    /// The object is a namesake.
    Uid,
    /// Another manager owns a field.
    FieldManager,
}

/// What the server says and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// The HTTP status code.
    pub code: u16,
    /// The reason.
    pub reason: Reason,
    /// Whether a new state was stored: the version moved, or the object came or went.
    pub moved: bool,
    /// How far `generation` moved; a missing object counts as generation 0.
    pub generation_delta: i64,
}
