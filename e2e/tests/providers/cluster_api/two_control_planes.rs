//! A management cluster and a workload cluster, each with a control plane of its own: Tandem where it belongs, and where it does
//! not.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::names::{MACHINE_LABEL, NODE_FINALIZER, OUT_OF_SERVICE_TAINT};
use shared_crds::v1alpha1::{ConditionStatus, RepairCondition, RepairSpec};
use testbed::audit::Event;
use testbed::cluster::{Cluster, TestNamespace};
use testbed::cluster_api::{self, ClusterApi, SECOND, WITH_CLUSTER_API};
use testbed::places::ControlPlanePlace;
use testbed::test_env::TestEnv;

use super::{
    PATIENCE, draining, end, has_at, machines_at, mentions, names, pool_of, says, size_at, stays, wait_for,
};

/// Tandem in a workload cluster, and a second control plane with a namespace of the same name.
struct Apart {
    env: TestEnv,
    _namespace: TestNamespace,
    second: ControlPlanePlace,
    management: Client,
}

/// The kubeconfig that the operator has of the management cluster.
fn kubeconfig(cluster: &Cluster) -> PathBuf {
    cluster.root().join("management.kubeconfig")
}

/// Both control planes, with the second one as the management cluster. Cluster API does not run yet.
async fn begin_apart(prefix: &str) -> Apart {
    let env = TestEnv::begin_with(&WITH_CLUSTER_API, prefix, async |cluster| {
        Ok(vec![format!("providers.clusterApi.kubeconfig={}", kubeconfig(cluster).display())])
    });
    let env = env.await.unwrap();
    let second = SECOND.take().await.unwrap();
    cluster_api::install(&second).await.unwrap();
    let namespace = second.namespace_called(env.namespace(), &[]).await.unwrap();
    let apart = Apart { management: second.client().await.unwrap(), _namespace: namespace, second, env };
    apart.manage_with(&apart.second);
    apart
}

impl Apart {
    /// The operator's kubeconfig becomes that of this cluster, at once, as a mounted Secret does.
    fn manage_with(&self, cluster: &Cluster) {
        let (file, next) = (kubeconfig(self.env.cluster), self.env.cluster.root().join("next.kubeconfig"));
        std::fs::copy(cluster.kubeconfig_path(), &next).unwrap();
        std::fs::rename(&next, file).unwrap();
    }

    /// Starts Cluster API in the second control plane, for nodes in the first one.
    async fn start(&self) -> ClusterApi {
        cluster_api::start_for(&self.second, self.env.cluster).await.unwrap()
    }

    /// A `MachineDeployment` `workers` without machines in the second control plane, for nodes in the first one.
    async fn create(&self, capi: &ClusterApi) {
        let (second, env) = (&self.second, &self.env);
        let created = cluster_api::create_for(second, env.cluster, env.namespace(), "workers").await;
        created.unwrap_or_else(|error| panic!("{error:#}\n{}", capi.core.log_tail()));
    }

    async fn has(&self, capi: &ClusterApi, wanted: usize) -> Vec<Node> {
        has_at(&self.env, capi, &self.management, wanted).await
    }

    async fn scale(&self, capi: &ClusterApi, replicas: usize) -> Vec<Node> {
        self.env.patch_pool("racks", &json!({"replicas": replicas})).await.unwrap();
        self.has(capi, replicas).await
    }

    /// Ends the test. Cluster API's objects in the second control plane go before the pool.
    async fn end(self, capi: ClusterApi) {
        let Self { env, _namespace, second, management: _ } = self;
        env.kubectl(&["delete", "nodepools.tandem.dev", "--all", "--timeout=180s"]).await.unwrap();
        for kind in ["machinedeployments.cluster.x-k8s.io", "clusters.cluster.x-k8s.io"] {
            let delete = ["--namespace", env.namespace(), "delete", kind, "--all", "--timeout=180s"];
            second.kubectl(&delete).await.unwrap();
        }
        std::fs::remove_file(kubeconfig(env.cluster)).unwrap();
        env.end().await.unwrap();
        capi.stop(PATIENCE).await.unwrap();
        second.mark_reusable();
    }
}

/// A pool whose nodes are replaced when their kubelets have been silent for three seconds.
fn repaired_pool(replicas: i32) -> NodePool {
    let mut pool = pool_of("racks", Some(replicas));
    let silent = RepairCondition { type_: "Ready".to_owned(), status: ConditionStatus::Unknown, seconds: 3 };
    pool.spec.repair = Some(RepairSpec { conditions: vec![silent], ..RepairSpec::default() });
    pool
}

/// Reports what the node lifecycle controller reports of a node whose kubelet is silent; kwok does not simulate it any more.
async fn silence(env: &TestEnv, node: &str) {
    let nodes = Api::<Node>::all(env.client.clone());
    let simulation = Patch::Merge(json!({"metadata": {"annotations": {"kwok.x-k8s.io/node": null}}}));
    nodes.patch(node, &PatchParams::default(), &simulation).await.unwrap();
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap().to_string();
    let condition = Patch::Strategic(json!({"status": {"conditions": [{
        "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "a test says so",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }]}}));
    nodes.patch_status(node, &PatchParams::default(), &condition).await.unwrap();
}

fn machine_of(node: &Node) -> &str {
    &node.metadata.labels.as_ref().unwrap()[MACHINE_LABEL]
}

/// Whether these are the nodes of the pool, each kept by Tandem's finalizer, and none out of service.
async fn are_kept(env: &TestEnv, expected: &[String]) -> Result<()> {
    let nodes = env.nodes("racks").await?;
    let mut found = names(&nodes);
    found.sort_unstable();
    ensure!(found == *expected, "{found:?}");
    for node in &nodes {
        let is_kept = node.metadata.finalizers.iter().flatten().any(|name| name == NODE_FINALIZER);
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let is_out = taints.into_iter().any(|taint| taint.key == OUT_OF_SERVICE_TAINT);
        ensure!(is_kept && !is_out, "{}", serde_json::to_string(node)?);
    }
    Ok(())
}

fn sorted(nodes: &[Node]) -> Vec<String> {
    let mut names = names(nodes);
    names.sort_unstable();
    names
}

/// Waits until Cluster API has found the Node of each of this many machines in the cluster of Tandem. Their names.
async fn found_nodes(env: &TestEnv, capi: &ClusterApi, wanted: usize) -> Vec<String> {
    wait_for(env, capi, &format!("{wanted} machines have Nodes elsewhere"), async || {
        let all = cluster_api::machines(env.client.clone(), env.namespace());
        let all = all.list(&ListParams::default()).await?.items;
        let has_node = |machine: &&kube::api::DynamicObject| {
            machine.data.pointer("/status/nodeRef/name").and_then(Value::as_str).is_some()
        };
        let found = all.iter().filter(has_node).count();
        ensure!((all.len(), found) == (wanted, wanted), "{found} of {} have", all.len());
        let mut names: Vec<String> = all.into_iter().filter_map(|machine| machine.metadata.name).collect();
        names.sort_unstable();
        Ok(Some(names))
    })
    .await
}

/// Whether these are the machines in the cluster of Tandem, unmarked, and as many are wanted.
async fn are_untouched(env: &TestEnv, expected: &[String]) -> Result<()> {
    let size = size_at(&env.client, env.namespace()).await?;
    let mut machines = machines_at(&env.client, env.namespace()).await?;
    machines.sort_unstable();
    let unmarked: Vec<_> = expected.iter().map(|name| (name.clone(), false)).collect();
    ensure!(
        machines == unmarked && usize::try_from(size)? == expected.len(),
        "{size} wanted, of {machines:?}"
    );
    Ok(())
}

/// Checks that the operator has written nothing of Cluster API's in its own cluster, with whatever credentials.
fn has_written_nothing(env: &TestEnv) {
    let writes = |event: &Event| {
        let resource = event.object.as_ref().map(|it| &*it.resource);
        event.is_write()
            && event.user_agent.contains("nodepool-operator")
            && matches!(resource, Some("machines" | "machinesets" | "machinedeployments"))
    };
    let written: Vec<_> = env.events().unwrap().into_iter().filter(writes).collect();
    assert!(written.is_empty(), "{written:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_of_a_management_cluster_follow_the_pool_and_keep_their_nodes_when_they_are_moved_away() {
    let apart = begin_apart("capi-apart").await;
    let capi = apart.start().await;
    apart.create(&capi).await;
    let env = &apart.env;
    env.create(&repaired_pool(0)).await.unwrap();
    let two = apart.scale(&capi, 2).await;
    // Exactly the drained one goes, in both clusters.
    env.patch_pool("racks", &json!({"replicas": 1})).await.unwrap();
    let drained = draining(env, &capi, &[]).await;
    let left = sorted(&apart.has(&capi, 1).await);
    assert!(names(&two).contains(&left[0]) && left[0] != drained, "{left:?} without {drained}");
    let two = sorted(&apart.scale(&capi, 2).await);
    assert!(two.contains(&left[0]), "{two:?} with {left:?}");

    cluster_api::move_away(&apart.second, env.namespace()).await.unwrap();
    // Before the pool is seen to lack its machines, a node dies and a person deletes its Node; and there are too many.
    silence(env, &two[0]).await;
    env.kubectl(&["delete", "node", &two[0], "--wait=false"]).await.unwrap();
    env.patch_pool("racks", &json!({"replicas": 1})).await.unwrap();
    mentions(env, &capi, "there is no MachineDeployment").await;
    stays("the nodes of machines that were moved", async || are_kept(env, &two).await).await;

    // What the documentation says for a MachineDeployment that is gone for good: the machines are off, and then their Nodes go.
    env.kubectl(&["delete", "nodepools.tandem.dev/racks", "--wait=false"]).await.unwrap();
    env.kubectl(&["delete", "node", &two[1], "--wait=false"]).await.unwrap();
    stays("the nodes of a pool that is deleted", async || are_kept(env, &two).await).await;
    for node in &two {
        env.kubectl(&["patch", "node", node, "--type=merge", "--patch={\"metadata\":{\"finalizers\":null}}"])
            .await
            .unwrap();
    }
    apart.end(capi).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tandem_in_the_management_cluster_removes_no_machine_whose_node_is_in_the_workload_cluster() {
    let env = TestEnv::begin_with(&WITH_CLUSTER_API, "capi-wrong-cluster", async |cluster| {
        cluster_api::install(cluster).await?;
        Ok(vec!["providers.clusterApi.enabled=true".to_owned()])
    });
    let env = env.await.unwrap();
    // The second control plane is the workload cluster, and knows nothing of Cluster API.
    let workload = SECOND.take().await.unwrap();
    let capi = cluster_api::start_for(env.cluster, &workload).await.unwrap();
    cluster_api::create_for(env.cluster, &workload, env.namespace(), "workers").await.unwrap();
    env.kubectl(&["scale", "machinedeployments.cluster.x-k8s.io/workers", "--replicas=2"]).await.unwrap();
    let machines = found_nodes(&env, &capi, 2).await;

    let mut pool = pool_of("racks", Some(2));
    pool.spec.provisioning_timeout_seconds = 10;
    env.create(&pool).await.unwrap();
    stays("machines with Nodes elsewhere", async || are_untouched(&env, &machines).await).await;
    env.patch_pool("racks", &json!({"replicas": 1})).await.unwrap();
    // It is said after a minute, so the time limit of the machines is over by then.
    let text = "Tandem belongs into the cluster of the nodes";
    wait_for(&env, &capi, "the pool says that the Nodes are elsewhere", async || {
        are_untouched(&env, &machines).await.unwrap();
        env.said("racks", "Stalled", ("True", "NodeElsewhere", text)).await
    })
    .await;
    says(&env, &capi, "racks", "Ready", ("False", "", "")).await;
    stays("machines with Nodes elsewhere", async || are_untouched(&env, &machines).await).await;
    has_written_nothing(&env);
    assert!(env.nodes("racks").await.unwrap().is_empty(), "a node of the pool in the wrong cluster");

    // The machines go before the pool, which would keep them.
    env.kubectl(&["delete", "machinedeployments", "--all", "--timeout=180s"]).await.unwrap();
    end(env, capi).await;
    workload.mark_reusable();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namesake_in_another_management_cluster_loses_no_machine_and_releases_no_node() {
    let apart = begin_apart("capi-namesake").await;
    let capi = apart.start().await;
    apart.create(&capi).await;
    let env = &apart.env;
    env.create(&repaired_pool(3)).await.unwrap();
    let nodes = apart.has(&capi, 3).await;
    let all = sorted(&nodes);

    // A MachineDeployment of the same name, with machines of another workload cluster. Its management cluster is that of the
    // nodes, and its Nodes are in the second one: three clusters, on two control planes.
    capi.stop(PATIENCE).await.unwrap();
    cluster_api::install(env.cluster).await.unwrap();
    let capi = cluster_api::start_for(env.cluster, &apart.second).await.unwrap();
    cluster_api::create_for(env.cluster, &apart.second, env.namespace(), "workers").await.unwrap();
    env.kubectl(&["scale", "machinedeployments.cluster.x-k8s.io/workers", "--replicas=3"]).await.unwrap();
    let namesakes = found_nodes(env, &capi, 3).await;

    apart.manage_with(env.cluster);
    // A repair: the machine of the silent node has to be off before its pods are given up.
    silence(env, &nodes[0].metadata.name.clone().unwrap()).await;
    let gone = |machine: &str| format!("it says that there is no machine {machine}, but");
    mentions(env, &capi, &gone(machine_of(&nodes[0]))).await;
    // A scale-down: the machines in flight may be live, so they count, and one of the two other nodes is too many.
    env.patch_pool("racks", &json!({"replicas": 1})).await.unwrap();
    let drained = draining(env, &capi, &[&*names(&nodes)[0]]).await;
    let drained = nodes.iter().find(|node| node.metadata.name.as_ref() == Some(&drained)).unwrap();
    // Of two nodes that fail alike, the condition keeps the first. The log has both.
    let tried = gone(machine_of(drained));
    wait_for(env, &capi, "the removal of the drained node's machine is tried", async || {
        let log = std::fs::read_to_string(env.operators.node_pool.log_path())?;
        Ok(log.contains(&tried).then_some(()))
    })
    .await;
    mentions(env, &capi, "does it look at another cluster or project?").await;
    stays("the nodes and the namesake's machines", async || {
        are_kept(env, &all).await?;
        are_untouched(env, &namesakes).await
    })
    .await;
    has_written_nothing(env);

    // With the right kubeconfig, exactly those two go.
    env.kubectl(&["delete", "machinedeployments", "--all", "--timeout=180s"]).await.unwrap();
    env.kubectl(&["delete", "clusters.cluster.x-k8s.io", "--all", "--timeout=180s"]).await.unwrap();
    capi.stop(PATIENCE).await.unwrap();
    let capi = apart.start().await;
    apart.manage_with(&apart.second);
    let last = names(&apart.has(&capi, 1).await);
    let stayed = nodes[1..].iter().find(|node| node.metadata.name != drained.metadata.name).unwrap();
    assert_eq!(last, names(std::slice::from_ref(stayed)));
    apart.end(capi).await;
}
