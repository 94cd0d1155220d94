//! Whether a failed write was denied: the answer says that this very write is not allowed, so that sending it again
//! changes nothing. Any other failure may be over in a moment, and concerns other objects as much as this one.

use conflict_retry::{Class, RequestFailure, WriteError};
use kube::core::response::reason;

/// How admission says that it has judged a write and does not allow it: a webhook, and a `ValidatingAdmissionPolicy` or
/// `MutatingAdmissionPolicy`. Either chooses its own code: a webhook that names none gets 400, and a policy may say 401
/// or 413 (texts of v1.36).
const DENIALS: [&str; 2] = ["denied the request", "denied request"];

/// Whom a 403 names after a request without credentials (text of v1.36): it has judged nothing of the operator.
const WITHOUT_CREDENTIALS: &str = "system:anonymous";

/// Whether the write was denied.
pub(super) fn is_denial(failed: &WriteError) -> bool {
    match failed {
        WriteError::FieldManager { .. } => true,
        WriteError::Rejected { class, source, .. } => denies(class, source),
        _ => false,
    }
}

fn denies(class: &Class, failure: &RequestFailure) -> bool {
    let RequestFailure::Api(kube::Error::Api(status)) = failure else {
        return false;
    };
    let says = |texts: &[&str]| texts.iter().any(|text| status.message.contains(text));
    if failure.is_undecided() || says(&[WITHOUT_CREDENTIALS]) {
        return false;
    }
    match class {
        // A 403 or a 422 without its reason is from a proxy, not from the API server, unless admission has chosen the
        // code alone.
        Class::Forbidden if status.reason == reason::FORBIDDEN => true,
        Class::NamespaceTerminating => true,
        Class::Invalid if status.reason == reason::INVALID => true,
        // A webhook that has failed itself, or is busy, answers with the code of that.
        Class::Forbidden | Class::Invalid | Class::Unauthorized | Class::TooLarge | Class::Other => {
            says(&DENIALS) && (400..500).contains(&status.code) && status.code != 408
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use conflict_retry::Verb;
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    fn denied(code: u16, reason: &str, message: &str) -> bool {
        let status: Status = serde_json::from_value(json!({
            "status": "Failure", "code": code, "reason": reason, "message": message,
            "details": {"name": "a", "group": "tandem.dev", "kind": "nodepools"},
        }))
        .unwrap();
        let class = Class::of_status(Verb::JsonPatch, &status);
        denies(&class, &failure(status))
    }

    fn failure(status: Status) -> RequestFailure {
        RequestFailure::Api(kube::Error::Api(status.boxed()))
    }

    #[test]
    fn a_namespace_that_is_being_deleted_denies_a_creation() {
        let status: Status = serde_json::from_value(json!({
            "status": "Failure", "code": 403, "reason": "Forbidden",
            "message": "configmaps \"a\" is forbidden: unable to create new content in namespace n because it is being terminated",
            "details": {"name": "a", "kind": "configmaps", "causes": [{
                "reason": "NamespaceTerminating", "message": "namespace n is being terminated",
                "field": "metadata.namespace",
            }]},
        }))
        .unwrap();
        let class = Class::of_status(Verb::Create, &status);
        assert_eq!(class, Class::NamespaceTerminating);
        assert!(denies(&class, &failure(status)));
    }

    #[test]
    fn only_an_answer_about_this_very_write_is_a_denial() {
        let webhook = "admission webhook \"w.example.org\" denied the request: no";
        let policy = "nodepools.tandem.dev \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no";
        let rights = "nodepools.tandem.dev \"a\" is forbidden: User \"u\" cannot patch resource \"nodepools\" in API group \"tandem.dev\" in the namespace \"n\"";
        for (code, reason, message) in [
            (403, "Forbidden", rights),
            (403, "Forbidden", webhook),
            (403, "", webhook),
            (400, "", webhook),
            (400, "BadRequest", webhook),
            (406, "NotAcceptable", webhook),
            (418, "Teapot", webhook),
            (422, "", webhook),
            (422, "Invalid", policy),
            (403, "Forbidden", policy),
            (401, "Unauthorized", policy),
            (413, "RequestEntityTooLarge", policy),
            (422, "Invalid", "NodePool.tandem.dev \"a\" is invalid: spec.replicas: Invalid value"),
            (403, "Forbidden", "nodepools.tandem.dev \"a\" is forbidden: exceeded quota: q"),
            (403, "Forbidden", "unable to create new content in namespace n because it is being terminated"),
        ] {
            assert!(denied(code, reason, message), "{code} {reason} {message}");
        }
        let call = "Internal error occurred: failed calling webhook \"w.example.org\": failed to call webhook: Post \"https://127.0.0.1:1/\": dial tcp 127.0.0.1:1: connect: connection refused";
        for (code, reason, message) in [
            (500, "InternalError", call),
            (500, "InternalError", "Internal error occurred: context deadline exceeded"),
            (500, "", "refused by the test"),
            (500, "", "etcdserver: leader changed"),
            (500, "", webhook),
            (503, "ServiceUnavailable", webhook),
            (429, "TooManyRequests", webhook),
            (408, "", webhook),
            (500, "ServerTimeout", "try again"),
            (502, "", "bad gateway"),
            (503, "ServiceUnavailable", "apiserver is shutting down"),
            (504, "Timeout", "request did not complete within the requested timeout"),
            (400, "BadRequest", "the body is no JSON"),
            (401, "Unauthorized", "Unauthorized"),
            (403, "", "a proxy's page"),
            (422, "", "a proxy's page"),
            (403, "Forbidden", "nodepools.tandem.dev \"a\" is forbidden: not yet ready to handle request"),
            (
                403,
                "Forbidden",
                "nodepools.tandem.dev \"a\" is forbidden: User \"u\" cannot patch resource \"nodepools\" in API group \"tandem.dev\" in the namespace \"n\": RBAC: role.rbac.authorization.k8s.io \"r\" not found",
            ),
            (
                403,
                "Forbidden",
                "nodepools.tandem.dev \"a\" is forbidden: User \"system:anonymous\" cannot patch resource \"nodepools\"",
            ),
            (
                403,
                "Forbidden",
                "nodepools.tandem.dev \"a\" is forbidden: status unknown for quota: q, resources: count/x",
            ),
            (
                422,
                "Invalid",
                "nodepools.tandem.dev \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: failed to configure binding: no params found",
            ),
            (404, "NotFound", "nodepools.tandem.dev \"a\" not found"),
            (405, "MethodNotAllowed", "the server does not allow this method on the requested resource"),
            (409, "Conflict", "the object has been modified"),
            (410, "Expired", "too old"),
            (413, "RequestEntityTooLarge", "limit is 3145728"),
            (415, "UnsupportedMediaType", "the body of the request was in an unknown format"),
            (429, "TooManyRequests", "too many requests"),
        ] {
            assert!(!denied(code, reason, message), "{code} {reason} {message}");
        }
    }
}
