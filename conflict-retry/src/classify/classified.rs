//! An error of this crate, carried in one of kube.

use std::error::Error as StdError;
use std::fmt;

use super::Class;

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
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl StdError for Classified {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.source.as_ref())
    }
}
