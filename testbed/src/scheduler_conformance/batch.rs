//! Many pods at once: the planner packs them in one pass, the scheduler takes them as they come and prefers nodes by
//! its own scoring. Here the two may differ, and the differences are counted.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::objects::key;
use super::planner::{Key, SimulatedPlanner, SimulatedResult};
use super::pods;
use super::question::waiting;
use super::random_cluster::RandomCluster;
use super::rules::CLASSES;
use super::scheduler_env::{SchedulerDecision, SchedulerEnv};
use super::seeded_rng::SeededRng;

/// Priority classes of [`SchedulerEnv::create_priority`] that batches use, highest first; pods without one come last.
pub const PRIORITIES: [(&str, i32); 2] = [("high", 200), ("middle", 100)];

/// Maximum passes of planner and scheduler for a batch. Each places at least one pod or is the last.
const PASSES: usize = 12;

/// The result of a batch.
#[derive(Debug, Default)]
pub struct BatchOutcome {
    /// Number of pods in the batch.
    pub pods: usize,
    /// Number of pods placed by the scheduler in the first pass.
    pub placed: usize,
    /// Number of nodes that the planner requested in the first pass.
    pub nodes: usize,
    /// Passes until nothing changed: the planner promises nothing more, and all remaining pods are pending.
    pub passes: usize,
    /// Differences after the first pass because the scheduler prefers other nodes than the planner assumed.
    pub detours: Vec<Dispute>,
    /// Differences about the same state of the cluster.
    pub defects: Vec<Dispute>,
}

/// A pod about which the planner and the scheduler differ.
#[derive(Debug)]
pub struct Dispute {
    /// The pod.
    pub pod: Value,
    /// The classes of its constraints.
    pub classes: BTreeSet<&'static str>,
    /// The planner's answer.
    pub prediction: SimulatedResult,
    /// The scheduler's decision.
    pub decision: SchedulerDecision,
}

#[derive(Clone)]
struct Member {
    pod: Value,
    classes: BTreeSet<&'static str>,
    prediction: SimulatedResult,
    decision: SchedulerDecision,
}

impl Member {
    fn is_placed(&self) -> bool {
        matches!(self.decision, SchedulerDecision::Placed(_))
    }

    /// Whether the planner promised it a place.
    fn has_promise(&self) -> bool {
        !matches!(self.prediction, SimulatedResult::Unschedulable(_))
    }

    fn dispute(&self) -> Dispute {
        let Self { pod, classes, prediction, decision } = self.clone();
        Dispute { pod, classes, prediction, decision }
    }
}

/// Runs a batch of random pods, and leaves the placed ones in `cluster`.
///
/// After the first pass the two may differ, because the scheduler prefers nodes by a scoring that the planner does not
/// share. But a further pass starts from the actual positions of the pods, and then the pod that the planner places
/// first has its place whatever the scheduler prefers: a pass that promises a place and places no pod is a defect.
///
/// # Errors
/// When the API server, the scheduler or the planner fails to answer.
pub async fn run(
    env: &mut SchedulerEnv,
    planner: &SimulatedPlanner,
    cluster: &mut RandomCluster,
    rng: &mut SeededRng,
) -> Result<BatchOutcome> {
    let mut waiting = random_batch(rng, &cluster.namespaces);
    let mut outcome = BatchOutcome { pods: waiting.len(), ..BatchOutcome::default() };
    while outcome.passes < PASSES && !waiting.is_empty() {
        outcome.passes += 1;
        let nodes = pass(env, planner, cluster, &mut waiting).await?;
        let (placed, left): (Vec<_>, Vec<_>) = waiting.into_iter().partition(Member::is_placed);
        let order = order_of_binding(env, &placed)?;
        for member in &placed {
            if !member.has_promise() && !had_room(env, planner, cluster, member, &order).await? {
                outcome.defects.push(member.dispute());
            }
        }
        let promised = left.iter().filter(|member| member.has_promise());
        if outcome.passes == 1 {
            (outcome.placed, outcome.nodes) = (placed.len(), nodes);
            outcome.detours.extend(promised.map(Member::dispute));
            outcome.detours.extend(placed.iter().filter(|member| !member.has_promise()).map(Member::dispute));
        } else if placed.is_empty() {
            outcome.defects.extend(promised.map(Member::dispute));
        }
        waiting = left;
        if placed.is_empty() {
            break;
        }
    }
    Ok(outcome)
}

/// One pass: the planner plans the pending pods, its nodes are created, and the scheduler decides. Returns the number
/// of new nodes.
async fn pass(
    env: &mut SchedulerEnv,
    planner: &SimulatedPlanner,
    cluster: &mut RandomCluster,
    members: &mut [Member],
) -> Result<usize> {
    let mut objects = cluster.objects();
    for member in members.iter() {
        objects.push(Arc::new(waiting(env.complete_pod(&member.pod).await?)));
    }
    let answer = planner.ask(&objects).await?;
    for member in members.iter_mut() {
        let id: Key = key(&member.pod);
        let prediction =
            answer.pods.get(&id).with_context(|| format!("the planner says nothing of {id:?}"))?;
        member.prediction = prediction.clone();
    }
    let nodes = cluster.grow(env, &answer).await?;
    for member in members.iter() {
        env.create_pod(&member.pod).await?;
    }
    retry_pending(env, members).await?;
    for member in members.iter() {
        if member.is_placed() {
            cluster.add_pod(env, &key(&member.pod)).await?;
        } else {
            env.remove_pod(&key(&member.pod)).await?;
        }
    }
    Ok(nodes)
}

/// The pods of a pass in the order in which the API server bound them.
fn order_of_binding(env: &SchedulerEnv, placed: &[Member]) -> Result<Vec<Key>> {
    let mut order = Vec::new();
    for member in placed {
        let id = key(&member.pod);
        let pod = env.pod(&id)?;
        let version = pod["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        order.push((version.parse::<u64>().with_context(|| format!("no version: {pod}"))?, id));
    }
    order.sort_unstable();
    Ok(order.into_iter().map(|(_, id)| id).collect())
}

/// Whether the planner, which had no place for the pod, finds one at some moment of the pass, given the pods that were
/// bound by then. A pod that was bound later may block it: a topology spread constraint has room for a pod only until
/// another one joins.
async fn had_room(
    env: &SchedulerEnv,
    planner: &SimulatedPlanner,
    cluster: &RandomCluster,
    member: &Member,
    order: &[Key],
) -> Result<bool> {
    let id = key(&member.pod);
    let mut pod = env.pod(&id)?;
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.remove("nodeName");
    }
    let pod = Arc::new(waiting(pod));
    for bound in (0..=order.len()).rev() {
        let later = &order[bound..];
        let mut objects = cluster.objects();
        objects.retain(|object| {
            let other = key(object);
            object["kind"] != "Pod" || (other != id && !later.contains(&other))
        });
        objects.push(Arc::clone(&pod));
        if planner.ask(&objects).await?.pods.get(&id) == Some(&SimulatedResult::Fits) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Waits for every decision, then repeats the pending pods until none of them is placed: a pod may have waited for one
/// that came after it. They are created again for that, because the scheduler lets a refused pod wait for its next
/// retry.
async fn retry_pending(env: &SchedulerEnv, members: &mut [Member]) -> Result<()> {
    let mut first = true;
    let mut left: Vec<&mut Member> = members.iter_mut().collect();
    loop {
        let asked = left.len();
        for member in &mut left {
            member.decision = env.decision(&key(&member.pod)).await?;
        }
        left.retain(|member| matches!(member.decision, SchedulerDecision::Waits(_)));
        if left.is_empty() || (!first && left.len() == asked) {
            return Ok(());
        }
        first = false;
        for member in &mut left {
            env.remove_pod(&key(&member.pod)).await?;
            env.create_pod(&member.pod).await?;
        }
    }
}

/// Several kinds of pods, several of each, those of the highest priority first as in the scheduler's queue.
fn random_batch(rng: &mut SeededRng, namespaces: &[String]) -> Vec<Member> {
    let mut ranked = Vec::new();
    for kind in 0..8 {
        let namespace = rng.pick(namespaces).clone();
        let about = *rng.pick(&CLASSES);
        let made = pods::pending(rng, &namespace, "", about);
        let rank = rng.below(PRIORITIES.len() + 1);
        for number in 0..=rng.below(6) {
            let mut pod = made.pod.clone();
            pod["metadata"]["name"] = json!(format!("kind-{kind}-{number}"));
            if let Some((name, _)) = PRIORITIES.get(rank) {
                pod["spec"]["priorityClassName"] = json!(name);
            }
            let (prediction, decision) =
                (SimulatedResult::Unschedulable(String::new()), SchedulerDecision::Waits(String::new()));
            ranked.push((rank, Member { pod, classes: made.classes.clone(), prediction, decision }));
        }
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, member)| member).collect()
}
