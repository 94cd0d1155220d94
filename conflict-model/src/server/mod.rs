//! How kube-apiserver (v1.36) handles one custom resource that has `/status` and `/scale`: optimistic concurrency,
//! generation, no-op writes, preconditions, and field ownership of the status.
//!
//! Pure: a request returns a new state and an answer. Everything here was measured; `e2e/tests/conformance.rs` measures
//! it again. It must not know which writer sends a request, or why.

mod count;
mod object;
mod ownership;
mod request;
mod scale;
mod status;

pub use count::CountOwners;
pub use object::{Meta, ModelVersion, Object, Spec, TOKENS, Uid};
pub use ownership::{Fields, Manager, Owners};
pub use request::{
    Body, Conflict, ListTest, ModelEndpoint, ModelOperation, Reason, Request, RequestedChange, ServerAnswer,
    Set, Test,
};
pub use status::{CONDITIONS, Conditions, Status};

use ownership::{Refused, apply};

/// What a PUT without a version means for a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unconditional {
    /// It is refused: every custom resource.
    Refused,
    /// The last write wins, without a check: `ConfigMap`, `Deployment` and many other built-in kinds.
    Allowed,
}

/// The store, reduced to one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    unconditional: Unconditional,
    revision: ModelVersion,
    uids: Uid,
    /// What is stored under the name.
    pub object: Option<Object>,
}

/// A state to store, or why the request is refused.
type Verdict = Result<Option<Object>, (u16, Reason)>;

const NOT_FOUND: (u16, Reason) = (404, Reason::NotFound);
const INVALID: (u16, Reason) = (422, Reason::Invalid);

const fn conflict(kind: Conflict) -> (u16, Reason) {
    (409, Reason::Conflict(kind))
}

impl Server {
    /// An empty store.
    pub const fn new(unconditional: Unconditional) -> Self {
        Self { unconditional, revision: 0, uids: 0, object: None }
    }

    /// The state after `request`, and the answer.
    #[must_use]
    pub fn answer(mut self, request: &Request) -> (Self, ServerAnswer) {
        let before = self.object;
        let verdict = self.decide(request);
        let (code, reason) = match verdict {
            Ok(after) => {
                self.store(after);
                (if matches!(request, Request::Create { .. }) { 201 } else { 200 }, Reason::Success)
            }
            Err(refusal) => refusal,
        };
        let generation = |object: Option<Object>| object.map_or(0, |object| object.generation);
        let answer = ServerAnswer {
            code,
            reason,
            moved: before.map(|object| object.version) != self.object.map(|object| object.version),
            generation_delta: generation(self.object) - generation(before),
        };
        (self, answer)
    }

    /// Stores `after` as a new version, unless nothing changed.
    fn store(&mut self, after: Option<Object>) {
        if after != self.object {
            self.revision += 1;
            self.object = after.map(|object| Object { version: self.revision, ..object });
        }
    }

    fn decide(&mut self, request: &Request) -> Verdict {
        match *request {
            Request::Get => self.existing().map(Some),
            Request::GetScale => scale::get(&self.existing()?).map(Some),
            Request::Create { body } => self.create(body),
            Request::Put { on, version, uid, body } => {
                let old = self.of_uid(uid)?;
                if version.is_none() && self.unconditional == Unconditional::Refused {
                    return Err(INVALID);
                }
                current(&old, version)?;
                let new = match on {
                    ModelEndpoint::Main => Object { meta: body.meta, spec: body.spec, ..old },
                    ModelEndpoint::Status => with_status(&old, body.status),
                };
                written(&old, new)
            }
            Request::PutScale { version, uid, replicas } => {
                scale::write(&self.of_uid(uid)?, version, scale::Count::Is(replicas))
            }
            Request::Merge { on, version, uid, change } => {
                let old = self.existing()?;
                current(&old, version)?;
                // A UID in a patch is a change of the UID, which is not allowed; `/status` ignores metadata.
                if on == ModelEndpoint::Main && uid.is_some_and(|uid| uid != old.uid) {
                    return Err(INVALID);
                }
                written(&old, merged(&old, on, change))
            }
            // Here too a UID in the patch is no guard.
            Request::MergeScale { version, uid: _, replicas } => {
                let old = self.existing()?;
                scale::write(&old, version, replicas.map_or(scale::Count::of(&old), scale::Count::Is))
            }
            Request::JsonPatch { scale: true, test, operation } => {
                scale::json_patch(&self.existing()?, test, operation)
            }
            Request::JsonPatch { scale: false, test, operation } => {
                let old = self.existing()?;
                written(&old, patched(&old, test, operation)?)
            }
            Request::PatchAtGeneration { generation, list, set } => {
                let old = self.existing()?;
                at_generation(&old, generation, list, set)
            }
            Request::Apply { manager, force, version, uid: _, status } => {
                let old = self.existing()?;
                let applied = apply(old.status.as_ref(), old.owners, manager, force, &status);
                if applied == Err(Refused::Conflict) {
                    return Err(conflict(Conflict::FieldManager));
                }
                current(&old, version)?;
                let (status, owners) = applied.map_err(|_| INVALID)?;
                updated(&old, Object { status: Some(status), owners, ..old })
            }
            Request::Delete { version, uid } => {
                let old = self.existing()?;
                if uid.is_some_and(|uid| uid != old.uid) {
                    return Err(conflict(Conflict::Uid));
                }
                current(&old, version)?;
                Ok(deleted(old))
            }
        }
    }

    fn create(&mut self, body: Body) -> Verdict {
        // Validation comes before the check whether the name is free.
        if !body.spec.is_valid_after(None) {
            return Err(INVALID);
        }
        if self.object.is_some() {
            return Err((409, Reason::AlreadyExists));
        }
        self.uids += 1;
        let mut owners = Owners::default();
        owners.count = owners.count.written(None, body.spec.replicas);
        Ok(Some(Object {
            uid: self.uids,
            version: 0,
            generation: 1,
            deleting: false,
            meta: body.meta,
            spec: body.spec,
            status: None,
            owners,
        }))
    }

    fn existing(&self) -> Result<Object, (u16, Reason)> {
        self.object.ok_or(NOT_FOUND)
    }

    /// The object that a PUT addresses, whether it names the UID or not.
    fn of_uid(&self, uid: Option<Uid>) -> Result<Object, (u16, Reason)> {
        let object = self.existing()?;
        match uid {
            Some(uid) if uid != object.uid => Err(conflict(Conflict::Uid)),
            _ => Ok(object),
        }
    }
}

/// The optimistic lock: a version, if there is one, must be the stored one.
fn current(old: &Object, version: Option<ModelVersion>) -> Result<(), (u16, Reason)> {
    match version {
        Some(version) if version != old.version => Err(conflict(Conflict::Version)),
        _ => Ok(()),
    }
}

/// The result of writing the object `old` as `new`.
fn written(old: &Object, mut new: Object) -> Verdict {
    new.owners.count = new.owners.count.written(old.spec.replicas, new.spec.replicas);
    updated(old, new)
}

/// The result of replacing `old` by `new`, through whichever endpoint.
fn updated(old: &Object, mut new: Object) -> Verdict {
    if !new.spec.is_valid_after(Some(&old.spec)) {
        return Err(INVALID);
    }
    if new.spec != old.spec {
        new.generation += 1;
    }
    // When the last finalizer of an object that is being deleted is removed, the object is removed too.
    Ok((!new.deleting || new.meta.finalizer).then_some(new))
}

fn with_status(old: &Object, status: Option<Status>) -> Object {
    Object { status, owners: old.owners.updated(old.status.as_ref(), status.as_ref()), ..*old }
}

fn merged(old: &Object, on: ModelEndpoint, change: RequestedChange) -> Object {
    let mut new = *old;
    match (on, change) {
        (ModelEndpoint::Main, RequestedChange::Replicas(replicas)) => new.spec.replicas = replicas,
        (ModelEndpoint::Main, RequestedChange::MaxReplicas(max)) => new.spec.max_replicas = max,
        (ModelEndpoint::Main, RequestedChange::Tokens(tokens)) => new.spec.tokens = tokens,
        (ModelEndpoint::Main, RequestedChange::Label(label)) => new.meta.label = label,
        (ModelEndpoint::Main, RequestedChange::Finalizer(finalizer)) => new.meta.finalizer = finalizer,
        (ModelEndpoint::Status, RequestedChange::Ready(ready)) => {
            new = with_status(old, Some(Status { ready, ..old.status.unwrap_or_default() }));
        }
        (ModelEndpoint::Status, RequestedChange::Conditions(conditions)) => {
            new = with_status(old, Some(Status { conditions, ..old.status.unwrap_or_default() }));
        }
        // Fields that do not belong to the endpoint are dropped.
        (ModelEndpoint::Main, RequestedChange::Ready(_) | RequestedChange::Conditions(_))
        | (ModelEndpoint::Status, _) => {}
    }
    new
}

fn patched(old: &Object, test: Test, operation: ModelOperation) -> Result<Object, (u16, Reason)> {
    let holds = match test {
        Test::Nothing => true,
        Test::Version(version) => version == old.version,
        Test::Generation(generation) => generation == old.generation,
        Test::Uid(uid) => uid == old.uid,
        Test::Replicas(replicas) => Some(replicas) == old.spec.replicas,
        Test::EmptySpec => false,
    };
    let mut new = *old;
    new.spec.replicas = match operation {
        _ if !holds => return Err(INVALID),
        ModelOperation::Remove if old.spec.replicas.is_none() => return Err(INVALID),
        ModelOperation::Nothing => old.spec.replicas,
        ModelOperation::Add(replicas) | ModelOperation::Replace(replicas) => Some(replicas),
        ModelOperation::Remove => None,
    };
    Ok(new)
}

/// Without a status, the path of the list does not exist, so a test of its absence fails too.
fn at_generation(old: &Object, generation: i64, list: ListTest, set: Set) -> Verdict {
    if generation != old.generation || !list.holds(old.status.as_ref()) {
        return Err(INVALID);
    }
    match (set, old.status) {
        (Set::Replicas(replicas), _) => {
            written(old, Object { spec: Spec { replicas: Some(replicas), ..old.spec }, ..*old })
        }
        (Set::List(None), Some(Status { list: None, .. })) | (Set::List(_), None) => Err(INVALID),
        (Set::List(list), Some(status)) => written(old, with_status(old, Some(Status { list, ..status }))),
    }
}

/// Marks an object that has a finalizer as deleted, and removes any other.
fn deleted(old: Object) -> Option<Object> {
    if old.deleting {
        return Some(old);
    }
    old.meta.finalizer.then_some(Object { deleting: true, generation: old.generation + 1, ..old })
}

#[cfg(test)]
mod tests;
