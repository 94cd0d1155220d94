//! What the pool's spec asked for, over time.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::audit::Event;

/// How old the spec or a node may be in the eyes of an operator that acts: a pass of its writes takes at most 5 s, and begins
/// with what its caches have.
pub(super) const VIEW_AGE: SignedDuration = SignedDuration::from_secs(6);

/// How much earlier than it is due something may happen: the two times are read on different clocks, or in whole seconds.
pub(super) const CLOCKS: SignedDuration = SignedDuration::from_secs(1);

/// The numbers of a spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    at: Timestamp,
    pub(super) wanted: usize,
    pub(super) surge: usize,
    pub(super) unavailable: usize,
    /// `spec.drain.timeoutSeconds`, after which pods are deleted whatever their budgets say.
    pub(super) force_after: Option<i64>,
}

impl Wish {
    pub(super) fn most(&self, rolls: bool) -> usize {
        self.wanted + if rolls { self.surge } else { 0 }
    }

    pub(super) fn least(&self, rolls: bool) -> usize {
        self.wanted.saturating_sub(if rolls { self.unavailable } else { 0 })
    }
}

/// All specs so far.
#[derive(Debug, Default)]
pub(super) struct Wishes(Vec<Wish>);

impl Wishes {
    /// Reads a write of the pool or of its scale.
    pub(super) fn read(&mut self, event: &Event) {
        let Some(answer) = &event.response else { return };
        let last = self.0.last().copied();
        let mut wish = match (event.subresource.as_str(), last) {
            ("scale", Some(last)) => Wish { wanted: count(&answer["spec"]["replicas"]), ..last },
            ("scale", None) => return,
            _ => whole(&answer["spec"]),
        };
        wish.at = last.map_or(event.completed, |last| last.at);
        if last != Some(wish) {
            wish.at = event.completed;
            self.0.push(wish);
        }
    }

    /// The present one; `None` before the pool is made.
    pub(super) fn now(&self) -> Option<&Wish> {
        self.0.last()
    }

    /// Those that an operator may have acted on at this time.
    pub(super) fn acted_on(&self, at: Timestamp) -> impl Iterator<Item = &Wish> {
        let oldest = at - VIEW_AGE;
        let past = self.0.iter().skip(1).take_while(|next| next.at < oldest).count();
        self.0.iter().skip(past)
    }
}

fn whole(spec: &Value) -> Wish {
    let wanted = count(&spec["replicas"]);
    let rollout = &spec["rollout"];
    let room = count(&spec["maxReplicas"]).saturating_sub(wanted);
    let surge = share(&rollout["maxSurge"], wanted, 1, usize::div_ceil).min(room);
    let unavailable = match share(&rollout["maxUnavailable"], wanted, 0, |all, by| all / by) {
        // Where there is no room for one more node, one may be missing (docs/guides/rollout.md).
        0 if surge == 0 => 1,
        unavailable => unavailable,
    };
    let drain = &spec["drain"];
    let forces = drain["onTimeout"].as_str().is_none_or(|action| action == "Force");
    let force_after = drain["timeoutSeconds"].as_i64().filter(|_| forces);
    Wish { at: Timestamp::UNIX_EPOCH, wanted, surge, unavailable, force_after }
}

fn count(value: &Value) -> usize {
    value.as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
}

/// A number, or a percentage of the nodes wanted.
fn share(value: &Value, wanted: usize, absent: usize, round: fn(usize, usize) -> usize) -> usize {
    match value {
        Value::Null => absent,
        Value::String(text) => {
            let percent: usize = text.trim_end_matches('%').parse().unwrap_or(0);
            round(wanted * percent, 100)
        }
        number => count(number),
    }
}
