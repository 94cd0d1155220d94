//! Checks guards on a generation: finds those that failed although they should have held.

use k8s_openapi::jiff::Timestamp;

use crate::audit::{Event, ObjectKey};

/// The writes of `object` that were refused although no writer had changed its spec since the generation that they
/// tested, as text.
pub fn false_conflicts(events: &[Event], object: &ObjectKey) -> Vec<String> {
    let events: Vec<&Event> = events.iter().filter(|event| event.object.as_ref() == Some(object)).collect();
    let refused = events.iter().filter(|event| event.is_write() && !event.succeeded());
    let guarded = refused.filter_map(|event| Some((event, asked(event)?)));
    let generations = generations(&events);
    // The answers of two requests may be logged in a different order than they were decided in.
    let moved = |completed, asked| {
        generations.iter().any(|&(received, generation)| received <= completed && generation > asked)
    };
    let report = |(event, _): (&&Event, i64)| {
        let (who, code, message) = (event.writer(), event.code, &event.message);
        let request = event.request.as_ref().map(ToString::to_string).unwrap_or_default();
        format!("{who}, {} of {:?}, {code} {message}: {request}", event.verb, event.subresource)
    };
    guarded.filter(|(event, asked)| !moved(event.completed, *asked)).map(report).collect()
}

/// The generation that a JSON Patch tests.
fn asked(event: &Event) -> Option<i64> {
    let operations = event.request.as_ref()?.as_array()?;
    let test = operations
        .iter()
        .find(|operation| operation["op"] == "test" && operation["path"] == "/metadata/generation");
    test?["value"].as_i64()
}

/// The arrival times of granted requests, each with the object's generation after it.
fn generations(events: &[&Event]) -> Vec<(Timestamp, i64)> {
    let mut granted: Vec<_> = events
        .iter()
        .filter(|event| event.succeeded())
        .filter_map(|event| Some((event.version()?, *event)))
        .collect();
    granted.sort_by_key(|&(version, _)| version);
    let mut generations = Vec::new();
    let mut before = None;
    for (_, event) in granted {
        let answer = |pointer| event.response.as_ref()?.pointer(pointer)?.as_i64();
        let replicas = answer("/spec/replicas");
        let generation = match (answer("/metadata/generation"), before) {
            (Some(generation), _) => generation,
            // A Scale has no generation; the object's generation moved if the count changed.
            (None, Some((generation, count))) if event.is_write() && event.subresource == "scale" => {
                generation + i64::from(count != replicas)
            }
            (None, _) => continue,
        };
        before = Some((generation, replicas));
        generations.push((event.received, generation));
    }
    generations
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::audit::tests::Wrote;

    fn wrote(subresource: &str, request: Value, code: u16, response: Value, at: i64) -> Event {
        let verb = if request.is_array() { "patch" } else { "update" };
        Wrote { user: "a", verb, subresource, request, code, response, at }.event()
    }

    fn patch(asked: i64, granted: Option<Value>, at: i64) -> Event {
        let request = json!([{"op": "test", "path": "/metadata/generation", "value": asked}]);
        let code = if granted.is_some() { 200 } else { 422 };
        wrote("", request, code, granted.unwrap_or_default(), at)
    }

    fn object(version: u64, generation: Option<i64>, replicas: Option<i64>) -> Value {
        let metadata = json!({"resourceVersion": version.to_string(), "generation": generation});
        json!({"metadata": metadata, "spec": {"replicas": replicas}})
    }

    fn scale(version: u64, replicas: i64, at: i64) -> Event {
        wrote("scale", json!({}), 200, object(version, None, Some(replicas)), at)
    }

    #[test]
    fn a_refusal_is_false_unless_the_generation_had_moved() {
        let first = || patch(1, Some(object(10, Some(2), None)), 0);
        let key = first().object.unwrap();
        let refused = |events: &[Event]| false_conflicts(events, &key).len();
        assert_eq!(refused(&[first(), patch(1, None, 1)]), 0);
        let still = [first(), patch(2, None, 1), patch(2, Some(object(11, Some(3), None)), 2)];
        let [report] = &false_conflicts(&still, &key)[..] else { panic!("one of them") };
        assert!(report.starts_with("a, patch of \"\", 422"), "{report}");
    }

    #[test]
    fn a_scale_that_changed_the_count_moved_the_generation() {
        let first = || patch(1, Some(object(10, Some(2), None)), 0);
        let key = first().object.unwrap();
        let refused = |events: &[Event]| false_conflicts(events, &key).len();
        assert_eq!(refused(&[first(), scale(11, 0, 1), patch(2, None, 2)]), 0);
        assert_eq!(refused(&[first(), scale(11, 0, 1), scale(12, 4, 1), patch(3, None, 2)]), 0);
        assert_eq!(refused(&[first(), scale(11, 4, 1), scale(11, 4, 1), patch(3, None, 2)]), 1);
        assert_eq!(refused(&[first(), scale(11, 4, 3), patch(2, None, 2)]), 1, "it came later");
    }
}
