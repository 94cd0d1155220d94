//! Tandem's `NodePool` operator in the same rollout: it waits, and then the machine goes that it has drained.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use shared_crds::NodePool;
use shared_crds::names::NODEPOOL_OPERATOR;
use shared_crds::v1alpha1::{ClusterApiProvider, MachineDeploymentReference, ProviderSpec};
use testbed::audit::Event;
use testbed::objects;
use testbed::test_env::is_ready;
use testbed::wait::eventually;

use super::super::account;
use super::super::tandem::passed;
use super::machines::{MACHINE_PATIENCE, WORKERS, Workers};

/// Name of the pool.
const POOL: &str = "racks";

pub(super) async fn play(workers: &Workers<'_>) -> Result<()> {
    waits(workers).await?;
    removes_the_drained(workers).await?;
    names_another_writer(workers).await
}

/// It does nothing to the machines while they are rolled out.
async fn waits(workers: &Workers<'_>) -> Result<()> {
    let (tandem, ctx) = (workers.tandem, workers.tandem.ctx);
    ctx.say("Now Tandem, in the same rollout. A NodePool names the MachineDeployment, whose count is 2, and adopts the 3 existing nodes.");
    let mut pool = objects::pool(POOL, 0, 10);
    let machine_deployment_ref = MachineDeploymentReference { name: WORKERS.to_owned() };
    pool.spec.provider = ProviderSpec {
        cluster_api: Some(ClusterApiProvider { machine_deployment_ref }),
        ..ProviderSpec::default()
    };
    pool.spec.replicas = Some(2);
    ctx.set(&pool).await?;
    eventually(MACHINE_PATIENCE, "the pool has the 3 nodes", || async {
        let nodes = tandem.nodes(POOL).await?;
        let ready = nodes.iter().filter(|node| is_ready(node)).count();
        ensure!((nodes.len(), ready) == (3, 3), "{ready} of {} nodes are ready", nodes.len());
        Ok(Some(()))
    })
    .await?;
    tandem.kubectl(&["scale", "deployment/web", "--replicas=1"]).await?;
    tandem.pods_run(1).await?;
    ctx.say("The load falls to 1 pod, and Alice scales the pool to 1. The operator decides, and decides anew three times, when she raises its upper bound.");
    ctx.act("alice", "kubectl scale nodepool/racks --replicas=1");
    tandem.kubectl(&["scale", "nodepools.tandem.dev/racks", "--replicas=1"]).await?;
    let is_rolling = |pool: &NodePool| {
        let said = condition(pool, "Reconciling").map(|found| found.message).unwrap_or_default();
        said.contains("is rolling out and could remove another machine than the drained one")
    };
    let says = decided_anew(workers, is_rolling).await;
    ctx.check(
        "the condition Reconciling says each time that it waits for the rollout, and why",
        passed(ctx, &says),
    );
    let writes = machine_writes(&tandem.events(POOL).await?);
    ctx.check_eq("it has marked no machine and lowered no number", &writes.len(), &0);
    ctx.check_eq(
        "no node is cordoned, there are 3 machines, and the number is 2",
        &(workers.cordoned().await?.len(), workers.machines().await?.len(), workers.number().await?),
        &(0, 3, 2),
    );
    Ok(())
}

/// After the rollout exactly the drained machine goes.
async fn removes_the_drained(workers: &Workers<'_>) -> Result<()> {
    let (tandem, ctx) = (workers.tandem, workers.tandem.ctx);
    ctx.say("The new machines are let in, and the rollout ends.");
    let new = workers.all_let_in(1).await?;
    let left = workers.settles(1).await?;
    let pool = eventually(MACHINE_PATIENCE, "the pool has 1 node", || async {
        let (pool, nodes) = (ctx.stored::<NodePool>(POOL).await?, tandem.nodes(POOL).await?);
        let ready = pool.status.as_ref().and_then(|status| status.ready_replicas);
        ensure!((nodes.len(), ready) == (1, Some(1)), "{} nodes, {:?} ready", nodes.len(), pool.status);
        Ok(Some(pool))
    })
    .await?;
    ctx.check_eq("the pool is at 1", &pool.spec.replicas, &Some(1));
    let events = tandem.events(POOL).await?;
    let writes = machine_writes(&events);
    let (marks, scaled): (Vec<&Event>, Vec<&Event>) =
        writes.iter().partition(|event| event.subresource.is_empty());
    ctx.check_eq(
        "the operator has annotated one machine and lowered the count once",
        &(marks.len(), scaled.len()),
        &(1, 1),
    );
    let marked: BTreeSet<String> =
        marks.iter().filter_map(|event| event.object.as_ref()).map(|object| object.name.clone()).collect();
    let left: BTreeSet<String> = left.into_iter().map(|machine| machine.name).collect();
    let gone: BTreeSet<String> = new.difference(&left).cloned().collect();
    ctx.check_eq("of the new machines exactly the marked one is gone", &gone, &marked);
    // The in-memory machine, and so its Node, has the name of the Machine.
    let cordon = events.iter().find(|event| {
        let is_node =
            event.object.as_ref().is_some_and(|it| it.resource == "nodes" && marked.contains(&it.name));
        is_node && is_granted(event) && cordons(event)
    });
    let times = [cordon.map(|it| it.completed), first(&marks), first(&scaled)];
    ctx.check(
        "its node was cordoned, then the machine was marked, then the number was lowered",
        times.iter().all(Option::is_some) && times.is_sorted(),
    );
    Ok(())
}

/// Another writer of the number is named.
async fn names_another_writer(workers: &Workers<'_>) -> Result<()> {
    let (tandem, ctx) = (workers.tandem, workers.tandem.ctx);
    ctx.say("A user scales the MachineDeployment behind the pool.");
    ctx.act("bob", "kubectl scale machinedeployment/workers --replicas=2");
    tandem.kubectl(&["scale", "machinedeployments.cluster.x-k8s.io/workers", "--replicas=2"]).await?;
    let is_named = |pool: &NodePool| {
        condition(pool, "MachinesContested").is_some_and(|found| {
            (&*found.status, &*found.reason) == ("True", "Yielded")
                && found.message.contains("kubectl has set the provider to 2 machines")
        })
    };
    let named = decided_anew(workers, is_named).await;
    ctx.check(
        "the condition MachinesContested says that kubectl has set the provider to 2 machines",
        passed(ctx, &named),
    );
    let pool = ctx.stored::<NodePool>(POOL).await?;
    ctx.check_eq(
        "the count is kept, and nobody changes the pool's own count",
        &(workers.number().await?, pool.spec.replicas),
        &(2, Some(1)),
    );
    Ok(())
}

/// Raises the pool's upper bound three times, and waits each time until the operator has seen that and reports what is
/// `wanted`.
#[expect(clippy::disallowed_methods, reason = "a user changes a bound that has no other writer")]
async fn decided_anew(workers: &Workers<'_>, wanted: impl Fn(&NodePool) -> bool) -> Result<()> {
    let (ctx, wanted) = (workers.tandem.ctx, &wanted);
    let pools = Api::<NodePool>::namespaced(ctx.unrecorded_client().await?, ctx.namespace());
    let mut pool = ctx.stored::<NodePool>(POOL).await?;
    for _ in 0..3 {
        let bound = json!({"spec": {"maxReplicas": pool.spec.max_replicas + 1}});
        pools.patch(POOL, &PatchParams::default(), &Patch::Merge(bound)).await?;
        pool = eventually(MACHINE_PATIENCE, "the operator has decided and reports it", || async move {
            let pool = ctx.stored::<NodePool>(POOL).await?;
            let observed = pool.status.as_ref().and_then(|status| status.observed_generation);
            ensure!(observed == pool.metadata.generation && wanted(&pool), "{:?}", pool.status);
            Ok(Some(pool))
        })
        .await?;
    }
    Ok(())
}

/// The condition of this type.
fn condition(pool: &NodePool, type_: &str) -> Option<Condition> {
    let mut all = pool.status.iter().flat_map(|status| &status.conditions);
    all.find(|condition| condition.type_ == type_).cloned()
}

fn is_granted(event: &Event) -> bool {
    event.is_write() && event.succeeded() && account::operator(event) == Some(NODEPOOL_OPERATOR)
}

/// The granted writes of the operator to machines and to `MachineDeployment`s.
fn machine_writes(events: &[Event]) -> Vec<Event> {
    let of_machines = |event: &&Event| {
        let resource = event.object.as_ref().map(|object| object.resource.as_str());
        matches!(resource, Some("machines" | "machinedeployments")) && is_granted(event)
    };
    events.iter().filter(of_machines).cloned().collect()
}

/// When the first of these was answered.
fn first(events: &[&Event]) -> Option<jiff::Timestamp> {
    events.iter().map(|event| event.completed).min()
}

/// Whether this write cordons a node.
fn cordons(event: &Event) -> bool {
    event.response.as_ref().is_some_and(|node| node["spec"]["unschedulable"] == true)
}
