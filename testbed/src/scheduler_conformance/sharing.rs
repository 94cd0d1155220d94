//! Several equal pods at a time that compete for a volume: what one of them takes, the others must not get in the same
//! pass. Which of them gets it is left to the scheduler, how many are placed is not.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::kind_cluster::{KindCluster, ONCE_CLAIMS, SCARCE_CLAIMS};
use super::kinds::SHARED_VOLUMES;
use super::objects::key;
use super::planner::{SimulatedPlanner, SimulatedResult};
use super::pods;
use super::question::{ObservedPlacement, Record, waiting};
use super::random_cluster::RandomCluster;
use super::rules::use_claim;
use super::scheduler_env::{SchedulerDecision, SchedulerEnv};
use super::seeded_rng::SeededRng;

/// Asks about several pods whose names begin with `name`; there is one record for each.
///
/// # Errors
/// When the API server, the scheduler or the planner fails to answer.
pub async fn ask(
    env: &mut SchedulerEnv,
    planner: &SimulatedPlanner,
    kind_cluster: &mut KindCluster,
    rng: &mut SeededRng,
    name: &str,
) -> Result<Vec<Record>> {
    let cluster = &mut kind_cluster.cluster;
    let pods = competing(rng, &cluster.namespaces, name);
    let mut objects = cluster.objects();
    let mut pending = Vec::new();
    for pod in &pods {
        pending.push(waiting(env.create_pod(pod).await?));
    }
    objects.extend(pending.iter().cloned().map(Arc::new));
    let answer = planner.ask(&objects).await?;
    let first = decide(env, cluster, &pods).await?;
    let mut records = Vec::new();
    for (pod, decision) in pending.into_iter().zip(&first) {
        let id = key(&pod);
        let prediction =
            answer.pods.get(&id).cloned().with_context(|| format!("the planner says nothing of {id:?}"))?;
        let is_other = |object: &&Arc<Value>| object["kind"] != "Pod" || key(object) != id;
        let others = objects.iter().filter(is_other).cloned().collect();
        let (observed, said) = match decision {
            SchedulerDecision::Placed(node) => (ObservedPlacement::Fits, format!("placed on {node}")),
            SchedulerDecision::Waits(why) => (ObservedPlacement::Stays(None), why.clone()),
        };
        records.push(Record {
            classes: BTreeSet::from([SHARED_VOLUMES]),
            pod,
            state: others,
            prediction,
            warnings: answer.warnings.clone(),
            observed,
            said,
            disagreement: None,
        });
    }
    let mut problem = differs(&records, "at once", |prediction| *prediction == SimulatedResult::Fits);
    cluster.grow(env, &answer).await?;
    let left: Vec<usize> = (0..pods.len()).filter(|&at| !is_placed(&first[at])).collect();
    let again: Vec<Value> = left.iter().map(|&at| renamed(&pods[at])).collect();
    for pod in &again {
        env.create_pod(pod).await?;
    }
    for (at, decision) in left.into_iter().zip(decide(env, cluster, &again).await?) {
        if is_placed(&decision) {
            records[at].observed = ObservedPlacement::NeedsNodes;
        }
    }
    let is_promise = |prediction: &SimulatedResult| !matches!(prediction, SimulatedResult::Unschedulable(_));
    problem = problem.or_else(|| differs(&records, "with the planned nodes", is_promise));
    if let Some(record) = records.first_mut() {
        record.disagreement = problem;
    }
    Ok(records)
}

/// How the number of pods that are placed by now differs from the number that the planner has promised.
fn differs(records: &[Record], when: &str, is_promise: impl Fn(&SimulatedResult) -> bool) -> Option<String> {
    let promised = records.iter().filter(|record| is_promise(&record.prediction)).count();
    let placed =
        records.iter().filter(|record| !matches!(record.observed, ObservedPlacement::Stays(_))).count();
    (promised != placed).then(|| {
        let said: Vec<_> = records.iter().map(|record| (&record.prediction, record.said.as_str())).collect();
        format!("of {} pods the planner promised {promised} a place {when}, the scheduler placed {placed}: {said:?}", records.len())
    })
}

/// The scheduler's decisions about `pods`, which exist. Placed ones stay.
async fn decide(
    env: &SchedulerEnv,
    cluster: &mut RandomCluster,
    pods: &[Value],
) -> Result<Vec<SchedulerDecision>> {
    let mut decisions = Vec::new();
    for pod in pods {
        decisions.push(env.decision(&key(pod)).await?);
    }
    for (pod, decision) in pods.iter().zip(&decisions) {
        if is_placed(decision) {
            cluster.add_pod(env, &key(pod)).await?;
        } else {
            env.remove_pod(&key(pod)).await?;
        }
    }
    Ok(decisions)
}

fn is_placed(decision: &SchedulerDecision) -> bool {
    matches!(decision, SchedulerDecision::Placed(_))
}

fn renamed(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let name = format!("{}-again", key(&pod).1);
    pod["metadata"]["name"] = json!(name);
    pod
}

/// Two or three equal pods with one claim that only one pod may use, or with a claim each to the only volume of a class.
fn competing(rng: &mut SeededRng, namespaces: &[String], name: &str) -> Vec<Value> {
    let namespace = rng.pick(namespaces).clone();
    let like = pods::plain(rng, &namespace, "");
    let claim = match rng.below(3) {
        0 => Some(format!("once-{}", rng.below(ONCE_CLAIMS))),
        1 => Some(format!("once-late-{}", rng.below(ONCE_CLAIMS))),
        _ => None,
    };
    let several = 2 + rng.below(SCARCE_CLAIMS - 1);
    let made = (0..several).map(|number| {
        let mut pod = like.clone();
        pod["metadata"]["name"] = json!(format!("{name}-{number}"));
        let claim = claim.clone().unwrap_or_else(|| format!("scarce-{number}"));
        use_claim(&mut pod["spec"], &claim);
        pod
    });
    made.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn competing_pods_want_one_claim_or_one_each() {
        let mut rng = SeededRng::new(1);
        let mut seen = BTreeSet::new();
        for _ in 0..40 {
            let pods = competing(&mut rng, &["a".to_owned()], "q");
            let claims: BTreeSet<String> =
                pods.iter().map(|pod| pod["spec"]["volumes"][0]["name"].to_string()).collect();
            assert!(claims.len() == 1 || claims.len() == pods.len());
            assert!(pods.len() > 1 && pods.len() <= SCARCE_CLAIMS);
            seen.insert(claims.len());
        }
        assert!(seen.len() > 1);
    }
}
