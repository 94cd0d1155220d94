//! Tests of what spread constraints count.

use serde_json::{Value, json};

use super::cases::{app, labels, pending, placed, read};
use crate::fixtures::merged;
use crate::requirements::pod_class::{ConstraintSetId, CountedNodes};

fn spread(change: Value) -> Value {
    let base = json!({ "maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": app("a") });
    json!({ "spec": { "topologySpreadConstraints": [merged(base, change)] } })
}

#[test]
fn a_spread_counts_pods_of_its_namespace_that_stay() {
    let a = || labels(json!({ "app": "a", "v": "1" }));
    let outcome = read(vec![
        pending("p", spread(json!({ "minDomains": 3 }))),
        pending("self", merged(a(), spread(json!({ "matchLabelKeys": ["v"] })))),
        pending(
            "other-self",
            merged(labels(json!({ "app": "a", "v": "2" })), spread(json!({ "matchLabelKeys": ["v"] }))),
        ),
        placed("there", a()),
        placed(
            "leaving",
            merged(a(), json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })),
        ),
        placed("elsewhere", merged(a(), json!({ "metadata": { "namespace": "y" } }))),
        placed("other", labels(json!({ "app": "b" }))),
    ]);
    for (other, counts) in
        [("there", true), ("self", true), ("leaving", false), ("elsewhere", false), ("other", false)]
    {
        assert_eq!(outcome.counts("p", other), counts, "{other}");
    }
    let of = |pod: &str| outcome.class(pod).spreads[0].clone();
    assert_eq!((of("p").max_skew, of("p").min_domains, of("p").matches_itself), (2, 3, false));
    assert_eq!((of("self").min_domains, of("self").matches_itself), (1, true));
    assert!(outcome.counts("self", "there"));
    assert!(!outcome.counts("other-self", "there"), "its own version only");
}

#[test]
fn a_spread_whose_selector_has_no_rules_counts_no_pod_but_the_pod_itself() {
    let keys = json!({ "matchLabelKeys": ["v"] });
    for (what, selector, change, counts, matches_itself) in [
        ("no rules", json!({}), json!({}), false, true),
        (
            "rules that are empty",
            json!({ "matchLabels": {}, "matchExpressions": [] }),
            json!({}),
            false,
            true,
        ),
        ("a key that the pod has not", json!({}), json!({ "matchLabelKeys": ["w"] }), false, true),
        ("a key that the pod has", json!({}), keys, true, true),
        ("a rule", app("a"), json!({}), true, true),
        ("no selector", Value::Null, json!({}), false, false),
    ] {
        let mut spread = spread(change);
        spread["spec"]["topologySpreadConstraints"][0]["labelSelector"] = selector;
        let a = || labels(json!({ "app": "a", "v": "1" }));
        let outcome = read(vec![pending("p", merged(a(), spread)), placed("there", a())]);
        let [constraint] = outcome.class("p").spreads.as_slice() else { panic!("{what}") };
        assert_eq!(constraint.matches_itself, matches_itself, "{what}");
        assert_eq!(outcome.counts("p", "there"), counts, "{what}");
    }
}

#[test]
fn a_spread_that_may_be_broken_is_none() {
    let outcome = read(vec![pending("p", spread(json!({ "whenUnsatisfiable": "ScheduleAnyway" })))]);
    assert_eq!(outcome.class("p").spreads, []);
    assert!(outcome.demand.topology_counts.is_empty());
}

#[test]
fn nodes_of_a_spread_are_those_its_policies_and_keys_say() {
    let selective =
        |change: Value| merged(spread(change), json!({ "spec": { "nodeSelector": { "d": "ssd" } } }));
    let eligible = |keys: &[&str], labels_of, taints_of| CountedNodes::Eligible {
        keys: keys.iter().map(|k| (*k).to_owned()).collect(),
        labels_of,
        taints_of,
    };
    let first = ConstraintSetId(0);
    let ignore = json!({ "nodeAffinityPolicy": "Ignore" });
    let honor = json!({ "nodeTaintsPolicy": "Honor", "nodeAffinityPolicy": "Ignore" });
    for (what, change, nodes) in [
        ("no selector, no rule", spread(json!({})), eligible(&["zone"], None, None)),
        ("its selector counts by default", selective(json!({})), eligible(&["zone"], Some(first), None)),
        ("unless it is ignored", selective(ignore), eligible(&["zone"], None, None)),
        ("taints count where they are honoured", selective(honor), eligible(&["zone"], None, Some(first))),
    ] {
        assert_eq!(read(vec![pending("p", change)]).spread_count("p").nodes, nodes, "{what}");
    }
    let host = json!({ "maxSkew": 1, "topologyKey": "host", "whenUnsatisfiable": "DoNotSchedule" });
    let anyway = json!({ "maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway" });
    let mut several = spread(json!({}));
    several["spec"]["topologySpreadConstraints"].as_array_mut().unwrap().extend([host, anyway]);
    let outcome = read(vec![pending("p", several)]);
    assert_eq!(outcome.spread_count("p").nodes, eligible(&["host", "zone"], None, None));
    assert_eq!(
        outcome.class("p").spreads.len(),
        2,
        "a selector that is not there counts no pods, but is a constraint"
    );
}

#[test]
fn a_spread_is_counted_once_for_classes_that_its_policies_do_not_tell_apart() {
    let tolerant = |name: &str, key: &str, policy: &str| {
        let tolerations = json!({ "spec": { "tolerations": [{ "key": key, "operator": "Exists" }] } });
        pending(name, merged(spread(json!({ "nodeTaintsPolicy": policy })), tolerations))
    };
    let topology_counts = |policy: &str| {
        read(vec![tolerant("a", "1", policy), tolerant("b", "2", policy)]).demand.topology_counts.len()
    };
    assert_eq!((topology_counts("Ignore"), topology_counts("Honor")), (1, 2));
}
