//! What happens to the pool, and when the next thing may happen.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use shared_crds::v1alpha1::NodePoolStatus;
use toolbox::messages::inform;

use super::objects::{self, POOL};
use super::report::SoakPhase;
use crate::audit::Event;
use crate::test_env::{TestEnv, is_ready};
use crate::wait::eventually;

/// How long a phase may take.
const PATIENCE: Duration = Duration::from_secs(900);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// How long a node is unneeded before the Autoscaler removes it: not while pods are only between two nodes.
const UNNEEDED_SECONDS: i32 = 10;
/// How long a kubelet is silent before that is noticed.
const GRACE: Duration = Duration::from_secs(5);

/// Tells all of it. Each part is in `phases` as soon as it begins, and what it took when it is over.
pub(super) async fn tell(env: &TestEnv, nodes: usize, phases: &mut Vec<SoakPhase>) -> Result<()> {
    let deployments = objects::deployments(nodes);
    phase(phases, "filled by pending pods", fill(env, nodes, &deployments)).await?;
    phase(phases, "rolled, while kubelets died", roll(env, nodes, &deployments)).await?;
    phase(phases, "repaired after more kubelets died", repair(env, nodes)).await?;
    phase(phases, "emptied to a tenth", shrink(env, nodes, &deployments)).await
}

async fn phase(
    phases: &mut Vec<SoakPhase>,
    name: &'static str,
    work: impl Future<Output = Result<()>>,
) -> Result<()> {
    let (start, began) = (Instant::now(), Timestamp::now());
    phases.push(SoakPhase { name, began, took: Duration::ZERO });
    work.await.with_context(|| format!("not {name}"))?;
    let took = start.elapsed();
    inform(&format!("{name}: {:.1} s", took.as_secs_f64()));
    if let Some(phase) = phases.last_mut() {
        phase.took = took;
    }
    Ok(())
}

/// Pods come, and the Autoscaler scales the pool for them.
async fn fill(env: &TestEnv, nodes: usize, deployments: &[Deployment]) -> Result<()> {
    env.create(&objects::pool(nodes)?).await?;
    env.create(&crate::objects::autoscaler("all", UNNEEDED_SECONDS)).await?;
    for deployment in deployments {
        env.create(deployment).await?;
        env.create(&objects::budget(deployment)?).await?;
    }
    settled(env, nodes..=nodes).await?;
    all_available(env).await
}

/// The template changes, and some kubelets die on the way. The first eviction of a pod of one Deployment is refused: its budget
/// permits none until then.
async fn roll(env: &TestEnv, nodes: usize, deployments: &[Deployment]) -> Result<()> {
    let held = deployments.first().context("no Deployment")?;
    permit(env, held, 0).await?;
    let audit = env.audit()?;
    let mark = audit.end()?;
    env.patch_pool(POOL, &objects::other_machines()).await?;
    eventually(PATIENCE, "an eviction is refused", async || {
        tokio::time::sleep(LOOK).await;
        env.operators.keep_alive().await?;
        let is_refused = |event: &Event| event.subresource == "eviction" && event.code == 429;
        ensure!(audit.follow_from(mark).read_new()?.iter().any(is_refused), "none was");
        Ok(Some(()))
    })
    .await?;
    permit(env, held, objects::MISSING).await?;
    until(env, "a third is replaced", async |status| {
        let current = status.up_to_date_replicas.unwrap_or(0);
        ensure!(usize::try_from(current)? >= nodes / 3, "{current} are");
        Ok(())
    })
    .await?;
    stop_kubelets(env, nodes / 20).await?;
    until(env, "the rollout is over", async |status| {
        let condition =
            status.conditions.iter().find(|it| it.type_ == "RollingOut").context("no condition")?;
        ensure!(condition.status == "False" && condition.reason == "UpToDate", "{}", condition.message);
        Ok(())
    })
    .await?;
    settled(env, nodes..=nodes).await?;
    all_available(env).await
}

/// Sets how many pods of a Deployment may be missing, and waits until the disruption controller has taken it in.
async fn permit(env: &TestEnv, deployment: &Deployment, missing: usize) -> Result<()> {
    let budgets = env.api::<PodDisruptionBudget>();
    let patch = Patch::Merge(json!({"spec": {"maxUnavailable": missing}}));
    let budget = budgets.patch(&deployment.name_any(), &PatchParams::default(), &patch).await?;
    eventually(PATIENCE, "the budget is taken in", async || {
        tokio::time::sleep(LOOK).await;
        let status = budgets.get(&deployment.name_any()).await?.status.context("no status")?;
        ensure!(status.observed_generation >= budget.metadata.generation, "not yet");
        Ok(Some(()))
    })
    .await
}

/// Kubelets die while nothing else happens.
async fn repair(env: &TestEnv, nodes: usize) -> Result<()> {
    let dead = stop_kubelets(env, nodes / 10).await?;
    eventually(PATIENCE, "every dead node is replaced", async || {
        tokio::time::sleep(LOOK).await;
        env.operators.keep_alive().await?;
        let left = env
            .nodes(POOL)
            .await?
            .iter()
            .filter(|node| dead.contains(&node.uid().unwrap_or_default()))
            .count();
        ensure!(left == 0, "{left} are left");
        Ok(Some(()))
    })
    .await?;
    settled(env, nodes..=nodes).await?;
    all_available(env).await
}

/// Nine tenths of the pods go, and the Autoscaler removes what is not needed any more.
async fn shrink(env: &TestEnv, nodes: usize, deployments: &[Deployment]) -> Result<()> {
    let api = env.api::<Deployment>();
    for deployment in deployments {
        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas.div_euclid(10)}}));
        api.patch(&deployment.name_any(), &PatchParams::default(), &patch).await?;
    }
    settled(env, 1..=nodes / 10).await?;
    all_available(env).await
}

/// Takes the power from `count` nodes that are Ready and in use, and returns their UIDs when that has been noticed.
async fn stop_kubelets(env: &TestEnv, count: usize) -> Result<Vec<String>> {
    let is_used = |node: &Node| {
        is_ready(node) && node.spec.as_ref().is_some_and(|spec| spec.unschedulable != Some(true))
    };
    let mut used = env.nodes(POOL).await?;
    used.retain(is_used);
    // Spread over the pool, old nodes and new ones.
    let step = (used.len() / count).max(1);
    let chosen: Vec<Node> = used.into_iter().step_by(step).take(count).collect();
    ensure!(chosen.len() == count, "{} nodes are in use, and {count} are to die", chosen.len());
    let nodes = Api::<Node>::all(env.client.clone());
    let off = Patch::Merge(json!({"metadata": {"labels": {"kwok.x-k8s.io/node": null}}}));
    for node in &chosen {
        nodes.patch(&node.name_any(), &PatchParams::default(), &off).await?;
    }
    tokio::time::sleep(GRACE).await;
    for node in &chosen {
        report_silence(env, &nodes, &node.name_any()).await?;
    }
    Ok(chosen.iter().filter_map(Node::uid).collect())
}

/// Reports what the node lifecycle controller reports of a node that has been silent for its grace period, and of its pods. The
/// node may be gone by now.
async fn report_silence(env: &TestEnv, nodes: &Api<Node>, node: &str) -> Result<()> {
    let now = Timestamp::from_second(Timestamp::now().as_second())?.to_string();
    let ready = |status: &str| {
        Patch::Strategic(json!({"status": {"conditions": [{
            "type": "Ready", "status": status, "reason": "NodeStatusUnknown", "message": "the kubelet is silent",
            "lastTransitionTime": now,
        }]}}))
    };
    if is_gone(nodes.patch_status(node, &PatchParams::default(), &ready("Unknown")).await)? {
        return Ok(());
    }
    let pods = env.api::<Pod>();
    let there = ListParams::default().fields(&format!("spec.nodeName={node}"));
    for pod in pods.list_metadata(&there).await? {
        is_gone(pods.patch_status(&pod.name_any(), &PatchParams::default(), &ready("False")).await)?;
    }
    Ok(())
}

fn is_gone<K>(answer: kube::Result<K>) -> Result<bool> {
    match answer {
        Ok(_) => Ok(false),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Waits until the status of the pool is so.
async fn until(env: &TestEnv, what: &str, is_so: impl AsyncFn(NodePoolStatus) -> Result<()>) -> Result<()> {
    eventually(PATIENCE, what, async || {
        tokio::time::sleep(LOOK).await;
        env.operators.keep_alive().await?;
        let pool = env.pool(POOL).await?;
        let status = pool.status.unwrap_or_default();
        ensure!(status.observed_generation == pool.metadata.generation, "the spec has just changed");
        is_so(status).await?;
        Ok(Some(()))
    })
    .await
}

/// Waits until the pool has as many nodes as it wants, all Ready, and wants a number in the range.
async fn settled(env: &TestEnv, range: std::ops::RangeInclusive<usize>) -> Result<()> {
    eventually(PATIENCE, &format!("{range:?} nodes, all ready"), async || {
        tokio::time::sleep(LOOK).await;
        env.operators.keep_alive().await?;
        let pool = env.pool(POOL).await?;
        let status = pool.status.unwrap_or_default();
        let counts = (pool.spec.replicas, status.replicas, status.ready_replicas);
        let wanted = usize::try_from(pool.spec.replicas.unwrap_or(0))?;
        let is_so = counts.1 == counts.0 && counts.2 == counts.0 && range.contains(&wanted);
        ensure!(is_so, "wanted, there and ready are {counts:?}");
        let there = env.nodes(POOL).await?.len();
        ensure!(there == wanted, "{there} nodes exist, and {wanted} are wanted");
        Ok(Some(()))
    })
    .await
}

/// Waits until every pod that is wanted is available.
async fn all_available(env: &TestEnv) -> Result<()> {
    eventually(PATIENCE, "all pods are available", async || {
        tokio::time::sleep(LOOK).await;
        for deployment in env.api::<Deployment>().list(&ListParams::default()).await? {
            let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
            let status = deployment.status.as_ref();
            let available = status.and_then(|status| status.available_replicas);
            ensure!(available == wanted, "{available:?} of {wanted:?} of {}", deployment.name_any());
        }
        Ok(Some(()))
    })
    .await
}
