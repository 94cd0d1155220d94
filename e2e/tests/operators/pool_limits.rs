//! An administrator's bounds on what `NodePools` may ask for (`poolLimits`), as the API server judges them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::names::POOL_FINALIZER;
use testbed::cluster::{Cluster, ClusterOptions, TestNamespace};
use testbed::objects;
use testbed::places::Places;
use testbed::tandem::Release;
use testbed::test_env::{PATIENCE, RELEASE_NAMESPACE};
use testbed::wait::eventually;

/// Their own control plane: a policy holds in the whole of it.
static PLACES: Places = Places::new(1, ClusterOptions::private);

/// The namespace that no rule names.
const UNLISTED: &str = "no rule of poolLimits names this namespace";

/// One key of a rule.
struct Row {
    /// The key with its value, as Helm takes it.
    value: &'static str,
    /// What a spec may say under the rule, as a merge patch.
    within: Value,
    /// What it may not.
    beyond: Value,
    /// How the refusal begins.
    says: &'static str,
}

/// A spec with this provider and no other.
fn provider(name: &str, value: &Value) -> Value {
    json!({"provider": {"simulated": null, name: value}})
}

fn program(name: &str) -> Value {
    provider("exec", &json!({"name": name}))
}

fn node_class(name: &str) -> Value {
    provider("karpenter", &json!({"nodeClassRef": {"group": "example.org", "kind": "Class", "name": name}}))
}

fn deployment(name: &str) -> Value {
    provider("clusterApi", &json!({"machineDeploymentRef": {"name": name}}))
}

fn labels(key: &str) -> Value {
    json!({"template": {"metadata": {"labels": {key: "a"}}}})
}

fn taint(effect: &str) -> Value {
    json!({"template": {"spec": {"taints": [{"key": "example.org/a", "effect": effect}]}}})
}

/// Each key of a rule, and `forceDrain` twice: it bounds two fields.
fn rows() -> Vec<Row> {
    let row = |value, within, beyond, says| Row { value, within, beyond, says };
    vec![
        row(
            "maxReplicas=3",
            json!({"maxReplicas": 3}),
            json!({"maxReplicas": 4}),
            "spec.maxReplicas may be 3 at most",
        ),
        row(
            "providers={exec,simulated}",
            program("rack"),
            node_class("default"),
            "spec.provider may only be: exec, simulated",
        ),
        row(
            "programs={rack,shelf}",
            program("shelf"),
            program("other"),
            "spec.provider.exec.name may only be: rack, shelf",
        ),
        row(
            "nodeClasses={default}",
            node_class("default"),
            node_class("other"),
            "spec.provider.karpenter.nodeClassRef.name may only be: default",
        ),
        row(
            "machineDeployments={workers}",
            deployment("workers"),
            deployment("other"),
            "spec.provider.clusterApi.machineDeploymentRef.name may only be: workers",
        ),
        row(
            "labels={team.example.com/*,pool}",
            labels("team.example.com/name"),
            labels("example.org/other"),
            "spec.template.metadata.labels may only have the keys: team.example.com/*, pool",
        ),
        row(
            "forceDrain=false",
            json!({"drain": {"timeoutSeconds": 60, "onTimeout": "GiveBack"}}),
            json!({"drain": {"timeoutSeconds": 60}}),
            "spec.drain may not end pods by force",
        ),
        row(
            "forceDrain=false",
            taint("NoSchedule"),
            taint("NoExecute"),
            "spec.template.spec.taints may not have the effect NoExecute",
        ),
    ]
}

/// A pool of three nodes at most, changed by a merge patch of its spec.
fn pool(name: &str, change: &Value) -> NodePool {
    let mut pool = serde_json::to_value(objects::pool(name, 0, 3)).unwrap();
    json_patch::merge(&mut pool["spec"], change);
    serde_json::from_value(pool).unwrap()
}

/// The message of the policy that has refused a write; `None` for one that was stored.
fn refusal<T>(answer: Result<T, kube::Error>) -> Option<String> {
    match answer {
        Ok(_) => None,
        Err(kube::Error::Api(status)) if status.is_forbidden() && status.message.contains("poolLimits") => {
            Some(status.message.clone())
        }
        Err(other) => panic!("{other}"),
    }
}

/// A namespace with the rule at this place, where there is one, and with a pool `old` from before there were rules.
struct Judged {
    namespace: TestNamespace,
    pools: Api<NodePool>,
}

impl Judged {
    async fn new(cluster: &Cluster, old: &Value) -> Self {
        let namespace = cluster.namespace("limits").await.unwrap();
        let pools = Api::<NodePool>::namespaced(cluster.client().await.unwrap(), namespace.name());
        pools.create(&PostParams::default(), &pool("old", old)).await.unwrap();
        Self { namespace, pools }
    }

    /// What a new pool with this change of its spec is told.
    async fn makes(&self, change: &Value) -> Option<String> {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        refusal(self.pools.create(&dry, &pool("new", change)).await)
    }

    /// What a change of the pool `old` is told.
    async fn changes(&self, change: &Value) -> Option<String> {
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        refusal(self.pools.patch("old", &dry, &Patch::Merge(change)).await)
    }
}

/// Installs the rules, a namespace for each, and returns when they hold.
async fn limit(cluster: &Cluster, rows: &[Row], judged: &[Judged], unlisted: &Judged) {
    let rule = |(index, (row, judged)): (usize, (&Row, &Judged))| {
        let namespaces = format!("poolLimits[{index}].namespaces={{{}}}", judged.namespace.name());
        [namespaces, format!("poolLimits[{index}].{}", row.value)]
    };
    let values: Vec<String> = rows.iter().zip(judged).enumerate().flat_map(rule).collect();
    Release::install(cluster, RELEASE_NAMESPACE, &values).await.unwrap();
    eventually(PATIENCE, "the rules hold", async || Ok(unlisted.makes(&json!({})).await.map(drop)))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_rule_refuses_what_it_does_not_allow_and_nothing_that_a_pool_has_already() {
    let cluster = &PLACES.take().await.unwrap();
    Release::install(cluster, RELEASE_NAMESPACE, &[]).await.unwrap();
    let rows = rows();
    let mut judged = Vec::new();
    for row in &rows {
        judged.push(Judged::new(cluster, &row.beyond).await);
    }
    let unlisted = Judged::new(cluster, &json!({})).await;
    limit(cluster, &rows, &judged, &unlisted).await;

    for (index, (row, judged)) in rows.iter().zip(&judged).enumerate() {
        let said = judged.makes(&row.beyond).await.unwrap_or_default();
        let rule = format!("(poolLimits[{index}])");
        assert!(said.contains(row.says) && said.contains(&rule), "{}: {said:?}", row.value);
        for allowed in [&row.within, &json!({})] {
            assert_eq!(judged.makes(allowed).await, None, "{}: {allowed}", row.value);
        }
        // What it has stays, also with a change that is judged.
        let is_bounded = row.value.starts_with("maxReplicas");
        let more = json!({"spec": {"maxReplicas": 5}});
        assert_eq!(judged.changes(&more).await.is_some(), is_bounded, "{}", row.value);
        for free in [json!({"metadata": {"annotations": {"note": "a"}}}), json!({"spec": {"minReplicas": 1}})]
        {
            assert_eq!(judged.changes(&free).await, None, "{}: {free}", row.value);
        }
    }
    let said = unlisted.makes(&json!({})).await.unwrap_or_default();
    assert!(said.contains(UNLISTED), "{said:?}");
    let said = unlisted.changes(&json!({"spec": {"maxReplicas": 5}})).await.unwrap_or_default();
    assert!(said.contains(UNLISTED), "{said:?}");
    assert_eq!(unlisted.changes(&json!({"spec": {"maxReplicas": 2}})).await, None);

    for judged in judged.iter().chain([&unlisted]) {
        passes_the_operators(cluster, judged).await;
    }
    cluster.mark_reusable();
}

/// What the operators write is not judged, whatever the pool asks for.
async fn passes_the_operators(cluster: &Cluster, judged: &Judged) {
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let name = judged.namespace.name();
    let pools = async |account: &str| {
        let client = cluster.client_for_service_account(RELEASE_NAMESPACE, account).await.unwrap();
        Api::<NodePool>::namespaced(client, name)
    };
    let replicas = json!({"spec": {"replicas": 2}});
    let autoscaler = pools("tandem-autoscaler-operator").await;
    let nodes = pools("tandem-nodepool-operator").await;
    let finalizer = json!({"metadata": {"finalizers": [POOL_FINALIZER]}});
    for (writer, write) in [(&autoscaler, &replicas), (&nodes, &replicas), (&nodes, &finalizer)] {
        assert_eq!(refusal(writer.patch("old", &dry, &Patch::Merge(write)).await), None, "{name}: {write}");
    }
    let status = Patch::Merge(json!({"status": {"readyReplicas": 1}}));
    assert_eq!(refusal(nodes.patch_status("old", &dry, &status).await), None, "{name}");
}
