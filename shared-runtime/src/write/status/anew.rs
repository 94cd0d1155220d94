//! Moving the guarded fields from the apply of an earlier release to the patches that write them today.

use conflict_retry::{Outcome, PatchDecision, Source, Subresource, WriteOptions};
use serde_json::Value;

use super::{
    OwnedStatus, Planner, StatusObject, Target, WriteError, canonical,
    guarded::{self, Current},
};

/// What the guarded fields are to be, as it was decided while they were there.
struct Taken {
    generation: Option<i64>,
    wanted: Value,
}

impl<K: StatusObject> Target<K> {
    /// Takes the guarded fields away and writes them again. An earlier release applied them, and whoever replaces such a
    /// field leaves those of its leaves that stay equal to the apply, which would take them away the next time.
    pub(super) async fn patch_anew<D>(
        &self,
        options: &WriteOptions,
        planner: &mut Planner<D>,
        base: K,
    ) -> Result<Outcome<K>, WriteError>
    where
        D: FnMut(&K) -> OwnedStatus + Send,
    {
        let fields = planner.contract.guarded;
        let (mut failed, mut taken) = (None, None);
        let decide = |object: &K| {
            let plan = match planner.plan(object) {
                Ok(plan) => plan,
                Err(error) => {
                    failed = Some(error);
                    return PatchDecision::Abort;
                }
            };
            let current = Current { status: &plan.current, is_set: object.status().is_some() };
            match guarded::operations(fields, current, &guarded::without(fields, &plan.current)) {
                operations if operations.is_empty() => PatchDecision::Keep,
                operations => {
                    taken = Some(Taken { generation: object.meta().generation, wanted: plan.wanted });
                    PatchDecision::Patch(operations)
                }
            }
        };
        let (status, source) = (Subresource::Status, Source::Copy(base));
        let outcome =
            conflict_retry::patch_at_generation(&self.api, &self.name, status, options, source, decide)
                .await?;
        if let Some(error) = failed {
            return Err(error);
        }
        match (outcome, taken) {
            (
                Outcome::Written(object) | Outcome::AlreadyDone(object) | Outcome::Unchanged(object),
                Some(taken),
            ) => self.put_back(options, planner, object, &taken).await,
            (other, _) => Ok(other),
        }
    }

    /// Writes what was taken away, unless somebody has written it, or the spec that it was decided from is no longer there. Nobody is
    /// asked again: whoever keeps what is there would find nothing to keep.
    async fn put_back<D>(
        &self,
        options: &WriteOptions,
        planner: &Planner<D>,
        base: K,
        taken: &Taken,
    ) -> Result<Outcome<K>, WriteError> {
        let fields = planner.contract.guarded;
        let mut failed = None;
        let decide = |object: &K| {
            let status = object.status().map(serde_json::to_value).transpose().and_then(canonical::<K>);
            let status = match status {
                Ok(status) => status,
                Err(error) => {
                    failed = Some(error);
                    return PatchDecision::Abort;
                }
            };
            let is_vacant = guarded::is_equal(fields, &status, &guarded::without(fields, &status));
            if !is_vacant || object.meta().generation != taken.generation {
                return PatchDecision::Keep;
            }
            let current = Current { status: &status, is_set: object.status().is_some() };
            match guarded::operations(fields, current, &taken.wanted) {
                operations if operations.is_empty() => PatchDecision::Keep,
                operations => PatchDecision::Patch(operations),
            }
        };
        let (status, source) = (Subresource::Status, Source::Copy(base));
        let outcome =
            conflict_retry::patch_at_generation(&self.api, &self.name, status, options, source, decide)
                .await?;
        failed.map_or(Ok(outcome), |error| Err(error.into()))
    }
}
