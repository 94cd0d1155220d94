//! `PodDisruptionBudget`s, and the Deployments whose pods they are about.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::audit::Event;

/// Labels of pods, or a selector of them.
pub(super) type PodLabels = BTreeMap<String, String>;

/// How many pods a budget keeps.
#[derive(Clone, Copy, Debug)]
enum Keeps {
    AtLeast(i64),
    AllBut(i64),
}

/// Budgets and Deployments of a namespace, by name.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    budgets: BTreeMap<String, (PodLabels, Keeps)>,
    deployments: BTreeMap<String, (PodLabels, i64)>,
}

impl Budgets {
    /// Reads a write of a budget.
    pub(super) fn read_budget(&mut self, event: &Event) {
        let (Some(object), Some(answer)) = (&event.object, &event.response) else { return };
        if event.verb == "delete" {
            self.budgets.remove(&object.name);
            return;
        }
        let spec = &answer["spec"];
        let keeps = match (spec["maxUnavailable"].as_i64(), spec["minAvailable"].as_i64()) {
            (Some(missing), _) => Keeps::AllBut(missing),
            (None, least) => Keeps::AtLeast(least.unwrap_or(0)),
        };
        self.budgets.insert(object.name.clone(), (labels(&spec["selector"]["matchLabels"]), keeps));
    }

    /// Reads a write of a Deployment.
    pub(super) fn read_deployment(&mut self, event: &Event) {
        let (Some(object), Some(answer)) = (&event.object, &event.response) else { return };
        if event.verb == "delete" {
            self.deployments.remove(&object.name);
            return;
        }
        let spec = &answer["spec"];
        let selector = labels(&spec["selector"]["matchLabels"]);
        self.deployments.insert(object.name.clone(), (selector, spec["replicas"].as_i64().unwrap_or(1)));
    }

    /// For each budget of a pod: its name, its selector, and how many pods it keeps now.
    pub(super) fn of<'a>(
        &'a self,
        pod: &'a PodLabels,
    ) -> impl Iterator<Item = (&'a str, &'a PodLabels, i64)> {
        self.budgets.iter().filter(|(_, (selector, _))| selects(selector, pod)).map(
            |(name, (selector, keeps))| {
                let least = match keeps {
                    Keeps::AtLeast(least) => *least,
                    Keeps::AllBut(missing) => self.wanted(selector).unwrap_or(0) - missing,
                };
                (name.as_str(), selector, least)
            },
        )
    }

    /// How many pods with these labels there should be; `None` where no Deployment has them.
    pub(super) fn wanted(&self, pod: &PodLabels) -> Option<i64> {
        self.deployments.values().find(|(selector, _)| selects(selector, pod)).map(|(_, replicas)| *replicas)
    }
}

/// Whether the selector selects pods with these labels.
pub(super) fn selects(selector: &PodLabels, pod: &PodLabels) -> bool {
    selector.iter().all(|(key, value)| pod.get(key) == Some(value))
}

/// The labels in an object.
pub(super) fn labels(value: &Value) -> PodLabels {
    let all = value.as_object().into_iter().flatten();
    all.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
