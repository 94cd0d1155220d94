//! What placing a pod reads of a node, apart from resources: name, labels, taints. Existing, upcoming and planned nodes
//! all have a [`NodeProfile`].

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Taint};
use shared_crds::NodePool;
use shared_crds::QualifiedName;
use shared_crds::names::{DRAINING_TAINT, member_labels};

use super::constraints::HOSTNAME_LABEL;

/// The taint equivalent to `spec.unschedulable`; the scheduler admits pods that tolerate it.
pub(crate) const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";
/// The host name of a node that does not exist yet. No label value can contain a slash, so no constraint on a certain
/// host matches it.
const UNKNOWN_HOST: &str = "/";

/// Prefixes of the keys of taints that say that a node is starting, whatever the pool declares. The first is that of the node
/// readiness controller (<https://node-readiness-controller.sigs.k8s.io>), the others are Cluster Autoscaler's
/// (`StartupTaintPrefix` and `IgnoreTaintPrefix`), which leaves such taints out of the template of a node, and takes a node that
/// has one as not ready yet.
const STARTUP_TAINTS: [&str; 3] = [
    "readiness.k8s.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
];

/// How the keys of taints end that an agent takes away when it is up on the node: `node.cilium.io/agent-not-ready`, and the CSI
/// drivers of AWS (`ebs.csi.aws.com/agent-not-ready`). Cilium sets its taint itself, whether the pool declares it or not.
const AGENT_NOT_READY: &str = "/agent-not-ready";

/// The taints with which the machines of Cluster API and of Karpenter register, and which these take away a moment later.
const REGISTERING: [&str; 2] = ["node.cluster.x-k8s.io/uninitialized", "karpenter.sh/unregistered"];

/// Deprecated labels, each with the one that replaced it. The kubelet, and kube-controller-manager
/// (`pkg/controller/nodelifecycle`), still give every node both, with one value; pods and `DaemonSet`s may select by either.
const OLDER_LABELS: [(&str, &str); 2] =
    [("beta.kubernetes.io/arch", "kubernetes.io/arch"), ("beta.kubernetes.io/os", "kubernetes.io/os")];

/// Whether a taint with this key says that its node is starting. On a node of any age it means "not ready yet", and new nodes are
/// planned without it. A node that has it when its provisioning timeout is over counts as it is: the taint keeps pods away. If all
/// nodes keep it, new nodes are planned with it: see [`StuckTaints`](crate::pools::stuck_taints::StuckTaints).
pub(crate) fn is_startup_taint(key: &str) -> bool {
    STARTUP_TAINTS.iter().any(|prefix| key.starts_with(prefix))
        || key.ends_with(AGENT_NOT_READY)
        || REGISTERING.contains(&key)
}

/// The properties of a node that placing reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeProfile {
    /// Name of the node; `None` for one that does not exist yet.
    pub name: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Taints that keep pods away, sorted: those with effect `NoSchedule` or `NoExecute`.
    pub taints: Vec<RepellingTaint>,
}

/// A taint that keeps pods away. Both effects are the same for a pod that is not on the node yet, except for
/// tolerations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RepellingTaint {
    /// Key of the taint.
    pub key: String,
    /// Value of the taint, empty when it has none.
    pub value: String,
    /// `NoSchedule` or `NoExecute`.
    pub effect: String,
}

impl RepellingTaint {
    /// The taints of a node while the `NodePool` operator drains it: its own, and the one of a cordoned node, which
    /// kube-controller-manager's node lifecycle controller adds.
    pub(crate) fn of_drain() -> [Self; 2] {
        [UNSCHEDULABLE_TAINT, DRAINING_TAINT].map(Self::no_schedule)
    }

    fn no_schedule(key: &str) -> Self {
        Self { key: key.to_owned(), value: String::new(), effect: "NoSchedule".to_owned() }
    }
}

impl NodeProfile {
    /// The profile of an existing node as it is now.
    pub(crate) fn of_node(node: &Node) -> Self {
        let spec = node.spec.as_ref();
        let mut taints: Vec<_> =
            spec.iter().flat_map(|s| s.taints.iter().flatten()).filter_map(repelling).collect();
        if spec.is_some_and(|s| s.unschedulable == Some(true)) {
            taints.push(RepellingTaint::no_schedule(UNSCHEDULABLE_TAINT));
        }
        taints.sort_unstable();
        taints.dedup();
        Self {
            name: node.metadata.name.clone(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints,
        }
    }

    /// The profile of a new node of the pool, once its startup taints are removed.
    pub(crate) fn of_template(pool: &NodePool) -> Self {
        let template = &pool.spec.template;
        let mut labels = BTreeMap::from([
            ("kubernetes.io/os".to_owned(), "linux".to_owned()),
            ("kubernetes.io/arch".to_owned(), "amd64".to_owned()),
            (HOSTNAME_LABEL.to_owned(), UNKNOWN_HOST.to_owned()),
        ]);
        labels.extend(template.metadata.iter().flat_map(|m| m.labels.clone()));
        let of_provider = pool.spec.provider.node_labels().iter();
        labels.extend(of_provider.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let QualifiedName { namespace, name } = QualifiedName::of(&pool.metadata);
        labels.extend(member_labels(namespace, name).map(|(key, value)| (key.to_owned(), value)));
        for (older, value) in with_older_names(&labels) {
            labels.entry(older).or_insert(value);
        }
        let lasting = template.spec.taints.iter().filter(|taint| !is_startup_taint(&taint.key));
        let mut taints: Vec<_> = lasting.map(Taint::from).filter_map(|t| repelling(&t)).collect();
        taints.sort_unstable();
        taints.dedup();
        Self { name: None, labels, taints }
    }

    /// Adds labels that nodes have, instead of those that were assumed.
    pub(crate) fn add_labels(&mut self, shown: &BTreeMap<String, String>) {
        self.labels.extend(with_older_names(shown));
        self.labels.extend(shown.clone());
    }

    /// Adds taints.
    pub(crate) fn add_taints(&mut self, taints: &[RepellingTaint]) {
        self.taints.extend_from_slice(taints);
        self.taints.sort_unstable();
        self.taints.dedup();
    }

    /// This template's profile for `node`, which is still starting, as it will be when ready: with the name and the
    /// labels that it already has.
    #[must_use]
    pub(crate) fn worn_by(&self, node: &Node) -> Self {
        let mut worn = Self { name: node.metadata.name.clone(), ..self.clone() };
        worn.labels.insert(HOSTNAME_LABEL.to_owned(), worn.name.clone().unwrap_or_default());
        node.metadata.labels.iter().for_each(|labels| worn.add_labels(labels));
        worn
    }
}

/// The deprecated names of `labels` that have one, with their values.
fn with_older_names(labels: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let older = |(older, label): (&str, &str)| Some((older.to_owned(), labels.get(label)?.clone()));
    OLDER_LABELS.into_iter().filter_map(older).collect()
}

/// The taint as placing reads it; `None` if it keeps no pods away.
pub(crate) fn repelling(taint: &Taint) -> Option<RepellingTaint> {
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute").then(|| RepellingTaint {
        key: taint.key.clone(),
        value: taint.value.clone().unwrap_or_default(),
        effect: taint.effect.clone(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cordoned_node_carries_the_unschedulable_taint_once() {
        let node: Node = serde_json::from_value(json!({ "metadata": { "name": "n" }, "spec": { "unschedulable": true,
            "taints": [{ "key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule" }, { "key": "p", "effect": "PreferNoSchedule" }] } }))
        .unwrap();
        let profile = NodeProfile::of_node(&node);
        assert_eq!(profile.taints.len(), 1);
        assert_eq!(profile.taints[0].key, UNSCHEDULABLE_TAINT);
    }

    #[test]
    fn a_template_carries_the_pools_labels_and_no_startup_taint() {
        let pool: NodePool = serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "ns" }, "spec": {
            "maxReplicas": 1, "provider": { "simulated": {} }, "template": { "metadata": { "labels": { "zone": "a" } }, "spec": {
                "capacity": { "cpu": "1", "memory": "1Gi" },
                "taints": [{ "key": "k", "effect": "NoExecute" }, { "key": "readiness.k8s.io/net", "effect": "NoSchedule" }],
                "startupTaints": [{ "key": "s", "effect": "NoSchedule" }] } } } }))
        .unwrap();
        let profile = NodeProfile::of_template(&pool);
        assert_eq!(profile.labels["zone"], "a");
        for (key, value) in member_labels("ns", "p") {
            assert_eq!(profile.labels[key], value);
        }
        assert_eq!(profile.taints.iter().map(|t| t.key.as_str()).collect::<Vec<_>>(), ["k"]);
    }

    #[test]
    fn the_deprecated_labels_of_system_and_architecture_say_what_their_successors_do() {
        let read = |profile: &NodeProfile| {
            let keys = ["beta.kubernetes.io/os", "beta.kubernetes.io/arch"];
            keys.map(|key| profile.labels[key].clone())
        };
        let pool = |labels: serde_json::Value| -> NodePool {
            serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "ns" }, "spec": {
                "maxReplicas": 1, "provider": { "simulated": {} }, "template": { "metadata": { "labels": labels },
                "spec": { "capacity": { "cpu": "1", "memory": "1Gi" } } } } }))
            .unwrap()
        };
        let assumed = NodeProfile::of_template(&pool(json!({})));
        assert_eq!(read(&assumed), ["linux", "amd64"]);
        let declared = NodeProfile::of_template(&pool(json!({ "kubernetes.io/os": "windows" })));
        assert_eq!(read(&declared), ["windows", "amd64"]);
        let node: Node = serde_json::from_value(
            json!({ "metadata": { "name": "n", "labels": { "kubernetes.io/arch": "arm64" } } }),
        )
        .unwrap();
        assert_eq!(read(&assumed.worn_by(&node)), ["linux", "arm64"]);
    }
}
