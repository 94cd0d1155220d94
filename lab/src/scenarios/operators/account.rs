//! Readable tables from the audit log: the writer, the endpoint, the form of the write, and the changed fields.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use shared_crds::NodePool;
use shared_crds::names::{AUTOSCALER_OPERATOR, NODEPOOL_OPERATOR};
use testbed::audit::{Event, ObjectKey};
use testbed::history;
use testbed::history::Effect;

use crate::context::ScenarioContext;
use crate::event::Table;

/// Why a guarded write meets no 409.
pub(super) const WHY_NO_409: &str = "Each operator applies its own part of the status with force, and names no version. A 409 of a stale version needs a version, and a 409 of an apply is about ownership, which force settles for the writer; that is right here, because the contract gives it these fields. What can be refused is the JSON Patch of the replicas, which tests what it was decided from: with 422, when that has changed since.";

/// How long before a write its read may have been.
const READ_FOR: SignedDuration = SignedDuration::from_secs(1);

/// How `guarded` writes a status.
pub(super) const REPORT: &str = "server-side apply with force";

/// The sender of a request: the name of an operator, or of a controller of Kubernetes; any other sender is a user.
pub(super) fn writer(event: &Event) -> String {
    let name = event.writer();
    if let Some(operator) = operator(event) {
        return operator.to_owned();
    }
    if let Some(controller) = name.strip_prefix("kube-system:") {
        return controller.to_owned();
    }
    match name.strip_prefix("system:") {
        Some(component) => component.to_owned(),
        None if event.user_agent.starts_with("kwok") => "kwok".to_owned(),
        None => "a person".to_owned(),
    }
}

/// The operator that sent the request, if it is one of the two.
pub(super) fn operator(event: &Event) -> Option<&'static str> {
    [NODEPOOL_OPERATOR, AUTOSCALER_OPERATOR].into_iter().find(|name| event.writer().ends_with(name))
}

/// The endpoint, as RBAC names it.
pub(super) fn endpoint(event: &Event) -> String {
    let resource = event.object.as_ref().map_or("", |object| object.resource.as_str());
    match event.subresource.as_str() {
        "" => resource.to_owned(),
        subresource => format!("{resource}/{subresource}"),
    }
}

/// The verb of a request, as in the other tables of requests; `PATCH` where its form is not known.
pub(super) fn verb(event: &Event) -> &'static str {
    match (event.verb.as_str(), &event.request) {
        ("create", _) => "CREATE",
        ("update", _) => "PUT",
        ("delete" | "deletecollection", _) => "DELETE",
        (_, Some(body)) if body.is_array() => "JSON",
        (_, Some(body)) if body.get("apiVersion").is_some() => "APPLY",
        _ => "PATCH",
    }
}

/// The form of a write, and its guard.
pub(super) fn form(event: &Event) -> &'static str {
    let body = event.request.as_ref();
    let is_versioned = event.base_version().is_some();
    let tests = |body: &Value, path: Option<&str>| {
        let is_it = |operation: &Value| {
            operation["op"] == "test" && path.is_none_or(|path| operation["path"] == path)
        };
        body.as_array().is_some_and(|all| all.iter().any(is_it))
    };
    match event.verb.as_str() {
        "create" => "CREATE",
        "delete" | "deletecollection" => "DELETE",
        "update" if is_versioned => "PUT at a version",
        "update" => "PUT",
        _ => match body {
            Some(body) if body.is_array() && is_versioned => "JSON Patch at a version",
            Some(body) if tests(body, Some("/metadata/generation")) => "JSON Patch at a generation",
            Some(body) if tests(body, None) => "JSON Patch that tests the old value",
            Some(body) if body.is_array() => "JSON Patch",
            Some(body) if body.get("apiVersion").is_some() => match (event.forced, is_versioned) {
                (true, false) => "server-side apply with force",
                (true, true) => "server-side apply with force, at a version",
                (false, false) => "server-side apply",
                (false, true) => "server-side apply at a version",
            },
            Some(_) if is_versioned => "merge patch at a version",
            _ => "patch",
        },
    }
}

/// Whether none of the operators' changes could meet a 409, whatever other writers do: each is a forced apply without a
/// version, or a JSON Patch that tests the basis of its decision. Shows their forms live.
pub(super) fn cannot_conflict<'a>(
    ctx: &ScenarioContext,
    events: impl IntoIterator<Item = &'a Event>,
) -> bool {
    let changes = events.into_iter().filter(|event| {
        operator(event).is_some() && event.is_write() && !matches!(event.verb.as_str(), "create" | "delete")
    });
    let forms: BTreeSet<&str> = changes.map(form).collect();
    ctx.live_quote(&forms.iter().copied().collect::<Vec<_>>().join("\n"));
    let guarded = ["JSON Patch that tests the old value", "JSON Patch at a generation"];
    forms.contains(REPORT) && forms.iter().all(|form| *form == REPORT || guarded.contains(form))
}

/// The writes to `object`, granted or refused, in the order of their answers: time, writer, form and result.
pub(super) fn timeline(events: &[Event], object: &ObjectKey) -> Table {
    let mut table =
        Table::new(&["ms", "who", "through", "how", "answer", "version", "generation", "changed"]);
    let mut writes: Vec<&Event> =
        events.iter().filter(|event| event.object.as_ref() == Some(object) && event.is_write()).collect();
    writes.sort_by_key(|event| event.completed);
    let began = writes.first().map(|event| event.received);
    let steps = changes(events, object);
    for event in writes {
        let since = began.map_or(0, |began| event.completed.duration_since(began).as_millis());
        let generation = event.response.as_ref().and_then(|answer| answer.pointer("/metadata/generation"));
        let version = event.version();
        let changed = version.and_then(|version| steps.get(&version)).cloned().unwrap_or_default();
        table.row(&[
            &since,
            &writer(event),
            &endpoint(event),
            &form(event),
            &event.code,
            &version.map_or_else(String::new, |version| version.to_string()),
            &generation.map_or_else(String::new, Value::to_string),
            &briefly(&changed),
        ]);
    }
    table
}

/// Fields as short text: conditions are counted.
fn briefly(fields: &[String]) -> String {
    let (conditions, others): (Vec<_>, Vec<_>) =
        fields.iter().partition(|field| field.starts_with("status.conditions."));
    let mut names: Vec<String> = others.into_iter().cloned().collect();
    match conditions.len() {
        0 => {}
        1 => names.push("1 condition".to_owned()),
        many => names.push(format!("{many} conditions")),
    }
    names.join(", ")
}

/// The fields that each version of `object` changed.
fn changes(events: &[Event], object: &ObjectKey) -> BTreeMap<u64, Vec<String>> {
    let mut found = BTreeMap::new();
    let mut before: BTreeMap<String, Value> = BTreeMap::new();
    for write in history::of_object(events, object) {
        let (Effect::Moved { .. }, Some(answer)) = (write.effect, &write.event.response) else { continue };
        let mut after = parts(answer);
        if write.event.subresource == "scale" {
            // The answer is a Scale, which leaves out zero.
            let replicas = answer.pointer("/spec/replicas").cloned().unwrap_or_else(|| 0.into());
            after = before.clone();
            after.insert("spec.replicas".to_owned(), replicas);
        }
        let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let changed = keys.into_iter().filter(|key| before.get(*key) != after.get(*key)).cloned().collect();
        found.insert(write.version, if write.event.verb == "create" { Vec::new() } else { changed });
        before = after;
    }
    found
}

/// The parts of an object that have one owner each: fields of spec and status, conditions by their type, the finalizers.
fn parts(object: &Value) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for top in ["spec", "status"] {
        for (key, value) in object[top].as_object().into_iter().flatten() {
            match value.as_array().filter(|_| key == "conditions") {
                Some(all) => found.extend(all.iter().map(|condition| {
                    let type_ = condition["type"].as_str().unwrap_or_default();
                    (format!("status.conditions.{type_}"), condition.clone())
                })),
                None => drop(found.insert(format!("{top}.{key}"), value.clone())),
            }
        }
    }
    for key in ["finalizers", "labels", "annotations"] {
        if let Some(value) = object["metadata"].get(key) {
            found.insert(format!("metadata.{key}"), value.clone());
        }
    }
    found
}

/// One entry of `managedFields`: the manager, the operation, the endpoint and the fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Managed {
    /// The field manager.
    pub(super) manager: String,
    /// The subresource, empty for the object itself.
    pub(super) subresource: String,
    /// `Update` or `Apply`.
    pub(super) operation: String,
    /// The fields, two levels deep; conditions by their type.
    pub(super) fields: Vec<String>,
}

/// The entries of a pool's `managedFields`.
pub(super) fn managed(pool: &NodePool) -> Result<Vec<Managed>> {
    let mut all = Vec::new();
    for entry in pool.metadata.managed_fields.iter().flatten() {
        let fields = entry.fields_v1.as_ref().map(serde_json::to_value).transpose()?.unwrap_or_default();
        all.push(Managed {
            manager: entry.manager.clone().unwrap_or_default(),
            subresource: entry.subresource.clone().unwrap_or_default(),
            operation: entry.operation.clone().unwrap_or_default(),
            fields: field_names(&fields),
        });
    }
    all.sort();
    Ok(all)
}

fn field_names(fields: &Value) -> Vec<String> {
    let below = |value: &Value| -> Vec<(String, Value)> {
        let keys = value.as_object().into_iter().flatten();
        keys.filter_map(|(key, value)| Some((key.strip_prefix("f:")?.to_owned(), value.clone()))).collect()
    };
    let mut found = Vec::new();
    for (top, value) in below(fields) {
        for (name, value) in below(&value) {
            if name != "conditions" {
                found.push(format!("{top}.{name}"));
                continue;
            }
            let keys = value.as_object().into_iter().flatten().filter_map(|(key, _)| key.strip_prefix("k:"));
            let types = keys.filter_map(|key| serde_json::from_str::<Value>(key).ok());
            found.extend(types.map(|key| format!("condition {}", key["type"].as_str().unwrap_or_default())));
        }
    }
    found.sort();
    found
}

/// Requests of both operators to `object`: how many reads, writes, granted writes, 409s and 422s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bill {
    /// Reads of single objects.
    pub(super) reads: usize,
    /// Write requests.
    pub(super) writes: usize,
    /// Writes to `/status` and `/scale`, which both write.
    pub(super) shared_writes: usize,
    /// Granted writes.
    pub(super) granted: usize,
    /// Writes answered with 409.
    pub(super) conflicts: usize,
    /// Writes answered with 422, like a JSON Patch whose test fails.
    pub(super) invalid: usize,
}

/// Number of the operators' 409s on `object` that they caused themselves: the version in the write had been replaced by a
/// write of the same operator.
pub(super) fn own_conflicts(events: &[Event], object: &ObjectKey) -> usize {
    let moved = history::of_object(events, object).into_iter();
    let made: BTreeMap<u64, &str> = moved
        .filter(|write| matches!(write.effect, Effect::Moved { .. }))
        .map(|write| (write.version, write.event.writer()))
        .collect();
    let by_itself = |event: &&Event| {
        let base = event.base_version().and_then(|base| base.parse::<u64>().ok());
        let next = base.and_then(|base| made.range(base + 1..).next());
        next.is_some_and(|(_, writer)| *writer == event.writer())
    };
    let refused = events.iter().filter(|event| event.object.as_ref() == Some(object) && event.code == 409);
    refused.filter(|event| operator(event).is_some()).filter(by_itself).count()
}

/// The operators' requests to `object`, counted.
pub(super) fn bill(events: &[Event], object: &ObjectKey) -> Bill {
    let mut bill = Bill::default();
    let of_operators = events.iter().filter(|event| operator(event).is_some());
    for event in of_operators.filter(|event| event.object.as_ref() == Some(object)) {
        bill.reads += usize::from(event.verb == "get");
        if event.is_write() {
            bill.writes += 1;
            bill.shared_writes += usize::from(!event.subresource.is_empty());
            bill.granted += usize::from(event.succeeded());
            bill.conflicts += usize::from(event.code == 409);
            bill.invalid += usize::from(event.code == 422);
        }
    }
    bill
}

/// How long each granted write of an operator to `object` took, in milliseconds and in ascending order: from the arrival
/// of its first request, which is its first attempt or the read before that, to the answer that granted it. Attempts of one
/// write are those of one operator to one endpoint since the last one that was granted there.
/// A read longer ago was not for the write.
pub(super) fn latencies(events: &[Event], object: &ObjectKey) -> Vec<f64> {
    let is_ours = |event: &&Event| operator(event).is_some() && event.object.as_ref() == Some(object);
    let mut requests: Vec<&Event> = events.iter().filter(is_ours).collect();
    requests.sort_by_key(|event| event.completed);
    // The read of an operator that no attempt has followed yet, and the beginnings of the writes under way.
    let mut reads: BTreeMap<&str, Timestamp> = BTreeMap::new();
    let mut begun: BTreeMap<(&str, &str), Timestamp> = BTreeMap::new();
    let mut all = Vec::new();
    for event in requests {
        let writer = event.writer();
        if event.verb == "get" {
            reads.insert(writer, event.received);
        } else if event.is_write() {
            let read = reads.remove(writer).filter(|read| event.received.duration_since(*read) <= READ_FOR);
            let first = read.unwrap_or(event.received).min(event.received);
            let endpoint = (writer, event.subresource.as_str());
            let first = *begun.entry(endpoint).or_insert(first);
            if event.succeeded() {
                begun.remove(&endpoint);
                all.push(1000.0 * event.completed.duration_since(first).as_secs_f64());
            }
        }
    }
    all.sort_by(f64::total_cmp);
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A PUT of the pool by one of Tandem's accounts, as the API server would have logged it.
    fn put(who: &str, from: u64, to: Option<u64>, second: u64) -> Event {
        let time = format!("2026-11-21T03:00:0{second}.000000Z");
        let (code, answer) = match to {
            Some(version) => (200, json!({"metadata": {"resourceVersion": version.to_string()}})),
            None => (409, json!({"kind": "Status", "code": 409})),
        };
        let line = json!({
            "stage": "ResponseComplete", "requestURI": "/x", "verb": "update",
            "user": {"username": format!("system:serviceaccount:tandem:{who}")},
            "objectRef": {"apiGroup": "tandem.dev", "resource": "nodepools", "namespace": "a", "name": "p"},
            "responseStatus": {"code": code},
            "requestObject": {"metadata": {"resourceVersion": from.to_string()}}, "responseObject": answer,
            "requestReceivedTimestamp": time, "stageTimestamp": time,
        });
        testbed::audit::parse(&line.to_string()).unwrap().unwrap()
    }

    #[test]
    fn a_conflict_is_of_its_writers_own_making_when_its_own_write_replaced_the_version() {
        let pool = ObjectKey::node_pool("a", "p");
        let (own, other) = (AUTOSCALER_OPERATOR, NODEPOOL_OPERATOR);
        let scaled = [put(own, 5, Some(7), 0), put(own, 5, None, 1), put(other, 5, None, 2)];
        assert_eq!(own_conflicts(&scaled, &pool), 1);
        let between = [put(other, 5, Some(7), 0), put(own, 7, Some(9), 1), put(own, 5, None, 2)];
        assert_eq!(own_conflicts(&between, &pool), 0, "the other one was first");
    }

    #[test]
    fn a_write_takes_from_its_first_request_to_the_answer_that_grants_it() {
        let pool = ObjectKey::node_pool("a", "p");
        let (own, other) = (AUTOSCALER_OPERATOR, NODEPOOL_OPERATOR);
        let mut read = put(own, 0, None, 1);
        (read.verb, read.code) = ("get".to_owned(), 200);
        let tried_again = [read, put(own, 5, None, 2), put(other, 5, Some(7), 3), put(own, 7, Some(9), 4)];
        let times =
            |events: &[Event]| latencies(events, &pool).iter().map(f64::to_string).collect::<Vec<_>>();
        assert_eq!(times(&tried_again), ["0", "3000"], "the other's at once, its own from the read on");
        let mut unused = put(own, 0, None, 1);
        (unused.verb, unused.code) = ("get".to_owned(), 200);
        assert_eq!(times(&[unused, put(own, 5, Some(7), 9)]), ["0"], "the read was for another write");
        let given_up = [put(own, 5, None, 2)];
        assert_eq!(times(&given_up), [""; 0], "nothing was granted");
    }
}
