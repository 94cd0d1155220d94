//! `/scale` of a custom resource: a view of the object with less information than it seems.

use super::object::{ModelVersion, Object};
use super::request::{ModelOperation, Reason, Test};
use super::{INVALID, Verdict, current, updated};

/// The value that the server uses for an unset count during a write.
const UNSET: i32 = i32::MIN;

/// The count that a written Scale carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// This count; 0 is omitted from the body and means the same.
    Is(i32),
    /// Still the marker of an unset count.
    Unset,
}

impl Count {
    /// The count that the server starts from.
    pub(super) fn of(object: &Object) -> Self {
        object.spec.replicas.map_or(Self::Unset, Self::Is)
    }
}

/// A Scale cannot be built from an object whose count is unset, and the server reports that as an internal error.
pub(super) fn get(object: &Object) -> Result<Object, (u16, Reason)> {
    if object.spec.replicas.is_some() { Ok(*object) } else { Err((500, Reason::InternalError)) }
}

/// Writes a Scale. Without a version the write is unconditional.
pub(super) fn write(old: &Object, version: Option<ModelVersion>, count: Count) -> Verdict {
    let replicas = match count {
        Count::Unset | Count::Is(UNSET) => return Err((400, Reason::BadRequest)),
        Count::Is(replicas) => replicas,
    };
    current(old, version)?;
    let mut new = *old;
    new.spec.replicas = Some(replicas);
    new.owners.count = old.owners.count.scaled(old.spec.replicas, replicas);
    updated(old, new)
}

/// A JSON Patch sees 0 as absent and an unset count as the marker.
pub(super) fn json_patch(old: &Object, test: Test, operation: ModelOperation) -> Verdict {
    let seen = match Count::of(old) {
        Count::Is(0) => None,
        Count::Is(replicas) => Some(replicas),
        Count::Unset => Some(UNSET),
    };
    let holds = match test {
        Test::Nothing => true,
        Test::Version(version) => version == old.version,
        Test::Generation(_) => false,
        Test::Uid(uid) => uid == old.uid,
        Test::Replicas(replicas) => Some(replicas) == seen,
        Test::EmptySpec => seen.is_none(),
    };
    let count = match operation {
        _ if !holds => return Err(INVALID),
        ModelOperation::Remove if seen.is_none() => return Err(INVALID),
        ModelOperation::Nothing => Count::of(old),
        ModelOperation::Add(replicas) | ModelOperation::Replace(replicas) => Count::Is(replicas),
        // An absent count is 0.
        ModelOperation::Remove => Count::Is(0),
    };
    write(old, None, count)
}
