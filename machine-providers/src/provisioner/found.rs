//! What the lists of a pool's providers say, taken together.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use shared_crds::NodePool;

use super::Provisioner;
use crate::keys::PoolKey;
use crate::selected::{Listing, Selected};
use crate::supply::{Machine, MachineState, Supply};
use crate::{ListedMachine, Progress, ProviderError};

/// The pool whose machines are asked for, and when.
#[derive(Clone, Copy)]
pub(super) struct AskedPool<'a> {
    pub(super) key: &'a PoolKey,
    /// That of the pool's spec; `None` where the pool is gone.
    pub(super) generation: Option<i64>,
    pub(super) now: Timestamp,
}

/// The provider that gave a list, or did not.
#[derive(Clone, Copy)]
pub(super) struct Lister<'a> {
    pub(super) provider: Selected<'a>,
    pub(super) reference: &'a str,
    /// Whether the pool selects another one now.
    pub(super) is_former: bool,
}

/// What all lists said.
#[derive(Default)]
pub(super) struct Found {
    pub(super) machines: Vec<Machine>,
    pub(super) failures: Vec<ProviderError>,
    /// Whether a list failed, so that the machines are not all.
    pub(super) is_unknown: bool,
    /// The references of providers that the pool does not select any more, and that may have machines.
    pub(super) former: BTreeSet<String>,
    /// Every listed machine, and whether its creation has ended.
    pub(super) shown: BTreeMap<String, bool>,
    /// What the selected provider said beside the machines.
    pub(super) own: Listing,
    pub(super) foreign: BTreeMap<String, String>,
    /// Why a list failed, by the provider's reference.
    pub(super) unlisted: BTreeMap<String, String>,
    /// Why there is no provider, by its reference.
    pub(super) absent: BTreeMap<String, String>,
}

/// What is known beside the lists.
pub(super) struct FromRecords {
    /// Provider IDs of machines that were deleted.
    pub(super) deleted_ids: BTreeSet<String>,
    /// Why no machine may be removed, where the selected provider's list failed.
    pub(super) own_unlisted: Option<String>,
}

impl Found {
    /// Takes the error of a list.
    pub(super) fn take_error(&mut self, lister: Lister<'_>, error: ProviderError) {
        let reference = lister.reference.to_owned();
        if matches!(error, ProviderError::Absent(_)) {
            // Then there are no machines.
            self.absent.insert(reference, error.to_string());
        } else {
            self.is_unknown = true;
            self.unlisted.insert(reference.clone(), error.to_string());
            if lister.is_former {
                self.former.insert(reference);
            }
        }
        self.failures.push(error);
    }
}

impl Provisioner {
    /// Takes a list. A machine that has failed is deleted, unless it `has_node`.
    pub(super) async fn take_list(
        &self,
        asked: AskedPool<'_>,
        lister: Lister<'_>,
        mut listing: Listing,
        has_node: &(dyn Fn(&ListedMachine) -> bool + Sync),
        found: &mut Found,
    ) {
        let of_pool = listing.take_machines(&mut found.foreign);
        if lister.is_former {
            found.former.insert(lister.reference.to_owned());
        } else {
            self.failures.has_machines(asked.key, lister.reference, of_pool.len());
            found.own = listing;
        }
        found.shown.extend(of_pool.iter().map(|(machine, _)| {
            let is_settled = matches!(machine.progress, Progress::Running | Progress::Failed(_));
            (machine.name.clone(), is_settled)
        }));
        let failed = of_pool.iter().map(|(machine, _)| machine);
        let failed: Vec<_> = failed
            .filter(|it| matches!(it.progress, Progress::Failed(_)) && !has_node(it))
            .cloned()
            .collect();
        let gone = self.end_failed(lister.provider, asked, &failed, &mut found.failures).await;
        for (machine, is_marked) in of_pool {
            if matches!(machine.progress, Progress::Failed(_)) && gone.contains(&machine.name) {
                continue;
            }
            let has_failed = failed.iter().any(|failed| failed.name == machine.name);
            let state = self.state_of(asked.key, &machine, has_failed);
            let ListedMachine { name, provider_id, progress: _, template_hash, cluster: _, known_as } =
                machine;
            found.machines.push(Machine { name, state, provider_id, is_marked, template_hash, known_as });
        }
    }

    /// The state of a machine that is there. One that `has_failed` is being deleted.
    fn state_of(&self, key: &PoolKey, machine: &ListedMachine, has_failed: bool) -> MachineState {
        match &machine.progress {
            Progress::Failed(_) if has_failed => MachineState::Deleting,
            Progress::Failed(_) | Progress::Running => {
                self.failures.slots(key, |slots| slots.runs(&machine.name));
                MachineState::Running
            }
            Progress::Starting(until) => MachineState::Starting { until: *until },
            Progress::Deleting => MachineState::Deleting,
        }
    }

    /// Records what was found where every list was given, and returns the provider IDs of machines that were deleted. A
    /// machine that was accepted and is in no list is a failure of its slot.
    pub(super) async fn all_listed(
        &self,
        asked: AskedPool<'_>,
        pool: Option<&NodePool>,
        found: &mut Found,
    ) -> BTreeSet<String> {
        let AskedPool { key, generation, now } = asked;
        self.foreign.record(key, &found.foreign);
        let deleted_ids = self.ids.record_list(key, &found.machines, now);
        if let Some(name) = self.failures.unlisted(key, &found.shown, now).first() {
            let why = match pool {
                Some(pool) => self.explain(key, &pool.spec.provider, name).await,
                None => None,
            };
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            let message = format!("it accepted the creation of {name} and does not list it{why}");
            let error = ProviderError::Transient(message);
            self.slot_failed(key, generation, name, error.reason(), now);
            found.failures.push(error);
        }
        deleted_ids
    }

    /// The supply, and the errors that were met on the way.
    pub(super) fn supplied(
        &self,
        asked: AskedPool<'_>,
        pool: Option<&NodePool>,
        found: Found,
        records: FromRecords,
    ) -> (Supply, Vec<ProviderError>) {
        let AskedPool { key, generation, now } = asked;
        let FromRecords { deleted_ids, own_unlisted } = records;
        let Found { machines, failures, is_unknown, former, shown: _, own, foreign, unlisted, absent } =
            found;
        let source = pool.map_or_else(|| Err(String::new()), |pool| self.node_source(&pool.spec.provider));
        self.failures.spec_is(key, generation);
        let (taken, failure) = (self.failures.taken(key), self.failures.last(key));
        let passed_over = self.failures.slots(key, |slots| slots.passed_over(now));
        let uncertain = [self.failures.uncertain_until(key), self.ids.uncertain_until(key, now)];
        let uncertain_until = uncertain.into_iter().flatten().max();
        let Listing {
            machines: _,
            foreign: _,
            size,
            size_writer,
            capacity,
            traits,
            trouble,
            removals_wait,
            rolling,
            completeness,
        } = own;
        let removals_wait = removals_wait.or(own_unlisted);
        let supply = Supply {
            source,
            machines,
            foreign,
            traits,
            trouble,
            is_unknown,
            size,
            size_writer,
            capacity,
            completeness,
            unlisted,
            absent,
            removals_wait,
            rolling,
            uncertain_until,
            deleted_ids,
            former,
            taken,
            passed_over,
            failure,
        };
        (supply, failures)
    }
}
