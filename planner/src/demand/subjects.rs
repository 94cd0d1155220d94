//! Which pods match which selectors.
//!
//! Only those labels of a pod are kept that some selector of the pass looks at: the pods of a `StatefulSet`, each with
//! its own name as a label, are equal while no selector uses that label.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;

use crate::demand::pod_requirements::{Matcher, PodRequirements};
use crate::index::{Indexed, index_type};
use crate::input::pod_info::PodShape;
use crate::requirements::selectors::Selector;
use crate::steps;

/// The label that the API server sets on every namespace.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Index of a [`Matcher`] in [`Matchers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct MatcherId(pub(super) usize);
index_type!(MatcherId);

/// All matchers of the pass, without duplicates.
#[derive(Debug, Default)]
pub(super) struct Matchers<'a> {
    ids: HashMap<&'a Matcher, MatcherId>,
    all: Indexed<MatcherId, &'a Matcher>,
    /// Those that require a certain value of a label.
    anchored: HashMap<(&'a str, &'a str), Vec<MatcherId>>,
    /// The others.
    floating: Vec<MatcherId>,
    /// The label keys that some selector looks at.
    keys: HashSet<&'a str>,
}

impl<'a> Matchers<'a> {
    pub(super) fn of(all_requirements: &'a [Arc<PodRequirements>]) -> Self {
        let mut matchers = Self::default();
        for matcher in all_requirements.iter().flat_map(|requirements| requirements.matchers()) {
            let next = matchers.all.next();
            if *matchers.ids.entry(matcher).or_insert(next) == next {
                matchers.all.push(matcher);
            }
        }
        matchers.index();
        matchers
    }

    /// Indexes every matcher by the one of its labels that the fewest other matchers require: thousands may require one
    /// value of a label and each its own value of another label.
    fn index(&mut self) {
        let selectors = self.all.enumerated().filter_map(|(id, m)| Some((id, m.selector.as_ref()?)));
        let mut asked: HashMap<(&str, &str), usize> = HashMap::new();
        for (_, selector) in selectors.clone() {
            selector.anchors().for_each(|anchor| *asked.entry(anchor).or_default() += 1);
        }
        for (id, selector) in selectors {
            self.keys.extend(selector.keys());
            match selector.anchors().min_by_key(|anchor| asked.get(anchor)) {
                Some(anchor) => self.anchored.entry(anchor).or_default().push(id),
                None => self.floating.push(id),
            }
        }
    }

    pub(super) fn id(&self, matcher: &Matcher) -> Option<MatcherId> {
        self.ids.get(matcher).copied()
    }

    /// A list with the same value for each matcher.
    pub(super) fn each<T: Clone>(&self, value: T) -> Indexed<MatcherId, T> {
        vec![value; self.all.len()].into()
    }

    /// The part of a pod that matchers look at.
    pub(super) fn subject<'p>(&self, shape: &'p PodShape) -> Subject<'p> {
        let labels = shape.labels().iter();
        Subject {
            namespace: shape.namespace(),
            labels: labels
                .filter(|(key, _)| self.keys.contains(key.as_str()))
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect(),
        }
    }

    /// The matchers that match a subject, sorted.
    pub(super) fn matched(&self, subject: &Subject<'_>, namespaces: &NamespaceLabels<'_>) -> Vec<MatcherId> {
        let anchored = subject.labels.iter().filter_map(|&(key, value)| self.anchored.get(&(key, value)));
        let candidates = anchored.flatten().chain(&self.floating).copied();
        let mut matched: Vec<_> =
            steps::counted(candidates).filter(|&id| matches(self.all[id], subject, namespaces)).collect();
        matched.sort_unstable();
        matched
    }
}

/// Index of a [`Subject`] among those of the pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SubjectId(usize);
index_type!(SubjectId);

/// The part of a pod that selectors can see.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Subject<'p> {
    namespace: &'p str,
    /// Sorted by key.
    labels: Vec<(&'p str, &'p str)>,
}

fn matches(matcher: &Matcher, subject: &Subject<'_>, namespaces: &NamespaceLabels<'_>) -> bool {
    let value = |key: &str| {
        subject.labels.binary_search_by(|(k, _)| (*k).cmp(key)).ok().map(|at| subject.labels[at].1)
    };
    let Matcher { selector, namespaces: wanted } = matcher;
    selector.as_ref().is_some_and(|selector| selector.matches_with(value))
        && (wanted.listed.contains(subject.namespace)
            || wanted.selector.as_ref().is_some_and(|s| namespaces.select(s, subject.namespace)))
}

/// The labels of namespaces.
#[derive(Debug)]
pub(super) struct NamespaceLabels<'a> {
    labels: HashMap<&'a str, &'a BTreeMap<String, String>>,
}

impl<'a> NamespaceLabels<'a> {
    pub(super) fn of(namespaces: &'a [Arc<Namespace>]) -> Self {
        let labels = namespaces.iter().filter_map(|namespace| {
            Some((namespace.metadata.name.as_deref()?, namespace.metadata.labels.as_ref()?))
        });
        Self { labels: labels.collect() }
    }

    /// An unknown namespace has the one label that all namespaces have: its name.
    fn select(&self, selector: &Selector, namespace: &str) -> bool {
        let labels = self.labels.get(namespace);
        selector.matches_with(|key| match labels.and_then(|labels| labels.get(key)) {
            Some(value) => Some(value.as_str()),
            None if key == NAMESPACE_NAME_LABEL => Some(namespace),
            None => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::input::pod_info::PodInfo;

    fn pod(labels: &Value) -> PodInfo {
        serde_json::from_value(json!({ "metadata": { "namespace": "x", "labels": labels } })).unwrap()
    }

    #[test]
    fn labels_that_no_selector_uses_do_not_tell_pods_apart() {
        let term = json!([{ "topologyKey": "h", "labelSelector": { "matchLabels": { "app": "a" } } }]);
        let asking: PodInfo =
            serde_json::from_value(json!({ "spec": { "containers": [], "affinity": { "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": term } } } }))
            .unwrap();
        let all_requirements = [Arc::new(PodRequirements::of(asking.shape()))];
        let matchers = Matchers::of(&all_requirements);
        let (one, two) = (pod(&json!({ "app": "a", "name": "1" })), pod(&json!({ "app": "a", "name": "2" })));
        assert_eq!(matchers.subject(one.shape()), matchers.subject(two.shape()));
        assert_ne!(matchers.subject(one.shape()), matchers.subject(pod(&json!({ "app": "b" })).shape()));
    }
}
