//! Which writes were refused lately, and when each is tried again: a failure is the business of the object that could not
//! be written, not of the pass that wrote it.
//!
//! Pure: time (since any fixed origin) and randomness are arguments. A record ends when the write succeeds, or when its
//! time comes and nothing is to be written any more.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use planner::{PoolDecision, ScalingPlan};
use shared_runtime::controller::Backoff;

/// What is written. The three fail by themselves: a policy that keeps a pool from shrinking lets it grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// More nodes, or the count of a pool that had none set.
    Growth,
    /// Fewer nodes, and before that which ones.
    Removal,
    /// The status.
    Status,
}

impl Write {
    /// Which one a decision asks for.
    pub const fn of(decision: &PoolDecision) -> Self {
        if decision.desired < decision.current { Self::Removal } else { Self::Growth }
    }
}

/// A write that was refused.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Why, as the server says it.
    pub problem: String,
    /// The API server minds this very write; else it did not answer, or could not.
    pub is_final: bool,
    /// The decision that could not be carried out; none for a status.
    pub decision: Option<Box<PoolDecision>>,
}

/// So many failures in a row of a write that nobody minds, and it is planned without it all the same: a webhook that never
/// answers in time is as good as one that refuses. One lost answer is not, and the write may have been carried out.
const LASTING: u32 = 3;

/// When writes that were refused are tried again.
#[derive(Debug, Default)]
pub struct WriteBackoff(HashMap<(String, Write), Record>);

#[derive(Debug)]
struct Record {
    refusal: Refusal,
    refusals: u32,
    due: Duration,
    seen: Seen,
}

/// What of an object a policy or a webhook may judge by, but for what this operator writes itself. When it changes, the
/// next try may end otherwise.
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
pub struct Waiting(HashMap<(String, Write), Waits>);

#[derive(Debug)]
struct Waits {
    refusal: Refusal,
    /// There is no use in planning with the write.
    lasts: bool,
}

impl WriteBackoff {
    /// `write` of `object` was refused. Returns how long it waits.
    pub fn refused(
        &mut self,
        object: &ObjectMeta,
        write: Write,
        refusal: Refusal,
        now: Duration,
        random: f64,
    ) -> Duration {
        let key = key(object, write);
        let refusals = self.0.get(&key).map_or(0, |record| record.refusals).saturating_add(1);
        let delay = Backoff::default().delay(refusals, random);
        let due = now.saturating_add(delay);
        self.0.insert(key, Record { refusal, refusals, due, seen: Seen::of(object) });
        delay
    }

    /// `write` of `object` went through, or the object is gone.
    pub fn over(&mut self, object: &ObjectMeta, write: Write) {
        self.0.remove(&key(object, write));
    }

    /// What a pass over `objects` that begins at `now` leaves out: what is not due yet, unless its object has changed.
    pub fn waiting<'a>(&self, objects: impl Iterator<Item = &'a ObjectMeta>, now: Duration) -> Waiting {
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

    /// A pass that began at `began` is over. What was due by then and was not refused again is forgotten: there was
    /// nothing to write any more.
    pub fn passed(&mut self, began: Duration) {
        self.0.retain(|_, record| record.due > began);
    }

    /// When the next write is due.
    pub fn next(&self) -> Option<Duration> {
        self.0.values().map(|record| record.due).min()
    }

    /// How many writes wait.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Waiting {
    /// Why `write` of `object` waits, if it does.
    pub fn refusal(&self, object: &ObjectMeta, write: Write) -> Option<&Refusal> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&key(object, write)).map(|waits| &waits.refusal)
    }

    /// Why pools do not grow for now, by UID: nodes that cannot be asked for do not come.
    pub fn closed_pools(&self) -> BTreeMap<String, String> {
        let growth = self.0.iter().filter(|((_, write), waits)| *write == Write::Growth && waits.lasts);
        growth.map(|((uid, _), waits)| (uid.clone(), waits.refusal.problem.clone())).collect()
    }

    /// Shows a pool whose growth waits with the decision that was refused. The plan sends its pods elsewhere for now, and
    /// with what is left the status would say by turns that the pool should grow and that it should not.
    pub fn stand_in(&self, plan: &mut ScalingPlan) {
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
