//! The part of Karpenter's `NodeClaim` (karpenter.sh/v1) that is written and read here.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::CustomResource;
use node_lifecycle::applied_template::AppliedTemplate;
use node_lifecycle::keys::{ClusterId, PoolKey};
use node_lifecycle::supply::KnownAs;
use serde::{Deserialize, Serialize};
use shared_crds::names::{
    CLUSTER_ANNOTATION, NODE_CLASS_HASH_ANNOTATION, NODEPOOL_LABEL, NODEPOOL_NAMESPACE_LABEL,
    TEMPLATE_APPLIED_ANNOTATION, TEMPLATE_HASH_ANNOTATION,
};
use shared_crds::v1alpha1::{KarpenterProvider, MachineRequirement, NodeClassReference, NodePoolSpec};

use super::class_digest::ClassDigest;
use crate::{Explanation, ListedMachine, Progress};

/// What a machine should be.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "karpenter.sh",
    version = "v1",
    kind = "NodeClaim",
    status = "NodeClaimStatus",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeClaimSpec {
    node_class_ref: NodeClassReference,
    #[serde(default)]
    requirements: Vec<MachineRequirement>,
    #[serde(default)]
    resources: Resources,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    taints: Vec<Taint>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    startup_taints: Vec<Taint>,
    expire_after: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Resources {
    #[serde(default)]
    requests: BTreeMap<String, Quantity>,
}

/// How far Karpenter is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeClaimStatus {
    #[serde(default, rename = "providerID")]
    provider_id: Option<String>,
    node_name: Option<String>,
    /// As its `NodeClass` names it. Empty until the machine is launched, and with providers that have no images.
    #[serde(default, rename = "imageID")]
    image_id: Option<String>,
    #[serde(default)]
    conditions: Vec<Condition>,
}

/// The conditions of a claim, in the order in which they become true.
const STEPS: [&str; 3] = ["Launched", "Registered", "Initialized"];

/// The condition of a claim that would be made from something else now. Karpenter 1 sets it on claims of a `NodePool` of its own only;
/// where another controller sets it on one of ours, that means the same.
const DRIFTED: &str = "Drifted";

/// The reason of a condition that Karpenter's controllers have not looked at: `ReasonAwaitingReconciliation` of
/// <https://pkg.go.dev/github.com/awslabs/operatorpkg/status>.
const NOT_LOOKED_AT: &str = "AwaitingReconciliation";

/// How the reasons begin that Karpenter gives when there is no machine to be had, such as that of the event
/// `InsufficientCapacityError` of <https://github.com/kubernetes-sigs/karpenter/tree/main/pkg/controllers/nodeclaim/lifecycle>.
const NO_CAPACITY: &str = "InsufficientCapacity";

/// What `words`, with Karpenter's `reason`, say of a claim that names `node_class`.
pub(super) fn explanation(reason: &str, words: String, node_class: &str) -> Explanation {
    // A NodeClass that does not exist has no capacity, for Karpenter. No machine of it would come if another one went.
    let is_missing = words.contains(&format!("{node_class:?} not found"));
    if reason.starts_with(NO_CAPACITY) && !is_missing {
        Explanation::NoCapacity(words)
    } else {
        Explanation::Other(words)
    }
}

/// The labels of the claims of a pool.
fn labels(pool: &PoolKey) -> [(&'static str, &str); 2] {
    [(NODEPOOL_LABEL, &pool.name), (NODEPOOL_NAMESPACE_LABEL, &pool.namespace)]
}

/// The label selector of the claims of a pool.
pub(super) fn selector(pool: &PoolKey) -> String {
    labels(pool).map(|(key, value)| format!("{key}={value}")).join(",")
}

/// What the machine is made from, and for which cluster. Karpenter copies the annotations to the Node.
fn made_from(spec: &NodePoolSpec, cluster: &ClusterId) -> BTreeMap<String, String> {
    let cluster = (CLUSTER_ANNOTATION, cluster.to_string());
    let hash = spec.template_hash().map(|hash| (TEMPLATE_HASH_ANNOTATION, hash));
    let applied = AppliedTemplate::of(spec).text().map(|applied| (TEMPLATE_APPLIED_ANNOTATION, applied));
    hash.into_iter().chain(applied).chain([cluster]).map(|(key, value)| (key.to_owned(), value)).collect()
}

impl NodeClaim {
    /// The claim for the machine `name` of the pool, in this cluster. Karpenter chooses a machine that has at least `requests` for
    /// pods.
    pub(super) fn of(
        cluster: &ClusterId,
        pool: &PoolKey,
        name: &str,
        spec: &NodePoolSpec,
        provider: &KarpenterProvider,
        requests: BTreeMap<String, Quantity>,
    ) -> Self {
        let template = &spec.template;
        let mut all = template.metadata.as_ref().map(|metadata| metadata.labels.clone()).unwrap_or_default();
        all.extend(labels(pool).map(|(key, value)| (key.to_owned(), value.to_owned())));
        Self {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(all),
                annotations: Some(made_from(spec, cluster)),
                ..ObjectMeta::default()
            },
            spec: NodeClaimSpec {
                node_class_ref: provider.node_class_ref.clone(),
                requirements: provider.requirements.clone(),
                resources: Resources { requests },
                taints: template.spec.taints.iter().map(Taint::from).collect(),
                startup_taints: template.spec.startup_taints.iter().map(Taint::from).collect(),
                // Karpenter would replace the node after 30 days otherwise.
                expire_after: Some("Never".to_owned()),
            },
            status: None,
        }
    }

    /// The same, and it carries what its `NodeClass` says now, if that is known.
    pub(super) fn of_class(mut self, class: Option<&ClassDigest>) -> Self {
        if let Some(class) = class {
            let annotations = self.metadata.annotations.get_or_insert_default();
            annotations.insert(NODE_CLASS_HASH_ANNOTATION.to_owned(), class.to_string());
        }
        self
    }

    /// What its `NodeClass` said when it was made; `None` when that is not known, as of claims that earlier versions made.
    pub(super) fn class_hash(&self) -> Option<&str> {
        let carried = self.metadata.annotations.as_ref()?.get(NODE_CLASS_HASH_ANNOTATION)?;
        Some(carried)
    }

    /// Whether the claim is one of the pool.
    pub(super) fn is_of(&self, pool: &PoolKey) -> bool {
        let own = self.metadata.labels.as_ref();
        labels(pool)
            .iter()
            .all(|(key, value)| own.and_then(|own| own.get(*key)).is_some_and(|it| it == value))
    }

    /// The cluster that the claim was made for, if that is not this one: it came with a copy of that cluster's objects. A
    /// claim that carries none was made here before claims carried any.
    pub(super) fn of_another(&self, cluster: &ClusterId) -> Option<&str> {
        let carried = self.metadata.annotations.as_ref()?.get(CLUSTER_ANNOTATION)?;
        Some(&**carried).filter(|carried| *carried != cluster.as_str())
    }

    /// Whether Karpenter has found the Node. It then waits, when the claim is deleted, until the Node is gone.
    pub(super) fn is_registered(&self) -> bool {
        self.has("Registered")
    }

    fn has(&self, condition: &str) -> bool {
        self.condition(condition).is_some_and(|it| it.status == "True")
    }

    fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status.iter().flat_map(|status| &status.conditions).find(|it| it.type_ == type_)
    }

    /// What Karpenter says about the first step of the claim that is not done; `None` when it has not said anything yet.
    pub(super) fn words(&self) -> Option<Explanation> {
        let open = STEPS.iter().filter_map(|step| self.condition(step)).find(|it| it.status != "True")?;
        let Condition { type_, status, reason, message, .. } = open;
        let name = self.metadata.name.as_deref().unwrap_or_default();
        (reason != NOT_LOOKED_AT).then(|| {
            let words = format!("NodeClaim {name}: {type_} is {status}, {reason}: {message}");
            explanation(reason, words, self.node_class())
        })
    }

    /// Why Karpenter has not launched the machine. One that is launched and not registered yet only boots.
    pub(super) fn trouble(&self) -> Option<String> {
        self.words().filter(|_| !self.has(STEPS[0])).map(|words| words.to_string())
    }

    /// The name of its `NodeClass`.
    pub(super) fn node_class(&self) -> &str {
        &self.spec.node_class_ref.name
    }

    /// Its `NodeClass`.
    pub(super) const fn node_class_ref(&self) -> &NodeClassReference {
        &self.spec.node_class_ref
    }

    /// Whether the machine was made from something else than this, which its `NodeClass` says now.
    fn differs_from(&self, class: &ClassDigest) -> bool {
        let image = self.status.as_ref().and_then(|status| status.image_id.as_deref());
        self.class_hash().is_some_and(|own| class.differs_from(own, image))
    }

    /// The claim as a machine, in `cluster`. `class` is what its `NodeClass` says now; `None` says nothing.
    pub(super) fn listed(self, cluster: &ClusterId, class: Option<&ClassDigest>) -> ListedMachine {
        let carried = Some(self.of_another(cluster).unwrap_or_else(|| cluster.as_str()).to_owned());
        let progress = if self.metadata.deletion_timestamp.is_some() {
            Progress::Deleting
        } else if self.is_registered() {
            Progress::Running
        } else {
            Progress::Starting(None)
        };
        let is_outdated = class.is_some_and(|class| self.differs_from(class)) || self.has(DRIFTED);
        let (provider_id, node) =
            self.status.map(|status| (status.provider_id, status.node_name)).unwrap_or_default();
        let provider_id = provider_id.filter(|id| !id.is_empty());
        let known_as = KnownAs { node: node.filter(|name| !name.is_empty()), ..KnownAs::default() };
        let template_hash =
            self.metadata.annotations.and_then(|mut all| all.remove(TEMPLATE_HASH_ANNOTATION));
        ListedMachine {
            name: self.metadata.name.unwrap_or_default(),
            progress,
            provider_id,
            template_hash,
            is_outdated,
            cluster: carried,
            known_as,
        }
    }
}
