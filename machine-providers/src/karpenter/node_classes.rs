//! Reads the `NodeClass`es that claims refer to, of whatever kind they are.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client, discovery};
use shared_crds::v1alpha1::NodeClassReference;
use shared_runtime::error::chain;
use tracing::warn;

use super::class_digest::ClassDigest;
use crate::ProviderError;
use crate::api_errors::Advice;

/// What is known of `NodeClass`es, by their full names, and of their kinds.
pub(super) struct KarpenterClasses {
    client: Client,
    /// By kind and group, where the API server has its objects. A reference names neither version nor plural.
    kinds: Mutex<BTreeMap<String, ApiResource>>,
    /// Why those could not be read that were wanted last.
    unread: Mutex<BTreeMap<String, String>>,
}

/// The name of a `NodeClass` among all kinds, as kubectl writes it.
pub(super) fn full_name(of: &NodeClassReference) -> String {
    format!("{}/{}", kind_of(of), of.name)
}

fn kind_of(of: &NodeClassReference) -> String {
    format!("{}.{}", of.kind, of.group)
}

impl KarpenterClasses {
    /// Those that this client can read.
    pub(super) fn new(client: Client) -> Self {
        Self { client, kinds: Mutex::default(), unread: Mutex::default() }
    }

    fn kinds(&self) -> MutexGuard<'_, BTreeMap<String, ApiResource>> {
        // Entries are replaced as a whole, so a panic elsewhere leaves nothing that could do harm.
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unread(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        // What is remembered is for messages only.
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the `NodeClass` says now; `None` when it cannot be read, which [`Self::why_unread`] explains. An error when the API server
    /// is busy or does not answer: that says nothing about the `NodeClass`.
    pub(super) async fn digest(
        &self,
        of: &NodeClassReference,
        advice: Advice,
    ) -> Result<Option<ClassDigest>, ProviderError> {
        let why = match self.read(of).await {
            Ok(Some(class)) => {
                self.unread().remove(&full_name(of));
                return Ok(Some(class));
            }
            Ok(None) => "the API server has none of that kind and name".to_owned(),
            Err(error) if is_no_answer(&error) => return Err(advice.of_read(&error)),
            Err(error) => chain(&error),
        };
        let name = full_name(of);
        let before = self.unread().insert(name.clone(), why.clone());
        if before.as_ref() != Some(&why) {
            warn!(node_class = %name, reason = %why, "a change of this NodeClass replaces no node: it cannot be read");
        }
        Ok(None)
    }

    /// Why the `NodeClass` could not be read when it was last wanted; `None` when it could, or was not wanted.
    pub(super) fn why_unread(&self, of: &NodeClassReference) -> Option<String> {
        let name = full_name(of);
        let why = self.unread().get(&name).cloned()?;
        Some(format!("the NodeClass {name} cannot be read, so a change of it replaces no node: {why}"))
    }

    async fn read(&self, of: &NodeClassReference) -> Result<Option<ClassDigest>, kube::Error> {
        let known = self.kinds().get(&kind_of(of)).cloned();
        let kind = match known {
            Some(kind) => kind,
            None => match self.discover(of).await? {
                Some(kind) => kind,
                None => return Ok(None),
            },
        };
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
        let class = api.get_opt(&of.name).await?;
        match &class {
            Some(_) => self.kinds().insert(kind_of(of), kind.clone()),
            // Or this version of it is not served any more.
            None => self.kinds().remove(&kind_of(of)),
        };
        Ok(class.map(|class| ClassDigest::of(&kind.version, &class.data)))
    }

    async fn discover(&self, of: &NodeClassReference) -> Result<Option<ApiResource>, kube::Error> {
        match discovery::group(&self.client, &of.group).await {
            Ok(group) => Ok(group.recommended_kind(&of.kind).map(|(kind, _)| kind)),
            Err(kube::Error::Discovery(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether the API server has not looked: it is busy, or there was no answer.
fn is_no_answer(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 429 | 503 | 504),
        kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => true,
        _ => false,
    }
}
