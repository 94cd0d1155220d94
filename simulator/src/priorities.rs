//! Priorities of pods that did not pass admission: the value that the API server's Priority plugin would have written
//! into `spec.priority`.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::scheduling::v1::PriorityClass;
use planner::input::observed::key;
use planner::input::pod_info::PodInfo;
use shared_crds::QualifiedName;

use crate::text::named;

/// The classes of every cluster, with their values
/// (<https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/>).
const BUILT_IN: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// Sets the priority of every pod without one to that of its class, or of the default class, and returns the names of
/// missing classes.
pub(super) fn resolve(pods: &mut [Arc<PodInfo>], classes: &[Arc<PriorityClass>]) -> Vec<String> {
    let by_name: BTreeMap<&str, i32> = BUILT_IN
        .into_iter()
        .chain(classes.iter().map(|class| (key(&class.metadata).1, class.value.unwrap_or(0))))
        .collect();
    // Where there are several default classes, the lowest counts, as in the API server.
    let default = classes
        .iter()
        .filter(|class| class.global_default == Some(true))
        .map(|class| class.value.unwrap_or(0))
        .min();
    let mut missing = BTreeMap::<String, Vec<String>>::new();
    for pod in pods {
        let Some(spec) = pod.spec().filter(|spec| spec.priority.is_none()) else { continue };
        let priority = match spec.priority_class_name.as_deref().filter(|name| !name.is_empty()) {
            None => default,
            Some(name) => {
                let found = by_name.get(name).copied();
                if found.is_none() {
                    let pod = QualifiedName::from(pod.key()).to_string();
                    missing.entry(name.to_owned()).or_default().push(pod);
                }
                found
            }
        };
        if priority.is_some()
            && let Some(spec) = Arc::make_mut(pod).pod_mut().spec.as_mut()
        {
            spec.priority = priority;
        }
    }
    let line = |(class, pods): (String, Vec<String>)| {
        format!(
            "the PriorityClass {class} is not among the objects; planned with priority 0: {}",
            named(&pods)
        )
    };
    missing.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn class(name: &str, value: i32, default: bool) -> Arc<PriorityClass> {
        let object = json!({ "metadata": { "name": name }, "value": value, "globalDefault": default });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_pod_gets_the_priority_that_admission_would_give_it() {
        let classes = [class("high", 1000, false), class("usual", 5, true), class("also-usual", 9, true)];
        for (spec, classes, expected) in [
            (json!({ "priorityClassName": "high" }), &classes[..], Some(1000)),
            (json!({ "priorityClassName": "high", "priority": 3 }), &classes, Some(3)),
            (json!({}), &classes, Some(5)),
            (json!({}), &[], None),
            (json!({ "priorityClassName": "" }), &classes, Some(5)),
            (json!({ "priorityClassName": "system-node-critical" }), &[], Some(2_000_001_000)),
            (json!({ "priorityClassName": "unknown" }), &classes, None),
        ] {
            let mut object: Value =
                json!({ "metadata": { "name": "p", "namespace": "ns" }, "spec": { "containers": [] } });
            object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            let mut pods = [Arc::new(serde_json::from_value::<PodInfo>(object).unwrap())];
            let warnings = resolve(&mut pods, classes);
            assert_eq!(pods[0].spec().unwrap().priority, expected, "{spec}");
            let known = spec["priorityClassName"] != "unknown";
            assert_eq!(warnings.is_empty(), known, "{warnings:?}");
        }
    }
}
