//! The name of a pool with its namespace, and of the cluster that it is in.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use shared_crds::{NodePool, QualifiedName, names};

/// What tells this cluster from others whose machines the same provider makes. Every machine carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterId(Arc<str>);

impl From<&str> for ClusterId {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}

impl ClusterId {
    /// The identity as it is written on machines.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for ClusterId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Namespace and name of a pool. Nodes carry them in two labels.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolKey {
    /// Namespace of the `NodePool`.
    pub namespace: String,
    /// Name of the `NodePool`.
    pub name: String,
}

impl std::fmt::Display for PoolKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        QualifiedName::from((&*self.namespace, &*self.name)).fmt(f)
    }
}

/// Same as [`Display`](std::fmt::Display): logs show the key of a reconcile with `Debug`.
impl std::fmt::Debug for PoolKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl PoolKey {
    /// The key of `pool`.
    pub fn of_pool(pool: &NodePool) -> Self {
        Self {
            namespace: pool.metadata.namespace.clone().unwrap_or_default(),
            name: pool.metadata.name.clone().unwrap_or_default(),
        }
    }

    /// The pool in the labels of `node`; `None` unless it carries both labels.
    pub fn of_node(node: &Node) -> Option<Self> {
        Self::of_labelled(&node.metadata)
    }

    /// The pool in the labels of `metadata`; `None` unless both labels are present.
    pub fn of_labelled(metadata: &ObjectMeta) -> Option<Self> {
        let (namespace, name) = names::pool_of_member(metadata.labels.as_ref()?)?;
        Some(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}
