//! The requests to the server, and its answers.

use super::object::{Meta, ModelVersion, Spec, TOKENS, Uid};
use super::ownership::Manager;
use super::status::{Conditions, Status};

/// The endpoint at which an object is read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelEndpoint {
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
        /// The endpoint.
        on: ModelEndpoint,
        /// `metadata.resourceVersion`.
        version: Option<ModelVersion>,
        /// `metadata.uid`.
        uid: Option<Uid>,
        /// The rest of the object.
        body: Body,
    },
    /// PUT of `/scale`.
    PutScale {
        /// `metadata.resourceVersion`.
        version: Option<ModelVersion>,
        /// `metadata.uid`.
        uid: Option<Uid>,
        /// `spec.replicas`.
        replicas: i32,
    },
    /// Merge patch of one field.
    Merge {
        /// The endpoint.
        on: ModelEndpoint,
        /// `metadata.resourceVersion`.
        version: Option<ModelVersion>,
        /// `metadata.uid`.
        uid: Option<Uid>,
        /// The changed field.
        change: RequestedChange,
    },
    /// Merge patch of `/scale`.
    MergeScale {
        /// `metadata.resourceVersion`.
        version: Option<ModelVersion>,
        /// `metadata.uid`.
        uid: Option<Uid>,
        /// `spec.replicas`; `None` for a patch that does not contain it.
        replicas: Option<i32>,
    },
    /// JSON Patch: a `test`, then an operation.
    JsonPatch {
        /// Whether it goes to `/scale` instead of the object.
        scale: bool,
        /// The guard.
        test: Test,
        /// The operation.
        operation: ModelOperation,
    },
    /// JSON Patch at a generation: tests of the generation and optionally of the announced list, then one change.
    PatchAtGeneration {
        /// `test /metadata/generation`.
        generation: i64,
        /// `test` of the announced list.
        list: ListTest,
        /// The change if the tests hold.
        set: Set,
    },
    /// Server-side apply on `/status`.
    Apply {
        /// The manager that applies.
        manager: Manager,
        /// Whether fields of other managers are taken over.
        force: bool,
        /// `metadata.resourceVersion`.
        version: Option<ModelVersion>,
        /// `metadata.uid`.
        uid: Option<Uid>,
        /// Every field the manager wants to own.
        status: Status,
    },
    /// DELETE.
    Delete {
        /// Precondition on the version.
        version: Option<ModelVersion>,
        /// Precondition on the UID.
        uid: Option<Uid>,
    },
}

/// The content of a PUT or a create, without its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Body {
    /// The metadata that writers may change.
    pub meta: Meta,
    /// The wanted state.
    pub spec: Spec,
    /// The observed state; `None` when it is absent.
    pub status: Option<Status>,
}

/// One field of a merge patch; `None` is `null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestedChange {
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
    /// No test.
    Nothing,
    /// `/metadata/resourceVersion`.
    Version(ModelVersion),
    /// `/metadata/generation`; a Scale has none.
    Generation(i64),
    /// `/metadata/uid`.
    Uid(Uid),
    /// `/spec/replicas`.
    Replicas(i32),
    /// `/spec` is `{}`.
    EmptySpec,
}

/// The test of the announced list in a [`Request::PatchAtGeneration`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListTest {
    /// No test.
    Nothing,
    /// There is no list: a `test` of `null`.
    Absent,
    /// The list is this one.
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

/// The change of a [`Request::PatchAtGeneration`]; it is sent to the endpoint of the changed field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Set {
    /// `add /spec/replicas`, on the object.
    Replicas(i32),
    /// `add` of the announced list, or `remove`, on `/status`.
    List(Option<u8>),
}

/// The change of `/spec/replicas` in a JSON Patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelOperation {
    /// No change; only the test is sent, or a test of a member that always exists.
    Nothing,
    /// `add`: creates or replaces.
    Add(i32),
    /// `replace`: the same, although the RFC requires that the member exists.
    Replace(i32),
    /// `remove`: the member must exist.
    Remove,
}

/// The reason in a `Status`, or none for a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The request succeeded.
    Success,
    /// 400.
    BadRequest,
    /// 404.
    NotFound,
    /// 409 of a create.
    AlreadyExists,
    /// 409; the server gives the three kinds the same reason and different messages. A fourth, of an object that is
    /// deleted during a write to it, is not modelled: requests do not overlap.
    Conflict(Conflict),
    /// 422.
    Invalid,
    /// 500.
    InternalError,
}

impl Reason {
    /// The reason as text in the answer; empty for a success.
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

/// The kind of a 409.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Conflict {
    /// The write was based on a stale version.
    Version,
    /// The object is another one of the same name.
    Uid,
    /// Another manager owns a field.
    FieldManager,
}

/// The server's answer and its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerAnswer {
    /// The HTTP status code.
    pub code: u16,
    /// The reason of the answer.
    pub reason: Reason,
    /// Whether a new state was stored: the version moved, or the object was created or removed.
    pub moved: bool,
    /// How far `generation` moved; a missing object counts as generation 0.
    pub generation_delta: i64,
}
