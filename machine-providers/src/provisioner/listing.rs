//! One list of a pass: one of a moment ago where that will do, and none where the last one has just failed.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use shared_crds::v1alpha1::ProviderSpec;
use tokio::time::Instant;

use super::Provisioner;
use super::found::{AskedPool, Lister, Lists};
use crate::pauses::AskedFor;
use crate::selected::{Listing, Selected};
use crate::{ListedMachine, ProviderError};

/// Why there is no list.
pub(super) struct NoList {
    pub(super) error: ProviderError,
    /// When it may be made again; `None` where it was made just now and failed.
    pub(super) again_at: Option<Timestamp>,
}

impl From<ProviderError> for NoList {
    fn from(error: ProviderError) -> Self {
        Self { error, again_at: None }
    }
}

impl Provisioner {
    /// The provider's list of a moment ago, if that will do, and when it will not do any more. That a machine is missing is never
    /// believed of such a list, and it is not used while machines may still come or go whose requests were not answered.
    pub(super) fn recent_list(
        &self,
        asked: AskedPool<'_>,
        lister: Lister<'_>,
        has_node: &(dyn Fn(&ListedMachine) -> bool + Sync),
    ) -> Option<(Listing, Timestamp)> {
        let AskedPool { key, generation: _, now, lists: Lists::Recent(of_nodes) } = asked else {
            return None;
        };
        let is_uncertain =
            self.failures.uncertain_until(key).is_some() || self.ids.uncertain_until(key, now).is_some();
        if lister.is_former || is_uncertain {
            return None;
        }
        let (listing, end) = self.lists.good(key, lister.reference, now)?;
        let shown: BTreeSet<&str> = listing.machines.iter().map(|(machine, _)| &*machine.name).collect();
        let is_as_expected =
            of_nodes.is_subset(&shown) && listing.machines.iter().all(|(machine, _)| has_node(machine));
        is_as_expected.then_some((listing, end))
    }

    /// The provider's list, made now unless the last one has just failed, or the provider is left alone because of what it answered
    /// to other pools.
    pub(super) async fn list_now(
        &self,
        asked: AskedPool<'_>,
        lister: Lister<'_>,
        provider: Selected<'_>,
        spec: Option<&ProviderSpec>,
    ) -> Result<Listing, NoList> {
        let (AskedPool { key, now, .. }, reference) = (asked, lister.reference);
        if provider.is_local() {
            return Ok(provider.list(&self.calls, &self.cluster, key, spec, now).await?);
        }
        if let Some(failed) = self.lists.failure(key, reference, now) {
            return Err(NoList { error: failed.error, again_at: Some(failed.until) });
        }
        if let Some(paused) = self.paused(provider, AskedFor::List, now) {
            if paused.error.retry_after().is_some() && !lister.is_former {
                self.failures.not_before(key, paused.until);
            }
            return Err(NoList { again_at: Some(paused.until), error: paused.into_error(now) });
        }
        let begun = Instant::now();
        let answer = provider.list(&self.calls, &self.cluster, key, spec, now).await;
        // A call that was not answered took long, and the pause comes after it.
        let ended = now.checked_add(begun.elapsed()).unwrap_or(now);
        self.pauses.answered(provider.identity(), AskedFor::List, key, answer.as_ref().err(), ended);
        match &answer {
            Ok(listing) => self.lists.listed(key, reference, listing, !lister.is_former, now),
            Err(error) => {
                self.lists.failed(key, reference, error, ended);
                if let Some(after) = error.retry_after().filter(|_| !lister.is_former) {
                    self.failures.not_before(key, ended.checked_add(after).unwrap_or(ended));
                }
            }
        }
        Ok(answer?)
    }
}
