//! Which writes were refused recently, and when each is retried: a failure affects only the object that could not be
//! written, not the whole pass.
//!
//! Pure: time (since any fixed origin) and randomness are arguments. A record ends when the write succeeds, or when it
//! is due and there is nothing to write any more.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use planner::{PoolDecision, ScalingPlan};
use shared_runtime::controller::RequeueBackoff;

/// The kind of write. The three fail independently: a policy that keeps a pool from shrinking lets it grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Write {
    /// A scale-up, or the count of a pool that had none set.
    Growth,
    /// A scale-down, and before it the list of victims.
    Removal,
    /// The status.
    Status,
}

impl Write {
    /// The write that a decision needs.
    pub(crate) const fn of(decision: &PoolDecision) -> Self {
        if decision.desired < decision.current { Self::Removal } else { Self::Growth }
    }
}

/// A write that was refused.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// The error message.
    pub problem: String,
    /// Whether the API server refuses this very write; otherwise it did not or could not answer.
    pub is_final: bool,
    /// The decision that could not be carried out; `None` for a status.
    pub decision: Option<Box<PoolDecision>>,
}

/// After this many failures in a row without a refusal, plans are made without the write too: a webhook that never
/// answers in time is as good as one that refuses. One lost answer is not, because the write may have been carried out.
const LASTING: u32 = 3;

/// When refused writes are retried.
#[derive(Debug, Default)]
pub(crate) struct WriteBackoff(HashMap<(String, Write), Record>);

#[derive(Debug)]
struct Record {
    refusal: Refusal,
    refusals: u32,
    due: Duration,
    seen: Seen,
}

/// The parts of an object that a policy or a webhook may judge by, except for what this operator writes itself. When
/// they change, the next attempt may succeed.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    deleted: Option<Time>,
}

impl Seen {
    fn of(object: &ObjectMeta) -> Self {
        Self {
            generation: object.generation,
            labels: object.labels.clone(),
            annotations: object.annotations.clone(),
            deleted: object.deletion_timestamp.clone(),
        }
    }
}

/// The writes that a pass leaves out.
#[derive(Debug, Default)]
pub(crate) struct Waiting(HashMap<(String, Write), Waits>);

#[derive(Debug)]
struct Waits {
    refusal: Refusal,
    /// Planning with the write is useless.
    lasts: bool,
}

impl WriteBackoff {
    /// Records that `write` of `object` was refused. Returns how long it waits.
    pub(crate) fn refused(
        &mut self,
        object: &ObjectMeta,
        write: Write,
        refusal: Refusal,
        now: Duration,
        random: f64,
    ) -> Duration {
        let key = key(object, write);
        let refusals = self.0.get(&key).map_or(0, |record| record.refusals).saturating_add(1);
        let delay = RequeueBackoff::default().delay(refusals, random);
        let due = now.saturating_add(delay);
        self.0.insert(key, Record { refusal, refusals, due, seen: Seen::of(object) });
        delay
    }

    /// Records that `write` of `object` succeeded, or that the object is gone.
    pub(crate) fn over(&mut self, object: &ObjectMeta, write: Write) {
        self.0.remove(&key(object, write));
    }

    /// What a pass over `objects` that begins at `now` leaves out: writes that are not due yet, unless the object has
    /// changed.
    pub(crate) fn waiting<'a>(
        &self,
        objects: impl Iterator<Item = &'a ObjectMeta>,
        now: Duration,
    ) -> Waiting {
        if self.0.is_empty() {
            return Waiting::default();
        }
        let waits = |object: &ObjectMeta, write| {
            let key = key(object, write);
            let record = self.0.get(&key).filter(|r| r.due > now && r.seen == Seen::of(object))?;
            let lasts = record.refusal.is_final || record.refusals >= LASTING;
            Some((key, Waits { refusal: record.refusal.clone(), lasts }))
        };
        let all = |object| [Write::Growth, Write::Removal, Write::Status].map(|write| waits(object, write));
        Waiting(objects.flat_map(all).flatten().collect())
    }

    /// Records the end of a pass that began at `began`. Writes that were due by then and were not refused again are
    /// dropped: there was nothing to write any more.
    pub(crate) fn passed(&mut self, began: Duration) {
        self.0.retain(|_, record| record.due > began);
    }

    /// When the next write is due; `None` when no write waits.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.0.values().map(|record| record.due).min()
    }

    /// The number of writes that wait.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Waiting {
    /// Why `write` of `object` waits; `None` if it does not.
    pub(crate) fn refusal(&self, object: &ObjectMeta, write: Write) -> Option<&Refusal> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&key(object, write)).map(|waits| &waits.refusal)
    }

    /// Why pools cannot grow for now, by UID: nodes that cannot be requested do not come.
    pub(crate) fn closed_pools(&self) -> BTreeMap<String, String> {
        let growth = self.0.iter().filter(|((_, write), waits)| *write == Write::Growth && waits.lasts);
        growth.map(|((uid, _), waits)| (uid.clone(), waits.refusal.problem.clone())).collect()
    }

    /// Replaces the decision about a pool whose scale-up waits by the refused one. The plan sends its pods elsewhere
    /// for now, and with the remaining decision the status would alternate between a wanted scale-up and none.
    pub(crate) fn stand_in(&self, plan: &mut ScalingPlan) {
        if self.0.is_empty() {
            return;
        }
        for decision in &mut plan.pools {
            let refusal = self.refusal(&decision.object.metadata, Write::Growth);
            let Some(refused) = refusal.and_then(|refusal| refusal.decision.as_deref()) else { continue };
            if !decision.acts || Write::of(decision) == Write::Removal {
                continue;
            }
            decision.desired = refused.desired;
            decision.reason = refused.reason;
            decision.message.clone_from(&refused.message);
            decision.limited = refused.limited;
            decision.wanted = refused.wanted;
            decision.cut.clone_from(&refused.cut);
            decision.triggering_pods = refused.triggering_pods;
            decision.id.clone_from(&refused.id);
        }
    }
}

fn key(object: &ObjectMeta, write: Write) -> (String, Write) {
    (object.uid.clone().unwrap_or_default(), write)
}

#[cfg(test)]
#[path = "write_backoff_tests.rs"]
mod tests;
