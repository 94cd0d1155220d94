//! The pods of a namespace: where they are, whether they are available, and why they end.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::budgets::{self, PodLabels};
use super::pool::{CLOCKS, VIEW_AGE};
use crate::audit::Event;

/// How long after its grace period a pod whose end nobody confirms holds its node.
const OVERDUE: SignedDuration = SignedDuration::from_secs(60);

/// Who may end a pod, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Allowance {
    /// An eviction that the API server granted, so within the pod's budgets as the server counts them.
    Eviction,
    /// Its owner has too many.
    Owner,
    /// The machine is off: Kubernetes gives the pod up.
    MachineOff,
    /// Its node has not been Ready for longer than the pod tolerates.
    Unreachable,
    /// `spec.drain.timeoutSeconds` was nearly over.
    Forced,
}

/// A request to end a pod.
pub(super) enum Ending {
    Evicted,
    /// A DELETE by this user.
    Deleted(String),
}

/// A pod.
#[derive(Clone, Debug, Default)]
pub(super) struct PodState {
    pub(super) labels: PodLabels,
    /// Where it was put.
    pub(super) node: Option<String>,
    is_ready: bool,
    /// Since when it is not Ready, if it once was.
    broke: Option<Timestamp>,
    /// Its containers have ended by themselves.
    is_over: bool,
    /// When it was asked to end, allowed or not.
    leaves: Option<Timestamp>,
    pub(super) grace: i64,
}

impl PodState {
    /// Whether it was asked to end so long ago that it holds its node no longer (docs/guides/drain.md).
    fn is_overdue(&self, at: Timestamp) -> bool {
        let waits = SignedDuration::from_secs(self.grace) + OVERDUE - CLOCKS;
        self.leaves.is_some_and(|leaves| at >= leaves + waits)
    }

    pub(super) fn is_available(&self) -> bool {
        self.is_ready && self.leaves.is_none() && !self.is_over
    }
}

/// What a write did to the pods, with the pod as it was before.
pub(super) struct PodChange {
    pub(super) name: String,
    pub(super) before: PodState,
    /// It was asked to end for the first time.
    pub(super) ending: Option<Ending>,
    /// It was put on this node.
    pub(super) bound: bool,
}

/// All pods that exist.
pub(super) struct AppPods {
    pods: BTreeMap<String, PodState>,
    /// The pods with a granted eviction somewhere in the log. A kubelet may confirm the end before the eviction is answered.
    evicted: BTreeSet<String>,
}

impl AppPods {
    /// No pod yet, and the evictions that will have been granted.
    pub(super) fn with_evictions(granted: &[&Event]) -> Self {
        let evictions = granted.iter().filter(|event| event.subresource == "eviction");
        let evicted = evictions.filter_map(|event| Some(event.object.as_ref()?.name.clone())).collect();
        Self { pods: BTreeMap::new(), evicted }
    }

    /// Reads a write of a pod; `None` when it says nothing new.
    pub(super) fn read(&mut self, event: &Event) -> Option<PodChange> {
        let name = event.object.as_ref()?.name.clone();
        let change = |before: &PodState, ending, bound| {
            Some(PodChange { name: name.clone(), before: before.clone(), ending, bound })
        };
        match (event.verb.as_str(), event.subresource.as_str()) {
            ("create", "eviction") => {
                let pod = self.pods.get_mut(&name).filter(|pod| pod.leaves.is_none())?;
                let change = change(pod, Some(Ending::Evicted), false);
                pod.leaves.get_or_insert(event.completed);
                change
            }
            ("create", "binding") => {
                let target = event.request.as_ref()?["target"]["name"].as_str()?;
                let pod = self.pods.get_mut(&name)?;
                pod.node = Some(target.to_owned());
                change(pod, None, true)
            }
            ("delete", "") => {
                let answer = event.response.as_ref()?;
                let pod = self.pods.get_mut(&name)?;
                let ending = (pod.leaves.is_none()).then(|| {
                    if self.evicted.contains(&name) {
                        Ending::Evicted
                    } else {
                        Ending::Deleted(event.user.clone())
                    }
                });
                let change = change(pod, ending, false);
                pod.leaves.get_or_insert(event.completed);
                if answer["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0 {
                    self.pods.remove(&name);
                }
                change
            }
            _ => {
                self.update(&name, event.response.as_ref()?, event);
                None
            }
        }
    }

    fn update(&mut self, name: &str, answer: &Value, event: &Event) {
        if answer["kind"] != "Pod" {
            return;
        }
        if event.verb == "create" {
            self.pods.entry(name.to_owned()).or_default();
        }
        let Some(pod) = self.pods.get_mut(name) else { return };
        let (metadata, status) = (&answer["metadata"], &answer["status"]);
        pod.labels = budgets::labels(&metadata["labels"]);
        pod.grace = answer["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(0);
        if let Some(node) = answer["spec"]["nodeName"].as_str() {
            pod.node = Some(node.to_owned());
        }
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let is_ready = conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
        pod.broke = match (pod.is_ready, is_ready) {
            (true, false) => Some(event.completed),
            (_, true) => None,
            (false, false) => pod.broke,
        };
        pod.is_ready = is_ready;
        pod.is_over = ["Succeeded", "Failed"].iter().any(|phase| status["phase"] == *phase);
    }

    /// How many pods a selector selects that are available, or were until so lately that a budget may not have counted it yet.
    pub(super) fn available(&self, selector: &PodLabels, at: Timestamp) -> i64 {
        let is_counted = |pod: &&PodState| {
            let broke_lately = pod.broke.is_some_and(|broke| broke >= at - VIEW_AGE);
            pod.is_available() || (broke_lately && pod.leaves.is_none() && !pod.is_over)
        };
        self.count(selector, is_counted)
    }

    /// How many pods a selector selects that nobody has asked to end.
    pub(super) fn staying(&self, selector: &PodLabels) -> i64 {
        self.count(selector, |pod| pod.leaves.is_none() && !pod.is_over)
    }

    fn count(&self, selector: &PodLabels, is_meant: impl Fn(&&PodState) -> bool) -> i64 {
        let selected = self.pods.values().filter(|pod| budgets::selects(selector, &pod.labels));
        i64::try_from(selected.filter(is_meant).count()).unwrap_or(i64::MAX)
    }

    /// The pods that are still on a node, and whether each was allowed to be left there.
    pub(super) fn on<'a>(&'a self, node: &'a str, at: Timestamp) -> impl Iterator<Item = (&'a str, bool)> {
        let there =
            self.pods.iter().filter(move |(_, pod)| pod.node.as_deref() == Some(node) && !pod.is_over);
        there.map(move |(name, pod)| (name.as_str(), pod.is_overdue(at)))
    }
}
