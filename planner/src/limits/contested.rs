//! Which writer last set a pool's replicas, the Autoscaler or another writer, and what follows from that.
//!
//! `status.autoscaling.writtenReplicas` is the number that the Autoscaler wrote last, or found at first and accepted.
//! Any other number in `spec.replicas` is another writer's, unless it is recognizably the Autoscaler's own write that
//! no status shows yet. `docs/adr/0013-contested-replicas.md` has the rules.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use k8s_openapi::jiff::Timestamp;
use shared_crds::NodePool;
use shared_crds::names::{AUTOSCALER_OPERATOR, NODEPOOL_OPERATOR};
use shared_crds::v1alpha1::{AutoscalingStatus, ContestedReplicas, OnContested};

use crate::input::selection::AutoscalerAssignment;
use crate::time::{later, whole_second};

/// How long in seconds another writer's value is kept with `Yield`, and remembered with `Reclaim`. As long as a node
/// has to be unneeded by default before it is removed.
pub(crate) const HOLD_SECONDS: i32 = 600;

/// The last writer of a pool's replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicasWriter {
    /// What `status.autoscaling.writtenReplicas` should be, apart from this pass's own write.
    pub written: Option<i32>,
    /// By how much an own write that no status shows yet has changed the replicas, and when; `None` if there is none.
    pub unrecorded: Option<(i32, Timestamp)>,
    /// Another writer's value; `None` if there is none.
    pub contest: Option<Contest>,
}

/// A value of `spec.replicas` that another writer set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contest {
    /// Which writer set which value, and when this was detected.
    pub record: ContestedReplicas,
    /// What happens with the value.
    pub course: ContestResponse,
    /// Whether this pass detected it.
    pub is_new: bool,
}

/// What happens with another writer's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContestResponse {
    /// It is kept.
    Yield,
    /// It is being overwritten.
    Reclaim,
    /// It has been overwritten, and is still remembered.
    Reclaimed,
}

impl Contest {
    /// When it stops being kept or remembered.
    pub fn until(&self) -> Timestamp {
        later(self.record.since_time.0, HOLD_SECONDS)
    }

    /// The writer, for messages.
    pub fn writer(&self) -> &str {
        if self.record.writer.is_empty() { "another writer" } else { &self.record.writer }
    }
}

impl ReplicasWriter {
    /// What is known about `pool` at `now`, given `status`. A pool that the Autoscaler does not act on cannot be
    /// contested.
    pub(crate) fn of(
        pool: &NodePool,
        status: Option<&AutoscalingStatus>,
        assignment: &AutoscalerAssignment,
        now: Timestamp,
    ) -> Self {
        let AutoscalerAssignment::Planned(autoscaler) = assignment else { return Self::default() };
        if !assignment.acts() {
            return Self::default();
        }
        let now = whole_second(now);
        let empty = AutoscalingStatus::default();
        let status = status.unwrap_or(&empty);
        let known = status.contested.as_ref();
        let (Some(current), Some(written)) = (pool.spec.replicas, status.written_replicas) else {
            // An unset number has no writer, and the first one that is found is accepted.
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
            // It fills an unset number with the existing nodes, and never changes one. That expresses no intent of a
            // user.
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
            // It has been kept for long enough; from now on it is the number to plan from.
            return Self { written: Some(current), ..Self::default() };
        }
        Self { written: Some(written), contest: Some(contest), ..Self::default() }
    }

    /// Another writer's value, while it is kept.
    pub(crate) fn held(&self) -> Option<&Contest> {
        self.contest.as_ref().filter(|contest| contest.course == ContestResponse::Yield)
    }

    /// The Autoscaler's own number, while it overwrites another writer's value.
    pub(crate) fn reclaimed(&self) -> Option<i32> {
        let reclaims =
            self.contest.as_ref().is_some_and(|contest| contest.course == ContestResponse::Reclaim);
        self.written.filter(|_| reclaims)
    }
}

/// Whether the value in a record was overwritten since the record was made, so that finding it again is a new contest.
fn has_come_back(known: &ContestedReplicas, status: &AutoscalingStatus) -> bool {
    status.last_decision.as_ref().is_some_and(|last| last.time.0 > known.since_time.0)
}

/// When the number was written (`now` if the API server does not record it), if the Autoscaler itself wrote it and
/// could not report it: the API server names it as the writer, or the number belongs to the victim list that is in
/// force.
fn own_write(pool: &NodePool, now: Timestamp) -> Option<Timestamp> {
    let own = |entry: &&ManagedFieldsEntry| entry.manager.as_deref() == Some(AUTOSCALER_OPERATOR);
    let time = |entry: &ManagedFieldsEntry| entry.time.as_ref().map_or(now, |time| time.0.min(now));
    pool.replicas_writers().filter(own).map(time).max().or_else(|| pool.scale_down_in_force().map(|_| now))
}

/// The field manager that wrote the replicas last, as far as the API server records it: for a pool that was created
/// without them it records none.
fn writer(pool: &NodePool) -> Option<String> {
    let last =
        pool.replicas_writers().max_by_key(|entry| (entry.time.as_ref().map(|time| time.0), &entry.manager));
    last.and_then(|entry| entry.manager.clone())
}

#[cfg(test)]
#[path = "contested_tests.rs"]
mod tests;
