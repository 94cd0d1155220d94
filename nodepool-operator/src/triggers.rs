//! Maps watch events to the pools to reconcile. Nothing is decided about them here.

use std::collections::HashMap;

use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::runtime::reflector::Store;
use node_lifecycle::PoolKey;
use node_lifecycle::on_delete::OnDelete;
use shared_crds::NodePool;
use shared_crds::ownership::{Owner, conditions};
use shared_crds::v1alpha1::{AutoscalingStatus, NodePoolStatus};
use shared_runtime::changes::material;
use shared_runtime::reflect::Change;

/// The pools that changes of pools and nodes concern. With a `namespace`, only pools in it: another operator handles
/// the nodes of other namespaces, although the watch returns them. A node in no pool concerns the one that is
/// `awaiting` it.
///
/// Other writers update a pool all the time, and a kubelet its node; a pass for each would be far too many.
pub(crate) fn keys(
    pools: impl Stream<Item = Change<NodePool>> + Send + 'static,
    nodes: impl Stream<Item = Change<Node>> + Send + 'static,
    awaiting: impl Fn(&Node) -> Option<PoolKey> + Send + 'static,
    namespace: String,
) -> impl Stream<Item = PoolKey> + Send + 'static {
    let of_pools = material(pools, same_pool).map(|change| vec![pool_of(&change)]);
    let mut owners = Owners::default();
    let of_nodes = material(nodes, same_node).map(move |change| {
        let mut concerned = owners.concerned(&change);
        if let (true, Change::Applied(node)) = (concerned.is_empty(), &change) {
            concerned.extend(awaiting(node));
        }
        concerned
    });
    stream::select(of_pools, of_nodes)
        .flat_map(stream::iter)
        .filter(move |key| std::future::ready(namespace.is_empty() || key.namespace == namespace))
}

/// Every cached pool, at each of `changes`.
pub(crate) fn every_pool(
    changes: impl Stream<Item = ()> + Send + 'static,
    pools: Store<NodePool>,
) -> impl Stream<Item = PoolKey> + Send + 'static {
    changes.flat_map(move |()| {
        stream::iter(pools.state().into_iter().map(|pool| PoolKey::of_pool(&pool)).collect::<Vec<_>>())
    })
}

fn pool_of(change: &Change<NodePool>) -> PoolKey {
    match change {
        Change::Applied(pool) | Change::Deleted(pool) => PoolKey::of_pool(pool),
        Change::Unreadable(pool) => {
            PoolKey { namespace: pool.namespace.clone().unwrap_or_default(), name: pool.name.clone() }
        }
    }
}

/// Whether no change needs a pass: a pass neither reads the changed part nor corrects it. The operator's own part of
/// the status is compared too, so what another writer overwrote is written again.
fn same_pool(before: &NodePool, now: &NodePool) -> bool {
    let meta = |pool: &NodePool| {
        let meta = &pool.metadata;
        (meta.generation, meta.deletion_timestamp.clone(), meta.finalizers.clone(), OnDelete::of(pool))
    };
    meta(before) == meta(now) && read_part(before) == read_part(now)
}

/// The status without the parts that other writers own and a pass does not read.
fn read_part(pool: &NodePool) -> Option<NodePoolStatus> {
    let mut status = pool.status.clone()?;
    status.conditions.retain(|condition| {
        conditions(Owner::NodepoolOperator).any(|own| own.as_str() == condition.type_.as_str())
    });
    let read = status.autoscaling.take().map(|AutoscalingStatus { scale_down, on_contested, .. }| {
        AutoscalingStatus { scale_down, on_contested, ..AutoscalingStatus::default() }
    });
    status.autoscaling = read.filter(|read| *read != AutoscalingStatus::default());
    Some(status)
}

/// Whether nothing but the resourceVersion and the heartbeat times changed.
fn same_node(before: &Node, now: &Node) -> bool {
    let still = |node: &Node| {
        let mut node = node.clone();
        node.metadata.resource_version = None;
        let status = node.status.iter_mut();
        for condition in status.flat_map(|status| status.conditions.iter_mut().flatten()) {
            condition.last_heartbeat_time = None;
        }
        node
    };
    still(before) == still(now)
}

/// The pool each node was last seen in: a node whose label changes also concerns its previous pool.
#[derive(Debug, Default)]
struct Owners(HashMap<String, PoolKey>);

impl Owners {
    fn concerned(&mut self, change: &Change<Node>) -> Vec<PoolKey> {
        let (name, now) = match change {
            Change::Applied(node) | Change::Deleted(node) => {
                (node.metadata.name.clone().unwrap_or_default(), PoolKey::of_node(node))
            }
            Change::Unreadable(node) => (node.name.clone(), None),
        };
        let before = match (change, &now) {
            (Change::Applied(_), Some(key)) => self.0.insert(name, key.clone()),
            (Change::Applied(_), None) | (Change::Deleted(_) | Change::Unreadable(_), _) => {
                self.0.remove(&name)
            }
        };
        let moved_from = before.filter(|before| Some(before) != now.as_ref());
        moved_from.into_iter().chain(now).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt as _;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
    use node_lifecycle::testing::{at, key, node, pool as plan_pool, set_ready};
    use shared_crds::names;
    use shared_crds::v1alpha1::{OnContested, ScaleDownPlan};
    use shared_runtime::reflect::Unreadable;

    use super::*;

    fn in_pool(name: &str) -> Arc<Node> {
        let mut node = node(0);
        node.metadata.labels.as_mut().unwrap().insert(names::MEMBER_LABEL.into(), name.into());
        Arc::new(node)
    }

    fn pool(name: &str) -> PoolKey {
        PoolKey { name: name.into(), ..key() }
    }

    #[test]
    fn other_writers_changes_trigger_no_pass_but_our_own_part_and_the_scale_down_plan_do() {
        let mut before = plan_pool(2);
        before.status = Some(NodePoolStatus::default());
        let changed = |change: fn(&mut NodePool)| {
            let mut now = before.clone();
            now.metadata.resource_version = Some("2".into());
            change(&mut now);
            !same_pool(&before, &now)
        };
        let condition = |type_: &str| Condition {
            type_: type_.into(),
            status: "True".into(),
            reason: "R".into(),
            message: String::new(),
            last_transition_time: Time(at(0)),
            observed_generation: None,
        };
        assert!(!changed(|_| {}));
        assert!(!changed(|pool| pool.metadata.labels = Some([("team".into(), "a".into())].into())));
        assert!(!changed(|pool| {
            let autoscaling = AutoscalingStatus { desired_replicas: Some(7), ..AutoscalingStatus::default() };
            pool.status.as_mut().unwrap().autoscaling = Some(autoscaling);
        }));
        let mut with_condition = before.clone();
        with_condition.status.as_mut().unwrap().conditions = vec![condition("AbleToScale")];
        assert!(same_pool(&before, &with_condition), "the Autoscaler's");
        with_condition.status.as_mut().unwrap().conditions = vec![condition("Ready")];
        assert!(!same_pool(&before, &with_condition), "ours");

        assert!(changed(|pool| pool.metadata.generation = Some(99)));
        assert!(changed(|pool| pool.metadata.finalizers = None));
        assert!(changed(|pool| pool.metadata.deletion_timestamp = Some(Time(at(1)))));
        assert!(changed(|pool| {
            let orphan = (names::ON_DELETE_ANNOTATION.to_owned(), "Orphan".to_owned());
            pool.metadata.annotations = Some([orphan].into());
        }));
        assert!(changed(|pool| pool.status.as_mut().unwrap().replicas = Some(1)));
        assert!(changed(|pool| pool.status = None));
        assert!(changed(|pool| {
            let on_contested = Some(OnContested::Reclaim);
            let autoscaling = AutoscalingStatus { on_contested, ..AutoscalingStatus::default() };
            pool.status.as_mut().unwrap().autoscaling = Some(autoscaling);
        }));
        assert!(changed(|pool| {
            let plan = ScaleDownPlan { target_replicas: 1, ..ScaleDownPlan::default() };
            let autoscaling = AutoscalingStatus { scale_down: Some(plan), ..AutoscalingStatus::default() };
            pool.status.as_mut().unwrap().autoscaling = Some(autoscaling);
        }));
    }

    #[test]
    fn a_heartbeat_triggers_no_pass_and_a_condition_does() {
        let before = node(0);
        let mut now = before.clone();
        now.metadata.resource_version = Some("2".into());
        for condition in now.status.as_mut().unwrap().conditions.as_mut().unwrap() {
            condition.last_heartbeat_time = Some(Time(at(1000)));
        }
        assert_ne!(before, now);
        assert!(same_node(&before, &now));
        set_ready(&mut now, "Unknown");
        assert!(!same_node(&before, &now));
        let mut cordoned = before.clone();
        cordoned.spec.get_or_insert_default().unschedulable = Some(true);
        assert!(!same_node(&before, &cordoned));
    }

    #[test]
    fn a_node_that_changes_pools_triggers_both() {
        let mut owners = Owners::default();
        assert_eq!(owners.concerned(&Change::Applied(in_pool("a"))), [pool("a")]);
        assert_eq!(owners.concerned(&Change::Applied(in_pool("a"))), [pool("a")]);
        assert_eq!(owners.concerned(&Change::Applied(in_pool("b"))), [pool("a"), pool("b")]);
        assert_eq!(owners.concerned(&Change::Deleted(in_pool("b"))), [pool("b")]);
        assert!(owners.0.is_empty());
    }

    fn unreadable(namespace: Option<&str>, name: &str) -> Arc<Unreadable> {
        Arc::new(Unreadable {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            uid: None,
            version: None,
            node_name: None,
            error: "spec: is odd".to_owned(),
        })
    }

    #[test]
    fn a_pool_that_becomes_readable_again_triggers_a_pass_although_it_is_unchanged() {
        let (before, now) = (Arc::new(plan_pool(2)), Arc::new(plan_pool(2)));
        let key = PoolKey::of_pool(&now);
        let odd = unreadable(Some(&key.namespace), &key.name);
        let changes = [Change::Applied(before), Change::Unreadable(odd), Change::Applied(now)];
        let keys = keys(stream::iter(changes), stream::empty(), |_| None, String::new());
        assert_eq!(keys.collect::<Vec<_>>().now_or_never().unwrap(), [key.clone(), key.clone(), key]);
    }

    #[test]
    fn a_node_that_becomes_unreadable_or_readable_triggers_its_pool() {
        let name = in_pool("a").metadata.name.clone().unwrap();
        let changes = [
            Change::Applied(in_pool("a")),
            Change::Unreadable(unreadable(None, &name)),
            Change::Applied(in_pool("a")),
        ];
        let keys = keys(stream::empty(), stream::iter(changes), |_| None, String::new());
        assert_eq!(keys.collect::<Vec<_>>().now_or_never().unwrap(), [pool("a"), pool("a"), pool("a")]);
        let mut owners = Owners::default();
        owners.concerned(&Change::Applied(in_pool("a")));
        assert_eq!(owners.concerned(&Change::Unreadable(unreadable(None, &name))), [pool("a")]);
        // The node may have left the pool meanwhile without an event.
        assert_eq!(owners.concerned(&Change::Applied(in_pool("b"))), [pool("b")]);
    }

    #[test]
    fn pools_of_other_namespaces_trigger_no_pass_when_one_is_named() {
        let keys = |namespace: &str| -> Vec<PoolKey> {
            let nodes = stream::iter([Change::Applied(in_pool("a"))]);
            keys(stream::empty(), nodes, |_| None, namespace.to_owned()).collect().now_or_never().unwrap()
        };
        assert_eq!(keys(""), [pool("a")]);
        assert_eq!(keys("default"), [pool("a")]);
        assert!(keys("other").is_empty());
    }
}
