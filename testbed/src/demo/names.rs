//! The names of the demo's objects.

/// The pool, and the `MachineDeployment` where there is one.
pub(super) const POOL: &str = "workers";

/// The namespace of the pool and its load.
pub(super) const NAMESPACE: &str = "tandem-demo";

/// How the name of the `NodePool` operator's service account ends, and what people call it.
pub(super) const NODE_POOL_OPERATOR: &str = "nodepool-operator";
