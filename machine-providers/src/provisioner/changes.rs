//! Calls that change something at a provider: a machine more, one less, another number of them.

use k8s_openapi::jiff::Timestamp;
use node_lifecycle::keys::PoolKey;
use node_lifecycle::supply::{Absence, Size};
use shared_crds::NodePool;
use shared_crds::v1alpha1::ProviderSpec;
use tokio::time::Instant;

use super::Provisioner;
use crate::calls::Call;
use crate::selected::{Selected, SizeChange, reference_of};
use crate::{Deletion, MachineRequest, ProviderError};

impl Provisioner {
    /// Requests a machine. Returns when it is expected; `None` when the provider does not know.
    ///
    /// Fails as the provider does; with [`ProviderError::Invalid`] when the spec selects none that makes machines by name; with
    /// [`ProviderError::Conflict`] when this process does not lead, and then nothing was asked; with
    /// [`ProviderError::Unreachable`] when there was no answer in time, or the lease was lost during the call; and with what other
    /// calls to the provider were answered a moment ago, where it is left alone because of that, and then nothing was asked either.
    pub async fn create(
        &self,
        request: MachineRequest<'_>,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, ProviderError> {
        self.may_change()?;
        let (key, name) = (request.pool, request.name);
        let reference = reference_of(&request.spec.provider)?;
        let Selected::Named(provider) = self.known(&reference)? else {
            return Err(ProviderError::Invalid(format!("{reference} makes no machine by name")));
        };
        let selected = Selected::Named(provider);
        self.may_ask_for_change(key, selected, now)?;
        self.failures.asking(key, &reference);
        self.lists.changing(key);
        // Another machine gets the name. That its provider knows none of it is not to be believed because the former one has ended.
        self.ids.ended(key, name);
        let begun = Instant::now();
        let created = provider.create(request, now);
        let created = self.calls.in_time(selected.callee(), Call::Create, created);
        let created = self.leading(created).await;
        match &created {
            Ok(_) => self.failures.accepted(key, name),
            Err(ProviderError::Unreachable(_)) => self.failures.unanswered(key, name, now),
            Err(_) => {}
        }
        self.change_answered(key, selected, &created, now, begun);
        created
    }

    /// Changes the number of machines of a provider that keeps one. [`ProviderError::Conflict`] also when the number is not `from`
    /// any more, and [`ProviderError::Invalid`] when the spec selects a provider that keeps none; otherwise fails as
    /// [`Self::create`] does.
    pub async fn resize(
        &self,
        key: &PoolKey,
        spec: &ProviderSpec,
        from: Size,
        change: SizeChange<'_>,
        now: Timestamp,
    ) -> Result<(), ProviderError> {
        self.may_change()?;
        let reference = reference_of(spec)?;
        let Selected::Sized(provider, name) = self.known(&reference)? else {
            return Err(ProviderError::Invalid(format!("{reference} keeps no number of machines")));
        };
        let selected = Selected::Sized(provider, name);
        self.may_ask_for_change(key, selected, now)?;
        self.failures.asking(key, &reference);
        self.lists.changing(key);
        let begun = Instant::now();
        let (call, changed) = match change {
            SizeChange::Grow(by) => (Call::Grow, provider.grow(key, name, from, by)),
            SizeChange::Without(machines) => {
                for machine in machines {
                    self.ids.deleted(key, machine);
                }
                (Call::Shrink, provider.shrink(key, name, from, machines))
            }
            SizeChange::Keep(machine) => (Call::Keep, provider.keep(key, machine)),
        };
        let changed = self.leading(self.calls.in_time(selected.callee(), call, changed)).await;
        self.change_answered(key, selected, &changed, now, begun);
        changed
    }

    /// Deletes the machine `name` of the pool, which is `pool` unless it is gone. `made_by` is the reference of its
    /// provider, if that is known. That it is gone is believed where `absence` says so, or where this process has seen its
    /// deletion begin; otherwise that is [`ProviderError::Unreachable`]. A machine that carries another cluster is left alone:
    /// [`ProviderError::Transient`]. The other errors are those of [`Self::create`].
    pub async fn delete(
        &self,
        key: &PoolKey,
        pool: Option<&NodePool>,
        made_by: Option<&str>,
        name: &str,
        absence: &Absence,
        now: Timestamp,
    ) -> Result<Deletion, ProviderError> {
        let deletion = self.delete_unchecked(key, pool, made_by, name, now).await?;
        match (deletion, absence) {
            (Deletion::Gone, Absence::Doubtful(why)) if !self.ids.has_begun_to_end(key, name) => {
                Err(ProviderError::Unreachable(format!("it says that there is no machine {name}, but {why}")))
            }
            // The doubt stays, so that what was seen is needed again if its Node cannot be released now.
            (Deletion::Gone, Absence::Doubtful(_)) => Ok(Deletion::Gone),
            (Deletion::Gone, Absence::Credible) => {
                self.ids.gone(key, name);
                Ok(Deletion::Gone)
            }
            (begun, _) => {
                self.ids.begins_to_end(key, name);
                Ok(begun)
            }
        }
    }

    /// Records that the Node of the machine `name` is kept no longer.
    pub fn node_released(&self, key: &PoolKey, name: &str) {
        self.ids.ended(key, name);
    }

    /// Deletes the machine `name`, which has no Node, at the provider that lists it and that the pool does not select any more:
    /// `reference`. Fails as [`Self::delete`] does.
    pub async fn delete_at_former(
        &self,
        key: &PoolKey,
        reference: &str,
        name: &str,
        now: Timestamp,
    ) -> Result<Deletion, ProviderError> {
        self.ids.deleted(key, name);
        self.delete(key, None, Some(reference), name, &Absence::Credible, now).await
    }

    async fn delete_unchecked(
        &self,
        key: &PoolKey,
        pool: Option<&NodePool>,
        made_by: Option<&str>,
        name: &str,
        now: Timestamp,
    ) -> Result<Deletion, ProviderError> {
        self.may_change()?;
        self.foreign.may_delete(key, name)?;
        self.failures.unwanted(key, name);
        self.lists.changing(key);
        if let Some(reference) = made_by {
            return self.delete_at(key, reference, name, now).await;
        }
        if let Some(pool) = pool {
            // Without its provider it is not known whether there is a machine, so its Node is kept.
            self.known(&reference_of(&pool.spec.provider)?)?;
        }
        self.ids.deleted(key, name);
        // Each is asked, also if another one fails or says that the machine is none of its own: one of them has it.
        let (mut deletion, mut failure) = (Deletion::Gone, None);
        for reference in self.responsible(key, pool) {
            match self.delete_at(key, &reference, name, now).await {
                Ok(answer) => deletion = deletion.max(answer),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match failure {
            // It may be at the one that failed.
            Some(error) if deletion == Deletion::Gone => Err(error),
            _ => Ok(deletion),
        }
    }

    /// Deletes the machine `name` at the provider that `reference` means, unless that is left alone.
    pub(super) async fn delete_at(
        &self,
        key: &PoolKey,
        reference: &str,
        name: &str,
        now: Timestamp,
    ) -> Result<Deletion, ProviderError> {
        let provider = self.known(reference)?;
        self.may_ask_for_change(key, provider, now)?;
        let begun = Instant::now();
        let deleted = self.leading(provider.delete(&self.calls, key, name)).await;
        self.change_answered(key, provider, &deleted, now, begun);
        deleted
    }
}
