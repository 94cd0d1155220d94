//! What status remembers of a pool's past: which numbers of nodes were wanted, and which changes were made. These are
//! lists of bounded length that change only when a number does, so that time alone causes no writes.
//!
//! Times are in whole seconds here, like the API's: what was written and what is read are the same.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use shared_crds::v1alpha1::{Recommendation, ScaleEvent};

use crate::time::{later, whole_second};

/// `maxItems` of both lists.
pub(crate) const MOST_ENTRIES: usize = 256;

/// The recommendations after `wanted` was recommended for a pool of `current` nodes. Without a record, the pool's
/// number of nodes is treated as what was wanted so far.
pub(crate) fn recommended(
    before: &[Recommendation],
    current: i32,
    wanted: i32,
    window_seconds: i32,
    now: Timestamp,
) -> Vec<Recommendation> {
    if window_seconds == 0 {
        return Vec::new();
    }
    let last = before.last().map_or(current, |last| last.replicas);
    if wanted == last {
        return before.to_vec();
    }
    let time = Time(whole_second(now));
    let mut all = before.to_vec();
    if all.is_empty() {
        all.push(Recommendation { replicas: current, time: time.clone() });
    }
    all.push(Recommendation { replicas: wanted, time });
    // The first of two is outdated if the second began a whole window ago.
    let gone = all.windows(2).take_while(|pair| later(pair[1].time.0, window_seconds) <= now).count();
    all.drain(..gone);
    coarsened(all, MOST_ENTRIES)
}

/// The recommendations that are within the window, each with the time at which it leaves the window; `None` for the
/// last one, which is in force.
pub(crate) fn within(
    all: &[Recommendation],
    window_seconds: i32,
    now: Timestamp,
) -> impl Iterator<Item = (i32, Option<Timestamp>)> + '_ {
    let ends = all.iter().skip(1).map(move |next| Some(later(next.time.0, window_seconds))).chain([None]);
    let recommended = all.iter().map(|recommendation| recommendation.replicas);
    recommended.zip(ends).filter(move |(_, end)| end.is_none_or(|end| end > now))
}

/// At most `limit` recommendations that never allow more than `all` do: at every later moment the lowest of them is no
/// higher, and the highest no lower.
///
/// An entry is dropped if the previous one, which then lasts as long as the dropped one did, or a later one is as low,
/// and one of them as high. If there is no such entry, the numbers go up and down in ever smaller steps; then the first
/// three become two. Never leaves fewer than three.
fn coarsened(mut all: Vec<Recommendation>, limit: usize) -> Vec<Recommendation> {
    while all.len() > limit.max(3) {
        let covered = |at: usize| {
            let own = all[at].replicas;
            let others = || all[at - 1..at].iter().chain(&all[at + 1..]).map(|other| other.replicas);
            others().any(|other| other <= own) && others().any(|other| other >= own)
        };
        if let Some(at) = (1..all.len() - 1).find(|&at| covered(at)) {
            all.remove(at);
        } else {
            let (first, middle, third) = (all[0].replicas, all[1].replicas, all[2].replicas);
            let outer = if middle < first { first.max(third) } else { first.min(third) };
            all[2].replicas = outer;
            all[1].time = all[0].time.clone();
            all.remove(0);
        }
    }
    all
}

/// The changes after one more, without those that are older than the longest period.
pub(crate) fn changed(
    before: &[ScaleEvent],
    change: i32,
    longest_seconds: i32,
    now: Timestamp,
) -> Vec<ScaleEvent> {
    if longest_seconds == 0 {
        return Vec::new();
    }
    if change == 0 {
        return before.to_vec();
    }
    let time = Time(whole_second(now));
    let counts = |event: &&ScaleEvent| later(event.time.0, longest_seconds) > now;
    let mut all: Vec<_> = before.iter().filter(counts).cloned().collect();
    // Changes within one second are merged. A full list stops every further change except the correction to a bound,
    // which is then merged into the last one.
    let full = all.len() >= MOST_ENTRIES;
    let last = all.pop_if(|last| full || last.time == time);
    let change = last.map_or(0, |last| last.change).saturating_add(change);
    all.push(ScaleEvent { change, time });
    all
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
