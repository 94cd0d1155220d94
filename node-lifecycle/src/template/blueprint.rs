//! From a pool to the Node object that one of its machines registers as.
//!
//! A pool that cannot be turned into nodes is refused here, with a message for the user.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use shared_crds::quantity::Exact;
use shared_crds::v1alpha1::validity::{self, InvalidPool};
use shared_crds::v1alpha1::{ASSUMED_POD_CAPACITY, NodeTemplateSpec};
use shared_crds::{NodePool, names};

use crate::PoolKey;
use crate::input::supply::{Machine, NodeSource, NodeTraits};
use crate::template::allocatable::{InvalidAmount, allocatable};
use crate::template::applied_template::AppliedTemplate;

/// Why a pool's spec cannot be acted on. The text is for the user.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Invalid {
    /// No node can be made from the spec.
    #[error(transparent)]
    Pool(#[from] InvalidPool),
    /// The provider cannot make nodes from the spec.
    #[error("{0}")]
    Provider(String),
    /// A value is not a valid quantity.
    #[error(transparent)]
    Amount(#[from] InvalidAmount),
    /// The template cannot be written as JSON, so it has no hash.
    #[error("spec.template cannot be written as JSON")]
    Encoding,
}

/// The labels, annotations and taints that every node of the pool carries, whether the operator or a kubelet creates its Node.
#[derive(Clone, Debug)]
pub(crate) struct NodeMetadata {
    /// Hash of the template; distinguishes nodes made from this template from those made from an earlier one.
    pub hash: String,
    /// Labels of the template, of the provider and of the pool.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the template and of the provider, and the hash.
    pub annotations: BTreeMap<String, String>,
    /// The taints of the template, startup taints included.
    pub taints: Vec<Taint>,
}

impl NodeMetadata {
    /// Computes those of the nodes of `pool`; `None` when the template has no hash.
    pub(crate) fn of(key: &PoolKey, pool: &NodePool) -> Option<Self> {
        let template = &pool.spec.template;
        let hash = pool.spec.template_hash()?;
        let metadata = template.metadata.clone().unwrap_or_default();
        let of_provider = || {
            let all = pool.spec.provider.node_labels().iter();
            all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        };
        // The template may not set another pool.
        let mut labels = metadata.labels;
        labels.extend(of_provider());
        let of_pool = names::member_labels(&key.namespace, &key.name);
        labels.extend(of_pool.map(|(key, value)| (key.to_owned(), value)));
        labels.extend(
            pool.spec.provider.reference().map(|provider| (names::PROVIDER_LABEL.to_owned(), provider)),
        );
        let mut annotations = metadata.annotations;
        annotations.extend(of_provider());
        annotations.insert(names::TEMPLATE_HASH_ANNOTATION.to_owned(), hash.clone());
        let applied = AppliedTemplate::of(&pool.spec).text();
        annotations.extend(applied.map(|applied| (names::TEMPLATE_APPLIED_ANNOTATION.to_owned(), applied)));
        Some(Self { hash, labels, annotations, taints: taints(&template.spec) })
    }

    /// Those of the Node of a machine that was perhaps made from an earlier template.
    pub(crate) fn of_machine(mut self, machine: &Machine) -> Self {
        if let Some(hash) = &machine.template_hash {
            self.annotations.insert(names::TEMPLATE_HASH_ANNOTATION.to_owned(), hash.clone());
        }
        self
    }
}

/// What every node of the pool looks like.
#[derive(Clone, Debug)]
pub(crate) struct Blueprint {
    /// What it carries.
    pub metadata: NodeMetadata,
    source: NodeSource,
    capacity: BTreeMap<String, Quantity>,
    allocatable: BTreeMap<String, Quantity>,
}

impl Blueprint {
    /// Computes the node template of `pool`, whose machines become Nodes as `source` says.
    pub(crate) fn of(
        key: &PoolKey,
        pool: &NodePool,
        source: &Result<NodeSource, String>,
    ) -> Result<Self, Invalid> {
        validity::check(pool)?;
        let source = source.clone().map_err(Invalid::Provider)?;
        let template = &pool.spec.template;
        let metadata = NodeMetadata::of(key, pool).ok_or(Invalid::Encoding)?;
        let capacity = capacity(&template.spec);
        let allocatable = allocatable(&capacity, &template.spec.reserved)?;
        Ok(Self { metadata, source, capacity, allocatable })
    }

    /// The Node object of the machine `name`, which differs from others by `traits`; `None` when the machine registers it
    /// itself. It has no owner reference: nodes outlive a pool whose deletion is forced, and the garbage collector must
    /// not delete machines with pods on them.
    pub(crate) fn node(&self, name: &str, traits: Option<&NodeTraits>) -> Option<Node> {
        let NodeSource::Operator { provider_id_prefix } = self.source else {
            return None;
        };
        // The template may set another operating system or architecture.
        let assumed = [("kubernetes.io/os", "linux"), ("kubernetes.io/arch", "amd64")];
        let mut labels = BTreeMap::from(assumed.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let NodeMetadata { hash: _, labels: of_pool, mut annotations, taints } = self.metadata.clone();
        annotations.extend(traits.iter().flat_map(|traits| traits.annotations.clone()));
        let size = |all| traits.map_or_else(|| Clone::clone(all), |traits| part(all, traits.size_percent));
        labels.extend(of_pool);
        labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
        Some(Node {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels),
                annotations: Some(annotations),
                finalizers: Some(vec![names::NODE_FINALIZER.to_owned()]),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                provider_id: Some(format!("{provider_id_prefix}{name}")),
                taints: (!taints.is_empty()).then_some(taints),
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus {
                capacity: Some(size(&self.capacity)),
                allocatable: Some(size(&self.allocatable)),
                ..NodeStatus::default()
            }),
        })
    }
}

/// The API server accepts one taint per key and effect; the permanent one takes precedence over a startup taint.
fn taints(spec: &NodeTemplateSpec) -> Vec<Taint> {
    let mut seen = BTreeSet::new();
    spec.taints
        .iter()
        .chain(&spec.startup_taints)
        .filter(|taint| seen.insert((taint.key.as_str(), taint.effect)))
        .map(Taint::from)
        .collect()
}

fn capacity(spec: &NodeTemplateSpec) -> BTreeMap<String, Quantity> {
    let mut capacity = spec.capacity.clone();
    capacity.entry("pods".to_owned()).or_insert_with(|| Quantity(ASSUMED_POD_CAPACITY.to_string()));
    capacity
}

/// `percent` of each amount but the number of pods, which is a setting of the kubelet and not a size. Rounded down to what
/// the scheduler counts in: thousandths of cpu, and whole units of everything else.
fn part(of: &BTreeMap<String, Quantity>, percent: u8) -> BTreeMap<String, Quantity> {
    let share = |whole: i64| i128::from(whole) * i128::from(percent) / 100;
    let part = |(resource, whole): (&String, &Quantity)| {
        let amount = Exact::parse(&whole.0).unwrap_or_default();
        let text = match resource.as_str() {
            "pods" => whole.0.clone(),
            "cpu" => format!("{}m", share(amount.milli())),
            _ => share(amount.units()).to_string(),
        };
        let part = Exact::parse(&text).map_or(text, |part| part.written_like(&whole.0));
        (resource.clone(), Quantity(part))
    };
    of.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use shared_crds::v1alpha1::{NodeTaint, TaintEffect};

    use super::*;
    use crate::testing::{self, SOURCE, key};

    #[test]
    fn a_node_carries_its_pool_the_template_and_what_its_provider_adds() {
        let mut pool = testing::pool(3);
        pool.spec.template = serde_json::from_value(serde_json::json!({
            "metadata": { "labels": { "tier": "gpu", "kubernetes.io/arch": "arm64" }, "annotations": { "note": "x" } },
            "spec": {
                "taints": [{ "key": "dedicated", "value": "gpu", "effect": "NoSchedule" }],
                "startupTaints": [{ "key": "agent", "effect": "NoExecute" }],
                "capacity": { "cpu": "4", "memory": "16Gi" },
                "reserved": { "cpu": "80m", "memory": "1Gi" },
            },
        }))
        .unwrap();
        let blueprint = Blueprint::of(&key(), &pool, &SOURCE).unwrap();
        insta::assert_yaml_snapshot!(blueprint.node("web-abcde-0", None));
    }

    #[test]
    fn a_machine_that_is_smaller_than_the_template_has_a_smaller_node() {
        let mut pool = testing::pool(1);
        let amounts = |list: &[(&str, &str)]| -> BTreeMap<String, Quantity> {
            list.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned()))).collect()
        };
        pool.spec.template.spec.capacity =
            amounts(&[("cpu", "3"), ("memory", "15Gi"), ("pods", "110"), ("nvidia.com/gpu", "1")]);
        pool.spec.template.spec.reserved = amounts(&[("cpu", "500m"), ("memory", "1Gi")]);
        let blueprint = Blueprint::of(&key(), &pool, &SOURCE).unwrap();
        let annotations = BTreeMap::from([("example.com/of-machine".to_owned(), "x".to_owned())]);
        let traits = NodeTraits { annotations: annotations.clone(), size_percent: 50 };
        let (plain, node) = (blueprint.node("n", None).unwrap(), blueprint.node("n", Some(&traits)).unwrap());
        let status = node.status.unwrap();
        let gpu = ("nvidia.com/gpu", "0");
        let capacity = amounts(&[("cpu", "1500m"), ("memory", "7680Mi"), ("pods", "110"), gpu]);
        assert_eq!(status.capacity, Some(capacity));
        let allocatable = amounts(&[("cpu", "1250m"), ("memory", "7Gi"), ("pods", "110"), gpu]);
        assert_eq!(status.allocatable, Some(allocatable));
        let mut expected = plain.metadata;
        expected.annotations.get_or_insert_default().extend(annotations);
        assert_eq!(node.metadata, expected, "nothing else differs, the template's hash included");
        let whole = NodeTraits { annotations: BTreeMap::new(), size_percent: 100 };
        assert_eq!(blueprint.node("n", Some(&whole)).unwrap().status, plain.status);
    }

    #[test]
    fn a_taint_that_is_also_a_startup_taint_appears_once() {
        let taint = |value: &str| NodeTaint {
            key: "k".into(),
            value: Some(value.into()),
            effect: TaintEffect::NoSchedule,
        };
        let mut pool = testing::pool(1);
        pool.spec.template.spec.taints = vec![taint("lasting")];
        pool.spec.template.spec.startup_taints = vec![taint("startup")];
        let node = Blueprint::of(&key(), &pool, &SOURCE).unwrap().node("n", None);
        let taints = node.unwrap().spec.unwrap().taints.unwrap();
        assert_eq!(taints.iter().map(|t| t.value.as_deref()).collect::<Vec<_>>(), [Some("lasting")]);
    }

    #[test]
    fn a_template_that_changes_changes_the_hash_and_one_that_does_not_keeps_it() {
        let pool = testing::pool(1);
        let mut other = pool.clone();
        other.spec.max_replicas += 1;
        let hash = |pool: &NodePool| Blueprint::of(&key(), pool, &SOURCE).unwrap().metadata.hash;
        assert_eq!(hash(&pool), hash(&other));
        other.spec.template.spec.capacity.insert("cpu".into(), Quantity("8".into()));
        assert_ne!(hash(&pool), hash(&other));
    }

    #[test]
    fn an_invalid_spec_is_refused_with_a_message() {
        let invalid = Err("spec.provider is invalid: no such thing".to_owned());
        let refused = Blueprint::of(&key(), &testing::pool(1), &invalid).unwrap_err();
        assert_eq!(refused.to_string(), "spec.provider is invalid: no such thing");
        let reserved = |amount: &str| {
            let mut pool = testing::pool(1);
            pool.spec.template.spec.reserved.insert("cpu".into(), Quantity(amount.into()));
            Blueprint::of(&key(), &pool, &SOURCE).unwrap_err().to_string()
        };
        assert!(reserved("99").contains("reserved.cpu is more than"));
        assert!(reserved("1Zi").contains("reserved.cpu: \"1Zi\" is not a quantity"));
        let mut long = testing::pool(1);
        long.metadata.name = Some("a".repeat(64));
        assert_eq!(
            Blueprint::of(&key(), &long, &SOURCE).unwrap_err(),
            Invalid::Pool(InvalidPool::NameTooLong(64))
        );
    }
}
