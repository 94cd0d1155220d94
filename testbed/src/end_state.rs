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

use crate::machines::{Machines, host_name};
use crate::test_env::{TestEnv, is_ready};

/// Fields of metadata that tell one object or one write from another.
const IDENTITY: [&str; 5] = ["uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink"];

/// The fields of a pool that is gone with its nodes and machines.
const GONE: [(&str, &str); 3] = [("pool", "null"), ("nodes", "[]"), ("machines", "[]")];

/// Each field and its value. Names, times and texts for people are not in it. A pool that is not there is `null`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndState(BTreeMap<String, String>);

impl EndState {
    /// Reads a pool with its nodes, its machines, and the pods of its namespace whose label `app` is its name.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn read(env: &TestEnv, pool: &str, machines: Option<&Machines>) -> Result<Self> {
        let object = serde_json::to_value(env.api::<NodePool>().get_opt(pool).await?)?;
        // Also those that were never made nodes of the pool.
        let is_of_pool =
            |name: &str| name.strip_prefix(&host_name("")).unwrap_or(name).starts_with(&format!("{pool}-"));
        let all = Api::<Node>::all(env.client.clone()).list(&ListParams::default()).await?.items;
        let nodes: Vec<Node> = all.into_iter().filter(|node| is_of_pool(&node.name_any())).collect();
        let pods = env.api::<Pod>().list(&ListParams::default().labels(&format!("app={pool}"))).await?.items;
        let machines = machines.map_or_else(|| Ok(Vec::new()), Machines::names)?;
        let machines: Vec<String> = machines.into_iter().filter(|name| is_of_pool(name)).collect();
        Ok(Self::of((pool, object), &nodes, &pods, &machines))
    }

    /// That of work that leaves nothing: no pool, no nodes, no machines, and no pods.
    pub fn nothing() -> Self {
        Self::of(("none", Value::Null), &[], &[], &[])
    }

    fn of((pool, object): (&str, Value), nodes: &[Node], pods: &[Pod], machines: &[String]) -> Self {
        let hosts = nodes.iter().map(|node| (node.name_any(), "NODE"));
        let owners =
            nodes.iter().filter_map(|node| Some((machine_of(&node.metadata)?.to_owned(), "MACHINE")));
        let mut names: Vec<(String, &str)> = hosts.chain(owners).collect();
        names.push((pool.to_owned(), "POOL"));
        // A machine is part of the name of its host, and the pool of both.
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let mut nodes: Vec<Value> =
            nodes.iter().map(|node| without_names(node_state(node), &names)).collect();
        let mut pods: Vec<Value> = pods.iter().map(|pod| without_names(pod_state(pod), &names)).collect();
        let mut machines: Vec<Value> =
            machines.iter().map(|name| without_names(json!(name), &names)).collect();
        for all in [&mut nodes, &mut pods, &mut machines] {
            all.sort_by_key(ToString::to_string);
        }
        let object = without_names(without_identity(object), &names);
        let mut fields = BTreeMap::new();
        let all = json!({"pool": object, "nodes": nodes, "pods": pods, "machines": machines});
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
            GONE.iter().any(|(of, nothing)| *of == part && *nothing != value)
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
        EndState::of((pool, object), &[node], &[], &[machine])
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
        let waits = EndState::of(("p", Value::Null), &[], &[pod], &[]);
        waits.check_gone().unwrap();
        assert!(waits.check(&EndState::nothing()).is_err(), "there is a pod");
        EndState::of(("other", Value::Null), &[], &[], &[]).check(&EndState::nothing()).unwrap();

        let error = EndState::of(("p", Value::Null), &[], &[], &["p-abc-0".to_owned()]).check_gone();
        assert_eq!(error.unwrap_err().to_string(), "machines 0: \"POOL-abc-0\"");
        let error = EndState::of(("p", json!({"kind": "NodePool"})), &[], &[], &[]).check_gone();
        assert_eq!(error.unwrap_err().to_string(), "pool kind: \"NodePool\"");
        assert!(state("killed", 3, None).check_gone().is_err());
    }
}
