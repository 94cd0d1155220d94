//! What-if, from flags to the plan.

use std::path::PathBuf;

use clap::Parser;
use planner::fixtures::{Read as _, TestCluster};
use planner::plan;
use serde_json::json;

use super::{EditArgs, apply, keep_without};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    edits: EditArgs,
}

fn parsed(args: &[&str]) -> Result<EditArgs, clap::Error> {
    Cli::try_parse_from([&["test"], args].concat()).map(|cli| cli.edits)
}

/// Applies flags to a world of a pool `a` with nodes `a1` and `a2`, and of a pool `b` in two namespaces.
fn edited(args: &[&str]) -> Result<(TestCluster, Vec<String>), String> {
    let mut cluster = cluster();
    let notes = apply(&parsed(args).unwrap(), &mut cluster.observed).map_err(|error| error.to_string())?;
    Ok((cluster, notes))
}

fn owned(kind: &str) -> serde_json::Value {
    json!({ "metadata": { "ownerReferences": [
        { "apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": true }] } })
}

fn cluster() -> TestCluster {
    let mut mirror = json!({});
    mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("x");
    let mut ending = owned("ReplicaSet");
    ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:00Z");
    let mut ending_set = owned("StatefulSet");
    ending_set["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:00Z");
    TestCluster::eager()
        .pool("a", json!({ "spec": { "replicas": 2, "minReplicas": 1 } }))
        .pool("b", json!({}))
        .pool("b", json!({ "metadata": { "namespace": "other" } }))
        .node("a", "a1", json!({}))
        .node("a", "a2", json!({}))
        .running("web", "a1", "3", owned("ReplicaSet"))
        .running("bare", "a1", "100m", json!({}))
        .running("daemon", "a1", "100m", owned("DaemonSet"))
        .running("mirror", "a1", "100m", mirror)
        .running("ending", "a1", "100m", ending)
        .running("ending-0", "a1", "100m", ending_set)
        .running("stays", "a2", "2", owned("ReplicaSet"))
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tandem-edits-{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn the_pods_of_a_node_that_is_gone_become_pending_where_a_controller_recreates_them() {
    let (cluster, notes) = edited(&["--remove-node", "a1"]).unwrap();
    assert_eq!(
        notes,
        [
            "what if a1 is gone: pending now: apps/web, apps/ending-0",
            "what if a1 is gone: no controller makes these pods again: apps/bare",
            "what if a1 is gone: of a DaemonSet or the node itself, or ending, so gone too: apps/daemon, apps/mirror, \
             apps/ending",
            "what if a1 is gone: spec.replicas of NodePool ns/a stays, so a node in its place is on its way; lower it \
             with --pool to see the pool without",
        ]
    );
    // Sorted by name: ending-0, web. Replicas stay, so the node is replaced.
    assert_eq!(cluster.plan().results(), ["fits a2", "fits upcoming ns/a"]);
    let (cluster, _) = edited(&["--remove-node", "a1", "--pool", "a=1"]).unwrap();
    // Both pools are alike, and the smaller one grows first.
    assert_eq!(cluster.plan().results(), ["fits a2", "grows ns/b"]);
    assert_eq!((cluster.plan().desired("a"), cluster.plan().desired("b")), (1, 1));
}

#[test]
fn a_pool_keeps_without_a_node_what_it_had_less_one() {
    let mut cluster = cluster();
    keep_without(&mut cluster.observed, "a1").unwrap();
    let spec = &cluster.observed.pools[0].spec;
    assert_eq!((spec.replicas, spec.min_replicas), (Some(1), 1));
    keep_without(&mut cluster.observed, "a2").unwrap();
    let spec = &cluster.observed.pools[0].spec;
    assert_eq!((spec.replicas, spec.min_replicas), (Some(0), 0));
}

#[test]
fn pods_are_added_from_whatever_makes_pods() {
    let spec = r"{ hostNetwork: true, containers: [{ name: c, ports: [{ containerPort: 80 }], resources: { limits: { cpu: 2 } } }] }";
    let template = format!("template: {{ metadata: {{ labels: {{ app: x }} }}, spec: {spec} }}");
    for (name, kind, body, count, added) in [
        ("pod", "Pod", format!("spec: {spec}"), &["--count", "2"][..], 2),
        ("pod", "Pod", format!("spec: {spec}"), &[], 1),
        ("deployment", "Deployment", format!("spec: {{ replicas: 3, {template} }}"), &[], 3),
        ("deployment", "Deployment", format!("spec: {{ replicas: 3, {template} }}"), &["--count", "1"], 1),
        ("stateful", "StatefulSet", format!("spec: {{ {template} }}"), &[], 1),
        ("job", "Job", format!("spec: {{ parallelism: 4, {template} }}"), &[], 4),
        ("cron", "CronJob", format!("spec: {{ jobTemplate: {{ spec: {{ {template} }} }} }}"), &[], 1),
        ("template", "PodTemplate", template.clone(), &[], 1),
        ("other", "Rollout", format!("spec: {{ {template} }}"), &[], 1),
        (
            "list",
            "List",
            format!("items: [{{ kind: Pod, metadata: {{ name: x }}, spec: {spec} }}, {{ kind: Service }}]"),
            &[],
            1,
        ),
    ] {
        let path = file(
            name,
            &format!("apiVersion: v1\nkind: {kind}\nmetadata: {{ name: x, namespace: n }}\n{body}"),
        );
        let (cluster, _) = edited(&[&["--add-pods", path.to_str().unwrap()], count].concat()).unwrap();
        std::fs::remove_file(path).unwrap();
        let new = &cluster.observed.pods[7..];
        assert_eq!(new.len(), added, "{kind}");
        let names: std::collections::BTreeSet<_> = new.iter().map(|pod| pod.key().1).collect();
        assert_eq!(names.len(), added, "{kind}: every pod has a name of its own");
        let container = &new[0].spec().unwrap().containers[0];
        assert_eq!(
            container.ports.as_ref().unwrap()[0].host_port,
            Some(80),
            "{kind}: as the API server fills in"
        );
        assert_eq!(container.resources.as_ref().unwrap().requests.as_ref().unwrap()["cpu"].0, "2", "{kind}");
        let owner = new[0].owners().first().map(|owner| owner.kind.as_str());
        assert_eq!(owner, (!matches!(kind, "Pod" | "List")).then_some(kind), "{kind}");
        assert_eq!(cluster.plan().pods.len(), added, "{kind}: pending");
    }
}

#[test]
fn added_pods_keep_clear_of_names_that_are_taken() {
    let path = file(
        "taken",
        "kind: Pod\nmetadata: { name: big, namespace: apps }\nspec: { containers: [{ name: c }] }",
    );
    let mut cluster =
        TestCluster::eager().pending("big", 1, "1", &json!({ "metadata": { "name": "big-1" } }));
    let args = parsed(&["--add-pods", path.to_str().unwrap(), "--count", "2"]).unwrap();
    let notes = apply(&args, &mut cluster.observed).unwrap();
    std::fs::remove_file(path).unwrap();
    assert_eq!(notes, ["what if there were 2 more pods of Pod apps/big: big-0 to big-2"]);
    assert_eq!(plan(&cluster.observed).pods.len(), 3);
}

#[test]
fn changes_that_cannot_be_made_say_why() {
    let service = file("service", "apiVersion: v1\nkind: Service\nmetadata: { name: s }");
    let empty = file("empty", "");
    let daemon = file(
        "daemon",
        "kind: DaemonSet\nmetadata: { name: d }\nspec: { template: { spec: { containers: [] } } }",
    );
    let wrong = file("wrong", "kind: Pod\nmetadata: { name: p }\nspec: { containers: [{ name: 3 }] }");
    let path = |file: &PathBuf| file.to_str().unwrap().to_owned();
    for (args, expected) in [
        (
            vec!["--remove-node", "a11"],
            "--remove-node a11: there is no such node; did you mean a1?".to_owned(),
        ),
        (vec!["--remove-node", "zebra"], "--remove-node zebra: there is no such node".to_owned()),
        (
            vec!["--remove-node", "a1", "--remove-node", "a1"],
            "--remove-node a1: there is no such node; did you mean a2?".to_owned(),
        ),
        (vec!["--pool", "ns/aa=1"], "--pool ns/aa: there is no such NodePool; did you mean ns/a?".to_owned()),
        (
            vec!["--pool", "b=1"],
            "--pool b: there are several: ns/b, other/b; name the namespace too".to_owned(),
        ),
        (
            vec!["--pool", "a=11"],
            "--pool ns/a=11: the API server would refuse it, spec.maxReplicas is 10".to_owned(),
        ),
        (
            vec!["--pool", "a=0"],
            "--pool ns/a=0: the API server would refuse it, spec.minReplicas is 1".to_owned(),
        ),
        (
            vec!["--add-pods", &path(&service)],
            format!("--add-pods {}: has Service, and nothing that makes pods", path(&service)),
        ),
        (
            vec!["--add-pods", &path(&empty)],
            format!("--add-pods {}: has no object, and nothing that makes pods", path(&empty)),
        ),
        (
            vec!["--add-pods", &path(&daemon)],
            format!(
                "--add-pods {}: a DaemonSet's pods go to every node; give the DaemonSet with -f",
                path(&daemon)
            ),
        ),
        (
            vec!["--add-pods", &path(&wrong)],
            format!(
                "--add-pods {}, document 1 (Pod default/p): spec.containers[0].name: invalid type: integer `3`, expected a string",
                path(&wrong)
            ),
        ),
        (vec!["--add-pods", "no/such/file"], "--add-pods no/such/file: cannot be read".to_owned()),
    ] {
        assert_eq!(edited(&args).map(|_| ()).unwrap_err(), expected);
    }
    for file in [service, empty, daemon, wrong] {
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn wrong_usage_is_an_error_of_the_flags() {
    for args in [
        &["--pool", "a"][..],
        &["--pool", "=3"],
        &["--pool", "x/y/z=3"],
        &["--pool", "/a=3"],
        &["--pool", "a=-1"],
        &["--pool", "a=many"],
        &["--pool", "a=99999999999"],
        &["--count", "3"],
        &["--add-pods", "f", "--count", "0"],
        &["--add-pods", "f", "--count", "-1"],
        &["--add-pods", "f", "--count", "100001"],
    ] {
        assert!(parsed(args).is_err(), "{args:?}");
    }
    let pool = &parsed(&["--pool", "demo/a=3"]).unwrap().pool[0];
    assert_eq!((pool.pool.as_str(), pool.replicas), ("demo/a", 3));
}
