//! Random constraints of pods, with one generator for each class. A generator adds the constraint to the pod it gets.

use serde_json::{Value, json};

use super::dice::Dice;
use super::terrain::{GPU, HOST, KEYS, LATE_CLAIMS, RACK, ZONE, ZONES};

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
pub fn put(dice: &mut Dice, class: &str, pod: &mut Value) {
    let spec = &mut pod["spec"];
    match class {
        "resources" => {
            requests(dice, &mut spec["containers"][0], &["300m", "900m", "1700m", "3"], &["512Mi", "3Gi"]);
        }
        "initContainers" => init_containers(dice, spec),
        "podResources" => {
            let (cpu, memory) = (dice.pick(&["1", "1700m", "3"]), dice.pick(&["512Mi", "2Gi"]));
            spec["resources"]["requests"] = json!({"cpu": cpu, "memory": memory});
        }
        "overhead" => spec["runtimeClassName"] = json!(dice.pick(&HEAVY).0),
        "extendedResource" => gpu(dice, spec),
        "nodeSelector" => node_selector(dice, spec),
        "nodeAffinity" => node_affinity(dice, spec),
        "tolerations" => tolerations(dice, spec),
        "podAffinity" if dice.one_in(3) => together(dice, pod),
        "podAffinity" => affinity(dice, spec, "podAffinity"),
        "podAntiAffinity" => affinity(dice, spec, "podAntiAffinity"),
        "spreadZone" => spread(dice, spec, ZONE),
        "spreadHost" => spread(dice, spec, HOST),
        "spreadConfined" => confined(dice, spec),
        "spreadTaints" => taints(dice, spec),
        "minDomains" => min_domains(dice, spec),
        "hostPort" => ports(dice, spec),
        "volume" => volume(dice, spec),
        "volumeToCome" => use_claim(spec, &format!("late-{}", dice.below(LATE_CLAIMS))),
        _ => {}
    }
}

/// Adds preferences, which do not affect whether a pod can be placed.
pub fn noise(dice: &mut Dice, spec: &mut Value) {
    match dice.below(4) {
        0 => push(
            &mut spec["topologySpreadConstraints"],
            json!({
                "topologyKey": "nobody/has-this", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": selector(dice),
            }),
        ),
        1 => push(
            &mut spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"],
            json!({"weight": 50, "podAffinityTerm": {"topologyKey": HOST, "labelSelector": selector(dice)}}),
        ),
        2 => push(
            &mut spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"],
            json!({"weight": 7, "preference": node_term(dice)}),
        ),
        _ => {}
    }
}

fn requests(dice: &mut Dice, container: &mut Value, cpu: &[&str], memory: &[&str]) {
    container["resources"]["requests"] = json!({"cpu": dice.pick(cpu), "memory": dice.pick(memory)});
    if dice.one_in(6) {
        container["resources"]["requests"]["ephemeral-storage"] = json!(dice.pick(&["4Gi", "15Gi"]));
    }
}

/// The maximum of what runs at the same time counts: init containers one by one, each together with the sidecars
/// started before it.
fn init_containers(dice: &mut Dice, spec: &mut Value) {
    let mut made = Vec::new();
    for number in 0..=dice.below(3) {
        let mut container = json!({"name": format!("init-{number}"), "image": "none"});
        requests(dice, &mut container, &["400m", "700m", "1300m"], &["256Mi", "1Gi", "2Gi"]);
        if dice.one_in(2) {
            container["restartPolicy"] = json!("Always");
        }
        made.push(container);
    }
    spec["initContainers"] = Value::Array(made);
}

fn gpu(dice: &mut Dice, spec: &mut Value) {
    let count = json!(dice.pick(&["1", "2"]));
    spec["containers"][0]["resources"]["requests"][GPU] = count.clone();
    // The API server requires that requests and limits are equal for such resources.
    spec["containers"][0]["resources"]["limits"] = json!({GPU: count});
}

fn node_selector(dice: &mut Dice, spec: &mut Value) {
    let mut wanted = json!({});
    let choices =
        [("disk", "ssd"), ("generation", "2"), (ZONE, "za"), ("pool-size", "large"), ("pool-size", "small")];
    for _ in 0..=dice.below(2) {
        let (key, value) = *dice.pick(&choices);
        wanted[key] = json!(value);
    }
    spec["nodeSelector"] = wanted;
}

fn node_affinity(dice: &mut Dice, spec: &mut Value) {
    let terms: Vec<Value> = (0..=dice.below(2)).map(|_| node_term(dice)).collect();
    spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({"nodeSelectorTerms": terms});
}

/// A term over node labels: one or two rules.
fn node_term(dice: &mut Dice) -> Value {
    let rules: Vec<Value> = (0..=dice.below(2))
        .map(|_| match dice.below(7) {
            0 => json!({"key": "disk", "operator": "In", "values": ["ssd", "tape"]}),
            1 => json!({"key": "disk", "operator": "NotIn", "values": [dice.pick(&["ssd", "hdd"])]}),
            2 => json!({"key": "generation", "operator": "Gt", "values": [dice.pick(&["1", "2"])]}),
            3 => json!({"key": "generation", "operator": "Lt", "values": ["3"]}),
            4 => json!({"key": dice.pick(&["disk", ZONE]), "operator": "DoesNotExist"}),
            5 => json!({"key": dice.pick(&["generation", "pool-size"]), "operator": "Exists"}),
            _ => json!({"key": ZONE, "operator": "In", "values": [dice.pick(&ZONES)]}),
        })
        .collect();
    json!({"matchExpressions": rules})
}

fn tolerations(dice: &mut Dice, spec: &mut Value) {
    let mut made = Vec::new();
    for _ in 0..=dice.below(2) {
        let effect = *dice.pick(&["NoSchedule", "NoExecute", ""]);
        made.push(match dice.below(5) {
            0 => json!({"key": "dedicated", "operator": "Equal", "value": dice.pick(&["red", "blue"]), "effect": effect}),
            1 => json!({"key": "dedicated", "operator": "Exists", "effect": effect}),
            2 => json!({"key": "maintenance", "operator": "Exists", "effect": effect}),
            3 => json!({"operator": "Exists", "effect": effect}),
            _ => json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}),
        });
    }
    spec["tolerations"] = Value::Array(made);
    // Nodes that other pods must not use have room.
    if dice.one_in(2) {
        spec["containers"][0]["resources"]["requests"]["cpu"] = json!("900m");
    }
}

/// A selector over the labels of pods here.
pub fn selector(dice: &mut Dice) -> Value {
    match dice.below(10) {
        0 => json!({}),
        1 => json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
        2 => json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}),
        3 => {
            json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [dice.pick(&["red", "blue"])]}]})
        }
        4 => json!({
            "matchLabels": {"app": dice.pick(&["red", "green"])},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["web", "db"]}],
        }),
        _ => json!({"matchLabels": {"app": dice.pick(&["red", "green", "blue"])}}),
    }
}

fn affinity(dice: &mut Dice, spec: &mut Value, kind: &str) {
    let terms: Vec<Value> = (0..=usize::from(dice.one_in(4))).map(|_| pod_term(dice)).collect();
    spec["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"] = Value::Array(terms);
}

/// Pods with affinity to their own group: the first of a group may be placed anywhere.
fn together(dice: &mut Dice, pod: &mut Value) {
    let group = dice.pick(&["one", "two", "three", "four"]);
    pod["metadata"]["labels"]["group"] = json!(group);
    let selector = json!({"matchLabels": {"group": group}});
    pod["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!([{"topologyKey": dice.pick(&KEYS), "labelSelector": selector}]);
}

fn pod_term(dice: &mut Dice) -> Value {
    let mut term = json!({"topologyKey": dice.pick(&KEYS)});
    // Without a selector a term selects no pod.
    if !dice.one_in(12) {
        term["labelSelector"] = selector(dice);
        match dice.below(8) {
            0 => term["matchLabelKeys"] = json!(["version"]),
            1 => term["mismatchLabelKeys"] = json!(["version"]),
            _ => {}
        }
    }
    match dice.below(6) {
        0 => term["namespaceSelector"] = json!({}),
        1 => term["namespaceSelector"] = json!({"matchLabels": {"team": dice.pick(&["one", "two"])}}),
        _ => {}
    }
    term
}

fn constraint(dice: &mut Dice, key: &str) -> Value {
    let mut made = json!({
        "topologyKey": key,
        "maxSkew": 1 + dice.below(2),
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector(dice),
    });
    // Both versions of one workload, which the label key distinguishes.
    if dice.one_in(3) {
        made["labelSelector"] = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
        made["maxSkew"] = json!(1);
        made["matchLabelKeys"] = json!(["version"]);
    }
    made
}

fn spread(dice: &mut Dice, spec: &mut Value, key: &str) {
    let made = constraint(dice, key);
    push(&mut spec["topologySpreadConstraints"], made);
}

/// A spread over zones of a pod that may only use one of them, so that only the skew decides.
fn confined(dice: &mut Dice, spec: &mut Value) {
    spec["nodeSelector"][ZONE] = json!(dice.pick(&ZONES));
    let mut made = constraint(dice, ZONE);
    made["labelSelector"] = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
    made["nodeAffinityPolicy"] = json!(dice.pick(&["Ignore", "Ignore", "Honor"]));
    if dice.one_in(2) {
        made["matchLabelKeys"] = json!(["version"]);
    }
    push(&mut spec["topologySpreadConstraints"], made);
}

/// A spread over hosts or zones, some of which are closed to the pod: the policy decides whether they count.
fn taints(dice: &mut Dice, spec: &mut Value) {
    if dice.one_in(2) {
        spec["nodeSelector"]["disk"] = json!(dice.pick(&["ssd", "hdd"]));
    }
    let key = *dice.pick(&[HOST, ZONE]);
    let mut made = constraint(dice, key);
    made["labelSelector"] = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
    made["nodeTaintsPolicy"] = json!(dice.pick(&["Honor", "Honor", "Ignore"]));
    push(&mut spec["topologySpreadConstraints"], made);
}

/// A spread over few domains that are all in use: whether there are fewer than required decides.
fn min_domains(dice: &mut Dice, spec: &mut Value) {
    let key = *dice.pick(&[ZONE, RACK]);
    let mut made = constraint(dice, key);
    made["labelSelector"] = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
    made["nodeTaintsPolicy"] = json!("Honor");
    made["minDomains"] = json!(dice.pick(&[2, 3, 5, 8]));
    push(&mut spec["topologySpreadConstraints"], made);
}

fn ports(dice: &mut Dice, spec: &mut Value) {
    let port = dice.pick(&[8080, 8080, 8081]);
    if dice.one_in(6) {
        spec["hostNetwork"] = json!(true);
        spec["containers"][0]["ports"] = json!([{"containerPort": port}]);
        return;
    }
    let mut made = json!({"containerPort": port, "hostPort": port});
    if dice.one_in(4) {
        made["protocol"] = json!("UDP");
    }
    if dice.one_in(4) {
        made["hostIP"] = json!(dice.pick(&["10.0.0.1", "10.0.0.2"]));
    }
    spec["containers"][0]["ports"] = json!([made]);
}

fn volume(dice: &mut Dice, spec: &mut Value) {
    let claims =
        ["data-za", "data-zb", "data-zc", "data-host", "data-any", "data-once", "data-unbound", "data-none"];
    let claim = dice.pick(&claims);
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
            put(&mut Dice::new(3), class, &mut pod);
            assert_ne!(pod, bare(), "{class}");
        }
        let mut pod = bare();
        put(&mut Dice::new(3), "unheard-of", &mut pod);
        assert_eq!(pod, bare());
    }
}
