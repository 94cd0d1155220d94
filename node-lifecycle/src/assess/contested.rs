//! Which writer last set the number of machines that a provider keeps, the operator or another one, and what follows.
//!
//! `status.provisioning.machines` is the number that the operator wrote last, or found at first and accepted. Any other
//! number is another writer's, unless the provider names the operator as its writer. `docs/adr/0021-contested-machines.md`
//! has the rules.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::NodePool;
use shared_crds::names::{AUTOSCALER_OPERATOR, NODEPOOL_OPERATOR};
use shared_crds::v1alpha1::{ContestedMachines, OnContested, ProvisioningStatus};

use crate::Supply;

/// How long another writer's number is kept with `Yield`, and remembered with `Reclaim`: as long as the Autoscaler keeps
/// one in `spec.replicas`.
const HOLD: SignedDuration = SignedDuration::from_secs(600);

/// The last writer of the number of machines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachinesWriter {
    /// What `status.provisioning.machines` should be, apart from this pass's own write; `None` where the provider keeps no
    /// number, or it is not known.
    pub written: Option<i32>,
    /// Another writer's number; `None` if there is none.
    pub contest: Option<MachinesContest>,
}

/// A number of machines that another writer set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachinesContest {
    /// Which writer set which number, and when that was seen.
    pub record: ContestedMachines,
    /// What happens with it.
    pub response: OnContested,
    /// Whether this pass found it.
    pub is_new: bool,
}

impl MachinesContest {
    /// When it stops being kept or remembered.
    pub fn until(&self) -> Timestamp {
        until(&self.record)
    }

    /// The writer, for messages.
    pub fn writer(&self) -> &str {
        if self.record.writer.is_empty() { "another writer" } else { &self.record.writer }
    }
}

impl MachinesWriter {
    /// What is known at `now` of the number that the provider of `pool` keeps.
    pub fn of(pool: &NodePool, supply: &Supply, now: Timestamp) -> Self {
        let empty = ProvisioningStatus::default();
        let status = pool.status.as_ref();
        let before = status.and_then(|status| status.provisioning.as_ref()).unwrap_or(&empty);
        let (Some(size), Some(written)) = (supply.size, before.machines) else {
            return Self { written: supply.size.map(|size| size.replicas), contest: None };
        };
        let response =
            status.and_then(|status| status.autoscaling.as_ref()?.on_contested).unwrap_or_default();
        let recorded = before.contested.clone().map(|record| not_to_come(record, now));
        let is_over = |record: &ContestedMachines| until(record) <= now || is_set_since(pool, record);
        let contest = |record: ContestedMachines, is_new| Some(MachinesContest { record, response, is_new });
        if supply.size_writer.as_deref() == Some(NODEPOOL_OPERATOR) {
            // Also the nearest bound of another writer's number is written by the operator.
            let remembered = recorded.filter(|record| !is_over(record));
            return Self {
                written: Some(size.replicas),
                contest: remembered.and_then(|record| contest(record, false)),
            };
        }
        if size.replicas == written {
            return Self { written: Some(written), contest: None };
        }
        let known = recorded.filter(|known| known.machines == size.replicas);
        match (known, response) {
            // It was kept for long enough, or a person has set the pool's own number since: that counts from now on.
            (Some(known), OnContested::Yield) if is_over(&known) => {
                Self { written: Some(size.replicas), contest: None }
            }
            (Some(known), _) => Self { written: Some(written), contest: contest(known, false) },
            (None, _) => {
                let record = ContestedMachines {
                    machines: size.replicas.max(0),
                    writer: supply.size_writer.clone().unwrap_or_default().chars().take(128).collect(),
                    since_time: Time(whole_second(now)),
                    pool_replicas: pool.spec.replicas,
                };
                Self { written: Some(written), contest: contest(record, true) }
            }
        }
    }

    /// Another writer's number, while it is kept.
    pub fn held(&self) -> Option<&MachinesContest> {
        self.contest.as_ref().filter(|contest| contest.response == OnContested::Yield)
    }
}

fn until(record: &ContestedMachines) -> Timestamp {
    record.since_time.0.checked_add(HOLD).unwrap_or(Timestamp::MAX)
}

/// The record, which counts from `now` on where it was written before the clock was set back: another writer's number is kept for
/// no longer than [`HOLD`] then either.
fn not_to_come(record: ContestedMachines, now: Timestamp) -> ContestedMachines {
    let since_time = Time(record.since_time.0.min(whole_second(now)));
    ContestedMachines { since_time, ..record }
}

/// Whether a person has set the pool's own number since, or another writer that is not an operator. The API server records
/// no time for a write through `/scale`.
fn is_set_since(pool: &NodePool, record: &ContestedMachines) -> bool {
    let mut writers = pool.replicas_writers().filter_map(|entry| entry.manager.as_deref()).peekable();
    let is_an_operators = if writers.peek().is_none() {
        pool.status.as_ref().is_some_and(|status| status.autoscaling.is_some())
    } else {
        writers.any(|manager| [AUTOSCALER_OPERATOR, NODEPOOL_OPERATOR].contains(&manager))
    };
    pool.spec.replicas != record.pool_replicas && !is_an_operators
}

/// The API stores whole seconds.
fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
#[path = "contested_tests.rs"]
mod tests;
