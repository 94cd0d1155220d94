//! A pool and writers for the tests of this module.

use jiff::Timestamp;
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::ownership::Owner;
use shared_crds::v1alpha1::NodePoolStatus;

use super::{WriteStrategy, Writer, unobserved};
use crate::clock::Clock;
use crate::testing::{Asked, Log, server};

pub(super) const STATUS: &str = "/apis/tandem.dev/v1alpha1/namespaces/ns/nodepools/p/status";

pub(super) fn pool(version: &str, status: &Value) -> Value {
    json!({
        "apiVersion": "tandem.dev/v1alpha1",
        "kind": "NodePool",
        "metadata": { "name": "p", "namespace": "ns", "uid": "u", "resourceVersion": version },
        "spec": {
            "replicas": 2,
            "maxReplicas": 5,
            "template": { "spec": { "capacity": { "cpu": "4", "memory": "8Gi" } } },
            "provider": { "simulated": {} },
        },
        "status": status,
    })
}

pub(super) fn cached(status: &Value) -> NodePool {
    serde_json::from_value(pool("5", status)).unwrap()
}

pub(super) fn with_replicas(replicas: i32) -> NodePoolStatus {
    NodePoolStatus { replicas: Some(replicas), ..NodePoolStatus::default() }
}

pub(super) fn status(status: &Value) -> NodePoolStatus {
    serde_json::from_value(status.clone()).unwrap()
}

pub(super) fn unasked(asked: &Asked) -> (u16, Value) {
    panic!("unexpected request {asked:?}")
}

/// The Autoscaler's writer, and a pool at generation 7 with `autoscaling` in its status.
pub(super) fn autoscaler(
    autoscaling: &Value,
    answer: impl FnMut(&Asked) -> (u16, Value) + Send + 'static,
) -> (Writer, Log, NodePool) {
    let (clock, _) = Clock::fake(Timestamp::UNIX_EPOCH);
    let (client, log) = server(answer);
    let writer =
        Writer::new(client, Owner::AutoscalerOperator, WriteStrategy::Guarded, &clock, unobserved()).unwrap();
    let mut pool = cached(&json!({ "autoscaling": autoscaling }));
    pool.metadata.generation = Some(7);
    (writer, log, pool)
}

/// A `test` operation of a JSON Patch.
pub(super) fn test(path: &str, value: impl Into<Value>) -> Value {
    json!({ "op": "test", "path": path, "value": value.into() })
}
