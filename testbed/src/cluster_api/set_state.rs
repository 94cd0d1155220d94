//! What there is of a `MachineDeployment`, without the names that Cluster API makes up.

use anyhow::{Result, ensure};
use kube::Client;
use kube::api::{DynamicObject, ListParams};
use serde_json::{Value, json};

use super::{DELETE_MACHINE, deployments, machines};

/// The label of the machines of a `MachineDeployment`: its name.
const DEPLOYMENT_LABEL: &str = "cluster.x-k8s.io/deployment-name";

/// The annotation of a machine whose Node Cluster API does not drain.
const NO_DRAIN: &str = "machine.cluster.x-k8s.io/exclude-node-draining";

/// The number that it keeps, and its machines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SetState {
    /// The number; `None` when there is no such `MachineDeployment`.
    pub size: Option<i64>,
    /// Each machine with its phase, its Node and its marks. Its name is random, and is not in it.
    pub machines: Vec<Value>,
}

impl SetState {
    /// Reads the `MachineDeployment` `name`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read(client: &Client, namespace: &str, name: &str) -> Result<Self> {
        let deployment = deployments(client.clone(), namespace).get_opt(name).await?;
        let size =
            deployment.map(|it| it.data.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1));
        let of_it = ListParams::default().labels(&format!("{DEPLOYMENT_LABEL}={name}"));
        // Also those that it has left behind.
        let all = machines(client.clone(), namespace).list(&of_it).await?.items;
        Ok(Self { size, machines: all.iter().map(machine_state).collect() })
    }

    /// Checks that Cluster API has nothing more to do: as many machines as are wanted run, each with a Node, and none is to go.
    ///
    /// # Errors
    /// When it has, with what is there.
    pub fn check_settled(&self) -> Result<()> {
        let is_settled = |machine: &Value| {
            machine["phase"] == "Running"
                && machine["node"].is_string()
                && machine["isDeleting"] == false
                && machine["mark"].is_null()
        };
        let count = i64::try_from(self.machines.len())?;
        let is_so = self.size.unwrap_or(0) == count && self.machines.iter().all(is_settled);
        ensure!(is_so, "{:?} machines are wanted of {:?}", self.size, self.machines);
        Ok(())
    }
}

fn machine_state(machine: &DynamicObject) -> Value {
    let annotation = |key: &str| machine.metadata.annotations.as_ref().and_then(|all| all.get(key));
    json!({
        "phase": machine.data.pointer("/status/phase"),
        "node": machine.data.pointer("/status/nodeRef/name"),
        "mark": annotation(DELETE_MACHINE),
        "isDrainedByClusterApi": annotation(NO_DRAIN).is_none(),
        "isDeleting": machine.metadata.deletion_timestamp.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, annotations: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Machine",
            "metadata": {"name": name, "annotations": annotations},
            "status": {"phase": "Running", "nodeRef": {"name": "n"}},
        }))
        .unwrap()
    }

    #[test]
    fn a_machine_is_what_became_of_it_and_not_its_name() {
        let state = machine_state(&machine("p-abcde-fghij", &json!({})));
        assert_eq!(state, machine_state(&machine("p-abcde-klmno", &json!({}))));
        assert_eq!(state["node"], "n");
        let marked = machine_state(&machine("p-abcde-fghij", &json!({DELETE_MACHINE: "tandem.dev"})));
        assert_eq!((&marked["mark"], &marked["isDeleting"]), (&json!("tandem.dev"), &json!(false)));
    }

    #[test]
    fn a_set_is_settled_when_each_wanted_machine_runs_and_none_is_marked() {
        let of = |size: Option<i64>, machines: &[Value]| SetState { size, machines: machines.to_vec() };
        let runs = machine_state(&machine("a", &json!({})));
        let marked = machine_state(&machine("b", &json!({DELETE_MACHINE: "tandem.dev"})));
        of(Some(1), std::slice::from_ref(&runs)).check_settled().unwrap();
        of(Some(0), &[]).check_settled().unwrap();
        of(None, &[]).check_settled().unwrap();
        for unsettled in
            [of(Some(2), std::slice::from_ref(&runs)), of(Some(0), &[runs]), of(Some(1), &[marked])]
        {
            assert!(unsettled.check_settled().is_err(), "{unsettled:?}");
        }
    }
}
