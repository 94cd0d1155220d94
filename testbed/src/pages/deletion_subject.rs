//! What a row of a table of deletions is about: a pool with one node, its machine and one pod, and what is left of them.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use shared_crds::NodePool;
use shared_crds::names::{MACHINE_LABEL, NODE_FINALIZER, NODEPOOL_LABEL, POOL_FINALIZER, node_selector};

use super::machine_source::{FoundMachine, MachineSource};
use super::seen;
use crate::objects;
use crate::test_env::{PATIENCE, TestEnv, is_ready};
use crate::wait::eventually;

/// Whether a pod is on the node, and what of it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodOnNode {
    /// What the operator asked for, and what is left.
    Pod,
    /// What is left: others delete the pod at the same time.
    PodOfOthers,
    /// There is none.
    Nothing,
}

/// What is made for a row.
pub struct SubjectObjects<'a> {
    /// The namespace of the pool and the pod.
    pub namespace: String,
    /// The pool, of [`crate::objects::pool`]: its nodes have the label `pool`. It gets one node.
    pub pool: NodePool,
    /// Where its machines are.
    pub machines: MachineSource<'a>,
    /// The pod.
    pub on_node: PodOnNode,
}

/// A pool of one node, both with their finalizers.
pub struct DeletionSubject<'a> {
    env: &'a TestEnv,
    namespace: String,
    pool: String,
    machines: MachineSource<'a>,
    on_node: PodOnNode,
    node: Node,
    /// As it was made; `None` where it is the Node.
    machine: Option<FoundMachine>,
    pod: Option<Pod>,
}

impl<'a> DeletionSubject<'a> {
    /// Makes the pool and its pod, and waits until both run.
    ///
    /// # Errors
    /// When they do not in time, or are refused.
    pub async fn make(env: &'a TestEnv, objects: &SubjectObjects<'a>) -> Result<Self> {
        let SubjectObjects { namespace, pool: object, machines, on_node } = objects;
        let pools = Api::<NodePool>::namespaced(env.client.clone(), namespace);
        let mut object = object.clone();
        object.spec.replicas = Some(1);
        let pool = object.name_any();
        pools.create(&PostParams::default(), &object).await?;
        let node = ready_node(env, namespace, &pool, None).await?;
        let pod = match on_node {
            PodOnNode::Nothing => None,
            PodOnNode::Pod | PodOnNode::PodOfOthers => Some(running_pod(env, namespace, &pool).await?),
        };
        let made = pools.get(&pool).await?;
        ensure!(seen::finalizer(Some(&made), POOL_FINALIZER) == "stays", "{pool} has no finalizer");
        ensure!(seen::finalizer(Some(&node), NODE_FINALIZER) == "stays", "the node has no finalizer");
        let (namespace, machines, on_node) = (namespace.clone(), *machines, *on_node);
        let mut subject = Self { env, namespace, pool, machines, on_node, node, machine: None, pod };
        subject.machine = subject.find_machine().await?;
        let has_machine = subject.machine.is_some() || matches!(machines, MachineSource::Nodes);
        ensure!(has_machine, "the node of {} has no machine", subject.pool);
        Ok(subject)
    }

    /// The name of its node.
    pub fn node(&self) -> String {
        self.node.name_any()
    }

    /// The name of its machine.
    ///
    /// # Errors
    /// When the node does not say it: there, the machine is the Node.
    pub fn machine(&self) -> Result<&str> {
        self.node.labels().get(MACHINE_LABEL).map(String::as_str).context("the node names no machine")
    }

    fn pools(&self) -> Api<NodePool> {
        Api::namespaced(self.env.client.clone(), &self.namespace)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.env.client.clone())
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.env.client.clone(), &self.namespace)
    }

    /// The pool, if it is there. It is not when its definition is not.
    async fn find_pool(&self) -> Result<Option<NodePool>> {
        match self.pools().get(&self.pool).await {
            Ok(pool) => Ok(Some(pool)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The node that it had at first, if that is there.
    async fn find_node(&self) -> Result<Option<Node>> {
        let node = self.nodes().get_opt(&self.node()).await?;
        Ok(node.filter(|node| node.uid() == self.node.uid()))
    }

    /// The machine with the name of the one that it had at first.
    async fn find_machine(&self) -> Result<Option<FoundMachine>> {
        if matches!(self.machines, MachineSource::Nodes) {
            return Ok(None);
        }
        self.machines.find(self.env, &self.namespace, &self.pool, self.machine()?).await
    }

    /// Asks for the deletion of the pool.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn delete_pool(&self) -> Result<()> {
        let _ = self.pools().delete(&self.pool, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Asks for the deletion of the node.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn delete_node(&self) -> Result<()> {
        let _ = self.nodes().delete(&self.node(), &DeleteParams::default()).await?;
        Ok(())
    }

    /// Takes its pod away, at once.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn delete_pod(&mut self) -> Result<()> {
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        if let Some(pod) = self.pod.take() {
            let _ = self.pods().delete(&pod.name_any(), &at_once).await?;
        }
        Ok(())
    }

    /// Waits until the pool is gone.
    ///
    /// # Errors
    /// When it is not in time.
    pub async fn is_gone(&self) -> Result<()> {
        eventually(PATIENCE, &format!("the pool {} is gone", self.pool), async || {
            self.env.operators.keep_alive().await?;
            ensure!(self.find_pool().await?.is_none(), "it is there");
            Ok(Some(()))
        })
        .await
        .map_err(|error| error.context(self.env.operators.node_pool.log_tail()))
    }

    /// Waits until the node that it had at first is gone.
    ///
    /// # Errors
    /// When it is not in time.
    pub async fn loses_node(&self) -> Result<()> {
        eventually(PATIENCE, &format!("the node of {} is gone", self.pool), async || {
            ensure!(self.find_node().await?.is_none(), "{} is there", self.node());
            Ok(Some(()))
        })
        .await
        .map_err(|error| error.context(self.env.operators.node_pool.log_tail()))
    }

    /// Waits until the node and the machine that it had at first are gone. Some makers end a machine after its Node.
    ///
    /// # Errors
    /// When they are not in time.
    pub async fn loses_machine(&self) -> Result<()> {
        self.loses_node().await?;
        eventually(PATIENCE, &format!("the machine of {} is gone", self.pool), async || {
            let id = self.find_machine().await?.map(|machine| machine.id);
            let is_there = id.is_some() && id == self.machine.as_ref().map(|machine| machine.id.clone());
            ensure!(!is_there, "it is there");
            Ok(Some(()))
        })
        .await
        .map_err(|error| error.context(self.env.operators.node_pool.log_tail()))
    }

    /// Waits until the pool has another node in place of the one it had.
    ///
    /// # Errors
    /// When it has none in time.
    pub async fn has_another_node(&self) -> Result<()> {
        ready_node(self.env, &self.namespace, &self.pool, self.node.uid()).await?;
        Ok(())
    }

    /// The cells of its row: what has become of the pool, the node, the machine if that is not the Node, the pod, and the
    /// finalizers.
    ///
    /// # Errors
    /// When one cannot be read.
    pub async fn cells(&self, what: &str) -> Result<Vec<String>> {
        let (pool, node) = (self.find_pool().await?, self.find_node().await?);
        let is_in_pool = node.as_ref().is_some_and(|node| node.labels().contains_key(NODEPOOL_LABEL));
        let another = members(self.env, &self.namespace, &self.pool).await?;
        let is_replaced = another.iter().any(|other| other.uid() != self.node.uid());
        let gone = if is_replaced { "gone; another one is made" } else { "gone" };
        let of_node = match (&node, is_in_pool) {
            (Some(_), true) => "stays",
            (Some(_), false) => "stays, in no pool",
            (None, _) => gone,
        };
        let of_pool = match &pool {
            None => "gone",
            Some(pool) if pool.metadata.deletion_timestamp.is_some() => "waits for its finalizer",
            Some(_) => "stays",
        };
        let mut cells = vec![what.to_owned(), of_pool.to_owned(), of_node.to_owned()];
        if let Some(machine) = &self.machine {
            let of_machine = match self.find_machine().await? {
                Some(found) if found.id == machine.id && found.is_ending => "is being ended",
                Some(found) if found.id == machine.id => "stays",
                Some(_) | None => gone,
            };
            cells.push(of_machine.to_owned());
        }
        cells.push(self.of_pod().await?);
        cells.push(seen::finalizer(pool.as_ref(), POOL_FINALIZER).to_owned());
        cells.push(seen::finalizer(node.as_ref(), NODE_FINALIZER).to_owned());
        Ok(cells)
    }

    async fn of_pod(&self) -> Result<String> {
        let Some(made) = &self.pod else { return Ok("none was there".to_owned()) };
        let pod = self.pods().get_opt(&made.name_any()).await?.filter(|pod| pod.uid() == made.uid());
        let left = match pod {
            None => "gone",
            Some(pod) if pod.metadata.deletion_timestamp.is_some() => "terminating",
            Some(_) => "runs on",
        };
        let asked = seen::asked_of_pod(&self.env.events()?, &self.namespace, &made.name_any());
        if self.on_node == PodOnNode::PodOfOthers || asked == seen::NOTHING {
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
        env.operators.keep_alive().await?;
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

/// A pod that the scheduler puts on the pool's node: some makers keep pods off it at first.
async fn running_pod(env: &TestEnv, namespace: &str, pool: &str) -> Result<Pod> {
    let pods = Api::<Pod>::namespaced(env.client.clone(), namespace);
    pods.create(&PostParams::default(), &objects::pod_on(pool)).await?;
    eventually(PATIENCE, &format!("the pod {pool} runs"), async || {
        let pod = pods.get(pool).await?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        ensure!(phase == Some("Running"), "it is {phase:?}");
        Ok(Some(pod))
    })
    .await
}
