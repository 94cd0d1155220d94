//! Pods that the API server deletes at once, and pods that it only marks for deletion. It answers both with the pod, and
//! both pods have a deletion timestamp.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::bench::{Bench, Table, make};

/// A node without a kubelet: what is bound to it is deleted only by the API server.
const NODE: &str = "without-a-kubelet";

/// Each case has two pods: the answer to a plain DELETE of the first is looked at, and `once::delete` deletes the second.
pub(crate) async fn deletions(bench: &Bench, table: &mut Table) {
    let options = &table.options();
    let pods = &bench.set_up::<Pod>();
    let watched = &bench.watched::<Pod>();
    make(&Api::<Node>::all(bench.admin.clone()), json!({"metadata": {"name": NODE}})).await;
    let hold = || json!(["example.com/hold"]);
    for (name, node, finalizers, grace, left, ending) in [
        ("on-no-node", Value::Null, json!([]), None, 0, "deleted"),
        ("on-a-node", json!(NODE), json!([]), None, 30, "terminating"),
        ("without-grace", json!(NODE), json!([]), Some(0), 0, "deleted"),
        ("held-without-grace", json!(NODE), hold(), Some(0), 0, "terminating"),
        ("held-on-no-node", Value::Null, hold(), None, 0, "terminating"),
    ] {
        let params = DeleteParams { grace_period_seconds: grace, ..DeleteParams::default() };
        let plain = format!("{name}-plain");
        make(pods, pod(&plain, &node, &finalizers)).await;
        let answer = pods.delete(&plain, &params).await.unwrap().left();
        let is_marked = answer.is_some_and(|Pod { metadata, .. }| {
            metadata.deletion_timestamp.is_some() && metadata.deletion_grace_period_seconds == Some(left)
        });
        table.check(&format!("a pod {name} is returned as marked, with {left} s left"), is_marked);

        make(pods, pod(name, &node, &finalizers)).await;
        let call = conflict_retry::once::delete(watched, name, options, &params);
        table.call(&format!("delete of a pod {name}"), call, ending, "delete").await;
        for pod in [plain.as_str(), name] {
            let is_gone = pods.get_opt(pod).await.unwrap().is_none();
            table.check(&format!("{pod}: gone is {is_gone}"), is_gone == (ending == "deleted"));
        }
    }

    // As a kubelet ends a deletion that its pod has taken its time for.
    let params = DeleteParams::default();
    let call = conflict_retry::once::delete(watched, "on-a-node", options, &params);
    table.call("delete of a pod that is terminating", call, "terminating", "delete").await;
    let params = DeleteParams::default().grace_period(0);
    let call = conflict_retry::once::delete(watched, "on-a-node", options, &params);
    table.call("the same without grace", call, "deleted", "delete").await;
    table.check("it is gone", pods.get_opt("on-a-node").await.unwrap().is_none());
}

/// A pod that is bound to `node`, unless that is null.
fn pod(name: &str, node: &Value, finalizers: &Value) -> Value {
    json!({
        "metadata": {"name": name, "finalizers": finalizers},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "example.invalid/c"}]},
    })
}
