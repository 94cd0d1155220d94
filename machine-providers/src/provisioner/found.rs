//! What the lists of a pool's providers say, taken together.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use node_lifecycle::keys::PoolKey;
use node_lifecycle::supply::{FailedMachine, Machine, MachineState, Supply};
use shared_crds::NodePool;

use super::{ListFindings, Provisioner};
use crate::selected::{Listing, Selected};
use crate::{Explanation, ListedMachine, Progress, ProviderError};

/// How current the lists of a pool's machines have to be.
#[derive(Clone, Copy, Debug)]
pub enum Lists<'a> {
    /// They are made now.
    Now,
    /// Those of a moment ago will do, for a pass that changes nothing because of them. These are the machines of the pool's nodes:
    /// a list that lacks one of them, or has one without a Node, is made now.
    Recent(&'a BTreeSet<&'a str>),
}

/// The pool whose machines are asked for, and when.
#[derive(Clone, Copy)]
pub(super) struct AskedPool<'a> {
    pub(super) key: &'a PoolKey,
    /// That of the pool's spec; `None` where the pool is gone.
    pub(super) generation: Option<i64>,
    pub(super) now: Timestamp,
    pub(super) lists: Lists<'a>,
}

/// The provider that gave a list, or did not.
#[derive(Clone, Copy)]
pub(super) struct Lister<'a> {
    pub(super) reference: &'a str,
    /// Whether the pool selects another one now.
    pub(super) is_former: bool,
}

/// What all lists said.
#[derive(Default)]
pub(super) struct Found {
    pub(super) machines: Vec<Machine>,
    /// Those that have to be deleted, or asked to go again.
    pub(super) failed: Vec<FailedMachine>,
    /// What was found to be wrong.
    pub(super) findings: ListFindings,
    /// Whether a list failed, so that the machines are not all.
    pub(super) is_unknown: bool,
    /// The references of providers that the pool does not select any more, and that may have machines.
    pub(super) former: BTreeSet<String>,
    /// The machines that such providers list, by name, with the reference.
    pub(super) former_machines: BTreeMap<String, String>,
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
    /// The machines that were outdated when they were listed last, where they cannot be listed now.
    pub(super) outdated_before: BTreeSet<String>,
    /// Why no machine may be removed, where the selected provider's list failed.
    pub(super) own_unlisted: Option<String>,
}

impl Found {
    /// Takes the error of a list. One that was not repeated may be made again at `again_at`.
    pub(super) fn take_error(
        &mut self,
        lister: Lister<'_>,
        error: ProviderError,
        again_at: Option<Timestamp>,
    ) {
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
        match again_at {
            Some(at) => {
                self.findings.wait_until(at);
                self.findings.repeated.push(error);
            }
            None => self.findings.failures.push(error),
        }
    }
}

impl Provisioner {
    /// Takes a list. A machine that has failed has to be deleted, and one that is being deleted for long has to be asked to go again,
    /// unless it `has_node`.
    pub(super) fn take_list(
        &self,
        asked: AskedPool<'_>,
        lister: Lister<'_>,
        mut listing: Listing,
        has_node: &(dyn Fn(&ListedMachine) -> bool + Sync),
        found: &mut Found,
    ) {
        let of_pool = listing.take_machines(&mut found.foreign);
        // A pool that is gone selects none.
        if lister.is_former || asked.generation.is_none() {
            let names = of_pool.iter().map(|(machine, _)| machine.name.clone());
            found.former_machines.extend(names.map(|name| (name, lister.reference.to_owned())));
        }
        if lister.is_former {
            found.former.insert(lister.reference.to_owned());
        } else {
            self.failures.has_machines(asked.key, lister.reference, of_pool.len());
            let shown = || of_pool.iter().map(|(machine, _)| machine);
            let is_ending =
                |machine: &&ListedMachine| listing.duties.drains.contains(&machine.name) && has_node(machine);
            let ending = shown().filter(is_ending).map(|machine| machine.name.clone()).collect();
            self.ids.record_ending(asked.key, shown().map(|machine| &*machine.name), ending);
            found.own = listing;
        }
        found.shown.extend(of_pool.iter().map(|(machine, _)| {
            let is_settled = matches!(machine.progress, Progress::Running | Progress::Failed(_));
            (machine.name.clone(), is_settled)
        }));
        let ended: Vec<_> = (of_pool.iter().map(|(machine, _)| machine).filter(|machine| !has_node(machine)))
            .filter_map(|machine| self.find_failed(asked.key, lister.reference, machine, &mut found.findings))
            .collect();
        let shown = of_pool.iter().map(|(machine, _)| machine);
        let unending = self.unending(asked, lister.reference, shown.filter(|machine| !has_node(machine)));
        for (machine, is_marked) in of_pool {
            let has_failed = ended.iter().any(|failed| failed.name == machine.name);
            let state = self.state_of(asked.key, &machine, has_failed);
            let ListedMachine {
                name,
                progress: _,
                provider_id,
                template_hash,
                is_outdated,
                cluster: _,
                known_as,
            } = machine;
            found.machines.push(Machine {
                name,
                state,
                provider_id,
                is_marked,
                template_hash,
                is_outdated,
                known_as,
            });
        }
        found.failed.extend(ended.into_iter().chain(unending));
    }

    /// Those of a provider's machines `without_node` that have to be asked to go again. One that keeps a number of machines has an object
    /// for each of them that says so, and loses no deletion.
    fn unending<'a>(
        &self,
        asked: AskedPool<'_>,
        reference: &str,
        without_node: impl Iterator<Item = &'a ListedMachine>,
    ) -> Vec<FailedMachine> {
        if !matches!(self.known(reference), Ok(Selected::Named(_))) {
            return Vec::new();
        }
        let ending = without_node.filter(|machine| machine.progress == Progress::Deleting);
        let ending = ending.map(|machine| &*machine.name).collect();
        let due = self.unending.record_list(asked.key, reference, ending, asked.now);
        // What its failure costs the pool was counted when it was asked first.
        let again = |name| FailedMachine { name, provider: reference.to_owned(), is_new: false };
        due.into_iter().map(again).collect()
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

    /// Takes note of the machines where every list was given, and returns the provider IDs of machines that were deleted. A
    /// machine that was accepted and is in no list is a failure of its slot.
    pub(super) async fn all_listed(
        &self,
        asked: AskedPool<'_>,
        pool: Option<&NodePool>,
        found: &mut Found,
    ) -> BTreeSet<String> {
        let AskedPool { key, now, .. } = asked;
        self.foreign.record(key, &found.foreign);
        let deleted_ids = self.ids.record_list(key, &found.machines, now);
        if let Some(name) = self.failures.unlisted(key, &found.shown, now).first() {
            let why = match pool {
                Some(pool) => self.explain(key, &pool.spec.provider, name).await,
                None => None,
            };
            let words = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            let message = format!("it accepted the creation of {name} and does not list it{words}");
            let error = match why {
                Some(Explanation::NoCapacity(_)) => ProviderError::Quota(message),
                Some(Explanation::Other(_)) | None => ProviderError::Transient(message),
            };
            // Without capacity, none would come under another name either.
            let is_of_slot = error.may_be_of_one_machine();
            found.findings.slots.extend(is_of_slot.then(|| (name.clone(), error.reason())));
            found.findings.failures.push(error);
        }
        deleted_ids
    }

    /// The supply, and what was found to be wrong.
    pub(super) fn supplied(
        &self,
        asked: AskedPool<'_>,
        pool: Option<&NodePool>,
        found: Found,
        records: FromRecords,
    ) -> (Supply, ListFindings) {
        let AskedPool { key, generation, now, lists: _ } = asked;
        let FromRecords { deleted_ids, outdated_before, own_unlisted } = records;
        let Found {
            machines,
            failed,
            findings,
            is_unknown,
            former,
            former_machines,
            shown: _,
            own,
            foreign,
            unlisted,
            absent,
        } = found;
        let source = pool.map_or_else(|| Err(String::new()), |pool| self.node_source(&pool.spec.provider));
        let foreseen = self.foreseen(key, &findings, now);
        if foreseen.is_none() {
            self.failures.spec_is(key, generation);
        } else {
            // The pool's own failure will be one of this spec.
            self.failures.slots(key, |slots| slots.spec_is(generation));
        }
        let (taken, failure) = (self.failures.taken(key), foreseen.or_else(|| self.failures.last(key)));
        let mut passed_over = self.failures.slots(key, |slots| slots.passed_over(now));
        passed_over.extend(findings.slots.iter().map(|(name, _)| name.clone()));
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
            duties,
            completeness,
        } = own;
        let removals_wait = removals_wait.or(own_unlisted);
        let supply = Supply {
            source,
            machines,
            failed,
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
            duties,
            seen_ending: self.ids.seen_ending(key),
            uncertain_until,
            deleted_ids,
            outdated_before,
            former,
            former_machines,
            taken,
            passed_over,
            failure,
        };
        (supply, findings)
    }
}
