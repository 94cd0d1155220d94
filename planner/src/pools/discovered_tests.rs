//! Tests of what nodes show.

use std::sync::Arc;

use serde_json::{Value, json};
use shared_crds::names::TEMPLATE_HASH_ANNOTATION;

use super::*;
use crate::resources::exact;

const NOW: &str = "2026-01-01T12:00:00Z";

fn pool(capacity: &Value) -> NodePool {
    serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "ns" }, "spec": {
        "maxReplicas": 9, "provider": { "simulated": {} }, "template": { "spec": { "capacity": capacity } } } }))
    .unwrap()
}

/// What operators made of the pool's template that hashed less of it.
fn earlier_hashes(pool: &NodePool) -> Vec<String> {
    pool.spec.earlier_template_hashes().into_iter().map(|earlier| earlier.hash).collect()
}

/// A node of the pool's template, with these allocatable resources.
fn node(pool: &NodePool, allocatable: &Value) -> Node {
    let hash = pool.spec.template_hash();
    serde_json::from_value(
        json!({ "metadata": { "name": "n", "annotations": { TEMPLATE_HASH_ANNOTATION: hash } },
        "status": { "allocatable": allocatable } }),
    )
    .unwrap()
}

fn found(
    pool: &NodePool,
    settled: &[Node],
    remembered: Option<&DiscoveredResources>,
    now: &str,
) -> Option<DiscoveredResources> {
    shown(pool, (settled, &[]), remembered, now)
}

/// What settled and young nodes show.
fn shown(
    pool: &NodePool,
    (settled, young): (&[Node], &[Node]),
    remembered: Option<&DiscoveredResources>,
    now: &str,
) -> Option<DiscoveredResources> {
    let promised = exact(&pool.spec.template.spec.capacity).unwrap();
    let profile = NodeProfile::of_template(pool);
    let template_hash = pool.spec.template_hash().unwrap();
    let remembered = remembered.filter(|known| known.template_hash == template_hash);
    let now = now.parse().unwrap();
    let lesson = Lesson { pool, promised: &promised, profile: &profile, remembered, now };
    let (settled, young): (Vec<_>, Vec<_>) = (settled.iter().collect(), young.iter().collect());
    lesson.learn(&template_hash, &settled, &young)
}

fn texts(found: Option<DiscoveredResources>) -> Vec<(String, String)> {
    found.into_iter().flat_map(|it| it.allocatable).map(|(name, amount)| (name, amount.0)).collect()
}

#[test]
fn what_ready_nodes_lack_is_found_and_the_largest_of_them_counts() {
    let pool = pool(&json!({ "cpu": "4", "memory": "16Gi", "pods": "110" }));
    let node = |allocatable: &Value| node(&pool, allocatable);
    let all = |cpu: &str, memory: &str| node(&json!({ "cpu": cpu, "memory": memory, "pods": "110" }));
    for (what, nodes, expected) in [
        ("as promised", vec![all("4", "16Gi")], vec![]),
        ("more than promised", vec![all("8", "32Gi")], vec![]),
        ("less memory", vec![all("4", "15Gi")], vec![("memory", "15Gi")]),
        (
            "the larger of two",
            vec![all("3", "14Gi"), all("3900m", "13Gi")],
            vec![("cpu", "3900m"), ("memory", "14Gi")],
        ),
        ("one as promised", vec![all("3", "15Gi"), all("4", "16Gi")], vec![]),
        ("nothing said", vec![node(&json!({}))], vec![]),
        ("not a quantity", vec![node(&json!({ "cpu": "many" }))], vec![]),
    ] {
        let expected: Vec<_> = expected.iter().map(|(n, a)| ((*n).to_owned(), (*a).to_owned())).collect();
        assert_eq!(texts(found(&pool, &nodes, None, NOW)), expected, "{what}");
    }
}

#[test]
fn only_nodes_of_the_template_show_anything_and_those_that_are_starting_are_apart() {
    let (before, pool) = (pool(&json!({ "cpu": "4" })), pool(&json!({ "cpu": "8", "example.com/gpu": "8" })));
    let at = |object: &NodePool, minute: u8, ready: &str, taint: &str, gpu: &str| {
        let mut node = node(object, &json!({ "cpu": "8", "example.com/gpu": gpu }));
        let change = json!({ "spec": { "taints": [{ "key": taint, "effect": "NoSchedule" }] },
            "metadata": { "creationTimestamp": format!("2026-01-01T11:{minute:02}:00Z") },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] } });
        node = serde_json::from_value(crate::fixtures::merged(serde_json::to_value(&node).unwrap(), change))
            .unwrap();
        Arc::new(node)
    };
    let nodes = [
        at(&pool, 0, "True", "x", "8"),
        at(&pool, 0, "True", "x", "0"),
        at(&pool, 59, "True", "x", "8"),
        at(&pool, 59, "True", "x", "0"),
        at(&pool, 59, "True", "readiness.k8s.io/net", "8"),
        at(&pool, 0, "True", "readiness.k8s.io/net", "8"),
        at(&pool, 0, "False", "x", "8"),
        at(&before, 0, "True", "x", "8"),
        at(&pool, 0, "True", "x", "2"),
        at(&pool, 59, "True", "x", "2"),
        at(&before, 59, "True", "x", "2"),
    ];
    let promise = Promise {
        template_hash: pool.spec.template_hash(),
        earlier_hashes: earlier_hashes(&pool),
        resources: exact(&serde_json::from_value(json!({ "example.com/gpu": "8" })).unwrap()).unwrap(),
        labels: Vec::new(),
    };
    let nodes = PassNodes::from_iter(nodes);
    let of = |numbers: &[usize]| numbers.iter().copied().map(PassNodeIndex).collect::<Vec<_>>();
    let all: Vec<_> = nodes.indexes().collect();
    let teachers = Teachers::of(&pool, &promise, &all, &nodes, NOW.parse().unwrap());
    let expected = Teachers { settled: of(&[0, 1, 5, 8]), young: of(&[2]), starting: of(&[3, 4, 9]) };
    assert_eq!(teachers, expected);
}

#[test]
fn nodes_of_an_operator_that_hashed_less_of_the_template_show_what_a_new_one_has() {
    let mut pool = pool(&json!({ "cpu": "8" }));
    let metadata = pool.spec.template.metadata.get_or_insert_default();
    for label in ["topology.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone"] {
        metadata.labels.insert(label.to_owned(), "a".to_owned());
    }
    let (own, earlier) = (pool.spec.template_hash().unwrap(), earlier_hashes(&pool));
    let promise = Promise {
        template_hash: pool.spec.template_hash(),
        earlier_hashes: earlier_hashes(&pool),
        resources: ExactAmounts::new(),
        labels: Vec::new(),
    };
    let of = |hash: &str| -> Arc<Node> {
        let object = json!({
            "metadata": { "name": "n", "creationTimestamp": "2026-01-01T11:00:00Z",
                "annotations": { TEMPLATE_HASH_ANNOTATION: hash } },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        Arc::new(serde_json::from_value(object).unwrap())
    };
    let nodes = [earlier[0].as_str(), earlier[1].as_str(), own.as_str(), "v2-other"];
    let nodes = PassNodes::from_iter(nodes.map(of));
    let all: Vec<_> = nodes.indexes().collect();
    let teachers = Teachers::of(&pool, &promise, &all, &nodes, NOW.parse().unwrap());
    assert_eq!(teachers, Teachers { settled: all[..3].to_vec(), ..Teachers::default() });
}

#[test]
fn what_is_remembered_of_another_template_says_nothing_of_new_nodes() {
    let (before, now) = (pool(&json!({ "cpu": "4" })), pool(&json!({ "cpu": "8" })));
    let known = found(&before, &[node(&before, &json!({ "cpu": "3" }))], None, NOW).unwrap();
    assert_eq!(found(&now, &[], Some(&known), NOW), None);
}

#[test]
fn what_all_nodes_have_and_the_template_does_not_name_is_added_and_the_smallest_of_them_counts() {
    let pool = pool(&json!({ "cpu": "4", "memory": "16Gi" }));
    let disk = |disk: &str, nic: &str| {
        node(
            &pool,
            &json!({ "cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": disk,
            "example.com/nic": nic, "hugepages-2Mi": "0", "kubernetes.io/batch-cpu": "3", "attachable-volumes-x": "39" }),
        )
    };
    let bare = node(&pool, &json!({ "cpu": "4", "memory": "16Gi" }));
    let pair = |name: &str, amount: &str| (name.to_owned(), amount.to_owned());
    let known = found(&pool, &[disk("100Gi", "1")], None, NOW);
    let both = vec![pair("ephemeral-storage", "100Gi"), pair("example.com/nic", "1")];
    assert_eq!(texts(known.clone()), both);
    let two = [disk("100Gi", "0"), disk("90Gi", "1")];
    assert_eq!(texts(found(&pool, &two, None, NOW)), [pair("ephemeral-storage", "90Gi")]);
    let later = shown(&pool, (&[], std::slice::from_ref(&bare)), known.as_ref(), NOW);
    assert_eq!(texts(later), both, "a young node may get them");
    assert_eq!(texts(found(&pool, &[], known.as_ref(), NOW)), both, "a pool without nodes will have them");
    assert_eq!(found(&pool, &[], known.as_ref(), NOW).unwrap().until_time, None, "for as long as it is so");
    let gone = found(&pool, &[bare], known.as_ref(), NOW).unwrap();
    assert_eq!(gone.varying, ["ephemeral-storage", "example.com/nic"]);
    assert!(gone.allocatable.is_empty());
    let again = found(&pool, &[disk("100Gi", "1")], Some(&gone), NOW);
    assert!(texts(again).is_empty(), "one node does not have it counted on again");
}

/// A node of the pool's template, with as many of a device that the template does not name.
fn with_nics(pool: &NodePool, nics: &str) -> Node {
    node(pool, &json!({ "cpu": "4", "memory": "16Gi", "example.com/nic": nics }))
}

#[test]
fn a_resource_beyond_the_template_is_unlearnt_and_learnt_again_by_several_nodes() {
    let pool = pool(&json!({ "cpu": "4", "memory": "16Gi" }));
    let (has, lacks) = (|| with_nics(&pool, "1"), || with_nics(&pool, "0"));
    let known = found(&pool, &[has(), has(), has()], None, NOW).unwrap();
    let gone = found(&pool, &[lacks()], Some(&known), NOW).unwrap();
    assert_eq!((gone.allocatable.len(), gone.varying.len()), (0, 1));
    for (what, remembered, settled, young, counts) in [
        ("one of three lacks it", &known, vec![lacks(), has(), has()], vec![], true),
        ("one of two does", &known, vec![lacks(), has()], vec![], false),
        ("two of three do", &known, vec![has(), lacks(), lacks()], vec![], false),
        ("two of four do", &known, vec![has(), has(), lacks(), lacks()], vec![], false),
        ("again on several", &gone, vec![has(), has()], vec![lacks()], true),
        ("again on one", &gone, vec![has()], vec![], false),
        ("again on one and a young one", &gone, vec![has()], vec![has()], false),
        ("again on most", &gone, vec![has(), has(), lacks()], vec![], false),
        ("again on young ones", &gone, vec![], vec![has(), has()], false),
    ] {
        let after = shown(&pool, (&settled, &young), Some(remembered), NOW).unwrap();
        let expected = if counts { (1, 0) } else { (0, 1) };
        assert_eq!((after.allocatable.len(), after.varying.len()), expected, "{what}");
    }
    let new = found(&pool, &[lacks(), has(), has()], None, NOW);
    assert_eq!(new, None, "what is not remembered has to be on all of them");
}

#[test]
fn an_amount_beyond_the_template_falls_and_rises_only_where_several_nodes_agree() {
    let pool = pool(&json!({ "cpu": "4", "memory": "16Gi" }));
    let with = |nics: &str| with_nics(&pool, nics);
    let known = found(&pool, &[with("4")], None, NOW).unwrap();
    for (what, settled, young, expected) in [
        ("it falls", vec![with("2")], vec![], "2"),
        ("it falls by a young one", vec![with("4")], vec![with("3")], "3"),
        ("one does not raise it", vec![with("8")], vec![], "4"),
        ("nor do young ones", vec![], vec![with("8"), with("8")], "4"),
        ("nor do several that differ", vec![with("8"), with("6")], vec![], "4"),
        ("several that agree do", vec![with("8"), with("8")], vec![], "8"),
        ("written otherwise", vec![with("8"), with("8000m")], vec![], "8"),
        ("no more than a young one has", vec![with("8"), with("8")], vec![with("6")], "6"),
    ] {
        let after = shown(&pool, (&settled, &young), Some(&known), NOW);
        assert_eq!(texts(after), [("example.com/nic".to_owned(), expected.to_owned())], "{what}");
    }
}

#[test]
fn a_device_is_missing_when_two_settled_nodes_have_none() {
    let pool = pool(&json!({ "cpu": "4", "example.com/gpu": "8" }));
    let gpus = |gpus: &str| node(&pool, &json!({ "cpu": "4", "example.com/gpu": gpus }));
    let none = node(&pool, &json!({ "cpu": "4" }));
    let pair = |amount: &str| vec![("example.com/gpu".to_owned(), amount.to_owned())];
    let known = found(&pool, &[none.clone(), gpus("0")], None, NOW);
    for (what, nodes, remembered, expected) in [
        ("one may have failed", vec![gpus("0")], None, vec![]),
        ("two have none", vec![none.clone(), gpus("0")], None, pair("0")),
        ("two have fewer", vec![gpus("4"), gpus("0")], None, pair("4")),
        ("one has all", vec![gpus("8"), gpus("0")], None, vec![]),
        ("one is left of two", vec![none], known.as_ref(), pair("0")),
        ("a better one has come", vec![gpus("8")], known.as_ref(), vec![]),
    ] {
        assert_eq!(texts(found(&pool, &nodes, remembered, NOW)), expected, "{what}");
    }
}

#[test]
fn what_was_found_outlives_the_last_node_for_an_hour_and_a_better_node_ends_it_at_once() {
    let pool = pool(&json!({ "cpu": "4" }));
    let known = found(&pool, &[node(&pool, &json!({ "cpu": "3" }))], None, NOW).unwrap();
    assert_eq!(known.until_time, None);
    let after = found(&pool, &[], Some(&known), NOW).unwrap();
    assert_eq!(after.until_time, Some(Time("2026-01-01T13:00:00Z".parse().unwrap())));
    let later = found(&pool, &[], Some(&after), "2026-01-01T12:59:59Z");
    assert_eq!(later.as_ref(), Some(&after), "the hour does not begin anew");
    let ended = found(&pool, &[], Some(&after), "2026-01-01T13:00:00Z");
    assert!(texts(ended.clone()).is_empty());
    assert_eq!(found(&pool, &[node(&pool, &json!({ "cpu": "4" }))], ended.as_ref(), NOW), None);
    let again = found(&pool, &[node(&pool, &json!({ "cpu": "3" }))], Some(&after), NOW);
    assert_eq!(again, Some(known));
    assert_eq!(found(&pool, &[node(&pool, &json!({ "cpu": "4" }))], Some(&after), NOW), None);
}

#[test]
fn what_nodes_lack_again_outlives_them_for_twice_as_long_each_time_and_the_first_to_go_is_what_is_new() {
    let pool = pool(&json!({ "cpu": "4", "memory": "16Gi" }));
    let at = |hour: u8| format!("2026-01-01T{hour:02}:00:00Z");
    let until = |known: Option<&DiscoveredResources>| Some(known?.until_time.as_ref()?.0.to_string());
    let small = [node(&pool, &json!({ "cpu": "3", "memory": "16Gi" }))];
    let mut known = None;
    for (gone, ends) in [(1, 2), (3, 5), (6, 10)] {
        known = found(&pool, &small, known.as_ref(), &at(gone));
        known = found(&pool, &[], known.as_ref(), &at(gone));
        assert_eq!((texts(known.clone()).len(), until(known.as_ref())), (1, Some(at(ends))));
        known = found(&pool, &[], known.as_ref(), &at(ends));
        assert_eq!((texts(known.clone()).len(), until(known.as_ref())), (0, None));
    }
    // The memory is believed for an hour, the cores for eight.
    let smaller = [node(&pool, &json!({ "cpu": "3", "memory": "15Gi" }))];
    known = found(&pool, &smaller, known.as_ref(), &at(11));
    for (hour, amounts, ends) in [(11, 2, Some(12)), (12, 1, Some(19)), (18, 1, Some(19)), (19, 0, None)] {
        known = found(&pool, &[], known.as_ref(), &at(hour));
        assert_eq!((texts(known.clone()).len(), until(known.as_ref())), (amounts, ends.map(at)), "{hour}");
    }
    let whole = [node(&pool, &json!({ "cpu": "4", "memory": "15Gi" }))];
    let known = found(&pool, &whole, known.as_ref(), &at(20)).unwrap();
    assert_eq!(known.beliefs.iter().map(|known| known.name.as_str()).collect::<Vec<_>>(), ["memory"]);
}

#[test]
fn a_device_that_was_missing_is_so_again_when_one_more_node_lacks_it() {
    let pool = pool(&json!({ "cpu": "4", "example.com/gpu": "8" }));
    let bare = || node(&pool, &json!({ "cpu": "4" }));
    let known = found(&pool, &[bare(), bare()], None, NOW);
    let known = found(&pool, &[], known.as_ref(), NOW);
    let ended = found(&pool, &[], known.as_ref(), "2026-01-01T13:00:00Z");
    assert!(texts(ended.clone()).is_empty());
    let again = found(&pool, &[bare()], ended.as_ref(), NOW);
    assert_eq!(texts(again), [("example.com/gpu".to_owned(), "0".to_owned())]);
    let whole = node(&pool, &json!({ "cpu": "4", "example.com/gpu": "8" }));
    assert_eq!(found(&pool, &[whole], ended.as_ref(), NOW), None);
}

#[test]
fn a_template_is_lowered_and_never_raised_in_what_it_names() {
    let pool = pool(&json!({ "cpu": "4", "memory": "16Gi" }));
    let mut known = found(&pool, &[node(&pool, &json!({ "cpu": "3", "memory": "1Gi" }))], None, NOW).unwrap();
    let less = json!({ "cpu": "8", "memory": "1Gi", "pods": "5", "ephemeral-storage": "9Gi" });
    known.allocatable = serde_json::from_value(less).unwrap();
    let mut promised = exact(&pool.spec.template.spec.capacity).unwrap();
    apply(&mut promised, &known);
    let expected = exact(
        &serde_json::from_value(json!({ "cpu": "4", "memory": "1Gi", "ephemeral-storage": "9Gi" })).unwrap(),
    )
    .unwrap();
    assert_eq!(promised, expected);
}
