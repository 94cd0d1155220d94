//! Names that both operators, and users who write selectors, rely on. They are API: changing one orphans nodes.

/// The API group of every Tandem resource.
pub const GROUP: &str = "tandem.dev";

/// Field manager of the `NodePool` operator.
pub const NODEPOOL_OPERATOR: &str = "nodepool-operator";
/// Field manager of the Autoscaler operator.
pub const AUTOSCALER_OPERATOR: &str = "autoscaler-operator";

/// Label on a Node: the name of the pool it belongs to.
pub const NODEPOOL_LABEL: &str = "tandem.dev/nodepool";
/// Label on a Node: the namespace of the pool it belongs to. A Node is cluster-scoped, so the pair names the pool.
pub const NODEPOOL_NAMESPACE_LABEL: &str = "tandem.dev/nodepool-namespace";

/// Annotation on a Node: hash of the pool's template that the node was made from.
pub const TEMPLATE_HASH_ANNOTATION: &str = "tandem.dev/template-hash";
/// Annotation on a Node: when it was first seen Ready, or seen to have been, RFC 3339. A node that carries it and is not
/// Ready has broken; one that does not, and shows no other sign of having run, is still starting, and is replaced after
/// `spec.provisioningTimeoutSeconds`.
pub const READY_TIME_ANNOTATION: &str = "tandem.dev/ready-time";
/// Annotation on a Node: when its drain began, RFC 3339. `spec.drain.timeoutSeconds` counts from here, also across a
/// restart of the operator.
pub const DRAIN_STARTED_ANNOTATION: &str = "tandem.dev/drain-start-time";
/// Annotation on a Node whose drain has begun: a user or another controller had cordoned it before, so it stays
/// cordoned when the drain is cancelled.
pub const WAS_CORDONED_ANNOTATION: &str = "tandem.dev/was-cordoned";
/// Finalizer on a Node: `kubectl delete node` becomes a drain followed by the deletion.
pub const NODE_FINALIZER: &str = "tandem.dev/drain";
/// Finalizer on a `NodePool`: the pool goes only when its last node has gone.
pub const POOL_FINALIZER: &str = "tandem.dev/nodes";

/// The selector of a pool's nodes, in the form `status.selector` and a label query take.
pub fn node_selector(namespace: &str, pool: &str) -> String {
    format!("{NODEPOOL_LABEL}={pool},{NODEPOOL_NAMESPACE_LABEL}={namespace}")
}
