//! Random pods: labels, a small request, and constraints of one to three classes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::rules;
use super::rules::CLASSES;
use super::seeded_rng::SeededRng;

/// A random pod and the classes of its constraints.
#[derive(Clone, Debug)]
pub struct Made {
    /// The pod.
    pub pod: Value,
    /// The classes of its constraints.
    pub classes: BTreeSet<&'static str>,
}

/// A pending pod. It always requests some cpu, so that no pod fits on a node without allocatable cpu.
pub fn pending(rng: &mut SeededRng, namespace: &str, name: &str, about: &'static str) -> Made {
    let mut pod = plain(rng, namespace, name);
    let mut classes = BTreeSet::from([about]);
    while rng.one_in(3) {
        classes.insert(*rng.pick(&CLASSES));
    }
    if classes.contains("podResources") {
        // The API server requires that the pod-level requests are no less than those of the containers.
        classes.retain(|class| !["resources", "initContainers"].contains(class));
    }
    for class in &classes {
        rules::put(rng, class, &mut pod);
    }
    rules::noise(rng, &mut pod["spec"]);
    Made { pod, classes }
}

/// A pod that is already on `node`, even if the scheduler would not have placed it there.
pub fn placed(rng: &mut SeededRng, namespace: &str, name: &str, node: &str) -> Value {
    let mut pod = plain(rng, namespace, name);
    match rng.below(6) {
        0 => rules::put(rng, "podAntiAffinity", &mut pod),
        1 | 2 => rules::put(rng, "hostPort", &mut pod),
        3 => rules::put(rng, "resources", &mut pod),
        _ => {}
    }
    pod["spec"]["nodeName"] = json!(node);
    pod
}

/// A pod with labels and a small request, and without constraints.
pub fn plain(rng: &mut SeededRng, namespace: &str, name: &str) -> Value {
    let mut labels = json!({"app": rng.pick(&["red", "green", "blue"]), "version": rng.pick(&["1", "2"])});
    if !rng.one_in(3) {
        labels["tier"] = json!(rng.pick(&["web", "db"]));
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "affinity": {},
            "containers": [{
                "name": "app", "image": "none",
                "resources": {"requests": {"cpu": rng.pick(&["10m", "50m", "200m"]), "memory": "64Mi"}},
            }],
        },
    })
}
