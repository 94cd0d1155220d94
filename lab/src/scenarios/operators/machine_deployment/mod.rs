//! Two controllers size one `MachineDeployment`, on the real controllers of Cluster API: what guards the number does not
//! choose the machine (kubernetes/autoscaler#8494).

mod machines;
mod node_pool;
mod numbers;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::subresource::Scale;
use serde_json::json;
use testbed::cluster_api;

use self::machines::{Machine, WORKERS, Workers, by_set};
use super::tandem::{Tandem, passed};
use crate::context::{Actor, PATIENCE, ScenarioContext};
use crate::event::Table;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "machine-deployment",
    title: "Two controllers scale one MachineDeployment: the count is guarded, the machine to delete is not",
    rows: &["5a", "0f", "4i"],
    refutes: &["marked-machine-goes"],
    lesson: "A guard protects the count; it does not decide which machine is deleted.\nAnnotate the machine, then lower the count, and only without a rollout: during a rollout, the MachineDeployment decides.",
    needs: Needs::ClusterApi,
    run: |ctx| Box::pin(run(ctx)),
};

/// Pods of the load, each on a node of its own.
const PODS: usize = 3;

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let tandem = Tandem::begin_with(ctx, &["providers.clusterApi.enabled=true"]).await?;
    let played = with_cluster_api(&tandem).await;
    tandem.end(played).await
}

/// Runs the controllers of Cluster API, and stops them after they have removed their machines, however it went.
async fn with_cluster_api(tandem: &Tandem<'_>) -> Result<()> {
    let controllers = cluster_api::start(&tandem.ctx.cluster).await?;
    let played = play(tandem).await.map_err(|error| {
        error.context(format!("the log of Cluster API ends with\n{}", controllers.core.log_tail()))
    });
    let cleared = machines::clear(tandem).await;
    let stopped = controllers.stop(PATIENCE).await;
    played.and(cleared).and(stopped)
}

async fn play(tandem: &Tandem<'_>) -> Result<()> {
    let ctx = tandem.ctx;
    let (alice, bob) = (ctx.actor("alice").await?, ctx.actor("bob").await?);
    let workers = Workers::create(tandem).await?;
    ctx.say("The controllers of Cluster API run, and a MachineDeployment keeps 4 machines. It replaces them one by one: maxSurge 1, maxUnavailable 0. A machine counts as available once the lab sets a readiness gate of its template. So the lab decides how far a rollout is.");
    ctx.say("3 pods run there, each on a node of its own. One node is empty.");
    workers.load(PODS).await?;
    in_quiet_times(&workers, &bob).await?;
    numbers::play(&workers, &alice, &bob).await?;
    in_a_rollout(&workers, &bob).await?;
    node_pool::play(&workers).await
}

/// The mark works while all machines are of one template.
async fn in_quiet_times(workers: &Workers<'_>, bob: &Actor) -> Result<()> {
    let ctx = workers.tandem.ctx;
    ctx.say("Bob scales down as Cluster Autoscaler does: drain a node, annotate its Machine with cluster.x-k8s.io/delete-machine, lower replicas by one. The count is guarded: the patch tests that it is the one that he decided from.");
    let before = workers.machines().await?;
    let busy = workers.with_pod(&before).await?;
    // Without a mark, Cluster API takes the first of equal machines by name.
    let chosen = busy.last().context("no machine has a pod")?.clone();
    ctx.act("bob", "kubectl drain NODE-A");
    ctx.act("bob", "kubectl annotate machine MACHINE-A cluster.x-k8s.io/delete-machine=bob");
    workers.drain_and_mark(&chosen).await?;
    lower(bob, 4).await?;
    let after = workers.settles(3).await?;
    ctx.check_eq(
        "without a rollout exactly the annotated machine is deleted",
        &gone(&before, &after),
        &vec![chosen.name],
    );
    let run = workers.tandem.pods_run(PODS).await;
    ctx.check("and the 3 pods run", passed(ctx, &run));
    Ok(())
}

/// The same steps while a new template is rolled out.
async fn in_a_rollout(workers: &Workers<'_>, bob: &Actor) -> Result<()> {
    let ctx = workers.tandem.ctx;
    ctx.say("Alice gives the MachineDeployment a new template. The first new machine comes and joins with an empty node; it has not been let in yet, so the rollout stands where it is.");
    let old = workers.machines().await?;
    ctx.act("alice", "kubectl patch machinedeployment workers (template.spec.infrastructureRef: small-2)");
    workers.set_template("small-2").await?;
    let before = workers.stands_after(&old).await?;
    let new = before.iter().find(|machine| !old.iter().any(|it| it.name == machine.name));
    let new = new.context("no new machine")?.clone();
    let busy = workers.with_pod(&before).await?;
    ctx.check_eq(
        "RollingOut is True: 3 old machines, each with a pod, and a new one without",
        &busy.len(),
        &PODS,
    );
    ensure!(busy.iter().all(|machine| machine.name != new.name), "a pod runs on the new machine");

    ctx.say("Bob finds a node that nothing needs, the new one, and does what he did before.");
    ctx.act("bob", "kubectl drain NODE-N");
    ctx.act("bob", "kubectl annotate machine MACHINE-N cluster.x-k8s.io/delete-machine=bob");
    workers.drain_and_mark(&new).await?;
    let before = workers.machines().await?;
    lower(bob, 3).await?;
    let after = workers.settles(3).await?;
    let is_marked = after.iter().any(|machine| machine.name == new.name && machine.is_marked);
    let is_empty = workers.with_pod(std::slice::from_ref(&new)).await?.is_empty();
    ctx.check(
        "the marked machine stays, with its mark, cordoned and empty",
        is_marked && is_empty && workers.cordoned().await? == new.node.iter().cloned().collect(),
    );
    let lost = gone(&before, &after);
    let unmarked: Vec<String> =
        before.iter().filter(|machine| !machine.is_marked).map(|machine| machine.name.clone()).collect();
    ctx.check(
        "another machine is deleted, one that nobody annotated or drained",
        lost.len() == 1 && lost.iter().all(|name| unmarked.contains(name)),
    );
    let had_pod = lost.iter().all(|name| busy.iter().any(|machine| machine.name == *name));
    ctx.check("a pod ran on it", had_pod && !lost.is_empty());
    let waits = workers.pods_waiting(PODS, 1).await;
    ctx.check("1 of the 3 pods has no node now, beside an empty one", passed(ctx, &waits));
    let mut table = Table::new(&["MachineSet", "before", "after"]);
    for ((set, had), (_, has)) in by_set(&before, &new).iter().zip(&by_set(&after, &new)) {
        table.row(&[set, had, has]);
    }
    ctx.table(table);
    ctx.say("The annotation only decides within one MachineSet. The rollout decides which MachineSet is scaled down, and chooses the old one, because the new one already has the size that it wants. The guard held, because the count was 3, but it does not help.");

    ctx.say("The next time that the count is lowered, the annotation would still delete that machine, with the pods that run there by then. Bob removes the annotation and uncordons the node.");
    workers.unmark_and_uncordon(&new).await?;
    workers.tandem.pods_run(PODS).await?;
    Ok(())
}

/// The machines that are in `before` only.
fn gone(before: &[Machine], after: &[Machine]) -> Vec<String> {
    let is_left = |machine: &&Machine| !after.iter().any(|it| it.name == machine.name);
    before.iter().filter(is_left).map(|machine| machine.name.clone()).collect()
}

/// Lowers the number from `from` by one, guarded by the number, through `/scale`.
async fn lower(actor: &Actor, from: i32) -> Result<()> {
    scale_from_to(actor, from, from - 1).await?;
    Ok(())
}

/// Sets the number through `/scale`, provided that it is `from`.
#[expect(clippy::disallowed_methods, reason = "a write of the naive scaler, shown bare")]
async fn scale_from_to(actor: &Actor, from: i32, to: i32) -> Result<Scale, kube::Error> {
    let operations = json!([
        {"op": "test", "path": "/spec/replicas", "value": from},
        {"op": "replace", "path": "/spec/replicas", "value": to},
    ]);
    let patch = serde_json::from_value(operations).map_err(kube::Error::SerdeError)?;
    let params = PatchParams { field_manager: Some(actor.name().to_owned()), ..PatchParams::default() };
    deployments(actor).patch_scale(WORKERS, &params, &Patch::<()>::Json(patch)).await
}

/// The `MachineDeployment`s, with the actor's recorded client.
fn deployments(actor: &Actor) -> Api<DynamicObject> {
    cluster_api::deployments(actor.client(), actor.namespace())
}
