//! One pod at a time: the planner and the scheduler decide about exactly the same cluster, so their answers must be the
//! same.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::objects::key;
use super::planner::{SimulatedAnswer, SimulatedPlanner, SimulatedResult};
use super::pods;
use super::pods::Made;
use super::random_cluster::RandomCluster;
use super::scheduler_env::{SchedulerDecision, SchedulerEnv};
use super::seeded_rng::SeededRng;

/// The observed result for one pod, which determines the correct answer of the planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedPlacement {
    /// The scheduler placed it on an existing node.
    Fits,
    /// It was pending, and was placed when the nodes requested by the planner existed.
    NeedsNodes,
    /// It was pending; if a pool is named, it stayed pending with one more node of that pool.
    Stays(Option<String>),
}

impl ObservedPlacement {
    /// Whether `prediction` contradicts the result. A pool that was not tried counts as well: if the planner had
    /// promised a node of it, that node would have been created.
    pub fn contradicts(&self, prediction: &SimulatedResult) -> bool {
        !matches!(
            (self, prediction),
            (Self::Fits, SimulatedResult::Fits)
                | (Self::NeedsNodes, SimulatedResult::TriggersScaleUp(_))
                | (Self::Stays(_), SimulatedResult::Unschedulable(_))
        )
    }
}

/// A question, with both answers.
pub struct Record {
    /// The classes of the pod's constraints.
    pub classes: BTreeSet<&'static str>,
    /// The pending pod, as the API server completed it.
    pub pod: Value,
    /// All other objects.
    pub state: Vec<Arc<Value>>,
    /// The planner's answer.
    pub prediction: SimulatedResult,
    /// The planner's warnings.
    pub warnings: String,
    /// The observed result.
    pub observed: ObservedPlacement,
    /// The scheduler's message.
    pub said: String,
    /// How the two differ; `None` when they agree.
    pub disagreement: Option<String>,
}

/// Asks about a random pod called `name`, mostly with constraints of the class `about`. A placed pod stays: the next
/// question is about a slightly fuller cluster.
///
/// # Errors
/// When the API server, the scheduler or the planner fails to answer.
pub async fn ask(
    env: &mut SchedulerEnv,
    planner: &SimulatedPlanner,
    cluster: &mut RandomCluster,
    rng: &mut SeededRng,
    name: &str,
    about: &'static str,
) -> Result<Record> {
    let namespace = rng.pick(&cluster.namespaces).clone();
    let made = pods::pending(rng, &namespace, name, about);
    ask_about(env, planner, cluster, rng, made, None).await
}

/// Asks about a pod, which may be nominated to a node already. A placed pod stays.
///
/// # Errors
/// When the API server, the scheduler or the planner fails to answer.
pub async fn ask_about(
    env: &mut SchedulerEnv,
    planner: &SimulatedPlanner,
    cluster: &mut RandomCluster,
    rng: &mut SeededRng,
    made: Made,
    nominated: Option<&str>,
) -> Result<Record> {
    let Made { pod, classes } = made;
    let created = match nominated {
        None => env.create_pod(&pod).await?,
        Some(node) => env.create_nominated_pod(&pod, node).await?,
    };
    let id = key(&created);
    let waiting = waiting(created);
    let around = cluster.objects();
    let mut objects = around.clone();
    objects.push(Arc::new(waiting.clone()));
    let (answer, decision) = tokio::join!(planner.ask(&objects), env.decision(&id));
    let (answer, decision) = (answer?, decision?);
    let prediction =
        prediction(&answer, &waiting).with_context(|| format!("the planner says nothing of {id:?}"))?;
    let mut disagreement = None;
    let mut said = String::new();
    let observed = match decision {
        SchedulerDecision::Placed(node) => {
            said = format!("placed on {node}");
            cluster.add_pod(env, &id).await?;
            if prediction != SimulatedResult::Fits {
                disagreement =
                    Some(format!("the scheduler placed it on {node}, the planner said {prediction:?}"));
            }
            ObservedPlacement::Fits
        }
        SchedulerDecision::Waits(why) => {
            env.remove_pod(&id).await?;
            said.push_str(&why);
            match &prediction {
                SimulatedResult::Fits => {
                    disagreement = Some(format!("the planner said it fits, the scheduler: {why}"));
                    ObservedPlacement::Stays(None)
                }
                SimulatedResult::TriggersScaleUp(pool) => {
                    let grown = cluster.grow(env, &answer).await?;
                    match again(env, cluster, &pod).await? {
                        SchedulerDecision::Placed(_) => ObservedPlacement::NeedsNodes,
                        SchedulerDecision::Waits(why) => {
                            disagreement =
                                Some(format!("with {grown} new nodes, for {pool}, it still waits: {why}"));
                            ObservedPlacement::Stays(None)
                        }
                    }
                }
                // A node of a pool that the planner reports as no help must not help.
                SimulatedResult::Unschedulable(_) if !rng.one_in(3) => {
                    match cluster.grow_random_pool(env, rng).await? {
                        None => ObservedPlacement::Stays(None),
                        Some(pool) => match again(env, cluster, &pod).await? {
                            SchedulerDecision::Waits(_) => ObservedPlacement::Stays(Some(pool)),
                            SchedulerDecision::Placed(node) => {
                                disagreement =
                                    Some(format!("one node of {pool} was enough: it is on {node} now"));
                                ObservedPlacement::NeedsNodes
                            }
                        },
                    }
                }
                SimulatedResult::Unschedulable(_) => ObservedPlacement::Stays(None),
            }
        }
    };
    Ok(Record {
        classes,
        pod: waiting,
        state: around,
        prediction,
        warnings: answer.warnings,
        observed,
        said,
        disagreement,
    })
}

/// What the planner says of `pod`. Of a pod whose nomination it believes it says nothing: it plans as if the pod were
/// there.
pub fn prediction(answer: &SimulatedAnswer, pod: &Value) -> Option<SimulatedResult> {
    let believed = || pod["status"]["nominatedNodeName"].is_string().then_some(SimulatedResult::Fits);
    answer.pods.get(&key(pod)).cloned().or_else(believed)
}

/// Asks the scheduler about the same pod with another name, because a refused pod waits for its next retry.
async fn again(env: &SchedulerEnv, cluster: &mut RandomCluster, pod: &Value) -> Result<SchedulerDecision> {
    let mut pod = pod.clone();
    let name = format!("{}-again", key(&pod).1);
    pod["metadata"]["name"] = json!(name);
    env.create_pod(&pod).await?;
    let decision = env.decision(&key(&pod)).await?;
    match decision {
        SchedulerDecision::Placed(_) => cluster.add_pod(env, &key(&pod)).await?,
        SchedulerDecision::Waits(_) => env.remove_pod(&key(&pod)).await?,
    }
    Ok(decision)
}

/// The pod as it is after the scheduler has found no node for it.
pub fn waiting(mut pod: Value) -> Value {
    pod["status"]["conditions"] =
        json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_nominated_pod_the_planner_need_not_speak() {
        let mut pod = json!({"metadata": {"namespace": "a", "name": "p"}});
        let mut answer = SimulatedAnswer::default();
        assert_eq!(prediction(&answer, &pod), None);
        pod["status"]["nominatedNodeName"] = json!("n");
        assert_eq!(prediction(&answer, &pod), Some(SimulatedResult::Fits));
        let nothing = SimulatedResult::Unschedulable(String::new());
        answer.pods.insert(key(&pod), nothing.clone());
        assert_eq!(prediction(&answer, &pod), Some(nothing));
    }

    #[test]
    fn each_outcome_has_one_answer_that_is_true() {
        let grows = |pool: &str| SimulatedResult::TriggersScaleUp(pool.to_owned());
        let nothing = SimulatedResult::Unschedulable(String::new());
        for (observed, prediction, contradicts) in [
            (ObservedPlacement::Fits, SimulatedResult::Fits, false),
            (ObservedPlacement::Fits, grows("a"), true),
            (ObservedPlacement::Fits, nothing.clone(), true),
            (ObservedPlacement::NeedsNodes, grows("a"), false),
            (ObservedPlacement::NeedsNodes, SimulatedResult::Fits, true),
            (ObservedPlacement::NeedsNodes, nothing.clone(), true),
            (ObservedPlacement::Stays(None), nothing.clone(), false),
            (ObservedPlacement::Stays(None), SimulatedResult::Fits, true),
            (ObservedPlacement::Stays(Some("a".into())), grows("b"), true),
        ] {
            assert_eq!(observed.contradicts(&prediction), contradicts, "{observed:?} {prediction:?}");
        }
    }
}
