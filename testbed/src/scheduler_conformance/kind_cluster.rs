//! A cluster for the questions of [`KINDS`]: every node runs what no template names, pods wait for nodes that they are
//! nominated to, pods are being resized, and nodes are being drained.

use std::sync::Arc;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::infrastructure;
use super::infrastructure::{SCARCE, ZONE, ZONES, only};
use super::kinds;
use super::kinds::{ASKED_NODES, DOWN, DRAINING, HiddenAgents, KINDS};
use super::objects::key;
use super::planner::SimulatedPlanner;
use super::question;
use super::question::Record;
use super::random_cluster::RandomCluster;
use super::scheduler_env::{SchedulerDecision, SchedulerEnv};
use super::seeded_rng::SeededRng;

/// Claims in each namespace that one pod alone may use, bound (`once-0` and so on) and unbound (`once-late-0`).
pub const ONCE_CLAIMS: usize = 3;
/// Claims in each namespace of the class with one volume: `scarce-0` and so on.
pub const SCARCE_CLAIMS: usize = 3;

/// A cluster in which [`KINDS`] can be asked.
pub struct KindCluster {
    /// Its name, with which those of its nodes begin.
    name: String,
    /// Its objects.
    pub cluster: RandomCluster,
}

impl KindCluster {
    /// Creates a cluster with `nodes` random nodes, one node of each pool, and those that the kinds are about.
    ///
    /// # Errors
    /// When the API server rejects an object.
    pub async fn create(
        env: &mut SchedulerEnv,
        rng: &mut SeededRng,
        name: &str,
        nodes: usize,
    ) -> Result<Self> {
        let mut cluster = RandomCluster::without_nodes(env, name).await?;
        let namespace = cluster.namespaces[0].clone();
        cluster.daemons = Some(Arc::new(infrastructure::daemon_set(rng, &namespace)));
        cluster.hidden = Some(HiddenAgents::random(rng));
        cluster.create_nodes(env, rng, name, nodes).await?;
        for pool in 0..cluster.pools.len() {
            // The first node shows what runs on the next; many questions try one more node for nothing.
            let max = cluster.pools[pool]["spec"]["maxReplicas"].as_i64().unwrap_or_default();
            cluster.pools[pool]["spec"]["maxReplicas"] = json!(max + 4);
            cluster.add_node(env, pool).await?;
        }
        let mut made = Self { name: name.to_owned(), cluster };
        made.create_draining(env, rng).await?;
        made.create_asked(env, rng).await?;
        made.create_volumes(env, rng).await?;
        env.wait_for_nodes().await?;
        Ok(made)
    }

    /// Asks a question of `kind`, which is not the one about several pods.
    ///
    /// # Errors
    /// When the API server, the scheduler or the planner fails to answer.
    pub async fn ask(
        &mut self,
        env: &mut SchedulerEnv,
        planner: &SimulatedPlanner,
        rng: &mut SeededRng,
        name: &str,
        kind: &'static str,
    ) -> Result<Record> {
        if !KINDS.contains(&kind) {
            bail!("no such kind: {kind}");
        }
        let namespace = rng.pick(&self.cluster.namespaces).clone();
        let host = self.quiet_host(rng);
        let (made, nominated) = kinds::question(rng, kind, (&self.name, &host), (&namespace, name));
        question::ask_about(env, planner, &mut self.cluster, rng, made, nominated.as_deref()).await
    }

    /// A random node without pods that are ending: the planner believes a nomination to a node that has room when they are
    /// gone, while kube-scheduler places the pod only then.
    fn quiet_host(&self, rng: &mut SeededRng) -> String {
        let is_loud = |host: &str| {
            let mut pods = self.cluster.pods.iter();
            pods.any(|pod| {
                pod["spec"]["nodeName"] == host && pod["metadata"]["deletionTimestamp"].is_string()
            })
        };
        loop {
            let host = self.cluster.some_host(rng);
            if !is_loud(&host) {
                return host;
            }
        }
    }

    /// Nodes that are being drained, with pods that are ending and pods that are not yet; others end on random nodes.
    async fn create_draining(&mut self, env: &SchedulerEnv, rng: &mut SeededRng) -> Result<()> {
        let down = kinds::down_node(&self.node(DOWN));
        self.cluster.create_node(env, &down).await?;
        let mut places = Vec::new();
        for (end, zone) in DRAINING {
            let node = self.node(end);
            self.cluster.create_node(env, &kinds::draining_node(&node, zone)).await?;
            places.extend([node.clone(), node.clone(), node]);
        }
        for _ in 0..3 {
            places.push(self.cluster.some_host(rng));
        }
        for (number, node) in places.iter().enumerate() {
            let namespace = rng.pick(&self.cluster.namespaces).clone();
            let pod = kinds::evicted(rng, &namespace, &format!("evicted-{number}"), node);
            let mut pod = env.create_pod(&pod).await?;
            if !rng.one_in(4) {
                pod = env.start_deletion(&key(&pod)).await?;
            }
            self.cluster.pods.push(Arc::new(pod));
        }
        Ok(())
    }

    /// The nodes that some kinds are about, with the pods there.
    async fn create_asked(&mut self, env: &SchedulerEnv, rng: &mut SeededRng) -> Result<()> {
        let [nominated, pods, containers] = ASKED_NODES.map(|end| self.node(end));
        for node in [&nominated, &pods, &containers] {
            self.cluster.create_node(env, &kinds::asked_node(node)).await?;
        }
        let namespace = self.cluster.namespaces[0].clone();
        for (pod, status) in [
            kinds::resized_pod(rng, &namespace, &pods),
            kinds::resized_container(rng, &namespace, &containers),
        ] {
            let pod = env.create_pod(&pod).await?;
            self.cluster.pods.push(Arc::new(env.set_pod_status(&key(&pod), &status).await?));
        }
        let holder = env.create_pod(&kinds::holder(&namespace, &nominated)).await?;
        self.cluster.pods.push(Arc::new(env.start_deletion(&key(&holder)).await?));
        let patient = env.create_pod(&kinds::patient(rng, &namespace, &nominated)).await?;
        let decision = env.decision(&key(&patient)).await?;
        if !matches!(decision, SchedulerDecision::Waits(_)) {
            bail!("a pod that must wait is placed: {decision:?}");
        }
        let status = json!({"nominatedNodeName": nominated});
        self.cluster.pods.push(Arc::new(env.set_pod_status(&key(&patient), &status).await?));
        Ok(())
    }

    /// Claims that several pods compete for.
    async fn create_volumes(&mut self, env: &SchedulerEnv, rng: &mut SeededRng) -> Result<()> {
        let storage = env.storage();
        for namespace in &self.cluster.namespaces {
            for number in 0..ONCE_CLAIMS {
                storage
                    .create_volume((namespace, &format!("once-{number}")), "ReadWriteOncePod", None)
                    .await?;
                let late = claim(namespace, &format!("once-late-{number}"), "ReadWriteOncePod", "anywhere");
                storage.create_claim(&late).await?;
            }
            for number in 0..SCARCE_CLAIMS {
                let claim = claim(namespace, &format!("scarce-{number}"), "ReadWriteOnce", SCARCE);
                storage.create_claim(&claim).await?;
            }
        }
        let mut volume = infrastructure::free_volume(rng, &self.node(SCARCE), "");
        volume["spec"]["accessModes"] = json!(["ReadWriteOnce"]);
        volume["spec"]["storageClassName"] = json!(SCARCE);
        let zone = *rng.pick(&ZONES);
        volume["spec"]["nodeAffinity"] = only(ZONE, zone);
        storage.create_free_volume(&volume).await?;
        self.cluster.read_storage(env).await
    }

    fn node(&self, end: &str) -> String {
        format!("{}-{end}", self.name)
    }
}

fn claim(namespace: &str, name: &str, mode: &str, class: &str) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": class,
        },
    })
}
