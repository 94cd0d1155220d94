//! One pod at a time: the planner and the scheduler decide about exactly the same cluster, so their answers must be the
//! same.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::dice::Dice;
use super::objects::key;
use super::planner::{SimulatedPlanner, SimulatedResult};
use super::pods;
use super::pods::Made;
use super::stage::{SchedulerEnv, Verdict};
use super::world::World;

/// The observed result for one pod, which determines the correct answer of the planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Truth {
    /// The scheduler placed it on an existing node.
    Fits,
    /// It was pending, and was placed when the nodes requested by the planner existed.
    NeedsNodes,
    /// It was pending; if a pool is named, it stayed pending with one more node of that pool.
    Stays(Option<String>),
}

impl Truth {
    /// Whether `fate` contradicts the result. A pool that was not tried counts as well: if the planner had promised a
    /// node of it, that node would have been created.
    pub fn contradicts(&self, fate: &SimulatedResult) -> bool {
        !matches!(
            (self, fate),
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
    pub fate: SimulatedResult,
    /// The planner's warnings.
    pub warnings: String,
    /// The observed result.
    pub truth: Truth,
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
    stage: &mut SchedulerEnv,
    planner: &SimulatedPlanner,
    world: &mut World,
    dice: &mut Dice,
    name: &str,
    about: &'static str,
) -> Result<Record> {
    let namespace = dice.pick(&world.namespaces).clone();
    let Made { pod, classes } = pods::pending(dice, &namespace, name, about);
    let created = stage.create_pod(&pod).await?;
    let id = key(&created);
    let waiting = waiting(created);
    let around = world.objects();
    let mut objects = around.clone();
    objects.push(Arc::new(waiting.clone()));
    let (answer, verdict) = tokio::join!(planner.ask(&objects), stage.verdict(&id));
    let (answer, verdict) = (answer?, verdict?);
    let fate =
        answer.pods.get(&id).cloned().with_context(|| format!("the planner says nothing of {id:?}"))?;
    let mut disagreement = None;
    let mut said = String::new();
    let truth = match verdict {
        Verdict::Placed(node) => {
            said = format!("placed on {node}");
            world.add_pod(stage, &id).await?;
            if fate != SimulatedResult::Fits {
                disagreement = Some(format!("the scheduler placed it on {node}, the planner said {fate:?}"));
            }
            Truth::Fits
        }
        Verdict::Waits(why) => {
            stage.remove_pod(&id).await?;
            said.push_str(&why);
            match &fate {
                SimulatedResult::Fits => {
                    disagreement = Some(format!("the planner said it fits, the scheduler: {why}"));
                    Truth::Stays(None)
                }
                SimulatedResult::TriggersScaleUp(pool) => {
                    let grown = world.grow(stage, &answer).await?;
                    match again(stage, world, &pod).await? {
                        Verdict::Placed(_) => Truth::NeedsNodes,
                        Verdict::Waits(why) => {
                            disagreement =
                                Some(format!("with {grown} new nodes, for {pool}, it still waits: {why}"));
                            Truth::Stays(None)
                        }
                    }
                }
                // A node of a pool that the planner reports as no help must not help.
                SimulatedResult::Unschedulable(_) if !dice.one_in(3) => {
                    match world.grow_anyhow(stage, dice).await? {
                        None => Truth::Stays(None),
                        Some(pool) => match again(stage, world, &pod).await? {
                            Verdict::Waits(_) => Truth::Stays(Some(pool)),
                            Verdict::Placed(node) => {
                                disagreement =
                                    Some(format!("one node of {pool} was enough: it is on {node} now"));
                                Truth::NeedsNodes
                            }
                        },
                    }
                }
                SimulatedResult::Unschedulable(_) => Truth::Stays(None),
            }
        }
    };
    Ok(Record {
        classes,
        pod: waiting,
        state: around,
        fate,
        warnings: answer.warnings,
        truth,
        said,
        disagreement,
    })
}

/// Asks the scheduler about the same pod with another name, because a refused pod waits for its next retry.
async fn again(stage: &SchedulerEnv, world: &mut World, pod: &Value) -> Result<Verdict> {
    let mut pod = pod.clone();
    let name = format!("{}-again", key(&pod).1);
    pod["metadata"]["name"] = json!(name);
    stage.create_pod(&pod).await?;
    let verdict = stage.verdict(&key(&pod)).await?;
    match verdict {
        Verdict::Placed(_) => world.add_pod(stage, &key(&pod)).await?,
        Verdict::Waits(_) => stage.remove_pod(&key(&pod)).await?,
    }
    Ok(verdict)
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
    fn each_outcome_has_one_answer_that_is_true() {
        let grows = |pool: &str| SimulatedResult::TriggersScaleUp(pool.to_owned());
        let nothing = SimulatedResult::Unschedulable(String::new());
        for (truth, fate, contradicts) in [
            (Truth::Fits, SimulatedResult::Fits, false),
            (Truth::Fits, grows("a"), true),
            (Truth::Fits, nothing.clone(), true),
            (Truth::NeedsNodes, grows("a"), false),
            (Truth::NeedsNodes, SimulatedResult::Fits, true),
            (Truth::NeedsNodes, nothing.clone(), true),
            (Truth::Stays(None), nothing.clone(), false),
            (Truth::Stays(None), SimulatedResult::Fits, true),
            (Truth::Stays(Some("a".into())), grows("b"), true),
        ] {
            assert_eq!(truth.contradicts(&fate), contradicts, "{truth:?} {fate:?}");
        }
    }
}
