//! Random constraints of pods, with one generator for each class. A generator adds the constraint to the pod it gets.

use serde_json::{Value, json};

use super::infrastructure::{GPU, HOST, KEYS, LATE_CLAIMS, RACK, ZONE, ZONES};
use super::seeded_rng::SeededRng;

/// All classes of constraints, by the name under which results are counted.
pub const CLASSES: [&str; 18] = [
    "resources",
    "initContainers",
    "podResources",
    "overhead",
    "extendedResource",
    "nodeSelector",
    "nodeAffinity",
    "tolerations",
    "podAffinity",
    "podAntiAffinity",
    "spreadZone",
    "spreadHost",
    "spreadConfined",
    "spreadTaints",
    "minDomains",
    "hostPort",
    "volume",
    "volumeToCome",
];

/// Runtime classes with pod overhead, and the additional cpu.
pub const HEAVY: [(&str, &str); 2] = [("heavy", "400m"), ("heavier", "1500m")];

/// Adds a constraint of `class` to `pod`.
pub fn put(rng: &mut SeededRng, class: &str, pod: &mut Value) {
    let spec = &mut pod["spec"];
    match class {
        "resources" => {
            requests(rng, &mut spec["containers"][0], &["300m", "900m", "1700m", "3"], &["512Mi", "3Gi"]);
        }
        "initContainers" => init_containers(rng, spec),
        "podResources" => {
            let (cpu, memory) = (rng.pick(&["1", "1700m", "3"]), rng.pick(&["512Mi", "2Gi"]));
            spec["resources"]["requests"] = json!({"cpu": cpu, "memory": memory});
        }
        "overhead" => spec["runtimeClassName"] = json!(rng.pick(&HEAVY).0),
        "extendedResource" => gpu(rng, spec),
        "nodeSelector" => node_selector(rng, spec),
        "nodeAffinity" => node_affinity(rng, spec),
        "tolerations" => tolerations(rng, spec),
        "podAffinity" if rng.one_in(3) => together(rng, pod),
        "podAffinity" => affinity(rng, spec, "podAffinity"),
        "podAntiAffinity" => affinity(rng, spec, "podAntiAffinity"),
        "spreadZone" => spread(rng, spec, ZONE),
        "spreadHost" => spread(rng, spec, HOST),
        "spreadConfined" => confined(rng, spec),
        "spreadTaints" => taints(rng, spec),
        "minDomains" => min_domains(rng, spec),
        "hostPort" => ports(rng, spec),
        "volume" => volume(rng, spec),
        "volumeToCome" => use_claim(spec, &format!("late-{}", rng.below(LATE_CLAIMS))),
        _ => {}
    }
}

/// Adds preferences, which do not affect whether a pod can be placed.
pub fn noise(rng: &mut SeededRng, spec: &mut Value) {
    match rng.below(4) {
        0 => push(
            &mut spec["topologySpreadConstraints"],
            json!({
                "topologyKey": "example.com/absent", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": selector(rng),
            }),
        ),
        1 => push(
            &mut spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"],
            json!({"weight": 50, "podAffinityTerm": {"topologyKey": HOST, "labelSelector": selector(rng)}}),
        ),
        2 => push(
            &mut spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"],
            json!({"weight": 7, "preference": node_term(rng)}),
        ),
        _ => {}
    }
}

fn requests(rng: &mut SeededRng, container: &mut Value, cpu: &[&str], memory: &[&str]) {
    container["resources"]["requests"] = json!({"cpu": rng.pick(cpu), "memory": rng.pick(memory)});
    if rng.one_in(6) {
        container["resources"]["requests"]["ephemeral-storage"] = json!(rng.pick(&["4Gi", "15Gi"]));
    }
}

/// The maximum of what runs at the same time counts: init containers one by one, each together with the sidecars
/// started before it.
fn init_containers(rng: &mut SeededRng, spec: &mut Value) {
    let mut made = Vec::new();
    for number in 0..=rng.below(3) {
        let mut container = json!({"name": format!("init-{number}"), "image": "none"});
        requests(rng, &mut container, &["400m", "700m", "1300m"], &["256Mi", "1Gi", "2Gi"]);
        if rng.one_in(2) {
            container["restartPolicy"] = json!("Always");
        }
        made.push(container);
    }
    spec["initContainers"] = Value::Array(made);
}

fn gpu(rng: &mut SeededRng, spec: &mut Value) {
    let count = json!(rng.pick(&["1", "2"]));
    spec["containers"][0]["resources"]["requests"][GPU] = count.clone();
    // The API server requires that requests and limits are equal for such resources.
    spec["containers"][0]["resources"]["limits"] = json!({GPU: count});
}

fn node_selector(rng: &mut SeededRng, spec: &mut Value) {
    let mut wanted = json!({});
    let choices =
        [("disk", "ssd"), ("generation", "2"), (ZONE, "za"), ("pool-size", "large"), ("pool-size", "small")];
    for _ in 0..=rng.below(2) {
        let (key, value) = *rng.pick(&choices);
        wanted[key] = json!(value);
    }
    spec["nodeSelector"] = wanted;
}

fn node_affinity(rng: &mut SeededRng, spec: &mut Value) {
    let terms: Vec<Value> = (0..=rng.below(2)).map(|_| node_term(rng)).collect();
    spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({"nodeSelectorTerms": terms});
}

/// A term over node labels: one or two rules.
fn node_term(rng: &mut SeededRng) -> Value {
    let rules: Vec<Value> = (0..=rng.below(2))
        .map(|_| match rng.below(7) {
            0 => json!({"key": "disk", "operator": "In", "values": ["ssd", "tape"]}),
            1 => json!({"key": "disk", "operator": "NotIn", "values": [rng.pick(&["ssd", "hdd"])]}),
            2 => json!({"key": "generation", "operator": "Gt", "values": [rng.pick(&["1", "2"])]}),
            3 => json!({"key": "generation", "operator": "Lt", "values": ["3"]}),
            4 => json!({"key": rng.pick(&["disk", ZONE]), "operator": "DoesNotExist"}),
            5 => json!({"key": rng.pick(&["generation", "pool-size"]), "operator": "Exists"}),
            _ => json!({"key": ZONE, "operator": "In", "values": [rng.pick(&ZONES)]}),
        })
        .collect();
    json!({"matchExpressions": rules})
}

fn tolerations(rng: &mut SeededRng, spec: &mut Value) {
    let mut made = Vec::new();
    for _ in 0..=rng.below(2) {
        let effect = *rng.pick(&["NoSchedule", "NoExecute", ""]);
        made.push(match rng.below(5) {
            0 => json!({"key": "dedicated", "operator": "Equal", "value": rng.pick(&["red", "blue"]), "effect": effect}),
            1 => json!({"key": "dedicated", "operator": "Exists", "effect": effect}),
            2 => json!({"key": "maintenance", "operator": "Exists", "effect": effect}),
            3 => json!({"operator": "Exists", "effect": effect}),
            _ => json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}),
        });
    }
    spec["tolerations"] = Value::Array(made);
    // Nodes that other pods must not use have room.
    if rng.one_in(2) {
        spec["containers"][0]["resources"]["requests"]["cpu"] = json!("900m");
    }
}

/// A selector over the labels of pods here.
pub fn selector(rng: &mut SeededRng) -> Value {
    match rng.below(10) {
        0 => json!({}),
        1 => json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
        2 => json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}),
        3 => {
            json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [rng.pick(&["red", "blue"])]}]})
        }
        4 => json!({
            "matchLabels": {"app": rng.pick(&["red", "green"])},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["web", "db"]}],
        }),
        _ => json!({"matchLabels": {"app": rng.pick(&["red", "green", "blue"])}}),
    }
}

fn affinity(rng: &mut SeededRng, spec: &mut Value, kind: &str) {
    let terms: Vec<Value> = (0..=usize::from(rng.one_in(4))).map(|_| pod_term(rng)).collect();
    spec["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"] = Value::Array(terms);
}

/// Pods with affinity to their own group: the first of a group may be placed anywhere.
fn together(rng: &mut SeededRng, pod: &mut Value) {
    let group = rng.pick(&["one", "two", "three", "four"]);
    pod["metadata"]["labels"]["group"] = json!(group);
    let selector = json!({"matchLabels": {"group": group}});
    pod["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!([{"topologyKey": rng.pick(&KEYS), "labelSelector": selector}]);
}

fn pod_term(rng: &mut SeededRng) -> Value {
    let mut term = json!({"topologyKey": rng.pick(&KEYS)});
    // Without a selector a term selects no pod.
    if !rng.one_in(12) {
        term["labelSelector"] = selector(rng);
        match rng.below(8) {
            0 => term["matchLabelKeys"] = json!(["version"]),
            1 => term["mismatchLabelKeys"] = json!(["version"]),
            _ => {}
        }
    }
    match rng.below(6) {
        0 => term["namespaceSelector"] = json!({}),
        1 => term["namespaceSelector"] = json!({"matchLabels": {"team": rng.pick(&["one", "two"])}}),
        _ => {}
    }
    term
}

/// A random topology spread constraint over `key`.
pub fn constraint(rng: &mut SeededRng, key: &str) -> Value {
    let mut made = json!({
        "topologyKey": key,
        "maxSkew": 1 + rng.below(2),
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector(rng),
    });
    // Both versions of one workload, which the label key distinguishes.
    if rng.one_in(3) {
        made["labelSelector"] = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
        made["maxSkew"] = json!(1);
        made["matchLabelKeys"] = json!(["version"]);
    }
    made
}

fn spread(rng: &mut SeededRng, spec: &mut Value, key: &str) {
    let made = constraint(rng, key);
    push(&mut spec["topologySpreadConstraints"], made);
}

/// A spread over zones of a pod that may only use one of them, so that only the skew decides.
fn confined(rng: &mut SeededRng, spec: &mut Value) {
    spec["nodeSelector"][ZONE] = json!(rng.pick(&ZONES));
    let mut made = constraint(rng, ZONE);
    made["labelSelector"] = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
    made["nodeAffinityPolicy"] = json!(rng.pick(&["Ignore", "Ignore", "Honor"]));
    if rng.one_in(2) {
        made["matchLabelKeys"] = json!(["version"]);
    }
    push(&mut spec["topologySpreadConstraints"], made);
}

/// A spread over hosts or zones, some of which are closed to the pod: the policy decides whether they count.
fn taints(rng: &mut SeededRng, spec: &mut Value) {
    if rng.one_in(2) {
        spec["nodeSelector"]["disk"] = json!(rng.pick(&["ssd", "hdd"]));
    }
    let key = *rng.pick(&[HOST, ZONE]);
    let mut made = constraint(rng, key);
    made["labelSelector"] = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
    made["nodeTaintsPolicy"] = json!(rng.pick(&["Honor", "Honor", "Ignore"]));
    push(&mut spec["topologySpreadConstraints"], made);
}

/// A spread over few domains that are all in use: whether there are fewer than required decides.
fn min_domains(rng: &mut SeededRng, spec: &mut Value) {
    let key = *rng.pick(&[ZONE, RACK]);
    let mut made = constraint(rng, key);
    made["labelSelector"] = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
    made["nodeTaintsPolicy"] = json!("Honor");
    made["minDomains"] = json!(rng.pick(&[2, 3, 5, 8]));
    push(&mut spec["topologySpreadConstraints"], made);
}

fn ports(rng: &mut SeededRng, spec: &mut Value) {
    let port = rng.pick(&[8080, 8080, 8081]);
    if rng.one_in(6) {
        spec["hostNetwork"] = json!(true);
        spec["containers"][0]["ports"] = json!([{"containerPort": port}]);
        return;
    }
    let mut made = json!({"containerPort": port, "hostPort": port});
    if rng.one_in(4) {
        made["protocol"] = json!("UDP");
    }
    if rng.one_in(4) {
        made["hostIP"] = json!(rng.pick(&["10.0.0.1", "10.0.0.2"]));
    }
    spec["containers"][0]["ports"] = json!([made]);
}

fn volume(rng: &mut SeededRng, spec: &mut Value) {
    let claims =
        ["data-za", "data-zb", "data-zc", "data-host", "data-any", "data-once", "data-unbound", "data-none"];
    let claim = rng.pick(&claims);
    use_claim(spec, claim);
}

/// Adds a volume to a pod: the one that `claim` is bound to, or will be.
pub fn use_claim(spec: &mut Value, claim: &str) {
    push(&mut spec["volumes"], json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}));
}

fn push(list: &mut Value, item: Value) {
    // The API server accepts each topology key once.
    let taken =
        |other: &Value| other.get("topologyKey").is_some_and(|key| Some(key) == item.get("topologyKey"));
    match list {
        Value::Array(items) if items.iter().any(taken) => {}
        Value::Array(items) => items.push(item),
        other => *other = json!([item]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_puts_something_on_a_pod_and_no_other_name_does() {
        let bare = || json!({"spec": {"containers": [{"resources": {"requests": {}}}]}});
        for class in CLASSES {
            let mut pod = bare();
            put(&mut SeededRng::new(3), class, &mut pod);
            assert_ne!(pod, bare(), "{class}");
        }
        let mut pod = bare();
        put(&mut SeededRng::new(3), "unheard-of", &mut pod);
        assert_eq!(pod, bare());
    }
}
