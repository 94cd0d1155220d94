//! Reads a failure on the way to the API server: what was certainly not sent, and what is in doubt.

use std::error::Error as StdError;
use std::io;

use kube::client::AuthError;

use super::Class;

/// A request that never reached the server was not executed; any other connection failure leaves it open. An
/// unreachable host or network also leaves it open: an open connection may fail that way after the request was sent.
pub(super) fn of_transport(error: &(dyn StdError + 'static)) -> Class {
    let mut current = Some(error);
    while let Some(error) = current {
        // kube renews the credentials, with a plugin that may fail, before it sends the request.
        if error.is::<AuthError>() {
            return Class::Transient { retry_after: None };
        }
        let mut next = error.source();
        if let Some(io) = error.downcast_ref::<io::Error>() {
            // An I/O error that wraps another one does not return it as its source, only that error's source.
            next = io.get_ref().map(|inner| inner as &(dyn StdError + 'static)).or(next);
            if matches!(io.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::AddrNotAvailable) {
                return Class::Transient { retry_after: None };
            }
        }
        current = next;
    }
    Class::Ambiguous
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Verb;

    #[test]
    fn without_credentials_nothing_was_sent() {
        for missing in [
            AuthError::ExecPluginFailed,
            AuthError::AuthExecStart(io::Error::from(io::ErrorKind::NotFound)),
            AuthError::AuthExec("the plugin broke".to_owned()),
        ] {
            let failed = kube::Error::Service(Box::new(missing));
            assert_eq!(Class::of(Verb::Create, &failed), Class::Transient { retry_after: None }, "{failed}");
        }
        let broken = kube::Error::Service("the connection broke".into());
        assert_eq!(Class::of(Verb::Create, &broken), Class::Ambiguous);
    }
}
