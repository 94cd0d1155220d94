//! Which labels make no difference between pools: those that differ in nothing else are balanced.

use shared_crds::names::names_a_pool;
use shared_crds::places::tells_zone;

use crate::requirements::constraints::HOSTNAME_LABEL;

/// Labels that make no difference, besides those that name a zone, a region or a pool of Tandem's: most of them name the node group of
/// a cloud, or a machine. They are those of Cluster Autoscaler's `--balance-similar-node-groups`: `BasicIgnoredLabels`, and the lists
/// of its comparators for AWS, Azure and GCE
/// (<https://github.com/kubernetes-sigs/cluster-autoscaler/tree/33c3f97bf2749b1385d9223f1f8856fe345011f7/pkg/processors/nodegroupset>);
/// then what its provider `clusterapi` advises to leave out on IBM Cloud
/// (<https://github.com/kubernetes/autoscaler/blob/55c37cd5eb550756c5ccc5a89e9068d77797e575/cluster-autoscaler/cloudprovider/clusterapi/README.md>).
///
/// There each cloud has its own list. Here all of them apply, because a pool does not say in which cloud it is. No list there has
/// `cloud.google.com/gke-nodepool` or `node.kubernetes.io/instance-type`.
const IGNORED_LABELS: [&str; 19] = [
    // Of every cloud.
    HOSTNAME_LABEL,
    "beta.kubernetes.io/fluentd-ds-ready",
    "kops.k8s.io/instancegroup",
    // AWS.
    "alpha.eksctl.io/instance-id",
    "alpha.eksctl.io/nodegroup-name",
    "eks.amazonaws.com/nodegroup",
    "k8s.amazonaws.com/eniConfig",
    "lifecycle",
    // Azure.
    "agentpool",
    "kubernetes.azure.com/agentpool",
    "aksEngineVersion",
    "creationSource",
    "poolName",
    "resourceNameSuffix",
    "kubernetes.azure.com/consolidated-additional-properties",
    "kubernetes.azure.com/node-image-version",
    // IBM Cloud.
    "ibm-cloud.kubernetes.io/worker-id",
    "ibm-cloud.kubernetes.io/vpc-instance-id",
    "vpc-block-csi-driver-labels",
];

/// Whether pools that are balanced may differ in the label.
pub(super) fn is_ignored(key: &str) -> bool {
    tells_zone(key) || names_a_pool(key) || IGNORED_LABELS.contains(&key)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{Read as _, TestCluster};

    /// Labels that name a zone or a region, of Kubernetes, clouds and CSI drivers.
    const ZONES: [&str; 10] = [
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "topology.k8s.aws/zone-id",
        "topology.gke.io/zone",
        "topology.ebs.csi.aws.com/zone",
        "topology.disk.csi.azure.com/zone",
        "topology.diskplugin.csi.alibabacloud.com/zone",
        "topology.cinder.csi.openstack.org/zone",
    ];

    /// How many nodes each of two pools gets for four pods of a node each, with these labels in their templates.
    fn sizes(one: &Value, other: &Value) -> (i32, i32) {
        let pool = |labels: &Value| json!({ "spec": { "template": { "metadata": { "labels": labels } } } });
        let cluster = TestCluster::eager().pool("a", pool(one)).pool("b", pool(other));
        let plan = cluster.pending("p", 4, "3", &json!({})).plan();
        (plan.desired("a"), plan.desired("b"))
    }

    #[test]
    fn pools_that_differ_in_zone_node_group_or_machine_only_are_balanced() {
        for key in IGNORED_LABELS.into_iter().chain(ZONES) {
            assert_eq!(sizes(&json!({ key: "x" }), &json!({ key: "y" })), (2, 2), "{key}");
            assert_eq!(sizes(&json!({ key: "x" }), &json!({})), (2, 2), "{key} of one only");
        }
        let groups =
            |name: &str| json!({ "eks.amazonaws.com/nodegroup": name, "agentpool": name, "tier": "web" });
        assert_eq!(sizes(&groups("x"), &groups("y")), (2, 2));
    }

    #[test]
    fn pools_that_differ_in_another_label_are_not_balanced() {
        for key in [
            "node.kubernetes.io/instance-type",
            "kubernetes.io/arch",
            "cloud.google.com/gke-nodepool",
            "eks.amazonaws.com/capacityType",
            "kubernetes.azure.com/mode",
            "example.com/agentpool",
            "example.com/zone",
            "topology.example.com/rack",
            "tier",
        ] {
            assert_eq!(sizes(&json!({ key: "x" }), &json!({ key: "y" })), (4, 0), "{key}");
            assert_eq!(sizes(&json!({ key: "x" }), &json!({})), (4, 0), "{key} of one only");
        }
    }
}
