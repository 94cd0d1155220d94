//! What the API server's errors mean for a provider whose machines are objects of another controller.

use std::time::Duration;

use kube::api::ObjectList;
use kube::core::Status;
use shared_runtime::error::chain;
use shared_runtime::write::WriterError;

use super::ProviderError;

/// What to tell the user about the objects of one provider.
#[derive(Clone, Copy, Debug)]
pub(super) struct Advice {
    /// When the API server does not know their kind.
    pub absent: &'static str,
    /// When it forbids a request.
    pub forbidden: &'static str,
}

impl Advice {
    /// The meaning of a read that failed.
    pub(super) fn of_read(self, error: &kube::Error) -> ProviderError {
        let message = chain(error);
        match error {
            kube::Error::Api(status) if status.code == 404 => ProviderError::Absent(self.absent.to_owned()),
            kube::Error::Api(status) if matches!(status.code, 401 | 403) => self.unauthorized(&message),
            kube::Error::Api(status) => match retry_after(status) {
                Some(after) => ProviderError::throttled(message, after),
                None => ProviderError::Transient(message),
            },
            _ => ProviderError::Unreachable(message),
        }
    }

    /// The meaning of a write that failed.
    pub(super) fn of_write(self, error: &WriterError) -> ProviderError {
        let message = chain(error);
        if error.is_fenced() {
            ProviderError::Conflict
        } else if error.is_forbidden() {
            self.unauthorized(&message)
        } else if error.is_invalid() {
            ProviderError::Invalid(message)
        } else if error.maybe_written() {
            ProviderError::Unreachable(message)
        } else if let Some(after) = error.retry_after() {
            ProviderError::throttled(message, after)
        } else {
            ProviderError::Transient(message)
        }
    }

    fn unauthorized(self, message: &str) -> ProviderError {
        ProviderError::Unauthorized(format!("{message}; {}", self.forbidden))
    }
}

/// The objects of a list. One that says itself that it is a part is an error: nothing is asked for in parts here, and what is
/// missing would be taken for machines that are gone.
pub(super) fn whole<K: Clone>(list: ObjectList<K>) -> Result<Vec<K>, ProviderError> {
    if list.metadata.continue_.is_none_or(|rest| rest.is_empty()) {
        return Ok(list.items);
    }
    let message = "the API server lists only a part of the objects, so nothing is concluded from its list";
    Err(ProviderError::Transient(message.to_owned()))
}

/// For how long the API server asks to be left alone. Its flow control says so in a header alone, which kube does not keep, and
/// always says the same: <https://kubernetes.io/docs/concepts/cluster-administration/flow-control/>.
fn retry_after(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    match (status.code, seconds) {
        (429, seconds) => Some(Duration::from_secs(seconds.max(1).into())),
        (503, 1..) => Some(Duration::from_secs(seconds.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_read_that_the_api_server_turns_away_says_when_to_come_back() {
        let advice = Advice { absent: "", forbidden: "" };
        let after = |code, seconds: u32| {
            let details = serde_json::from_value(json!({ "retryAfterSeconds": seconds })).unwrap();
            let status = Status::failure("m", "r").with_code(code).with_details(details);
            advice.of_read(&kube::Error::Api(Box::new(status))).retry_after().map(|after| after.as_secs())
        };
        for (code, seconds, expected) in [
            (429, 7, Some(7)),
            (429, 0, Some(1)),
            (429, u32::MAX, Some(300)),
            (503, 7, Some(7)),
            (503, 0, None),
            (500, 7, None),
            (404, 7, None),
        ] {
            assert_eq!(after(code, seconds), expected, "{code} {seconds}");
        }
    }
}
