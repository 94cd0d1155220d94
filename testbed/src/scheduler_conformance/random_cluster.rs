//! One random cluster: the objects on the API server, and the pools and nodes that the planner gets.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::infrastructure;
use super::infrastructure::{HOST, LATE_CLAIMS, ZONE, ZONES, machine, note_template, only};
use super::kinds::HiddenAgents;
use super::planner::{Key, SimulatedAnswer};
use super::scheduler_env::SchedulerEnv;
use super::seeded_rng::SeededRng;
use super::{pods, rules};

/// The namespace of the pools.
const POOLS: &str = "pools";

/// Number of volumes without a claim.
const FREE_VOLUMES: usize = 6;

/// The objects of one cluster.
pub struct RandomCluster {
    /// The namespaces of the pods.
    pub namespaces: Vec<String>,
    /// Namespaces, storage classes and the autoscaler.
    fixed: Vec<Arc<Value>>,
    /// Volumes and claims.
    storage: Vec<Arc<Value>>,
    pub(super) daemons: Option<Arc<Value>>,
    /// What runs on every node and stands in no template. With it, nodes say from which template they were made, so that
    /// the planner can learn it.
    pub(super) hidden: Option<HiddenAgents>,
    pub(super) pools: Vec<Value>,
    pub(super) nodes: Vec<Arc<Value>>,
    pub(super) pods: Vec<Arc<Value>>,
}

impl RandomCluster {
    /// Creates a cluster with `nodes` nodes and `placed` pods on them.
    ///
    /// # Errors
    /// When the API server rejects an object.
    pub async fn create(
        env: &mut SchedulerEnv,
        rng: &mut SeededRng,
        name: &str,
        nodes: usize,
        placed: usize,
    ) -> Result<Self> {
        let mut cluster = Self::without_nodes(env, name).await?;
        let namespace = cluster.namespaces[0].clone();
        cluster.daemons = rng.one_in(2).then(|| Arc::new(infrastructure::daemon_set(rng, &namespace)));
        cluster.create_nodes(env, rng, name, nodes).await?;
        cluster.create_volumes(env, rng).await?;
        for number in 0..placed {
            let node = cluster.some_host(rng);
            let namespace = rng.pick(&cluster.namespaces).clone();
            let mut pod = pods::placed(rng, &namespace, &format!("placed-{number}"), &node);
            if number == 0 {
                rules::use_claim(&mut pod["spec"], "data-once");
            }
            cluster.pods.push(Arc::new(env.create_pod(&pod).await?));
        }
        if rng.one_in(2) {
            cluster.create_node(env, &infrastructure::frozen(&format!("{name}-frozen"))).await?;
        }
        env.wait_for_nodes().await?;
        Ok(cluster)
    }

    /// Creates the namespaces of a cluster.
    pub(super) async fn without_nodes(env: &SchedulerEnv, name: &str) -> Result<Self> {
        let mut fixed = vec![Arc::new(infrastructure::autoscaler(POOLS)), Arc::new(env.probe_node().await?)];
        let mut namespaces = Vec::new();
        for (suffix, team) in [("a", "one"), ("b", "two")] {
            let namespace = format!("{name}-{suffix}");
            let made = env.create_namespace(&namespace, &json!({"team": team})).await?;
            fixed.push(Arc::new(made));
            namespaces.push(namespace);
        }
        fixed.extend(infrastructure::storage_classes().map(Arc::new));
        let (daemons, hidden) = (None, None);
        let (storage, pools, nodes, pods) = (vec![], vec![], vec![], vec![]);
        Ok(Self { namespaces, fixed, storage, daemons, hidden, pools, nodes, pods })
    }

    /// Creates random nodes without a pool, and pools without nodes.
    pub(super) async fn create_nodes(
        &mut self,
        env: &SchedulerEnv,
        rng: &mut SeededRng,
        name: &str,
        nodes: usize,
    ) -> Result<()> {
        for number in 0..nodes {
            let node = infrastructure::node(rng, &format!("{name}-n{number}"));
            self.create_node(env, &node).await?;
        }
        for number in 0..4 {
            self.pools.push(infrastructure::pool(rng, POOLS, &format!("{name}-p{number}")));
        }
        Ok(())
    }

    /// Creates claims with a volume in each zone, on one host, and anywhere, one of them for a single pod, one that
    /// stays unbound, some that wait for a pod, and volumes that wait for a claim. The claim `data-none` does not
    /// exist.
    async fn create_volumes(&mut self, env: &SchedulerEnv, rng: &mut SeededRng) -> Result<()> {
        let storage = env.storage();
        let host = self.some_host(rng);
        for namespace in &self.namespaces {
            let zones = ZONES.iter().map(|zone| (format!("data-{zone}"), Some(only(ZONE, zone))));
            let others = [("data-host".to_owned(), Some(only(HOST, &host))), ("data-any".to_owned(), None)];
            for (claim, affinity) in zones.chain(others) {
                storage.create_volume((namespace, &claim), "ReadWriteMany", affinity).await?;
            }
            storage.create_volume((namespace, "data-once"), "ReadWriteOncePod", None).await?;
            let mut unbound = infrastructure::late_claim(rng, namespace, "data-unbound");
            unbound["spec"]["storageClassName"] = json!("");
            storage.create_claim(&unbound).await?;
            for number in 0..LATE_CLAIMS {
                let claim = infrastructure::late_claim(rng, namespace, &format!("late-{number}"));
                storage.create_claim(&claim).await?;
            }
        }
        for number in 0..FREE_VOLUMES {
            let host = self.some_host(rng);
            let name = format!("{}-free-{number}", self.namespaces[0]);
            storage.create_free_volume(&infrastructure::free_volume(rng, &name, &host)).await?;
        }
        self.read_storage(env).await
    }

    pub(super) async fn read_storage(&mut self, env: &SchedulerEnv) -> Result<()> {
        let objects = env.storage().objects(&self.namespaces).await?;
        self.storage = objects.into_iter().map(Arc::new).collect();
        Ok(())
    }

    /// All objects, as the planner gets them.
    pub fn objects(&self) -> Vec<Arc<Value>> {
        let pools = self.pools.iter().cloned().map(Arc::new);
        let made = [&self.fixed, &self.storage, &self.nodes, &self.pods].into_iter().flatten();
        made.chain(&self.daemons).cloned().chain(pools).collect()
    }

    /// Records that the pod `key`, in its current state, is on a node, and what its claims are bound to.
    ///
    /// # Errors
    /// When the pod is unknown, or the API server does not answer.
    pub async fn add_pod(&mut self, env: &SchedulerEnv, key: &Key) -> Result<()> {
        self.pods.push(Arc::new(env.pod(key)?));
        self.read_storage(env).await
    }

    /// Creates the nodes that `answer` requests, so that the pools have the planned size. Returns the number of new
    /// nodes.
    ///
    /// # Errors
    /// When the API server rejects a node.
    pub async fn grow(&mut self, env: &mut SchedulerEnv, answer: &SimulatedAnswer) -> Result<usize> {
        let mut made = 0;
        for pool in 0..self.pools.len() {
            let name = name_of(&self.pools[pool]);
            let desired = answer.replicas.get(name).copied().unwrap_or_default();
            while self.replicas(pool) < desired {
                self.add_node(env, pool).await?;
                made += 1;
            }
        }
        if made > 0 {
            env.wait_for_nodes().await?;
        }
        Ok(made)
    }

    /// Adds one node to a random pool below its maximum, and returns the pool's name; `None` when no pool can grow.
    ///
    /// # Errors
    /// When the API server rejects the node.
    pub async fn grow_random_pool(
        &mut self,
        env: &mut SchedulerEnv,
        rng: &mut SeededRng,
    ) -> Result<Option<String>> {
        let max = |pool: usize| self.pools[pool]["spec"]["maxReplicas"].as_i64().unwrap_or_default();
        let open: Vec<usize> =
            (0..self.pools.len()).filter(|&pool| self.replicas(pool) < max(pool)).collect();
        if open.is_empty() {
            return Ok(None);
        }
        let pool = *rng.pick(&open);
        self.add_node(env, pool).await?;
        env.wait_for_nodes().await?;
        let name = name_of(&self.pools[pool]);
        Ok(Some(format!("{POOLS}/{name}")))
    }

    pub(super) async fn add_node(&mut self, env: &SchedulerEnv, pool: usize) -> Result<()> {
        let replicas = self.replicas(pool);
        let name = name_of(&self.pools[pool]);
        let mut node = machine(&self.pools[pool], &format!("{name}-{replicas}"));
        if self.hidden.is_some() {
            note_template(&self.pools[pool], &mut node)
                .with_context(|| format!("pool {name} has no template"))?;
        }
        self.create_node(env, &node).await?;
        self.pools[pool]["spec"]["replicas"] = json!(replicas + 1);
        Ok(())
    }

    /// Creates a node, with what runs on every node.
    pub(super) async fn create_node(&mut self, env: &SchedulerEnv, node: &Value) -> Result<()> {
        let made = env.create_node(node).await?;
        if let Some(set) = &self.daemons {
            let mut daemon = infrastructure::daemon(set, name_of(node));
            if let Some(hidden) = &self.hidden {
                hidden.admit(&mut daemon);
            }
            self.pods.push(Arc::new(env.create_pod(&daemon).await?));
        }
        if let Some(hidden) = &self.hidden {
            let pod = hidden.static_pod(&self.namespaces[0], &made);
            self.pods.push(Arc::new(env.create_pod(&pod).await?));
        }
        self.nodes.push(Arc::new(made));
        Ok(())
    }

    pub(super) fn some_host(&self, rng: &mut SeededRng) -> String {
        let node = rng.pick(&self.nodes);
        name_of(node).to_owned()
    }

    fn replicas(&self, pool: usize) -> i64 {
        self.pools[pool]["spec"]["replicas"].as_i64().unwrap_or_default()
    }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
