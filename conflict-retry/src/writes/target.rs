//! The object that an operation writes, and how.

use kube::Api;
use kube::core::PartialObjectMeta;

use super::{Writable, answer};
use crate::operation::{Operation, Subresource, Verb};
use crate::options::WriteOptions;
use crate::outcome::Refusal;

/// The object that is written, by API and name, the part of it, and the options.
pub struct WriteTarget<'a, K> {
    pub(super) api: &'a Api<K>,
    pub(super) name: &'a str,
    pub(super) subresource: Subresource,
    pub(super) options: &'a WriteOptions,
}

impl<K> Clone for WriteTarget<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for WriteTarget<'_, K> {}

impl<'a, K: Writable> WriteTarget<'a, K> {
    pub(super) fn new(
        api: &'a Api<K>,
        name: &'a str,
        subresource: Subresource,
        options: &'a WriteOptions,
    ) -> Self {
        Self { api, name, subresource, options }
    }

    /// Reads the object's metadata, independent of its subresources.
    pub(super) async fn find(self) -> Result<PartialObjectMeta<K>, kube::Error> {
        answer::named(self.api.get_metadata(self.name).await, |found| &found.metadata)
    }

    /// Rejects an empty name, which would address the whole collection.
    pub(super) fn check(self) -> Result<(), Refusal> {
        if self.is_named() { Ok(()) } else { Err(Refusal::NoName) }
    }

    /// Rejects subresources other than the object itself and its status, with `otherwise` as the message.
    pub(super) fn is_object_or_status(self, otherwise: &'static str) -> Result<(), Refusal> {
        if matches!(self.subresource, Subresource::Main | Subresource::Status) {
            Ok(())
        } else {
            Err(Refusal::Body(otherwise))
        }
    }

    pub(super) fn is_named(self) -> bool {
        !self.name.is_empty()
    }

    /// The object's path on the API server.
    pub(super) fn key(self) -> String {
        format!("{}/{}", self.api.resource_url(), self.name)
    }

    pub(super) fn operation(self, verb: Verb) -> Operation {
        Operation {
            resource: resource(self.api.resource_url()).to_owned(),
            subresource: self.subresource,
            verb,
        }
    }
}

/// The last part of a collection's path is the name of the resource.
pub(super) fn resource(path: &str) -> &str {
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
