//! Kinds of questions that public reports have shown: what others write into a pod's status, what runs on every node and
//! stands in no template, and nodes whose pods are going. Only the objects are made here.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::infrastructure::{CORDON, HOST, ZONE, ready};
use super::pods;
use super::pods::Made;
use super::rules;
use super::seeded_rng::SeededRng;

/// All kinds, by the name under which results are counted.
pub const KINDS: [&str; 9] = [
    "nominatedHere",
    "nominatedGone",
    "nominatedOther",
    "staticPods",
    "changedDaemons",
    "resizedPods",
    "resizedContainers",
    "sharedVolumes",
    "drainingSpread",
];

/// The kind whose pods are asked about together; see [`super::sharing`].
pub const SHARED_VOLUMES: &str = "sharedVolumes";

/// The priority class of pods that wait for the node that they are nominated to. Their priority is that of all others:
/// kube-scheduler keeps a node free for pods of the same or a higher priority than the one that it places.
pub const PATIENT: (&str, i32) = ("patient", 0);

/// Nodes that a kind is about, by the end of their name.
pub const ASKED_NODES: [&str; 3] = ["nominated", "resized-pods", "resized-containers"];
/// A node whose kubelet has stopped, by the end of its name.
pub const DOWN: &str = "down";
/// Nodes that are being drained, by the end of their names, with their zones.
pub const DRAINING: [(&str, &str); 2] = [("draining-a", "za"), ("draining-b", "zb")];

/// The taint of [`ASKED_NODES`]: only pods that ask about them are placed there.
const ASKED: &str = "asked";
/// The host port that keeps a pod waiting for the node that it is nominated to.
const HELD_PORT: u16 = 9000;
/// The annotation of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// What runs on every node and stands in no template.
#[derive(Clone, Debug)]
pub struct HiddenAgents {
    /// The cpu that admission gives to the pods of the `DaemonSet`, whatever its template says.
    daemon_cpu: &'static str,
    /// The memory of the static pod.
    static_memory: &'static str,
}

impl HiddenAgents {
    /// Random ones, of which each node has room for all.
    pub fn random(rng: &mut SeededRng) -> Self {
        let daemon_cpu = *rng.pick(&["20m", "600m"]);
        Self { daemon_cpu, static_memory: *rng.pick(&["512Mi", "1Gi"]) }
    }

    /// Changes the pod of a `DaemonSet` as admission does (`LimitRange`, `VerticalPodAutoscaler`).
    pub fn admit(&self, daemon: &mut Value) {
        daemon["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(self.daemon_cpu);
    }

    /// The pod that a kubelet makes for a file on its `node`.
    pub fn static_pod(&self, namespace: &str, node: &Value) -> Value {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let mut pod = bound(namespace, &format!("static-{name}"), name, &json!({"cpu": "20m"}));
        requests_of(&mut pod)["memory"] = json!(self.static_memory);
        pod["metadata"]["annotations"] = json!({MIRROR: name});
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"], "controller": true,
        }]);
        pod
    }
}

/// Whether `object` is a static pod.
pub fn is_static(object: &Value) -> bool {
    object["metadata"]["annotations"][MIRROR].is_string()
}

/// Whether `object` is the pod of a `DaemonSet`.
pub fn is_daemon(object: &Value) -> bool {
    object["kind"] == "Pod" && object["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet"
}

/// A node of [`ASKED_NODES`].
pub fn asked_node(name: &str) -> Value {
    ready(name, &json!({HOST: name, ZONE: "zc"}), &large(), &json!([{"key": ASKED, "effect": "NoSchedule"}]))
}

/// A node whose kubelet has stopped. The node lifecycle controller, which does not run here, would add the taints.
pub fn down_node(name: &str) -> Value {
    let taint = |effect: &str| json!({"key": "node.kubernetes.io/unreachable", "effect": effect});
    let taints = json!([taint("NoSchedule"), taint("NoExecute")]);
    let mut node = ready(name, &json!({HOST: name, ZONE: "zc"}), &large(), &taints);
    node["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
    node
}

/// A node that `kubectl drain` empties. One that Tandem drains also bears an annotation, and then the planner looks at
/// what will be when it is gone, which kube-scheduler cannot know.
pub fn draining_node(name: &str, zone: &str) -> Value {
    let taints = json!([{"key": CORDON, "effect": "NoSchedule"}]);
    let mut node = ready(name, &json!({HOST: name, ZONE: zone}), &large(), &taints);
    node["spec"]["unschedulable"] = json!(true);
    node
}

/// A pod that ends slowly on `node` and has the port that [`patient`] waits for.
pub fn holder(namespace: &str, node: &str) -> Value {
    let mut pod = bound(namespace, "holder", node, &json!({"cpu": "20m"}));
    hold_port(&mut pod);
    pod
}

/// A pod that can only run on `node`, and there only when [`holder`] has ended. It never preempts: kube-scheduler would
/// take its nomination back when there is nothing to preempt.
pub fn patient(rng: &mut SeededRng, namespace: &str, node: &str) -> Value {
    let mut pod = bound(namespace, "patient", node, &json!({"cpu": rng.pick(&["1", "2500m"])}));
    pod["spec"]["priorityClassName"] = json!(PATIENT.0);
    hold_port(&mut pod);
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.remove("nodeName");
    }
    select_asked(&mut pod, node);
    pod
}

/// A random pod on `node`, some time before it goes or stays.
pub fn evicted(rng: &mut SeededRng, namespace: &str, name: &str, node: &str) -> Value {
    let mut pod = pods::plain(rng, namespace, name);
    pod["spec"]["nodeName"] = json!(node);
    pod
}

/// A pod on `node` with pod-level requests that is being resized, and the status that its node has reported.
pub fn resized_pod(rng: &mut SeededRng, namespace: &str, node: &str) -> (Value, Value) {
    let mut pod = bound(namespace, "resized-pod", node, &json!({"cpu": "20m"}));
    pod["spec"]["resources"]["requests"] = cpu(rng);
    let mut status = json!({"resources": {"requests": cpu(rng)}, "conditions": resize(rng)});
    if !rng.one_in(4) {
        status["allocatedResources"] = cpu(rng);
    }
    (pod, status)
}

/// A pod on `node` with a container that is being resized, and the status that its node has reported. Beside it is a
/// sidecar, which is resized too, or an init container, which is not.
pub fn resized_container(rng: &mut SeededRng, namespace: &str, node: &str) -> (Value, Value) {
    let mut pod = bound(namespace, "resized-container", node, &cpu(rng));
    let mut init = json!({"name": "init", "image": "none", "resources": {"requests": {"cpu": "100m"}}});
    if rng.one_in(2) {
        init["restartPolicy"] = json!("Always");
    }
    pod["spec"]["initContainers"] = json!([init]);
    let mut granted = |name: &str| {
        json!({
            "name": name, "image": "none", "imageID": "none", "ready": true, "restartCount": 0,
            "resources": {"requests": cpu(rng)}, "allocatedResources": cpu(rng),
        })
    };
    let (app, init) = (granted("app"), granted("init"));
    let status = json!({
        "containerStatuses": [app], "initContainerStatuses": [init], "conditions": resize(rng),
    });
    (pod, status)
}

/// The pod of a question of `kind` in the cluster called `cluster`, and the node that it is nominated to. `host` is a
/// node of the cluster.
pub fn question(
    rng: &mut SeededRng,
    kind: &'static str,
    (cluster, host): (&str, &str),
    (namespace, name): (&str, &str),
) -> (Made, Option<String>) {
    let mut pod = pods::plain(rng, namespace, name);
    *requests_of(&mut pod) = json!({"cpu": rng.pick(&["50m", "300m"]), "memory": "64Mi"});
    let mut nominated = None;
    match kind {
        "nominatedHere" => {
            requests_of(&mut pod)["cpu"] = json!(rng.pick(&["300m", "900m", "1700m", "3500m"]));
            place_rules(rng, &mut pod);
            nominated = Some(host.to_owned());
        }
        "nominatedGone" => {
            requests_of(&mut pod)["cpu"] = json!(rng.pick(&["300m", "900m", "1700m", "3500m"]));
            place_rules(rng, &mut pod);
            nominated = Some(format!("{cluster}-{}", rng.pick(&["gone", DOWN, DRAINING[0].0])));
        }
        "nominatedOther" => {
            requests_of(&mut pod)["cpu"] = json!(rng.pick(&["600m", "1300m", "2100m", "2700m"]));
            select_asked(&mut pod, &format!("{cluster}-{}", ASKED_NODES[0]));
        }
        "staticPods" => {
            requests_of(&mut pod)["memory"] = json!(rng.pick(&["1100Mi", "1600Mi", "3Gi", "3500Mi", "7Gi"]));
            in_pools(rng, &mut pod);
        }
        "changedDaemons" => {
            requests_of(&mut pod)["cpu"] = json!(rng.pick(&["500m", "800m", "1600m", "1800m", "3600m"]));
            in_pools(rng, &mut pod);
        }
        "resizedPods" | "resizedContainers" => {
            requests_of(&mut pod)["cpu"] = json!(rng.pick(&["400m", "800m", "1400m", "2400m"]));
            let node = ASKED_NODES[if kind == "resizedPods" { 1 } else { 2 }];
            select_asked(&mut pod, &format!("{cluster}-{node}"));
        }
        "drainingSpread" => draining_spread(rng, &mut pod),
        _ => {}
    }
    (Made { pod, classes: BTreeSet::from([kind]) }, nominated)
}

/// Rules that may keep a pod off the node that it is nominated to.
fn place_rules(rng: &mut SeededRng, pod: &mut Value) {
    if rng.one_in(2) {
        let class = *rng.pick(&["nodeSelector", "nodeAffinity", "hostPort"]);
        rules::put(rng, class, pod);
    }
}

/// Only nodes of pools have this label.
fn in_pools(rng: &mut SeededRng, pod: &mut Value) {
    if !rng.one_in(3) {
        pod["spec"]["nodeSelector"]["pool-size"] = json!(rng.pick(&["small", "large"]));
    }
}

/// A spread over zones or hosts, some of which are being drained: pods that are ending do not count, and the policies
/// decide whether those nodes do.
fn draining_spread(rng: &mut SeededRng, pod: &mut Value) {
    let key = if rng.one_in(3) { HOST } else { ZONE };
    let mut made = rules::constraint(rng, key);
    if rng.one_in(2) {
        made["labelSelector"] = json!({"matchLabels": {"app": pod["metadata"]["labels"]["app"]}});
    }
    for policy in ["nodeTaintsPolicy", "nodeAffinityPolicy"] {
        if !rng.one_in(3) {
            made[policy] = json!(rng.pick(&["Honor", "Ignore"]));
        }
    }
    pod["spec"]["topologySpreadConstraints"] = json!([made]);
    if rng.one_in(3) {
        rules::put(rng, "nodeSelector", pod);
    }
    if rng.one_in(4) {
        pod["spec"]["tolerations"] = json!([{"key": CORDON, "operator": "Exists", "effect": "NoSchedule"}]);
    }
}

fn bound(namespace: &str, name: &str, node: &str, requests: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": {"agent": "yes"}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "app", "image": "none", "resources": {"requests": requests}}],
        },
    })
}

fn requests_of(pod: &mut Value) -> &mut Value {
    &mut pod["spec"]["containers"][0]["resources"]["requests"]
}

fn hold_port(pod: &mut Value) {
    pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": HELD_PORT, "hostPort": HELD_PORT}]);
}

fn select_asked(pod: &mut Value, node: &str) {
    pod["spec"]["nodeSelector"] = json!({HOST: node});
    pod["spec"]["tolerations"] = json!([{"key": ASKED, "operator": "Exists"}]);
}

fn large() -> Value {
    json!({"cpu": "4", "memory": "8Gi", "pods": "110"})
}

fn cpu(rng: &mut SeededRng) -> Value {
    json!({"cpu": rng.pick(&["300m", "1100m", "2200m"])})
}

/// How far a resize has come: granted, put off, or refused.
fn resize(rng: &mut SeededRng) -> Value {
    match rng.below(3) {
        0 => json!([]),
        1 => json!([{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]),
        _ => json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_asks_something_of_its_own() {
        let mut rng = SeededRng::new(1);
        for kind in KINDS {
            let (made, nominated) = question(&mut rng, kind, ("w", "w-n0"), ("w-a", "q"));
            assert_eq!(made.classes, BTreeSet::from([kind]));
            let is_nomination = kind == "nominatedHere" || kind == "nominatedGone";
            assert_eq!(nominated.is_some(), is_nomination, "{kind}");
            let asks = made.pod["spec"].to_string();
            assert_eq!(
                asks.contains(ASKED),
                ["nominatedOther", "resizedPods", "resizedContainers"].contains(&kind),
                "{kind}"
            );
            assert_eq!(asks.contains("topologySpreadConstraints"), kind == "drainingSpread", "{kind}");
        }
        assert!(KINDS.contains(&SHARED_VOLUMES));
    }

    #[test]
    fn what_runs_on_every_node_is_recognized() {
        let hidden = HiddenAgents::random(&mut SeededRng::new(1));
        let node = asked_node("n");
        let pod = hidden.static_pod("a", &node);
        assert!(is_static(&pod) && !is_daemon(&pod));
        assert!(!is_static(&node) && !is_daemon(&node));
    }
}
