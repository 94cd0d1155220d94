//! The order in which writes took effect. The log has them in the order of their answers, which is another one.

use jiff::Timestamp;

use crate::audit::Event;

/// The granted writes, in the order of etcd's revisions: one sequence for the objects of all resources.
///
/// An answer without an object (an eviction, a binding) has no revision, and that to the removal of a Node's last finalizer
/// has the revision before it. Such a write is put behind everything that may have come before it, so that it takes effect
/// late rather than early: what it takes away counts for longer than it was there. An operator that goes on only when it has
/// the answer is judged as it should be.
pub(super) fn of_effects(events: &[Event]) -> Vec<&Event> {
    let granted: Vec<&Event> = events.iter().filter(|event| event.is_write() && event.succeeded()).collect();
    let mut revisions: Vec<(Timestamp, u64)> =
        granted.iter().filter_map(|event| Some((event.received, revision(event)?))).collect();
    revisions.sort_unstable();
    let mut highest = 0;
    for (_, revision) in &mut revisions {
        highest = highest.max(*revision);
        *revision = highest;
    }
    let place = |event: &Event| {
        let behind = || {
            let before = revisions.partition_point(|(received, _)| *received <= event.completed);
            let last = before.checked_sub(1).and_then(|at| revisions.get(at));
            (last.map_or(0, |(_, revision)| *revision), true)
        };
        revision(event).map_or_else(behind, |revision| (revision, false))
    };
    let mut placed: Vec<_> = granted.into_iter().map(|event| (place(event), event)).collect();
    placed.sort_by_key(|(place, event)| (*place, event.completed));
    placed.into_iter().map(|(_, event)| event).collect()
}

fn revision(event: &Event) -> Option<u64> {
    event.version().filter(|_| !is_end_of_node(event))
}

/// Whether the write has removed the last finalizer of a Node that is deleted, and the Node with it.
pub(super) fn is_end_of_node(event: &Event) -> bool {
    event.response.as_ref().is_some_and(|answer| {
        let metadata = &answer["metadata"];
        let has_finalizers = metadata["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        answer["kind"] == "Node" && !metadata["deletionTimestamp"].is_null() && !has_finalizers
    })
}
