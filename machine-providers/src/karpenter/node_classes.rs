//! Reads the `NodeClass`es that claims refer to, of whatever kind they are.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{ApiResource, DynamicObject};
use kube::core::Status;
use kube::{Api, Client, discovery};
use shared_crds::v1alpha1::NodeClassReference;
use shared_runtime::error::chain;
use tracing::warn;

use super::class_digest::ClassDigest;
use crate::ProviderError;
use crate::api_errors::Advice;

/// For how long a `NodeClass` is remembered that is not wanted any more: longer than an API server is away, so that memory does
/// not grow with every name that there ever was.
const KEPT: SignedDuration = SignedDuration::from_hours(24);

/// What is known of `NodeClass`es, by their full names, and of their kinds.
pub(super) struct KarpenterClasses {
    client: Client,
    /// By kind and group, where the API server has its objects. A reference names neither version nor plural.
    kinds: Mutex<BTreeMap<String, ApiResource>>,
    /// Those that were wanted lately.
    known: Mutex<BTreeMap<String, KnownClass>>,
}

/// What is known of one `NodeClass`.
#[derive(Default)]
struct KnownClass {
    /// What it said when it was read last. It counts also while it cannot be read: otherwise a running rollout would be done.
    last: Option<ClassDigest>,
    /// Why it cannot be read; `None` when it can.
    unread: Option<String>,
    /// When it was wanted last.
    wanted: Timestamp,
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
        Self { client, kinds: Mutex::default(), known: Mutex::default() }
    }

    fn kinds(&self) -> MutexGuard<'_, BTreeMap<String, ApiResource>> {
        // Entries are replaced as a whole, so a panic elsewhere leaves nothing that could do harm.
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, KnownClass>> {
        // The same.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the `NodeClass` says. While it cannot be read, which [`Self::why_unread`] explains, that is what it said last; `None` when
    /// it was never read. An error when the API server is busy, broken or does not answer: that says nothing about the `NodeClass`.
    pub(super) async fn digest(
        &self,
        of: &NodeClassReference,
        advice: Advice,
        now: Timestamp,
    ) -> Result<Option<ClassDigest>, ProviderError> {
        let answer = match self.read(of).await {
            Ok(Some(class)) => Ok(class),
            Ok(None) => Err("the API server has none of that kind and name".to_owned()),
            Err(error) if is_no_answer(&error) => return Err(advice.of_read(&error)),
            Err(error) => Err(chain(&error)),
        };
        Ok(self.remember(full_name(of), answer, now))
    }

    /// Remembers what the `NodeClass` says, or why it cannot be read, and gives what it said last.
    fn remember(
        &self,
        name: String,
        answer: Result<ClassDigest, String>,
        now: Timestamp,
    ) -> Option<ClassDigest> {
        let mut all = self.known();
        all.retain(|_, class| now.duration_since(class.wanted) < KEPT);
        if let Err(reason) = &answer
            && all.get(&name).is_none_or(|class| class.unread.as_ref() != Some(reason))
        {
            warn!(node_class = %name, %reason, "a change of this NodeClass replaces no node: it cannot be read");
        }
        let class = all.entry(name).or_default();
        class.wanted = now;
        match answer {
            Ok(digest) => {
                class.last = Some(digest);
                class.unread = None;
            }
            Err(why) => class.unread = Some(why),
        }
        class.last.clone()
    }

    /// Why the `NodeClass` could not be read when it was last wanted; `None` when it could, or was not wanted.
    pub(super) fn why_unread(&self, of: &NodeClassReference) -> Option<String> {
        let name = full_name(of);
        let why = self.known().get(&name)?.unread.clone()?;
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
        match api.get(&of.name).await {
            Ok(class) => Ok(Some(ClassDigest::of(&kind.version, &class))),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                if !names_an_object(&status) {
                    // Its definition is gone, or does not serve this version any more.
                    self.kinds().remove(&kind_of(of));
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Finds where the API server has objects of this kind, and remembers it, whether or not they can be read.
    async fn discover(&self, of: &NodeClassReference) -> Result<Option<ApiResource>, kube::Error> {
        let group = match discovery::group(&self.client, &of.group).await {
            Ok(group) => group,
            Err(kube::Error::Discovery(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let kind = group.recommended_kind(&of.kind).map(|(kind, _)| kind);
        if let Some(kind) = &kind {
            self.kinds().insert(kind_of(of), kind.clone());
        }
        Ok(kind)
    }
}

/// Whether an object is missing. Where the API server does not know the kind, no object is looked for, and none is named.
fn names_an_object(status: &Status) -> bool {
    status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

/// Whether the API server has not looked: it is busy or broken, or there was no answer of its own.
fn is_no_answer(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 408 | 429 | 500..=599),
        kube::Error::Service(_)
        | kube::Error::HyperError(_)
        | kube::Error::ReadEvents(_)
        | kube::Error::Auth(_)
        | kube::Error::FromUtf8(_)
        | kube::Error::SerdeError(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::hands::api_server;
    use crate::testing::{at, failure};

    fn digest() -> ClassDigest {
        ClassDigest::of("v1", &serde_json::from_value(json!({ "spec": { "a": "b" } })).unwrap())
    }

    #[tokio::test]
    async fn what_is_known_of_a_class_goes_a_day_after_it_was_wanted_last() {
        let classes = KarpenterClasses::new(api_server(|_, _| failure(404, "NotFound", "none").into()));
        let known =
            |name: &str, second| classes.remember(name.to_owned(), Err("gone".to_owned()), at(second));
        let day = KEPT.as_secs();
        for name in ["gone", "kept"] {
            assert_eq!(classes.remember(name.to_owned(), Ok(digest()), at(0)), Some(digest()));
        }
        assert_eq!(known("kept", day - 1), Some(digest()), "what it said last");
        assert_eq!(known("kept", day), Some(digest()));
        assert_eq!(classes.known().len(), 1);
        assert_eq!(known("gone", day), None);
    }
}
