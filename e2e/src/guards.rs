//! Guards on a generation: whether one failed that should have held.

use crate::audit::{Event, ObjectKey};

/// The writes of `object` that were refused although nobody had changed its spec since the generation that they asked for,
/// in words.
pub fn false_conflicts(events: &[Event], object: &ObjectKey) -> Vec<String> {
    let events: Vec<&Event> = events.iter().filter(|event| event.object.as_ref() == Some(object)).collect();
    let refused = events.iter().filter(|event| event.is_write() && !event.succeeded());
    let guarded = refused.filter_map(|event| Some((event, asked(event)?)));
    // The answers of two requests may be written down in another order than they were decided in.
    let moved = |completed, asked| {
        let mut granted = events.iter().filter(|event| event.succeeded() && event.received <= completed);
        granted.any(|event| made(event).is_some_and(|generation| generation > asked))
    };
    let told = |(event, _): (&&Event, i64)| {
        let (who, code, message) = (event.writer(), event.code, &event.message);
        let request = event.request.as_ref().map(ToString::to_string).unwrap_or_default();
        format!("{who}, {} of {:?}, {code} {message}: {request}", event.verb, event.subresource)
    };
    guarded.filter(|(event, asked)| !moved(event.completed, *asked)).map(told).collect()
}

/// The generation that a JSON Patch tests.
fn asked(event: &Event) -> Option<i64> {
    let operations = event.request.as_ref()?.as_array()?;
    let test = operations
        .iter()
        .find(|operation| operation["op"] == "test" && operation["path"] == "/metadata/generation");
    test?["value"].as_i64()
}

/// The generation in the answer.
fn made(event: &Event) -> Option<i64> {
    event.response.as_ref()?.pointer("/metadata/generation")?.as_i64()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::audit::tests::Wrote;

    fn patch(asked: i64, code: u16, made: Option<i64>, at: i64) -> Event {
        let request = json!([{"op": "test", "path": "/metadata/generation", "value": asked}]);
        let response = made.map_or(Value::Null, |made| json!({"metadata": {"generation": made}}));
        Wrote { user: "a", verb: "patch", subresource: "", request, code, response, at }.event()
    }

    #[test]
    fn a_refusal_is_false_unless_the_generation_had_moved() {
        let key = patch(1, 200, Some(2), 0).object.unwrap();
        let moved = [patch(1, 200, Some(2), 0), patch(1, 422, None, 1)];
        assert_eq!(false_conflicts(&moved, &key), Vec::<String>::new());
        let still = [patch(1, 200, Some(2), 0), patch(2, 422, None, 1), patch(2, 200, Some(3), 2)];
        let [refused] = &false_conflicts(&still, &key)[..] else { panic!("one of them") };
        assert!(refused.starts_with("a, patch of \"\", 422"), "{refused}");
    }
}
