//! Property tests: pod classes and topology counts give the same answer for every two pods as their constraints
//! evaluated directly.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod, PodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::cases::object;
use super::nominations::Nominations;
use super::{Demand, PodInterner};
use crate::demand::pod_requirements::PodRequirements;
use crate::demand::supplies::PodVolumes;
use crate::fixtures::merged;
use crate::index::{Indexed, PodIndex};
use crate::input::observed::{Observed, PassInput, PassNodes, PassPods};
use crate::input::pod_info::{PodInfo, PodShapes};
use crate::requirements::pod_class::{PodClass, TopologySpread};
use crate::resources::{Amounts, ResourceNames};

fn selector() -> impl Strategy<Value = Value> {
    let rule = |key: &str, operator: &str, values: &[&str]| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
    prop::sample::select(vec![
        json!({}),
        Value::Null,
        json!({ "matchLabels": { "a": "1" } }),
        json!({ "matchLabels": { "a": "1", "b": "2" } }),
        rule("a", "In", &["1", "2"]),
        rule("a", "NotIn", &["1"]),
        rule("b", "Exists", &[]),
        rule("b", "DoesNotExist", &[]),
    ])
}

fn term() -> impl Strategy<Value = Value> {
    let namespaces = prop::sample::select(vec![
        json!({}),
        json!({ "namespaces": ["y"] }),
        json!({ "namespaceSelector": {} }),
        json!({ "namespaceSelector": { "matchLabels": { "team": "1" } } }),
        json!({ "namespaces": ["y"], "namespaceSelector": { "matchLabels": { "team": "1" } } }),
    ]);
    (selector(), namespaces, prop::sample::select(vec!["zone", "host"])).prop_map(
        |(selector, namespaces, key)| {
            merged(json!({ "labelSelector": selector, "topologyKey": key }), namespaces)
        },
    )
}

fn spread() -> impl Strategy<Value = Value> {
    (selector(), prop::sample::select(vec!["zone", "host"]), 1..3, any::<bool>()).prop_map(
        |(selector, key, skew, own)| {
            let keys = if own && !selector.is_null() { json!(["a"]) } else { json!([]) };
            json!({ "labelSelector": selector, "topologyKey": key, "maxSkew": skew, "matchLabelKeys": keys,
                "whenUnsatisfiable": "DoNotSchedule" })
        },
    )
}

fn labels() -> impl Strategy<Value = Value> {
    let value = || prop::option::of(prop::sample::select(vec!["1", "2"]));
    (value(), value()).prop_map(|(a, b)| {
        let labels = [("a", a), ("b", b)].into_iter().filter_map(|(key, value)| Some((key, value?)));
        json!(labels.collect::<BTreeMap<_, _>>())
    })
}

/// A pod that is pending, bound or being deleted, with some constraints.
fn pod() -> impl Strategy<Value = Value> {
    let terms = || prop::collection::vec(term(), 0..3);
    let state = prop::sample::select(vec![
        json!({ "spec": { "nodeName": "n" } }),
        json!({ "spec": { "nodeName": "n" }, "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
        json!({ "status": { "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }] } }),
    ]);
    let parts = (
        labels(),
        prop::sample::select(vec!["x", "y"]),
        terms(),
        terms(),
        prop::collection::vec(spread(), 0..3),
        state,
    );
    parts.prop_map(|(labels, namespace, affinity, anti_affinity, spreads, state)| {
        let required = |terms: Vec<Value>| json!({ "requiredDuringSchedulingIgnoredDuringExecution": terms });
        merged(
            json!({ "metadata": { "namespace": namespace, "labels": labels }, "spec": { "containers": [],
                "topologySpreadConstraints": spreads,
                "affinity": { "podAffinity": required(affinity), "podAntiAffinity": required(anti_affinity) } } }),
            state,
        )
    })
}

fn pods(written: Vec<Value>) -> Vec<Arc<PodInfo>> {
    let named = written.into_iter().enumerate();
    let mut pods: Vec<Arc<PodInfo>> = named
        .map(|(i, pod)| object(merged(pod, json!({ "metadata": { "name": format!("p{i}") } }))))
        .collect();
    pods.sort_by(|a, b| a.key().cmp(&b.key()));
    pods
}

/// The shape, with labels, and with the one field that is not in it and that other pods see.
fn whole(pod: &PodInfo) -> Pod {
    let mut whole = pod.shape().pod().clone();
    whole.metadata.labels = Some(pod.labels().clone());
    whole.metadata.deletion_timestamp =
        pod.deleted().map(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time);
    whole
}

fn observed() -> Observed {
    let namespace = |name: &str, team: &str| -> Arc<Namespace> {
        object(json!({ "metadata": { "name": name, "labels": { "team": team } } }))
    };
    Observed { namespaces: vec![namespace("x", "1"), namespace("y", "2")], ..Observed::default() }
}

fn read(pods: &[Arc<PodInfo>], interner: &mut PodInterner) -> Demand {
    let node: Arc<Node> = object(json!({ "metadata": { "name": "n" } }));
    let (nodes, pods) = (PassNodes::from(vec![node]), PassPods::from(pods.to_vec()));
    let observed = observed();
    let input = PassInput { observed: &observed, nodes: &nodes, pods: &pods };
    let nominations = Nominations::default();
    Demand::of(input, &nominations, &mut ResourceNames::default(), &Amounts::default(), interner)
}

fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
        && selector.match_expressions.iter().flatten().all(|rule| {
            let listed = |value: &String| rule.values.iter().flatten().any(|v| v == value);
            match rule.operator.as_str() {
                "In" => labels.get(&rule.key).is_some_and(listed),
                "NotIn" => !labels.get(&rule.key).is_some_and(listed),
                "Exists" => labels.contains_key(&rule.key),
                _ => !labels.contains_key(&rule.key),
            }
        })
}

fn labels_of(pod: &Pod) -> BTreeMap<String, String> {
    pod.metadata.labels.clone().unwrap_or_default()
}

fn means(of: &Pod, term: &PodAffinityTerm, other: &Pod) -> bool {
    let namespace = other.metadata.namespace.as_deref().unwrap();
    let labels = BTreeMap::from([("team".to_owned(), if namespace == "x" { "1" } else { "2" }.to_owned())]);
    let in_namespace = match (&term.namespaces, &term.namespace_selector) {
        (None, None) => namespace == of.metadata.namespace.as_deref().unwrap(),
        (listed, by_labels) => {
            listed.iter().flatten().any(|n| n == namespace)
                || by_labels.as_ref().is_some_and(|s| selects(s, &labels))
        }
    };
    in_namespace && term.label_selector.as_ref().is_some_and(|s| selects(s, &labels_of(other)))
}

fn near_terms(pod: &Pod) -> Vec<PodAffinityTerm> {
    let affinity = pod.spec.as_ref().unwrap().affinity.as_ref().unwrap().pod_affinity.as_ref();
    affinity.unwrap().required_during_scheduling_ignored_during_execution.clone().unwrap()
}

fn apart_terms(pod: &Pod) -> Vec<PodAffinityTerm> {
    let affinity = pod.spec.as_ref().unwrap().affinity.as_ref().unwrap().pod_anti_affinity.as_ref();
    affinity.unwrap().required_during_scheduling_ignored_during_execution.clone().unwrap()
}

/// Whether anti-affinity forbids the two pods in one domain of `topology`.
fn forbidden(one: &Pod, other: &Pod, topology: &str) -> bool {
    let by = |of: &Pod, other: &Pod| {
        apart_terms(of).iter().any(|term| term.topology_key == topology && means(of, term, other))
    };
    by(one, other) || by(other, one)
}

/// For each of the spread constraints of `pod`: key, maximum skew, and whether `other` counts. A selector without rules
/// counts no pod, even if the pod itself `matches` it.
fn counted(pod: &Pod, other: &Pod, matches: bool) -> Vec<(String, u32, bool)> {
    let constraints = pod.spec.as_ref().unwrap().topology_spread_constraints.clone().unwrap();
    let counts = constraints.into_iter().map(|c| {
        let selected = c.label_selector.as_ref().is_some_and(|s| selects(s, &labels_of(other)));
        let mut keys = c.match_label_keys.iter().flatten();
        let alike =
            keys.all(|k| !labels_of(pod).contains_key(k) || labels_of(pod).get(k) == labels_of(other).get(k));
        let without_rules = c.label_selector == Some(LabelSelector::default())
            && !c.match_label_keys.iter().flatten().any(|k| labels_of(pod).contains_key(k));
        let here =
            other.metadata.namespace == pod.metadata.namespace && other.metadata.deletion_timestamp.is_none();
        (
            c.topology_key,
            u32::try_from(c.max_skew).unwrap(),
            selected && alike && here && (matches || !without_rules),
        )
    });
    let mut counts: Vec<_> = counts.collect();
    counts.sort();
    counts.dedup();
    counts
}

fn classes(demand: &Demand, count: usize) -> Vec<&PodClass> {
    let mut classes: Indexed<PodIndex, _> =
        demand.placed.iter().map(|placed| placed.map(|(class, _)| class)).collect();
    for group in &demand.groups {
        group.pods.iter().for_each(|&pod| classes[pod] = Some(group.class));
    }
    assert_eq!(classes.len(), count);
    classes.into_iter().map(|class| &demand.classes[class.unwrap()]).collect()
}

/// Each changes one of the fields that the requirements are made from.
fn variations() -> Vec<Value> {
    let container =
        |change: Value| json!({ "spec": { "containers": [merged(json!({ "name": "c" }), change)] } });
    let granted = |cpu: &str| {
        json!({ "status": { "containerStatuses": [{ "name": "c", "image": "", "imageID": "", "ready": true,
            "restartCount": 0, "resources": { "requests": { "cpu": cpu } } }] } })
    };
    vec![
        container(json!({ "resources": { "requests": { "cpu": "1" } } })),
        container(json!({ "resources": { "requests": { "cpu": "1000m" } } })),
        container(json!({ "resources": { "limits": { "cpu": "1" } } })),
        container(json!({ "ports": [{ "containerPort": 1, "hostPort": 1 }] })),
        container(json!({ "ports": [{ "containerPort": 1 }] })),
        json!({ "spec": { "hostNetwork": true } }),
        json!({ "spec": { "initContainers": [{ "name": "i", "resources": { "requests": { "cpu": "2" } } }] } }),
        json!({ "spec": { "initContainers": [{ "name": "i", "restartPolicy": "Always", "resources": { "requests": { "cpu": "2" } } }] } }),
        json!({ "spec": { "overhead": { "cpu": "1" } } }),
        json!({ "spec": { "resources": { "requests": { "cpu": "7" } } } }),
        json!({ "spec": { "nodeSelector": { "d": "1" } } }),
        json!({ "spec": { "tolerations": [{ "key": "k", "operator": "Exists" }] } }),
        json!({ "spec": { "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }] } }),
        json!({ "spec": { "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
            { "weight": 1, "preference": { "matchExpressions": [{ "key": "d", "operator": "Exists" }] } }] } } } }),
        json!({ "spec": { "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": "zone", "labelSelector": { "matchLabels": { "b": "1" } }, "matchLabelKeys": ["a"] }] } } } }),
        json!({ "spec": { "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": "zone", "labelSelector": { "matchLabels": { "b": "1" } }, "mismatchLabelKeys": ["a"] }] } } } }),
        granted("1"),
        granted("3"),
        json!({ "status": { "conditions": [
            { "type": "PodScheduled", "status": "False", "reason": "Unschedulable" },
            { "type": "PodResizePending", "status": "True", "reason": "Infeasible" }] } }),
        json!({ "metadata": { "labels": { "other": "1" } } }),
        json!({ "metadata": { "labels": { "a": "1" } } }),
        json!({ "metadata": { "labels": { "a": "2" } } }),
    ]
}

fn varied_pod() -> impl Strategy<Value = Value> {
    let variations = variations();
    let count = variations.len();
    (pod(), prop::sample::subsequence(variations, 0..count.min(5)))
        .prop_map(|(pod, changes)| changes.into_iter().fold(pod, merged))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn topology_counts_say_of_every_two_pods_what_their_constraints_say(written in prop::collection::vec(pod(), 1..7)) {
        let pods = pods(written);
        let demand = read(&pods, &mut PodInterner::default());
        let classes = classes(&demand, pods.len());
        let whole: Vec<Pod> = pods.iter().map(|pod| whole(pod)).collect();
        for (a, of_a) in whole.iter().zip(&classes) {
            let affinity = near_terms(a);
            let wanted = |other: &Pod| affinity.iter().all(|term| means(a, term, other));
            prop_assert_eq!(of_a.affinity.is_some(), !affinity.is_empty());
            if let Some(found) = &of_a.affinity {
                prop_assert_eq!(found.matches_itself, wanted(a));
                let mut keys: Vec<_> = affinity.iter().map(|term| &term.topology_key).collect();
                keys.sort();
                keys.dedup();
                let mut keys_of_counts: Vec<_> = found.topology_counts.iter().map(|&t| &demand.topology_counts[t].key).collect();
                keys_of_counts.sort();
                prop_assert_eq!(keys_of_counts, keys);
            }
            for (b, of_b) in whole.iter().zip(&classes) {
                if let Some(found) = &of_a.affinity {
                    for topology_count in &found.topology_counts {
                        prop_assert_eq!(of_b.increments.contains(topology_count), wanted(b));
                    }
                }
                for topology in ["zone", "host"] {
                    let keeps = |one: &PodClass, other: &PodClass| {
                        one.anti_affinity.iter().any(|t| demand.topology_counts[*t].key == topology && other.increments.contains(t))
                    };
                    prop_assert_eq!(keeps(of_a, of_b), forbidden(a, b, topology));
                }
                let mut found: Vec<_> = of_a
                    .spreads
                    .iter()
                    .map(|s| (demand.topology_counts[s.topology_count].key.clone(), s.max_skew, of_b.increments.contains(&s.topology_count)))
                    .collect();
                found.sort();
                found.dedup();
                prop_assert_eq!(found, counted(a, b, false));
            }
            if a.metadata.deletion_timestamp.is_none() {
                let matches_itself = |s: &TopologySpread| (demand.topology_counts[s.topology_count].key.clone(), s.max_skew, s.matches_itself);
                let mut own: Vec<_> = of_a.spreads.iter().map(matches_itself).collect();
                own.sort();
                own.dedup();
                prop_assert_eq!(own, counted(a, a, true));
            }
        }
    }

    #[test]
    fn an_interner_of_earlier_passes_changes_nothing(
        passes in prop::collection::vec((prop::collection::vec(varied_pod(), 0..6), any::<u8>()), 1..4),
    ) {
        let mut interner = PodInterner::default();
        let mut kept: Vec<Arc<PodInfo>> = Vec::new();
        for (written, keep) in passes {
            let mut all: Vec<_> = kept.iter().enumerate().filter(|(i, _)| keep >> (i % 8) & 1 == 1).map(|(_, p)| Arc::clone(p)).collect();
            all.extend(pods(written));
            all.sort_by(|a, b| a.key().cmp(&b.key()));
            prop_assert_eq!(read(&all, &mut interner), read(&all, &mut PodInterner::default()));
            kept = all;
            prop_assert!(interner.len() <= kept.len(), "it forgets who is gone");
        }
    }

    #[test]
    fn pods_that_share_their_shape_are_read_as_if_each_had_its_own(
        written in prop::collection::vec(varied_pod(), 1..6), copies in 1..4_usize,
    ) {
        let own = pods(written.iter().flat_map(|pod| vec![pod.clone(); copies]).collect());
        let mut shapes = PodShapes::default();
        let share = |pod: &Arc<PodInfo>| {
            let mut pod = PodInfo::clone(pod);
            shapes.share(&mut pod);
            Arc::new(pod)
        };
        let shared: Vec<_> = own.iter().map(share).collect();
        let distinct: BTreeSet<_> = shared.iter().map(|pod| format!("{:?}", pod.shape().id())).collect();
        prop_assert!(distinct.len() <= written.len(), "copies share");
        let mut interner = PodInterner::default();
        for pass in ["first", "second"] {
            prop_assert_eq!(read(&shared, &mut interner), read(&own, &mut PodInterner::default()), "{}", pass);
        }
    }

    #[test]
    fn an_interned_pod_reads_the_same(written in prop::collection::vec(varied_pod(), 1..4), copies in 1..3_usize) {
        // A few pods, changed one field at a time, so that nearly equal ones meet.
        let changed = written.iter().flat_map(|base| variations().into_iter().map(|change| merged(base.clone(), change)));
        let mut pods: Vec<PodInfo> = changed
            .flat_map(|pod| vec![pod; copies])
            .map(|pod| serde_json::from_value(pod).unwrap())
            .collect();
        for shared in [false, true] {
            let mut shapes = PodShapes::default();
            pods.iter_mut().filter(|_| shared).for_each(|pod| shapes.share(pod));
            let mut interner = PodInterner::default();
            let mut interning = interner.pass();
            let ids: Vec<_> = pods.iter().map(|pod| interning.id(pod, |_| Some(PodVolumes::default())).unwrap()).collect();
            let interned = interning.end();
            for (pod, id) in pods.iter().zip(ids) {
                let of_id = &interned.all[id];
                prop_assert_eq!(of_id.shape, pod.shape());
                prop_assert_eq!(of_id.leaving, pod.deleted().is_some());
                prop_assert_eq!(&*interned.all_requirements[of_id.requirements], &PodRequirements::of(pod.shape()));
            }
        }
    }
}
