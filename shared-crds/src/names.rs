//! Names that both operators, and users who write selectors, rely on. They are API: changing one orphans nodes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The API group of every Tandem resource.
pub const GROUP: &str = "tandem.dev";

/// Field manager of the `NodePool` operator.
pub const NODEPOOL_OPERATOR: &str = "nodepool-operator";
/// Field manager of the Autoscaler operator.
pub const AUTOSCALER_OPERATOR: &str = "autoscaler-operator";

/// Label on a Node: the name of its pool, for the selectors of users. It proves nothing: a kubelet may put it on its own
/// Node. The operators read [`MEMBER_LABEL`].
pub const NODEPOOL_LABEL: &str = "tandem.dev/nodepool";
/// Label on a Node: the namespace of its pool. A Node is cluster-scoped, so the pair names the pool.
pub const NODEPOOL_NAMESPACE_LABEL: &str = "tandem.dev/nodepool-namespace";
/// Label on a Node: the name of the pool it belongs to, as the `NodePool` operator recorded it. The API server lets no
/// kubelet set, change or remove a label with this prefix (admission plugin `NodeRestriction`, on by default in
/// kubeadm's clusters): <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction>.
pub const MEMBER_LABEL: &str = "tandem.node-restriction.kubernetes.io/nodepool";
/// Label on a Node: the namespace of the pool that [`MEMBER_LABEL`] names.
pub const MEMBER_NAMESPACE_LABEL: &str = "tandem.node-restriction.kubernetes.io/nodepool-namespace";
/// Label on a Node that registered itself: the name of its machine, as its provider lists it. Without it the machine has
/// the name of the Node. Like [`MEMBER_LABEL`], no kubelet can set it: it says which machine is deleted.
pub const MACHINE_LABEL: &str = "tandem.node-restriction.kubernetes.io/machine";
/// Label on a Node: the provider that made its machine, such as `simulated`.
pub const PROVIDER_LABEL: &str = "tandem.node-restriction.kubernetes.io/provider";

/// Annotation on a Node: hash of the pool's template that the node was made from.
pub const TEMPLATE_HASH_ANNOTATION: &str = "tandem.dev/template-hash";
/// Annotation on Karpenter's `NodeClaim`s, and by these on Nodes: the cluster that the machine was made for.
pub const CLUSTER_ANNOTATION: &str = "tandem.dev/cluster";
/// Annotation on Karpenter's `NodeClaim`s, and by these on Nodes: what the `NodeClass` said when the claim was made.
pub const NODE_CLASS_HASH_ANNOTATION: &str = "tandem.dev/node-class-hash";
/// Annotation on a Node: what of its labels, annotations and taints is from the pool's template, as JSON, so that a later template
/// can take it off again. What another writer has changed since stays.
pub const TEMPLATE_APPLIED_ANNOTATION: &str = "tandem.dev/template-applied";
/// Annotation on a Node that leaves: why, as a reason of `spec.disruption.budgets`. Written before or with the first thing that is done
/// to it. Absent where another writer has deleted it.
pub const DISRUPTION_REASON_ANNOTATION: &str = "tandem.dev/disruption-reason";
/// Annotation on a Node: when it was first seen Ready, or seen to have been, RFC 3339. A node that carries it and is not
/// Ready has broken; one that does not, and shows no other sign of having run, is still starting, and is replaced after
/// `spec.provisioningTimeoutSeconds`.
pub const READY_TIME_ANNOTATION: &str = "tandem.dev/ready-time";
/// Annotation on a Node by which a user keeps it, with the value `true`, from being repaired. It counts as unhealthy all the same.
pub const SKIP_REPAIR_ANNOTATION: &str = "tandem.dev/skip-repair";
/// Annotation on a Node by which a user has it replaced, with the value `true`, as one that is out of date.
pub const REPLACE_ANNOTATION: &str = "tandem.dev/replace";
/// Annotation on a `NodePool`: what becomes of its nodes when it is deleted. `Drain`, as without the annotation, or `Orphan`: they keep
/// running, in no pool. With any other value the deletion waits.
pub const ON_DELETE_ANNOTATION: &str = "tandem.dev/on-delete";
/// Annotation on a Node: when its drain began, RFC 3339. `spec.drain.timeoutSeconds` counts from here, also across a
/// restart of the operator.
pub const DRAIN_STARTED_ANNOTATION: &str = "tandem.dev/drain-start-time";
/// Annotation on a Node whose drain has begun: a user or another controller had cordoned it before, so it stays
/// cordoned when the drain is cancelled.
pub const WAS_CORDONED_ANNOTATION: &str = "tandem.dev/was-cordoned";
/// Annotation on a Node that is drained, by the operator or by its provider: what its drain waits for. Absent while the drain goes on
/// by itself, and on every Node that stays.
pub const DRAIN_WAITS_ANNOTATION: &str = "tandem.dev/drain-waits-for";
/// Annotation on a Node that its provider drains, with the value `true`: it is left to that also while the provider does not answer.
pub const DRAINED_BY_PROVIDER_ANNOTATION: &str = "tandem.dev/drained-by-provider";
/// Annotation on a Node whose machine was deleted before the Node was one of a pool, with the value `true`: written right before the
/// Node is deleted, because the API server lets the operator delete no Node without a trace of it.
pub const LEFT_OVER_ANNOTATION: &str = "tandem.dev/left-over";
/// Annotation on a Node whose drain took longer than `spec.drain.timeoutSeconds` and was cancelled: when, RFC 3339. It is
/// not drained again for as long.
pub const GIVEN_BACK_ANNOTATION: &str = "tandem.dev/drain-given-back-time";
/// Key of the taint by which Kubernetes is told that a machine is off, with the effect `NoExecute`: its pods are deleted
/// without a kubelet, and its volumes detached.
pub const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";
/// Annotation on a Node that is drained: it had [`EXCLUDE_FROM_LOAD_BALANCERS_LABEL`] before, and keeps it when the drain
/// is cancelled.
pub const WAS_EXCLUDED_ANNOTATION: &str = "tandem.dev/was-excluded-from-load-balancers";
/// Key of the taint of a Node that is drained, with the effect `NoSchedule` and no value. Unlike the cordon, which a
/// `DaemonSet` tolerates by itself, it is tolerated only by pods that name it or tolerate everything.
pub const DRAINING_TAINT: &str = "tandem.dev/draining";
/// Kubernetes' label of a Node that gets no traffic from external load balancers:
/// <https://kubernetes.io/docs/reference/labels-annotations-taints/#node-kubernetes-io-exclude-from-external-load-balancers>.
pub const EXCLUDE_FROM_LOAD_BALANCERS_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The labels that a kubelet sets on its own Node, again and again: what a template says of them is for planning only.
pub const KUBELETS_LABELS: [&str; 3] = ["kubernetes.io/os", "kubernetes.io/arch", "kubernetes.io/hostname"];
/// Of the labels that say where a Node is, those of Kubernetes: the admission policy keeps them as they are on a Node that joins a pool.
pub const LOCATION_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];
/// Annotation on a `Machine` of Cluster API: it goes before those without when the number of replicas falls.
pub const DELETE_MACHINE_ANNOTATION: &str = "cluster.x-k8s.io/delete-machine";
/// Annotation on a `Machine` of Cluster API: its Node is not drained again. Tandem has done that, with the budgets of its own pool.
pub const EXCLUDE_DRAINING_ANNOTATION: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
/// Finalizer on a Node: `kubectl delete node` becomes a drain followed by the deletion.
pub const NODE_FINALIZER: &str = "tandem.dev/drain";
/// Finalizer on a `NodePool`: the pool goes only when its last node has gone.
pub const POOL_FINALIZER: &str = "tandem.dev/nodes";

/// The selector of a pool's nodes, in the form `status.selector` and a label query take.
pub fn node_selector(namespace: &str, pool: &str) -> String {
    format!("{MEMBER_LABEL}={pool},{MEMBER_NAMESPACE_LABEL}={namespace}")
}

/// The labels by which a Node belongs to a pool, and those by which users select it.
pub fn member_labels(namespace: &str, pool: &str) -> [(&'static str, String); 4] {
    [
        (NODEPOOL_LABEL, pool.to_owned()),
        (NODEPOOL_NAMESPACE_LABEL, namespace.to_owned()),
        (MEMBER_LABEL, pool.to_owned()),
        (MEMBER_NAMESPACE_LABEL, namespace.to_owned()),
    ]
}

/// Namespace and name of the pool that a Node with these labels belongs to.
pub fn pool_of_member(labels: &BTreeMap<String, String>) -> Option<(&str, &str)> {
    Some((labels.get(MEMBER_NAMESPACE_LABEL)?, labels.get(MEMBER_LABEL)?))
}

/// The name of the machine of a Node with this metadata.
pub fn machine_of(node: &ObjectMeta) -> Option<&str> {
    let labelled = node.labels.as_ref().and_then(|labels| labels.get(MACHINE_LABEL));
    labelled.or(node.name.as_ref()).map(String::as_str)
}

/// Whether a Node with this metadata has the `annotation` with the value `true`.
pub fn asks_for(annotation: &str, node: &ObjectMeta) -> bool {
    node.annotations.as_ref().and_then(|all| all.get(annotation)).is_some_and(|value| value == "true")
}

/// Whether the label says to which pool a Node belongs, so that it differs between nodes of equal pools.
pub fn names_a_pool(label: &str) -> bool {
    [NODEPOOL_LABEL, NODEPOOL_NAMESPACE_LABEL, MEMBER_LABEL, MEMBER_NAMESPACE_LABEL].contains(&label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_belongs_to_the_pool_that_the_operator_recorded_and_not_to_one_it_claims() {
        let all = member_labels("ns", "p").map(|(key, value)| (key.to_owned(), value));
        let labels = BTreeMap::from(all.clone());
        assert_eq!(pool_of_member(&labels), Some(("ns", "p")));
        assert!(labels.keys().all(|label| names_a_pool(label)) && !names_a_pool("kubernetes.io/hostname"));
        let claimed: BTreeMap<_, _> = all.into_iter().take(2).collect();
        assert_eq!(pool_of_member(&claimed), None);
        // As the API server's plugin recognises them.
        for label in [MEMBER_LABEL, MEMBER_NAMESPACE_LABEL, MACHINE_LABEL, PROVIDER_LABEL] {
            assert!(label.split_once('/').unwrap().0.ends_with(".node-restriction.kubernetes.io"), "{label}");
        }
    }

    #[test]
    fn a_node_asks_for_something_with_the_value_true_and_no_kubelet_does() {
        for annotation in [SKIP_REPAIR_ANNOTATION, REPLACE_ANNOTATION] {
            for (value, asks) in
                [(Some("true"), true), (Some("false"), false), (Some(""), false), (None, false)]
            {
                let annotations =
                    value.map(|value| BTreeMap::from([(annotation.to_owned(), value.to_owned())]));
                let node = ObjectMeta { annotations, ..ObjectMeta::default() };
                assert_eq!(asks_for(annotation, &node), asks, "{annotation} {value:?}");
            }
            // The prefix of those that the admission policy keeps from kubelets, and the schema from templates.
            assert!(annotation.starts_with("tandem.dev/"), "{annotation}");
        }
    }
}
