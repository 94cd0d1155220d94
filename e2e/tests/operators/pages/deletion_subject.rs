//! What a row of the table of deletions is about: a pool with one node and one pod, and what is left of them.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use shared_crds::NodePool;
use shared_crds::names::{NODE_FINALIZER, NODEPOOL_LABEL, POOL_FINALIZER, node_selector};
use testbed::objects;
use testbed::test_env::{PATIENCE, TestEnv, is_ready};
use testbed::wait::eventually;

use super::seen;

/// Whether a pod is on the node, and what of it is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OnNode {
    /// What the operator asked for, and what is left.
    Pod,
    /// What is left: others delete the pod at the same time.
    PodOfOthers,
    Nothing,
}

/// A pool of one node, both with their finalizers.
pub(super) struct Subject<'a> {
    env: &'a TestEnv,
    namespace: String,
    pool: &'static str,
    on_node: OnNode,
    node: Node,
    pod: Option<Pod>,
}

impl<'a> Subject<'a> {
    /// Makes the pool in `namespace`, and its pod, and waits until both run.
    pub(super) async fn make(
        env: &'a TestEnv,
        namespace: &str,
        pool: &'static str,
        on_node: OnNode,
    ) -> Result<Self> {
        let namespace = namespace.to_owned();
        let pools = Api::<NodePool>::namespaced(env.client.clone(), &namespace);
        let mut object = objects::pool(pool, 0, 3);
        object.spec.replicas = Some(1);
        pools.create(&PostParams::default(), &object).await?;
        let node = ready_node(env, &namespace, pool, None).await?;
        let pod = match on_node {
            OnNode::Nothing => None,
            OnNode::Pod | OnNode::PodOfOthers => {
                Some(running_pod(env, &namespace, pool, &node.name_any()).await?)
            }
        };
        let made = pools.get(pool).await?;
        ensure!(seen::finalizer(Some(&made), POOL_FINALIZER) == "stays", "{pool} has no finalizer");
        ensure!(seen::finalizer(Some(&node), NODE_FINALIZER) == "stays", "the node has no finalizer");
        Ok(Self { env, namespace, pool, on_node, node, pod })
    }

    /// The name of its node.
    pub(super) fn node(&self) -> String {
        self.node.name_any()
    }

    fn pools(&self) -> Api<NodePool> {
        Api::namespaced(self.env.client.clone(), &self.namespace)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.env.client.clone())
    }

    /// Asks for the deletion of the pool.
    pub(super) async fn delete_pool(&self) -> Result<()> {
        let _ = self.pools().delete(self.pool, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Asks for the deletion of the node.
    pub(super) async fn delete_node(&self) -> Result<()> {
        let _ = self.nodes().delete(&self.node(), &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until the pool is gone.
    pub(super) async fn is_gone(&self) -> Result<()> {
        let pools = self.pools();
        eventually(PATIENCE, &format!("the pool {} is gone", self.pool), async || {
            self.env.operators.check_alive()?;
            ensure!(pools.get_opt(self.pool).await?.is_none(), "it is there");
            Ok(Some(()))
        })
        .await
        .map_err(|error| error.context(self.env.operators.node_pool.log_tail()))
    }

    /// Waits until the pool has another node in place of the one it had.
    pub(super) async fn has_another_node(&self) -> Result<()> {
        ready_node(self.env, &self.namespace, self.pool, self.node.uid()).await?;
        Ok(())
    }

    /// The cells of its row: what has become of the pool, the node, the pod, and the finalizers.
    pub(super) async fn cells(&self, what: &str) -> Result<Vec<String>> {
        let pool = self.pools().get_opt(self.pool).await?;
        let node = self.nodes().get_opt(&self.node()).await?;
        let node = node.filter(|node| node.uid() == self.node.uid());
        let is_in_pool = node.as_ref().is_some_and(|node| node.labels().contains_key(NODEPOOL_LABEL));
        let another = members(self.env, &self.namespace, self.pool).await?;
        let is_replaced = another.iter().any(|other| other.uid() != self.node.uid());
        let of_node = match (&node, is_in_pool) {
            (Some(_), true) => "stays",
            (Some(_), false) => "stays, in no pool",
            (None, _) if is_replaced => "gone; another one is made",
            (None, _) => "gone",
        };
        let of_pool = match &pool {
            None => "gone",
            Some(pool) if pool.metadata.deletion_timestamp.is_some() => "waits for its finalizer",
            Some(_) => "stays",
        };
        Ok(vec![
            what.to_owned(),
            of_pool.to_owned(),
            of_node.to_owned(),
            self.of_pod().await?,
            seen::finalizer(pool.as_ref(), POOL_FINALIZER).to_owned(),
            seen::finalizer(node.as_ref(), NODE_FINALIZER).to_owned(),
        ])
    }

    async fn of_pod(&self) -> Result<String> {
        let Some(made) = &self.pod else { return Ok("none was there".to_owned()) };
        let pods = Api::<Pod>::namespaced(self.env.client.clone(), &self.namespace);
        let pod = pods.get_opt(&made.name_any()).await?.filter(|pod| pod.uid() == made.uid());
        let left = match pod {
            None => "gone",
            Some(pod) if pod.metadata.deletion_timestamp.is_some() => "terminating",
            Some(_) => "runs on",
        };
        let asked = seen::asked_of_pod(&self.env.events()?, &self.namespace, &made.name_any());
        if self.on_node == OnNode::PodOfOthers || asked == seen::NOTHING {
            return Ok(left.to_owned());
        }
        Ok(format!("{asked}, then {left}"))
    }
}

async fn members(env: &TestEnv, namespace: &str, pool: &str) -> Result<Vec<Node>> {
    let of_pool = ListParams::default().labels(&node_selector(namespace, pool));
    Ok(Api::<Node>::all(env.client.clone()).list(&of_pool).await?.items)
}

/// Waits until the pool has one node and no other, Ready and with its finalizer, which is not the one with this UID.
async fn ready_node(env: &TestEnv, namespace: &str, pool: &str, besides: Option<String>) -> Result<Node> {
    eventually(PATIENCE, &format!("{pool} has its node"), async || {
        env.operators.check_alive()?;
        let mut nodes = members(env, namespace, pool).await?;
        ensure!(nodes.len() == 1, "it has {}", nodes.len());
        let node = nodes.pop().context("it has none")?;
        let has_finalizer = node.finalizers().iter().any(|it| it == NODE_FINALIZER);
        ensure!(is_ready(&node) && has_finalizer, "{} is not Ready", node.name_any());
        ensure!(node.uid() != besides, "it is the one that was there");
        Ok(Some(node))
    })
    .await
    .map_err(|error| error.context(env.operators.node_pool.log_tail()))
}

async fn running_pod(env: &TestEnv, namespace: &str, pool: &str, node: &str) -> Result<Pod> {
    let pods = Api::<Pod>::namespaced(env.client.clone(), namespace);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": pool},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "app", "image": "example.invalid/app"}],
        },
    }))?;
    pods.create(&PostParams::default(), &pod).await?;
    eventually(PATIENCE, &format!("the pod {pool} runs"), async || {
        let pod = pods.get(pool).await?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        ensure!(phase == Some("Running"), "it is {phase:?}");
        Ok(Some(pod))
    })
    .await
}
