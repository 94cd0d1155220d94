//! Machines that will never run: each is deleted, and its slot is passed over for a while.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use tokio::time::Instant;

use super::Provisioner;
use super::found::AskedPool;
use crate::selected::Selected;
use crate::{Deletion, ListedMachine, Progress, ProviderError};

/// No further deletion starts after this time. The list shows what is left once more.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Number of concurrent deletions.
const PARALLEL: usize = 4;

impl Provisioner {
    /// Deletes the machines `failed`, and returns the names of those that are gone. A failure that may be about one machine
    /// is added to `failures` once: if the machine stays, or cannot be deleted, that costs the pool the slot and no more.
    pub(super) async fn end_failed(
        &self,
        provider: Selected<'_>,
        asked: AskedPool<'_>,
        failed: &[ListedMachine],
        failures: &mut Vec<ProviderError>,
    ) -> BTreeSet<String> {
        let AskedPool { key, generation, now } = asked;
        let mut new = BTreeSet::new();
        for machine in failed {
            let Progress::Failed(error) = &machine.progress else { continue };
            let is_new = !error.may_be_of_one_machine()
                || self.failures.slots(key, |slots| {
                    slots.listed_as_failed(&machine.name, generation, error.reason(), now)
                });
            if is_new {
                new.insert(&*machine.name);
                failures.push(error.clone());
            }
        }
        let deadline = Instant::now() + TIME_LIMIT;
        let delete = |name: String| async move {
            if Instant::now() >= deadline {
                return (name, Ok(Deletion::Started));
            }
            let deleted = match self.may_change() {
                Ok(()) => self.leading(provider.delete(key, &name)).await,
                Err(error) => Err(error),
            };
            (name, deleted)
        };
        let names: Vec<String> = failed.iter().map(|machine| machine.name.clone()).collect();
        let calls: Vec<_> = names.into_iter().map(delete).collect();
        let mut calls = stream::iter(calls).buffer_unordered(PARALLEL);
        let mut gone = BTreeSet::new();
        while let Some((name, deleted)) = calls.next().await {
            match deleted {
                Ok(Deletion::Gone) => {
                    gone.insert(name);
                }
                Ok(Deletion::Started | Deletion::HandedOver) | Err(ProviderError::Conflict) => {}
                Err(error) if error.may_be_of_one_machine() && !new.contains(&*name) => {}
                Err(error) => failures.push(error),
            }
        }
        gone
    }
}
