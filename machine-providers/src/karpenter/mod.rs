//! The provider for machines that Karpenter makes: each is a standalone `NodeClaim` with the name of the slot. Karpenter
//! launches and registers it; how many there are, and which go, is decided here.

mod class_digest;
#[cfg(test)]
mod class_tests;
mod events;
#[cfg(test)]
pub(super) mod hands;
mod node_claim;
mod node_classes;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client};
use node_lifecycle::allocatable::allocatable;
use node_lifecycle::keys::{ClusterId, PoolKey};
use node_lifecycle::supply::{Completeness, NodeSource};
use shared_crds::v1alpha1::{NodePoolSpec, ProviderSpec};
use shared_runtime::write::{Created, DeleteOutcome, Writer};

use self::class_digest::ClassDigest;
use self::node_claim::NodeClaim;
use self::node_classes::{KarpenterClasses, full_name};
use super::api_errors::{Advice, whole};
use super::{Deletion, Explanation, ListedMachine, MachineRequest, NamedProvider, ProviderError, origin};

/// What to tell the user about Karpenter's objects.
const ADVICE: Advice = Advice {
    absent: "the cluster has no NodeClaims (karpenter.sh/v1): install Karpenter 1.0 or newer",
    forbidden: "the chart's value providers.karpenter.enabled grants the rights",
};

/// Karpenter, by its objects in this cluster.
pub(crate) struct Karpenter {
    claims: Api<NodeClaim>,
    events: Api<Event>,
    classes: KarpenterClasses,
    writer: Writer,
    cluster: ClusterId,
    /// By pool and name, what was last known of a claim whose Node is not there.
    seen: Mutex<BTreeMap<PoolKey, BTreeMap<String, SeenClaim>>>,
}

/// What was last known of a claim. It outlives the claim, to say what became of it.
#[derive(Debug)]
struct SeenClaim {
    /// Tells its events from those of earlier claims of the name.
    uid: Option<String>,
    /// The name of its `NodeClass`.
    node_class: String,
    /// What Karpenter said of it.
    words: Option<Explanation>,
    /// Why Karpenter has not launched it, or what else is wrong with it, while the claim is listed.
    trouble: Option<String>,
}

impl SeenClaim {
    fn of(claim: &NodeClaim, classes: &KarpenterClasses) -> Self {
        Self {
            uid: claim.metadata.uid.clone(),
            node_class: claim.node_class().to_owned(),
            words: claim.words(),
            trouble: claim.trouble().or_else(|| classes.why_unread(claim.node_class_ref())),
        }
    }
}

impl Karpenter {
    /// The provider that reads with `client` and writes with `writer`, in `cluster`.
    pub(crate) fn new(client: Client, writer: Writer, cluster: ClusterId) -> Self {
        // Events about objects without a namespace are in this one.
        let events = Api::namespaced(client.clone(), "default");
        let classes = KarpenterClasses::new(client.clone());
        Self { claims: Api::all(client), events, classes, writer, cluster, seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, BTreeMap<PoolKey, BTreeMap<String, SeenClaim>>> {
        // What is remembered is for messages only, so a panic elsewhere leaves nothing that could do harm.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the claims of a list. Of those that are not in it any more, what they said last stays.
    fn remember(&self, pool: &PoolKey, claims: &[NodeClaim]) {
        let mut all = self.seen();
        let seen = all.entry(pool.clone()).or_default();
        for claim in seen.values_mut() {
            claim.trouble = None;
        }
        for claim in claims {
            let name = claim.metadata.name.clone().unwrap_or_default();
            if claim.is_registered() {
                seen.remove(&name);
            } else {
                seen.insert(name, SeenClaim::of(claim, &self.classes));
            }
        }
    }

    /// Remembers a claim that has just been made.
    fn made(&self, pool: &PoolKey, name: &str, claim: &NodeClaim) {
        let claim = SeenClaim::of(claim, &self.classes);
        self.seen().entry(pool.clone()).or_default().insert(name.to_owned(), claim);
    }

    /// What the `NodeClass`es of these claims say now, by name. They are read after the claims, so a claim never carries a later
    /// answer. Those of claims that carry none, or are another cluster's, do not matter.
    async fn classes_of(
        &self,
        claims: &[NodeClaim],
        now: Timestamp,
    ) -> Result<BTreeMap<String, ClassDigest>, ProviderError> {
        let compared = claims
            .iter()
            .filter(|claim| claim.class_hash().is_some() && claim.of_another(&self.cluster).is_none());
        let wanted: BTreeMap<_, _> = compared
            .map(|claim| (full_name(claim.node_class_ref()), claim.node_class_ref().clone()))
            .collect();
        let mut classes = BTreeMap::new();
        for (name, reference) in wanted {
            if let Some(class) = self.classes.digest(&reference, ADVICE, now).await? {
                classes.insert(name, class);
            }
        }
        Ok(classes)
    }

    /// The claim of this name; `None` when there is none. One that is not of this pool is an error: it may be another pool's,
    /// or this pool's with labels that were changed, and its machine runs.
    async fn get(&self, pool: &PoolKey, name: &str) -> Result<Option<NodeClaim>, ProviderError> {
        match self.claims.get_opt(name).await.map_err(|error| ADVICE.of_read(&error))? {
            Some(claim) if !claim.is_of(pool) => Err(ProviderError::Transient(format!(
                "there is a NodeClaim {name} whose labels are not those of this pool: if it was made for the pool, set \
                 them to {}, and if it is not needed, delete it",
                node_claim::selector(pool)
            ))),
            claim => match claim.as_ref().and_then(|claim| claim.of_another(&self.cluster)) {
                Some(other) => Err(origin::left_alone(name, &origin::cluster(other))),
                None => Ok(claim),
            },
        }
    }
}

/// What pods may request of a node: a smaller machine would not be the node that the planner counts on.
fn requests(spec: &NodePoolSpec) -> Result<BTreeMap<String, Quantity>, ProviderError> {
    let of_template = &spec.template.spec;
    allocatable(&of_template.capacity, &of_template.reserved)
        .map_err(|error| ProviderError::Invalid(error.to_string()))
}

impl NamedProvider for Karpenter {
    fn reference(&self) -> &'static str {
        "karpenter"
    }

    fn node_source(&self, spec: &ProviderSpec) -> Result<NodeSource, ProviderError> {
        let is_meant = spec.karpenter.is_some();
        is_meant
            .then_some(NodeSource::Kubelet)
            .ok_or_else(|| ProviderError::Invalid("karpenter is not set".to_owned()))
    }

    fn completeness(&self, _: &PoolKey) -> Completeness {
        // The claims are in the cluster of the Nodes.
        Completeness::Certain
    }

    fn trouble(&self, pool: &PoolKey) -> Option<String> {
        let seen = self.seen();
        seen.get(pool)?.values().find_map(|claim| claim.trouble.clone())
    }

    fn explain<'a>(&'a self, pool: &'a PoolKey, name: &'a str) -> BoxFuture<'a, Option<Explanation>> {
        async move {
            let (uid, node_class, words) = {
                let seen = self.seen();
                let claim = seen.get(pool)?.get(name)?;
                (claim.uid.clone(), claim.node_class.clone(), claim.words.clone())
            };
            match words {
                Some(words) => Some(words),
                None => events::last_warning(&self.events, &uid?, &node_class).await,
            }
        }
        .boxed()
    }

    fn create<'a>(
        &'a self,
        request: MachineRequest<'a>,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Option<Timestamp>, ProviderError>> {
        async move {
            self.node_source(&request.spec.provider)?;
            let provider = request.spec.provider.karpenter.clone().unwrap_or_default();
            let MachineRequest { pool, name, spec, existing: _ } = request;
            let claim = NodeClaim::of(&self.cluster, pool, name, spec, &provider, requests(spec)?);
            // Read before the claim is made: what changes in between makes the machine look older than it is, never newer.
            let class = self.classes.digest(&provider.node_class_ref, ADVICE, now).await?;
            let claim = claim.of_class(class.as_ref());
            match self.writer.create(&self.claims, &claim).await {
                Ok(Created::Created(claim)) => {
                    self.made(pool, name, &claim);
                    Ok(None)
                }
                Ok(Created::AlreadyExists) => match self.get(pool, name).await? {
                    Some(_) => Ok(None),
                    None => Err(ProviderError::Transient(format!("NodeClaim {name} has just been deleted"))),
                },
                Err(error) => Err(ADVICE.of_write(&error)),
            }
        }
        .boxed()
    }

    fn list<'a>(
        &'a self,
        pool: &'a PoolKey,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<ListedMachine>, ProviderError>> {
        async move {
            let of_pool = ListParams::default().labels(&node_claim::selector(pool));
            let claims = self.claims.list(&of_pool).await.map_err(|error| ADVICE.of_read(&error))?;
            let claims = whole(claims)?;
            let classes = self.classes_of(&claims, now).await?;
            self.remember(pool, &claims);
            let listed = claims.into_iter().map(|claim| {
                let class = classes.get(&full_name(claim.node_class_ref()));
                claim.listed(&self.cluster, class)
            });
            Ok(listed.collect())
        }
        .boxed()
    }

    fn delete<'a>(
        &'a self,
        pool: &'a PoolKey,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Deletion, ProviderError>> {
        async move {
            // Karpenter keeps a claim until its machine is gone. Nothing but the absence of a claim says so: pods are given up
            // on this answer, also when they may still run.
            let Some(claim) = self.get(pool, name).await? else { return Ok(Deletion::Gone) };
            match self.writer.delete(&self.claims, &claim).await {
                Ok(DeleteOutcome::Gone) => Ok(Deletion::Gone),
                // Karpenter's own finalizer keeps the Node until the machine is gone, and the claim waits for the Node.
                Ok(DeleteOutcome::Deleted | DeleteOutcome::Terminating(_)) if claim.is_registered() => {
                    Ok(Deletion::HandedOver)
                }
                Ok(DeleteOutcome::Deleted | DeleteOutcome::Terminating(_)) => Ok(Deletion::Started),
                Ok(DeleteOutcome::Conflict(_)) => Err(ProviderError::Transient(format!(
                    "NodeClaim {name} has just been replaced by another one"
                ))),
                Err(error) => Err(ADVICE.of_write(&error)),
            }
        }
        .boxed()
    }

    fn forget(&self, pool: &PoolKey) {
        self.seen().remove(pool);
    }
}
