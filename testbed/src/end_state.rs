//! What is left of the work on a pool when it is done, in a form in which the same work on two pools compares equal.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Map, Value, json};
use shared_crds::NodePool;
use shared_crds::names::machine_of;

use crate::cluster_api::{OWNER_NAME, SetState};
use crate::machines::{Machines, host_name};
use crate::test_env::{TestEnv, is_ready};

/// Fields of metadata that tell one object or one write from another.
const IDENTITY: [&str; 5] = ["uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink"];

/// The fields of a pool that is gone with its nodes and machines. The set of the machines may be there: it is not the operator's.
const GONE: [(&str, &[&str]); 4] =
    [("pool", &["null"]), ("nodes", &["[]"]), ("machines", &["[]"]), ("size", &["null", "0"])];

/// Where the machines of a pool are.
#[derive(Clone, Copy)]
pub enum MachinesOf<'a> {
    /// Nowhere: there are Nodes alone.
    Nothing,
    /// A program has them.
    Program(&'a Machines),
    /// They are those of the `MachineDeployment` that is called like the pool.
    Set,
}

/// What there is of a pool.
#[derive(Default)]
struct Found<'a> {
    /// Its name.
    pool: &'a str,
    /// The object; `null` when it is not there.
    object: Value,
    nodes: Vec<Node>,
    pods: Vec<Pod>,
    /// The name of each machine, or its state where names are random.
    machines: Vec<Value>,
    /// The number that the set of the machines keeps.
    size: Option<i64>,
}

/// Each field and its value. Names, times and texts for people are not in it. A pool that is not there is `null`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndState(BTreeMap<String, String>);

impl EndState {
    /// Reads a pool with its nodes, its machines, and the pods of its namespace whose label `app` is its name.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn read(env: &TestEnv, pool: &str, machines: MachinesOf<'_>) -> Result<Self> {
        let object = serde_json::to_value(env.api::<NodePool>().get_opt(pool).await?)?;
        // Also those that were never made nodes of the pool.
        let is_of_pool =
            |name: &str| name.strip_prefix(&host_name("")).unwrap_or(name).starts_with(&format!("{pool}-"));
        let all = Api::<Node>::all(env.client.clone()).list(&ListParams::default()).await?.items;
        let nodes: Vec<Node> = all.into_iter().filter(|node| is_of_pool(&node.name_any())).collect();
        let pods = env.api::<Pod>().list(&ListParams::default().labels(&format!("app={pool}"))).await?.items;
        let set = match machines {
            MachinesOf::Nothing => SetState::default(),
            MachinesOf::Program(program) => {
                let names = program.names()?.into_iter().filter(|name| is_of_pool(name));
                SetState { size: None, machines: names.map(Value::from).collect() }
            }
            MachinesOf::Set => SetState::read(&env.client, env.namespace(), pool).await?,
        };
        let SetState { size, machines } = set;
        Ok(Self::of(Found { pool, object, nodes, pods, machines, size }))
    }

    /// That of work that leaves nothing: no pool, no nodes, no machines, and no pods.
    pub fn nothing() -> Self {
        Self::of(Found { pool: "none", ..Found::default() })
    }

    fn of(found: Found<'_>) -> Self {
        let Found { pool, object, nodes, pods, machines, size } = found;
        let hosts = nodes.iter().map(|node| (node.name_any(), "NODE"));
        let owners =
            nodes.iter().filter_map(|node| Some((machine_of(&node.metadata)?.to_owned(), "MACHINE")));
        let sets = nodes.iter().filter_map(|node| Some((node.annotations().get(OWNER_NAME)?.clone(), "SET")));
        let mut names: Vec<(String, &str)> = hosts.chain(owners).chain(sets).collect();
        names.push((pool.to_owned(), "POOL"));
        // A machine is part of the name of its host, and the pool of both.
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let sorted = |all: Vec<Value>| {
            let mut all: Vec<Value> = all.into_iter().map(|it| without_names(it, &names)).collect();
            all.sort_by_key(ToString::to_string);
            all
        };
        let nodes = sorted(nodes.iter().map(node_state).collect());
        let pods = sorted(pods.iter().map(pod_state).collect());
        let machines = sorted(machines);
        let object = without_names(without_identity(object), &names);
        let mut fields = BTreeMap::new();
        let all = json!({"pool": object, "nodes": nodes, "pods": pods, "machines": machines, "size": size});
        flatten(String::new(), &all, &mut fields);
        Self(fields)
    }

    /// Checks that there is no pool, no node and no machine. Pods may be there: they wait for a node.
    ///
    /// # Errors
    /// When one is there, with its fields.
    pub fn check_gone(&self) -> Result<()> {
        let is_left = |field: &str, value: &str| {
            let part = field.split(' ').next().unwrap_or_default();
            GONE.iter().any(|(of, nothing)| *of == part && !nothing.contains(&value))
        };
        let left = self.0.iter().filter(|(field, value)| is_left(field, value));
        let left: Vec<String> = left.map(|(field, value)| format!("{field}: {value}")).collect();
        ensure!(left.is_empty(), "{}", left.join("\n"));
        Ok(())
    }

    /// Checks that it is the same as `expected`.
    ///
    /// # Errors
    /// When it is not, with every difference.
    pub fn check(&self, expected: &Self) -> Result<()> {
        let fields: std::collections::BTreeSet<&String> = self.0.keys().chain(expected.0.keys()).collect();
        let differences: Vec<String> = fields
            .into_iter()
            .filter(|field| self.0.get(*field) != expected.0.get(*field))
            .map(|field| {
                let said = |state: &Self| state.0.get(field).cloned().unwrap_or_else(|| "absent".to_owned());
                format!("{field}: {} instead of {}", said(self), said(expected))
            })
            .collect();
        ensure!(differences.is_empty(), "{}", differences.join("\n"));
        Ok(())
    }
}

fn node_state(node: &Node) -> Value {
    let mut state = serde_json::to_value(node).unwrap_or_default();
    state["status"] = json!({ "ready": is_ready(node) });
    if let Some(spec) = state["spec"].as_object_mut() {
        spec.retain(|field, _| !field.starts_with("podCIDR"));
    }
    without_identity(state)
}

fn pod_state(pod: &Pod) -> Value {
    json!({
        "app": pod.labels().get("app"),
        "phase": pod.status.as_ref().and_then(|status| status.phase.clone()),
        "isBound": pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()),
        "isDeleting": pod.metadata.deletion_timestamp.is_some(),
    })
}

/// The object without what tells it from another one like it, and without the texts of its conditions.
fn without_identity(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| !IDENTITY.contains(&field.as_str()));
    }
    if let Some(conditions) = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
        let by_type = conditions.drain(..).map(|mut condition| {
            let type_ = condition["type"].as_str().unwrap_or_default().to_owned();
            if let Some(condition) = condition.as_object_mut() {
                condition.retain(|field, _| field != "message" && field != "type");
            }
            (type_, condition)
        });
        let by_type: Map<String, Value> = by_type.collect();
        object["status"]["conditions"] = Value::Object(by_type);
    }
    object
}

fn without_names(value: Value, names: &[(String, &str)]) -> Value {
    let replaced =
        |text: String| names.iter().fold(text, |text, (name, general)| text.replace(name, general));
    match value {
        Value::String(text) if text.parse::<Timestamp>().is_ok() => json!("TIME"),
        Value::String(text) => Value::String(replaced(text)),
        Value::Array(items) => items.into_iter().map(|item| without_names(item, names)).collect(),
        Value::Object(fields) => {
            let fields =
                fields.into_iter().map(|(field, value)| (replaced(field), without_names(value, names)));
            Value::Object(fields.collect())
        }
        other => other,
    }
}

fn flatten(path: String, value: &Value, fields: &mut BTreeMap<String, String>) {
    let below = |part: &str| if path.is_empty() { part.to_owned() } else { format!("{path} {part}") };
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(field, value)| flatten(below(field), value, fields));
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                flatten(below(&index.to_string()), item, fields);
            }
        }
        other => {
            fields.insert(path, other.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(pool: &str, slot: u32, taint: Option<&str>) -> EndState {
        let machine = format!("{pool}-abc-{slot}");
        let taints = taint.map(|key| json!([{"key": key, "effect": "NoSchedule"}]));
        let node: Node = serde_json::from_value(json!({
            "metadata": {
                "name": host_name(&machine),
                "uid": format!("{slot}"),
                "labels": {"pool": pool, "tandem.node-restriction.kubernetes.io/machine": machine},
                "annotations": {"tandem.dev/ready-time": format!("2026-11-21T03:00:0{slot}Z")},
            },
            "spec": {"taints": taints, "podCIDR": "10.0.0.0/24"},
        }))
        .unwrap();
        let object = json!({
            "metadata": {"name": pool, "resourceVersion": format!("{slot}")},
            "status": {"conditions": [{"type": "Ready", "status": "True", "message": format!("{machine} is")}]},
        });
        let (nodes, machines) = (vec![node], vec![Value::from(machine)]);
        EndState::of(Found { pool, object, nodes, machines, ..Found::default() })
    }

    #[test]
    fn the_same_work_on_two_pools_compares_equal_and_what_is_left_over_does_not() {
        let expected = state("calm", 0, None);
        assert_eq!(expected.0["machines 0"], "\"MACHINE\"");
        assert_eq!(expected.0["nodes 0 metadata name"], "\"NODE\"");
        state("killed", 3, None).check(&expected).unwrap();
        let error = state("killed", 3, Some("left")).check(&expected).unwrap_err().to_string();
        assert!(error.contains("nodes 0 spec taints 0 key: \"left\" instead of absent"), "{error}");
    }

    #[test]
    fn a_pool_is_gone_when_its_nodes_and_machines_are_whatever_became_of_its_pods() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"labels": {"app": "p"}}})).unwrap();
        let of = |found: Found<'_>| EndState::of(Found { pool: "p", ..found });
        let waits = of(Found { pods: vec![pod], ..Found::default() });
        waits.check_gone().unwrap();
        assert!(waits.check(&EndState::nothing()).is_err(), "there is a pod");
        of(Found::default()).check(&EndState::nothing()).unwrap();

        let left = |found: Found<'_>| of(found).check_gone().unwrap_err().to_string();
        let machine = Found { machines: vec![json!("p-abc-0")], ..Found::default() };
        assert_eq!(left(machine), "machines 0: \"POOL-abc-0\"");
        let pool = Found { object: json!({"kind": "NodePool"}), ..Found::default() };
        assert_eq!(left(pool), "pool kind: \"NodePool\"");
        assert!(state("killed", 3, None).check_gone().is_err());
    }

    #[test]
    fn the_machines_of_a_set_compare_by_what_they_are_and_the_set_may_stay_without_any() {
        let with_set = |pool: &str, random: &str| {
            let machine = format!("{pool}-{random}-{random}");
            let node: Node = serde_json::from_value(json!({"metadata": {
                "name": machine, "annotations": {OWNER_NAME: format!("{pool}-{random}")},
            }}))
            .unwrap();
            let machines = vec![json!({"phase": "Running", "node": machine})];
            EndState::of(Found { pool, nodes: vec![node], machines, size: Some(1), ..Found::default() })
        };
        let expected = with_set("calm", "x7kfd");
        assert_eq!(expected.0["machines 0 node"], "\"NODE\"");
        with_set("killed", "2m9qz").check(&expected).unwrap();

        let of_size = |size: Option<i64>| EndState::of(Found { pool: "p", size, ..Found::default() });
        of_size(Some(0)).check_gone().unwrap();
        assert!(of_size(Some(0)).check(&EndState::nothing()).is_err(), "the set is there");
        assert_eq!(of_size(Some(1)).check_gone().unwrap_err().to_string(), "size: 1");
    }
}
