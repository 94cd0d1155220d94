//! What the tests of the installed chart may touch on a cluster that they have not made: only what they have made there themselves. They
//! mark it, so that a later run can remove what is left of one that was killed. What has no mark is another's, and stays as it is.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use shared_crds::names::{MEMBER_LABEL, MEMBER_NAMESPACE_LABEL, NODEPOOL_LABEL};
use toolbox::messages::inform;

use crate::cluster::Cluster;
use crate::test_env::RELEASE_NAMESPACE;

/// Label on each namespace that these tests have made.
const MADE: &str = "e2e.tandem.dev/made";
/// Label on each node that they have cordoned.
const CORDONED: &str = "e2e.tandem.dev/cordoned";
/// The namespaces that they make: that of the release, and those of their pools.
const NAMESPACES: [&str; 4] = [RELEASE_NAMESPACE, "kept", "demo", "real"];
/// The group of Tandem's definitions.
const GROUP: &str = "tandem.dev";
/// The annotation of nodes whose kubelets a kwok simulates: also the one that these tests start.
const SIMULATED: &str = "kwok.x-k8s.io/node";

/// What a cluster has: lists of objects.
#[derive(Default)]
struct Found {
    namespaces: Vec<Value>,
    nodes: Vec<Value>,
    /// What Helm keeps of releases called `tandem`.
    releases: Vec<Value>,
    /// Those of the chart, whatever its release is called and however it was installed.
    deployments: Vec<Value>,
    /// Those of Tandem's definitions.
    objects: Vec<Value>,
}

/// Fails where these tests would get in the way of what is on a cluster, and names it. Changes nothing.
///
/// # Errors
/// With all that is there, and when the cluster cannot be read.
pub async fn check(cluster: &Cluster) -> Result<()> {
    let others = Found::read(cluster).await?.of_others();
    if others.is_empty() {
        return Ok(());
    }
    let others = others.join("\n  ");
    bail!(
        "this cluster is in use, so no test of the chart has begun, and nothing was changed. There is\n  {others}\n\
         Name a cluster without these, or remove them yourself"
    )
}

/// Makes a namespace that has the mark from its first moment.
///
/// # Errors
/// When it is there already, or is none of those that [`check`] looks for.
pub async fn make_namespace(cluster: &Cluster, name: &str, labels: &[(&str, &str)]) -> Result<()> {
    ensure!(NAMESPACES.contains(&name), "{name} is none of the namespaces that the tests of the chart make");
    let mut namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {MADE: "true"}},
    });
    for (label, value) in labels {
        namespace["metadata"]["labels"][*label] = json!(value);
    }
    cluster.kubectl_with_input(&["create", "--filename", "-"], &namespace.to_string()).await?;
    Ok(())
}

/// Cordons nodes and marks them. One that is cordoned already stays without a mark, and so stays cordoned.
///
/// # Errors
/// When a node is not there, or cannot be changed.
pub async fn cordon(cluster: &Cluster, nodes: &[&str]) -> Result<()> {
    // At once: a mark without the cordon, or a cordon without the mark, would mislead the next run.
    let patch = json!({"metadata": {"labels": {CORDONED: "true"}}, "spec": {"unschedulable": true}});
    for name in nodes {
        let node = cluster.kubectl(&["get", "node", name, "--output", "json"]).await?;
        let node: Value = serde_json::from_str(&node)?;
        if node["spec"]["unschedulable"] != true {
            merge(cluster, &["node", name], &patch).await?;
        }
    }
    Ok(())
}

/// Uncordons the nodes that have the mark, and takes it off.
///
/// # Errors
/// When one cannot be changed.
pub async fn uncordon(cluster: &Cluster) -> Result<()> {
    let patch = json!({"metadata": {"labels": {CORDONED: null}}, "spec": {"unschedulable": null}});
    for node in names(cluster, &["nodes", "--selector", CORDONED]).await? {
        merge(cluster, &[&node], &patch).await?;
    }
    Ok(())
}

/// Removes what tests before have left: uncordons their nodes, deletes their namespaces, and uninstalls the release that is in one of
/// them. Pools that no operator finishes within `patience` are finished here.
///
/// # Errors
/// When something stays.
pub async fn clean(cluster: &Cluster, patience: Duration) -> Result<()> {
    uncordon(cluster).await?;
    let namespaces = list(cluster, &["namespaces", "--selector", MADE]).await?;
    let made: BTreeSet<&str> = namespaces.iter().map(name).collect();
    let of_pools: Vec<&str> = made.iter().copied().filter(|name| *name != RELEASE_NAMESPACE).collect();
    if !of_pools.is_empty()
        && let Err(error) = delete(cluster, &of_pools, patience).await
    {
        inform(&format!("{error:#}; nothing finishes the pools of a test before"));
        finish(cluster, &of_pools, patience).await?;
        delete(cluster, &of_pools, patience).await?;
    }
    if made.contains(RELEASE_NAMESPACE) {
        let uninstall =
            ["uninstall", "tandem", "--namespace", RELEASE_NAMESPACE, "--wait", "--ignore-not-found"];
        cluster.helm(&uninstall).await?;
        delete(cluster, &[RELEASE_NAMESPACE], patience).await?;
    }
    Ok(())
}

/// Takes the finalizers off the pools in these namespaces and off their nodes, and deletes the nodes. Nodes first: with their
/// namespaces gone, nothing would say whose they are.
async fn finish(cluster: &Cluster, namespaces: &[&str], patience: Duration) -> Result<()> {
    let patch = json!({"metadata": {"finalizers": null}});
    let selector = format!("{MEMBER_NAMESPACE_LABEL} in ({})", namespaces.join(","));
    for node in names(cluster, &["nodes", "--selector", &selector]).await? {
        merge(cluster, &[&node], &patch).await?;
        cluster.kubectl(&["delete", &node, "--ignore-not-found", &timeout(patience)]).await?;
    }
    for namespace in namespaces {
        for pool in names(cluster, &["nodepools.tandem.dev", "--namespace", namespace]).await? {
            merge(cluster, &[&pool, "--namespace", namespace], &patch).await?;
        }
    }
    Ok(())
}

async fn delete(cluster: &Cluster, namespaces: &[&str], patience: Duration) -> Result<()> {
    let timeout = timeout(patience);
    let args = ["delete", "namespace", "--ignore-not-found", &timeout];
    cluster.kubectl(&[&args, namespaces].concat()).await?;
    Ok(())
}

fn timeout(patience: Duration) -> String {
    format!("--timeout={}s", patience.as_secs())
}

async fn merge(cluster: &Cluster, object: &[&str], patch: &Value) -> Result<()> {
    let patch = patch.to_string();
    cluster.kubectl(&[&["patch"], object, &["--type=merge", "--patch", &patch]].concat()).await?;
    Ok(())
}

/// As kubectl takes them: `node/NAME`.
async fn names(cluster: &Cluster, what: &[&str]) -> Result<Vec<String>> {
    let listed = cluster.kubectl(&[&["get"], what, &["--output", "name"]].concat()).await?;
    Ok(listed.lines().map(str::to_owned).collect())
}

async fn list(cluster: &Cluster, what: &[&str]) -> Result<Vec<Value>> {
    let listed = cluster.kubectl(&[&["get"], what, &["--output", "json"]].concat()).await?;
    let mut listed: Value = serde_json::from_str(&listed)?;
    match listed["items"].take() {
        Value::Array(items) => Ok(items),
        _ => bail!("kubectl lists no {}", what.join(" ")),
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn namespace(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or_default()
}

impl Found {
    async fn read(cluster: &Cluster) -> Result<Self> {
        const EVERYWHERE: &str = "--all-namespaces";
        let releases = ["secrets,configmaps", EVERYWHERE, "--selector", "owner=helm,name=tandem"];
        let deployments = ["deployments", EVERYWHERE, "--selector", "app.kubernetes.io/part-of=tandem"];
        let mut objects = Vec::new();
        for definition in list(cluster, &["customresourcedefinitions"]).await? {
            if definition["spec"]["group"] == GROUP {
                let of_it = list(cluster, &[name(&definition), EVERYWHERE]).await;
                objects.extend(of_it.with_context(|| format!("cannot list {}", name(&definition)))?);
            }
        }
        Ok(Self {
            namespaces: list(cluster, &["namespaces"]).await?,
            nodes: list(cluster, &["nodes"]).await?,
            releases: list(cluster, &releases).await?,
            deployments: list(cluster, &deployments).await?,
            objects,
        })
    }

    /// What these tests would get in the way of, and have not made; each once, in words.
    fn of_others(&self) -> Vec<String> {
        let Self { namespaces, nodes, releases, deployments, objects } = self;
        let is_made = |object: &&Value| !object["metadata"]["labels"][MADE].is_null();
        let made: BTreeSet<&str> = namespaces.iter().filter(is_made).map(name).collect();
        let mut others = Vec::new();
        for namespace in namespaces.iter().map(name) {
            if NAMESPACES.contains(&namespace) && !made.contains(namespace) {
                others.push(format!("the namespace {namespace}"));
            }
        }
        for release in releases.iter().map(namespace).filter(|namespace| !made.contains(namespace)) {
            others.push(format!("the release tandem of Helm in the namespace {release}"));
        }
        for object in deployments.iter().chain(objects) {
            if !made.contains(namespace(object)) {
                let kind = object["kind"].as_str().unwrap_or_default();
                others.push(format!("the {kind} {}/{}", namespace(object), name(object)));
            }
        }
        for node in nodes {
            let labels = &node["metadata"]["labels"];
            if labels[MEMBER_NAMESPACE_LABEL].as_str().is_some_and(|namespace| made.contains(namespace)) {
                continue;
            }
            if !labels[MEMBER_LABEL].is_null() || !labels[NODEPOOL_LABEL].is_null() {
                others.push(format!("the node {}, which is of a NodePool", name(node)));
            } else if !node["metadata"]["annotations"][SIMULATED].is_null() {
                others.push(format!("the node {}, which asks for a kwok", name(node)));
            }
        }
        // Helm keeps each revision of a release.
        others.dedup();
        others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, namespace: &str, name: &str) -> Value {
        json!({"kind": kind, "metadata": {"namespace": namespace, "name": name}})
    }

    fn made(name: &str) -> Value {
        json!({"kind": "Namespace", "metadata": {"name": name, "labels": {MADE: "true"}}})
    }

    fn member(name: &str, namespace: &str) -> Value {
        json!({"metadata": {
            "name": name,
            "labels": {MEMBER_LABEL: "pool", NODEPOOL_LABEL: "pool", MEMBER_NAMESPACE_LABEL: namespace},
            "annotations": {SIMULATED: "fake"},
        }})
    }

    #[test]
    fn each_thing_that_the_tests_would_touch_and_have_not_made_is_named() {
        for reserved in NAMESPACES {
            let found = Found { namespaces: vec![object("Namespace", "", reserved)], ..Found::default() };
            assert_eq!(found.of_others(), [format!("the namespace {reserved}")]);
        }
        let revision = || object("Secret", "theirs", "sh.helm.release.v1.tandem.v1");
        let with_pool = json!({"metadata": {"name": "labelled", "labels": {NODEPOOL_LABEL: "x"}}});
        let simulated = json!({"metadata": {"name": "simulated", "annotations": {SIMULATED: "fake"}}});
        let found = Found {
            namespaces: vec![object("Namespace", "", "theirs"), object("Namespace", "", "default")],
            releases: vec![revision(), revision()],
            deployments: vec![object("Deployment", "theirs", "tandem-nodepool-operator")],
            objects: vec![object("NodePool", "theirs", "a"), object("NodePoolAutoscaler", "theirs", "b")],
            nodes: vec![object("Node", "", "plain"), member("member", "theirs"), with_pool, simulated],
        };
        let expected = [
            "the release tandem of Helm in the namespace theirs",
            "the Deployment theirs/tandem-nodepool-operator",
            "the NodePool theirs/a",
            "the NodePoolAutoscaler theirs/b",
            "the node member, which is of a NodePool",
            "the node labelled, which is of a NodePool",
            "the node simulated, which asks for a kwok",
        ];
        assert_eq!(found.of_others(), expected);
    }

    #[test]
    fn what_a_run_before_has_left_is_no_reason_to_refuse() {
        let found = Found {
            namespaces: NAMESPACES.iter().map(|name| made(name)).collect(),
            releases: vec![object("Secret", RELEASE_NAMESPACE, "sh.helm.release.v1.tandem.v1")],
            deployments: vec![object("Deployment", RELEASE_NAMESPACE, "tandem-nodepool-operator")],
            objects: vec![object("NodePool", "kept", "kept")],
            nodes: vec![member("kept-1", "kept"), object("Node", "", "plain")],
        };
        assert_eq!(found.of_others(), [""; 0]);
    }
}
