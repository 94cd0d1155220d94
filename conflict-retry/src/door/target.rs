//! Which object an operation is about.

use kube::Api;

use crate::observe::{Operation, Subresource, Verb};
use crate::outcome::Refusal;

/// The object that is written.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    path: &'a str,
    /// Its name.
    pub(super) name: &'a str,
}

impl<'a> Target<'a> {
    pub(super) fn new<K: kube::Resource>(api: &'a Api<K>, name: &'a str) -> Self {
        Self { path: api.resource_url(), name }
    }

    /// An empty name would address the whole collection.
    pub(super) fn check(self) -> Result<(), Refusal> {
        if self.name.is_empty() { Err(Refusal::NoName) } else { Ok(()) }
    }

    pub(super) fn operation(self, subresource: Subresource, verb: Verb) -> Operation {
        Operation { resource: resource(self.path).to_owned(), subresource, verb }
    }
}

/// The last part of a collection's path is the name of the resource.
fn resource(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resource_is_the_last_part_of_the_path() {
        assert_eq!(resource("/api/v1/namespaces/default/configmaps"), "configmaps");
        assert_eq!(resource("/apis/tandem.dev/v1alpha1/nodepools"), "nodepools");
        assert_eq!(resource(""), "");
    }
}
