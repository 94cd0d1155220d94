//! Reads what admission answers: a rejection, or a failure of its own. Either way nothing was executed.

use kube::core::Status;
use kube::core::response::reason;

use super::{Class, causes, retry_after};

/// The cause of a creation that is rejected because its namespace is being deleted (`v1.NamespaceTerminatingCause`).
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// The resource that a 409 names when admission lost a race for a `ResourceQuota`. It writes the new usage before the
/// request is executed, four times at most, and passes the last conflict on (`checkQuotas` of v1.36).
const QUOTAS: &str = "resourcequotas";

/// How the API server introduces the answer of a webhook that does not admit a request. The webhook chooses the code
/// and need not explain it (text of v1.36).
const DENIAL: &str = "admission webhook ";

/// How the API server reports that it could not ask a webhook: `Internal error occurred: failed calling webhook "NAME":
/// failed to call webhook: …`, then the error of the connection or `context deadline exceeded` (text of v1.36).
const WEBHOOK_FAULT: &str = "failed calling webhook ";

/// Whether a webhook does not admit the request.
pub(super) fn is_webhook_denial(status: &Status) -> bool {
    status.message.starts_with(DENIAL)
}

/// Whether a webhook could not be asked, and its configuration does not let the request pass in that case.
pub(super) fn is_webhook_fault(status: &Status) -> bool {
    status.code == 500 && status.message.contains(WEBHOOK_FAULT) && !is_webhook_denial(status)
}

/// Whether the conflict is about a `ResourceQuota`. Unless that is what the request writes, admission met it while it
/// counted the request.
pub(super) fn is_quota_race(status: &Status) -> bool {
    status.reason == reason::CONFLICT
        && !is_webhook_denial(status)
        && status.details.as_ref().is_some_and(|details| details.kind == QUOTAS && details.group.is_empty())
}

/// Whether `resource` is the one that quotas are stored in.
pub(super) fn is_quotas(resource: &str) -> bool {
    resource == QUOTAS
}

/// Whether admission has failed and not rejected: the API server works, and so does its store.
pub(crate) fn is_fault(status: &Status) -> bool {
    is_quota_race(status) || is_webhook_fault(status)
}

/// What it means that a webhook does not admit the request. Its reason and its code are the webhook's choice, and say nothing
/// of the object, of its version or of the store.
pub(super) fn of_denial(status: &Status) -> Class {
    let is = |reason: &str, code: u16| {
        status.reason == reason || (status.code == code && !reason::is_known(&status.reason))
    };
    if is(reason::INVALID, 422) {
        Class::Invalid
    } else if is(reason::TOO_MANY_REQUESTS, 429) {
        Class::Throttled { retry_after: retry_after(status) }
    } else if is(reason::UNAUTHORIZED, 401) {
        Class::Unauthorized
    } else if is(reason::REQUEST_ENTITY_TOO_LARGE, 413) {
        Class::TooLarge
    } else if is(reason::INTERNAL_ERROR, 500) {
        Class::Other
    } else {
        Class::Forbidden
    }
}

pub(super) fn of_forbidden(status: &Status) -> Class {
    let is_terminating = causes(status).iter().any(|cause| cause.reason == NAMESPACE_TERMINATING);
    if is_terminating { Class::NamespaceTerminating } else { Class::Forbidden }
}
