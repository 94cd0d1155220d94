//! One random cluster: the objects on the API server, and the pools and nodes that the planner gets.

use std::sync::Arc;

use anyhow::Result;
use serde_json::{Value, json};

use super::dice::Dice;
use super::planner::{Key, SimulatedAnswer};
use super::stage::SchedulerEnv;
use super::terrain;
use super::terrain::{HOST, LATE_CLAIMS, ZONE, ZONES, machine, only};
use super::{pods, rules};

/// The namespace of the pools.
const POOLS: &str = "pools";

/// Number of volumes without a claim.
const FREE_VOLUMES: usize = 6;

/// The objects of one cluster.
pub struct World {
    /// The namespaces of the pods.
    pub namespaces: Vec<String>,
    /// Namespaces, storage classes and the autoscaler.
    furniture: Vec<Arc<Value>>,
    /// Volumes and claims.
    storage: Vec<Arc<Value>>,
    daemons: Option<Arc<Value>>,
    pools: Vec<Value>,
    nodes: Vec<Arc<Value>>,
    pods: Vec<Arc<Value>>,
}

impl World {
    /// Creates a cluster with `nodes` nodes and `placed` pods on them.
    ///
    /// # Errors
    /// When the API server rejects an object.
    pub async fn create(
        stage: &mut SchedulerEnv,
        dice: &mut Dice,
        name: &str,
        nodes: usize,
        placed: usize,
    ) -> Result<Self> {
        let mut furniture = vec![Arc::new(terrain::autoscaler(POOLS)), Arc::new(stage.harbour().await?)];
        let mut namespaces = Vec::new();
        for (suffix, team) in [("a", "one"), ("b", "two")] {
            let namespace = format!("{name}-{suffix}");
            let made = stage.create_namespace(&namespace, &json!({"team": team})).await?;
            furniture.push(Arc::new(made));
            namespaces.push(namespace);
        }
        furniture.extend(terrain::storage_classes().map(Arc::new));
        let daemons = dice.one_in(2).then(|| Arc::new(terrain::daemon_set(dice, &namespaces[0])));
        let (storage, pools, pods) = (vec![], vec![], vec![]);
        let mut world = Self { namespaces, furniture, storage, daemons, pools, nodes: vec![], pods };
        for number in 0..nodes {
            let node = terrain::node(dice, &format!("{name}-n{number}"));
            world.create_node(stage, &node).await?;
        }
        for number in 0..4 {
            world.pools.push(terrain::pool(dice, POOLS, &format!("{name}-p{number}")));
        }
        world.create_volumes(stage, dice).await?;
        for number in 0..placed {
            let node = world.some_host(dice);
            let namespace = dice.pick(&world.namespaces).clone();
            let mut pod = pods::placed(dice, &namespace, &format!("placed-{number}"), &node);
            if number == 0 {
                rules::use_claim(&mut pod["spec"], "data-once");
            }
            world.pods.push(Arc::new(stage.create_pod(&pod).await?));
        }
        if dice.one_in(2) {
            world.create_node(stage, &terrain::frozen(&format!("{name}-frozen"))).await?;
        }
        stage.settle().await?;
        Ok(world)
    }

    /// Creates claims with a volume in each zone, on one host, and anywhere, one of them for a single pod, one that
    /// stays unbound, some that wait for a pod, and volumes that wait for a claim. The claim `data-none` does not
    /// exist.
    async fn create_volumes(&mut self, stage: &SchedulerEnv, dice: &mut Dice) -> Result<()> {
        let storage = stage.storage();
        let host = self.some_host(dice);
        for namespace in &self.namespaces {
            let zones = ZONES.iter().map(|zone| (format!("data-{zone}"), Some(only(ZONE, zone))));
            let others = [("data-host".to_owned(), Some(only(HOST, &host))), ("data-any".to_owned(), None)];
            for (claim, affinity) in zones.chain(others) {
                storage.create_volume((namespace, &claim), "ReadWriteMany", affinity).await?;
            }
            storage.create_volume((namespace, "data-once"), "ReadWriteOncePod", None).await?;
            let mut unbound = terrain::late_claim(dice, namespace, "data-unbound");
            unbound["spec"]["storageClassName"] = json!("");
            storage.create_claim(&unbound).await?;
            for number in 0..LATE_CLAIMS {
                let claim = terrain::late_claim(dice, namespace, &format!("late-{number}"));
                storage.create_claim(&claim).await?;
            }
        }
        for number in 0..FREE_VOLUMES {
            let host = self.some_host(dice);
            let name = format!("{}-free-{number}", self.namespaces[0]);
            storage.create_free_volume(&terrain::free_volume(dice, &name, &host)).await?;
        }
        self.look_at_storage(stage).await
    }

    async fn look_at_storage(&mut self, stage: &SchedulerEnv) -> Result<()> {
        let objects = stage.storage().objects(&self.namespaces).await?;
        self.storage = objects.into_iter().map(Arc::new).collect();
        Ok(())
    }

    /// All objects, as the planner gets them.
    pub fn objects(&self) -> Vec<Arc<Value>> {
        let pools = self.pools.iter().cloned().map(Arc::new);
        let made = [&self.furniture, &self.storage, &self.nodes, &self.pods].into_iter().flatten();
        made.chain(&self.daemons).cloned().chain(pools).collect()
    }

    /// Records that the pod `key`, in its current state, is on a node, and what its claims are bound to.
    ///
    /// # Errors
    /// When the pod is unknown, or the API server does not answer.
    pub async fn add_pod(&mut self, stage: &SchedulerEnv, key: &Key) -> Result<()> {
        self.pods.push(Arc::new(stage.pod(key)?));
        self.look_at_storage(stage).await
    }

    /// Creates the nodes that `answer` requests, so that the pools have the planned size. Returns the number of new
    /// nodes.
    ///
    /// # Errors
    /// When the API server rejects a node.
    pub async fn grow(&mut self, stage: &mut SchedulerEnv, answer: &SimulatedAnswer) -> Result<usize> {
        let mut made = 0;
        for pool in 0..self.pools.len() {
            let name = name_of(&self.pools[pool]);
            let desired = answer.replicas.get(name).copied().unwrap_or_default();
            while self.replicas(pool) < desired {
                self.add_node(stage, pool).await?;
                made += 1;
            }
        }
        if made > 0 {
            stage.settle().await?;
        }
        Ok(made)
    }

    /// Adds one node to a random pool below its maximum, and returns the pool's name; `None` when no pool can grow.
    ///
    /// # Errors
    /// When the API server rejects the node.
    pub async fn grow_anyhow(&mut self, stage: &mut SchedulerEnv, dice: &mut Dice) -> Result<Option<String>> {
        let max = |pool: usize| self.pools[pool]["spec"]["maxReplicas"].as_i64().unwrap_or_default();
        let open: Vec<usize> =
            (0..self.pools.len()).filter(|&pool| self.replicas(pool) < max(pool)).collect();
        if open.is_empty() {
            return Ok(None);
        }
        let pool = *dice.pick(&open);
        self.add_node(stage, pool).await?;
        stage.settle().await?;
        let name = name_of(&self.pools[pool]);
        Ok(Some(format!("{POOLS}/{name}")))
    }

    async fn add_node(&mut self, stage: &SchedulerEnv, pool: usize) -> Result<()> {
        let replicas = self.replicas(pool);
        let name = name_of(&self.pools[pool]);
        let node = machine(&self.pools[pool], &format!("{name}-{replicas}"));
        self.create_node(stage, &node).await?;
        self.pools[pool]["spec"]["replicas"] = json!(replicas + 1);
        Ok(())
    }

    /// Creates a node, with the daemon pod that runs on every node.
    async fn create_node(&mut self, stage: &SchedulerEnv, node: &Value) -> Result<()> {
        self.nodes.push(Arc::new(stage.create_node(node).await?));
        if let Some(set) = &self.daemons {
            let name = name_of(node);
            self.pods.push(Arc::new(stage.create_pod(&terrain::daemon(set, name)).await?));
        }
        Ok(())
    }

    fn some_host(&self, dice: &mut Dice) -> String {
        let node = dice.pick(&self.nodes);
        name_of(node).to_owned()
    }

    fn replicas(&self, pool: usize) -> i64 {
        self.pools[pool]["spec"]["replicas"].as_i64().unwrap_or_default()
    }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
