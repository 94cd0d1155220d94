//! What every error of an operator must provide.
//!
//! No error type is defined here; each module has its own.

/// An error with a stable, short, lower-case name. Only this name reaches a metric label; the text is for users.
pub trait Categorised: std::error::Error + Send + Sync + 'static {
    /// For instance `forbidden`, `conflict_exhausted`, `timeout`: one of a small, fixed set per type.
    fn category(&self) -> &'static str;
}

/// The category of an error of the kube client, for reads and watches.
pub fn client_category(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) => status_category(status.code),
        kube::Error::HyperError(_) | kube::Error::Service(_) => "connection",
        kube::Error::SerdeError(_) => "decode",
        kube::Error::Auth(_) => "unauthorized",
        _ => "client",
    }
}

/// The category of an HTTP status code of the API server.
pub fn status_category(code: u16) -> &'static str {
    match code {
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        409 => "conflict",
        410 => "expired",
        422 => "invalid",
        429 => "throttled",
        504 => "timeout",
        500..=599 => "server",
        _ => "other",
    }
}

/// An error and all its causes in one line, for logs. A part is left out when it is a repetition: some libraries
/// include their source's text in their own. Of an answer of the API server only the message is shown.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(part) = next {
        let said = match part.downcast_ref() {
            Some(kube::Error::Api(status)) if !status.message.is_empty() => {
                next = None;
                status.message.clone()
            }
            _ => {
                next = part.source();
                part.to_string()
            }
        };
        if !text.contains(&said) {
            let separator = if text.is_empty() { "" } else { ": " };
            text.push_str(separator);
            text.push_str(&said);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("inner: root")]
    struct Inner(#[source] Root);

    #[derive(Debug, thiserror::Error)]
    #[error("root")]
    struct Root;

    #[test]
    fn a_chain_does_not_repeat_what_was_said() {
        assert_eq!(chain(&Outer(Inner(Root))), "outer: inner: root");
    }

    #[test]
    fn of_an_answer_of_the_api_server_the_message_is_told_once() {
        let status =
            kube::core::Status { message: "replicas is too large".into(), code: 422, ..Default::default() };
        assert_eq!(chain(&kube::Error::Api(Box::new(status))), "replicas is too large");
    }
}
