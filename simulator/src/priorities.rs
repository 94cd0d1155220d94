//! Priorities of pods that did not pass admission: the value that the API server's Priority plugin would have written
//! into `spec.priority`.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use planner::BUILT_IN_PRIORITIES;
use planner::input::{PodInfo, key};
use shared_crds::QualifiedName;

use crate::text::named;

/// The values of all priority classes.
struct Values<'a> {
    by_name: BTreeMap<&'a str, i32>,
    /// That of pods that name no class.
    default: Option<i32>,
}

impl<'a> Values<'a> {
    fn of(classes: &'a [Arc<PriorityClass>]) -> Self {
        let named = classes.iter().map(|class| (key(&class.metadata).1, class.value.unwrap_or(0)));
        // Where there are several default classes, the lowest counts, as in the API server.
        let default = classes
            .iter()
            .filter(|class| class.global_default == Some(true))
            .map(|class| class.value.unwrap_or(0))
            .min();
        Self { by_name: BUILT_IN_PRIORITIES.into_iter().chain(named).collect(), default }
    }

    /// The priority that admission writes into `spec`.
    ///
    /// # Errors
    ///
    /// The name of a class that is missing.
    fn admitted<'s>(&self, spec: &'s PodSpec) -> Result<Option<i32>, &'s str> {
        match spec.priority_class_name.as_deref().filter(|name| !name.is_empty()) {
            None => Ok(self.default),
            Some(name) => self.by_name.get(name).copied().map(Some).ok_or(name),
        }
    }
}

/// Sets the priority of every `DaemonSet`'s template without one, as admission does for its pods.
pub(super) fn resolve_templates(daemon_sets: &mut [Arc<DaemonSet>], classes: &[Arc<PriorityClass>]) {
    let values = Values::of(classes);
    for daemon_set in daemon_sets {
        let spec = daemon_set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let Some(spec) = spec.filter(|spec| spec.priority.is_none()) else { continue };
        let Ok(Some(priority)) = values.admitted(spec) else { continue };
        let spec = Arc::make_mut(daemon_set).spec.as_mut();
        if let Some(spec) = spec.and_then(|spec| spec.template.spec.as_mut()) {
            spec.priority = Some(priority);
        }
    }
}

/// Sets the priority of every pod without one to that of its class, or of the default class, and returns the names of
/// missing classes.
pub(super) fn resolve(pods: &mut [Arc<PodInfo>], classes: &[Arc<PriorityClass>]) -> Vec<String> {
    let values = Values::of(classes);
    let mut missing = BTreeMap::<String, Vec<String>>::new();
    for pod in pods {
        let Some(spec) = pod.spec().filter(|spec| spec.priority.is_none()) else { continue };
        let priority = match values.admitted(spec) {
            Ok(priority) => priority,
            Err(class) => {
                let id = QualifiedName::from(pod.key()).to_string();
                missing.entry(class.to_owned()).or_default().push(id);
                None
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
    fn a_daemon_set_gets_the_priority_that_its_pods_would_get() {
        let classes = [class("high", 1000, false), class("usual", 5, true)];
        for (spec, expected) in [
            (json!({ "priorityClassName": "high", "containers": [] }), Some(1000)),
            (json!({ "priorityClassName": "high", "priority": 3, "containers": [] }), Some(3)),
            (json!({ "containers": [] }), Some(5)),
            (json!({ "priorityClassName": "unknown", "containers": [] }), None),
        ] {
            let object = json!({ "metadata": { "name": "d" }, "spec": { "selector": {}, "template": { "spec": spec } } });
            let mut daemon_sets = [Arc::new(serde_json::from_value::<DaemonSet>(object).unwrap())];
            resolve_templates(&mut daemon_sets, &classes);
            let priority = daemon_sets[0].spec.as_ref().unwrap().template.spec.as_ref().unwrap().priority;
            assert_eq!(priority, expected, "{spec}");
        }
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
