//! Machines that a program makes and that register their Nodes themselves.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use shared_crds::NodePool;
use shared_crds::names::{MACHINE_LABEL, PROVIDER_LABEL};
use shared_crds::v1alpha1::{ExecProvider, NodeTaint, ProviderSpec, TaintEffect};
use testbed::machines::{Machines, PROGRAM, host_name};
use testbed::objects;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

/// Both operators, and machines whose kubelets run.
pub(super) async fn begin(prefix: &str) -> (TestEnv, Machines) {
    let mut machines = Machines::new().unwrap();
    let values = machines.values();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let env = TestEnv::begin(prefix, &values).await.unwrap();
    machines.start_kubelets(env.cluster).await.unwrap();
    (env, machines)
}

/// A pool whose machines the program `program` makes.
pub(super) fn pool_of(program: &str, name: &str, replicas: i32) -> NodePool {
    let mut pool = objects::pool(name, 0, 10);
    let exec = ExecProvider { name: program.to_owned(), ..ExecProvider::default() };
    pool.spec.provider = ProviderSpec { exec: Some(exec), ..ProviderSpec::default() };
    pool.spec.replicas = Some(replicas);
    pool
}

/// The Nodes of the machines, whether or not they are in a pool.
async fn hosts(env: &TestEnv) -> Result<Vec<String>> {
    let nodes = Api::<Node>::all(env.client.clone()).list(&ListParams::default()).await?.items;
    let names = nodes.into_iter().filter_map(|node| node.metadata.name);
    Ok(names.filter(|name| name.starts_with(&host_name(""))).collect())
}

/// Ends the test, after the machines have gone with their Nodes.
pub(super) async fn end(env: TestEnv, machines: Machines) {
    let pools = env.api::<NodePool>();
    pools.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    eventually(PATIENCE, "every machine is gone, and every Node", async || {
        let (machines, hosts) = (machines.names()?, hosts(&env).await?);
        ensure!(machines.is_empty() && hosts.is_empty(), "{machines:?} {hosts:?}");
        ensure!(pools.list(&ListParams::default()).await?.items.is_empty(), "a pool is there");
        Ok(Some(()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error:#}\n{}", env.operators.node_pool.log_tail()));
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_join_the_pool_for_pods_and_go_after_their_drain() {
    let (env, machines) = begin("exec").await;
    let mut pool = pool_of(PROGRAM, "racks", 0);
    pool.spec.template.spec.startup_taints =
        vec![NodeTaint { key: "example.com/agent".to_owned(), value: None, effect: TaintEffect::NoSchedule }];
    env.create(&pool).await.unwrap();
    env.create(&objects::autoscaler("all", 1)).await.unwrap();
    env.create(&objects::deployment("web", "racks", 3, "3")).await.unwrap();
    env.settles("racks", 3).await.unwrap();
    let nodes = env.nodes("racks").await.unwrap();
    for node in &nodes {
        let labels = node.metadata.labels.as_ref().unwrap();
        let machine = &labels[MACHINE_LABEL];
        assert_eq!(node.metadata.name, Some(host_name(machine)));
        assert_eq!((&*labels["pool"], &*labels[PROVIDER_LABEL]), ("racks", "exec.directory"));
        let taints = node.spec.as_ref().unwrap().taints.as_deref().unwrap_or_default();
        assert!(taints.iter().any(|taint| taint.key == "example.com/agent"), "{taints:?}");
        env.kubectl(&["taint", "node", &host_name(machine), "example.com/agent-"]).await.unwrap();
    }
    env.pods_run(3).await.unwrap();
    assert_eq!(machines.names().unwrap().len(), 3);

    env.kubectl(&["scale", "deployment/web", "--replicas=1"]).await.unwrap();
    env.settles("racks", 1).await.unwrap();
    env.pods_run(1).await.unwrap();
    assert_eq!((machines.names().unwrap().len(), hosts(&env).await.unwrap().len()), (1, 1));

    // A Node that a user deletes is drained, and its machine goes with it: it does not register again.
    let [node] = &env.nodes("racks").await.unwrap()[..] else { panic!("one node") };
    let (name, uid) = (node.metadata.name.clone().unwrap(), node.metadata.uid.clone());
    env.kubectl(&["delete", "node", &name, "--wait=false"]).await.unwrap();
    eventually(PATIENCE, "another machine runs the pod", async || {
        let nodes = env.nodes("racks").await?;
        Ok((nodes.len() == 1 && nodes[0].metadata.uid != uid).then_some(()))
    })
    .await
    .unwrap();
    end(env, machines).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_operator_makes_no_machine_twice_and_leaves_none_behind() {
    let (mut env, machines) = begin("exec-killed").await;
    env.create(&pool_of(PROGRAM, "racks", 5)).await.unwrap();
    eventually(PATIENCE, "a machine is there", async || Ok((!machines.names()?.is_empty()).then_some(())))
        .await
        .unwrap();
    env.operators.node_pool.kill_9().await.unwrap();
    env.operators.node_pool.start_again().await.unwrap();
    env.settles("racks", 5).await.unwrap();
    assert_eq!(machines.names().unwrap().len(), 5);

    // Killed while nodes leave: each machine goes after its Node began to, and before that is gone.
    env.patch_pool("racks", &json!({"replicas": 1})).await.unwrap();
    eventually(PATIENCE, "a machine is gone", async || Ok((machines.names()?.len() < 5).then_some(())))
        .await
        .unwrap();
    env.operators.node_pool.kill_9().await.unwrap();
    env.operators.node_pool.start_again().await.unwrap();
    env.settles("racks", 1).await.unwrap();
    eventually(PATIENCE, "one machine and one Node are left", async || {
        let (machines, hosts) = (machines.names()?, hosts(&env).await?);
        ensure!(machines.len() == 1 && hosts.len() == 1, "{machines:?} {hosts:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    end(env, machines).await;
}

/// Waits until the operator has reported about machines from a pool `racks` that is at least as new as this one.
async fn reported_about(env: &TestEnv, pool: &NodePool) {
    eventually(PATIENCE, "a report is about the changed pool", async || {
        let all = env.pool("racks").await?.status.unwrap_or_default().conditions;
        let said =
            all.iter().find(|it| it.type_ == "ProvisioningHealthy").and_then(|it| it.observed_generation);
        ensure!(said >= pool.metadata.generation, "{said:?} of {:?}", pool.metadata.generation);
        Ok(Some(()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error:#}\n{}", env.operators.node_pool.log_tail()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_lies_costs_no_node() {
    let (env, machines) = begin("exec-lies").await;
    env.create(&pool_of(PROGRAM, "racks", 2)).await.unwrap();
    env.settles("racks", 2).await.unwrap();
    let (before, nodes) = (machines.names().unwrap(), hosts(&env).await.unwrap());
    let healthy = "ProvisioningHealthy";
    for (script, reason, text) in [
        (r#"echo '{"machines": [], "state": "Gone"}'"#, "ProvisioningFailed", "does not list it"),
        (
            r#"echo '{"machines": [{"name": "other-1", "state": "Running"}]}'"#,
            "ProvisioningFailed",
            "other-1",
        ),
        ("echo garbage", "ProvisioningFailed", "garbage"),
        (
            "echo 'no route' >&2; exit 1",
            "ProvisioningFailed",
            "exit status: 1: its standard error is in the log",
        ),
        (
            r#"echo '{"error": {"reason": "Unauthorized", "message": "token"}}'"#,
            "ProviderUnauthorized",
            "token",
        ),
        (r#"echo '{"error": {"reason": "Unreachable", "message": "lost"}}'"#, "ProviderUnreachable", "lost"),
    ] {
        machines.answer(script).unwrap();
        // One more node is wanted, so the program is asked.
        env.patch_pool("racks", &json!({"replicas": 3})).await.unwrap();
        env.says("racks", healthy, ("False", reason, text)).await.unwrap();
        assert_eq!((machines.names().unwrap(), hosts(&env).await.unwrap()), (before.clone(), nodes.clone()));
        let back = env.patch_pool("racks", &json!({"replicas": 2})).await.unwrap();
        // Before that, the operator would have a third machine made by a program that tells the truth.
        reported_about(&env, &back).await;
        machines.tell_the_truth().unwrap();
        env.says("racks", healthy, ("True", "Provisioned", "")).await.unwrap();
    }
    env.settles("racks", 2).await.unwrap();
    assert_eq!((machines.names().unwrap(), hosts(&env).await.unwrap()), (before, nodes));
    end(env, machines).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_never_registers_is_given_up_and_another_one_is_asked_for() {
    let (env, machines) = begin("exec-mute").await;
    machines.register(false);
    let mut pool = pool_of(PROGRAM, "racks", 1);
    pool.spec.provisioning_timeout_seconds = 3;
    env.create(&pool).await.unwrap();
    env.says("racks", "ProvisioningHealthy", ("False", "ProvisioningTimedOut", "did not register a Node"))
        .await
        .unwrap();
    machines.register(true);
    env.settles("racks", 1).await.unwrap();
    env.says("racks", "ProvisioningHealthy", ("True", "Provisioned", "")).await.unwrap();
    end(env, machines).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_changed_under_a_pool_or_not_there_is_named() {
    let (env, machines) = begin("exec-changed").await;
    env.create(&pool_of("nobody", "unknown", 1)).await.unwrap();
    env.says("unknown", "Stalled", ("True", "InvalidSpec", "karpenter, exec.directory")).await.unwrap();

    env.create(&pool_of(PROGRAM, "racks", 2)).await.unwrap();
    env.settles("racks", 2).await.unwrap();
    let before = machines.names().unwrap();
    let changed = json!({"provider": {"exec": null, "simulated": {}}, "replicas": 0});
    env.patch_pool("racks", &changed).await.unwrap();
    env.says("racks", "Stalled", ("True", "InvalidSpec", "was changed to simulated")).await.unwrap();
    // Nothing is removed, however often it is looked at.
    for replicas in [1, 3, 0] {
        env.patch_pool("racks", &json!({"replicas": replicas})).await.unwrap();
        eventually(PATIENCE, "the new count is seen", async || {
            let pool = env.pool("racks").await?;
            let seen = pool.status.as_ref().is_some_and(|it| {
                it.conditions
                    .iter()
                    .all(|it| it.type_ != "Stalled" || it.observed_generation == pool.metadata.generation)
            });
            Ok(seen.then_some(()))
        })
        .await
        .unwrap();
        assert_eq!((machines.names().unwrap(), env.nodes("racks").await.unwrap().len()), (before.clone(), 2));
    }
    let back = json!({"provider": {"simulated": null, "exec": {"name": PROGRAM}}});
    env.patch_pool("racks", &back).await.unwrap();
    env.settles("racks", 0).await.unwrap();
    end(env, machines).await;
}

/// Longer than the provider is asked again and again for.
const RESYNC: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_no_pool_asked_for_is_found_and_removed() {
    let (mut env, machines) = begin("exec-orphan").await;
    machines.register(false);
    env.create(&pool_of(PROGRAM, "racks", 1)).await.unwrap();
    eventually(PATIENCE, "a machine is there", async || Ok((!machines.names()?.is_empty()).then_some(())))
        .await
        .unwrap();
    let first = machines.names().unwrap().remove(0);
    machines.register(true);
    env.settles("racks", 1).await.unwrap();
    // The creation of another slot's machine is committed late. The operator sees it before its Node or, when it was down
    // meanwhile, after.
    let late = first.trim_end_matches('0').to_owned() + "4";
    for has_node in [false, true] {
        if has_node {
            env.operators.node_pool.kill_9().await.unwrap();
        }
        machines.add(&env, "racks", &late).unwrap();
        if has_node {
            eventually(PATIENCE, "its Node is there", async || {
                Ok(hosts(&env).await?.contains(&host_name(&late)).then_some(()))
            })
            .await
            .unwrap();
            env.operators.node_pool.start_again().await.unwrap();
        }
        eventually(PATIENCE + RESYNC, "the late machine is gone, with its Node", async || {
            let (machines, hosts) = (machines.names()?, hosts(&env).await?);
            ensure!(machines == [first.clone()] && hosts.len() == 1, "{machines:?} {hosts:?}");
            Ok(Some(()))
        })
        .await
        .unwrap_or_else(|error| panic!("{error:#}\n{}", env.operators.node_pool.log_tail()));
    }
    end(env, machines).await;
}
