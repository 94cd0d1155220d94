//! Moves the guarded fields from the apply of an earlier release to the patches that write them today.

use conflict_retry::{Outcome, PatchDecision, WriteOptions};
use serde_json::Value;

use super::guarded::{self, Current};
use super::{StatusDecision, StatusObject, Target, Writer, WriterError, json_of, patch_of};

/// The wanted values of the guarded fields, as decided while they were present.
struct Taken {
    generation: Option<i64>,
    wanted: Value,
}

impl<K: StatusObject> Target<K> {
    /// Removes the guarded fields and writes them again. An earlier release applied them, and a write that replaces
    /// such a field leaves the apply as owner of the leaves that stay equal; the next apply would remove those.
    pub(super) async fn migrate_applied_fields<D>(
        &self,
        writer: &Writer,
        options: &WriteOptions,
        decision: &mut StatusDecision<D>,
        base: K,
    ) -> Result<Outcome<K>, WriterError>
    where
        D: FnMut(&K) -> K::Status + Send,
    {
        let fields = decision.contract.guarded;
        let mut taken = None;
        let decide = |object: &K| {
            let change = decision.change(object)?;
            let current = Current { status: &change.current, is_set: object.status().is_some() };
            let operations = guarded::operations(fields, current, &guarded::without(fields, &change.current));
            if !operations.is_empty() {
                taken = Some(Taken { generation: object.meta().generation, wanted: change.wanted });
            }
            Ok(patch_of(operations))
        };
        let outcome = self.patch_at_generation(writer, options, base, decide).await?;
        match (outcome, taken) {
            (
                Outcome::Written(object) | Outcome::AlreadyDone(object) | Outcome::Unchanged(object),
                Some(taken),
            ) => self.put_back(writer, options, decision, object, &taken).await,
            (other, _) => Ok(other),
        }
    }

    /// Writes the removed fields, unless another writer has written them, or the spec that they were decided from has
    /// changed. `decide` is not called again: a caller that keeps existing fields would find nothing to keep.
    async fn put_back<D>(
        &self,
        writer: &Writer,
        options: &WriteOptions,
        decision: &StatusDecision<D>,
        base: K,
        taken: &Taken,
    ) -> Result<Outcome<K>, WriterError> {
        let fields = decision.contract.guarded;
        let decide = |object: &K| {
            let status = json_of(object)?;
            let is_vacant = guarded::is_equal(fields, &status, &guarded::without(fields, &status));
            if !is_vacant || object.meta().generation != taken.generation {
                return Ok(PatchDecision::Keep);
            }
            let current = Current { status: &status, is_set: object.status().is_some() };
            Ok(patch_of(guarded::operations(fields, current, &taken.wanted)))
        };
        self.patch_at_generation(writer, options, base, decide).await
    }
}
