//! Which pools a change concerns. Nothing is decided about them here.

use std::collections::HashMap;

use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use shared_crds::NodePool;
use shared_runtime::reflect::Change;

use crate::plan::PoolKey;

/// The pools that changes of pools and nodes concern. With a `namespace`, only pools in it: nodes of others are another
/// operator's business, although the watch shows them.
pub fn keys(
    pools: impl Stream<Item = Change<NodePool>> + Send + 'static,
    nodes: impl Stream<Item = Change<Node>> + Send + 'static,
    namespace: String,
) -> impl Stream<Item = PoolKey> + Send + 'static {
    let of_pools = pools.map(|change| vec![PoolKey::of_pool(change.object())]);
    let mut owners = Owners::default();
    let of_nodes = nodes.map(move |change| owners.concerned(&change));
    stream::select(of_pools, of_nodes)
        .flat_map(stream::iter)
        .filter(move |key| std::future::ready(namespace.is_empty() || key.namespace == namespace))
}

/// Which pool each node was last seen in: a node whose label is changed concerns the pool it leaves as well.
#[derive(Debug, Default)]
struct Owners(HashMap<String, PoolKey>);

impl Owners {
    fn concerned(&mut self, change: &Change<Node>) -> Vec<PoolKey> {
        let node = change.object();
        let name = node.metadata.name.clone().unwrap_or_default();
        let now = PoolKey::of_node(node);
        let before = match (change, &now) {
            (Change::Applied(_), Some(key)) => self.0.insert(name, key.clone()),
            (Change::Applied(_), None) | (Change::Deleted(_), _) => self.0.remove(&name),
        };
        let moved_from = before.filter(|before| Some(before) != now.as_ref());
        moved_from.into_iter().chain(now).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt as _;
    use shared_crds::names;

    use super::*;
    use crate::plan::testing::{key, node};

    fn in_pool(name: &str) -> Arc<Node> {
        let mut node = node(0);
        node.metadata.labels.as_mut().unwrap().insert(names::NODEPOOL_LABEL.into(), name.into());
        Arc::new(node)
    }

    fn pool(name: &str) -> PoolKey {
        PoolKey { name: name.into(), ..key() }
    }

    #[test]
    fn a_node_that_changes_pools_concerns_both() {
        let mut owners = Owners::default();
        assert_eq!(owners.concerned(&Change::Applied(in_pool("a"))), [pool("a")]);
        assert_eq!(owners.concerned(&Change::Applied(in_pool("a"))), [pool("a")]);
        assert_eq!(owners.concerned(&Change::Applied(in_pool("b"))), [pool("a"), pool("b")]);
        assert_eq!(owners.concerned(&Change::Deleted(in_pool("b"))), [pool("b")]);
        assert!(owners.0.is_empty());
    }

    #[test]
    fn pools_of_other_namespaces_are_not_looked_at_when_one_is_named() {
        let keys = |namespace: &str| -> Vec<PoolKey> {
            let nodes = stream::iter([Change::Applied(in_pool("a"))]);
            keys(stream::empty(), nodes, namespace.to_owned()).collect().now_or_never().unwrap()
        };
        assert_eq!(keys(""), [pool("a")]);
        assert_eq!(keys("default"), [pool("a")]);
        assert!(keys("other").is_empty());
    }
}
