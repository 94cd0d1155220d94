//! Reads an answer by its code, because its reason is none of Kubernetes': a proxy's or a gateway's answer, or plain text.

use kube::core::Status;

use super::admission::of_forbidden;
use super::{Class, of_conflict, of_internal, of_invalid, of_not_found, retry_after};
use crate::operation::Verb;

/// The reason that kube 5.0 gives to an answer that it cannot decode as a `Status`: a page, or nothing at all.
const UNDECODED: &str = "Failed to parse error data";

/// The class of an answer whose reason Kubernetes does not know.
pub(super) fn of_code(verb: Verb, status: &Status) -> Class {
    match status.code {
        401 => Class::Unauthorized,
        403 => of_forbidden(status),
        404 => of_not_found(verb, status),
        409 => of_conflict(verb, status),
        410 => Class::Gone,
        413 => Class::TooLarge,
        422 => of_invalid(verb, status),
        429 => Class::Throttled { retry_after: retry_after(status) },
        500 => match of_internal(status) {
            Class::Other => of_unknown(verb, status),
            known => known,
        },
        502 | 504 => Class::Ambiguous,
        // Not an answer of the API server itself. Proxies send the same when the server closed the connection half-way.
        503 if verb.is_write() => Class::Ambiguous,
        503 => Class::Transient { retry_after: retry_after(status) },
        _ => of_unknown(verb, status),
    }
}

/// The API server knows what it has done. Anything between it and the client does not, and has codes of its own for that: of
/// 520 to 530, for example, most mean that the request was passed on and no sound answer came back.
fn of_unknown(verb: Verb, status: &Status) -> Class {
    if is_of_api_server(status) {
        return Class::Other;
    }
    match status.code {
        408 | 500..=599 => Class::Ambiguous,
        // The body is JSON, but no `Status`. kube then takes the code from there, and the one of the answer is lost.
        code if verb.is_write() && !(400..500).contains(&code) => Class::Ambiguous,
        _ => Class::Other,
    }
}

/// Whether the answer is a `Status` as each failure of the API server is.
fn is_of_api_server(status: &Status) -> bool {
    status.is_failure() && status.reason != UNDECODED
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WRITES: [Verb; 7] =
        [Verb::Put, Verb::JsonPatch, Verb::MergePatch, Verb::Apply, Verb::Create, Verb::Delete, Verb::Evict];

    /// What kube makes of a page of a gateway, or of an empty body.
    fn page(code: u16, text: &str) -> Status {
        Status::failure(text, UNDECODED).with_code(code)
    }

    #[test]
    fn a_gateways_fault_leaves_a_write_in_doubt_whatever_its_code() {
        for code in (500..600).chain([408]) {
            for text in ["", "<html><body>error</body></html>"] {
                for verb in WRITES {
                    let class = Class::of_status(verb, &page(code, text));
                    assert_eq!(class, Class::Ambiguous, "{code} {verb} {text}");
                }
            }
            let class = Class::of_status(Verb::Get, &page(code, ""));
            let expected =
                if code == 503 { Class::Transient { retry_after: None } } else { Class::Ambiguous };
            assert_eq!(class, expected, "{code}, a read");
        }
        for code in [400, 402, 405, 418, 426, 431, 451, 499] {
            assert_eq!(Class::of_status(Verb::Put, &page(code, "")), Class::Other, "{code}");
        }
    }

    #[test]
    fn the_api_servers_own_fault_is_no_gateways() {
        let own = |code: u16| -> Status {
            serde_json::from_value(json!({"status": "Failure", "code": code, "message": "no"})).unwrap()
        };
        for code in (500..600).chain([408]) {
            // These codes are those of a proxy even with a body like this.
            let is_passed_on = matches!(code, 502..=504);
            let class = if is_passed_on { Class::Ambiguous } else { Class::Other };
            assert_eq!(Class::of_status(Verb::Put, &own(code)), class, "{code}");
        }
    }

    #[test]
    fn json_that_is_no_status_hides_the_code_of_the_answer() {
        for body in [
            json!({}),
            json!({"error": "upstream"}),
            json!({"code": 14, "message": "no upstream"}),
            json!({"code": 599, "message": "no upstream"}),
        ] {
            let status: Status = serde_json::from_value(body.clone()).unwrap();
            assert_eq!(Class::of_status(Verb::Put, &status), Class::Ambiguous, "{body}");
        }
        let status: Status = serde_json::from_value(json!({"error": "upstream"})).unwrap();
        assert_eq!(Class::of_status(Verb::Get, &status), Class::Other, "a read leaves nothing in doubt");
    }
}
