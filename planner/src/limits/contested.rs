//! Who last said how many nodes a pool should have: the Autoscaler or somebody else; and what follows from that.
//!
//! `status.autoscaling.writtenReplicas` is the number that the Autoscaler wrote last, or found at first and accepted.
//! Another number in `spec.replicas` is somebody else's, unless it can be seen to be the Autoscaler's own write that no
//! status says yet. `docs/adr/0013-contested-replicas.md` has the rules.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use k8s_openapi::jiff::Timestamp;
use shared_crds::NodePool;
use shared_crds::names::{AUTOSCALER_OPERATOR, NODEPOOL_OPERATOR};
use shared_crds::v1alpha1::{AutoscalingStatus, ContestedReplicas, OnContested};

use crate::input::selection::AutoscalerAssignment;
use crate::time::{later, whole_second};

/// How long somebody else's number is kept with `Yield`, and how long it is remembered with `Reclaim`. As long as a node
/// has to be unneeded by default before it goes.
pub const HOLD_SECONDS: i32 = 600;

/// What is known of the last writer of a pool's replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicasWriter {
    /// What `status.autoscaling.writtenReplicas` should be, this pass's own write apart.
    pub written: Option<i32>,
    /// How much an own write that no status says yet has changed, and when.
    pub unrecorded: Option<(i32, Timestamp)>,
    /// Somebody else's number.
    pub contest: Option<Contest>,
}

/// Somebody else's number of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contest {
    /// Who wrote what, and since when that is known.
    pub record: ContestedReplicas,
    /// What becomes of it.
    pub course: ContestResponse,
    /// Whether it was not known before this pass.
    pub is_new: bool,
}

/// What becomes of somebody else's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContestResponse {
    /// It is kept.
    Yield,
    /// It is being written over.
    Reclaim,
    /// It has been written over, and is still remembered.
    Reclaimed,
}

impl Contest {
    /// When it is kept, or remembered, no longer.
    pub fn until(&self) -> Timestamp {
        later(self.record.since_time.0, HOLD_SECONDS)
    }

    /// Who wrote it, for messages.
    pub fn writer(&self) -> &str {
        if self.record.writer.is_empty() { "another writer" } else { &self.record.writer }
    }
}

impl ReplicasWriter {
    /// What is known about `pool` at `now`, with what `status` remembers. A pool that the Autoscaler does not act on is
    /// nobody's to contest.
    pub fn of(
        pool: &NodePool,
        status: Option<&AutoscalingStatus>,
        standing: &AutoscalerAssignment,
        now: Timestamp,
    ) -> Self {
        let AutoscalerAssignment::Planned(autoscaler) = standing else { return Self::default() };
        if !standing.acts() {
            return Self::default();
        }
        let now = whole_second(now);
        let empty = AutoscalingStatus::default();
        let status = status.unwrap_or(&empty);
        let known = status.contested.as_ref();
        let (Some(current), Some(written)) = (pool.spec.replicas, status.written_replicas) else {
            // An unset number is nobody's, and the first one that is found is taken over.
            return Self { written: pool.spec.replicas.or(status.written_replicas), ..Self::default() };
        };
        let policy = autoscaler.spec.on_contested;
        if current == written {
            let contest = known.filter(|_| policy == OnContested::Reclaim).map(|known| Contest {
                record: known.clone(),
                course: ContestResponse::Reclaimed,
                is_new: false,
            });
            let contest =
                contest.filter(|contest| contest.until() > now && contest.record.replicas != current);
            return Self { written: Some(written), contest, ..Self::default() };
        }
        if let Some(time) = own_write(pool, now) {
            let unrecorded = Some((current.saturating_sub(written), time));
            return Self { written: Some(current), unrecorded, contest: None };
        }
        let writer = writer(pool);
        if writer.as_deref() == Some(NODEPOOL_OPERATOR) {
            // It fills an unset number with the nodes that are there, and never changes one. That is nobody's will.
            return Self { written: Some(current), ..Self::default() };
        }
        let same = known.filter(|known| known.replicas == current && !has_come_back(known, status));
        let record = same.cloned().unwrap_or_else(|| ContestedReplicas {
            replicas: current.max(0),
            writer: writer.unwrap_or_default(),
            since_time: Time(now),
        });
        let course = match policy {
            OnContested::Yield => ContestResponse::Yield,
            OnContested::Reclaim => ContestResponse::Reclaim,
        };
        let contest = Contest { record, course, is_new: same.is_none() };
        if course == ContestResponse::Yield && contest.until() <= now {
            // It has been kept for long enough; from here on it is the number to plan from.
            return Self { written: Some(current), ..Self::default() };
        }
        Self { written: Some(written), contest: Some(contest), ..Self::default() }
    }

    /// Somebody else's number, while it is kept.
    pub fn held(&self) -> Option<&Contest> {
        self.contest.as_ref().filter(|contest| contest.course == ContestResponse::Yield)
    }

    /// The number that somebody else's stands in the place of, while that is being written over.
    pub fn reclaimed(&self) -> Option<i32> {
        let reclaims =
            self.contest.as_ref().is_some_and(|contest| contest.course == ContestResponse::Reclaim);
        self.written.filter(|_| reclaims)
    }
}

/// Whether the number in a record was written over since the record was made, so that finding it again is a new contest.
fn has_come_back(known: &ContestedReplicas, status: &AutoscalingStatus) -> bool {
    status.last_decision.as_ref().is_some_and(|last| last.time.0 > known.since_time.0)
}

/// When the number was written (`now`, where the API server does not say), where that was the Autoscaler itself, which could not
/// report it: the API server names it, or the number is that of the list of nodes that is in force.
fn own_write(pool: &NodePool, now: Timestamp) -> Option<Timestamp> {
    let own = |entry: &&ManagedFieldsEntry| entry.manager.as_deref() == Some(AUTOSCALER_OPERATOR);
    let time = |entry: &ManagedFieldsEntry| entry.time.as_ref().map_or(now, |time| time.0.min(now));
    pool.replicas_writers().filter(own).map(time).max().or_else(|| pool.scale_down_in_force().map(|_| now))
}

/// The field manager that wrote the replicas last, as far as the API server knows: in a pool that was made without them it
/// does not say.
fn writer(pool: &NodePool) -> Option<String> {
    let last =
        pool.replicas_writers().max_by_key(|entry| (entry.time.as_ref().map(|time| time.0), &entry.manager));
    last.and_then(|entry| entry.manager.clone())
}

#[cfg(test)]
#[path = "contested_tests.rs"]
mod tests;
