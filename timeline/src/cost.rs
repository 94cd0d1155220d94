//! The cost of each 409 for its writer, the write that caused it, and the writes that changed nothing.

use std::collections::HashMap;

use crate::line::{Base, Left, LoggedRequest};
use crate::model::{Cost, RequestOutcome, Shown};

/// The requests of one writer to one object.
#[derive(Debug, Default)]
struct Traffic {
    reads: usize,
    /// By subresource: a granted write of the status does not end a refusal of the spec.
    parts: HashMap<String, Part>,
}

#[derive(Debug, Default)]
struct Part {
    refusals: usize,
    /// 409s without a later granted write yet: the index, and the counts of reads and refusals before it.
    open: Vec<(usize, usize, usize)>,
}

/// The granted writes of an object: each version with the index of its request, and the last version.
#[derive(Debug, Default)]
struct Versions {
    writes: Vec<(u64, usize)>,
    last: Option<String>,
}

/// Fills in costs, causes and no-ops. Both lists are the same requests, in order of completion.
pub(crate) fn add_costs(requests: &[LoggedRequest], shown: &mut [Shown]) {
    let mut traffic: HashMap<(usize, usize), Traffic> = HashMap::new();
    let mut versions: HashMap<usize, Versions> = HashMap::new();
    for (index, request) in requests.iter().enumerate() {
        let Some(of) = shown.get(index) else { continue };
        let (writer, object, outcome) = (of.writer, of.object, of.outcome);
        let of_object = traffic.entry((writer, object)).or_default();
        count_request(of_object, request, outcome, index, shown);
        let history = versions.entry(object).or_default();
        if request.is_granted_write() {
            let no_op = is_no_op(request, history);
            if let Some(of) = shown.get_mut(index) {
                of.no_op = no_op;
            }
            if let Left::Version(version) = &request.left {
                if !no_op && let Ok(number) = version.parse() {
                    history.writes.push((number, index));
                }
                history.last = Some(version.clone());
            }
        }
    }
    for history in versions.values_mut() {
        history.writes.sort_unstable();
    }
    for (index, request) in requests.iter().enumerate() {
        let Some(of) = shown.get_mut(index).filter(|of| of.outcome == RequestOutcome::Conflict) else {
            continue;
        };
        of.beaten_by = versions.get(&of.object).and_then(|history| cause(request, requests, history));
    }
}

fn count_request(
    of_object: &mut Traffic,
    request: &LoggedRequest,
    outcome: RequestOutcome,
    index: usize,
    shown: &mut [Shown],
) {
    if request.is_read() {
        of_object.reads += 1;
        return;
    }
    let reads = of_object.reads;
    let part = of_object.parts.entry(request.object.subresource.clone()).or_default();
    match outcome {
        RequestOutcome::Granted if request.is_granted_write() => {
            end_refusals(part, reads, request, index, shown);
        }
        RequestOutcome::Granted | RequestOutcome::Read => {}
        RequestOutcome::Refused => part.refusals += 1,
        RequestOutcome::Conflict => {
            part.open.push((index, reads, part.refusals));
            part.refusals += 1;
            if let Some(of) = shown.get_mut(index) {
                of.cost = Some(Cost { requests: 1, millis: None, settled_by: None, is_first: true });
            }
        }
    }
}

/// A granted write ends the refusals that were answered before it was sent.
fn end_refusals(part: &mut Part, reads: usize, granted: &LoggedRequest, index: usize, shown: &mut [Shown]) {
    let done = shown.get(index).map(|of| (of.received, of.completed));
    let Some((sent, answered)) = done else { return };
    debug_assert!(granted.is_granted_write());
    let mut is_first = true;
    part.open.retain(|&(refused, reads_then, refusals_then)| {
        let Some(of) = shown.get_mut(refused).filter(|of| of.completed <= sent) else { return true };
        of.cost = Some(Cost {
            requests: (reads - reads_then) + (part.refusals - refusals_then),
            millis: Some(answered - of.received),
            settled_by: Some(index),
            is_first,
        });
        is_first = false;
        false
    });
}

/// A write that leaves the version unchanged stored nothing. Deletes and creates always store.
fn is_no_op(request: &LoggedRequest, history: &Versions) -> bool {
    let Left::Version(left) = &request.left else { return false };
    if !matches!(request.verb.as_str(), "update" | "patch") {
        return false;
    }
    match &request.base {
        Base::Version(base) => base == left,
        Base::Any | Base::Unknown => history.last.as_ref() == Some(left),
    }
}

/// The first write after the base version of a refused request, which made its copy stale. Versions of one resource are
/// decimal numbers that can be compared (KEP-5504).
fn cause(refused: &LoggedRequest, requests: &[LoggedRequest], history: &Versions) -> Option<usize> {
    let (Base::Version(base), "Conflict") = (&refused.base, refused.reason.as_str()) else { return None };
    let base: u64 = base.parse().ok()?;
    let later = history.writes.partition_point(|(version, _)| *version <= base);
    let (_, first) = *history.writes.get(later)?;
    let sent_before = requests.get(first)?.received < refused.completed;
    sent_before.then_some(first)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::line::tests::line;
    use crate::model::Model;
    use crate::read::Log;
    use crate::select::Selection;

    fn model(lines: &[Value]) -> Model {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let selection = Selection { objects: vec!["nodepools".parse().unwrap()], ..Selection::default() };
        let mut log = Log::default();
        log.read(text.as_bytes(), "test", &selection).unwrap();
        Model::of(log, None, &[])
    }

    fn wrote(at: i64, user: &str, base: &str, left: &str) -> Value {
        let bodies = json!({
            "requestObject": {"metadata": {"resourceVersion": base}},
            "responseObject": {"metadata": {"resourceVersion": left}},
        });
        line(at, user, "update", 200, bodies)
    }

    fn refused(at: i64, user: &str, base: &str) -> Value {
        let bodies = json!({
            "requestObject": {"metadata": {"resourceVersion": base}}, "responseObject": {"kind": "Status"},
            "responseStatus": {"reason": "Conflict"},
        });
        line(at, user, "update", 409, bodies)
    }

    fn read(at: i64, user: &str) -> Value {
        line(at, user, "get", 200, json!({"level": "Metadata"}))
    }

    #[test]
    fn a_conflict_costs_itself_the_reads_and_the_time_until_a_write_is_granted() {
        let model = model(&[
            wrote(0, "bob", "1", "2"),
            refused(10, "alice", "1"),
            read(20, "bob"),
            read(30, "alice"),
            wrote(40, "alice", "2", "3"),
        ]);
        let of = &model.requests[1];
        assert_eq!(
            of.cost,
            Some(Cost { requests: 2, millis: Some(35.0), settled_by: Some(4), is_first: true })
        );
        assert_eq!(of.beaten_by, Some(0));
        let alice = model.writers.iter().find(|writer| writer.name == "alice").unwrap();
        assert_eq!((alice.conflicts, alice.extra, alice.granted), (1, 2, 1));
    }

    #[test]
    fn refusals_in_a_row_are_summed_once() {
        let model = model(&[
            wrote(0, "bob", "1", "2"),
            refused(10, "alice", "1"),
            refused(20, "alice", "1"),
            wrote(40, "alice", "2", "3"),
        ]);
        let costs: Vec<_> = model.requests.iter().filter_map(|of| of.cost.as_ref()).collect();
        assert_eq!((costs[0].requests, costs[0].is_first), (2, true));
        assert_eq!((costs[1].requests, costs[1].is_first), (1, false));
        let alice = &model.writers[1];
        assert_eq!((alice.extra, alice.unsettled), (2, 0));
        assert!((alice.waited - 35.0).abs() < 1e-9);
    }

    #[test]
    fn a_conflict_without_a_later_granted_write_has_no_end() {
        let model = model(&[refused(0, "alice", "1"), read(10, "alice"), wrote(20, "bob", "1", "2")]);
        let cost = model.requests[0].cost.as_ref().unwrap();
        assert_eq!((cost.requests, cost.millis, cost.settled_by), (1, None, None));
        assert_eq!(model.requests[0].beaten_by, None, "bob's write came after the refusal");
    }

    #[test]
    fn a_write_of_the_status_or_one_sent_before_the_refusal_ends_no_refusal() {
        let mut status = wrote(10, "alice", "2", "3");
        status["objectRef"]["subresource"] = json!("status");
        let mut overlapping = wrote(2, "alice", "3", "4");
        overlapping["stageTimestamp"] = refused(60, "alice", "1")["stageTimestamp"].clone();
        let model = model(&[refused(0, "alice", "1"), status, overlapping]);
        assert_eq!(model.requests[0].cost.as_ref().unwrap().settled_by, None);
    }

    #[test]
    fn a_write_that_leaves_the_version_changed_nothing() {
        let patch = json!({
            "requestObject": {"spec": {}}, "responseObject": {"metadata": {"resourceVersion": "2"}},
        });
        let model = model(&[
            wrote(0, "a", "1", "2"),
            wrote(10, "b", "2", "2"),
            line(20, "a", "patch", 200, patch),
            wrote(30, "a", "2", "3"),
        ]);
        let no_ops: Vec<bool> = model.requests.iter().map(|of| of.no_op).collect();
        assert_eq!(no_ops, [false, true, true, false]);
    }
}
