//! Which writes were refused recently, and when each is retried: a failure affects only the object that could not be
//! written, not the whole pass.
//!
//! A write that is denied closes its pool for growth at once; any other fault does when it lasts. Until then its pods
//! wait for that pool.
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
    /// Whether this very write is denied; otherwise the fault may be over in a moment.
    pub is_denied: bool,
    /// The decision that could not be carried out; `None` for a status.
    pub decision: Option<Box<PoolDecision>>,
}

/// A fault that is no denial lasts when it was met for that long, in [`LASTING_ATTEMPTS`] at least: then plans are made
/// without the write, because a webhook that never answers is as good as one that denies. A webhook whose pod is
/// replaced, an API server that restarts, an etcd that elects, and a token that is renewed are back within that time,
/// and it is short beside the minutes that a node takes to come. Nodes in another pool, which may cost more, are not
/// given back as quickly as they are made. Our own figure.
const LASTING: Duration = Duration::from_secs(30);

/// The time alone proves nothing: an attempt may take ten seconds, and the next one come when a process wakes.
const LASTING_ATTEMPTS: u32 = 3;

/// For how long it is remembered that a fault lasted, when there is nothing to write any more because other pools were
/// used: the next scale-up is tried once, and does not have to find out again for [`LASTING`].
const REMEMBERED: Duration = Duration::from_secs(5 * 60);

/// When refused writes are retried.
#[derive(Debug, Default)]
pub(crate) struct WriteBackoff(HashMap<(String, Write), Record>);

#[derive(Debug)]
struct Record {
    refusal: Refusal,
    refusals: u32,
    /// When the first of these attempts failed.
    since: Duration,
    /// When the last one did.
    tried: Duration,
    due: Duration,
    seen: Seen,
}

impl Record {
    /// Whether plans are made without the write.
    fn lasts(&self) -> bool {
        let is_old = self.tried.saturating_sub(self.since) >= LASTING;
        self.refusal.is_denied || (is_old && self.refusals >= LASTING_ATTEMPTS)
    }

    /// How long the next attempt waits. The one that tells whether a fault lasts is not put off.
    fn delay(&self, random: f64) -> Duration {
        let delay = RequeueBackoff::default().delay(self.refusals, random);
        let left = LASTING.saturating_sub(self.tried.saturating_sub(self.since));
        if self.refusal.is_denied || left.is_zero() { delay } else { delay.min(left) }
    }

    /// Notices a change of the object, after which an attempt may succeed. Labels and annotations change all the time
    /// in some clusters, so the pause is shortened no further than an event shortens that of a failing key.
    fn see(&mut self, object: &ObjectMeta) {
        let seen = Seen::of(object);
        if self.seen != seen {
            self.seen = seen;
            self.due = self.due.min(self.tried.saturating_add(RequeueBackoff::default().event_max));
        }
    }
}

/// The parts of an object that a policy or a webhook may judge by, except for what this operator writes itself. When
/// they change, the next attempt may succeed.
#[derive(Debug, PartialEq)]
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
        let (since, refusals) = self.0.get(&key).map_or((now, 0), |record| (record.since, record.refusals));
        let refusals = refusals.saturating_add(1);
        let mut record = Record { refusal, refusals, since, tried: now, due: now, seen: Seen::of(object) };
        let delay = record.delay(random);
        record.due = now.saturating_add(delay);
        self.0.insert(key, record);
        delay
    }

    /// Records that `write` of `object` succeeded, or that the object is gone.
    pub(crate) fn over(&mut self, object: &ObjectMeta, write: Write) {
        self.0.remove(&key(object, write));
    }

    /// What a pass over `objects` that begins at `now` leaves out: writes that are not due yet. A write whose object has
    /// changed is due sooner.
    pub(crate) fn waiting<'a>(
        &mut self,
        objects: impl Iterator<Item = &'a ObjectMeta>,
        now: Duration,
    ) -> Waiting {
        if self.0.is_empty() {
            return Waiting::default();
        }
        let mut waiting = Waiting::default();
        for object in objects {
            for write in [Write::Growth, Write::Removal, Write::Status] {
                let key = key(object, write);
                let Some(record) = self.0.get_mut(&key) else { continue };
                record.see(object);
                if record.due > now {
                    let waits = Waits { refusal: record.refusal.clone(), lasts: record.lasts() };
                    waiting.0.insert(key, waits);
                }
            }
        }
        waiting
    }

    /// Whether plans are made without growth of `object`, because of its last attempt.
    pub(crate) fn closes(&self, object: &ObjectMeta) -> bool {
        self.0.get(&key(object, Write::Growth)).is_some_and(Record::lasts)
    }

    /// Records the end of a pass that began at `began`. Writes that were due by then and were not refused again are
    /// dropped: there was nothing to write any more. That a fault lasted is remembered for a while.
    pub(crate) fn passed(&mut self, began: Duration) {
        let is_remembered = |record: &Record| {
            !record.refusal.is_denied && record.lasts() && began.saturating_sub(record.tried) < REMEMBERED
        };
        self.0.retain(|_, record| record.due > began || is_remembered(record));
    }

    /// When the next write is due, after a pass that began at `began`; `None` when no write waits.
    pub(crate) fn next(&self, began: Duration) -> Option<Duration> {
        self.pending(began).min()
    }

    /// The number of writes that wait, after a pass that began at `began`.
    pub(crate) fn len(&self, began: Duration) -> usize {
        self.pending(began).count()
    }

    /// When each write is due that waits after a pass that began at `began`.
    fn pending(&self, began: Duration) -> impl Iterator<Item = Duration> {
        self.0.values().map(|record| record.due).filter(move |due| *due > began)
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
