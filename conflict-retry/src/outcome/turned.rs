//! The error of a write as one of kube, for `?` in a function that returns those.

use kube::core::Status;
use kube::core::response::{StatusDetails, reason};

use super::{RequestFailure, WriteError};
use crate::classify::{Class, Classified, explained};

impl From<WriteError> for kube::Error {
    /// The answer of the API server that ended the write, with the text of the `WriteError` and its advice after the server's
    /// message; a missing object is a 404, a conflict a 409. Everything else ([`WriteError::Refused`], a cancellation, a
    /// time-out, a broken connection) is a `kube::Error::Service` that contains the `WriteError`, whose [`Class::of`] is that
    /// of the write. Whether a write may have been carried out all the same is lost: ask [`WriteError::maybe_written`]
    /// before.
    fn from(error: WriteError) -> Self {
        let text = error.to_string();
        if let Some(status) = answer(&error) {
            let message = explained(&status.message, &text);
            return Self::Api(Status { message, ..status.clone() }.boxed());
        }
        match error {
            WriteError::Gone { resource, name, .. } => Self::Api(missing(resource, name, &text).boxed()),
            WriteError::Unknown { .. } => Self::Service(Box::new(Classified::new(Class::Ambiguous, error))),
            other => {
                let class = other.class().cloned().unwrap_or(Class::Other);
                Self::Service(Box::new(Classified::new(class, other)))
            }
        }
    }
}

/// The answer of the API server that ended the write; `None` when there was none, or when it is not what ended the write.
fn answer(error: &WriteError) -> Option<&Status> {
    match error {
        WriteError::Conflict { status } => Some(status),
        WriteError::FieldManager { source, .. }
        | WriteError::Rejected { source, .. }
        | WriteError::Unknown { source, .. }
        | WriteError::Exhausted { last: source, .. } => match source.as_ref() {
            RequestFailure::Api(kube::Error::Api(status)) => Some(status),
            RequestFailure::Api(_) | RequestFailure::Timeout(_) => None,
        },
        WriteError::Refused { .. }
        | WriteError::ClientThrottled { .. }
        | WriteError::Gone { .. }
        | WriteError::Aborted { .. }
        | WriteError::Cancelled { .. } => None,
    }
}

fn missing(resource: String, name: String, text: &str) -> Status {
    let details = StatusDetails {
        name,
        group: String::new(),
        kind: resource,
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    };
    Status::failure(text, reason::NOT_FOUND).with_code(404).with_details(details)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::classify::FieldConflict;
    use crate::operation::{Subresource, Verb};
    use crate::outcome::Refusal;
    use crate::policy::GiveUp;
    use crate::protect::ThrottledBy;

    fn status(code: u16, reason: &str, message: &str) -> Status {
        Status::failure(message, reason).with_code(code)
    }

    /// An answer, a connection that is refused, no answer.
    fn failures(code: u16, reason: &str) -> [RequestFailure; 3] {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        [
            RequestFailure::Api(kube::Error::Api(status(code, reason, "the server's message").boxed())),
            RequestFailure::Api(kube::Error::Service(Box::new(refused))),
            RequestFailure::Timeout(Duration::from_secs(15)),
        ]
    }

    fn rejected(class: Class, source: RequestFailure) -> WriteError {
        let source = Box::new(source);
        let (verb, subresource) = (Verb::Put, Subresource::Main);
        WriteError::Rejected { verb, subresource, class, maybe_written: false, source }
    }

    fn exhausted(class: Class, last: RequestFailure) -> WriteError {
        let (attempts, elapsed, reason) = (64, Duration::from_secs(30), GiveUp::Attempts);
        WriteError::Exhausted { attempts, elapsed, reason, class, maybe_written: true, last: Box::new(last) }
    }

    /// One of every variant, and of every source that a variant may have.
    fn every() -> Vec<WriteError> {
        let conflicts = vec![FieldConflict::new("kubectl", ".spec.note")];
        let mut errors = vec![
            WriteError::Refused { reason: Refusal::NoName, maybe_written: false },
            WriteError::ClientThrottled {
                attempts: 1,
                by: ThrottledBy::WaitTimeout(Duration::from_secs(1)),
                maybe_written: false,
                last: None,
            },
            WriteError::Gone { resource: "pools".into(), name: "n".into(), maybe_written: false },
            WriteError::Aborted { maybe_written: false },
            WriteError::Conflict { status: status(409, "Conflict", "the object has been modified").boxed() },
            WriteError::Cancelled { attempts: 1, maybe_written: true, last: None },
        ];
        for source in failures(409, "Conflict") {
            let source = Box::new(source);
            errors.push(WriteError::FieldManager {
                conflicts: conflicts.clone(),
                maybe_written: false,
                source,
            });
        }
        errors.extend(failures(404, "").map(|source| rejected(Class::NotServed, source)));
        errors.extend(failures(409, "Conflict").map(|last| exhausted(Class::Conflict, last)));
        errors.extend(
            failures(504, "Timeout")
                .map(|source| WriteError::Unknown { verb: Verb::Put, source: Box::new(source) }),
        );
        errors
    }

    #[test]
    fn the_advice_of_every_variant_stays() {
        for error in every() {
            let text = error.to_string();
            let turned = kube::Error::from(error);
            assert!(turned.to_string().contains(&text), "{turned}");
            if let kube::Error::Api(status) = &turned {
                assert!(status.message.contains(&text), "{status:?}");
            }
        }
    }

    #[test]
    fn an_answer_keeps_its_code_its_reason_its_message_and_its_class() {
        let deleted = "StorageError: invalid object, Precondition failed: UID in precondition: 0c62, UID in object meta: ";
        for (code, reason, message, class) in [
            (404, "", "", Class::NotServed),
            (404, "NotFound", "the server could not find the requested resource", Class::NotServed),
            (403, "Forbidden", "pools \"n\" is forbidden: no", Class::Forbidden),
            (422, "Invalid", "admission webhook \"w\" denied the request: no", Class::Invalid),
            (409, "Conflict", deleted, Class::Deleted),
            (409, "Conflict", "the object has been modified", Class::Conflict),
            (500, "", "etcdserver: request is too large", Class::TooLarge),
        ] {
            let answered = || RequestFailure::Api(kube::Error::Api(status(code, reason, message).boxed()));
            for error in [rejected(class.clone(), answered()), exhausted(class.clone(), answered())] {
                let turned = kube::Error::from(error);
                assert_eq!(Class::of(Verb::Put, &turned), class, "{turned}");
                let kube::Error::Api(status) = turned else { panic!("{turned}") };
                assert_eq!((status.code, status.reason.as_str()), (code, reason), "{status:?}");
                assert!(status.message.starts_with(message), "{status:?}");
            }
        }
        let details =
            json!({"status": "Failure", "code": 403, "reason": "Forbidden", "details": {"name": "n"}});
        let status: Status = serde_json::from_value(details).unwrap();
        let error = rejected(Class::Forbidden, RequestFailure::Api(kube::Error::Api(status.clone().boxed())));
        let kube::Error::Api(turned) = kube::Error::from(error) else { panic!("{status:?}") };
        assert_eq!(turned.details, status.details);
    }

    #[test]
    fn what_was_not_answered_keeps_its_class_and_says_what_went_wrong() {
        let [_, refused, timeout] = failures(504, "Timeout");
        let unknown = WriteError::Unknown { verb: Verb::Put, source: Box::new(timeout) };
        for (error, class, root) in [
            (
                exhausted(Class::Transient { retry_after: None }, refused),
                Class::Transient { retry_after: None },
                "connection refused",
            ),
            (unknown, Class::Ambiguous, "no answer within 15s"),
            (WriteError::Aborted { maybe_written: false }, Class::Other, "the decision was not to write"),
        ] {
            let turned = kube::Error::from(error);
            assert_eq!(Class::of(Verb::Put, &turned), class, "{turned}");
            assert!(turned.to_string().ends_with(root), "{turned}");
        }
    }
}
