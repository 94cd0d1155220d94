//! First aid for refused requests: which case each is, from the server's message.

use std::collections::HashMap;

use first_aid::{Case, diagnose};

use crate::line::LoggedRequest;
use crate::model::{Aid, RequestOutcome, Shown};

/// The text that stands for a conflict whose message the log does not have: its reason alone leads to no case.
const CONFLICT: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Notes the case of each refused request, and returns the cases. Both lists are the same requests.
pub(crate) fn add_aids(requests: &[LoggedRequest], shown: &mut [Shown]) -> Vec<Aid> {
    let mut aids = Vec::new();
    let mut known: HashMap<&'static str, usize> = HashMap::new();
    for (request, of) in requests.iter().zip(shown) {
        let is_refused = matches!(of.outcome, RequestOutcome::Conflict | RequestOutcome::Refused);
        let Some(case) = case(request).filter(|_| is_refused) else { continue };
        let place = *known.entry(&case.id).or_insert_with(|| {
            aids.push(Aid { title: &case.title, cause: &case.cause, fix: &case.fix });
            aids.len() - 1
        });
        of.aid = Some(place);
    }
    aids
}

fn case(request: &LoggedRequest) -> Option<&'static Case> {
    let is_update = matches!(request.verb.as_str(), "update" | "patch");
    if request.message.is_empty() {
        // An apply may have met another field manager, and a create another object.
        let is_sure = is_update && request.reason == "Conflict" && request.how != Some("apply");
        return if is_sure { diagnose(CONFLICT) } else { None };
    }
    diagnose(&request.message)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::line::tests::{line, request};

    fn titled(verb: &str, code: u16, status: &Value) -> Option<&'static str> {
        let of = line(0, "u", verb, code, json!({"responseStatus": status}));
        case(&request(&of)).map(|case| case.id.as_str())
    }

    #[test]
    fn a_message_leads_to_its_case_and_a_conflict_without_one_to_the_old_copy() {
        let text = format!("Operation cannot be fulfilled on widgets.example.com \"a\": {CONFLICT}");
        let old = titled("update", 409, &json!({"code": 409, "reason": "Conflict", "message": text}));
        assert!(old.is_some());
        assert_eq!(titled("update", 409, &json!({"code": 409, "reason": "Conflict"})), old);
        let manager = "Apply failed with 1 conflict: conflict with \"kubectl\" using v1: .data.a";
        let manager = titled("patch", 409, &json!({"code": 409, "reason": "Conflict", "message": manager}));
        assert!(manager.is_some() && manager != old, "{manager:?}");
    }

    #[test]
    fn what_is_none_of_the_cases_has_no_words() {
        assert_eq!(titled("create", 409, &json!({"code": 409, "reason": "AlreadyExists"})), None);
        assert_eq!(titled("update", 418, &json!({"code": 418, "message": "I'm a teapot"})), None);
    }
}
