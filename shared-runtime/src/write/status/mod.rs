//! Writes of the owned part of a status: one meaning, four strategies.

use std::fmt::Debug;
use std::sync::Arc;

use conflict_retry::{Outcome, PatchDecision, Source, Subresource, UpdateDecision, WriteOptions};
use kube::core::NamespaceResourceScope;
use kube::core::object::HasStatus;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use shared_crds::ownership::GuardedField;
use shared_crds::v1alpha1::{NodePoolAutoscalerStatus, NodePoolStatus};
use shared_crds::{NodePool, NodePoolAutoscaler};
use tracing::{debug, instrument};

use super::guarded::{self, Current};
use super::owned::Contract;
use super::{WriteStrategy, Writer, WriterError};
use crate::crds::MissingFields;
use crate::freshness::ChangeKind;

/// What a kind needs so that the writer can write its status.
trait StatusObject:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + HasStatus<Status: Default + Serialize + DeserializeOwned>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl StatusObject for NodePool {}
impl StatusObject for NodePoolAutoscaler {}

impl Writer {
    /// Sets the operator's part of a pool's status to that of the status which `decide` returns. `decide` is called
    /// with `cached` first, and again with the fresh object after every conflict; it must decide from its argument. An
    /// owned field or condition that it leaves out is removed. What it does not own it leaves out, or copies from its
    /// argument; anything else is refused ([`NotOwned`](super::NotOwned)). Nothing is sent if the status is equal.
    pub async fn node_pool_status(
        &self,
        cached: &NodePool,
        decide: impl FnMut(&NodePool) -> NodePoolStatus + Send,
    ) -> Result<Outcome<NodePool>, WriterError> {
        self.status(cached, Contract::node_pool(self.owner), decide).await
    }

    /// Sets the status of a `NodePoolAutoscaler` to the result of `decide`; see [`Self::node_pool_status`].
    pub async fn autoscaler_status(
        &self,
        cached: &NodePoolAutoscaler,
        decide: impl FnMut(&NodePoolAutoscaler) -> NodePoolAutoscalerStatus + Send,
    ) -> Result<Outcome<NodePoolAutoscaler>, WriterError> {
        self.status(cached, Contract::autoscaler(self.owner), decide).await
    }

    #[instrument(skip_all, fields(kind = %K::kind(&()), name = cached.meta().name, strategy = %self.strategy))]
    async fn status<K: StatusObject>(
        &self,
        cached: &K,
        contract: Contract,
        decide: impl FnMut(&K) -> K::Status + Send,
    ) -> Result<Outcome<K>, WriterError> {
        let options = self.begin()?;
        let target = Target::of(self, cached)?;
        let missing = self.served.missing(&format!("{}.{}", K::plural(&()), K::group(&())));
        let decision = StatusDecision { contract, missing, decide };
        let outcome = target.write(self, &options, decision, cached).await;
        if outcome.as_ref().is_err_and(WriterError::is_undeclared_field) {
            self.served.doubt();
        }
        let outcome = outcome?;
        if let Outcome::Written(object) | Outcome::AlreadyDone(object) = &outcome {
            self.write_tracker.wrote(object, ChangeKind::Updated);
        }
        Ok(outcome)
    }
}

/// The current and the wanted status.
struct StatusChange {
    current: Value,
    wanted: Value,
    guarded: &'static [GuardedField],
}

impl StatusChange {
    fn is_met(&self) -> bool {
        guarded::is_equal(self.guarded, &self.current, &self.wanted)
    }
}

/// Calls the operator's `decide` and checks its result.
struct StatusDecision<D> {
    contract: Contract,
    /// What the installed definition lacks: left out on both sides, because the API server would not keep it.
    missing: Arc<MissingFields>,
    decide: D,
}

impl<D> StatusDecision<D> {
    fn change<K: StatusObject>(&mut self, object: &K) -> Result<StatusChange, WriterError>
    where
        D: FnMut(&K) -> K::Status,
    {
        let decided = (self.decide)(object);
        let current = json_of(object)?;
        let owned = self.contract.owned(&current, &decided)?;
        let wanted = self.missing.without(self.contract.splice(&current, owned));
        let current = self.missing.without(current);
        Ok(StatusChange { current, wanted, guarded: self.contract.guarded })
    }

    /// The operations that set the guarded fields of `object` to those of a change made from it.
    fn guarded_operations<K: StatusObject>(&self, change: &StatusChange, object: &K) -> Vec<Value> {
        let current = Current { status: &change.current, is_set: object.status().is_some() };
        guarded::operations(self.contract.guarded, current, &change.wanted)
    }
}

/// The status of `object` as its type serialises it: omitted and unset fields look alike, so that two equal statuses
/// are equal values.
fn json_of<K: StatusObject>(object: &K) -> Result<Value, serde_json::Error> {
    object.status().map_or_else(|| serde_json::to_value(K::Status::default()), serde_json::to_value)
}

fn with_status<K: StatusObject>(object: &mut K, status: Value) -> Result<(), serde_json::Error> {
    *object.status_mut() = Some(serde_json::from_value(status)?);
    Ok(())
}

/// The object whose status is written.
struct Target<K> {
    api: Api<K>,
    namespace: String,
    name: String,
}

impl<K: StatusObject> Target<K> {
    fn of(writer: &Writer, cached: &K) -> Result<Self, WriterError> {
        let meta = cached.meta();
        let namespace = meta.namespace.clone().ok_or(WriterError::Unnamed("namespace"))?;
        let name = meta.name.clone().ok_or(WriterError::Unnamed("name"))?;
        Ok(Self { api: Api::namespaced(writer.client.clone(), &namespace), namespace, name })
    }

    async fn write<D>(
        &self,
        writer: &Writer,
        options: &WriteOptions,
        mut decision: StatusDecision<D>,
        cached: &K,
    ) -> Result<Outcome<K>, WriterError>
    where
        D: FnMut(&K) -> K::Status + Send,
    {
        let change = decision.change(cached)?;
        if change.is_met() {
            return Ok(Outcome::Unchanged(cached.clone()));
        }
        match writer.strategy {
            WriteStrategy::Lazy => self.put_cached(options, change, cached).await,
            WriteStrategy::Retry => self.put_live(options, decision).await,
            WriteStrategy::Patch => self.patch(options, decision, cached.clone()).await,
            WriteStrategy::Guarded => self.guarded(writer, options, decision, change, cached).await,
        }
    }

    /// `lazy`: the whole cached object, once.
    async fn put_cached(
        &self,
        options: &WriteOptions,
        change: StatusChange,
        cached: &K,
    ) -> Result<Outcome<K>, WriterError> {
        let mut object = cached.clone();
        // The cache keeps at most some of the entries, and the API server would treat those that are sent as all of
        // them.
        object.meta_mut().managed_fields = None;
        with_status(&mut object, change.wanted)?;
        let status = Subresource::Status;
        Ok(conflict_retry::once::put(&self.api, &self.name, status, options, &object).await?)
    }

    /// `retry`: live read, change, PUT, until it succeeds.
    async fn put_live<D>(
        &self,
        options: &WriteOptions,
        mut decision: StatusDecision<D>,
    ) -> Result<Outcome<K>, WriterError>
    where
        D: FnMut(&K) -> K::Status + Send,
    {
        let mutate = |object: &mut K| change(&mut decision, object);
        conflict_retry::update_status(&self.api, &self.name, mutate).put().with(options).outcome().await
    }

    /// `patch`: a merge patch at the version that it was computed from, until it succeeds.
    async fn patch<D>(
        &self,
        options: &WriteOptions,
        mut decision: StatusDecision<D>,
        base: K,
    ) -> Result<Outcome<K>, WriterError>
    where
        D: FnMut(&K) -> K::Status + Send,
    {
        let decide = |object: &K| {
            let change = decision.change(object)?;
            let patch = (!change.is_met()).then(|| Contract::merge_patch(&change.current, &change.wanted));
            Ok::<_, WriterError>(patch)
        };
        conflict_retry::merge_patch(&self.api, &self.name, decide)
            .on(Subresource::Status)
            .with(options)
            .from(Source::Copy(base))
            .outcome()
            .await
    }

    /// `guarded`: a patch with tests of the observed state for fields that must not be written late, server-side apply
    /// for the rest.
    async fn guarded<D>(
        &self,
        writer: &Writer,
        options: &WriteOptions,
        mut decision: StatusDecision<D>,
        change: StatusChange,
        cached: &K,
    ) -> Result<Outcome<K>, WriterError>
    where
        D: FnMut(&K) -> K::Status + Send,
    {
        if decision.guarded_operations(&change, cached).is_empty() {
            return self.apply(options, decision, &change, cached).await;
        }
        let patched = self.patch_guarded(writer, options, &mut decision, cached.clone()).await?;
        let (base, patched) = match patched {
            Outcome::Written(object) | Outcome::AlreadyDone(object) => (object, true),
            Outcome::Unchanged(object) => (object, false),
            other => return Ok(other),
        };
        let change = decision.change(&base)?;
        if decision.contract.part(&change.current) != decision.contract.part(&change.wanted) {
            return self.apply(options, decision, &change, &base).await;
        }
        Ok(if patched { Outcome::Written(base) } else { Outcome::Unchanged(base) })
    }

    /// Writes the guarded fields where they differ, with the observed generation and values as preconditions. The writer
    /// records it at once: what follows in the same pass may fail, and the next pass must not decide from a cache that does
    /// not show it yet.
    async fn patch_guarded<D>(
        &self,
        writer: &Writer,
        options: &WriteOptions,
        decision: &mut StatusDecision<D>,
        base: K,
    ) -> Result<Outcome<K>, WriterError>
    where
        D: FnMut(&K) -> K::Status + Send,
    {
        let decide = |object: &K| {
            let change = decision.change(object)?;
            let operations = decision.guarded_operations(&change, object);
            // Without operations there is nothing to change.
            let is_met = operations.is_empty();
            Ok::<_, WriterError>(if is_met { PatchDecision::Keep } else { PatchDecision::Patch(operations) })
        };
        let outcome = conflict_retry::patch_at_generation(&self.api, &self.name, decide)
            .on(Subresource::Status)
            .with(options)
            .from(Source::Copy(base))
            .outcome()
            .await?;
        if let Outcome::Written(object) | Outcome::AlreadyDone(object) = &outcome {
            writer.write_tracker.wrote(object, ChangeKind::Updated);
        }
        Ok(outcome)
    }

    /// Server-side apply of the owned part.
    ///
    /// `force` is correct here: by the contract these fields are this operator's, so any other writer of one (a user
    /// with `kubectl edit --subresource=status`) has to give way, and must not be able to stop the operator from
    /// reporting.
    async fn apply<D>(
        &self,
        options: &WriteOptions,
        decision: StatusDecision<D>,
        change: &StatusChange,
        cached: &K,
    ) -> Result<Outcome<K>, WriterError>
    where
        D: FnMut(&K) -> K::Status + Send,
    {
        let body = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": { "name": self.name, "namespace": self.namespace },
            "status": decision.contract.part(&change.wanted),
        });
        let forced = options.clone().with_force(true);
        let outcome =
            conflict_retry::apply_status(&self.api, &self.name, &body).with(&forced).outcome().await?;
        let (Outcome::Written(stored) | Outcome::AlreadyDone(stored)) = outcome else {
            return Ok(outcome);
        };
        if stored.meta().uid != cached.meta().uid {
            // The server accepts no UID as a precondition here. The successor's own reconcile corrects what was written
            // to it.
            debug!("the object was replaced by another of the same name");
            return Ok(Outcome::Gone);
        }
        // Compared with the requested status, not with a new decision: later changes are handled by the next reconcile.
        let kept = json_of(&stored)?;
        if decision.contract.part(&kept) == decision.contract.part(&change.wanted) {
            return Ok(Outcome::Written(stored));
        }
        // A dropped field that we own is still present: another manager's entry holds it too, for instance this
        // operator's own from the time it ran with another strategy. Only a write that names the field removes it.
        debug!("an owned field has a second owner, removing it by patch");
        match self.patch(options, decision, stored).await? {
            Outcome::Unchanged(stored) => Ok(Outcome::Written(stored)),
            other => Ok(other),
        }
    }
}

/// Changes `object` as planned.
fn change<K, D>(decision: &mut StatusDecision<D>, object: &mut K) -> Result<UpdateDecision, WriterError>
where
    K: StatusObject,
    D: FnMut(&K) -> K::Status,
{
    let change = decision.change(object)?;
    if change.is_met() {
        return Ok(UpdateDecision::Keep);
    }
    with_status(object, change.wanted)?;
    Ok(UpdateDecision::Write)
}

#[cfg(test)]
mod tests;
