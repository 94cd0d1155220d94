//! What the tests of this crate and of the operator have in common.

use futures::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use node_lifecycle::keys::PoolKey;
use node_lifecycle::supply::{KnownAs, NodeSource};
pub use node_lifecycle::testing::{at, cluster, key, pool, prefix, slot};
use serde_json::{Value, json};
use shared_crds::v1alpha1::ProviderSpec;

use crate::{Deletion, Explanation, ListedMachine, MachineRequest, NamedProvider, Progress, ProviderError};

/// An error in the API server's format.
pub fn failure(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code });
    (code, status)
}

/// What a call to a provider comes to.
pub type ScriptedAnswer<'a, T> = BoxFuture<'a, Result<T, ProviderError>>;

/// The answer at once.
pub fn answer<'a, T: Send + 'a>(result: Result<T, ProviderError>) -> ScriptedAnswer<'a, T> {
    Box::pin(std::future::ready(result))
}

/// No answer, ever.
pub fn no_answer<'a, T: Send + 'a>() -> ScriptedAnswer<'a, T> {
    Box::pin(std::future::pending())
}

/// A provider of a test, which stands in for `simulated`. A test says what it answers to the calls that matter; a creation and a
/// deletion that it says nothing of are never answered. The methods do not have the names of those of [`NamedProvider`], so that
/// both traits can be in scope.
pub trait Scripted: Send + Sync {
    /// How its machines become Nodes.
    fn source(&self) -> NodeSource {
        NodeSource::Kubelet
    }

    /// See [`NamedProvider::trouble`].
    fn on_trouble(&self) -> Option<String> {
        None
    }

    /// See [`NamedProvider::explain`].
    fn on_explain(&self, _: &str) -> Option<Explanation> {
        None
    }

    /// See [`NamedProvider::create`].
    fn on_create(&self, _: MachineRequest<'_>) -> ScriptedAnswer<'_, Option<Timestamp>> {
        no_answer()
    }

    /// See [`NamedProvider::list`].
    fn on_list(&self) -> ScriptedAnswer<'_, Vec<ListedMachine>>;

    /// See [`NamedProvider::delete`].
    fn on_delete(&self, _: &str) -> ScriptedAnswer<'_, Deletion> {
        no_answer()
    }
}

impl<T: Scripted> NamedProvider for T {
    fn reference(&self) -> &'static str {
        "simulated"
    }

    fn node_source(&self, _: &ProviderSpec) -> Result<NodeSource, ProviderError> {
        Ok(self.source())
    }

    fn trouble(&self, _: &PoolKey) -> Option<String> {
        self.on_trouble()
    }

    fn explain<'a>(&'a self, _: &'a PoolKey, name: &'a str) -> BoxFuture<'a, Option<Explanation>> {
        Box::pin(std::future::ready(self.on_explain(name)))
    }

    fn create<'a>(
        &'a self,
        request: MachineRequest<'a>,
        _: Timestamp,
    ) -> ScriptedAnswer<'a, Option<Timestamp>> {
        self.on_create(request)
    }

    fn list<'a>(&'a self, _: &'a PoolKey, _: Timestamp) -> ScriptedAnswer<'a, Vec<ListedMachine>> {
        self.on_list()
    }

    fn delete<'a>(&'a self, _: &'a PoolKey, name: &'a str) -> ScriptedAnswer<'a, Deletion> {
        self.on_delete(name)
    }

    fn forget(&self, _: &PoolKey) {}
}

/// A machine that runs, and of which nothing else is known.
pub fn running(name: &str) -> ListedMachine {
    ListedMachine {
        name: name.to_owned(),
        progress: Progress::Running,
        provider_id: None,
        template_hash: None,
        is_outdated: false,
        cluster: None,
        known_as: KnownAs::default(),
    }
}
