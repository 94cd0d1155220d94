//! The history of one object, built from the audit log: its writes in the order in which they took effect.

use crate::audit::{Event, ObjectKey};

/// What a successful write did to its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A new version; `generation_moved` when the spec changed.
    Moved {
        /// Whether `metadata.generation` moved as well.
        generation_moved: bool,
    },
    /// No change: the answer carries a version that existed before.
    NoOp,
    /// The object was removed.
    Removed,
}

/// A successful write.
#[derive(Clone, Copy, Debug)]
pub struct LoggedWrite<'a> {
    /// The event in the audit log.
    pub event: &'a Event,
    /// The object's version in the answer.
    pub version: u64,
    /// What the write did.
    pub effect: Effect,
}

/// The successful writes to `object` among `events`, sorted by resulting version; those that changed nothing follow the
/// write whose version they were answered with.
///
/// The answer to `/scale` carries no generation; there it is derived from `spec.replicas`. The first write of a log
/// that starts in the middle of an object's life counts as moved.
pub fn of_object<'a>(events: &'a [Event], object: &ObjectKey) -> Vec<LoggedWrite<'a>> {
    let mut writes: Vec<(u64, bool, &Event)> = events
        .iter()
        .filter(|event| event.object.as_ref() == Some(object) && event.is_write() && event.succeeded())
        .filter_map(|event| {
            let version = event.version()?;
            let from_itself = event.base_version().and_then(|base| base.parse().ok()) == Some(version);
            Some((version, from_itself, event))
        })
        .collect();
    writes.sort_by_key(|(version, from_itself, event)| (*version, *from_itself, event.completed));

    let mut known = Known::default();
    let mut last_version = None;
    writes
        .into_iter()
        .map(|(version, from_itself, event)| {
            let effect = if is_removal(event) {
                Effect::Removed
            } else if from_itself || last_version == Some(version) {
                Effect::NoOp
            } else {
                Effect::Moved { generation_moved: known.learn(event) }
            };
            last_version = Some(version);
            LoggedWrite { event, version, effect }
        })
        .collect()
}

/// The answer to a write that removes the last finalizer of an object that is being deleted carries the previous
/// version of the object: it is removed instead of written.
fn is_removal(event: &Event) -> bool {
    let Some(response) = &event.response else {
        return false;
    };
    let finalizers = response.pointer("/metadata/finalizers").and_then(|list| list.as_array());
    response.pointer("/metadata/deletionTimestamp").is_some() && finalizers.is_none_or(Vec::is_empty)
}

/// What is known about `spec.replicas` from the versions so far.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Replicas {
    #[default]
    Unknown,
    Unset,
    Set(i64),
}

/// What is known about the spec from the versions so far.
#[derive(Default)]
struct Known {
    generation: Option<i64>,
    replicas: Replicas,
}

impl Known {
    /// Records the next version and returns whether its generation moved.
    fn learn(&mut self, event: &Event) -> bool {
        let Some(response) = &event.response else {
            return false;
        };
        let replicas = response.pointer("/spec/replicas").and_then(serde_json::Value::as_i64);
        if event.subresource == "scale" {
            // Zero is omitted from the answer.
            let replicas = Replicas::Set(replicas.unwrap_or(0));
            let moved = self.replicas != replicas;
            self.replicas = replicas;
            if moved {
                self.generation = self.generation.map(|generation| generation + 1);
            }
            return moved;
        }
        self.replicas = replicas.map_or(Replicas::Unset, Replicas::Set);
        let before = self.generation;
        self.generation = response.pointer("/metadata/generation").and_then(serde_json::Value::as_i64);
        match (before, self.generation) {
            (Some(before), Some(after)) => after > before,
            (None, after) => event.verb == "create" && after.is_some(),
            (Some(_), None) => false,
        }
    }
}
