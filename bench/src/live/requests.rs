//! What an autoscaler asked of the API server in a phase, counted from the audit log.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use testbed::audit::{Event, ObjectKey};

/// The counts of one autoscaler, whatever number of users it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Requests {
    /// All requests: reads, watches that ended, and writes.
    pub(crate) all: usize,
    pub(crate) writes: usize,
    /// Writes of Events, which are among the writes.
    pub(crate) event_writes: usize,
    /// Writes that were refused because the object had changed: 409 `Conflict`.
    pub(crate) conflicts: usize,
    /// Writes answered with 422: a failed `test` of a JSON patch, which is the other way to notice a change.
    pub(crate) failed_tests: usize,
    /// How many of `conflicts` and `failed_tests` were followed by another write of the same object by the same user.
    pub(crate) tried_again: usize,
    /// Answered with any other error.
    pub(crate) other_errors: usize,
    /// The number of requests by verb and resource, as in `patch nodes/status`.
    pub(crate) kinds: BTreeMap<String, usize>,
}

impl Requests {
    /// Counts the requests of `users` among `events`, which are in the order of the log.
    pub(crate) fn of(events: &[Event], users: &[String]) -> Self {
        let mut counts = Self::default();
        let mut written_later: BTreeSet<(&str, &ObjectKey, &str)> = BTreeSet::new();
        for event in events.iter().rev().filter(|event| users.contains(&event.user)) {
            counts.all += 1;
            *counts.kinds.entry(kind(event)).or_default() += 1;
            let changed = match (event.code, event.reason.as_str()) {
                (409, "Conflict") => &mut counts.conflicts,
                (422, _) if event.is_write() => &mut counts.failed_tests,
                (..400, _) => &mut 0,
                _ => &mut counts.other_errors,
            };
            *changed += 1;
            if !event.is_write() {
                continue;
            }
            counts.writes += 1;
            let Some(object) = &event.object else { continue };
            counts.event_writes += usize::from(object.resource == "events");
            let refused = matches!((event.code, event.reason.as_str()), (409, "Conflict") | (422, _));
            let first_seen = written_later.insert((&event.user, object, &event.subresource));
            counts.tried_again += usize::from(refused && !first_seen);
        }
        counts
    }
}

fn kind(event: &Event) -> String {
    let Some(object) = &event.object else { return event.verb.clone() };
    let separator = if event.subresource.is_empty() { "" } else { "/" };
    format!("{} {}{separator}{}", event.verb, object.resource, event.subresource)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn event(user: &str, verb: &str, resource: &str, code: u16, reason: &str) -> Event {
        let (group, namespace) = (String::new(), String::new());
        Event {
            user: user.to_owned(),
            user_agent: String::new(),
            verb: verb.to_owned(),
            object: Some(ObjectKey { group, resource: resource.to_owned(), namespace, name: "a".to_owned() }),
            subresource: String::new(),
            field_manager: None,
            forced: false,
            code,
            reason: reason.to_owned(),
            message: String::new(),
            request: None,
            response: None,
            received: Timestamp::UNIX_EPOCH,
            completed: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn requests_of_other_users_do_not_count_and_those_of_both_operators_are_added() {
        let events = ["x", "y", "z"].map(|user| event(user, "get", "nodes", 200, ""));
        let counts = Requests::of(&events, &["x".to_owned(), "z".to_owned()]);
        assert_eq!((counts.all, counts.writes, counts.kinds["get nodes"]), (2, 0, 2));
    }

    #[test]
    fn a_conflict_and_a_failed_test_are_told_apart_and_are_tried_again_only_by_their_user() {
        let events = [
            event("x", "update", "nodes", 409, "Conflict"),
            event("x", "create", "nodes", 409, "AlreadyExists"),
            event("x", "patch", "pods", 422, "Invalid"),
            event("y", "patch", "pods", 200, ""),
            event("x", "create", "events", 201, ""),
        ];
        let users = ["x", "y"].map(String::from);
        let counts = Requests::of(&events, &users);
        assert_eq!((counts.conflicts, counts.failed_tests, counts.other_errors), (1, 1, 1));
        assert_eq!((counts.tried_again, counts.event_writes, counts.writes), (1, 1, 5));
        let counts = Requests::of(&events[..1], &users);
        assert_eq!((counts.conflicts, counts.tried_again), (1, 0));
    }
}
