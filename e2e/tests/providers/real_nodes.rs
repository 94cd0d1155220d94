//! Real nodes: machines whose kubelets run real pods, made by a program. From none to two, drained, and gone.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use shared_crds::NodePool;
use shared_crds::v1alpha1::{ExecProvider, ProviderSpec};
use testbed::objects;
use testbed::real_nodes::{IMAGE, PROGRAM, REAL, RealNodes, unavailable};
use testbed::test_env::TestEnv;
use testbed::wait::{PATIENCE, eventually};
use testbed::waiting::does_not_run;

/// The grace period of a pod, which its kubelet waits for: busybox's web server does not react to a signal.
const GRACE: i64 = 3;

/// Pods of a real web server, no two on one node.
fn servers(replicas: i32) -> Deployment {
    let labels = json!({"app": "web"});
    serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {"pool": "real"},
                    "terminationGracePeriodSeconds": GRACE,
                    "automountServiceAccountToken": false,
                    "dnsPolicy": "Default",
                    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
                        "labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname",
                    }]}},
                    "containers": [{
                        "name": "web",
                        "image": IMAGE,
                        "imagePullPolicy": "Never",
                        "command": ["/bin/busybox", "httpd", "-f", "-p", "8080", "-h", "/"],
                        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
                        "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}},
                    }],
                },
            },
        },
    }))
    .unwrap()
}

async fn wait_for<T>(
    env: &TestEnv,
    real: &RealNodes,
    what: &str,
    probe: impl AsyncFn() -> Result<Option<T>>,
) -> T {
    let found = eventually(PATIENCE, what, async || {
        env.operators.keep_alive().await?;
        probe().await
    });
    found.await.unwrap_or_else(|error| {
        let machines = real.machines().unwrap_or_default();
        let logs: Vec<_> =
            machines.iter().map(|machine| format!("{machine}:\n{}", real.log(machine))).collect();
        panic!("{error:#}\n{}\n{}", env.operators.node_pool.log_tail(), logs.join("\n"))
    })
}

/// Waits until this many servers answer, each on its own node of the pool, and no other node or machine is there.
async fn serve(env: &TestEnv, real: &RealNodes, wanted: usize) -> Vec<Node> {
    let what = format!("{wanted} servers run on {wanted} real nodes");
    wait_for(env, real, &what, async || {
        let pods = env.api::<Pod>().list(&ListParams::default()).await?.items;
        let (nodes, machines) = (env.nodes("real").await?, real.machines()?);
        let is_ready = |pod: &&Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True")
        };
        let ready = pods.iter().filter(is_ready).count();
        if (pods.len(), ready, nodes.len(), machines.len()) == (wanted, wanted, wanted, wanted) {
            return Ok(Some(nodes));
        }
        let waiting: Vec<_> = pods
            .iter()
            .filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref()?.first()?.state.clone())
            .collect();
        bail!(
            "{ready} of {} pods ready, {} nodes, machines {machines:?}, {waiting:?}",
            pods.len(),
            nodes.len()
        )
    })
    .await
}

/// The operators with the program; `None` where there can be no real nodes, which is said.
async fn begin(name: &str) -> Option<(TestEnv, RealNodes)> {
    if let Some(why) = unavailable() {
        does_not_run(why);
        return None;
    }
    let mut prepared = None;
    let env = TestEnv::begin_with(&REAL, name, async |cluster| {
        let real = RealNodes::prepare(cluster, name).await?;
        let values = real.values();
        prepared = Some(real);
        Ok(values)
    });
    Some((env.await.unwrap(), prepared.unwrap()))
}

fn real_pool() -> NodePool {
    let mut pool = objects::pool("real", 0, 3);
    let exec = ExecProvider { name: PROGRAM.to_owned(), ..ExecProvider::default() };
    pool.spec.provider = ProviderSpec { exec: Some(exec), ..ProviderSpec::default() };
    pool
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_of_real_nodes_grows_for_real_pods_and_is_drained_to_nothing() {
    let Some((env, real)) = begin("real").await else { return };
    env.create(&real_pool()).await.unwrap();
    env.create(&objects::autoscaler("all", 1)).await.unwrap();
    env.create(&servers(2)).await.unwrap();
    let nodes = serve(&env, &real, 2).await;
    for node in &nodes {
        let info = node.status.as_ref().unwrap().node_info.as_ref().unwrap();
        assert!(info.container_runtime_version.starts_with("containerd://"), "{info:?}");
        assert!(node.spec.as_ref().unwrap().provider_id.as_ref().unwrap().starts_with("process://"));
    }

    // One server is enough: its node goes, and the other one stays.
    env.kubectl(&["scale", "deployment/web", "--replicas=1"]).await.unwrap();
    let [left] = &serve(&env, &real, 1).await[..] else { panic!("one node") };

    // A user deletes that node. Its pod is evicted, and its kubelet ends it before its machine goes.
    let (name, uid) = (left.metadata.name.clone().unwrap(), left.metadata.uid.clone());
    let mark = env.audit().unwrap().end().unwrap();
    env.kubectl(&["delete", "node", &name, "--wait=false"]).await.unwrap();
    wait_for(&env, &real, "the node is gone", async || {
        let nodes = Api::<Node>::all(env.client.clone()).list(&ListParams::default()).await?.items;
        Ok(nodes.iter().all(|node| node.metadata.uid != uid).then_some(()))
    })
    .await;
    let events = env.audit().unwrap().follow_from(mark).read_new().unwrap();
    let evicted = events.iter().any(|event| {
        event.subresource == "eviction" && event.object.as_ref().is_some_and(|it| it.resource == "pods")
    });
    assert!(evicted, "the pod of the deleted node was not evicted");
    let by_kubelet = events.iter().any(|event| {
        event.verb == "delete"
            && event.object.as_ref().is_some_and(|it| it.resource == "pods")
            && event.user.contains(&format!("system:node:{name}"))
    });
    assert!(by_kubelet, "no kubelet confirmed the end of the pod");
    serve(&env, &real, 1).await;

    env.kubectl(&["delete", "deployment/web"]).await.unwrap();
    wait_for(&env, &real, "every node and every machine is gone", async || {
        let (nodes, machines) = (env.nodes("real").await?, real.machines()?);
        ensure!(nodes.is_empty() && machines.is_empty(), "{} nodes, {machines:?}", nodes.len());
        Ok(Some(()))
    })
    .await;
    real.end().await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_loses_its_power_is_replaced() {
    let Some((env, real)) = begin("power").await else { return };
    let mut pool = real_pool();
    pool.spec.replicas = Some(2);
    env.create(&pool).await.unwrap();
    env.settles("real", 2).await.unwrap();
    let before = env.nodes("real").await.unwrap();
    let [kept, lost] = [&before[0], &before[1]].map(|node| node.metadata.clone());
    real.power_off(lost.name.as_deref().unwrap()).unwrap();
    let nodes = wait_for(&env, &real, "another machine is there instead", async || {
        let nodes = env.nodes("real").await?;
        let uids: Vec<_> = nodes.iter().map(|node| node.metadata.uid.clone()).collect();
        ensure!(!uids.contains(&lost.uid) && uids.len() == 2, "{} nodes", uids.len());
        Ok(Some(nodes))
    })
    .await;
    assert!(nodes.iter().any(|node| node.metadata.uid == kept.uid), "the other one stayed");
    env.settles("real", 2).await.unwrap();
    env.published(&["MachineLost"]).await.unwrap();
    env.kubectl(&["delete", "nodepool/real"]).await.unwrap();
    real.end().await.unwrap();
    env.end().await.unwrap();
}
