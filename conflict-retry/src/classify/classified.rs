//! An error of this crate, carried in one of kube.

use std::error::Error as StdError;
use std::fmt;

use super::Class;

/// What separates the server's message from what this crate adds to it.
const ADDED: &str = " (conflict-retry: ";

/// The server's `message`, with a `text` of this crate after it.
pub(crate) fn explained(message: &str, text: &str) -> String {
    if message.is_empty() { text.to_owned() } else { format!("{message}{ADDED}{text})") }
}

/// The server's part of a message.
pub(super) fn said(message: &str) -> &str {
    message.split_once(ADDED).map_or(message, |(said, _)| said)
}

/// An error of this crate within a `kube::Error`, with its class.
#[derive(Debug)]
pub(crate) struct Classified {
    pub(super) class: Class,
    source: Box<dyn StdError + Send + Sync>,
}

impl Classified {
    pub(crate) fn new(class: Class, source: impl StdError + Send + Sync + 'static) -> Self {
        Self { class, source: Box::new(source) }
    }
}

impl fmt::Display for Classified {
    /// The error of this crate with its advice, and what lies at the bottom of it: as kube's own errors do, and without the
    /// layers in between, which repeat each other.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)?;
        let Some(mut root) = self.source.source() else {
            return Ok(());
        };
        while let Some(deeper) = root.source() {
            root = deeper;
        }
        write!(f, ": {root}")
    }
}

impl StdError for Classified {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.source.as_ref())
    }
}
