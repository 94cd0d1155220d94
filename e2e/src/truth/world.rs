//! One random cluster: what is on the API server, and the pools and nodes that the planner is told of.

use std::sync::Arc;

use anyhow::Result;
use serde_json::{Value, json};

use super::dice::Dice;
use super::planner::Answer;
use super::stage::Stage;
use super::terrain::{self, HOST, ZONE, ZONES};
use super::{pods, terrain::machine};

/// Where the pools are.
const POOLS: &str = "pools";

/// The objects of one cluster.
pub struct World {
    /// Where pods are.
    pub namespaces: Vec<String>,
    /// Namespaces, volumes and claims; the autoscaler.
    furniture: Vec<Arc<Value>>,
    daemons: Option<Arc<Value>>,
    pools: Vec<Value>,
    nodes: Vec<Arc<Value>>,
    pods: Vec<Arc<Value>>,
}

impl World {
    /// Makes a cluster with `nodes` nodes that exist and `placed` pods on them.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn create(
        stage: &mut Stage,
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
        let daemons = dice.one_in(2).then(|| Arc::new(terrain::daemon_set(dice, &namespaces[0])));
        let (pools, pods) = (vec![], vec![]);
        let mut world = Self { namespaces, furniture, daemons, pools, nodes: vec![], pods };
        for number in 0..nodes {
            let node = terrain::node(dice, &format!("{name}-n{number}"));
            world.create_node(stage, &node).await?;
        }
        for number in 0..4 {
            world.pools.push(terrain::pool(dice, POOLS, &format!("{name}-p{number}")));
        }
        world.create_volumes(stage, dice).await?;
        for number in 0..placed {
            let node = dice.pick(&world.nodes)["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let namespace = dice.pick(&world.namespaces).clone();
            let pod = pods::placed(dice, &namespace, &format!("placed-{number}"), &node);
            world.pods.push(Arc::new(stage.create_pod(&pod).await?));
        }
        if dice.one_in(2) {
            world.create_node(stage, &terrain::frozen(&format!("{name}-frozen"))).await?;
        }
        stage.settle().await?;
        Ok(world)
    }

    /// Volumes with a place in each zone, on one host, and anywhere, and a claim that nobody binds. The claim `data-none`
    /// is nowhere.
    async fn create_volumes(&mut self, stage: &Stage, dice: &mut Dice) -> Result<()> {
        let only = |key: &str, value: &str| {
            let term = json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]});
            json!({"required": {"nodeSelectorTerms": [term]}})
        };
        let host = dice.pick(&self.nodes)["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        for namespace in self.namespaces.clone() {
            let zones = ZONES.iter().map(|zone| (format!("data-{zone}"), only(ZONE, zone)));
            let others = [("data-host".to_owned(), only(HOST, &host)), ("data-any".to_owned(), Value::Null)];
            for (claim, affinity) in zones.chain(others) {
                let made = stage.create_volume(&namespace, &claim, &affinity).await?;
                self.furniture.extend(made.map(Arc::new));
            }
            self.furniture.push(Arc::new(stage.create_claim(&namespace, "data-unbound", None).await?));
        }
        Ok(())
    }

    /// Everything, as the planner is to see it.
    pub fn objects(&self) -> Vec<Arc<Value>> {
        let pools = self.pools.iter().cloned().map(Arc::new);
        let made = self.furniture.iter().chain(&self.daemons).chain(&self.nodes).chain(&self.pods);
        made.cloned().chain(pools).collect()
    }

    /// Notes that `pod`, as it is now, is on a node.
    pub fn add_pod(&mut self, pod: Value) {
        self.pods.push(Arc::new(pod));
    }

    /// Makes the nodes that `answer` asks for, so that the pools are as large as it says. Returns how many that were.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn grow(&mut self, stage: &mut Stage, answer: &Answer) -> Result<usize> {
        let mut made = 0;
        for pool in 0..self.pools.len() {
            let name = self.pools[pool]["metadata"]["name"].as_str().unwrap_or_default();
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

    /// Adds one node of a random pool that may still grow, and names the pool.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn grow_anyhow(&mut self, stage: &mut Stage, dice: &mut Dice) -> Result<Option<String>> {
        let max = |pool: usize| self.pools[pool]["spec"]["maxReplicas"].as_i64().unwrap_or_default();
        let open: Vec<usize> =
            (0..self.pools.len()).filter(|&pool| self.replicas(pool) < max(pool)).collect();
        if open.is_empty() {
            return Ok(None);
        }
        let pool = *dice.pick(&open);
        self.add_node(stage, pool).await?;
        stage.settle().await?;
        let name = self.pools[pool]["metadata"]["name"].as_str().unwrap_or_default();
        Ok(Some(format!("{POOLS}/{name}")))
    }

    async fn add_node(&mut self, stage: &Stage, pool: usize) -> Result<()> {
        let replicas = self.replicas(pool);
        let name = self.pools[pool]["metadata"]["name"].as_str().unwrap_or_default();
        let node = machine(&self.pools[pool], &format!("{name}-{replicas}"));
        self.create_node(stage, &node).await?;
        self.pools[pool]["spec"]["replicas"] = json!(replicas + 1);
        Ok(())
    }

    /// Makes a node, with what runs on every node.
    async fn create_node(&mut self, stage: &Stage, node: &Value) -> Result<()> {
        self.nodes.push(Arc::new(stage.create_node(node).await?));
        if let Some(set) = &self.daemons {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            self.pods.push(Arc::new(stage.create_pod(&terrain::daemon(set, name)).await?));
        }
        Ok(())
    }

    fn replicas(&self, pool: usize) -> i64 {
        self.pools[pool]["spec"]["replicas"].as_i64().unwrap_or_default()
    }
}
