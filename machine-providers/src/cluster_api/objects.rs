//! The parts of Cluster API's objects (cluster.x-k8s.io/v1beta2) that are read and written here.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    Condition, LabelSelector, ManagedFieldsEntry, ObjectMeta,
};
use kube::CustomResource;
use kube::core::{Selector, SelectorExt as _};
use node_lifecycle::supply::KnownAs;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
pub(super) use shared_crds::names::DELETE_MACHINE_ANNOTATION as DELETE_ANNOTATION;
use shared_crds::names::{EXCLUDE_DRAINING_ANNOTATION as NO_DRAIN_ANNOTATION, NODEPOOL_OPERATOR};
use shared_crds::quantity::Exact;

use crate::ProviderError;

/// Label that Cluster API puts on a `MachineDeployment`'s machines.
pub(super) const DEPLOYMENT_LABEL: &str = "cluster.x-k8s.io/deployment-name";
/// The value of [`DELETE_ANNOTATION`] by which our marks are told from those of people.
pub(super) const OUR_MARK: &str = "tandem.dev";
/// What is written with it to [`NO_DRAIN_ANNOTATION`], of which Cluster API reads only whether it is there.
const OUR_NO_DRAIN: &str = "";
/// Annotation of Cluster Autoscaler on a `MachineDeployment` that it scales.
const CLUSTER_AUTOSCALER_ANNOTATION: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
/// What the scale-from-zero annotations on a `MachineDeployment` begin with.
const CAPACITY_PREFIX: &str = "capacity.cluster-autoscaler.kubernetes.io/";
/// Annotation on an object that its controllers leave alone.
const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";
/// Label on objects that a `Cluster` with a `ClusterClass` manages.
const TOPOLOGY_LABEL: &str = "topology.cluster.x-k8s.io/owned";
/// Field manager of the controller that does that.
const TOPOLOGY_MANAGER: &str = "capi-topology";

/// Label that Cluster API puts on all objects of a `Cluster`.
const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// Condition of a `Machine` that a `MachineHealthCheck` watches.
const CHECKED: &str = "HealthCheckSucceeded";

/// A set of machines.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachineDeployment",
    namespaced,
    status = "MachineDeploymentStatus",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub(super) struct MachineDeploymentSpec {
    /// Number of machines wanted; 1 when absent.
    pub(super) replicas: Option<i32>,
    #[serde(default)]
    paused: Option<bool>,
    #[serde(default)]
    rollout: RolloutOfMachines,
    /// Where v1beta1 has the strategy.
    #[serde(default)]
    strategy: RolloutStrategy,
}

/// How a `MachineDeployment` replaces machines that are out of date.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct RolloutOfMachines {
    #[serde(default)]
    strategy: RolloutStrategy,
}

/// Its strategy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct RolloutStrategy {
    #[serde(default, rename = "type")]
    type_: String,
}

/// State of a `MachineDeployment`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MachineDeploymentStatus {
    observed_generation: Option<i64>,
    /// Number of machines that its controller counts.
    replicas: Option<i32>,
    #[serde(default)]
    conditions: Vec<Condition>,
    /// Where v1beta1 has the conditions of v1beta2.
    #[serde(default, rename = "v1beta2")]
    later: LaterStatus,
}

/// The conditions that v1beta1 has beside its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct LaterStatus {
    #[serde(default)]
    conditions: Vec<Condition>,
}

/// A machine.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Machine",
    namespaced,
    status = "MachineStatus",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub(super) struct MachineSpec {
    #[serde(default, rename = "providerID")]
    provider_id: Option<String>,
}

/// State of a `Machine`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MachineStatus {
    #[serde(default)]
    phase: Option<String>,
    node_ref: Option<NodeReference>,
    #[serde(default)]
    addresses: Vec<MachineAddress>,
    #[serde(default)]
    conditions: Vec<Condition>,
    /// Where v1beta1 has the conditions of v1beta2.
    #[serde(default, rename = "v1beta2")]
    later: LaterStatus,
}

/// The Node that Cluster API has found for a machine, in the cluster of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct NodeReference {
    #[serde(default)]
    name: String,
}

/// A host name or an IP address of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct MachineAddress {
    #[serde(default)]
    address: String,
}

/// The machines of one template of a `MachineDeployment`.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(group = "cluster.x-k8s.io", version = "v1beta2", kind = "MachineSet", namespaced, schema = "disabled")]
pub(super) struct MachineSetSpec {
    /// Number of machines wanted.
    pub(super) replicas: Option<i32>,
}

/// A health check: its controller deletes machines that are unhealthy, so that others are made in their place.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachineHealthCheck",
    namespaced,
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub(super) struct MachineHealthCheckSpec {
    #[serde(default)]
    cluster_name: String,
    #[serde(default)]
    selector: LabelSelector,
}

impl MachineHealthCheck {
    /// Whether it watches the machine. One whose selector cannot be read watches none.
    fn selects(&self, machine: &Machine) -> bool {
        let labels = machine.metadata.labels.clone().unwrap_or_default();
        let is_of_cluster = labels.get(CLUSTER_LABEL).is_none_or(|name| *name == self.spec.cluster_name);
        let selector = Selector::try_from(self.spec.selector.clone());
        is_of_cluster && selector.is_ok_and(|selector| selector.matches(&labels))
    }
}

impl MachineDeployment {
    /// Number of machines wanted.
    pub(super) fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    /// The condition of this type, if it is `True`.
    fn holds(&self, condition: &str) -> Option<&Condition> {
        let conditions =
            self.status.iter().flat_map(|status| status.conditions.iter().chain(&status.later.conditions));
        conditions.into_iter().find(|it| it.type_ == condition && it.status == "True")
    }

    /// Whether it, or its Cluster, is paused. Its controller may not have said so yet.
    fn is_paused(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        let by_annotation = annotations.is_some_and(|all| all.contains_key(PAUSED_ANNOTATION));
        self.spec.paused == Some(true) || by_annotation || self.holds("Paused").is_some()
    }

    /// Whether its controller counts as many machines as `listed`, and has seen its spec.
    pub(super) fn counts(&self, listed: usize) -> bool {
        let Some(status) = &self.status else { return false };
        let counted = status.replicas.and_then(|replicas| usize::try_from(replicas).ok());
        status.observed_generation == self.metadata.generation && counted == Some(listed)
    }

    /// Why nothing is done to it now, and what to do about that; `None` when it may be changed.
    pub(super) fn refusal(&self) -> Option<ProviderError> {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        if let Some(why) = self.scaled_by_another() {
            return Some(ProviderError::Invalid(format!("MachineDeployment {name}: {why}")));
        }
        self.is_paused().then(|| {
            let message =
                format!("MachineDeployment {name} is paused, or its Cluster is: nothing is done there");
            ProviderError::Transient(message)
        })
    }

    /// How it shows that it replaces its machines, or may begin to: its controller has not seen its spec. `None` when
    /// neither is so.
    pub(super) fn rolling(&self) -> Option<String> {
        let observed = self.status.as_ref().and_then(|status| status.observed_generation);
        let (observed, now) = (observed.unwrap_or_default(), self.metadata.generation.unwrap_or_default());
        let behind =
            (observed != now).then(|| format!("its controller has seen generation {observed} of {now}"));
        self.rolling_out().or(behind)
    }

    /// Whether it replaces a machine that is out of date only when another client deletes that.
    fn waits_for_deletions(&self) -> bool {
        [&self.spec.rollout.strategy, &self.spec.strategy].iter().any(|strategy| strategy.type_ == "OnDelete")
    }

    /// The message of its condition `RollingOut`, while that is `True`. With the strategy `OnDelete` it is `True` for as long as a
    /// machine is out of date, and no machine is replaced because of that.
    pub(super) fn rolling_out(&self) -> Option<String> {
        let condition = self.holds("RollingOut").filter(|_| !self.waits_for_deletions());
        condition.map(|condition| condition.message.replace('\n', " "))
    }

    fn replicas_writers(&self) -> impl Iterator<Item = &ManagedFieldsEntry> {
        let owns = |entry: &&ManagedFieldsEntry| {
            entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer("/f:spec/f:replicas").is_some())
        };
        self.metadata.managed_fields.iter().flatten().filter(owns)
    }

    /// The field manager that wrote the number last: the operator, if it is one of those that wrote the present one.
    pub(super) fn replicas_writer(&self) -> Option<String> {
        let last = |entry: &&ManagedFieldsEntry| {
            let is_own = entry.manager.as_deref() == Some(NODEPOOL_OPERATOR);
            (is_own, entry.time.as_ref().map(|time| time.0), entry.manager.clone())
        };
        self.replicas_writers().max_by_key(last)?.manager.clone()
    }

    /// The capacity of one machine that its scale-from-zero annotations say. What is no quantity is left out.
    pub(super) fn capacity(&self) -> BTreeMap<String, Quantity> {
        let said = |what: &str| {
            let annotations = self.metadata.annotations.as_ref()?;
            annotations.get(&format!("{CAPACITY_PREFIX}{what}")).map(String::as_str)
        };
        let named = [
            ("cpu", "cpu"),
            ("memory", "memory"),
            ("ephemeral-disk", "ephemeral-storage"),
            ("maxPods", "pods"),
        ];
        let named = named.into_iter().map(|(what, resource)| (resource, said(what)));
        let gpus = said("gpu-type").map(|resource| (resource, said("gpu-count")));
        let amounts = named.chain(gpus).filter_map(|(resource, amount)| Some((resource, amount?)));
        let amounts = amounts.filter(|(_, amount)| Exact::parse(amount).is_ok());
        amounts.map(|(resource, amount)| (resource.to_owned(), Quantity(amount.to_owned()))).collect()
    }

    /// Who else is meant to scale it, and what to do about that; `None` when there is no other.
    fn scaled_by_another(&self) -> Option<&'static str> {
        let ObjectMeta { labels, annotations, .. } = &self.metadata;
        if annotations.as_ref().is_some_and(|all| all.contains_key(CLUSTER_AUTOSCALER_ANNOTATION)) {
            return Some(
                "Cluster Autoscaler scales it: take its annotations off, or use another MachineDeployment",
            );
        }
        let by_topology =
            self.replicas_writers().any(|entry| entry.manager.as_deref() == Some(TOPOLOGY_MANAGER));
        let is_owned = labels.as_ref().is_some_and(|all| all.contains_key(TOPOLOGY_LABEL));
        (is_owned && by_topology)
            .then_some("the topology of its Cluster sets replicas: take them out of spec.topology.workers")
    }
}

impl Machine {
    /// `spec.providerID`; `None` while it has none.
    pub(super) fn provider_id(&self) -> Option<String> {
        self.spec.provider_id.clone().filter(|id| !id.is_empty())
    }

    /// Whether it is one of the `MachineDeployment` of this name.
    pub(super) fn is_of(&self, deployment: &str) -> bool {
        let labels = self.metadata.labels.as_ref();
        labels.and_then(|all| all.get(DEPLOYMENT_LABEL)).is_some_and(|name| name == deployment)
    }

    /// Whether it is being deleted.
    pub(super) fn is_going(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether Cluster API is deleting it, and its Node is left to it: it was not chosen here. Where the user has annotated that it is not
    /// to be drained, nothing drains it.
    pub(super) fn is_drained_by_cluster_api(&self) -> bool {
        self.is_going() && !self.is_marked()
    }

    /// Whether one of the `checks` watches it. Where they may not be listed, the condition tells that their controller sets; it stays
    /// when a check is deleted.
    pub(super) fn is_watched_by(&self, checks: Option<&[MachineHealthCheck]>) -> bool {
        let has_condition = || {
            let all = self.status.iter().flat_map(|it| it.conditions.iter().chain(&it.later.conditions));
            all.into_iter().any(|condition| condition.type_ == CHECKED)
        };
        checks.map_or_else(has_condition, |checks| checks.iter().any(|check| check.selects(self)))
    }

    /// Whether its infrastructure is there.
    pub(super) fn is_provisioned(&self) -> bool {
        let phase = self.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Provisioned" | "Running"))
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Whether it carries our mark.
    pub(super) fn is_marked(&self) -> bool {
        self.annotation(DELETE_ANNOTATION) == Some(OUR_MARK)
    }

    /// Whether another writer has marked it as one that goes first.
    pub(super) fn is_marked_by_another(&self) -> bool {
        self.annotation(DELETE_ANNOTATION).is_some() && !self.is_marked()
    }

    /// By what its Node could be known.
    pub(super) fn known_as(&self) -> KnownAs {
        let status = self.status.clone().unwrap_or_default();
        let addresses = status.addresses.into_iter().map(|it| it.address).filter(|it| !it.is_empty());
        KnownAs {
            node: status.node_ref.map(|node| node.name).filter(|name| !name.is_empty()),
            addresses: addresses.collect(),
        }
    }

    /// The patch that marks it as the one that goes next, and keeps Cluster API from draining its Node a second time.
    pub(super) fn mark(&self) -> Value {
        let mut patch = vec![json!({ "op": "test", "path": "/metadata/uid", "value": self.metadata.uid })];
        let marks = [(DELETE_ANNOTATION, OUR_MARK), (NO_DRAIN_ANNOTATION, OUR_NO_DRAIN)];
        // What a person has written there keeps it from being drained as well.
        let is_written = |key: &str| key == NO_DRAIN_ANNOTATION && self.annotation(key).is_some();
        let marks = marks.into_iter().filter(|(key, _)| !is_written(key));
        if self.metadata.annotations.is_some() {
            let add = |(key, value)| json!({ "op": "add", "path": path(key), "value": value });
            patch.extend(marks.map(add));
        } else {
            patch.push(json!({ "op": "test", "path": "/metadata/annotations", "value": null }));
            let all: BTreeMap<_, _> = marks.collect();
            patch.push(json!({ "op": "add", "path": "/metadata/annotations", "value": all }));
        }
        Value::Array(patch)
    }

    /// The patch that takes the marks off again, provided that it is still ours.
    pub(super) fn unmark(&self) -> Value {
        let mut patch = vec![
            json!({ "op": "test", "path": "/metadata/uid", "value": self.metadata.uid }),
            json!({ "op": "test", "path": path(DELETE_ANNOTATION), "value": OUR_MARK }),
            json!({ "op": "remove", "path": path(DELETE_ANNOTATION) }),
        ];
        if self.annotation(NO_DRAIN_ANNOTATION) == Some(OUR_NO_DRAIN) {
            patch.push(json!({ "op": "remove", "path": path(NO_DRAIN_ANNOTATION) }));
        }
        Value::Array(patch)
    }
}

fn path(annotation: &str) -> String {
    format!("/metadata/annotations/{}", annotation.replace('~', "~0").replace('/', "~1"))
}
