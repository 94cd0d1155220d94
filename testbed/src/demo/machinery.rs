//! What makes the machines while the demo runs: the controllers of Cluster API, Karpenter, or a program; and which machines
//! there are.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use kube::Client;
use kube::api::{DynamicObject, ListParams};
use serde_json::Value;

use super::Screen;
use super::maker::Maker;
use super::names::{NAMESPACE, POOL};
use crate::cluster::Cluster;
use crate::cluster_api::{self, ClusterApi, DELETE_MACHINE};
use crate::karpenter;
use crate::machines::Machines;
use crate::operators::OperatorProcess;
use crate::real_nodes::RealNodes;

/// The machines by name, each with what its maker says of it.
pub(super) type MachineStates = BTreeMap<String, String>;

/// What runs. All of it ends when this is dropped.
pub(super) enum Machinery {
    /// The operator itself makes the Nodes.
    Simulated,
    ClusterApi(Box<ClusterApi>),
    Karpenter(Box<OperatorProcess>),
    Directory(Machines),
    RealNodes(RealNodes),
}

impl Machinery {
    /// Installs and starts what makes the machines. The chart is installed after this, with [`Machinery::values`].
    pub(super) async fn start(maker: Maker, cluster: &Cluster, screen: &Screen) -> Result<Self> {
        match maker {
            Maker::Simulated => Ok(Self::Simulated),
            Maker::ClusterApi => {
                screen.say("clusterApi", "installing Cluster API's definitions: 10 to 30 seconds");
                cluster_api::install(cluster).await?;
                let controllers = cluster_api::start(cluster).await?;
                let (namespace, account) = cluster_api::CORE_ACCOUNT;
                screen.say(
                    "clusterApi",
                    &format!("its real core controllers run, as {namespace}:{account}, and those of its in-memory machines"),
                );
                screen.say("kubelets", "played: a Node registers for each machine, and kwok runs its pods");
                Ok(Self::ClusterApi(Box::new(controllers)))
            }
            Maker::Karpenter => {
                karpenter::install(cluster).await?;
                let controllers = karpenter::start(cluster).await?;
                screen.say(
                    "karpenter",
                    "the real program runs, as kube-system:karpenter, with its own simulated cloud",
                );
                screen.say("kubelets", "played by Karpenter's cloud, which registers the Nodes, and by kwok");
                Ok(Self::Karpenter(Box::new(controllers)))
            }
            Maker::Directory => {
                let mut machines = Machines::new_in(cluster.root())?;
                machines.start_kubelets(cluster).await?;
                screen.say("exec", "docs/providers/exec/directory.sh makes the machines: each is a file");
                screen.say("kubelets", "played: a Node registers for each file, and kwok runs its pods");
                Ok(Self::Directory(machines))
            }
            Maker::RealNodes => {
                let real = RealNodes::prepare(cluster, "demo").await?;
                screen.say(
                    "exec",
                    "docs/providers/exec/processes.sh makes the machines: namespaces of this host",
                );
                screen.say("kubelets", "real ones, each with a containerd of its own");
                Ok(Self::RealNodes(real))
            }
        }
    }

    /// The values with which the chart lets the `NodePool` operator use it.
    pub(super) fn values(&self) -> Vec<String> {
        match self {
            Self::Simulated => Vec::new(),
            Self::ClusterApi(_) => vec!["providers.clusterApi.enabled=true".to_owned()],
            Self::Karpenter(_) => vec!["providers.karpenter.enabled=true".to_owned()],
            Self::Directory(machines) => machines.values(),
            Self::RealNodes(real) => real.values(),
        }
    }

    /// Creates what a pool refers to in its namespace.
    pub(super) async fn furnish(&self, cluster: &Cluster, screen: &Screen) -> Result<()> {
        if let Self::ClusterApi(_) = self {
            cluster_api::create(cluster, NAMESPACE, POOL).await?;
            screen.say("clusterApi", &format!("a Cluster, and a MachineDeployment {POOL} of 0 machines"));
        }
        Ok(())
    }

    /// The machines that there are; empty where there are only Nodes.
    pub(super) async fn machines(&self, client: &Client) -> Result<MachineStates> {
        // Lists: a `get` would be counted by the table.
        let everything = ListParams::default();
        match self {
            Self::Simulated => Ok(MachineStates::new()),
            Self::ClusterApi(_) => {
                let machines = cluster_api::machines(client.clone(), NAMESPACE).list(&everything).await?;
                machines.items.into_iter().map(|machine| named(&machine, phase(&machine))).collect()
            }
            Self::Karpenter(_) => {
                let claims = karpenter::claims(client.clone()).list(&everything).await?;
                claims.items.into_iter().map(|claim| named(&claim, progress(&claim))).collect()
            }
            Self::Directory(machines) => Ok(running(machines.names()?)),
            Self::RealNodes(real) => Ok(running(real.machines()?)),
        }
    }

    /// The command that shows the machines to people; `None` where kubectl cannot.
    pub(super) fn kubectl(&self) -> Option<&'static [&'static str]> {
        match self {
            Self::ClusterApi(_) => Some(&[
                "get",
                "machines",
                "--output=custom-columns=MACHINE:.metadata.name,PHASE:.status.phase,NODE:.status.nodeRef.name",
            ]),
            Self::Karpenter(_) => Some(&["get", "nodeclaims"]),
            Self::Simulated | Self::Directory(_) | Self::RealNodes(_) => None,
        }
    }

    /// Checks that everything runs.
    pub(super) fn check_alive(&self) -> Result<()> {
        match self {
            Self::ClusterApi(controllers) => controllers.check_alive(),
            Self::Karpenter(controllers) => controllers.check_alive(),
            Self::Simulated | Self::Directory(_) | Self::RealNodes(_) => Ok(()),
        }
    }

    /// The ends of the logs.
    pub(super) fn log_tail(&self) -> String {
        match self {
            Self::ClusterApi(controllers) => {
                format!("{}\n{}", controllers.core.log_tail(), controllers.infrastructure.log_tail())
            }
            Self::Karpenter(controllers) => controllers.log_tail(),
            Self::RealNodes(real) => {
                let machines = real.machines().unwrap_or_default();
                machines.iter().map(|name| format!("{name}:\n{}\n", real.log(name))).collect()
            }
            Self::Simulated | Self::Directory(_) => String::new(),
        }
    }

    /// Ends everything; machines too, if there are any left after an interrupt.
    pub(super) async fn stop(self) -> Result<()> {
        match self {
            Self::RealNodes(real) => real.end_all().await.map(drop).context("a real node is left"),
            // Processes that hold nothing outside the cluster, which goes as well.
            Self::Simulated | Self::ClusterApi(_) | Self::Karpenter(_) | Self::Directory(_) => Ok(()),
        }
    }
}

fn running(names: Vec<String>) -> MachineStates {
    names.into_iter().map(|name| (name, "running".to_owned())).collect()
}

fn named(object: &DynamicObject, state: String) -> Result<(String, String)> {
    Ok((object.metadata.name.clone().context("an object without a name")?, state))
}

/// The phase of a `Machine`, and whether it is marked to go first.
fn phase(machine: &DynamicObject) -> String {
    let phase = machine.data.pointer("/status/phase").and_then(Value::as_str).unwrap_or("new");
    let annotations = machine.metadata.annotations.as_ref();
    let is_marked = annotations.is_some_and(|all| all.contains_key(DELETE_MACHINE));
    match (phase, is_marked) {
        ("Deleting", _) | (_, false) => phase.to_owned(),
        (_, true) => format!("{phase} (marked to go)"),
    }
}

/// How far a `NodeClaim` has come.
fn progress(claim: &DynamicObject) -> String {
    if claim.metadata.deletion_timestamp.is_some() {
        return "Deleting".to_owned();
    }
    let conditions = claim.data.pointer("/status/conditions").and_then(Value::as_array);
    let is_true = |wanted: &&str| {
        conditions.is_some_and(|all| all.iter().any(|it| it["type"] == **wanted && it["status"] == "True"))
    };
    ["Initialized", "Registered", "Launched"]
        .iter()
        .find(|name| is_true(name))
        .map_or("new", |name| name)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(metadata: &Value, status: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Any", "metadata": metadata, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_marked_machine_says_so_until_it_goes() {
        let marked = json!({"name": "m", "annotations": {DELETE_MACHINE: "tandem.dev"}});
        assert_eq!(phase(&object(&json!({"name": "m"}), &json!({}))), "new");
        assert_eq!(phase(&object(&json!({"name": "m"}), &json!({"phase": "Running"}))), "Running");
        assert_eq!(phase(&object(&marked, &json!({"phase": "Running"}))), "Running (marked to go)");
        assert_eq!(phase(&object(&marked, &json!({"phase": "Deleting"}))), "Deleting");
    }

    #[test]
    fn a_claim_is_as_far_as_its_last_condition_that_holds() {
        let condition = |name: &str, status: &str| json!({"type": name, "status": status});
        let claim =
            |conditions: Vec<Value>| object(&json!({"name": "c"}), &json!({"conditions": conditions}));
        assert_eq!(progress(&claim(vec![])), "new");
        let launched = condition("Launched", "True");
        let unknown = condition("Registered", "Unknown");
        assert_eq!(progress(&claim(vec![launched.clone(), unknown])), "Launched");
        assert_eq!(progress(&claim(vec![launched, condition("Registered", "True")])), "Registered");
        let deleted = json!({"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(progress(&object(&deleted, &json!({}))), "Deleting");
    }
}
