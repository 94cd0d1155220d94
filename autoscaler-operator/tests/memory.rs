//! One pool must not determine how much memory a plan takes.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// Capacity of a pipe; a program with more output waits for the reader.
const PIPE_BYTES: usize = 64 * 1024;

/// The peak memory of `simulate` when it begins to print its plan for `objects`.
fn peak_mib(objects: &[Value]) -> u64 {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for object in objects {
        writeln!(file, "---\n{object}").unwrap();
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_autoscaler-operator"))
        .args(["simulate", "--output=json", "-f"])
        .arg(file.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    // With its first byte the plan is complete, and the rest does not fit into the pipe: the program is still running.
    stdout.read_exact(&mut [0]).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let mut printed = String::new();
    stdout.read_to_string(&mut printed).unwrap();
    assert!(child.wait().unwrap().success() && printed.len() > PIPE_BYTES, "{} bytes", printed.len());
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// A pool with `replicas` requested nodes, none of which exists, with as much metadata on each as the API allows; and a
/// thousand pending pods for some of them.
fn cluster(replicas: u32) -> Vec<Value> {
    let labels: serde_json::Map<_, _> =
        (0..64).map(|at| (format!("example.com/{at:0>50}"), format!("{at:v>63}").into())).collect();
    let pool = json!({ "apiVersion": "tandem.dev/v1alpha1", "kind": "NodePool", "metadata": { "name": "vast", "namespace": "ns" },
        "spec": { "replicas": replicas, "minReplicas": 0, "maxReplicas": replicas, "provider": { "simulated": {} },
            "template": { "metadata": { "labels": labels }, "spec": { "capacity": { "cpu": "4", "memory": "16Gi" } } } } });
    let autoscaler = json!({ "apiVersion": "tandem.dev/v1alpha1", "kind": "NodePoolAutoscaler",
        "metadata": { "name": "all", "namespace": "ns" }, "spec": { "nodePoolSelector": {} } });
    let pod = |at: u32| {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": format!("waits-{at}"), "namespace": "ns" },
            "spec": { "containers": [{ "name": "app", "resources": { "requests": { "cpu": "1" } } }] },
            "status": { "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }] } })
    };
    [pool, autoscaler].into_iter().chain((0..1000).map(pod)).collect()
}

#[test]
fn a_pool_of_a_hundred_thousand_nodes_takes_no_more_memory_than_one_of_a_thousand() {
    let (small, vast) = (peak_mib(&cluster(1_000)), peak_mib(&cluster(100_000)));
    println!("peak with 1,000 nodes asked for: {small} MiB, with 100,000: {vast} MiB");
    assert!(vast < small + 16, "{vast} MiB, with a thousand nodes {small} MiB");
    assert!(vast < 100, "{vast} MiB");
}
